//! Where a new sandbox goes (core.md section 7).
//!
//! It must guarantee that no placement is stored on a node that is full, gone or closed in that transaction however many
//! run at once (INV-C10, INV-C32), and that a refusal leaves no row (INV-C11). So the choice is made in memory, without
//! a transaction, by `oac_lifecycle::placement::place`; the placing transaction then locks the chosen node alone, checks
//! it again with its counts, and stores the placement, whatever the caller stores with it, and the reserved allocation
//! together. When the check fails, memory learns from it and the next candidate is tried in a further transaction.

pub mod memory;
pub(crate) mod pressure;
mod view;

use std::{sync::Arc, time::Duration};

use oac_lifecycle::placement::{Answer, Deployment, Recheck, Request, recheck};
use oac_model::{AllocationId, EnvironmentId, NodeId, PlacementId, ProjectId, SessionId};
use oac_store::{
    DeploymentLock, NewAllocation, NewPlacement, PlacementRow, Read, SessionRow, StoreError, Tx,
};

use crate::{
    Core, allocations,
    http::{ApiError, error::Chain},
    task::Kind,
};

pub(crate) use view::{deployment_view, node_view, pin, view_of};

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

impl Demand {
    /// Of a Session that has none.
    pub(crate) fn of(session: &SessionRow) -> Self {
        Self {
            project_id: session.project_id,
            session_id: session.id,
            environment_id: session.environment_id,
            request: Request {
                required_labels: session.required_labels.clone(),
            },
        }
    }
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
pub enum PlaceError {
    /// Never `Node` or `Direct`.
    #[error("no node takes the sandbox: {0:?}")]
    Refused(Answer),
    #[error("this Core does not own the installation")]
    Standby,
    #[error("the placement was not stored")]
    Store(#[from] StoreError),
}

impl From<PlaceError> for ApiError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Refused(Answer::Reset) => Self::reset_in_progress_unavailable(),
            PlaceError::Refused(Answer::Preparing) => Self::nodes_preparing(),
            PlaceError::Refused(_) => Self::node_unavailable(),
            PlaceError::Standby => Self::standby(),
            PlaceError::Store(error) => error.into(),
        }
    }
}

/// A placing transaction: its node is locked and has room, its placement is stored in it. The caller stores what belongs
/// with it through [`Self::tx`] (its Session, which must exist before [`Self::commit`], its input, its idempotency
/// record), then commits. Dropped, it leaves no row (INV-C11).
pub struct Placing<'a> {
    core: &'a Core,
    tx: Tx,
    demand: Demand,
    placed: Placed,
    choice: memory::Choice<'a>,
    ticket: memory::Ticket,
    slots: (u32, u32),
}

impl Placing<'_> {
    /// The open transaction. Deployment and node are locked: lock the Session next, nothing before it in the order.
    pub fn tx(&self) -> &Tx {
        &self.tx
    }

    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Takes the placement up (its allocation appears as `reserved`), commits and pokes the workers.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] when the Environment holds an unreleased allocation.
    pub async fn commit(self) -> Result<Placed, StoreError> {
        let Self {
            core,
            tx,
            demand,
            placed,
            choice,
            ticket,
            slots: (active, retained),
        } = self;
        reserve(&tx, &demand, &placed).await?;
        tx.commit().await?;
        core.metrics.placed(choice.answer());
        drop(choice);
        core.hub
            .memory()
            .remember_counts(ticket, placed.node_id, active + 1, retained + 1);
        core.pokes.allocations.notify_one();
        Ok(placed)
    }
}

/// Opens a placing transaction for `demand` on the best node that still fits under its lock.
///
/// # Errors
/// [`PlaceError::Refused`] with placement's answer; [`StoreError::Duplicate`] when the Environment is placed already.
pub async fn begin(core: &Core, demand: Demand) -> Result<Placing<'_>, PlaceError> {
    let placing = chosen(core, demand).await;
    if let Err(PlaceError::Refused(answer)) = &placing {
        core.metrics.placed(*answer);
    }
    placing
}

async fn chosen(core: &Core, demand: Demand) -> Result<Placing<'_>, PlaceError> {
    let mut reread = false;
    for _ in 0..ATTEMPTS {
        let choice = core.hub.memory().choose(&demand.request);
        let Some((node_id, pin)) = choice.node() else {
            if !reread {
                // Memory may be behind a deployment that was saved a moment ago.
                reread = true;
                let remembered = core.hub.memory().deployment();
                if read_deployment(core, &core.store.single()).await? != remembered {
                    continue;
                }
            }
            // Running sandboxes in Core itself is a later backend's work.
            let refused = if choice.answer() == Answer::Direct {
                Answer::Unavailable
            } else {
                choice.answer()
            };
            if refused == Answer::Unavailable {
                // Perhaps room is made, and found when it comes again.
                core.pokes.want_room(pressure::Wanted::Place(demand.request));
            }
            return Err(PlaceError::Refused(refused));
        };
        let tx = core.begin_owned().await?.ok_or(PlaceError::Standby)?;
        match check(core, &tx, &demand, node_id, pin).await? {
            Checked::Fits { ticket, slots } => {
                let new = NewPlacement {
                    id: PlacementId::random(),
                    environment_id: demand.environment_id,
                    node_id: Some(node_id),
                    generation: pin,
                };
                let placement = tx.insert_placement(&new).await?;
                let placed = Placed {
                    placement,
                    node_id,
                    allocation_id: AllocationId::random(),
                };
                return Ok(Placing {
                    core,
                    tx,
                    demand,
                    placed,
                    choice,
                    ticket,
                    slots,
                });
            }
            Checked::Moved(refused) => {
                tracing::debug!(%node_id, %refused, "the chosen node no longer fits");
                tx.rollback().await?;
            }
            Checked::Deployment(Some(answer)) => return Err(PlaceError::Refused(answer)),
            Checked::Deployment(None) => tx.rollback().await?,
        }
    }
    tracing::warn!("a demand found no node that still fits after {ATTEMPTS} attempts");
    Err(PlaceError::Refused(Answer::Unavailable))
}

