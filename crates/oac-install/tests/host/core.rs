//! A Core that says what it is told, and serves releases from a folder.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc::SyncSender},
};

use serde_json::{Value, json};

/// Where a node program on another host than this says that it is enrolled.
pub(crate) const ENROLL: &str = "/enrolled";

/// How it answers, changed while it runs.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// The command's token; any other is refused.
    pub(crate) token: String,
    /// GET configuration's document.
    pub(crate) configuration: Value,
    /// GET identity's, once the node is enrolled.
    pub(crate) identity: Value,
    /// In place of all that: a status and a body.
    pub(crate) instead: Option<(u16, String)>,
    /// Every target that was asked for, with its status.
    pub(crate) asked: Vec<String>,
    /// Bytes of artifacts sent.
    pub(crate) sent: u64,
    /// Transfers stop half way: told when one has, and when whoever asked for it is gone.
    pub(crate) holds: Option<(SyncSender<()>, SyncSender<()>)>,
    /// Transfers end after so many bytes.
    pub(crate) breaks_after: Option<u64>,
}

#[derive(Clone)]
pub(crate) struct Core {
    /// Its public address, which may lead to it through a proxy alone.
    pub(crate) origin: String,
    /// Where it listens, at every address of this machine.
    pub(crate) port: u16,
    pub(crate) state: Arc<Mutex<State>>,
    folder: PathBuf,
    enrolled: PathBuf,
}

impl Core {
    /// `folder/releases/<commit>` are served; `folder/enrolled` is there once the node is.
    /// A POST says so too.
    pub(crate) fn start(folder: &Path) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let core = Self {
            origin: format!("http://127.0.0.1:{port}"),
            port,
            state: Arc::default(),
            folder: folder.to_owned(),
            enrolled: folder.join("enrolled"),
        };
        let serving = core.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let core = serving.clone();
                std::thread::spawn(move || core.serve(stream));
            }
        });
        core
    }

    /// Where its releases are, and what the node program leaves for it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn is_enrolled(&self) -> bool {
        self.enrolled.exists()
    }

    /// As after Remove node.
    pub(crate) fn forgets(&self) {
        let _ = fs::remove_file(&self.enrolled);
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        let target = head.split(' ').nth(1).unwrap_or("").to_owned();
        let (mut bearer, mut from) = (String::new(), 0);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            let (name, value) = line.trim().split_once(": ").unwrap_or(("", ""));
            match name.to_ascii_lowercase().as_str() {
                "authorization" => bearer = value.trim_start_matches("Bearer ").to_owned(),
                "range" => {
                    from = value
                        .trim_start_matches("bytes=")
                        .trim_end_matches('-')
                        .parse()
                        .unwrap_or(0)
                }
                _ => {}
            }
            line.clear();
        }
        if let Some(file) = target.strip_prefix("/api/v1/sandbox-node/install/releases/") {
            return self.send_file(stream, file, from);
        }
        let (status, body) = self.answer(&target, &bearer);
        self.state
            .lock()
            .unwrap()
            .asked
            .push(format!("{status} {target}"));
        let mut stream = stream;
        let _ = write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }

    fn answer(&self, target: &str, bearer: &str) -> (u16, String) {
        let state = self.state.lock().unwrap();
        if let Some((status, body)) = &state.instead {
            return (*status, body.clone());
        }
        let refused = || (401, error("invalid_node_credential"));
        if target == ENROLL && bearer == state.token {
            let made = fs::write(&self.enrolled, "");
            return (if made.is_ok() { 200 } else { 500 }, String::new());
        }
        let is_node = self.is_enrolled() && bearer == "ab".repeat(32);
        if target.starts_with("/api/v1/sandbox-node/configuration") {
            return match is_node || (!self.is_enrolled() && bearer == state.token) {
                true => (200, state.configuration.to_string()),
                false => refused(),
            };
        }
        if target.starts_with("/api/v1/sandbox-node/identity") && is_node {
            return (200, state.identity.to_string());
        }
        refused()
    }

    fn send_file(&self, mut stream: TcpStream, file: &str, from: u64) {
        let Ok(bytes) = fs::read(self.folder.join("releases").join(file)) else {
            let _ = write!(
                stream,
                "HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            return;
        };
        let size = bytes.len() as u64;
        let head = match from {
            0 => format!("HTTP/1.1 200 X\r\nContent-Length: {size}\r\n"),
            from => format!(
                "HTTP/1.1 206 X\r\nContent-Range: bytes {from}-{}/{size}\r\nContent-Length: {}\r\n",
                size - 1,
                size - from
            ),
        };
        let mut rest = &bytes[from as usize..];
        let mut holds = None;
        if file.contains("/artifacts/") {
            let mut state = self.state.lock().unwrap();
            holds = state.holds.clone();
            if let Some(limit) = state.breaks_after {
                rest = &rest[..rest.len().min(limit as usize)];
            }
            state.sent += rest.len() as u64;
        }
        let _ = write!(stream, "{head}Accept-Ranges: bytes\r\nConnection: close\r\n\r\n");
        if let Some((begun, gone)) = holds {
            let _ = stream.write_all(&rest[..rest.len() / 2]);
            let _ = begun.send(());
            let _ = std::io::Read::read(&mut stream, &mut [0]);
            let _ = gone.send(());
            return;
        }
        let _ = stream.write_all(rest);
    }
}

/// Core's envelope.
pub(crate) fn error(code: &str) -> String {
    json!({ "error": { "message": "m", "type": "t", "code": code, "param": null } }).to_string()
}
