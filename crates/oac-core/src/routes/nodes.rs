use crate::http::router::Route;

pub(crate) fn routes() -> Vec<Route> {
    Vec::new()
}
