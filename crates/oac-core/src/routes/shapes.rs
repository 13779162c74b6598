//! How shared values look in the OpenAPI document. They are read and written by `oac-model`'s own types; these mirrors
//! carry the schema alone.

use std::borrow::Cow;

use oac_model::DiagnosticCode;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// The one kind of sandbox backend an installation uses.
#[derive(ToSchema)]
#[schema(as = Provider, rename_all = "snake_case")]
#[expect(dead_code, reason = "schema alone")]
pub(crate) enum ProviderSchema {
    Docker,
    Microsandbox,
    E2b,
}

/// Why a backend, or the preparation of a generation, is not ready: exactly the codes of `oac-model`.
pub(crate) struct ReadinessCodeSchema;

impl PartialSchema for ReadinessCodeSchema {
    fn schema() -> RefOr<Schema> {
        let codes = DiagnosticCode::ALL.iter().map(|code| code.as_str());
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(codes))
            .description(Some(
                "Why a backend, or the preparation of a generation, is not ready.",
            ))
            .build()
            .into()
    }
}

impl ToSchema for ReadinessCodeSchema {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ReadinessCode")
    }
}

/// One sandbox's size.
#[derive(ToSchema)]
#[schema(as = Resources)]
#[expect(dead_code, reason = "schema alone")]
pub(crate) struct ResourcesSchema {
    #[schema(minimum = 1, maximum = 255)]
    cpus: u32,
    #[schema(minimum = 512, maximum = 1_048_576)]
    memory_mib: u64,
    /// microsandbox alone.
    #[schema(nullable = false)]
    root_disk_mib: Option<u64>,
    /// microsandbox without a workspace alone.
    #[schema(nullable = false)]
    environment_disk_mib: Option<u64>,
}

/// What a Runtime release consists of, as far as the provider uses it.
#[derive(ToSchema)]
#[schema(as = Artifacts)]
#[expect(dead_code, reason = "schema alone")]
pub(crate) struct ArtifactsSchema {
    /// Docker: `sha256:` and 64 hex digits.
    #[schema(nullable = false)]
    image_id: Option<String>,
    /// Docker: `sha256:` and 64 hex digits.
    #[schema(nullable = false)]
    image_manifest_digest: Option<String>,
    /// microsandbox: 64 hex digits.
    #[schema(nullable = false)]
    firmware_sha256: Option<String>,
    /// microsandbox: `oac-runtime@sha256:` and 64 hex digits.
    #[schema(nullable = false)]
    microsandbox_ref: Option<String>,
    /// microsandbox: 64 hex digits.
    #[schema(nullable = false)]
    runtime_sha256: Option<String>,
}

/// The image (and native files) that sandboxes run, named by its source commit.
#[derive(ToSchema)]
#[schema(as = RuntimeRelease)]
#[expect(dead_code, reason = "schema alone")]
pub(crate) struct RuntimeSchema {
    /// 40 hex digits.
    source_commit: String,
    #[schema(inline = false)]
    artifacts: ArtifactsSchema,
}

/// Shared workspace storage; microsandbox alone.
#[derive(ToSchema)]
#[schema(as = Workspace)]
#[expect(dead_code, reason = "schema alone")]
pub(crate) struct WorkspaceSchema {
    #[schema(format = Uuid)]
    store_id: String,
    mount: String,
    /// Always `nfs`.
    kind: String,
}

/// What a generation's sandboxes are made of.
#[derive(ToSchema)]
#[schema(as = Specification)]
#[expect(dead_code, reason = "schema alone")]
pub(crate) struct SpecificationSchema {
    #[schema(inline = false)]
    provider: ProviderSchema,
    #[schema(inline = false)]
    resources: ResourcesSchema,
    #[schema(nullable = false, inline = false)]
    runtime: Option<RuntimeSchema>,
    #[schema(nullable = false, inline = false)]
    workspace: Option<WorkspaceSchema>,
}
