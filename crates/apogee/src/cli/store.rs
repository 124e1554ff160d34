//! `store check|dump|repair`: looking into a store's files that no broker has open.
//!
//! `check` and `dump` change nothing.

use super::{Failure, say};
use crate::settings::{Program, Settings, Source};
use apogee_model::RecordView;
use apogee_store::{StoreConfig, inspect};
use clap::{Args, Subcommand};
use serde_json::json;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Which store.
#[derive(Debug, Clone, Args)]
pub(super) struct Place {
    /// Root folder of the store
    dir: PathBuf,
    /// Configuration file of its broker, if it has other paths or file sizes than the default
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What to do with it.
#[derive(Debug, Clone, Subcommand)]
pub(super) enum Store {
    /// Verify every record, queue and index entry
    Check(Place),
    /// Print records
    Dump {
        #[command(flatten)]
        place: Place,
        /// Only this topic
        #[arg(short, long)]
        topic: Option<String>,
        /// Begin at this offset of the commit log
        #[arg(long)]
        from: Option<i64>,
        /// Print this many records at most
        #[arg(short, long, default_value_t = 100)]
        limit: u64,
    },
    /// Take damaged parts out of the middle of the log; the old files are kept
    Repair(Place),
}

impl Place {
    fn config(&self) -> Result<StoreConfig, Failure> {
        if !self.dir.is_dir() {
            return Err(Failure::Usage(format!("{} is no folder", self.dir.display())));
        }
        let mut source = Source::new();
        if let Some(path) = &self.config {
            source.file(path)?;
        }
        source.put("storePathRootDir", &self.dir.to_string_lossy(), "DIR");
        let config = Settings::check(source, Program::Broker, false)?.store(self.dir.clone())?;
        if config.commit_log_dir().is_dir() {
            return Ok(config);
        }
        let text = format!("{} is no store: it has no commit log", self.dir.display());
        Err(Failure::Usage(text))
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl Store {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check(place) => check(&place),
            Self::Dump { place, topic, from, limit } => dump(&place, topic.as_deref(), from, limit),
            Self::Repair(place) => repair(&place),
        }
    }
}

fn check(place: &Place) -> Result<(), Failure> {
    let report = inspect::check(&place.config()?).map_err(failed)?;
    if place.json {
        let problems: Vec<_> = report
            .problems
            .iter()
            .map(|p| json!({"file": p.file.display().to_string(), "at": p.at, "what": p.what}))
            .collect();
        let text = json!({
            "sound": report.is_sound(),
            "log_min": report.log_min,
            "log_end": report.log_end,
            "records": report.records,
            "records_without_queue": report.records_without_queue,
            "queues": report.queues,
            "units": report.units,
            "index_files": report.index_files,
            "index_entries": report.index_entries,
            "problem_count": report.problem_count,
            "problems": problems,
        });
        say(text);
    } else {
        say(format_args!(
            "commit log {} to {}: {} records, {} of topics that have no queue",
            report.log_min, report.log_end, report.records, report.records_without_queue
        ));
        say(format_args!("{} consume queues with {} units", report.queues, report.units));
        say(format_args!(
            "{} index files with {} entries",
            report.index_files, report.index_entries
        ));
        for problem in &report.problems {
            say(format_args!(
                "{} at byte {}: {}",
                problem.file.display(),
                problem.at,
                problem.what
            ));
        }
    }
    match report.problem_count {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} problems"))),
    }
}

fn dump(place: &Place, topic: Option<&str>, from: Option<i64>, limit: u64) -> Result<(), Failure> {
    let config = place.config()?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut left, mut result) = (limit, Ok(()));
    inspect::dump(&config, from, |offset, record| {
        if topic.is_some_and(|topic| topic != record.topic()) {
            return ControlFlow::Continue(());
        }
        if left == 0 {
            return ControlFlow::Break(());
        }
        left -= 1;
        result = show(&mut out, offset, record, place.json);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(failed)?;
    match result.and_then(|()| out.flush()) {
        // Whoever reads our output had enough of it.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(failed),
    }
}

fn show(
    out: &mut impl std::io::Write,
    offset: i64,
    record: &RecordView<'_>,
    as_json: bool,
) -> std::io::Result<()> {
    let body = String::from_utf8_lossy(record.body());
    if as_json {
        let properties: serde_json::Map<_, _> = record
            .properties()
            .iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let line = json!({
            "offset": offset,
            "size": record.total_size(),
            "topic": record.topic(),
            "queue_id": record.queue_id(),
            "queue_offset": record.queue_offset(),
            "sys_flag": record.sys_flag(),
            "flag": record.flag(),
            "born_ms": record.born_timestamp(),
            "born_host": record.born_host().to_string(),
            "store_ms": record.store_timestamp(),
            "store_host": record.store_host().to_string(),
            "reconsume_times": record.reconsume_times(),
            "prepared_transaction_offset": record.prepared_transaction_offset(),
            "properties": properties,
            "body_bytes": record.body().len(),
            "body": body,
        });
        return writeln!(out, "{line}");
    }
    let time = jiff::Timestamp::from_millisecond(record.store_timestamp())
        .map_or_else(|_| record.store_timestamp().to_string(), |time| time.to_string());
    writeln!(
        out,
        "{offset} {time} {}/{} offset {}, {} bytes",
        record.topic(),
        record.queue_id(),
        record.queue_offset(),
        record.total_size()
    )?;
    for (name, value) in record.properties().iter() {
        writeln!(out, "  {name}={value}")?;
    }
    let short: String =
        body.chars().take(200).map(|c| if c.is_control() { '.' } else { c }).collect();
    writeln!(out, "  {short}")
}

fn repair(place: &Place) -> Result<(), Failure> {
    let report = inspect::repair(&place.config()?).map_err(failed)?;
    if place.json {
        let damaged: Vec<_> = report
            .damaged
            .iter()
            .map(|(at, kept)| json!({"at": at, "kept": kept.display().to_string()}))
            .collect();
        say(json!({"damaged": damaged}));
    } else if report.damaged.is_empty() {
        say("nothing to repair");
    } else {
        for (at, kept) in &report.damaged {
            say(format_args!(
                "damage from offset {at} taken out; the old file is kept as {}",
                kept.display()
            ));
        }
        say(format_args!("the next start derives queues and index anew"));
    }
    Ok(())
}
