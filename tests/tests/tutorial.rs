//! The tutorial is true: its commands, run in order in one shell, print what it shows.

use std::{process::Stdio, time::Duration};

use oac_testkit::runtime_image::RuntimeImage;
use oac_tests::story::Story;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

const TEXT: &str = include_str!("../../docs/tutorial.md");
/// The port of this machine that the tutorial uses.
const PORT: &str = "8080";
const MARK: &str = "--- the command ended ---";

/// One command and what the tutorial shows below it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The commands of the fenced `console` blocks, in order.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.strip_prefix("$ ")) {
            (false, _) => inside = line == "```console",
            (true, _) if line == "```" => inside = false,
            (true, Some(command)) => steps.push(Step {
                command: command.to_owned(),
                shown: Vec::new(),
            }),
            (true, None) => steps
                .last_mut()
                .expect("a block begins with a command")
                .shown
                .push(line.to_owned()),
        }
    }
    steps
}

/// A line with everything that differs between installations replaced.
fn alike(line: &str) -> String {
    let word = |word: &str| {
        let is_time = word.len() >= 20 && word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T');
        if word.parse::<oac_model::SessionId>().is_ok() {
            "<id>".to_owned()
        } else if is_time {
            "<time>".to_owned()
        } else if word.ends_with("/.config/oac/config.toml") {
            "<file>".to_owned()
        } else if word.starts_with("http://") && !word.contains("127.0.0.1") {
            "<core>".to_owned()
        } else {
            word.to_owned()
        }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// A shell as the reader has one, but that nothing reads the commands themselves from standard input.
struct Shell {
    _child: Child,
    group: Pid,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .args(["-c", "exec 2>&1; exec bash --norc"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            group: Pid::from_raw(child.id().unwrap() as i32).unwrap(),
            commands: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            _child: child,
        }
    }

    /// What the command printed, in the background at least `lines` lines.
    async fn run(&mut self, command: &str, lines: usize) -> Vec<String> {
        let typed = format!("{{ {command}\n}} < /dev/null\nprintf '\\n%s\\n' '{MARK}'\n");
        self.commands.write_all(typed.as_bytes()).await.unwrap();
        let (mut printed, mut ended) = (Vec::new(), false);
        while !ended || (command.ends_with('&') && printed.len() < lines) {
            let line = self.lines.next_line().await.unwrap().expect("the shell goes on");
            if line == MARK {
                ended = true;
                // The line break before the mark.
                if printed.last().is_some_and(String::is_empty) {
                    printed.pop();
                }
            } else {
                printed.push(line);
            }
        }
        printed
    }
}

impl Drop for Shell {
    /// What a command left in the background goes too.
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

#[test]
fn the_tutorial_has_commands_and_what_they_print() {
    let steps = steps("text\n```console\n$ a\nb\nc\n$ d\n```\n$ no\n```\n$ no\n```\n```console\n$ e\n```\n");
    let step = |command: &str, shown: &[&str]| Step {
        command: command.to_owned(),
        shown: shown.iter().map(|s| (*s).to_owned()).collect(),
    };
    assert_eq!(steps, [step("a", &["b", "c"]), step("d", &[]), step("e", &[])]);
    assert_eq!(
        alike("  1  2026-11-30T03:30:00.1Z  x http://10.0.0.1:80 at"),
        "1 <time> x <core> at"
    );
}

#[tokio::test]
async fn docker_the_tutorial_does_what_it_says() {
    let story = Story::begin_with(None, RuntimeImage::full_of_tests()).await;
    let node = story.add_node("one", 1).await;
    let home = tempfile::tempdir().unwrap();
    let programs = story.installation.program("");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
    let environment = |program: &str| {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", &path)
            .env("HOME", home.path())
            .current_dir(home.path());
        command
    };

    // What the reader types at the prompts of `oac login`.
    let mut login = environment("oac")
        .arg("login")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let typed = format!(
        "{}\n{}\n\n",
        story.installation.url,
        story.installation.core_key.expose()
    );
    login
        .stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .await
        .unwrap();
    assert!(login.wait().await.unwrap().success());

    let port = oac_testkit::port::unused(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    let port = port.to_string();
    let mut shell = Shell::start(environment("bash"));
    for step in steps(TEXT) {
        let here = |text: &str| text.replace(&format!(":{PORT}/"), &format!(":{port}/"));
        let command = here(&step.command).replace(&format!(" {PORT}:"), &format!(" {port}:"));
        let shown: Vec<String> = step
            .shown
            .iter()
            .map(|line| alike(&line.replace(&format!("127.0.0.1:{PORT}"), &format!("127.0.0.1:{port}"))))
            .collect();
        let printed = tokio::time::timeout(Duration::from_secs(120), shell.run(&command, shown.len()))
            .await
            .unwrap_or_else(|_| panic!("`{command}` goes on\n{}", story.installation.core_log()));
        let printed: Vec<String> = printed.iter().map(|line| alike(line)).collect();
        assert_eq!(printed, shown, "`{command}`");
    }
    let ended = shell.run("jobs", 0).await;
    assert_eq!(ended, [""; 0], "nothing of it goes on");
    drop(shell);
    story.until_empty().await;
    story.end(vec![node]).await;
}
