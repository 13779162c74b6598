//! A node that manages generations: it serves every one that it holds, prepares the target beside them, and gives back
//! what nobody needs (node.md sections 5 to 10).
//!
//! The rules stand in `oac-generations`, what is to be done next in [`plan`]; here are the providers, the child process
//! and the probes. Nothing here decides. What a decision needs comes in through the agent, and what comes out is the
//! table that the connection reports and asks about.

mod child;
mod plan;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use oac_generations::{
    InstallLock, Store, StoreError, Use,
    layout::Layout,
    readiness::{Ended, Probed},
    recovery::{self, Recovered},
};
use oac_model::{ConnectionId, DiagnosticCode, Digest, Generation};
use oac_peer::{Moment, node::Local};
use oac_provider::{ProbeError, Provider};
use oac_records::LockError;
use oac_wire::frames::{Deployment, RetentionReference};
use parking_lot::Mutex;

use crate::{
    agent::chain,
    backend::{BackendError, Loader},
    config::{ConfigError, Configuration},
    health,
    task::{Done, Tasks},
};

use child::{Child, Errand};
use plan::{Effect, End, Planner, Reloaded};

/// Why a managing node does not start. Exit status 1; the service manager tries again.
#[derive(Debug, thiserror::Error)]
pub enum ManagingError {
    #[error("--state-dir of a node that manages generations must be {0}")]
    StateDir(PathBuf),
    #[error(
        "a child of an earlier process of this node still works on a generation; the service starts again"
    )]
    Busy,
    #[error("install.lock cannot be taken")]
    Lock(#[source] LockError),
    #[error("the records of the generations cannot be used")]
    Store(#[from] StoreError),
    #[error("the enrolled generation cannot be served")]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The generations of this host, and what serves them.
pub struct Managing {
    store: Arc<Store>,
    planner: Planner,
    /// Locked where it may wait for the disk: by the start, and by what waits for a child.
    loader: Arc<Mutex<Loader>>,
    providers: BTreeMap<Generation, Arc<dyn Provider>>,
    child: Option<Child>,
    /// Why the last probe of a generation failed.
    failures: BTreeMap<Generation, String>,
    /// What the connection was told last.
    told: Vec<Local>,
}

/// A child that was waited for, and its generation loaded again.
pub(crate) struct ChildEnd {
    generation: Generation,
    how: Ended,
    reloaded: Reloaded,
    /// Of what was reloaded, where it serves anything and its provider could be made.
    provider: Option<Arc<dyn Provider>>,
}

impl std::fmt::Debug for ChildEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ChildEnd");
        shown
            .field("generation", &self.generation)
            .field("how", &self.how);
        shown.finish_non_exhaustive()
    }
}

impl Managing {
    /// Recovers what the host holds. `install.lock` is held meanwhile: while any child of an earlier process lives, or
    /// what it started, nothing is loaded (INV-N45).
    pub fn open(
        config: &Configuration,
        file: &Path,
        state_dir: &Path,
        host_id: Digest,
    ) -> Result<Self, ManagingError> {
        let layout = Layout::new(file.parent().unwrap_or(Path::new("/")));
        if state_dir != layout.state() {
            return Err(ManagingError::StateDir(layout.state()));
        }
        let store = Store::open(layout, config.installation_id)?;
        let lock = InstallLock::take(&store).map_err(|error| match error {
            LockError::Busy(_) => ManagingError::Busy,
            error => ManagingError::Lock(error),
        })?;
        let recovery = recovery::recover(&store)?;
        let mut loader = Loader::new(state_dir, host_id);
        let mut providers = BTreeMap::new();
        for recovered in &recovery.held {
            let generation = recovered.found.identity.generation;
            match load(&mut loader, recovered) {
                Ok(provider) => providers.extend(provider.map(|provider| (generation, provider))),
                Err(error) if generation == config.generation => return Err(error),
                Err(error) => not_loaded(generation, &error),
            }
        }
        drop(lock);
        let planner = Planner::new(&recovery, |generation| providers.contains_key(&generation));
        let told = planner.table();
        Ok(Self {
            store: Arc::new(store),
            planner,
            loader: Arc::new(Mutex::new(loader)),
            providers,
            child: None,
            failures: BTreeMap::new(),
            told,
        })
    }

