//! Tests of the store through its public interface.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test binary publishes nothing, and what the tests share may fail a test by a panic"
)]

mod basics;
mod cleaning;
mod crash;
mod garbage;
mod golden;
mod inspection;
mod load;
mod model;
mod support;
mod timer;
mod timer_model;
