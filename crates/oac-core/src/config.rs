//! The configuration file (core.md section 1): strict, and secrets only from files of mode 0600.
//!
//! A key whose feature this build does not have is refused by name instead of being ignored, so that a file which
//! starts Core means what it says.

mod address;
mod release_url;
mod secret_file;
mod trusted;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use oac_model::Secret;
use oac_store::{Database, OpenError};
use oac_telemetry::traces::{self, Endpoint, EndpointError, Ratio, RatioError};
use serde::Deserialize;

pub use address::{AddressError, PublicUrl};
pub use release_url::{ReleaseUrl, ReleaseUrlError};
pub use secret_file::{SecretFileError, read_private_file, read_secret_file};
pub use trusted::{NetworkError, TrustedProxies};

/// Where `run`, `core-key` and `release` look without `--config`.
pub const DEFAULT_PATH: &str = "/etc/oac-core/config.toml";
const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
const DEFAULT_METRICS_LISTEN: &str = "127.0.0.1:9464";
const DEFAULT_RELEASE_DIR: &str = "/var/lib/oac-core/releases";
const DEFAULT_DATABASE: &str = "sqlite:///var/lib/oac-core/core.db";

/// What Core was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of the HTTP service, at least one.
    pub listen: Vec<SocketAddr>,
    /// Where scrapes are answered; without it nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The origin that nodes and sandboxes reach Core under.
    pub public_url: Option<PublicUrl>,
    pub database: Database,
    /// PostgreSQL's, read from its file.
    pub database_password: Option<Secret>,
    /// What every listener shows; without it they speak plain HTTP.
    pub tls: Option<TlsFiles>,
    pub trusted_proxies: TrustedProxies,
    /// Where the releases are that Core serves; a missing directory holds none.
    pub release_dir: PathBuf,
    /// Where nodes find the files of releases that Core does not hold; without it nowhere.
    pub release_url: Option<ReleaseUrl>,
    /// Where spans go; without it nowhere.
    pub traces: Option<traces::Settings>,
}

