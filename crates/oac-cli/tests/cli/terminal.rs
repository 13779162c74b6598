//! `oac` on a terminal: prompts that show no key, questions, and what is being waited for.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::http::Method;
use oac_testkit::{core::TestCore, wait};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use tokio::process::Child;

use crate::{
    program::Oac,
    script::{
        SESSION, Script, answer, end, events_open, record, session, session_path, turn, turn_path, usual,
    },
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with `oac` in it.
struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Child,
    line: OwnedFd,
}

impl Terminal {
    fn run(oac: &Oac, arguments: &[&str]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let line = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32)
            .open(name.to_str().unwrap())
            .unwrap();
        let end = || Stdio::from(line.try_clone().unwrap());
        // A session of its own, whose terminal this becomes: Ctrl-C typed here is its signal.
        let mut command = tokio::process::Command::new("setsid");
        let inner = oac.command(arguments);
        let inner = inner.as_std();
        command
            .arg("--ctty")
            .arg("--wait")
            .arg(inner.get_program())
            .args(inner.get_args())
            .env("HOME", oac.folder.path())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .kill_on_drop(true);
        let child = command.spawn().unwrap();
        let keyboard = File::from(controller);
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n) = screen.read(&mut chunk) {
                seen.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Self {
            keyboard,
            shown,
            child,
            line: line.into(),
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    async fn until(&self, text: &str) {
        wait::until(text, PATIENCE, async || self.shown().contains(text).then_some(()))
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", self.shown()));
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    fn echoes(&self) -> bool {
        rustix::termios::tcgetattr(&self.line)
            .unwrap()
            .local_modes
            .contains(rustix::termios::LocalModes::ECHO)
    }

    async fn status(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("it goes on: {}", self.shown()))
            .unwrap()
            .code()
    }
}

#[tokio::test]
async fn typed_keys_are_not_shown_and_the_echo_comes_back() {
    let core = TestCore::start().await;
    let oac = Oac::unconfigured();
    let mut terminal = Terminal::run(&oac, &["login"]);
    terminal.until("Core's address").await;
    terminal.type_in(&format!("{}\n", core.url));
    terminal.until("Core key").await;
    assert!(!terminal.echoes());
    // With a slip of the finger.
    terminal.type_in(&format!("{}x\u{7f}\n", core.core_key.expose()));
    terminal.until("Project API key").await;
    terminal.type_in(&format!("nonsense\u{15}{}\r", core.project_key.expose()));
    assert_eq!(terminal.status().await, Some(0), "{}", terminal.shown());
    assert!(terminal.echoes());
    let shown = terminal.shown();
    for secret in [core.core_key.expose(), core.project_key.expose(), "nonsense"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    oac.run(&["session", "list"]).await.expect(0);
    oac.run(&["node", "list"]).await.expect(0);
}

#[tokio::test]
async fn ctrl_c_at_a_hidden_prompt_ends_with_the_echo_back_and_nothing_written() {
    let core = TestCore::start().await;
    let oac = Oac::unconfigured();
    let mut terminal = Terminal::run(&oac, &["login"]);
    terminal.until("Core's address").await;
    terminal.type_in(&format!("{}\n", core.url));
    terminal.until("Core key").await;
    terminal.type_in("half\u{3}");
    assert_eq!(terminal.status().await, Some(1), "{}", terminal.shown());
    assert!(terminal.echoes() && !oac.config.exists());
}

#[tokio::test]
async fn rm_says_what_goes_and_takes_only_yes_for_yes() {
    let script = Script::start(|asked, _| async move {
        match asked.method {
            Method::DELETE => answer(202, session(json!({}))),
            _ => answer(200, session(json!({ "turns": { "queued": 1, "running": 1 } }))),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    for (typed, status) in [("\n", 1), ("no\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::run(&oac, &["session", "rm", SESSION]);
        terminal.until("[y/N]").await;
        let shown = terminal.shown();
        assert!(
            shown.contains("work") && shown.contains("2 commands are unfinished"),
            "{shown}"
        );
        let deleted = script.asked().iter().any(|a| a.method == Method::DELETE);
        assert!(!deleted, "{typed:?}");
        terminal.type_in(typed);
        assert_eq!(terminal.status().await, Some(status), "{typed:?}");
    }
    assert!(script.asked().iter().any(|a| a.method == Method::DELETE));
}

#[tokio::test]
async fn what_is_waited_for_is_shown_and_taken_back() {
    let (release, held) = tokio::sync::watch::channel(false);
    let script = Script::start(move |asked, _| {
        let mut held = held.clone();
        async move {
            if asked.is(Method::GET, &turn_path("")) {
                return answer(200, turn(json!({ "state": "waiting" })));
            }
            if asked.is(Method::GET, &session_path("")) {
                return answer(
                    200,
                    session(json!({ "sandbox": { "state": "missing", "diagnostic": "" } })),
                );
            }
            if asked.is(Method::GET, &turn_path("/output")) {
                held.wait_for(|released| *released).await.unwrap();
                return crate::script::events(
                    record(0, "stdout", "here\n") + &end(json!({"state":"completed","exit_code":0})),
                );
            }
            usual(&asked).unwrap()
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let mut terminal = Terminal::run(&oac, &["session", "exec", SESSION, "--", "true"]);
    terminal.until("waiting: the sandbox is missing").await;
    release.send(true).unwrap();
    assert_eq!(terminal.status().await, Some(0));
    // Taken back before the output.
    terminal.until("\r\u{1b}[Khere").await;
}

#[tokio::test]
async fn ctrl_c_typed_on_a_terminal_cancels_the_command() {
    let script = Script::start(|asked, _| async move {
        usual(&asked).unwrap_or_else(|| events_open(record(0, "stdout", "ready\n")))
    })
    .await;
    let oac = Oac::of(&script.url);
    let mut terminal = Terminal::run(&oac, &["session", "exec", SESSION, "--", "true"]);
    terminal.until("ready").await;
    terminal.type_in("\u{3}");
    script.until(Method::POST, &turn_path("/cancel"), 1).await;
    terminal.until("again to leave").await;
    terminal.type_in("\u{3}");
    assert_eq!(terminal.status().await, Some(125));
    terminal.until("oac session logs").await;
}
