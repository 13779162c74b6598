//! What can go wrong between a command and Core, each with one line that says what to do.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::config::Name;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{path} does not exist: run `oac login` to write it", path = path.display())]
    NoConfig { path: PathBuf },
    #[error("{path} can be read by others: run `chmod 600 {path}`, it holds keys", path = path.display())]
    LooseConfig { path: PathBuf },
    #[error(
        "{path} belongs to the account {owner}: run `sudo chown {own} {path}`, or name your own file with --config",
        path = path.display()
    )]
    ForeignConfig { path: PathBuf, owner: u32, own: u32 },
    #[error("{path} is not a valid configuration ({reason}): correct it or run `oac login`", path = path.display())]
    BadConfig { path: PathBuf, reason: String },
    #[error("there is no context {name} ({known}): run `oac login --context {name}` or choose another with `oac context use`",
        known = if known.is_empty() { "the file holds none".to_owned() } else { format!("there are: {}", known.join(", ")) })]
    NoContext { name: Name, known: Vec<String> },
    #[error("cannot read or write {path}: check that it exists and that you may", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the context {context} holds no {key}: run `oac login --context {context}` and enter one")]
    NoKey { key: &'static str, context: Name },
    #[error(
        "the {key} of the context {context} holds characters no key has: run `oac login --context {context}` and enter it anew"
    )]
    BadKey { key: &'static str, context: Name },
    #[error("{0} Correct the variable or unset it.")]
    Proxy(#[from] oac_proxy::ProxyError),
    #[error("cannot reach Core at {url}: check that it runs and that the address is right")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("Core at {url} did not answer within {seconds} s: check its log and try again")]
    NoAnswer { url: String, seconds: u64 },
    /// Core's own words; they say what is wrong and what to do.
    #[error("{message}{code}", code = code.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
    Refused {
        status: u16,
        code: Option<String>,
        message: String,
        retry_after: Option<Duration>,
    },
    #[error("the answer of {url} is not Core's: check the address, and that oac and Core are of one version")]
    NotCore { url: String, status: u16 },
    #[error("{0}")]
    Usage(String),
    #[error("stopped; files that were whole by then are in place")]
    Stopped,
    /// The work went as far as the message says.
    #[error("{0}")]
    Unfinished(String),
}

impl Failure {
    /// No temporary file could be made beside `path`. Its own name, which the error carries, says nothing to anybody.
    pub fn beside(path: &Path, source: std::io::Error) -> Self {
        let text = source.to_string();
        let why = text.split(" at path \"").next().unwrap_or_default();
        Self::File {
            path: path.to_owned(),
            source: std::io::Error::new(source.kind(), why),
        }
    }

    /// The command's exit status; `session exec` maps every failure to 125 instead.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Stopped => 130,
            _ => 1,
        }
    }

    /// Core's code, or one of `oac`'s own, for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::NoConfig { .. } | Self::BadConfig { .. } | Self::BadKey { .. } | Self::Proxy(_) => {
                "configuration_invalid"
            }
            Self::LooseConfig { .. } | Self::ForeignConfig { .. } => "configuration_unsafe",
            Self::NoContext { .. } => "context_unknown",
            Self::NoKey { .. } => "key_missing",
            Self::File { .. } => "file_error",
            Self::Unreachable { .. } | Self::NoAnswer { .. } => "core_unreachable",
            Self::Refused { code, .. } => code.as_deref().unwrap_or("refused"),
            Self::NotCore { .. } => "not_core",
            Self::Usage(_) => "usage",
            Self::Stopped => "stopped",
            Self::Unfinished(_) => "unfinished",
        }
    }

    /// Whether the same harmless request may do better in a moment: Core restarts, a standby takes over, or too many
    /// ask at once.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoAnswer { .. } => true,
            Self::Refused { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            // A proxy's own page while Core is away.
            Self::NotCore { status, .. } => *status >= 500,
            _ => false,
        }
    }
}
