//! Stored rows as placement sees them.

use oac_lifecycle::{
    limits::ONLINE_WINDOW,
    placement::{Deployment, Mode, Node, TargetStatus},
};
use oac_model::{Generation, NodeId, ProviderKind};
use oac_store::{GenerationState, GenerationStatusRow, NodeRow, Read, SlotCounts, StoreError, Tx};

use crate::Core;

/// The deployment as it is stored, with Core's address.
pub(crate) async fn deployment_view(core: &Core, read: &Read) -> Result<Deployment, StoreError> {
    let row = read.deployment().await?;
    let target = row.target();
    let stored = match target {
        Some(target) => read.generation(target).await?,
        None => None,
    };
    Ok(Deployment {
        reset_in_progress: row.resetting(),
        specification_valid: target.is_none()
            || stored
                .is_some_and(|g| Some(g.provider) == row.provider && g.specification.digest() == g.digest),
        // One database holds one installation; a node of another one cannot enroll here.
        installation_matches: true,
        mode: match row.provider {
            None => Mode::Unset,
            Some(ProviderKind::Docker | ProviderKind::Microsandbox) => Mode::Nodes,
            // No direct backend is built: nothing fits.
            Some(ProviderKind::E2b) => Mode::Direct {
                address_usable: false,
                active: 0,
                max_active: 0,
                retained: 0,
                max_retained: 0,
            },
        },
        target,
        public_url: core.config.public_url.as_ref().map(|url| url.to_string()),
    })
}

/// The pin: what a managing node last proved ready, or what a fixed one enrolled with.
pub(crate) fn pin(row: &NodeRow) -> Option<Generation> {
    if row.generation_management == Some(true) {
        row.serving_generation
    } else {
        Some(row.enrolled_generation)
    }
}

/// A node as the transaction sees it; with its lock held, exactly as it is.
pub(crate) async fn node_view(
    tx: &Tx,
    row: &NodeRow,
    counts: SlotCounts,
    target: Option<Generation>,
) -> Result<Node, StoreError> {
    let statuses = if row.generation_management == Some(true) {
        tx.generation_statuses(row.id).await?
    } else {
        Vec::new()
    };
    Ok(view_of(tx, row, &statuses, counts, target))
}

/// Nodes, each locked and exactly as it is; `None` when it is retired. Those that another transaction holds are left out.
pub(super) async fn locked_node_views(
    tx: &Tx,
    ids: &[NodeId],
    target: Option<Generation>,
) -> Result<Vec<(NodeId, Option<Node>)>, StoreError> {
    let rows = tx.lock_free_nodes(ids).await?;
    let ids: Vec<NodeId> = rows.iter().map(|row| row.id).collect();
    let managing = rows.iter().filter(|row| row.generation_management == Some(true));
    let managing: Vec<NodeId> = managing.map(|row| row.id).collect();
    let statuses = tx.generation_statuses_of(&managing).await?;
    let counts = tx.slot_counts_of(&ids).await?;
    let view = |row: &NodeRow| {
        if row.retired_at.is_some() {
            return (row.id, None);
        }
        let statuses = statuses.get(&row.id).map_or(&[][..], Vec::as_slice);
        let counts = counts.get(&row.id).copied().unwrap_or_default();
        (row.id, Some(view_of(tx, row, statuses, counts, target)))
    };
    Ok(rows.iter().map(view).collect())
}

/// A node of which everything is read already; `statuses` matter of a managing one alone.
pub(crate) fn view_of(
    tx: &Tx,
    row: &NodeRow,
    statuses: &[GenerationStatusRow],
    counts: SlotCounts,
    target: Option<Generation>,
) -> Node {
    let epoch = tx.ownership().epoch;
    let online = row.retired_at.is_none() && row.online(epoch, tx.now(), ONLINE_WINDOW);
    let pin = pin(row);
    let managing = row.generation_management == Some(true);
    let status = |generation: Option<Generation>| {
        statuses
            .iter()
            .find(|s| Some(s.generation) == generation && Some(s.connection_id) == row.connection_id)
            .filter(|s| online && s.owner_epoch == epoch)
            .map(|s| s.state)
    };
    let provider_ready = online
        && if managing {
            status(pin) == Some(GenerationState::Ready)
        } else {
            row.provider_ready
        };
    let target_status = if managing {
        status(target).map(|state| match state {
            GenerationState::Ready => TargetStatus::Ready,
            GenerationState::Preparing => TargetStatus::Preparing,
            GenerationState::Failed => TargetStatus::Failed,
        })
    } else {
        (online && target == pin).then_some(if row.provider_ready {
            TargetStatus::Ready
        } else {
            TargetStatus::Failed
        })
    };
    Node {
        id: row.id,
        created_at: row.created_at,
        online,
        provider_ready,
        pin,
        core_url: row.core_url.clone(),
        cordoned: row.cordoned_at.is_some(),
        draining: row.drain_requested_at.is_some(),
        labels: row.labels.clone(),
        active: u32::try_from(counts.active).unwrap_or(u32::MAX),
        retained: u32::try_from(counts.retained).unwrap_or(u32::MAX),
        max_active: row.max_active,
        max_retained: row.max_retained,
        target_status,
        checkpoint_store: row.checkpoint_store,
        execution_class: row.execution_class,
    }
}
