//! What the scripted engine alone can show.

use std::{
    collections::BTreeMap,
    io::Read,
    time::{Duration, Instant},
};

use oac_model::NetworkAccess;
use oac_provider::{
    Failure,
    suite::{Arrange, Step, World},
};
use oac_wire::shapes::Link;

use crate::{
    tap::{Fault, is_step},
    world::DockerWorld,
};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

// inv: INV-V18
#[tokio::test]
async fn the_bootstrap_is_one_private_file_and_three_private_directories_of_the_runtimes_account() {
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    let uploads = world.scripted.as_ref().unwrap().world.lock().uploads.clone();
    let mut entries = BTreeMap::new();
    for (path, bytes) in &uploads {
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let h = entry.header();
            let facts = (
                h.entry_type(),
                h.mode().unwrap(),
                h.uid().unwrap(),
                h.gid().unwrap(),
            );
            assert!(
                h.username_bytes().is_none_or(<[u8]>::is_empty),
                "owners are numbers"
            );
            let name = format!("{path}/{}", entry.path().unwrap().display());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            entries.insert(name, (facts, content));
        }
    }
    let directory = |name: &str| assert_eq!(entries[name].0, (tar::EntryType::Directory, 0o700, 1000, 1000));
    directory("/home/runtime");
    directory("/environment/workspace");
    directory("/environment/initialization");
    directory("/environment/packages");
    let (facts, content) = &entries["/home/runtime/bootstrap.json"];
    assert_eq!(*facts, (tar::EntryType::Regular, 0o600, 1000, 1000));
    assert_eq!(oac_wire::strict::from_slice::<Link>(content).unwrap(), b.link);
    assert_eq!(entries.len(), 5);
    // The credential travelled nowhere else.
    let secret = b.link.credential.expose().as_bytes();
    let holding = uploads
        .iter()
        .filter(|(_, bytes)| bytes.windows(secret.len()).any(|w| w == secret));
    assert_eq!(holding.count(), 1);
}

// inv: INV-V6
#[tokio::test]
async fn the_receipt_is_durable_before_the_first_native_effect() {
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    std::fs::remove_dir_all(world.receipt_file(&b.reference).parent().unwrap()).unwrap();
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    assert_eq!(failed.failure.code(), "unconfirmed");
    assert!(
        world.tap.calls().iter().all(|c| c.starts_with("GET ")),
        "an effect without a receipt: {:?}",
        world.tap.calls()
    );
}

// inv: INV-V19
#[tokio::test]
async fn v35_network_access_and_workspaces_that_docker_cannot_enforce_are_invalid_without_a_call() {
    let world = DockerWorld::scripted().await;
    for access in [NetworkAccess::None, NetworkAccess::Restricted] {
        let mut b = world.bootstrap();
        b.network_access = access;
        let failed = world.provider().create(&b, later()).await.unwrap_err();
        assert!(matches!(failed.failure, Failure::Invalid(_)), "{access:?}");
    }
    let mut b = world.bootstrap();
    b.workspace = Some(oac_wire::shapes::WorkspaceBinding {
        store_id: oac_model::StoreId::random(),
        object_id: b.reference.environment_id,
        mount: "/mnt".into(),
    })
    .into();
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    assert!(matches!(failed.failure, Failure::Invalid(_)));
    assert_eq!(world.calls(), 0);
}

#[tokio::test]
async fn an_unreadable_receipt_makes_every_operation_unconfirmed_and_calls_nothing() {
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    let r = b.reference;
    world.provider().create(&b, later()).await.unwrap();
    std::fs::write(world.receipt_file(&r), b"{}").unwrap();
    let calls = world.calls();
    let provider = world.provider();
    assert!(matches!(
        provider.create(&b, later()).await.unwrap_err().failure,
        Failure::Unconfirmed(_)
    ));
    assert!(matches!(
        provider.info(&r, later()).await,
        Err(Failure::Unconfirmed(_))
    ));
    assert!(matches!(
        provider.kill(&r, later()).await,
        Err(Failure::Unconfirmed(_))
    ));
    assert_eq!(world.calls(), calls);
    assert_eq!(std::fs::read(world.receipt_file(&r)).unwrap(), b"{}");
}

#[tokio::test]
async fn each_option_that_differs_is_noticed_by_info() {
    let changes: [(&str, serde_json::Value); 20] = [
        ("/Image", "sha256:other".into()),
        ("/Config/User", "0:0".into()),
        ("/Config/WorkingDir", "/".into()),
        ("/Config/Entrypoint", serde_json::json!(["/bin/sh"])),
        ("/Config/Cmd", serde_json::json!(["x"])),
        ("/Config/Env", serde_json::json!(["PATH=/usr/bin", "A=b"])),
        ("/HostConfig/ReadonlyRootfs", false.into()),
        ("/HostConfig/Privileged", true.into()),
        ("/HostConfig/CapDrop", serde_json::json!([])),
        ("/HostConfig/CapAdd", serde_json::json!(["SYS_ADMIN"])),
        (
            "/HostConfig/SecurityOpt",
            serde_json::json!(["no-new-privileges"]),
        ),
        ("/HostConfig/NetworkMode", "host".into()),
        ("/HostConfig/PidsLimit", 0.into()),
        ("/HostConfig/Memory", (256i64 << 20).into()),
        ("/HostConfig/NanoCpus", 2_000_000_000i64.into()),
        ("/HostConfig/IpcMode", "host".into()),
        ("/HostConfig/PidMode", "host".into()),
        (
            "/HostConfig/Binds",
            serde_json::json!(["/var/run/docker.sock:/s"]),
        ),
        ("/HostConfig/PortBindings", serde_json::json!({"80/tcp": []})),
        ("/HostConfig/RestartPolicy", serde_json::json!({"Name": "no"})),
    ];
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    let made = world.provider().create(&b, later()).await.unwrap();
    let engine = &world.scripted.as_ref().unwrap().world;
    let good = engine.lock().containers[&made.provider_id].clone();
    for (pointer, value) in changes {
        let mut bad = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[key] = value;
        engine.lock().containers.insert(made.provider_id.clone(), bad);
        let answer = world.provider().info(&b.reference, later()).await;
        assert!(
            matches!(answer, Err(Failure::Invalid(_))),
            "{pointer}: {answer:?}"
        );
    }
    engine.lock().containers.insert(made.provider_id.clone(), good);
    assert_eq!(world.provider().info(&b.reference, later()).await.unwrap(), made);
    // Ownership, not the options, decides what kill may remove.
    engine.lock().containers.get_mut(&made.provider_id).unwrap()["HostConfig"]["Memory"] = 1.into();
    world.provider().kill(&b.reference, later()).await.unwrap();
    assert!(world.present(&b.reference).await.is_empty());
}

