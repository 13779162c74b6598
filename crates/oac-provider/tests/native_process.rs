//! Native work that is a process of its own, as a provider's helper is: one JSON request on its standard input, one JSON
//! response on its standard output, and nobody ends it but itself (INV-V12).

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use oac_model::Reference;
use oac_provider::{Lanes, NoAnswer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};

/// Reads its request to the end, leaves its process id in `started`, works until `go` can be read, and says that it ended.
const HELPER: &str = r#"
request=$(cat)
echo "$$" > started.new && mv started.new started
read -r _ < go
echo "ended $request" >> log
echo '{"version":1,"state":"running"}'
"#;

struct Host {
    folder: tempfile::TempDir,
    lanes: Arc<Lanes>,
    reference: Reference,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join("go"))
            .status()
            .unwrap();
        assert!(made.success());
        Self {
            folder,
            lanes: Arc::default(),
            reference: Reference {
                tenant_id: oac_model::ProjectId::random(),
                environment_id: oac_model::EnvironmentId::random(),
                allocation_id: oac_model::AllocationId::random(),
            },
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The process id of the helper, once it works.
    async fn helper(&self) -> u32 {
        let read = async || {
            let text = std::fs::read_to_string(self.path("started")).ok()?;
            text.trim().parse().ok()
        };
        until(read).await
    }

    /// The next operation of the allocation.
    async fn next(&self, within: Duration) -> Result<(), NoAnswer> {
        let log = self.path("log");
        let work = async move {
            let earlier = std::fs::read_to_string(&log).unwrap_or_default();
            std::fs::write(&log, earlier + "next\n").unwrap();
        };
        self.lanes
            .run(self.reference, Instant::now() + within, work)
            .await
    }

    /// The helper may end now. It does so by itself, and its operation makes place for the next.
    async fn ends_by_itself(&self, helper: u32) {
        assert!(lives(helper), "the helper works on");
        assert_eq!(self.log(), "");
        let refused = self.next(Duration::from_millis(50)).await;
        assert_eq!(refused, Err(NoAnswer::NotStarted), "the lane is occupied");
        let (next, ()) = tokio::join!(self.next(LONG), self.release());
        assert_eq!(next, Ok(()));
        assert_eq!(self.log(), "ended {\"operation\":\"create\"}\nnext\n");
        assert!(!lives(helper));
    }

    async fn release(&self) {
        let go = self.path("go");
        tokio::fs::write(go, "go\n").await.unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A helper that a failed test did not release; without one there is nobody to open the other end.
        let mut options = std::fs::File::options();
        let open = options
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        if let Ok(mut go) = open.open(self.path("go")) {
            let _ = go.write_all(b"go\n");
        }
    }
}

const LONG: Duration = Duration::from_secs(60);

async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(value) = look().await {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A process that has ended and was not waited for lives no more.
fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit_once(')')
                .map(|(_, rest)| !rest.trim_start().starts_with('Z'))
        })
        .unwrap_or(false)
}

/// Runs the helper as a provider does: to its end, whatever that takes.
async fn create(folder: PathBuf) -> String {
    let mut child = helper(&folder).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"operation\":\"create\"}").await.unwrap();
    drop(stdin);
    let mut response = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut response).await.unwrap();
    assert!(child.wait().await.unwrap().success());
    response
}

fn helper(folder: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", HELPER])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

// inv: INV-V11, INV-V12
#[tokio::test]
async fn a_helper_past_its_deadline_works_to_its_own_end_and_only_then_the_next_operation_starts() {
    let host = Host::new();
    let work = create(host.folder.path().to_owned());
    let by = Instant::now() + Duration::from_millis(300);
    let answer = host.lanes.run(host.reference, by, work).await;
    let helper = host.helper().await;
    assert_eq!(answer, Err(NoAnswer::UnderWay));
    host.ends_by_itself(helper).await;
}

// inv: INV-V11, INV-V12
#[tokio::test]
async fn a_helper_whose_caller_went_away_works_to_its_own_end_and_only_then_the_next_operation_starts() {
    let host = Host::new();
    let work = create(host.folder.path().to_owned());
    let mut call = Box::pin(host.lanes.run(host.reference, Instant::now() + LONG, work));
    let helper = tokio::select! {
        _ = &mut call => panic!("the helper was not released"),
        helper = host.helper() => helper,
    };
    drop(call);
    host.ends_by_itself(helper).await;
}

// inv: INV-V12
#[test]
fn a_helper_outlives_the_runtime_of_the_node_that_started_it() {
    let host = Host::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let helper = runtime.block_on(async {
        let work = create(host.folder.path().to_owned());
        tokio::select! {
            _ = host.lanes.run(host.reference, Instant::now() + LONG, work) => panic!("the helper was not released"),
            helper = host.helper() => helper,
        }
    });
    runtime.shutdown_background();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        assert!(lives(helper));
        host.release().await;
        until(async || (host.log() == "ended {\"operation\":\"create\"}\n").then_some(())).await;
    });
}
