//! Where a new sandbox goes (core.md section 7).
//!
//! It must guarantee that no placement is stored on a node that is full, gone or closed in that transaction however many
//! run at once (INV-C10, INV-C32), and that a refusal leaves no row (INV-C11). So the choice is made in memory, without
//! a transaction, by `oac_lifecycle::placement::place`; the placing transaction then locks the chosen node alone, checks
//! it again with its counts, and stores the placement, whatever the caller stores with it, and the reserved allocation
//! together. When the check fails, memory learns from it and the next candidate is tried in a further transaction.
//!
//! No placement waits for a node's row that another transaction holds: others wait behind it, for other nodes, and have
//! nothing to do with that one. Rows are held for milliseconds, so [`Search`] tries again a moment later, then looks for
//! another node, and gives up when the row stays held for as long as a database would have waited for it.
//!
//! New Sessions share placing transactions (`crate::sessions::admission`); whoever places the Environment of a Session that
//! exists has one of its own, [`Placing`].

pub mod memory;
pub(crate) mod pressure;
mod search;
mod step;
mod view;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use oac_lifecycle::placement::{Answer, Deployment, Mode, Node, Request, place, recheck};
use oac_model::{AllocationId, EnvironmentId, Generation, NodeId, PlacementId, ProjectId, SessionId};
use oac_store::{
    DeploymentLock, NewAllocation, NewPlacement, PlacementRow, Read, SessionRow, StoreError, Tx,
};
use oac_telemetry::traces::Parent;

use crate::{
    Core, allocations,
    http::{ApiError, error::Chain},
    limits::{HELD_LONGEST, HELD_PAUSE},
    task::Kind,
};

pub(crate) use search::{GoOn, Misfit, Search};
pub(crate) use step::Step;
use view::locked_node_views;
pub(crate) use view::{deployment_view, node_view, pin, view_of};

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
    /// What asks for it.
    pub parent: Parent,
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
            parent: Parent::default(),
        }
    }

    /// As part of what `parent` names.
    pub(crate) fn within(self, parent: Parent) -> Self {
        Self { parent, ..self }
    }
}

/// What the placing transaction stored, or is about to.
#[derive(Debug, Clone)]
pub struct Placed {
    pub placement: PlacementRow,
    pub node_id: NodeId,
    pub allocation_id: AllocationId,
}

impl Placed {
    /// Of what `tx` is about to store.
    pub(crate) fn new(tx: &Tx, demand: &Demand, node_id: NodeId, pin: Generation) -> Self {
        let placement = NewPlacement {
            id: PlacementId::random(),
            environment_id: demand.environment_id,
            node_id: Some(node_id),
            generation: pin,
        };
        Self {
            placement: placement.row(tx.now()),
            node_id,
            allocation_id: AllocationId::random(),
        }
    }

    /// The allocation that appears with it, in state reserved: a placement is taken up at once.
    pub(crate) fn allocation(&self, demand: &Demand) -> NewAllocation {
        NewAllocation {
            id: self.allocation_id,
            placement_id: self.placement.id,
            tenant_id: demand.project_id,
            session_id: demand.session_id,
            environment_id: demand.environment_id,
            node_id: Some(self.node_id),
            deployment_generation: self.placement.generation,
        }
    }
}

/// Why nothing was placed; no row was left but for what [`StoreError`] says of its own.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PlaceError {
    /// Never `Node` or `Direct`.
    #[error("no node takes the sandbox: {0:?}")]
    Refused(Answer),
    #[error("this Core does not own the installation")]
    Standby,
    /// Its Project was deleted since the request was admitted.
    #[error("the Project is deleted")]
    NoProject,
    #[error("the placement was not stored")]
    Store(#[from] StoreError),
    /// Its node's row is held, and no other node takes it.
    #[error("another transaction holds the node's row")]
    Held,
    /// As many wait as may.
    #[error("too many wait to be placed")]
    Crowded,
    /// A defect: whether it was stored is not known.
    #[error("what was to store the placement ended without an answer")]
    Unanswered,
}

impl From<PlaceError> for ApiError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Refused(Answer::Reset) => Self::reset_in_progress_unavailable(),
            PlaceError::Refused(Answer::Preparing) => Self::nodes_preparing(),
            PlaceError::Refused(_) => Self::node_unavailable(),
            PlaceError::Standby => Self::standby(),
            // As its key is answered from then on.
            PlaceError::NoProject => Self::invalid_api_key(),
            PlaceError::Store(error) => error.into(),
            PlaceError::Held | PlaceError::Crowded => {
                tracing::warn!(event = "placement_refused", error = %Chain(&error), "the database does not keep up with placements");
                Self::database_unavailable()
            }
            PlaceError::Unanswered => Self::internal("placement", &error),
        }
    }
}

