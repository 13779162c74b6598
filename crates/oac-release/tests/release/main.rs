//! Releases from outside: what is refused, published, fetched.

mod bundle;
mod fetching;
mod killing;
mod metadata;
mod publishing;
mod random_server;
mod server;
mod shelf;
