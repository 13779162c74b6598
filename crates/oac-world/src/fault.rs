//! What goes wrong, and what people do meanwhile: a schedule drawn from the seed before the world begins, so that a
//! failure can be looked for again with fewer entries.

use oac_lifecycle::drain::{SHORTEST_SECONDS as DRAIN_SECONDS, Then};
use oac_lifecycle::reset::SHORTEST_SECONDS as RESET_SECONDS;
use oac_peer::Random;

use crate::agenda::Millis;

/// When disorder ends and everything must come to rest. Some seeds last long enough for the five-minute limits.
pub(crate) fn calm_at(seed: u64) -> Millis {
    if is_long(seed) { 1_200_000 } else { 150_000 }
}

/// Whether the sandboxes of a seed's world can be suspended.
pub(crate) fn suspends(seed: u64) -> bool {
    Random::new(seed ^ 0x0005_0590_e4d0_0001).one_in(4)
}

fn is_long(seed: u64) -> bool {
    seed % 12 == 7
}

/// Hosts, Cores and Sessions are numbers; the world takes them modulo what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process is gone between any two steps; it starts again after `down`.
    CoreCrash {
        core: u64,
        down: Millis,
    },
    /// It does nothing for a while and goes on as if nothing had been.
    CoreStall {
        core: u64,
        millis: Millis,
    },
    /// SIGTERM: connections are closed, the lease is given up.
    CoreStop {
        core: u64,
    },
    /// It ends, or does nothing for a while, at the moment at which a step of its worker commits.
    AtCommit {
        core: u64,
        stall: Option<Millis>,
    },
    /// It ends, or loses the database or its lease, while the next mutation it sends is under way.
    InCall {
        core: u64,
        loss: Loss,
    },
    /// A wall clock is set.
    ClockJumps {
        whose: Clock,
        by: i64,
    },
    /// The lease alone is not renewed: its row is locked by somebody.
    RenewalsFail {
        core: u64,
        millis: Millis,
    },
    /// It does not reach the database.
    DatabaseCut {
        core: u64,
        millis: Millis,
    },
    /// Transactions of everybody fail before they commit.
    DatabaseFails {
        millis: Millis,
    },
    /// Transactions commit, and whoever sent them learns only that something failed.
    CommitReplyLost {
        millis: Millis,
    },
    /// Transactions take up to some seconds.
    DatabaseSlow {
        millis: Millis,
    },
    NodeCrash {
        host: u64,
        down: Millis,
    },
    /// It ends while the engine makes something for it.
    CrashInCall {
        host: u64,
        down: Millis,
    },
    /// SIGTERM.
    NodeStop {
        host: u64,
    },
    NodeStall {
        host: u64,
        millis: Millis,
    },
    /// Kernel and containers end; no socket is closed.
    Reboot {
        host: u64,
        down: Millis,
    },
    /// Both ends see the connection end.
    Cut {
        host: u64,
    },
    /// The same while no Core reaches the database: that the node is gone is stored late.
    CutUnrecorded {
        host: u64,
        millis: Millis,
    },
    /// Neither end sees anything.
    SilentCut {
        host: u64,
    },
    /// One direction is dropped without a word.
    HalfOpen {
        host: u64,
        to_core: bool,
    },
    /// What is sent takes up to some seconds.
    SlowPath {
        host: u64,
        millis: Millis,
    },
    DialsRefused {
        host: u64,
        millis: Millis,
    },
    /// The next dial reaches Core twice.
    DuplicateDial {
        host: u64,
    },
    /// A proxy answers the next dial 401.
    Proxy401 {
        host: u64,
    },
    EngineDown {
        host: u64,
        millis: Millis,
    },
    EngineSlow {
        host: u64,
        millis: Millis,
    },
    /// The engine refuses the next change.
    EngineRefuses {
        host: u64,
    },
    /// The next change takes effect, and its answer never comes.
    EngineAnswerLost {
        host: u64,
    },
    ContainerRemoved {
        host: u64,
    },
    ContainerEnds {
        host: u64,
    },
    /// What runs in the host's sandboxes does not reach Core, perhaps for as long as Core waits for its first link.
    RuntimesCut {
        host: u64,
        millis: Millis,
    },
    /// Somebody removes whatever there is of a sandbox, its volumes too.
    SandboxRemoved {
        host: u64,
    },
    /// A checkpoint that nobody works with goes bad on the store.
    CheckpointSpoils {
        which: u64,
    },
    /// Nothing can be written: no record of the node, no volume and no container.
    DiskFull {
        host: u64,
        millis: Millis,
    },
    /// The next frame of the kind is changed on its way to the node or to Core.
    Tamper {
        host: u64,
        with: Tamper,
    },
    /// Many calls at once to one node.
    Burst {
        host: u64,
        calls: u64,
        patience: Millis,
    },
    NewSession,
    Input {
        session: u64,
    },
    Archive {
        session: u64,
    },
    Cordon {
        host: u64,
    },
    Uncordon {
        host: u64,
    },
    Label {
        host: u64,
        labelled: bool,
    },
    Drain {
        host: u64,
        lasts: Millis,
        then: Then,
        release: bool,
    },
    CancelDrain {
        host: u64,
    },
    /// How many sandboxes a node may hold; some of it is refused.
    Limit {
        host: u64,
        active: i64,
    },
    /// The deployment is given back, by a deadline or at once.
    Reset {
        lasts: Option<Millis>,
    },
    CancelReset,
    /// A backend is selected again.
    Select,
    /// A host that was given back is added as a new node.
    Enroll {
        host: u64,
    },
    NewTarget,
    /// Several in a row, so that a report cannot name all there are.
    NewTargets {
        count: u64,
    },
    /// An operator accepts the loss of a sandbox that is shown as lost.
    Discard {
        which: u64,
    },
    /// An operator removes a node that nothing is left on.
    Retire {
        host: u64,
    },
}

