//! Readiness of a generation, in memory (node.md section 5, last table). Pure.

use oac_model::DiagnosticCode;

use crate::recovery::Standing as Loaded;

/// What a health report says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    Preparing,
    Failed(DiagnosticCode),
    Ready,
}

/// How an attempt to prepare or repair ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// Exit status 0.
    Completed,
    /// Exit status 65.
    TransferFailed,
    /// Exit status 75, or a lock that the node did not get.
    Busy,
    /// The target changed, or the node stops.
    Canceled,
    /// Any other status, or the deadline.
    Failed,
}

impl Ended {
    /// Of a child that ended by itself.
    pub fn of_status(status: i32) -> Self {
        match status {
            0 => Self::Completed,
            65 => Self::TransferFailed,
            75 => Self::Busy,
            _ => Self::Failed,
        }
    }
}

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Probed {
    Ready,
    Failed(DiagnosticCode),
    Canceled,
}

/// Only [`Self::probed`] makes a generation ready: a file that is there proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Readiness {
    standing: Standing,
    repair: bool,
    /// An attempt completed and no probe has judged it yet.
    awaiting: bool,
    /// Before the attempt that runs.
    before: Option<Standing>,
    published: bool,
}

impl Readiness {
    /// A generation was loaded for the first time; `None` for one that is going, which has no readiness.
    pub fn loaded(loaded: &Loaded) -> Option<Self> {
        let (standing, repair, published) = match loaded {
            Loaded::Stalled => return None,
            Loaded::Published => (Standing::Preparing, false, true),
            Loaded::Unfinished => (Standing::Failed(DiagnosticCode::ProviderUnavailable), true, false),
            Loaded::Incomplete(_) => (Standing::Failed(DiagnosticCode::ArtifactsUnavailable), true, true),
        };
        Some(Self {
            standing,
            repair,
            awaiting: false,
            before: None,
            published,
        })
    }

    /// A target that is not on this host yet: it has to be prepared.
    pub fn wanted() -> Self {
        Self {
            standing: Standing::Preparing,
            repair: true,
            awaiting: false,
            before: None,
            published: false,
        }
    }

    pub fn standing(self) -> Standing {
        self.standing
    }

    /// It is to be prepared or repaired.
    pub fn wants_attempt(self) -> bool {
        self.repair && !self.awaiting
    }

    /// A provider of it may be probed: it is published.
    pub fn may_be_probed(self) -> bool {
        self.published
    }

    /// An attempt starts.
    #[must_use]
    pub fn attempted(self) -> Self {
        Self {
            standing: Standing::Preparing,
            before: Some(self.standing),
            ..self
        }
    }

    /// An attempt ended, and the generation was loaded again.
    #[must_use]
    pub fn ended(self, how: Ended, loaded: &Loaded) -> Option<Self> {
        let fresh = Self::loaded(loaded)?;
        let published = fresh.published;
        let failed = |code| Self {
            standing: Standing::Failed(code),
            repair: true,
            awaiting: false,
            before: None,
            published,
        };
        Some(match how {
            Ended::Completed if published => Self {
                standing: Standing::Preparing,
                repair: false,
                awaiting: true,
                before: None,
                published,
            },
            // Status 0 without a published configuration is a defect of the child.
            Ended::Completed | Ended::Failed => failed(DiagnosticCode::ProviderUnavailable),
            Ended::TransferFailed => failed(DiagnosticCode::RuntimeDownloadFailed),
            Ended::Busy | Ended::Canceled => Self {
                standing: self.before.unwrap_or(self.standing),
                before: None,
                published,
                ..self
            },
        })
    }

