//! The HTTP edge: one table of routes, one order of checks, one error envelope (core.md section 4).
//!
//! A request passes, in this order: ownership (503 `core_standby`), route and method (404, 405), credential (401), body
//! size (413) and media type (415), strict body and query (400), target object (404), then the route's own checks and
//! its write with its audit entry. The first four are done by the table for every route; the extractors of `strict` and
//! `target` do the next ones, which is why handlers call [`target::Target::id`] only after they took query and body.

pub mod auth;
pub mod console;
pub mod error;
mod gate;
pub mod limits;
mod names;
pub(crate) mod operator;
pub mod page;
mod rest;
pub mod router;
pub mod serve;
pub(crate) mod stall;
pub mod strict;
pub mod target;
pub mod tls;

pub use error::ApiError;
pub use names::check_name;
