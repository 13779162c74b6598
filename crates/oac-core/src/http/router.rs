//! The one table of routes: which credential each accepts, what its body may be, its handler and its OpenAPI operation.
//!
//! Routes of core.md section 4 that are not built yet are absent and answer 404: `providers/{provider}/discovery`.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    middleware,
    routing::{MethodRouter, any},
};
use utoipa::openapi::{PathItem, path::Operation};
use utoipa_axum::router::UtoipaMethodRouter;

use super::{
    auth::Credential,
    gate::{self, Rule},
    rest,
};
use crate::{Core, hub, link, metrics, routes, sessions};

/// What a route accepts as body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// None; anything sent is 400.
    None,
    /// `application/json` of at most this many bytes, buffered before the handler runs.
    Json { limit: usize },
    /// Read by the handler, which bounds it.
    Stream,
}

/// One method on one path, or any method on the paths of one kind.
pub struct Route {
    pub credential: Credential,
    pub body: Body,
    pub(crate) api: UtoipaMethodRouter<Arc<Core>>,
    /// Where any method is answered, as the router writes paths.
    any: Option<&'static [&'static str]>,
    /// Statuses of the route's own refusals, beside those of the checks before its handler.
    refusals: &'static [u16],
}

/// Stands for every method in a route's name.
pub const ANY: &str = "ANY";

impl Route {
    /// `api` is `utoipa_axum::routes!(handler)` of exactly one handler, whose `#[utoipa::path]` names method and path.
    pub fn new(credential: Credential, body: Body, api: UtoipaMethodRouter<Arc<Core>>) -> Self {
        Self {
            credential,
            body,
            api,
            any: None,
            refusals: &[],
        }
    }

    /// Says with which statuses the handler refuses, beside 400 and what [`Self::refusals`] gives by itself.
    pub fn refuses(mut self, statuses: &'static [u16]) -> Self {
        self.refusals = statuses;
        self
    }

    /// Every status of a refusal of this route: the one place that the API's description takes them from. 500 is in no
    /// list: it is a defect. A route that passes somebody else's answers on may say anything, and lists none.
    pub fn refusals(&self) -> Vec<u16> {
        if self.any.is_some() {
            return Vec::new();
        }
        let (_, path) = self.name();
        let mut statuses = vec![400];
        if !matches!(self.credential, Credential::Open | Credential::Link) {
            statuses.push(401);
        }
        if path.contains('{') {
            statuses.push(404);
        }
        match self.body {
            Body::None => statuses.push(413),
            Body::Json { .. } => statuses.extend([413, 415]),
            Body::Stream => {}
        }
        if gate::is_api(path) {
            statuses.push(503);
        }
        statuses.extend(self.refusals);
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }

    /// Every method, known or not, on every one of `paths`, answered by `handler` and described as `api` describes it,
    /// one operation for each method there. Body and query belong to somebody else; the handler passes them on.
    pub fn any<H, T>(
        credential: Credential,
        paths: &'static [&'static str],
        api: UtoipaMethodRouter<Arc<Core>>,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Core>>,
        T: 'static,
    {
        let (schemas, mut described, _) = api;
        for item in described.paths.values_mut() {
            for (method, operation) in operations(item) {
                if let Some(id) = &mut operation.operation_id {
                    id.push_str(&format!("_{}", method.to_lowercase()));
                }
            }
        }
        Self {
            credential,
            body: Body::Stream,
            api: (schemas, described, any(handler)),
            any: Some(paths),
            refusals: &[],
        }
    }

    /// The paths as the router writes them.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self.any {
            Some(paths) => paths.to_vec(),
            None => vec![self.name().1],
        }
    }

    /// The method in capitals, or [`ANY`], and the path.
    pub fn name(&self) -> (&'static str, &str) {
        if self.any.is_some() {
            let mut paths = self.api.1.paths.keys();
            return match (paths.next(), paths.next()) {
                (Some(path), None) => (ANY, path),
                _ => panic!("a route is described as one path"),
            };
        }
        let mut found = self.api.1.paths.iter().flat_map(|(path, item)| {
            METHODS
                .into_iter()
                .filter(|(_, operation)| operation(item).is_some())
                .map(move |(method, _)| (method, path.as_str()))
        });
        match (found.next(), found.next()) {
            (Some(name), None) => name,
            _ => panic!("a route is one method on one path"),
        }
    }
}

type Find = fn(&PathItem) -> Option<&Operation>;

/// The methods that are described.
const METHODS: [(&str, Find); 7] = [
    ("GET", |item| item.get.as_ref()),
    ("POST", |item| item.post.as_ref()),
    ("PUT", |item| item.put.as_ref()),
    ("PATCH", |item| item.patch.as_ref()),
    ("DELETE", |item| item.delete.as_ref()),
    ("HEAD", |item| item.head.as_ref()),
    ("OPTIONS", |item| item.options.as_ref()),
];

/// What a path item describes, by method.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [
        ("GET", &mut item.get),
        ("POST", &mut item.post),
        ("PUT", &mut item.put),
        ("PATCH", &mut item.patch),
        ("DELETE", &mut item.delete),
        ("HEAD", &mut item.head),
        ("OPTIONS", &mut item.options),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Every route Core answers.
pub fn table() -> Vec<Route> {
    let mut table = routes::table();
    table.extend(hub::routes());
    table.extend(link::routes());
    table.extend(sessions::routes());
    table
}

/// The whole HTTP service.
pub fn router(core: &Arc<Core>) -> Router {
    let mut router = Router::new();
    for route in table() {
        let rule = Rule {
            core: core.clone(),
            credential: route.credential,
            body: route.body,
        };
        let check = middleware::from_fn_with_state(rule, gate::check);
        match route.any {
            None => {
                let path = route.name().1.to_owned();
                router = router.route(&path, route.api.2.route_layer(check));
            }
            Some(paths) => {
                let handler: MethodRouter<Arc<Core>> = route.api.2.layer(check);
                for path in paths {
                    router = router.route(path, handler.clone());
                }
            }
        }
    }
    router
        .fallback(gate::no_route)
        .method_not_allowed_fallback(gate::no_method)
        .layer(middleware::from_fn_with_state(core.clone(), gate::owned))
        .layer(middleware::from_fn(gate::hide_details))
        .layer(middleware::from_fn_with_state(core.clone(), metrics::count))
        .layer(middleware::from_fn(rest::read_rest))
        .with_state(core.clone())
}
