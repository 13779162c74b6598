//! What root sees of the host, as the facts that [`crate::plan`] goes by. Nothing is changed, nothing below the account's
//! home is opened.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use oac_model::InstallationId;

use crate::{
    hint::Hint,
    host::Host,
    plan::{
        ACCOUNT_NAME, UID,
        account::{self, Entry, Home},
        engine::Device,
        host::{Installations, Platform, TOOLS},
        service::installation_of,
    },
    records::{ACCOUNT, Account, Node, RECORD_BYTES, Read},
    root_files, tools,
};

pub(crate) fn platform(host: &Host) -> Platform {
    let name = rustix::system::uname();
    let is = |text: &std::ffi::CStr, expected: &str| text.to_bytes() == expected.as_bytes();
    let missing = TOOLS
        .iter()
        .filter(|tool| tools::find(&host.tools, tool).is_none());
    let enforce = fs::read(host.selinux()).unwrap_or_default();
    Platform {
        is_linux_amd64: is(name.sysname(), "Linux") && is(name.machine(), "x86_64"),
        has_systemd: host.systemd().is_dir(),
        missing_tools: missing.map(|tool| (*tool).to_owned()).collect(),
        selinux_enforces: enforce.first() == Some(&b'1'),
    }
}

/// `account.json`.
pub(crate) fn account_record(host: &Host) -> Read<Account> {
    decode(&host.records().join(ACCOUNT), Account::decode)
}

fn decode<T>(path: &Path, decode: impl FnOnce(&[u8]) -> Option<T>) -> Read<T> {
    match root_files::read(path, RECORD_BYTES) {
        Ok(None) => Read::Absent,
        Ok(Some(bytes)) => decode(&bytes).map_or(Read::Damaged, Read::Is),
        Err(_) => Read::Damaged,
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

pub(crate) fn installations(host: &Host) -> Installations {
    let folder = host.records();
    let ids = names(&folder).into_iter();
    let ids = ids.filter_map(|name| name.strip_suffix(".json")?.parse::<InstallationId>().ok());
    let records: BTreeMap<_, _> = ids
        .map(|id| {
            (
                id,
                decode(&folder.join(Host::record_name(id)), |bytes| {
                    Node::decode(bytes, id)
                }),
            )
        })
        .collect();
    Installations {
        records,
        units: names(&host.units())
            .iter()
            .filter_map(|name| installation_of(name))
            .collect(),
        roots: BTreeSet::new(),
        account_damaged: account_record(host) == Read::Damaged,
        folder: folder.display().to_string(),
    }
}

/// Name and members of a group's line.
fn members(line: &str) -> Option<(&str, Vec<&str>)> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, _, members] = fields[..] else {
        return None;
    };
    Some((name, members.split(',').collect()))
}

/// Of the account; `group` is one whose membership counts.
pub(crate) fn account(host: &Host, group: Option<&str>) -> Result<account::Facts, Hint> {
    let found = tools::look_up(host, "passwd", ACCOUNT_NAME)?;
    let entry = found.as_deref().map(Entry::read).transpose();
    let entry = entry.map_err(account::misfit)?;
    let owner = tools::look_up(host, "passwd", &UID.to_string())?;
    let record = account_record(host).is().cloned();
    let mut groups: Vec<String> = group.map(str::to_owned).into_iter().collect();
    groups.extend(record.iter().flat_map(|record| record.groups_added.clone()));
    let mut member_of = Vec::new();
    for group in groups {
        let line = tools::look_up(host, "group", &group)?;
        let is_member = line
            .as_deref()
            .and_then(members)
            .is_some_and(|(_, m)| m.contains(&ACCOUNT_NAME));
        if is_member && !member_of.contains(&group) {
            member_of.push(group);
        }
    }
    let home = host.home();
    Ok(account::Facts {
        entry,
        uid_owner: owner.and_then(|line| Some(line.split(':').next()?.to_owned())),
        has_group: tools::look_up(host, "group", ACCOUNT_NAME)?.is_some(),
        member_of,
        home: look_at_home(&home),
        home_path: home.display().to_string(),
        record,
    })
}

fn look_at_home(home: &Path) -> Home {
    match fs::symlink_metadata(home) {
        Ok(meta) if meta.is_dir() => Home::Directory {
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            // Only of root's own is it asked: the account's is nothing to root.
            is_empty: meta.uid() == 0 && fs::read_dir(home).is_ok_and(|mut entries| entries.next().is_none()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Home::Absent,
        _ => Home::Other,
    }
}

/// A socket or character device; `None` when nothing is there.
pub(crate) fn device(host: &Host, path: &Path) -> Result<Option<Device>, Hint> {
    let Ok(meta) = fs::metadata(path) else {
        return Ok(None);
    };
    let kind = meta.file_type();
    let line = tools::look_up(host, "group", &meta.gid().to_string())?;
    Ok(Some(Device {
        is_right_kind: kind.is_socket() || kind.is_char_device(),
        owner: meta.uid(),
        gid: meta.gid(),
        group: line
            .as_deref()
            .and_then(members)
            .map(|(name, _)| name.to_owned())
            .unwrap_or_default(),
        mode: meta.mode() & 0o777,
    }))
}
