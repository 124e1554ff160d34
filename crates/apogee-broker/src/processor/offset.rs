//! Offsets: what a group has committed, and what a queue holds.

use crate::dispatch::Context;
use apogee_model::names;
use apogee_protocol::headers::{
    BoundaryType, GetEarliestMsgStoretimeRequestHeader, GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader, GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader, QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader, SearchOffsetRequestHeader, SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader, UpdateConsumerOffsetResponseHeader,
};
use apogee_protocol::{Response, ResponseCode};

type Handled = Result<Response, Response>;

fn invalid(remark: String) -> Response {
    Response::error(ResponseCode::INVALID_PARAMETER, remark)
}

/// Refuses names and queues that can't exist before they reach a table.
fn check_queue(context: &Context<'_>, topic: &str, queue_id: i32) -> Result<(), Response> {
    names::validate_topic(topic).map_err(|error| invalid(error.to_string()))?;
    if context.broker.topics.get(topic).is_none() {
        return Err(Response::error(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist, apply first please!"),
        ));
    }
    if queue_id < 0 {
        return Err(invalid(format!("queueId[{queue_id}] is illegal, it must not be negative")));
    }
    Ok(())
}

pub(crate) fn query_consumer_offset(context: &Context<'_>) -> Handled {
    let header: QueryConsumerOffsetRequestHeader = context.header()?;
    let broker = context.broker;
    let (group, topic, queue_id) =
        (header.consumer_group.as_str(), header.topic.as_str(), header.queue_id);
    let known = broker.offsets.query(group, topic, queue_id);
    let found = match known {
        Some(offset) => Some(offset),
        None if header.set_zero_if_not_found == Some(false) => None,
        None => {
            // A queue whose first message is still there and in memory is consumed from its start:
            // so a group that meets a new queue misses nothing.
            let store = &broker.store;
            let min = store.min_offset(topic, queue_id);
            let fresh = min <= 0 && !store.is_queue_start_cold(topic, queue_id);
            (fresh && broker.topics.get(topic).is_some()).then_some(0)
        }
    };
    match found {
        Some(offset) => {
            Ok(Response::success().header(&QueryConsumerOffsetResponseHeader { offset }))
        }
        None => Err(Response::error(
            ResponseCode::QUERY_NOT_FOUND,
            "Not found, maybe this group consumer boot first",
        )),
    }
}

pub(crate) fn update_consumer_offset(context: &Context<'_>) -> Handled {
    let header: UpdateConsumerOffsetRequestHeader = context.header()?;
    let broker = context.broker;
    let (group, topic) = (header.consumer_group.as_str(), header.topic.as_str());
    if broker.groups.get_or_create(group).is_none() {
        return Err(Response::error(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{group}] does not exist"),
        ));
    }
    check_queue(context, topic, header.queue_id)?;
    // A queue beyond the topic's number may still hold messages from when there were more.
    if !broker.has_queue(topic, header.queue_id)
        && broker.store.queue(topic, header.queue_id).is_none()
    {
        return Err(invalid(format!(
            "queueId[{}] is illegal, topic[{topic}] has no such queue",
            header.queue_id
        )));
    }
    if header.commit_offset < 0 {
        return Err(invalid(format!(
            "commitOffset[{}] is illegal, it must not be negative",
            header.commit_offset
        )));
    }
    let before = broker.offsets.commit(group, topic, header.queue_id, header.commit_offset);
    if before.is_some_and(|before| header.commit_offset < before) {
        tracing::warn!(
            group, topic, queue_id = header.queue_id, before, now = header.commit_offset,
            peer = %context.connection.peer(), "a consumer moved its offset back"
        );
    }
    Ok(Response::success().header(&UpdateConsumerOffsetResponseHeader {}))
}

pub(crate) fn get_max_offset(context: &Context<'_>) -> Handled {
    let header: GetMaxOffsetRequestHeader = context.header()?;
    check_queue(context, &header.topic, header.queue_id)?;
    let offset = context.broker.store.max_offset(&header.topic, header.queue_id);
    Ok(Response::success().header(&GetMaxOffsetResponseHeader { offset }))
}

pub(crate) fn get_min_offset(context: &Context<'_>) -> Handled {
    let header: GetMinOffsetRequestHeader = context.header()?;
    check_queue(context, &header.topic, header.queue_id)?;
    let offset = context.broker.store.min_offset(&header.topic, header.queue_id);
    Ok(Response::success().header(&GetMinOffsetResponseHeader { offset }))
}

pub(crate) fn search_offset(context: &Context<'_>) -> Handled {
    let header: SearchOffsetRequestHeader = context.header()?;
    check_queue(context, &header.topic, header.queue_id)?;
    let boundary = match header.boundary_type.unwrap_or_default() {
        BoundaryType::Lower => apogee_store::Boundary::Lower,
        BoundaryType::Upper => apogee_store::Boundary::Upper,
    };
    let store = &context.broker.store;
    let offset = store.offset_by_time(&header.topic, header.queue_id, header.timestamp, boundary);
    Ok(Response::success().header(&SearchOffsetResponseHeader { offset }))
}

pub(crate) fn get_earliest_store_time(context: &Context<'_>) -> Handled {
    let header: GetEarliestMsgStoretimeRequestHeader = context.header()?;
    check_queue(context, &header.topic, header.queue_id)?;
    let store = &context.broker.store;
    let timestamp = store.earliest_store_time(&header.topic, header.queue_id).unwrap_or(-1);
    Ok(Response::success().header(&GetEarliestMsgStoretimeResponseHeader { timestamp }))
}
