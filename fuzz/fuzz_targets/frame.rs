//! Bytes from a connection: frames, headers of both kinds, the two JSON header readers against each other.
//!
//! The property tests of apogee-protocol call the same function on a stable compiler.
#![no_main]

#[path = "../../crates/apogee-protocol/tests/it/entries.rs"]
#[allow(dead_code, reason = "each target uses one entry")]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::frame(bytes));
