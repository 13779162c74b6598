//! Steps 13 and 14: the network's name, the checkpoint store's path, and the disk.

use std::{collections::BTreeMap, path::Path};

use oac_model::ProviderKind;

use crate::hint::Hint;

const GB: u64 = 1_000_000_000;
/// The archive, its unpacked copy and the imported image on one file system.
const ALL: u64 = 3 * GB;
/// Archive and unpacked copy; and as much for the image where Docker keeps it.
const HALF: u64 = 3 * GB / 2;
/// The programs alone.
const PROGRAMS: u64 = GB / 5;

/// A place on a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub path: String,
    /// The file system.
    pub device: u64,
    pub free_bytes: u64,
}

/// What step 14 goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disks {
    pub home: Disk,
    /// Docker's data root; `None` with microsandbox, and where it cannot be looked at.
    pub engine: Option<Disk>,
    /// Docker has the image under one of its digests.
    pub has_image: bool,
    /// Of an earlier attempt, below the node root.
    pub stored_bytes: u64,
}

/// Step 14.
pub fn disk(facts: &Disks) -> Result<(), Hint> {
    let apart = facts
        .engine
        .as_ref()
        .filter(|engine| engine.device != facts.home.device);
    let (home, engine) = match (facts.has_image, apart) {
        (true, _) => (PROGRAMS, None),
        (false, Some(engine)) => (HALF, Some(engine)),
        (false, None) => (ALL, None),
    };
    holds(&facts.home, home.saturating_sub(facts.stored_bytes))?;
    engine.map_or(Ok(()), |engine| holds(engine, HALF))
}

fn holds(disk: &Disk, needed: u64) -> Result<(), Hint> {
    if disk.free_bytes >= needed {
        return Ok(());
    }
    Err(disk_full(&disk.path, needed, disk.free_bytes))
}

/// The hint, in GB with one digit: what is needed rounded up, what is free rounded down.
pub fn disk_full(path: &str, needed: u64, free: u64) -> Hint {
    const TENTH: u64 = GB / 10;
    let shown = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
    Hint::DiskFull {
        path: path.to_owned(),
        needed: shown(needed.div_ceil(TENTH)),
        free: shown(free / TENTH),
    }
}

/// Step 13: without a record of ours a network of the name is somebody's. `labels` are those of the one that is there.
pub fn network(
    name: &str,
    installation: &str,
    labels: Option<&BTreeMap<String, String>>,
    recorded: bool,
) -> Result<(), Hint> {
    let Some(labels) = labels else { return Ok(()) };
    let is_ours = labels.get(LABEL).is_some_and(|value| value == installation);
    if recorded && is_ours {
        return Ok(());
    }
    Err(Hint::NetworkExists {
        network: name.to_owned(),
    })
}

/// On everything in Docker that is an installation's.
pub const LABEL: &str = "io.oac.installation";

