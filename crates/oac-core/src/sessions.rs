//! The `/v1` routes: Sessions, their inputs and Turns, output, events, files and ports; and their archive under
//! `/core/v1` (sessions.md sections 2 to 4).

pub mod access;
pub mod admission;
mod archive;
mod body;
mod create;
mod events;
mod files;
mod frames;
mod idempotency;
mod inputs;
mod output;
mod ports;
mod reach;
mod read;
mod shapes;
mod stream;
mod turns;
mod view;

use utoipa_axum::routes;

pub(crate) use archive::archive;
pub use idempotency::Keyed;

use crate::{
    http::{
        auth::Credential::{CoreKey, ProjectKey},
        limits::JSON_BODY_BYTES,
        router::{Body, Route},
    },
    limits,
};

/// The Session routes.
pub fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: JSON_BODY_BYTES,
    };
    vec![
        Route::new(ProjectKey, json, routes!(create::create_session)).refuses(&[409]),
        Route::new(ProjectKey, Body::None, routes!(read::list_sessions)),
        Route::new(ProjectKey, Body::None, routes!(read::show_session)),
        Route::new(ProjectKey, Body::None, routes!(archive::delete_session)),
        Route::new(
            ProjectKey,
            Body::Json {
                limit: limits::INPUT_BODY_BYTES,
            },
            routes!(inputs::submit_input),
        )
        .refuses(&[409, 429]),
        Route::new(ProjectKey, Body::None, routes!(turns::list_turns)),
        Route::new(ProjectKey, Body::None, routes!(turns::show_turn)),
        Route::new(ProjectKey, json, routes!(turns::cancel_turn)),
        Route::new(ProjectKey, Body::None, routes!(output::follow_output)).refuses(&[429]),
        Route::new(ProjectKey, Body::None, routes!(events::follow_events)).refuses(&[429]),
        Route::new(ProjectKey, Body::None, routes!(files::read_file)).refuses(&[403, 409, 416, 429, 502]),
        Route::new(ProjectKey, Body::Stream, routes!(files::write_file))
            .refuses(&[403, 408, 409, 411, 412, 413, 429, 502, 507]),
        Route::new(ProjectKey, Body::None, routes!(files::delete_file)).refuses(&[403, 409, 429, 502]),
        Route::new(ProjectKey, Body::None, routes!(files::list_files)).refuses(&[403, 409, 429, 502]),
        Route::any(
            ProjectKey,
            &ports::PATHS,
            routes!(ports::forward_port),
            ports::forward_port,
        ),
        Route::new(CoreKey, Body::None, routes!(archive::show_archive)),
        Route::new(CoreKey, json, routes!(archive::archive_session)).refuses(&[409]),
    ]
}
