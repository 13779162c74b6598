//! Core as an installer asks it: the configuration that a command selects, and what it says to a retained credential
//! (protocol.md section 13). Every call is bounded, follows no redirect and is tried three times where the failure may
//! pass. It prints nothing of a credential.

use std::time::Duration;

use http::{HeaderValue, header::AUTHORIZATION};
use http_body_util::Full;
use oac_dial::{Origin, Rest, Surroundings, Way, request_to};
use oac_model::{Digest, Generation, InstallationId, NodeId, ProviderKind, Secret, Specification};
use oac_wire::strict;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::hint::Hint;

const PROGRAM: HeaderValue =
    HeaderValue::from_static(concat!("oac-node-install/", env!("CARGO_PKG_VERSION")));
const CALL: Duration = Duration::from_secs(15);
const BODY_BYTES: usize = 16 * 1024;
/// Before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// GET configuration's answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Configuration {
    pub(crate) installation_id: InstallationId,
    pub(crate) provider: ProviderKind,
    /// An origin.
    pub(crate) core_url: String,
    pub(crate) generation: Generation,
    pub(crate) specification: Specification,
    pub(crate) specification_digest: Digest,
    #[allow(
        dead_code,
        reason = "named so that anything unknown is refused; nothing here asks for it"
    )]
    max_active: u32,
    #[allow(
        dead_code,
        reason = "named so that anything unknown is refused; nothing here asks for it"
    )]
    max_retained: u32,
}

/// GET identity's answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    pub(crate) node_id: NodeId,
    pub(crate) installation_id: InstallationId,
    pub(crate) provider: ProviderKind,
    pub(crate) deployment_generation: Generation,
    pub(crate) specification_digest: Digest,
    #[allow(
        dead_code,
        reason = "named so that anything unknown is refused; nothing here asks for it"
    )]
    max_active: i64,
    #[allow(
        dead_code,
        reason = "named so that anything unknown is refused; nothing here asks for it"
    )]
    max_retained: i64,
    pub(crate) connected: bool,
    pub(crate) provider_ready: bool,
}

/// A call without the expected answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 401 with Core's own code; a proxy's is [`Refusal::Silent`].
    Unauthorized,
    /// Core's envelope with this code.
    Code(String),
    /// An answer that is not Core's.
    NotCore,
    /// None.
    Silent,
}

#[derive(Deserialize)]
struct Envelope {
    error: EnvelopeError,
}

#[derive(Deserialize)]
struct EnvelopeError {
    code: Option<String>,
}

pub(crate) struct Core {
    origin: Origin,
    way: Way,
}

impl Core {
    /// By the proxies of this process's environment.
    pub(crate) fn at(origin: &Origin) -> Result<Self, Hint> {
        let around =
            Surroundings::of_this_process().map_err(|error| Hint::failed("the proxy settings", &error))?;
        let tls =
            oac_dial::tls(around.roots).map_err(|error| Hint::failed("TLS could not be set up", &error))?;
        let way =
            Way::new(origin.url(), &around.proxies, tls, PROGRAM).map_err(|_| Hint::unreachable(origin))?;
        Ok(Self {
            origin: origin.clone(),
            way,
        })
    }

    /// What the token's command is about.
    pub(crate) async fn configuration(
        &self,
        bearer: &Secret,
        node: Option<NodeId>,
    ) -> Result<Configuration, Refusal> {
        let body = self
            .get(&self.origin.route("/sandbox-node/configuration"), bearer, node)
            .await?;
        let answer: Configuration = strict::from_slice(&body).map_err(|_| Refusal::NotCore)?;
        let agrees = answer.specification.digest() == answer.specification_digest
            && answer.specification.provider == answer.provider
            && answer.specification.validate().is_ok();
        agrees.then_some(answer).ok_or(Refusal::NotCore)
    }

