//! The two keys of a deletion: Core's grant and the node's own proof.
//!
//! Neither can be made out of anything but what it stands for. A [`Grant`] comes from a [`Connection`] that is open,
//! and is void once that connection is dropped. An [`Unneeded`] comes from the table of [`Generations`] that every use
//! of a generation passes through, at a moment when nobody uses it, and from that moment the table lets nobody use it
//! again. Only both together, with `install.lock` held, give an [`Order`], and only an order starts a collector. Each
//! is used up: one grant, one collection.
//!
//! ```compile_fail
//! let grant = oac_generations::Grant {};
//! ```
//! ```compile_fail
//! let proof = oac_generations::Unneeded {};
//! ```
//! ```compile_fail
//! fn one_key(grant: oac_generations::Grant, lock: &oac_generations::InstallLock) {
//!     let _ = oac_generations::Order::of(grant, lock);
//! }
//! ```
//! ```compile_fail
//! fn twice(grant: oac_generations::Grant) -> [oac_generations::Grant; 2] {
//!     [grant.clone(), grant]
//! }
//! ```
//! With both it compiles:
//! ```
//! use oac_generations::{Grant, InstallLock, Order, Unneeded, Void};
//! fn both(grant: Grant, proof: Unneeded, lock: &InstallLock) -> Result<Order, Void> {
//!     Order::of(grant, proof, lock)
//! }
//! ```

use std::{
    collections::BTreeMap,
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    path::PathBuf,
    process::Command,
    sync::{Arc, Weak},
};

use oac_model::{ConnectionId, Digest, Generation};
use oac_records::{Hold, Lock, LockError};

use crate::{
    inherit::{self, Number},
    layout,
    records::Identity,
    state::State,
    store::Store,
};

/// The current connection to Core. Dropping it voids every grant that came over it.
#[derive(Debug)]
pub struct Connection {
    id: ConnectionId,
    open: Arc<()>,
}

impl Connection {
    pub fn new(id: ConnectionId) -> Self {
        Self {
            id,
            open: Arc::new(()),
        }
    }

    /// Core's `keep: false` in the answer to the pending request of connection `from`; `None` where that is another
    /// connection than this one.
    pub fn granted(&self, from: ConnectionId, generation: Generation, digest: Digest) -> Option<Grant> {
        (from == self.id).then(|| Grant {
            generation,
            digest,
            connection: Arc::downgrade(&self.open),
        })
    }
}

/// Core's key: it keeps the generation no longer. Necessary, never sufficient.
#[derive(Debug)]
pub struct Grant {
    generation: Generation,
    digest: Digest,
    connection: Weak<()>,
}

impl Grant {
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its connection is still the current one.
    pub fn is_current(&self) -> bool {
        self.connection.strong_count() > 0
    }
}

/// One use of a generation: a queued or running operation, a probe in flight, a helper until it was waited for, an
/// attempt. Whoever holds it keeps the generation.
#[derive(Debug, Clone)]
#[must_use = "dropped, it keeps nothing"]
pub struct Use(#[allow(dead_code, reason = "being held is all it does")] Arc<()>);

/// Why a generation cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the generation is not on this host")]
    Unknown,
    #[error("the generation is being removed")]
    Going,
    #[error("the generation is not published yet")]
    Unpublished,
}

/// Why a generation is kept in spite of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Needed {
    #[error("the connection that granted it has ended")]
    NotCurrent,
    #[error("the grant names a generation or digest that is not on this host")]
    NotHere,
    #[error("it is the target")]
    Target,
    #[error("it is the serving generation")]
    Serving,
    #[error("no deployment was delivered yet")]
    NoDeployment,
    #[error("an operation, a probe, a helper or an attempt uses it")]
    InUse,
    #[error("a collection of it runs")]
    Running,
}

/// What Core's latest delivery says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deployment {
    pub target: Generation,
    pub serving: Option<Generation>,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    state: State,
    uses: Arc<()>,
    collecting: bool,
}

/// Every generation on this host, and who uses it. The one table of a node program.
#[derive(Debug, Default)]
pub struct Generations {
    entries: BTreeMap<Generation, Entry>,
    deployment: Option<Deployment>,
}

/// The node's key: nothing on this host uses the generation, and nothing will.
#[derive(Debug)]
pub struct Unneeded {
    identity: Identity,
}

