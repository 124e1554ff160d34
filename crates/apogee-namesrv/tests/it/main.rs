//! The name server against captured traffic of the original, and case by case.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something unexpected should stop right there"
)]

mod cases;
mod golden;
mod server;
mod support;
