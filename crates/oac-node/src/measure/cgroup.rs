//! The CPU bandwidth this process may use: the lowest quota on the way from its cgroup to the hierarchy's real root.
//!
//! Inside a container or a cgroup namespace ancestors are hidden, and a quota there cannot be seen; so the value is
//! known only when the mount's root is the real one (v1: it has `release_agent`; v2: it has no `cgroup.type`).

use std::path::{Component, Path, PathBuf};

use super::{Unread, read_bounded};
use crate::limits::CGROUP_LEVELS;

/// min(affinity, lowest quota/period); `None` when an ancestor is hidden, the path is deleted or anything changed
/// while it was read.
pub(super) fn effective_cores(proc_root: &Path, affinity: u32) -> Option<f64> {
    let membership = read_bounded(&proc_root.join("self/cgroup")).ok()?;
    let mounts = read_bounded(&proc_root.join("self/mountinfo")).ok()?;
    let quota = lowest_quota(&membership, &mounts)?;
    let unchanged = read_bounded(&proc_root.join("self/cgroup")).ok()? == membership
        && read_bounded(&proc_root.join("self/mountinfo")).ok()? == mounts;
    let affinity = f64::from(affinity);
    unchanged.then(|| quota.map_or(affinity, |quota| quota.min(affinity)))
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    V1,
    V2,
}

/// `Some(None)`: established that there is no quota.
fn lowest_quota(membership: &str, mounts: &str) -> Option<Option<f64>> {
    let Some((version, path)) = own_cgroup(membership)? else {
        return Some(None);
    };
    let root = real_root(version, mounts)?;
    let relative = path.strip_prefix("/").ok()?;
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
        || relative.components().count() > CGROUP_LEVELS
    {
        return None;
    }
    let mut level = root.join(relative);
    let mut lowest: Option<f64> = None;
    loop {
        let at_root = level == root;
        if let Some(quota) = quota_of(version, &level, at_root)? {
            lowest = Some(lowest.map_or(quota, |low| low.min(quota)));
        }
        if at_root {
            return Some(lowest);
        }
        level.pop();
    }
}

/// The cgroup that governs this process's CPU time: v1 `cpu` before v2. `Some(None)`: the kernel has neither.
fn own_cgroup(membership: &str) -> Option<Option<(Version, PathBuf)>> {
    let mut unified = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = (Path::new(path).to_owned(), path.ends_with(" (deleted)"));
        if controllers.split(',').any(|c| c == "cpu") {
            return alive(Version::V1, found);
        }
        if number == "0" && controllers.is_empty() {
            unified = Some(found);
        }
    }
    match unified {
        Some(found) => alive(Version::V2, found),
        None => Some(None),
    }
}

fn alive(version: Version, (path, deleted): (PathBuf, bool)) -> Option<Option<(Version, PathBuf)>> {
    (!deleted).then_some(Some((version, path)))
}

/// Where the whole hierarchy is mounted.
fn real_root(version: Version, mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        let (kind, options) = (filesystem.next()?, filesystem.nth(1)?);
        let mut mount = mount.split(' ');
        let (root, point) = (mount.nth(3)?, unescape(mount.next()?));
        let fits = match version {
            Version::V1 => {
                kind == "cgroup"
                    && options.split(',').any(|o| o == "cpu")
                    && point.join("release_agent").exists()
            }
            Version::V2 => {
                kind == "cgroup2"
                    && point.join("cgroup.procs").exists()
                    && !point.join("cgroup.type").exists()
            }
        };
        (root == "/" && fits).then_some(point)
    })
}

/// Mount points escape space, tab, newline and backslash as three octal digits.
fn unescape(point: &str) -> PathBuf {
    let mut text = point.to_owned();
    for (escape, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(escape, plain);
    }
    text.into()
}

