use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request,
};
use http_body_util::Full;
use oac_dial::Origin;
use oac_dial::{ReachError, Rest, request_to};
use oac_model::{Digest, Generation, InstallationId, NodeId, ProviderKind, Secret, Specification};
use oac_wire::{frames::Identity, strict};
use serde::{Deserialize, Serialize};

use super::CoreClient;
use crate::limits::{CORE_BODY_BYTES, CORE_CALL};

/// What Core says of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    pub max_active: i64,
    pub max_retained: i64,
}

/// What Core selected for one generation.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) installation_id: InstallationId,
    pub(crate) core: Origin,
    pub(crate) specification: Specification,
}

/// A call that gave no usable answer. Nothing of a body but its code is kept.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// 401 with Core's own code, and nothing less (INV-P22).
    #[error("Core refuses this node's credential (HTTP 401, invalid_node_credential)")]
    Unauthorized,
    #[error("Core answered HTTP {status}{}", code.as_ref().map(|c| format!(", {c}")).unwrap_or_default())]
    Refused {
        status: StatusCode,
        /// A code of Core's error envelope, `[a-z_]{1,64}`.
        code: Option<String>,
    },
    #[error("Core could not be reached")]
    Network(#[source] ReachError),
    #[error("Core did not answer within {} s{via}", CORE_CALL.as_secs())]
    Late { via: String },
    #[error("Core's answer is not what this route answers")]
    Answer,
    #[error("Core knows this node under another {0}")]
    Differs(&'static str),
}

/// POST enroll's body (protocol.md section 13).
#[derive(Debug)]
pub(crate) struct Enrollment<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) credential: &'a Secret,
    pub(crate) name: &'a str,
}

