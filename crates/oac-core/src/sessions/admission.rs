//! Admissions: new Sessions on their way into the transactions that they share (core.md sections 2, 7 and 8).
//!
//! An admission stores little and a database makes each transaction durable on its own, so what arrives while one is
//! stored is stored together in the next. Each request is still judged alone: by placement before the transaction, by the
//! rows under their locks in it, beside those before it in the same transaction. What is refused writes nothing
//! (INV-C11), and what fits no longer chooses again and goes into the next transaction. Only what happens to the whole
//! transaction (the database is busy, does not answer the commit, or another Core owns it) happens to all in it.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use oac_lifecycle::placement::{Answer, Request};
use oac_model::{ProjectId, ProviderKind};
use oac_store::{AllocationRow, EventKind, NewSession, SessionRow, StoreError, Tx};
use serde_json::json;

use super::{idempotency::Keyed, view};
use crate::{
    Core, allocations,
    gathering::{self, Gathering, Shared, Waiting},
    limits::ADMISSIONS_PER_TRANSACTION,
    placement::{self, ATTEMPTS, Checked, Demand, PlaceError, Placed, memory::Choice},
};

/// A Session that is to be stored with its placement.
pub struct Admission {
    session: NewSession,
    demand: Demand,
    keyed: Option<Keyed>,
    /// Transactions in which what was chosen for it no longer fitted.
    attempts: usize,
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

/// Stores a Session on the best node that fits, durably.
///
/// # Errors
/// [`PlaceError::Refused`] with placement's answer. After [`StoreError::Unknown`] it may be stored.
pub async fn admit(core: &Arc<Core>, session: NewSession, keyed: Option<Keyed>) -> Outcome {
    let demand = Demand {
        project_id: session.project_id,
        session_id: session.id,
        environment_id: session.environment_id,
        request: Request {
            required_labels: session.required_labels.clone(),
        },
    };
    let admission = Admission {
        session,
        demand,
        keyed,
        attempts: 0,
    };
    let answered = gathering::answered(core, admission).await;
    answered.unwrap_or(Err(PlaceError::Unanswered))
}

impl Shared for Admission {
    type Answer = Outcome;
    /// Each transaction is of whatever epoch Core owns when it begins.
    type Scope = ();
    /// Of two requests with one key the second is answered as the first was.
    type Key = (ProjectId, String);

    const NAME: &'static str = "admissions";
    const MOST: usize = ADMISSIONS_PER_TRANSACTION;
    const PACE: Duration = Duration::ZERO;

    fn gathering(core: &Core) -> &Admissions {
        &core.admissions
    }

    fn scope(&self) {}

    fn key(&self) -> Option<Self::Key> {
        self.keyed.as_ref().map(Keyed::key)
    }

    async fn store(core: &Core, waiting: Vec<Waiting<Self>>) -> Vec<Waiting<Self>> {
        // Who left before anything was done for them gets no Session that nobody knows of.
        let waiting: Vec<_> = waiting.into_iter().filter(|w| !w.is_left()).collect();
        let admissions: Vec<&Admission> = waiting.iter().map(|w| &w.request).collect();
        let outcomes = outcomes(core, &admissions).await;
        let mut again = Vec::new();
        for (mut waiting, outcome) in waiting.into_iter().zip(outcomes) {
            waiting.request.attempts += 1;
            match outcome {
                Some(outcome) => waiting.answer(outcome),
                None if waiting.request.attempts < ATTEMPTS => again.push(waiting),
                None => {
                    tracing::warn!("a Session found no node that still fits after {ATTEMPTS} attempts");
                    waiting.answer(refused(core, Answer::Unavailable));
                }
            }
        }
        again
    }
}

fn refused(core: &Core, answer: Answer) -> Outcome {
    core.metrics.placed(answer);
    Err(PlaceError::Refused(answer))
}

/// What becomes of each, after one transaction at most; `None` of those that have to choose again.
async fn outcomes(core: &Core, admissions: &[&Admission]) -> Vec<Option<Outcome>> {
    let requests: Vec<&Request> = admissions.iter().map(|a| &a.demand.request).collect();
    let choices = match placement::choose(core, &requests).await {
        Ok(choices) => choices,
        Err(error) => return vec![Some(Err(error.into())); admissions.len()],
    };
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(admissions.len());
    let (mut going, mut places) = (Vec::new(), Vec::new());
    for (place, (admission, choice)) in admissions.iter().zip(choices).enumerate() {
        outcomes.push(match choice.node() {
            Some(_) => None,
            None => Some(refused(core, choice.answer())),
        });
        if choice.node().is_some() {
            going.push(Going { admission, choice });
            places.push(place);
        }
    }
    if going.is_empty() {
        return outcomes;
    }
    let of_going = match together(core, going).await {
        Ok(of_going) => of_going,
        Err(error) => vec![Some(Err(error)); places.len()],
    };
    for (place, outcome) in places.into_iter().zip(of_going) {
        outcomes[place] = outcome;
    }
    outcomes
}

/// One for which a node was chosen.
struct Going<'a> {
    admission: &'a Admission,
    choice: Choice<'a>,
}

/// Stores those that still fit in one transaction.
async fn together(core: &Core, going: Vec<Going<'_>>) -> Result<Vec<Option<Outcome>>, PlaceError> {
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
            return Ok(going.iter().map(|_| None).collect());
        }
        Checked::Refused(answer) => {
            return Ok(going.iter().map(|_| Some(refused(core, answer))).collect());
        }
    };
    let projects: Vec<ProjectId> = going.iter().map(|one| one.admission.demand.project_id).collect();
    let kept = tx.keep_projects(&projects).await?;
    let provider = view::backend(&tx).await?;
    let mut outcomes: Vec<Option<Outcome>> = going.iter().map(|_| None).collect();
    let mut storing = Vec::new();
    for (n, going) in going.into_iter().enumerate().filter(|(n, _)| places.fit(*n)) {
        if !kept.contains(&going.admission.demand.project_id) {
            outcomes[n] = Some(Err(PlaceError::NoProject));
            continue;
        }
        match Storing::new(&tx, n, going, provider) {
            Ok(one) => storing.push(one),
            Err(error) => outcomes[n] = Some(Err(error)),
        }
    }
    for n in leave_repeated(&tx, &mut storing).await? {
        outcomes[n] = Some(Ok(Admitted::First));
    }
    if storing.is_empty() {
        tx.rollback().await?;
        return Ok(outcomes);
    }
    insert(&tx, &storing).await?;
    tx.commit().await?;
    let mut choices = Vec::with_capacity(storing.len());
    for one in storing {
        choices.push(one.choice);
        outcomes[one.n] = Some(Ok(Admitted::Stored {
            placed: one.placed,
            body: one.body,
        }));
    }
    places.taken(core, choices);
    Ok(outcomes)
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
