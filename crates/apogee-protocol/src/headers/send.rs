//! Sending: the two spellings of the send header are one struct.
//!
//! Always holds: either spelling reads; [`Header::encode`] writes the one-letter spelling (codes 310, 320,
//! 325), [`SendMessageHeader::encode_long`] the long one (codes 10, 324).

use super::table::*;
use super::{RpcFields, RpcSeen};

/// Header of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320) and the reply codes 324, 325.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendMessageHeader {
    /// Producer group.
    pub producer_group: Str,
    /// Topic.
    pub topic: Str,
    /// Topic whose settings a new topic takes.
    pub default_topic: Str,
    /// Queues of a topic created by this send.
    pub default_topic_queue_nums: i32,
    /// Queue; below 0 = the broker chooses.
    pub queue_id: i32,
    /// Message sys flag.
    pub sys_flag: i32,
    /// Time of birth, ms since 1970.
    pub born_timestamp: i64,
    /// The user's flag.
    pub flag: i32,
    /// Properties as stored.
    pub properties: Option<Str>,
    /// How often a consumer retried it.
    pub reconsume_times: Option<i32>,
    /// Unit mode.
    pub unit_mode: Option<bool>,
    /// Retries before the dead letter queue.
    pub max_reconsume_times: Option<i32>,
    /// Whether the body holds several messages.
    pub batch: Option<bool>,
    /// Routing fields.
    pub rpc: RpcFields,
}

/// Both spellings, in the order of the struct.
const NAMES: [(&str, &str); 13] = [
    ("a", "producerGroup"),
    ("b", "topic"),
    ("c", "defaultTopic"),
    ("d", "defaultTopicQueueNums"),
    ("e", "queueId"),
    ("f", "sysFlag"),
    ("g", "bornTimestamp"),
    ("h", "flag"),
    ("i", "properties"),
    ("j", "reconsumeTimes"),
    ("k", "unitMode"),
    ("l", "maxReconsumeTimes"),
    ("m", "batch"),
];

fn required<T: FieldValue>(
    ext: &ExtFields,
    seen: Option<Field>,
    name: &'static str,
) -> Result<T, HeaderError> {
    let missing = HeaderError {
        header: SendMessageHeader::NAME,
        field: name,
        problem: FieldProblem::Missing,
    };
    optional(ext, seen, name)?.ok_or(missing)
}

fn optional<T: FieldValue>(
    ext: &ExtFields,
    seen: Option<Field>,
    name: &'static str,
) -> Result<Option<T>, HeaderError> {
    value(ext, seen, SendMessageHeader::NAME, name)
}

impl Header for SendMessageHeader {
    const NAME: &'static str = "SendMessageRequestHeader";

    fn decode(ext: &ExtFields) -> Result<Self, HeaderError> {
        let mut seen = [None; 13];
        let mut rpc = RpcSeen::default();
        for field in ext.fields() {
            let key = ext.key_bytes(field);
            // One-letter names are the hot path: their place in the alphabet is their place in the table.
            let at = match key {
                [letter @ b'a'..=b'm'] => usize::from(letter - b'a'),
                _ => {
                    NAMES.iter().position(|(_, long)| long.as_bytes() == key).unwrap_or(NAMES.len())
                }
            };
            match seen.get_mut(at) {
                Some(place) => *place = Some(field),
                None => rpc.take(ext.key(field), field),
            }
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, m] = seen;
        Ok(SendMessageHeader {
            producer_group: required(ext, a, "producerGroup")?,
            topic: required(ext, b, "topic")?,
            default_topic: required(ext, c, "defaultTopic")?,
            default_topic_queue_nums: required(ext, d, "defaultTopicQueueNums")?,
            queue_id: required(ext, e, "queueId")?,
            sys_flag: required(ext, f, "sysFlag")?,
            born_timestamp: required(ext, g, "bornTimestamp")?,
            flag: required(ext, h, "flag")?,
            properties: optional(ext, i, "properties")?,
            reconsume_times: optional(ext, j, "reconsumeTimes")?,
            unit_mode: optional(ext, k, "unitMode")?,
            max_reconsume_times: optional(ext, l, "maxReconsumeTimes")?,
            batch: optional(ext, m, "batch")?,
            rpc: rpc.read(ext, Self::NAME)?,
        })
    }

    fn encode<W: ExtWriter + ?Sized>(&self, out: &mut W) {
        self.write(|(short, _)| short, out);
        self.rpc.write_as("n", out);
    }
}

impl SendMessageHeader {
    /// Writes the long spelling, for SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324).
    pub fn encode_long<W: ExtWriter + ?Sized>(&self, out: &mut W) {
        self.write(|(_, long)| long, out);
        self.rpc.write(out);
    }

    fn write<W: ExtWriter + ?Sized>(
        &self,
        spelling: impl Fn((&'static str, &'static str)) -> &'static str,
        out: &mut W,
    ) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m] = NAMES.map(spelling);
        for (name, text) in [(a, &self.producer_group), (b, &self.topic), (c, &self.default_topic)]
        {
            out.put_str(name, text);
        }
        for (name, number) in
            [(d, self.default_topic_queue_nums), (e, self.queue_id), (f, self.sys_flag)]
        {
            out.put_i64(name, i64::from(number));
        }
        out.put_i64(g, self.born_timestamp);
        out.put_i64(h, i64::from(self.flag));
        if let Some(properties) = &self.properties {
            out.put_str(i, properties);
        }
        if let Some(times) = self.reconsume_times {
            out.put_i64(j, i64::from(times));
        }
        if let Some(unit_mode) = self.unit_mode {
            out.put_bool(k, unit_mode);
        }
        if let Some(times) = self.max_reconsume_times {
            out.put_i64(l, i64::from(times));
        }
        if let Some(batch) = self.batch {
            out.put_bool(m, batch);
        }
    }
}

headers! {
    /// Answer to every send.
    SendMessageResponseHeader {
        req msg_id: Str = "msgId",
        req queue_id: i32 = "queueId",
        req queue_offset: i64 = "queueOffset",
        opt transaction_id: Str = "transactionId",
        opt batch_uniq_id: Str = "batchUniqId",
        opt recall_handle: Str = "recallHandle",
    }

    /// Request PUSH_REPLY_MESSAGE_TO_CLIENT (326).
    ReplyMessageRequestHeader + rpc {
        req producer_group: Str = "producerGroup",
        req topic: Str = "topic",
        req default_topic: Str = "defaultTopic",
        req default_topic_queue_nums: i32 = "defaultTopicQueueNums",
        req queue_id: i32 = "queueId",
        req sys_flag: i32 = "sysFlag",
        req born_timestamp: i64 = "bornTimestamp",
        req flag: i32 = "flag",
        opt properties: Str = "properties",
        opt reconsume_times: i32 = "reconsumeTimes",
        def unit_mode: bool = "unitMode",
        req born_host: Str = "bornHost",
        req store_host: Str = "storeHost",
        req store_timestamp: i64 = "storeTimestamp",
    }
}