/// Step 13: the checkpoint root of a node. `default` is the node's own; a registered node keeps the recorded one. Any
/// other one below `home` would go with the account.
pub fn checkpoint_root(
    provider: ProviderKind,
    given: Option<&str>,
    recorded: Option<&str>,
    registered: bool,
    home: &str,
    default: &str,
) -> Result<Option<String>, Hint> {
    if provider != ProviderKind::Microsandbox {
        return given.map_or(Ok(None), |_| Err(Hint::CheckpointRootForeign));
    }
    match (given, recorded) {
        (Some(given), Some(recorded)) if registered && given != recorded => {
            Err(Hint::CheckpointRootDiffers {
                path: recorded.to_owned(),
            })
        }
        (Some(given), recorded)
            if !(registered && recorded == Some(given))
                && given != default
                && Path::new(given).starts_with(home) =>
        {
            Err(Hint::CheckpointRootInside {
                home: home.to_owned(),
            })
        }
        (given, recorded) => Ok(Some(given.or(recorded).unwrap_or(default).to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(free: u64, engine: Option<(u64, u64)>, has_image: bool, stored_bytes: u64) -> Disks {
        let disk = |path: &str, device, free_bytes| Disk {
            path: path.into(),
            device,
            free_bytes,
        };
        Disks {
            home: disk("/var/lib", 1, free),
            engine: engine.map(|(device, free)| disk("/var/lib/docker", device, free)),
            has_image,
            stored_bytes,
        }
    }

    #[test]
    fn the_disk_must_hold_what_an_import_takes_at_each_place() {
        let full = |path: &str, needed: &str, free: &str| {
            Err(Hint::DiskFull {
                path: path.into(),
                needed: needed.into(),
                free: free.into(),
            })
        };
        assert_eq!(disk(&disks(ALL, Some((1, ALL)), false, 0)), Ok(()));
        assert_eq!(
            disk(&disks(ALL - 1, Some((1, ALL)), false, 0)),
            full("/var/lib", "3.0", "2.9")
        );
        // Docker on another file system.
        assert_eq!(disk(&disks(HALF, Some((2, HALF)), false, 0)), Ok(()));
        assert_eq!(
            disk(&disks(HALF - 1, Some((2, HALF)), false, 0)),
            full("/var/lib", "1.5", "1.4")
        );
        let engine = disk(&disks(HALF, Some((2, HALF - 1)), false, 0));
        assert_eq!(engine, full("/var/lib/docker", "1.5", "1.4"));
        // An image loaded by hand, and an earlier attempt.
        assert_eq!(disk(&disks(PROGRAMS, Some((2, 0)), true, 0)), Ok(()));
        assert_eq!(
            disk(&disks(PROGRAMS - 1, None, true, 0)),
            full("/var/lib", "0.2", "0.1")
        );
        assert_eq!(disk(&disks(ALL - 700, None, false, 700)), Ok(()));
        assert_eq!(disk(&disks(0, None, true, GB)), Ok(()));
    }

    #[test]
    fn a_network_of_the_name_is_ours_only_with_a_record_and_our_label() {
        let labels = |id: &str| BTreeMap::from([(LABEL.to_owned(), id.to_owned())]);
        let of = |labels: Option<&BTreeMap<String, String>>, recorded| network("n", "id", labels, recorded);
        let exists = Err(Hint::NetworkExists { network: "n".into() });
        assert_eq!(of(None, false), Ok(()));
        assert_eq!(of(None, true), Ok(()));
        assert_eq!(of(Some(&labels("id")), true), Ok(()));
        assert_eq!(of(Some(&labels("id")), false), exists);
        assert_eq!(of(Some(&labels("other")), true), exists);
        assert_eq!(of(Some(&BTreeMap::new()), true), exists);
    }

    #[test]
    fn a_checkpoint_root_is_given_recorded_or_the_default_and_fixed_by_registration() {
        use ProviderKind::{Docker, Microsandbox};
        let of = |provider, given, recorded, registered| {
            checkpoint_root(provider, given, recorded, registered, "/home", "/home/default")
        };
        let some = |path: &str| Ok(Some(path.to_owned()));
        assert_eq!(of(Docker, None, None, false), Ok(None));
        assert_eq!(
            of(Docker, Some("/a"), None, false),
            Err(Hint::CheckpointRootForeign)
        );
        assert_eq!(of(Microsandbox, None, None, false), some("/home/default"));
        assert_eq!(of(Microsandbox, None, Some("/r"), false), some("/r"));
        assert_eq!(of(Microsandbox, Some("/a"), Some("/r"), false), some("/a"));
        assert_eq!(of(Microsandbox, Some("/r"), Some("/r"), true), some("/r"));
        // Below the home it is the default or none.
        assert_eq!(
            of(Microsandbox, Some("/home/default"), None, false),
            some("/home/default")
        );
        assert_eq!(of(Microsandbox, Some("/homes"), None, false), some("/homes"));
        let inside = Err(Hint::CheckpointRootInside { home: "/home".into() });
        for given in ["/home", "/home/x", "/home/default/x"] {
            assert_eq!(of(Microsandbox, Some(given), None, false), inside, "{given}");
        }
        // One that was recorded before that was refused stays.
        assert_eq!(
            of(Microsandbox, Some("/home/x"), Some("/home/x"), true),
            some("/home/x")
        );
        let differs = Err(Hint::CheckpointRootDiffers { path: "/r".into() });
        assert_eq!(of(Microsandbox, Some("/a"), Some("/r"), true), differs);
    }
}