impl Generations {
    /// A generation's records were loaded: at start, and after every end of a child. What is going stays so.
    pub fn loaded(&mut self, identity: Identity, state: State) {
        let entry = self.entries.entry(identity.generation).or_insert_with(|| Entry {
            identity,
            state,
            uses: Arc::new(()),
            collecting: false,
        });
        entry.state = if entry.state.is_going() {
            entry.state.max(state)
        } else {
            state
        };
        entry.collecting = false;
        if entry.state == State::Dropped {
            self.entries.remove(&identity.generation);
        }
    }

    /// A delivery of Core's was adopted.
    pub fn deployed(&mut self, deployment: Deployment) {
        self.deployment = Some(deployment);
    }

    pub fn state(&self, generation: Generation) -> Option<State> {
        self.entries.get(&generation).map(|entry| entry.state)
    }

    /// A use by an operation, a probe or a helper, of a published generation.
    pub fn acquire(&mut self, generation: Generation) -> Result<Use, Refusal> {
        let entry = self.entries.get(&generation).ok_or(Refusal::Unknown)?;
        match entry.state {
            state if state.is_going() => Err(Refusal::Going),
            state if state.is_published() => Ok(Use(entry.uses.clone())),
            _ => Err(Refusal::Unpublished),
        }
    }

    /// A use by an attempt to prepare or repair.
    pub fn attempt(&mut self, identity: Identity) -> Result<Use, Refusal> {
        let state = self.state(identity.generation).unwrap_or(State::Unknown);
        if state.is_going() {
            return Err(Refusal::Going);
        }
        self.loaded(identity, state);
        let entry = self.entries.get(&identity.generation).ok_or(Refusal::Unknown)?;
        Ok(Use(entry.uses.clone()))
    }

    /// Somebody uses it.
    pub fn is_used(&self, generation: Generation) -> bool {
        self.entries
            .get(&generation)
            .is_some_and(|entry| Arc::strong_count(&entry.uses) > 1)
    }

    /// The generations that Core is asked about: something of them is on the host, and nobody collects them now.
    pub fn references(&self) -> Vec<Identity> {
        let needless = |generation: &Generation| {
            self.deployment
                .is_some_and(|d| d.target == *generation || d.serving == Some(*generation))
        };
        self.entries
            .iter()
            .filter(|(generation, entry)| entry.state.is_held() && !entry.collecting && !needless(generation))
            .map(|(_, entry)| entry.identity)
            .collect()
    }

    /// The recheck of a granted generation (node.md section 8). Where it passes, the generation is unusable from now
    /// on, whatever becomes of its collection.
    pub fn prove(&mut self, grant: &Grant) -> Result<Unneeded, Needed> {
        if !grant.is_current() {
            return Err(Needed::NotCurrent);
        }
        let deployment = self.deployment.ok_or(Needed::NoDeployment)?;
        let entry = self.entries.get_mut(&grant.generation).ok_or(Needed::NotHere)?;
        if entry.identity.specification_digest != grant.digest || !entry.state.is_held() {
            return Err(Needed::NotHere);
        }
        if deployment.target == grant.generation {
            return Err(Needed::Target);
        }
        if deployment.serving == Some(grant.generation) {
            return Err(Needed::Serving);
        }
        if entry.collecting {
            return Err(Needed::Running);
        }
        if Arc::strong_count(&entry.uses) > 1 {
            return Err(Needed::InUse);
        }
        entry.state = entry.state.max(State::Collecting);
        entry.collecting = true;
        Ok(Unneeded {
            identity: entry.identity,
        })
    }
}

/// `install.lock`: one installer, preparer or collector. The node takes it before it starts a child, which inherits it
/// and passes it to its native processes; the node closes its copy when it has waited for the child.
#[derive(Debug)]
pub struct InstallLock {
    lock: Lock,
    root: PathBuf,
}

impl InstallLock {
    fn of(store: &Store, lock: Lock) -> Self {
        Self {
            lock,
            root: store.root().path().to_owned(),
        }
    }

    /// Without waiting.
    pub fn take(store: &Store) -> Result<Self, LockError> {
        let lock = Lock::exclusive(store.root(), layout::INSTALL_LOCK)?;
        Ok(Self::of(store, lock))
    }

    /// Makes `command`, the node program, the preparer of a generation: a process group of its own that inherits the
    /// lock and ends with the node. `kept` is the attempt's use of the generation; it lasts until the child was
    /// waited for.
    pub fn send_preparer(&self, command: &mut Command, identity: Identity, _kept: &Use) -> io::Result<()> {
        self.send(command, "prepare", identity)
    }

