//! `generation prepare` and `generation collect`: the child of `run` that works on one generation and ends.
//!
//! It is started with `install.lock` as descriptor 3, which is what makes it the node's child; by hand it refuses. The
//! steps are `oac-generations`'; here are their ways to the outside: Core's configuration route and the release server
//! ([`supply`]), and the host's engine ([`engine`]).

mod engine;
mod supply;

use std::{os::unix::fs::MetadataExt, path::PathBuf};

use clap::{Args, Subcommand};
use oac_generations::{
    CollectError, Collection, Identity, InheritedLock, Order, Preparation, PrepareError, Store, StoreError,
    keys::InheritError,
    layout::{ENROLLED_CONFIGURATION, Layout},
};
use oac_model::{Digest, Generation, InstallationId};
use tokio::runtime::Runtime;

use crate::{
    command::Clocks,
    config::{self, ConfigError},
    core::{ClientError, CoreClient, Surroundings},
    identity::{self, IdentityError},
};

use engine::HostEngine;
use supply::{HttpSupply, SourceError};

#[derive(Debug, Subcommand)]
pub(crate) enum Errand {
    /// Prepare the generation, or repair its files.
    Prepare(Target),
    /// Remove what the generation alone has on this host.
    Collect(Target),
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The installation's folder on this host; an absolute path.
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    installation_id: InstallationId,
    #[arg(long, value_parser = number)]
    generation: Generation,
    #[arg(long)]
    specification_digest: Digest,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum GenerationError {
    #[error("--root must be an absolute path")]
    Root,
    #[error("this command is a child of `oac-node run` and is not started by hand")]
    ByHand,
    #[error(transparent)]
    Inherit(#[from] InheritError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the node's identity cannot be used")]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("preparation.json is missing: this node serves its enrolled generation alone")]
    Fixed,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("no runtime for asynchronous work")]
    Runtime(#[source] std::io::Error),
    #[error("the generation was not prepared")]
    Prepare(#[from] PrepareError),
    #[error("the generation was not collected")]
    Collect(#[from] CollectError),
}

impl GenerationError {
    /// 65: a release could not be had as selected; 75: a lock or lease is busy; 1: anything else (node.md section 1).
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Prepare(error) => error.exit_status(),
            Self::Collect(error) => error.exit_status(),
            _ => 1,
        }
    }
}

pub(crate) fn execute(errand: &Errand, clocks: Clocks) -> Result<(), GenerationError> {
    match errand {
        Errand::Prepare(target) => target.prepare(clocks),
        Errand::Collect(target) => target.collect(),
    }
}

impl Target {
    fn identity(&self) -> Identity {
        Identity {
            installation_id: self.installation_id,
            generation: self.generation,
            specification_digest: self.specification_digest,
        }
    }

    /// The root, verified, and the lock, which only the node can have given.
    fn open(&self) -> Result<(Store, InheritedLock), GenerationError> {
        if !self.root.is_absolute() {
            return Err(GenerationError::Root);
        }
        if !is_child_of_this_program() {
            return Err(GenerationError::ByHand);
        }
        let store = Store::open(Layout::new(&self.root), self.installation_id)?;
        let lock = InheritedLock::take(&store)?;
        Ok((store, lock))
    }

    fn prepare(&self, clocks: Clocks) -> Result<(), GenerationError> {
        let (store, lock) = self.open()?;
        let stored = identity::peek(&store.layout().state())?.ok_or(IdentityError::Missing)?;
        let preparation = config::preparation(&self.root.join(ENROLLED_CONFIGURATION))?;
        let preparation = preparation.ok_or(GenerationError::Fixed)?;
        let surroundings = Surroundings::of_this_process().map_err(ClientError::from)?;
        let core = CoreClient::new(stored.core.clone(), surroundings.clone(), clocks.node)?;
        let runtime = runtime()?;
        let releases = supply::releases(&preparation, surroundings, clocks.downloads)?;
        let mut supply = HttpSupply::new(&runtime, core, &stored, releases);
        let mut engine = HostEngine::new(&runtime);
        Preparation::begin(&store, self.identity(), &lock, &mut supply, &mut engine)?.run()?;
        Ok(())
    }

    fn collect(&self) -> Result<(), GenerationError> {
        let (store, lock) = self.open()?;
        let order = Order::inherited(self.identity(), &lock);
        let runtime = runtime()?;
        let mut engine = HostEngine::new(&runtime);
        Collection::begin(&store, order, &lock, &mut engine)?.run()?;
        Ok(())
    }
}

/// Whether what started this process is the same file. The inherited lock alone does not say so: `flock(1)` hands one
/// over under the same number, and a collector trusts that its parent had both keys.
fn is_child_of_this_program() -> bool {
    let file = |process: String| {
        let meta = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let parent = rustix::process::getppid().and_then(|pid| file(pid.as_raw_nonzero().to_string()));
    parent.is_some() && parent == file("self".to_owned())
}

fn number(text: &str) -> Result<Generation, String> {
    let number: i64 = text.parse().map_err(|_| "expected a decimal number".to_owned())?;
    Generation::try_from(number).map_err(|error| error.to_string())
}

fn runtime() -> Result<Runtime, GenerationError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(GenerationError::Runtime)
}
