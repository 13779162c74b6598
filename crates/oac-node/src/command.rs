//! The command line: what each command needs, does and exits with (node.md section 1).

use std::{
    convert::Infallible,
    io::{Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use clap::{Args, Parser, Subcommand};
use oac_dial::Origin;
use oac_generations::{LeaseError, Store, layout::Layout, lease, recovery};
use oac_model::{Digest, Secret};
use oac_release::fetch;
use oac_telemetry::traces::{self, Endpoint, Ratio};
use tokio::net::TcpListener;

use crate::{
    Clock, Managing, Opened, Registration, Served,
    agent::chain,
    backend,
    config::{Configuration, preparation},
    generation::{self, Errand},
    identity,
    limits::{DEFAULT_OPERATIONS, OPERATIONS, PROBE, TOKEN_BYTES},
    metrics::Metrics,
    rebind::rebind,
    register, run,
};

/// Makes this Linux host run sandboxes for one oac installation.
#[derive(Debug, Parser)]
#[command(name = "oac-node", version, about)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the node's identity and enroll it with Core.
    Register {
        #[command(flatten)]
        place: Place,
        /// Core's origin, such as https://core.example.org.
        #[arg(long)]
        core_url: String,
        /// The name shown to operators, 1 to 128 bytes.
        #[arg(long)]
        name: String,
        /// Read the enrollment token from standard input, one line.
        #[arg(long, required = true)]
        enrollment_token_stdin: bool,
    },
    /// Serve Core until SIGTERM or SIGINT.
    Run {
        #[command(flatten)]
        place: Place,
        /// Operations that run at the same time, 1 to 32.
        #[arg(long, default_value_t = DEFAULT_OPERATIONS)]
        operations: usize,
        /// Serve Prometheus metrics on this address.
        #[arg(long)]
        metrics_listen: Option<SocketAddr>,
        /// Send traces to this collector (OTLP over HTTP), such as http://127.0.0.1:4318.
        #[arg(long)]
        traces_endpoint: Option<String>,
        /// The share of sandboxes that are traced, 0 to 1; the same as in Core's configuration.
        #[arg(long, default_value = "1", requires = "traces_endpoint")]
        traces_sample_ratio: Ratio,
    },
    /// Run every host check and print all failures.
    Doctor {
        #[command(flatten)]
        place: Place,
    },
    /// Confirm that this state now belongs to this host.
    RebindHost {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        yes: bool,
    },
    /// Prepare or collect one generation; a child of `run`, not started by hand.
    Generation {
        #[command(subcommand)]
        errand: Errand,
    },
    /// Print the version of the node protocol.
    ProtocolVersion,
}

#[derive(Debug, Args)]
struct Place {
    /// The enrolled generation's provider.json; an absolute path.
    #[arg(long)]
    config: PathBuf,
    /// The node's state; an absolute path.
    #[arg(long)]
    state_dir: PathBuf,
}

/// Core answered 401: starting again cannot help.
const UNAUTHORIZED: u8 = 78;

/// What ends a command unsuccessfully: one line for the operator, and the exit status.
struct Failed {
    message: String,
    status: u8,
}

impl Failed {
    fn new(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::message(chain(error))
    }

    fn message(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: 1,
        }
    }

    fn unauthorized_if(mut self, unauthorized: bool) -> Self {
        if unauthorized {
            self.status = UNAUTHORIZED;
        }
        self
    }
}

impl<E: std::error::Error + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::new(&error)
    }
}

/// The clocks that the program goes by; the system's, unless somebody else drives it.
pub struct Clocks {
    pub node: Clock,
    pub downloads: Arc<dyn fetch::Clock>,
}

impl Default for Clocks {
    fn default() -> Self {
        let node = Clock::start();
        Self {
            downloads: Arc::new(node.clone()),
            node,
        }
    }
}

/// Parses, refuses root, runs and prints the failure, if any.
pub fn main() -> ExitCode {
    main_by(Clocks::default())
}

/// [`main`] by these clocks.
pub fn main_by(clocks: Clocks) -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            // Help and version go to standard output and succeed; a wrong line is status 1, never 2 or 78.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    match execute(line.command, clocks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            if oac_telemetry::log::is_json() {
                tracing::error!(event = "program_failed", error = failed.message, "oac-node ends");
            } else {
                let _ = writeln!(std::io::stderr(), "{}", failed.message);
            }
            ExitCode::from(failed.status)
        }
    }
}

