//! The error envelope and its codes (core.md section 4).

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};

/// A refusal as a caller sees it. The cause, if any, is logged where the refusal is made and never sent.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: Option<&'static str>,
    /// The member or query name at fault.
    pub param: Option<String>,
    pub message: String,
    /// Shown under `/core/v1` alone.
    pub details: Option<Box<Value>>,
    /// A header that belongs to the refusal.
    pub header: Option<(&'static str, String)>,
}

/// The body of every error answer.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ErrorEnvelope)]
pub struct Envelope {
    pub error: EnvelopeError,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Error)]
pub struct EnvelopeError {
    /// What is wrong, then what to do.
    pub message: String,
    #[serde(rename = "type")]
    pub kind: ErrorType,
    /// Stable name of the refusal; null where the status says it all.
    #[schema(required)]
    pub code: Option<String>,
    /// The member or query name at fault.
    #[schema(required)]
    pub param: Option<String>,
    /// Facts beside the code; under `/core/v1` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub details: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    InvalidRequestError,
    NotFoundError,
    ConflictError,
    ServerError,
}

impl ApiError {
    pub fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            param: None,
            message: message.into(),
            details: None,
            header: None,
        }
    }

    pub fn with_header(mut self, name: &'static str, value: String) -> Self {
        self.header = Some((name, value));
        self
    }

    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// 400 with `code`.
    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some(code), message)
    }

    /// 409 with `code`.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Some(code), message)
    }

    /// 503 with `code`.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message)
    }

    // 400

    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::bad_request("invalid_request", message)
    }

    /// One bad or missing member or query name.
    pub fn invalid_member(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request("invalid_request_error", message).with_param(param)
    }

    pub fn invalid_name(param: &str) -> Self {
        let max_length = super::limits::NAME_BYTES;
        Self::bad_request(
            "invalid_name",
            format!("{param} is not a usable name: give 1 to {max_length} bytes, not blank, without NUL, CR or LF."),
        )
        .with_param(param)
        .with_details(json!({ "max_length": max_length }))
    }

    pub fn invalid_node_capacity() -> Self {
        Self::bad_request(
            "invalid_node_capacity",
            "The capacity is not usable: give 1 <= max_active <= max_retained <= 1000000, for Docker both equal.",
        )
        .with_details(json!({ "min": 1, "max": 1_000_000 }))
    }

    pub fn network_access_unsupported(message: impl Into<String>) -> Self {
        Self::bad_request("network_access_unsupported", message).with_param("network")
    }

    // 401

    pub fn invalid_api_key() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            Some("invalid_api_key"),
            "The key is missing, unknown or revoked: send a valid one as Authorization: Bearer.",
        )
    }

    pub fn invalid_node_credential() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            Some("invalid_node_credential"),
            "The credential is missing, unknown, used or expired.",
        )
    }

    // 404 and other statuses of the edge

    pub fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            Some("not_found_error"),
            "There is nothing here under that name, or not for this key: check both.",
        )
    }

    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            None,
            "This path does not answer that method: see the Allow header.",
        )
    }

    pub fn body_too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            None,
            format!("The body is larger than {limit} bytes: send less."),
        )
    }

    pub fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            None,
            "The body is not JSON: send it with Content-Type: application/json.",
        )
    }

    // 409

    pub fn generation_stale(current: i64) -> Self {
        Self::conflict(
            "sandbox_generation_stale",
            "The deployment changed meanwhile: read it again and decide anew.",
        )
        .with_details(json!({ "current_generation": current }))
    }

    pub fn reset_in_progress() -> Self {
        Self::conflict(
            "sandbox_reset_in_progress",
            "A reset of the deployment is in progress: wait for it or cancel it.",
        )
    }

    /// The same refusal on `/v1`, where it is 503.
    pub fn reset_in_progress_unavailable() -> Self {
        Self::unavailable(
            "sandbox_reset_in_progress",
            "A reset of the deployment is in progress: try again later.",
        )
    }

    pub fn reset_required(current_provider: &str, requested_provider: &str) -> Self {
        Self::conflict(
            "sandbox_reset_required",
            format!("The deployment uses {current_provider}: reset it before choosing {requested_provider}."),
        )
        .with_details(
            json!({ "current_provider": current_provider, "requested_provider": requested_provider }),
        )
    }

    pub fn not_configured() -> Self {
        Self::conflict(
            "sandbox_not_configured",
            "No sandbox deployment is configured: save one first.",
        )
    }

    pub fn deployment_conflict(message: impl Into<String>) -> Self {
        Self::conflict("sandbox_deployment_conflict", message)
    }

    /// The public address does not fit what was asked.
    pub fn configuration_error(message: impl Into<String>) -> Self {
        Self::conflict("sandbox_configuration_error", message)
    }

    pub fn specification_mismatch() -> Self {
        Self::conflict(
            "sandbox_specification_mismatch",
            "That generation or digest is not the one Core has: fetch the configuration again.",
        )
    }

    pub fn node_address_mismatch() -> Self {
        Self::conflict(
            "sandbox_node_address_mismatch",
            "core_url is not Core's public address: copy a fresh command from Web.",
        )
    }

    pub fn idempotency_conflict(message: impl Into<String>) -> Self {
        Self::conflict("idempotency_conflict", message)
    }

    pub fn in_use(allocations: u64, pending: u64) -> Self {
        Self::conflict(
            "sandbox_in_use",
            "Sandboxes still exist: archive their Sessions and wait for the cleanup.",
        )
        .with_details(json!({ "allocations": allocations, "pending": pending }))
    }

    /// `sandboxes` are held there, the cleanup of one included; `former` ones once were, and nothing proves their end.
    pub fn node_in_use(sandboxes: u64, former: u64) -> Self {
        let message = if sandboxes > 0 {
            "The node still holds sandboxes: drain it or archive their Sessions, and wait for the cleanup."
        } else {
            "Sandboxes that moved away from the node are not known to have ended there: start the node again."
        };
        Self::conflict("runtime_node_in_use", message)
            .with_details(json!({ "sandboxes": sandboxes, "former_sandboxes": former }))
    }

    pub fn node_draining() -> Self {
        Self::conflict(
            "runtime_node_draining",
            "The node is being drained: wait until it is done, or cancel the drain.",
        )
    }

    pub fn not_discardable() -> Self {
        Self::conflict(
            "sandbox_not_discardable",
            "Only a sandbox shown as discardable can be given up: its node is online and says that it ended or is missing, its wake or restore keeps failing, or its removal waits for former computes alone.",
        )
    }

    pub fn no_former_computes() -> Self {
        Self::conflict(
            "sandbox_not_discardable",
            "Former computes can be discarded only at the nodes shown in former_computes: other nodes than the sandbox's, offline now, where one was not confirmed to have ended.",
        )
    }

    pub fn session_archived() -> Self {
        Self::conflict("session_archived", "The Session is archived: create a new one.")
    }

    // 429

    pub fn turn_queue_full() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            Some("turn_queue_full"),
            "The Session has too many unfinished Turns: wait until one ended.",
        )
    }

    /// The Session has as many files or ports open as it may.
    pub fn too_many_accesses(kind: oac_store::FileOperationKind) -> Self {
        let message = match kind {
            oac_store::FileOperationKind::Port => {
                "The Session has too many open port streams: close one, then try again."
            }
            _ => "The Session has too many file transfers under way: wait until one ended.",
        };
        Self::new(StatusCode::TOO_MANY_REQUESTS, Some("invalid_request"), message)
    }

    // 5xx

    pub fn port_refused(port: std::num::NonZeroU16) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            Some("sandbox_port_refused"),
            format!(
                "Nothing listens on port {port} in the sandbox: start a server there, on 127.0.0.1, ::1 or all addresses."
            ),
        )
    }

    /// What listens on the port gave no answer to pass on; `why` completes "…: {why}".
    pub fn port_failed(why: &str) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            Some("sandbox_port_failed"),
            format!("The server in the sandbox gave no usable answer: {why}."),
        )
    }

    pub fn port_timed_out() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            Some("sandbox_port_timed_out"),
            "The server in the sandbox did not answer in time: look whether it is stuck.",
        )
    }

    pub fn sandbox_unreachable() -> Self {
        Self::unavailable(
            "sandbox_unreachable",
            "The Session's sandbox did not answer in time: try again, and look at the Session's sandbox.state.",
        )
    }

    pub fn standby() -> Self {
        Self::unavailable(
            "core_standby",
            "This Core does not own the installation: ask again, another one may.",
        )
    }

    pub fn node_unavailable() -> Self {
        Self::unavailable(
            "runtime_node_unavailable",
            "No node can take the sandbox now: add one or free one.",
        )
    }

    pub fn nodes_preparing() -> Self {
        Self::unavailable(
            "sandbox_nodes_preparing",
            "Nodes are still preparing the sandbox configuration: try again soon.",
        )
    }

    /// The database was too busy, or its connection broke, before anything was stored.
    pub fn database_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            None,
            "Core's database did not take the request: nothing was stored, try again.",
        )
    }

    /// As many files of releases are being sent as may be at once.
    pub fn downloads_busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            None,
            "Core sends as many files as it may at once: try again.",
        )
        .with_header("retry-after", "2".to_owned())
    }

    fn is_database_unavailable(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
            && matches!(self.code, None | Some("authentication_unavailable"))
    }

    pub fn authentication_unavailable() -> Self {
        Self::unavailable(
            "authentication_unavailable",
            "The credential cannot be checked now: try again.",
        )
    }

    /// 500. The cause goes to the log, with what was being done; the caller learns only that it failed.
    pub fn internal(doing: &str, cause: &dyn std::error::Error) -> Self {
        tracing::error!(event = "request_failed", doing, error = %Chain(cause), "request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            None,
            "The request failed inside Core: see its log.",
        )
    }

    fn kind(&self) -> ErrorType {
        if self.status.is_server_error() {
            ErrorType::ServerError
        } else if self.status == StatusCode::CONFLICT {
            ErrorType::ConflictError
        } else if self.code == Some("not_found_error") {
            ErrorType::NotFoundError
        } else {
            ErrorType::InvalidRequestError
        }
    }

    pub fn envelope(&self) -> Envelope {
        Envelope {
            error: EnvelopeError {
                message: self.message.clone(),
                kind: self.kind(),
                code: self.code.map(str::to_owned),
                param: self.param.clone(),
                details: self.details.as_deref().cloned(),
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.envelope())).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.code == Some("core_standby") {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        if self.code == Some("sandbox_unreachable") {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if self.is_database_unavailable() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::TOO_MANY_REQUESTS && self.code == Some("invalid_request") {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some((name, value)) = &self.header
            && let Ok(value) = HeaderValue::try_from(value)
        {
            headers.insert(*name, value);
        }
        // The router takes `details` out again outside /core/v1.
        response.extensions_mut().insert(self);
        response
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<oac_store::StoreError> for ApiError {
    fn from(error: oac_store::StoreError) -> Self {
        match error {
            oac_store::StoreError::NotOwner { .. } => Self::standby(),
            // Nothing was stored.
            error if error.is_transient() => {
                tracing::warn!(event = "step_refused", error = %Chain(&error), "the database did not take a step");
                Self::database_unavailable()
            }
            oac_store::StoreError::Unknown { .. } => {
                tracing::error!(event = "step_unknown", error = %Chain(&error), "it is not known whether a step was stored");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    None,
                    "Core's database did not say whether this was stored: look before you ask again.",
                )
            }
            error => Self::internal("database", &error),
        }
    }
}

/// An error with its sources, for the log.
pub struct Chain<'a>(pub &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
