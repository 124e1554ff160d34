//! Golden frames and documents of the original, and property tests.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something unexpected should stop right there"
)]

mod bodies;
mod documents;
mod entries;
mod fixtures;
mod frames;
mod headers;
mod hostile;
