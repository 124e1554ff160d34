//! Name server: the route table and its requests.
//!
//! The table ([`RouteTable`]) is a pure machine; [`NamesrvProcessor`] turns requests into its events and its
//! answers into responses; [`NameServer`] is the shell with sockets, clock and worker.

mod config;
mod document;
mod kv_config;
mod requests;
mod route_table;
mod routes;
mod server;

#[cfg(test)]
mod invariants;

pub use config::{ConfigError, NamesrvConfig};
pub use kv_config::{KvConfig, KvError, MAX_ENTRIES, ORDER_TOPIC_CONFIG};
pub use requests::{NamesrvProcessor, Peer, is_change};
pub use route_table::{
    Command, DEFAULT_TIMEOUT_MS, MAX_BROKERS, MAX_TOPICS, Policy, RegisterError, Registered,
    Registration, RouteTable,
};
pub use server::{NameServer, StartError};
