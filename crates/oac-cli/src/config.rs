//! The configuration file: where Core is and with which keys (sessions.md section 10a). Keys come from this file
//! alone, never from the environment or arguments.

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use oac_model::Secret;
use serde::Deserialize;

use crate::Failure;

/// Contents of `config.toml`; unknown keys are refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Core's origin, such as `https://oac.example.org`.
    pub url: String,
    #[serde(default)]
    pub core_key: Option<Secret>,
    #[serde(default)]
    pub project_key: Option<Secret>,
}

/// `~/.config/oac/config.toml`.
pub fn default_path() -> Result<PathBuf, Failure> {
    std::env::home_dir()
        .map(|home| home.join(".config/oac/config.toml"))
        .ok_or_else(|| {
            Failure::Usage("there is no home directory: name a configuration with --config".to_owned())
        })
}

impl Config {
    /// Reads the file; one that others can read is refused.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let path = path.to_owned();
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Failure::NoConfig { path }),
            Err(source) => return Err(Failure::File { path, source }),
        };
        if metadata.is_dir() {
            return Err(Failure::BadConfig {
                path,
                reason: "it is a directory".to_owned(),
            });
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(Failure::LooseConfig { path });
        }
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(Failure::File { path, source }),
        };
        // The reader's own message quotes the line, which may be a key; its position is enough.
        let parsed: Result<Self, toml::de::Error> = toml::from_str(&text);
        match parsed {
            Ok(config) if is_origin(&config.url) => Ok(Self {
                url: config.url.trim_end_matches('/').to_owned(),
                ..config
            }),
            Ok(_) => Err(Failure::BadConfig {
                path,
                reason: "url must be http://host or https://host".to_owned(),
            }),
            Err(error) => {
                let line = error
                    .span()
                    .map_or(1, |span| text[..span.start].lines().count().max(1));
                Err(Failure::BadConfig {
                    path,
                    reason: format!("line {line}"),
                })
            }
        }
    }

    /// Writes the file with mode 0600, replacing one that exists.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        let failed = |source| Failure::File {
            path: path.to_owned(),
            source,
        };
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(failed)?;
        let mut text = format!("url = {}\n", quoted(&self.url));
        for (name, key) in [("core_key", &self.core_key), ("project_key", &self.project_key)] {
            if let Some(key) = key {
                text.push_str(&format!("{name} = {}\n", quoted(key.expose())));
            }
        }
        let partial = folder.join(".config.toml.partial");
        let _ = fs::remove_file(&partial);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)
            .map_err(failed)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        fs::rename(&partial, path).map_err(failed)
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// An http or https origin: scheme, host, optional port, at most one trailing slash.
pub fn is_origin(url: &str) -> bool {
    let Some(rest) = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
    else {
        return false;
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    !authority.is_empty() && !authority.contains(['/', '?', '#', '@', ' '])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config() -> Config {
        Config {
            url: "http://127.0.0.1:8080".to_owned(),
            core_key: Some(Secret::new("oac_core_\"x\"")),
            project_key: None,
        }
    }

    #[test]
    fn a_saved_configuration_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oac/config.toml");
        config().save(&path).unwrap();
        config().save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let read = Config::load(&path).unwrap();
        assert_eq!(read.core_key, config().core_key);
        assert_eq!(read.project_key, None);
    }

    #[test]
    fn a_directory_is_no_configuration_and_keeps_its_rights() {
        let folder = tempfile::tempdir().unwrap();
        let read = Config::load(folder.path());
        assert!(matches!(read, Err(Failure::BadConfig { .. })), "{read:?}");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        config().save(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Config::load(&path), Err(Failure::LooseConfig { .. })));
    }

    #[test]
    fn a_broken_file_is_named_by_line_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        config().save(&path).unwrap();
        for text in [
            "url = \"http://h\"\ncore_key = sesame\n",
            "url = \"http://h\"\nsesame = 1\n",
            "url = \"sesame\"\n",
        ] {
            fs::write(&path, text).unwrap();
            let error = Config::load(&path).unwrap_err();
            assert!(!error.to_string().contains("sesame"), "{error}");
        }
    }
}
