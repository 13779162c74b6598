//! Steps 9 and 10: what the node root is, and what Core selected.

use std::path::PathBuf;

use oac_dial::Origin;
use oac_model::{ImageDigest, InstallationId, ProviderKind, Secret, SourceCommit, Specification};
use serde::{Deserialize, Serialize};

use super::{Kept, enrolled, inspected, runtime, unseen};
use crate::{
    core::{Configuration, Core, Refusal, configuration_hint},
    hint::Hint,
    plan::{
        engine::Size,
        inspection::{Standing, Word, asks, judge},
    },
};

pub(crate) struct Question {
    pub(crate) installation: InstallationId,
    pub(crate) core: Origin,
    /// What the command expects.
    pub(crate) provider: Option<ProviderKind>,
    pub(crate) token: Option<Secret>,
    pub(crate) nodes: PathBuf,
    /// The home is the account's, so that there may be node roots in it.
    pub(crate) may_look: bool,
    /// Root's record says `registered`.
    pub(crate) recorded: bool,
}

/// What the checks need of the selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chosen {
    pub(crate) provider: ProviderKind,
    pub(crate) source_commit: SourceCommit,
    pub(crate) size: Size,
    /// By which Docker may know the Runtime image.
    pub(crate) images: Vec<ImageDigest>,
}

impl Chosen {
    pub(crate) fn of(specification: &Specification) -> Option<Self> {
        let runtime = specification.runtime.as_ref()?;
        let digests = [
            runtime.artifacts.image_id,
            runtime.artifacts.image_manifest_digest,
        ];
        Some(Self {
            provider: specification.provider,
            source_commit: runtime.source_commit,
            images: digests.into_iter().flatten().collect(),
            size: Size {
                cpus: specification.resources.cpus,
                memory_mib: specification.resources.memory_mib,
            },
        })
    }
}

/// A stop comes after the host's checks where a registered node's host is what a rerun may be about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) standing: Result<Standing, Hint>,
    pub(crate) chosen: Chosen,
}

impl Question {
    pub(crate) fn ask(&self) -> Result<Asked, Hint> {
        let root = self.nodes.join(self.installation.to_string());
        if self.may_look {
            self.refuse_others()?;
        }
        let (facts, kept) = match self.may_look {
            true => inspected(&root, self.recorded)?,
            false => (unseen(&root, self.recorded), None),
        };
        let runtime = runtime()?;
        let word = match kept.as_ref().filter(|_| asks(&facts)) {
            Some(kept) => Some(runtime.block_on(word(kept))?),
            None => None,
        };
        let standing = judge(&facts, self.installation, &self.core, word);
        let here = match self.may_look {
            true => enrolled(&root)?,
            false => None,
        };
        let here = here.and_then(|configuration| Chosen::of(&configuration.specification));
        match (standing, here) {
            (Ok(Standing::Registered), Some(chosen)) => {
                self.expects(chosen.provider)?;
                Ok(Asked {
                    standing: Ok(Standing::Registered),
                    chosen,
                })
            }
            (Ok(Standing::Registered), None) => Err(Hint::StateMissing {
                root: root.display().to_string(),
            }),
            (Err(stop), Some(chosen)) if facts.has_mark => Ok(Asked {
                standing: Err(stop),
                chosen,
            }),
            (Err(stop), _) => Err(stop),
            (standing @ Ok(Standing::Unregistered { .. }), _) => {
                let configuration = runtime.block_on(self.configuration())?;
                let chosen = Chosen::of(&configuration.specification).ok_or(Hint::NoConfiguration)?;
                Ok(Asked { standing, chosen })
            }
        }
    }

    /// One host, one installation: node roots of others count as their records do.
    fn refuse_others(&self) -> Result<(), Hint> {
        let Ok(entries) = std::fs::read_dir(&self.nodes) else {
            return Ok(());
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut others = names
            .filter_map(|name| name.parse().ok())
            .filter(|id| *id != self.installation);
        match others.next() {
            Some(installation) => Err(Hint::OtherInstallation { installation }),
            None => Ok(()),
        }
    }

    fn expects(&self, provider: ProviderKind) -> Result<(), Hint> {
        match self.provider {
            Some(expected) if expected != provider => Err(Hint::OtherBackend),
            _ => Ok(()),
        }
    }

    /// With the token. Without one there is no command that could be used.
    pub(crate) async fn configuration(&self) -> Result<Configuration, Hint> {
        let token = self.token.as_ref().ok_or(Hint::Expired)?;
        let answer = Core::at(&self.core)?.configuration(token, None).await;
        let answer = answer.map_err(|refusal| configuration_hint(&self.core, &refusal))?;
        if answer.installation_id != self.installation || answer.provider == ProviderKind::E2b {
            return Err(Hint::OtherBackend);
        }
        self.expects(answer.provider)?;
        if answer.core_url != self.core.as_str() {
            return Err(Hint::AddressChanged);
        }
        Ok(answer)
    }
}

/// What Core says to the retained credential, at the address that it was made for and nowhere else.
pub(crate) async fn word(kept: &Kept) -> Result<Word, Hint> {
    let core = Core::at(&kept.core)?;
    let known = match core.identity(kept.node, &kept.credential).await {
        Ok(known) => known,
        Err(Refusal::Unauthorized) => return Ok(Word::Unknown),
        Err(_) => return Ok(Word::Silent),
    };
    let own = &kept.identity;
    let agrees = known.node_id == own.node_id
        && known.installation_id == own.installation_id
        && known.provider == own.provider
        && known.deployment_generation == own.deployment_generation
        && known.specification_digest == own.specification_digest;
    if !agrees {
        return Ok(Word::Silent);
    }
    match core.configuration(&kept.credential, Some(kept.node)).await {
        Ok(target) => Ok(Word::Known {
            is_target: target.generation == own.deployment_generation
                && target.specification_digest == own.specification_digest,
        }),
        Err(Refusal::Unauthorized) => Ok(Word::Unknown),
        Err(_) => Ok(Word::Silent),
    }
}
