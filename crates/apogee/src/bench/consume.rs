//! `bench consume`: reads a backlog from all queues at once and counts it.
//!
//! One task for each connection; every queue of a connection has one pull in flight, as with the
//! original's clients. Records are counted by hopping from length to length, not decoded.

use super::produce::micros_since;
use super::report::{Errors, Report, latencies};
use super::{BenchError, Common, LAST_ANSWERS, Progress, by_broker, connect, now_ms};
use crate::bench::frame::FIRST_OPAQUE;
use crate::requests::{Queue, Use};
use apogee_protocol::bodies::{
    ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, JsonBody, MessageModel,
    SubscriptionData,
};
use apogee_protocol::headers::{
    HeartbeatRequestHeader, PullMessageRequestHeader, PullMessageResponseHeader,
};
use apogee_protocol::{
    DEFAULT_MAX_FRAME_BYTES, RemotingCommand, RequestCode, ResponseCode, SerializeType, split_frame,
};
use bytes::BytesMut;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const READ_BYTES: usize = 256 * 1024;
const HEARTBEAT_OPAQUE: i32 = 1;
/// Sys flags of a pull: wait for messages; the subscription is in the header.
pub(super) const SUSPEND: i32 = 2;
pub(super) const SUBSCRIPTION: i32 = 4;

/// Options of `bench consume`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    /// Consumer group
    #[arg(short, long, default_value = "apogee-bench")]
    group: String,
    /// Connections
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// Messages asked for by each pull
    #[arg(short, long, default_value_t = 32, value_parser = clap::value_parser!(i32).range(1..=100_000))]
    pull_batch: i32,
    /// Stop after this many messages
    #[arg(short, long)]
    messages: Option<u64>,
}

pub(super) async fn run(options: Options) -> Result<Report, BenchError> {
    let common = &options.common;
    let brokers = by_broker(common.queues(Use::Read, false).await?);
    let progress = Arc::new(Progress::default());
    let mut lanes = Vec::new();
    for (address, queues) in brokers {
        // Connections are shared out among brokers; each has at least one, and no more than queues.
        let count = (options.connections as usize).clamp(1, queues.len());
        for number in 0..count {
            let mine = queues.iter().skip(number).step_by(count).cloned().collect();
            let mut stream = connect(&address).await?;
            let mut lane = Lane::new(mine, &options, &progress)?;
            lane.heartbeat(&mut stream, number).await?;
            lanes.push((stream, lane));
        }
    }
    progress.show("consume");
    let base = Instant::now();
    let deadline = common.deadline(base, options.messages);
    let tasks: Vec<_> = lanes
        .into_iter()
        .map(|(stream, lane)| tokio::spawn(lane.run(stream, base, deadline)))
        .collect();
    let mut report = Report {
        bench: "consume",
        messages: 0,
        bytes: 0,
        elapsed: Duration::ZERO,
        errors: Errors::default(),
        latencies: Vec::new(),
        settings: common.settings(),
    };
    report.settings.insert("connections".to_owned(), json!(options.connections));
    report.settings.insert("pull_batch".to_owned(), json!(options.pull_batch));
    let mut all = latencies()?;
    for task in tasks {
        let lane = task.await.map_err(|error| BenchError::Other(error.to_string()))?;
        report.messages += lane.messages;
        report.bytes += lane.bytes;
        report.elapsed = report.elapsed.max(lane.last_message);
        report.errors.merge(&lane.errors);
        all.add(&lane.latencies).map_err(|error| error.to_string())?;
    }
    progress.finish();
    // Here latency is that of a pull, not of a message.
    report.latencies.push(("latency_us", all));
    Ok(report)
}

/// The heartbeat of one consuming member.
fn heartbeat_body(group: &str, topic: &str, member: usize) -> Vec<u8> {
    let subscription = SubscriptionData {
        sub_string: Some("*".to_owned()),
        sub_version: now_ms().cast_signed(),
        topic: topic.to_owned(),
        ..SubscriptionData::default()
    };
    let consumer = ConsumerData {
        consume_from_where: Some(ConsumeFromWhere::FirstOffset),
        consume_type: Some(ConsumeType::Actively),
        group_name: group.to_owned(),
        message_model: Some(MessageModel::Clustering),
        subscription_data_set: vec![subscription],
        ..ConsumerData::default()
    };
    let heartbeat = HeartbeatData {
        client_id: format!("bench@{}@{member}", std::process::id()),
        consumer_data_set: vec![consumer],
        ..HeartbeatData::default()
    };
    heartbeat.to_raw()
}

