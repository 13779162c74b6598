//! The program's life: read the bootstrap, recover the Turns, keep one link, end when told.

use std::{ffi::OsString, fs, io, pin::pin, process::ExitCode};

use futures_util::future::join;
use oac_link::{CloseReason, Hello, IntroduceError, LinkEnd, LinkServer, Refusal, StopAccepting, introduce};
use oac_model::InstanceId;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

use crate::{
    activity::Activity,
    bootstrap::{self, Bootstrap, Command},
    dial::{dial, install_crypto},
    files::Files,
    limits,
    park::{Park, Wakes},
    ports::Ports,
    process::Reaper,
    report,
    retry::Backoff,
    service::Service,
    task,
    turns::{self, Turns},
    wake::{self, WakeSocket},
};

/// A bad argument or file.
const EXIT_USAGE: u8 = 64;
/// The sandbox itself fails the program; the engine starts it again.
const EXIT_FAILED: u8 = 75;
/// Core speaks no link version of this program.
const EXIT_VERSION: u8 = 76;
/// The credential was rejected or revoked: nothing will change by trying again.
const EXIT_REJECTED: u8 = 78;

/// Runs the program to its end.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let code = match prepare(arguments) {
        Ok(code) => code,
        Err((code, line)) => {
            report(format_args!("{line}"));
            code
        }
    };
    ExitCode::from(code)
}

fn prepare(arguments: impl Iterator<Item = OsString>) -> Result<u8, (u8, String)> {
    let usage = |error: &dyn std::fmt::Display| (EXIT_USAGE, error.to_string());
    let failed = |what: &str, error: io::Error| (EXIT_FAILED, format!("{what}: {error}"));
    let path = match bootstrap::arguments(arguments).map_err(|e| usage(&e))? {
        Command::Run(path) => path,
        Command::Wake(suspend_id) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| failed("the command cannot start", e))?;
            return Ok(runtime.block_on(wake::command(suspend_id)));
        }
    };
    let bootstrap = bootstrap::read(&path).map_err(|e| usage(&e))?;
    install_crypto().map_err(|e| failed("TLS", e))?;
    // Orphans of Turns come to this program wherever it runs, as they do when it is the first process.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(limits::BLOCKING_THREADS)
        .thread_keep_alive(limits::BLOCKING_THREAD_LIFE)
        .enable_all()
        .build()
        .map_err(|e| failed("the program cannot start", e))?;
    let (instance_id, reaper) = (InstanceId::random(), Reaper::default());
    let boot_id = turns::boot_id().map_err(|e| failed("the kernel's boot id cannot be read", e))?;
    let root = path.with_file_name("turns");
    let turns = Turns::open(root, instance_id, boot_id, reaper.clone())
        .map_err(|e| failed("the records of Turns cannot be opened", e))?;
    let activity = Activity::default();
    let ports = Ports::new(activity.clone());
    let files = Files::open(path.with_file_name("uploads"), activity.clone());
    Ok(runtime.block_on(async {
        // The first of the threads for file work, which stay. Later the sandbox may have no process left for one, and
        // without any the program could not go on.
        task::blocking(|| ()).await;
        task::spawn(task::Kind::Reaper, reaper.run());
        let socket = WakeSocket::open().unwrap_or_else(|error| {
            report(format_args!(
                "this sandbox cannot be suspended, nothing could wake it: {error}"
            ));
            None
        });
        let park = Park::new(turns.clone(), activity.clone(), socket.is_some());
        if let Some(socket) = socket {
            task::spawn(task::Kind::WakeSocket, socket.serve(park.clone()));
        }
        let service = Service {
            turns,
            activity,
            park,
            ports,
            files,
            instance_id,
            boot_id,
        };
        live(bootstrap, service).await
    }))
}

/// How far the program's own end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Told to end: no new stream, no new link, no new Turn.
    Stopping,
    /// Every Turn has its exit, or was waited for long enough.
    Stopped,
}

async fn live(bootstrap: Bootstrap, service: Service) -> u8 {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else {
        report(format_args!("SIGTERM cannot be watched"));
        return EXIT_FAILED;
    };
    let phase = watch::Sender::new(Phase::Serving);
    let turns = service.turns.clone();
    let mut linking = pin!(keep_linked(bootstrap, service, phase.subscribe()));
    select! {
        code = &mut linking => return code,
        _ = terminated.recv() => {}
    }
    report(format_args!(
        "told to end: nothing new is started, what runs is asked to end"
    ));
    phase.send_replace(Phase::Stopping);
    // The link goes on meanwhile, so that Core reads the exits.
    let ending = async {
        turns.stop().await;
        phase.send_replace(Phase::Stopped);
    };
    join(linking, ending).await;
    0
}

/// What a link's end, or the failure to have one, leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Dial again after the backoff's delay.
    Retry,
    /// Dial again after 30 s: another connection is current.
    RetryLate,
    /// Do nothing until told.
    Park,
    Exit(u8),
}

