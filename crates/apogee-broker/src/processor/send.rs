//! SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.
//!
//! All sends of one read are prepared first, then appended under one lock, then answered. What always
//! holds: a send is answered exactly once (unless it is one-way), and SUCCESS means that the flush
//! mode's promise holds for the message.

use crate::broker::Broker;
use crate::processor::send_rules::{self, Target};
use crate::processor::timer_rules;
use apogee_model::batch::{self, BatchMessage};
use apogee_model::id::OffsetId;
use apogee_model::properties::{Properties, keys};
use apogee_model::record::RecordFields;
use apogee_model::{PropertyMap, properties};
use apogee_net::{Connection, OutBuffer};
use apogee_protocol::headers::{SendMessageHeader, SendMessageResponseHeader};
use apogee_protocol::{ExtWriter, RemotingCommand, ReplyTo, Response, ResponseCode, Str};
use apogee_store::timer::TIMER_TOPIC;
use apogee_store::{AppendError, Appending, FlushDiskType, Placed};
use bytes::Bytes;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A send that passed all checks.
struct Prepared {
    header: SendMessageHeader,
    target: Target,
    body: Bytes,
    /// Properties of the single message, or those of each message of a batch.
    messages: Vec<PreparedMessage>,
    unique_key: Option<Str>,
    wait: bool,
    reply_to: ReplyTo,
    oneway: bool,
    born_host: SocketAddr,
}

struct PreparedMessage {
    flag: i32,
    /// Range of the body that belongs to this message.
    body: Range<usize>,
    properties: Stored,
}

/// Properties as they are stored.
enum Stored {
    /// As they stand in the request's body: those of a batch, to which the broker adds nothing.
    AsSent(Range<usize>),
    /// With what the broker adds.
    Made(Vec<u8>),
}

impl Stored {
    fn bytes<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        match self {
            Self::AsSent(range) => body.get(range.clone()).unwrap_or_default(),
            Self::Made(bytes) => bytes,
        }
    }
}

/// A response that must wait for a log position.
struct Waiting {
    until: i64,
    reply_to: ReplyTo,
    response: Response,
}

/// Handles the sends of one read in order.
pub(crate) fn serve(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    requests: &[RemotingCommand],
    now: i64,
    replies: &mut OutBuffer,
) {
    let busy = overload(broker, now);
    let mut prepared = Vec::with_capacity(requests.len());
    for request in requests {
        let checked = match &busy {
            Some(reason) => Err(Response::error(ResponseCode::SYSTEM_BUSY, reason.clone())),
            None => prepare(broker, connection, request),
        };
        match checked {
            Ok(send) => prepared.push(send),
            Err(_) if request.is_oneway() => {}
            Err(response) => replies.reply(ReplyTo::from(request), with_region(broker, response)),
        }
    }
    let waiting = append(broker, &prepared, now, replies);
    if !waiting.is_empty() {
        answer_after_flush(broker, connection, waiting);
    }
}

/// Why no send is taken now, if so: which stage is slow, and which setting is its limit.
fn overload(broker: &Broker, now: i64) -> Option<String> {
    if broker.store.is_page_cache_busy(now) {
        return Some(format!(
            "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while: an append has held the log for {} ms, \
             osPageCacheBusyTimeOutMills is {}; the disk is slow",
            broker.store.lock_held_ms(now),
            broker.store.config().os_page_cache_busy_time_out_mills
        ));
    }
    let (waiting, limit) = (broker.flushing_sends(), broker.live.send_thread_pool_queue_capacity());
    (waiting >= limit).then(|| {
        format!(
            "[OVERLOAD]system busy, start flow control for a while: {waiting} sends wait for the disk, \
             sendThreadPoolQueueCapacity is {limit}"
        )
    })
}

fn prepare(
    broker: &Arc<Broker>,
    connection: &Connection,
    request: &RemotingCommand,
) -> Result<Prepared, Response> {
    let header: SendMessageHeader = request
        .header()
        .map_err(|error| Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
    let mut target = send_rules::check(broker, connection, &header)?;
    if request.body.is_empty() {
        return Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            "the message body is empty: at least 1 byte is needed",
        ));
    }
    let raw = header.properties.as_ref().map_or(&[][..], |text| text.as_bytes());
    let batch = header.batch == Some(true);
    if batch
        && (header.topic.starts_with(apogee_model::names::RETRY_PREFIX)
            || !broker.can_split(&header.topic))
    {
        return Err(send_rules::illegal("batch messages cannot go to this topic"));
    }
    let scan = Scan::of(Properties::new(raw));
    let messages = if batch {
        prepare_batch(broker, &request.body)?
    } else {
        let edited =
            send_rules::retarget(broker, &header, request.version, &mut target, raw, &scan)?;
        let properties = match &edited {
            Some(edited) => stored_properties(broker, edited, &Scan::of(Properties::new(edited))),
            None => stored_properties(broker, raw, &scan),
        };
        vec![PreparedMessage {
            flag: header.flag,
            body: 0..request.body.len(),
            properties: Stored::Made(properties),
        }]
    };
    let limit = properties::MAX_PROPERTIES_LEN;
    let lengths = messages.iter().map(|message| message.properties.bytes(&request.body).len());
    if let Some(length) = lengths.max().filter(|length| *length > limit) {
        return Err(send_rules::illegal(&format!(
            "properties have {length} bytes, the limit is {limit}"
        )));
    }
    let unique_key = scan.unique_key.and_then(|key| shared(header.properties.as_ref()?, key));
    Ok(Prepared {
        target,
        messages,
        unique_key,
        wait: scan.wait,
        body: request.body.clone(),
        reply_to: ReplyTo::from(request),
        oneway: request.is_oneway(),
        born_host: connection.peer(),
        header,
    })
}

