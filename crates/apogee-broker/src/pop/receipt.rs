//! The texts that pop clients carry around: receipts of messages, and where an answer's messages stand.
//!
//! | text | fields |
//! | --- | --- |
//! | receipt (`POP_CK`, `extraInfo`) | start offset, pop time, invisible time, revive queue, retry kind, broker, queue, offset; blanks between; a ninth field (commit log offset) is allowed |
//! | start offsets | `kind queue offset`, `;` between queues |
//! | message offsets | `kind queue offset,offset,…`, `;` between queues |
//! | order counts | `kind queue count` for a queue, `kind qo<queue>%<offset> count` for a message |

use apogee_model::names::RETRY_PREFIX;
use std::fmt::Write;

/// The revive queue that stands for "consumed in order".
pub(crate) const ORDER_QUEUE: i32 = 999;

/// Where a popped message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The topic itself.
    Topic,
    /// The group's retry topic, `%RETRY%group_topic`.
    RetryV1,
    /// The same of the second version, `%RETRY%group+topic`.
    RetryV2,
}

impl Source {
    /// The digit in receipts.
    pub(crate) fn digit(self) -> char {
        match self {
            Self::Topic => '0',
            Self::RetryV1 => '1',
            Self::RetryV2 => '2',
        }
    }

    /// The source that a digit stands for.
    pub(crate) fn of(digit: &str) -> Option<Self> {
        match digit {
            "0" => Some(Self::Topic),
            "1" => Some(Self::RetryV1),
            "2" => Some(Self::RetryV2),
            _ => None,
        }
    }

    /// The topic that messages of this source really stand in.
    pub(crate) fn real_topic(self, topic: &str, group: &str) -> String {
        match self {
            Self::Topic => topic.to_owned(),
            Self::RetryV1 => format!("{RETRY_PREFIX}{group}_{topic}"),
            Self::RetryV2 => format!("{RETRY_PREFIX}{group}+{topic}"),
        }
    }
}

/// A receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt<'a> {
    pub(crate) start_offset: i64,
    pub(crate) pop_time: i64,
    pub(crate) invisible_ms: i64,
    pub(crate) revive_queue: i32,
    pub(crate) source: Source,
    pub(crate) broker: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) offset: i64,
}

impl<'a> Receipt<'a> {
    /// Reads a receipt; `None` when it is none.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.split(' ');
        let receipt = Self {
            start_offset: fields.next()?.parse().ok()?,
            pop_time: fields.next()?.parse().ok()?,
            invisible_ms: fields.next()?.parse().ok()?,
            revive_queue: fields.next()?.parse().ok()?,
            source: Source::of(fields.next()?)?,
            broker: fields.next()?,
            queue_id: fields.next()?.parse().ok()?,
            offset: fields.next()?.parse().ok()?,
        };
        (fields.count() <= 1).then_some(receipt)
    }
}

impl std::fmt::Display for Receipt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            start_offset,
            pop_time,
            invisible_ms,
            revive_queue,
            source,
            broker,
            queue_id,
            offset,
        } = self;
        let digit = source.digit();
        write!(
            f,
            "{start_offset} {pop_time} {invisible_ms} {revive_queue} {digit} {broker} {queue_id} {offset}"
        )
    }
}

/// The three texts of an answer, filled queue by queue.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) starts: String,
    pub(crate) messages: String,
    pub(crate) counts: String,
}

impl Places {
    /// Messages of one queue.
    pub(crate) fn add(&mut self, source: Source, queue_id: i32, start: i64, offsets: &[i64]) {
        let digit = source.digit();
        push(&mut self.starts, format_args!("{digit} {queue_id} {start}"));
        push(&mut self.messages, format_args!("{digit} {queue_id} "));
        for (at, offset) in offsets.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(self.messages, "{comma}{offset}");
        }
    }

    /// How often the queue's messages were consumed before: each that was, and the least of all.
    pub(crate) fn count(
        &mut self,
        queue_id: i32,
        counts: impl Iterator<Item = (i64, i32)>,
        least: i32,
    ) {
        for (offset, count) in counts {
            push(&mut self.counts, format_args!("0 qo{queue_id}%{offset} {count}"));
        }
        push(&mut self.counts, format_args!("0 {queue_id} {least}"));
    }
}

fn push(text: &mut String, item: std::fmt::Arguments<'_>) {
    if !text.is_empty() {
        text.push(';');
    }
    let _ = text.write_fmt(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_of_the_original_read_and_write_equal() {
        for text in
            ["0 1796053955320 10000 0 0 broker-a 1 3", "0 1796053970246 10000 2 1 broker-a 0 0"]
        {
            assert_eq!(Receipt::parse(text).unwrap().to_string(), text);
        }
        assert!(Receipt::parse("0 1796053955320 10000 0 0 broker-a 1 3 4711").is_some());
    }

    #[test]
    fn what_is_no_receipt_is_refused() {
        for text in
            ["", "x", "0 1 2 3 0 b 1", "0 1 2 3 7 b 1 2", "0 1 2 3 0 b 1 x", "0 1 2 3 0 b 1 2 3 4"]
        {
            assert_eq!(Receipt::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn places_are_told_as_the_original_does() {
        let mut places = Places::default();
        places.add(Source::Topic, 1, 0, &[0, 1, 2, 3]);
        places.add(Source::Topic, 0, 0, &[0, 1, 2]);
        assert_eq!(places.starts, "0 1 0;0 0 0");
        assert_eq!(places.messages, "0 1 0,1,2,3;0 0 0,1,2");
        places.count(0, std::iter::empty(), 0);
        assert_eq!(places.counts, "0 0 0");
        places.count(3, [(5, 2)].into_iter(), 2);
        assert_eq!(places.counts, "0 0 0;0 qo3%5 2;0 3 2");
    }
}
