//! One machine for everything: Core's own host becomes a node like any other.

use oac_model::Secret;
use oac_testkit::{
    host::{Host, Shell, Sudo},
    program::built_programs,
    wait,
};
use oac_tests::story::PATIENCE;
use serde_json::{Value, json};

use crate::site::{manifest, release, runtime_of};

/// Asks Core for something; the status and the answer.
async fn ask(method: &str, url: &str, key: &Secret, body: Option<Value>) -> Option<(u16, Value)> {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = reqwest::Client::new()
        .request(method, url)
        .bearer_auth(key.expose());
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.unwrap_or_default()))
}

/// Brings the built release to the host and publishes it as the guide says.
async fn publish(host: &Host) {
    for name in ["manifest.json", "SHA256SUMS"] {
        host.put(&release().join(name), &format!("/srv/release/{name}"), "0644")
            .await
            .unwrap();
    }
    for entry in std::fs::read_dir(release().join("artifacts")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        host.put(&path, &format!("/srv/release/artifacts/{name}"), "0644")
            .await
            .unwrap();
    }
    host.output("sudo -u oac-node oac-core release publish /srv/release")
        .await
        .unwrap();
}

// req: G-026, G-105, G-118, G-224
#[tokio::test]
async fn host_cores_own_host_runs_sandboxes_only_once_it_is_added_as_a_node_like_any_other() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let host = Host::boot("alone").await.unwrap();
    host.put(
        &built_programs().join("oac-core"),
        "/usr/local/bin/oac-core",
        "0755",
    )
    .await
    .unwrap();
    host.put(&built_programs().join("oac"), "/usr/local/bin/oac", "0755")
        .await
        .unwrap();
    let url = format!("http://{}:8080", host.address());
    let set_up = format!(
        "oac-core setup --public-url {url} --listen {}:8080",
        host.address()
    );
    let said = host.output(&set_up).await.unwrap();
    let key = Secret::new(
        said.split_whitespace()
            .find(|word| word.starts_with("oac_core_"))
            .unwrap(),
    );
    let core = async |method: &str, path: &str, body: Option<Value>| {
        ask(method, &format!("{url}/core/v1{path}"), &key, body).await
    };
    wait::until("Core serves", PATIENCE, async || {
        core("GET", "/sandbox/deployment", None).await
    })
    .await
    .unwrap();
    publish(&host).await;
    let now = core("GET", "/sandbox/deployment", None).await.unwrap().1;
    let deployment = json!({
        "expected_generation": now["generation"], "provider": "docker",
        "resources": { "cpus": 1, "memory_mib": 512 }, "runtime": runtime_of(&manifest()),
    });
    // Core notices a published release in a moment.
    let saved = wait::until("the deployment is saved", PATIENCE, async || {
        let answer = core("POST", "/sandbox/deployment", Some(deployment.clone())).await?;
        (answer.0 < 300).then_some(answer.1)
    });
    let id = saved.await.unwrap()["installation_id"]
        .as_str()
        .unwrap()
        .to_owned();

    let project = core("POST", "/projects", Some(json!({ "name": "own" })))
        .await
        .unwrap()
        .1;
    let keys = format!("/projects/{}/keys", project["id"].as_str().unwrap());
    let project_key = core("POST", &keys, Some(json!({ "name": "own" })))
        .await
        .unwrap()
        .1;
    let config = format!(
        "url = \"{url}\"\ncore_key = \"{}\"\nproject_key = \"{}\"\n",
        key.expose(),
        project_key["key"].as_str().unwrap()
    );
    host.output(&format!("umask 077; printf '%s' '{config}' >/root/oac.toml"))
        .await
        .unwrap();
    let oac = async |arguments: &str| {
        host.run(&format!("oac --config /root/oac.toml {arguments}"))
            .await
            .unwrap()
    };

    // That Core runs here makes no node of the host.
    let refused = oac("session create --name early").await;
    assert_ne!(refused.status, Some(0), "{refused:#?}");
    assert_eq!(host.output("docker ps --all --quiet").await.unwrap(), "");
    let account_before = host
        .output("getent passwd oac-node; id oac-node; stat -c %a /var/lib/oac-node")
        .await
        .unwrap();

    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let command = wait::until("the command is there", PATIENCE, async || {
        let ran = oac("node add --active 2 --no-wait").await;
        (ran.status == Some(0)).then_some(ran.out)
    });
    let command = command.await.unwrap();
    let ran = ada.paste(Shell::Bash, command.trim_end()).await.unwrap().ended(0);
    assert!(
        ran.out.contains("This host is a node, connected and ready."),
        "{ran:#?}"
    );
    let uid_of = async |unit: &str| {
        let main = host.main_process(unit).await.unwrap();
        host.output(&format!("ps -o uid= -p {main}"))
            .await
            .unwrap()
            .trim()
            .to_owned()
    };
    let unit = format!("oac-node-{id}.service");
    assert_eq!(
        (uid_of("oac-core").await, uid_of(&unit).await),
        ("65532".to_owned(), "65532".to_owned())
    );
    let session = oac("session create --name work").await.ok().out;
    let session = session.trim();
    let ran = oac(&format!("session exec {session} -- echo hello")).await.ok();
    assert_eq!(ran.out, "hello\n");
    assert_ne!(host.output("docker ps --quiet").await.unwrap(), "");

    // Given back, it is Core's host as before: the record says that the account was here already.
    oac(&format!("session rm --yes {session}")).await.ok();
    let node = core("GET", "/sandbox/nodes", None).await.unwrap().1;
    let node = node["data"][0]["id"].as_str().unwrap().to_owned();
    wait::until("the node is removed", PATIENCE, async || {
        (oac(&format!("node rm {node}")).await.status == Some(0)).then_some(())
    })
    .await
    .unwrap();
    let record = host.output("cat /etc/oac-node/account.json").await.unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&record).unwrap()["created"],
        false,
        "{record}"
    );
    let cleanup = oac("node cleanup-command").await.ok().out;
    let ran = ada.paste(Shell::Bash, cleanup.trim_end()).await.unwrap().ended(0);
    assert!(
        ran.out.contains("the account oac-node, which was here before"),
        "{ran:#?}"
    );
    let account = host
        .output("getent passwd oac-node; id oac-node; stat -c %a /var/lib/oac-node")
        .await
        .unwrap();
    assert_eq!(account, account_before);
    host.output("! ls -d /etc/oac-node && ! ls -d /var/lib/oac-node/.oac/nodes/*")
        .await
        .unwrap();
    assert_eq!(core("GET", "/sandbox/deployment", None).await.unwrap().0, 200);
    host.end().await.unwrap();
}
