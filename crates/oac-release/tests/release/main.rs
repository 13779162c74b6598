//! Releases from outside: what is refused, published, fetched.

mod asking;
mod assembling;
mod building;
mod bundle;
mod fetching;
mod killing;
mod loading;
mod metadata;
mod publishing;
mod random_server;
mod reader;
mod server;
mod shelf;
