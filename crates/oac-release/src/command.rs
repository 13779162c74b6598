//! The commands that operators paste: one makes a host a node, one gives it back (installer.md section 1). Pure.
//!
//! They are rendered here and nowhere else: Core answers them, console and command line show them as they are. Around
//! one script file stand slots, and a slot holds only characters that mean nothing to any shell, so nothing is ever
//! escaped. The token stands in an `echo` before the pipe, which every shell runs by itself: it is no process's
//! argument, and the script, which is one, holds no secret.

use std::sync::LazyLock;

use oac_model::{InstallationId, ProviderKind, Secret, SourceCommit};

use crate::{
    index::{Index, InstallerFile},
    layout::RELEASES,
    limits::COMMAND_BYTES,
};

const SOURCE: &str = include_str!("../assets/bootstrap.sh");

/// The script on one line.
static SCRIPT: LazyLock<String> = LazyLock::new(|| one_line(SOURCE));

/// Without comments and indentation; where a line does not end in the middle of a list, a semicolon ends it.
fn one_line(source: &str) -> String {
    let lines = source.lines().map(str::trim);
    let mut script = String::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if !script.is_empty() {
            let open = [" do", " in", ";;"].iter().any(|end| script.ends_with(end));
            script.push_str(if open { " " } else { "; " });
        }
        script.push_str(line);
    }
    script
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("a command can carry no {slot} of other characters than letters, digits and . _ : / [ ] -")]
    Slot { slot: &'static str },
    #[error("the command would be longer than {COMMAND_BYTES} bytes, which a terminal may cut")]
    Long,
}

/// Whether a host is given back only once Core confirms that its node was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    /// By Core, at the address the node enrolled with.
    Needed,
    /// That address is gone: `--force`.
    Waived,
}

/// The commands of one Core, for the installer of its current release.
#[derive(Debug, Clone, Copy)]
pub struct Commands<'a> {
    origin: &'a str,
    index: &'a Index,
    installer: &'a InstallerFile,
}

impl<'a> Commands<'a> {
    /// `None` when `index` names no installer. `origin` is Core's public address.
    pub fn new(origin: &'a str, index: &'a Index) -> Option<Self> {
        let installer = index.installer.0.as_ref()?;
        Some(Self {
            origin,
            index,
            installer,
        })
    }

    /// What makes a host a node: one line without its end. Secret, for it holds the token.
    pub fn install(
        &self,
        installation: InstallationId,
        provider: ProviderKind,
        token: &Secret,
    ) -> Result<Secret, CommandError> {
        let mut line = String::from(" echo");
        slot(&mut line, "token", token.expose())?;
        line.push_str(" |");
        self.script(&mut line)?;
        line.push_str(" --core-url");
        slot(&mut line, "address", self.origin)?;
        line.push_str(" --installation-id");
        slot(&mut line, "installation id", &installation.to_string())?;
        line.push_str(" --provider");
        slot(&mut line, "provider", provider.as_str())?;
        line.push_str(" --manifest-sha256");
        slot(&mut line, "digest", &self.index.manifest_sha256.to_string())?;
        line.push_str(" --enrollment-token-stdin");
        bounded(line).map(Secret::new)
    }

    /// What gives a host back.
    pub fn uninstall(
        &self,
        installation: InstallationId,
        confirmation: Confirmation,
    ) -> Result<String, CommandError> {
        let mut line = String::new();
        self.script(&mut line)?;
        line.push_str(" --uninstall --installation-id");
        slot(&mut line, "installation id", &installation.to_string())?;
        if confirmation == Confirmation::Waived {
            line.push_str(" --force");
        }
        bounded(line)
    }

    /// The script with its two arguments: which bytes are run, and where they are.
    fn script(&self, line: &mut String) -> Result<(), CommandError> {
        line.push_str(" sh -c '");
        line.push_str(&SCRIPT);
        line.push_str("' oac-node-bootstrap");
        slot(line, "digest", &self.installer.sha256.to_string())?;
        let url = url(self.origin, self.index.source_commit, &self.installer.filename);
        slot(line, "address", &url)
    }
}

