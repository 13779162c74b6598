//! What is run and killed: each arranges a host, does one thing to it, and says what must be so in the end.

#![allow(dead_code, reason = "each of its programs uses a part")]

use std::{fs, path::Path};

use oac_generations::State;
use oac_model::ProviderKind;

use crate::scene::{Scene, source};

/// Each name is what a child process is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    PrepareDocker,
    PrepareMicrosandbox,
    /// Another generation of the same source is published.
    PrepareByReuse,
    /// Published, and a file and the image are lost.
    Repair,
    CollectDocker,
    CollectMicrosandbox,
    /// Only a plan and a part of its files.
    CollectPlan,
    /// The enrolled generation, whose files the installer placed.
    CollectEnrolled,
    /// Another generation uses the same files and image.
    CollectShared,
}

impl Scenario {
    pub(crate) const ALL: [Self; 9] = [
        Self::PrepareDocker,
        Self::PrepareMicrosandbox,
        Self::PrepareByReuse,
        Self::Repair,
        Self::CollectDocker,
        Self::CollectMicrosandbox,
        Self::CollectPlan,
        Self::CollectEnrolled,
        Self::CollectShared,
    ];

    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    pub(crate) fn provider(self) -> ProviderKind {
        match self {
            Self::PrepareDocker | Self::CollectDocker => ProviderKind::Docker,
            _ => ProviderKind::Microsandbox,
        }
    }

    /// The generation that is worked on.
    pub(crate) fn generation(self) -> i64 {
        match self {
            Self::CollectEnrolled => 1,
            Self::PrepareByReuse => 3,
            _ => 2,
        }
    }

    pub(crate) fn prepares(self) -> bool {
        matches!(
            self,
            Self::PrepareDocker | Self::PrepareMicrosandbox | Self::PrepareByReuse | Self::Repair
        )
    }

    pub(crate) fn arrange(self, base: &Path) -> Scene {
        let scene = Scene::create(base, self.provider());
        let prepared = |n| scene.prepare(n).expect("prepared before");
        match self {
            Self::PrepareDocker | Self::PrepareMicrosandbox => {}
            Self::PrepareByReuse | Self::CollectDocker | Self::CollectMicrosandbox => prepared(2),
            Self::Repair => {
                prepared(2);
                let release = scene.root().join("releases").join(source(2).to_string());
                fs::remove_file(release.join("native/microsandbox/msb")).expect("lost");
                scene.outside().set_images(&[scene.image_name(1)]);
            }
            Self::CollectPlan => {
                // Cut off in the middle of a download, before any import.
                let mut left = 6;
                let result = oac_records::steps::watched(
                    move |step| {
                        let append = matches!(step, oac_records::steps::Step::Append { .. });
                        left -= i32::from(append);
                        if left > 0 {
                            oac_records::steps::Verdict::Go
                        } else {
                            oac_records::steps::Verdict::Fail
                        }
                    },
                    || scene.prepare(2),
                );
                assert!(result.is_err());
                assert_eq!(scene.state(2), State::Planned);
            }
            Self::CollectEnrolled => prepared(4),
            Self::CollectShared => {
                prepared(2);
                prepared(3);
            }
        }
        scene
    }

    /// The thing that is done, and done again after it was killed.
    pub(crate) fn act(self, scene: &Scene) -> Result<(), Box<dyn std::error::Error>> {
        let n = self.generation();
        if self.prepares() {
            scene.prepare(n)?;
        } else {
            scene.collect(n)?;
        }
        Ok(())
    }
}
