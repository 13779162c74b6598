//! An installation made of real programs: Core as a process of its own, and hosts made nodes.
//!
//! Until the installer exists, [`Installation::add_node`] stands in for it: it creates the labelled network,
//! `provider.json` and the seccomp file, copies the node program to a folder every account can reach, and starts
//! `register` and `run` as UID 65532 with the socket's group. It creates no account.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use oac_model::{InstallationId, Secret};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    core_process::{self, CoreSettings},
    engine::{Engine, EngineError},
    generations,
    program::{Program, ProgramError, Tie},
};

/// The account that nodes run as.
const NODE_UID: u32 = 65532;
/// How long a node may take to become ready.
const START: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    #[error("cannot prepare {path}", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the release was not published")]
    Release(#[from] oac_release::store::StoreError),
    #[error("the node's records of generations cannot be made: {0}")]
    Generations(String),
    #[error(transparent)]
    Wait(#[from] crate::wait::InVain),
    #[error("{what} failed: {said}")]
    Command { what: &'static str, said: String },
    #[error("Core answered {status} to {method} {path}: {body}")]
    Answer {
        method: &'static str,
        path: String,
        status: u16,
        body: String,
    },
    #[error("Core did not answer {method} {path}")]
    NoAnswer {
        method: &'static str,
        path: String,
        #[source]
        source: reqwest::Error,
    },
}

type Result<T> = std::result::Result<T, InstallationError>;

/// A Core process and what one needs to talk to it.
pub struct Installation {
    folder: PathBuf,
    programs: PathBuf,
    config: PathBuf,
    core: Option<Program>,
    tie: Tie,
    /// Core's origin.
    pub url: String,
    /// The origin that nodes and sandboxes are told.
    public_url: String,
    pub core_key: Secret,
    http: reqwest::Client,
    collector: Option<SocketAddr>,
}

/// A node made by the stand-in for the installer.
pub struct Node {
    pub name: String,
    root: PathBuf,
    program: PathBuf,
    group: u32,
    tie: Tie,
    log: PathBuf,
    run: Option<Program>,
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> InstallationError {
    let path = path.to_owned();
    move |source| InstallationError::File { path, source }
}

fn make_folder(path: &Path, mode: u32) -> Result<()> {
    std::fs::create_dir_all(path).map_err(io(path))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(io(path))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    std::fs::write(path, bytes).map_err(io(path))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(io(path))
}

impl Installation {
    /// Starts Core of `programs` on a free port of `address`, with its database and files in `folder`, on SQLite
    /// unless `database` names another URL.
    pub async fn start(
        programs: &Path,
        folder: &Path,
        address: IpAddr,
        database: Option<&str>,
        tie: Tie,
    ) -> Result<Self> {
        let listen = SocketAddr::new(address, crate::port::unused(address).map_err(io(folder))?);
        Self::start_behind(programs, folder, (listen, listen), database, tie).await
    }

    /// Likewise on a given address, with another one as what nodes and sandboxes are told: that of something in between.
    pub async fn start_behind(
        programs: &Path,
        folder: &Path,
        (listen, public): (SocketAddr, SocketAddr),
        database: Option<&str>,
        tie: Tie,
    ) -> Result<Self> {
        make_folder(folder, 0o755)?;
        let (url, public_url) = (format!("http://{listen}"), format!("http://{public}"));
        let database = match database {
            Some(url) => url.to_owned(),
            None => format!("sqlite://{}", folder.join("core.db").display()),
        };
        let settings = CoreSettings {
            listen,
            public_url: Some(&public_url),
            database_url: &database,
            database_password: None,
        };
        let config = settings.write(folder, "core").map_err(io(folder))?;
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(|source| InstallationError::NoAnswer {
                method: "GET",
                path: "/".to_owned(),
                source,
            })?;
        let mut installation = Self {
            folder: folder.to_owned(),
            programs: programs.to_owned(),
            config,
            core: None,
            tie,
            url,
            public_url,
            core_key: Secret::new(""),
            http,
            collector: None,
        };
        installation.start_core().await?;
        installation.core_key = installation.new_core_key().await?;
        Ok(installation)
    }

    /// Starts Core (again) and waits until it serves.
    pub async fn start_core(&mut self) -> Result<()> {
        let log = self.folder.join("core.log");
        let mut program = core_process::start(&self.program("oac-core"), &self.config, &log, self.tie)?;
        core_process::until_answered(&mut program, &self.url, "readyz").await?;
        self.core = Some(program);
        Ok(())
    }

    /// Publishes the release in `offer`, and waits until Core serves its files.
    pub async fn publish(&self, offer: &Path) -> Result<()> {
        let releases = self.release_dir();
        make_folder(&releases, 0o755)?;
        oac_release::store::publish(&releases, offer, false)?;
        let path = "/api/v1/sandbox-node/install/index.json";
        let offered = std::fs::read(offer.join("manifest.json")).map_err(io(offer))?;
        let digest = oac_model::Digest::of(&offered).to_string();
        crate::wait::until("the release is served", START, async || {
            let index = self.call("GET", path, &self.core_key, None).await.ok()?;
            let served = index["manifest_sha256"] == digest.as_str()
                && index["installer"].is_object()
                && index["providers"]["docker"] == true;
            served.then_some(())
        })
        .await?;
        Ok(())
    }

    /// Starts Core again with a configuration that sends every span to `collector`, as the nodes will that are started
    /// from now on.
    pub async fn trace_to(&mut self, collector: SocketAddr) -> Result<()> {
        let mut text = std::fs::read_to_string(&self.config).map_err(io(&self.config))?;
        text += &format!("\n[traces]\nendpoint = \"http://{collector}\"\n");
        write(&self.config, text.as_bytes(), 0o600)?;
        self.collector = Some(collector);
        self.stop_core().await;
        self.start_core().await
    }

    /// Leaves Core's process to the caller, who also starts it again: for an installation of several Cores behind one
    /// address, which is then set as [`Self::url`].
    pub fn take_core(&mut self) -> Option<Program> {
        self.core.take()
    }

    /// The configuration that Core is started with.
    pub fn core_config(&self) -> &Path {
        &self.config
    }

    /// Ends Core by SIGKILL, as a crash would.
    pub async fn kill_core(&mut self) {
        if let Some(core) = self.core.take() {
            core.kill().await;
        }
    }

    /// Ends Core by SIGTERM; its exit status.
    pub async fn stop_core(&mut self) -> Option<i32> {
        self.core.take()?.stop().await
    }

    pub fn core_log(&self) -> String {
        std::fs::read_to_string(self.folder.join("core.log")).unwrap_or_default()
    }

    pub fn core_pid(&self) -> Option<u32> {
        self.core.as_ref().and_then(Program::pid)
    }

    async fn new_core_key(&self) -> Result<Secret> {
        let output = Command::new(self.programs.join("oac-core"))
            .args(["core-key", "create", "--config"])
            .arg(&self.config)
            .output()
            .await
            .map_err(io(&self.config))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match said.split_whitespace().find(|word| word.starts_with("oac_core_")) {
            Some(key) if output.status.success() => Ok(Secret::new(key)),
            _ => Err(InstallationError::Command {
                what: "oac-core core-key create",
                said: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    /// One request with a key; the answer's document, null without one.
    pub async fn call(
        &self,
        method: &'static str,
        path: &str,
        key: &Secret,
        body: Option<&Value>,
    ) -> Result<Value> {
        let (status, text) = self.try_call(method, path, key, body).await?;
        if !(200..300).contains(&status) {
            return Err(InstallationError::Answer {
                method,
                path: path.to_owned(),
                status,
                body: text,
            });
        }
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Like [`Self::call`], whatever the status.
    pub async fn try_call(
        &self,
        method: &'static str,
        path: &str,
        key: &Secret,
        body: Option<&Value>,
    ) -> Result<(u16, String)> {
        let no_answer = |source| InstallationError::NoAnswer {
            method,
            path: path.to_owned(),
            source,
        };
        let verb = reqwest::Method::from_bytes(method.as_bytes()).unwrap_or(reqwest::Method::GET);
        let mut request = self
            .http
            .request(verb, format!("{}{path}", self.url))
            .bearer_auth(key.expose());
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(no_answer)?;
        let status = response.status().as_u16();
        Ok((status, response.text().await.map_err(no_answer)?))
    }

    /// Saves a Docker deployment; the safe deployment.
    pub async fn deploy(&self, cpus: u32, memory_mib: u64, runtime: &Value) -> Result<Value> {
        let path = "/core/v1/sandbox/deployment";
        let now = self.call("GET", path, &self.core_key, None).await?;
        let body = json!({
            "expected_generation": now["generation"],
            "provider": "docker",
            "resources": { "cpus": cpus, "memory_mib": memory_mib },
            "runtime": runtime,
        });
        let method = if now["provider"].is_null() { "POST" } else { "PUT" };
        self.call(method, path, &self.core_key, Some(&body)).await
    }

    /// Where Core looks for releases; nothing is there at first.
    pub fn release_dir(&self) -> PathBuf {
        core_process::release_dir(&self.folder)
    }

    pub async fn installation_id(&self) -> Result<InstallationId> {
        let path = "/core/v1/sandbox/deployment";
        let deployment = self.call("GET", path, &self.core_key, None).await?;
        deployment["installation_id"]
            .as_str()
            .and_then(|id| id.parse().ok())
            .ok_or(InstallationError::Answer {
                method: "GET",
                path: path.to_owned(),
                status: 200,
                body: deployment.to_string(),
            })
    }

    /// A Project and an API key of it.
    pub async fn project(&self, name: &str) -> Result<(String, Secret)> {
        let project = self
            .call(
                "POST",
                "/core/v1/projects",
                &self.core_key,
                Some(&json!({ "name": name })),
            )
            .await?;
        let id = project["id"].as_str().unwrap_or_default().to_owned();
        let path = format!("/core/v1/projects/{id}/keys");
        let key = self
            .call("POST", &path, &self.core_key, Some(&json!({ "name": name })))
            .await?;
        Ok((id, Secret::new(key["key"].as_str().unwrap_or_default())))
    }

    /// Writes a configuration of `oac` with both keys; its path.
    pub fn write_cli_config(&self, project_key: &Secret) -> Result<PathBuf> {
        let path = self.folder.join("oac.toml");
        let text = format!(
            "url = \"{}\"\ncore_key = \"{}\"\nproject_key = \"{}\"\n",
            self.url,
            self.core_key.expose(),
            project_key.expose()
        );
        write(&path, text.as_bytes(), 0o600)?;
        Ok(path)
    }

    /// The client whose connections to Core stay open.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Makes this machine a node of its own: registers it and starts it, with room for `max_active` sandboxes.
    /// The installation's network must exist. `root` is the node's folder.
    pub async fn add_node(
        &self,
        engine: &Engine,
        name: &str,
        max_active: u32,
        seccomp: &str,
    ) -> Result<Node> {
        let (mut node, token) = self.make_node(engine, name, max_active, seccomp).await?;
        give_to_node(&node.root)?;
        node.register(&self.public_url, &token).await?;
        self.start_node(&mut node).await?;
        Ok(node)
    }

    /// Likewise, one that manages generations, with Core as the place its releases come from.
    pub async fn add_managing_node(
        &self,
        engine: &Engine,
        name: &str,
        max_active: u32,
        seccomp: &str,
    ) -> Result<Node> {
        let (mut node, token) = self.make_node(engine, name, max_active, seccomp).await?;
        generations::manage(&node.root, &self.public_url)?;
        give_to_node(&node.root)?;
        node.register(&self.public_url, &token).await?;
        self.start_node(&mut node).await?;
        Ok(node)
    }

    async fn make_node(
        &self,
        engine: &Engine,
        name: &str,
        max_active: u32,
        seccomp: &str,
    ) -> Result<(Node, Secret)> {
        let body = json!({ "max_active": max_active, "max_retained": max_active });
        let path = "/core/v1/sandbox/enrollment-tokens";
        let token = self.call("POST", path, &self.core_key, Some(&body)).await?;
        let token = Secret::new(token["token"].as_str().unwrap_or_default());
        let configuration = self
            .call("GET", "/api/v1/sandbox-node/configuration", &token, None)
            .await?;

        let root = self.folder.join(format!("node-{name}"));
        make_folder(&root, 0o700)?;
        for inner in ["runtime", "state", "state/node"] {
            make_folder(&root.join(inner), 0o700)?;
        }
        let seccomp_file = root.join("runtime/seccomp.json");
        write(&seccomp_file, seccomp.as_bytes(), 0o600)?;
        let artifacts = &configuration["specification"]["runtime"]["artifacts"];
        let mut image = artifacts["image_id"].as_str().unwrap_or_default();
        if engine.image_id(image).await?.is_none() {
            image = artifacts["image_manifest_digest"].as_str().unwrap_or_default();
        }
        let provider = json!({
            "installation_id": configuration["installation_id"],
            "provider": "docker",
            "core_url": format!("{}/api/v1", self.public_url),
            "specification": configuration["specification"],
            "generation": configuration["generation"],
            "native": {
                "host": engine.host(),
                "image": image,
                "network": format!("oac-node-{}", configuration["installation_id"].as_str().unwrap_or_default()),
                "seccomp_file": seccomp_file,
            },
        });
        write(
            &root.join("provider.json"),
            provider.to_string().as_bytes(),
            0o600,
        )?;
        let program = self.folder.join("oac-node");
        if !program.exists() {
            std::fs::copy(self.programs.join("oac-node"), &program).map_err(io(&program))?;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
                .map_err(io(&program))?;
        }
        let group = std::fs::metadata(engine.socket())
            .map_err(io(engine.socket()))?
            .gid();
        let log = self.folder.join(format!("node-{name}.log"));
        let node = Node {
            name: name.to_owned(),
            root,
            program,
            group,
            tie: self.tie,
            log,
            run: None,
        };
        Ok((node, token))
    }

    /// Starts a node's service and waits until Core shows it ready.
    pub async fn start_node(&self, node: &mut Node) -> Result<()> {
        let name = node.name.clone();
        let shown = async || {
            let nodes = self
                .call("GET", "/core/v1/sandbox/nodes", &self.core_key, None)
                .await
                .ok()?;
            let mut nodes = nodes["data"].as_array()?.iter();
            nodes.find(|n| n["name"] == name.as_str()).cloned()
        };
        // Of a program that was killed a moment ago Core may not know yet.
        crate::wait::until("the earlier program's connection has ended", START, async || {
            (shown().await?["online"] == false).then_some(())
        })
        .await?;
        let mut command = node.command("run");
        command.args(["--operations", "8"]);
        if let Some(collector) = self.collector {
            command.args(["--traces-endpoint", &format!("http://{collector}")]);
        }
        let mut program = Program::start("oac-node", command, &node.log)?;
        program
            .until("the node is connected and ready", START, async || {
                let node = shown().await?;
                (node["online"] == true && node["provider_ready"] == true).then_some(())
            })
            .await?;
        node.run = Some(program);
        Ok(())
    }
}

fn give_to_node(folder: &Path) -> Result<()> {
    chown(folder, Some(NODE_UID), Some(NODE_UID)).map_err(io(folder))?;
    for entry in std::fs::read_dir(folder).map_err(io(folder))? {
        let path = entry.map_err(io(folder))?.path();
        if path.is_dir() {
            give_to_node(&path)?;
        } else {
            chown(&path, Some(NODE_UID), Some(NODE_UID)).map_err(io(&path))?;
        }
    }
    Ok(())
}

impl Node {
    /// The node program as the service account with the engine's group and an empty environment.
    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .args([
                format!("--reuid={NODE_UID}"),
                format!("--regid={NODE_UID}"),
                format!("--groups={}", self.group),
            ])
            .args((self.tie == Tie::Bound).then_some("--pdeathsig=KILL"))
            .arg("--")
            .arg(&self.program)
            .arg(verb)
            .arg("--config")
            .arg(self.root.join("provider.json"))
            .arg("--state-dir")
            .arg(self.root.join("state/node"))
            .current_dir("/");
        command
    }

    async fn register(&mut self, url: &str, token: &Secret) -> Result<()> {
        let mut command = self.command("register");
        command.args([
            "--core-url",
            url,
            "--name",
            &self.name,
            "--enrollment-token-stdin",
        ]);
        let failed = |source| ProgramError::Start {
            name: "oac-node register".to_owned(),
            source,
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that refuses early closes its input; what it says is worth more than that.
            let _ = stdin.write_all(format!("{}\n", token.expose()).as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(InstallationError::Command {
            what: "oac-node register",
            said,
        })
    }

    /// SIGTERM; the exit status.
    pub async fn stop(&mut self) -> Option<i32> {
        self.run.take()?.stop().await
    }

    /// SIGKILL, as a crash would.
    pub async fn kill(&mut self) {
        if let Some(run) = self.run.take() {
            run.kill().await;
        }
    }

    /// A record of its generations, such as `2.json`.
    pub fn generation_record(&self, name: &str) -> PathBuf {
        self.root.join("state/node/generations").join(name)
    }

    pub fn running(&self) -> bool {
        self.run.is_some()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn pid(&self) -> Option<u32> {
        self.run.as_ref().and_then(Program::pid)
    }
}
