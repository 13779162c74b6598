//! Recognisable text in every error of the engine, every path and every credential, and a look at everything that
//! leaves the node: frames, reasons to close, requests and its log.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use oac_model::ComputePhase;
use oac_node::{
    backend,
    identity::{IdentityStore, Stored},
};
use oac_testkit::log::Log;
use oac_wire::{
    Nullable,
    frames::{Arguments, NodeFrame},
    shapes::{Observation, ObservationMode, ObservedInstance},
};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{
    installation::{Backend, Installation, known},
    limits::again,
    scripted_core::ScriptedCore,
    shapes::{command, create, reference, response, uuid},
};

/// In every text of the engine.
const ENGINE: &str = "canary-of-the-engine";
/// In the name of every path that the node is told.
const PATH: &str = "canary-of-a-path";
const NETWORK: &str = "canary-of-the-network";
/// In everything that Core says and no frame has a place for.
const CORE: &str = "canary-of-core";
const LINK_CREDENTIAL: &str = "link-credential";

/// How the engine fails: with these statuses, then with no JSON, then with JSON of another shape.
const FAILURES: [u16; 7] = [400, 401, 404, 409, 500, 200, 201];

struct Engine {
    failure: AtomicUsize,
    /// Whether it still answers what it holds, which is nothing, so that later calls meet the failure.
    lists: bool,
    asked: Mutex<Vec<String>>,
}