fn execute(command: Command, clocks: Clocks) -> Result<(), Failed> {
    if rustix::process::geteuid().is_root() {
        return Err(Failed::message(
            "oac-node does not run as root; run it as the service account oac-node",
        ));
    }
    match command {
        Command::ProtocolVersion => print(&format!("{}\n", oac_wire::PROTOCOL_VERSION)),
        Command::Generation { errand } => {
            oac_telemetry::log::start();
            generation::execute(&errand, clocks).map_err(|error| Failed {
                status: error.exit_status(),
                ..Failed::new(&error)
            })
        }
        Command::RebindHost { place, yes } => on_runtime(rebind_command(place, yes)),
        Command::Register {
            place,
            core_url,
            name,
            enrollment_token_stdin: _,
        } => on_runtime(register_command(place, core_url, name)),
        Command::Run {
            place,
            operations,
            metrics_listen,
            traces_endpoint,
            traces_sample_ratio,
        } => {
            if !OPERATIONS.contains(&operations) {
                return Err(Failed::message("--operations must be from 1 to 32"));
            }
            let traces = traces_settings(traces_endpoint, traces_sample_ratio)?;
            on_runtime(run_command(
                clocks.node,
                place,
                operations,
                metrics_listen,
                traces,
            ))
        }
        Command::Doctor { place } => on_runtime(doctor_command(place)),
    }
}

/// The endpoint is read here and not with the line, whose errors repeat what was given: it may hold a credential.
fn traces_settings(
    endpoint: Option<String>,
    sample_ratio: Ratio,
) -> Result<Option<traces::Settings>, Failed> {
    let Some(endpoint) = endpoint else { return Ok(None) };
    let endpoint = endpoint
        .parse::<Endpoint>()
        .map_err(|error| Failed::message(format!("--traces-endpoint: {error}")))?;
    Ok(Some(traces::Settings {
        endpoint,
        sample_ratio,
    }))
}

fn on_runtime(work: impl Future<Output = Result<(), Failed>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

impl Place {
    fn load(&self) -> Result<Configuration, Failed> {
        if !self.config.is_absolute() || !self.state_dir.is_absolute() {
            return Err(Failed::message("--config and --state-dir must be absolute paths"));
        }
        Ok(Configuration::load(&self.config)?)
    }
}

async fn register_command(place: Place, core_url: String, name: String) -> Result<(), Failed> {
    let config = place.load()?;
    let core = Origin::parse(&core_url)?;
    let token = read_token(std::io::stdin().lock())?;
    let host_id = backend::host_id(&config).await?;
    let state_dir = &place.state_dir;
    oac_records::Directory::create(state_dir)?;
    let provider = backend::provider(&config, state_dir, host_id)?;
    let registration = Registration {
        config: &config,
        state_dir,
        core: &core,
        name: &name,
        token: &token,
        host_id,
    };
    let identity = register(&registration, provider).await.map_err(|error| {
        let unauthorized = error.is_unauthorized();
        Failed::new(&error).unauthorized_if(unauthorized)
    })?;
    print(&format!("{}\n", serde_json::to_string(&identity)?))
}

async fn rebind_command(place: Place, yes: bool) -> Result<(), Failed> {
    let config = place.load()?;
    let present = backend::host_id(&config).await?;
    let done = rebind(&place.state_dir, present, yes)?;
    print(&format!("{done}\n"))
}

/// One nonempty line of at most 4096 bytes, and nothing after it.
fn read_token(input: impl Read) -> Result<Secret, Failed> {
    let mut bytes = Vec::new();
    input.take(TOKEN_BYTES as u64 + 3).read_to_end(&mut bytes)?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let printable = line.iter().all(u8::is_ascii_graphic);
    if line.is_empty() || line.len() > TOKEN_BYTES || !printable {
        return Err(Failed::message(
            "standard input must hold the enrollment token alone, on one line of at most 4096 bytes",
        ));
    }
    Ok(Secret::new(String::from_utf8_lossy(line)))
}

async fn run_command(
    clock: Clock,
    place: Place,
    operations: usize,
    metrics_listen: Option<SocketAddr>,
    traces: Option<traces::Settings>,
) -> Result<(), Failed> {
    oac_telemetry::log::start();
    let config = place.load()?;
    let mut opened = Opened::new(&config, &place.state_dir)?;
    let host_id = opened.stored().host_id;
    let served: Served = match preparation(&place.config)? {
        Some(_) => Managing::open(&config, &place.config, &place.state_dir, host_id)?.into(),
        None => backend::provider(&config, &place.state_dir, host_id)?.into(),
    };
    let metrics = opened.metrics();
    let scrapes = scrapes(metrics, metrics_listen).await?;
    let mut export = opened.trace(traces);
    let stop = stop_signal()?;
    let started = || {
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::warn!(%error, "the service manager could not be told");
        }
    };
    let ran = tokio::select! {
        ran = run(clock, opened, served, operations, started, stop) => ran,
        never = scrapes => match never {},
        never = export.run() => match never {},
    };
    export.flush().await;
    ran.map_err(|error| {
        let unauthorized = error.is_unauthorized();
        Failed::new(&error).unauthorized_if(unauthorized)
    })
}

/// Answers scrapes on `address` for as long as it is awaited; without one it only waits.
async fn scrapes(
    metrics: Metrics,
    address: Option<SocketAddr>,
) -> Result<impl Future<Output = Infallible>, Failed> {
    let listener = match address {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|error| {
            Failed::message(format!(
                "--metrics-listen {address} cannot be listened on: {error}"
            ))
        })?),
        None => None,
    };
    if let Some(address) = listener.as_ref().and_then(|l| l.local_addr().ok()) {
        tracing::info!(%address, "answering scrapes");
    }
    Ok(async move {
        match listener {
            Some(listener) => oac_telemetry::serve(listener, async || metrics.text()).await,
            None => std::future::pending().await,
        }
    })
}