    /// The table as it was told last; at first, what was recovered.
    pub(crate) fn table(&self) -> Vec<Local> {
        self.told.clone()
    }

    /// What serves a request of `generation`, and what keeps the generation meanwhile.
    pub(crate) fn acquire(&mut self, generation: Generation) -> Option<(Arc<dyn Provider>, Use)> {
        let provider = self.providers.get(&generation)?.clone();
        Some((provider, self.planner.acquire(generation)?))
    }

    /// One that sweeps for all: they share receipts and engine.
    pub(crate) fn sweeper(&self) -> Option<Arc<dyn Provider>> {
        self.providers.values().next().cloned()
    }

    pub(crate) fn connected(&mut self, id: ConnectionId) {
        self.planner.connected(id);
    }

    pub(crate) fn disconnected(&mut self) {
        self.planner.disconnected();
    }

    pub(crate) fn deployed(&mut self, deployment: &Deployment) {
        let target = self
            .store
            .identity(deployment.generation, deployment.specification_digest);
        tracing::info!(event = "deployment", target = %target.generation, serving = ?deployment.serving_generation.0.map(Generation::get), "Core's deployment");
        self.planner.deployed(deployment, target);
    }

    pub(crate) fn granted(&mut self, from: ConnectionId, references: &[RetentionReference]) {
        self.planner.granted(from, references);
    }

    /// A probe ended; `None` where its task broke.
    pub(crate) fn probed(
        &mut self,
        generation: Generation,
        probed: Option<Result<(), ProbeError>>,
        now: Moment,
    ) {
        let how = match probed {
            None => Probed::Canceled,
            Some(Ok(())) => {
                self.failures.remove(&generation);
                Probed::Ready
            }
            Some(Err(ProbeError { code, text })) => {
                // One that is not ready is probed every few seconds: its reason is logged when it is another.
                if self.failures.get(&generation) != Some(&text) {
                    tracing::warn!(event = "generation_not_ready", %generation, %code, error = text, "a generation's provider is not ready");
                    self.failures.insert(generation, text);
                }
                Probed::Failed(code)
            }
        };
        self.planner.probed(generation, how, since(now));
    }

    /// A child was waited for: what its generation's files say now is served from here on.
    pub(crate) fn ended(&mut self, end: ChildEnd, now: Moment) {
        let ChildEnd {
            generation,
            how,
            reloaded,
            provider,
        } = end;
        tracing::info!(event = "generation_child_ended", %generation, how = ?how, "a child of a generation ended");
        self.child = None;
        let loaded = provider.is_some();
        self.providers.remove(&generation);
        self.providers
            .extend(provider.map(|provider| (generation, provider)));
        let end = End {
            generation,
            how,
            reloaded,
            loaded,
        };
        self.planner.ended(end, since(now));
    }

