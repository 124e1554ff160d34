//! ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.
//!
//! What always holds: an answered acknowledgement is in the log; a handle that was exchanged for a newer
//! one, or whose message came back already, is refused and says so; a second acknowledgement with the same
//! handle is no error.

use super::machine::{Checkpoint, Known, State};
use super::order::Commit;
use super::receipt::{ORDER_QUEUE, Receipt, Source};
use super::records::{self, Handle};
use super::revive;
use crate::broker::Broker;
use crate::dispatch::Context;
use crate::processor::send_rules::refused_by_store;
use apogee_protocol::bodies::{BatchAck, BatchAckMessageRequestBody};
use apogee_protocol::headers::{
    AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader,
};
use apogee_protocol::{Response, ResponseCode};

type Handled = Result<Response, Response>;

/// Most offsets of one entry of a batch; a pop has 32 messages at most.
const MAX_BATCH: usize = 1_024;

fn refuse(code: ResponseCode, remark: String) -> Response {
    Response::error(code, remark)
}

/// Checks topic, queue and offset of a handle.
fn check_place(
    context: &Context<'_>,
    topic: &str,
    queue_id: i32,
    offset: i64,
    may_be_end: bool,
) -> Result<(), Response> {
    let broker = context.broker;
    let config = broker.topics.get(topic).ok_or_else(|| {
        refuse(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist, apply first please!"),
        )
    })?;
    let queues = config.read_queue_nums;
    if !(0..queues).contains(&queue_id) {
        let peer = context.connection.peer();
        return Err(refuse(
            ResponseCode::MESSAGE_ILLEGAL,
            format!(
                "queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{queues}] consumer:[{peer}]"
            ),
        ));
    }
    let (min, max) =
        (broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id));
    if offset < min || offset > max || (offset == max && !may_be_end) {
        return Err(refuse(
            ResponseCode::NO_MESSAGE,
            format!(
                "offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{min}~{max}"
            ),
        ));
    }
    Ok(())
}

fn receipt(text: &str) -> Result<Receipt<'_>, Response> {
    Receipt::parse(text).ok_or_else(|| {
        let shown: String = text.chars().take(120).collect();
        let want = "start popTime invisibleTime reviveQid retry broker queue offset";
        refuse(
            ResponseCode::SYSTEM_ERROR,
            format!("extraInfo {shown:?} is no receipt: {want} with blanks between are wanted"),
        )
    })
}

/// ACK_MESSAGE.
pub(crate) fn ack(context: &Context<'_>) -> Handled {
    let header: AckMessageRequestHeader = context.header()?;
    let (topic, group) = (header.topic.as_str(), header.consumer_group.as_str());
    check_place(context, topic, header.queue_id, header.offset, true)?;
    let receipt = receipt(&header.extra_info)?;
    if receipt.revive_queue == ORDER_QUEUE {
        return ack_in_order(
            context.broker,
            (topic, group, header.queue_id),
            header.offset,
            receipt.pop_time,
        );
    }
    let handle = handle(topic, group, header.queue_id, &receipt);
    settle(context, &handle, receipt.invisible_ms, receipt.revive_queue, &[header.offset])
}

fn handle<'a>(topic: &'a str, group: &'a str, queue_id: i32, receipt: &Receipt<'a>) -> Handle<'a> {
    Handle {
        topic,
        group,
        broker: receipt.broker,
        queue_id,
        start_offset: receipt.start_offset,
        pop_time: receipt.pop_time,
    }
}

/// BATCH_ACK_MESSAGE. What lies outside of a queue is skipped, as the original does.
pub(crate) fn batch_ack(context: &Context<'_>) -> Handled {
    if context.request.body.is_empty() {
        return Err(refuse(
            ResponseCode::NO_MESSAGE,
            "the request acknowledges nothing: its body is empty".to_owned(),
        ));
    }
    let body: BatchAckMessageRequestBody = context.body()?;
    if body.acks.is_empty() {
        return Err(refuse(
            ResponseCode::NO_MESSAGE,
            "the request acknowledges nothing: acks is empty".to_owned(),
        ));
    }
    let broker_name = body.broker_name.as_deref().unwrap_or(&context.broker.config.broker_name);
    let (mut settled, mut refusal) = (0usize, None);
    for entry in &body.acks {
        match ack_entry(context, broker_name, entry) {
            Ok(_) => settled += 1,
            Err(refused) => refusal = Some(refused),
        }
    }
    // One handle that is over must not make the client repeat all the others.
    match refusal {
        Some(refusal) if settled == 0 => Err(refusal),
        _ => Ok(Response::success()),
    }
}

