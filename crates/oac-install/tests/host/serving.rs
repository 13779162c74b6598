//! The service of a node on a real host, with the real node program and a real Core.

use std::net::{IpAddr, SocketAddr};

use oac_model::{ImageDigest, Secret};
use oac_release::made::commit;
use oac_testkit::{
    host::{Noise, Sudo},
    installation::Installation,
    program::{Tie, built_programs},
    wait,
};
use serde_json::{Value, json};

use crate::{
    engine::image_of,
    proxied::Proxy,
    real::{KEPT, Place},
    world::released,
};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
const NODES: &str = "/core/v1/sandbox/nodes";

/// Core with a deployment and the release of it, whose node program is the real one.
async fn core(folder: &std::path::Path, address: IpAddr) -> Installation {
    let programs = built_programs();
    let installation = Installation::start(&programs, folder, address, None, Tie::Bound);
    let installation = installation.await.unwrap();
    let (archive, config) = image_of("serving", Some(format!("oac-runtime:{}", commit('a'))));
    let program = std::fs::read(programs.join("oac-node")).unwrap();
    let release = folder.join("offer");
    released(&release, commit('a'), (config, &archive), &program, b"{}");
    installation.publish(&release).await.unwrap();
    let runtime = json!({ "source_commit": commit('a'), "artifacts": {
        "image_id": config, "image_manifest_digest": ImageDigest::of("manifest"),
    } });
    installation.deploy(1, 512, &runtime).await.unwrap();
    installation
}

async fn token(installation: &Installation) -> String {
    let path = "/core/v1/sandbox/enrollment-tokens";
    let limits = json!({ "max_active": 1, "max_retained": 1 });
    let answer = installation.call("POST", path, &installation.core_key, Some(&limits));
    answer.await.unwrap()["token"].as_str().unwrap().to_owned()
}

/// The only node there is.
async fn node(installation: &Installation) -> Option<Value> {
    let nodes = installation.call("GET", NODES, &installation.core_key, None);
    nodes.await.ok()?["data"].as_array()?.first().cloned()
}

async fn until_ready(installation: &Installation) {
    wait::until("the node is ready", PATIENCE, async || {
        let node = node(installation).await?;
        (node["online"] == true && node["provider_ready"] == true).then_some(())
    })
    .await
    .unwrap();
}

// req: G-099, G-113, G-161
#[tokio::test]
async fn host_the_service_reaches_core_by_its_proxy_and_comes_back_until_core_does() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let place = Place::boot("serving").await;
    place.host.user("ada", Sudo::Anything).await.unwrap();
    let picture = place.host.picture().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let outside = IpAddr::V4(place.host.outside());
    let mut installation = core(folder.path(), outside).await;
    let id = installation.installation_id().await.unwrap();
    let unit = format!("oac-node-{id}.service");

    let at: SocketAddr = installation.url.trim_start_matches("http://").parse().unwrap();
    let proxy = Proxy::start(Some(at));
    let before = format!(
        "export http_proxy='http://us%20er:p%40ss@{outside}:{}';",
        proxy.port
    );
    let words = [
        "--core-url",
        &installation.url,
        "--installation-id",
        &id.to_string(),
    ];
    let more = ["--provider", "docker", "--enrollment-token-stdin"];
    let command: Vec<String> = words.iter().chain(&more).map(|word| (*word).to_owned()).collect();
    let secret = token(&installation).await;
    let ran = place.run(&command, &before, "", &secret).await.ok();
    assert!(
        ran.out.contains("This host is a node, connected and ready."),
        "{ran:#?}"
    );

    // Started anew by systemd alone, it still goes that way and no other.
    proxy.asked();
    let first = place.host.main_process(&unit).await.unwrap();
    place.says(&format!("systemctl restart {unit}")).await;
    let mut asked = Vec::new();
    wait::until("the node asks the proxy", PATIENCE, async || {
        asked.extend(proxy.asked());
        (!asked.is_empty()).then_some(())
    })
    .await
    .unwrap();
    until_ready(&installation).await;
    let known = (
        format!("CONNECT {at} HTTP/1.1"),
        Some("Basic dXMgZXI6cEBzcw==".to_owned()),
    );
    assert!(asked.iter().all(|asked| *asked == known), "{asked:?}");
    let second = place.host.main_process(&unit).await.unwrap();
    assert_ne!(first, second);

    // Its log is the unit's, for root and through sudo.
    let own = format!("journalctl --no-pager --output=cat -u {unit} _PID={second}");
    let log = place.says(&own).await;
    assert!(
        !log.is_empty() && !log.contains("p%40ss") && !log.contains(&secret),
        "{log}"
    );
    let ada = place.host.user_again("ada");
    let hers = ada.run(&format!("sudo {own}")).await.unwrap().ok();
    assert!(hers.out.starts_with(&log), "{hers:#?}");

    // Without Core it ends and is started again, every five seconds, and once Core is back it is ready.
    installation.kill_core().await;
    let shown = place
        .says(&format!("systemctl show -p RestartUSec,NRestarts {unit}"))
        .await;
    assert!(shown.contains("RestartUSec=5s"), "{shown}");
    place.says(&format!("kill -KILL {second}")).await;
    let often = format!("[ $(systemctl show -p NRestarts --value {unit}) -ge 3 ]");
    place
        .host
        .until("it was started again and again", &often)
        .await
        .unwrap();
    installation.start_core().await.unwrap();
    until_ready(&installation).await;

    // Given back after its removal.
    let removed = node(&installation).await.unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{NODES}/{removed}");
    let key = Secret::new(installation.core_key.expose());
    wait::until("the node is removed", PATIENCE, async || {
        let answer = installation.try_call("DELETE", &path, &key, None).await.ok()?;
        (answer.0 < 300).then_some(())
    })
    .await
    .unwrap();
    let uninstall = ["--uninstall", "--installation-id", &id.to_string()].map(str::to_owned);
    // By the service's own proxies, since the shell has none.
    proxy.asked();
    place.run(&uninstall, "", "", "").await.ok();
    let asked = proxy.asked();
    assert!(
        !asked.is_empty() && asked.iter().all(|asked| *asked == known),
        "{asked:?}"
    );
    let ada_s = Noise {
        begins: "file /home/ada",
        why: "she ran a command there",
    };
    let kept: Vec<Noise> = KEPT.iter().copied().chain([ada_s]).collect();
    let changes = picture.changes(&place.host.picture().await.unwrap(), &kept);
    assert!(changes.is_empty(), "{changes:#?}");
    place.host.end().await.unwrap();
}
