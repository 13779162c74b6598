//! The `/v1` routes: Sessions, inputs, Turns.

use crate::http::router::Route;

/// The Session routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}
