//! What a host asks Core before and after it became a node (core.md section 9, protocol.md section 13). These routes are
//! never opened by a Core key.

mod configuration;
mod enroll;
mod identity;

use crate::http::{
    auth::Credential,
    limits,
    router::{Body, Route},
};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::MACHINE_BODY_BYTES,
    };
    vec![
        Route::new(
            Credential::EnrollmentToken,
            json,
            utoipa_axum::routes!(enroll::enroll_node),
        )
        .refuses(&[409]),
        Route::new(
            Credential::EnrollmentTokenOrNode,
            Body::None,
            utoipa_axum::routes!(configuration::get_node_configuration),
        )
        .refuses(&[409]),
        Route::new(
            Credential::Node,
            Body::None,
            utoipa_axum::routes!(identity::get_node_identity),
        )
        .refuses(&[409]),
    ]
}
