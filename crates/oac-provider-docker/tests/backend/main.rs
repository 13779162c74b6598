//! The Docker backend against a scripted engine and against the real one.
//!
//! Both stand behind the same [`tap`], which records calls and loses, holds, refuses or falsifies them, so every case
//! runs unchanged on both. Tests of the real engine are in modules named `docker_…` and need `OAC_TEST_DOCKER`.

// Tests drive the servers they talk to.
#![allow(clippy::disallowed_methods)]

mod checks;
mod conformance;
mod create_kill_points;
mod docker_sandbox;
mod http;
mod image;
mod probe;
mod scripted;
mod scripted_engine;
mod seccomp;
mod tap;
mod world;