#[derive(Serialize)]
struct EnrollBody<'a> {
    node_id: NodeId,
    credential: &'a str,
    name: &'a str,
    provider: ProviderKind,
    backend_fingerprint: Digest,
    deployment_generation: Generation,
    specification_digest: Digest,
    core_url: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Enrolled {
    node_id: NodeId,
    installation_id: InstallationId,
    provider: ProviderKind,
    deployment_generation: Generation,
    specification_digest: Digest,
    max_active: i64,
    max_retained: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityAnswer {
    node_id: NodeId,
    installation_id: InstallationId,
    provider: ProviderKind,
    deployment_generation: Generation,
    specification_digest: Digest,
    max_active: i64,
    max_retained: i64,
    #[allow(dead_code)]
    connected: bool,
    #[allow(dead_code)]
    provider_ready: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigurationAnswer {
    installation_id: InstallationId,
    provider: ProviderKind,
    core_url: String,
    generation: Generation,
    specification: Specification,
    specification_digest: Digest,
    #[allow(dead_code)]
    max_active: i64,
    #[allow(dead_code)]
    max_retained: i64,
}

#[derive(Deserialize)]
struct Envelope {
    error: EnvelopeError,
}

#[derive(Deserialize)]
struct EnvelopeError {
    code: Option<String>,
}

/// Which node's credential it is, where the query does not say.
const NODE: &str = "x-oac-node-id";
const UNAUTHORIZED: &str = "invalid_node_credential";

impl CoreClient {
    /// GET identity: whether Core still knows this node, and its capacity.
    pub async fn identity(&self, own: &Identity, credential: &Secret) -> Result<Confirmed, CallError> {
        let mut url = self.origin.route("/sandbox-node/identity");
        url.set_query(Some(&format!("node_id={}", own.node_id)));
        let request = request_to(&url);
        let body = self.call(request, credential, Vec::new(), StatusCode::OK).await?;
        let answer: IdentityAnswer = strict::from_slice(&body).map_err(|_| CallError::Answer)?;
        Enrolled {
            node_id: answer.node_id,
            installation_id: answer.installation_id,
            provider: answer.provider,
            deployment_generation: answer.deployment_generation,
            specification_digest: answer.specification_digest,
            max_active: answer.max_active,
            max_retained: answer.max_retained,
        }
        .confirm(own)
    }

    /// POST enroll with the enrollment token.
    pub(crate) async fn enroll(
        &self,
        token: &Secret,
        enrollment: &Enrollment<'_>,
    ) -> Result<Confirmed, CallError> {
        let own = enrollment.identity;
        let body = EnrollBody {
            node_id: own.node_id,
            credential: enrollment.credential.expose(),
            name: enrollment.name,
            provider: own.provider,
            backend_fingerprint: own.backend_fingerprint,
            deployment_generation: own.deployment_generation,
            specification_digest: own.specification_digest,
            core_url: self.origin.as_str(),
        };
        let url = self.origin.route("/sandbox-node/enroll");
        let body = serde_json::to_vec(&body).map_err(|_| CallError::Answer)?;
        let request = request_to(&url).method(Method::POST);
        let body = self.call(request, token, body, StatusCode::CREATED).await?;
        let enrolled: Enrolled = strict::from_slice(&body).map_err(|_| CallError::Answer)?;
        enrolled.confirm(own)
    }

    /// GET configuration of exactly this generation, for a node that Core knows.
    pub(crate) async fn configuration(
        &self,
        node: NodeId,
        credential: &Secret,
        generation: Generation,
    ) -> Result<Selection, CallError> {
        let mut url = self.origin.route("/sandbox-node/configuration");
        url.set_query(Some(&format!("generation={generation}")));
        let request = request_to(&url).header(NODE, node.to_string());
        let body = self.call(request, credential, Vec::new(), StatusCode::OK).await?;
        let answer: ConfigurationAnswer = strict::from_slice(&body).map_err(|_| CallError::Answer)?;
        let same = [
            (answer.generation == generation, "generation"),
            (
                answer.specification.digest() == answer.specification_digest,
                "specification",
            ),
            (answer.provider == answer.specification.provider, "provider"),
        ];
        match same.into_iter().find(|(equal, _)| !equal) {
            Some((_, what)) => Err(CallError::Differs(what)),
            None => Ok(Selection {
                installation_id: answer.installation_id,
                core: Origin::parse(&answer.core_url).map_err(|_| CallError::Answer)?,
                specification: answer.specification,
            }),
        }
    }

    /// The body of the expected answer.
    async fn call(
        &self,
        request: request::Builder,
        bearer: &Secret,
        body: Vec<u8>,
        expected: StatusCode,
    ) -> Result<Bytes, CallError> {
        let mut request = request.header(AUTHORIZATION, authorization(bearer));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::from(body)).map_err(|_| CallError::Answer)?;
        let asked = self
            .within(CORE_CALL, self.way.ask(request, CORE_BODY_BYTES))
            .await;
        let answer = asked
            .ok_or_else(|| CallError::Late { via: self.way.via() })?
            .map_err(|error| match error {
                ReachError::Large => CallError::Answer,
                error => CallError::Network(error),
            })?;
        match answer.rest {
            Rest::Body(body) if answer.head.status == expected => Ok(body),
            Rest::Body(body) => Err(refusal(answer.head.status, &body)),
            Rest::Switched(_) => Err(CallError::Answer),
        }
    }
}

/// A bearer header that no log shows.
pub(super) fn authorization(bearer: &Secret) -> HeaderValue {
    // What cannot stand in a header was never accepted as a credential: it is sent as none.
    let mut value = HeaderValue::from_str(&format!("Bearer {}", bearer.expose()))
        .unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
    value.set_sensitive(true);
    value
}

impl Enrolled {
    fn confirm(self, own: &Identity) -> Result<Confirmed, CallError> {
        let same = [
            (self.node_id == own.node_id, "node_id"),
            (self.installation_id == own.installation_id, "installation"),
            (self.provider == own.provider, "provider"),
            (
                self.deployment_generation == own.deployment_generation,
                "generation",
            ),
            (
                self.specification_digest == own.specification_digest,
                "specification",
            ),
        ];
        if let Some((_, what)) = same.into_iter().find(|(equal, _)| !equal) {
            return Err(CallError::Differs(what));
        }
        let capacity = 1..=oac_wire::limits::CAPACITY;
        if !capacity.contains(&self.max_active)
            || !(self.max_active..=oac_wire::limits::CAPACITY).contains(&self.max_retained)
        {
            return Err(CallError::Answer);
        }
        Ok(Confirmed {
            max_active: self.max_active,
            max_retained: self.max_retained,
        })
    }
}

/// What an answer other than the expected one means.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> CallError {
    let code = serde_json::from_slice::<Envelope>(body)
        .ok()
        .and_then(|envelope| envelope.error.code)
        .filter(|code| (1..=64).contains(&code.len()))
        .filter(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    if status == StatusCode::UNAUTHORIZED && code.as_deref() == Some(UNAUTHORIZED) {
        return CallError::Unauthorized;
    }
    CallError::Refused { status, code }
}

#[cfg(test)]
mod tests {
    use super::*;

    // inv: INV-P22, INV-N36
    #[test]
    fn only_cores_own_code_makes_a_401_final() {
        let envelope =
            |code: &str| format!(r#"{{"error":{{"message":"m","type":"t","code":{code},"param":null}}}}"#);
        let is_final = |status: u16, body: &str| {
            matches!(
                refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes()),
                CallError::Unauthorized
            )
        };
        let own = envelope(r#""invalid_node_credential""#);
        assert!(is_final(401, &own));
        assert!(!is_final(403, &own));
        assert!(!is_final(407, &own));
        assert!(!is_final(401, &envelope(r#""invalid_api_key""#)));
        assert!(!is_final(401, &envelope("null")));
        assert!(!is_final(401, "<html>Proxy authentication required</html>"));
        assert!(!is_final(401, ""));
    }

    #[test]
    fn a_refusal_prints_status_and_code_and_no_text_of_the_body() {
        let body = br#"{"error":{"message":"secret text","type":"t","code":"Not A Code","param":null}}"#;
        let text = refusal(StatusCode::CONFLICT, body).to_string();
        assert_eq!(text, "Core answered HTTP 409 Conflict");
        let body = br#"{"error":{"message":"secret text","code":"sandbox_specification_mismatch"}}"#;
        assert_eq!(
            refusal(StatusCode::CONFLICT, body).to_string(),
            "Core answered HTTP 409 Conflict, sandbox_specification_mismatch"
        );
    }
}
