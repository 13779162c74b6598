//! `SRC` and `DST`: a path here, a path in a sandbox, or `-`.

use std::{path::PathBuf, str::FromStr};

use oac_model::SessionId;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Standard input or output.
    Pipe,
    Local(PathBuf),
    Remote(Remote),
}

/// A path in a Session's sandbox, absolute or from `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub session: SessionId,
    pub path: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Pipe);
        }
        if text.is_empty() {
            return Err("an empty path names nothing; `.` is the folder you are in".to_owned());
        }
        if let Some((session, path)) = text.split_once(':')
            && let Ok(session) = session.parse()
        {
            if path.contains('\0') {
                return Err("a path holds no NUL".to_owned());
            }
            let path = if path.is_empty() { "." } else { path };
            return Ok(Self::Remote(Remote {
                session,
                path: path.to_owned(),
            }));
        }
        Ok(Self::Local(PathBuf::from(text)))
    }
}

impl Remote {
    /// Another path of the same sandbox.
    pub fn at(&self, path: String) -> Self {
        Self {
            session: self.session,
            path,
        }
    }

    /// `name` in this folder.
    pub fn join(&self, name: &str) -> Self {
        let folder = self.path.trim_end_matches('/');
        let folder = if folder.is_empty() && !self.path.is_empty() {
            ""
        } else {
            folder
        };
        self.at(match folder {
            "." => name.to_owned(),
            folder => format!("{folder}/{name}"),
        })
    }

    /// Its last name; none for a folder named by `.`, `..` or `/`, whose contents are meant.
    pub fn name(&self) -> Option<&str> {
        let path = self.path.trim_end_matches('/');
        let name = path.rsplit('/').next().unwrap_or_default();
        (!matches!(name, "" | "." | "..")).then_some(name)
    }

    /// Whether it says that it is a folder.
    pub fn says_folder(&self) -> bool {
        self.path.ends_with('/') || self.name().is_none()
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: &str = "11111111-1111-4111-8111-111111111111";

    fn remote(path: &str) -> Remote {
        match format!("{S}:{path}").parse().unwrap() {
            Place::Remote(remote) => remote,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_session_before_a_colon_is_a_sandbox_and_anything_else_is_here() {
        assert_eq!(remote("a:b").path, "a:b");
        assert_eq!(remote("").path, ".");
        assert_eq!("-".parse(), Ok(Place::Pipe));
        for local in ["a:b", "./-", "C:x", &format!("./{S}:x")] {
            assert_eq!(local.parse(), Ok(Place::Local(local.into())));
        }
        assert!("".parse::<Place>().is_err());
    }

    #[test]
    fn paths_join_and_have_names_as_a_shell_would_say() {
        for (folder, joined) in [
            (".", "x"),
            ("a", "a/x"),
            ("a/", "a/x"),
            ("/", "/x"),
            ("/a//", "/a/x"),
        ] {
            assert_eq!(remote(folder).join("x").path, joined, "{folder}");
        }
        for (path, name) in [
            ("a", Some("a")),
            ("/a/b/", Some("b")),
            ("/", None),
            ("a/.", None),
            ("..", None),
        ] {
            assert_eq!(remote(path).name(), name, "{path}");
        }
        assert!(remote("a/").says_folder() && remote("").says_folder() && !remote("a").says_folder());
    }
}
