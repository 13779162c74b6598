//! `oac-node` as it is, except that a test moves its clock and has it stop at a numbered step.
//!
//! A line on standard input of `run` is a number of seconds that pass at once; downloads see a second pass whenever
//! nothing comes for a tenth of one. `OAC_RIG` is an order in five words: which process (`run`, `prepare` or `collect`),
//! how many steps it makes before, what such a step's text contains (`-`: any), what is done then, and the folder that
//! the two sides know of each other by. There `stopped` holds the ids of whoever stays, once the step was reached; an
//! order is followed once.

use std::{
    fmt::Write as _,
    io::{BufRead as _, Write as _},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use oac_generations::inherit::{Number, hand_over, reserve};
use oac_node::{
    Clock,
    command::{Clocks, main_by},
};
use oac_records::steps::{Step, watch_everywhere};
use oac_release::fetch;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

fn main() -> ExitCode {
    reserve();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).take(2).collect();
    let role = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generation", errand] => errand,
        ["idle"] => park(),
        [command, ..] => command,
        [] => "",
    };
    let order = std::env::var("OAC_RIG")
        .ok()
        .and_then(|text| Order::of(&text, role));
    if let Some(order) = order {
        let made = AtomicU64::new(0);
        watch_everywhere(move |step| order.watch(step, &made));
    }
    let node = Clock::start();
    if role == "run" {
        let clock = node.clone();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                clock.skip(Duration::from_secs(line.parse().expect("seconds")));
            }
        });
    }
    let downloads = std::sync::Arc::new(Hurried(Clock::start()));
    main_by(Clocks { node, downloads })
}

struct Hurried(Clock);

impl fetch::Clock for Hurried {
    fn now(&self) -> Duration {
        fetch::Clock::now(&self.0)
    }

    fn idle(&self) {
        self.0.skip(Duration::from_secs(1));
    }
}

#[derive(Clone, Copy)]
enum Deed {
    /// This process dies.
    Die,
    /// Its parent does.
    KillNode,
    /// So, and this process lives on.
    Outlive,
    /// So, and a native process that it started lives on with what it inherited.
    LeaveNative,
    /// It waits, with a native process beside it in its group, until somebody writes to `go`.
    Wait,
}

struct Order {
    steps: u64,
    text: String,
    deed: Deed,
    folder: PathBuf,
}

impl Order {
    fn of(order: &str, role: &str) -> Option<Self> {
        let words: Vec<&str> = order.split(' ').collect();
        let [whom, steps, text, deed, folder] = words[..] else {
            panic!("five words: {order}");
        };
        let deed = match deed {
            "die" => Deed::Die,
            "kill-node" => Deed::KillNode,
            "outlive" => Deed::Outlive,
            "leave-native" => Deed::LeaveNative,
            "wait" => Deed::Wait,
            other => panic!("no deed {other}"),
        };
        (whom == role).then(|| Self {
            steps: steps.parse().expect("a number of steps"),
            text: text.to_owned(),
            deed,
            folder: PathBuf::from(folder),
        })
    }

    fn watch(&self, step: &Step, made: &AtomicU64) {
        let counts = self.text == "-" || format!("{step:?}").contains(&self.text);
        if !counts || made.fetch_add(1, Ordering::Relaxed) != self.steps {
            return;
        }
        let stopped = self.folder.join("stopped");
        if stopped.exists() {
            return;
        }
        let node = getppid().expect("a parent");
        match self.deed {
            Deed::Die => {
                say(&stopped, &[]);
                let _ = kill_process(getpid(), Signal::KILL);
            }
            Deed::KillNode => {
                say(&stopped, &[]);
                let _ = kill_process(node, Signal::KILL);
            }
            Deed::Outlive => {
                let _ = set_parent_process_death_signal(None);
                say(&stopped, &[getpid()]);
                let _ = kill_process(node, Signal::KILL);
            }
            Deed::LeaveNative => {
                let native = native(true);
                say(&stopped, &[native]);
                let _ = kill_process(node, Signal::KILL);
            }
            Deed::Wait => {
                let native = native(false);
                say(&stopped, &[getpid(), native]);
                // Until it is opened for writing.
                let _ = std::fs::read(self.folder.join("go"));
                return;
            }
        }
        park();
    }
}

/// Written whole or not at all, for whoever looks for it.
fn say(path: &Path, living: &[Pid]) {
    let mut text = String::new();
    for pid in living {
        let _ = writeln!(text, "{}", pid.as_raw_nonzero());
    }
    let partial = path.with_extension("partial");
    let mut file = std::fs::File::create(&partial).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    std::fs::rename(partial, path).expect("renamed");
}

/// A process of this one's group that nobody ends; with descriptor 3 where `inherits`.
#[allow(
    unsafe_code,
    reason = "descriptor 3 is the child's own lock, which nobody closes"
)]
fn native(inherits: bool) -> Pid {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("idle")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if inherits {
        // SAFETY: it is open as long as this process, which waits for its end.
        let lock = unsafe { BorrowedFd::borrow_raw(3) };
        hand_over(&mut command, lock, Number::Three).expect("handed over");
    }
    Pid::from_child(&command.spawn().expect("a native process"))
}

fn park() -> ! {
    loop {
        std::thread::park();
    }
}
