//! Admissions: new Sessions on their way into the transactions that they share (core.md sections 2, 7 and 8).
//!
//! An admission stores little and a database makes each transaction durable on its own, so what arrives while one is
//! stored is stored together in the next. Each request is still judged alone: by placement before the transaction, by the
//! rows under their locks in it, beside those before it in the same transaction. What is refused writes nothing
//! (INV-C11), and what fits no longer chooses again and goes into the next one. So does what finds its node's row held by
//! another transaction, behind whatever else waits: no node's row is waited for. What the database refuses for what one of them says is stored again one by one.
//! Only what happens to the whole transaction (the database is busy, does not answer the commit, or another Core owns it)
//! happens to all in it.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use oac_lifecycle::placement::{Answer, Request};
use oac_model::{ProjectId, ProviderKind};
use oac_store::{AllocationRow, EventKind, NewSession, SessionRow, StoreError, Tx};
use oac_telemetry::traces::Parent;
use serde_json::json;

use super::{idempotency::Keyed, view};
use crate::{
    Core, allocations,
    gathering::{self, Gathering, Left, Shared, Unanswered, Waiting},
    limits::{ADMISSIONS_PER_TRANSACTION, ADMISSIONS_WAITING, HELD_LONGEST},
    placement::{self, Checked, Demand, GoOn, Misfit, PlaceError, Placed, Search, Step, memory::Choice},
};

/// A Session that is to be stored with its placement.
pub struct Admission {
    session: NewSession,
    demand: Demand,
    keyed: Option<Keyed>,
    search: Search,
    step: Step,
}

/// What became of a request that was not refused.
#[derive(Debug, Clone)]
pub enum Admitted {
    Stored {
        placed: Placed,
        /// The answer's text, stored with the request's key.
        body: String,
    },
    /// Another request with the same Idempotency-Key was first, and nothing was stored.
    First,
}

/// The admissions that wait for a transaction.
pub type Admissions = Gathering<Admission>;

type Outcome = Result<Admitted, PlaceError>;

/// Stores a Session on the best node that fits, durably; `parent` is what asks for it.
///
/// # Errors
/// [`PlaceError::Refused`] with placement's answer. After [`StoreError::Unknown`] it may be stored.
pub async fn admit(core: &Arc<Core>, session: NewSession, keyed: Option<Keyed>, parent: Parent) -> Outcome {
    let demand = Demand {
        project_id: session.project_id,
        session_id: session.id,
        environment_id: session.environment_id,
        request: Request {
            required_labels: session.required_labels.clone(),
        },
        parent,
    };
    let admission = Admission {
        session,
        step: Step::begin(core, &demand),
        demand,
        keyed,
        search: Search::with_patience(HELD_LONGEST),
    };
    match gathering::answered(core, admission).await {
        Ok(outcome) => outcome,
        Err(Unanswered::Full) => Err(PlaceError::Crowded),
        Err(Unanswered::Lost) => Err(PlaceError::Unanswered),
    }
}

impl Shared for Admission {
    type Answer = Outcome;
    /// Each transaction is of whatever epoch Core owns when it begins.
    type Scope = ();
    /// Of two requests with one key the second is answered as the first was.
    type Key = (ProjectId, String);

    const NAME: &'static str = "admissions";
    const MOST: usize = ADMISSIONS_PER_TRANSACTION;
    const WAITING: usize = ADMISSIONS_WAITING;
    const PACE: Duration = Duration::ZERO;

    fn gathering(core: &Core) -> &Admissions {
        &core.admissions
    }

    fn scope(&self) {}

    fn key(&self) -> Option<Self::Key> {
        self.keyed.as_ref().map(Keyed::key)
    }

