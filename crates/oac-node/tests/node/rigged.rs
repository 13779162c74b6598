//! A managed node whose program is the rig (`rig.rs`): stopped where an order says, its time moved on, and its files
//! judged while nothing of it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use oac_generations::{
    Configuration, State, Store,
    layout::Layout,
    lease,
    native::Native,
    records::Record,
    recovery::{self, Recovery},
};
use oac_records::Directory;
use oac_wire::{
    NodeFrame,
    frames::{Deployment, GenerationStatus},
};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::{
    managed::{Managed, OTHER_COMMIT, OtherRelease, PROFILE},
    program::{give, is_root, own},
    scripted_core::Link,
};

/// So long nothing came: then ten seconds of the node's pass.
pub(crate) const SLOWLY: Duration = Duration::from_secs(1);
/// Generous: a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const FAST: Duration = Duration::from_millis(20);

/// A process of the rig.
pub(crate) struct Rig {
    child: Child,
    clock: ChildStdin,
    ended: bool,
}

impl Rig {
    /// This much of the node's time passes at once.
    fn pass(&mut self, seconds: u64) {
        // One that has just been killed has no time.
        let _ = writeln!(self.clock, "{seconds}");
    }

    fn has_ended(&mut self) -> bool {
        self.ended |= self.child.try_wait().unwrap().is_some();
        self.ended
    }

    /// As by `kill -9`.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a node is told to do, as `rig.rs` says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) whom: &'static str,
    pub(crate) steps: usize,
    pub(crate) text: &'static str,
    pub(crate) deed: &'static str,
}

pub(crate) struct Rigged {
    pub(crate) node: Managed,
    pub(crate) release: OtherRelease,
    pub(crate) target: Deployment,
    pub(crate) link: Option<Link>,
    /// Of the latest hello or heartbeat.
    pub(crate) report: Vec<GenerationStatus>,
    /// Generations that Core was asked about by the present process.
    pub(crate) asked: BTreeSet<i64>,
    pub(crate) folder: PathBuf,
    leases: BTreeMap<i64, u64>,
    enrolled: Vec<u8>,
}

impl Rigged {
    pub(crate) async fn new() -> Self {
        let (node, release) = Managed::scripted().await;
        let root = &node.installation.root;
        let folder = root.parent().unwrap().join("rig");
        std::fs::create_dir(&folder).unwrap();
        let mut rigged = Self {
            target: node.deployment(2, Some(1)),
            link: None,
            report: Vec::new(),
            asked: BTreeSet::new(),
            leases: BTreeMap::new(),
            enrolled: std::fs::read(root.join("provider.json")).unwrap(),
            folder,
            node,
            release,
        };
        rigged.look_at_leases(false);
        rigged
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.node.installation.root.join("releases").join(OTHER_COMMIT)
    }

    pub(crate) fn profile(&self) -> PathBuf {
        self.place().join("runtime/seccomp.json")
    }

    pub(crate) fn has(&self, record: &str) -> bool {
        self.node.record(record).exists()
    }

    pub(crate) fn has_image(&self) -> bool {
        let images = self.node.scripted_engine().held.images.lock();
        images.contains(&self.release.image.to_string())
    }

    /// As if generation 2 had been prepared before.
    pub(crate) fn publish(&mut self) {
        let root = &self.node.installation.root;
        let store = Store::open(Layout::new(root), self.node.installation.config.installation_id).unwrap();
        let mut configuration = Configuration::decode(&self.enrolled).unwrap();
        configuration.generation = 2.try_into().unwrap();
        configuration.specification = self.node.specifications[1].clone();
        if let Native::Docker(native) = &mut configuration.native {
            native.image = self.release.image;
            native.seccomp_file = self.profile().display().to_string();
        }
        drop(lease::create(&store, configuration.identity()).unwrap());
        store
            .directory()
            .publish("2.json", &configuration.encode())
            .unwrap();
        let place = Directory::open(root).unwrap().make("releases").unwrap();
        let place = place.make(OTHER_COMMIT).unwrap();
        place
            .publish("manifest.json", self.release.metadata.manifest_bytes())
            .unwrap();
        let runtime = place.make("runtime").unwrap();
        runtime.publish("seccomp.json", PROFILE).unwrap();
        let engine = self.node.scripted_engine();
        engine.held.images.lock().insert(self.release.image.to_string());
        self.look_at_leases(false);
    }

    pub(crate) fn start(&mut self, order: Option<Order>) -> Rig {
        (self.link, self.report) = (None, Vec::new());
        self.asked.clear();
        // Nothing can be probed with success before the first report.
        self.node.scripted_engine().held.hide_networks(true);
        let mut command = self.node.command_with(rig(), "run");
        if let Some(order) = order {
            let Order {
                whom,
                steps,
                text,
                deed,
            } = order;
            let folder = self.folder.display();
            command.env("OAC_RIG", format!("{whom} {steps} {text} {deed} {folder}"));
        }
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let clock = child.stdin.take().unwrap();
        Rig {
            child,
            clock,
            ended: false,
        }
    }

    /// Serves the node until `done`. False where its process ended before. Time passes when nothing came for `pace`.
    pub(crate) async fn drive(
        &mut self,
        rig: &mut Rig,
        pace: Duration,
        done: impl Fn(&Self) -> bool + Send,
    ) -> bool {
        let begun = Instant::now();
        let (mut heard, mut passed) = (begun, false);
        loop {
            if rig.has_ended() {
                self.link = None;
                return false;
            }
            if done(self) {
                return true;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "in vain; the node says {:?}",
                self.report
            );
            tokio::select! {
                frame = next(&mut self.link) => {
                    heard = Instant::now();
                    match frame {
                        Some(frame) => passed &= !self.take(&frame).await,
                        None => self.link = None,
                    }
                }
                link = self.node.core.accept(), if self.link.is_none() => {
                    self.greet(link).await;
                    (heard, passed) = (Instant::now(), false);
                }
                () = tokio::time::sleep(FAST) => {
                    if self.link.is_some() && !passed && heard.elapsed() >= pace {
                        rig.pass(10);
                        passed = true;
                    }
                }
            }
        }
    }

