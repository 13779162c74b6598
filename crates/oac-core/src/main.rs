//! `oac-core`: parse, configure, call the library, exit code.

fn main() {}
