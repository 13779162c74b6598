//! The child of the node that prepares, repairs or collects: `oac-node generation …`, in a process group of its own.
//!
//! One thread takes `install.lock`, starts the child and waits for it. So the thread that the kernel ties the child to
//! lives as long as the child, and lock and use are given back exactly when the child was waited for. A kill goes to the
//! process group under the same mutex as start and wait: it meets the child, or makes sure that none starts.

use std::{
    io,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use oac_generations::{
    Grant, Identity, InstallLock, Order, Store, Unneeded, Use, lease, readiness::Ended, state::State,
};
use oac_model::Generation;
use oac_records::LockError;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::oneshot;

use crate::agent::chain;

/// A start that met a busy descriptor is repeated.
const STARTS: usize = 8;

/// What a child is started for.
#[derive(Debug)]
pub(super) enum Errand {
    Prepare(Identity, Use),
    Collect(Grant, Unneeded),
}

impl Errand {
    pub(super) fn generation(&self) -> Generation {
        match self {
            Self::Prepare(identity, _) => identity.generation,
            Self::Collect(grant, _) => grant.generation(),
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    running: Option<Pid>,
    killed: bool,
}

/// A child that runs, or will in a moment.
#[derive(Debug)]
pub(super) struct Child(Arc<Mutex<Slot>>);

impl Child {
    /// Starts it on a thread of its own; what became of it comes through the receiver, when it was waited for.
    pub(super) fn start(
        store: Arc<Store>,
        program: PathBuf,
        errand: Errand,
    ) -> io::Result<(Self, oneshot::Receiver<Ended>)> {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let (ended, receiver) = oneshot::channel();
        let shared = slot.clone();
        std::thread::Builder::new()
            .name("generation".to_owned())
            .spawn(move || {
                let how = run(&store, program, errand, &shared);
                let _ = ended.send(how);
            })?;
        Ok((Self(slot), receiver))
    }

    /// SIGKILL to its group, or to what would have become it.
    pub(super) fn kill(&self) {
        let mut slot = self.0.lock();
        slot.killed = true;
        if let Some(group) = slot.running {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn run(store: &Store, program: PathBuf, errand: Errand, slot: &Mutex<Slot>) -> Ended {
    let generation = errand.generation();
    match work(store, program, errand, slot) {
        Ok(how) => how,
        Err(error) => {
            tracing::warn!(event = "generation_child_failed", %generation, error = %chain(&error), "no child could be started for a generation");
            Ended::Failed
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("install.lock cannot be taken")]
    Lock(#[source] LockError),
    #[error("the generation's records cannot be read")]
    Store(#[from] oac_generations::StoreError),
    #[error("the generation's lease cannot be made")]
    Lease(#[from] oac_generations::LeaseError),
    #[error("the program cannot be started again as a child")]
    Start(#[from] io::Error),
    #[error(transparent)]
    Void(#[from] oac_generations::Void),
}

fn work(store: &Store, program: PathBuf, errand: Errand, slot: &Mutex<Slot>) -> Result<Ended, StartError> {
    let lock = match InstallLock::take(store) {
        Ok(lock) => lock,
        Err(LockError::Busy(_)) => return Ok(Ended::Busy),
        Err(error) => return Err(StartError::Lock(error)),
    };
    match errand {
        Errand::Prepare(identity, kept) => {
            make_lease(store, identity)?;
            let how = serve(&program, slot, |command| {
                lock.send_preparer(command, identity, &kept)
            });
            // Not before the child was waited for.
            drop(kept);
            how
        }
        Errand::Collect(grant, proof) => {
            let order = Order::of(grant, proof, &lock)?;
            serve(&program, slot, |command| lock.send_collector(command, &order))
        }
    }
}

/// A generation of which there is nothing gets lease and record, by this process, which no changed target kills: so none
/// is left without its record (INV-N41).
fn make_lease(store: &Store, identity: Identity) -> Result<(), StartError> {
    store.sync().map_err(oac_generations::StoreError::from)?;
    let found = store.load(identity.generation)?;
    let unknown = found.is_none_or(|found| found.state == State::Unknown);
    if unknown && lease::is_absent(store, identity.generation)? {
        drop(lease::create(store, identity)?);
    }
    Ok(())
}

fn serve(
    program: &PathBuf,
    slot: &Mutex<Slot>,
    send: impl Fn(&mut Command) -> io::Result<()>,
) -> Result<Ended, StartError> {
    let mut child = {
        let mut slot = slot.lock();
        if slot.killed {
            return Ok(Ended::Canceled);
        }
        let child = start(program, send)?;
        slot.running = Pid::from_raw(child.id().cast_signed());
        child
    };
    // Seen as ended before it is waited for: until then its number, and its group's, is nobody else's.
    let running = slot.lock().running;
    if let Some(pid) = running {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
    }
    let status = {
        let mut slot = slot.lock();
        slot.running = None;
        child.wait()?
    };
    Ok(status.code().map_or(Ended::Failed, Ended::of_status))
}

fn start(
    program: &PathBuf,
    send: impl Fn(&mut Command) -> io::Result<()>,
) -> io::Result<std::process::Child> {
    let mut tries = 0;
    loop {
        #[cfg(feature = "steps")]
        oac_records::steps::announce(oac_records::steps::Step::Outside {
            what: "start a child".to_owned(),
        })?;
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        send(&mut command)?;
        tries += 1;
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < STARTS => {}
            started => return started,
        }
    }
}
