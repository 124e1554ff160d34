//! `tail`: reads all queues of a topic by pulling, from a chosen place on, and prints what comes.
//!
//! Always holds: nothing is committed, so reading changes nothing for the consumers of the topic. One task
//! for each queue pulls; a bounded channel brings messages to the one that prints.

use super::Failure;
use crate::requests::{Queue, RequestError, Requests, Use, name_servers, now_ms};
use apogee_model::RecordView;
use apogee_model::compression::Compression;
use apogee_model::properties::keys;
use apogee_model::subscription::{ALL_TAGS, split_tags};
use apogee_protocol::headers::{PullMessageRequestHeader, PullMessageResponseHeader};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use bytes::Bytes;
use clap::Args;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const SUSPEND: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(30);
const NEW_TOPIC_PATIENCE: Duration = Duration::from_secs(1);
/// Messages that may wait to be printed.
const MAX_WAITING: usize = 256;
/// A compressed body that grows beyond this is printed as it is.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// Sys flags: wait for messages (2), the subscription is in the header (4).
const SYS_FLAG: i32 = 2 | 4;

/// Options of `apogee tail`.
#[derive(Debug, Clone, Args)]
pub(super) struct Tail {
    /// Topic
    topic: String,
    /// Where to begin: first, last, a time (2026-11-30T12:00:00Z, "2026-11-30 12:00:00", ms since
    /// 1970), or -10m for ten minutes ago
    #[arg(short, long, default_value = "last", allow_hyphen_values = true)]
    from: String,
    /// End after this many messages
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<u64>,
    /// Tags to read, such as "a || b"
    #[arg(short, long, default_value = "*")]
    tag: String,
    /// Consumer group
    #[arg(short, long, default_value = "apogee-tail")]
    group: String,
    /// Name servers, host:port;host:port [default: NAMESRV_ADDR, else 127.0.0.1:9876]
    #[arg(long)]
    namesrv: Option<String>,
    /// Print place, times and properties too
    #[arg(short, long)]
    verbose: bool,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    First,
    Last,
    Time(i64),
}

impl From {
    fn parse(text: &str, now_ms: i64) -> Option<Self> {
        match text {
            "first" => return Some(Self::First),
            "last" => return Some(Self::Last),
            _ => {}
        }
        if let Some(ago) = text.strip_prefix('-') {
            let unit = ago.chars().last()?;
            let count: i64 = ago.strip_suffix(unit)?.parse().ok()?;
            let unit_ms = match unit {
                's' => 1_000,
                'm' => 60_000,
                'h' => 3_600_000,
                'd' => 86_400_000,
                _ => return None,
            };
            return Some(Self::Time(now_ms.saturating_sub(count.checked_mul(unit_ms)?)));
        }
        if let Ok(ms) = text.parse::<i64>() {
            return Some(Self::Time(ms));
        }
        if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
            return Some(Self::Time(timestamp.as_millisecond()));
        }
        let local: jiff::civil::DateTime = text.parse().ok()?;
        let zoned = local.to_zoned_datetime(jiff::tz::TimeZone::system()).ok()?;
        Some(Self::Time(zoned.timestamp().as_millisecond()))
    }
}

impl Tail {
    /// Whether the record has one of the tags asked for. The broker compares hashes only, and two tags
    /// may have the same.
    fn wants(&self, record: &[u8]) -> bool {
        if self.tag.trim().is_empty() || self.tag.trim() == ALL_TAGS {
            return true;
        }
        let Ok(view) = RecordView::parse(record) else { return true };
        let tag = view.properties().get(keys::TAGS).unwrap_or_default();
        split_tags(&self.tag).any(|wanted| wanted == tag)
    }

    pub(super) async fn run(self) -> Result<(), Failure> {
        let from = From::parse(&self.from, now_ms().cast_signed()).ok_or_else(|| {
            let text = "write first, last, a time such as 2026-11-30T12:00:00Z, or -10m";
            Failure::Usage(format!("--from {}: {text}", self.from))
        })?;
        let requests = Arc::new(Requests::new(&name_servers(self.namesrv.as_deref())));
        let queues = self.queues(&requests).await?;
        let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
        let verbose = self.verbose;
        let mut left = self.number.unwrap_or(u64::MAX);
        let tail = Arc::new(self);
        for queue in queues {
            let offset = start_of(&requests, &tail.topic, &queue, from).await?;
            let reader = Reader {
                tail: Arc::clone(&tail),
                requests: Arc::clone(&requests),
                queue,
                offset,
                sender: sender.clone(),
            };
            tokio::spawn(reader.run());
        }
        drop(sender);
        while left > 0 {
            let Some(message) = receiver.recv().await else { break };
            let (queue, record) = message?;
            // Whoever reads our output may have enough of it.
            if print(&queue, &record, verbose).is_err() {
                break;
            }
            left -= 1;
        }
        Ok(())
    }
}

impl Tail {
    /// A topic that a send has just created is known to the name server a moment later.
    async fn queues(&self, requests: &Requests) -> Result<Vec<Queue>, RequestError> {
        let deadline = std::time::Instant::now() + NEW_TOPIC_PATIENCE;
        loop {
            match requests.queues(&self.topic, Use::Read).await {
                Err(RequestError::TopicAbsent { .. }) if std::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                result => return result,
            }
        }
    }
}