/// The quota one cgroup sets, in cores. `Some(None)`: it sets none.
fn quota_of(version: Version, level: &Path, at_root: bool) -> Option<Option<f64>> {
    let (quota, period) = match version {
        Version::V1 => {
            let quota = match read_bounded(&level.join("cpu.cfs_quota_us")) {
                Err(Unread::Missing) if at_root => return Some(None),
                text => text.ok()?,
            };
            if quota.trim_end() == "-1" {
                return Some(None);
            }
            (quota, read_bounded(&level.join("cpu.cfs_period_us")).ok()?)
        }
        Version::V2 => {
            let text = match read_bounded(&level.join("cpu.max")) {
                // Without the controller, or at the root, a group has no such file and sets no quota.
                Err(Unread::Missing) if level.join("cgroup.procs").exists() => return Some(None),
                text => text.ok()?,
            };
            let (quota, period) = text.trim_end().split_once(' ')?;
            if quota == "max" {
                return Some(None);
            }
            (quota.to_owned(), period.to_owned())
        }
    };
    let (quota, period) = (
        quota.trim_end().parse::<u64>().ok()?,
        period.trim_end().parse::<u64>().ok()?,
    );
    (quota > 0 && period > 0).then(|| Some(quota as f64 / period as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proc and cgroup tree on disk.
    struct Host {
        temp: tempfile::TempDir,
    }

    impl Host {
        fn new(cgroup: &str, mounts: &[(&str, &str, &str, &str)]) -> Self {
            let temp = tempfile::tempdir().unwrap();
            let host = Self { temp };
            host.file("proc/self/cgroup", cgroup);
            let lines: String = mounts
                .iter()
                .map(|(root, point, kind, options)| {
                    let point = host.temp.path().join(point).display().to_string();
                    format!("32 31 0:29 {root} {point} rw - {kind} {kind} {options}\n")
                })
                .collect();
            host.file("proc/self/mountinfo", &lines);
            host
        }

        fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.temp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        fn cores(&self, affinity: u32) -> Option<f64> {
            effective_cores(&self.temp.path().join("proc"), affinity)
        }
    }

    fn v2(cgroup: &str) -> Host {
        let host = Host::new(cgroup, &[("/", "cg", "cgroup2", "rw")]);
        host.file("cg/cgroup.procs", "");
        host.file("cg/a/cgroup.procs", "")
            .file("cg/a/cgroup.type", "domain");
        host.file("cg/a/b/cgroup.procs", "")
            .file("cg/a/b/cgroup.type", "domain");
        host
    }

    #[test]
    fn the_lowest_quota_of_a_v2_path_bounds_the_affinity() {
        let host = v2("0::/a/b\n");
        assert_eq!(host.cores(4), Some(4.0), "no controller, no quota");
        host.file("cg/a/cpu.max", "150000 100000\n");
        host.file("cg/a/b/cpu.max", "max 100000\n");
        assert_eq!(host.cores(4), Some(1.5));
        assert_eq!(host.cores(1), Some(1.0));
    }

    #[test]
    fn the_v1_cpu_hierarchy_comes_before_v2() {
        let host = Host::new(
            "3:cpu,cpuacct:/a\n1:name=systemd:/x\n0::/\n",
            &[
                ("/", "uni", "cgroup2", "rw"),
                ("/", "mem", "cgroup", "rw,memory"),
                ("/", "cpu", "cgroup", "rw,cpu,cpuacct"),
            ],
        );
        host.file("cpu/release_agent", "");
        host.file("cpu/a/cpu.cfs_quota_us", "50000\n")
            .file("cpu/a/cpu.cfs_period_us", "100000\n");
        assert_eq!(host.cores(8), Some(0.5));
        host.file("cpu/a/cpu.cfs_quota_us", "-1\n");
        assert_eq!(host.cores(8), Some(8.0));
    }

    // inv: INV-N34
    #[test]
    fn a_hidden_ancestor_a_deleted_path_and_a_foreign_shape_are_unknown() {
        let inside_a_container = v2("0::/\n");
        inside_a_container.file("cg/cgroup.type", "domain");
        assert_eq!(inside_a_container.cores(4), None);
        let bind = Host::new("0::/a\n", &[("/a", "cg", "cgroup2", "rw")]);
        bind.file("cg/cgroup.procs", "");
        assert_eq!(bind.cores(4), None);
        assert_eq!(v2("0::/a/b (deleted)\n").cores(4), None);
        assert_eq!(v2("0::/../b\n").cores(4), None);
        assert_eq!(
            v2("0::/a/gone\n").cores(4),
            None,
            "the cgroup vanished while it was read"
        );
        assert_eq!(v2("nonsense\n").cores(4), None);
        let malformed = v2("0::/a\n");
        malformed.file("cg/a/cpu.max", "0 100000\n");
        assert_eq!(malformed.cores(4), None);
        let deep = format!("0::/{}\n", vec!["a"; CGROUP_LEVELS + 1].join("/"));
        assert_eq!(v2(&deep).cores(4), None);
    }
}
