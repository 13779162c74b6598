//! Every test that crosses crates, and the demo, which is one of them that a person watches.
//!
//! A test here reads as a story on real parts: an installation starts, a host becomes a node, an application creates a
//! Session. What the stories need is in `oac-testkit`.

pub mod gate;
pub mod served;
pub mod story;
