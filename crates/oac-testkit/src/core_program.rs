//! The Core program as owner in the place of a [`TestCore`], on the same database: one that can be stopped, killed and
//! frozen, which a Core in the test's own process cannot.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crate::{
    core::TestCore,
    core_process::{self, CoreSettings},
    port,
    program::{Program, Tie},
};

/// A Core program that owns the installation of a [`TestCore`].
pub struct CoreProgram {
    pub program: Program,
    /// `http://127.0.0.1:port`.
    pub url: String,
    _folder: tempfile::TempDir,
}

impl CoreProgram {
    /// Stops `core`, whose keys, nodes and Sessions stay, and starts the program `exe` in its place. It tells nodes and
    /// sandboxes the public address of `core`.
    ///
    /// # Panics
    /// When it does not own the installation in time.
    pub async fn in_place_of(core: &mut TestCore, exe: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let loopback = Ipv4Addr::LOCALHOST.into();
        let port = port::unused(loopback).unwrap_or_else(|e| panic!("no free port: {e}"));
        let listen = SocketAddr::new(loopback, port);
        let (database_url, password) = (core.database_url(), core.database_password());
        let settings = CoreSettings {
            listen,
            public_url: core.public_url.as_deref(),
            database_url: &database_url,
            database_password: password.as_ref(),
        };
        let config = settings.write(folder.path(), "core");
        let config = config.unwrap_or_else(|e| panic!("no configuration: {e}"));
        core.stop().await;
        let url = format!("http://{listen}");
        let program = core_process::start(exe, &config, &folder.path().join("core.log"), Tie::Bound);
        let mut program = program.unwrap_or_else(|e| panic!("{e}"));
        core_process::until_answered(&mut program, &url, "readyz")
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        Self {
            program,
            url,
            _folder: folder,
        }
    }
}
