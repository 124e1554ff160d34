//! PULL_MESSAGE and LITE_PULL_MESSAGE, with long polling.
//!
//! A pull that finds nothing waits in `long_polling` until a message arrives or its time is up; then
//! `deliver` reads again. What always holds: a pull is answered exactly once; the answered next offset
//! never skips a message that matches.

use crate::broker::Broker;
use crate::clients::Subscription;
use crate::filters::{Missing, is_tag_type};
use crate::long_polling::ParkedPull;
use crate::processor::client::check_supported;
use crate::processor::send_rules::PERM_READ;
use crate::stats::Counts;
use apogee_model::sql::Expression;
use apogee_model::{MessageFilter, TagFilter};
use apogee_net::Connection;
use apogee_protocol::bodies::{SubscriptionGroupConfig, TopicConfig};
use apogee_protocol::headers::{PullMessageRequestHeader, PullMessageResponseHeader};
use apogee_protocol::{Body, RemotingCommand, ReplyTo, Response, ResponseCode, Str};
use apogee_store::{GetStatus, ReadPlan, ReadRequest};
use std::sync::Arc;

const FLAG_COMMIT_OFFSET: i32 = 0x1;
const FLAG_SUSPEND: i32 = 0x2;
const FLAG_SUBSCRIPTION: i32 = 0x4;
/// Longest time that a client may ask an empty pull to wait (ms).
const MAX_SUSPEND_MS: i64 = 120_000;

/// A pull that passed all checks, ready to be read again and again.
pub(crate) struct PullRequest {
    /// Topic.
    pub(crate) topic: Str,
    /// Queue.
    pub(crate) queue_id: i32,
    group: Str,
    max_msg_nums: i32,
    max_msg_bytes: i32,
    filter: Arc<dyn MessageFilter>,
    topic_sys_flag: i32,
    group_sys_flag: i32,
    suggest_on_slow: i64,
    suggest_normally: i64,
}

/// What becomes of a request.
pub(crate) enum Outcome {
    /// The answer.
    Now(Response),
    /// Somebody else answers.
    Later,
}

/// Handles one pull.
pub(crate) fn serve(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    request: &RemotingCommand,
    now: i64,
) -> Outcome {
    let header: PullMessageRequestHeader = match request.header() {
        Ok(header) => header,
        Err(error) => {
            return Outcome::Now(Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()));
        }
    };
    let pull = match check(broker, connection, &header) {
        Ok(pull) => Arc::new(pull),
        Err(response) => return Outcome::Now(response),
    };
    if header.sys_flag & FLAG_COMMIT_OFFSET != 0 && header.commit_offset >= 0 {
        broker.offsets.commit(
            &header.consumer_group,
            &header.topic,
            header.queue_id,
            header.commit_offset,
        );
    }
    let wait_ms = if header.sys_flag & FLAG_SUSPEND != 0 {
        suspend_ms(broker, header.suspend_timeout_millis)
    } else {
        0
    };
    let parked = ParkedPull {
        connection: Arc::clone(connection),
        reply_to: ReplyTo::from(request),
        pull,
        offset: header.queue_offset,
        deadline_ms: now + wait_ms,
        woken: false,
    };
    if broker.is_cold(&parked.pull.topic, parked.pull.queue_id, parked.offset) {
        read_on_blocking_thread(broker, parked);
        return Outcome::Later;
    }
    step(broker, parked, now)
}

/// Reads messages that have left memory where waiting for the disk blocks nobody.
fn read_on_blocking_thread(broker: &Arc<Broker>, parked: ParkedPull) {
    let in_flight = parked.connection.begin(1);
    let (broker, tasks) = (Arc::clone(broker), broker.tasks.clone());
    tasks.spawn_blocking(move || {
        answer_parked(&broker, parked);
        drop(in_flight);
    });
}

fn answer_parked(broker: &Arc<Broker>, parked: ParkedPull) {
    let (connection, reply_to) = (Arc::clone(&parked.connection), parked.reply_to);
    if let Outcome::Now(response) = step(broker, parked, crate::clock::now_ms()) {
        connection.reply(reply_to, response);
    }
}

