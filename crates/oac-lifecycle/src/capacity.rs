//! How many sandboxes a node may hold, and when an operator may take a node away (core.md sections 8 and 10).

use oac_model::ProviderKind;

/// A node's limits: 1 ≤ active ≤ retained ≤ 1,000,000, for Docker both equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sandboxes at once.
    pub active: u32,
    /// Running and suspended ones together.
    pub retained: u32,
}

/// The highest limit.
pub const HIGHEST: i64 = 1_000_000;

impl Limits {
    /// The limits an operator asks for; `None` when they are none. Before a backend is selected both rules but Docker's
    /// hold.
    pub fn custom(provider: Option<ProviderKind>, active: i64, retained: i64) -> Option<Self> {
        let usable = 1 <= active
            && active <= retained
            && retained <= HIGHEST
            && (provider != Some(ProviderKind::Docker) || active == retained);
        // Both are in 1..=HIGHEST.
        usable.then_some(Self {
            active: active as u32,
            retained: retained as u32,
        })
    }
}

/// What a node holds, as the transaction that would retire it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Unreleased placements.
    pub retained: u64,
    pub cleanup_pending: u64,
    /// Computes that name the node and are not known to have ended.
    pub open_computes: u64,
}

impl Held {
    /// Whether the node may be retired: nothing is held there, whether it is online or not (INV-C29).
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_1_to_a_million_active_at_most_retained_and_equal_for_docker() {
        let limits = |active, retained| Some(Limits { active, retained });
        for provider in [None, Some(ProviderKind::Microsandbox)] {
            assert_eq!(Limits::custom(provider, 1, 1), limits(1, 1));
            assert_eq!(Limits::custom(provider, 3, 7), limits(3, 7));
            assert_eq!(Limits::custom(provider, 1, 1_000_000), limits(1, 1_000_000));
            for (active, retained) in [
                (0, 1),
                (0, 0),
                (-1, 1),
                (2, 1),
                (1, 1_000_001),
                (i64::MAX, i64::MAX),
            ] {
                assert_eq!(Limits::custom(provider, active, retained), None);
            }
        }
        let docker = Some(ProviderKind::Docker);
        assert_eq!(Limits::custom(docker, 4, 4), limits(4, 4));
        assert_eq!(Limits::custom(docker, 4, 5), None);
    }

    // inv: INV-C29
    #[test]
    fn a_node_that_holds_anything_is_not_taken_away() {
        let nothing = Held::default();
        assert!(nothing.is_nothing());
        assert!(
            !Held {
                retained: 1,
                ..nothing
            }
            .is_nothing()
        );
        assert!(
            !Held {
                cleanup_pending: 1,
                ..nothing
            }
            .is_nothing()
        );
        assert!(
            !Held {
                open_computes: 1,
                ..nothing
            }
            .is_nothing()
        );
    }
}
