//! POP_MESSAGE: hands out messages of a topic to one member of a group for a time.
//!
//! A pop that finds nothing waits in `polling`. What always holds: a pop is answered exactly once; the
//! group's offset moves only behind messages whose checkpoint is in the log; an ordered group gets
//! messages of a queue only when none of it is in other hands.

use super::machine::{Checkpoint, OPEN_LIMIT, State};
use super::polling::Parked;
use super::receipt::{ORDER_QUEUE, Places, Receipt, Source};
use super::{records, revive};
use crate::broker::Broker;
use crate::dispatch::Context;
use crate::processor::pull::{Outcome, inline_filter};
use crate::processor::send_rules::PERM_READ;
use apogee_model::properties::{append_pair_to_encoded, keys};
use apogee_model::record::{self, LogEntry, RecordFields, parse_entry};
use apogee_model::{MessageFilter, RecordView, TagFilter};
use apogee_net::Connection;
use apogee_protocol::headers::{
    NotificationResponseHeader, PopMessageRequestHeader, PopMessageResponseHeader,
};
use apogee_protocol::{Body, ReplyTo, Response, ResponseCode, Str};
use apogee_store::{GetStatus, ReadPlan, ReadRequest};
use bytes::Bytes;
use std::sync::Arc;

/// Most messages of one pop, as the original's.
const MAX_MESSAGES: i32 = 32;
/// Longest time that a client may ask an empty pop to wait (ms).
const MAX_POLL_MS: i64 = 120_000;
/// Looks in a row that were told of news and found nothing, before there is a pause.
const FRUITLESS_LOOKS: u8 = 8;
/// That pause (ms).
const STUCK_MS: i64 = 500;
/// How often a pop reads on while a queue's messages are all filtered out.
const FILTERED_READS: usize = 16;
/// Start of a new group at the end of a queue.
const INIT_AT_END: i32 = 1;

/// A pop (or a notification) that passed all checks, ready to look again and again.
pub(crate) struct PopRequest {
    pub(crate) topic: Str,
    pub(crate) group: Str,
    /// -1: any queue.
    pub(crate) queue_id: i32,
    pub(crate) is_notification: bool,
    /// Where the group's retries of the topic stand.
    pub(crate) retry_topics: Vec<(Source, String)>,
    pub(super) order: bool,
    pub(super) attempt: Option<Str>,
    pub(super) max: usize,
    pub(super) invisible_ms: i64,
    pub(super) init_mode: i32,
    pub(super) filter: Arc<dyn MessageFilter>,
}

/// What a pop has gathered.
pub(super) struct Gathered {
    slices: Vec<Bytes>,
    count: usize,
    bytes: usize,
    places: Places,
    rest: i64,
    pop_time: i64,
    revive_queue: i32,
    /// When the first closed ordered queue is free (ms).
    free_at: i64,
    refused: Option<Response>,
}

/// Refuses what every request of this kind is refused for; answers the topic's read queues.
pub(super) fn check(
    context: &Context<'_>,
    topic: &str,
    group: &str,
    queue_id: i32,
    what: &str,
) -> Result<i32, Response> {
    let broker = context.broker;
    let refuse = |code, remark: String| Err(Response::error(code, remark));
    if broker.permission() & PERM_READ == 0 {
        let remark =
            format!("the broker[{}] {what} message is forbidden", broker.config.broker_ip1);
        return refuse(ResponseCode::NO_PERMISSION, remark);
    }
    let Some(config) = broker.topics.get(topic) else {
        return refuse(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist, apply first please!"),
        );
    };
    if config.perm & PERM_READ == 0 {
        return refuse(
            ResponseCode::NO_PERMISSION,
            format!("the topic[{topic}] {what} message is forbidden"),
        );
    }
    if queue_id >= config.read_queue_nums {
        let (queues, peer) = (config.read_queue_nums, context.connection.peer());
        let remark = format!(
            "queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{queues}] consumer:[{peer}]"
        );
        return refuse(ResponseCode::INVALID_PARAMETER, remark);
    }
    let Some(group_config) = broker.groups.get_or_create(group) else {
        let remark = format!(
            "subscription group [{group}] does not exist, create it or set autoCreateSubscriptionGroup"
        );
        return refuse(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark);
    };
    if !group_config.consume_enable || broker.groups.is_read_forbidden(group, topic) {
        return refuse(
            ResponseCode::NO_PERMISSION,
            format!("subscription group no permission, {group}"),
        );
    }
    Ok(config.read_queue_nums)
}

