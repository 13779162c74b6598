//! What an operator is told when a run stops: what is wrong, then what to do, in one line (installer.md sections 3, 8,
//! 10 and 11). `docs/troubleshooting.md` explains each.

use oac_dial::Origin;
use oac_model::{InstallationId, SourceCommit};
use serde::{Deserialize, Serialize};

macro_rules! hints {
    ($($(#[$doc:meta])* $name:ident $({ $($member:ident: $kind:ty),* $(,)? })? = $text:literal $(, $argument:expr)*;)*) => {
        /// A run's end short of its aim. Exit status 1.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        pub enum Hint {
            $($(#[$doc])* #[error($text $(, $argument)*)] $name $({ $($member: $kind),* })?,)*
        }

        impl Hint {
            /// Every hint's name and its text with the places of its values, in the order of the steps.
            pub const ALL: &[(&'static str, &'static str)] = &[$((stringify!($name), $text)),*];

            pub fn name(&self) -> &'static str {
                match self { $(Self::$name { .. } => stringify!($name),)* }
            }
        }
    };
}

hints! {
    NotRoot = "Run this command as root or with sudo.";
    TokenInEnvironment = "The token comes only on standard input: unset OAC_ENROLLMENT_TOKEN.";
    Proxy { name: String } = "{name} is not an HTTP proxy URL.";
    NotLinux = "This host is not Linux amd64.";
    NotSystemd = "This host is not run by systemd.";
    ToolMissing { tool: String } = "{tool} is missing: install it, then retry.";
    Selinux = "SELinux is enforcing: nodes need it permissive or disabled.";
    TokenMalformed = "The enrollment token is malformed: copy the command again.";
    HostBusy = "Another run holds this host: retry when it ends.";
    RecordDamaged { file: String } = "{file} is damaged: restore it.";
    OtherInstallation { installation: InstallationId } = "This host serves another installation ({installation}): remove that node and uninstall it first.";
    UninstallUnfinished = "An uninstall is unfinished: run the uninstall command again.";
    UidTaken { name: String } = "UID 65532 belongs to {name}: nodes need it.";
    GroupLeft = "Group oac-node exists without the account: remove it, then retry.";
    AccountDiffers { what: String } = "Account oac-node differs ({what}): rename or remove it.";
    HomeForeign { home: String } = "{home} is not a directory of oac-node: move it away.";
    Expired = "The enrollment command expired or was already used: generate a new command and run it within an hour.";
    CoreUnreachable { origin: String } = "Core at {origin} cannot be reached: check address, network and proxy.";
    CoreNotThere { origin: String } = "Core does not answer under /api/v1 at {origin}: check the reverse proxy.";
    ResetRunning = "A deployment reset is running: generate a new command afterwards.";
    NoConfiguration = "No configuration for nodes is saved: use Settings → Sandbox and scheduling.";
    NoPublicAddress = "Core has no public address that other machines can reach: set it, then generate a new command.";
    OtherBackend = "This command belongs to another installation or backend: generate a new command.";
    DockerDown = "Docker is not running: start it, then retry.";
    DockerSocket { socket: String } = "{socket} must be root:docker with mode 0660.";
    DockerOld = "Docker is too old: Engine API 1.41 or later is needed.";
    DockerRootless = "Docker must not run rootless.";
    DockerLimits = "Docker cannot limit CPU and memory here: enable cgroup v2.";
    KvmMissing = "/dev/kvm is missing: enable hardware or nested virtualization.";
    KvmAccess = "/dev/kvm must belong to group kvm with read and write access.";
    NoGlibc = "microsandbox needs glibc on this host.";
    /// The design's installer prepares Docker nodes; files for the other backend follow.
    MicrosandboxLater = "This installer cannot prepare microsandbox nodes yet: use a newer release.";
    TooSmall { cpus: u32, memory_mib: u64, has_cpus: u32, has_memory_mib: u64 } = "This host is too small: one sandbox needs {cpus} CPUs and {memory_mib} MiB, it has {has_cpus} and {has_memory_mib}.";
    NetworkExists { network: String } = "Docker network {network} exists: sudo docker network rm {network}.";
    CheckpointRootForeign = "--checkpoint-root is for microsandbox.";
    CheckpointRootInside { home: String } = "--checkpoint-root must not be below {home}: use a folder of its own.";
    CheckpointRootDiffers { path: String } = "This node's checkpoint store is {path}: use that path.";
    DiskFull { path: String, needed: String, free: String } = "Not enough free disk: {path} needs {needed} GB, {free} GB are free.";
    StateMissing { root: String } = "The node's state is missing: restore {root} from its backup.";
    BelongsTo { origin: String } = "This node belongs to {origin}: choose Remove node on Nodes, uninstall the node on the host, then add it again with Add node.";
    ConfigurationChanged = "The sandbox configuration changed after this node registered; the node prepares it itself. To start over: choose Remove node on Nodes, uninstall the node on the host, then add it again with Add node.";
    NotAccepted = "Core no longer accepts this node: choose Remove node on Nodes, uninstall the node on the host, then add it again with Add node.";
    NoRelease { commit: SourceCommit } = "This console has no Runtime {commit}: publish that release, then retry.";
    BundleWithout { commit: SourceCommit } = "The bundle has no Runtime {commit}.";
    BundleUnreadable = "The bundle must be readable by oac-node.";
    ReleaseDiffers = "The release files do not match this command: copy a fresh command from Web.";
    NotReleased = "This installer belongs to no release: build one with cargo xtask dist.";
    Transfer { file: String } = "{file} could not be downloaded: check address, network and proxy, then run the command again.";
    Stalled = "The download stalled: less than 64 KiB arrived in a minute. Check the network and rerun the command.";
    Checksum { file: String } = "{file} failed its checksum: run the command again.";
    FileDiffers { file: String } = "{file} is not the recorded one: delete it and run the command again.";
    LeaseLeft { file: String } = "{file} was left by an interrupted run: uninstall, then install again.";
    ImportFailed { reason: String } = "The Runtime image could not be imported: {reason}.";
    AddressChanged = "Core's public address changed: generate a new command.";
    SpecificationChanged = "The sandbox configuration just changed: run the command again.";
    BackendNotReady { code: String } = "The sandbox backend is not ready ({code}).";
    RegistrationUnconfirmed = "Core did not confirm the registration: run the command again.";
    ServiceNotStarted { logs: String } = "The service did not start. Logs: {logs}";
    NotReadyYet { logs: String } = "The node is registered and running, but Core does not report it ready yet. Logs: {logs}";
    Stopped { signal: i32 } = "Stopped: run the command again to continue.";
    NoRecord { installation: InstallationId } = "The record of installation {installation} is missing or damaged: remove the node on the Nodes page and add --force.";
    StillListed = "Core still lists this node: choose Remove node on Nodes first.";
    RemovalUnconfirmed { origin: String } = "Core at {origin} did not confirm the removal. If that address is gone, remove the node on the Nodes page and add --force.";
    IdentityMissing = "The node's identity is missing, so Core cannot confirm the removal: remove the node on the Nodes page and add --force.";
    DockerSilent = "Docker does not answer: start it, then rerun uninstall.";
    Mounted { path: String } = "{path} is mounted: unmount it, then rerun uninstall.";
    ProcessesRun = "Processes of oac-node still run: check pgrep -u oac-node, then rerun uninstall.";
    /// What no other hint names; the text says what failed.
    Failed { what: String } = "{what}: mend that, then run the command again.";
}

impl Hint {
    pub fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = format!("{what}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self::Failed { what: text }
    }

    pub fn unreachable(origin: &Origin) -> Self {
        Self::CoreUnreachable {
            origin: origin.to_string(),
        }
    }

    /// 1, or what a signal means to a shell.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Stopped { signal } => u8::try_from(128 + signal).unwrap_or(1),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_is_one_line_that_ends_as_a_sentence() {
        for (name, text) in Hint::ALL {
            assert!(!text.contains('\n'), "{name}");
            assert!(text.ends_with(['.', '}']), "{name}: {text}");
        }
    }

    #[test]
    fn the_guide_explains_every_hint() {
        let guide = include_str!("../../../docs/troubleshooting.md");
        let section = guide.split("## Installer messages").nth(1).unwrap();
        for (name, text) in Hint::ALL {
            // A value's place is shown as an ellipsis.
            let mut shown = String::new();
            for (place, part) in text.split(['{', '}']).enumerate() {
                shown.push_str(if place % 2 == 0 { part } else { "…" });
            }
            let row = format!("| `{shown}` | ");
            let found = section.lines().find(|line| line.starts_with(&row));
            let cells = found
                .unwrap_or_else(|| panic!("{name}: {row}"))
                .trim_matches('|')
                .split(" | ");
            assert_eq!(cells.filter(|cell| !cell.trim().is_empty()).count(), 3, "{name}");
        }
    }

    // req: G-140
    #[test]
    fn a_rerun_that_is_refused_for_what_the_node_is_names_the_way_to_start_over() {
        let remedy =
            "choose Remove node on Nodes, uninstall the node on the host, then add it again with Add node.";
        let origin = "http://old".to_owned();
        for hint in [
            Hint::BelongsTo { origin },
            Hint::ConfigurationChanged,
            Hint::NotAccepted,
        ] {
            assert!(hint.to_string().ends_with(remedy), "{hint}");
        }
    }

    #[test]
    fn signals_have_the_exit_status_that_shells_give_them() {
        for (signal, status) in [(1, 129), (2, 130), (15, 143)] {
            assert_eq!(Hint::Stopped { signal }.exit_status(), status);
        }
        assert_eq!(Hint::NotRoot.exit_status(), 1);
    }
}