/// Reads once: answers, or parks the pull if nothing matches yet and it may wait.
fn step(broker: &Arc<Broker>, parked: ParkedPull, now: i64) -> Outcome {
    if let Some(moved) = take_reset(broker, &parked.pull, parked.offset) {
        return Outcome::Now(moved);
    }
    let plan = read(broker, &parked.pull, parked.offset);
    let nothing = code_of(&plan, parked.offset) == ResponseCode::PULL_NOT_FOUND
        || (parked.woken && plan.status == GetStatus::NoMatchedMessage);
    if !nothing || parked.deadline_ms <= now || broker.is_closing() {
        return Outcome::Now(answer(broker, &parked.pull, &plan, parked.offset, now));
    }
    let pull = Arc::clone(&parked.pull);
    let (seen, store) = (plan.max_offset, &broker.store);
    let has_news = || store.max_offset(&pull.topic, pull.queue_id) > seen;
    let again = ParkedPull { offset: plan.next_begin_offset, ..parked };
    match broker.polling.park(again, has_news) {
        Ok(()) => Outcome::Later,
        Err(full) => Outcome::Now(answer(broker, &full.pull, &plan, full.offset, now)),
    }
}

fn suspend_ms(broker: &Broker, asked: i64) -> i64 {
    if broker.live.long_polling_enable() {
        asked.clamp(0, MAX_SUSPEND_MS)
    } else {
        broker.live.short_polling_time_mills()
    }
}

/// Reads on for a pull that was woken, in the delivery task.
pub(crate) fn deliver(broker: &Arc<Broker>, mut parked: ParkedPull) {
    parked.woken = true;
    if parked.connection.is_closed() {
        return;
    }
    if broker.is_cold(&parked.pull.topic, parked.pull.queue_id, parked.offset) {
        read_on_blocking_thread(broker, parked);
    } else {
        answer_parked(broker, parked);
    }
}

/// An operator moved the group's offset, or the topic was deleted: the member must go there.
fn take_reset(broker: &Broker, pull: &PullRequest, asked: i64) -> Option<Response> {
    let offset = broker.offsets.take_reset(&pull.group, &pull.topic, pull.queue_id, asked)?;
    let header = PullMessageResponseHeader {
        suggest_which_broker_id: 0,
        next_begin_offset: offset,
        min_offset: broker.store.min_offset(&pull.topic, pull.queue_id),
        max_offset: broker.store.max_offset(&pull.topic, pull.queue_id),
        topic_sys_flag: Some(pull.topic_sys_flag),
        group_sys_flag: Some(pull.group_sys_flag),
        ..PullMessageResponseHeader::default()
    };
    Some(
        Response::new(ResponseCode::PULL_OFFSET_MOVED)
            .header(&header)
            .remark(Str::from_static("OFFSET_RESET")),
    )
}

fn refuse(code: ResponseCode, remark: String) -> Response {
    Response::error(code, remark)
}

fn check(
    broker: &Broker,
    connection: &Connection,
    header: &PullMessageRequestHeader,
) -> Result<PullRequest, Response> {
    let (group, topic) = (header.consumer_group.as_str(), header.topic.as_str());
    if broker.permission() & PERM_READ == 0 {
        let address = broker.config.address();
        return Err(refuse(
            ResponseCode::NO_PERMISSION,
            format!("the broker[{address}] pulling message is forbidden"),
        ));
    }
    let group_config = broker.groups.get_or_create(group).ok_or_else(|| {
        refuse(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{group}] does not exist, create it or set autoCreateSubscriptionGroup"),
        )
    })?;
    if !group_config.consume_enable {
        return Err(refuse(
            ResponseCode::NO_PERMISSION,
            format!("subscription group no permission, {group}"),
        ));
    }
    let topic_config = broker.topics.get(topic).ok_or_else(|| {
        refuse(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist, apply first please!"),
        )
    })?;
    if topic_config.perm & PERM_READ == 0 {
        return Err(refuse(
            ResponseCode::NO_PERMISSION,
            format!("the topic[{topic}] pulling message is forbidden"),
        ));
    }
    if header.queue_id < 0 || header.queue_id >= topic_config.read_queue_nums {
        return Err(refuse(
            ResponseCode::INVALID_PARAMETER,
            format!(
                "queueId[{}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{}] consumer:[{}]",
                header.queue_id,
                topic_config.read_queue_nums,
                connection.peer()
            ),
        ));
    }
    let filter = subscription(broker, header, &group_config)?;
    Ok(request_of(header, &topic_config, &group_config, filter))
}

