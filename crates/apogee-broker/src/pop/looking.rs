//! PEEK_MESSAGE, NOTIFICATION and POLLING_INFO: requests that look and take nothing.

use super::polling::Parked;
use super::popping::{self, PopRequest, check};
use crate::dispatch::Context;
use crate::processor::pull::Outcome;
use apogee_model::TagFilter;
use apogee_protocol::headers::{
    NotificationRequestHeader, PeekMessageRequestHeader, PollingInfoRequestHeader,
    PollingInfoResponseHeader, PopMessageResponseHeader,
};
use apogee_protocol::{Body, ReplyTo, Response, ResponseCode, Str};
use apogee_store::{GetStatus, ReadRequest};
use std::sync::Arc;

type Handled = Result<Response, Response>;

/// Most messages of a peek, as of a pop.
const MAX_MESSAGES: usize = 32;
/// Longest time that a client may ask a notification to wait (ms).
const MAX_POLL_MS: i64 = 120_000;

/// PEEK_MESSAGE: what the next pop would find, from the topic and the group's retries of it.
pub(crate) fn peek(context: &Context<'_>) -> Handled {
    let header: PeekMessageRequestHeader = context.header()?;
    let (broker, topic, group) =
        (context.broker, header.topic.as_str(), header.consumer_group.as_str());
    let queues = check(context, topic, group, header.queue_id, "peeking")?;
    let max = usize::try_from(header.max_msg_nums).unwrap_or(0).clamp(1, MAX_MESSAGES);
    let mut places: Vec<(String, i32)> = Vec::new();
    for (_, retry) in popping::retry_topics(broker, topic, group) {
        let count = broker.topics.get(&retry).map_or(0, |config| config.read_queue_nums);
        places.extend((0..count).map(|queue_id| (retry.clone(), queue_id)));
    }
    let wanted = if header.queue_id < 0 { 0..queues } else { header.queue_id..header.queue_id + 1 };
    places.extend(wanted.map(|queue_id| (topic.to_owned(), queue_id)));
    let (mut slices, mut count, mut rest) = (Vec::new(), 0, 0);
    for (topic, queue_id) in &places {
        let known = broker.offsets.query(group, topic, *queue_id);
        let offset = known.unwrap_or_else(|| broker.store.min_offset(topic, *queue_id));
        if count >= max {
            rest += (broker.store.max_offset(topic, *queue_id) - offset).max(0);
            continue;
        }
        let request = ReadRequest {
            topic,
            queue_id: *queue_id,
            offset,
            max_num: max - count,
            max_bytes: usize::MAX,
            filter: &TagFilter::All,
        };
        let plan = broker.store.plan_read(&request);
        if plan.status == GetStatus::Found {
            count += plan.message_count;
            slices.extend(plan.slices);
        }
        rest += (plan.max_offset - plan.next_begin_offset).max(0);
    }
    let answer = PopMessageResponseHeader { rest_num: rest, ..PopMessageResponseHeader::default() };
    if count == 0 {
        let remark = Str::from_static("NO_MESSAGE_IN_QUEUE");
        return Ok(Response::new(ResponseCode::PULL_NOT_FOUND).header(&answer).remark(remark));
    }
    let bytes = slices.iter().map(bytes::Bytes::len).sum();
    broker.stats.popped(group, topic, (count, bytes), || broker.topics.is_system(topic));
    Ok(Response::success()
        .header(&answer)
        .remark(Str::from_static("FOUND"))
        .body(Body::Many(slices)))
}

/// NOTIFICATION: tells when a pop would find something.
pub(crate) fn notification(context: &Context<'_>) -> Outcome {
    match notification_of(context) {
        Ok(parked) => popping::look_where_it_may_wait(context.broker, parked, context.now),
        Err(refusal) => Outcome::Now(refusal),
    }
}

fn notification_of(context: &Context<'_>) -> Result<Parked, Response> {
    let header: NotificationRequestHeader = context.header()?;
    let (topic, group) = (header.topic.as_str(), header.consumer_group.as_str());
    check(context, topic, group, header.queue_id, "peeking")?;
    let request = PopRequest {
        retry_topics: popping::retry_topics(context.broker, topic, group),
        queue_id: header.queue_id.max(-1),
        is_notification: true,
        order: header.order.unwrap_or(false),
        attempt: header.attempt_id,
        max: 1,
        invisible_ms: 0,
        init_mode: 0,
        filter: Arc::new(TagFilter::All),
        topic: header.topic,
        group: header.consumer_group,
    };
    let deadline_ms = context.now.saturating_add(header.poll_time.clamp(0, MAX_POLL_MS));
    Ok(popping::parked(context.connection, ReplyTo::from(context.request), request, deadline_ms))
}

/// POLLING_INFO: how many pops of a group wait.
pub(crate) fn polling_info(context: &Context<'_>) -> Handled {
    let header: PollingInfoRequestHeader = context.header()?;
    let (topic, group) = (header.topic.as_str(), header.consumer_group.as_str());
    check(context, topic, group, header.queue_id, "peeking")?;
    let waiting = context.broker.pop.polling.waiting(topic, group, header.queue_id);
    let answer =
        PollingInfoResponseHeader { polling_num: i32::try_from(waiting).unwrap_or(i32::MAX) };
    Ok(Response::success().header(&answer))
}
