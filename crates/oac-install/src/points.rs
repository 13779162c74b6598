//! The numbered steps of installer.md section 14, for tests with the feature `points`: a run ends by SIGKILL at the one
//! that it was told, whole, child and parent. Without the feature nothing is here.

#[cfg(feature = "points")]
mod told {
    use std::sync::OnceLock;

    static AT: OnceLock<String> = OnceLock::new();

    /// From now on the run ends at the point of this name.
    pub fn end_at(name: String) {
        let _ = AT.set(name);
    }

    /// What a child asks root by: it may not end root itself.
    const END: &[u8] = b"end";

    pub(crate) fn pass(name: &str) {
        if AT.get().is_none_or(|at| at != name) {
            return;
        }
        if crate::descend::is_child() {
            crate::descend::tell_root(&[END, b"\n"].concat());
        } else {
            kill();
        }
        // The kernel ends a child when its parent has ended.
        loop {
            let _ = rustix::event::poll(&mut [], None);
        }
    }

    /// Whether a line of a child's is that question; then this process ends.
    pub(crate) fn heed(line: &[u8]) {
        if line == END {
            kill();
        }
    }

    fn kill() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[cfg(feature = "points")]
pub use told::end_at;
#[cfg(feature = "points")]
pub(crate) use told::{heed, pass};

#[cfg(not(feature = "points"))]
pub(crate) fn pass(_: &str) {}
#[cfg(not(feature = "points"))]
pub(crate) fn heed(_: &[u8]) {}

/// Every point, in the order of a run.
pub const ALL: [&str; 24] = [
    "1",
    "9",
    "14",
    "15 pending",
    "15 created",
    "15",
    "16 pending",
    "16",
    "17",
    "18",
    "19",
    "20",
    "21",
    "22",
    "23 imported",
    "23",
    "24",
    "25 confirmed",
    "25",
    "26 recorded",
    "26 unit",
    "26",
    "27",
    "28",
];
/// Likewise of an uninstall.
pub const UNINSTALL: [&str; 9] = ["u0", "u1 unit", "u1", "u2", "u3", "u4", "u5", "u6 userdel", "u6"];
