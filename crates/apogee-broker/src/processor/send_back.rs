//! CONSUMER_SEND_MSG_BACK: a member could not consume a message and gets it again later, or never.
//!
//! The copy goes to the group's retry topic by way of a delay level that grows with each attempt; after
//! the last attempt it goes to the dead-letter topic at once. What always holds: SUCCESS means that the
//! flush mode's promise holds for the copy, because the member then moves its offset past the message.

use crate::broker::Broker;
use crate::dispatch::Context;
use crate::processor::send_rules::{self, PERM_READ, PERM_WRITE, Target};
use crate::processor::storing;
use apogee_model::PropertyMap;
use apogee_model::id::OffsetId;
use apogee_model::names;
use apogee_model::properties::keys;
use apogee_model::record::{RecordFields, RecordView};
use apogee_net::Connection;
use apogee_protocol::bodies::SubscriptionGroupConfig;
use apogee_protocol::headers::ConsumerSendMsgBackRequestHeader;
use apogee_protocol::{RemotingCommand, Response, ResponseCode, Str};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The first retry waits as long as this delay level says.
const FIRST_RETRY_LEVEL: i32 = 3;

type Handled = Result<Response, Response>;

/// Stores the copy where reading the message may wait for the disk, then waits for its flush.
pub(crate) fn serve(
    broker: Arc<Broker>,
    connection: Arc<Connection>,
    request: RemotingCommand,
) -> Pin<Box<dyn Future<Output = Handled> + Send>> {
    Box::pin(async move {
        let worker = Arc::clone(&broker);
        let stored = tokio::task::spawn_blocking(move || {
            let now = crate::clock::now_ms();
            let context =
                Context { broker: &worker, connection: &connection, request: &request, now };
            store(&context)
        });
        let failed = |error: tokio::task::JoinError| {
            Response::error(ResponseCode::SYSTEM_ERROR, format!("the copy was not stored: {error}"))
        };
        let Some(end) = stored.await.map_err(failed)?? else {
            return Ok(Response::success());
        };
        if storing::is_kept(&broker, end).await {
            return Ok(Response::success());
        }
        let limit = broker.store.config().sync_flush_timeout;
        Err(Response::error(
            ResponseCode::FLUSH_DISK_TIMEOUT,
            format!("stored, but not flushed to disk within syncFlushTimeout ({limit} ms)"),
        ))
    })
}

/// Stores the copy; answers the log position behind it, or `None` if nothing had to be stored.
fn store(context: &Context<'_>) -> Result<Option<i64>, Response> {
    let header: ConsumerSendMsgBackRequestHeader = context.header()?;
    let broker = context.broker;
    let group = header.group.as_str();
    let config = broker.groups.get_or_create(group).ok_or_else(|| {
        Response::error(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group not exist, {group}"),
        )
    })?;
    if broker.permission() & PERM_WRITE == 0 {
        let address = broker.config.address();
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            format!("the broker[{address}] sending message is forbidden"),
        ));
    }
    if config.retry_queue_nums <= 0 {
        return Ok(None);
    }
    let bytes =
        broker.store.get_by_physical_offset(header.offset, None).ok().flatten().ok_or_else(
            || {
                Response::error(
                    ResponseCode::SYSTEM_ERROR,
                    format!("look message by offset failed, {}", header.offset),
                )
            },
        )?;
    let record = RecordView::parse(&bytes)
        .map_err(|error| Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
    if !broker.send_backs.first(group, header.offset, context.now) {
        return Ok(None);
    }
    let stored = store_copy(broker, &header, &config, &record, context.now);
    if stored.is_err() {
        broker.send_backs.forget(group, header.offset);
    }
    stored.map(Some)
}

fn store_copy(
    broker: &Broker,
    header: &ConsumerSendMsgBackRequestHeader,
    config: &SubscriptionGroupConfig,
    record: &RecordView<'_>,
    now: i64,
) -> Result<i64, Response> {
    let group = header.group.as_str();
    let mut properties = PropertyMap::parse(record.properties().as_bytes());
    if properties.get(keys::RETRY_TOPIC).is_none() {
        properties.set(keys::RETRY_TOPIC, record.topic());
    }
    properties.set(keys::WAIT, "false");
    if properties.get(keys::ORIGIN_MESSAGE_ID).is_none_or(str::is_empty) {
        let id = OffsetId { host: record.store_host(), physical_offset: record.physical_offset() };
        properties.set(keys::ORIGIN_MESSAGE_ID, id.to_string());
    }
    let limit = header.max_reconsume_times.unwrap_or(config.retry_max_times);
    let dead = record.reconsume_times() >= limit || header.delay_level < 0;
    let (topic, queues) = if dead {
        (names::dlq_topic(group), 1)
    } else {
        (names::retry_topic(group), config.retry_queue_nums)
    };
    let topic_config =
        broker.topics.create_internal(&topic, queues, PERM_READ | PERM_WRITE).ok_or_else(|| {
            Response::error(ResponseCode::SYSTEM_ERROR, format!("topic[{topic}] not exist"))
        })?;
    broker.register_soon();
    if topic_config.perm & PERM_WRITE == 0 {
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            format!("the topic[{topic}] sending message is forbidden"),
        ));
    }
    let queue_id = send_rules::random_queue(topic_config.write_queue_nums.min(queues));
    let mut target = Target {
        topic: Str::from(topic),
        queue_id,
        answer_queue_id: queue_id,
        sys_flag: record.sys_flag(),
    };
    properties.remove(keys::DELAY);
    if dead {
        // At once: the delay of the last retry must not hold the dead letter back.
        tracing::info!(
            group,
            topic = record.topic(),
            times = record.reconsume_times(),
            "message goes to the dead letters"
        );
    } else {
        let level = match header.delay_level {
            0 => FIRST_RETRY_LEVEL.saturating_add(record.reconsume_times()),
            level => level,
        };
        send_rules::delay(broker, &mut properties, &mut target, level);
    }
    let encoded = properties.encode();
    let fields = RecordFields {
        topic: &target.topic,
        queue_id: target.queue_id,
        sys_flag: target.sys_flag,
        store_host: broker.store_host,
        reconsume_times: record.reconsume_times().saturating_add(1),
        prepared_transaction_offset: 0,
        properties: &encoded,
        ..record.fields()
    };
    let placed = storing::append_one(broker, fields, now)?;
    count(broker, group, &target, record.body().len(), now);
    Ok(placed.end())
}

/// Counts the copy, and for the group that it sent a message back.
fn count(broker: &Broker, group: &str, target: &Target, bytes: usize, now: i64) {
    let topic = target.topic.as_str();
    let is_system = || broker.topics.is_system(topic);
    broker.stats.put_one(topic, target.queue_id, bytes, now, is_system);
    broker.stats.sent_back(group, topic, now, is_system);
}
