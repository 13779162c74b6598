//! The bodies of the Session routes and their bounds (sessions.md sections 2 and 3).

use std::collections::BTreeMap;

use oac_lifecycle::placement::are_labels;
use oac_model::Network;
use oac_wire::B64;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{
    DEFAULT_TIMEOUT_SECONDS, INPUT_ARGS, INPUT_ARGS_BYTES, INPUT_ENV_BYTES, INPUT_ENV_PAIRS,
    INPUT_STDIN_BYTES, METADATA_BYTES, METADATA_PAIRS, PATH_BYTES, TIMEOUT_SECONDS,
};

/// A member that is well formed and still not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct BadMember {
    pub param: &'static str,
    pub message: &'static str,
}

type Checked = Result<(), BadMember>;

fn require(holds: bool, param: &'static str, message: &'static str) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(BadMember { param, message })
    }
}

/// POST `/v1/sessions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub name: Option<String>,
    /// What the sandbox may reach; public when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = super::shapes::NetworkShape)]
    pub network: Option<Network>,
    /// Label values that the node must carry.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

impl NewSession {
    pub(crate) fn check(&self) -> Checked {
        if let Some(name) = &self.name {
            let usable = crate::http::check_name("name", name).is_ok();
            require(
                usable,
                "name",
                "name is 1 to 128 bytes, not blank, without NUL, CR or LF",
            )?;
        }
        if let Some(network) = &self.network {
            network.validate().map_err(|_| BadMember {
                param: "network",
                message: "network.allowed_domains holds at most 64 host names and belongs to access \"restricted\" alone",
            })?;
        }
        require(
            are_labels(&self.node_labels),
            "node_labels",
            "node_labels holds at most 32 pairs; a key is [a-z0-9][a-z0-9._/-]{0,62}, a value at most 63 bytes",
        )?;
        require(
            self.metadata.len() <= METADATA_PAIRS
                && self
                    .metadata
                    .iter()
                    .flat_map(|(k, v)| [k, v])
                    .all(|s| s.len() <= METADATA_BYTES && !s.contains('\0')),
            "metadata",
            "metadata holds at most 16 pairs of strings of at most 512 bytes",
        )
    }
}

/// POST `/v1/sessions/{s}/inputs`: one command, executed directly, without a shell.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInput {
    /// Program and arguments.
    #[schema(min_items = 1, max_items = 1024)]
    pub args: Vec<String>,
    /// Absolute; `/workspace` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cwd: Option<String>,
    /// Added to the base environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Standard input, base64, at most 8 MiB decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = String, format = Byte)]
    pub stdin: Option<B64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86400, default = 3600)]
    pub timeout_seconds: Option<u32>,
}

impl std::fmt::Debug for NewInput {
    /// Without arguments and environment: they carry applications' secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewInput")
            .field("args", &self.args.len())
            .field("stdin", &self.stdin)
            .finish_non_exhaustive()
    }
}

impl NewInput {
    pub(crate) fn check(&self) -> Checked {
        require(
            (1..=INPUT_ARGS).contains(&self.args.len())
                && !self.args[0].is_empty()
                && self.args.iter().all(|a| !a.contains('\0'))
                && self.args.iter().map(String::len).sum::<usize>() <= INPUT_ARGS_BYTES,
            "args",
            "args holds 1 to 1024 strings without NUL, the first not empty, together at most 128 KiB",
        )?;
        if let Some(cwd) = &self.cwd {
            let fits = cwd.starts_with('/') && cwd.len() <= PATH_BYTES && !cwd.contains('\0');
            require(
                fits,
                "cwd",
                "cwd is an absolute path of at most 4096 bytes without NUL",
            )?;
        }
        let named = |k: &String| !k.is_empty() && !k.contains(['=', '\0']);
        require(
            self.env.len() <= INPUT_ENV_PAIRS
                && self.env.iter().all(|(k, v)| named(k) && !v.contains('\0'))
                && self.env.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() <= INPUT_ENV_BYTES,
            "env",
            "env holds at most 256 pairs, together at most 64 KiB; names are nonempty without \"=\"; no NUL",
        )?;
        require(
            self.stdin.as_ref().is_none_or(|s| s.0.len() <= INPUT_STDIN_BYTES),
            "stdin",
            "stdin is at most 8 MiB decoded",
        )?;
        require(
            TIMEOUT_SECONDS.contains(&self.timeout_seconds()),
            "timeout_seconds",
            "timeout_seconds is 1 to 86400",
        )
    }

