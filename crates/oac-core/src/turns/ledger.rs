//! What is stored about Turns, one transaction per step. Every function compares what it continues from, so that two
//! drivers, a repeated step or a step after a restart change nothing twice (INV-S1 to INV-S5, INV-S8).
//!
//! Dispatch goes none → sent → confirmed. The design's `intent` and `sent` are one write here: both precede the
//! request, and after `sent` the recovery is to repeat the request to the same allocation whether or not it left
//! (docs/decisions, "One write before a Turn is sent").

use std::sync::Arc;

use oac_link::service::{PutTurnRequest, Run};
use oac_model::{
    AllocationId, AllocationState, ComputePhase, InstanceId, SessionId, SessionState, TurnId, TurnState,
};
use oac_store::{
    AllocationRow, Dispatch, EventKind, Initialization, InputRow, OutputChunk, OutputStream, Read,
    SessionRow, StoreError, TurnRow, Tx,
};
use oac_wire::B64;
use serde_json::json;

use super::{batch::Batch, drive::Trouble, settle::Settlement};
use crate::{
    Core, allocations,
    link::{Link, NotAdmitted},
};

/// A Turn that was sent, or is recorded as sent and about to be.
pub(crate) struct Job {
    pub turn: TurnRow,
    /// To be sent, unless the runtime is known to have it.
    pub put: Option<PutTurnRequest>,
    /// The runtime that has it, while that is not stored yet.
    pub confirmed: Option<InstanceId>,
}

impl Job {
    /// The runtime reported that it has the Turn.
    pub(super) fn without_put(mut self, instance: InstanceId) -> Self {
        self.put = None;
        self.confirmed = (self.turn.dispatch != Dispatch::Confirmed).then_some(instance);
        self
    }
}

async fn begin(core: &Core) -> Result<Tx, Trouble> {
    let ownership = core.owner.ownership().ok_or(Trouble::NotOwner)?;
    Ok(core.store.begin(&ownership).await?)
}

/// The first success of a link's status: completes the allocation's initialization, or admits a restored sandbox.
pub(super) async fn linked(core: &Arc<Core>, link: &Link) -> Result<(), Trouble> {
    let id = link.allocation_id();
    let Some(stored) = core.store.single().allocation(id).await? else {
        return Ok(());
    };
    if stored.compute_phase == ComputePhase::Waking {
        return awake(core, link).await;
    }
    if stored.initialization == Initialization::Complete {
        return Ok(());
    }
    let tx = begin(core).await?;
    let session = tx.lock_session(link.session_id).await?;
    let allocation = tx.lock_allocation(id).await?;
    if let (Some(session), Some(mut allocation)) = (session, allocation)
        && allocation.initialization == Initialization::Pending
        && matches!(
            allocation.state,
            AllocationState::Creating | AllocationState::Running
        )
    {
        let was = allocation.clone();
        allocation.initialization = Initialization::Complete;
        tx.save_allocation(&mut allocation).await?;
        if session.failed_creates != 0 {
            tx.set_failed_creates(session.id, 0).await?;
        }
        allocations::changed(&tx, &was, &allocation).await?;
        tx.commit().await?;
        core.turns.events.notify(link.session_id);
        if allocation.compute_phase != ComputePhase::Disabled {
            core.pokes.want(link.session_id);
        }
    }
    Ok(())
}

