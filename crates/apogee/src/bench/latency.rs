//! `bench latency`: a steady rate in, long polling out, the time between for every message.
//!
//! Three threads with blocking sockets: one sends on schedule, one reads the answers to the sends, one
//! pulls. The send time stands in the body. A message that the sender could not send when it was due
//! counts from when it was due, so that a stall is not hidden by the stall of the sender; lateness below
//! a millisecond is the scheduler's and is not counted.

use super::answer::{decode, first_frame, glance};
use super::consume::{PullShape, SUBSCRIPTION, SUSPEND, records};
use super::frame::{FIRST_OPAQUE, Shape, Template, read_stamp};
use super::produce::micros_since;
use super::report::{Errors, Latencies, Report, latencies};
use super::{BenchError, Common, LAST_ANSWERS, Progress, by_broker, now_ms};
use crate::requests::{Queue, Requests, Use};
use apogee_model::RecordView;
use apogee_protocol::ResponseCode;
use apogee_protocol::headers::PullMessageResponseHeader;
use bytes::BytesMut;
use serde_json::json;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TIMER_SLACK_US: u64 = 1000;
/// How long a pull waits at the broker.
const SUSPEND_MS: i64 = 15_000;
/// How often a blocked reader looks whether the run is over.
const LOOK_UP: Duration = Duration::from_millis(100);
/// Send times kept for answers; a power of two.
const RING: usize = 1 << 16;

/// Options of `bench latency`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: Common,
    /// Messages a second
    #[arg(short, long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Bytes of a message body, at least 16
    #[arg(long, default_value_t = 128)]
    size: usize,
    /// Seconds at the start that are not measured
    #[arg(short, long, default_value_t = 1.0, value_parser = warmup)]
    warmup: f64,
    /// Consumer group
    #[arg(short, long, default_value = "apogee-bench-latency")]
    group: String,
}

fn warmup(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 3600 is allowed".to_owned()),
    }
}

/// What the three threads share.
struct Run {
    base: Instant,
    end_us: u64,
    warm_us: u64,
    sent: AtomicU64,
    sending: AtomicBool,
    sent_at: Vec<AtomicU64>,
    progress: Arc<Progress>,
}

pub(super) async fn run(options: Options) -> Result<Report, BenchError> {
    let common = &options.common;
    let to = by_broker(common.queues(Use::Send, true).await?);
    let from = by_broker(common.queues(Use::Read, false).await?);
    let (Some((address, to)), Some((_, from))) = (to.into_iter().next(), from.into_iter().next())
    else {
        return Err(BenchError::Other(format!("topic {} has no queue", common.topic)));
    };
    let requests = Requests::new(&common.name_servers());
    let mut readings = Vec::new();
    for queue in from.into_iter().filter(|queue| queue.address == address) {
        let offset = requests.max_offset(&common.topic, &queue).await?;
        readings.push((queue, offset));
    }
    let progress = Arc::new(Progress::default());
    progress.show("latency");
    let (sending, pulling) = (open(&address)?, open(&address)?);
    let total = Duration::from_secs_f64(options.warmup) + common.duration();
    let base = Instant::now();
    let run = Arc::new(Run {
        base,
        end_us: micros_since(base, base + total),
        warm_us: (options.warmup * 1e6) as u64,
        sent: AtomicU64::new(0),
        sending: AtomicBool::new(true),
        sent_at: (0..RING).map(|_| AtomicU64::new(0)).collect(),
        progress: Arc::clone(&progress),
    });
    let report = tokio::task::spawn_blocking(move || {
        threads(&options, &run, &to, readings, sending, pulling)
    })
    .await
    .map_err(|error| BenchError::Other(error.to_string()))?;
    progress.finish();
    report
}

fn open(address: &str) -> Result<TcpStream, BenchError> {
    let failed = |source| BenchError::Connect { address: address.to_owned(), source };
    let stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(LOOK_UP)).map_err(failed)?;
    Ok(stream)
}

