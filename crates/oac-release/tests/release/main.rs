//! Releases from outside: what is refused, published, fetched.

#[allow(dead_code, reason = "what the tests of publishing and fetching use")]
mod made;
mod metadata;