/// What a Core loses while a call is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its life; another one, or it itself after so long, takes over.
    Life(Millis),
    /// It does not reach the database.
    Database(Millis),
    /// Its lease is not renewed, and its wall clock is set back.
    Lease(Millis),
}

/// A wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Database,
    Core(u64),
    Host(u64),
}

/// How a dishonest peer changes a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tamper {
    /// A request's sequence is one too high.
    SkippedSequence,
    /// A request names an operation that does not exist.
    UnknownOperation,
    /// A retention_ack differs from its request in one member.
    AckId,
    AckSequence,
    AckGeneration,
    AckDigest,
    AckDropped,
    /// A welcome of an owner before the one the node has stored.
    LowerEpoch,
    /// A failed response carries an info that settles nothing.
    FailureWithInfo,
    /// A heartbeat omits every generation: honest, and it means nothing.
    OmitGenerations,
}

const TAMPERS: [Tamper; 10] = [
    Tamper::SkippedSequence,
    Tamper::UnknownOperation,
    Tamper::AckId,
    Tamper::AckSequence,
    Tamper::AckGeneration,
    Tamper::AckDigest,
    Tamper::AckDropped,
    Tamper::LowerEpoch,
    Tamper::FailureWithInfo,
    Tamper::OmitGenerations,
];

/// One entry of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    pub at: Millis,
    pub fault: Fault,
}