fn request_of(
    header: &PullMessageRequestHeader,
    topic: &TopicConfig,
    group: &SubscriptionGroupConfig,
    filter: Arc<dyn MessageFilter>,
) -> PullRequest {
    PullRequest {
        topic: header.topic.clone(),
        queue_id: header.queue_id,
        group: header.consumer_group.clone(),
        max_msg_nums: header.max_msg_nums,
        max_msg_bytes: header.max_msg_bytes.unwrap_or(i32::MAX),
        filter,
        topic_sys_flag: topic.topic_sys_flag,
        group_sys_flag: group.group_sys_flag,
        suggest_on_slow: group.which_broker_when_consume_slowly,
        suggest_normally: group.broker_id,
    }
}

/// The filter that the request brings along or that the group's heartbeats told.
fn subscription(
    broker: &Broker,
    header: &PullMessageRequestHeader,
    group_config: &SubscriptionGroupConfig,
) -> Result<Arc<dyn MessageFilter>, Response> {
    let (group, topic) = (header.consumer_group.as_str(), header.topic.as_str());
    if header.sys_flag & FLAG_SUBSCRIPTION != 0 {
        let text = header.subscription.as_deref().unwrap_or_default();
        return inline_filter(broker, (group, topic), header.expression_type.as_deref(), text);
    }
    let members = broker.clients.consumer_group(group).ok_or_else(|| {
        refuse(
            ResponseCode::SUBSCRIPTION_NOT_EXIST,
            format!(
                "the consumer's group info not exist: no member of {group} has sent a heartbeat"
            ),
        )
    })?;
    if !group_config.consume_broadcast_enable && members.is_broadcast() {
        return Err(refuse(
            ResponseCode::NO_PERMISSION,
            format!("the consumer group[{group}] can not consume by broadcast way"),
        ));
    }
    if broker.groups.is_read_forbidden(group, topic) {
        return Err(refuse(
            ResponseCode::NO_PERMISSION,
            format!("the consumer group[{group}] is forbidden for topic[{topic}]"),
        ));
    }
    let found: Arc<Subscription> = members.subscription(topic).ok_or_else(|| {
        refuse(
            ResponseCode::SUBSCRIPTION_NOT_EXIST,
            format!("the consumer's subscription not exist: {group} does not subscribe to {topic}"),
        )
    })?;
    if found.data.sub_version < header.sub_version {
        return Err(refuse(
            ResponseCode::SUBSCRIPTION_NOT_LATEST,
            format!(
                "the consumer's subscription not latest: {} on record, {} asked for",
                found.data.sub_version, header.sub_version
            ),
        ));
    }
    registered_filter(broker, header, &found)
}

/// The filter of a request that brings its expression along.
pub(crate) fn inline_filter(
    broker: &Broker,
    (group, topic): (&str, &str),
    kind: Option<&str>,
    text: &str,
) -> Result<Arc<dyn MessageFilter>, Response> {
    let refused = |reason: String| {
        refuse(
            ResponseCode::SUBSCRIPTION_PARSE_FAILED,
            format!("parse the consumer's subscription failed: {reason}"),
        )
    };
    if is_tag_type(kind) {
        let filter = TagFilter::parse(text).map_err(|error| refused(error.to_string()))?;
        return Ok(Arc::new(filter));
    }
    check_supported(&broker.live, kind.unwrap_or_default())?;
    if let Ok(known) = broker.filters.find(group, topic, i64::MIN)
        && known.source() == text
    {
        return Ok(known);
    }
    let filter = Expression::parse(text).map_err(|error| refused(error.to_string()))?;
    Ok(Arc::new(filter))
}