/// The retry topics that a group's pops of a topic read.
pub(super) fn retry_topics(broker: &Broker, topic: &str, group: &str) -> Vec<(Source, String)> {
    let config = &broker.config;
    let mut kinds =
        vec![if config.enable_retry_topic_v2 { Source::RetryV2 } else { Source::RetryV1 }];
    if config.enable_retry_topic_v2 && config.retrieve_message_from_pop_retry_topic_v1 {
        kinds.push(Source::RetryV1);
    }
    kinds.into_iter().map(|kind| (kind, kind.real_topic(topic, group))).collect()
}

/// POP_MESSAGE.
pub(crate) fn serve(context: &Context<'_>) -> Outcome {
    let request = match request_of(context) {
        Ok((request, poll_ms)) => (Arc::new(request), poll_ms),
        Err(refusal) => return Outcome::Now(refusal),
    };
    let parked = Parked {
        connection: Arc::clone(context.connection),
        reply_to: ReplyTo::from(context.request),
        request: request.0,
        deadline_ms: context.now.saturating_add(request.1),
        look_again_ms: i64::MAX,
        fruitless: 0,
    };
    look_where_it_may_wait(context.broker, parked, context.now)
}

fn request_of(context: &Context<'_>) -> Result<(PopRequest, i64), Response> {
    let header: PopMessageRequestHeader = context.header()?;
    let (topic, group) = (header.topic.as_str(), header.consumer_group.as_str());
    let broker = context.broker;
    if header.max_msg_nums > MAX_MESSAGES {
        return Err(Response::error(
            ResponseCode::INVALID_PARAMETER,
            format!(
                "the broker[{}] pop message's num is greater than {MAX_MESSAGES}",
                broker.config.broker_ip1
            ),
        ));
    }
    if header.invisible_time <= 0 {
        let remark =
            format!("invisibleTime {} is illegal, it must be at least 1 ms", header.invisible_time);
        return Err(Response::error(ResponseCode::INVALID_PARAMETER, remark));
    }
    check(context, topic, group, header.queue_id, "pop")?;
    let request = PopRequest {
        retry_topics: retry_topics(broker, topic, group),
        filter: filter(broker, &header)?,
        queue_id: header.queue_id.max(-1),
        is_notification: false,
        order: header.order.unwrap_or(false),
        max: usize::try_from(header.max_msg_nums).unwrap_or(0).max(1),
        invisible_ms: header.invisible_time,
        init_mode: header.init_mode,
        attempt: header.attempt_id,
        topic: header.topic,
        group: header.consumer_group,
    };
    Ok((request, header.poll_time.clamp(0, MAX_POLL_MS)))
}

/// A pop without an expression takes everything, whatever type it names.
fn filter(
    broker: &Broker,
    header: &PopMessageRequestHeader,
) -> Result<Arc<dyn MessageFilter>, Response> {
    let text = header.exp.as_deref().unwrap_or_default();
    let kind = header.exp_type.as_deref().filter(|_| !text.is_empty());
    inline_filter(broker, (&header.consumer_group, &header.topic), kind, text)
}

/// A request that waited looks again.
pub(crate) fn again(broker: &Arc<Broker>, parked: Parked) {
    if parked.connection.is_closed() {
        return;
    }
    let (connection, reply_to) = (Arc::clone(&parked.connection), parked.reply_to);
    if let Outcome::Now(response) = look_where_it_may_wait(broker, parked, crate::clock::now_ms()) {
        connection.reply(reply_to, response);
    }
}

