//! Releases from outside: what is refused, published, fetched.

mod bundle;
mod fetching;
#[allow(dead_code, reason = "what the tests of publishing and fetching use")]
mod made;
mod metadata;
mod random_server;
mod server;