/// Admits the restored sandbox at its first link: phase running and its checkpoint consumed, in one transaction
/// (core.md section 12, INV-S21). A target that is to be killed meanwhile is not admitted, and its link ends.
async fn awake(core: &Arc<Core>, link: &Link) -> Result<(), Trouble> {
    let tx = begin(core).await?;
    tx.lock_session(link.session_id).await?;
    let Some(mut allocation) = tx.lock_allocation(link.allocation_id()).await? else {
        return Ok(());
    };
    // Whatever changed meanwhile: the next try reads it.
    if allocation.state != AllocationState::Running
        || allocation.compute_phase != ComputePhase::Waking
        || allocation.link_generation != link.resource.generation
    {
        return Err(NotAdmitted::Resting.into());
    }
    let target = allocations::newest_compute(&tx, allocation.id).await?;
    if target.as_ref().is_some_and(|(_, given_up)| *given_up) {
        link.end();
        return Err(NotAdmitted::Resting.into());
    }
    // Without one this compute was never replaced: quiescing was given up, or a suspend was rolled back.
    if let Some(restored_from) = target.and_then(|(compute, _)| compute.restored_from)
        && !tx.consume_checkpoint(restored_from).await?
        && !tx.is_checkpoint_consumed(restored_from).await?
    {
        tracing::error!(event = "checkpoint_missing", allocation = %allocation.id, "the checkpoint of a restored sandbox is gone");
        link.end();
        return Err(NotAdmitted::Resting.into());
    }
    let was = allocation.clone();
    allocation.compute_phase = ComputePhase::Running;
    allocation.compute_phase_changed_at = tx.now();
    allocation.restore_failures = 0;
    tx.save_allocation(&mut allocation).await?;
    allocations::changed(&tx, &was, &allocation).await?;
    tx.commit().await?;
    core.turns.events.notify(link.session_id);
    core.pokes.want(link.session_id);
    Ok(())
}

/// Every unfinished Turn of the link's Session; those of this allocation that were sent carry their request.
pub(super) async fn unfinished(core: &Arc<Core>, link: &Link) -> Result<Vec<Job>, Trouble> {
    let read = core.store.single();
    let mut jobs = Vec::new();
    for turn in read.unfinished_turns(link.session_id).await? {
        let sent = turn.state == TurnState::Running && turn.allocation_id == Some(link.allocation_id());
        let put = if sent {
            Some(request(input(&read, &turn).await?))
        } else {
            None
        };
        jobs.push(Job {
            turn,
            put,
            confirmed: None,
        });
    }
    Ok(jobs)
}

/// The Turn to work on: the one running here, or the next one, which this records as sent.
pub(super) async fn next(core: &Arc<Core>, link: &Link) -> Result<Option<Job>, Trouble> {
    let read = core.store.single();
    let turns = read.unfinished_turns(link.session_id).await?;
    let Some(head) = turns.into_iter().next() else {
        return Ok(None);
    };
    if head.state == TurnState::Running {
        return if head.allocation_id == Some(link.allocation_id()) {
            let put = Some(request(input(&read, &head).await?));
            Ok(Some(Job {
                turn: head,
                put,
                confirmed: None,
            }))
        } else {
            Ok(None)
        };
    }
    let tx = begin(core).await?;
    let Some(session) = tx.lock_session(link.session_id).await? else {
        return Ok(None);
    };
    let job = advance(&tx, &session, Some(link.allocation_id())).await?;
    tx.commit().await?;
    core.turns.events.notify(session.id);
    Ok(job)
}

pub(super) async fn turn(core: &Core, id: TurnId) -> Result<Option<TurnRow>, Trouble> {
    Ok(core.store.single().turn(id).await?)
}

/// Stores a batch with its new offset, and that the runtime has the Turn if that is new. False when the Turn is not
/// where this batch continues from.
pub(super) async fn store_output(
    core: &Arc<Core>,
    turn: &TurnRow,
    confirmed: Option<InstanceId>,
    batch: &Batch<OutputStream>,
) -> Result<bool, Trouble> {
    let tx = begin(core).await?;
    if let Some(instance) = confirmed {
        let Some(_) = tx.lock_session(turn.session_id).await? else {
            return Ok(false);
        };
        let Some(mut row) = tx.turn(turn.id).await? else {
            return Ok(false);
        };
        if row.allocation_id != turn.allocation_id
            || !confirm(&mut row, Some(instance))
            || !tx.save_turn(&row).await?
        {
            return Ok(false);
        }
    }
    if !append(&tx, turn.id, batch).await? {
        return Ok(false);
    }
    tx.commit().await?;
    Ok(true)
}