/// A placing transaction: its node is locked and has room, its placement is stored in it. The caller stores what belongs
/// with it through [`Self::tx`] (its input, its idempotency record), then commits. Dropped, it leaves no row (INV-C11).
pub struct Placing<'a> {
    core: &'a Core,
    demand: Demand,
    chosen: Chosen<'a>,
    step: Step,
}

/// A placement that is stored in a transaction, on a node that fits under its lock.
struct Chosen<'a> {
    tx: Tx,
    placed: Placed,
    choice: memory::Choice<'a>,
    places: Places,
}

impl Placing<'_> {
    /// The open transaction. Deployment and node are locked: lock the Session next, nothing before it in the order.
    pub fn tx(&self) -> &Tx {
        &self.chosen.tx
    }

    /// Takes the placement up (its allocation appears as `reserved`), commits and pokes the workers.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] when the Environment holds an unreleased allocation.
    pub async fn commit(self) -> Result<Placed, StoreError> {
        let Self {
            core,
            demand,
            chosen,
            mut step,
        } = self;
        let Chosen {
            tx,
            placed,
            choice,
            places,
        } = chosen;
        allocations::announce_reset(&tx, demand.session_id).await?;
        let row = tx.insert_allocation(&placed.allocation(&demand)).await?;
        allocations::appeared(&tx, &row).await?;
        step.stores(core, &placed);
        tx.commit().await?;
        step.stored(&placed);
        places.taken(core, vec![(choice, placed.allocation_id)]);
        Ok(placed)
    }
}

/// Opens a placing transaction for `demand` on the best node that still fits under its lock.
///
/// # Errors
/// [`PlaceError::Refused`] with placement's answer; [`StoreError::Duplicate`] when the Environment is placed already.
pub async fn begin(core: &Core, demand: Demand) -> Result<Placing<'_>, PlaceError> {
    begin_within(core, demand, HELD_LONGEST).await
}

/// As [`begin`], waiting so long for the row of a node that others hold. Without patience every node that takes the demand
/// is still looked at once.
pub async fn begin_within(
    core: &Core,
    demand: Demand,
    patience: Duration,
) -> Result<Placing<'_>, PlaceError> {
    let mut step = Step::begin(core, &demand);
    match choose_and_lock(core, &demand, Search::with_patience(patience)).await {
        Ok(chosen) => Ok(Placing {
            core,
            demand,
            chosen,
            step,
        }),
        Err(error) => {
            if let PlaceError::Refused(answer) = &error {
                core.metrics.placed(*answer);
            }
            step.refused(&error);
            Err(error)
        }
    }
}

async fn choose_and_lock<'a>(
    core: &'a Core,
    demand: &Demand,
    mut search: Search,
) -> Result<Chosen<'a>, PlaceError> {
    loop {
        let mut choices = choose(core, &[(&demand.request, &search)]).await?;
        let choice = choices.pop().ok_or(PlaceError::Unanswered)?;
        let Some((node_id, pin)) = choice.node() else {
            return Err(PlaceError::Refused(choice.answer()));
        };
        let tx = core.begin_owned().await?.ok_or(PlaceError::Standby)?;
        let misfit = match check(core, &tx, &[(&demand.request, node_id, pin)]).await? {
            Checked::Places(places) if places.fits(0) => {
                if tx.keep_projects(&[demand.project_id]).await?.is_empty() {
                    return Err(PlaceError::NoProject);
                }
                let placed = Placed::new(&tx, demand, node_id, pin);
                tx.insert_placements(std::slice::from_ref(&placed.placement))
                    .await?;
                return Ok(Chosen {
                    tx,
                    placed,
                    choice,
                    places,
                });
            }
            Checked::Places(places) => places.misfit(0),
            Checked::Changed => Misfit::Changed,
            Checked::Refused(answer) => return Err(PlaceError::Refused(answer)),
        };
        tx.rollback().await?;
        drop(choice);
        if search.go_on(misfit)? == GoOn::Later {
            tokio::time::sleep(HELD_PAUSE).await;
        }
    }
}

/// Chooses for each of these, as if one came after the other.
pub(crate) async fn choose<'a>(
    core: &'a Core,
    demands: &[(&Request, &Search)],
) -> Result<Vec<memory::Choice<'a>>, StoreError> {
    let memory = core.hub.memory();
    let choose = |(request, search): &(&Request, &Search)| memory.choose(request, &search.passed_over());
    let mut choices: Vec<_> = demands.iter().map(choose).collect();
    if choices.iter().any(|choice| choice.node().is_none()) {
        // Memory may be behind a deployment that was saved a moment ago.
        let remembered = memory.deployment();
        if read_deployment(core, &core.store.single()).await? != remembered {
            for (choice, demand) in choices.iter_mut().zip(demands) {
                if choice.node().is_none() {
                    *choice = choose(demand);
                }
            }
        }
    }
    for (choice, (request, _)) in choices.iter().zip(demands) {
        if choice.answer() == Answer::Unavailable {
            // Perhaps room is made, and found when it comes again.
            core.pokes.want_room(pressure::Wanted::Place((*request).clone()));
        }
    }
    Ok(choices)
}