    pub(crate) async fn identity(&self, node: NodeId, credential: &Secret) -> Result<Known, Refusal> {
        let mut url = self.origin.route("/sandbox-node/identity");
        url.set_query(Some(&format!("node_id={node}")));
        let body = self.get(&url, credential, None).await?;
        strict::from_slice(&body).map_err(|_| Refusal::NotCore)
    }

    async fn get(&self, url: &Url, bearer: &Secret, node: Option<NodeId>) -> Result<Vec<u8>, Refusal> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let (refusal, passes) = match timeout(CALL, self.once(url, bearer, node)).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(refused)) => refused,
                Err(_) => (Refusal::Silent, true),
            };
            match pauses.next().filter(|_| passes) {
                Some(pause) => sleep(pause).await,
                None => return Err(refusal),
            }
        }
    }

    /// Also whether the failure may pass.
    async fn once(
        &self,
        url: &Url,
        bearer: &Secret,
        node: Option<NodeId>,
    ) -> Result<Vec<u8>, (Refusal, bool)> {
        // One that no header can hold was not sent: Core refused nothing.
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", bearer.expose()))
            .map_err(|_| (Refusal::Silent, false))?;
        authorization.set_sensitive(true);
        let mut request = request_to(url).header(AUTHORIZATION, authorization);
        if let Some(node) = node {
            request = request.header("x-oac-node-id", node.to_string());
        }
        let request = request
            .body(Full::default())
            .map_err(|_| (Refusal::Silent, false))?;
        let answer = self
            .way
            .ask(request, BODY_BYTES)
            .await
            .map_err(|_| (Refusal::Silent, true))?;
        let Rest::Body(body) = answer.rest else {
            return Err((Refusal::NotCore, false));
        };
        match answer.head.status.as_u16() {
            200 => Ok(body.to_vec()),
            status => Err(refusal(status, &body)),
        }
    }
}

