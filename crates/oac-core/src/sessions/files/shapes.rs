//! Queries and answers of the file routes.

use oac_link::files::{FileEntry, FileList, FileType, PutFileAnswer, is_cursor};
use oac_model::{Digest, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{http::ApiError, limits};

const WORKSPACE: &str = "/workspace";

/// Absolute, or relative to `/workspace`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct FilePath(String);

impl FilePath {
    pub(super) fn check(&self) -> Result<(), ApiError> {
        if self.0.is_empty() || self.0.len() > limits::PATH_BYTES || self.0.contains('\0') {
            return Err(ApiError::invalid_member(
                "path",
                "path is not usable: give 1 to 4096 bytes without NUL.",
            ));
        }
        Ok(())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FileQuery {
    /// Absolute, or relative to /workspace; at most 4096 bytes of UTF-8 without NUL.
    #[param(value_type = String)]
    pub(super) path: FilePath,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PutQuery {
    /// Absolute, or relative to /workspace; at most 4096 bytes of UTF-8 without NUL. A link is followed.
    #[param(value_type = String)]
    pub(super) path: FilePath,
    /// Permission bits in octal, at most 777. Without it a new file gets 644 and a replaced one keeps its own.
    #[param(nullable = false, pattern = "^[0-7]{1,4}$")]
    mode: Option<String>,
}

impl PutQuery {
    pub(super) fn mode(&self) -> Result<Option<u32>, ApiError> {
        let Some(text) = &self.mode else { return Ok(None) };
        let digits = (1..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let mode = digits.then(|| u32::from_str_radix(text, 8).ok()).flatten();
        match mode.filter(|mode| *mode <= 0o777) {
            Some(mode) => Ok(Some(mode)),
            None => Err(ApiError::invalid_member(
                "mode",
                "mode is not usable: give permission bits in octal, at most 777.",
            )),
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// A directory: absolute, or relative to /workspace.
    #[param(value_type = String)]
    pub(super) path: FilePath,
    /// The `next` of the page before.
    #[param(nullable = false)]
    pub(super) cursor: Option<String>,
}

impl ListQuery {
    pub(super) fn check(&self) -> Result<(), ApiError> {
        self.path.check()?;
        if self.cursor.as_deref().is_some_and(|cursor| !is_cursor(cursor)) {
            return Err(bad_cursor());
        }
        Ok(())
    }
}

pub(super) fn bad_cursor() -> ApiError {
    ApiError::invalid_member(
        "cursor",
        "cursor is not one that a list gave out: begin without it.",
    )
}

/// One file as the sandbox shows it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = File)]
pub(crate) struct FileShape {
    /// Absolute. In a name, bytes that are not UTF-8 are shown as U+FFFD; such a file cannot be named here.
    path: String,
    #[serde(rename = "type")]
    #[schema(value_type = FileTypeShape)]
    kind: FileType,
    /// In bytes.
    size: u64,
    /// Permission bits in octal, such as 0644.
    mode: String,
    #[schema(value_type = String, format = DateTime)]
    modified_at: Time,
}

#[derive(ToSchema)]
#[schema(as = FileType, rename_all = "snake_case")]
#[allow(dead_code)] // Describes `oac_link::files::FileType` in the OpenAPI document.
pub(crate) enum FileTypeShape {
    File,
    Directory,
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WrittenFile {
    file: FileShape,
    /// Of its bytes, as the sandbox wrote them.
    #[schema(value_type = String)]
    sha256: Digest,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FilePage {
    data: Vec<FileShape>,
    #[schema(required)]
    next: Option<String>,
}

pub(super) fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

/// `path` as records name it: from the root, and without the components that say nothing. `..` stays, since where it
/// leads is the sandbox's to say.
fn absolute(path: &str) -> String {
    let from = if path.starts_with('/') { "" } else { WORKSPACE };
    let named = path.split('/').filter(|part| !matches!(*part, "" | "."));
    named.fold(from.to_owned(), |path, part| path + "/" + part)
}

fn shape(path: String, entry: &FileEntry) -> FileShape {
    let millis = entry.modified_ms;
    let modified_at = Time::from_millis(millis)
        // Files may claim any time.
        .or_else(|| Time::from_millis(0).map(|epoch| epoch.plus_millis(millis.max(0))));
    FileShape {
        path,
        kind: entry.kind,
        size: entry.size,
        mode: octal(entry.mode),
        modified_at: modified_at.unwrap_or_else(|| unreachable!("1970 is a time")),
    }
}

impl WrittenFile {
    pub(super) fn new(path: &str, answer: PutFileAnswer) -> Self {
        Self {
            file: shape(absolute(path), &answer.file),
            sha256: answer.sha256,
        }
    }
}

impl FilePage {
    pub(super) fn new(path: &str, list: FileList) -> Self {
        let directory = absolute(path);
        Self {
            data: list
                .data
                .iter()
                .map(|entry| shape(format!("{directory}/{}", entry.name), entry))
                .collect(),
            next: list.next.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_from_the_root_without_components_that_say_nothing() {
        for (path, named) in [
            ("a", "/workspace/a"),
            (".", "/workspace"),
            ("./a//b/.", "/workspace/a/b"),
            ("/", ""),
            ("/a/", "/a"),
            ("../a", "/workspace/../a"),
            ("/a/../.b", "/a/../.b"),
        ] {
            assert_eq!(absolute(path), named, "{path}");
        }
    }
}
