//! Who speaks to a service of a host: its socket is stood in for by one that notes each peer's account and passes
//! everything on.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use tokio::{
    io::copy_bidirectional,
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use super::{Host, HostError, Result};

/// Notes peers until it is ended.
pub struct Peers {
    path: String,
    uids: Arc<Mutex<Vec<u32>>>,
    _server: JoinSet<()>,
}

impl Host {
    /// Stands in for the socket at `path`, below a directory that is no link, with its owner and mode.
    pub async fn peers_of(&self, path: &str) -> Result<Peers> {
        let failed = |source| HostError::Start {
            program: "a stand-in of a socket",
            source,
        };
        self.output(&format!("mv '{path}' '{path}.real'")).await?;
        let at = |path: &str| PathBuf::from(format!("{}{path}", self.files().display()));
        let (own, real) = (at(path), at(&format!("{path}.real")));
        let listener = UnixListener::bind(&own).map_err(failed)?;
        let mode = std::fs::metadata(&real).map_err(failed)?.permissions().mode();
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        self.output(&format!("chown --reference='{path}.real' '{path}'"))
            .await?;
        let uids: Arc<Mutex<Vec<u32>>> = Arc::default();
        let noted = uids.clone();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut peer, _)) = listener.accept().await {
                if let (Ok(credentials), Ok(mut uids)) = (peer.peer_cred(), noted.lock()) {
                    uids.push(credentials.uid());
                }
                let real = real.clone();
                open.spawn(async move {
                    if let Ok(mut service) = UnixStream::connect(&real).await {
                        let _ = copy_bidirectional(&mut peer, &mut service).await;
                    }
                });
            }
        });
        Ok(Peers {
            path: path.to_owned(),
            uids,
            _server: server,
        })
    }
}

impl Peers {
    /// Puts the socket back; the accounts that connected, each once for each connection. Open connections end.
    pub async fn end(self, host: &Host) -> Result<Vec<u32>> {
        let path = &self.path;
        host.output(&format!("mv '{path}.real' '{path}'")).await?;
        Ok(self.uids.lock().map(|uids| uids.clone()).unwrap_or_default())
    }
}