    async fn store(core: &Core, waiting: Vec<Waiting<Self>>) -> Left<Self> {
        // Who left before anything was done for them gets no Session that nobody knows of.
        let waiting: Vec<_> = waiting.into_iter().filter(|w| !w.is_left()).collect();
        let admissions: Vec<&Admission> = waiting.iter().map(|w| &w.request).collect();
        let fates = fates(core, &admissions).await;
        let mut left = Left::default();
        for (mut waiting, fate) in waiting.into_iter().zip(fates) {
            let outcome = match fate {
                Ok(outcome) => outcome,
                Err(misfit) => match waiting.request.search.go_on(misfit) {
                    Ok(GoOn::AtOnce) => {
                        left.again.push(waiting);
                        continue;
                    }
                    Ok(GoOn::Later) => {
                        left.held.push(waiting);
                        continue;
                    }
                    Err(PlaceError::Refused(answer)) => refused(core, answer),
                    Err(error) => Err(error),
                },
            };
            tell(waiting, outcome);
        }
        left
    }
}

/// Ends the step, and answers.
fn tell(mut waiting: Waiting<Admission>, outcome: Outcome) {
    let step = &mut waiting.request.step;
    match &outcome {
        Ok(Admitted::Stored { placed, .. }) => step.stored(placed),
        Ok(Admitted::First) => step.was_needless(),
        Err(error) => step.refused(error),
    }
    waiting.answer(outcome);
}

fn refused(core: &Core, answer: Answer) -> Outcome {
    core.metrics.placed(answer);
    Err(PlaceError::Refused(answer))
}

/// An answer, or why it has to choose again.
type Fate = Result<Outcome, Misfit>;

/// What becomes of each.
async fn fates(core: &Core, admissions: &[&Admission]) -> Vec<Fate> {
    match tried(core, admissions).await {
        Ok(fates) => fates,
        Err(error) if admissions.len() > 1 && is_of_one(&error) => {
            let mut fates = Vec::with_capacity(admissions.len());
            for admission in admissions {
                match tried(core, &[*admission]).await {
                    Ok(alone) => fates.extend(alone),
                    Err(error) => fates.push(Ok(Err(error))),
                }
            }
            fates
        }
        Err(error) => admissions.iter().map(|_| Ok(Err(error.clone()))).collect(),
    }
}

/// Whether the database refused what one of several says, so that nothing of the others was stored for that.
fn is_of_one(error: &PlaceError) -> bool {
    let PlaceError::Store(error) = error else {
        return false;
    };
    let of_all = matches!(error, StoreError::NotOwner { .. } | StoreError::Unknown { .. });
    !of_all && !error.is_transient()
}

/// What becomes of each, after one transaction at most.
async fn tried(core: &Core, admissions: &[&Admission]) -> Result<Vec<Fate>, PlaceError> {
    let demands: Vec<_> = admissions
        .iter()
        .map(|a| (&a.demand.request, &a.search))
        .collect();
    let choices = placement::choose(core, &demands).await?;
    let mut fates: Vec<Fate> = Vec::with_capacity(admissions.len());
    let (mut going, mut places) = (Vec::new(), Vec::new());
    for (place, (admission, choice)) in admissions.iter().zip(choices).enumerate() {
        if choice.node().is_some() {
            fates.push(Err(Misfit::Changed));
            going.push(Going { admission, choice });
            places.push(place);
        } else {
            fates.push(Ok(refused(core, choice.answer())));
        }
    }
    if !going.is_empty() {
        for (place, fate) in places.into_iter().zip(together(core, going).await?) {
            fates[place] = fate;
        }
    }
    Ok(fates)
}

/// One for which a node was chosen.
struct Going<'a> {
    admission: &'a Admission,
    choice: Choice<'a>,
}

