//! For tests, behind the feature `steps`: every system call that changes the disk, announced before it is made.
//!
//! A test watches the steps of its own thread. It may kill the process at one, or let it and all later ones fail,
//! which is what a killed process looks like from outside; and from a list of steps it can work out what a power loss
//! leaves ([`crate`] makes nothing else durable than what it syncs). A program that a test starts to kill it watches
//! all of its threads.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::io::Errno;

/// One change, with full paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    MakeDirectory {
        path: PathBuf,
    },
    /// An empty file of this mode.
    Create {
        path: PathBuf,
        mode: u32,
    },
    /// At the end of the file.
    Append {
        path: PathBuf,
        bytes: Vec<u8>,
    },
    SyncFile {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        /// Without it the step fails where `to` exists.
        replaces: bool,
    },
    Unlink {
        path: PathBuf,
    },
    RemoveDirectory {
        path: PathBuf,
    },
    /// Makes the directory's names durable.
    SyncDirectory {
        path: PathBuf,
    },
    /// What another program or host is asked to do; announced by whoever asks.
    Outside {
        what: String,
    },
}

impl Step {
    /// The directory whose names the step changes or syncs; `None` for what happens to a file's content or outside.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::MakeDirectory { path }
            | Self::Create { path, .. }
            | Self::Unlink { path }
            | Self::RemoveDirectory { path }
            | Self::Rename { to: path, .. } => path.parent(),
            Self::SyncDirectory { path } => Some(path),
            Self::Append { .. } | Self::SyncFile { .. } | Self::Outside { .. } => None,
        }
    }
}

/// What becomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Go,
    /// It is not made, and fails with `EIO`.
    Fail,
}

type Watcher = Box<dyn FnMut(&Step) -> Verdict>;
type Everywhere = Box<dyn Fn(&Step) + Send + Sync>;

static EVERYWHERE: OnceLock<Everywhere> = OnceLock::new();

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread while `watcher` judges each of its steps.
pub fn watched<T>(watcher: impl FnMut(&Step) -> Verdict + 'static, work: impl FnOnce() -> T) -> T {
    struct Unset;
    impl Drop for Unset {
        fn drop(&mut self) {
            WATCHER.set(None);
        }
    }
    WATCHER.set(Some(Box::new(watcher)));
    let _unset = Unset;
    work()
}

/// From now to the end of the process `watcher` sees each step of each thread before it is made, and may keep it from
/// being made by not returning. The first one given stays.
pub fn watch_everywhere(watcher: impl Fn(&Step) + Send + Sync + 'static) {
    let _ = EVERYWHERE.set(Box::new(watcher));
}

/// Passes `step` to the watcher of this process, then to the one of this thread.
pub fn announce(step: Step) -> Result<(), Errno> {
    if let Some(watcher) = EVERYWHERE.get() {
        watcher(&step);
    }
    WATCHER.with_borrow_mut(|watcher| match watcher.as_mut().map(|watch| watch(&step)) {
        Some(Verdict::Fail) => Err(Errno::IO),
        Some(Verdict::Go) | None => Ok(()),
    })
}