/// The schedule of a seed, in order of time.
pub fn schedule(seed: u64) -> Vec<Planned> {
    let mut random = Random::new(seed ^ 0x5eed_0fa0_1755_eed5);
    let count = 6 + random.below(24);
    let mut planned: Vec<_> = (0..count)
        .map(|_| Planned {
            at: 1_000 + random.below(calm_at(seed) - 5_000),
            fault: fault(&mut random, is_long(seed)),
        })
        .collect();
    if is_long(seed) && random.one_in(2) {
        // A create whose node is away for longer than any limit.
        planned.push(Planned {
            at: random.below(5_000),
            fault: Fault::CrashInCall {
                host: random.below(64),
                down: 330_000 + random.below(300_000),
            },
        });
    }
    // Drawn apart, so that what is added here leaves the rest of a seed as it was.
    let mut random = Random::new(seed ^ 0x010f_f5e7_0c10_cc55);
    for _ in 0..random.below(8) {
        planned.push(Planned {
            at: 1_000 + random.below(calm_at(seed) - 5_000),
            fault: subtler(&mut random),
        });
    }
    let mut random = Random::new(seed ^ 0x0be2_a702_5000_0015);
    for _ in 0..random.below(8) {
        planned.push(Planned {
            at: 1_000 + random.below(calm_at(seed) - 5_000),
            fault: operator(&mut random),
        });
    }
    if random.one_in(8) {
        // At any time: one that is completed leaves a world in which little happens.
        let at = 1_000 + random.below(calm_at(seed) - 5_000);
        let lasts = random
            .one_in(2)
            .then(|| RESET_SECONDS as Millis * 1_000 + random.below(60_000));
        planned.push(Planned {
            at,
            fault: Fault::Reset { lasts },
        });
        if random.one_in(2) {
            planned.push(Planned {
                at: at + random.below(30_000),
                fault: Fault::CancelReset,
            });
        }
        planned.push(Planned {
            at: at + random.below(60_000),
            fault: Fault::Select,
        });
        for host in 0..6 {
            planned.push(Planned {
                at: at + 20_000 + random.below(60_000),
                fault: Fault::Enroll { host: host % 3 },
            });
        }
        for _ in 0..random.below(4) {
            planned.push(Planned {
                at: at + 30_000 + random.below(60_000),
                fault: Fault::NewSession,
            });
        }
    }
    let mut random = Random::new(seed ^ 0x7037_6570_0000_0043);
    if random.one_in(4) {
        late_call(&mut random, &mut planned);
    }
    if suspends(seed) {
        suspension(seed, &mut planned);
    }
    let mut random = Random::new(seed ^ 0x001a_be15_0000_0007);
    for _ in 0..random.below(4) {
        planned.push(Planned {
            at: 1_000 + random.below(calm_at(seed) - 5_000),
            fault: Fault::Label {
                host: random.below(64),
                labelled: random.one_in(2),
            },
        });
    }
    for _ in 0..random.below(6) {
        planned.push(Planned {
            at: 1_000 + random.below(calm_at(seed) - 5_000),
            fault: Fault::Discard {
                which: random.below(64),
            },
        });
    }
    planned.sort_by_key(|planned| planned.at);
    planned
}

/// A create whose node ends with an engine call under way that comes late, and whose Session is archived before it does.
fn late_call(random: &mut Random, planned: &mut Vec<Planned>) {
    let host = random.below(64);
    let mut at = |at, fault| planned.push(Planned { at, fault });
    at(1, Fault::EngineSlow { host, millis: 6_000 });
    at(2, Fault::CrashInCall { host, down: 300 });
    for session in 0..3 {
        let when = 5_000 + random.below(5_000);
        at(when, Fault::Archive { session });
    }
}

/// Sessions that are wanted again and again, and checkpoints that go bad.
fn suspension(seed: u64, planned: &mut Vec<Planned>) {
    let mut random = Random::new(seed ^ 0x5059_e4d5_0000_0012);
    let lasts = calm_at(seed) - 5_000;
    for _ in 0..6 + random.below(14) {
        planned.push(Planned {
            at: 5_000 + random.below(lasts),
            fault: Fault::Input {
                session: random.below(64),
            },
        });
    }
    // Longer than a wake may take.
    for host in 0..if random.one_in(3) { 3 } else { 0 } {
        planned.push(Planned {
            at: 5_000 + random.below(lasts),
            fault: Fault::RuntimesCut {
                host,
                millis: 700_000 + random.below(200_000),
            },
        });
    }
    for _ in 0..random.below(3) {
        planned.push(Planned {
            at: 5_000 + random.below(lasts),
            fault: Fault::CheckpointSpoils {
                which: random.below(64),
            },
        });
    }
}

/// What operators do beside new targets and removals.
fn operator(random: &mut Random) -> Fault {
    let host = random.below(64);
    match random.below(14) {
        12 | 13 => Fault::Enroll { host },
        0 | 1 => Fault::Cordon { host },
        2..=4 => Fault::Uncordon { host },
        5..=7 => Fault::Drain {
            host,
            lasts: DRAIN_SECONDS as Millis * 1_000 + random.below(60_000),
            then: match random.one_in(3) {
                true => Then::Archive,
                false => Then::Terminate,
            },
            release: random.one_in(2),
        },
        8 | 9 => Fault::CancelDrain { host },
        _ => Fault::Limit {
            host,
            active: random.below(5) as i64,
        },
    }
}

