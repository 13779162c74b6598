//! Where a new sandbox goes (core.md section 7).
//!
//! It must guarantee that no placement is stored on a node that is full, gone or closed in that transaction however many
//! run at once (INV-C10, INV-C32), and that a refusal leaves no row (INV-C11). So the choice is made in memory, without
//! a transaction, by `oac_lifecycle::placement::place`; the placing transaction then locks the chosen node alone, checks
//! it again with its counts, and stores the placement, whatever the caller stores with it, and the reserved allocation
//! together. When the check fails, memory learns from it and the next candidate is tried in a further transaction.

pub mod memory;
mod view;

use std::{sync::Arc, time::Duration};

use oac_lifecycle::placement::{Answer, Recheck, Request, recheck};
use oac_model::{AllocationId, EnvironmentId, NodeId, PlacementId, ProjectId, SessionId};
use oac_store::{AllocationRow, DeploymentLock, NewAllocation, NewPlacement, PlacementRow, StoreError, Tx};

use crate::{
    Core,
    http::{ApiError, error::Chain},
    task::Kind,
};

pub(crate) use view::{deployment_view, node_view};

/// Transactions tried for one demand; each failed one teaches memory about one node.
const ATTEMPTS: usize = 64;
/// How often memory's deployment is read again, beside the reads after each write.
const DEPLOYMENT_REFRESH: Duration = Duration::from_secs(2);

/// Who needs a sandbox.
#[derive(Debug, Clone)]
pub struct Demand {
    pub project_id: ProjectId,
    pub session_id: SessionId,
    pub environment_id: EnvironmentId,
    /// The Session's required labels.
    pub request: Request,
}

/// What the placing transaction stored, or is about to.
#[derive(Debug, Clone)]
pub struct Placed {
    pub placement: PlacementRow,
    pub node_id: NodeId,
    pub allocation_id: AllocationId,
}

/// Why nothing was placed; no row was left.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError<E> {
    /// Never `Node` or `Direct`.
    #[error("no node takes the sandbox: {0:?}")]
    Refused(Answer),
    #[error("this Core does not own the installation")]
    Standby,
    #[error("the placement was not stored")]
    Store(#[source] StoreError),
    /// The caller's own part refused.
    #[error("the caller's part of the placement was not stored")]
    Caller(E),
}

impl From<PlaceError<ApiError>> for ApiError {
    fn from(error: PlaceError<ApiError>) -> Self {
        match error {
            PlaceError::Refused(Answer::Reset) => Self::reset_in_progress_unavailable(),
            PlaceError::Refused(Answer::Preparing) => Self::nodes_preparing(),
            PlaceError::Refused(_) => Self::node_unavailable(),
            PlaceError::Standby => Self::standby(),
            PlaceError::Store(error) => error.into(),
            PlaceError::Caller(error) => error,
        }
    }
}

/// Places `demand`, calling `store` inside the placing transaction, after the placement row and before the allocation row:
/// there the caller inserts or updates its Session, input and idempotency record. `store` may run more than once, each
/// time in a fresh transaction; only the last one's rows are kept. The Session's row must exist when it returns, and
/// `store` may lock the Session, nothing before it in the lock order.
///
/// On success the allocation is `reserved` and the workers are already poked.
pub async fn place<T, E, F>(core: &Core, demand: &Demand, mut store: F) -> Result<T, PlaceError<E>>
where
    F: AsyncFnMut(&Tx, &Placed) -> Result<T, E>,
{
    let mut last = Answer::Unavailable;
    for _ in 0..ATTEMPTS {
        let choice = core.hub.memory().choose(&demand.request);
        let Some((node_id, pin)) = choice.node() else {
            // Running sandboxes in Core itself is a later backend's work.
            let refused = if choice.answer() == Answer::Direct { Answer::Unavailable } else { choice.answer() };
            return Err(PlaceError::Refused(refused));
        };
        last = choice.answer();
        let ownership = core.owner.ownership().ok_or(PlaceError::Standby)?;
        let tx = core.store.begin(&ownership).await.map_err(PlaceError::Store)?;
        match check(core, &tx, demand, node_id, pin).await.map_err(PlaceError::Store)? {
            Checked::Fits { public_ticket, active, retained } => {
                let placement = tx
                    .insert_placement(&NewPlacement {
                        id: PlacementId::random(),
                        environment_id: demand.environment_id,
                        node_id: Some(node_id),
                        generation: pin,
                    })
                    .await
                    .map_err(PlaceError::Store)?;
                let placed = Placed { placement, node_id, allocation_id: AllocationId::random() };
                let stored = store(&tx, &placed).await.map_err(PlaceError::Caller)?;
                reserve(&tx, demand, &placed).await.map_err(PlaceError::Store)?;
                tx.commit().await.map_err(PlaceError::Store)?;
                drop(choice);
                core.hub.memory().remember_counts(public_ticket, node_id, active + 1, retained + 1);
                core.pokes.allocations.notify_one();
                return Ok(stored);
            }
            Checked::Moved(refused) => {
                tracing::debug!(%node_id, %refused, "the chosen node no longer fits");
                drop(tx);
            }
            Checked::Deployment(answer) => {
                if let Some(answer) = answer {
                    return Err(PlaceError::Refused(answer));
                }
            }
        }
    }
    tracing::warn!(?last, "a demand found no node that still fits after {ATTEMPTS} attempts");
    Err(PlaceError::Refused(Answer::Unavailable))
}

