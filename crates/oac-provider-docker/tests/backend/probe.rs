//! V33: the checks of the probe, their order and their codes.

use std::time::{Duration, Instant};

use oac_model::DiagnosticCode::{self, *};
use oac_provider::suite::{Arrange, World as _};
use serde_json::json;

use crate::{scripted_engine::World, tap::Fault, world::DockerWorld};

async fn probe(world: &DockerWorld) -> Result<(), DiagnosticCode> {
    let by = Instant::now() + Duration::from_secs(30);
    world.provider().probe(by).await.map_err(|e| e.code)
}

type Break = fn(&mut World);

/// In the order in which they are checked.
const BREAKS: [(DiagnosticCode, Break); 8] = [
    (HostUnsupported, |w| w.info["MemoryLimit"] = false.into()),
    (HostUnsupported, |w| w.info["CpuCfsQuota"] = false.into()),
    (HostUnsupported, |w| w.api = "1.40".into()),
    (ProviderUnavailable, |w| w.info["MemTotal"] = 0.into()),
    (CapacityInsufficient, |w| w.info["NCPU"] = 0.into()),
    (CapacityInsufficient, |w| {
        w.info["MemTotal"] = (511i64 << 20).into()
    }),
    (RuntimeImageUnavailable, |w| w.images.clear()),
    (ProviderUnavailable, |w| w.networks.clear()),
];

// req: G-260, G-261, G-263, G-265, G-268, P-035
// inv: INV-V22
#[tokio::test]
async fn v33_each_failed_check_has_its_code() {
    let world = DockerWorld::scripted().await;
    assert_eq!(probe(&world).await, Ok(()));
    for (code, broken) in BREAKS {
        let world = DockerWorld::scripted().await;
        broken(&mut world.scripted.as_ref().unwrap().world.lock());
        assert_eq!(probe(&world).await, Err(code));
    }
}

// req: G-257, G-258
// inv: INV-V22
#[tokio::test]
async fn v33_only_the_first_failed_check_is_reported() {
    for first in 0..BREAKS.len() {
        let world = DockerWorld::scripted().await;
        for (_, broken) in BREAKS[first..].iter().rev() {
            broken(&mut world.scripted.as_ref().unwrap().world.lock());
        }
        assert_eq!(probe(&world).await, Err(BREAKS[first].0), "check {first}");
    }
    // The host comes before the engine's abilities, and the engine before the host.
    let world = DockerWorld::scripted().await;
    for (_, broken) in BREAKS {
        broken(&mut world.scripted.as_ref().unwrap().world.lock());
    }
    world.arrange(Arrange::OtherHost(true)).await;
    assert_eq!(probe(&world).await, Err(ProviderUnavailable));
}

// req: G-260, G-258
#[tokio::test]
async fn v33_an_engine_that_is_gone_or_failing_is_unavailable() {
    for path in ["/_ping", "/info"] {
        let world = DockerWorld::scripted().await;
        world
            .tap
            .always(Box::new(move |_, p| p == path), Fault::Refuse(500));
        assert_eq!(probe(&world).await, Err(ProviderUnavailable), "{path}");
    }
    let world = DockerWorld::scripted().await;
    std::fs::remove_file(&world.tap.socket).unwrap();
    world.restart_node();
    assert_eq!(probe(&world).await, Err(ProviderUnavailable));

    let world = DockerWorld::scripted().await;
    world.tap.always(Box::new(|_, p| p == "/info"), Fault::Hold);
    let late = world
        .provider()
        .probe(Instant::now() + Duration::from_millis(100))
        .await;
    assert_eq!(late.unwrap_err().code, ProviderUnavailable);

    // Another error of the image than "not found" is the engine's.
    let world = DockerWorld::scripted().await;
    world
        .tap
        .always(Box::new(|_, p| p.starts_with("/images/")), Fault::Refuse(500));
    assert_eq!(probe(&world).await, Err(ProviderUnavailable));
}

// req: G-265, G-267
#[tokio::test]
async fn v33_a_larger_host_or_a_smaller_sandbox_clears_the_capacity_code() {
    let world = DockerWorld::scripted().await;
    let engine = world.scripted.as_ref().unwrap().world.clone();
    world.resize(8, 512);
    assert_eq!(
        probe(&world).await,
        Err(CapacityInsufficient),
        "four CPUs for eight"
    );
    world.resize(4, 512);
    assert_eq!(probe(&world).await, Ok(()));
    world.resize(4, 16 * 1024);
    assert_eq!(probe(&world).await, Err(CapacityInsufficient), "8 GiB for 16");
    engine.lock().info["MemTotal"] = json!(16i64 << 30);
    assert_eq!(probe(&world).await, Ok(()));
}
