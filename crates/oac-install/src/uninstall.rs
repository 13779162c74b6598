//! Giving a host back (installer.md section 11). Nothing is deleted before the removal is confirmed or forced and that is
//! on record; from then on every run continues, asking nobody, until the host is as it was.

use std::{fmt::Write as _, path::PathBuf};

use oac_model::ProviderKind;

use crate::{
    arguments::Uninstall,
    child::remove::{
        Inspected, Left, NetworkEnd, drop_network, drop_root, drop_stores, empty_home, home_holds, inspect,
        root_holds,
    },
    descend::{Who, stopped, within},
    display::Display,
    hint::Hint,
    host::Host,
    install::who,
    lock, look,
    plan::{
        ACCOUNT_NAME, UID, account,
        host::UNINSTALL_TOOLS,
        removal::{Found, Verdict, confirm, decide},
        service::{self, Proxies},
    },
    points::pass,
    records::{Account, Node, Read, Removal},
    root_files, tools,
};

/// One removal under way.
pub(crate) struct Removing<'a> {
    pub(crate) host: &'a Host,
    pub(crate) order: &'a Uninstall,
    /// The invoker's; where none is set, those of the service count.
    pub(crate) proxies: &'a Proxies,
    pub(crate) display: &'a mut Display,
    /// Where the invoker's installers may be.
    pub(crate) bootstrap: PathBuf,
}

/// What the end tells.
#[derive(Debug, Default)]
struct Told {
    deleted: Vec<String>,
    kept: Vec<String>,
}

