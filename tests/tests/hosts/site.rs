//! An installation beside a test host: a real Core that publishes the release that was built of this checkout, and an
//! operator's command line. What the stories of real installations share.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Stdio,
};

use oac_model::{InstallationId, Secret};
use oac_testkit::{
    host::Host,
    installation::Installation,
    port,
    program::{Tie, built_programs},
};
use oac_tests::gate::Gate;
use serde_json::{Value, json};
use tokio::process::Command;

/// The release that `cargo xtask test` and `cargo xtask dist --trial` build for tests.
pub(crate) fn release() -> PathBuf {
    let folder = std::env::var_os("OAC_TEST_RELEASES")
        .unwrap_or_else(|| panic!("OAC_TEST_RELEASES is not set: run through cargo xtask test"));
    PathBuf::from(folder).join("one")
}

/// What a deployment says of the Runtime of a release.
pub(crate) fn runtime_of(manifest: &Value) -> Value {
    let image = &manifest["images"]["runtime"];
    json!({
        "source_commit": manifest["source_commit"],
        "artifacts": { "image_id": image["config_digest"], "image_manifest_digest": image["manifest_digest"] },
    })
}

/// The release's manifest.
pub(crate) fn manifest() -> Value {
    serde_json::from_slice(&std::fs::read(release().join("manifest.json")).unwrap()).unwrap()
}

/// Core with a release and a deployment, and who operates it.
pub(crate) struct Site {
    pub(crate) installation: Installation,
    pub(crate) id: InstallationId,
    config: PathBuf,
    _folder: tempfile::TempDir,
}

impl Site {
    /// Core on this machine, where `host` reaches it.
    pub(crate) async fn beside(host: &Host) -> Self {
        let address = SocketAddr::new(IpAddr::V4(host.outside()), 0);
        Self::at(address, address).await
    }

    /// Likewise, with something in between that the test rules.
    pub(crate) async fn behind_a_gate(host: &Host) -> (Self, Gate) {
        let address = IpAddr::V4(host.outside());
        let free = || SocketAddr::new(address, port::unused(address).unwrap());
        let (core, public) = (free(), free());
        let gate = Gate::before(core, public).await;
        (Self::at(core, gate.address).await, gate)
    }

    async fn at(core: SocketAddr, public: SocketAddr) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let (programs, path) = (built_programs(), folder.path());
        let started = match core == public {
            true => Installation::start(&programs, path, core.ip(), None, Tie::Bound).await,
            false => Installation::start_behind(&programs, path, (core, public), None, Tie::Bound).await,
        };
        let installation = started.unwrap();
        installation.publish(&release()).await.unwrap();
        installation
            .deploy(1, 512, &runtime_of(&manifest()))
            .await
            .unwrap();
        let (_, key) = installation.project("story").await.unwrap();
        Self {
            config: installation.write_cli_config(&key).unwrap(),
            id: installation.installation_id().await.unwrap(),
            installation,
            _folder: folder,
        }
    }

    /// The operator's command line.
    pub(crate) fn oac(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.installation.program("oac"));
        command.arg("--config").arg(&self.config).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// What a command that succeeds says.
    pub(crate) async fn said(&self, arguments: &[&str]) -> String {
        let output = self.oac(arguments).output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        said.trim_end_matches('\n').to_owned()
    }

    /// The command that makes a host a node.
    pub(crate) async fn add_command(&self) -> String {
        self.said(&["node", "add", "--active", "2", "--no-wait"]).await
    }

    /// All nodes that Core lists.
    pub(crate) async fn nodes(&self) -> Vec<Value> {
        let (path, key) = ("/core/v1/sandbox/nodes", &self.installation.core_key);
        let nodes = self.installation.call("GET", path, key, None).await.unwrap();
        nodes["data"].as_array().unwrap().clone()
    }

    /// Whether Core reports a node connected and ready.
    pub(crate) async fn is_ready(&self, node: &str) -> Option<()> {
        let shown = self.oac(&["--json", "node", "show", node]).output().await.ok()?;
        let shown: Value = serde_json::from_slice(&shown.stdout).ok()?;
        (shown["provider_ready"] == true && shown["online"] == true).then_some(())
    }

    /// Whether a token could still register a node: Core tells what it would set up.
    pub(crate) async fn accepts(&self, token: &str) -> bool {
        let path = "/api/v1/sandbox-node/configuration";
        let answer = self
            .installation
            .try_call("GET", path, &Secret::new(token), None)
            .await;
        answer.unwrap().0 == 200
    }

    pub(crate) fn unit(&self) -> String {
        format!("oac-node-{}.service", self.id)
    }

    /// The node's folder on its host.
    pub(crate) fn node_root(&self) -> String {
        format!("/var/lib/oac-node/.oac/nodes/{}", self.id)
    }
}

/// The token of a command that adds a node.
pub(crate) fn token_of(command: &str) -> &str {
    command.split('\'').nth(1).unwrap()
}