/// An artifact's address, under its commit: what it answers never changes.
fn url(origin: &str, commit: SourceCommit, filename: &str) -> String {
    format!("{origin}{RELEASES}/{commit}/artifacts/{filename}")
}

/// A value in single quotes, which every shell takes for itself.
fn slot(line: &mut String, slot: &'static str, value: &str) -> Result<(), CommandError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._:/[]-".contains(&b);
    // One that begins with a dash could be an option of `echo` or of the installer.
    if value.is_empty() || value.starts_with('-') || !value.bytes().all(plain) {
        return Err(CommandError::Slot { slot });
    }
    line.push_str(" '");
    line.push_str(value);
    line.push('\'');
    Ok(())
}

fn bounded(line: String) -> Result<String, CommandError> {
    if line.len() < COMMAND_BYTES {
        Ok(line)
    } else {
        Err(CommandError::Long)
    }
}

#[cfg(test)]
mod tests {
    use oac_model::Digest;
    use oac_wire::Nullable;

    use super::*;
    use crate::{index::Providers, layout, made::commit};

    const ORIGIN: &str = "https://core.example.com:8443";
    const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn installation() -> InstallationId {
        "11111111-1111-4111-8111-111111111111".parse().unwrap()
    }

    fn index(filename: &str) -> Index {
        Index {
            format: 1,
            source_commit: commit('a'),
            manifest_sha256: Digest::of("manifest"),
            installer: Nullable(Some(InstallerFile {
                filename: filename.to_owned(),
                size: 1,
                sha256: Digest::of("installer"),
            })),
            providers: Providers {
                docker: true,
                microsandbox: true,
            },
            releases: vec![commit('a')],
        }
    }

    fn offered() -> Index {
        index(&layout::INSTALLER.filename(commit('a')))
    }

    /// Install, uninstall and forced uninstall.
    fn rendered(origin: &str, index: &Index, token: &str) -> Result<[String; 3], CommandError> {
        let commands = Commands::new(origin, index).unwrap();
        let install = commands.install(installation(), ProviderKind::Docker, &Secret::new(token))?;
        Ok([
            install.expose().to_owned(),
            commands.uninstall(installation(), Confirmation::Needed)?,
            commands.uninstall(installation(), Confirmation::Waived)?,
        ])
    }

    /// What a POSIX shell makes of the words after the script: quotes go, nothing else changes.
    fn words(tail: &str) -> Vec<&str> {
        tail.split(' ').map(|word| word.trim_matches('\'')).collect()
    }

    // req: G-073, G-162
    #[test]
    fn the_commands_name_core_the_exact_installer_and_what_it_is_to_do() {
        let [install, uninstall, forced] = rendered(ORIGIN, &offered(), TOKEN).unwrap();
        let before = format!(" echo '{TOKEN}' | sh -c '");
        let (script, tail) = install.strip_prefix(&before).unwrap().split_once("' ").unwrap();
        let a = commit('a');
        let (sha, url) = (
            Digest::of("installer").to_string(),
            format!(
                "{ORIGIN}/api/v1/sandbox-node/install/releases/{a}/artifacts/oac-{a}-linux-amd64-node-install"
            ),
        );
        let manifest = Digest::of("manifest").to_string();
        let id = installation().to_string();
        let arguments = [
            "--core-url",
            ORIGIN,
            "--installation-id",
            &id,
            "--provider",
            "docker",
            "--manifest-sha256",
            &manifest,
            "--enrollment-token-stdin",
        ];
        assert_eq!(
            words(tail),
            [&["oac-node-bootstrap", &sha, &url][..], &arguments].concat()
        );
        let begin = format!(" sh -c '{script}' oac-node-bootstrap '{sha}' '{url}'");
        assert_eq!(uninstall, format!("{begin} --uninstall --installation-id '{id}'"));
        assert_eq!(forced, format!("{uninstall} --force"));
        // The token is in no argument of a process: `echo` is the shell's own.
        assert_eq!(install.matches(TOKEN).count(), 1);
    }

