//! Console sessions: what a browser's cookie stands for. Only the token's digest is stored, with the Core key that the
//! session came from and ends with (console.md section 1).

use oac_model::{ConsoleSessionId, CoreKeyId, Digest, Secret, Time};

use crate::{
    StoreError, Tx, limits,
    row::{params, stored},
    tx::Read,
};

stored! {
    ConsoleSessionRow in "console_sessions" {
        id: ConsoleSessionId,
        token_digest: Digest,
        core_key_id: CoreKeyId,
        created_at: Time,
        /// At most [`limits::CONSOLE_USE_MILLIS`] older than its last use.
        last_used_at: Time,
    }
}

impl ConsoleSessionRow {
    /// Used within the last 12 hours and at most seven days old.
    fn lives(&self, now: Time) -> bool {
        self.last_used_at.plus_millis(limits::CONSOLE_IDLE_MILLIS) > now
            && self.created_at.plus_millis(limits::CONSOLE_LIFE_MILLIS) > now
    }
}

/// A session that lives, and whether its use is to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct UsedConsoleSession {
    pub session: ConsoleSessionRow,
    pub to_be_renewed: bool,
}

impl Read {
    /// The session that `secret` is, if it lives and its Core key is not revoked.
    pub async fn console_session(&self, secret: &Secret) -> Result<Option<UsedConsoleSession>, StoreError> {
        let digest = secret.digest();
        let row: Option<ConsoleSessionRow> = self
            .one(
                "WHERE token_digest = $1 AND EXISTS \
                 (SELECT 1 FROM core_keys k WHERE k.id = console_sessions.core_key_id AND k.revoked_at IS NULL)",
                params![digest],
            )
            .await?;
        let Some(session) = row.filter(|row| row.token_digest.matches(&digest)) else {
            return Ok(None);
        };
        let now = self.database_time().await?;
        Ok(session.lives(now).then(|| UsedConsoleSession {
            to_be_renewed: session.last_used_at.plus_millis(limits::CONSOLE_USE_MILLIS) <= now,
            session,
        }))
    }
}

impl Tx {
    /// Begins a session of `core_key_id`. Sessions that ended by time go, and of more than
    /// [`limits::CONSOLE_SESSIONS`] of one key those that were not used for longest.
    pub async fn create_console_session(
        &self,
        core_key_id: CoreKeyId,
        token_digest: Digest,
    ) -> Result<ConsoleSessionRow, StoreError> {
        let row = ConsoleSessionRow {
            id: ConsoleSessionId::random(),
            token_digest,
            core_key_id,
            created_at: self.now(),
            last_used_at: self.now(),
        };
        self.execute(
            "DELETE FROM console_sessions WHERE last_used_at <= $1 OR created_at <= $2",
            params![
                self.now().plus_millis(-limits::CONSOLE_IDLE_MILLIS),
                self.now().plus_millis(-limits::CONSOLE_LIFE_MILLIS)
            ],
        )
        .await?;
        self.insert(&row, "").await?;
        let keep = limits::CONSOLE_SESSIONS;
        self.execute(
            &format!(
                "DELETE FROM console_sessions WHERE core_key_id = $1 AND id <> $2 AND id NOT IN \
                 (SELECT id FROM console_sessions WHERE core_key_id = $1 ORDER BY last_used_at DESC, id LIMIT {keep})"
            ),
            params![core_key_id, row.id],
        )
        .await?;
        Ok(row)
    }

    /// The session is in use now.
    pub async fn renew_console_session(&self, id: ConsoleSessionId) -> Result<(), StoreError> {
        let sql = "UPDATE console_sessions SET last_used_at = $1 WHERE id = $2";
        self.execute(sql, params![self.now(), id]).await.map(drop)
    }

    /// False when there is no such session.
    pub async fn end_console_session(&self, secret: &Secret) -> Result<bool, StoreError> {
        let sql = "DELETE FROM console_sessions WHERE token_digest = $1";
        Ok(self.execute(sql, params![secret.digest()]).await? == 1)
    }
}