    /// A probe ended. While nothing is published there is none.
    #[must_use]
    pub fn probed(self, how: Probed) -> Self {
        match how {
            _ if !self.published => self,
            Probed::Canceled => self,
            Probed::Ready => Self {
                standing: Standing::Ready,
                repair: false,
                awaiting: false,
                before: None,
                ..self
            },
            Probed::Failed(code) => Self {
                standing: Standing::Failed(code),
                repair: self.repair
                    || matches!(
                        code,
                        DiagnosticCode::RuntimeImageUnavailable | DiagnosticCode::ArtifactsUnavailable
                    ),
                awaiting: false,
                before: None,
                ..self
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: [DiagnosticCode; 3] = [
        DiagnosticCode::ProviderUnavailable,
        DiagnosticCode::ArtifactsUnavailable,
        DiagnosticCode::RuntimeImageUnavailable,
    ];

    fn loads() -> [Loaded; 4] {
        [
            Loaded::Published,
            Loaded::Unfinished,
            Loaded::Incomplete("/missing".into()),
            Loaded::Stalled,
        ]
    }

    /// Every readiness that events can lead to.
    fn reachable() -> Vec<Readiness> {
        let mut all: Vec<Readiness> = loads().iter().filter_map(Readiness::loaded).collect();
        all.push(Readiness::wanted());
        let mut at = 0;
        while at < all.len() {
            for next in successors(all[at]).into_iter().map(|(next, _)| next) {
                if !all.contains(&next) {
                    all.push(next);
                }
            }
            at += 1;
        }
        all
    }

    const ENDS: [Ended; 5] = [
        Ended::Completed,
        Ended::TransferFailed,
        Ended::Busy,
        Ended::Canceled,
        Ended::Failed,
    ];

    /// The next readiness, and whether a successful probe led there.
    fn successors(from: Readiness) -> Vec<(Readiness, bool)> {
        let mut next = vec![(from.attempted(), false)];
        let failed = CODES.map(Probed::Failed);
        for how in [Probed::Ready, Probed::Canceled].into_iter().chain(failed) {
            next.push((from.probed(how), how == Probed::Ready));
        }
        for how in ENDS {
            next.extend(
                loads()
                    .iter()
                    .filter_map(|loaded| from.attempted().ended(how, loaded))
                    .map(|n| (n, false)),
            );
        }
        next
    }

    #[test]
    fn only_a_successful_probe_of_a_published_generation_makes_it_ready() {
        let all = reachable();
        assert!(all.len() > 10, "{}", all.len());
        assert!(
            loads()
                .iter()
                .filter_map(Readiness::loaded)
                .all(|r| r.standing() != Standing::Ready)
        );
        for from in all {
            for (to, by_probe) in successors(from) {
                if to.standing() == Standing::Ready && from.standing() != Standing::Ready {
                    // An attempt that was canceled gives back what a probe established before it.
                    assert!(
                        by_probe || from.before == Some(Standing::Ready),
                        "{from:?} {to:?}"
                    );
                    assert!(from.may_be_probed());
                }
            }
        }
    }

    #[test]
    fn the_table_row_by_row() {
        use DiagnosticCode::*;
        let published = Readiness::loaded(&Loaded::Published).unwrap();
        assert_eq!(
            (published.standing(), published.wants_attempt()),
            (Standing::Preparing, false)
        );
        let unfinished = Readiness::loaded(&Loaded::Unfinished).unwrap();
        assert_eq!(unfinished.standing(), Standing::Failed(ProviderUnavailable));
        assert!(unfinished.wants_attempt() && !unfinished.may_be_probed());
        let incomplete = Readiness::loaded(&Loaded::Incomplete("/f".into())).unwrap();
        assert_eq!(incomplete.standing(), Standing::Failed(ArtifactsUnavailable));
        assert!(incomplete.wants_attempt());
        assert_eq!(Readiness::loaded(&Loaded::Stalled), None);

        let ready = incomplete.probed(Probed::Ready);
        assert_eq!(
            (ready.standing(), ready.wants_attempt()),
            (Standing::Ready, false)
        );
        for code in CODES {
            let failed = ready.probed(Probed::Failed(code));
            assert_eq!(failed.standing(), Standing::Failed(code));
            assert_eq!(failed.wants_attempt(), code != ProviderUnavailable);
        }
        assert_eq!(ready.probed(Probed::Canceled), ready);

        let running = incomplete.attempted();
        assert_eq!(running.standing(), Standing::Preparing);
        let end = |how| running.ended(how, &Loaded::Published).unwrap();
        let awaiting = end(Ended::Completed);
        assert_eq!(
            (awaiting.standing(), awaiting.wants_attempt()),
            (Standing::Preparing, false)
        );
        assert_eq!(
            end(Ended::TransferFailed).standing(),
            Standing::Failed(RuntimeDownloadFailed)
        );
        assert_eq!(
            end(Ended::Failed).standing(),
            Standing::Failed(ProviderUnavailable)
        );
        for how in [Ended::Busy, Ended::Canceled] {
            assert_eq!(end(how).standing(), incomplete.standing());
            assert!(end(how).wants_attempt());
        }
        assert_eq!(
            [0, 65, 75, 1, 2].map(Ended::of_status),
            [
                Ended::Completed,
                Ended::TransferFailed,
                Ended::Busy,
                Ended::Failed,
                Ended::Failed,
            ]
        );
    }
}