/// What a placing transaction finds of what was chosen from memory.
pub(crate) enum Checked {
    Places(Places),
    /// The deployment is another than remembered and takes nothing.
    Refused(Answer),
    /// The deployment is another than remembered: choose again.
    Changed,
}

/// Nodes as they are under their locks, with the demands that fit.
pub(crate) struct Places {
    /// Of each demand, in their order.
    found: Vec<Result<(), Misfit>>,
    nodes: HashMap<NodeId, (memory::Ticket, Node)>,
}

impl Places {
    /// Whether there is room for this demand beside those before it.
    pub(crate) fn fits(&self, demand: usize) -> bool {
        self.found.get(demand).is_some_and(Result::is_ok)
    }

    /// Of one that does not fit.
    pub(crate) fn misfit(&self, demand: usize) -> Misfit {
        let found = self.found.get(demand).copied();
        found.and_then(Result::err).unwrap_or(Misfit::Changed)
    }

    /// Call it once the transaction is committed in which these choices were stored, each as this allocation.
    pub(crate) fn taken(self, core: &Core, stored: Vec<(memory::Choice<'_>, AllocationId)>) {
        let mut taken: HashMap<NodeId, u32> = HashMap::new();
        let mut appeared = Vec::with_capacity(stored.len());
        for (choice, allocation) in stored {
            appeared.push(allocation);
            core.metrics.placed(choice.answer());
            if let Some((id, _)) = choice.node() {
                *taken.entry(id).or_default() += 1;
            }
        }
        for (id, count) in taken {
            if let Some((ticket, node)) = self.nodes.get(&id) {
                let (active, retained) = (node.active + count, node.retained + count);
                core.hub.memory().remember_counts(*ticket, id, active, retained);
            }
        }
        for allocation in appeared {
            core.pokes.changed(allocation);
        }
    }
}

/// Locks deployment and nodes, and looks at them again. What memory had wrong of a node that does not fit is corrected.
pub(crate) async fn check(
    core: &Core,
    tx: &Tx,
    chosen: &[(&Request, NodeId, Generation)],
) -> Result<Checked, StoreError> {
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let memory = core.hub.memory();
    let remembered = memory.deployment();
    let deployment = read_deployment(core, tx).await?;
    if deployment != remembered {
        let refuses =
            deployment.reset_in_progress || !deployment.specification_valid || deployment.mode != Mode::Nodes;
        if !refuses {
            return Ok(Checked::Changed);
        }
        // Whatever a demand asks for, the deployment alone decides.
        let nobody: [&Node; 0] = [];
        return Ok(Checked::Refused(place(&Request::default(), &deployment, nobody)));
    }
    let mut ids: Vec<NodeId> = chosen.iter().map(|(_, id, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    let (mut nodes, mut retired) = (HashMap::new(), HashSet::new());
    for (id, node) in locked_node_views(tx, &ids, deployment.target).await? {
        match node {
            Some(node) => drop(nodes.insert(id, (memory.ticket(), node))),
            None => drop(retired.insert(id)),
        }
    }
    for id in &retired {
        memory.forget(*id);
    }
    let url = deployment.public_url.as_deref().unwrap_or_default();
    let mut beside: HashMap<NodeId, u32> = HashMap::new();
    let mut found = Vec::with_capacity(chosen.len());
    for (request, id, pin) in chosen {
        let Some((_, node)) = nodes.get(id) else {
            found.push(Err(if retired.contains(id) {
                Misfit::Unfit(*id)
            } else {
                Misfit::Held(*id)
            }));
            continue;
        };
        let beside = beside.entry(*id).or_default();
        let node = Node {
            active: node.active + *beside,
            retained: node.retained + *beside,
            ..node.clone()
        };
        let fits = recheck(request, url, *pin, &node);
        match fits {
            Ok(()) => *beside += 1,
            Err(refused) => tracing::debug!(node_id = %id, %refused, "a chosen node no longer fits"),
        }
        found.push(fits.map_err(|_| Misfit::Unfit(*id)));
    }
    for ((_, id, _), found) in chosen.iter().zip(&found) {
        if let (Err(_), Some((ticket, node))) = (found, nodes.get_mut(id)) {
            memory.remember(*ticket, node.clone());
            // What this transaction stores there for others is newer.
            *ticket = memory.ticket();
        }
    }
    Ok(Checked::Places(Places { found, nodes }))
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

/// Reads the deployment into memory; what cannot be read there, whoever needs it reads. Call it after every write to the
/// deployment, before anybody is told.
pub async fn refresh_deployment(core: &Core) {
    let ticket = core.hub.memory().ticket();
    if let Err(error) = read_deployment(core, &core.store.single()).await {
        core.hub.memory().doubt_deployment(ticket);
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
