//! What a release is made of: the Runtime image, built without a container engine or registry, and the files beside it.
//!
//! In go a base of Debian packages, the static `oac-runtime` and a commit; out come an archive that engines load, its
//! two digests and the part of the manifest that names them. The same input gives the same bytes (releases.md
//! section 3). This crate starts no engine and talks to no Core.

mod base;
mod image;
mod layer;
mod packages;
mod record;
mod seccomp;

pub use base::{BaseError, ensure_base};
pub use image::{BuildImage, BuiltImage, ImageError, build_image};
pub use packages::Variant;
pub use record::{ImageRecord, write_manifest};
pub use seccomp::SECCOMP_PROFILE;
