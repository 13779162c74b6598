//! Enrollment tokens, each good for one node (core.md section 9, INV-C13).

use oac_model::{Digest, EnrollmentId, InstallationId, NodeId, Secret, Time};

use crate::{
    StoreError, TokenLimits, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    EnrollmentTokenRow in "enrollment_tokens" {
        enrollment_id: EnrollmentId,
        token_digest: Digest,
        installation_id: InstallationId,
        limits: TokenLimits,
        max_active: u32,
        max_retained: u32,
        created_at: Time,
        expires_at: Time,
        consumed_at: Option<Time>,
        node_id: Option<NodeId>,
    }
}

/// A token to be stored; its text is shown once by the caller.
#[derive(Debug, Clone, Copy)]
pub struct NewEnrollmentToken {
    pub token_digest: Digest,
    pub limits: TokenLimits,
    pub max_active: u32,
    pub max_retained: u32,
    pub lives_seconds: u32,
}

impl Read {
    /// The token that `secret` is, usable or not.
    pub async fn enrollment_token(&self, secret: &Secret) -> Result<Option<EnrollmentTokenRow>, StoreError> {
        let digest = secret.digest();
        let row: Option<EnrollmentTokenRow> = self.one("WHERE token_digest = $1", params![digest]).await?;
        Ok(row.filter(|row| row.token_digest.matches(&digest)))
    }
}

impl EnrollmentTokenRow {
    /// Unused, unexpired at `now` and of this installation.
    pub fn usable(&self, now: Time, installation_id: InstallationId) -> bool {
        self.consumed_at.is_none() && self.expires_at > now && self.installation_id == installation_id
    }
}

impl Tx {
    pub async fn create_enrollment_token(
        &self,
        installation_id: InstallationId,
        token: &NewEnrollmentToken,
    ) -> Result<EnrollmentTokenRow, StoreError> {
        let row = EnrollmentTokenRow {
            enrollment_id: EnrollmentId::random(),
            token_digest: token.token_digest,
            installation_id,
            limits: token.limits,
            max_active: token.max_active,
            max_retained: token.max_retained,
            created_at: self.now(),
            expires_at: self.now().plus_millis(i64::from(token.lives_seconds) * 1000),
            consumed_at: None,
            node_id: None,
        };
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// Removes an unused token; false when there is none.
    pub async fn revoke_enrollment_token(&self, id: EnrollmentId) -> Result<bool, StoreError> {
        let sql = "DELETE FROM enrollment_tokens WHERE enrollment_id = $1 AND consumed_at IS NULL";
        Ok(self.execute(sql, params![id]).await? == 1)
    }

    /// Uses the token for `node_id`; false when it was used or has expired, whoever came first.
    pub async fn consume_enrollment_token(
        &self,
        id: EnrollmentId,
        node_id: NodeId,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE enrollment_tokens SET consumed_at = $1, node_id = $2 \
                 WHERE enrollment_id = $3 AND consumed_at IS NULL AND expires_at > $1",
                params![self.now(), node_id, id],
            )
            .await?;
        Ok(changed == 1)
    }
}
