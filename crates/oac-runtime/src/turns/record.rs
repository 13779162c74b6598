//! What the runtime keeps of Turns on disk, beside their logs.
//!
//! `turns/<id>/turn.json` is made exclusively and flushed, with its directories, before the Turn's process is started:
//! no record means that the Turn never started here (INV-S2). `turns/ended` lists, one id per line, the Turns whose end
//! was acknowledged; their directories are removed after the line is durable.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use oac_link::service::Exit;
use oac_model::{BootId, Digest, InstanceId, TurnId};
use serde::{Deserialize, Serialize};

use crate::turns::{
    leftover::{self, ProcessMark},
    log::{self, Batch, LogWriter},
};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnFile {
    format: u32,
    turn_id: TurnId,
    digest: Digest,
    instance_id: InstanceId,
    boot_id: BootId,
}

/// The directory that holds every Turn of this sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    root: PathBuf,
    instance_id: InstanceId,
    boot_id: BootId,
}

/// A Turn of an earlier runtime whose end was not acknowledged.
#[derive(Debug)]
pub(crate) struct FoundTurn {
    pub id: TurnId,
    pub digest: Digest,
    pub written: u64,
    pub acked: u64,
    pub segment: u64,
    pub exit: Exit,
}

#[derive(Debug)]
pub(crate) struct FoundAll {
    pub turns: Vec<FoundTurn>,
    pub ended: HashSet<TurnId>,
}

impl Records {
    pub(crate) fn new(root: PathBuf, instance_id: InstanceId, boot_id: BootId) -> Self {
        Self {
            root,
            instance_id,
            boot_id,
        }
    }

    pub(crate) fn directory(&self, turn: TurnId) -> PathBuf {
        self.root.join(turn.to_string())
    }

    fn ended_file(&self) -> PathBuf {
        self.root.join("ended")
    }

    /// Makes the Turn's record and its empty log, both durable when this returns. The three flushes run side by side:
    /// a disk serves them as one.
    pub(crate) fn create(&self, turn: TurnId, digest: Digest) -> io::Result<LogWriter> {
        let directory = self.directory(turn);
        self.make_root()?;
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let made = self.create_in(&directory, turn, digest);
        if made.is_err() {
            // Nothing was started: the id may be tried again.
            let _ = fs::remove_dir_all(&directory);
        }
        made
    }

