//! What a caller is told when a file operation failed. The words are Core's: a sandbox chooses a code at most.

use axum::http::StatusCode;
use oac_link::{
    CallError, LinkError,
    files::{FileError, FileRefusal},
    service::codes,
};

use super::shapes::bad_cursor;
use crate::http::{ApiError, error::Chain};

/// A failure after which nothing was changed in the sandbox, or that of a request that changes nothing.
pub(super) fn failed(error: FileError) -> ApiError {
    match error {
        FileError::Refused(refusal) => refused(refusal),
        FileError::Range { size } => ApiError::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            Some("file_range_invalid"),
            format!("The range lies beyond the file's {size} bytes: ask for a part that exists."),
        )
        .with_header("content-range", format!("bytes */{size}")),
        FileError::Call(CallError::Answered { status, code }) if code == codes::BUSY => {
            tracing::debug!(%status, "a sandbox takes no file operation now");
            ApiError::sandbox_unreachable()
        }
        FileError::Call(CallError::Link(error @ (LinkError::Closed | LinkError::TooManyStreams))) => {
            tracing::debug!(error = %Chain(&error), "a file operation was not sent");
            ApiError::sandbox_unreachable()
        }
        FileError::Call(CallError::Link(error @ LinkError::Broken(_))) => {
            tracing::debug!(error = %Chain(&error), "a file operation broke off");
            ApiError::sandbox_unreachable()
        }
        FileError::Call(CallError::Answered { status, code }) => {
            tracing::info!(%status, code = code.get(..64).unwrap_or(&code), "a sandbox answered a file operation unexpectedly");
            invalid_answer()
        }
        FileError::Call(CallError::Malformed) => {
            tracing::info!("a sandbox's answer to a file operation is malformed");
            invalid_answer()
        }
    }
}

fn invalid_answer() -> ApiError {
    ApiError::new(
        StatusCode::BAD_GATEWAY,
        Some("sandbox_answer_invalid"),
        "The sandbox gave no answer that can be used: its Runtime may be too old or damaged; try a new Session.",
    )
}

/// The sandbox may have done what it was asked, and did not say so.
pub(super) fn unknown_outcome() -> ApiError {
    ApiError::new(
        StatusCode::BAD_GATEWAY,
        Some("file_outcome_unknown"),
        "The sandbox was lost before it answered: the file may or may not have been changed; read it, then decide.",
    )
}

/// The upload ended early, so the sandbox changed nothing.
pub(super) fn broken_off() -> ApiError {
    ApiError::unavailable(
        "sandbox_unreachable",
        "The sandbox was lost during the upload, and the file was not changed: try again.",
    )
}

/// The client sent nothing for too long, or less than it announced.
pub(super) fn incomplete() -> ApiError {
    ApiError::new(
        StatusCode::REQUEST_TIMEOUT,
        Some("invalid_request"),
        "The body did not arrive whole and in time, and the file was not changed: send it again.",
    )
}

fn refused(refusal: FileRefusal) -> ApiError {
    let words = match refusal {
        FileRefusal::NotFound => "There is nothing under that path: check it.",
        FileRefusal::BadPath => "The path cannot name a file: correct it.",
        FileRefusal::BadCursor => return bad_cursor(),
        FileRefusal::NameTooLong => {
            "A name of the path is longer than the sandbox's file system allows: shorten it."
        }
        FileRefusal::IsDirectory => "The path is a directory: name a file, or list it.",
        FileRefusal::NotDirectory => "The path, or a part that leads to it, is not a directory: check it.",
        FileRefusal::NotRegular => {
            "The path is not a regular file: use a command for devices, FIFOs and kernel files."
        }
        FileRefusal::NotEmpty => "The directory is not empty: remove what is in it first.",
        FileRefusal::LinkLoop => "The path leads through too many symbolic links: name the file itself.",
        FileRefusal::Busy => "The file is in use in a way that forbids this: try again when it is not.",
        FileRefusal::AccessDenied => {
            "The sandbox's user may not do that: change the permissions, or choose another path."
        }
        FileRefusal::ReadOnly => "The path lies on a read-only file system: write below /workspace.",
        FileRefusal::Exists => "The file exists already: choose another path, or leave out If-None-Match.",
        FileRefusal::TooLarge => {
            "The file is larger than the sandbox's file system or the limit allows: send less."
        }
        FileRefusal::DigestMismatch => {
            "The bytes that arrived have another digest than Content-Digest: send them again."
        }
        FileRefusal::NoSpace => "The sandbox's file system is full: remove something, then try again.",
        FileRefusal::Failed => "The sandbox's disk failed the operation: see the sandbox's log.",
    };
    let code = match refusal {
        FileRefusal::NotFound => "not_found_error",
        other => other.as_str(),
    };
    let status = match refusal {
        // Core itself is well.
        FileRefusal::Failed => StatusCode::BAD_GATEWAY,
        other => other.status(),
    };
    let error = ApiError::new(status, Some(code), words);
    match refusal {
        FileRefusal::BadPath | FileRefusal::NameTooLong => error.with_param("path"),
        _ => error,
    }
}
