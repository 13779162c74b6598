//! Label values: few, and the program's own texts.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::MatchedPath,
    http::{Method, StatusCode},
};
use oac_lifecycle::placement::Answer;

use crate::http::router;

/// Stands for a path that no route has.
const NO_ROUTE: &str = "none";

/// The name of each route's path, by the path as the router writes it.
static ROUTES: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let mut routes = HashMap::new();
    for route in router::table() {
        let name = route.name().1;
        for path in route.paths() {
            routes.insert(path.to_owned(), name.to_owned());
        }
    }
    routes
});

pub(super) fn route(matched: Option<&MatchedPath>) -> &'static str {
    matched
        .and_then(|path| ROUTES.get(path.as_str()))
        .map_or(NO_ROUTE, String::as_str)
}

pub(super) fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// The statuses Core answers by number; what else a program in a sandbox answers through its port, by class.
pub(super) fn status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        101 => "101",
        200 => "200",
        201 => "201",
        202 => "202",
        204 => "204",
        206 => "206",
        304 => "304",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        409 => "409",
        413 => "413",
        415 => "415",
        416 => "416",
        429 => "429",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        other => match other / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        },
    }
}

pub(crate) fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Node { .. } => "node",
        Answer::Direct => "direct",
        Answer::Preparing => "preparing",
        Answer::Unavailable => "unavailable",
        Answer::Reset => "reset",
        Answer::Closed => "closed",
    }
}