fn ack_entry(context: &Context<'_>, broker_name: &str, entry: &BatchAck) -> Handled {
    let (broker, queue_id, start) = (context.broker, entry.queue_id, entry.start_offset);
    let missing = |name: &str| {
        refuse(ResponseCode::MESSAGE_ILLEGAL, format!("an entry of acks has no {name}"))
    };
    let topic = entry.topic.as_deref().ok_or_else(|| missing("topic (t)"))?;
    let group = entry.consumer_group.as_deref().ok_or_else(|| missing("group (c)"))?;
    let source = entry.retry.as_deref().map_or(Some(Source::Topic), Source::of);
    let source = source.ok_or_else(|| missing("retry kind (r) of 0, 1 or 2"))?;
    let topic = source.real_topic(topic, group);
    let (min, max) =
        (broker.store.min_offset(&topic, queue_id), broker.store.max_offset(&topic, queue_id));
    let places = entry.bit_set.ones().take(MAX_BATCH + 1);
    let offsets: Vec<i64> =
        places.filter_map(|at| start.checked_add(i64::try_from(at).ok()?)).collect();
    if offsets.len() > MAX_BATCH {
        return Err(refuse(
            ResponseCode::MESSAGE_ILLEGAL,
            format!("an entry of acks names over {MAX_BATCH} messages"),
        ));
    }
    let offsets: Vec<i64> =
        offsets.into_iter().filter(|offset| (min..=max).contains(offset)).collect();
    if entry.revive_queue_id == ORDER_QUEUE {
        for offset in offsets {
            ack_in_order(broker, (&topic, group, queue_id), offset, entry.pop_time)?;
        }
        return Ok(Response::success());
    }
    if offsets.is_empty() {
        return Ok(Response::success());
    }
    let pop_time = entry.pop_time;
    let handle = Handle {
        topic: &topic,
        group,
        broker: broker_name,
        queue_id,
        start_offset: start,
        pop_time,
    };
    settle(context, &handle, entry.invisible_time, entry.revive_queue_id, &offsets)
}

fn over(handle: &Handle<'_>, offset: i64, why: &str) -> Response {
    let Handle { topic, group, queue_id, pop_time, .. } = handle;
    refuse(
        ResponseCode::NO_MESSAGE,
        format!(
            "the handle of {topic}@{queue_id} offset {offset}, popped by {group} at {pop_time}, {why}"
        ),
    )
}

const EXCHANGED: &str = "was exchanged when the invisible time was changed: use the new one";
const CAME_BACK: &str = "is over: the message is visible again";
const FOREIGN: &str = "does not hold this offset";

fn lane_refused(revive_queue: i32) -> Response {
    refuse(
        ResponseCode::MESSAGE_ILLEGAL,
        format!("revive queue {revive_queue} of the receipt is not there"),
    )
}

/// Acknowledges messages of one checkpoint.
fn settle(
    context: &Context<'_>,
    handle: &Handle<'_>,
    invisible_ms: i64,
    revive_queue: i32,
    offsets: &[i64],
) -> Handled {
    let (broker, now) = (context.broker, context.now);
    let lane = broker.pop.lane(revive_queue).ok_or_else(|| lane_refused(revive_queue))?;
    let mut lane = lane.lock();
    let key = handle.key();
    let ends = handle.pop_time.saturating_add(invisible_ms);
    let mut fresh = Vec::with_capacity(offsets.len());
    let (mut known, mut refusal) = (0usize, None);
    for offset in offsets {
        match lane.machine.look(&key, *offset) {
            Known::Here(State::Invisible) => fresh.push(*offset),
            Known::Here(State::Acked) => known += 1,
            // Settled, or held back by timers of the broker that was here before: kept until it is known.
            Known::Nothing if now <= ends => fresh.push(*offset),
            Known::Here(State::Moved) => refusal = Some(over(handle, *offset, EXCHANGED)),
            Known::Here(State::Revived) | Known::Nothing => {
                refusal = Some(over(handle, *offset, CAME_BACK))
            }
            Known::NotInIt => refusal = Some(over(handle, *offset, FOREIGN)),
        }
    }
    if fresh.is_empty() {
        return match refusal {
            Some(refusal) if known == 0 => Err(refusal),
            _ => Ok(Response::success()),
        };
    }
    let written = records::acknowledgement(handle, &fresh, now);
    revive::append(broker, &mut lane, revive_queue, &written, now)
        .map_err(|error| refused_by_store(&error))?;
    for offset in fresh {
        lane.machine.settle(&key, offset, State::Acked, ends);
    }
    Ok(Response::success())
}

