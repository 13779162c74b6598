//! The installer, run as root on a scratch host against the host's own Docker Engine and a scripted Core. What needs a
//! real account data base and a real systemd is proven on hosts of their own.

mod core;
mod doctor;
mod engine;
mod installing;
mod interrupted;
mod refusing;
mod removing;
mod scratch;
mod unfinished;
mod world;
