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

    pub(crate) fn pass(name: &str) {
        if AT.get().is_none_or(|at| at != name) {
            return;
        }
        let parent = crate::descend::parent();
        if let Some(parent) = parent {
            let _ = rustix::process::kill_process(parent, rustix::process::Signal::KILL);
        } else {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        // The kernel ends a child when its parent has ended.
        loop {
            let _ = rustix::event::poll(&mut [], None);
        }
    }
}

#[cfg(feature = "points")]
pub use told::end_at;
#[cfg(feature = "points")]
pub(crate) use told::pass;

#[cfg(not(feature = "points"))]
pub(crate) fn pass(_: &str) {}

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
pub const UNINSTALL: [&str; 8] = ["u0", "u1", "u2", "u3", "u4", "u5", "u6 userdel", "u6"];
