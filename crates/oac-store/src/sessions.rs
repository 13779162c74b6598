//! Sessions (sessions.md section 2).

use oac_model::{EnvironmentId, Network, ProjectId, SessionId, SessionState, Time};

use crate::{
    EventKind, EventRow, StoreError, Tx,
    row::{Labels, Metadata, params, stored},
    tx::Read,
};

stored! {
    SessionRow in "sessions" {
        id: SessionId,
        project_id: ProjectId,
        environment_id: EnvironmentId,
        name: Option<String>,
        state: SessionState,
        reason: Option<String>,
        network: Network,
        required_labels: Labels,
        metadata: Metadata,
        /// Sandboxes in a row that failed before they linked.
        failed_creates: u32,
        /// Sequence of the newest Turn; 0 without one.
        last_turn: i64,
        /// Sequence of the newest event; 0 without one.
        last_event: i64,
        created_at: Time,
        last_activity_at: Time,
        archived_at: Option<Time>,
    }
}

/// A Session to be stored; it begins idle.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    pub project_id: ProjectId,
    pub environment_id: EnvironmentId,
    pub name: Option<String>,
    pub network: Network,
    pub required_labels: Labels,
    pub metadata: Metadata,
}

impl NewSession {
    /// As a transaction of that time stores it.
    pub fn row(&self, now: Time) -> SessionRow {
        SessionRow {
            id: self.id,
            project_id: self.project_id,
            environment_id: self.environment_id,
            name: self.name.clone(),
            state: SessionState::Idle,
            reason: None,
            network: self.network.clone(),
            required_labels: self.required_labels.clone(),
            metadata: self.metadata.clone(),
            failed_creates: 0,
            last_turn: 0,
            last_event: 0,
            created_at: now,
            last_activity_at: now,
            archived_at: None,
        }
    }
}

impl Read {
    pub async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    /// The Session, if it is this Project's (INV-S10).
    pub async fn session_of_project(
        &self,
        project_id: ProjectId,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.one("WHERE id = $1 AND project_id = $2", params![id, project_id])
            .await
    }

    pub async fn session_of_environment(&self, id: EnvironmentId) -> Result<Option<SessionRow>, StoreError> {
        self.one("WHERE environment_id = $1", params![id]).await
    }

    /// A page of a Project's Sessions, newest first, after the row (created_at, id) that ended the page before.
    pub async fn sessions_of_project(
        &self,
        project_id: ProjectId,
        state: Option<SessionState>,
        after: Option<(Time, SessionId)>,
        limit: u64,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let mut params = params![project_id];
        let mut rest = "WHERE project_id = $1".to_owned();
        if let Some(state) = state {
            params.extend(params![state]);
            rest += " AND state = $2";
        }
        if let Some((at, id)) = after {
            let n = params.len();
            params.extend(params![at, id]);
            rest += &format!(" AND (created_at, id) < (${}, ${})", n + 1, n + 2);
        }
        rest += &format!(" ORDER BY created_at DESC, id DESC LIMIT {limit}");
        self.many(&rest, params).await
    }

    /// Unarchived Sessions whose Environment has no unreleased placement, by ascending id after `after`.
    pub async fn sessions_without_placement(
        &self,
        after: Option<SessionId>,
        limit: u64,
    ) -> Result<Vec<SessionId>, StoreError> {
        let (from, params) = match after {
            Some(id) => (" AND id > $1", params![id]),
            None => ("", vec![]),
        };
        let sql = format!(
            "SELECT id FROM sessions WHERE archived_at IS NULL{from} AND NOT EXISTS (SELECT 1 FROM placements p \
             WHERE p.environment_id = sessions.environment_id AND p.released_at IS NULL) ORDER BY id LIMIT {limit}"
        );
        let rows = self.rows(&sql, params).await?;
        rows.iter().map(|row| row.get("id")).collect()
    }

    /// Unarchived Sessions by ascending id, after `after`; for passes over all of them.
    pub async fn unarchived_sessions(
        &self,
        after: Option<SessionId>,
        limit: u64,
    ) -> Result<Vec<SessionRow>, StoreError> {
        match after {
            Some(id) => {
                let rest = format!("WHERE archived_at IS NULL AND id > $1 ORDER BY id LIMIT {limit}");
                self.many(&rest, params![id]).await
            }
            None => {
                let rest = format!("WHERE archived_at IS NULL ORDER BY id LIMIT {limit}");
                self.many(&rest, vec![]).await
            }
        }
    }
}

impl Tx {
    pub async fn insert_session(&self, session: &NewSession) -> Result<SessionRow, StoreError> {
        let row = session.row(self.now());
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// Stores new Sessions with their first events, which are numbered here.
    pub async fn insert_sessions(
        &self,
        sessions: Vec<(SessionRow, Vec<(EventKind, serde_json::Value)>)>,
    ) -> Result<(), StoreError> {
        let (mut rows, mut events) = (Vec::with_capacity(sessions.len()), Vec::new());
        for (mut row, told) in sessions {
            for (kind, data) in told {
                row.last_event += 1;
                events.push(EventRow {
                    session_id: row.id,
                    sequence: row.last_event,
                    kind,
                    data,
                    created_at: self.now(),
                });
            }
            rows.push(row);
        }
        self.insert_all(&rows, "").await?;
        self.insert_all(&events, "").await
    }

    /// Stores state and reason. An archived Session never changes; then false. Needs the Session's lock.
    pub async fn set_session_state(
        &self,
        id: SessionId,
        state: SessionState,
        reason: Option<&str>,
    ) -> Result<bool, StoreError> {
        let reason = reason.map(str::to_owned);
        let changed = self
            .execute(
                "UPDATE sessions SET state = $1, reason = $2 WHERE id = $3 AND archived_at IS NULL",
                params![state, reason, id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Ends the Session; false when it was archived already. Needs the Session's lock.
    pub async fn archive_session(&self, id: SessionId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE sessions SET state = 'archived', archived_at = $1 WHERE id = $2 AND archived_at IS NULL",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Stores a state without a reason, and this transaction's time as `last_activity_at`. An archived Session never
    /// changes; then false. Needs the Session's lock.
    pub async fn activate_session(&self, id: SessionId, state: SessionState) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE sessions SET state = $1, reason = NULL, last_activity_at = $2 \
                 WHERE id = $3 AND archived_at IS NULL",
                params![state, self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Sets `last_activity_at` to this transaction's time.
    pub async fn touch_session(&self, id: SessionId) -> Result<(), StoreError> {
        let sql = "UPDATE sessions SET last_activity_at = $1 WHERE id = $2";
        self.execute(sql, params![self.now(), id]).await.map(drop)
    }

    pub async fn set_failed_creates(&self, id: SessionId, count: u32) -> Result<(), StoreError> {
        let sql = "UPDATE sessions SET failed_creates = $1 WHERE id = $2";
        self.execute(sql, params![count, id]).await.map(drop)
    }
}
