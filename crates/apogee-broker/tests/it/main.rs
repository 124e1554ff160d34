//! A broker in a temporary folder, asked over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

mod admin;
mod bad_input;
mod consume;
mod delay_and_retry;
mod harness;
mod membership;
mod restart;
mod send;