/// Links and links again, until the link is refused for good or the program has stopped.
async fn keep_linked(bootstrap: Bootstrap, service: Service, mut phase: watch::Receiver<Phase>) -> u8 {
    let hello = Hello {
        credential: bootstrap.link.credential.clone(),
        resource: bootstrap.link.resource,
        runtime_version: crate::VERSION.to_owned(),
        instance_id: service.instance_id,
    };
    let mut wakes = service.park.wakes();
    let mut backoff = Backoff::new();
    while *phase.borrow_and_update() == Phase::Serving {
        let before = *wakes.borrow_and_update();
        let linked = select! {
            linked = link(&bootstrap, &hello) => linked,
            _ = wakes.wait_for(|wakes| wakes.begun != before.begun) => {
                refresh();
                continue;
            }
            _ = phase.changed() => break,
        };
        let next = match linked {
            Err(next) => next,
            Ok(server) => {
                report(format_args!("linked to Core"));
                service.park.linked();
                let since = Instant::now();
                let end = serve(server, &service, &mut phase, (&mut wakes, before)).await;
                report(format_args!("the link ended: {end}"));
                backoff.connected_for(since.elapsed());
                after(&end)
            }
        };
        let delay = match next {
            Next::Exit(code) => return code,
            Next::Park if service.park.closed_to_park() => {
                report(format_args!("parked"));
                select! {
                    _ = wakes.wait_for(|wakes| wakes.begun != before.begun) => {}
                    _ = phase.changed() => {}
                }
                refresh();
                backoff = Backoff::new();
                continue;
            }
            Next::RetryLate => limits::RETRY_SUPERSEDED,
            Next::Park | Next::Retry => backoff.next(getrandom::u32().unwrap_or(u32::MAX / 2)),
        };
        select! {
            () = sleep(delay) => {}
            // What was waited for is of before.
            _ = wakes.wait_for(|wakes| wakes.asked != before.asked) => {
                refresh();
                backoff = Backoff::new();
            }
            _ = phase.changed() => {}
        }
    }
    let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
    0
}

/// Random state of this process that was copied with the sandbox is worth nothing any more. The kernel's own is given
/// what differs between two copies; all else here comes from there.
fn refresh() {
    let differs = format!(
        "{:?} {:?}",
        std::time::SystemTime::now(),
        std::time::Instant::now()
    );
    let _ = fs::write("/dev/urandom", differs);
    let _ = (rand::rng().reseed(), rand_of_websocket::rng().reseed());
}

async fn link(bootstrap: &Bootstrap, hello: &Hello) -> Result<LinkServer, Next> {
    let socket = dial(&bootstrap.target).await.map_err(|error| {
        report(format_args!("{error}; trying again"));
        Next::Retry
    })?;
    match introduce(socket, hello).await {
        Ok((_, server)) => Ok(server),
        Err(error) => {
            report(format_args!("{error}"));
            Err(match error {
                IntroduceError::Refused(code) => after_refusal(code),
                IntroduceError::Closed(Some(reason)) => after_close(reason),
                _ => Next::Retry,
            })
        }
    }
}

async fn serve(
    server: LinkServer,
    service: &Service,
    phase: &mut watch::Receiver<Phase>,
    (wakes, before): (&mut watch::Receiver<Wakes>, Wakes),
) -> LinkEnd {
    let (ask, asked) = mpsc::channel(2);
    let mut serving = pin!(server.serve(service.clone(), asked));
    loop {
        select! {
            end = &mut serving => return end,
            // The link of before a restore leads nowhere: its other end knows another copy.
            _ = wakes.wait_for(|wakes| wakes.begun != before.begun) => {
                return LinkEnd::ClosedHere(CloseReason::GoingAway);
            }
            Ok(()) = phase.changed() => {
                let asked = match *phase.borrow_and_update() {
                    Phase::Serving => continue,
                    Phase::Stopping => StopAccepting::NewStreams,
                    Phase::Stopped => StopAccepting::Everything(CloseReason::GoingAway),
                };
                // Two requests at most are ever made, and there is room for two.
                let _ = ask.try_send(asked);
            }
        }
    }
}

fn after_refusal(code: Refusal) -> Next {
    match code {
        Refusal::CredentialRejected | Refusal::Revoked => Next::Exit(EXIT_REJECTED),
        Refusal::VersionUnsupported => Next::Exit(EXIT_VERSION),
        Refusal::Busy | Refusal::EpochChanged => Next::Retry,
    }
}

fn after_close(reason: CloseReason) -> Next {
    match reason {
        CloseReason::Superseded => Next::RetryLate,
        CloseReason::Revoked => Next::Exit(EXIT_REJECTED),
        CloseReason::Parked => Next::Park,
        CloseReason::EpochChanged | CloseReason::GoingAway => Next::Retry,
    }
}

fn after(end: &LinkEnd) -> Next {
    match end {
        LinkEnd::ClosedByPeer(Some(reason)) => after_close(*reason),
        _ => Next::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_the_reaction_of_the_design() {
        for (code, next) in [
            (Refusal::CredentialRejected, Next::Exit(78)),
            (Refusal::Revoked, Next::Exit(78)),
            (Refusal::VersionUnsupported, Next::Exit(76)),
            (Refusal::Busy, Next::Retry),
            (Refusal::EpochChanged, Next::Retry),
        ] {
            assert_eq!(after_refusal(code), next, "{code}");
        }
        for (reason, next) in [
            (CloseReason::Superseded, Next::RetryLate),
            (CloseReason::Revoked, Next::Exit(78)),
            (CloseReason::Parked, Next::Park),
            (CloseReason::EpochChanged, Next::Retry),
            (CloseReason::GoingAway, Next::Retry),
        ] {
            assert_eq!(after(&LinkEnd::ClosedByPeer(Some(reason))), next, "{reason}");
        }
        assert_eq!(after(&LinkEnd::ClosedByPeer(None)), Next::Retry);
        assert_eq!(after(&LinkEnd::Silent), Next::Retry);
    }
}
