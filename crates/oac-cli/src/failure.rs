//! What can go wrong between a command and Core, each with one line that says what to do.

use std::path::PathBuf;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{path} does not exist: run `oac login` to write it", path = path.display())]
    NoConfig { path: PathBuf },
    #[error("{path} can be read by others: run `chmod 600 {path}`, it holds keys", path = path.display())]
    LooseConfig { path: PathBuf },
    #[error("{path} is not a valid configuration ({reason}): correct it or run `oac login`", path = path.display())]
    BadConfig { path: PathBuf, reason: String },
    #[error("cannot read or write {path}: check that it exists and that you may", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the configuration holds no {0}: run `oac login` and enter one")]
    NoKey(&'static str),
    #[error("cannot reach Core at {url}: check that it runs and that the address is right")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// Core's own words; they say what is wrong and what to do.
    #[error("{message}")]
    Refused {
        status: u16,
        code: Option<String>,
        message: String,
    },
    #[error("the answer of {url} is not Core's: check the address")]
    NotCore { url: String },
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// The command's exit status; `session exec` maps every failure to 125 instead.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
