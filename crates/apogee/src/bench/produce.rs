//! `bench produce`: each connection keeps a window of sends in flight.
//!
//! One task for each connection reads and writes. An opaque is the number of a slot; a slot holds the
//! send time and is free again when its answer has come, so answers may come in any order and an answer
//! that nobody asked for is noticed. Shared between tasks: two counters.

use super::answer::{decode, first_frame, glance};
use super::frame::{FIRST_OPAQUE, Shape, Template};
use super::report::{Errors, Latencies, Report, latencies};
use super::{BenchError, Common, LAST_ANSWERS, Progress, by_broker, connect, now_ms};
use crate::requests::{Queue, Use};
use bytes::{Buf, BytesMut};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes that are written at a time at most.
const WRITE_BYTES: usize = 128 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// A connection uses this many queues in turn; more would only cost cache.
const MAX_TEMPLATES: usize = 64;
const FREE: u64 = u64::MAX;

/// Options of `bench produce`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    /// Bytes of a message body
    #[arg(long, default_value_t = 128)]
    size: usize,
    /// Connections
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// Requests in flight on each connection
    #[arg(short, long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight: u32,
    /// Messages in each request
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Stop after this many messages
    #[arg(short, long)]
    messages: Option<u64>,
    /// Whether answers wait for flush and replication (property WAIT)
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    sync_wait: bool,
}

/// Requests that may still be sent, for all connections together.
struct Budget(AtomicU64);

impl Budget {
    fn take(&self, wanted: u64) -> u64 {
        let mut left = self.0.load(Ordering::Relaxed);
        loop {
            let taken = wanted.min(left);
            match self.0.compare_exchange_weak(
                left,
                left - taken,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken,
                Err(now) => left = now,
            }
        }
    }
}

pub(super) async fn run(options: Options) -> Result<Report, BenchError> {
    let common = &options.common;
    let brokers = by_broker(common.queues(Use::Send, true).await?);
    let shape = Shape {
        topic: common.topic.clone(),
        size: options.size,
        batch: options.batch as usize,
        serialize: common.serialize(),
        wait_store_ok: options.sync_wait,
    };
    let requests = options.messages.map_or(u64::MAX, |n| n.div_ceil(u64::from(options.batch)));
    let budget = Arc::new(Budget(AtomicU64::new(requests)));
    let progress = Arc::new(Progress::default());
    let mut lanes = Vec::new();
    for number in 0..options.connections {
        let Some((address, queues)) = brokers.get(number as usize % brokers.len().max(1)) else {
            break;
        };
        let stream = connect(address).await?;
        let templates = templates(&shape, queues, number)?;
        lanes.push((stream, Lane::new(templates, &options, &budget, &progress)?));
    }
    progress.show("produce");
    let base = Instant::now();
    let deadline = common.deadline(base, options.messages);
    let tasks: Vec<_> = lanes
        .into_iter()
        .map(|(stream, lane)| tokio::spawn(lane.run(stream, base, deadline)))
        .collect();
    let mut report = Report {
        bench: "produce",
        messages: 0,
        bytes: 0,
        elapsed: Duration::ZERO,
        errors: Errors::default(),
        latencies: Vec::new(),
        settings: settings(&options),
    };
    let mut all = latencies()?;
    for task in tasks {
        let lane = task.await.map_err(|error| BenchError::Other(error.to_string()))?;
        report.messages += lane.acked * u64::from(options.batch);
        report.elapsed = report.elapsed.max(lane.last_answer);
        report.errors.merge(&lane.errors);
        all.add(&lane.latencies).map_err(|error| error.to_string())?;
    }
    progress.finish();
    report.bytes = report.messages * options.size as u64;
    report.latencies.push(("latency_us", all));
    Ok(report)
}

fn settings(options: &Options) -> serde_json::Map<String, serde_json::Value> {
    let mut map = options.common.settings();
    map.insert("size".to_owned(), json!(options.size));
    map.insert("connections".to_owned(), json!(options.connections));
    map.insert("in_flight".to_owned(), json!(options.in_flight));
    map.insert("batch".to_owned(), json!(options.batch));
    map
}

/// One frame for each queue, begun at another queue by each connection.
fn templates(shape: &Shape, queues: &[Queue], number: u32) -> Result<Vec<Template>, BenchError> {
    let skip = number as usize % queues.len().max(1);
    let turned = queues.iter().cycle().skip(skip).take(queues.len().min(MAX_TEMPLATES));
    Ok(turned.map(|queue| Template::new(shape, queue.id, number + 1)).collect::<Result<_, _>>()?)
}

/// One connection's state.
struct Lane {
    templates: Vec<Template>,
    turn: usize,
    key: u64,
    budget: Arc<Budget>,
    progress: Arc<Progress>,
    batch: u64,
    /// Send time of each slot in microseconds since the start, or [`FREE`].
    sent_at: Vec<u64>,
    free: Vec<u32>,
    acked: u64,
    latencies: Latencies,
    errors: Errors,
    last_answer: Duration,
    stopped: bool,
}

