//! Handlers, one file for each kind of request.

pub(crate) mod admin;
pub(crate) mod client;
pub(crate) mod end_transaction;
pub(crate) mod offset;
pub(crate) mod pull;
pub(crate) mod query;
pub(crate) mod queue_lock;
pub(crate) mod recall;
pub(crate) mod reply;
pub(crate) mod send;
pub(crate) mod send_back;
pub(crate) mod send_rules;
mod storing;
pub(crate) mod timer_rules;