/// Stores those that still fit in one transaction.
async fn together(core: &Core, going: Vec<Going<'_>>) -> Result<Vec<Fate>, PlaceError> {
    let mut span = core.traces.shared(["transaction", "admissions"]);
    let tx = core.begin_owned().await?.ok_or(PlaceError::Standby)?;
    let chosen: Vec<_> = going
        .iter()
        .filter_map(|one| {
            let (node, pin) = one.choice.node()?;
            Some((&one.admission.demand.request, node, pin))
        })
        .collect();
    let places = match placement::check(core, &tx, &chosen).await? {
        Checked::Places(places) => places,
        Checked::Changed => {
            tx.rollback().await?;
            return Ok(going.iter().map(|_| Err(Misfit::Changed)).collect());
        }
        Checked::Refused(answer) => {
            return Ok(going.iter().map(|_| Ok(refused(core, answer))).collect());
        }
    };
    let mut fates: Vec<Fate> = (0..going.len()).map(|n| Err(places.misfit(n))).collect();
    let projects: Vec<ProjectId> = going.iter().map(|one| one.admission.demand.project_id).collect();
    let kept = tx.keep_projects(&projects).await?;
    let provider = view::backend(&tx).await?;
    let mut storing = Vec::new();
    for (n, going) in going.into_iter().enumerate().filter(|(n, _)| places.fits(*n)) {
        if !kept.contains(&going.admission.demand.project_id) {
            fates[n] = Ok(Err(PlaceError::NoProject));
            continue;
        }
        match Storing::new(&tx, n, going, provider) {
            Ok(one) => storing.push(one),
            Err(error) => fates[n] = Ok(Err(error)),
        }
    }
    for n in leave_repeated(&tx, &mut storing).await? {
        fates[n] = Ok(Ok(Admitted::First));
    }
    if storing.is_empty() {
        tx.rollback().await?;
        return Ok(fates);
    }
    insert(&tx, &storing).await?;
    for one in &storing {
        one.step.stores(core, &one.placed);
        one.step.shares(&mut span);
    }
    if let Err(error) = tx.commit().await {
        span.failed();
        return Err(error.into());
    }
    let mut choices = Vec::with_capacity(storing.len());
    for one in storing {
        choices.push((one.choice, one.placed.allocation_id));
        fates[one.n] = Ok(Ok(Admitted::Stored {
            placed: one.placed,
            body: one.body,
        }));
    }
    places.taken(core, choices);
    Ok(fates)
}

/// Everything that is stored of one admission.
struct Storing<'a> {
    /// Its number in the transaction.
    n: usize,
    choice: Choice<'a>,
    session: SessionRow,
    placed: Placed,
    allocation: AllocationRow,
    keyed: Option<&'a Keyed>,
    step: &'a Step,
    body: String,
}

impl<'a> Storing<'a> {
    fn new(tx: &Tx, n: usize, going: Going<'a>, provider: ProviderKind) -> Result<Self, PlaceError> {
        let Going { admission, choice } = going;
        let (node, pin) = choice.node().ok_or(PlaceError::Unanswered)?;
        let placed = Placed::new(tx, &admission.demand, node, pin);
        let session = admission.session.row(tx.now());
        let shape = view::fresh(session.clone(), &placed, provider);
        let body = serde_json::to_string(&shape).map_err(|_| PlaceError::Unanswered)?;
        Ok(Self {
            n,
            choice,
            session,
            allocation: placed.allocation(&admission.demand).row(tx.now()),
            placed,
            keyed: admission.keyed.as_ref(),
            step: &admission.step,
            body,
        })
    }
}

/// Stores the answers of keyed requests first of all: those whose key another request used before leave, and nothing was
/// written of them.
async fn leave_repeated(tx: &Tx, storing: &mut Vec<Storing<'_>>) -> Result<Vec<usize>, StoreError> {
    let keyed = |one: &Storing<'_>| Some((one.n, one.keyed?.record(tx, StatusCode::CREATED, &one.body)));
    let (numbers, records): (Vec<usize>, Vec<_>) = storing.iter().filter_map(keyed).unzip();
    let first = tx.insert_idempotency_records(&records).await?;
    let repeated = numbers.into_iter().zip(first).filter(|(_, first)| !first);
    let repeated: Vec<usize> = repeated.map(|(n, _)| n).collect();
    storing.retain(|one| !repeated.contains(&one.n));
    Ok(repeated)
}

async fn insert(tx: &Tx, storing: &[Storing<'_>]) -> Result<(), StoreError> {
    let told = |one: &Storing<'_>| {
        let created = (EventKind::SessionCreated, json!({}));
        (
            one.session.clone(),
            vec![created, allocations::shown(&one.allocation)],
        )
    };
    tx.insert_sessions(storing.iter().map(told).collect()).await?;
    let placements: Vec<_> = storing.iter().map(|one| one.placed.placement.clone()).collect();
    tx.insert_placements(&placements).await?;
    let allocations: Vec<_> = storing.iter().map(|one| one.allocation.clone()).collect();
    tx.insert_allocations(&allocations).await
}
