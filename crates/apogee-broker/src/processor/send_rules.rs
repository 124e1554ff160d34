//! Where a message goes: checks of topic, permission and queue, and the turns to retry, dead-letter and
//! delay topics.

use crate::broker::Broker;
use crate::processor::send::Scan;
use crate::transaction;
use apogee_model::names::{self, DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC};
use apogee_model::properties::{PropertyMap, keys};
use apogee_model::sys_flag;
use apogee_net::Connection;
use apogee_protocol::bodies::TopicFilterType;
use apogee_protocol::headers::SendMessageHeader;
use apogee_protocol::{Response, ResponseCode, Str};
use apogee_store::AppendError;

/// From this version ordinal on a client's own retry limit counts.
const V3_4_9: i32 = 121;
/// Permission bit: readable.
pub(crate) const PERM_READ: i32 = 4;
/// Permission bit: writable.
pub(crate) const PERM_WRITE: i32 = 2;
/// Permission bit: new topics may take these settings.
pub(crate) const PERM_INHERIT: i32 = 1;

/// Where a record is stored, and which queue the sender is told.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) topic: Str,
    pub(crate) queue_id: i32,
    /// The queue in the answer: the real one even while the message waits in a system topic.
    pub(crate) answer_queue_id: i32,
    pub(crate) sys_flag: i32,
}

pub(crate) fn illegal(reason: &str) -> Response {
    Response::error(ResponseCode::MESSAGE_ILLEGAL, format!("the message is illegal: {reason}"))
}

/// The answer for a message that the store did not take.
pub(crate) fn refused_by_store(error: &AppendError) -> Response {
    let code = match error {
        AppendError::TooLarge { .. } | AppendError::Illegal(_) | AppendError::Unsupported(_) => {
            ResponseCode::MESSAGE_ILLEGAL
        }
        _ => ResponseCode::SERVICE_NOT_AVAILABLE,
    };
    Response::error(code, error.to_string())
}

/// Checks a send up to its queue, creating the topic where that is allowed.
pub(crate) fn check(
    broker: &Broker,
    connection: &Connection,
    header: &SendMessageHeader,
) -> Result<Target, Response> {
    let topic = header.topic.as_str();
    if broker.permission() & PERM_WRITE == 0 {
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            format!("the broker[{}] sending message is forbidden", broker.config.address()),
        ));
    }
    let config = match broker.topics.get(topic) {
        Some(config) => config,
        None => find_or_create(broker, connection, header)?,
    };
    if names::NOT_ALLOWED_TO_SEND.contains(&topic) {
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            format!("Sending message to topic[{topic}] is forbidden."),
        ));
    }
    if config.perm & PERM_WRITE == 0 {
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            format!("the topic[{topic}] is not writable, its permission is {}", config.perm),
        ));
    }
    let queues = config.write_queue_nums.max(config.read_queue_nums);
    if header.queue_id >= queues {
        return Err(Response::error(
            ResponseCode::INVALID_PARAMETER,
            format!(
                "request queueId[{}] is illegal, topic[{topic}] has {queues} queues. Producer: {}",
                header.queue_id,
                connection.peer()
            ),
        ));
    }
    let queue_id = match header.queue_id {
        id if id >= 0 => id,
        _ => random_queue(config.write_queue_nums),
    };
    let mut flags = header.sys_flag;
    if config.topic_filter_type == TopicFilterType::MultiTag {
        flags |= sys_flag::MULTI_TAGS;
    }
    Ok(Target { topic: header.topic.clone(), queue_id, answer_queue_id: queue_id, sys_flag: flags })
}

