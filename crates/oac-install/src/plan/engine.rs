//! Steps 11 and 12: whether the sandbox backend of this host does what a node needs of it.

use serde::{Deserialize, Serialize};

use crate::hint::Hint;

/// A socket or device as `stat` sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub is_right_kind: bool,
    pub owner: u32,
    pub gid: u32,
    /// The group's name; empty where it has none.
    pub group: String,
    /// Permission bits.
    pub mode: u32,
}

/// What Docker says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    pub api: (u32, u32),
    pub is_rootless: bool,
    pub is_linux_amd64: bool,
    pub limits_memory: bool,
    pub limits_cpu: bool,
    pub cpus: u32,
    pub memory_mib: u64,
}

/// One sandbox of the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub cpus: u32,
    pub memory_mib: u64,
}

const API_FLOOR: (u32, u32) = (1, 41);

/// The socket's own faults, before anything is asked through it.
pub fn docker_socket(path: &str, device: Option<&Device>) -> Result<(), Hint> {
    let Some(device) = device.filter(|device| device.is_right_kind) else {
        return Err(Hint::DockerDown);
    };
    let fits = device.owner == 0 && device.group == "docker" && device.mode == 0o660;
    let socket = path.to_owned();
    if fits {
        Ok(())
    } else {
        Err(Hint::DockerSocket { socket })
    }
}

/// Of an engine that answered; `None` for one that did not.
pub fn docker(engine: Option<&Engine>) -> Result<(), Hint> {
    let Some(engine) = engine else {
        return Err(Hint::DockerDown);
    };
    let faults = [
        (engine.api < API_FLOOR, Hint::DockerOld),
        (engine.is_rootless, Hint::DockerRootless),
        (!engine.is_linux_amd64, Hint::NotLinux),
        (!(engine.limits_memory && engine.limits_cpu), Hint::DockerLimits),
    ];
    match faults.into_iter().find(|(found, _)| *found) {
        Some((_, hint)) => Err(hint),
        None => Ok(()),
    }
}

/// Step 11 of microsandbox.
pub fn microsandbox(kvm: Option<&Device>, has_glibc: bool) -> Result<(), Hint> {
    let Some(kvm) = kvm.filter(|device| device.is_right_kind) else {
        return Err(Hint::KvmMissing);
    };
    let by_group = kvm.group == "kvm" && kvm.mode & 0o060 == 0o060;
    if !by_group && kvm.mode & 0o006 != 0o006 {
        return Err(Hint::KvmAccess);
    }
    if has_glibc { Ok(()) } else { Err(Hint::NoGlibc) }
}

/// Step 12.
pub fn room(one: Size, host: Size) -> Result<(), Hint> {
    if one.cpus <= host.cpus && one.memory_mib <= host.memory_mib {
        return Ok(());
    }
    Err(Hint::TooSmall {
        cpus: one.cpus,
        memory_mib: one.memory_mib,
        has_cpus: host.cpus,
        has_memory_mib: host.memory_mib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(group: &str, mode: u32) -> Device {
        Device {
            is_right_kind: true,
            owner: 0,
            gid: 990,
            group: group.into(),
            mode,
        }
    }

    #[test]
    fn the_socket_is_root_s_and_docker_s_alone() {
        let path = "/var/run/docker.sock";
        let of = |device: Device| docker_socket(path, Some(&device));
        let refused = Err(Hint::DockerSocket { socket: path.into() });
        assert_eq!(of(device("docker", 0o660)), Ok(()));
        assert_eq!(docker_socket(path, None), Err(Hint::DockerDown));
        let file = Device {
            is_right_kind: false,
            ..device("docker", 0o660)
        };
        assert_eq!(of(file), Err(Hint::DockerDown));
        for wrong in [
            device("docker", 0o666),
            device("docker", 0o600),
            device("root", 0o660),
            Device {
                owner: 1000,
                ..device("docker", 0o660)
            },
        ] {
            assert_eq!(of(wrong), refused);
        }
    }

    #[test]
    fn an_engine_is_refused_for_the_first_thing_it_cannot_do() {
        let good = Engine {
            api: (1, 41),
            is_rootless: false,
            is_linux_amd64: true,
            limits_memory: true,
            limits_cpu: true,
            cpus: 2,
            memory_mib: 2048,
        };
        assert_eq!(docker(Some(&good)), Ok(()));
        assert_eq!(docker(None), Err(Hint::DockerDown));
        let of = |change: &dyn Fn(&mut Engine)| {
            let mut engine = good.clone();
            change(&mut engine);
            docker(Some(&engine))
        };
        assert_eq!(of(&|e| e.api = (1, 40)), Err(Hint::DockerOld));
        assert_eq!(of(&|e| e.api = (2, 0)), Ok(()));
        assert_eq!(of(&|e| e.is_rootless = true), Err(Hint::DockerRootless));
        assert_eq!(of(&|e| e.is_linux_amd64 = false), Err(Hint::NotLinux));
        assert_eq!(of(&|e| e.limits_memory = false), Err(Hint::DockerLimits));
        assert_eq!(of(&|e| e.limits_cpu = false), Err(Hint::DockerLimits));
    }

    #[test]
    fn kvm_is_open_to_its_group_or_to_everyone() {
        assert_eq!(microsandbox(Some(&device("kvm", 0o660)), true), Ok(()));
        assert_eq!(microsandbox(Some(&device("root", 0o666)), true), Ok(()));
        assert_eq!(
            microsandbox(Some(&device("root", 0o660)), true),
            Err(Hint::KvmAccess)
        );
        assert_eq!(
            microsandbox(Some(&device("kvm", 0o640)), true),
            Err(Hint::KvmAccess)
        );
        assert_eq!(
            microsandbox(Some(&device("kvm", 0o660)), false),
            Err(Hint::NoGlibc)
        );
        assert_eq!(microsandbox(None, true), Err(Hint::KvmMissing));
        let file = Device {
            is_right_kind: false,
            ..device("kvm", 0o660)
        };
        assert_eq!(microsandbox(Some(&file), true), Err(Hint::KvmMissing));
    }

    #[test]
    fn a_host_holds_one_sandbox_or_is_told_both_sizes() {
        let size = |cpus, memory_mib| Size { cpus, memory_mib };
        assert_eq!(room(size(2, 4096), size(2, 4096)), Ok(()));
        for host in [size(1, 4096), size(2, 4095)] {
            let said = room(size(2, 4096), host).unwrap_err().to_string();
            let has = format!("it has {} and {}.", host.cpus, host.memory_mib);
            assert!(
                said.contains("needs 2 CPUs and 4096 MiB") && said.ends_with(&has),
                "{said}"
            );
        }
    }
}
