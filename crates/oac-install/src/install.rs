//! The steps of an installation in their order (installer.md section 3). Steps 1 to 14 change nothing but the empty lock;
//! from 15 on each looks at what is there and does what is missing.

use std::time::Instant;

use oac_model::{ProviderKind, Secret, account::useradd};

use crate::{
    arguments::Install,
    child::{
        ask::{Asked, Question},
        check::{Checked, Checks},
        prepare::{Prepared, Task, is_prepared_here},
        ready::await_ready,
    },
    descend::{Who, moment, stopped, within},
    display::Display,
    hint::Hint,
    host::Host,
    lock, look,
    plan::{
        ACCOUNT_NAME, UID, account,
        engine::{self, Device},
        host as host_plan,
        inspection::Standing,
        place,
        service::{self, File, Present, Proxies, Start, Unit},
    },
    points::pass,
    records::{Account, Node},
    root_files, tools,
};

/// How long a started service has to be active.
const ACTIVE: std::time::Duration = std::time::Duration::from_secs(10);
const UNIT_BYTES: usize = 64 * 1024;

/// One installation under way.
pub(crate) struct Installing<'a> {
    pub(crate) host: &'a Host,
    pub(crate) order: &'a Install,
    pub(crate) proxies: &'a Proxies,
    pub(crate) display: &'a mut Display,
    /// `sudo ` where the invoker needs it for what the summary names.
    pub(crate) sudo: &'static str,
    /// The host's name.
    pub(crate) name: String,
}

