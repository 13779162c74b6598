//! What a managing node says and asks about its generations (protocol.md sections 3, 6 and 8, node.md section 10).
//!
//! The shell reports the table of what the host holds; this decides which of it a health report and a retention
//! request name, and whether what Core says about the deployment may be believed. Eight bounds one message, not the
//! number of generations, so the others take turns: nothing is starved by what comes before it, and omission means
//! nothing.

use std::collections::BTreeMap;

use oac_model::{DiagnosticCode, Digest, Generation};
use oac_wire::frames::{Deployment, GenerationState, GenerationStatus, RetentionReference};

use super::Violation;
use crate::limits::NAMED_GENERATIONS;

/// One generation as the host holds it (node.md section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    pub generation: Generation,
    pub specification_digest: Digest,
    pub standing: Standing,
    /// A provider of it, or a placeholder, is loaded: requests can be run on it.
    pub acquirable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its latest probe succeeded.
    Ready,
    Preparing,
    Failed(DiagnosticCode),
    /// A collection is under way.
    Removing,
    /// A collection is unfinished; only a fresh grant resumes it.
    Stalled,
    Dropped,
}

impl Local {
    fn status(&self) -> Option<GenerationStatus> {
        let (state, diagnostic) = match self.standing {
            Standing::Ready => (GenerationState::Ready, None),
            Standing::Preparing => (GenerationState::Preparing, None),
            Standing::Failed(code) => (GenerationState::Failed, Some(code.into())),
            Standing::Removing | Standing::Stalled | Standing::Dropped => return None,
        };
        Some(GenerationStatus {
            generation: self.generation,
            specification_digest: self.specification_digest,
            state,
            diagnostic,
        })
    }

    fn is_going(&self) -> bool {
        self.status().is_none()
    }
}

#[derive(Debug)]
pub(super) struct Generations {
    enrolled: (Generation, Digest),
    local: BTreeMap<Generation, Local>,
    /// The newest deployment adopted by this process, whichever connection delivered it.
    known: Option<Deployment>,
    /// The last generation a report named out of turn order; the next report continues behind it.
    reported: Option<Generation>,
    /// The last generation a retention_ack answered; the next request continues behind it.
    answered: Option<Generation>,
}

impl Generations {
    pub(super) fn new(enrolled: (Generation, Digest), local: impl IntoIterator<Item = Local>) -> Self {
        let mut generations = Self {
            enrolled,
            local: BTreeMap::new(),
            known: None,
            reported: None,
            answered: None,
        };
        generations.set(local);
        generations
    }

    /// Replaces the table.
    pub(super) fn set(&mut self, local: impl IntoIterator<Item = Local>) {
        self.local = local.into_iter().map(|l| (l.generation, l)).collect();
    }

    /// Requests of it can be run.
    pub(super) fn is_acquirable(&self, generation: Generation) -> bool {
        self.local
            .get(&generation)
            .is_some_and(|l| l.acquirable && !l.is_going())
    }

    pub(super) fn is_ready(&self, generation: Generation) -> bool {
        self.is_acquirable(generation)
            && self
                .local
                .get(&generation)
                .is_some_and(|l| l.standing == Standing::Ready)
    }

    /// Judges one delivery; true when it was adopted, false when it is older than what is known.
    pub(super) fn deliver(&mut self, deployment: &Deployment) -> Result<bool, Violation> {
        let Deployment {
            generation: target,
            specification_digest,
            serving_generation,
        } = *deployment;
        if serving_generation.0.is_some_and(|serving| serving > target) {
            return Err(Violation::ServingAboveTarget);
        }
        if self.known.is_some_and(|known| target < known.generation) {
            return Ok(false);
        }
        let known_digest = self
            .known
            .filter(|known| known.generation == target)
            .map(|known| known.specification_digest);
        let local_digest = self.local.get(&target).map(|l| l.specification_digest);
        let enrolled_digest = (self.enrolled.0 == target).then_some(self.enrolled.1);
        let differs = [known_digest, local_digest, enrolled_digest]
            .into_iter()
            .flatten()
            .any(|digest| digest != specification_digest);
        if differs {
            return Err(Violation::DeploymentDigest);
        }
        let going = |generation: Generation| self.local.get(&generation).is_some_and(Local::is_going);
        if going(target) || serving_generation.0.is_some_and(going) {
            return Err(Violation::DeploymentRemoved);
        }
        self.known = Some(*deployment);
        Ok(true)
    }

    pub(super) fn known(&self) -> Option<Deployment> {
        self.known
    }

    /// At most eight statuses: target, serving, then the others in turn.
    pub(super) fn statuses(&mut self) -> Vec<GenerationStatus> {
        let first = self.first();
        let mut statuses: Vec<_> = first
            .iter()
            .flatten()
            .filter_map(|g| self.local.get(g)?.status())
            .collect();
        let others = self.in_turn(self.reported, |l| {
            !first.contains(&Some(l.generation)) && !l.is_going()
        });
        let room = NAMED_GENERATIONS - statuses.len();
        let taken: Vec<_> = others.take(room).collect();
        if let Some(last) = taken.last() {
            self.reported = Some(last.generation);
        }
        statuses.extend(taken.iter().filter_map(Local::status));
        statuses
    }

    /// At most eight generations that may be asked about; the same again until they were answered.
    pub(super) fn references(&self) -> Vec<RetentionReference> {
        let first = self.first();
        let may_be_asked = |l: &Local| {
            !first.contains(&Some(l.generation))
                && !matches!(l.standing, Standing::Removing | Standing::Dropped)
        };
        self.in_turn(self.answered, may_be_asked)
            .take(NAMED_GENERATIONS)
            .map(|l| RetentionReference {
                generation: l.generation,
                specification_digest: l.specification_digest,
            })
            .collect()
    }

    /// Core answered about these; what it no longer keeps and is still asked about may be collected.
    pub(super) fn answered(
        &mut self,
        asked: &[RetentionReference],
        keep: &[bool],
    ) -> Vec<RetentionReference> {
        let first = self.first();
        if let Some(last) = asked.last() {
            self.answered = Some(last.generation);
        }
        asked
            .iter()
            .zip(keep)
            .filter(|(asked, keep)| {
                let unchanged = self.local.get(&asked.generation).is_some_and(|l| {
                    l.specification_digest == asked.specification_digest
                        && !matches!(l.standing, Standing::Removing | Standing::Dropped)
                });
                // What became target or serving meanwhile stays, whatever the answer says.
                !**keep && unchanged && !first.contains(&Some(asked.generation))
            })
            .map(|(asked, _)| *asked)
            .collect()
    }

    /// Target and serving, each once.
    fn first(&self) -> [Option<Generation>; 2] {
        let target = self.known.map(|known| known.generation);
        let serving = self.known.and_then(|known| known.serving_generation.0);
        [target, serving.filter(|serving| Some(*serving) != target)]
    }

    /// Those that `wanted` admits, each once, beginning behind `last`.
    fn in_turn(
        &self,
        last: Option<Generation>,
        wanted: impl Fn(&Local) -> bool,
    ) -> impl Iterator<Item = Local> {
        let behind = |l: &&Local| last.is_none_or(|last| l.generation > last);
        let (behind, before): (Vec<_>, Vec<_>) = self.local.values().filter(|l| wanted(l)).partition(behind);
        behind.into_iter().chain(before).copied()
    }
}
