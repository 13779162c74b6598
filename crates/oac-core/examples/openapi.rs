//! Prints the OpenAPI document of Core's routes; `cargo xtask tidy` compares and writes `docs/openapi.json` with it.
#![allow(clippy::print_stdout, reason = "printing it is all this does")]

fn main() -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string_pretty(&oac_core::openapi_document())?);
    Ok(())
}