    pub(crate) fn timeout_seconds(&self) -> u32 {
        self.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS)
    }

    pub(crate) fn cwd(&self) -> &str {
        self.cwd.as_deref().unwrap_or("/workspace")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(f: impl FnOnce(&mut NewInput)) -> Option<&'static str> {
        let mut input = NewInput {
            args: vec!["true".into()],
            cwd: None,
            env: BTreeMap::new(),
            stdin: None,
            timeout_seconds: None,
        };
        f(&mut input);
        input.check().err().map(|e| e.param)
    }

    #[test]
    fn an_input_is_accepted_at_its_bounds_and_refused_beyond() {
        assert_eq!(input(|_| ()), None);
        assert_eq!(input(|i| i.args = vec!["x".repeat(128); 1024]), None);
        assert_eq!(input(|i| i.args = vec![]), Some("args"));
        assert_eq!(input(|i| i.args = vec![String::new()]), Some("args"));
        assert_eq!(input(|i| i.args.push(String::new())), None);
        assert_eq!(input(|i| i.args = vec![String::new(); 1025]), Some("args"));
        assert_eq!(
            input(|i| i.args = vec!["x".repeat((128 << 10) + 1)]),
            Some("args")
        );
        assert_eq!(input(|i| i.args = vec!["a\0b".into()]), Some("args"));
        assert_eq!(input(|i| i.cwd = Some("/tmp".into())), None);
        assert_eq!(input(|i| i.cwd = Some("tmp".into())), Some("cwd"));
        assert_eq!(input(|i| i.cwd = Some("/\0".into())), Some("cwd"));
        for name in ["", "A=B", "A\0"] {
            assert_eq!(
                input(|i| i.env = [(name.into(), "v".into())].into()),
                Some("env"),
                "{name:?}"
            );
        }
        assert_eq!(
            input(|i| i.env = [("A".into(), "v\0".into())].into()),
            Some("env")
        );
        assert_eq!(
            input(|i| i.env = (0..257).map(|n| (format!("A{n}"), String::new())).collect()),
            Some("env")
        );
        assert_eq!(
            input(|i| i.env = [("A".into(), "v".repeat(64 << 10))].into()),
            Some("env")
        );
        assert_eq!(input(|i| i.stdin = Some(B64(vec![0; 8 << 20]))), None);
        assert_eq!(
            input(|i| i.stdin = Some(B64(vec![0; (8 << 20) + 1]))),
            Some("stdin")
        );
        for (timeout, refused) in [(0, true), (1, false), (86_400, false), (86_401, true)] {
            assert_eq!(
                input(|i| i.timeout_seconds = Some(timeout)).is_some(),
                refused,
                "{timeout}"
            );
        }
    }

    #[test]
    fn a_session_is_accepted_at_its_bounds_and_refused_beyond() {
        let session = |f: fn(&mut NewSession)| {
            let mut session = NewSession::default();
            f(&mut session);
            session.check().err().map(|e| e.param)
        };
        assert_eq!(session(|_| ()), None);
        assert_eq!(session(|s| s.name = Some("x".repeat(128))), None);
        assert_eq!(session(|s| s.name = Some("x".repeat(129))), Some("name"));
        assert_eq!(session(|s| s.name = Some(" ".into())), Some("name"));
        assert_eq!(
            session(|s| s.node_labels = [("gpu/kind".into(), "a".into())].into()),
            None
        );
        assert_eq!(
            session(|s| s.node_labels = [("Gpu".into(), "a".into())].into()),
            Some("node_labels")
        );
        assert_eq!(
            session(|s| s.node_labels = [("a".into(), "v".repeat(64))].into()),
            Some("node_labels")
        );
        assert_eq!(
            session(|s| s.metadata = [("k".into(), "v".repeat(512))].into()),
            None
        );
        assert_eq!(
            session(|s| s.metadata = [("k".into(), "v".repeat(513))].into()),
            Some("metadata")
        );
        assert_eq!(
            session(|s| s.metadata = (0..17).map(|n| (n.to_string(), String::new())).collect()),
            Some("metadata")
        );
        assert_eq!(
            session(|s| {
                s.network = Some(Network {
                    access: oac_model::NetworkAccess::Public,
                    allowed_domains: vec!["example.org".into()],
                })
            }),
            Some("network")
        );
    }
}
