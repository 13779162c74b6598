//! Every check at once, before or after an installation (installer.md section 12). Nothing changes, and no failure hides
//! another.

use oac_generations::{
    layout::{Layout, PROGRAM, RUNTIME_ARTIFACTS},
    lease,
};
use oac_model::{InstallationId, ProviderKind};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Doctor,
    child::{
        ask::{Chosen, word},
        check::{Checked, Checks},
        enrolled, inspected, open, runtime,
    },
    descend::within,
    display::Display,
    hint::Hint,
    host::Host,
    install::who,
    look,
    plan::{
        UID, account,
        engine::{self, Size},
        host as host_plan,
        inspection::{Word, judge},
        service::{self, Proxies},
    },
    records::Node,
    tools,
};

/// One check's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) check: String,
    pub(crate) result: Verdict,
    /// What to do, or why it was skipped; empty when all is well.
    pub(crate) hint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    Fail,
    Skip,
}

/// The checks so far.
#[derive(Debug, Default)]
struct Report(Vec<Line>);

impl Report {
    fn add(&mut self, check: &str, result: &Result<(), Hint>) {
        let (result, hint) = match result {
            Ok(()) => (Verdict::Ok, String::new()),
            Err(hint) => (Verdict::Fail, hint.to_string()),
        };
        self.line(check, result, hint);
    }

    fn skip(&mut self, check: &str, reason: &str) {
        self.line(check, Verdict::Skip, reason.to_owned());
    }

    fn line(&mut self, check: &str, result: Verdict, hint: String) {
        self.0.push(Line {
            check: check.to_owned(),
            result,
            hint,
        });
    }
}

/// What the account sees of its own node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Inside {
    files: Result<(), Hint>,
    leases: Result<(), Hint>,
    core: Result<(), Hint>,
    chosen: Option<Chosen>,
}

/// Runs every check as root and gives their ends.
pub(crate) fn examine(host: &Host, order: &Doctor, proxies: &Proxies, display: &mut Display) -> Vec<Line> {
    let mut report = Report::default();
    let faults = host_plan::platform_faults(&look::platform(host));
    report.add("platform", &Ok(()));
    if !faults.is_empty() {
        report.0.clear();
        for hint in faults {
            report.add("platform", &Err(hint));
        }
    }
    let installations = look::installations(host);
    let only = || {
        let mut ids = installations.records.keys().copied();
        ids.next().filter(|_| ids.next().is_none())
    };
    let own = order.installation.or_else(only);
    match own {
        Some(own) => report.add("records", &host_plan::installations(&installations, own)),
        None if installations.account_damaged => {
            let file = host.records().join(crate::records::ACCOUNT).display().to_string();
            report.add("records", &Err(Hint::RecordDamaged { file }));
        }
        None => report.skip("records", "no installation is on this host"),
    }
    let facts = look::account(host, None);
    report.add(
        "account",
        &facts.as_ref().map_err(Clone::clone).and_then(account::check),
    );
    let record = own.and_then(|own| installations.record(own).is().cloned());
    let gid = match &facts {
        Ok(facts) => facts.entry.as_ref().map_or(UID, |entry| entry.gid),
        Err(_) => UID,
    };
    let is_ours = facts.as_ref().is_ok_and(|facts| {
        matches!(facts.home, account::Home::Directory { uid: UID, .. }) && account::check(facts).is_ok()
    });
    let inside = match (own, &record) {
        (Some(own), Some(record)) if is_ours => {
            let who = who(host, gid, None, proxies);
            Some(within(&who, display, |_| Ok(look_inside(host, own, record))))
        }
        _ => None,
    };
    let inside = match inside {
        Some(Ok(inside)) => Some(inside),
        Some(Err(hint)) => {
            report.add("state", &Err(hint));
            None
        }
        None => None,
    };
    let provider = order.provider.or(record.as_ref().map(|record| record.provider));
    backend(
        host,
        own,
        provider,
        inside.as_ref(),
        record.is_some(),
        gid,
        proxies,
        display,
        &mut report,
    );
    match (own, &record) {
        (Some(own), Some(record)) => {
            report.add("service", &service_state(host, own));
            match &inside {
                Some(inside) => {
                    report.add("files", &inside.files);
                    report.add("leases", &inside.leases);
                    match record.registered {
                        true => report.add("core", &inside.core),
                        false => report.skip("core", "the node is not registered"),
                    }
                }
                None => report.skip("state", "the node's state cannot be looked at"),
            }
        }
        _ => report.skip("service", "no installation is on this host"),
    }
    report.0
}