    /// A command may have removed it: it lies in the home directory of all of them.
    fn make_root(&self) -> io::Result<()> {
        fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&self.root)
    }

    fn create_in(&self, directory: &Path, turn: TurnId, digest: Digest) -> io::Result<LogWriter> {
        let record = TurnFile {
            format: 1,
            turn_id: turn,
            digest,
            instance_id: self.instance_id,
            boot_id: self.boot_id,
        };
        let json = serde_json::to_vec(&record)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(directory.join("turn.json"))?;
        file.write_all(&json)?;
        let log = LogWriter::create(directory)?;
        std::thread::scope(|scope| {
            let both = [directory, &self.root].map(|path| {
                let thread = std::thread::Builder::new();
                (
                    path,
                    thread.spawn_scoped(scope, move || log::sync_directory(path)),
                )
            });
            file.sync_all()?;
            for (path, flushing) in both {
                match flushing {
                    Ok(thread) => thread
                        .join()
                        .unwrap_or_else(|_| Err(io::Error::other("a flush panicked")))?,
                    // Turns may have used up the sandbox's processes, of which threads are a part.
                    Err(_) => log::sync_directory(path)?,
                }
            }
            Ok(log)
        })
    }

    /// Notes the process for a runtime that restarts in the same boot. Not flushed: no process outlives a power loss.
    pub(crate) fn note_process(&self, turn: TurnId, mark: &ProcessMark) {
        if let Ok(json) = serde_json::to_vec(mark) {
            let _ = fs::write(self.directory(turn).join("process"), json);
        }
    }

    /// Makes the id known as ended for ever, then removes its record and log.
    pub(crate) fn end(&self, turn: TurnId) -> io::Result<()> {
        self.make_root()?;
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.ended_file())?;
        file.write_all(format!("{turn}\n").as_bytes())?;
        file.sync_data()?;
        match fs::remove_dir_all(self.directory(turn)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads what earlier runtimes left: kills what still runs of it, and gives every Turn without an end the end
    /// `runtime_restarted`.
    pub(crate) fn open(&self) -> io::Result<FoundAll> {
        self.make_root()?;
        let ended = self.read_ended()?;
        let mut known = HashMap::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|n| n.parse::<TurnId>().ok()) else {
                continue;
            };
            match read_turn(&entry.path()) {
                Some(file) if !ended.contains(&id) && file.turn_id == id => drop(known.insert(id, file)),
                // Acknowledged, or never started: the record was not whole when its runtime ended.
                _ => fs::remove_dir_all(entry.path())?,
            }
        }
        // All processes first, so that none of them writes or starts anything any more.
        for id in known.keys() {
            let mark = fs::read(self.directory(*id).join("process")).ok();
            if let Some(mark) = mark.and_then(|json| oac_wire::strict::from_slice(&json).ok()) {
                leftover::kill(&mark, self.boot_id);
            }
        }
        let turns = known
            .into_iter()
            .map(|(id, file)| self.open_turn(id, &file))
            .collect::<io::Result<_>>()?;
        log::sync_directory(&self.root)?;
        Ok(FoundAll { turns, ended })
    }

    fn open_turn(&self, id: TurnId, file: &TurnFile) -> io::Result<FoundTurn> {
        let mut found = log::open(&self.directory(id))?;
        let exit = match found.exit {
            Some(exit) => exit,
            None => {
                let exit = Exit::failed(Exit::RUNTIME_RESTARTED);
                let batch = Batch {
                    chunks: Vec::new(),
                    exit: Some(exit.clone()),
                };
                // Without room on the disk the sandbox must still be reachable, or nobody could make room. A further
                // restart comes to the same end.
                if let Err(error) = found.writer.append(&batch) {
                    crate::report(format_args!("the end of Turn {id} cannot be recorded: {error}"));
                }
                exit
            }
        };
        Ok(FoundTurn {
            id,
            digest: file.digest,
            written: found.writer.offset(),
            acked: found.first,
            segment: found.writer.segment_start(),
            exit,
        })
    }

    fn read_ended(&self) -> io::Result<HashSet<TurnId>> {
        let text = match fs::read_to_string(self.ended_file()) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
            Err(error) => return Err(error),
        };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            // A torn last line; its Turn's record is still there.
            let file = OpenOptions::new().write(true).open(self.ended_file())?;
            file.set_len(whole as u64)?;
        }
        Ok(text[..whole]
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect())
    }
}

fn read_turn(directory: &Path) -> Option<TurnFile> {
    let json = fs::read(directory.join("turn.json")).ok()?;
    oac_wire::strict::from_slice(&json).ok()
}

/// This boot, as the kernel names it.
pub(crate) fn boot_id() -> io::Result<BootId> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .parse()
        .map_err(io::Error::other)
}

/// Whether `path` is a directory this process may enter.
pub(crate) fn check_directory(path: &str) -> Result<(), String> {
    let metadata = fs::metadata(path)
        .map_err(|e| format!("the working directory {path} cannot be used: {}", why(&e)))?;
    if !metadata.is_dir() {
        return Err(format!("the working directory {path} is not a directory"));
    }
    File::open(path).map(drop).or_else(|error| match error.kind() {
        // Entering needs no right to list.
        io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(format!(
            "the working directory {path} cannot be used: {}",
            why(&error)
        )),
    })
}

/// An operating system error in words, without Rust's numbering.
pub(crate) fn why(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}
