//! The one table of routes: which credential each accepts, what its body may be, its handler and its OpenAPI operation.
//!
//! Routes of core.md section 4 that are not built yet are absent and answer 404: PATCH `deployment/suspension`, POST and
//! DELETE `deployment/reset`, `providers/{provider}/discovery`, PATCH and DELETE `nodes/{id}`, `nodes/{id}/labels`,
//! `cordon`, `uncordon`, `drain`, `allocations/{id}/discard`, `runtime-observations`, `/core/v1/console/session`,
//! `/core/v1/audit` and GET `sandbox-node/install/…`.

use std::sync::Arc;

use axum::{Router, middleware};
use utoipa_axum::router::UtoipaMethodRouter;

use super::{
    auth::Credential,
    gate::{self, Rule},
};
use crate::{Core, hub, link, routes, sessions};

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

/// One method on one path.
pub struct Route {
    pub credential: Credential,
    pub body: Body,
    pub(crate) api: UtoipaMethodRouter<Arc<Core>>,
}

impl Route {
    /// `api` is `utoipa_axum::routes!(handler)` of exactly one handler, whose `#[utoipa::path]` names method and path.
    pub fn new(credential: Credential, body: Body, api: UtoipaMethodRouter<Arc<Core>>) -> Self {
        Self {
            credential,
            body,
            api,
        }
    }

    /// The method in capitals and the path.
    pub fn name(&self) -> (&'static str, &str) {
        let mut found = self.api.1.paths.iter().flat_map(|(path, item)| {
            [
                ("GET", item.get.is_some()),
                ("POST", item.post.is_some()),
                ("PUT", item.put.is_some()),
                ("PATCH", item.patch.is_some()),
                ("DELETE", item.delete.is_some()),
            ]
            .into_iter()
            .filter_map(move |(method, present)| present.then_some((method, path.as_str())))
        });
        match (found.next(), found.next()) {
            (Some(name), None) => name,
            _ => panic!("a route is one method on one path"),
        }
    }
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
        let (_, path) = route.name();
        let path = path.to_owned();
        let rule = Rule {
            core: core.clone(),
            credential: route.credential,
            body: route.body,
        };
        let handler = route
            .api
            .2
            .route_layer(middleware::from_fn_with_state(rule, gate::check));
        router = router.route(&path, handler);
    }
    router
        .fallback(gate::no_route)
        .method_not_allowed_fallback(gate::no_method)
        .layer(middleware::from_fn_with_state(core.clone(), gate::owned))
        .layer(middleware::from_fn(gate::hide_details))
        .with_state(core.clone())
}