/// `part` of `whole` without copying it.
fn shared(whole: &Str, part: &[u8]) -> Option<Str> {
    let whole = whole.clone().into_bytes();
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len()).filter(|end| *end <= whole.len())?;
    Str::from_utf8(whole.slice(start..end)).ok()
}

fn prepare_batch(broker: &Broker, body: &Bytes) -> Result<Vec<PreparedMessage>, Response> {
    let messages = batch::decode(body).map_err(|error| send_rules::illegal(&error.to_string()))?;
    let base = body.as_ptr() as usize;
    let range = |part: &[u8]| {
        let start = part.as_ptr() as usize - base;
        start..start + part.len()
    };
    let prepare = |message: &BatchMessage<'_>| {
        let scan = Scan::of(Properties::new(message.properties));
        if scan.delay_level > 0 || scan.timer {
            return Err(send_rules::illegal("a message of a batch cannot be delayed"));
        }
        if message.body.is_empty() {
            return Err(send_rules::illegal("a message of the batch has an empty body"));
        }
        let properties = if scan.unique_key.is_some() {
            Stored::AsSent(range(message.properties))
        } else {
            let mut made = message.properties.to_vec();
            properties::append_pair_to_encoded(&mut made, keys::UNIQ_KEY, &broker.new_unique_id());
            Stored::Made(made)
        };
        Ok(PreparedMessage { flag: message.flag, body: range(message.body), properties })
    };
    messages.iter().map(prepare).collect()
}

/// What a send needs to know of its properties, found in one pass.
pub(crate) struct Scan<'a> {
    pub(crate) unique_key: Option<&'a [u8]>,
    /// Whether the sender waits for the disk.
    pub(crate) wait: bool,
    /// 0 without one.
    pub(crate) delay_level: i32,
    /// Whether a delivery time is asked for.
    pub(crate) timer: bool,
    /// Whether it is a half message.
    pub(crate) transaction: bool,
    /// Whether names that the broker adds are there already.
    has_ours: bool,
}

impl<'a> Scan<'a> {
    pub(crate) fn of(raw: Properties<'a>) -> Self {
        let mut scan = Self {
            unique_key: None,
            wait: true,
            delay_level: 0,
            timer: false,
            transaction: false,
            has_ours: false,
        };
        for (name, value) in raw.raw_pairs() {
            match name {
                b"UNIQ_KEY" => scan.unique_key = Some(value),
                b"WAIT" => scan.wait = !value.eq_ignore_ascii_case(b"false"),
                b"DELAY" => {
                    let level = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    scan.delay_level = level.unwrap_or(0);
                }
                b"TIMER_DELAY_SEC" | b"TIMER_DELAY_MS" | b"TIMER_DELIVER_MS" => scan.timer = true,
                b"TRAN_MSG" => scan.transaction = value.eq_ignore_ascii_case(b"true"),
                b"CLUSTER" | b"MSG_REGION" | b"TRACE_ON" => scan.has_ours = true,
                _ => {}
            }
        }
        scan
    }
}

/// The client's properties with those that the broker adds.
pub(crate) fn stored_properties(broker: &Broker, raw: &[u8], scan: &Scan<'_>) -> Vec<u8> {
    let config = &broker.config;
    let trace = if broker.live.trace_on() { "true" } else { "false" };
    let ours = [
        (keys::MSG_REGION, config.region_id.as_str()),
        (keys::TRACE_ON, trace),
        (keys::CLUSTER, config.broker_cluster_name.as_str()),
    ];
    let mut out;
    if scan.has_ours {
        let mut map = PropertyMap::parse(raw);
        for (name, value) in ours {
            map.set(name, value);
        }
        out = map.encode();
    } else {
        out = Vec::with_capacity(raw.len() + broker.added_properties_len);
        out.extend_from_slice(raw);
        for (name, value) in ours {
            properties::append_pair_to_encoded(&mut out, name, value);
        }
    }
    if scan.unique_key.is_none() {
        properties::append_pair_to_encoded(&mut out, keys::UNIQ_KEY, &broker.new_unique_id());
    }
    out
}

