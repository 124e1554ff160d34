//! LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: orderly members take queues.

use crate::dispatch::Context;
use apogee_model::names;
use apogee_protocol::bodies::{JsonBody, LockBatchRequestBody, LockBatchResponseBody};
use apogee_protocol::{Response, ResponseCode};

fn parse(context: &Context<'_>) -> Result<(String, String, LockBatchRequestBody), Response> {
    let mut body: LockBatchRequestBody = context.body()?;
    let missing = |field: &str| {
        Response::error(
            ResponseCode::INVALID_PARAMETER,
            format!("the body's field {field} is missing"),
        )
    };
    let group = body
        .consumer_group
        .take()
        .filter(|text| !text.is_empty())
        .ok_or_else(|| missing("consumerGroup"))?;
    let client =
        body.client_id.take().filter(|text| !text.is_empty()).ok_or_else(|| missing("clientId"))?;
    names::validate_group(&group)
        .map_err(|error| Response::error(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
    Ok((group, client, body))
}

/// Answers the queues that the client now holds.
pub(crate) fn lock_batch(context: &Context<'_>) -> Result<Response, Response> {
    let (group, client, body) = parse(context)?;
    let broker = context.broker;
    let held = body
        .mq_set
        .into_iter()
        // A lock on a queue that is not here would only take memory.
        .filter(|queue| broker.has_queue(&queue.topic, queue.queue_id))
        .filter(|queue| {
            broker.locks.try_lock(&group, &queue.topic, queue.queue_id, &client, context.now)
        })
        .collect();
    Ok(Response::success().body(LockBatchResponseBody { lock_ok_mq_set: held }.to_raw()))
}

/// Frees queues that the client holds.
pub(crate) fn unlock_batch(context: &Context<'_>) -> Result<Response, Response> {
    let (group, client, body) = parse(context)?;
    for queue in body.mq_set {
        context.broker.locks.unlock(&group, &queue.topic, queue.queue_id, &client);
    }
    Ok(Response::success())
}
