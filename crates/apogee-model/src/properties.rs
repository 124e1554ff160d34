//! Message properties: `name 0x01 value 0x02 name 0x01 value 0x02 …`.
//!
//! [`Properties`] reads the stored text without copying; [`PropertyMap`] edits it. Reading is as
//! lenient as the original: a piece without a separator, without a name or without a value is
//! skipped, and the last `0x02` may be missing. Bytes that are not UTF-8 make one pair unreadable,
//! never its neighbours.

/// Separates a name from its value.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends a pair.
pub const PROPERTY_SEPARATOR: u8 = 2;
/// The most bytes that properties may have in a stored record (a signed 16-bit length).
pub const MAX_PROPERTIES_LEN: usize = i16::MAX as usize;

/// Names of the properties that the broker or a client gives a meaning.
pub mod keys {
    /// Index keys, separated by blanks.
    pub const KEYS: &str = "KEYS";
    /// The tag.
    pub const TAGS: &str = "TAGS";
    /// "false": the sender does not wait for flush and replication.
    pub const WAIT: &str = "WAIT";
    /// Delay level, 1 to 18.
    pub const DELAY: &str = "DELAY";
    /// Original topic of a retried message.
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    /// Real topic of a message that waits in a system topic.
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    /// Real queue id of a message that waits in a system topic.
    pub const REAL_QID: &str = "REAL_QID";
    /// "true" marks a half message.
    pub const TRAN_MSG: &str = "TRAN_MSG";
    /// Producer group.
    pub const PGROUP: &str = "PGROUP";
    /// Offset message id of the first delivery.
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    /// Reconsume times when a client sends a retry itself.
    pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
    /// Region of the broker.
    pub const MSG_REGION: &str = "MSG_REGION";
    /// Whether the client shall trace.
    pub const TRACE_ON: &str = "TRACE_ON";
    /// Id made by the producing client.
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    /// Retry limit when a client sends a retry itself.
    pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
    /// Number of messages inside an inner batch.
    pub const INNER_NUM: &str = "INNER_NUM";
    /// First queue offset of an inner batch.
    pub const INNER_BASE: &str = "INNER_BASE";
    /// Light queues that the message also goes to.
    pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
    /// Offsets in those light queues.
    pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
    /// Namespace of the producer.
    pub const INSTANCE_ID: &str = "INSTANCE_ID";
    /// Cluster name, set by the broker.
    pub const CLUSTER: &str = "CLUSTER";
    /// "reply" marks a reply message.
    pub const MSG_TYPE: &str = "MSG_TYPE";
    /// Sharding key (message group).
    pub const SHARDING_KEY: &str = "__SHARDINGKEY";
    /// Relative delay in seconds.
    pub const TIMER_DELAY_SEC: &str = "TIMER_DELAY_SEC";
    /// Relative delay in milliseconds.
    pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
    /// Absolute delivery time in milliseconds.
    pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
    /// Aligned delivery time used by the timer wheel.
    pub const TIMER_OUT_MS: &str = "TIMER_OUT_MS";
    /// Unique key of a timer message to cancel.
    pub const TIMER_DEL_UNIQKEY: &str = "TIMER_DEL_UNIQKEY";
    /// CRC over the whole record, always the last property.
    pub const CRC32: &str = "__CRC32#";
    /// Original topic of a dead letter.
    pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
    /// Original message id of a dead letter.
    pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
    /// Properties with this prefix are never stored.
    pub const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";
    /// Receipt of a popped message.
    pub const POP_CK: &str = "POP_CK";
    /// First pop time in milliseconds.
    pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
}

/// A read-only view over encoded properties.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// Views `encoded` as properties; nothing is checked or copied.
    #[must_use]
    pub fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The value of `name`; where a name stands twice the last one counts, as in a map.
    #[must_use]
    pub fn get(self, name: &str) -> Option<&'a str> {
        let mut found = None;
        for (key, value) in self.raw_pairs() {
            if key == name.as_bytes() {
                found = std::str::from_utf8(value).ok().or(found);
            }
        }
        found
    }

    /// All readable pairs in stored order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.raw_pairs().filter_map(|(key, value)| {
            Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?))
        })
    }

    /// All pairs as bytes: cheaper than [`Self::iter`] when few values are wanted as text.
    pub fn raw_pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.0.split(|byte| *byte == PROPERTY_SEPARATOR).filter_map(|piece| {
            let at = piece.iter().position(|byte| *byte == NAME_VALUE_SEPARATOR)?;
            let (key, rest) = piece.split_at_checked(at)?;
            let value = rest.get(1..)?;
            (!key.is_empty() && !value.is_empty()).then_some((key, value))
        })
    }
}

impl std::fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Properties for editing: a small list in insertion order with unique names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyMap(Vec<(String, String)>);

impl PropertyMap {
    /// No properties.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads encoded properties; see [`Properties`] for what is skipped.
    #[must_use]
    pub fn parse(encoded: &[u8]) -> Self {
        let mut map = Self::new();
        for (key, value) in Properties::new(encoded).iter() {
            map.set(key, value);
        }
        map
    }

    /// The value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Sets `name`, replacing an earlier value in place.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some(pair) => pair.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes `name` and gives its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// All pairs in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stored form. Empty names and values are left out: no reader could see them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.iter().map(|(k, v)| k.len() + v.len() + 2).sum());
        for (key, value) in &self.0 {
            append_pair(&mut out, key, value);
        }
        out
    }
}

/// Appends one pair in stored form; an empty name or value appends nothing.
pub fn append_pair(out: &mut Vec<u8>, name: &str, value: &str) {
    if name.is_empty() || value.is_empty() {
        return;
    }
    out.extend_from_slice(name.as_bytes());
    out.push(NAME_VALUE_SEPARATOR);
    out.extend_from_slice(value.as_bytes());
    out.push(PROPERTY_SEPARATOR);
}

/// Appends one pair to properties that may lack the last separator.
pub fn append_pair_to_encoded(out: &mut Vec<u8>, name: &str, value: &str) {
    if out.last().is_some_and(|last| *last != PROPERTY_SEPARATOR) {
        out.push(PROPERTY_SEPARATOR);
    }
    append_pair(out, name, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn last_separator_is_optional() {
        let text = b"TAGS\x01A\x02KEYS\x01k1 k2";
        assert_eq!(Properties::new(text).get("KEYS"), Some("k1 k2"));
        assert_eq!(PropertyMap::parse(text).encode(), b"TAGS\x01A\x02KEYS\x01k1 k2\x02");
    }

    #[test]
    fn pieces_without_separator_name_or_value_are_skipped_and_neighbours_stay() {
        let text = b"x\x02\x01v\x02empty\x01\x02\xff\xfe\x01bad\x02TAGS\x01A\x02";
        let pairs: Vec<_> = Properties::new(text).iter().collect();
        assert_eq!(pairs, [("TAGS", "A")]);
    }

    #[test]
    fn a_value_may_hold_the_name_separator() {
        assert_eq!(Properties::new(b"a\x01b\x01c\x02").get("a"), Some("b\x01c"));
    }

    #[test]
    fn the_last_of_two_equal_names_counts() {
        assert_eq!(Properties::new(b"a\x011\x02a\x012\x02").get("a"), Some("2"));
        assert_eq!(PropertyMap::parse(b"a\x011\x02a\x012\x02").get("a"), Some("2"));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let map = PropertyMap::parse(&bytes);
            prop_assert_eq!(PropertyMap::parse(&map.encode()), map);
        }
    }
}
