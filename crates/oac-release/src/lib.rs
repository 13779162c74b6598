//! What a release is made of.

mod seccomp;

pub use seccomp::SECCOMP_PROFILE;