fn threads(
    options: &Options,
    run: &Arc<Run>,
    to: &[Queue],
    readings: Vec<(Queue, i64)>,
    mut sending: TcpStream,
    pulling: TcpStream,
) -> Result<Report, BenchError> {
    let shape = Shape {
        topic: options.common.topic.clone(),
        size: options.size.max(16),
        batch: 1,
        serialize: options.common.serialize(),
        wait_store_ok: true,
    };
    let templates: Vec<Template> =
        to.iter().map(|queue| Template::new(&shape, queue.id, 1)).collect::<Result<_, _>>()?;
    let answers = sending.try_clone().map_err(|error| error.to_string())?;
    let pull = PullShape {
        topic: options.common.topic.clone(),
        group: options.group.clone(),
        max: 32,
        sys_flag: SUSPEND | SUBSCRIPTION,
        suspend_ms: SUSPEND_MS,
        serialize: options.common.serialize(),
    };
    let (sent, answered, pulled) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_answers(run, answers));
        let puller = scope.spawn(|| read_messages(run, &pull, readings, pulling));
        let sent = send(run, templates, &mut sending, u64::from(options.rate));
        run.sending.store(false, Ordering::Release);
        (sent, reader.join(), puller.join())
    });
    let ended = |_| BenchError::Other("a thread of the run ended early".to_owned());
    let ((ack, mut errors), (end_to_end, count, mut lost)) =
        (answered.map_err(ended)??, pulled.map_err(ended)??);
    lost.merge(&errors);
    errors = lost;
    if let Err(why) = sent {
        errors.add("connection lost", 1, &why);
    }
    let mut settings = options.common.settings();
    settings.insert("size".to_owned(), json!(shape.size));
    settings.insert("rate".to_owned(), json!(options.rate));
    settings.insert("warmup".to_owned(), json!(options.warmup));
    Ok(Report {
        bench: "latency",
        messages: count,
        bytes: count * shape.size as u64,
        elapsed: options.common.duration(),
        errors,
        latencies: vec![("latency_us", end_to_end), ("send_latency_us", ack)],
        settings,
    })
}

fn send(
    run: &Run,
    mut templates: Vec<Template>,
    stream: &mut TcpStream,
    rate: u64,
) -> Result<(), String> {
    let mut out = Vec::new();
    let (mut number, mut key) = (0_u64, 0);
    loop {
        let due = number * 1_000_000 / rate;
        if due >= run.end_us {
            return Ok(());
        }
        let mut now = micros_since(run.base, Instant::now());
        if now < due {
            std::thread::sleep(Duration::from_micros(due - now));
            now = micros_since(run.base, Instant::now());
        }
        out.clear();
        let born_ms = now_ms();
        // All that is due leaves in one write.
        let mut due = due;
        while due <= now && due < run.end_us && out.len() < 64 * 1024 {
            let counted = if now - due < TIMER_SLACK_US { now } else { due };
            let (queue, slot) = (number as usize % templates.len(), number as usize % RING);
            if let (Some(template), Some(place)) = (templates.get_mut(queue), run.sent_at.get(slot))
            {
                place.store(counted, Ordering::Release);
                template.stamp(counted);
                // Ten digits: the numbers of a very long run start again.
                let opaque = FIRST_OPAQUE + (number % 1_000_000_000) as u32;
                template.append(&mut out, opaque, born_ms, &mut key);
            }
            number += 1;
            due = number * 1_000_000 / rate;
        }
        run.sent.store(number, Ordering::Release);
        stream.write_all(&out).map_err(|error| error.to_string())?;
    }
}

