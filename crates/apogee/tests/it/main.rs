//! Tests of the program and of the embedded server.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected shall fail with the place"
)]

mod bench;
mod command_line;
mod embedded;
mod life;
mod process;
mod settings;
