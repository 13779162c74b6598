//! Who is asking. The route table checks the credential before anything of the handler runs; these extractors hand the
//! handler what was found, so a handler cannot run under another class than its table entry names.

use std::net::IpAddr;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use oac_model::{CoreKeyId, NodeId, ProjectId, ProjectKeyId, Secret};
use oac_store::{AuditEntry, StoreError, Tx};
use serde_json::{Map, Value};

use super::ApiError;

/// The credential a route accepts; each accepts exactly one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Credential {
    /// None: anyone may ask.
    Open,
    /// A Core key, `oac_core_…`, or a console session that came from one.
    CoreKey,
    /// None, but the request is the console's own: sign-in and sign-out.
    Console,
    /// A Project API key, `oac_key_…`; opens its own Project.
    ProjectKey,
    /// An enrollment token, checked by the handler inside its transaction, after the body.
    EnrollmentToken,
    /// An enrollment token, or a node credential with `X-OAC-Node-ID`.
    EnrollmentTokenOrNode,
    /// A node credential. `X-OAC-Node-ID`, when sent, must name that node.
    Node,
    /// A sandbox link credential, checked by the handler.
    Link,
}

impl Credential {
    /// As the golden list of routes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::CoreKey => "core_key",
            Self::Console => "console",
            Self::ProjectKey => "project_key",
            Self::EnrollmentToken => "enrollment_token",
            Self::EnrollmentTokenOrNode => "enrollment_token_or_node",
            Self::Node => "node",
            Self::Link => "link",
        }
    }
}

/// The header in which a node names itself.
pub const NODE_ID_HEADER: &str = "x-oac-node-id";

/// A valid Core key, or a console session that came from it.
#[derive(Debug, Clone, Copy)]
pub struct CoreKeyAuth {
    pub core_key_id: CoreKeyId,
    pub(crate) peer: Option<IpAddr>,
}

/// A valid Project API key.
#[derive(Debug, Clone, Copy)]
pub struct ProjectAuth {
    pub project_id: ProjectId,
    pub key_id: ProjectKeyId,
    pub(crate) peer: Option<IpAddr>,
}

/// A valid credential of a node that is not retired.
#[derive(Debug, Clone, Copy)]
pub struct NodeAuth {
    pub node_id: NodeId,
}

/// What a machine that may not be a node yet presented.
#[derive(Debug, Clone, Copy)]
pub enum MachineAuth {
    /// A token that was usable when it was looked up.
    Token {
        max_active: u32,
        max_retained: u32,
    },
    Node(NodeAuth),
}

impl CoreKeyAuth {
    /// Stores the audit entry of a write in the write's transaction (INV-C15).
    pub async fn audit(&self, tx: &Tx, entry: Audited<'_>) -> Result<(), StoreError> {
        record(tx, &self.actor(), self.peer, entry).await
    }

    /// Who asked, as the audit entries of the request say.
    pub(crate) fn actor(&self) -> String {
        format!("core_key:{}", self.core_key_id)
    }

    /// Where the request came from, as its audit entries say.
    pub(crate) fn source(&self) -> String {
        source(self.peer)
    }
}

impl ProjectAuth {
    /// Stores the audit entry of a write in the write's transaction (INV-C15).
    pub async fn audit(&self, tx: &Tx, entry: Audited<'_>) -> Result<(), StoreError> {
        record(tx, &format!("project_key:{}", self.key_id), self.peer, entry).await
    }
}

/// What an audit entry says beside who did it (core.md section 16). Never with a credential in it (INV-C14).
pub struct Audited<'a> {
    pub resource_type: &'a str,
    pub resource_id: String,
    pub action: &'a str,
    pub details: Value,
}

impl<'a> Audited<'a> {
    pub fn new(resource_type: &'a str, resource_id: impl ToString, action: &'a str) -> Self {
        Self {
            resource_type,
            resource_id: resource_id.to_string(),
            action,
            details: Value::Object(Map::new()),
        }
    }

    pub fn details(self, details: Value) -> Self {
        Self { details, ..self }
    }
}

fn source(peer: Option<IpAddr>) -> String {
    peer.map_or_else(|| "local".to_owned(), |ip| ip.to_string())
}

/// Stores an audit entry for `actor`, who asked from `peer`.
pub(crate) async fn record(
    tx: &Tx,
    actor: &str,
    peer: Option<IpAddr>,
    entry: Audited<'_>,
) -> Result<(), StoreError> {
    store(tx, actor, &source(peer), entry).await
}

/// Stores an audit entry for what Core does by itself, long after it was asked for from `source`.
pub(crate) async fn record_own(tx: &Tx, source: &str, entry: Audited<'_>) -> Result<(), StoreError> {
    store(tx, "core", source, entry).await
}

async fn store(tx: &Tx, actor: &str, source: &str, entry: Audited<'_>) -> Result<(), StoreError> {
    let Audited {
        resource_type,
        resource_id,
        action,
        details,
    } = entry;
    tx.audit(&AuditEntry {
        actor,
        source,
        resource_type,
        resource_id,
        action,
        details,
    })
    .await
    .map(drop)
}

/// The text after `Bearer`; `None` when the header is absent, repeated, of another scheme or empty.
pub fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| Secret::new(token))
}

macro_rules! from_extensions {
    ($($name:ident),*) => { $(
        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
                match parts.extensions.get::<Self>() {
                    Some(auth) => Ok(*auth),
                    // A handler asks for another class than its table entry: refuse rather than run.
                    None => Err(ApiError::invalid_api_key()),
                }
            }
        }
    )* };
}
from_extensions!(CoreKeyAuth, ProjectAuth, NodeAuth, MachineAuth);
