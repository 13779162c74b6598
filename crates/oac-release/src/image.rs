//! The Runtime image, built without a container engine or registry (releases.md section 3).

mod archive;
mod base;
mod layer;
mod packages;
mod record;

pub use archive::{BuildImage, BuiltImage, ImageError, Standing, build_image};
pub use base::{BaseError, Form, debian, ensure_base};
pub use packages::Variant;
pub use record::{ImageRecord, write_manifest};
