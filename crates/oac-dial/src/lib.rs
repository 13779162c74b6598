//! How bytes reach a server: TCP, through the CONNECT of a proxy where the environment names one, TLS where the address
//! is https, and one HTTP/1.1 exchange on it.
//!
//! In go an address, what surrounds the process and a request; out comes an answer, read whole up to a limit, opened to
//! be read as it arrives, or handed over to another protocol. This crate follows no redirect, retries nothing, keeps no
//! connection and measures no time: whoever asks does. Nothing of a credential, the proxy's included, is in an error.

mod origin;
mod surroundings;
mod way;

pub use origin::{Origin, ParseOriginError};
pub use surroundings::{Surroundings, tls};
pub use way::{Answer, Arriving, ReachError, Rest, Way, request_to};