fn find_or_create(
    broker: &Broker,
    connection: &Connection,
    header: &SendMessageHeader,
) -> Result<std::sync::Arc<apogee_protocol::bodies::TopicConfig>, Response> {
    let topic = header.topic.as_str();
    names::validate_topic(topic)
        .map_err(|error| Response::error(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
    let made = broker.topics.create_by_send(
        topic,
        &header.default_topic,
        header.default_topic_queue_nums,
        connection.peer(),
    );
    let made = match made {
        None if topic.starts_with(RETRY_PREFIX) => {
            broker.topics.create_internal(topic, 1, PERM_READ | PERM_WRITE)
        }
        other => other,
    };
    if made.is_some() {
        broker.register_soon();
    }
    made.ok_or_else(|| {
        Response::error(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist, apply first please!"),
        )
    })
}

/// A queue for who does not care.
pub(crate) fn random_queue(queues: i32) -> i32 {
    fastrand::i32(0..queues.max(1))
}

/// Applies retry limits, delay levels and what this release refuses. Answers the properties if they
/// had to change.
pub(crate) fn retarget(
    broker: &Broker,
    header: &SendMessageHeader,
    client_version: i32,
    target: &mut Target,
    raw: &[u8],
    scan: &Scan<'_>,
) -> Result<Option<Vec<u8>>, Response> {
    let mut edited: Option<PropertyMap> = None;
    if let Some(group) = header.topic.strip_prefix(RETRY_PREFIX)
        && to_dead_letters(broker, header, client_version, group)?
    {
        let topic = format!("{DLQ_PREFIX}{group}");
        let config = broker.topics.create_internal(&topic, 1, PERM_READ | PERM_WRITE);
        broker.register_soon();
        target.queue_id = random_queue(config.map_or(1, |config| config.write_queue_nums));
        target.answer_queue_id = target.queue_id;
        target.topic = Str::from(topic);
        // At once: the delay of the last retry must not hold the dead letter back.
        let mut map = PropertyMap::parse(raw);
        map.remove(keys::DELAY);
        return Ok(Some(map.encode()));
    }
    // A retry that an old client sends itself carries the property of the message it retries.
    let retry = header.reconsume_times.unwrap_or(0) > 0 && scan.delay_level > 0;
    if scan.transaction && !retry {
        if scan.timer {
            return Err(illegal(
                "a half message cannot have an arbitrary delay: use a delay level",
            ));
        }
        let map = edited.get_or_insert_with(|| PropertyMap::parse(raw));
        half(broker, map, target)?;
    } else if sys_flag::transaction_type(target.sys_flag) == sys_flag::TRANSACTION_PREPARED {
        return Err(illegal(
            "its sysFlag says half message, but property TRAN_MSG is not \"true\"",
        ));
    } else if scan.delay_level > 0 {
        let map = edited.get_or_insert_with(|| PropertyMap::parse(raw));
        delay(broker, map, target, scan.delay_level);
    } else if scan.timer {
        let map = edited.get_or_insert_with(|| PropertyMap::parse(raw));
        super::timer_rules::transform(broker, map, target, crate::clock::now_ms())?;
    }
    Ok(edited.map(|map| map.encode()))
}

/// Turns a message to the half queue, if half messages are taken.
fn half(broker: &Broker, map: &mut PropertyMap, target: &mut Target) -> Result<(), Response> {
    if broker.live.reject_transaction_message() {
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            format!(
                "the broker[{}] sending transaction message is forbidden (rejectTransactionMessage)",
                broker.config.broker_ip1
            ),
        ));
    }
    let (waiting, limit) =
        (broker.transactions.waiting(&broker.store), broker.config.max_pending_transactions);
    if waiting >= limit {
        return Err(Response::error(
            ResponseCode::SYSTEM_BUSY,
            format!(
                "[OVERLOAD]{waiting} half messages wait for their end, {limit} may: commit or roll back first"
            ),
        ));
    }
    transaction::to_half(map, target);
    Ok(())
}

/// Turns a message to the delay topic; `map` gets what brings it back.
pub(crate) fn delay(broker: &Broker, map: &mut PropertyMap, target: &mut Target, level: i32) {
    let level = level.clamp(1, broker.delay_levels());
    for key in [keys::TIMER_DELAY_SEC, keys::TIMER_DELAY_MS, keys::TIMER_DELIVER_MS] {
        map.remove(key);
    }
    map.set(keys::DELAY, level.to_string());
    map.set(keys::REAL_TOPIC, target.topic.as_str());
    map.set(keys::REAL_QID, target.queue_id.to_string());
    target.topic = Str::from_static(SCHEDULE_TOPIC);
    target.queue_id = level - 1;
}

/// Whether a retry that a client sends itself has had its chances.
fn to_dead_letters(
    broker: &Broker,
    header: &SendMessageHeader,
    client_version: i32,
    group: &str,
) -> Result<bool, Response> {
    let Some(config) = broker.groups.get_or_create(group) else {
        return Err(Response::error(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group not exist, {group}"),
        ));
    };
    let told = header.max_reconsume_times.filter(|_| client_version >= V3_4_9);
    let limit = told.unwrap_or(config.retry_max_times);
    let times = header.reconsume_times.unwrap_or(0);
    let orderly = broker.locks.any_alive(group, crate::clock::now_ms());
    Ok(orderly || times > limit)
}
