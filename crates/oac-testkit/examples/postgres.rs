//! Runs a private PostgreSQL server until its standard input ends, and prints its URL: for one test at a time.

use oac_testkit::postgres::{Durability, PrivateServer};

#[allow(clippy::print_stdout)] // The URL is this program's answer.
fn main() -> Result<(), oac_testkit::postgres::ServerError> {
    let durability = match std::env::args().nth(1).as_deref() {
        Some("real") => Durability::Real,
        _ => Durability::Fast,
    };
    let server = PrivateServer::start(durability)?;
    println!("{}", server.url());
    let _ = std::io::stdin().lines().count();
    Ok(())
}
