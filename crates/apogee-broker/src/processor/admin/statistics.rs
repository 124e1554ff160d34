//! Statistics by name, and where groups stand in time.

use crate::dispatch::Context;
use crate::stats::Snapshot;
use apogee_protocol::bodies::{
    BrokerStatsData, BrokerStatsItem, JsonBody, MessageQueue, QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody, QueueTimeSpan,
};
use apogee_protocol::headers::{
    QueryConsumeTimeSpanRequestHeader, QueryCorrectionOffsetHeader,
    ViewBrokerStatsDataRequestHeader,
};
use apogee_protocol::{Response, ResponseCode};
use std::collections::BTreeMap;

type Handled = Result<Response, Response>;

fn item(snapshot: Snapshot) -> BrokerStatsItem {
    BrokerStatsItem {
        sum: i64::try_from(snapshot.sum).unwrap_or(i64::MAX),
        tps: snapshot.rate,
        avgpt: snapshot.average,
    }
}

/// VIEW_BROKER_STATS_DATA: one statistic over the last minute, hour and day.
pub(crate) fn view(context: &Context<'_>) -> Handled {
    let header: ViewBrokerStatsDataRequestHeader = context.header()?;
    let (name, key) = (header.stats_name.as_str(), header.stats_key.as_str());
    let Some([minute, hour, day]) = context.broker.stats.view(name, key, context.now) else {
        return Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("The stats <{name}> <{key}> not exist"),
        ));
    };
    let body = BrokerStatsData {
        stats_minute: item(minute),
        stats_hour: item(hour),
        stats_day: item(day),
    };
    Ok(Response::success().body(body.to_raw()))
}

/// QUERY_CONSUME_TIME_SPAN: the times of each queue's first and last message and of the group's position.
pub(crate) fn time_span(context: &Context<'_>) -> Handled {
    let header: QueryConsumeTimeSpanRequestHeader = context.header()?;
    let (broker, topic) = (context.broker, header.topic.as_str());
    let config = broker.topics.get(topic).ok_or_else(|| {
        Response::error(ResponseCode::TOPIC_NOT_EXIST, format!("topic[{topic}] not exist"))
    })?;
    let mut body = QueryConsumeTimeSpanBody::default();
    for queue_id in 0..config.write_queue_nums {
        let time = |offset: i64| broker.store.message_time(topic, queue_id, offset).unwrap_or(-1);
        let first = broker.store.earliest_store_time(topic, queue_id).unwrap_or(-1);
        let end = broker.store.max_offset(topic, queue_id);
        let position = broker.offsets.query(&header.group, topic, queue_id);
        let consumed = match position {
            Some(offset) if offset > 0 => time(offset - 1),
            _ => first,
        };
        let next = position.unwrap_or(0).max(broker.store.min_offset(topic, queue_id));
        body.consume_time_span_set.push(QueueTimeSpan {
            message_queue: Some(MessageQueue::new(
                topic,
                broker.config.broker_name.as_str(),
                queue_id,
            )),
            min_time_stamp: first,
            max_time_stamp: time(end - 1),
            consume_time_stamp: consumed,
            delay_time: if next < end { (context.now - time(next)).max(0) } else { 0 },
            ..QueueTimeSpan::default()
        });
    }
    Ok(Response::success().body(body.to_raw()))
}

/// QUERY_CORRECTION_OFFSET: the lowest position of any group in each queue, or the highest number where
/// the compared group is even lower. Groups of the filter do not count; the original deletes their
/// positions, which a question should not do.
pub(crate) fn correction_offset(context: &Context<'_>) -> Handled {
    let header: QueryCorrectionOffsetHeader = context.header()?;
    let (broker, topic) = (context.broker, header.topic.as_str());
    let left_out: Vec<&str> =
        header.filter_groups.as_deref().unwrap_or_default().split(',').collect();
    let mut lowest: BTreeMap<i32, i64> = BTreeMap::new();
    for group in broker.offsets.groups_of(topic) {
        if left_out.contains(&group.as_str()) {
            continue;
        }
        for (queue_id, offset) in broker.offsets.of_topic(&group, topic) {
            // What lies before the queue's begin is no position any more.
            if offset >= broker.store.min_offset(topic, queue_id) {
                lowest
                    .entry(queue_id)
                    .and_modify(|known| *known = offset.min(*known))
                    .or_insert(offset);
            }
        }
    }
    for (queue_id, offset) in broker.offsets.of_topic(&header.compare_group, topic) {
        if let Some(known) = lowest.get_mut(&queue_id).filter(|known| **known > offset) {
            *known = i64::MAX;
        }
    }
    let body = QueryCorrectionOffsetBody { correction_offsets: lowest };
    Ok(Response::success().body(body.to_raw()))
}
