//! Server and client over real sockets, with a service that does what the request's code says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

mod client;
mod server;
mod support;
