//! States and kinds that exist in tables alone or are shared by several engineers' crates; each is stored as its text.

use oac_model::states;

states! {
    /// Where a node's limits come from (core.md section 2).
    NodeLimits {
        RecommendedPending = "recommended_pending",
        Recommended = "recommended",
        Custom = "custom",
    }
}

states! {
    /// What an enrollment token approves.
    TokenLimits {
        Recommended = "recommended",
        Custom = "custom",
    }
}

states! {
    /// What became of the latest observation of an allocation.
    ObservationStatus {
        Observed = "observed",
        Unavailable = "observation_unavailable",
        RuntimeNotRunning = "runtime_not_running",
        Unsupported = "unsupported",
        Ownership = "ownership",
    }
}

states! {
    /// How a reset treats busy Sessions (core.md section 14).
    ResetClear {
        Auto = "auto",
        Force = "force",
    }
}

states! {
    /// What a drain does with idle sandboxes before its deadline (core.md section 15).
    DrainIdle {
        Suspend = "suspend",
        Wait = "wait",
    }
}

states! {
    /// What a drain does with active allocations at its deadline.
    DrainThen {
        Archive = "archive",
        Terminate = "terminate",
    }
}

states! {
    /// What a drain does with retained checkpoints.
    DrainRetained {
        Keep = "keep",
        Release = "release",
    }
}

states! {
    /// A node's report about one generation.
    GenerationState {
        Preparing = "preparing",
        Ready = "ready",
        Failed = "failed",
    }
}

states! {
    /// Whether an allocation's runtime has linked at least once.
    Initialization {
        Pending = "pending",
        Complete = "complete",
    }
}

states! {
    /// Why an allocation entered cleanup; kept with its row.
    CleanupCause {
        /// Its Session was archived.
        Archive = "archive",
        Reset = "reset",
        /// An operator gave it up.
        Discard = "discard",
        Drain = "drain",
        /// Its checkpoint's retention ended.
        RetentionEnd = "retention_end",
        ComputeLost = "compute_lost",
        /// The create settled without a running sandbox.
        CreateFailed = "create_failed",
        /// The create's outcome stayed unknown for too long.
        CreateUnresolved = "create_unresolved",
        /// The sandbox ran, but its runtime never linked.
        NeverLinked = "never_linked",
    }
}

states! {
    /// What an operator is shown about an allocation (core.md section 10); none is stored as null.
    AllocationDiagnostic {
        NodeUnavailable = "node_unavailable",
        ResourceMissing = "resource_missing",
        ComputeUnconfirmed = "compute_unconfirmed",
        OwnershipMismatch = "ownership_mismatch",
        ProviderUnavailable = "provider_unavailable",
    }
}

states! {
    /// The mutations Core records before it sends them (core.md section 11).
    OperationKind {
        Create = "create",
        Kill = "kill",
        KillCompute = "kill_compute",
        ResumeCompute = "resume_compute",
        Suspend = "suspend",
        Resume = "resume",
        DeleteRetained = "delete_retained",
        /// The wake command.
        CommandCompute = "command_compute",
    }
}

states! {
    /// How far an operation came.
    OperationState {
        /// Stored; nothing was sent.
        Intent = "intent",
        /// The frame left, or may have.
        Sent = "sent",
        /// A usable answer is stored.
        Settled = "settled",
        /// Dropped before it was sent.
        Rejected = "rejected",
        /// Sent, without a usable answer: only observed from now on.
        Unconfirmed = "unconfirmed",
    }
}

states! {
    /// How far a Turn's dispatch came (sessions.md section 7).
    Dispatch {
        None = "none",
        Intent = "intent",
        Sent = "sent",
        Confirmed = "confirmed",
    }
}

states! {
    OutputStream {
        Stdout = "stdout",
        Stderr = "stderr",
    }
}

states! {
    /// What a Session's sandbox is reached for (sessions.md section 4).
    FileOperationKind {
        Read = "read",
        /// Counts as busy for a reset (core.md section 14).
        Write = "write",
        Port = "port",
    }
}

states! {
    /// An ended one has no row.
    FileOperationState {
        Open = "open",
    }
}

states! {
    /// The numbered facts about a Session (sessions.md section 3).
    EventKind {
        SessionCreated = "session.created",
        SessionArchived = "session.archived",
        SessionFailed = "session.failed",
        TurnQueued = "turn.queued",
        TurnStarted = "turn.started",
        TurnEnded = "turn.ended",
        SandboxChanged = "sandbox.changed",
        EnvironmentReset = "environment.reset",
    }
}