/// Steps 11, 12 and 14.
#[allow(clippy::too_many_arguments, reason = "what was found so far, each once")]
fn backend(
    host: &Host,
    own: Option<InstallationId>,
    provider: Option<ProviderKind>,
    inside: Option<&Inside>,
    recorded: bool,
    gid: u32,
    proxies: &Proxies,
    display: &mut Display,
    report: &mut Report,
) {
    let provider = provider.unwrap_or(ProviderKind::Docker);
    let known = inside.and_then(|inside| inside.chosen.clone());
    let has_size = known.is_some();
    let device = match provider {
        ProviderKind::Docker => look::device(host, &host.docker_socket).and_then(|device| {
            let path = host.docker_socket.display().to_string();
            engine::docker_socket(&path, device.as_ref()).map(|()| device)
        }),
        _ => look::device(host, &host.kvm).and_then(|device| {
            engine::microsandbox(device.as_ref(), host.loader().exists()).map(|()| device)
        }),
    };
    let device = match device {
        Ok(device) => device,
        Err(hint) => {
            report.add("backend", &Err(hint));
            report.skip("room", "the backend cannot be asked");
            report.skip("disk", "the backend cannot be asked");
            return;
        }
    };
    let chosen = known.unwrap_or(Chosen {
        provider,
        source_commit: oac_model::SourceCommit::from_bytes([0; 20]),
        size: Size {
            cpus: 1,
            memory_mib: 1,
        },
        images: Vec::new(),
    });
    let checks = Checks {
        host,
        installation: own.unwrap_or_else(InstallationId::random),
        chosen,
        recorded,
        registered: has_size,
    };
    let who = who(host, gid, device.as_ref(), proxies);
    match within(&who, display, |_| checks.run()) {
        Ok(Checked {
            backend, room, disk, ..
        }) => {
            report.add("backend", &backend);
            match (backend.is_ok(), has_size) {
                (true, true) => report.add("room", &room),
                (true, false) => report.skip("room", "the size of a sandbox is not known here yet"),
                (false, _) => report.skip("room", "the backend cannot be asked"),
            }
            report.add("disk", &disk);
        }
        Err(hint) => report.add("backend", &Err(hint)),
    }
}

fn service_state(host: &Host, own: InstallationId) -> Result<(), Hint> {
    let name = service::unit_name(own);
    for verb in ["is-enabled", "is-active"] {
        if !tools::run(host, "systemctl", &[verb, &name])?.status.success() {
            return Err(Hint::ServiceNotStarted {
                logs: format!("journalctl -u {name}"),
            });
        }
    }
    Ok(())
}

/// As the account.
fn look_inside(host: &Host, own: InstallationId, record: &Node) -> Inside {
    let root = host.node_root(own);
    let configuration = enrolled(&root).ok().flatten();
    Inside {
        files: files(&root),
        leases: leases(&root, own),
        core: reached(&root, own, record),
        chosen: configuration.and_then(|configuration| Chosen::of(&configuration.specification)),
    }
}

fn files(root: &std::path::Path) -> Result<(), Hint> {
    use oac_generations::records::{Program, RuntimeArtifacts};
    use oac_records::FileMode;
    use oac_release::{layout::IMAGE, layout::NODE, payload::digest_of};
    let missing = || Hint::StateMissing {
        root: root.display().to_string(),
    };
    let directory = open(root)?.ok_or_else(missing)?;
    let program: Program = crate::child::record(&directory, PROGRAM)?.ok_or_else(missing)?;
    let artifacts: RuntimeArtifacts =
        crate::child::record(&directory, RUNTIME_ARTIFACTS)?.ok_or_else(missing)?;
    let mut wanted: Vec<(String, oac_model::Digest, FileMode)> =
        vec![(NODE.key.to_owned(), program.sha256, FileMode::Program)];
    for (key, sha256) in artifacts.sha256 {
        if !IMAGE.is(&key) {
            let mode = if key.starts_with("native/") {
                FileMode::Program
            } else {
                FileMode::Data
            };
            wanted.push((key, sha256, mode));
        }
    }
    for (key, sha256, mode) in wanted {
        let found = digest_of(&directory, &key, mode).ok().flatten();
        if found.map(|(_, digest)| digest) != Some(sha256) {
            return Err(Hint::FileDiffers {
                file: root.join(key).display().to_string(),
            });
        }
    }
    Ok(())
}

fn leases(root: &std::path::Path, own: InstallationId) -> Result<(), Hint> {
    // Opening the records of generations makes their folder: only where it is.
    let layout = Layout::new(root);
    if !layout.generations().is_dir() {
        return Ok(());
    }
    let failed = |error: &(dyn std::error::Error + 'static)| Hint::failed("The generation's records", error);
    let store = oac_generations::Store::open(layout, own).map_err(|error| failed(&error))?;
    let bare = lease::bare(&store).map_err(|error| failed(&error))?;
    match bare.first() {
        Some(generation) => Err(Hint::LeaseLeft {
            file: store
                .directory()
                .path()
                .join(format!("{generation}.lease"))
                .display()
                .to_string(),
        }),
        None => Ok(()),
    }
}

fn reached(root: &std::path::Path, own: InstallationId, record: &Node) -> Result<(), Hint> {
    let (facts, kept) = inspected(root, record.registered)?;
    let core = oac_dial::Origin::parse(&record.core_url).map_err(|_| Hint::RecordDamaged {
        file: record.unit.clone(),
    })?;
    let word = match &kept {
        Some(kept) => Some(runtime()?.block_on(word(kept))?),
        None => None,
    };
    // A changed target is the node's own work, and no fault of this host.
    match (judge(&facts, own, &core, word), word) {
        (Err(Hint::ConfigurationChanged), Some(Word::Known { .. })) => Ok(()),
        (judged, _) => judged.map(drop),
    }
}

/// Each line as it is shown.
pub(crate) fn shown(lines: &[Line], json: bool) -> String {
    if json {
        let mut text = serde_json::to_string(lines).unwrap_or_default();
        text.push('\n');
        return text;
    }
    let line = |line: &Line| match line.result {
        Verdict::Ok => format!("{}: ok\n", line.check),
        Verdict::Fail => format!("{}: FAIL {}\n", line.check, line.hint),
        Verdict::Skip => format!("{}: skip {}\n", line.check, line.hint),
    };
    lines.iter().map(line).collect()
}