/// As whom children run, before and after the account exists.
pub(crate) fn who(host: &Host, gid: u32, device: Option<&Device>, proxies: &Proxies) -> Who {
    let home = host.home();
    let mut environment: Vec<(String, String)> = [
        ("HOME", home.display().to_string()),
        ("USER", ACCOUNT_NAME.to_owned()),
        ("LOGNAME", ACCOUNT_NAME.to_owned()),
        ("PATH", crate::host::PATH.to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    environment.extend(service::both_spellings(proxies));
    Who {
        uid: UID,
        gid,
        // Root's own group is nobody's device group.
        device_gid: device.map(|device| device.gid).filter(|gid| *gid != 0),
        home,
        environment,
    }
}

fn written(result: std::io::Result<bool>) -> Result<bool, Hint> {
    result.map_err(|error| Hint::failed("A file of root's could not be written", &error))
}

impl Installing<'_> {
    /// Steps 6 to 28, after arguments, invoker, platform and token were looked at.
    pub(crate) fn run(&mut self, token: Option<Secret>) -> Result<(), Hint> {
        let host = self.host;
        let own = self.order.installation;
        let _lock = lock::take(host, self.display)?;
        let installations = look::installations(host);
        host_plan::installations(&installations, own)?;
        let facts = look::account(host, None)?;
        account::check(&facts)?;
        let record = installations.record(own).is().cloned();

        self.display.phase(1);
        pass("1");
        let question = Question {
            installation: own,
            core: self.order.core.clone(),
            provider: self.order.provider,
            token,
            nodes: host.nodes(),
            may_look: matches!(facts.home, account::Home::Directory { uid: UID, .. }),
            recorded: record.as_ref().is_some_and(|record| record.registered),
        };
        let gid = facts.entry.as_ref().map_or(UID, |entry| entry.gid);
        let asked: Asked = within(&who(host, gid, None, self.proxies), self.display, |_| {
            question.ask()
        })?;
        pass("9");
        self.display.phase(2);
        let (device, checked) = self.check(&asked, gid, record.is_some())?;
        checked.backend?;
        checked.room?;
        let standing = asked.standing?;
        checked.network?;
        let default = host.node_root(own).join("state/node/checkpoints");
        let recorded = record
            .as_ref()
            .and_then(|record| record.checkpoint_root.0.clone());
        let checkpoint_root = place::checkpoint_root(
            asked.chosen.provider,
            self.order.checkpoint_root.as_deref(),
            recorded.as_deref(),
            question.recorded,
            &host.home().display().to_string(),
            &default.display().to_string(),
        )?;
        checked.disk?;
        is_prepared_here(asked.chosen.provider)?;
        let own_commit = host.commit.ok_or(Hint::NotReleased)?;
        pass("14");

        self.display.phase(3);
        self.prepare_account(&device.group)?;
        let gid = look::account(host, None)?.entry.map_or(UID, |entry| entry.gid);
        let mut record = Node {
            format: 1,
            installation_id: own,
            provider: asked.chosen.provider,
            core_url: self.order.core.to_string(),
            node_root: host.node_root(own).display().to_string(),
            unit: host.unit(own).display().to_string(),
            checkpoint_root: checkpoint_root.into(),
            registered: question.recorded,
            removal: None.into(),
        };
        self.record(&record)?;
        pass("17");
        let who = who(host, gid, Some(&device), self.proxies);
        let prepared: Prepared = within(&who, self.display, |told| {
            let task = Task {
                host,
                question: &question,
                releases: &self.order.releases,
                manifest_sha256: self.order.manifest_sha256,
                own_commit,
                standing,
                name: &self.name,
            };
            task.run(told)
        })?;

        self.display.phase(7);
        record.registered = true;
        self.record(&record)?;
        pass("26 recorded");
        self.start_service(&record)?;
        pass("26");
        self.display.phase(8);
        stopped()?;
        let root = host.node_root(own);
        let is_ready: bool = within(&who, self.display, |_| await_ready(&root))?;
        let logs = format!("{}journalctl -u {}", self.sudo, service::unit_name(own));
        if !is_ready {
            return Err(Hint::NotReadyYet { logs });
        }
        pass("27");
        self.summary(&prepared, &logs);
        pass("28");
        Ok(())
    }

    /// Steps 11 to 14: the device by root's eyes, the rest by a child that has its group.
    fn check(&mut self, asked: &Asked, gid: u32, recorded: bool) -> Result<(Device, Checked), Hint> {
        let host = self.host;
        let device = match asked.chosen.provider {
            ProviderKind::Docker => {
                let device = look::device(host, &host.docker_socket)?;
                engine::docker_socket(&host.docker_socket.display().to_string(), device.as_ref())?;
                device.ok_or(Hint::DockerDown)?
            }
            _ => {
                let device = look::device(host, &host.kvm)?;
                engine::microsandbox(device.as_ref(), host.loader().exists())?;
                device.ok_or(Hint::KvmMissing)?
            }
        };
        let checks = Checks {
            host,
            installation: self.order.installation,
            chosen: asked.chosen.clone(),
            recorded,
            registered: !matches!(asked.standing, Ok(Standing::Unregistered { .. })),
        };
        let who = who(host, gid, Some(&device), self.proxies);
        let checked = within(&who, self.display, |_| checks.run())?;
        Ok((device, checked))
    }

    /// Steps 15 and 16, one change after the other.
    fn prepare_account(&mut self, group: &str) -> Result<(), Hint> {
        let host = self.host;
        let folder = host.records();
        root_files::folder(&folder, 0o755)
            .map_err(|error| Hint::failed("The folder of the records could not be made", &error))?;
        let mut groups_begun = false;
        loop {
            stopped()?;
            let facts = look::account(host, Some(group))?;
            account::check(&facts)?;
            let Some(change) = account::next(&facts, group) else {
                break;
            };
            match &change {
                account::Change::Record(record) => {
                    self.record_account(record)?;
                    match record.pending.0 {
                        Some(crate::records::Pending::Account) => pass("15 pending"),
                        Some(crate::records::Pending::Group) => {
                            if !groups_begun {
                                pass("15");
                            }
                            groups_begun = true;
                            pass("16 pending");
                        }
                        None => {}
                    }
                }
                account::Change::Create => {
                    self.create_account()?;
                    pass("15 created");
                }
                account::Change::MakeHome | account::Change::OwnHome => self.make_home(&facts)?,
                account::Change::Join(group) => {
                    tools::act(host, "usermod", &["--append", "--groups", group, ACCOUNT_NAME])?;
                }
            }
        }
        pass("16");
        Ok(())
    }

    fn record_account(&self, record: &Account) -> Result<(), Hint> {
        let folder = self.host.records();
        written(root_files::write(
            &folder,
            crate::records::ACCOUNT,
            0o644,
            &record.encode(),
        ))
        .map(drop)
    }

    fn create_account(&self) -> Result<(), Hint> {
        let home = self.host.home().display().to_string();
        let nologin = tools::find(&self.host.tools, "nologin");
        let shell = nologin.map_or_else(
            || "/usr/sbin/nologin".to_owned(),
            |path| path.display().to_string(),
        );
        let arguments = useradd(&home, &shell);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        tools::act(self.host, "useradd", &arguments)
    }

    /// Root makes the directory, or takes over an empty one of its own, and opens nothing in it.
    fn make_home(&self, facts: &account::Facts) -> Result<(), Hint> {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
        let home = self.host.home();
        let gid = facts.entry.as_ref().map_or(UID, |entry| entry.gid);
        let made = || {
            if facts.home == account::Home::Absent {
                std::fs::DirBuilder::new().mode(0o700).create(&home)?;
            }
            lchown(&home, Some(UID), Some(gid))?;
            std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700))
        };
        made().map_err(|error| Hint::failed("The account's home could not be made", &error))
    }

    fn record(&self, record: &Node) -> Result<(), Hint> {
        let name = Host::record_name(record.installation_id);
        written(root_files::write(
            &self.host.records(),
            &name,
            0o644,
            &record.encode(),
        ))
        .map(drop)
    }

    /// Step 26.
    fn start_service(&mut self, record: &Node) -> Result<(), Hint> {
        let host = self.host;
        let own = record.installation_id;
        let name = service::unit_name(own);
        let failed = |error| Hint::failed("The service's files could not be written", &error);
        let records = host.records();
        let environment_name = Host::environment_name(own);
        let says = |verb: &str| -> Result<bool, Hint> {
            Ok(tools::run(host, "systemctl", &[verb, &name])?.status.success())
        };
        let present = Present {
            unit: root_files::read(&host.unit(own), UNIT_BYTES).map_err(failed)?,
            environment: root_files::read(&records.join(&environment_name), UNIT_BYTES).map_err(failed)?,
            is_enabled: says("is-enabled")?,
            is_active: says("is-active")?,
        };
        let unit = Unit {
            installation: own,
            provider: record.provider,
            node_root: record.node_root.clone(),
            environment: records.join(&environment_name).display().to_string(),
        };
        let plan = service::plan(&present, unit.render(), service::environment(self.proxies));
        match &plan.environment {
            File::Stays => {}
            File::Write(bytes) => {
                written(root_files::write(&records, &environment_name, 0o600, bytes))?;
            }
            File::Remove => root_files::remove(&records.join(&environment_name)).map_err(failed)?,
        }
        if let File::Write(bytes) = &plan.unit {
            written(root_files::write(&host.units(), &name, 0o644, bytes))?;
            tools::act(host, "systemctl", &["daemon-reload"])?;
        }
        pass("26 unit");
        match plan.start {
            Start::Nothing => return Ok(()),
            Start::Enable => tools::act(host, "systemctl", &["enable", "--now", &name])?,
            Start::Restart => {
                tools::act(host, "systemctl", &["enable", &name])?;
                tools::act(host, "systemctl", &["restart", &name])?;
            }
        }
        let end = Instant::now() + ACTIVE;
        while !says("is-active")? {
            stopped()?;
            if Instant::now() >= end {
                let logs = format!("{}journalctl -u {name}", self.sudo);
                return Err(Hint::ServiceNotStarted { logs });
            }
            moment(&mut []);
        }
        Ok(())
    }

    fn summary(&mut self, prepared: &Prepared, logs: &str) {
        let own = self.order.installation;
        let unit = service::unit_name(own);
        let lines = [
            String::new(),
            "This host is a node, connected and ready.".to_owned(),
            format!("Node: {}", self.name),
            format!("Node ID: {}", prepared.node),
            format!("Installation: {own}"),
            format!("Status: {}systemctl status {unit}", self.sudo),
            format!("Logs: {logs}"),
        ];
        for line in lines {
            self.display.line(&line);
        }
    }
}
