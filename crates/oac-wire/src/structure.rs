//! The structure of requests and responses: member sets, JSON types and nulls at every depth, without values.
//! It decides, after a failed typed decode, whether a frame closes the connection or only its operation is invalid.

use serde_json::Value;

pub(crate) enum Shape {
    Text,
    Integer,
    Number,
    Bool,
    /// An opaque object; what it holds is nobody's business here.
    Opaque,
    Nullable(&'static Shape),
    List(&'static Shape),
    Object(&'static [Member]),
}

pub(crate) struct Member {
    name: &'static str,
    shape: &'static Shape,
    required: bool,
}

const fn must(name: &'static str, shape: &'static Shape) -> Member {
    Member {
        name,
        shape,
        required: true,
    }
}

const fn may(name: &'static str, shape: &'static Shape) -> Member {
    Member {
        name,
        shape,
        required: false,
    }
}

pub(crate) fn conforms(value: &Value, shape: &Shape) -> bool {
    match shape {
        Shape::Text => value.is_string(),
        Shape::Integer => value.is_i64(),
        Shape::Number => value.is_number(),
        Shape::Bool => value.is_boolean(),
        Shape::Opaque => value.is_object(),
        Shape::Nullable(inner) => value.is_null() || conforms(value, inner),
        Shape::List(item) => value
            .as_array()
            .is_some_and(|items| items.iter().all(|i| conforms(i, item))),
        Shape::Object(members) => value.as_object().is_some_and(|object| {
            object.keys().all(|key| members.iter().any(|m| m.name == key))
                && members.iter().all(|m| match object.get(m.name) {
                    Some(value) => conforms(value, m.shape),
                    None => !m.required,
                })
        }),
    }
}

use Shape::{Bool, Integer, List, Nullable, Number, Object, Opaque, Text};

const NULLABLE_TEXT: Shape = Nullable(&Text);
const NULLABLE_INTEGER: Shape = Nullable(&Integer);
const NULLABLE_NUMBER: Shape = Nullable(&Number);

const REFERENCE: Shape = Object(&[
    must("tenant_id", &Text),
    must("environment_id", &Text),
    must("allocation_id", &Text),
]);

const LINK: Shape = Object(&[
    must("version", &Integer),
    must("link_url", &Text),
    must("credential", &Text),
    must(
        "resource",
        &Object(&[
            must("tenant_id", &Text),
            must("environment_id", &Text),
            must("kind", &Text),
            must("id", &Text),
            must("generation", &Integer),
        ]),
    ),
]);

const WORKSPACE: Shape = Nullable(&Object(&[
    must("store_id", &Text),
    must("object_id", &Text),
    must("mount", &Text),
]));

const BOOTSTRAP: Shape = Object(&[
    must("reference", &REFERENCE),
    must("session_id", &Text),
    must("network_access", &Text),
    must("allowed_domains", &List(&Text)),
    must("link", &LINK),
    must("workspace", &WORKSPACE),
]);

const COMMAND: Shape = Object(&[
    must("args", &List(&Text)),
    must("directory", &Text),
    may("stdin", &Text),
]);

const RETAINED: Shape = Object(&[
    must("operation_id", &Text),
    must("source_generation", &Integer),
    must("source_name", &Text),
    must("source_id", &Text),
    must("store_id", &Text),
    must("execution_class", &Text),
    must("digest", &Text),
    must("size_bytes", &Integer),
    must("data", &Opaque),
]);
const NULLABLE_RETAINED: Shape = Nullable(&RETAINED);

const COMPUTE: Shape = Object(&[
    must("generation", &Integer),
    must("name", &Text),
    must("id", &NULLABLE_TEXT),
    must("restored_from", &NULLABLE_RETAINED),
]);

const SUSPEND: Shape = Object(&[
    must("reference", &REFERENCE),
    must("operation_id", &Text),
    must("source", &COMPUTE),
    must("retained", &NULLABLE_RETAINED),
    must("reconcile_only", &Bool),
]);

const RESUME: Shape = Object(&[
    must("reference", &REFERENCE),
    must("operation_id", &Text),
    must("retained", &RETAINED),
    must("target", &COMPUTE),
    must("reconcile_only", &Bool),
    must("workspace", &WORKSPACE),
]);

const OBSERVATION: Shape = Object(&[
    must("mode", &Text),
    must("session_id", &Text),
    must(
        "instance",
        &Object(&[
            must("provider_key", &Text),
            must("compute_phase", &Text),
            must("compute", &Nullable(&COMPUTE)),
        ]),
    ),
]);

/// A `request` frame without `version` and `type`.
pub(crate) const REQUEST: Shape = Object(&[
    must("id", &Text),
    must("sequence", &Integer),
    must("connection_id", &Text),
    must("owner_epoch", &Integer),
    must("deployment_generation", &Integer),
    must("operation", &Text),
    must("timeout_ms", &Integer),
    must("reference", &REFERENCE),
    may("bootstrap", &BOOTSTRAP),
    may("command", &COMMAND),
    may("observation", &OBSERVATION),
    may("generation", &Integer),
    may("compute", &COMPUTE),
    may("suspend", &SUSPEND),
    may("resume", &RESUME),
    may("retained", &RETAINED),
]);

const INFO: Shape = Object(&[
    must("reference", &REFERENCE),
    must("provider_id", &Text),
    must("state", &Text),
    must("bootstrap_complete", &Bool),
    must("create_settled", &Bool),
    must("compute_lost", &Bool),
]);

const COMMAND_RESULT: Shape = Object(&[
    must("stdout", &Text),
    must("stderr", &Text),
    must("stdout_truncated", &Bool),
    must("stderr_truncated", &Bool),
    must("exit_code", &Integer),
]);

const SAMPLE: Shape = Object(&[
    must("observed_at", &Text),
    must("started_at", &NULLABLE_TEXT),
    must("cpu_usage_seconds_total", &NULLABLE_NUMBER),
    must("cpu_capacity_cores", &NULLABLE_NUMBER),
    may("cpu_utilization_ratio", &Number),
    must("memory_usage_bytes", &NULLABLE_INTEGER),
    must("memory_limit_bytes", &NULLABLE_INTEGER),
    may("disk_usage_bytes", &Integer),
    may("disk_limit_bytes", &Integer),
]);

const STATE: Shape = Object(&[
    must("compute", &COMPUTE),
    must("status", &Text),
    must("bootstrap_complete", &Bool),
    must("retained", &NULLABLE_RETAINED),
    must("resources_released", &Bool),
    must("suspend_settled", &Bool),
]);

/// A `response` frame without `version` and `type`.
pub(crate) const RESPONSE: Shape = Object(&[
    must("id", &Text),
    must("connection_id", &Text),
    may("error_code", &Text),
    may("info", &INFO),
    may("command", &COMMAND_RESULT),
    may("sample", &SAMPLE),
    may("compute", &COMPUTE),
    may("state", &STATE),
    may(
        "unsupported",
        &Object(&[must("operation", &Text), must("reason", &Text)]),
    ),
]);
