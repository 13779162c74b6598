//! The configuration: which installations there are and with which keys (sessions.md section 10a, decision 0011). Keys
//! come from this file alone, never from the environment or arguments.
//!
//! Keys at the top of the file belong to the context `default`; every other context is a table `[contexts.NAME]`.

mod file;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use oac_model::Secret;
use serde::Deserialize;

use crate::Failure;

/// Longest name of a context, in bytes.
const NAME_BYTES: usize = 64;

/// A context's name: letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The context of the keys at the top of the file.
    pub const DEFAULT: &'static str = "default";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if text.len() <= NAME_BYTES
            && text.bytes().all(plain)
            && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        {
            Ok(Self(text.to_owned()))
        } else {
            Err("a context's name is 1 to 64 letters, digits, `-`, `_` and `.`".to_owned())
        }
    }
}

/// One installation: its address and the keys for it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Core's origin, such as `https://oac.example.org`, without a slash at its end.
    pub url: String,
    #[serde(default)]
    pub core_key: Option<Secret>,
    #[serde(default)]
    pub project_key: Option<Secret>,
}

/// Everything the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The context that commands use without `--context`; `default` when unset.
    current: Option<Name>,
    entries: BTreeMap<Name, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    current: Option<String>,
    url: Option<String>,
    core_key: Option<Secret>,
    project_key: Option<Secret>,
    #[serde(default)]
    contexts: BTreeMap<String, Entry>,
}

/// `~/.config/oac/config.toml`.
pub fn default_path() -> Result<PathBuf, Failure> {
    std::env::home_dir()
        .filter(|home| home.is_absolute())
        .map(|home| home.join(".config/oac/config.toml"))
        .ok_or_else(|| {
            Failure::Usage("there is no home directory: name a configuration with --config".to_owned())
        })
}

impl Config {
    /// Reads the file. One that others can read, or that is another account's, is refused.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let text = file::read(path)?.ok_or_else(|| Failure::NoConfig {
            path: path.to_owned(),
        })?;
        Self::parse(&text).map_err(|reason| Failure::BadConfig {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads the file (nothing if it does not exist), lets `change` change it and replaces it in one step. Others who
    /// edit through this wait meanwhile, so that no change is lost.
    pub fn edit<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let place = file::Place::take(path)?;
        let mut config = match file::read(place.path())? {
            None => Self::default(),
            Some(_) => Self::load(place.path())?,
        };
        let done = change(&mut config)?;
        place.replace(&config.render())?;
        Ok(done)
    }

    /// The context used without `--context`.
    pub fn current(&self) -> Name {
        self.current.clone().unwrap_or_default()
    }

    pub fn entries(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.entries.iter()
    }

    /// The context named, else the current one.
    pub fn entry(&self, name: Option<&Name>) -> Result<(Name, &Entry), Failure> {
        let name = name.cloned().unwrap_or_else(|| self.current());
        match self.entries.get(&name) {
            Some(entry) => Ok((name, entry)),
            None => Err(Failure::NoContext {
                name,
                known: self.entries.keys().map(Name::to_string).collect::<Vec<_>>(),
            }),
        }
    }

    pub fn get(&self, name: &Name) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Adds or replaces a context. The first one becomes current; so does one added while the current one is missing.
    pub fn put(&mut self, name: Name, entry: Entry) {
        self.entries.insert(name.clone(), entry);
        if !self.entries.contains_key(&self.current()) {
            self.current = Some(name);
        }
    }

    /// Makes a context current.
    pub fn choose(&mut self, name: &Name) -> Result<(), Failure> {
        self.entry(Some(name))?;
        self.current = Some(name.clone());
        Ok(())
    }

    /// Removes a context and its keys.
    pub fn remove(&mut self, name: &Name) -> Result<(), Failure> {
        self.entry(Some(name))?;
        self.entries.remove(name);
        Ok(())
    }

    /// Errors name a line or a member, never what stands there: it may be a key.
    fn parse(text: &str) -> Result<Self, String> {
        let raw: Raw = toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map_or(1, |span| text[..span.start].lines().count().max(1));
            format!("line {line}")
        })?;
        let name = |text: &str| {
            text.parse::<Name>()
                .map_err(|_| "a context's name is not usable".to_owned())
        };
        let mut entries = BTreeMap::new();
        match raw.url {
            Some(url) => {
                let top = Entry {
                    url,
                    core_key: raw.core_key,
                    project_key: raw.project_key,
                };
                entries.insert(Name::default(), top);
            }
            None if raw.core_key.is_some() || raw.project_key.is_some() => {
                return Err("a key without url".to_owned());
            }
            None => {}
        }
        for (text, entry) in raw.contexts {
            if entries.insert(name(&text)?, entry).is_some() {
                return Err("the context default stands twice: at the top and as a table".to_owned());
            }
        }
        for entry in entries.values_mut() {
            if !is_origin(&entry.url) {
                return Err("url must be http://host or https://host".to_owned());
            }
            entry.url.truncate(entry.url.trim_end_matches('/').len());
        }
        Ok(Self {
            current: raw.current.as_deref().map(name).transpose()?,
            entries,
        })
    }

    fn render(&self) -> String {
        let mut text = String::new();
        if let Some(current) = &self.current {
            text.push_str(&format!("current = {}\n", quoted(current.as_str())));
        }
        if let Some(entry) = self.entries.get(&Name::default()) {
            entry.render(&mut text);
        }
        for (name, entry) in self.entries.iter().filter(|(name, _)| !name.is_default()) {
            text.push_str(&format!("\n[contexts.{}]\n", quoted(name.as_str())));
            entry.render(&mut text);
        }
        text
    }
}