async fn start_of(
    requests: &Requests,
    topic: &str,
    queue: &Queue,
    from: From,
) -> Result<i64, RequestError> {
    match from {
        // The broker answers with its first offset when this one is gone.
        From::First => Ok(0),
        From::Last => requests.max_offset(topic, queue).await,
        From::Time(ms) => requests.search_offset(topic, queue, ms).await,
    }
}

type Message = Result<(Queue, Bytes), RequestError>;

/// Reads one queue.
struct Reader {
    tail: Arc<Tail>,
    requests: Arc<Requests>,
    queue: Queue,
    offset: i64,
    sender: mpsc::Sender<Message>,
}

impl Reader {
    async fn run(mut self) {
        loop {
            let went = match self.pull().await {
                Ok(records) => self.pass_on(records).await,
                Err(error) => {
                    let _ = self.sender.send(Err(error)).await;
                    return;
                }
            };
            if !went {
                return;
            }
        }
    }

    async fn pass_on(&self, body: Bytes) -> bool {
        let mut rest = body;
        while let Some(word) = rest.first_chunk::<4>() {
            let len = u32::from_be_bytes(*word) as usize;
            if len <= 4 || len > rest.len() {
                break;
            }
            let record = rest.split_to(len);
            if !self.tail.wants(&record) {
                continue;
            }
            if self.sender.send(Ok((self.queue.clone(), record))).await.is_err() {
                return false;
            }
        }
        !self.sender.is_closed()
    }

    async fn pull(&mut self) -> Result<Bytes, RequestError> {
        let (broker, address) = (&self.queue.broker, &self.queue.address);
        let header = PullMessageRequestHeader {
            consumer_group: self.tail.group.as_str().into(),
            topic: self.tail.topic.as_str().into(),
            queue_id: self.queue.id,
            queue_offset: self.offset,
            max_msg_nums: 32,
            sys_flag: SYS_FLAG,
            suspend_timeout_millis: SUSPEND.as_millis() as i64,
            subscription: Some(self.tail.tag.as_str().into()),
            expression_type: Some("TAG".into()),
            ..PullMessageRequestHeader::default()
        };
        let request = RemotingCommand::request(RequestCode::PULL_MESSAGE, &header);
        let answer = self.requests.ask_any(broker, address, request, PATIENCE).await?;
        let who = format!("broker {broker} ({address})");
        let empty = matches!(
            answer.response_code(),
            ResponseCode::PULL_NOT_FOUND
                | ResponseCode::PULL_RETRY_IMMEDIATELY
                | ResponseCode::PULL_OFFSET_MOVED
        );
        let answer = if empty { answer } else { crate::requests::success(&who, answer)? };
        let header: PullMessageResponseHeader = answer
            .header()
            .map_err(|error| RequestError::Unreadable { who, why: error.to_string() })?;
        self.offset = header.next_begin_offset;
        Ok(if empty { Bytes::new() } else { answer.body })
    }
}

fn print(queue: &Queue, record: &[u8], verbose: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let Ok(view) = RecordView::parse(record) else {
        return writeln!(out, "a record of {} bytes that cannot be read", record.len());
    };
    if verbose {
        let time = jiff::Timestamp::from_millisecond(view.store_timestamp())
            .map_or_else(|_| view.store_timestamp().to_string(), |time| time.to_string());
        let (offset, from) = (view.queue_offset(), view.born_host());
        writeln!(out, "{}/{} offset {offset} stored {time} from {from}", queue.broker, queue.id)?;
        for (name, value) in view.properties().iter() {
            writeln!(out, "  {name}={value}")?;
        }
    }
    let plain = match Compression::of_sys_flag(view.sys_flag()) {
        Ok(Some(compression)) => compression.decompress(view.body(), MAX_BODY).ok(),
        _ => None,
    };
    out.write_all(plain.as_deref().unwrap_or_else(|| view.body()))?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apogee_model::record::{self, RecordFields};

    #[test]
    fn a_foreign_tag_with_an_equal_hash_is_not_wanted() {
        let tail = |tag: &str| Tail {
            topic: "T".to_owned(),
            from: "first".to_owned(),
            number: None,
            tag: tag.to_owned(),
            group: "g".to_owned(),
            namesrv: None,
            verbose: false,
        };
        let mut bytes = Vec::new();
        let host = "127.0.0.1:1".parse().unwrap();
        let fields = RecordFields {
            topic: "T",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"x",
            properties: b"TAGS\x01BB\x02",
        };
        record::encode(&fields, &mut bytes).unwrap();
        assert!(!tail("Aa").wants(&bytes) && !tail("A || Aa").wants(&bytes));
        assert!(
            tail("BB").wants(&bytes) && tail("*").wants(&bytes) && tail("Aa || BB").wants(&bytes)
        );
    }

    #[test]
    fn places_to_begin_are_words_times_and_spans_ago() {
        assert_eq!(From::parse("first", 0), Some(From::First));
        assert_eq!(From::parse("1796053796061", 0), Some(From::Time(1_796_053_796_061)));
        assert_eq!(From::parse("-10m", 1_000_000), Some(From::Time(400_000)));
        assert_eq!(From::parse("1970-01-01T00:00:02Z", 0), Some(From::Time(2000)));
        assert!(matches!(From::parse("2026-11-30 12:00:00", 0), Some(From::Time(_))));
        for bad in ["", "-", "-5x", "-m", "soon", "-99999999999999999d"] {
            assert_eq!(From::parse(bad, 0), None, "{bad}");
        }
    }
}
