//! A scripted fake: a whole backend over a machine in memory, for each way in which native work can be done, with
//! everything that a backend can declare. The suite proves itself on it; every native call can meet every fault.
//!
//! It is written for that alone: shortest where a real backend is careful about speed, and with [`Defect`]s built in, each
//! a plausible mistake that one case of the suite has to catch.

mod checkpoints;
mod decide;
mod defect;
mod lifecycle;
mod machine;
mod provider;
mod restores;
mod world;

pub use defect::Defect;
pub use provider::FakeProvider;
pub use world::FakeWorld;