    /// When `proceed` is due at the latest.
    pub(crate) fn next_wakeup(&self) -> Moment {
        let millis = self.planner.next_wakeup().as_millis();
        Moment(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Does what is due, and returns the table where it changed.
    pub(crate) fn proceed(
        &mut self,
        now: Moment,
        works_on: &dyn Fn(Generation) -> bool,
        tasks: &mut Tasks,
    ) -> Option<Vec<Local>> {
        for effect in self.planner.plan(since(now), works_on) {
            match effect {
                Effect::Prepare(identity, kept) => self.start(Errand::Prepare(identity, kept), tasks),
                Effect::Collect(grant, proof) => self.start(Errand::Collect(grant, proof), tasks),
                Effect::Kill => {
                    if let Some(child) = &self.child {
                        child.kill();
                    }
                }
                Effect::Probe(generation, kept) => self.probe(generation, kept, tasks),
            }
        }
        let table = self.planner.table();
        if table == self.told {
            return None;
        }
        for local in table.iter().filter(|local| !self.told.contains(local)) {
            tracing::info!(event = "generation", generation = %local.generation, standing = ?local.standing, "a generation stands otherwise");
        }
        self.told.clone_from(&table);
        Some(table)
    }

    /// Whether new sandboxes could be made.
    pub(crate) fn is_ready(&self) -> bool {
        self.planner.is_ready()
    }

    /// Nothing is started any more; the child's group is killed. True while it is to be waited for.
    pub(crate) fn stop(&mut self) -> bool {
        self.planner.stop();
        if let Some(child) = &self.child {
            child.kill();
        }
        self.planner.has_child()
    }

    fn start(&mut self, errand: Errand, tasks: &mut Tasks) {
        let generation = errand.generation();
        if matches!(errand, Errand::Collect(..)) {
            self.providers.remove(&generation);
        }
        let (store, loader) = (self.store.clone(), self.loader.clone());
        let started = match Child::start(store.clone(), "/proc/self/exe".into(), errand) {
            Ok((child, ended)) => {
                self.child = Some(child);
                Some(ended)
            }
            Err(error) => {
                tracing::warn!(event = "generation_child_failed", %generation, %error, "no thread for a child");
                None
            }
        };
        tasks.child(async move {
            let how = match started {
                Some(ended) => ended.await.unwrap_or(Ended::Failed),
                None => Ended::Failed,
            };
            let again = tokio::task::spawn_blocking(move || reload(&store, &loader, generation)).await;
            let (reloaded, provider) = again.unwrap_or((Reloaded::Unreadable, None));
            Done::Child(Box::new(ChildEnd {
                generation,
                how,
                reloaded,
                provider,
            }))
        });
    }

    fn probe(&self, generation: Generation, kept: Use, tasks: &mut Tasks) {
        let provider = self.providers.get(&generation).cloned();
        tasks.probe(generation, async move {
            let probed = match provider {
                Some(provider) => health::probe(&*provider).await,
                None => Err(ProbeError {
                    code: DiagnosticCode::ProviderUnavailable,
                    text: "no provider is loaded".to_owned(),
                }),
            };
            drop(kept);
            probed
        });
    }
}

impl std::fmt::Debug for Managing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Managing").field(&self.told).finish()
    }
}

/// The provider of a published generation, or its placeholder; none of one that is unfinished or going.
fn load(loader: &mut Loader, recovered: &Recovered) -> Result<Option<Arc<dyn Provider>>, ManagingError> {
    let Recovered { found, standing } = recovered;
    let serves = matches!(
        standing,
        recovery::Standing::Published | recovery::Standing::Incomplete(_)
    );
    match &found.configuration {
        Some(configuration) if serves => Ok(Some(loader.load(&Configuration::of(configuration)?)?)),
        _ => Ok(None),
    }
}

/// What a child left, and the provider of it. Waits for the disk.
fn reload(
    store: &Store,
    loader: &Mutex<Loader>,
    generation: Generation,
) -> (Reloaded, Option<Arc<dyn Provider>>) {
    match recovery::again(store, generation) {
        Ok(Some(recovered)) => {
            let provider = load(&mut loader.lock(), &recovered).unwrap_or_else(|error| {
                not_loaded(generation, &error);
                None
            });
            (Reloaded::Found(Box::new(recovered)), provider)
        }
        Ok(None) => (Reloaded::Nothing, None),
        Err(error) => {
            tracing::error!(event = "generation_unreadable", %generation, error = %chain(&error), "a generation's records cannot be used");
            (Reloaded::Unreadable, None)
        }
    }
}

fn not_loaded(generation: Generation, error: &ManagingError) {
    tracing::error!(event = "generation_not_loaded", %generation, error = %chain(error), "a generation has no provider");
}

fn since(now: Moment) -> Duration {
    Duration::from_millis(now.0)
}
