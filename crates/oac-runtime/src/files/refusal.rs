//! What the kernel says, as the one list of refusals.

use oac_link::files::FileRefusal;
use rustix::io::Errno;

/// The refusal of a failed call.
pub(super) fn refusal(error: Errno) -> FileRefusal {
    match error {
        Errno::NOENT => FileRefusal::NotFound,
        Errno::NOTDIR => FileRefusal::NotDirectory,
        Errno::ISDIR => FileRefusal::IsDirectory,
        Errno::LOOP => FileRefusal::LinkLoop,
        Errno::NAMETOOLONG => FileRefusal::NameTooLong,
        Errno::ACCESS | Errno::PERM => FileRefusal::AccessDenied,
        Errno::ROFS => FileRefusal::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => FileRefusal::NoSpace,
        Errno::FBIG => FileRefusal::TooLarge,
        Errno::EXIST => FileRefusal::Exists,
        Errno::NOTEMPTY => FileRefusal::NotEmpty,
        Errno::BUSY | Errno::TXTBSY => FileRefusal::Busy,
        // Sockets and devices without a driver.
        Errno::NXIO | Errno::NODEV => FileRefusal::NotRegular,
        error => {
            crate::report(format_args!("a file operation failed: {error}"));
            FileRefusal::Failed
        }
    }
}

/// One line for whoever calls the runtime's service; Core has its own words for people.
pub(super) fn words(refusal: FileRefusal) -> &'static str {
    match refusal {
        FileRefusal::NotFound => "nothing has this path",
        FileRefusal::BadPath => "path must be 1 to 4096 bytes without NUL",
        FileRefusal::BadCursor => "cursor is not one that a list gave out",
        FileRefusal::NameTooLong => "a name of the path is too long",
        FileRefusal::IsDirectory => "the path is a directory",
        FileRefusal::NotDirectory => "the path, or what leads to it, is no directory",
        FileRefusal::NotRegular => "the path is no regular file",
        FileRefusal::NotEmpty => "the directory is not empty",
        FileRefusal::LinkLoop => "too many symbolic links",
        FileRefusal::Busy => "the file is held by something else",
        FileRefusal::AccessDenied => "the sandbox's user may not do that",
        FileRefusal::ReadOnly => "the file system is read-only",
        FileRefusal::Exists => "the file exists",
        FileRefusal::TooLarge => "the file is too large",
        FileRefusal::DigestMismatch => "the bytes have another digest",
        FileRefusal::NoSpace => "no space is left",
        FileRefusal::Failed => "the sandbox's disk failed",
    }
}
