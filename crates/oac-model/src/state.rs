//! The states that are stored and shown. Their transitions are decided in `oac-lifecycle` alone.

/// An enum whose variants are stored and shown as texts.
#[macro_export]
macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The state stored as `text`.
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

states! {
    /// core.md section 11, first half of the state/phase pair.
    AllocationState {
        Reserved = "reserved",
        Creating = "creating",
        Running = "running",
        CleanupPending = "cleanup_pending",
        Released = "released",
    }
}

states! {
    /// core.md section 11, second half. Docker and E2B stay `disabled`.
    ComputePhase {
        Disabled = "disabled",
        Running = "running",
        Quiescing = "quiescing",
        Suspending = "suspending",
        Suspended = "suspended",
        Restoring = "restoring",
        Waking = "waking",
    }
}

states! {
    /// sessions.md section 2.
    SessionState {
        Idle = "idle",
        Busy = "busy",
        Failed = "failed",
        Archived = "archived",
    }
}

states! {
    /// sessions.md section 3. The last five are terminal and never change (INV-S3).
    TurnState {
        Queued = "queued",
        Waiting = "waiting",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        TimedOut = "timed_out",
        Canceled = "canceled",
        Interrupted = "interrupted",
    }
}

impl TurnState {
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Queued | Self::Waiting | Self::Running)
    }
}