/// A pull request for `max` messages of all tags.
#[derive(Debug, Clone)]
pub(super) struct PullShape {
    pub(super) topic: String,
    pub(super) group: String,
    pub(super) max: i32,
    pub(super) sys_flag: i32,
    pub(super) suspend_ms: i64,
    pub(super) serialize: SerializeType,
}

impl PullShape {
    pub(super) fn append(
        &self,
        out: &mut BytesMut,
        queue: &Queue,
        offset: i64,
        opaque: i32,
    ) -> Result<(), String> {
        let header = PullMessageRequestHeader {
            consumer_group: self.group.as_str().into(),
            topic: self.topic.as_str().into(),
            queue_id: queue.id,
            queue_offset: offset,
            max_msg_nums: self.max,
            sys_flag: self.sys_flag,
            suspend_timeout_millis: self.suspend_ms,
            subscription: Some("*".into()),
            expression_type: Some("TAG".into()),
            ..PullMessageRequestHeader::default()
        };
        let mut request = RemotingCommand::request(RequestCode::PULL_MESSAGE, &header);
        (request.opaque, request.serialize) = (opaque, self.serialize);
        request.encode_into(out).map_err(|error| error.to_string())
    }
}

/// Calls `each` with the bytes of every record of a pull's body.
pub(super) fn records(body: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), String> {
    let mut rest = body;
    while let Some(word) = rest.first_chunk::<4>() {
        let len = u32::from_be_bytes(*word) as usize;
        let (record, after) = rest
            .split_at_checked(len)
            .filter(|_| len > 4)
            .ok_or_else(|| format!("a record of {len} bytes in a body with {} left", rest.len()))?;
        each(record);
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err("a body that ends within a record".to_owned()) }
}

struct Reading {
    queue: Queue,
    offset: i64,
    asked_at: u64,
    waiting: bool,
    done: bool,
}

struct Lane {
    queues: Vec<Reading>,
    shape: PullShape,
    wanted: u64,
    progress: Arc<Progress>,
    messages: u64,
    bytes: u64,
    latencies: super::report::Latencies,
    errors: Errors,
    last_message: Duration,
}

impl Lane {
    fn new(
        queues: Vec<Queue>,
        options: &Options,
        progress: &Arc<Progress>,
    ) -> Result<Self, BenchError> {
        let common = &options.common;
        let reading =
            |queue| Reading { queue, offset: 0, asked_at: 0, waiting: false, done: false };
        Ok(Self {
            queues: queues.into_iter().map(reading).collect(),
            shape: PullShape {
                topic: common.topic.clone(),
                group: options.group.clone(),
                max: options.pull_batch,
                sys_flag: SUBSCRIPTION,
                suspend_ms: 0,
                serialize: common.serialize(),
            },
            wanted: options.messages.unwrap_or(u64::MAX),
            progress: Arc::clone(progress),
            messages: 0,
            bytes: 0,
            latencies: latencies()?,
            errors: Errors::default(),
            last_message: Duration::ZERO,
        })
    }

