//! The records of transactions: what is read from a half message, and what is made of it.
//!
//! | record | made from the half message by |
//! | --- | --- |
//! | half message | real topic and queue go to REAL_TOPIC and REAL_QID; `__transactionId__`; type bits 0 |
//! | its copy | TRANSACTION_CHECK_TIMES one higher (not when only renewed); TRAN_PREPARED_QUEUE_OFFSET |
//! | final message | real topic and queue again; type bits "commit"; prepared offset = the half message's |
//! | op message | tag `d`; body: queue offsets of half messages, each with a comma behind it |
//! | discarded one | the half message in `TRANS_CHECK_MAX_TIME_TOPIC` |

use super::ledger::Half;
use crate::broker::Broker;
use crate::processor::send_rules::{self, Target};
use apogee_model::names::{TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};
use apogee_model::properties::keys;
use apogee_model::record::{self, RecordFields, RecordView};
use apogee_model::{PropertyMap, sys_flag};
use apogee_protocol::Str;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

/// Queue offset of the first copy.
const FIRST_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
/// How often the producer was asked.
const CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// Seconds in which the producer does not want to be asked.
const IMMUNITY: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// Copy of the unique key.
const TRANSACTION_ID: &str = "__transactionId__";
/// Properties of an op message.
const OP_PROPERTIES: &[u8] = b"TAGS\x01d\x02WAIT\x01true\x02";
/// Its tag.
const OP_TAG: &str = "d";

/// Turns a message to the half queue; `map` gets what brings it back.
pub(crate) fn to_half(map: &mut PropertyMap, target: &mut Target) {
    // A message that is sent on may bring these along; they would be taken for the broker's own.
    for key in [CHECK_TIMES, FIRST_OFFSET] {
        map.remove(key);
    }
    if let Some(id) = map.get(keys::UNIQ_KEY).map(str::to_owned) {
        map.set(TRANSACTION_ID, id);
    }
    map.set(keys::REAL_TOPIC, target.topic.as_str());
    map.set(keys::REAL_QID, target.queue_id.to_string());
    target.topic = Str::from_static(TRANS_HALF_TOPIC);
    target.queue_id = 0;
    target.sys_flag = sys_flag::with_transaction_type(target.sys_flag, sys_flag::TRANSACTION_NOT);
}

/// Where a half message goes when it is committed.
pub(crate) fn real_place<'a>(record: &RecordView<'a>) -> Option<(&'a str, i32)> {
    let properties = record.properties();
    let queue_id = properties.get(keys::REAL_QID)?.parse().ok().filter(|id| *id >= 0)?;
    Some((properties.get(keys::REAL_TOPIC)?, queue_id))
}

/// The same number for all copies of a half message and for its final message; 0 when it has no unique
/// key.
pub(crate) fn identity(record: &RecordView<'_>) -> u64 {
    let Some(key) = record.properties().get(keys::UNIQ_KEY) else { return 0 };
    let mut hasher = DefaultHasher::new();
    (key, record.born_timestamp(), record.born_host()).hash(&mut hasher);
    hasher.finish()
}

/// What the ledger keeps of a record of the half queue.
pub(crate) fn half_of(record: &RecordView<'_>) -> Half {
    let properties = record.properties();
    let seconds = properties.get(IMMUNITY).and_then(|text| text.parse::<i64>().ok());
    Half {
        offset: record.queue_offset(),
        physical: record.physical_offset(),
        stored_ms: record.store_timestamp(),
        first_stored_ms: record.store_timestamp(),
        immunity_ms: seconds
            .filter(|seconds| *seconds >= 0)
            .map(|seconds| seconds.saturating_mul(1_000)),
        checks: properties.get(CHECK_TIMES).and_then(|text| text.parse().ok()).unwrap_or(0),
        identity: identity(record),
        first_offset: properties.get(FIRST_OFFSET).and_then(|text| text.parse().ok()),
        whole: properties.get(keys::PGROUP).is_some() && real_place(record).is_some(),
    }
}

/// Properties of a copy.
pub(crate) fn copy_properties(record: &RecordView<'_>, first_offset: i64, checks: u32) -> Vec<u8> {
    let mut map = PropertyMap::parse(record.properties().as_bytes());
    map.set(FIRST_OFFSET, first_offset.to_string());
    if checks > 0 {
        map.set(CHECK_TIMES, checks.to_string());
    }
    map.encode()
}

/// Properties of a half message that was given up and is to be asked about again from the start.
pub(crate) fn resumed_properties(record: &RecordView<'_>) -> Vec<u8> {
    let mut map = PropertyMap::parse(record.properties().as_bytes());
    map.remove(FIRST_OFFSET);
    map.set(CHECK_TIMES, "0");
    map.encode()
}

/// Where a committed message is stored, and its properties. A delay level counts from the commit on.
pub(crate) fn final_message(broker: &Broker, record: &RecordView<'_>) -> Option<(Target, Vec<u8>)> {
    let (topic, queue_id) = real_place(record)?;
    let mut map = PropertyMap::parse(record.properties().as_bytes());
    for key in [keys::REAL_TOPIC, keys::REAL_QID, FIRST_OFFSET] {
        map.remove(key);
    }
    let mut target = Target {
        topic: Str::from(topic.to_owned()),
        queue_id,
        answer_queue_id: queue_id,
        sys_flag: sys_flag::with_transaction_type(record.sys_flag(), sys_flag::TRANSACTION_COMMIT),
    };
    let level = map.get(keys::DELAY).and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
    if level > 0 {
        send_rules::delay(broker, &mut map, &mut target, level);
    }
    Some((target, map.encode()))
}

/// The record as a producer is asked about it: under its real topic and queue. `None` if it is too long.
pub(crate) fn question_body(
    record: &RecordView<'_>,
    copy: &Half,
    properties: &[u8],
) -> Option<Vec<u8>> {
    let (topic, queue_id) = real_place(record)?;
    let mut out = Vec::new();
    record::encode(&RecordFields { topic, queue_id, properties, ..record.fields() }, &mut out)
        .ok()?;
    record::set_position(&mut out, copy.offset, copy.physical, record.store_timestamp());
    Some(out)
}

/// Body of an op message.
pub(crate) fn op_body(offsets: &[i64]) -> String {
    offsets.iter().fold(String::new(), |mut body, offset| {
        body.push_str(&offset.to_string());
        body.push(',');
        body
    })
}

/// An op message.
pub(crate) fn op_fields(body: &str, host: SocketAddr, now: i64) -> RecordFields<'_> {
    RecordFields {
        topic: TRANS_OP_HALF_TOPIC,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: now,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: body.as_bytes(),
        properties: OP_PROPERTIES,
    }
}

/// The half offsets that an op message names; nothing when it is none.
pub(crate) fn op_offsets<'a>(record: &RecordView<'a>) -> impl Iterator<Item = i64> + use<'a> {
    let is_op = record.properties().get(keys::TAGS) == Some(OP_TAG);
    let body = if is_op { std::str::from_utf8(record.body()).unwrap_or_default() } else { "" };
    body.split(',').filter_map(|text| text.trim().parse().ok())
}