enum Checked {
    Fits { public_ticket: memory::Ticket, active: u32, retained: u32 },
    /// Memory was corrected; the next candidate may be tried.
    Moved(Recheck),
    /// The deployment is another than remembered: an answer if it refuses, else another try.
    Deployment(Option<Answer>),
}

async fn check(
    core: &Core,
    tx: &Tx,
    demand: &Demand,
    node_id: NodeId,
    pin: oac_model::Generation,
) -> Result<Checked, StoreError> {
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let memory = core.hub.memory();
    let deployment = deployment_view(core, tx).await?;
    if deployment != memory.deployment() {
        memory.set_deployment(deployment.clone());
        let refuses = deployment.reset_in_progress
            || !deployment.specification_valid
            || deployment.mode != oac_lifecycle::placement::Mode::Nodes;
        if refuses {
            let nobody: [&oac_lifecycle::placement::Node; 0] = [];
            return Ok(Checked::Deployment(Some(oac_lifecycle::placement::place(&demand.request, &deployment, nobody))));
        }
        return Ok(Checked::Deployment(None));
    }
    let Some(row) = tx.lock_node(node_id).await?.filter(|row| row.retired_at.is_none()) else {
        memory.forget(node_id);
        return Ok(Checked::Moved(Recheck::NotReady));
    };
    let ticket = memory.ticket();
    let counts = tx.slot_counts(Some(node_id)).await?;
    let node = node_view(tx, &row, counts, deployment.target).await?;
    let url = deployment.public_url.as_deref().unwrap_or_default();
    match recheck(&demand.request, url, pin, &node) {
        Ok(()) => Ok(Checked::Fits { public_ticket: ticket, active: node.active, retained: node.retained }),
        Err(refused) => {
            memory.remember(ticket, node);
            Ok(Checked::Moved(refused))
        }
    }
}

/// The placement is taken up at once: its allocation appears in state reserved with it.
async fn reserve(tx: &Tx, demand: &Demand, placed: &Placed) -> Result<AllocationRow, StoreError> {
    tx.insert_allocation(&NewAllocation {
        id: placed.allocation_id,
        placement_id: placed.placement.id,
        tenant_id: demand.project_id,
        session_id: demand.session_id,
        environment_id: demand.environment_id,
        node_id: Some(placed.node_id),
        deployment_generation: placed.placement.generation,
    })
    .await
}

/// Reads the deployment into memory. Call it after every write to the deployment.
pub async fn refresh_deployment(core: &Core) {
    match deployment_view(core, &core.store.single()).await {
        Ok(deployment) => core.hub.memory().set_deployment(deployment),
        Err(error) => tracing::warn!(error = %Chain(&error), "the deployment cannot be read"),
    }
}

/// Starts this part's worker: memory follows the deployment, and forgets everything when ownership changes.
pub fn start(core: &Arc<Core>) {
    let core_ = core.clone();
    core.tasks.spawn(Kind::Worker, "placement memory", async move {
        let core = core_;
        let mut owned = None;
        loop {
            let ownership = core.owner.owned().await;
            if owned != Some(ownership) {
                owned = Some(ownership);
                core.hub.memory().clear();
            }
            refresh_deployment(&core).await;
            tokio::time::sleep(DEPLOYMENT_REFRESH).await;
        }
    });
}