/// The last batch, the end and the next Turn as sent, in one transaction. `None` when the Turn is not where the batch
/// continues from, or is settled.
pub(super) async fn settle_ended(
    core: &Arc<Core>,
    link: &Link,
    turn: &TurnRow,
    confirmed: Option<InstanceId>,
    batch: &Batch<OutputStream>,
    settlement: &Settlement,
) -> Result<Option<Option<Job>>, Trouble> {
    let tx = begin(core).await?;
    let Some(session) = tx.lock_session(turn.session_id).await? else {
        return Ok(None);
    };
    let Some(mut row) = tx.turn(turn.id).await? else {
        return Ok(None);
    };
    if row.output_bytes != batch.start() || row.allocation_id != turn.allocation_id {
        return Ok(None);
    }
    confirm(&mut row, confirmed);
    if !append(&tx, turn.id, batch).await? || !end(&tx, &mut row, settlement).await? {
        return Ok(None);
    }
    let next = advance(&tx, &session, Some(link.allocation_id())).await?;
    tx.commit().await?;
    core.turns.notify(session.id, &[turn.id]);
    core.pokes.reset_may_go_on(session.id);
    Ok(Some(next))
}

/// Settles a Turn without an exit record; the next one is recorded as sent if `dispatch` says so.
pub(super) async fn settle(
    core: &Arc<Core>,
    link: &Link,
    turn: &TurnRow,
    settlement: &Settlement,
    dispatch: bool,
) -> Result<Option<Job>, Trouble> {
    let tx = begin(core).await?;
    let Some(session) = tx.lock_session(turn.session_id).await? else {
        return Ok(None);
    };
    let Some(mut row) = tx.turn(turn.id).await? else {
        return Ok(None);
    };
    if !end(&tx, &mut row, settlement).await? {
        return Ok(None);
    }
    let next = advance(&tx, &session, dispatch.then(|| link.allocation_id())).await?;
    tx.commit().await?;
    core.turns.notify(session.id, &[turn.id]);
    core.pokes.reset_may_go_on(session.id);
    Ok(next)
}

/// What to do with the Session's Turns now: the next one is recorded as sent to `allocation` if that can take it,
/// and is waiting otherwise; without a Turn the Session is idle. Needs the Session's lock; the caller commits.
pub(crate) async fn advance(
    tx: &Tx,
    session: &SessionRow,
    allocation: Option<AllocationId>,
) -> Result<Option<Job>, StoreError> {
    if session.archived_at.is_some() {
        return Ok(None);
    }
    let Some(mut head) = tx.unfinished_turns(session.id).await?.into_iter().next() else {
        if session.state == SessionState::Busy {
            tx.activate_session(session.id, SessionState::Idle).await?;
        }
        return Ok(None);
    };
    if head.state == TurnState::Running {
        return Ok(None);
    }
    if let Some(id) = allocation
        && let Some(allocation) = tx.allocation(id).await?
        && takes_turns(&allocation)
    {
        let input = input(tx, &head).await?;
        return send(tx, head, input, id).await.map(Some);
    }
    if head.state == TurnState::Queued {
        head.state = TurnState::Waiting;
        tx.save_turn(&head).await?;
    }
    Ok(None)
}

/// Records a Turn that is next as sent to `allocation`, which takes Turns and is linked. Needs the Session's lock.
pub(crate) async fn send(
    tx: &Tx,
    mut turn: TurnRow,
    input: InputRow,
    allocation: AllocationId,
) -> Result<Job, StoreError> {
    turn.state = TurnState::Running;
    turn.dispatch = Dispatch::Sent;
    turn.allocation_id = Some(allocation);
    turn.started_at = Some(tx.now());
    tx.save_turn(&turn).await?;
    let data = json!({ "turn_id": turn.id, "allocation_id": allocation });
    tx.append_event(turn.session_id, EventKind::TurnStarted, &data)
        .await?;
    Ok(Job {
        turn,
        put: Some(request(input)),
        confirmed: None,
    })
}