/// What strikes at one moment of a call, or is noticed by nobody.
fn subtler(random: &mut Random) -> Fault {
    let (host, core) = (random.below(64), random.below(64));
    let millis = match random.below(2) {
        0 => random.below(12_000),
        _ => random.below(60_000),
    };
    match random.below(14) {
        13 => Fault::RuntimesCut {
            host,
            millis: 300_000 + 10 * millis,
        },
        0..=2 => Fault::InCall {
            core,
            loss: match random.below(3) {
                0 => Loss::Life(millis),
                1 => Loss::Database(8_000 + millis),
                _ => Loss::Lease(8_000 + millis),
            },
        },
        3..=6 => Fault::ClockJumps {
            whose: match random.below(4) {
                0 => Clock::Host(host),
                1 => Clock::Database,
                _ => Clock::Core(core),
            },
            by: match random.below(3) {
                0 => -1 - millis as i64,
                1 => 1 + millis as i64,
                _ => random.below(1_200_000) as i64 - 600_000,
            },
        },
        7 | 8 => Fault::SandboxRemoved { host },
        // For longer than a hub keeps an identity for a removal, and shorter than a lease.
        9 | 10 => Fault::CutUnrecorded {
            host,
            millis: 5_000 + random.below(4_000),
        },
        _ => Fault::DiskFull { host, millis },
    }
}

fn fault(random: &mut Random, long: bool) -> Fault {
    let host = random.below(64);
    let core = random.below(64);
    let session = random.below(64);
    // Short ones slip between two steps, long ones outlast leases and silence.
    let millis = match random.below(3) {
        0 => random.below(2_000),
        1 => random.below(12_000),
        _ if long => random.below(600_000),
        _ => random.below(60_000),
    };
    match random.below(54) {
        0 | 1 => Fault::CoreCrash { core, down: millis },
        2..=4 => Fault::CoreStall { core, millis },
        5 => Fault::CoreStop { core },
        6 => Fault::DatabaseCut { core, millis },
        7 => Fault::DatabaseFails { millis: millis / 4 },
        8 => Fault::CommitReplyLost { millis: millis / 4 },
        9 => Fault::DatabaseSlow { millis },
        10 | 11 => Fault::NodeCrash { host, down: millis },
        12 => Fault::NodeStop { host },
        13 => Fault::NodeStall { host, millis },
        14 => Fault::Reboot { host, down: millis },
        15 | 16 => Fault::Cut { host },
        17 => Fault::SilentCut { host },
        18 | 19 => Fault::HalfOpen {
            host,
            to_core: random.one_in(2),
        },
        20 => Fault::SlowPath { host, millis },
        21 => Fault::DialsRefused { host, millis },
        22 => Fault::DuplicateDial { host },
        23 => Fault::Proxy401 { host },
        24 => Fault::EngineDown { host, millis },
        25 => Fault::EngineSlow { host, millis },
        26 => Fault::EngineRefuses { host },
        27 => Fault::EngineAnswerLost { host },
        28 => Fault::ContainerRemoved { host },
        29 => Fault::ContainerEnds { host },
        30 => Fault::DiskFull { host, millis },
        31 | 32 => Fault::Tamper {
            host,
            with: TAMPERS[random.below(TAMPERS.len() as u64) as usize],
        },
        33 => Fault::Burst {
            host,
            calls: 1 + random.below(70),
            patience: 1 + millis,
        },
        34..=36 => Fault::NewSession,
        37 | 38 => Fault::Input { session },
        39 | 40 => Fault::Archive { session },
        41 | 42 => Fault::NewTarget,
        43 => Fault::Retire { host },
        44 | 45 => Fault::AtCommit { core, stall: None },
        46 | 47 => Fault::AtCommit {
            core,
            stall: Some(millis),
        },
        48 => Fault::RenewalsFail { core, millis },
        49 | 50 => Fault::CrashInCall { host, down: millis },
        51 => Fault::NewTargets {
            count: 2 + random.below(10),
        },
        _ => Fault::Burst {
            host,
            calls: 30 + random.below(40),
            patience: 1 + millis,
        },
    }
}