    async fn heartbeat(
        &mut self,
        stream: &mut tokio::net::TcpStream,
        member: usize,
    ) -> Result<(), BenchError> {
        let header = HeartbeatRequestHeader::default();
        let mut request = RemotingCommand::request(RequestCode::HEART_BEAT, &header)
            .body(heartbeat_body(&self.shape.group, &self.shape.topic, member));
        request.opaque = HEARTBEAT_OPAQUE;
        let mut out = BytesMut::new();
        request.encode_into(&mut out).map_err(|error| error.to_string())?;
        stream.write_all(&out).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    async fn run(
        mut self,
        mut stream: tokio::net::TcpStream,
        base: Instant,
        deadline: Instant,
    ) -> Self {
        if let Err(why) = self.exchange(&mut stream, base, deadline).await {
            self.errors.add("connection lost", 1, &why);
        }
        self
    }

    async fn exchange(
        &mut self,
        stream: &mut tokio::net::TcpStream,
        base: Instant,
        deadline: Instant,
    ) -> Result<(), String> {
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut out = BytesMut::new();
        let give_up = tokio::time::sleep_until((deadline + LAST_ANSWERS).into());
        tokio::pin!(give_up);
        loop {
            self.ask(&mut out, base, deadline)?;
            if !out.is_empty() {
                // Pulls are small: they fit the socket's buffer.
                stream.write_all(&out).await.map_err(|error| error.to_string())?;
                out.clear();
            }
            if self.queues.iter().all(|reading| !reading.waiting) {
                return Ok(());
            }
            input.reserve(READ_BYTES);
            tokio::select! {
                read = stream.read_buf(&mut input) => match read {
                    Ok(0) => return Err("the broker closed the connection".to_owned()),
                    Ok(_) => {}
                    Err(error) => return Err(error.to_string()),
                },
                () = &mut give_up => return Err("no answer within 5 s of the end of the run".to_owned()),
            }
            while let Some(frame) = split_frame(&mut input, DEFAULT_MAX_FRAME_BYTES * 4)
                .map_err(|error| error.to_string())?
            {
                let answer = RemotingCommand::decode(frame).map_err(|error| error.to_string())?;
                self.take(&answer, base)?;
            }
        }
    }

    /// Pulls every queue that has no pull in flight.
    fn ask(&mut self, out: &mut BytesMut, base: Instant, deadline: Instant) -> Result<(), String> {
        let now = Instant::now();
        if now >= deadline || self.progress.messages.load(Ordering::Relaxed) >= self.wanted {
            return Ok(());
        }
        for (reading, opaque) in self.queues.iter_mut().zip(FIRST_OPAQUE.cast_signed()..) {
            if !reading.done && !reading.waiting {
                self.shape.append(out, &reading.queue, reading.offset, opaque)?;
                (reading.waiting, reading.asked_at) = (true, micros_since(base, now));
            }
        }
        Ok(())
    }

    fn take(&mut self, answer: &RemotingCommand, base: Instant) -> Result<(), String> {
        if !answer.is_response() || answer.opaque == HEARTBEAT_OPAQUE {
            return Ok(());
        }
        let index = answer.opaque.wrapping_sub(FIRST_OPAQUE.cast_signed());
        let reading = usize::try_from(index).ok().and_then(|index| self.queues.get_mut(index));
        let Some(reading) = reading else { return Ok(()) };
        reading.waiting = false;
        let now = Instant::now();
        let took = micros_since(base, now).saturating_sub(reading.asked_at);
        let code = answer.response_code();
        let header = answer.header::<PullMessageResponseHeader>();
        match (code, header) {
            (ResponseCode::SUCCESS, Ok(header)) => {
                let (mut count, mut bytes) = (0, 0);
                records(&answer.body, |record| {
                    count += 1;
                    bytes += record.len() as u64;
                })?;
                reading.offset = header.next_begin_offset;
                self.messages += count;
                self.bytes += bytes;
                self.latencies.saturating_record(took.max(1));
                self.progress.messages.fetch_add(count, Ordering::Relaxed);
                self.last_message = now.duration_since(base);
            }
            (ResponseCode::PULL_NOT_FOUND, _) => reading.done = true,
            (
                ResponseCode::PULL_RETRY_IMMEDIATELY | ResponseCode::PULL_OFFSET_MOVED,
                Ok(header),
            ) => {
                // A correction that leads nowhere would be asked for without end.
                reading.done = header.next_begin_offset == reading.offset;
                reading.offset = header.next_begin_offset;
            }
            _ => {
                reading.done = true;
                self.errors.refused(answer.code, answer.remark.as_deref());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_by_their_lengths_and_a_broken_body_is_an_error() {
        let body = [0, 0, 0, 6, 1, 2, 0, 0, 0, 5, 9];
        let mut sizes = Vec::new();
        records(&body, |record| sizes.push(record.len())).unwrap();
        assert_eq!(sizes, [6, 5]);
        assert!(records(&body[..9], |_| ()).is_err());
        assert!(records(&[0, 0, 0, 0], |_| ()).is_err());
        assert!(records(&[0, 0], |_| ()).is_err());
    }
}