    /// As [`Self::send_preparer`], the collector of the order's generation.
    pub fn send_collector(&self, command: &mut Command, order: &Order) -> io::Result<()> {
        self.send(command, "collect", order.identity)
    }

    fn send(&self, command: &mut Command, errand: &str, identity: Identity) -> io::Result<()> {
        let Identity {
            installation_id,
            generation,
            specification_digest,
        } = identity;
        command
            .args(["generation", errand, "--root"])
            .arg(&self.root)
            .args(["--installation-id", &installation_id.to_string()])
            .args(["--generation", &generation.to_string()])
            .args(["--specification-digest", &specification_digest.to_string()])
            .process_group(0);
        inherit::die_with_parent(command);
        inherit::hand_over(command, self.lock.as_fd(), Number::Three)
    }
}

/// `install.lock` as a child of the node has it. What makes a child a preparer or collector: nobody else can start one.
#[derive(Debug)]
pub struct InheritedLock(InstallLock);

#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    #[error(
        "no install.lock was handed over: this command is a child of `oac-node run` and is not started by hand"
    )]
    NotInherited(#[source] io::Error),
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl InheritedLock {
    /// Takes descriptor 3 and verifies that it is the lock, held.
    pub fn take(store: &Store) -> Result<Self, InheritError> {
        let fd = inherit::take(Number::Three).map_err(InheritError::NotInherited)?;
        let lock = Lock::inherited(store.root(), layout::INSTALL_LOCK, fd, Hold::Exclusive)?;
        Ok(Self(InstallLock::of(store, lock)))
    }

    /// Has `command`, a native process of this child, start with the lock as descriptor 3: should it outlive the
    /// child, whoever comes next waits for it. It ends with this child where the kernel sees to it.
    pub fn hand_over(&self, command: &mut Command) -> io::Result<()> {
        inherit::die_with_parent(command);
        inherit::hand_over(command, self.0.lock.as_fd(), Number::Three)
    }

    /// For the one process that is node and child at once, as in tests of the steps.
    #[cfg(feature = "steps")]
    pub fn within(lock: InstallLock) -> Self {
        Self(lock)
    }
}

/// The permission to collect one generation.
#[derive(Debug)]
pub struct Order {
    identity: Identity,
}

/// The keys do not fit: the connection ended, or they name different generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the grant is void, or of another generation than the proof")]
pub struct Void;

impl Order {
    /// Both keys, under the lock. The generation stays unusable where this fails; a fresh grant resumes it.
    pub fn of(grant: Grant, proof: Unneeded, _lock: &InstallLock) -> Result<Self, Void> {
        let fits = grant.generation == proof.identity.generation
            && grant.digest == proof.identity.specification_digest;
        if !fits || !grant.is_current() {
            return Err(Void);
        }
        Ok(Self {
            identity: proof.identity,
        })
    }

    /// In the collector: what the node that started it had both keys for. The inherited lock stands for them; the
    /// generation comes from the arguments.
    pub fn inherited(identity: Identity, _lock: &InheritedLock) -> Self {
        Self { identity }
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn g(n: i64) -> Generation {
        Generation::try_from(n).unwrap()
    }

    fn identity(n: i64) -> Identity {
        Identity {
            installation_id: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
            generation: g(n),
            specification_digest: Digest::of(n.to_string()),
        }
    }

    /// Generations 1 to 4: 1 target, 2 serving, 3 and 4 neither.
    fn table() -> Generations {
        let mut table = Generations::default();
        for n in 1..=4 {
            table.loaded(identity(n), State::Published);
        }
        table.deployed(Deployment {
            target: g(1),
            serving: Some(g(2)),
        });
        table
    }

    struct Link(ConnectionId, Connection);

    impl Link {
        fn new() -> Self {
            let id = ConnectionId::random();
            Self(id, Connection::new(id))
        }

        fn grant(&self, n: i64) -> Grant {
            self.1
                .granted(self.0, g(n), identity(n).specification_digest)
                .unwrap()
        }
    }

    // inv: INV-N16
    #[test]
    fn a_target_serving_referenced_preparing_or_helper_holding_generation_survives_any_grant() {
        let (mut table, link) = (table(), Link::new());
        let refused = |table: &mut Generations, n| table.prove(&link.grant(n)).map(|_| ()).unwrap_err();
        assert_eq!(refused(&mut table, 1), Needed::Target);
        assert_eq!(refused(&mut table, 2), Needed::Serving);
        for take in [
            (|t| t.acquire(g(3)).unwrap()) as fn(&mut Generations) -> Use,
            |t| t.attempt(identity(3)).unwrap(),
        ] {
            let used = take(&mut table);
            let again = used.clone();
            assert_eq!(refused(&mut table, 3), Needed::InUse);
            drop(used);
            assert_eq!(refused(&mut table, 3), Needed::InUse, "one of two was dropped");
            drop(again);
        }
        assert_eq!(refused(&mut table, 5), Needed::NotHere);
        let other = link.1.granted(link.0, g(3), Digest::of("other")).unwrap();
        assert_eq!(
            table.prove(&other).map(|_| ()),
            Err(Needed::NotHere),
            "another digest"
        );
        assert!(table.acquire(g(3)).is_ok(), "no refusal made it unusable");
        let mut undelivered = Generations::default();
        undelivered.loaded(identity(3), State::Published);
        assert_eq!(refused(&mut undelivered, 3), Needed::NoDeployment);
        assert!(table.prove(&link.grant(3)).is_ok());
    }

    #[test]
    fn once_proven_a_generation_is_unusable_and_only_a_fresh_grant_goes_on_with_it() {
        let (mut table, link) = (table(), Link::new());
        assert!(table.prove(&link.grant(3)).is_ok());
        assert_eq!(table.acquire(g(3)).map(|_| ()), Err(Refusal::Going));
        assert_eq!(table.attempt(identity(3)).map(|_| ()), Err(Refusal::Going));
        assert_eq!(table.prove(&link.grant(3)).map(|_| ()), Err(Needed::Running));
        assert!(
            !table.references().contains(&identity(3)),
            "not asked about while it runs"
        );
        // The collector was killed before it wrote anything: the files still say Published.
        table.loaded(identity(3), State::Published);
        assert_eq!(table.acquire(g(3)).map(|_| ()), Err(Refusal::Going));
        assert_eq!(table.references(), [identity(3), identity(4)]);
        assert!(table.prove(&link.grant(3)).is_ok());
        table.loaded(identity(3), State::Dropped);
        assert_eq!(table.state(g(3)), None);
        assert_eq!(table.references(), [identity(4)]);
    }

    #[test]
    fn a_grant_is_of_its_connection_and_ends_with_it_and_fits_one_proof() {
        let temp = tempfile::tempdir().unwrap();
        let root = oac_records::Directory::create(&temp.path().join("root")).unwrap();
        let lock = InstallLock {
            lock: Lock::exclusive(&root, layout::INSTALL_LOCK).unwrap(),
            root: root.path().to_owned(),
        };
        let (mut table, link) = (table(), Link::new());
        let other = Link::new();
        assert!(
            link.1
                .granted(other.0, g(3), identity(3).specification_digest)
                .is_none()
        );
        let (late, crossed, good) = (link.grant(3), link.grant(4), link.grant(3));
        let proof = table.prove(&good).unwrap();
        assert_eq!(Order::of(crossed, proof, &lock).map(|_| ()), Err(Void));
        table.loaded(identity(3), State::Collecting);
        let proof = table.prove(&good).unwrap();
        assert_eq!(Order::of(good, proof, &lock).unwrap().identity(), identity(3));
        table.loaded(identity(3), State::Collecting);
        let proof = table.prove(&late).unwrap();
        drop(link);
        assert!(!late.is_current());
        assert_eq!(table.prove(&late).map(|_| ()), Err(Needed::NotCurrent));
        assert_eq!(
            Order::of(late, proof, &lock).map(|_| ()),
            Err(Void),
            "the connection ended in between"
        );
    }

    #[test]
    fn only_a_published_generation_is_acquired() {
        for state in State::ALL {
            let mut table = Generations::default();
            table.loaded(identity(3), state);
            let acquired = table.acquire(g(3)).map(|_| ());
            match state {
                State::Published => assert_eq!(acquired, Ok(())),
                State::Dropped => assert_eq!(acquired, Err(Refusal::Unknown)),
                state if state.is_going() => assert_eq!(acquired, Err(Refusal::Going)),
                _ => assert_eq!(acquired, Err(Refusal::Unpublished), "{state:?}"),
            }
            assert_eq!(table.references().is_empty(), !state.is_held(), "{state:?}");
        }
    }
}
