//! The program on a real Docker Engine, from `register` to SIGTERM.

use std::{
    io::Write,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use axum::http::StatusCode;
use oac_model::NodeId;
use oac_wire::{
    frames::{Arguments, ResponseResult},
    shapes::Info,
};

use crate::{
    installation::{Backend, Installation},
    program::{ACCOUNT, give, is_root, output, program, said},
    registration::TOKEN,
    scripted_core::{ScriptedCore, unauthorized},
    shapes::{create, reference, response},
};

/// What this test made in the engine; removed when it ends.
pub(crate) struct Made {
    pub(crate) socket: String,
    pub(crate) backend: Backend,
}

pub(crate) fn docker(socket: &str, arguments: &[&str]) -> String {
    let mut child = Command::new("docker")
        .args(["-H", &format!("unix://{socket}")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the docker command line is installed");
    // An empty tar archive, for `import`.
    let _ = child.stdin.take().unwrap().write_all(&[0; 1024]);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "docker {arguments:?} failed");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Made {
    pub(crate) fn new() -> Self {
        let Ok(host) = std::env::var("OAC_TEST_DOCKER") else {
            panic!("OAC_TEST_DOCKER is not set: run through cargo xtask test");
        };
        let socket = host.strip_prefix("unix://").unwrap_or(&host).to_owned();
        let unique = NodeId::random();
        let name = format!("oac-node-test-{unique}");
        let label = format!("LABEL oac.test={unique}");
        let image = docker(&socket, &["import", "--change", &label, "-"]);
        docker(&socket, &["network", "create", &name]);
        let backend = Backend {
            host: format!("unix://{socket}"),
            image: image.strip_prefix("sha256:").unwrap().to_owned(),
            network: name,
        };
        Self { socket, backend }
    }

    /// The program as the service account, with the group of the engine's socket.
    pub(crate) fn command(&self, installation: &Installation, verb: &str) -> Command {
        command_of(program(), self.socket.as_ref(), installation, verb)
    }
}

/// `verb` of `program` as the service account, with the group of the socket.
pub(crate) fn command_of(
    mut program: Command,
    socket: &Path,
    installation: &Installation,
    verb: &str,
) -> Command {
    if is_root() {
        program.uid(ACCOUNT).gid(std::fs::metadata(socket).unwrap().gid());
        give(installation.root.parent().unwrap());
    }
    program
        .args([verb, "--config"])
        .arg(installation.root.join("provider.json"))
        .arg("--state-dir")
        .arg(&installation.state_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    program
}

impl Drop for Made {
    fn drop(&mut self) {
        for arguments in [
            ["network", "rm", &self.backend.network],
            ["image", "rm", &self.backend.image],
        ] {
            let _ = Command::new("docker")
                .args(["-H", &format!("unix://{}", self.socket)])
                .args(arguments)
                .output();
        }
    }
}

/// Core accepts the token, and from then on the credential that came with it.
fn accept_enrollment(core: &ScriptedCore) {
    let script = std::sync::Arc::downgrade(&core.script);
    *core.script.enroll.lock() = Box::new(move |seen| {
        let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        let mut answer = serde_json::json!({
            "installation_id": "11111111-1111-4111-8111-111111111111", "max_active": 3, "max_retained": 4,
        });
        for member in [
            "node_id",
            "provider",
            "deployment_generation",
            "specification_digest",
        ] {
            answer[member] = body[member].clone();
        }
        let created = answer.to_string();
        let credential = format!("Bearer {}", body["credential"].as_str().unwrap());
        answer["connected"] = false.into();
        answer["provider_ready"] = false.into();
        *script.upgrade().unwrap().identity.lock() =
            Box::new(
                move |seen| match seen.headers["authorization"] == credential.as_str() {
                    true => (StatusCode::OK, answer.to_string()),
                    false => unauthorized(),
                },
            );
        (StatusCode::CREATED, created)
    });
}

async fn register(made: &Made, installation: &Installation, core: &ScriptedCore) -> std::process::Output {
    let mut command = made.command(installation, "register");
    command.args([
        "--core-url",
        &core.url(),
        "--name",
        "node one",
        "--enrollment-token-stdin",
    ]);
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{TOKEN}").unwrap();
    tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap()
}

// req: P-031
#[tokio::test]
async fn docker_the_program_registers_serves_and_stops_on_a_real_engine() {
    let made = Made::new();
    let mut core = ScriptedCore::start().await;
    let installation = Installation::on(&core, &made.backend);
    let before = output(made.command(&installation, "doctor")).await;
    assert_eq!(before.status.code(), Some(1));
    assert!(!before.stdout.is_empty(), "doctor prints what fails");

    accept_enrollment(&core);
    let registered = register(&made, &installation, &core).await;
    assert!(registered.status.success(), "{}", said(&registered));
    let printed: serde_json::Value = serde_json::from_slice(&registered.stdout).unwrap();
    let stored = std::fs::read(installation.state_dir.join("identity.json")).unwrap();
    let stored: serde_json::Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!(printed, stored["identity"]);
    let credential = stored["credential"].as_str().unwrap();
    assert!(!String::from_utf8_lossy(&registered.stdout).contains(credential));
    let again = register(&made, &installation, &core).await;
    assert_eq!(
        again.stdout, registered.stdout,
        "repeating it gives the same identity"
    );

    let healthy = output(made.command(&installation, "doctor")).await;
    assert!(
        healthy.status.success(),
        "{}",
        String::from_utf8_lossy(&healthy.stdout)
    );

    let missing = Backend {
        host: made.backend.host.clone(),
        image: "ab".repeat(32),
        network: "oac-node-test-missing".into(),
    };
    let unready = Installation::on(&core, &missing);
    oac_records::Directory::create(&unready.state_dir).unwrap();
    let both = output(made.command(&unready, "doctor")).await;
    let printed = String::from_utf8_lossy(&both.stdout).into_owned();
    for expected in ["not registered", "no image", "no network"] {
        assert!(
            printed.contains(expected),
            "doctor names every failure: {printed}"
        );
    }

    let child = made.command(&installation, "run").spawn().unwrap();
    let (mut link, hello) = core.greet().await;
    assert!(hello.health.provider_ready, "{:?}", hello.health.diagnostic);
    let code = |answer: &oac_wire::frames::Response| answer.error_code.clone();
    link.call(0, Arguments::Info).await;
    assert_eq!(code(&response(link.next().await)).as_deref(), Some("not_found"));
    link.call(0, Arguments::Kill).await;
    assert_eq!(code(&response(link.next().await)), None);
    link.call(0, Arguments::Info).await;
    let absent = response(link.next().await);
    let Ok(Some(ResponseResult::Info(info))) = &absent.result else {
        panic!("{absent:?}");
    };
    assert_eq!(info.state, Info::ABSENT);
    assert!(info.is_settled_receipt_of(&reference(0)) && !info.compute_lost);
    link.call(0, create(reference(0))).await;
    assert_eq!(code(&response(link.next().await)).as_deref(), Some("exists"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    link.closed().await;
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let log = said(&ended);
    assert!(!log.contains(credential) && !log.contains(TOKEN));
}
