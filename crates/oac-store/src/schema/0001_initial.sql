-- The whole schema of core.md section 2 and sessions.md section 1. {uuid} and {bytes} are the dialect's types;
-- times are milliseconds since 1970 by the database's clock; states and JSON are text.

CREATE TABLE core_owner (
    id bigint PRIMARY KEY CHECK (id = 1),
    holder {uuid},
    epoch bigint NOT NULL,
    expires_at bigint NOT NULL
);

INSERT INTO core_owner (id, holder, epoch, expires_at) VALUES (1, NULL, 0, 0);

CREATE TABLE deployment (
    id bigint PRIMARY KEY CHECK (id = 1),
    installation_id {uuid} NOT NULL,
    provider text,
    generation bigint NOT NULL,
    configuration text NOT NULL,
    credential_sealed {bytes},
    metadata text NOT NULL,
    idle_seconds bigint NOT NULL,
    retention_seconds bigint NOT NULL,
    reset_clear text,
    reset_requested_at bigint,
    reset_deadline_at bigint,
    reset_forced_at bigint,
    reset_actor text,
    reset_source text
);

CREATE TABLE deployment_generations (
    generation bigint PRIMARY KEY,
    provider text NOT NULL,
    specification text NOT NULL,
    canonical text NOT NULL,
    digest {bytes} NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE core_keys (
    id {uuid} PRIMARY KEY,
    digest {bytes} NOT NULL UNIQUE,
    name text NOT NULL,
    created_at bigint NOT NULL,
    revoked_at bigint
);

CREATE TABLE console_sessions (
    id {uuid} PRIMARY KEY,
    token_digest {bytes} NOT NULL UNIQUE,
    core_key_id {uuid} NOT NULL REFERENCES core_keys (id),
    created_at bigint NOT NULL,
    last_used_at bigint NOT NULL
);

CREATE TABLE projects (
    id {uuid} PRIMARY KEY,
    name text NOT NULL,
    created_at bigint NOT NULL,
    deleted_at bigint
);

CREATE TABLE project_keys (
    id {uuid} PRIMARY KEY,
    project_id {uuid} NOT NULL REFERENCES projects (id),
    digest {bytes} NOT NULL UNIQUE,
    name text NOT NULL,
    created_at bigint NOT NULL,
    revoked_at bigint
);

CREATE INDEX project_keys_project ON project_keys (project_id);

CREATE TABLE enrollment_tokens (
    enrollment_id {uuid} PRIMARY KEY,
    token_digest {bytes} NOT NULL UNIQUE,
    installation_id {uuid} NOT NULL,
    limits text NOT NULL,
    max_active bigint NOT NULL,
    max_retained bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    consumed_at bigint,
    node_id {uuid}
);

CREATE TABLE nodes (
    id {uuid} PRIMARY KEY,
    installation_id {uuid} NOT NULL,
    name text NOT NULL,
    credential_digest {bytes} NOT NULL UNIQUE,
    provider text NOT NULL,
    backend_fingerprint {bytes} NOT NULL,
    enrolled_generation bigint NOT NULL,
    enrolled_digest {bytes} NOT NULL,
    core_url text NOT NULL,
    generation_management boolean,
    max_active bigint NOT NULL,
    max_retained bigint NOT NULL,
    limits text NOT NULL,
    labels text NOT NULL,
    serving_generation bigint,
    cordoned_at bigint,
    drain_requested_at bigint,
    drain_deadline_at bigint,
    drain_idle text,
    drain_then text,
    drain_retained text,
    drain_source text,
    connection_id {uuid},
    connection_epoch bigint,
    last_seen_at bigint,
    provider_ready boolean NOT NULL,
    diagnostic text,
    observed_at bigint,
    active_operations bigint,
    cpu_utilization double precision,
    effective_cpu_cores double precision,
    cpu_count bigint,
    total_memory_bytes bigint,
    available_memory_bytes bigint,
    available_disk_bytes bigint,
    execution_class {bytes},
    checkpoint_store {uuid},
    boot_id {uuid},
    enrollment_id {uuid} UNIQUE REFERENCES enrollment_tokens (enrollment_id),
    created_at bigint NOT NULL,
    retired_at bigint
);

CREATE INDEX nodes_present ON nodes (created_at, id) WHERE retired_at IS NULL;

CREATE INDEX nodes_pin ON nodes (serving_generation) WHERE retired_at IS NULL;

CREATE INDEX nodes_enrolled ON nodes (enrolled_generation) WHERE retired_at IS NULL;

CREATE TABLE node_generation_status (
    node_id {uuid} NOT NULL REFERENCES nodes (id),
    generation bigint NOT NULL,
    digest {bytes} NOT NULL,
    state text NOT NULL,
    diagnostic text,
    connection_id {uuid} NOT NULL,
    owner_epoch bigint NOT NULL,
    PRIMARY KEY (node_id, generation)
);

CREATE TABLE node_samples (
    node_id {uuid} NOT NULL REFERENCES nodes (id),
    observed_at bigint NOT NULL,
    cpu_utilization double precision,
    total_memory_bytes bigint,
    available_memory_bytes bigint,
    available_disk_bytes bigint,
    PRIMARY KEY (node_id, observed_at)
);

CREATE INDEX node_samples_age ON node_samples (observed_at);

CREATE TABLE sessions (
    id {uuid} PRIMARY KEY,
    project_id {uuid} NOT NULL REFERENCES projects (id),
    environment_id {uuid} NOT NULL UNIQUE,
    name text,
    state text NOT NULL,
    reason text,
    network text NOT NULL,
    required_labels text NOT NULL,
    metadata text NOT NULL,
    failed_creates bigint NOT NULL,
    last_turn bigint NOT NULL,
    last_event bigint NOT NULL,
    created_at bigint NOT NULL,
    last_activity_at bigint NOT NULL,
    archived_at bigint
);

CREATE INDEX sessions_project ON sessions (project_id, created_at, id);

CREATE TABLE idempotency_records (
    project_id {uuid} NOT NULL REFERENCES projects (id),
    scope text NOT NULL,
    key text NOT NULL,
    body_digest {bytes} NOT NULL,
    response text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (project_id, scope, key)
);

CREATE INDEX idempotency_records_age ON idempotency_records (created_at);

CREATE TABLE placements (
    id {uuid} PRIMARY KEY,
    environment_id {uuid} NOT NULL,
    node_id {uuid} REFERENCES nodes (id),
    generation bigint NOT NULL,
    created_at bigint NOT NULL,
    released_at bigint
);

CREATE UNIQUE INDEX placements_one_unreleased ON placements (environment_id) WHERE released_at IS NULL;

CREATE INDEX placements_node ON placements (node_id) WHERE released_at IS NULL;

CREATE INDEX placements_generation ON placements (generation) WHERE released_at IS NULL;

CREATE TABLE allocations (
    id {uuid} PRIMARY KEY,
    placement_id {uuid} NOT NULL UNIQUE REFERENCES placements (id),
    tenant_id {uuid} NOT NULL,
    session_id {uuid} NOT NULL REFERENCES sessions (id),
    environment_id {uuid} NOT NULL,
    node_id {uuid} REFERENCES nodes (id),
    deployment_generation bigint NOT NULL,
    state text NOT NULL,
    state_changed_at bigint NOT NULL,
    compute_phase text NOT NULL,
    compute_phase_changed_at bigint NOT NULL,
    initialization text NOT NULL,
    link_generation bigint NOT NULL,
    link_digest {bytes},
    provider_id text,
    bootstrap_complete boolean NOT NULL,
    create_settled boolean NOT NULL,
    restore_failures bigint NOT NULL,
    cause text,
    diagnostic text,
    sample text,
    sampled_at bigint,
    revision bigint NOT NULL,
    created_at bigint NOT NULL,
    released_at bigint
);

CREATE UNIQUE INDEX allocations_one_unreleased ON allocations (environment_id) WHERE released_at IS NULL;

CREATE INDEX allocations_work ON allocations (state, id) WHERE released_at IS NULL;

CREATE INDEX allocations_open ON allocations (created_at, id) WHERE released_at IS NULL;

CREATE INDEX allocations_node ON allocations (node_id, id) WHERE released_at IS NULL;

CREATE INDEX allocations_generation ON allocations (deployment_generation) WHERE released_at IS NULL;

CREATE INDEX allocations_session ON allocations (session_id, created_at);

CREATE TABLE computes (
    allocation_id {uuid} NOT NULL REFERENCES allocations (id),
    generation bigint NOT NULL,
    node_id {uuid} REFERENCES nodes (id),
    name text NOT NULL,
    native_id text,
    restored_from {uuid},
    failed_at bigint,
    ended_at bigint,
    PRIMARY KEY (allocation_id, generation)
);

CREATE INDEX computes_node ON computes (node_id) WHERE ended_at IS NULL;

CREATE TABLE retained_checkpoints (
    operation_id {uuid} PRIMARY KEY,
    allocation_id {uuid} NOT NULL REFERENCES allocations (id),
    source_generation bigint NOT NULL,
    source_name text NOT NULL,
    source_id text NOT NULL,
    store_id {uuid} NOT NULL,
    execution_class {bytes} NOT NULL,
    digest {bytes} NOT NULL,
    size_bytes bigint NOT NULL,
    data {bytes} NOT NULL,
    retention_deadline bigint NOT NULL,
    consumed_at bigint,
    deleted_at bigint
);

CREATE UNIQUE INDEX retained_checkpoints_one ON retained_checkpoints (allocation_id) WHERE deleted_at IS NULL;

CREATE TABLE operations (
    id {uuid} PRIMARY KEY,
    allocation_id {uuid} NOT NULL REFERENCES allocations (id),
    node_id {uuid} REFERENCES nodes (id),
    kind text NOT NULL,
    argument text,
    state text NOT NULL,
    owner_epoch bigint NOT NULL,
    connection_id {uuid},
    outcome text,
    created_at bigint NOT NULL,
    sent_at bigint,
    ended_at bigint
);

CREATE UNIQUE INDEX operations_one_open ON operations (allocation_id) WHERE state IN ('intent', 'sent');

CREATE INDEX operations_allocation ON operations (allocation_id, created_at);

CREATE INDEX operations_unsettled ON operations (state, id) WHERE state IN ('intent', 'sent', 'unconfirmed');

CREATE TABLE direct_receipts (
    allocation_id {uuid} PRIMARY KEY REFERENCES allocations (id),
    tenant_id {uuid} NOT NULL,
    environment_id {uuid} NOT NULL,
    format bigint NOT NULL,
    deployment_generation bigint NOT NULL,
    phase text NOT NULL,
    compute_generation bigint NOT NULL,
    bootstrap_complete boolean NOT NULL,
    operation_id {uuid},
    retained text,
    outcome text,
    posted_at bigint,
    native_id text,
    sealed_token {bytes}
);

CREATE TABLE audit_log (
    id {uuid} PRIMARY KEY,
    at bigint NOT NULL,
    actor text NOT NULL,
    source text NOT NULL,
    resource_type text NOT NULL,
    resource_id text NOT NULL,
    action text NOT NULL,
    details text NOT NULL
);

CREATE INDEX audit_log_time ON audit_log (at, id);

CREATE TABLE inputs (
    id {uuid} PRIMARY KEY,
    session_id {uuid} NOT NULL REFERENCES sessions (id),
    args text NOT NULL,
    cwd text NOT NULL,
    env text NOT NULL,
    stdin {bytes},
    timeout_seconds bigint NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE turns (
    id {uuid} PRIMARY KEY,
    session_id {uuid} NOT NULL REFERENCES sessions (id),
    sequence bigint NOT NULL,
    input_id {uuid} NOT NULL UNIQUE REFERENCES inputs (id),
    state text NOT NULL,
    allocation_id {uuid} REFERENCES allocations (id),
    dispatch text NOT NULL,
    instance_id {uuid},
    output_stored bigint NOT NULL,
    output_bytes bigint NOT NULL,
    output_truncated boolean NOT NULL,
    acked bigint NOT NULL,
    cancel_requested_at bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    exit_code bigint,
    signal bigint,
    reason text,
    UNIQUE (session_id, sequence)
);

CREATE UNIQUE INDEX turns_one_running ON turns (session_id) WHERE state = 'running';

CREATE INDEX turns_unfinished ON turns (session_id, sequence) WHERE state IN ('queued', 'waiting', 'running');

CREATE INDEX turns_ended ON turns (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE turn_output (
    turn_id {uuid} NOT NULL REFERENCES turns (id),
    start_offset bigint NOT NULL,
    stream text NOT NULL,
    bytes {bytes} NOT NULL,
    PRIMARY KEY (turn_id, start_offset)
);

CREATE TABLE session_events (
    session_id {uuid} NOT NULL REFERENCES sessions (id),
    sequence bigint NOT NULL,
    kind text NOT NULL,
    data text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (session_id, sequence)
);

CREATE TABLE file_operations (
    id {uuid} PRIMARY KEY,
    session_id {uuid} NOT NULL REFERENCES sessions (id),
    kind text NOT NULL,
    state text NOT NULL,
    created_at bigint NOT NULL
);

CREATE INDEX file_operations_session ON file_operations (session_id);