/// A certificate with its chain, and the key of the certificate, as PEM files. The key's has mode 0600.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: check that it exists and is readable", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a usable configuration: correct what is named here", path.display())]
    Syntax { path: PathBuf, source: SyntaxError },
    #[error("`{key}` is not supported by this build: remove it from the configuration")]
    NotBuilt { key: &'static str },
    #[error("`listen` must name at least one address")]
    NoListener,
    #[error("`metrics_listen` is not usable: give an address and a port, or an empty text for no metrics")]
    MetricsListen(#[source] std::net::AddrParseError),
    #[error("`database.url` is not usable")]
    Database(#[source] OpenError),
    #[error("`database.password_file` does not belong to SQLite: remove it")]
    NeedlessPassword,
    #[error("`public_url` is not usable")]
    PublicUrl(#[source] AddressError),
    #[error("`database.password_file` is not usable")]
    Password(#[source] SecretFileError),
    #[error("`tls` is not usable: give both `certificate_file` and `key_file`, or neither")]
    HalfTls,
    #[error("`release_dir` is not usable: give an absolute path")]
    ReleaseDir,
    #[error("`release_url` is not usable")]
    ReleaseUrl(#[source] ReleaseUrlError),
    #[error("`trusted_proxies` is not usable")]
    TrustedProxies(#[source] NetworkError),
    #[error("`traces.endpoint` is not usable")]
    TracesEndpoint(#[source] EndpointError),
    #[error("`traces.sample_ratio` is not usable")]
    TracesRatio(#[source] RatioError),
    #[error("`traces` is not usable: give its `endpoint`, or no `traces` at all")]
    NoTracesEndpoint,
}

/// What is wrong in the file, without the text of its line: that may hold a secret.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct SyntaxError {
    line: usize,
    what: String,
}

impl SyntaxError {
    /// What is wrong, in one line and without the values read.
    pub fn message(&self) -> &str {
        &self.what
    }

    /// A value that does not fit is told by what was expected in its place.
    fn what(message: &str) -> String {
        let expected = message
            .starts_with("invalid ")
            .then(|| message.split_once(", expected "))
            .flatten();
        let what = expected.map_or(message.to_owned(), |(_, what)| format!("expected {what}"));
        what.lines().collect::<Vec<_>>().join(", ")
    }

    fn of(text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
        Self {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            what: Self::what(error.message()),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<Vec<SocketAddr>>,
    metrics_listen: Option<String>,
    public_url: Option<String>,
    tls: Option<Tls>,
    database: Option<DatabaseFile>,
    release_dir: Option<PathBuf>,
    release_url: Option<String>,
    seal_key_file: Option<PathBuf>,
    direct: Option<Direct>,
    trusted_proxies: Option<Vec<String>>,
    traces: Option<Traces>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Traces {
    endpoint: Option<String>,
    sample_ratio: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatabaseFile {
    url: Option<String>,
    password_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Direct {
    #[expect(dead_code, reason = "read to be refused by name")]
    max_active: Option<u32>,
    #[expect(dead_code, reason = "read to be refused by name")]
    max_retained: Option<u32>,
}

impl Config {
    /// Reads and checks the file at `path` and the secret files it names.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks `text`; `path` is named in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error: toml::de::Error| ConfigError::Syntax {
            path: path.to_owned(),
            source: SyntaxError::of(text, &error),
        })?;
        file.refuse_what_is_not_built()?;
        let listen = file
            .listen
            .unwrap_or_else(|| DEFAULT_LISTEN.parse().into_iter().collect());
        if listen.is_empty() {
            return Err(ConfigError::NoListener);
        }
        let metrics_listen = match file.metrics_listen.as_deref().unwrap_or(DEFAULT_METRICS_LISTEN) {
            "" => None,
            address => Some(address.parse().map_err(ConfigError::MetricsListen)?),
        };
        let public_url = file
            .public_url
            .map(|u| u.parse())
            .transpose()
            .map_err(ConfigError::PublicUrl)?;
        let (database, database_password) = database(file.database.unwrap_or_default())?;
        let tls = match file.tls.map(|tls| (tls.certificate_file, tls.key_file)) {
            Some((Some(certificate), Some(key))) => Some(TlsFiles { certificate, key }),
            None | Some((None, None)) => None,
            Some(_) => return Err(ConfigError::HalfTls),
        };
        let release_dir = file.release_dir.unwrap_or_else(|| DEFAULT_RELEASE_DIR.into());
        if !release_dir.is_absolute() {
            return Err(ConfigError::ReleaseDir);
        }
        let release_url = file
            .release_url
            .map(|url| url.parse())
            .transpose()
            .map_err(ConfigError::ReleaseUrl)?;
        let trusted_proxies = TrustedProxies::parse(&file.trusted_proxies.unwrap_or_default())
            .map_err(ConfigError::TrustedProxies)?;
        let traces = file.traces.map(traces_settings).transpose()?;
        Ok(Self {
            listen,
            metrics_listen,
            public_url,
            database,
            database_password,
            tls,
            trusted_proxies,
            release_dir,
            release_url,
            traces,
        })
    }
}

impl File {
    fn refuse_what_is_not_built(&self) -> Result<(), ConfigError> {
        let keys = [
            ("seal_key_file", self.seal_key_file.is_some()),
            ("direct", self.direct.is_some()),
        ];
        match keys.into_iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(ConfigError::NotBuilt { key }),
            None => Ok(()),
        }
    }
}

/// Where the database is, and its password.
fn database(file: DatabaseFile) -> Result<(Database, Option<Secret>), ConfigError> {
    let text = file.url.as_deref().unwrap_or(DEFAULT_DATABASE);
    let database: Database = text.parse().map_err(ConfigError::Database)?;
    if matches!(database, Database::Sqlite(_)) && file.password_file.is_some() {
        return Err(ConfigError::NeedlessPassword);
    }
    let password = file
        .password_file
        .map(|path| read_secret_file(&path))
        .transpose()
        .map_err(ConfigError::Password)?;
    Ok((database, password))
}

fn traces_settings(file: Traces) -> Result<traces::Settings, ConfigError> {
    let endpoint = file.endpoint.ok_or(ConfigError::NoTracesEndpoint)?;
    let endpoint: Endpoint = endpoint.parse().map_err(ConfigError::TracesEndpoint)?;
    let sample_ratio = match file.sample_ratio {
        Some(share) => Ratio::new(share).map_err(ConfigError::TracesRatio)?,
        None => Ratio::ALL,
    };
    Ok(traces::Settings {
        endpoint,
        sample_ratio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("config.toml"))
    }

    #[test]
    fn an_empty_file_gives_the_documented_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(config.metrics_listen, "127.0.0.1:9464".parse().ok());
        assert!(config.public_url.is_none());
        assert_eq!(config.traces, None);
        assert!(
            matches!(config.database, Database::Sqlite(path) if path == Path::new("/var/lib/oac-core/core.db"))
        );
    }

    #[test]
    fn an_unknown_key_at_any_depth_stops_the_start() {
        for text in [
            "listens = []",
            "[database]\nurls = \"x\"",
            "[tls]\ncert = \"x\"",
            "Listen = []",
        ] {
            assert!(matches!(parse(text), Err(ConfigError::Syntax { .. })), "{text}");
        }
    }

    #[test]
    fn a_key_of_a_feature_this_build_lacks_is_refused_by_name() {
        for (text, name) in [
            ("seal_key_file = \"/k\"", "seal_key_file"),
            ("[direct]\nmax_active = 1", "direct"),
        ] {
            assert!(
                matches!(parse(text), Err(ConfigError::NotBuilt { key }) if key == name),
                "{text}"
            );
        }
        assert_eq!(parse("metrics_listen = \"\"").unwrap().metrics_listen, None);
        let config = parse("metrics_listen = \"[::1]:9\"").unwrap();
        assert_eq!(config.metrics_listen, "[::1]:9".parse().ok());
        assert!(matches!(
            parse("metrics_listen = \"localhost:9\""),
            Err(ConfigError::MetricsListen(_))
        ));
    }

    #[test]
    fn releases_are_in_an_absolute_directory_and_elsewhere_at_an_https_address() {
        let config = parse("").unwrap();
        assert_eq!(config.release_dir, Path::new("/var/lib/oac-core/releases"));
        assert_eq!(config.release_url, None);
        let config = parse("release_dir = \"/r\"\nrelease_url = \"https://r/x\"").unwrap();
        assert_eq!(config.release_dir, Path::new("/r"));
        assert_eq!(config.release_url, "https://r/x".parse().ok());
        assert!(matches!(
            parse("release_dir = \"r\""),
            Err(ConfigError::ReleaseDir)
        ));
        assert!(matches!(
            parse("release_url = \"http://r\""),
            Err(ConfigError::ReleaseUrl(_))
        ));
    }

    #[test]
    fn listen_takes_both_address_families_and_at_least_one() {
        let config = parse("listen = [\"[::1]:80\", \"0.0.0.0:81\"]").unwrap();
        assert_eq!(config.listen.len(), 2);
        assert!(matches!(parse("listen = []"), Err(ConfigError::NoListener)));
        assert!(parse("listen = [\"localhost:80\"]").is_err());
    }

    #[test]
    fn a_certificate_comes_with_its_key_or_not_at_all_and_a_trusted_proxy_is_a_network() {
        let half = |text: &str| matches!(parse(text), Err(ConfigError::HalfTls));
        assert!(half("[tls]\ncertificate_file = \"/a\""));
        assert!(half("[tls]\nkey_file = \"/b\""));
        assert_eq!(parse("[tls]").unwrap().tls, None);
        let both = parse("[tls]\ncertificate_file = \"/a\"\nkey_file = \"/b\"").unwrap();
        let files = TlsFiles {
            certificate: "/a".into(),
            key: "/b".into(),
        };
        assert_eq!(both.tls, Some(files));
        assert!(parse("trusted_proxies = [\"10.0.0.0/8\", \"fd00::1\"]").is_ok());
        let error = parse("trusted_proxies = [\"proxy\"]").unwrap_err();
        assert!(matches!(error, ConfigError::TrustedProxies(_)), "{error}");
    }

    #[test]
    fn traces_go_to_a_plain_origin_and_are_kept_in_a_share_from_0_to_1() {
        let traces = |rest: &str| parse(&format!("[traces]\n{rest}")).map(|config| config.traces.unwrap());
        let given = traces("endpoint = \"http://collector:4318\"").unwrap();
        assert_eq!(given.endpoint.to_string(), "http://collector:4318");
        assert_eq!(given.sample_ratio, Ratio::ALL);
        let given = traces("endpoint = \"http://[::1]\"\nsample_ratio = 0.1").unwrap();
        assert_eq!(Ok(given.sample_ratio), Ratio::new(0.1));
        assert!(matches!(traces(""), Err(ConfigError::NoTracesEndpoint)));
        let secret = traces("endpoint = \"http://:hunter2@collector\"").unwrap_err();
        assert!(matches!(secret, ConfigError::TracesEndpoint(_)));
        assert!(!format!("{secret} {secret:?}").contains("hunter2"));
        assert!(matches!(
            traces("endpoint = \"http://a\"\nsample_ratio = 2.0"),
            Err(ConfigError::TracesRatio(_))
        ));
        assert!(matches!(
            traces("url = \"http://a\""),
            Err(ConfigError::Syntax { .. })
        ));
    }

    // inv: INV-C14
    #[test]
    fn a_password_comes_only_from_a_file_of_mode_0600() {
        use std::os::unix::fs::PermissionsExt as _;
        assert!(matches!(
            parse("[database]\nurl = \"postgres://oac:secret@db/oac\""),
            Err(ConfigError::Database(OpenError::PasswordInUrl))
        ));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let text = format!("[database]\nurl = \"postgres://oac@db/oac\"\npassword_file = {file:?}");
        for mode in [0o644, 0o640, 0o604, 0o700, 0o660] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                matches!(
                    parse(&text),
                    Err(ConfigError::Password(SecretFileError::Mode { .. }))
                ),
                "{mode:o}"
            );
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let config = parse(&text).unwrap();
        let Some(password) = &config.database_password else {
            panic!("no password: {config:?}");
        };
        assert_eq!(password.expose(), "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
