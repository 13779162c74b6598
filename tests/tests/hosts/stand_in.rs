//! A program in the installer's place that tells what it was given.

use std::net::Ipv4Addr;

use oac_model::{Digest, InstallationId, ProviderKind, Secret};
use oac_release::{
    command::{Commands, Confirmation},
    index::{Index, InstallerFile, Providers},
    layout,
    made::commit,
};
use oac_testkit::host::Host;
use oac_tests::served::Served;
use oac_wire::Nullable;

pub(crate) const STAND_IN: &str = include_str!("stand-in.sh");
/// What the stand-in prints.
pub(crate) const RAN: &str = "the stand-in ran";
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// What the stand-in wrote down.
#[derive(Debug)]
pub(crate) struct Given {
    lines: Vec<String>,
}

impl Given {
    /// Of the last run; `None` if it did not run. What is there is gone then.
    pub(crate) async fn read(host: &Host) -> Option<Self> {
        let text = host
            .output("cat /run/given 2>/dev/null; rm -f /run/given")
            .await
            .unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (!lines.is_empty()).then_some(Self { lines })
    }

    /// Every line of one kind, without it.
    pub(crate) fn all(&self, kind: &str) -> Vec<&str> {
        let lines = self.lines.iter();
        lines
            .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
            .collect()
    }
}

/// A console that serves one installer, the stand-in unless told otherwise.
pub(crate) struct Console {
    pub(crate) served: Served,
    index: Index,
}

pub(crate) fn installation() -> InstallationId {
    "11111111-1111-4111-8111-111111111111".parse().unwrap()
}

impl Console {
    pub(crate) async fn start(address: Ipv4Addr) -> Self {
        let served = Served::start(address).await;
        let index = Index {
            format: 1,
            source_commit: commit('a'),
            manifest_sha256: Digest::of("manifest"),
            installer: Nullable(Some(InstallerFile {
                filename: layout::INSTALLER.filename(commit('a')),
                size: STAND_IN.len() as u64,
                sha256: Digest::of(STAND_IN),
            })),
            providers: Providers {
                docker: true,
                microsandbox: true,
            },
            releases: vec![commit('a')],
        };
        Self { served, index }
    }

    /// The command for a host that reaches the console under `origin`.
    pub(crate) fn install_from(&self, origin: &str) -> String {
        let commands = Commands::new(origin, &self.index).unwrap();
        let command = commands.install(installation(), ProviderKind::Docker, &Secret::new(TOKEN));
        command.unwrap().expose().to_owned()
    }

    pub(crate) fn install(&self) -> String {
        self.install_from(&self.served.origin())
    }

    pub(crate) fn uninstall(&self) -> String {
        let origin = self.served.origin();
        let commands = Commands::new(&origin, &self.index).unwrap();
        commands.uninstall(installation(), Confirmation::Needed).unwrap()
    }

    /// Where the verified installer is kept, below an account's home.
    pub(crate) fn kept(&self) -> String {
        format!(".oac/node-bootstrap/{}.run", Digest::of(STAND_IN))
    }
}
