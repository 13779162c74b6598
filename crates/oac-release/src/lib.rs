//! What a release is, and everything that happens to one: what it may hold, how it is built, published, kept, fetched
//! and put on a node (releases.md).
//!
//! | module | in | out |
//! | --- | --- | --- |
//! | [`manifest`], [`metadata`], [`index`], [`layout`] | bytes | a release that can no longer be wrong, or why it is none; pure |
//! | [`command`] | a Core, its index, a token | what an operator pastes on a host; pure |
//! | [`source`], [`bundle`], [`fetch`] with the feature `fetch` | a commit, a server or a folder | verified metadata, bytes that are not trusted yet |
//! | [`payload`], [`progress`] | artifacts and a source | files on a node, each complete and true |
//! | [`store`] | a release directory, what is kept already | a release published whole or not at all; what Core may serve |
//! | [`assemble`], with the feature `image` | programs, an image, a commit | a release directory that a publisher takes |
//! | [`image`], with the feature `image` | a base of Debian packages, the static `oac-runtime`, a commit | an archive that engines load, and its two digests |
//!
//! A text is judged in one place, [`metadata::Metadata::parse`], for publisher, Core and reader alike. The same input
//! builds the same bytes. This crate starts no engine.

#[cfg(feature = "image")]
pub mod assemble;
pub mod bundle;
pub mod command;
#[cfg(feature = "fetch")]
pub mod fetch;
mod folder;
#[cfg(feature = "image")]
pub mod image;
pub mod index;
pub mod layout;
pub mod limits;
#[cfg(feature = "made")]
pub mod made;
pub mod manifest;
pub mod metadata;
pub mod pace;
pub mod payload;
pub mod progress;
mod seccomp;
pub mod source;
pub mod store;

pub use seccomp::SECCOMP_PROFILE;