fn ack_in_order(
    broker: &Broker,
    (topic, group, queue_id): (&str, &str, i32),
    offset: i64,
    pop_time: i64,
) -> Handled {
    {
        let _alone = broker.pop.lock_queue(topic, group, queue_id);
        let before = broker.offsets.query(group, topic, queue_id).unwrap_or(-1);
        if offset < before {
            return Ok(Response::success());
        }
        match broker.pop.order.acked(topic, group, queue_id, offset, pop_time) {
            Commit::To(next) => {
                broker.offsets.commit(group, topic, queue_id, next);
            }
            Commit::Outdated => return Ok(Response::success()),
            Commit::Illegal => {
                return Err(refuse(
                    ResponseCode::MESSAGE_ILLEGAL,
                    format!(
                        "offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}: it is not in hand"
                    ),
                ));
            }
        }
    }
    broker.pop.polling.wake(topic, group);
    Ok(Response::success())
}

/// CHANGE_MESSAGE_INVISIBLETIME: the message stays invisible for another time, under a new handle.
pub(crate) fn change_invisible_time(context: &Context<'_>) -> Handled {
    let header: ChangeInvisibleTimeRequestHeader = context.header()?;
    let (broker, now) = (context.broker, context.now);
    let (topic, group, queue_id) =
        (header.topic.as_str(), header.consumer_group.as_str(), header.queue_id);
    check_place(context, topic, queue_id, header.offset, false)?;
    let receipt = receipt(&header.extra_info)?;
    if header.invisible_time < 0 {
        let remark =
            format!("invisibleTime {} is illegal, it may not be negative", header.invisible_time);
        return Err(refuse(ResponseCode::INVALID_PARAMETER, remark));
    }
    let (pop_time, invisible_time) = if receipt.revive_queue == ORDER_QUEUE {
        let at = now.saturating_add(header.invisible_time);
        let times = (receipt.pop_time, at);
        let in_hand = {
            let _alone = broker.pop.lock_queue(topic, group, queue_id);
            broker.pop.order.visible_at(topic, group, queue_id, header.offset, times)
        };
        if in_hand {
            broker.pop.polling.wake(topic, group);
        }
        (receipt.pop_time, at.saturating_sub(receipt.pop_time))
    } else {
        // Two checkpoints of one message must not have one name.
        let pop_time = now.max(receipt.pop_time.saturating_add(1));
        exchange(broker, &header, &receipt, pop_time, now)?;
        (pop_time, header.invisible_time)
    };
    let answer = ChangeInvisibleTimeResponseHeader {
        pop_time,
        invisible_time,
        revive_qid: receipt.revive_queue,
    };
    Ok(Response::success().header(&answer))
}

/// Writes a new checkpoint for one message and settles it in the old one.
fn exchange(
    broker: &Broker,
    header: &ChangeInvisibleTimeRequestHeader,
    receipt: &Receipt<'_>,
    pop_time: i64,
    now: i64,
) -> Result<(), Response> {
    let (offset, revive_queue) = (header.offset, receipt.revive_queue);
    let old = handle(&header.topic, &header.consumer_group, header.queue_id, receipt);
    let lane = broker.pop.lane(revive_queue).ok_or_else(|| lane_refused(revive_queue))?;
    let mut lane = lane.lock();
    let key = old.key();
    match lane.machine.look(&key, offset) {
        Known::Here(State::Invisible) => {}
        Known::Here(State::Acked) => {
            return Err(over(&old, offset, "is over: the message is acknowledged"));
        }
        Known::Here(State::Moved) => return Err(over(&old, offset, EXCHANGED)),
        Known::NotInIt => return Err(over(&old, offset, FOREIGN)),
        Known::Here(State::Revived) | Known::Nothing => {
            return Err(over(
                &old,
                offset,
                "is over: the message is acknowledged or visible again",
            ));
        }
    }
    let mut made = Checkpoint {
        topic: old.topic.into(),
        group: old.group.into(),
        broker: broker.config.broker_name.as_str().into(),
        queue_id: old.queue_id,
        start_offset: offset,
        pop_time,
        invisible_ms: header.invisible_time,
        messages: vec![(offset, State::Invisible)],
        suspended: header.suspend.unwrap_or(false),
        failures: 0,
        revive_offset: 0,
        next_ms: 0,
    };
    let (new, settled) =
        (records::checkpoint(&made, now), records::acknowledgement(&old, &[offset], now));
    // One after the other: an old handle settled without a new one would lose the message.
    made.revive_offset = revive::append(broker, &mut lane, revive_queue, &new, now)
        .map_err(|error| refused_by_store(&error))?;
    if let Err(error) = revive::append(broker, &mut lane, revive_queue, &settled, now) {
        tracing::warn!(topic = old.topic, %error, "a message whose time was changed may come twice after a restart");
    }
    lane.machine.popped(made);
    lane.machine.settle(&key, offset, State::Moved, 0);
    Ok(())
}
