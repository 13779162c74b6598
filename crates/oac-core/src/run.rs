//! Starting, serving and stopping one Core.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    Core, allocations,
    config::{Config, Database},
    hub, link,
    owner::{self, FileLock, FileLockError, OwnerHandle},
    placement, presence,
    task::{Kind, Tasks},
    turns,
};

/// Starts every worker of `core`; each waits for ownership before it acts.
pub(crate) fn start_workers(core: &Arc<Core>) {
    hub::start(core);
    link::start(core);
    presence::start(core);
    placement::start(core);
    allocations::start(core);
    turns::start(core);
}
