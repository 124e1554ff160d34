//! Load generators that speak the remoting protocol, against any broker of the kind.
//!
//! A generator must cost far less than what it measures: frames are encoded once and patched
//! ([`frame`]), answers are only glanced at ([`answer`]), nothing is allocated or woken for a single
//! message. `produce` and `consume` run one task for each connection; `latency` uses plain threads,
//! because timers of a runtime are coarser than the latencies.

mod answer;
mod consume;
mod frame;
mod latency;
mod produce;
mod report;

use crate::requests::{Queue, RequestError, Requests, Use, now_ms};
use apogee_protocol::SerializeType;
use serde_json::{Map, Value, json};
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a new topic may take until the name server tells of it.
const TOPIC_PATIENCE: Duration = Duration::from_secs(40);
/// A run without an end by time.
const LONGEST_RUN: Duration = Duration::from_secs(86_400);
/// How long the last answers of a run may take.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{0}")]
    Other(String),
    #[error("cannot connect to broker {address}: {source}")]
    Connect { address: String, source: std::io::Error },
}

impl From<String> for BenchError {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// Form of request headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HeaderForm {
    /// JSON, as the original's clients.
    Json,
    /// The binary form.
    Rocketmq,
}

/// What all runs share.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// Name servers, host:port;host:port (default: NAMESRV_ADDR, else 127.0.0.1:9876)
    #[arg(short = 'n', long)]
    namesrv: Option<String>,
    /// Topic to send to or read from
    #[arg(short, long, default_value = "apogee-bench")]
    topic: String,
    /// Queues of the topic if it has to be created
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=1024))]
    queues: i32,
    /// How long to run (default: 10, or as long as --messages take)
    #[arg(short, long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Form of request headers
    #[arg(long, value_enum, default_value_t = HeaderForm::Json)]
    header: HeaderForm,
    /// Worker threads (default: one for each processor)
    #[arg(long)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 864_000.0 => Ok(seconds),
        _ => Err("a number of seconds above 0 and up to 864000 is allowed".to_owned()),
    }
}

/// The kinds of runs.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Bench {
    /// Send as fast as the broker answers
    Produce(produce::Options),
    /// Read a backlog as fast as it comes
    Consume(consume::Options),
    /// Send at a steady rate and measure the time until each message arrives
    Latency(latency::Options),
}

impl Bench {
    fn common(&self) -> &Common {
        match self {
            Self::Produce(options) => &options.common,
            Self::Consume(options) => &options.common,
            Self::Latency(options) => &options.common,
        }
    }

    /// Worker threads that the run wants.
    pub(crate) fn threads(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        self.common().threads.unwrap_or(processors).clamp(1, 256)
    }

    /// Runs and prints. False = it ran, but nothing succeeded.
    pub(crate) async fn run(self) -> Result<bool, BenchError> {
        let json = self.common().json;
        let report = match self {
            Self::Produce(options) => produce::run(options).await?,
            Self::Consume(options) => consume::run(options).await?,
            Self::Latency(options) => latency::run(options).await?,
        };
        crate::cli::say(if json { report.to_json() } else { report.to_table() });
        Ok(report.messages > 0 || report.errors.total() == 0)
    }
}

impl Common {
    fn serialize(&self) -> SerializeType {
        match self.header {
            HeaderForm::Json => SerializeType::Json,
            HeaderForm::Rocketmq => SerializeType::RocketMq,
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(10.0))
    }

    /// When a run that starts now ends; one with a number of messages ends by that.
    fn deadline(&self, base: Instant, messages: Option<u64>) -> Instant {
        match (self.seconds, messages) {
            (None, Some(_)) => base + LONGEST_RUN,
            _ => base + self.duration(),
        }
    }

    fn name_servers(&self) -> String {
        crate::requests::name_servers(self.namesrv.as_deref())
    }

    fn settings(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("topic".to_owned(), json!(self.topic));
        map.insert("header".to_owned(), json!(format!("{:?}", self.header).to_lowercase()));
        map
    }

    /// The queues of the topic; creates it when it is missing and `create` says so.
    async fn queues(&self, wanted: Use, create: bool) -> Result<Vec<Queue>, BenchError> {
        let requests = Requests::new(&self.name_servers());
        if create && requests.find_route(&self.topic).await?.is_none() {
            requests.create_topic(&self.topic, self.queues).await?;
            let deadline = Instant::now() + TOPIC_PATIENCE;
            while requests.find_route(&self.topic).await?.is_none() && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(requests.queues(&self.topic, wanted).await?)
    }
}

/// What the lanes of a run count while they run.
#[derive(Debug, Default)]
struct Progress {
    messages: AtomicU64,
    bar: OnceLock<indicatif::ProgressBar>,
}

impl Progress {
    /// Shows the count on stderr until the run is over, if that is a terminal.
    fn show(self: &Arc<Self>, what: &'static str) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let progress = Arc::clone(self);
        tokio::spawn(async move {
            let bar = progress.bar.get_or_init(indicatif::ProgressBar::new_spinner);
            let (begin, mut last) = (Instant::now(), 0);
            while !bar.is_finished() {
                let now = progress.messages.load(Ordering::Relaxed);
                let rate = (now - last) * 2;
                let took = begin.elapsed();
                bar.set_message(format!("{what}: {now} messages, {rate}/s, {took:.1?}"));
                bar.tick();
                last = now;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }

    /// Takes the line away.
    fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Queues by the broker that serves them.
fn by_broker(queues: Vec<Queue>) -> Vec<(Arc<str>, Vec<Queue>)> {
    let mut brokers: Vec<(Arc<str>, Vec<Queue>)> = Vec::new();
    for queue in queues {
        match brokers.iter_mut().find(|(address, _)| *address == queue.address) {
            Some((_, queues)) => queues.push(queue),
            None => brokers.push((Arc::clone(&queue.address), vec![queue])),
        }
    }
    brokers
}

async fn connect(address: &str) -> Result<tokio::net::TcpStream, BenchError> {
    let failed = |source| BenchError::Connect { address: address.to_owned(), source };
    let stream = tokio::net::TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}