/// Messages that have left memory are read where waiting for the disk blocks nobody.
pub(super) fn look_where_it_may_wait(broker: &Arc<Broker>, parked: Parked, now: i64) -> Outcome {
    if !broker.store.is_cold(broker.store.min_physical_offset()) {
        return look(broker, parked, now);
    }
    let in_flight = parked.connection.begin(1);
    let (broker, tasks) = (Arc::clone(broker), broker.tasks.clone());
    tasks.spawn_blocking(move || {
        let (connection, reply_to) = (Arc::clone(&parked.connection), parked.reply_to);
        if let Outcome::Now(response) = look(&broker, parked, crate::clock::now_ms()) {
            connection.reply(reply_to, response);
        }
        drop(in_flight);
    });
    Outcome::Later
}

/// Looks once: answers, or parks the request if there is nothing and it may wait.
fn look(broker: &Arc<Broker>, parked: Parked, now: i64) -> Outcome {
    let request = Arc::clone(&parked.request);
    if request.is_notification {
        if broker.pop_news(&request, now) {
            return Outcome::Now(notified(true, false));
        }
        return park(broker, parked, now, i64::MAX, |full| notified(false, full));
    }
    let gathered = gather(broker, &request, now);
    if let Some(refusal) = gathered.refused.clone().filter(|_| gathered.count == 0) {
        return Outcome::Now(refusal);
    }
    if gathered.count > 0 {
        if gathered.rest > 0 {
            broker.pop.polling.wake(&request.topic, &request.group);
        }
        let is_system = || broker.topics.is_system(&request.topic);
        broker.stats.popped(
            &request.group,
            &request.topic,
            (gathered.count, gathered.bytes),
            is_system,
        );
        return Outcome::Now(found(&request, gathered));
    }
    let free_at = gathered.free_at;
    park(broker, parked, now, free_at, |full| nothing(&request, &gathered, full))
}

fn park(
    broker: &Broker,
    parked: Parked,
    now: i64,
    free_at: i64,
    refuse: impl FnOnce(bool) -> Response,
) -> Outcome {
    if parked.deadline_ms <= now || broker.is_closing() {
        return Outcome::Now(refuse(false));
    }
    let request = Arc::clone(&parked.request);
    // A queue that cannot be read keeps its news: no reason to look at it without a pause.
    let stuck = parked.fruitless >= FRUITLESS_LOOKS;
    let look_again_ms = if stuck { free_at.min(now.saturating_add(STUCK_MS)) } else { free_at };
    let parked = Parked { look_again_ms, ..parked };
    match broker.pop.polling.park(parked, || !stuck && broker.pop_news(&request, now)) {
        Ok(()) => Outcome::Later,
        Err(_) => Outcome::Now(refuse(true)),
    }
}

fn notified(has_msg: bool, polling_full: bool) -> Response {
    Response::success().header(&NotificationResponseHeader { has_msg, polling_full })
}

fn header_of(request: &PopRequest, gathered: &Gathered) -> PopMessageResponseHeader {
    PopMessageResponseHeader {
        pop_time: gathered.pop_time,
        invisible_time: request.invisible_ms,
        revive_qid: gathered.revive_queue,
        rest_num: gathered.rest,
        start_offset_info: Some(Str::from(gathered.places.starts.clone())),
        msg_offset_info: Some(Str::from(gathered.places.messages.clone())),
        order_count_info: request.order.then(|| Str::from(gathered.places.counts.clone())),
    }
}

fn found(request: &PopRequest, gathered: Gathered) -> Response {
    let header = header_of(request, &gathered);
    Response::success()
        .header(&header)
        .remark(Str::from_static("FOUND"))
        .body(Body::Many(gathered.slices))
}