impl Lane {
    fn new(
        templates: Vec<Template>,
        options: &Options,
        budget: &Arc<Budget>,
        progress: &Arc<Progress>,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            templates,
            turn: 0,
            key: 0,
            budget: Arc::clone(budget),
            progress: Arc::clone(progress),
            batch: u64::from(options.batch),
            sent_at: vec![FREE; options.in_flight as usize],
            free: (0..options.in_flight).rev().collect(),
            acked: 0,
            latencies: latencies()?,
            errors: Errors::default(),
            last_answer: Duration::ZERO,
            stopped: false,
        })
    }

    fn in_flight(&self) -> usize {
        self.sent_at.len() - self.free.len()
    }

    async fn run(
        mut self,
        mut stream: tokio::net::TcpStream,
        base: Instant,
        deadline: Instant,
    ) -> Self {
        let (mut reader, mut writer) = stream.split();
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut out: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
        let mut written = 0;
        let give_up = tokio::time::sleep_until((deadline + LAST_ANSWERS).into());
        tokio::pin!(give_up);
        loop {
            if written == out.len() {
                out.clear();
                written = 0;
            }
            self.fill(&mut out, base, deadline);
            if self.stopped && self.in_flight() == 0 {
                return self;
            }
            input.reserve(READ_BYTES);
            let waiting = out.get(written..).unwrap_or_default();
            tokio::select! {
                wrote = writer.write(waiting), if !waiting.is_empty() => match wrote {
                    Ok(bytes) => written += bytes,
                    Err(error) => return self.lost(&error.to_string()),
                },
                read = reader.read_buf(&mut input) => match read {
                    Ok(0) => return self.lost("the broker closed the connection"),
                    Ok(_) => if let Err(why) = self.take_answers(&mut input, base) {
                        return self.lost(&why);
                    },
                    Err(error) => return self.lost(&error.to_string()),
                },
                () = &mut give_up => {
                    let missing = self.in_flight() as u64 * self.batch;
                    self.errors.add("no answer", missing, "not within 5 s of the end of the run");
                    return self;
                }
            }
        }
    }

    /// Appends frames for all free slots, as far as budget, time and buffer go.
    fn fill(&mut self, out: &mut Vec<u8>, base: Instant, deadline: Instant) {
        let frame = self.templates.first().map_or(1, Template::len);
        let room = (WRITE_BYTES.saturating_sub(out.len()) / frame).max(usize::from(out.is_empty()));
        let wanted = self.free.len().min(room) as u64;
        if self.stopped || wanted == 0 {
            return;
        }
        let now = Instant::now();
        let granted = if now < deadline { self.budget.take(wanted) } else { 0 };
        self.stopped = granted < wanted;
        let (born_ms, micros) = (now_ms(), micros_since(base, now));
        for _ in 0..granted {
            let Some(slot) = self.free.pop() else { break };
            if let Some(place) = self.sent_at.get_mut(slot as usize) {
                *place = micros;
            }
            self.turn = if self.turn + 1 < self.templates.len() { self.turn + 1 } else { 0 };
            if let Some(template) = self.templates.get_mut(self.turn) {
                template.append(out, FIRST_OPAQUE + slot, born_ms, &mut self.key);
            }
        }
    }

    fn take_answers(&mut self, input: &mut BytesMut, base: Instant) -> Result<(), String> {
        let now = Instant::now();
        let micros = micros_since(base, now);
        let (mut used, mut good) = (0, 0);
        while let Some(frame) = first_frame(input.get(used..).unwrap_or_default())? {
            used += frame.len();
            let seen = glance(frame)?;
            let slot = seen.opaque.wrapping_sub(FIRST_OPAQUE);
            let Some(sent) = self.sent_at.get_mut(slot as usize).filter(|sent| **sent != FREE)
            else {
                self.errors.add("unexpected answer", 1, &format!("opaque {}", seen.opaque));
                continue;
            };
            let latency = micros.saturating_sub(*sent).max(1);
            *sent = FREE;
            self.free.push(slot);
            if seen.code == 0 {
                good += 1;
                self.latencies.saturating_record(latency);
            } else {
                let answer = decode(frame)?;
                self.errors.refused(seen.code, answer.remark.as_deref());
            }
        }
        input.advance(used);
        self.acked += good;
        self.progress.messages.fetch_add(good * self.batch, Ordering::Relaxed);
        self.last_answer = now.duration_since(base);
        Ok(())
    }

    fn lost(mut self, why: &str) -> Self {
        let missing = (self.in_flight() as u64).max(1) * self.batch;
        self.errors.add("connection lost", missing, why);
        self
    }
}

pub(super) fn micros_since(base: Instant, now: Instant) -> u64 {
    u64::try_from(now.duration_since(base).as_micros()).unwrap_or(FREE - 1)
}
