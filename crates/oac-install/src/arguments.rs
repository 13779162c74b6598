//! The command line (installer.md section 2). Read by hand: what is wrong with it is said without repeating a value,
//! since a value may be a token that was put in the wrong place.

use std::path::PathBuf;

use oac_dial::Origin;
use oac_model::{Digest, InstallationId, ProviderKind};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub enum Order {
    Install(Install),
    Uninstall(Uninstall),
    Doctor(Doctor),
    Help,
    Version,
}

/// Where release files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Releases {
    /// The console at this origin, Core's own unless the command says otherwise.
    At(Origin),
    /// A local folder with one release.
    Bundle(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    pub installation: InstallationId,
    pub core: Origin,
    pub releases: Releases,
    /// What the command's maker expects; Core decides.
    pub provider: Option<ProviderKind>,
    pub manifest_sha256: Option<Digest>,
    pub token_on_stdin: bool,
    pub checkpoint_root: Option<String>,
    pub no_color: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uninstall {
    pub installation: InstallationId,
    pub force: bool,
    pub no_color: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doctor {
    /// The one on this host when it is not named.
    pub installation: Option<InstallationId>,
    pub provider: Option<ProviderKind>,
    pub json: bool,
}

/// Exit status 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument} {fault}. See --help.")]
pub struct UsageError {
    argument: &'static str,
    fault: &'static str,
}

pub const HELP: &str = "\
Makes this Linux host a node of an oac installation, or gives it back.

  oac-node-install --installation-id UUID --core-url ORIGIN [options]
  oac-node-install --uninstall --installation-id UUID [--force]
  oac-node-install --doctor [--installation-id UUID] [--provider P] [--json]

  --source-url ORIGIN         where release files are; Core's origin by default
  --bundle DIR                a folder with manifest.json, SHA256SUMS and artifacts/ instead
  --provider P                docker or microsandbox: refuse if Core says otherwise
  --manifest-sha256 HEX       the digest of this release's manifest
  --enrollment-token-stdin    read the token, one line, from standard input
  --checkpoint-root PATH      microsandbox: a private store shared between nodes
  --no-color                  plain text
";

const NAMES: [&str; 12] = [
    "--installation-id",
    "--core-url",
    "--source-url",
    "--bundle",
    "--provider",
    "--manifest-sha256",
    "--checkpoint-root",
    "--enrollment-token-stdin",
    "--no-color",
    "--uninstall",
    "--force",
    "--doctor",
];
const JSON: &str = "--json";
/// How many of [`NAMES`], from the first on, take a value.
const VALUED: usize = 7;

/// What was given, by the argument's name.
struct Given(Vec<(&'static str, String)>);

impl Given {
    fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, UsageError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let known = NAMES.iter().chain([&JSON]).position(|known| *known == name);
            let (Some(place), true) = (known, argument.starts_with("--")) else {
                return Err(usage("an argument", "is unknown"));
            };
            let name = NAMES.get(place).copied().unwrap_or(JSON);
            if given.iter().any(|(earlier, _)| *earlier == name) {
                return Err(usage(name, "is given twice"));
            }
            let value = match (place < VALUED, attached) {
                (true, Some(value)) => value,
                (true, None) => arguments.next().ok_or(usage(name, "needs a value"))?,
                (false, None) => String::new(),
                (false, Some(_)) => return Err(usage(name, "takes no value")),
            };
            given.push((name, value));
        }
        Ok(Self(given))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == name)
    }

    fn parsed<T>(
        &self,
        name: &'static str,
        fault: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, UsageError> {
        let value = self.0.iter().find(|(given, _)| *given == name);
        value
            .map(|(_, value)| parse(value).ok_or(usage(name, fault)))
            .transpose()
    }

    fn origin(&self, name: &'static str) -> Result<Option<Origin>, UsageError> {
        let fault = "must be an http or https origin, without credentials, path or query";
        self.parsed(name, fault, |value| Origin::parse(value).ok())
    }

    fn installation(&self) -> Result<Option<InstallationId>, UsageError> {
        let fault = "must be a UUID in lower case";
        self.parsed("--installation-id", fault, |value| value.parse().ok())
    }

    fn provider(&self) -> Result<Option<ProviderKind>, UsageError> {
        self.parsed("--provider", "must be docker or microsandbox", |value| {
            ProviderKind::from_text(value).filter(|kind| *kind != ProviderKind::E2b)
        })
    }

    /// Refuses whatever is not in `allowed`.
    fn only(&self, allowed: &[&str], fault: &'static str) -> Result<(), UsageError> {
        match self.0.iter().find(|(name, _)| !allowed.contains(name)) {
            Some((name, _)) => Err(usage(name, fault)),
            None => Ok(()),
        }
    }
}

fn usage(argument: &'static str, fault: &'static str) -> UsageError {
    UsageError { argument, fault }
}

impl Order {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, UsageError> {
        let arguments: Vec<String> = arguments.into_iter().collect();
        match arguments.first().map(String::as_str) {
            Some("--help" | "-h") => return Ok(Self::Help),
            Some("--version" | "-V") => return Ok(Self::Version),
            _ => {}
        }
        let given = Given::read(arguments)?;
        if given.has("--doctor") {
            let allowed = ["--doctor", "--installation-id", "--provider", JSON, "--no-color"];
            given.only(&allowed, "does not go with --doctor")?;
            return Ok(Self::Doctor(Doctor {
                installation: given.installation()?,
                provider: given.provider()?,
                json: given.has(JSON),
            }));
        }
        let installation = given
            .installation()?
            .ok_or(usage("--installation-id", "is required"))?;
        let no_color = given.has("--no-color");
        if given.has("--uninstall") {
            let allowed = ["--uninstall", "--installation-id", "--force", "--no-color"];
            given.only(&allowed, "does not go with --uninstall")?;
            return Ok(Self::Uninstall(Uninstall {
                installation,
                force: given.has("--force"),
                no_color,
            }));
        }
        for (name, fault) in [
            ("--force", "goes with --uninstall alone"),
            (JSON, "goes with --doctor alone"),
        ] {
            if given.has(name) {
                return Err(usage(name, fault));
            }
        }
        let core = given
            .origin("--core-url")?
            .ok_or(usage("--core-url", "is required"))?;
        let bundle = given.parsed("--bundle", "must be an absolute path", |value| {
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        })?;
        let releases = match (bundle, given.origin("--source-url")?) {
            (Some(_), Some(_)) => return Err(usage("--bundle", "does not go with --source-url")),
            (Some(folder), None) => Releases::Bundle(folder),
            (None, source) => Releases::At(source.unwrap_or_else(|| core.clone())),
        };
        Ok(Self::Install(Install {
            installation,
            core,
            releases,
            provider: given.provider()?,
            manifest_sha256: given.parsed(
                "--manifest-sha256",
                "must be 64 hex digits in lower case",
                |value| value.parse().ok(),
            )?,
            token_on_stdin: given.has("--enrollment-token-stdin"),
            checkpoint_root: given.parsed("--checkpoint-root", "must be a clean absolute path", |value| {
                is_clean_absolute(value).then(|| value.to_owned())
            })?,
            no_color,
        }))
    }
}

/// No empty segment, no `.` or `..`, no control character, not `/`.
pub(crate) fn is_clean_absolute(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|s| !s.is_empty() && s != "." && s != "..") && !path.chars().any(char::is_control)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6a1f0e9c-6f0a-4d7a-8d5e-0b1c2d3e4f50";

    fn parse(line: &str) -> Result<Order, UsageError> {
        let line = line.replace("ID", ID);
        Order::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_generated_command_lines_and_their_variants_are_read() {
        let Order::Install(install) = parse(
            "--core-url https://core.example.org --installation-id ID --provider docker --enrollment-token-stdin",
        )
        .unwrap() else {
            panic!("an installation");
        };
        assert_eq!(install.installation.to_string(), ID);
        assert_eq!(install.releases, Releases::At(install.core.clone()));
        assert_eq!(install.provider, Some(ProviderKind::Docker));
        assert!(install.token_on_stdin && !install.no_color);
        let hex = "ab".repeat(32);
        for good in [
            "--installation-id ID --core-url http://10.0.0.1:8080 --source-url https://mirror.example.org",
            "--installation-id=ID --core-url=http://10.0.0.1:8080 --bundle=/media/release",
            &format!("--installation-id ID --core-url http://[::1]:1 --manifest-sha256 {hex} --no-color"),
            "--installation-id ID --core-url http://c --provider microsandbox --checkpoint-root /srv/store",
            "--uninstall --installation-id ID",
            "--uninstall --installation-id ID --force --no-color",
            "--doctor",
            "--doctor --provider microsandbox --json",
        ] {
            parse(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
    }

    // req: G-217, G-220, G-221
    #[test]
    fn uninstall_names_its_installation_and_only_it_takes_force() {
        let of = |line| parse(line).unwrap();
        let uninstall = |force| {
            Order::Uninstall(Uninstall {
                installation: ID.parse().unwrap(),
                force,
                no_color: false,
            })
        };
        assert_eq!(of("--uninstall --installation-id ID"), uninstall(false));
        assert_eq!(of("--uninstall --installation-id ID --force"), uninstall(true));
        assert!(parse("--uninstall").is_err());
        assert!(parse("--installation-id ID --core-url http://c --force").is_err());
    }

    #[test]
    fn a_wrong_line_is_refused_and_no_value_of_it_is_repeated() {
        for bad in [
            "",
            "sekret",
            "--sekret",
            "--core-url",
            "--core-url http://sekret:sekret@core --installation-id ID",
            "--core-url http://core/sekret --installation-id ID",
            "--core-url http://core?sekret --installation-id ID",
            "--core-url http://core --installation-id sekret",
            "--core-url http://core --installation-id 6A1F0E9C-6F0A-4D7A-8D5E-0B1C2D3E4F50",
            "--core-url http://core --installation-id ID --installation-id ID",
            "--core-url http://core --installation-id ID --enrollment-token-stdin=sekret",
            "--core-url http://core --installation-id ID --provider e2b",
            "--core-url http://core --installation-id ID --provider sekret",
            "--core-url http://core --installation-id ID --bundle sekret",
            "--core-url http://core --installation-id ID --bundle /b --source-url http://s",
            "--core-url http://core --installation-id ID --manifest-sha256 sekret",
            "--core-url http://core --installation-id ID --checkpoint-root /a/../sekret",
            "--core-url http://core --installation-id ID --json",
            "--core-url http://core --installation-id ID sekret",
            "--uninstall --installation-id ID --core-url http://core",
            "--uninstall --installation-id ID --json",
            "--doctor --force",
            "--doctor --core-url http://core",
            "--installation-id ID",
        ] {
            let said = parse(bad).unwrap_err().to_string();
            assert!(!said.contains("sekret") && !said.contains(ID), "{bad}: {said}");
            assert!(!said.contains('\n'), "{bad}: {said}");
        }
    }
}
