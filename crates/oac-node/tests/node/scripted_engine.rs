//! An engine of images alone, on a socket of its own: what it is asked is seen, and what it was given is what it has. An
//! archive is the image: its id is the digest of the bytes that arrived.

use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use oac_model::ImageDigest;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

pub(crate) struct ScriptedEngine {
    pub(crate) socket: PathBuf,
    pub(crate) held: Arc<Held>,
    _temp: tempfile::TempDir,
    _server: JoinSet<()>,
}

#[derive(Default)]
pub(crate) struct Held {
    pub(crate) images: Mutex<BTreeSet<String>>,
    /// Method and path of each request, without the version of the API.
    pub(crate) asked: Mutex<Vec<String>>,
    /// The name under which what is loaded is known, where that is not the digest of its archive.
    pub(crate) knows_as: Mutex<Option<String>>,
    no_networks: AtomicBool,
}

/// What it says that it is.
pub(crate) const ID: &str = "scripted";
/// An archive of any release fits.
const ARCHIVE_BYTES: usize = 1 << 20;

impl ScriptedEngine {
    pub(crate) fn start() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let socket = temp.path().join("engine.sock");
        let held = Arc::new(Held::default());
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
        let router = Router::new().fallback(answer).with_state(held.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            socket,
            held,
            _temp: temp,
            _server: server,
        }
    }
}

impl Held {
    /// No probe succeeds without a network.
    pub(crate) fn hide_networks(&self, hidden: bool) {
        self.no_networks.store(hidden, Ordering::SeqCst);
    }

    pub(crate) fn times(&self, what: &str) -> usize {
        let asked = self.asked.lock();
        asked.iter().filter(|asked| asked.starts_with(what)).count()
    }
}

async fn answer(State(held): State<Arc<Held>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let path = match path.strip_prefix("/v1.") {
        Some(versioned) => &versioned[versioned.find('/').unwrap()..],
        None => &path,
    };
    held.asked.lock().push(format!("{} {path}", parts.method));
    let image = path
        .strip_prefix("/images/")
        .and_then(|rest| rest.strip_suffix("/json"));
    let answer = match (parts.method.as_str(), path, image) {
        ("GET", _, Some(image)) => held.images.lock().contains(image).then(|| json!({ "Id": image })),
        ("POST", "/images/load", None) => {
            let archive = axum::body::to_bytes(body, ARCHIVE_BYTES).await.unwrap();
            let name = held.knows_as.lock().clone();
            let name = name.unwrap_or_else(|| ImageDigest::of(archive).to_string());
            held.images.lock().insert(name);
            Some(json!({ "stream": "loaded" }))
        }
        ("GET", "/_ping", None) => Some(json!("OK")),
        ("GET", "/info", None) => Some(json!({
            "ID": ID, "MemoryLimit": true, "CpuCfsQuota": true, "NCPU": 64, "MemTotal": 1_u64 << 40,
        })),
        ("GET", "/containers/json", None) => Some(json!([])),
        ("GET", "/volumes", None) => Some(json!({ "Volumes": [] })),
        ("GET", path, None) if path.starts_with("/networks/") => {
            (!held.no_networks.load(Ordering::SeqCst)).then(|| json!({}))
        }
        _ => None,
    };
    let version = [("api-version", "1.44")];
    match answer {
        Some(answer) => (version, Json(answer)).into_response(),
        None => (StatusCode::NOT_FOUND, version, Json(json!({ "message": "none" }))).into_response(),
    }
}
