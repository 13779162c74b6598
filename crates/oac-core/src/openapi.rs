//! The OpenAPI 3.1 document, generated from the route table.

use utoipa::openapi::{
    Components, ContentBuilder, Info, OpenApi, OpenApiBuilder, Paths, Ref, RefOr, ResponseBuilder,
    path::Operation,
    security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};

use crate::http::{
    auth::Credential,
    error::{Envelope, EnvelopeError, ErrorType},
    router,
};

/// The document served at `/openapi.json` and checked in as `docs/openapi.json`.
pub fn document() -> OpenApi {
    let mut info = Info::new("oac Core", env!("CARGO_PKG_VERSION"));
    info.description =
        Some("The API of Core: Sessions, Projects, the sandbox deployment and its nodes.".to_owned());
    let mut components = Components::new();
    let mut schemas = vec![
        (Envelope::name().into_owned(), Envelope::schema()),
        (EnvelopeError::name().into_owned(), EnvelopeError::schema()),
        (ErrorType::name().into_owned(), ErrorType::schema()),
    ];
    let mut paths = Paths::new();
    for route in router::table() {
        let (credential, refusals) = (route.credential, route.refusals());
        let (route_schemas, route_paths, _) = route.api;
        schemas.extend(route_schemas);
        for (path, mut item) in route_paths.paths {
            for (_, operation) in router::operations(&mut item) {
                describe(operation, credential, &refusals);
            }
            match paths.paths.get_mut(&path) {
                Some(present) => present.merge_operations(item),
                None => {
                    paths.paths.insert(path, item);
                }
            }
        }
    }
    for (name, schema) in schemas {
        components.schemas.insert(name, schema);
    }
    let refusal = ResponseBuilder::new()
        .description("Refused; see error.code")
        .content(
            "application/json",
            ContentBuilder::new()
                .schema(Some(Ref::from_schema_name(Envelope::name())))
                .build(),
        )
        .build();
    components.responses.insert(REFUSAL.to_owned(), RefOr::T(refusal));
    for class in CLASSES {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some(explain(class).to_owned());
        components.add_security_scheme(class.as_str(), SecurityScheme::Http(scheme));
    }
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components))
        .build()
}

/// The answer of every refusal, whatever its status.
const REFUSAL: &str = "Refusal";

const CLASSES: [Credential; 5] = [
    Credential::CoreKey,
    Credential::ProjectKey,
    Credential::EnrollmentToken,
    Credential::Node,
    Credential::Link,
];

fn explain(class: Credential) -> &'static str {
    match class {
        Credential::CoreKey => "A Core key, oac_core_ and 64 hex digits.",
        Credential::ProjectKey => "A Project API key, oac_key_ and 64 hex digits.",
        Credential::EnrollmentToken => "An enrollment token, 64 hex digits; valid for one hour, once.",
        Credential::Node => "A node's credential.",
        Credential::Link => "A sandbox's link credential.",
        Credential::Open | Credential::EnrollmentTokenOrNode => "",
    }
}

/// What the table knows of an operation and its handler does not repeat: credential and refusals.
fn describe(operation: &mut Operation, credential: Credential, refusals: &[u16]) {
    let named = |class: Credential| SecurityRequirement::new(class.as_str(), Vec::<String>::new());
    operation.security = match credential {
        Credential::Open => None,
        Credential::EnrollmentTokenOrNode => {
            Some(vec![named(Credential::EnrollmentToken), named(Credential::Node)])
        }
        class => Some(vec![named(class)]),
    };
    let mut statuses: Vec<String> = refusals.iter().map(u16::to_string).collect();
    if statuses.is_empty() {
        statuses.push("default".to_owned());
    }
    for status in statuses {
        let described = operation.responses.responses.entry(status);
        described.or_insert_with(|| RefOr::Ref(Ref::from_response_name(REFUSAL)));
    }
}
