//! `oac-runtime wake --suspend-id <id>`, and the socket through which it reaches the parked program.
//!
//! The socket is `/run/oac/runtime.sock`. A backend that suspends makes its folder; where there is none, as in Docker,
//! there is no socket, and the program is never parked. One line of JSON goes in, one comes out once the program is
//! awake; whoever is of another user gets none.

use std::{fs, io, path::Path, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use oac_model::OperationId;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    select,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    limits,
    park::{Park, Wake},
    report,
};

const SOCKET: &str = "/run/oac/runtime.sock";

/// Core may try again.
const EXIT_NOT_YET: u8 = 75;
/// Nothing will change by trying again.
const EXIT_REFUSED: u8 = 64;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    suspend_id: OperationId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    /// False: the program is parked for another suspension.
    awake: bool,
}

/// The parked program's end.
#[derive(Debug)]
pub(crate) struct WakeSocket(UnixListener);

impl WakeSocket {
    /// `None` where its folder does not exist. Needs the async runtime.
    pub(crate) fn open() -> io::Result<Option<Self>> {
        Self::open_at(Path::new(SOCKET))
    }

    fn open_at(path: &Path) -> io::Result<Option<Self>> {
        if !path.parent().is_some_and(Path::is_dir) {
            return Ok(None);
        }
        // An earlier program's: two never run at once.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path).map(|listener| Some(Self(listener)))
    }

    /// Serves wakes for ever. Between them it waits for a connection and nothing else.
    pub(crate) async fn serve(self, park: Park) {
        let mut open = FuturesUnordered::new();
        loop {
            select! {
                accepted = self.0.accept(), if open.len() < limits::WAKES => match accepted {
                    Ok((stream, _)) => open.push(answer(stream, park.clone())),
                    Err(error) => {
                        report(format_args!("a wake was not accepted: {error}"));
                        sleep(limits::WRITE_RETRY).await;
                    }
                },
                Some(()) = open.next(), if !open.is_empty() => {}
            }
        }
    }
}

async fn answer(stream: UnixStream, park: Park) {
    let own = rustix::process::geteuid().as_raw();
    if stream.peer_cred().map(|peer| peer.uid()).ok() != Some(own) {
        report(format_args!("a wake of another user is refused"));
        return;
    }
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let mut limited = (&mut stream).take(limits::WAKE_LINE_BYTES);
    let read = timeout(limits::WAKE_READ, limited.read_until(b'\n', &mut line)).await;
    let Some(Ok(request)) = matches!(read, Ok(Ok(_))).then(|| oac_wire::strict::from_slice::<Request>(&line))
    else {
        return;
    };
    let awake = match park.wake(request.suspend_id) {
        Ok(()) => {
            // Whoever asked waits no longer than this itself.
            let mut gone = [0];
            select! {
                () = park.awake() => true,
                _ = stream.read(&mut gone) => return,
            }
        }
        Err(Wake::Awake) => true,
        Err(Wake::OtherSuspension) => false,
    };
    let _ = stream.write_all(&line_of(&Answer { awake })).await;
}

fn line_of<T: Serialize>(value: &T) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(value).unwrap_or_else(|error| unreachable!("wakes are plain data: {error}"));
    line.push(b'\n');
    line
}

/// The command: wakes the program of this sandbox. Its exit status.
pub(crate) async fn command(suspend_id: OperationId) -> u8 {
    wake(Path::new(SOCKET), suspend_id, limits::WAKE_WAIT).await
}

async fn wake(socket: &Path, suspend_id: OperationId, within: Duration) -> u8 {
    let until = Instant::now() + within;
    let mut why = "it has not linked again".to_owned();
    loop {
        match timeout_at(until, ask(socket, suspend_id)).await {
            Ok(Ok(Answer { awake: true })) => return 0,
            Ok(Ok(Answer { awake: false })) => {
                report(format_args!("the runtime is parked for another suspension"));
                return EXIT_REFUSED;
            }
            // It may be starting anew this moment.
            Ok(Err(error)) => why = format!("it cannot be reached: {error}"),
            Err(_) => break,
        }
        if timeout_at(until, sleep(limits::WAKE_RETRY)).await.is_err() {
            break;
        }
    }
    report(format_args!("the runtime is not awake after {within:?}: {why}"));
    EXIT_NOT_YET
}

async fn ask(socket: &Path, suspend_id: OperationId) -> io::Result<Answer> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await?);
    stream.write_all(&line_of(&Request { suspend_id })).await?;
    let mut line = Vec::new();
    (&mut stream)
        .take(limits::WAKE_LINE_BYTES)
        .read_until(b'\n', &mut line)
        .await?;
    oac_wire::strict::from_slice(&line).map_err(|error| io::Error::other(error.to_string()))
}