/// Whether Turns are dispatched to a linked allocation in this state and phase. A sandbox that links before its create
/// was answered runs: waiting for the answer would only delay the first command.
pub(crate) fn takes_turns(allocation: &AllocationRow) -> bool {
    matches!(
        allocation.state,
        AllocationState::Creating | AllocationState::Running
    ) && matches!(
        allocation.compute_phase,
        ComputePhase::Running | ComputePhase::Disabled
    )
}

/// Whether the allocation has to be woken before a Turn can be dispatched to it.
pub(crate) fn rests(allocation: &AllocationRow) -> bool {
    !matches!(
        allocation.compute_phase,
        ComputePhase::Running | ComputePhase::Disabled
    )
}

/// Sets a Turn's end and tells it; false when it is terminal already (INV-S3). Needs the Session's lock.
pub(crate) async fn end(tx: &Tx, turn: &mut TurnRow, settlement: &Settlement) -> Result<bool, StoreError> {
    if turn.state.is_terminal() {
        return Ok(false);
    }
    turn.state = settlement.state;
    turn.ended_at = Some(tx.now());
    turn.exit_code = settlement.exit_code.map(i64::from);
    turn.signal = settlement.signal.map(i64::from);
    turn.reason.clone_from(&settlement.reason);
    if !tx.save_turn(turn).await? {
        return Ok(false);
    }
    let data = json!({
        "turn_id": turn.id,
        "state": turn.state,
        "exit_code": turn.exit_code,
        "signal": turn.signal,
        "reason": turn.reason,
    });
    tx.append_event(turn.session_id, EventKind::TurnEnded, &data)
        .await?;
    Ok(true)
}

/// Settles every unfinished Turn of a Session that is being archived, a running one included (INV-S19). Needs the
/// Session's lock.
pub(crate) async fn cancel_all(tx: &Tx, session: SessionId) -> Result<Vec<TurnId>, StoreError> {
    let canceled = Settlement::without_exit(TurnState::Canceled, "session_archived");
    let mut settled = Vec::new();
    for mut turn in tx.unfinished_turns(session).await? {
        if end(tx, &mut turn, &canceled).await? {
            settled.push(turn.id);
        }
    }
    Ok(settled)
}

fn confirm(turn: &mut TurnRow, instance: Option<InstanceId>) -> bool {
    if turn.state.is_terminal() {
        return false;
    }
    if let Some(instance) = instance {
        turn.dispatch = Dispatch::Confirmed;
        turn.instance_id = Some(instance);
    }
    true
}

async fn append(tx: &Tx, turn: TurnId, batch: &Batch<OutputStream>) -> Result<bool, StoreError> {
    if batch.is_empty() {
        return Ok(true);
    }
    let chunks: Vec<_> = batch
        .rows()
        .iter()
        .map(|row| OutputChunk {
            stream: row.stream,
            bytes: row.bytes.clone(),
        })
        .collect();
    tx.append_output(turn, batch.start(), &chunks, batch.dropped())
        .await
}

async fn input(read: &Read, turn: &TurnRow) -> Result<InputRow, StoreError> {
    let input = read.input(turn.input_id).await?;
    input.ok_or_else(|| StoreError::Stored {
        column: "turns.input_id".to_owned(),
    })
}

fn request(input: InputRow) -> PutTurnRequest {
    PutTurnRequest::new(Run {
        args: input.args,
        cwd: input.cwd,
        env: input.env,
        stdin: B64(input.stdin.unwrap_or_default()),
        timeout_ms: u64::from(input.timeout_seconds) * 1000,
    })
}