/// Reads more bytes; `Ok(false)` = nothing within [`LOOK_UP`].
fn read_more(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    scratch: &mut [u8],
) -> Result<bool, String> {
    match stream.read(scratch) {
        Ok(0) => Err("the broker closed the connection".to_owned()),
        Ok(count) => {
            input.extend_from_slice(scratch.get(..count).unwrap_or_default());
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Whether there is nothing more to wait for.
struct Finish {
    quiet_since: Option<Instant>,
}

impl Finish {
    fn reached(&mut self, run: &Run, seen: u64) -> bool {
        if run.sending.load(Ordering::Acquire) {
            return false;
        }
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        seen >= run.sent.load(Ordering::Acquire) || since.elapsed() > LAST_ANSWERS
    }
}

fn read_answers(run: &Run, mut stream: TcpStream) -> Result<(Latencies, Errors), BenchError> {
    let (mut all, mut errors) = (latencies()?, Errors::default());
    let (mut input, mut scratch) = (Vec::new(), vec![0; 64 * 1024]);
    let (mut seen, mut finish) = (0, Finish { quiet_since: None });
    while !finish.reached(run, seen) {
        match read_more(&mut stream, &mut input, &mut scratch) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                errors.add("connection lost", 1, &why);
                return Ok((all, errors));
            }
        }
        let now = micros_since(run.base, Instant::now());
        let mut used = 0;
        while let Some(frame) = first_frame(input.get(used..).unwrap_or_default())? {
            used += frame.len();
            seen += 1;
            let answer = glance(frame)?;
            if answer.code != 0 {
                errors.refused(answer.code, decode(frame)?.remark.as_deref());
                continue;
            }
            let slot = answer.opaque.wrapping_sub(FIRST_OPAQUE) as usize % RING;
            let sent = run.sent_at.get(slot).map_or(now, |place| place.load(Ordering::Acquire));
            if sent >= run.warm_us {
                all.saturating_record(now.saturating_sub(sent).max(1));
            }
        }
        input.drain(..used);
    }
    errors.add(
        "no answer",
        run.sent.load(Ordering::Acquire).saturating_sub(seen),
        "5 s after the end",
    );
    Ok((all, errors))
}

fn read_messages(
    run: &Run,
    pull: &PullShape,
    mut readings: Vec<(Queue, i64)>,
    mut stream: TcpStream,
) -> Result<(Latencies, u64, Errors), BenchError> {
    let (mut all, mut errors) = (latencies()?, Errors::default());
    let (mut input, mut scratch) = (Vec::new(), vec![0; 256 * 1024]);
    let mut out = BytesMut::new();
    for ((queue, offset), opaque) in readings.iter().zip(FIRST_OPAQUE.cast_signed()..) {
        pull.append(&mut out, queue, *offset, opaque)?;
    }
    let (mut seen, mut finish) = (0_u64, Finish { quiet_since: None });
    while !finish.reached(run, seen) {
        if !out.is_empty() {
            stream.write_all(&out).map_err(|error| error.to_string())?;
            out.clear();
        }
        match read_more(&mut stream, &mut input, &mut scratch) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                errors.add("connection lost", 1, &why);
                break;
            }
        }
        let now = micros_since(run.base, Instant::now());
        let mut used = 0;
        while let Some(frame) = first_frame(input.get(used..).unwrap_or_default())? {
            used += frame.len();
            let answer = decode(frame)?;
            let index = answer.opaque.wrapping_sub(FIRST_OPAQUE.cast_signed());
            let reading = usize::try_from(index).ok().and_then(|index| readings.get_mut(index));
            let Some((queue, offset)) = reading else { continue };
            match (answer.response_code(), answer.header::<PullMessageResponseHeader>()) {
                (ResponseCode::SUCCESS, Ok(header)) => {
                    seen += take(run, &answer.body, now, &mut all)?;
                    *offset = header.next_begin_offset;
                }
                (
                    ResponseCode::PULL_NOT_FOUND
                    | ResponseCode::PULL_RETRY_IMMEDIATELY
                    | ResponseCode::PULL_OFFSET_MOVED,
                    Ok(header),
                ) => *offset = header.next_begin_offset,
                _ => errors.refused(answer.code, answer.remark.as_deref()),
            }
            pull.append(&mut out, queue, *offset, answer.opaque)?;
        }
        input.drain(..used);
    }
    let missing = run.sent.load(Ordering::Acquire).saturating_sub(seen);
    errors.add("not arrived", missing, "5 s after the end");
    let measured = all.len();
    Ok((all, measured, errors))
}

/// Records the latency of every message of this run in a body; returns how many there were.
fn take(run: &Run, body: &[u8], now: u64, all: &mut Latencies) -> Result<u64, String> {
    let mut count = 0;
    records(body, |record| {
        // What others send to the topic meanwhile has no stamp.
        let stamp = RecordView::parse(record).ok().and_then(|view| read_stamp(view.body()));
        let Some(sent) = stamp.filter(|sent| *sent <= now) else { return };
        count += 1;
        run.progress.messages.fetch_add(1, Ordering::Relaxed);
        if sent >= run.warm_us {
            all.saturating_record((now - sent).max(1));
        }
    })?;
    Ok(count)
}
