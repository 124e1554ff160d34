//! Tests of the program and of the embedded server.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected shall fail with the place"
)]

mod bench;
mod cases_process;
mod cases_routes;
mod cases_support;
mod command_line;
mod embedded;
mod life;
mod process;
mod settings;
mod timer_crash;
