//! The image that the test run built, on the real engine.

use crate::{
    acceptor::{Acceptor, perform, run},
    engine::{Container, Network, Scratch, docker_ok, run_image},
};

#[tokio::test]
async fn the_engine_knows_the_image_by_a_digest_that_was_computed_without_it() {
    let image = run_image();
    let scratch = Scratch::load();
    for (config, manifest) in [
        (image.id, image.manifest_digest),
        (scratch.built.config_digest, scratch.built.manifest_digest),
    ] {
        let known = docker_ok(&["image", "ls", "--all", "--no-trunc", "--format", "{{.ID}}"]);
        let (config, manifest) = (config.to_string(), manifest.to_string());
        assert!(
            known.lines().any(|id| id == config || id == manifest),
            "{config} or {manifest} in {known}"
        );
    }
    let format = "{{.Os}}/{{.Architecture}} {{json .Config.Entrypoint}} {{.Config.User}} {{len .Config.Cmd}}";
    let shown = docker_ok(&["image", "inspect", "--format", format, &scratch.built.tag]);
    assert_eq!(shown, r#"linux/amd64 ["/usr/local/bin/oac-runtime"] 1000:1000 0"#);
}

#[tokio::test]
async fn a_sandbox_of_the_minimal_image_has_what_a_command_expects() {
    let network = Network::new();
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = acceptor.address().to_string();
    let container = Container::start(&run_image().id.to_string(), &network, &host, &[]);
    let (client, _) = acceptor.link().await;
    let shell = |script: &str| {
        let mut run = run(&["bash", "-c", script]);
        run.cwd = "/workspace".into();
        run
    };
    for (script, says) in [
        ("id -u; id -g; id -un", "1000\n1000\nruntime\n"),
        (
            "pwd; pwd -P; echo $HOME",
            "/environment/workspace\n/environment/workspace\n/home/runtime\n",
        ),
        (
            "echo text > file && stat -c '%u %g' file . && cat file",
            "1000 1000\n1000 1000\ntext\n",
        ),
        ("touch /usr/x 2>/dev/null || echo read-only", "read-only\n"),
        ("touch /tmp/x && echo writable", "writable\n"),
        ("cat /proc/1/comm", "oac-runtime\n"),
        (
            "printf 'b\\na\\n' | sort | sed s/a/x/ | grep -c x; find /workspace/ -name file | tar -cf - -T - 2>/dev/null | gzip | gzip -d | tar -t",
            "1\nworkspace/file\n",
        ),
        ("ps -e -o comm= | head -n 1", "oac-runtime\n"),
        (
            "grep -c 'BEGIN CERTIFICATE' /etc/ssl/certs/ca-certificates.crt | awk '{ print ($1 > 100) }'",
            "1\n",
        ),
        (
            "grep -h '^CapEff\\|^NoNewPrivs\\|^Seccomp:' /proc/self/status",
            "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n",
        ),
    ] {
        let told = perform(&client, shell(script)).await;
        assert_eq!(
            String::from_utf8_lossy(&told.stdout),
            says,
            "{script}: {told:?}, {}",
            container.logs()
        );
    }
}

#[tokio::test]
async fn orphans_in_a_sandbox_are_collected_by_its_first_process() {
    let network = Network::new();
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = acceptor.address().to_string();
    let _container = Container::start(&run_image().id.to_string(), &network, &host, &[]);
    let (client, _) = acceptor.link().await;
    let orphans = "for i in 1 2 3 4 5; do (setsid sh -c 'exit 0' &) ; done";
    perform(&client, run(&["bash", "-c", orphans])).await;
    crate::acceptor::until("no zombie is left", async || {
        let told = perform(
            &client,
            run(&["bash", "-c", "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"]),
        )
        .await;
        told.stdout == b"0\n"
    })
    .await;
}
