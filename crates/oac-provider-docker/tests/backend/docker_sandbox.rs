//! What a sandbox made by the real engine is, seen from inside.

use std::time::{Duration, Instant};

use http::Method;
use oac_provider::suite::World;
use oac_wire::shapes::{Command, CommandResult};

use crate::{
    create_kill_points::{Engine, die_in_create, die_in_kill},
    image::Variant,
    world::DockerWorld,
};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn run(world: &DockerWorld, r: &oac_model::Reference, args: &[&str]) -> CommandResult {
    let mut all = vec![world.tool()];
    all.extend(args.iter().map(|a| (*a).to_owned()));
    let command = Command {
        args: all,
        directory: String::new(),
        stdin: None,
    };
    world.provider().command(r, &command, later()).await.unwrap()
}

// inv: INV-V18
#[tokio::test]
async fn a_sandbox_is_confined_and_finds_its_files() {
    let world = DockerWorld::real().await;
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    let paths = [
        "/home/runtime",
        "/home/runtime/bootstrap.json",
        "/environment/workspace",
        "/environment/initialization",
        "/environment/packages",
    ];
    let looked = run(&world, &b.reference, &[&["look"], &paths[..]].concat()).await;
    let text = String::from_utf8(looked.stdout.0).unwrap();
    for line in [
        "/home/runtime 700 1000:1000",
        "/home/runtime/bootstrap.json 600 1000:1000",
        "/environment/workspace 700 1000:1000",
        "/environment/initialization 700 1000:1000",
        "/environment/packages 700 1000:1000",
        "status Uid:\t1000\t1000\t1000\t1000",
        "status CapEff:\t0000000000000000",
        "status CapBnd:\t0000000000000000",
        "status NoNewPrivs:\t1",
        "status Seccomp:\t2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
    }
    assert!(!text.contains(b.link.credential.expose()));
    let file = run(&world, &b.reference, &["read", "/home/runtime/bootstrap.json"]).await;
    let link: oac_wire::shapes::Link = oac_wire::strict::from_slice(&file.stdout.0).unwrap();
    assert_eq!(link, b.link);
    // The root is read-only, the workspace is not, also through the image's link.
    assert_ne!(
        run(&world, &b.reference, &["write", "/etc/x", "x"])
            .await
            .exit_code,
        0
    );
    assert_eq!(
        run(&world, &b.reference, &["write", "/workspace/x", "kept"])
            .await
            .exit_code,
        0
    );
    let read = run(&world, &b.reference, &["read", "/environment/workspace/x"]).await;
    assert_eq!(read.stdout.0, b"kept");
    let missing = Command {
        args: vec!["/no/such/program".into()],
        directory: String::new(),
        stdin: None,
    };
    let result = world.provider().command(&b.reference, &missing, later()).await;
    assert!(
        matches!(&result, Ok(r) if (126..=127).contains(&r.exit_code)) || result.is_err(),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_runtime_that_crashes_comes_back_with_its_files() {
    let world = DockerWorld::real().await;
    let b = world.bootstrap();
    let made = world.provider().create(&b, later()).await.unwrap();
    run(&world, &b.reference, &["write", "/workspace/x", "kept"]).await;
    let path = format!("/containers/{}/json", made.provider_id);
    let (_, before) = world.engine_call(Method::GET, &path, None).await;
    // The engine's own signal would count as a stop by hand; a process that dies by itself does not.
    let pid = before["State"]["Pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    for _ in 0..1000 {
        let (_, now) = world.engine_call(Method::GET, &path, None).await;
        if now["State"]["Status"] == "running" && now["State"]["Pid"] != before["State"]["Pid"] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let info = world.provider().info(&b.reference, later()).await.unwrap();
    assert_eq!(
        (info.state.as_str(), &info.provider_id),
        ("running", &made.provider_id)
    );
    assert_eq!(
        run(&world, &b.reference, &["read", "/workspace/x"])
            .await
            .stdout
            .0,
        b"kept"
    );
}

#[tokio::test]
async fn the_directories_that_an_image_ships_are_the_runtimes_own() {
    let world = DockerWorld::real_with(Variant::ShipsEnvironment).await;
    let b = world.bootstrap();
    world.provider().create(&b, later()).await.unwrap();
    let uploads = world.tap.calls().iter().filter(|c| c.starts_with("PUT ")).count();
    assert_eq!(uploads, 1);
    let names = ["workspace", "initialization", "packages"].map(|n| format!("/environment/{n}"));
    let args: Vec<&str> = std::iter::once("look")
        .chain(names.iter().map(String::as_str))
        .collect();
    let text = String::from_utf8(run(&world, &b.reference, &args).await.stdout.0).unwrap();
    for name in &names {
        let line = format!("{name} 700 1000:1000");
        assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
    }
    assert_eq!(
        run(&world, &b.reference, &["write", "/workspace/x", "x"])
            .await
            .exit_code,
        0
    );
}

// inv: INV-V19
#[tokio::test]
async fn v35_public_reaches_the_host_and_no_other_sandbox() {
    let world = DockerWorld::real().await;
    let (a, b) = (world.bootstrap(), world.bootstrap());
    world.provider().create(&a, later()).await.unwrap();
    let other = world.provider().create(&b, later()).await.unwrap();
    let network = world
        .engine_call(Method::GET, &format!("/networks/{}", world.network()), None)
        .await
        .1;
    let gateway = network["IPAM"]["Config"][0]["Gateway"].as_str().unwrap();
    let listener = tokio::net::TcpListener::bind((gateway, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(
        run(&world, &a.reference, &["connect", &address]).await.exit_code,
        0
    );
    let path = format!("/containers/{}/json", other.provider_id);
    let container = world.engine_call(Method::GET, &path, None).await.1;
    let networks = &container["NetworkSettings"]["Networks"];
    let address = networks[world.network()]["IPAddress"].as_str().unwrap();
    let beside = run(&world, &b.reference, &["connect", "127.0.0.1:7777"]).await;
    assert_eq!(beside.exit_code, 0, "the other sandbox listens");
    let across = run(&world, &a.reference, &["connect", &format!("{address}:7777")]).await;
    assert_eq!(across.exit_code, 1, "a sandbox reached another one");
}

#[tokio::test]
async fn the_probe_succeeds_on_a_working_engine() {
    let world = DockerWorld::real().await;
    world.provider().probe(later()).await.unwrap();
}

// req: G-268
#[tokio::test]
async fn the_probe_names_a_missing_image_on_a_working_engine() {
    let world = DockerWorld::real().await;
    world.use_image(oac_model::ImageDigest::of("no such image"));
    let error = world.provider().probe(later()).await.unwrap_err();
    assert_eq!(error.code, oac_model::DiagnosticCode::RuntimeImageUnavailable);
}

// inv: INV-V3
#[tokio::test]
async fn a_create_whose_image_is_missing_settles_absent_and_leaves_nothing() {
    let world = DockerWorld::real().await;
    world.use_image(oac_model::ImageDigest::of("no such image"));
    let b = world.bootstrap();
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    assert!(failed.receipt.unwrap().is_settled_receipt_of(&b.reference));
    assert_eq!(world.standing().await, (0, false, 0));
}

// inv: INV-V3, INV-V7, INV-V9
#[tokio::test]
async fn a_node_killed_around_any_effect_of_create_answers_as_the_table_says() {
    die_in_create(Engine::Real).await;
}

// inv: INV-V5, INV-V9
#[tokio::test]
async fn a_node_killed_around_any_effect_of_kill_has_no_tombstone_and_kills_again() {
    die_in_kill(Engine::Real).await;
}
