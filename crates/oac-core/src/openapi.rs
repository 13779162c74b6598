//! The OpenAPI 3.1 document, generated from the route table.

use utoipa::openapi::{
    Components, ContentBuilder, Info, OpenApi, OpenApiBuilder, Paths, Ref, RefOr, ResponseBuilder,
    path::Operation,
    security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};

use crate::http::{
    auth::Credential,
    console,
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
    let mut header = ApiKeyValue::new(console::HEADER);
    header.description = Some(explain(Credential::Console).to_owned());
    let header = SecurityScheme::ApiKey(ApiKey::Header(header));
    components.add_security_scheme(Credential::Console.as_str(), header);
    let mut cookie = ApiKeyValue::new(console::COOKIE);
    cookie.description = Some("A console session; only together with the console's header.".to_owned());
    components.add_security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components))
        .build()
}

/// What a console session is called among the credentials.
const SESSION: &str = "console_session";

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
        Credential::Console => "1, from the console that this Core serves; another site's page is refused.",
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
        Credential::CoreKey => Some(vec![
            named(Credential::CoreKey),
            named(Credential::Console).add(SESSION, Vec::<String>::new()),
        ]),
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