    // inv: INV-I26
    #[test]
    fn every_command_is_one_line_that_begins_with_a_space_and_that_a_shell_can_read() {
        let host = format!("{}.example.com", "a".repeat(253 - ".example.com".len()));
        for origin in [
            ORIGIN,
            "http://[2001:db8::1]:65535",
            &format!("https://{host}:65535"),
        ] {
            for line in rendered(origin, &offered(), TOKEN).unwrap() {
                assert!(line.starts_with(' ') && !line.starts_with("  "), "{line}");
                assert!(line.len() < 4000, "{} bytes", line.len());
                assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "{line}");
                let read = std::process::Command::new("sh")
                    .args(["-n", "-c", &line])
                    .status();
                assert!(read.unwrap().success(), "{line}");
            }
        }
    }

    #[test]
    fn the_script_holds_nothing_that_a_login_shell_would_change_inside_single_quotes() {
        assert!(!SCRIPT.contains(['\'', '\\', '!', '\n', '\t']), "{}", *SCRIPT);
        let read = std::process::Command::new("sh")
            .args(["-n", "-c", &SCRIPT])
            .status();
        assert!(read.unwrap().success());
    }

    #[test]
    fn a_slot_takes_nothing_that_means_something_to_a_shell() {
        let bad = |text: &str| text.chars().map(|c| format!("x{c}y")).collect::<Vec<_>>();
        let mut values = bad("'\"\\`$!&|;<>(){}*?~#% \n\r\t\0=,@^+\u{e9}");
        values.extend(["", "-n", "--force"].map(str::to_owned));
        for value in values {
            let token = rendered(ORIGIN, &offered(), &value);
            assert_eq!(token, Err(CommandError::Slot { slot: "token" }), "{value:?}");
            if value.is_empty() || value.starts_with('-') {
                continue;
            }
            let origin = rendered(&format!("https://{value}"), &offered(), TOKEN);
            assert_eq!(origin, Err(CommandError::Slot { slot: "address" }), "{value:?}");
            let filename = rendered(ORIGIN, &index(&value), TOKEN);
            assert_eq!(filename, Err(CommandError::Slot { slot: "address" }), "{value:?}");
        }
        let long = format!("https://{}", "a".repeat(1000));
        assert_eq!(rendered(&long, &offered(), TOKEN), Err(CommandError::Long));
    }

    #[test]
    fn a_shell_hands_every_slot_on_as_it_is() {
        let [install, uninstall, forced] = rendered("http://[fd00::1]:8080", &offered(), TOKEN).unwrap();
        for line in [install, uninstall, forced] {
            // The same words, with a script that prints what it is given instead of the real one.
            let (before, rest) = line.split_once("sh -c '").unwrap();
            let (_, tail) = rest.split_once("' ").unwrap();
            let printing = format!("{before}sh -c 'cat; echo; printf \"%s \" \"$0\" \"$@\"' {tail}");
            let output = std::process::Command::new("sh")
                .args(["-c", &printing])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let expected: Vec<&str> = words(tail);
            assert_eq!(
                text.split('\n').next_back().unwrap().trim_end(),
                expected.join(" ")
            );
            assert_eq!(text.contains(TOKEN), before.contains(TOKEN));
        }
    }

    #[test]
    fn a_command_with_a_token_prints_as_stars_and_there_is_none_without_an_installer() {
        let mut offered = offered();
        let commands = Commands::new(ORIGIN, &offered).unwrap();
        let install = commands.install(installation(), ProviderKind::Docker, &Secret::new(TOKEN));
        assert!(!format!("{install:?}").contains(TOKEN));
        offered.installer = Nullable(None);
        assert!(Commands::new(ORIGIN, &offered).is_none());
    }
}
