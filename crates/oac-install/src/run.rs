//! The program: its arguments, who runs it, what of its environment stays, the token, and the exit status.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use oac_model::Secret;
use oac_proxy::Proxies as Checked;
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    process::{geteuid, umask},
    termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr},
};

use crate::{
    arguments::{HELP, Order},
    descend::{moment, note_signals, stopped},
    display::Display,
    doctor,
    hint::Hint,
    host::Host,
    install::Installing,
    plan::{
        host::{TOKEN_BYTES, token},
        service::{self, PROXY_NAMES, Proxies},
    },
    uninstall::Removing,
};

/// Where a token must not be: sudo would log it.
const TOKEN_VARIABLE: &str = "OAC_ENROLLMENT_TOKEN";
const USAGE: u8 = 2;

/// What is taken from the invoker before the environment goes.
struct Invoker {
    proxies: Proxies,
    sudo: &'static str,
    is_plain: bool,
    is_dumb: bool,
    bootstrap: PathBuf,
}

/// Everything, and the exit status.
pub fn main(host: &Host, arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let order = match Order::parse(arguments) {
        Ok(order) => order,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::from(USAGE);
        }
    };
    match order {
        Order::Help => return print(HELP),
        Order::Version => return print(&version(host)),
        _ => {}
    }
    note_signals();
    match execute(host, &order) {
        Ok(status) => ExitCode::from(status),
        Err(hint) => {
            say(&crate::report::printable(&hint.to_string()));
            ExitCode::from(hint.exit_status())
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    ExitCode::from(u8::from(
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err(),
    ))
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn version(host: &Host) -> String {
    let commit = host
        .commit
        .map_or_else(|| "no release".to_owned(), |commit| commit.to_string());
    format!("oac-node-install {} ({commit})\n", env!("CARGO_PKG_VERSION"))
}

fn execute(host: &Host, order: &Order) -> Result<u8, Hint> {
    if !geteuid().is_root() {
        return Err(Hint::NotRoot);
    }
    let invoker = enter()?;
    let no_color = match order {
        Order::Install(install) => install.no_color,
        Order::Uninstall(uninstall) => uninstall.no_color,
        _ => true,
    };
    let mut display = Display::of_this_process(no_color || invoker.is_plain, invoker.is_dumb);
    match order {
        Order::Install(order) => {
            crate::plan::host::platform(&crate::look::platform(host))?;
            let token = match order.token_on_stdin {
                true => Some(read_token()?),
                false => None,
            };
            let mut installing = Installing {
                host,
                order,
                proxies: &invoker.proxies,
                display: &mut display,
                sudo: invoker.sudo,
                name: name(),
            };
            installing.run(token)?;
        }
        Order::Uninstall(order) => {
            let mut removing = Removing {
                host,
                order,
                proxies: &invoker.proxies,
                display: &mut display,
                bootstrap: invoker.bootstrap,
            };
            removing.run()?;
        }
        Order::Doctor(order) => {
            let lines = doctor::examine(host, order, &invoker.proxies, &mut display);
            print(&doctor::shown(&lines, order.json));
            return Ok(u8::from(
                lines.iter().any(|line| line.result == doctor::Verdict::Fail),
            ));
        }
        Order::Help | Order::Version => {}
    }
    Ok(0)
}

/// Step 3: of the invoker's environment nothing stays but the proxies; umask and directory are fixed.
#[allow(unsafe_code, reason = "the environment of a process of one thread")]
fn enter() -> Result<Invoker, Hint> {
    if std::env::var_os(TOKEN_VARIABLE).is_some() {
        return Err(Hint::TokenInEnvironment);
    }
    Checked::from_variables(|name| std::env::var_os(name)).map_err(|error| Hint::Proxy {
        name: match error {
            oac_proxy::ProxyError::Url { name } | oac_proxy::ProxyError::Text { name } => name,
        },
    })?;
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    // The command's own folder, where this program was started from it.
    let started = std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.to_owned()));
    let bootstrap = started
        .filter(|folder| folder.ends_with(".oac/node-bootstrap"))
        .unwrap_or_else(|| PathBuf::from(home).join(".oac/node-bootstrap"));
    let invoker = Invoker {
        proxies: service::proxies(|name| std::env::var(name).ok()),
        sudo: if std::env::var_os("SUDO_USER").is_some() {
            "sudo "
        } else {
            ""
        },
        is_plain: std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        is_dumb: std::env::var_os("TERM").is_some_and(|value| value == "dumb"),
        bootstrap,
    };
    let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    // SAFETY: this process has one thread until it forks, and its children have one when they do this.
    unsafe {
        for name in names {
            let is_kept = name.to_str().is_some_and(|name| PROXY_NAMES.contains(&name));
            if !is_kept {
                std::env::remove_var(name);
            }
        }
        std::env::set_var("PATH", crate::host::PATH);
    }
    umask(rustix::fs::Mode::from_raw_mode(0o077));
    std::env::set_current_dir("/").map_err(|error| Hint::failed("The directory /", &error))?;
    Ok(invoker)
}

/// Step 5. At a terminal it asks, and shows nothing of what is typed.
fn read_token() -> Result<Secret, Hint> {
    let stdin = std::io::stdin();
    let shows = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten();
    if let Some(shows) = &shows {
        let _ = write!(std::io::stderr(), "Enrollment token: ");
        let mut hides = shows.clone();
        hides.local_modes.remove(LocalModes::ECHO);
        let _ = tcsetattr(&stdin, OptionalActions::Now, &hides);
    }
    let read = read_line(&stdin, shows.is_some());
    if let Some(shows) = &shows {
        let _ = tcsetattr(&stdin, OptionalActions::Now, shows);
        say("");
    }
    token(&read?).map(Secret::new)
}

/// To the end of the input, or of the line where somebody types it; a signal ends the wait.
fn read_line(stdin: &std::io::Stdin, is_typed: bool) -> Result<Vec<u8>, Hint> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while bytes.len() <= TOKEN_BYTES + 2 && !(is_typed && bytes.contains(&b'\n')) {
        let mut fds = [PollFd::new(stdin, PollFlags::IN)];
        moment(&mut fds);
        stopped()?;
        if fds[0].revents().is_empty() {
            continue;
        }
        match rustix::io::read(stdin, &mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return Err(Hint::TokenMalformed),
        }
    }
    Ok(bytes)
}

/// The host's name, cut to what a node's name may be.
fn name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut end = name.len().min(128);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
