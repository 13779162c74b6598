//! Giving a host back (installer.md section 11). Nothing is deleted before the removal is confirmed or forced and that is
//! on record; from then on every run continues, asking nobody, until the host is as it was.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use oac_model::ProviderKind;

use crate::{
    arguments::Uninstall,
    child::remove::{
        Inspected, NetworkEnd, State, drop_network, drop_state, empty_home, home_holds, image_of, inspect,
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
        engine::Device,
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

/// What the removal of a node goes by.
struct Place<'a> {
    who: &'a Who,
    /// The home is the account's.
    may_look: bool,
    /// The engine's socket.
    device: Option<Device>,
    provider: ProviderKind,
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
        // Where the account is gone its number or its home may be another's by now; its group that is left may not.
        let account_is_right = account::check(&account::Facts {
            has_group: false,
            ..facts.clone()
        });
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
        let account_record = look::account_record(host);
        let account_path = host.records().join(crate::records::ACCOUNT);
        let found = Found {
            record: record.clone(),
            has_unit: installations.units.contains(&own),
            has_root,
            has_checkpoints,
            has_account_record: account_record != Read::Absent,
            serves_another: installations.records.keys().any(|id| *id != own),
            damaged_account_record: (account_record == Read::Damaged)
                .then(|| account_path.display().to_string()),
            account: account_is_right,
        };
        let mut told = Told::default();
        let removal = match decide(&found, own, self.order.force)? {
            Verdict::Nothing => {
                self.display
                    .line(&format!("Nothing of installation {own} is on this host."));
                return Ok(());
            }
            Verdict::Account => None,
            Verdict::Go(removal) => Some(removal),
            Verdict::Inspect { registered } => Some(self.permitted(&who, may_look, registered)?),
        };
        if let Some(removal) = removal {
            let record = self.store_removal(record.is(), removal)?;
            pass("u0");
            let place = Place {
                who: &who,
                may_look,
                device,
                provider: record.provider,
            };
            self.remove_node(&place, removal, &mut told)?;
        }
        let ended = self.remove_account(&who, &mut told);
        self.tell(&told);
        ended
    }

    /// By what the node root says, and by what Core says of its identity. What cannot be read permits nothing but force.
    fn permitted(&mut self, who: &Who, may_look: bool, registered: bool) -> Result<Removal, Hint> {
        let force = self.order.force;
        let root = self.host.node_root(self.order.installation);
        let inspected: Inspected = match may_look {
            true => match within(who, self.display, |_| inspect(&root, force)) {
                Err(hint) if hint.exit_status() == 1 && force => return Ok(Removal::Forced),
                inspected => inspected?,
            },
            false => Inspected::default(),
        };
        let registered = registered || inspected.has_mark;
        confirm(registered, inspected.core.as_deref(), inspected.word, force)
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
    fn store_removal(&self, record: Option<&Node>, removal: Removal) -> Result<Node, Hint> {
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
            return Ok(record);
        }
        record.removal = Some(removal).into();
        let folder = host.records();
        let written = root_files::folder(&folder, 0o755)
            .and_then(|()| root_files::write(&folder, &Host::record_name(own), 0o644, &record.encode()));
        written
            .map(|_| record)
            .map_err(|error| Hint::failed("The removal could not be recorded", &error))
    }

    /// 1 to 5.
    fn remove_node(&mut self, place: &Place<'_>, removal: Removal, told: &mut Told) -> Result<(), Hint> {
        let host = self.host;
        let own = self.order.installation;
        self.stop_service(told)?;
        pass("u1");
        stopped()?;
        let silent = self.drop_network(place, told)?;
        pass("u2");
        stopped()?;
        let mut state = State::default();
        let mut image = None;
        if place.may_look {
            let root = host.node_root(own);
            image = within(place.who, self.display, |_| Ok(image_of(&root)))?;
            state = within(place.who, self.display, |_| drop_state(host, own, removal))?;
        }
        tell_of(&state, &host.node_root(own), told);
        pass("u4");
        // Whatever a rerun has to do needs the record.
        let mounted = state.mounts.first().map(|path| Hint::Mounted {
            path: path.display().to_string(),
        });
        let unfinished = silent.or(state.is_used.then_some(Hint::ProcessesRun)).or(mounted);
        if let Some(hint) = unfinished {
            self.tell(told);
            return Err(hint);
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

    /// 1. Also where the unit's file is gone: the service may run all the same, and be wanted at boot.
    fn stop_service(&mut self, told: &mut Told) -> Result<(), Hint> {
        let host = self.host;
        let own = self.order.installation;
        let name = service::unit_name(own);
        let unit = host.unit(own);
        if unit.symlink_metadata().is_ok() {
            tools::act(host, "systemctl", &["disable", "--now", &name])?;
            root_files::remove(&unit).map_err(failed)?;
            told.deleted.push(format!("the service {name}"));
        } else {
            // Of a unit that nobody knows there is nothing to stop, and nothing to forget of one that did not fail.
            tools::run(host, "systemctl", &["stop", &name])?;
            root_files::remove(&host.wanted(own)).map_err(failed)?;
        }
        pass("u1 unit");
        tools::act(host, "systemctl", &["daemon-reload"])?;
        tools::run(host, "systemctl", &["reset-failed", &name])?;
        match tools::run(host, "systemctl", &["is-active", &name])?
            .status
            .success()
        {
            true => Err(Hint::Failed {
                what: format!("{name} could not be stopped"),
            }),
            false => Ok(()),
        }
    }

    /// 2. The hint of an engine that cannot be asked: the rest goes, the records stay for the rerun.
    fn drop_network(&mut self, place: &Place<'_>, told: &mut Told) -> Result<Option<Hint>, Hint> {
        let host = self.host;
        let own = self.order.installation;
        let network = Host::network(own);
        if place.provider != ProviderKind::Docker {
            return Ok(None);
        }
        if place.device.as_ref().is_some_and(|device| device.gid == 0) {
            return Ok(Some(Hint::DockerSocket {
                socket: host.docker_socket.display().to_string(),
            }));
        }
        // Also where the account is gone: a child needs no entry to have a number.
        match within(place.who, self.display, |_| drop_network(host, own)) {
            Ok(NetworkEnd::Removed) => told.deleted.push(format!("the Docker network {network}")),
            Ok(NetworkEnd::GoneWithEngine) => {
                told.deleted.push(format!("the Docker network {network}, gone with the engine"));
            }
            Ok(NetworkEnd::Kept) => told.kept.push(format!(
                "the Docker network {network}, which containers use:\n    sudo docker ps -aq --filter label=io.oac.installation={own} | xargs -r sudo docker rm -f\n    sudo docker network rm {network}"
            )),
            Ok(NetworkEnd::Absent) => {}
            Err(Hint::DockerSilent) => return Ok(Some(Hint::DockerSilent)),
            Err(hint) => return Err(hint),
        }
        Ok(None)
    }

    /// 6, once no installation is left on record.
    fn remove_account(&mut self, who: &Who, told: &mut Told) -> Result<(), Hint> {
        let host = self.host;
        let record = look::account_record(host).is().cloned();
        if !look::installations(host).records.is_empty() {
            return Ok(());
        }
        let path = host.records().join(crate::records::ACCOUNT);
        let facts = look::account(host, None)?;
        let made = |record: &Account| account::is_made(record, facts.entry.as_ref());
        let Some(record) = record.clone().filter(made) else {
            return self.leave_adopted(record.as_ref(), &facts, &path, told);
        };
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
        facts: &account::Facts,
        path: &Path,
        told: &mut Told,
    ) -> Result<(), Hint> {
        use std::os::unix::fs::PermissionsExt;
        let host = self.host;
        let home = host.home();
        // One that was made again by hand is in no group by the installer.
        let given = record.filter(|record| !record.created);
        for group in given.iter().flat_map(|record| &record.groups_added) {
            if facts.member_of.contains(group) {
                tools::act(host, "gpasswd", &["-d", ACCOUNT_NAME, group])?;
                told.deleted
                    .push(format!("the membership of {ACCOUNT_NAME} in {group}"));
            }
        }
        if let (Some(mode), account::Home::Directory { uid: UID, .. }) =
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

fn failed(error: std::io::Error) -> Hint {
    Hint::failed("A file of root's could not be removed", &error)
}

/// What went below the home, and what is left there, each with what deletes it.
fn tell_of(state: &State, root: &Path, told: &mut Told) {
    let stores = state.gone.stores.iter();
    told.deleted
        .extend(stores.map(|store| format!("the store {}", store.display())));
    if state.gone.root {
        told.deleted.push(format!("the node's state {}", root.display()));
    }
    for mount in &state.mounts {
        told.kept.push(format!(
            "{}, which is mounted: unmount it, then rerun uninstall",
            mount.display()
        ));
    }
    for store in &state.stores {
        told.kept.push(format!(
            "the store, microVMs may still use it: check pgrep -u oac-node first, then rerun uninstall\n    sudo -u oac-node rm -rf {}",
            store.display()
        ));
    }
    if state.is_used {
        told.kept.push(format!(
            "the node's state {}, which processes of oac-node use: check pgrep -u oac-node first, then rerun uninstall",
            root.display()
        ));
    }
    if let Some(path) = &state.checkpoints {
        told.kept.push(format!(
            "checkpoints:\n    sudo -u oac-node rm -rf {}",
            path.display()
        ));
    }
}