impl Entry {
    fn render(&self, text: &mut String) {
        text.push_str(&format!("url = {}\n", quoted(&self.url)));
        for (name, key) in [("core_key", &self.core_key), ("project_key", &self.project_key)] {
            if let Some(key) = key {
                text.push_str(&format!("{name} = {}\n", quoted(key.expose())));
            }
        }
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
    let parsed = url::Url::parse(url);
    !authority.is_empty()
        && !authority.contains(['/', '?', '#', '@', '\\'])
        && !authority.contains(|c: char| c.is_whitespace() || c.is_control())
        && parsed.is_ok_and(|u| u.has_host())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn entry(url: &str) -> Entry {
        Entry {
            url: url.to_owned(),
            core_key: Some(Secret::new("oac_core_\"x\"")),
            project_key: None,
        }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn put(path: &Path, context: &str, url: &str) {
        Config::edit(path, |config| {
            config.put(name(context), entry(url));
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_saved_configuration_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/oac/config.toml");
        put(&path, "default", "http://127.0.0.1:8080");
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let read = Config::load(&path).unwrap();
        assert_eq!(read.entry(None).unwrap().1, &entry("http://127.0.0.1:8080"));
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn writing_one_context_keeps_the_others_and_the_choice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        put(&path, "default", "http://one");
        put(&path, "two.b", "http://two");
        put(&path, "default", "http://changed");
        let read = Config::load(&path).unwrap();
        assert_eq!(read.current(), Name::default());
        assert_eq!(read.entry(Some(&name("two.b"))).unwrap().1, &entry("http://two"));
        assert_eq!(read.entry(None).unwrap().1, &entry("http://changed"));
        Config::edit(&path, |c| c.choose(&name("two.b"))).unwrap();
        Config::edit(&path, |c| c.remove(&name("default"))).unwrap();
        let read = Config::load(&path).unwrap();
        assert_eq!(read.entry(None).unwrap().0, name("two.b"));
        assert!(matches!(
            read.entry(Some(&Name::default())),
            Err(Failure::NoContext { .. })
        ));
    }

    #[test]
    fn editing_at_once_loses_no_context() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let path = &path;
                scope.spawn(move || put(path, &format!("c{n}"), "http://h"));
            }
        });
        assert_eq!(Config::load(&path).unwrap().entries().count(), 8);
    }

    #[test]
    fn the_first_context_is_current_whatever_its_name() {
        let mut config = Config::default();
        config.put(name("staging"), entry("http://h"));
        config.put(name("other"), entry("http://i"));
        let read = Config::parse(&config.render()).unwrap();
        assert_eq!(read, config);
        assert_eq!(read.current(), name("staging"));
    }

    #[test]
    fn the_flat_file_is_the_context_default() {
        let text = "url = \"https://oac.example.org/\"\ncore_key = \"a\"\nproject_key = \"b\"\n";
        let read = Config::parse(text).unwrap();
        let (name, entry) = read.entry(None).unwrap();
        assert_eq!(
            (name, entry.url.as_str()),
            (Name::default(), "https://oac.example.org")
        );
        assert!(entry.core_key.is_some() && entry.project_key.is_some());
    }

    #[test]
    fn a_broken_file_is_named_without_its_text() {
        for text in [
            "url = \"http://h\"\ncore_key = sesame\n",
            "url = \"http://h\"\nsesame = 1\n",
            "url = \"sesame\"\n",
            "core_key = \"sesame\"\n",
            "[contexts.\"sesame here\"]\nurl = \"http://h\"\n",
            "[contexts.a]\nurl = \"http://h\"\nproject_key = 5 # sesame\n",
            "url = \"http://h\"\n[contexts.default]\nurl = \"http://sesame\"\n",
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for good in [
            "http://h",
            "https://h.example:8443",
            "http://[::1]:80/",
            "http://10.0.0.1",
        ] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "h",
            "ftp://h",
            "http://",
            "http:///",
            "http://h/path",
            "http://u@h",
            "http://h?x",
            "http://a b",
            "http://h\\x",
            "http://h:port",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
