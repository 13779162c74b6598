/// The seccomp profile of every Docker sandbox: the engine's default plus one rule (providers.md section 6). A release
/// carries it as `runtime/seccomp.json`; its origin is recorded in `assets/seccomp.source.json`.
pub const SECCOMP_PROFILE: &str = include_str!("../assets/seccomp.json");
