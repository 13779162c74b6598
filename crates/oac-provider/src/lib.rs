//! The contract between the node system and a sandbox backend: the trait, the outcome taxonomy, what a backend must
//! declare, and the suite every backend runs (providers.md sections 1 to 5).
//!
//! A reference and an operation go in; a typed result, or a failure that says what it proves, comes out. This crate
//! knows no backend.

mod contract;

pub use contract::*;
