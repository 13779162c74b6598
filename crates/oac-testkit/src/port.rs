//! Ports for programs that bind them themselves.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::{IpAddr, TcpListener},
    ops::Range,
};

/// Below what Linux gives to outgoing connections and to servers that ask for any port: nobody takes one of these by
/// chance between the look and the program's own bind.
const RANGE: Range<u16> = 20_000..32_000;
/// A machine on which so many in a row are taken has another trouble.
const TRIES: usize = 50;

/// A port of `address` that is free now.
pub fn unused(address: IpAddr) -> io::Result<u16> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..TRIES {
        let random = RandomState::new().hash_one(address) % u64::from(RANGE.end - RANGE.start);
        let port = RANGE.start + random as u16;
        match TcpListener::bind((address, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}
