//! A broker in a temporary folder, asked over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    unreachable_pub,
    missing_docs,
    reason = "a test may stop at the first surprise, and its helpers are its own"
)]

mod admin;
mod bad_input;
mod cases_bodies;
mod cases_delay;
mod cases_documents;
mod cases_durability;
mod cases_frames;
mod cases_groups;
mod cases_offsets;
mod cases_registration;
mod cases_retries;
mod cases_support;
mod cases_waking;
mod changing_settings;
mod consume;
mod delay_and_retry;
mod filters;
mod harness;
mod membership;
mod pop;
mod reply;
mod restart;
mod send;
mod stats;
mod timer;
mod transaction;
mod transaction_kit;
mod transaction_restart;
