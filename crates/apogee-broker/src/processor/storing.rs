//! Storing a single message for a request, and waiting for its flush.

use crate::broker::Broker;
use crate::processor::send_rules;
use apogee_model::record::RecordFields;
use apogee_protocol::{Response, ResponseCode};
use apogee_store::{Appending, Placed};
use std::time::Duration;

/// Appends one message, or answers why the store did not take it.
pub(crate) fn append_one(
    broker: &Broker,
    fields: RecordFields<'_>,
    now: i64,
) -> Result<Placed, Response> {
    let mut batch = [Appending::new(fields)];
    let _ = broker.store.append(&mut batch, now);
    match batch.into_iter().next().and_then(|item| item.outcome) {
        Some(Ok(placed)) => Ok(placed),
        Some(Err(error)) => Err(send_rules::refused_by_store(&error)),
        None => Err(Response::error(ResponseCode::SYSTEM_ERROR, "the store gave no answer")),
    }
}

/// Whether the log is as safe up to `end` as the flush mode promises, waiting at most
/// `syncFlushTimeout` for that.
pub(crate) async fn is_kept(broker: &Broker, end: i64) -> bool {
    if !broker.store.is_sync_flush() {
        return true;
    }
    let limit = Duration::from_millis(broker.store.config().sync_flush_timeout);
    matches!(tokio::time::timeout(limit, broker.store.flushed().wait(end)).await, Ok(Ok(_)))
}
