//! One command at a time: two runs would share ports, the engine's data and the report files.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;

use anyhow::{Context as _, Result};

/// Held until dropped. The kernel lets go of it when the process ends, however it ends.
pub(crate) struct RunLock {
    _file: File,
}

/// Waits for another run of this account to end, saying so.
pub(crate) fn take() -> Result<RunLock> {
    let path = super::cache()?.join("xtask.lock");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            println!("waiting for another run (process {}) to end", holder.trim());
            file.lock()
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(RunLock { _file: file })
}
