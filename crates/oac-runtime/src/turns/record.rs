//! What the runtime keeps of Turns on disk, beside their logs.
//!
//! `turns/<id>/turn.json` is made exclusively and flushed, with its directories, before the Turn's process is started:
//! no record means that the Turn never started here (INV-S2). `turns/ended` lists, one id per line, the Turns whose end
//! was acknowledged; their directories are removed after the line is durable.
//!
//! All of this lies where commands may remove it. So `.latest-turn`, beside `turns`, names the Turn started last once
//! more: without it, a Turn that removed `turns` and whose start nobody heard of would be started again by the next
//! runtime. Whoever removes both removes the bootstrap file too, or did it on purpose; nothing written by the user that
//! runs the commands is out of their reach. A power loss between the two records can leave the second alone: then a Turn
//! that never ran is interrupted, which is the safe side.
//!
//! Whatever commands leave in `turns`, the runtime starts: a sandbox that cannot be reached cannot be repaired.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use oac_link::service::Exit;
use oac_model::{BootId, Digest, InstanceId, TurnId};
use serde::{Deserialize, Serialize};

use crate::turns::{
    leftover::{self, ProcessMark},
    log::{self, Batch, LogWriter},
    reserve::{self, Room},
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

impl FoundTurn {
    /// One whose log is gone: what Core has of its output is all there is.
    fn without_log(id: TurnId, digest: Digest) -> Self {
        Self {
            id,
            digest,
            written: 0,
            acked: 0,
            segment: 0,
            exit: Exit::failed(Exit::RUNTIME_RESTARTED),
        }
    }
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

    fn latest_file(&self) -> PathBuf {
        self.root.with_file_name(".latest-turn")
    }

    /// Makes the Turn's record and its empty log, both durable when this returns. The flushes run side by side: a disk
    /// serves them as one.
    pub(crate) fn create(&self, turn: TurnId, digest: Digest) -> io::Result<LogWriter> {
        self.make_root()?;
        match self.try_create(turn, digest) {
            Err(error) if reserve::release(&self.root, Room::Start, &error) => self.try_create(turn, digest),
            Ok(log) => {
                reserve::take(&self.root);
                Ok(log)
            }
            made => made,
        }
    }

    fn try_create(&self, turn: TurnId, digest: Digest) -> io::Result<LogWriter> {
        let directory = self.directory(turn);
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let made = self.create_in(&directory, turn, digest);
        if made.is_err() {
            // Nothing was started: the id may be tried again.
            let _ = fs::remove_file(self.latest_file());
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
        // Written last, so that of a runtime that is killed here it tells of no Turn without a record.
        let (latest, is_new) = self.write_latest(turn, digest)?;
        let home = self.root.parent().unwrap_or(Path::new("/"));
        let syncs: [&(dyn Fn() -> io::Result<()> + Sync); 4] = [
            &|| log::sync_directory(directory),
            &|| log::sync_directory(&self.root),
            &|| latest.sync_data(),
            &|| log::sync_directory(home),
        ];
        let syncs = if is_new { &syncs[..] } else { &syncs[..3] };
        std::thread::scope(|scope| {
            let flushing: Vec<_> = syncs
                .iter()
                .map(|sync| (sync, std::thread::Builder::new().spawn_scoped(scope, sync)))
                .collect();
            file.sync_all()?;
            for (sync, flushing) in flushing {
                match flushing {
                    Ok(thread) => thread
                        .join()
                        .unwrap_or_else(|_| Err(io::Error::other("a flush panicked")))?,
                    // Turns may have used up the sandbox's processes, of which threads are a part.
                    Err(_) => sync()?,
                }
            }
            Ok(log)
        })
    }

    /// The second record of the Turn started last, not flushed yet, and whether its file is new.
    fn write_latest(&self, turn: TurnId, digest: Digest) -> io::Result<(File, bool)> {
        let path = self.latest_file();
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        // The mark of an earlier Turn's process must not be taken for this one's.
        file.set_len(0)?;
        file.write_all_at(format!("{turn} {digest}\n").as_bytes(), 0)?;
        Ok((file, is_new))
    }

    /// The Turn started last, and its process if that was noted.
    fn read_latest(&self) -> Option<((TurnId, Digest), Option<ProcessMark>)> {
        let text = fs::read_to_string(self.latest_file()).ok()?;
        let (record, mark) = text.split_once('\n')?;
        let (turn, digest) = record.split_once(' ')?;
        let mark = oac_wire::strict::from_slice(mark.as_bytes()).ok();
        Some(((turn.parse().ok()?, digest.parse().ok()?), mark))
    }

    /// Notes the process of the Turn started last, for a runtime that restarts in the same boot. Not flushed: no process
    /// outlives a power loss.
    pub(crate) fn note_process(&self, mark: &ProcessMark) {
        let noted = serde_json::to_vec(mark).map(|json| {
            OpenOptions::new()
                .append(true)
                .open(self.latest_file())?
                .write_all(&json)
        });
        if !matches!(noted, Ok(Ok(()))) {
            crate::report(format_args!("the process of a Turn cannot be noted"));
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
        self.make_root().or_else(|error| {
            // Something else that a command put there.
            fs::remove_file(&self.root).map_err(|_| error)?;
            self.make_root()
        })?;
        let ended = self.read_ended();
        let latest = self.read_latest();
        // First of all, so that none of them writes or starts anything any more. Only one Turn ran at a time.
        if let Some((_, Some(mark))) = &latest {
            leftover::kill(mark, self.boot_id);
        }
        let mut known = HashMap::new();
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str());
            let Some(id) = name.and_then(|n| n.parse::<TurnId>().ok()) else {
                continue;
            };
            match read_turn(&path) {
                Some(file) if !ended.contains(&id) && file.turn_id == id => {
                    known.insert(id, file.digest);
                }
                // Acknowledged, or never started: the record was not whole when its runtime ended.
                _ => {
                    if let Err(error) = fs::remove_dir_all(&path) {
                        crate::report(format_args!("{} cannot be removed: {error}", path.display()));
                    }
                }
            }
        }
        let mut turns: Vec<_> = known
            .iter()
            .map(|(id, digest)| {
                self.open_turn(*id, *digest).unwrap_or_else(|error| {
                    crate::report(format_args!("the output of Turn {id} cannot be read: {error}"));
                    FoundTurn::without_log(*id, *digest)
                })
            })
            .collect();
        // It was started, and removed its record.
        if let Some(((id, digest), _)) = latest
            && !ended.contains(&id)
            && !known.contains_key(&id)
        {
            turns.push(FoundTurn::without_log(id, digest));
        }
        log::sync_directory(&self.root)?;
        Ok(FoundAll { turns, ended })
    }

    fn open_turn(&self, id: TurnId, digest: Digest) -> io::Result<FoundTurn> {
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
            digest,
            written: found.writer.offset(),
            acked: found.first,
            segment: found.writer.segment_start(),
            exit,
        })
    }

    /// What cannot be read is as good as removed: Core puts no Turn again whose end it has acknowledged.
    fn read_ended(&self) -> HashSet<TurnId> {
        let text = match fs::read(self.ended_file()) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    crate::report(format_args!("the list of ended Turns cannot be read: {error}"));
                }
                return HashSet::new();
            }
        };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            // A torn last line; its Turn's record is still there.
            let cut = OpenOptions::new()
                .write(true)
                .open(self.ended_file())
                .and_then(|file| file.set_len(whole as u64));
            if let Err(error) = cut {
                crate::report(format_args!(
                    "the list of ended Turns cannot be repaired: {error}"
                ));
            }
        }
        text[..whole]
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect()
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
