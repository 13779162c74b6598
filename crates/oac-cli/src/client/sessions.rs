//! `/v1/sessions`.

use std::collections::BTreeMap;

use oac_model::{Network, NodeId, SessionId};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::{Client, Document, Key};
use crate::Failure;

/// What of a Session the commands read.
#[derive(Debug, Clone, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub name: Option<String>,
    pub state: String,
    pub reason: Option<String>,
    pub network: Network,
    pub metadata: BTreeMap<String, String>,
    pub created_at: String,
    pub archived_at: Option<String>,
    pub last_activity_at: String,
    pub placement: Option<Placement>,
    pub sandbox: Sandbox,
    pub turns: TurnCounts,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Placement {
    pub backend: String,
    pub node_id: Option<NodeId>,
    pub generation: i64,
    pub online: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Sandbox {
    pub state: String,
    pub diagnostic: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct TurnCounts {
    pub queued: u64,
    pub running: u64,
}

/// The body of POST `/v1/sessions`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

pub(super) fn path(session: SessionId) -> String {
    format!("/v1/sessions/{session}")
}

impl Client {
    /// `key` makes the request one: repeated, it gives the first answer (sessions.md section 2).
    pub async fn create_session(&self, new: &NewSession, key: &str) -> Result<Document<Session>, Failure> {
        let request = self
            .request(Method::POST, Key::Project, "/v1/sessions")?
            .header("Idempotency-Key", key)
            .json(new);
        self.document(request).await
    }

    pub async fn sessions(&self, state: Option<&str>) -> Result<Vec<Document<Session>>, Failure> {
        let path = match state {
            Some(state) => format!("/v1/sessions?state={state}"),
            None => "/v1/sessions".to_owned(),
        };
        self.list(Key::Project, &path).await
    }

    pub async fn session(&self, session: SessionId) -> Result<Document<Session>, Failure> {
        self.get(Key::Project, &path(session)).await
    }

    /// Harmless to repeat.
    pub async fn archive_session(&self, session: SessionId) -> Result<Document<Session>, Failure> {
        self.document(self.request(Method::DELETE, Key::Project, &path(session))?)
            .await
    }
}
