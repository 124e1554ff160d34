//! ApogeeMQ: a RocketMQ-compatible message server in one binary.
pub mod settings;
