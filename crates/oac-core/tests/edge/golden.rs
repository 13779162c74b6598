//! The golden tables: `golden/routes.txt` names every route with the one class of credential it accepts,
//! `golden/bodies.json` gives a whole valid body for every route that takes one. A new route is added to both.

use std::collections::BTreeMap;

use oac_core::http::{
    auth::Credential,
    router::{self, Body},
};
use serde::Deserialize;
use serde_json::Value;

const ROUTES: &str = include_str!("golden/routes.txt");
const BODIES: &str = include_str!("golden/bodies.json");

/// One line of `routes.txt`: method, path, credential class and, where the route needs one, a query. `{node}` in a query
/// stands for the id of the node whose credential is tried.
#[derive(Debug, Clone)]
pub(crate) struct GoldenRoute {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) credential: String,
    pub(crate) query: String,
}

impl GoldenRoute {
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The path with an id that names nothing in place of each variable, and the query for `node`.
    pub(crate) fn target(&self, node: &str) -> String {
        let mut path = String::new();
        for segment in self.path.split('/').skip(1) {
            path.push('/');
            if segment.starts_with('{') {
                path.push_str(NOBODY);
            } else {
                path.push_str(segment);
            }
        }
        path + &self.query.replace("{node}", node)
    }
}

/// What the console's own requests carry beside a credential.
pub(crate) const CONSOLE_HEADER: (&str, &str) = ("x-oac-console", "1");

/// An id that names nothing.
pub(crate) const NOBODY: &str = "99999999-9999-4999-8999-999999999999";

/// What is known of one body.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoldenBody {
    /// A body with every member the route knows, as far as they go together.
    pub(crate) body: Value,
    /// Dotted paths of members that may not be left out.
    pub(crate) required: Vec<String>,
    /// Dotted paths of objects whose member names are free.
    #[serde(default)]
    pub(crate) maps: Vec<String>,
    /// Dotted path of a text and the byte length from which on it is refused.
    #[serde(default)]
    pub(crate) too_long: BTreeMap<String, usize>,
    /// The table's own limit, when it is not the usual one.
    pub(crate) limit: Option<usize>,
}

pub(crate) fn routes() -> Vec<GoldenRoute> {
    ROUTES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            GoldenRoute {
                method: words.next().unwrap(),
                path: words.next().unwrap(),
                credential: words.next().unwrap(),
                query: words.next().unwrap_or_default(),
            }
        })
        .collect()
}

pub(crate) fn bodies() -> BTreeMap<String, GoldenBody> {
    serde_json::from_str(BODIES).unwrap()
}

#[test]
fn the_golden_list_names_every_route_and_the_credential_it_accepts() {
    let golden: Vec<String> = {
        let mut lines: Vec<_> = routes()
            .iter()
            .map(|r| format!("{} {}", r.name(), r.credential))
            .collect();
        lines.sort();
        lines
    };
    let mut built: Vec<String> = router::table()
        .iter()
        .map(|route| {
            let (method, path) = route.name();
            format!("{method} {path} {}", route.credential.as_str())
        })
        .collect();
    built.sort();
    assert_eq!(
        built, golden,
        "add the route to tests/edge/golden/routes.txt with its class"
    );
}

#[test]
fn the_golden_list_has_a_body_for_every_route_that_takes_one() {
    let mut wanted: Vec<String> = router::table()
        .iter()
        .filter(|route| matches!(route.body, Body::Json { .. }))
        .map(|route| {
            let (method, path) = route.name();
            format!("{method} {path}")
        })
        .collect();
    wanted.sort();
    let golden: Vec<String> = bodies().into_keys().collect();
    assert_eq!(
        wanted, golden,
        "add the route's body to tests/edge/golden/bodies.json"
    );
}

#[test]
fn only_these_routes_are_open_to_anyone() {
    let open: Vec<String> = router::table()
        .iter()
        .filter(|route| route.credential == Credential::Open)
        .map(|route| route.name().1.to_owned())
        .collect();
    let (files, others): (Vec<_>, Vec<_>) = open
        .iter()
        .partition(|path| path.starts_with("/api/v1/sandbox-node/install/"));
    assert_eq!(others, ["/healthz", "/readyz", "/openapi.json"]);
    assert_eq!(files.len(), 7, "{files:?}");
}
