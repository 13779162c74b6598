//! Secrets come only from files of mode 0600.

use std::{
    io::Read,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use oac_model::Secret;

const MAX_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("cannot read {}: check that it exists and belongs to Core's account", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} has mode {mode:04o}: run chmod 0600 on it", path.display())]
    Mode { path: PathBuf, mode: u32 },
    #[error("{} is not a file of at most {most} bytes", path.display())]
    Size { path: PathBuf, most: u64 },
    #[error("{} is not one line of text of at most {MAX_BYTES} bytes", path.display())]
    Text { path: PathBuf },
}

/// The one line in the file at `path`, which must be a regular file of mode 0600 (or 0400).
pub fn read_secret_file(path: &Path) -> Result<Secret, SecretFileError> {
    let text = || SecretFileError::Text {
        path: path.to_owned(),
    };
    let content = match read_private_file(path, MAX_BYTES) {
        Err(SecretFileError::Size { .. }) => return Err(text()),
        content => String::from_utf8(content?).map_err(|_| text())?,
    };
    let line = content.strip_suffix('\n').unwrap_or(&content);
    if line.is_empty() || line.contains(['\n', '\r', '\0']) {
        return Err(text());
    }
    Ok(Secret::new(line))
}

/// At most `most` bytes of the file at `path`, which must be a regular file of mode 0600 (or 0400).
pub fn read_private_file(path: &Path, most: u64) -> Result<Vec<u8>, SecretFileError> {
    let read = |source| SecretFileError::Read {
        path: path.to_owned(),
        source,
    };
    let size = || SecretFileError::Size {
        path: path.to_owned(),
        most,
    };
    let file = std::fs::File::open(path).map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if !matches!(mode, 0o600 | 0o400) {
        return Err(SecretFileError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    if !metadata.is_file() {
        return Err(size());
    }
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).map_err(read)?;
    if content.len() as u64 > most {
        return Err(size());
    }
    Ok(content)
}