enum Checked {
    Fits {
        ticket: memory::Ticket,
        slots: (u32, u32),
    },
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
    let remembered = memory.deployment();
    let deployment = read_deployment(core, tx).await?;
    if deployment != remembered {
        let refuses = deployment.reset_in_progress
            || !deployment.specification_valid
            || deployment.mode != oac_lifecycle::placement::Mode::Nodes;
        if refuses {
            let nobody: [&oac_lifecycle::placement::Node; 0] = [];
            return Ok(Checked::Deployment(Some(oac_lifecycle::placement::place(
                &demand.request,
                &deployment,
                nobody,
            ))));
        }
        return Ok(Checked::Deployment(None));
    }
    let Some(row) = tx
        .lock_node(node_id)
        .await?
        .filter(|row| row.retired_at.is_none())
    else {
        memory.forget(node_id);
        return Ok(Checked::Moved(Recheck::NotReady));
    };
    let ticket = memory.ticket();
    let counts = tx.slot_counts(Some(node_id)).await?;
    let node = node_view(tx, &row, counts, deployment.target).await?;
    let url = deployment.public_url.as_deref().unwrap_or_default();
    match recheck(&demand.request, url, pin, &node) {
        Ok(()) => Ok(Checked::Fits {
            ticket,
            slots: (node.active, node.retained),
        }),
        Err(refused) => {
            memory.remember(ticket, node);
            Ok(Checked::Moved(refused))
        }
    }
}

/// The placement is taken up at once: its allocation appears in state reserved with it.
async fn reserve(tx: &Tx, demand: &Demand, placed: &Placed) -> Result<(), StoreError> {
    allocations::announce_reset(tx, demand.session_id).await?;
    let row = tx
        .insert_allocation(&NewAllocation {
            id: placed.allocation_id,
            placement_id: placed.placement.id,
            tenant_id: demand.project_id,
            session_id: demand.session_id,
            environment_id: demand.environment_id,
            node_id: Some(placed.node_id),
            deployment_generation: placed.placement.generation,
        })
        .await?;
    allocations::appeared(tx, &row).await
}

/// Everything but the counts of a node that a transaction wrote.
pub(crate) struct Facts(Option<(memory::Ticket, oac_lifecycle::placement::Node)>);

impl Facts {
    /// Call it once the transaction is committed.
    pub(crate) fn remember(self, core: &Core) {
        if let Some((ticket, node)) = self.0 {
            core.hub.memory().remember_facts(ticket, node);
        }
    }
}

/// What memory learns of a node whose row `tx` has locked and written.
pub(crate) async fn facts_of(core: &Core, tx: &Tx, id: NodeId) -> Result<Facts, StoreError> {
    let memory = core.hub.memory();
    let ticket = memory.ticket();
    let Some(row) = tx.node(id).await? else {
        return Ok(Facts(None));
    };
    let target = memory.deployment().target;
    let node = node_view(tx, &row, oac_store::SlotCounts::default(), target).await?;
    Ok(Facts(Some((ticket, node))))
}

/// Reads the deployment, and remembers it.
async fn read_deployment(core: &Core, read: &Read) -> Result<Deployment, StoreError> {
    let memory = core.hub.memory();
    let ticket = memory.ticket();
    let deployment = deployment_view(core, read).await?;
    memory.set_deployment(ticket, deployment.clone());
    Ok(deployment)
}

/// Reads the deployment into memory. Call it after every write to the deployment, before anybody is told.
pub async fn refresh_deployment(core: &Core) {
    if let Err(error) = read_deployment(core, &core.store.single()).await {
        tracing::warn!(error = %Chain(&error), "the deployment cannot be read");
    }
}

/// Whether the deployment is being reset. Reads nothing but right after an ownership began.
pub(crate) async fn resetting(core: &Core, read: &Read) -> Result<bool, StoreError> {
    match core.hub.memory().resetting() {
        Some(resetting) => Ok(resetting),
        None => Ok(read_deployment(core, read).await?.reset_in_progress),
    }
}

/// Starts this part's worker: memory follows the deployment.
pub fn start(core: &Arc<Core>) {
    let core_ = core.clone();
    core.tasks.spawn(Kind::Worker, "placement memory", async move {
        let core = core_;
        loop {
            core.owner.owned().await;
            refresh_deployment(&core).await;
            tokio::time::sleep(DEPLOYMENT_REFRESH).await;
        }
    });
}
