//! The broker: turns remoting requests into store operations.
//!
//! Reading order: `broker` is the whole and its start and stop; `dispatch` is the table of requests;
//! `processor` has the handlers; the tables (`topics`, `groups`, `filters`, `offsets`, `clients`,
//! `queue_locks`, `long_polling`) each own one piece of state; `delay`, `pop`, `transaction`,
//! `registration` and `housekeeping` run by themselves.
//!
//! What always holds: a table's lock is never held while another table is called or across an `.await`;
//! what a document holds was loaded before it is saved.

mod broker;
mod config;
mod dispatch;
mod error;
mod processor;

mod clients;
mod filters;
mod groups;
mod long_polling;
mod offsets;
mod queue_locks;
mod send_backs;
mod topics;

mod delay;
mod housekeeping;
mod pop;
mod registration;
mod timer;
mod transaction;

mod clock;
mod live;
mod stats;
mod watermarks;

pub use broker::{Broker, Listen};
pub use clock::now_ms;
pub use config::BrokerConfig;
pub use dispatch::{Entry, Lane, TABLE, find};
pub use error::BrokerError;
pub use live::{ChangeRefused, Changed, SettingsChange};