/// The filter that the group's heartbeats told.
fn registered_filter(
    broker: &Broker,
    header: &PullMessageRequestHeader,
    found: &Subscription,
) -> Result<Arc<dyn MessageFilter>, Response> {
    let kind = found.data.expression_type.as_deref();
    if is_tag_type(kind) {
        return Ok(Arc::clone(&found.filter));
    }
    check_supported(&broker.live, kind.unwrap_or_default())?;
    let (group, topic) = (header.consumer_group.as_str(), header.topic.as_str());
    let missing = match broker.filters.find(group, topic, header.sub_version) {
        Ok(filter) => return Ok(filter),
        Err(missing) => missing,
    };
    Err(match missing {
        Missing::Unknown => refuse(
            ResponseCode::FILTER_DATA_NOT_EXIST,
            format!(
                "The broker's consumer filter data is not exist! No heartbeat of {group} brought it for {topic}"
            ),
        ),
        Missing::Unusable(error) => refuse(
            ResponseCode::FILTER_DATA_NOT_EXIST,
            format!(
                "The broker's consumer filter data is not exist! Your expression is wrong: {error}"
            ),
        ),
        Missing::Older(version) => refuse(
            ResponseCode::FILTER_DATA_NOT_LATEST,
            format!(
                "the consumer's consumer filter data not latest: {version} on record, {} asked for",
                header.sub_version
            ),
        ),
    })
}

fn read(broker: &Broker, pull: &PullRequest, offset: i64) -> ReadPlan {
    broker.store.plan_read(&ReadRequest {
        topic: &pull.topic,
        queue_id: pull.queue_id,
        offset,
        max_num: usize::try_from(pull.max_msg_nums).unwrap_or(0).max(1),
        max_bytes: usize::try_from(pull.max_msg_bytes).unwrap_or(0),
        filter: pull.filter.as_ref(),
    })
}

fn code_of(plan: &ReadPlan, asked: i64) -> ResponseCode {
    match plan.status {
        GetStatus::Found => ResponseCode::SUCCESS,
        GetStatus::MessageWasRemoving | GetStatus::NoMatchedMessage => {
            ResponseCode::PULL_RETRY_IMMEDIATELY
        }
        GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue if asked == 0 => {
            ResponseCode::PULL_NOT_FOUND
        }
        GetStatus::OffsetFoundNull | GetStatus::OffsetOverflowOne => ResponseCode::PULL_NOT_FOUND,
        _ => ResponseCode::PULL_OFFSET_MOVED,
    }
}

fn answer(
    broker: &Broker,
    pull: &PullRequest,
    plan: &ReadPlan,
    asked: i64,
    begun: i64,
) -> Response {
    let suggest = if plan.suggest_slave { pull.suggest_on_slow } else { pull.suggest_normally };
    let header = PullMessageResponseHeader {
        suggest_which_broker_id: if broker.live.slave_read_enable() { suggest } else { 0 },
        next_begin_offset: plan.next_begin_offset,
        min_offset: plan.min_offset,
        max_offset: plan.max_offset,
        offset_delta: None,
        topic_sys_flag: Some(pull.topic_sys_flag),
        group_sys_flag: Some(pull.group_sys_flag),
        forbidden_type: None,
    };
    let code = code_of(plan, asked);
    if code == ResponseCode::SUCCESS {
        let what = Counts {
            messages: plan.message_count as u64,
            bytes: plan.bytes as u64,
            latency_ms: (crate::clock::now_ms() - begun).max(0).unsigned_abs(),
            times: 1,
        };
        broker.stats.got(&pull.group, &pull.topic, pull.queue_id, what, || {
            broker.topics.is_system(&pull.topic)
        });
    } else {
        broker.stats.missed();
    }
    Response::new(code)
        .header(&header)
        .remark(Str::from_static(plan.status.name()))
        .body(Body::Many(plan.slices.clone()))
}
