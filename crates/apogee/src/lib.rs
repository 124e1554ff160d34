//! ApogeeMQ: a RocketMQ-compatible message server in one binary.
//!
//! The library half is [`Server`], the embedded server: name server and broker in this process, on free
//! ports, in a folder, for tests and for programs that bring their own broker.
//!
//! ```no_run
//! # async fn example() -> Result<(), apogee::ServerError> {
//! let server = apogee::Server::start(apogee::ServeOptions::new("data")).await?;
//! println!("{}", server.namesrv_addr());
//! server.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Reading order: `settings` (every key of the original), `server` (the parts wired together), `cli` (the
//! commands), `requests` (what the commands ask brokers), `bench` (load generators).

pub mod settings;

mod server;

pub mod cli;

mod bench;
mod requests;

pub use server::{ServeOptions, Server, ServerError};