/// What an answer other than 200 means, and whether it may pass.
fn refusal(status: u16, body: &[u8]) -> (Refusal, bool) {
    let envelope = serde_json::from_slice::<Envelope>(body).ok();
    let code = envelope.and_then(|envelope| envelope.error.code).filter(|code| {
        (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    });
    let passes = matches!(status, 408 | 429 | 500 | 502 | 503 | 504);
    let refusal = match (status, code) {
        (401, Some(code)) if code == "invalid_node_credential" => Refusal::Unauthorized,
        // Any other 401, 403 or 407 is a proxy's, whatever it is written as.
        (401 | 403 | 407, _) => Refusal::Silent,
        (_, Some(code)) => Refusal::Code(code),
        _ if passes => Refusal::Silent,
        _ => Refusal::NotCore,
    };
    // What Core says by a code of its own stays so for the seconds of three tries.
    let passes = passes && !matches!(refusal, Refusal::Code(_));
    (refusal, passes)
}

/// Step 10: why the command's configuration cannot be had.
pub(crate) fn configuration_hint(origin: &Origin, refusal: &Refusal) -> Hint {
    match refusal {
        Refusal::Unauthorized => Hint::Expired,
        Refusal::Silent => Hint::unreachable(origin),
        Refusal::NotCore => Hint::CoreNotThere {
            origin: origin.to_string(),
        },
        Refusal::Code(code) => match code.as_str() {
            "sandbox_reset_in_progress" => Hint::ResetRunning,
            "runtime_node_unavailable" => Hint::NoConfiguration,
            "sandbox_deployment_conflict" => Hint::OtherBackend,
            "sandbox_configuration_error" => Hint::NoPublicAddress,
            _ => Hint::unreachable(origin),
        },
    }
}

/// Step 25: why a registration failed, by the exit status of `oac-node register` and the code that it printed.
pub(crate) fn registration_hint(status: Option<i32>, said: &str) -> Hint {
    let has = |code: &str| {
        said.split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .any(|word| word == code)
    };
    if status == Some(78) {
        return Hint::Expired;
    }
    for (code, hint) in [
        ("sandbox_node_address_mismatch", Hint::AddressChanged),
        ("sandbox_configuration_error", Hint::AddressChanged),
        ("sandbox_specification_mismatch", Hint::SpecificationChanged),
        ("sandbox_reset_in_progress", Hint::ResetRunning),
    ] {
        if has(code) {
            return hint;
        }
    }
    let codes = oac_model::DiagnosticCode::ALL.iter().map(|code| code.as_str());
    match codes.into_iter().find(|code| has(code)) {
        Some(code) => Hint::BackendNotReady {
            code: code.to_owned(),
        },
        None => Hint::RegistrationUnconfirmed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(code: &str) -> Vec<u8> {
        format!(r#"{{"error":{{"message":"m","type":"t","code":"{code}","param":null}}}}"#).into_bytes()
    }

    #[test]
    fn a_401_is_core_s_only_with_its_own_code() {
        let own = envelope("invalid_node_credential");
        assert_eq!(refusal(401, &own).0, Refusal::Unauthorized);
        for (status, body) in [
            (401, envelope("invalid_api_key")),
            (401, b"<html>Authentication required</html>".to_vec()),
            (401, Vec::new()),
            (407, own.clone()),
            (403, own),
        ] {
            assert_eq!(refusal(status, &body).0, Refusal::Silent, "{status}");
        }
        assert_eq!(refusal(404, b"not found").0, Refusal::NotCore);
        assert_eq!(refusal(502, b""), (Refusal::Silent, true));
        let code = envelope("runtime_node_unavailable");
        assert_eq!(
            refusal(503, &code),
            (Refusal::Code("runtime_node_unavailable".into()), false)
        );
    }

    #[test]
    fn each_answer_to_step_10_has_its_hint() {
        let origin = Origin::parse("http://core").unwrap();
        let code = |code: &str| configuration_hint(&origin, &Refusal::Code(code.into()));
        assert_eq!(configuration_hint(&origin, &Refusal::Unauthorized), Hint::Expired);
        assert_eq!(
            configuration_hint(&origin, &Refusal::Silent),
            Hint::unreachable(&origin)
        );
        let not_there = Hint::CoreNotThere {
            origin: "http://core".into(),
        };
        assert_eq!(configuration_hint(&origin, &Refusal::NotCore), not_there);
        assert_eq!(code("sandbox_reset_in_progress"), Hint::ResetRunning);
        assert_eq!(code("runtime_node_unavailable"), Hint::NoConfiguration);
        assert_eq!(code("sandbox_deployment_conflict"), Hint::OtherBackend);
        assert_eq!(code("sandbox_configuration_error"), Hint::NoPublicAddress);
        assert_eq!(code("internal_error"), Hint::unreachable(&origin));
    }

    #[test]
    fn each_end_of_a_registration_has_its_hint() {
        let of = |status: i32, said: &str| registration_hint(Some(status), said);
        assert_eq!(
            of(78, "the enrollment token is unknown, used or expired"),
            Hint::Expired
        );
        let refused = |code: &str| {
            of(
                1,
                &format!("Core did not enroll the node: Core answered HTTP 409 Conflict, {code}"),
            )
        };
        assert_eq!(refused("sandbox_node_address_mismatch"), Hint::AddressChanged);
        assert_eq!(
            refused("sandbox_specification_mismatch"),
            Hint::SpecificationChanged
        );
        assert_eq!(refused("sandbox_reset_in_progress"), Hint::ResetRunning);
        let probe = of(
            1,
            "the provider is not ready: capacity_insufficient; run oac-node doctor",
        );
        assert_eq!(
            probe,
            Hint::BackendNotReady {
                code: "capacity_insufficient".into()
            }
        );
        assert_eq!(of(1, "Core could not be reached"), Hint::RegistrationUnconfirmed);
        assert_eq!(registration_hint(None, ""), Hint::RegistrationUnconfirmed);
    }
}