// inv: INV-V5
#[tokio::test]
async fn a_volume_listing_with_warnings_is_no_inventory() {
    let world = DockerWorld::scripted().await;
    let r = world.bootstrap().reference;
    world.provider().kill(&r, later()).await.unwrap();
    assert!(world.provider().info(&r, later()).await.is_ok());
    let one = |m: &http::Method, p: &str| m == http::Method::GET && p == "/volumes";
    world
        .tap
        .always(Box::new(one), Fault::Pretend(http::StatusCode::OK));
    assert!(matches!(
        world.provider().info(&r, later()).await,
        Err(Failure::Unconfirmed(_))
    ));
}

// inv: INV-V9
#[tokio::test]
async fn a_volume_that_will_not_go_leaves_kill_unconfirmed_until_it_does() {
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    let volume = |m: &http::Method, p: &str| m == http::Method::DELETE && p.ends_with("-environment");
    world.tap.always(Box::new(volume), Fault::Refuse(409));
    assert!(matches!(
        world.provider().kill(&b.reference, later()).await,
        Err(Failure::Unconfirmed(_))
    ));
    world.tap.clear();
    world.provider().kill(&b.reference, later()).await.unwrap();
    assert!(world.present(&b.reference).await.is_empty());
}

#[tokio::test]
async fn a_held_operation_does_not_delay_another_reference() {
    let world = DockerWorld::scripted().await;
    world.tap.once(is_step(Step::Start), Fault::Hold);
    let (first, second, provider) = (world.bootstrap(), world.bootstrap(), world.provider());
    let beside = async {
        world.tap.await_held().await;
        provider.create(&second, later()).await.unwrap();
        world.arrange(Arrange::Release).await;
    };
    let (created, ()) = tokio::join!(provider.create(&first, later()), beside);
    created.unwrap();
}

// inv: INV-V25
#[tokio::test]
async fn an_engine_that_is_replaced_while_the_node_runs_is_another_host() {
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    let engine = world.scripted.as_ref().unwrap().world.clone();
    engine.lock().info["ID"] = "ANOTHER".into();
    world.tap.cut().await;
    let calls = world.calls();
    assert!(matches!(
        world.provider().kill(&b.reference, later()).await,
        Err(Failure::Unconfirmed(_))
    ));
    let fresh = world.bootstrap();
    let failed = world.provider().create(&fresh, later()).await.unwrap_err();
    assert!(matches!(failed.failure, Failure::Unconfirmed(_)));
    assert_eq!(world.calls(), calls);
    assert_eq!(
        world.provider().sweep().await.unwrap(),
        oac_provider::SweepReport::default()
    );
    assert_eq!(world.calls(), calls);
    engine.lock().info["ID"] = "SCRIPTED".into();
    world.tap.cut().await;
    world.provider().kill(&b.reference, later()).await.unwrap();
}

// inv: INV-V4
#[tokio::test]
async fn an_engine_restart_interrupts_the_sixty_seconds() {
    let world = DockerWorld::scripted().await;
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    world.arrange(Arrange::RemoveCompute(b.reference)).await;
    world.arrange(Arrange::Reboot).await;
    world.arrange(Arrange::Steady).await;
    world.tap.cut().await;
    assert!(matches!(
        world.provider().info(&b.reference, later()).await,
        Err(Failure::Unconfirmed(_))
    ));
    world.arrange(Arrange::Steady).await;
    assert!(
        world
            .provider()
            .info(&b.reference, later())
            .await
            .unwrap()
            .compute_lost
    );
}

#[tokio::test]
async fn an_image_that_ships_the_environment_needs_one_upload() {
    let world = DockerWorld::scripted().await;
    let engine = world.scripted.as_ref().unwrap().world.clone();
    for image in engine.lock().images.values_mut() {
        image["Config"]["Labels"] = serde_json::json!({"io.oac.layout": "1"});
    }
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    let uploads = engine.lock().uploads.clone();
    assert_eq!(
        uploads.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
        ["/home"]
    );
}

// inv: INV-V2
#[tokio::test]
async fn core_holds_the_same_declarations_as_the_backend() {
    let world = DockerWorld::scripted().await;
    let provider = world.provider();
    let held = oac_provider::declarations_of(oac_model::ProviderKind::Docker).unwrap();
    for operation in oac_wire::shapes::Operation::ALL {
        assert_eq!(
            held.support(*operation),
            provider.declarations().support(*operation)
        );
    }
    for access in [
        NetworkAccess::None,
        NetworkAccess::Restricted,
        NetworkAccess::Public,
    ] {
        assert_eq!(held.enforces(access), provider.declarations().enforces(access));
    }
}
