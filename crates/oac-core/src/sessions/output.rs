//! A Turn's output as an event stream (sessions.md section 3, "Output").

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use oac_model::TurnId;
use oac_store::{OutputRow, OutputStream, Read, TurnRow};
use oac_wire::B64;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    frames::OutputStreamEvent,
    read::target_session,
    shapes::OutputEnd,
    stream::{self, Found, event},
};
use crate::{
    Core,
    http::{ApiError, auth::ProjectAuth, strict::StrictQuery, target::Target},
    limits,
};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputQuery {
    /// The number of the first byte wanted; 0 without it. `Last-Event-ID` prevails.
    #[param(nullable = false)]
    offset: Option<u64>,
}

/// Bytes of one stream; the event's id is the offset after them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutputRecord<'a> {
    offset: u64,
    #[schema(value_type = OutputStreamName)]
    stream: OutputStream,
    /// Base64, at most 32 KiB decoded.
    #[schema(value_type = String, format = Byte)]
    data: &'a str,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code)] // Describes `oac_store::OutputStream` in the OpenAPI document.
pub(crate) enum OutputStreamName {
    Stdout,
    Stderr,
}

/// Follows a Turn's output: `output` events as bytes are written, then one `end`. Following wakes no sandbox. Output is
/// kept seven days after the Turn's end; then `end` comes alone.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/turns/{turn_id}/output",
    params(
        ("session_id" = String, Path, format = Uuid),
        ("turn_id" = String, Path, format = Uuid),
        OutputQuery
    ),
    responses((
        status = 200,
        description = "One event after another",
        body = OutputStreamEvent,
        content_type = "text/event-stream"
    ))
)]
pub(crate) async fn follow_output(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(query): StrictQuery<OutputQuery>,
    target: Target,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let from = stream::resume(&headers, query.offset, "offset")?;
    let read = core.store.single();
    let session = target_session(&read, auth.project_id, &target).await?;
    let turn_id: TurnId = target.id("turn_id")?;
    // Subscribed before reading: what is stored from here on wakes the stream.
    let changes = core.turns.output.subscribe(turn_id);
    let turn = read
        .turn_of_session(session.id, turn_id)
        .await?
        .ok_or_else(ApiError::not_found)?;
    if turn.state.is_terminal() && from > turn.output_bytes {
        return Err(ApiError::invalid_member(
            "offset",
            "offset is beyond the end of the output: it has fewer bytes.",
        ));
    }
    let expired = expired(&read, &turn).await?;
    let place = stream::open(&core, session.id)?;
    Ok(stream::respond(
        core,
        changes,
        place,
        from,
        move |core, at| async move { next(&core, turn_id, at, expired).await },
    ))
}

/// The events from byte `at` on, as far as they are stored.
async fn next(core: &Core, turn: TurnId, at: u64, expired: bool) -> Result<(u64, Found), ApiError> {
    let read = core.store.single();
    // The Turn first: when it has ended, the rows read after it are all there are.
    let turn = read.turn(turn).await?.ok_or_else(ApiError::not_found)?;
    let rows = if at < turn.output_stored && !expired {
        rows(&read, &turn, at).await?
    } else {
        Vec::new()
    };
    let mut text = String::new();
    let mut after = at;
    for row in &rows {
        let skip = match usize::try_from(after.checked_sub(row.start_offset).unwrap_or(u64::MAX)) {
            Ok(skip) => skip,
            // Bytes before it are gone: none may be given out in their place (INV-S7).
            Err(_) => break,
        };
        let Some(bytes) = row.bytes.get(skip..).filter(|b| !b.is_empty()) else {
            break;
        };
        let offset = row.start_offset + skip as u64;
        after = offset + bytes.len() as u64;
        let data = B64(bytes.to_vec()).encode();
        event(
            &mut text,
            "output",
            Some(after),
            &OutputRecord {
                offset,
                stream: row.stream,
                data: &data,
            },
        );
    }
    if after > at && after < turn.output_stored {
        return Ok((after, Found::Some(text)));
    }
    if turn.state.is_terminal() {
        event(&mut text, "end", None, &end(&turn));
        return Ok((after, Found::Last(text)));
    }
    Ok((
        after,
        if text.is_empty() {
            Found::Nothing
        } else {
            Found::Some(text)
        },
    ))
}

/// Whether the Turn's output was kept its time. From then on its stream is its `end` alone, which still tells how many
/// bytes there were, whether or not pruning has come to it.
async fn expired(read: &Read, turn: &TurnRow) -> Result<bool, ApiError> {
    let age = i64::try_from(limits::OUTPUT_AGE.as_millis()).unwrap_or(i64::MAX);
    Ok(match turn.ended_at {
        Some(ended) => ended.plus_millis(age) <= read.database_time().await?,
        None => false,
    })
}

async fn rows(read: &Read, turn: &TurnRow, at: u64) -> Result<Vec<OutputRow>, ApiError> {
    Ok(read.output_from(turn.id, at, limits::READER_PAGE_ROWS).await?)
}

fn end(turn: &TurnRow) -> OutputEnd {
    OutputEnd {
        state: turn.state,
        exit_code: turn.exit_code,
        signal: turn.signal,
        reason: turn.reason.clone(),
        output_bytes: turn.output_bytes,
        output_truncated: turn.output_truncated,
    }
}