fn nothing(request: &PopRequest, gathered: &Gathered, full: bool) -> Response {
    let code = if full { ResponseCode::POLLING_FULL } else { ResponseCode::POLLING_TIMEOUT };
    Response::new(code)
        .header(&header_of(request, gathered))
        .remark(Str::from_static("NO_MESSAGE_IN_QUEUE"))
}

/// Pops from the topic and the group's retries of it, in a random order that starves neither.
fn gather(broker: &Broker, request: &PopRequest, now: i64) -> Gathered {
    let order = request.order;
    let revive_queue = if order {
        ORDER_QUEUE
    } else {
        broker.pop.next_revive_queue(broker.config.revive_queue_num)
    };
    let mut gathered = Gathered {
        slices: Vec::new(),
        count: 0,
        bytes: 0,
        places: Places::default(),
        rest: 0,
        pop_time: now,
        revive_queue,
        free_at: i64::MAX,
        refused: None,
    };
    let retries_first = fastrand::i32(0..100) < broker.config.pop_from_retry_probability;
    // Retry topics of both versions share the digits of an answer: one of them a time.
    let at = if request.retry_topics.len() > 1 {
        fastrand::usize(0..request.retry_topics.len())
    } else {
        0
    };
    let retries = |gathered: &mut Gathered| {
        if order {
            return;
        }
        for (source, topic) in
            request.retry_topics.iter().cycle().skip(at).take(request.retry_topics.len())
        {
            let before = gathered.count;
            pop_topic(broker, request, gathered, topic, *source);
            if gathered.count > before {
                break;
            }
        }
    };
    if retries_first {
        retries(&mut gathered);
    }
    if request.queue_id < 0 {
        pop_topic(broker, request, &mut gathered, &request.topic, Source::Topic);
    } else {
        pop_queue(
            broker,
            request,
            &mut gathered,
            (&request.topic, Source::Topic, request.queue_id),
        );
    }
    if !retries_first {
        retries(&mut gathered);
    }
    gathered
}

fn pop_topic(
    broker: &Broker,
    request: &PopRequest,
    gathered: &mut Gathered,
    topic: &str,
    source: Source,
) {
    let Some(queues) =
        broker.topics.get(topic).map(|config| config.read_queue_nums).filter(|count| *count > 0)
    else {
        return;
    };
    let first = fastrand::i32(0..queues);
    for step in 0..queues {
        pop_queue(broker, request, gathered, (topic, source, (first + step) % queues));
    }
}

type Place<'a> = (&'a str, Source, i32);

fn pop_queue(broker: &Broker, request: &PopRequest, gathered: &mut Gathered, place: Place<'_>) {
    let ((topic, source, queue_id), group) = (place, request.group.as_str());
    let _alone = broker.pop.lock_queue(topic, group, queue_id);
    let start = start_of(broker, request, (topic, source, queue_id));
    let rest = (broker.store.max_offset(topic, queue_id) - start).max(0);
    if request.order
        && let Some(free_at) = broker.pop.order.blocked_until(
            topic,
            group,
            queue_id,
            request.attempt.as_deref(),
            gathered.pop_time,
        )
    {
        gathered.free_at = gathered.free_at.min(free_at);
        gathered.rest += rest;
        return;
    }
    if gathered.count >= request.max || gathered.refused.is_some() {
        gathered.rest += rest;
        return;
    }
    let all = TagFilter::All;
    let filter = if source == Source::Topic { request.filter.as_ref() } else { &all };
    let (start, plan) =
        read(broker, (topic, queue_id), start, request.max - gathered.count, filter);
    if plan.status == GetStatus::Found {
        take(broker, request, gathered, place, start, &plan);
    } else {
        broker.offsets.commit(group, topic, queue_id, plan.next_begin_offset);
    }
    gathered.rest += (plan.max_offset - plan.next_begin_offset).max(0);
}

