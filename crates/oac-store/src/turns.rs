//! Inputs and their Turns (sessions.md section 3).

use std::collections::BTreeMap;

use oac_model::{AllocationId, InputId, InstanceId, SessionId, Time, TurnId, TurnState};

use crate::{
    Dispatch, StoreError, Tx,
    row::{Stored as _, params, stored},
    tx::Read,
};

stored! {
    InputRow in "inputs" {
        id: InputId,
        session_id: SessionId,
        args: Vec<String>,
        cwd: String,
        env: BTreeMap<String, String>,
        stdin: Option<Vec<u8>>,
        timeout_seconds: u32,
        created_at: Time,
    }
}

stored! {
    TurnRow in "turns" {
        id: TurnId,
        session_id: SessionId,
        /// From 1, in order of submission.
        sequence: i64,
        input_id: InputId,
        state: TurnState,
        allocation_id: Option<AllocationId>,
        dispatch: Dispatch,
        instance_id: Option<InstanceId>,
        /// Bytes in `turn_output`; at most 16 MiB.
        output_stored: u64,
        /// Bytes received from the runtime: stored, or counted and dropped. The offset to continue from.
        output_bytes: u64,
        output_truncated: bool,
        /// The highest offset acknowledged to the runtime.
        acked: u64,
        cancel_requested_at: Option<Time>,
        created_at: Time,
        started_at: Option<Time>,
        ended_at: Option<Time>,
        exit_code: Option<i64>,
        signal: Option<i64>,
        reason: Option<String>,
    }
}

/// An input to be stored with its Turn (INV-S9).
#[derive(Debug, Clone)]
pub struct NewInput {
    pub id: InputId,
    pub turn_id: TurnId,
    pub session_id: SessionId,
    pub args: Vec<String>,
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    pub stdin: Option<Vec<u8>>,
    pub timeout_seconds: u32,
    /// Queued, or waiting when it is next.
    pub state: TurnState,
}

const UNFINISHED: &str = "state IN ('queued', 'waiting', 'running')";

impl Read {
    /// How many Turns there are in each state in which a Turn did not end yet.
    pub async fn unfinished_turn_counts(&self) -> Result<Vec<(TurnState, u64)>, StoreError> {
        let sql = "SELECT state, COUNT(*) AS count FROM turns WHERE state IN ('queued', 'waiting', 'running') GROUP BY state";
        let rows = self.rows(sql, vec![]).await?;
        let counted = rows.iter().map(|row| Ok((row.get("state")?, row.get("count")?)));
        let counted: Vec<(TurnState, u64)> = counted.collect::<Result<_, StoreError>>()?;
        let of = |state| {
            counted
                .iter()
                .find(|(s, _)| *s == state)
                .map_or(0, |(_, count)| *count)
        };
        let unfinished = [TurnState::Queued, TurnState::Waiting, TurnState::Running];
        Ok(unfinished.map(|state| (state, of(state))).to_vec())
    }

    pub async fn input(&self, id: InputId) -> Result<Option<InputRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    /// The input as it is shown: without its standard input, which may be large.
    pub async fn shown_input(&self, id: InputId) -> Result<Option<InputRow>, StoreError> {
        let sql = "SELECT id, session_id, args, cwd, env, CAST(NULL AS BYTEA) AS stdin, timeout_seconds, created_at \
             FROM inputs WHERE id = $1";
        let row = self.row(sql, params![id]).await?;
        row.as_ref().map(InputRow::from_row).transpose()
    }

    pub async fn turn(&self, id: TurnId) -> Result<Option<TurnRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    pub async fn turn_of_session(
        &self,
        session_id: SessionId,
        id: TurnId,
    ) -> Result<Option<TurnRow>, StoreError> {
        self.one("WHERE id = $1 AND session_id = $2", params![id, session_id])
            .await
    }

    /// A page of a Session's Turns in sequence order, after sequence `after` (0 for the first page).
    pub async fn turns(
        &self,
        session_id: SessionId,
        after: i64,
        limit: u64,
    ) -> Result<Vec<TurnRow>, StoreError> {
        let rest = format!("WHERE session_id = $1 AND sequence > $2 ORDER BY sequence LIMIT {limit}");
        self.many(&rest, params![session_id, after]).await
    }

    /// The Session's queued, waiting and running Turns in sequence order; at most 64 are admitted.
    pub async fn unfinished_turns(&self, session_id: SessionId) -> Result<Vec<TurnRow>, StoreError> {
        let rest = format!("WHERE session_id = $1 AND {UNFINISHED} ORDER BY sequence");
        self.many(&rest, params![session_id]).await
    }

