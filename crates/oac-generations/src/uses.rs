//! What the other generations use of what one generation would take with it (node.md section 8). Pure.

use std::collections::{BTreeMap, BTreeSet};

use oac_model::Generation;

use crate::{records::Configuration, state::State, store::Found};

/// Of one generation's files, image and store: what stays, because another generation uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shared {
    /// `releases/<source>` and the original files of that source.
    pub source: bool,
    pub image: bool,
    pub store: bool,
    /// Paths that the others' configurations and plans name, wherever they are.
    pub paths: BTreeSet<String>,
}

/// A generation uses its files from Planned to Collecting, planned files included; its image and store with a
/// configuration or a started import, up to Collecting. Purging and Dropped use nothing.
pub fn shared(all: &BTreeMap<Generation, Found>, of: &Configuration) -> Shared {
    let mut shared = Shared::default();
    let others = all
        .iter()
        .filter(|(generation, _)| **generation != of.generation)
        .filter(|(_, found)| (State::Planned..=State::Collecting).contains(&found.state));
    for (_, other) in others {
        let Some(selection) = other.selection() else {
            continue;
        };
        shared.source |= selection.source_commit() == of.source_commit();
        shared
            .paths
            .extend(selection.native.files().into_iter().map(str::to_owned));
        if other.may_have_image() {
            shared.image |= image(selection) == image(of);
            shared.store |= selection.native.store() == of.native.store();
        }
    }
    shared
}

fn image(configuration: &Configuration) -> Option<&str> {
    configuration
        .specification
        .runtime
        .as_ref()
        .and_then(|runtime| runtime.artifacts.microsandbox_ref.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        native::{Access, MicrosandboxNative, Native, NetworkPolicy},
        records::Plan,
    };
    use oac_model::{Artifacts, Digest, ImageDigest, ProviderKind, Resources, RuntimeRelease, Specification};

    fn configuration(n: i64, source: &str, image: &str, store: &str) -> Configuration {
        let file = |name: &str| format!("/r/releases/{source}/{name}");
        Configuration {
            installation_id: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
            provider: ProviderKind::Microsandbox,
            core_url: "https://c/api/v1".to_owned(),
            specification: Specification {
                provider: ProviderKind::Microsandbox,
                resources: Resources {
                    cpus: 1,
                    memory_mib: 512,
                    root_disk_mib: Some(1024),
                    environment_disk_mib: Some(1024),
                },
                runtime: Some(RuntimeRelease {
                    source_commit: source.repeat(40).parse().unwrap(),
                    artifacts: Artifacts {
                        microsandbox_ref: Some(format!("oac-runtime@{}", ImageDigest::of(image))),
                        runtime_sha256: Some(Digest::of("r")),
                        firmware_sha256: Some(Digest::of("f")),
                        ..Artifacts::default()
                    },
                }),
                workspace: None,
            },
            generation: Generation::try_from(n).unwrap(),
            native: Native::Microsandbox(MicrosandboxNative {
                helper_path: file("helper"),
                runtime_path: file("msb"),
                firmware_path: file("firmware"),
                runtime_home: store.to_owned(),
                checkpoint_root: "/c".to_owned(),
                network: NetworkPolicy {
                    default_egress: Access::Allow,
                    default_ingress: Access::Deny,
                    rules: Vec::new(),
                },
            }),
        }
    }

    fn found(configuration: Configuration, state: State) -> Found {
        let plan = Plan::of(configuration.clone());
        let planned = matches!(state, State::Planned | State::Importing);
        Found {
            identity: configuration.identity(),
            state,
            configuration: (!planned).then_some(configuration),
            plan: planned.then_some(Plan {
                import_started: state == State::Importing,
                ..plan
            }),
        }
    }

    // inv: INV-N18
    #[test]
    fn files_are_used_from_planned_to_collecting_and_image_and_store_once_an_import_began() {
        let own = configuration(1, "a", "i", "/m/1");
        for state in State::ALL {
            let all = |other: Configuration| {
                let both = [found(own.clone(), State::Published), found(other, state)];
                BTreeMap::from(both.map(|found| (found.identity.generation, found)))
            };
            let files = !matches!(state, State::Unknown | State::Purging | State::Dropped);
            let native = files && state != State::Planned;
            let same = shared(&all(configuration(2, "a", "i", "/m/1")), &own);
            assert_eq!(
                (same.source, same.image, same.store),
                (files, native, native),
                "{state:?}"
            );
            assert_eq!(same.paths.len(), if files { 3 } else { 0 });
            let image = shared(&all(configuration(2, "b", "i", "/m/2")), &own);
            assert_eq!(
                (image.source, image.image, image.store),
                (false, native, false),
                "{state:?}"
            );
            let store = shared(&all(configuration(2, "b", "j", "/m/1")), &own);
            assert_eq!(
                (store.source, store.image, store.store),
                (false, false, native),
                "{state:?}"
            );
        }
        let alone = BTreeMap::from([(own.generation, found(own.clone(), State::Published))]);
        assert_eq!(shared(&alone, &own), Shared::default());
    }
}
