//! The refusals of file operations, one list for both ends.

use http::StatusCode;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident;)*) => {
        /// Why the sandbox did not do what was asked of its files. Nothing was changed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FileRefusal { $($(#[$doc])* $name),* }

        impl FileRefusal {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The `code` of the runtime's error answer.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            pub fn from_code(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }

            /// The status of the answer.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),* }
            }
        }
    };
}

refusals! {
    /// Nothing has this path.
    NotFound = "file_not_found", NOT_FOUND;
    /// The path cannot name anything.
    BadPath = "file_path_invalid", BAD_REQUEST;
    /// The cursor is not one that a list gave out.
    BadCursor = "file_cursor_invalid", BAD_REQUEST;
    NameTooLong = "file_name_too_long", BAD_REQUEST;
    IsDirectory = "file_is_directory", CONFLICT;
    /// The path, or what leads to it, is no directory.
    NotDirectory = "file_not_directory", CONFLICT;
    /// A FIFO, socket, device, or a file that the kernel makes up.
    NotRegular = "file_not_regular", CONFLICT;
    NotEmpty = "directory_not_empty", CONFLICT;
    /// Too many symbolic links.
    LinkLoop = "file_link_loop", CONFLICT;
    /// Mounted on, executed, or otherwise held.
    Busy = "file_busy", CONFLICT;
    AccessDenied = "file_access_denied", FORBIDDEN;
    ReadOnly = "file_read_only", FORBIDDEN;
    /// `If-None-Match: *`.
    Exists = "file_exists", PRECONDITION_FAILED;
    TooLarge = "file_too_large", PAYLOAD_TOO_LARGE;
    /// `Content-Digest` is that of other bytes.
    DigestMismatch = "content_digest_mismatch", BAD_REQUEST;
    /// The file system is full, or the user's quota.
    NoSpace = "file_no_space", INSUFFICIENT_STORAGE;
    /// The sandbox's disk or kernel failed the operation.
    Failed = "file_failed", INTERNAL_SERVER_ERROR;
}

impl std::fmt::Display for FileRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_explains_every_refusal_that_an_application_sees() {
        let guide = include_str!("../../../../docs/files-and-ports.md");
        // Core tells these two as it tells them everywhere.
        let translated = [FileRefusal::NotFound, FileRefusal::BadCursor];
        for refusal in FileRefusal::ALL
            .iter()
            .filter(|refusal| !translated.contains(refusal))
        {
            let is_told = |line: &str| line.starts_with("| ") && line.contains(&format!("`{refusal}`"));
            assert!(guide.lines().any(is_told), "{refusal}");
        }
    }
}
