//! An account on a test host, and what a person does with it: log in, paste a line, read what it says.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;

use super::{Host, HostError, Ran, Result};

/// What an account may do through sudo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sudo {
    /// Anything, without a password, with any variable that it asks to preserve.
    Anything,
    /// Anything, but no variable of its own.
    NoVariables,
    Nothing,
}

/// A login shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Dash,
    Zsh,
    Fish,
}

impl Shell {
    pub const ALL: [Self; 4] = [Self::Bash, Self::Dash, Self::Zsh, Self::Fish];

    fn path(self) -> &'static str {
        match self {
            Self::Bash => "/bin/bash",
            Self::Dash => "/bin/dash",
            Self::Zsh => "/bin/zsh",
            Self::Fish => "/usr/bin/fish",
        }
    }

    /// The status of the command before.
    fn status(self) -> &'static str {
        match self {
            Self::Fish => "$status",
            _ => "$?",
        }
    }
}

/// An ordinary account, or root, at a terminal of a host.
#[derive(Clone)]
pub struct User<'h> {
    host: &'h Host,
    name: String,
}

impl Host {
    /// An ordinary account with a home of its own, made as Debian makes one.
    pub async fn user(&self, name: &str, sudo: Sudo) -> Result<User<'_>> {
        let may = match sudo {
            Sudo::Nothing => String::new(),
            Sudo::Anything => format!("echo '{name} ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/{name}"),
            Sudo::NoVariables => {
                format!("echo '{name} ALL=(ALL:ALL) NOPASSWD: NOSETENV: ALL' >/etc/sudoers.d/{name}")
            }
        };
        // Without a file of its own zsh asks a new person what it should write there.
        let zsh = format!("install -o {name} -g {name} /dev/null /home/{name}/.zshrc");
        self.output(&format!(
            "useradd --create-home --shell /bin/bash '{name}' && {zsh}; {may}"
        ))
        .await?;
        Ok(self.user_again(name))
    }

    /// An account that is there already.
    pub fn user_again(&self, name: &str) -> User<'_> {
        User {
            host: self,
            name: name.to_owned(),
        }
    }

    /// Root, logged in.
    pub fn root_user(&self) -> User<'_> {
        self.user_again("root")
    }
}

impl User<'_> {
    /// Types `line` into an interactive login shell on a terminal, as it is, and presses Enter. Both streams come back
    /// as the terminal showed them, the line's echo among them; the status is the line's.
    pub async fn paste(&self, shell: Shell, line: &str) -> Result<Ran> {
        self.paste_after(shell, "", line).await
    }

    /// Likewise, after another line in the same shell, such as an `export`.
    pub async fn paste_after(&self, shell: Shell, before: &str, line: &str) -> Result<Ran> {
        let login = format!("su --login --shell {} {}", shell.path(), self.name);
        let typed = format!("{before}\n{line}; exit {}\n", shell.status());
        let mut command =
            self.host
                .command(&["script", "--quiet", "--return", "--command", &login, "/dev/null"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = |source| HostError::Start {
            program: "script",
            source,
        };
        let mut child = command.spawn().map_err(started)?;
        let mut keyboard = child.stdin.take();
        if let Some(keyboard) = &mut keyboard {
            keyboard.write_all(typed.as_bytes()).await.map_err(started)?;
            keyboard.flush().await.map_err(started)?;
        }
        // Nobody closes a keyboard: its end would be a Ctrl-D.
        let output = child.wait_with_output().await.map_err(started)?;
        drop(keyboard);
        Ok(output.into())
    }

    /// Runs a line without a terminal, in the account's login environment: both streams apart.
    pub async fn run(&self, line: &str) -> Result<Ran> {
        let output = self
            .host
            .command(&["su", "--login", "--command", line, &self.name])
            .output()
            .await;
        output.map(Ran::from).map_err(|source| HostError::Start {
            program: "bash",
            source,
        })
    }
}