    /// Unfinished Turns that name the allocation.
    pub async fn unfinished_turns_of_allocation(
        &self,
        session_id: SessionId,
        allocation_id: AllocationId,
    ) -> Result<Vec<TurnRow>, StoreError> {
        let rest = format!("WHERE session_id = $1 AND allocation_id = $2 AND {UNFINISHED} ORDER BY sequence");
        self.many(&rest, params![session_id, allocation_id]).await
    }

    /// (queued or waiting, running) Turns of a Session.
    pub async fn turn_counts(&self, session_id: SessionId) -> Result<(u64, u64), StoreError> {
        let sql = format!(
            "SELECT COUNT(*) AS unfinished, \
             CAST(COALESCE(SUM(CASE WHEN state = 'running' THEN 1 ELSE 0 END), 0) AS BIGINT) AS running \
             FROM turns WHERE session_id = $1 AND {UNFINISHED}"
        );
        match self.row(&sql, params![session_id]).await? {
            Some(row) => {
                let running: u64 = row.get("running")?;
                Ok((row.get::<u64>("unfinished")?.saturating_sub(running), running))
            }
            None => Ok((0, 0)),
        }
    }

    /// Sessions with an unfinished Turn, by ascending id after `after`: the dispatcher's pages.
    pub async fn sessions_with_unfinished_turns(
        &self,
        after: Option<SessionId>,
        limit: u64,
    ) -> Result<Vec<SessionId>, StoreError> {
        let (from, params) = match after {
            Some(id) => (" AND session_id > $1", params![id]),
            None => ("", vec![]),
        };
        let sql = format!(
            "SELECT DISTINCT session_id FROM turns WHERE {UNFINISHED}{from} ORDER BY session_id LIMIT {limit}"
        );
        let rows = self.rows(&sql, params).await?;
        rows.iter().map(|row| row.get("session_id")).collect()
    }
}

impl Tx {
    /// Stores an input and its Turn with the Session's next sequence. Needs the Session's lock.
    pub async fn insert_input(&self, new: &NewInput) -> Result<(InputRow, TurnRow), StoreError> {
        let sequence = self
            .row(
                "UPDATE sessions SET last_turn = last_turn + 1 WHERE id = $1 RETURNING last_turn",
                params![new.session_id],
            )
            .await?
            .ok_or_else(|| StoreError::Stored {
                column: "sessions.id".to_owned(),
            })?
            .get("last_turn")?;
        let input = InputRow {
            id: new.id,
            session_id: new.session_id,
            args: new.args.clone(),
            cwd: new.cwd.clone(),
            env: new.env.clone(),
            stdin: new.stdin.clone(),
            timeout_seconds: new.timeout_seconds,
            created_at: self.now(),
        };
        let turn = TurnRow {
            id: new.turn_id,
            session_id: new.session_id,
            sequence,
            input_id: new.id,
            state: new.state,
            allocation_id: None,
            dispatch: Dispatch::None,
            instance_id: None,
            output_stored: 0,
            output_bytes: 0,
            output_truncated: false,
            acked: 0,
            cancel_requested_at: None,
            created_at: self.now(),
            started_at: None,
            ended_at: None,
            exit_code: None,
            signal: None,
            reason: None,
        };
        self.insert(&input, "").await?;
        self.insert(&turn, "").await?;
        Ok((input, turn))
    }

    /// Writes state, dispatch, times and result of a Turn; false when the stored one is terminal, which never changes
    /// (INV-S3). Output members have their own function. Needs the Session's lock.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] when another Turn of the Session is running (INV-S1).
    pub async fn save_turn(&self, turn: &TurnRow) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE turns SET state = $1, allocation_id = $2, dispatch = $3, instance_id = $4, \
             cancel_requested_at = $5, started_at = $6, ended_at = $7, exit_code = $8, signal = $9, reason = $10 \
             WHERE id = $11 AND {UNFINISHED}"
        );
        let changed = self
            .execute(
                &sql,
                params![
                    turn.state,
                    turn.allocation_id,
                    turn.dispatch,
                    turn.instance_id,
                    turn.cancel_requested_at,
                    turn.started_at,
                    turn.ended_at,
                    turn.exit_code,
                    turn.signal,
                    turn.reason,
                    turn.id,
                ],
            )
            .await?;
        Ok(changed == 1)
    }
}
