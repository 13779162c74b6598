//! `oac session port-forward`.

use std::str::FromStr;

use clap::Args;

use super::{Run, SessionArgument};
use crate::{
    Failure,
    forward::{self, Forward},
    interrupt::Interrupts,
    output::{self, Form},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Serves http://127.0.0.1:LOCAL on this machine and passes HTTP requests and WebSockets on to the sandbox's port, \
with the Project key added. It is a proxy for HTTP, not a tunnel for other protocols. Ctrl-C ends it.

Examples:
  oac session port-forward $S 8000                port 8000 of the sandbox as port 8000 here
  oac session port-forward $S 8080:8000 0:5173    two ports, the second on a free one")]
pub(super) struct PortForward {
    #[command(flatten)]
    session: SessionArgument,
    /// LOCAL:REMOTE, or one number for both; LOCAL 0 picks a free port
    #[arg(value_name = "LOCAL:REMOTE", required = true, num_args = 1..=16)]
    ports: Vec<Pair>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    local: u16,
    remote: u16,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        match (local.parse(), remote.parse()) {
            (Ok(local), Ok(remote)) if remote != 0 => Ok(Self { local, remote }),
            _ => Err("expected LOCAL:REMOTE, such as 8080:8000".to_owned()),
        }
    }
}

impl PortForward {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let mut interrupts = Interrupts::listen()?;
        let session = self.session.session;
        // A Session that is not there is said now, not at the first request.
        if run.client.session(session).await?.value.archived_at.is_some() {
            return Err(Failure::Unfinished(
                "the Session is archived: it has no sandbox any more".to_owned(),
            ));
        }
        let mut forwards = Vec::new();
        for pair in self.ports {
            forwards.push(Forward::listen(pair.local, pair.remote).await?);
        }
        for forward in &forwards {
            let (local, port) = (forward.local(), forward.port());
            match run.form {
                Form::Json => output::json(&serde_json::json!({
                    "type": "listening", "url": format!("http://{local}"), "local": local.port(), "remote": port,
                })),
                Form::Text => output::line(&format!("http://{local} is port {port} of {session}")),
            }
        }
        tokio::select! {
            () = forward::serve(&run.client, session, &forwards) => {}
            () = interrupts.next() => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_ports_or_one_for_both() {
        for (text, pair) in [("80", (80, 80)), ("8080:80", (8080, 80)), ("0:5173", (0, 5173))] {
            let (local, remote) = pair;
            assert_eq!(text.parse(), Ok(Pair { local, remote }), "{text}");
        }
        for text in ["", "0", "80:0", "a:b", "1:2:3", "70000"] {
            assert!(text.parse::<Pair>().is_err(), "{text}");
        }
    }
}