/// Where the group reads on in a queue. A position that an operator set counts from now on.
fn start_of(broker: &Broker, request: &PopRequest, (topic, source, queue_id): Place<'_>) -> i64 {
    let group = request.group.as_str();
    if let Some(reset) = broker.offsets.take_reset(group, topic, queue_id, -1) {
        broker.offsets.commit(group, topic, queue_id, reset);
        broker.pop.order.clear(topic, group, queue_id);
    }
    if let Some(known) = broker.offsets.query(group, topic, queue_id) {
        return known.max(0);
    }
    let (min, max) =
        (broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id));
    let at_end = request.init_mode == INIT_AT_END && source == Source::Topic;
    let start = if !at_end {
        min
    } else if broker.config.init_pop_offset_by_check_msg_in_mem
        && min <= 0
        && !broker.is_cold(topic, queue_id, 0)
    {
        0
    } else {
        (max - 1).max(0)
    };
    broker.offsets.commit(group, topic, queue_id, start);
    start
}

/// Reads from a position, which is corrected where it lies outside, and past what is filtered out.
fn read(
    broker: &Broker,
    (topic, queue_id): (&str, i32),
    mut start: i64,
    max_num: usize,
    filter: &dyn MessageFilter,
) -> (i64, ReadPlan) {
    let mut reads = 0;
    loop {
        let request =
            ReadRequest { topic, queue_id, offset: start, max_num, max_bytes: usize::MAX, filter };
        let mut plan = broker.store.plan_read(&request);
        reads += 1;
        let empty =
            matches!(plan.status, GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue);
        if empty {
            // Nothing is known of this queue: the position stays as it is.
            plan.next_begin_offset = start;
        }
        let moved = plan.next_begin_offset != start;
        if plan.status == GetStatus::Found || !moved || reads >= FILTERED_READS {
            return (start, plan);
        }
        start = plan.next_begin_offset;
    }
}

/// Makes the found messages the client's: checkpoint first, then the group's offset.
fn take(
    broker: &Broker,
    request: &PopRequest,
    gathered: &mut Gathered,
    place: Place<'_>,
    start: i64,
    plan: &ReadPlan,
) {
    let ((topic, source, queue_id), group) = (place, request.group.as_str());
    let mut offsets = Vec::with_capacity(plan.message_count);
    for slice in &plan.slices {
        each_record(slice, |record| offsets.push(record.queue_offset()));
    }
    if offsets.is_empty() {
        return;
    }
    if request.order {
        let times = (gathered.pop_time, request.invisible_ms);
        let queue = (topic, group, queue_id);
        let (counts, least) =
            broker.pop.order.popped(queue, request.attempt.as_deref(), times, &offsets);
        gathered.places.count(queue_id, counts.into_iter(), least);
        broker.offsets.commit(group, topic, queue_id, start);
    } else {
        if let Err(refusal) = check_out(broker, request, gathered, place, start, &offsets) {
            gathered.refused = Some(refusal);
            return;
        }
        broker.offsets.commit(group, topic, queue_id, plan.next_begin_offset);
    }
    gathered.places.add(source, queue_id, start, &offsets);
    gathered.count += offsets.len();
    gathered.bytes += plan.bytes;
    if source == Source::Topic || broker.config.pop_response_return_actual_retry_topic {
        gathered.slices.extend(plan.slices.iter().cloned());
        return;
    }
    for slice in &plan.slices {
        let mut out = Vec::with_capacity(slice.len() + 256);
        each_record(slice, |record| {
            let receipt = Receipt {
                start_offset: start,
                pop_time: gathered.pop_time,
                invisible_ms: request.invisible_ms,
                revive_queue: gathered.revive_queue,
                source,
                broker: &broker.config.broker_name,
                queue_id,
                offset: record.queue_offset(),
            };
            disguise(&record, &request.topic, &receipt, &mut out);
        });
        gathered.slices.push(Bytes::from(out));
    }
}

