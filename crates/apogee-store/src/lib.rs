//! The log-structured message store, byte-compatible with RocketMQ's files.
