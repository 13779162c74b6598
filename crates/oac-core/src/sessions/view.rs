//! From rows to what the routes answer.

use oac_model::{ComputePhase, ProviderKind, SessionId};
use oac_store::{AllocationRow, InputRow, Read, SessionRow, StoreError, TurnRow};

use super::shapes::{
    InputShape, NetworkShape, PlacementShape, SandboxShape, SessionShape, TurnCounts, TurnShape,
};
use crate::{Core, allocations::SandboxState, placement::Placed};

/// The Session as it is now.
pub(super) async fn session(core: &Core, read: &Read, row: SessionRow) -> Result<SessionShape, StoreError> {
    let placement = read.unreleased_placement(row.environment_id).await?;
    let allocation = match &placement {
        Some(placement) => read.allocation_of_placement(placement.id).await?,
        // Released together with its placement.
        None => None,
    };
    let placement = match placement {
        Some(placement) => Some(PlacementShape {
            backend: backend(read).await?,
            node_id: placement.node_id,
            generation: placement.generation.get(),
            online: placement
                .node_id
                .is_none_or(|node| core.hub.connected(node).is_some()),
        }),
        None => None,
    };
    let sandbox = sandbox(placement.is_some(), allocation.as_ref());
    let (queued, running) = read.turn_counts(row.id).await?;
    Ok(shape(row, placement, sandbox, TurnCounts { queued, running }))
}

/// A Session as its placing transaction creates it.
pub(super) fn fresh(row: SessionRow, placed: &Placed, backend: ProviderKind) -> SessionShape {
    let placement = PlacementShape {
        backend,
        node_id: Some(placed.node_id),
        generation: placed.placement.generation.get(),
        online: true,
    };
    let sandbox = SandboxShape {
        state: SandboxState::Starting,
        compute_phase: Some(ComputePhase::Disabled),
        diagnostic: String::new(),
        changed_at: Some(row.created_at),
    };
    let turns = TurnCounts {
        queued: 0,
        running: 0,
    };
    shape(row, Some(placement), sandbox, turns)
}

/// The selection changes its provider only while there is no placement (core.md section 5).
pub(super) async fn backend(read: &Read) -> Result<ProviderKind, StoreError> {
    Ok(read.deployment().await?.provider.unwrap_or(ProviderKind::Docker))
}

fn shape(
    row: SessionRow,
    placement: Option<PlacementShape>,
    sandbox: SandboxShape,
    turns: TurnCounts,
) -> SessionShape {
    SessionShape {
        id: row.id,
        name: row.name,
        state: row.state,
        reason: row.reason,
        environment_id: row.environment_id,
        network: NetworkShape {
            access: row.network.access,
            allowed_domains: row.network.allowed_domains,
        },
        metadata: row.metadata,
        created_at: row.created_at,
        archived_at: row.archived_at,
        last_activity_at: row.last_activity_at,
        placement,
        sandbox,
        turns,
    }
}

/// sandbox.state of sessions.md section 2.
fn sandbox(placed: bool, allocation: Option<&AllocationRow>) -> SandboxShape {
    let Some(allocation) = allocation else {
        let state = if placed {
            SandboxState::Starting
        } else {
            SandboxState::None
        };
        return SandboxShape {
            state,
            compute_phase: None,
            diagnostic: String::new(),
            changed_at: None,
        };
    };
    SandboxShape {
        state: SandboxState::of(allocation),
        compute_phase: Some(allocation.compute_phase),
        diagnostic: allocation
            .diagnostic
            .map_or_else(String::new, |d| d.as_str().to_owned()),
        changed_at: Some(
            allocation
                .state_changed_at
                .max(allocation.compute_phase_changed_at),
        ),
    }
}

pub(super) fn turn(row: TurnRow, input: InputRow) -> TurnShape {
    TurnShape {
        id: row.id,
        session_id: row.session_id,
        sequence: row.sequence,
        state: row.state,
        input: self::input(input),
        allocation_id: row.allocation_id,
        created_at: row.created_at,
        started_at: row.started_at,
        ended_at: row.ended_at,
        exit_code: row.exit_code,
        signal: row.signal,
        reason: row.reason,
        output_bytes: row.output_bytes,
        output_truncated: row.output_truncated,
    }
}

pub(super) fn input(row: InputRow) -> InputShape {
    InputShape {
        id: row.id,
        session_id: row.session_id,
        args: row.args,
        cwd: row.cwd,
        env: row.env,
        timeout_seconds: row.timeout_seconds,
        created_at: row.created_at,
    }
}

/// The Turn with its input, if it is this Session's.
pub(super) async fn turn_of(
    read: &Read,
    session: SessionId,
    id: oac_model::TurnId,
) -> Result<Option<TurnShape>, StoreError> {
    let Some(row) = read.turn_of_session(session, id).await? else {
        return Ok(None);
    };
    with_input(read, row).await.map(Some)
}

pub(super) async fn with_input(read: &Read, row: TurnRow) -> Result<TurnShape, StoreError> {
    let input = read.shown_input(row.input_id).await?;
    let input = input.ok_or_else(|| StoreError::Stored {
        column: "turns.input_id".to_owned(),
    })?;
    Ok(turn(row, input))
}