/// Writes the checkpoint.
fn check_out(
    broker: &Broker,
    request: &PopRequest,
    gathered: &Gathered,
    (topic, _, queue_id): Place<'_>,
    start: i64,
    offsets: &[i64],
) -> Result<(), Response> {
    let busy = |reason: String| Response::error(ResponseCode::SYSTEM_BUSY, reason);
    let mut made = Checkpoint {
        topic: topic.into(),
        group: request.group.as_str().into(),
        broker: broker.config.broker_name.as_str().into(),
        queue_id,
        start_offset: start,
        pop_time: gathered.pop_time,
        invisible_ms: request.invisible_ms,
        messages: offsets.iter().map(|offset| (*offset, State::Invisible)).collect(),
        suspended: false,
        failures: 0,
        revive_offset: 0,
        next_ms: 0,
    };
    let revive_queue = gathered.revive_queue;
    let lane = broker
        .pop
        .lane(revive_queue)
        .ok_or_else(|| busy(format!("revive queue {revive_queue} is not there")))?;
    let mut lane = lane.lock();
    if lane.len() >= OPEN_LIMIT {
        return Err(busy(format!(
            "{OPEN_LIMIT} pops wait for acknowledgements in revive queue {revive_queue}: acknowledge or wait"
        )));
    }
    let written = records::checkpoint(&made, gathered.pop_time);
    made.revive_offset =
        revive::append(broker, &mut lane, revive_queue, &written, gathered.pop_time)
            .map_err(|error| crate::processor::send_rules::refused_by_store(&error))?;
    lane.machine.popped(made);
    Ok(())
}

fn each_record(slice: &[u8], mut f: impl FnMut(RecordView<'_>)) {
    let mut rest = slice;
    while let Ok(LogEntry::Record(record)) = parse_entry(rest) {
        rest = rest.get(record.total_size()..).unwrap_or_default();
        f(record);
    }
}

/// A retried message as clients know it: under its topic, with its receipt.
fn disguise(record: &RecordView<'_>, topic: &str, receipt: &Receipt<'_>, out: &mut Vec<u8>) {
    let mut properties = record.properties().as_bytes().to_vec();
    if record.properties().get(keys::POP_CK).is_none() {
        append_pair_to_encoded(&mut properties, keys::POP_CK, &receipt.to_string());
    }
    let at = out.len();
    let fields = RecordFields { topic, properties: &properties, ..record.fields() };
    if record::encode(&fields, out).is_err() {
        // Properties that leave no room for a receipt: the client makes it from the answer's header.
        out.extend_from_slice(record.bytes());
        return;
    }
    if let Some(encoded) = out.get_mut(at..) {
        record::set_position(
            encoded,
            record.queue_offset(),
            record.physical_offset(),
            record.store_timestamp(),
        );
    }
}

impl Broker {
    /// Whether a pop may find something now.
    pub(super) fn pop_news(&self, request: &PopRequest, now: i64) -> bool {
        let attempt = request.attempt.as_deref();
        let has = |topic: &str, queue_id: i32| {
            let group = request.group.as_str();
            let closed = request.order
                && self.pop.order.blocked_until(topic, group, queue_id, attempt, now).is_some();
            let known = self.offsets.query(group, topic, queue_id);
            let from = known.unwrap_or_else(|| self.store.min_offset(topic, queue_id));
            !closed && self.store.max_offset(topic, queue_id) > from
        };
        let any = |topic: &str| {
            let queues = self.topics.get(topic).map_or(0, |config| config.read_queue_nums);
            (0..queues).any(|queue_id| has(topic, queue_id))
        };
        let retries = !request.order && request.retry_topics.iter().any(|(_, topic)| any(topic));
        retries
            || if request.queue_id < 0 {
                any(&request.topic)
            } else {
                has(&request.topic, request.queue_id)
            }
    }
}

/// The connection of a request and where its answer goes, for requests that wait like pops.
pub(super) fn parked(
    connection: &Arc<Connection>,
    reply_to: ReplyTo,
    request: PopRequest,
    deadline_ms: i64,
) -> Parked {
    Parked {
        connection: Arc::clone(connection),
        reply_to,
        request: Arc::new(request),
        deadline_ms,
        look_again_ms: i64::MAX,
        fruitless: 0,
    }
}
