//! Commands and telemetry (V19 to V22).
//!
//! The tool inside the sandbox answers to: `echo-exit <code>` (stdin to stdout, the bytes ff 00 fe and the working
//! directory to stderr, then exits), `flood <bytes>` (that many bytes to both streams, exit 7) and `wait` (for ever).

use oac_wire::shapes::{Command, Observation, ObservationMode, ObservedInstance};

use super::{Arrange, Lost, Step, World, code, later, soon};

const MIB: usize = 1024 * 1024;

fn command(world: &dyn World, args: &[&str], directory: &str, stdin: Option<Vec<u8>>) -> Command {
    let mut all = vec![world.tool()];
    all.extend(args.iter().map(|a| (*a).to_owned()));
    Command {
        args: all,
        directory: directory.to_owned(),
        stdin: stdin.map(Into::into),
    }
}

pub(super) async fn output_is_exact(world: &dyn World) {
    let provider = world.provider();
    let bootstrap = world.bootstrap();
    let r = bootstrap.reference;
    provider.create(&bootstrap, later()).await.unwrap();
    let input: Vec<u8> = (0..200_000u32).map(|n| (n % 256) as u8).collect();
    let c = command(world, &["echo-exit", "3"], "/tmp", Some(input.clone()));
    let result = provider.command(&r, &c, later()).await.unwrap();
    assert_eq!(result.exit_code, 3);
    assert!(result.stdout.0 == input, "stdout is stdin, byte for byte");
    assert_eq!(result.stderr.0, b"\xff\x00\xfe/tmp");
    assert!(!result.stdout_truncated && !result.stderr_truncated);

    let c = command(world, &["echo-exit", "0"], "/tmp", None);
    let result = provider.command(&r, &c, later()).await.unwrap();
    assert_eq!(
        (result.exit_code, result.stdout.0.len()),
        (0, 0),
        "stdin is empty where none is given"
    );
}

pub(super) async fn excess_output_is_drained(world: &dyn World) {
    let provider = world.provider();
    let bootstrap = world.bootstrap();
    provider.create(&bootstrap, later()).await.unwrap();
    let run = |bytes: usize| {
        let c = command(world, &["flood", &bytes.to_string()], "", None);
        let (provider, r) = (provider.clone(), bootstrap.reference);
        async move { provider.command(&r, &c, later()).await.unwrap() }
    };
    let result = run(3 * MIB).await;
    assert_eq!(result.exit_code, 7);
    assert_eq!((result.stdout.0.len(), result.stderr.0.len()), (MIB, MIB));
    assert!(result.stdout_truncated && result.stderr_truncated);
    let result = run(MIB).await;
    assert_eq!((result.stdout.0.len(), result.stderr.0.len()), (MIB, MIB));
    assert!(!result.stdout_truncated && !result.stderr_truncated);
}

pub(super) async fn late_or_broken_is_unconfirmed(world: &dyn World) {
    let provider = world.provider();
    let bootstrap = world.bootstrap();
    let r = bootstrap.reference;
    provider.create(&bootstrap, later()).await.unwrap();
    let wait = command(world, &["wait"], "", None);
    assert_eq!(
        code(provider.command(&r, &wait, soon()).await),
        "command_unconfirmed"
    );
    for lost in [Lost::Before, Lost::After] {
        world.arrange(Arrange::Lose(Step::Attach, lost)).await;
        let c = command(world, &["echo-exit", "0"], "", None);
        assert_eq!(
            code(provider.command(&r, &c, later()).await),
            "command_unconfirmed"
        );
    }
    // A hanging command does not keep the allocation from being killed.
    provider.kill(&r, later()).await.unwrap();
    assert!(world.present(&r).await.is_empty());
}

pub(super) async fn observe_has_units_and_bounds(world: &dyn World) {
    let provider = world.provider();
    let bootstrap = world.bootstrap();
    let r = bootstrap.reference;
    provider.create(&bootstrap, later()).await.unwrap();
    let key = world.observed_as();
    let observation = |provider_key| Observation {
        mode: ObservationMode::Managed,
        session_id: bootstrap.session_id,
        instance: ObservedInstance {
            provider_key,
            compute_phase: oac_model::ComputePhase::Disabled,
            compute: None.into(),
        },
    };
    let sample = provider.observe(&r, &observation(key), later()).await.unwrap();
    assert!(
        sample
            .started_at
            .0
            .is_none_or(|started| started <= sample.observed_at)
    );
    assert!(sample.cpu_usage_seconds_total.0.is_none_or(|s| s >= 0.0));
    assert!(sample.cpu_capacity_cores.0.is_none_or(|c| c > 0.0));
    assert!(sample.memory_usage_bytes.0.is_none_or(|b| b >= 0));
    assert!(sample.memory_limit_bytes.0.is_none_or(|b| b >= 1));

    let calls = world.calls();
    let foreign = observation(oac_model::InstallationId::random());
    assert_eq!(code(provider.observe(&r, &foreign, later()).await), "ownership");
    assert_eq!(world.calls(), calls);

    world.arrange(Arrange::EndCompute(r)).await;
    assert_eq!(
        code(provider.observe(&r, &observation(key), later()).await),
        "runtime_not_running"
    );
}
