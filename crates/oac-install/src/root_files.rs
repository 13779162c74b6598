//! Files that root writes: whole under a temporary name, synced, renamed, the folder synced; equal bytes are left alone.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::fs::OFlags;

/// The bytes of a regular file of at most `limit` bytes; `None` when there is none.
pub(crate) fn read(path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags as i32)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other("larger than its limit"));
    }
    Ok(Some(bytes))
}

/// Makes the folder with this mode if it is missing.
pub(crate) fn folder(path: &Path, mode: u32) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
            sync(path.parent().unwrap_or(Path::new("/")))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes `bytes` under `name`, unless they are there with this mode. Whether anything was written.
pub(crate) fn write(folder: &Path, name: &str, mode: u32, bytes: &[u8]) -> io::Result<bool> {
    let path = folder.join(name);
    if let Ok(Some(present)) = read(&path, bytes.len())
        && present == bytes
        && fs::metadata(&path)?.permissions().mode() & 0o7777 == mode
    {
        return Ok(false);
    }
    let partial = folder.join(format!(".{name}.partial"));
    remove(&partial)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&partial, &path)?;
    sync(folder)?;
    Ok(true)
}

/// Removes a file durably; a missing one is success.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync(path.parent().unwrap_or(Path::new("/"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
