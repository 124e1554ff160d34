//! ApogeeMQ: a RocketMQ-compatible message server in one binary.
pub mod cli;
mod bench;
mod requests;
pub mod settings;