/// Appends everything that was prepared and answers what can be answered now.
fn append(
    broker: &Arc<Broker>,
    prepared: &[Prepared],
    now: i64,
    replies: &mut OutBuffer,
) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    if prepared.is_empty() {
        return waiting;
    }
    let mut items: Vec<Appending<'_>> = Vec::with_capacity(prepared.len());
    for send in prepared {
        for message in &send.messages {
            items.push(Appending::new(RecordFields {
                topic: &send.target.topic,
                queue_id: send.target.queue_id,
                flag: message.flag,
                sys_flag: send.target.sys_flag,
                born_timestamp: send.header.born_timestamp,
                born_host: send.born_host,
                store_host: broker.store_host,
                reconsume_times: send.header.reconsume_times.unwrap_or(0),
                prepared_transaction_offset: 0,
                body: send.body.get(message.body.clone()).unwrap_or_default(),
                properties: message.properties.bytes(&send.body),
            }));
        }
    }
    let _ = broker.store.append(&mut items, now);
    let sync = broker.store.config().flush_disk_type == FlushDiskType::SyncFlush;
    let mut tally = broker.stats.tally(now, crate::clock::now_ms() - now);
    let mut outcomes = items.into_iter().map(|item| item.outcome);
    for send in prepared {
        let placed: Result<Vec<Placed>, AppendError> = outcomes
            .by_ref()
            .take(send.messages.len())
            .map(|outcome| outcome.unwrap_or(Err(AppendError::Closed)))
            .collect();
        let Target { topic, queue_id, .. } = &send.target;
        if placed.is_ok() {
            tally.sent(topic, *queue_id, send.messages.len(), send.body.len(), || {
                broker.topics.is_system(topic)
            });
        } else {
            broker.stats.refused(send.messages.len());
        }
        if send.oneway {
            continue;
        }
        let response = answer(broker, send, placed.as_deref());
        match placed.ok().and_then(|all| all.last().map(Placed::end)) {
            Some(until) if sync && send.wait => {
                waiting.push(Waiting { until, reply_to: send.reply_to, response });
            }
            _ => replies.reply(send.reply_to, response),
        }
    }
    waiting
}

fn answer(broker: &Broker, send: &Prepared, placed: Result<&[Placed], &AppendError>) -> Response {
    let placed = match placed {
        Ok(placed) => placed,
        Err(error) => return with_region(broker, send_rules::refused_by_store(error)),
    };
    let mut ids = String::with_capacity(33 * placed.len());
    for place in placed {
        if !ids.is_empty() {
            ids.push(',');
        }
        OffsetId { host: broker.store_host, physical_offset: place.physical_offset }
            .write_to(&mut ids);
    }
    let timed = (send.target.topic.as_str() == TIMER_TOPIC && send.header.batch != Some(true))
        .then(|| send.messages.first())
        .flatten();
    let header = SendMessageResponseHeader {
        msg_id: Str::from(ids),
        queue_id: send.target.answer_queue_id,
        queue_offset: placed.first().map_or(0, |place| place.queue_offset),
        transaction_id: send.unique_key.clone(),
        batch_uniq_id: None,
        recall_handle: timed.and_then(|message| {
            timer_rules::recall_handle(broker, message.properties.bytes(&send.body))
        }),
    };
    with_region(broker, Response::success().header(&header))
}

pub(crate) fn with_region(broker: &Broker, mut response: Response) -> Response {
    response.ext.put_str(keys::MSG_REGION, &broker.config.region_id);
    response.ext.put_str(keys::TRACE_ON, if broker.live.trace_on() { "true" } else { "false" });
    response
}

/// Answers when the log is flushed that far, or with FLUSH_DISK_TIMEOUT when that takes too long.
fn answer_after_flush(broker: &Arc<Broker>, connection: &Arc<Connection>, waiting: Vec<Waiting>) {
    let Some(last) = waiting.iter().map(|one| one.until).max() else { return };
    let (broker, connection) = (Arc::clone(broker), Arc::clone(connection));
    let tasks = broker.tasks.clone();
    let counted = (connection.begin(waiting.len()), broker.begin_flushing(waiting.len()));
    tasks.spawn(async move {
        let limit = Duration::from_millis(broker.store.config().sync_flush_timeout);
        let flushed = tokio::time::timeout(limit, broker.store.flushed().wait(last)).await;
        let all = matches!(flushed, Ok(Ok(_)));
        let reached = broker.store.flushed().get();
        connection.send_with(|out| {
            for mut one in waiting {
                if !all && one.until > reached {
                    one.response.code = ResponseCode::FLUSH_DISK_TIMEOUT;
                    one.response.remark = Some(Str::from(format!(
                        "stored, but not flushed to disk within syncFlushTimeout ({} ms)",
                        limit.as_millis()
                    )));
                }
                out.reply(one.reply_to, one.response);
            }
        });
        drop(counted);
    });
}