/// Resolves at the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()>, Failed> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

/// Every check that can fail is run, whatever failed before it.
async fn doctor_command(place: Place) -> Result<(), Failed> {
    let config = place.load()?;
    let mut failures = Vec::new();
    let present = match backend::host_id(&config).await {
        Ok(present) => Some(present),
        Err(error) => {
            failures.push(chain(&error));
            None
        }
    };
    let recorded = match identity::peek(&place.state_dir) {
        Ok(Some(stored)) => {
            if let Err(error) = stored.verify(&config) {
                failures.push(chain(&error));
            }
            Some(stored.host_id)
        }
        Ok(None) => {
            failures.push(chain(&identity::IdentityError::Missing));
            None
        }
        Err(error) => {
            failures.push(chain(&error));
            None
        }
    };
    if let (Some(present), Some(recorded)) = (present, recorded)
        && present != recorded
    {
        failures.push(format!(
            "the state belongs to host {recorded}, this is host {present}; run oac-node rebind-host once the old host is off for good"
        ));
    }
    if preparation(&place.config)?.is_some() {
        records(&config, &place.config, &mut failures);
    }
    if let Some(host_id) = recorded.or(present) {
        probe(&config, &place.state_dir, host_id, &mut failures).await;
    }
    for failure in &failures {
        print(&format!("failed: {failure}\n"))?;
    }
    match failures.len() {
        0 => print("every check passed\n"),
        n => Err(Failed::message(format!("{n} of the host checks failed"))),
    }
}

/// The records of a node that manages generations.
fn records(config: &Configuration, file: &Path, failures: &mut Vec<String>) {
    let root = file.parent().unwrap_or(Path::new("/"));
    let store = match Store::open(Layout::new(root), config.installation_id) {
        Ok(store) => store,
        Err(error) => return failures.push(chain(&error)),
    };
    if let Err(error) = recovery::recover(&store) {
        failures.push(chain(&error));
    }
    match lease::bare(&store) {
        Ok(bare) => failures.extend(bare.into_iter().map(|g| LeaseError::Bare(g).to_string())),
        Err(error) => failures.push(chain(&error)),
    }
}

async fn probe(config: &Configuration, state_dir: &Path, host_id: Digest, failures: &mut Vec<String>) {
    let provider = match backend::provider(config, state_dir, host_id) {
        Ok(provider) => provider,
        Err(error) => return failures.push(chain(&error)),
    };
    let found = provider.diagnose(Instant::now() + PROBE).await;
    failures.extend(found.iter().map(ToString::to_string));
}

fn print(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_exact() {
        let parse = |line: &str| CommandLine::try_parse_from(line.split(' '));
        for good in [
            "oac-node register --config /c --state-dir /s --core-url http://c --name n --enrollment-token-stdin",
            "oac-node run --config /c --state-dir /s",
            "oac-node run --config /c --state-dir /s --operations 32 --metrics-listen 127.0.0.1:9",
            "oac-node run --config /c --state-dir /s --traces-endpoint http://127.0.0.1:4318 --traces-sample-ratio 0.1",
            "oac-node rebind-host --config /c --state-dir /s --yes",
            "oac-node doctor --config /c --state-dir /s",
            "oac-node protocol-version",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "oac-node run --config /c",
            "oac-node run --config /c --state-dir /s extra",
            "oac-node run --config /c --state-dir /s --token t",
            "oac-node run --config /c --state-dir /s --traces-endpoint http://c --traces-sample-ratio 2",
            "oac-node run --config /c --state-dir /s --traces-sample-ratio 1",
            "oac-node register --config /c --state-dir /s --core-url http://c --name n",
            "oac-node protocol-version 1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refused_endpoint_of_traces_is_not_repeated() {
        let settings = |text: &str| traces_settings(Some(text.to_owned()), Ratio::ALL);
        let refused = settings("http://:hunter2@collector").map(drop).unwrap_err();
        assert!(refused.message.contains("--traces-endpoint: give host and port"));
        assert!(!refused.message.contains("hunter2"), "{}", refused.message);
        let given = settings("http://collector").unwrap_or_else(|failed| panic!("{}", failed.message));
        assert_eq!(given.unwrap().endpoint.to_string(), "http://collector:4318");
    }

    #[test]
    fn a_token_is_one_line_and_nothing_else() {
        let token = |bytes: &[u8]| read_token(bytes).ok().map(|t| t.expose().to_owned());
        assert_eq!(token(b"abc\n").as_deref(), Some("abc"));
        assert_eq!(token(b"abc").as_deref(), Some("abc"));
        assert_eq!(token(&[b'a'; TOKEN_BYTES]).map(|t| t.len()), Some(TOKEN_BYTES));
        for bad in [
            &b""[..],
            b"\n",
            b"a\nb\n",
            b"a b\n",
            b"\xff\n",
            &[b'a'; TOKEN_BYTES + 1],
        ] {
            assert_eq!(token(bad), None);
        }
    }
}
