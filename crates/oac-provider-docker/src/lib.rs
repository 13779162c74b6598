//! The Docker backend: one reference becomes one container and two volumes on the host's own Docker Engine
//! (providers.md section 6).
//!
//! In go the contract's operations, out come its answers; between them HTTP to the engine's socket. Ownership is four
//! labels. This crate never adopts what it did not make, never removes an image or a network, and never lets an
//! engine's text leave the node in an answer.

mod command;
mod config;
mod create;
mod decide;
mod engine;
mod host;
mod image;
mod inventory;
mod kill;
mod names;
mod observe;
mod options;
mod probe;
mod provider;
mod sweep;

pub use config::{ConfigError, DockerConfig};
pub use host::{
    HostEngine, HostEngineError, create_network, describe, holds_containers, network_labels, remove_network,
};
pub use image::{ImageError, find_image, load_image};
pub use provider::{Clock, DockerProvider, DockerSetup, EngineIdError, SetupError, engine_id, registered};