    /// Until the node has sent so many heartbeats more, and had their answers.
    pub(crate) async fn beats(&mut self, rig: &mut Rig, count: usize) {
        for _ in 0..count {
            self.report.clear();
            assert!(self.drive(rig, FAST, |host| !host.report.is_empty()).await);
        }
    }

    async fn greet(&mut self, mut link: Link) {
        let before = self.node.core.seen("configuration").len();
        let Some(NodeFrame::Hello(hello)) = link.try_next().await else {
            return;
        };
        self.report = hello.health.generations.unwrap_or_default();
        assert_eq!(
            self.node.core.seen("configuration").len(),
            before,
            "nothing is prepared before a delivery"
        );
        self.node.scripted_engine().held.hide_networks(false);
        link.deployment = Some(self.target);
        link.welcome().await;
        self.link = Some(link);
    }

    /// Answers the frame; true where it was a heartbeat.
    async fn take(&mut self, frame: &NodeFrame) -> bool {
        let Some(link) = &mut self.link else { return false };
        link.deployment = Some(self.target);
        self.node.reply(link, frame).await;
        match frame {
            NodeFrame::Heartbeat(beat) => {
                self.report = beat.health.generations.clone().unwrap_or_default();
                true
            }
            NodeFrame::Retention(retention) => {
                let references = &retention.control.references;
                self.asked.extend(references.iter().map(|r| r.generation.get()));
                false
            }
            _ => false,
        }
    }

    /// Who stays at the step that the order names; `None` while it was not reached.
    pub(crate) fn stopped(&self) -> Option<Vec<Pid>> {
        let text = std::fs::read_to_string(self.folder.join("stopped")).ok()?;
        let pids = text.lines().map(|line| Pid::from_raw(line.parse().unwrap()));
        Some(pids.map(Option::unwrap).collect())
    }

    /// No child works, nor anything it started.
    pub(crate) fn is_idle(&self) -> bool {
        let lock = self.node.installation.root.join("install.lock");
        match std::fs::File::open(lock) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => true,
        }
    }

    pub(crate) async fn until_idle(&self) {
        oac_testkit::wait::until("install.lock is free", PATIENCE, async || {
            self.is_idle().then_some(())
        })
        .await
        .unwrap();
    }

    /// What the files say while nothing runs: they agree, nothing is half there, and nothing that stays was touched.
    pub(crate) fn recovered(&mut self, bare: bool) -> Recovery {
        let root = self.node.installation.root.clone();
        if is_root() {
            own(root.parent().unwrap());
        }
        let store = Store::open(Layout::new(&root), self.node.installation.config.installation_id);
        let recovery = recovery::recover(&store.unwrap()).expect("records that agree");
        self.look_at_leases(bare);
        assert_eq!(std::fs::read(root.join("provider.json")).unwrap(), self.enrolled);
        for (path, bytes) in [
            (self.profile(), PROFILE),
            (root.join("runtime/seccomp.json"), b"{}"),
        ] {
            if let Ok(found) = std::fs::read(&path) {
                assert_eq!(found, bytes, "{path:?} is whole");
            }
        }
        assert_eq!(
            self.node.scripted_engine().held.times("DELETE"),
            0,
            "nothing is taken from an engine"
        );
        recovery
    }

    pub(crate) fn state(recovery: &Recovery, n: i64) -> State {
        let is = |identity: &oac_generations::Identity| identity.generation.get() == n;
        if recovery.dropped.iter().any(is) {
            return State::Dropped;
        }
        let held = recovery.held.iter().find(|held| is(&held.found.identity));
        held.map_or(State::Unknown, |held| held.found.state)
    }

    /// Leases stay what they were, and have their records; `bare` says that one may lack it.
    fn look_at_leases(&mut self, bare: bool) {
        for n in 1..4 {
            let lease = std::fs::metadata(self.node.record(&format!("{n}.lease"))).ok();
            let inode = lease.map(|lease| lease.ino());
            if let Some(before) = self.leases.get(&n) {
                assert_eq!(inode, Some(*before), "the lease of {n} is replaced");
            }
            let recorded = self.has(&format!("{n}.lease-identity"));
            assert!(inode.is_some() || !recorded, "a record of {n} without its lease");
            assert!(
                bare || recorded || inode.is_none(),
                "a lease of {n} without its record"
            );
            self.leases.extend(inode.map(|inode| (n, inode)));
        }
    }
}

impl Drop for Rigged {
    fn drop(&mut self) {
        for pid in self.stopped().unwrap_or_default() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The process is gone, reaped or not.
pub(crate) fn is_gone(pid: Pid) -> bool {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return true;
    };
    let mut ended = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, Some(&rustix::time::Timespec::default())) == Ok(1)
}

pub(crate) fn rig() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oac-node-rig"));
    command.env_clear();
    command
}

async fn next(link: &mut Option<Link>) -> Option<NodeFrame> {
    match link {
        Some(link) => link.try_next().await,
        None => std::future::pending().await,
    }
}

/// A pipe that whoever waits at a step opens.
pub(crate) fn pipe(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    if is_root() {
        give(path);
    }
}