impl Removing<'_> {
    /// After the arguments and the invoker were looked at.
    pub(crate) fn run(&mut self) -> Result<(), Hint> {
        let host = self.host;
        let own = self.order.installation;
        let missing = UNINSTALL_TOOLS
            .into_iter()
            .find(|tool| tools::find(&host.tools, tool).is_none());
        if let Some(tool) = missing {
            return Err(Hint::ToolMissing {
                tool: tool.to_owned(),
            });
        }
        let _lock = lock::take(host, self.display)?;
        let proxies = self.effective_proxies();
        let facts = look::account(host, None)?;
        let account_is_right = match &facts.entry {
            Some(_) => account::check(&facts),
            None if facts.uid_owner.is_some() => account::check(&facts),
            None => Ok(()),
        };
        let device = look::device(host, &host.docker_socket)?;
        let gid = facts.entry.as_ref().map_or(UID, |entry| entry.gid);
        let who = who(host, gid, device.as_ref(), &proxies);
        let root = host.node_root(own);
        // Only what belongs to the account is looked at, and only as the account.
        let may_look =
            matches!(facts.home, account::Home::Directory { uid: UID, .. }) && account_is_right.is_ok();
        let (has_checkpoints, has_root) = match may_look {
            true => within(&who, self.display, |_| Ok(root_holds(&root)))?,
            false => (false, false),
        };
        let installations = look::installations(host);
        let record = installations.record(own).clone();
        let found = Found {
            record: record.clone(),
            has_unit: installations.units.contains(&own),
            has_root,
            has_checkpoints,
            has_account_record: look::account_record(host) != Read::Absent,
            account: account_is_right,
        };
        let mut told = Told::default();
        let inspected: Inspected = match may_look {
            true => {
                let asks = matches!(decide(&found, own, self.order.force)?, Verdict::Inspect { .. });
                let force = self.order.force || !asks;
                within(&who, self.display, |_| inspect(&root, force)).or_else(|hint| {
                    if self.order.force {
                        Ok(nothing_inside())
                    } else {
                        Err(hint)
                    }
                })?
            }
            false => nothing_inside(),
        };
        let removal = match decide(&found, own, self.order.force)? {
            Verdict::Nothing => {
                self.display
                    .line(&format!("Nothing of installation {own} is on this host."));
                return Ok(());
            }
            Verdict::Account => None,
            Verdict::Go(removal) => Some(removal),
            Verdict::Inspect { registered } => {
                let registered = registered || inspected.has_mark;
                let core = inspected.core.as_deref();
                Some(confirm(registered, core, inspected.word, self.order.force)?)
            }
        };
        if let Some(removal) = removal {
            self.store_removal(record.is(), removal)?;
            pass("u0");
            self.remove_node(&who, removal, may_look, inspected.image, &mut told)?;
        }
        let ended = self.remove_account(&who, &mut told);
        self.tell(&told);
        ended
    }

    fn effective_proxies(&self) -> Proxies {
        if !self.proxies.is_empty() {
            return self.proxies.clone();
        }
        let path = self
            .host
            .records()
            .join(Host::environment_name(self.order.installation));
        let bytes = root_files::read(&path, 64 * 1024)
            .ok()
            .flatten()
            .unwrap_or_default();
        service::read_environment(&bytes)
    }

    /// `removal` on record before anything goes; a missing or damaged record is made anew for it.
    fn store_removal(&self, record: Option<&Node>, removal: Removal) -> Result<(), Hint> {
        let host = self.host;
        let own = self.order.installation;
        let mut record = record.cloned().unwrap_or_else(|| Node {
            format: 1,
            installation_id: own,
            provider: ProviderKind::Docker,
            core_url: "http://unknown".to_owned(),
            node_root: host.node_root(own).display().to_string(),
            unit: host.unit(own).display().to_string(),
            checkpoint_root: None.into(),
            registered: true,
            removal: None.into(),
        });
        if record.removal.0 == Some(removal) {
            return Ok(());
        }
        record.removal = Some(removal).into();
        let folder = host.records();
        let written = root_files::folder(&folder, 0o755)
            .and_then(|()| root_files::write(&folder, &Host::record_name(own), 0o644, &record.encode()));
        written
            .map(drop)
            .map_err(|error| Hint::failed("The removal could not be recorded", &error))
    }

    /// 1 to 5.
    fn remove_node(
        &mut self,
        who: &Who,
        removal: Removal,
        may_look: bool,
        image: Option<String>,
        told: &mut Told,
    ) -> Result<(), Hint> {
        let host = self.host;
        let own = self.order.installation;
        let name = service::unit_name(own);
        let failed = |error| Hint::failed("A file of the installation could not be removed", &error);
        if host.unit(own).symlink_metadata().is_ok() {
            tools::act(host, "systemctl", &["disable", "--now", &name])?;
            root_files::remove(&host.unit(own)).map_err(failed)?;
            tools::act(host, "systemctl", &["daemon-reload"])?;
            // Of a unit that did not fail there is nothing to forget.
            tools::run(host, "systemctl", &["reset-failed", &name])?;
            told.deleted.push(format!("the service {name}"));
        }
        pass("u1");
        stopped()?;
        let network = Host::network(own);
        // Also where the account is gone: a child needs no entry to have a number.
        let end = within(who, self.display, |_| drop_network(host, own));
        let docker_is_silent = end == Err(Hint::DockerSilent);
        match end {
            Ok(NetworkEnd::Removed) => told.deleted.push(format!("the Docker network {network}")),
            Ok(NetworkEnd::GoneWithEngine) => {
                told.deleted.push(format!("the Docker network {network}, gone with the engine"));
            }
            Ok(NetworkEnd::Kept) => told.kept.push(format!(
                "the Docker network {network}, which containers use:\n    sudo docker ps -aq --filter label=io.oac.installation={own} | xargs -r sudo docker rm -f\n    sudo docker network rm {network}"
            )),
            Ok(NetworkEnd::Absent) | Err(Hint::DockerSilent) => {}
            Err(hint) => return Err(hint),
        }
        pass("u2");
        stopped()?;
        if may_look {
            let mut left = Left::default();
            if removal == Removal::Confirmed {
                let (gone, stores_left) = within(who, self.display, |_| drop_stores(host, own))?;
                told.deleted
                    .extend(gone.iter().map(|store| format!("the store {}", store.display())));
                left = stores_left;
            }
            pass("u3");
            // While a process of it runs, the node root stays with the store.
            if left.stores.is_empty() {
                let forced = removal == Removal::Forced;
                let after = within(who, self.display, |_| drop_root(host, own, forced))?;
                if after.checkpoints.is_none() && after.mounts.is_empty() {
                    told.deleted
                        .push(format!("the node's state {}", host.node_root(own).display()));
                }
                left.mounts.extend(after.mounts);
                left.checkpoints = after.checkpoints;
                left.stores = after.stores;
            }
            keep(&left, told);
        }
        pass("u4");
        if docker_is_silent {
            self.tell(told);
            return Err(Hint::DockerSilent);
        }
        if let Some(image) = image {
            told.kept
                .push(format!("the Runtime image:\n    sudo docker image rm {image}"));
        }
        for file in [Host::environment_name(own), Host::record_name(own)] {
            root_files::remove(&host.records().join(file)).map_err(failed)?;
        }
        told.deleted.push(format!("the records of installation {own}"));
        pass("u5");
        Ok(())
    }

    /// 6, once no installation is left on record.
    fn remove_account(&mut self, who: &Who, told: &mut Told) -> Result<(), Hint> {
        let host = self.host;
        let failed = |error| Hint::failed("A file of the account could not be removed", &error);
        let record = look::account_record(host).is().cloned();
        if !look::installations(host).records.is_empty() {
            return Ok(());
        }
        let path = host.records().join(crate::records::ACCOUNT);
        let Some(record) = record.clone().filter(|record| record.created) else {
            return self.leave_adopted(record.as_ref(), &path, told);
        };
        let facts = look::account(host, None)?;
        let home = host.home();
        if facts.home != account::Home::Absent {
            if within(who, self.display, |_| Ok(home_holds(host)))? {
                told.kept.push(format!(
                    "the account {ACCOUNT_NAME} with its home {}, since stores or checkpoints are left in it: rerun uninstall when they are gone",
                    home.display()
                ));
                return Ok(());
            }
            let mounts: Vec<PathBuf> = within(who, self.display, |_| empty_home(host))?;
            if let Err(error) = std::fs::remove_dir(&home) {
                let mounts: Vec<String> = mounts.iter().map(|path| path.display().to_string()).collect();
                told.kept
                    .push(format!("{}: {error} {}", home.display(), mounts.join(" ")));
                return Ok(());
            }
        }
        if facts.entry.is_some() {
            let removed = tools::run(host, "userdel", &[ACCOUNT_NAME])?;
            if !removed.status.success() {
                return Err(Hint::ProcessesRun);
            }
        }
        pass("u6 userdel");
        let group = tools::look_up(host, "group", ACCOUNT_NAME)?;
        let gid = group
            .as_deref()
            .and_then(|line| line.split(':').nth(2)?.parse::<u32>().ok());
        if gid.is_some_and(|gid| gid == record.gid && gid != 0) {
            tools::act(host, "groupdel", &[ACCOUNT_NAME])?;
        }
        root_files::remove(&path).map_err(failed)?;
        let _ = std::fs::remove_dir(host.records());
        told.deleted.push(format!(
            "the account {ACCOUNT_NAME} with its home {}",
            home.display()
        ));
        pass("u6");
        Ok(())
    }

    /// An adopted account loses what the installer gave it.
    fn leave_adopted(
        &mut self,
        record: Option<&Account>,
        path: &std::path::Path,
        told: &mut Told,
    ) -> Result<(), Hint> {
        use std::os::unix::fs::PermissionsExt;
        let host = self.host;
        let failed = |error| Hint::failed("A file of the account could not be removed", &error);
        let home = host.home();
        let facts = look::account(host, None)?;
        for group in record.iter().flat_map(|record| &record.groups_added) {
            if facts.member_of.contains(group) {
                tools::act(host, "gpasswd", &["-d", ACCOUNT_NAME, group])?;
                told.deleted
                    .push(format!("the membership of {ACCOUNT_NAME} in {group}"));
            }
        }
        if let (Some(mode), account::Home::Directory { .. }) =
            (record.and_then(|r| r.home_mode.0), &facts.home)
        {
            std::fs::set_permissions(&home, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        }
        root_files::remove(path).map_err(failed)?;
        let _ = std::fs::remove_dir(host.records());
        if facts.entry.is_some() {
            told.kept.push(format!(
                "the account {ACCOUNT_NAME}, which was here before, with its home {}",
                home.display()
            ));
        }
        Ok(())
    }

    fn tell(&mut self, told: &Told) {
        let mut text = String::new();
        let mut list = |title: &str, lines: &[String]| {
            if !lines.is_empty() {
                let _ = writeln!(text, "{title}:");
                for line in lines {
                    let _ = writeln!(text, "  {line}");
                }
            }
        };
        list("Deleted", &told.deleted);
        let installers = format!(
            "downloaded installers:\n    rm -f {}/*.run",
            self.bootstrap.display()
        );
        let kept: Vec<String> = told.kept.iter().cloned().chain([installers]).collect();
        list("Kept", &kept);
        self.display.line(text.trim_end());
    }
}

fn nothing_inside() -> Inspected {
    Inspected {
        core: None,
        has_mark: false,
        word: None,
        image: None,
    }
}

/// What is left below the home, each with what deletes it.
fn keep(left: &Left, told: &mut Told) {
    for mount in &left.mounts {
        told.kept.push(format!(
            "{}, which is mounted: unmount it, then rerun uninstall",
            mount.display()
        ));
    }
    for store in &left.stores {
        told.kept.push(format!(
            "the store, microVMs may still use it: check pgrep -u oac-node first, then rerun uninstall\n    sudo -u oac-node rm -rf {}",
            store.display()
        ));
    }
    if let Some(path) = &left.checkpoints {
        told.kept.push(format!(
            "checkpoints:\n    sudo -u oac-node rm -rf {}",
            path.display()
        ));
    }
}