async fn engine(State(engine): State<Arc<Engine>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let ok = |body: &str| {
        let headers = [("api-version", "1.41"), ("content-type", "application/json")];
        (headers, body.to_owned()).into_response()
    };
    if path.ends_with("/_ping") {
        return ok("\"OK\"");
    }
    if path.ends_with("/info") {
        return ok(&format!(
            r#"{{"ID":"ENGINE","Name":"{ENGINE}","MemoryLimit":true,"CpuCfsQuota":true,"NCPU":4,"MemTotal":8589934592}}"#
        ));
    }
    engine.asked.lock().push(path.clone());
    if engine.lists && request.method() == "GET" && path.ends_with("/containers/json") {
        return ok("[]");
    }
    if engine.lists && request.method() == "GET" && path.contains("/volumes") {
        return match path.ends_with("/volumes") {
            true => ok(r#"{"Volumes":[],"Warnings":null}"#),
            false => (StatusCode::NOT_FOUND, format!(r#"{{"message":"{ENGINE}"}}"#)).into_response(),
        };
    }
    let status = FAILURES[engine.failure.load(Ordering::Relaxed)];
    let body = match status {
        200 => ENGINE.to_owned(),
        201 => format!(r#"{{"{ENGINE}":["{ENGINE}"],"Id":7,"message":"{ENGINE}"}}"#),
        _ => format!(r#"{{"message":"{ENGINE} at /var/lib/{ENGINE}"}}"#),
    };
    let status = StatusCode::from_u16(status).unwrap();
    (
        status,
        [("api-version", "1.41"), ("content-type", "application/json")],
        body,
    )
        .into_response()
}

fn observation() -> Arguments {
    Arguments::Observe(Box::new(Observation {
        mode: ObservationMode::Managed,
        session_id: uuid(8, 1).parse().unwrap(),
        instance: ObservedInstance {
            provider_key: uuid(1, 0).parse().unwrap(),
            compute_phase: ComputePhase::Running,
            compute: Nullable(None),
        },
    }))
}

/// What one node said while each of its operations met each failure of the engine.
async fn hear(lists: bool, log: &Log) -> Vec<String> {
    let folder = tempfile::Builder::new().prefix(PATH).tempdir().unwrap();
    let socket = folder.path().join("engine.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let state = Arc::new(Engine {
        failure: AtomicUsize::new(0),
        lists,
        asked: Mutex::default(),
    });
    let router = Router::new().fallback(engine).with_state(state.clone());
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, router).await.unwrap() });

    let mut core = ScriptedCore::start().await;
    let named = Backend {
        host: format!("unix://{}", socket.display()),
        image: "ab".repeat(32),
        network: NETWORK.into(),
    };
    let installation = Installation::on(&core, &named);
    assert!(installation.state_dir.display().to_string().contains(PATH));
    let host_id = backend::host_id(&installation.config).await.unwrap();
    let stored = Stored::new(&installation.config, host_id).unwrap();
    IdentityStore::create(&installation.state_dir)
        .unwrap()
        .store(&stored)
        .unwrap();
    let (known_as, credential) = (stored.clone(), stored.credential.expose().to_owned());
    *core.script.identity.lock() = Box::new(move |seen| known(&known_as, seen.headers.get("authorization")));
    let provider = backend::provider(&installation.config, &installation.state_dir, host_id).unwrap();
    let node = installation.start(provider, 8);

    let (mut link, hello) = core.greet().await;
    assert!(!hello.health.provider_ready, "the engine has no image");
    let mut lane = 0;
    for failure in 0..FAILURES.len() {
        state.failure.store(failure, Ordering::Relaxed);
        for arguments in [
            create(reference(lane)),
            Arguments::Info,
            Arguments::Renew,
            command(None),
            observation(),
            Arguments::Kill,
        ] {
            let operation = arguments.operation();
            link.call(lane, arguments).await;
            let answer = response(link.next().await);
            let told = (answer.error_code.as_deref(), &answer.result);
            let settles = matches!(told, (None, Ok(_)));
            assert!(settles || answer.error_code.is_some(), "{operation:?} {told:?}");
        }
        // The probe fails in the same way.
        node.skip(10);
        let NodeFrame::Heartbeat(heartbeat) = link.next().await else {
            panic!("a heartbeat is due");
        };
        assert!(heartbeat.health.diagnostic.is_some());
        link.acknowledge().await;
        lane += 1;
    }
    // A receipt that is none: its path is in the error.
    let receipts = installation.state_dir.join("receipts");
    std::fs::write(
        receipts.join(format!("{}.json", reference(lane).allocation_id)),
        ENGINE,
    )
    .unwrap();
    link.call(lane, Arguments::Info).await;
    assert_eq!(
        response(link.next().await).error_code.as_deref(),
        Some("unconfirmed")
    );
    let asked = state.asked.lock().len();
    assert!(asked > FAILURES.len() * 4, "the engine was asked {asked} times");

    // Whatever Core says wrong, the node says nothing of it.
    let mut heard = Vec::new();
    let (_, good) = link.request(lane, 1000, Arguments::Info);
    for wrong in [
        CORE.to_owned(),
        good.replace(
            r#""operation":"info""#,
            &format!(r#""operation":"info","{CORE}":1"#),
        ),
        good.replace(r#""type":"request""#, &format!(r#""type":"{CORE}""#)),
        good.replace(r#""timeout_ms":1000"#, &format!(r#""timeout_ms":"{CORE}""#)),
    ] {
        assert!(wrong.contains(CORE));
        link.send(wrong).await;
        while link.try_next().await.is_some() {}
        heard.append(&mut link.heard);
        link = again(&mut core, &node).await;
        link.hello().await;
        link.welcome().await;
    }
    heard.append(&mut link.heard);
    for seen in core.script.seen.lock().iter() {
        let mut headers = seen.headers.clone();
        headers.remove("authorization");
        heard.push(format!("{} {headers:?} {:?}", seen.uri, seen.body));
    }
    node.stop().await.unwrap();

    let said = log.take();
    // It was there to be found: the node's own log tells the operator.
    assert!(said.contains(ENGINE) && said.contains(PATH), "{said}");
    for secret in [credential.as_str(), LINK_CREDENTIAL] {
        assert!(!said.contains(secret), "a credential is in the node's log");
        assert!(
            !heard.iter().any(|text| text.contains(secret)),
            "a credential left the node"
        );
    }
    heard
}

// req: P-036, G-255
// inv: INV-P20
#[tokio::test]
async fn no_text_of_the_engine_no_path_and_no_credential_is_in_a_frame_a_reason_to_close_or_a_request() {
    let log = Log::of_process("trace");
    for lists in [false, true] {
        let heard = hear(lists, &log).await;
        assert!(heard.len() > 50, "{} frames", heard.len());
        for canary in [ENGINE, PATH, NETWORK, CORE, "engine.sock", "/var/lib"] {
            let revealing: Vec<_> = heard.iter().filter(|text| text.contains(canary)).collect();
            assert!(revealing.is_empty(), "{canary}: {revealing:?}");
        }
    }
}
