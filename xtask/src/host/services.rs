//! What the programs that xtask starts find in their environment.

use std::path::PathBuf;
use std::process::Command;

use super::docker::Engine;
use super::postgres::Server;
use super::runtime_image::RuntimeImage;
use super::vendor::Vendor;

/// Services and files of one run. Dropping it stops what was started.
#[derive(Default)]
pub(crate) struct Services {
    /// Before the engine: they are removed from it first.
    pub(crate) image: Option<RuntimeImage>,
    pub(crate) full_image: Option<RuntimeImage>,
    /// The root file system of test hosts.
    pub(crate) host_root: Option<PathBuf>,
    pub(crate) engine: Option<Engine>,
    pub(crate) postgres: Option<Server>,
    pub(crate) programs: Option<PathBuf>,
    pub(crate) vendor: Option<Vendor>,
    /// Two builds of the release that tests publish, in the folders `one` and `two`.
    pub(crate) releases: Option<PathBuf>,
}

impl Services {
    /// Sets `OAC_TEST_DOCKER` (`unix://` and the socket), `OAC_TEST_POSTGRES` (a URL that may create databases),
    /// `OAC_TEST_HOST_ROOT` (the root file system of test hosts), `OAC_TEST_RUNTIME_IMAGE` and
    /// `OAC_TEST_FULL_RUNTIME_IMAGE` (a JSON file each with the image's identities), `OAC_TEST_PROGRAMS` (the folder of the
    /// built programs), `OAC_TEST_RELEASES` (the folder of two builds of the release that tests publish) and `OAC_TEST_MSB` (the vendor's
    /// program), each where it is there.
    pub(crate) fn tell(&self, command: &mut Command) {
        if let Some(engine) = &self.engine {
            command.env("OAC_TEST_DOCKER", engine.address());
        }
        if let Some(server) = &self.postgres {
            command.env("OAC_TEST_POSTGRES", server.url());
        }
        if let Some(image) = &self.image {
            command.env("OAC_TEST_RUNTIME_IMAGE", image.record());
        }
        if let Some(image) = &self.full_image {
            command.env("OAC_TEST_FULL_RUNTIME_IMAGE", image.record());
        }
        if let Some(root) = &self.host_root {
            command.env("OAC_TEST_HOST_ROOT", root);
        }
        if let Some(programs) = &self.programs {
            command.env("OAC_TEST_PROGRAMS", programs);
        }
        if let Some(releases) = &self.releases {
            command.env("OAC_TEST_RELEASES", releases);
        }
        if let Some(vendor) = &self.vendor {
            command.env("OAC_TEST_MSB", &vendor.msb);
        }
    }
}
