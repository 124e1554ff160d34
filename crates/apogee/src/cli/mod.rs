//! The command line: one binary, its commands, its exit codes.
//!
//! Always holds: exit code 0 = done, 1 = failed, 2 = wrong usage or configuration. What a command found
//! out goes to stdout, what it says about itself to stderr. Called through a link named `mqnamesrv` or
//! `mqbroker` the binary acts as that program.

mod ready;
mod send;
mod serve;
mod store;
mod tail;

use crate::bench::Bench;
use crate::server::ServerError;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Wrong usage or configuration.
const USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "apogee",
    version,
    about = "ApogeeMQ: a message server for RocketMQ clients. Without a command it serves.",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything in one process: name server and broker (the default command)
    Serve(serve::Serve),
    /// A name server, as the original's mqnamesrv
    Namesrv(serve::Namesrv),
    /// A broker, as the original's mqbroker
    Broker(serve::Broker),
    /// Send messages
    Send(send::Send),
    /// Read messages as they come
    Tail(tail::Tail),
    /// Measure a broker
    Bench {
        #[command(subcommand)]
        bench: Bench,
    },
    /// Look into a store that no broker has open
    Store {
        #[command(subcommand)]
        store: store::Store,
    },
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

/// How a server logs; everything goes to stderr.
#[derive(Debug, Clone, Args)]
struct Logs {
    /// What to log: error, warn, info, debug, trace, or filters such as info,apogee_broker=debug
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log: String,
    /// Form of log lines
    #[arg(long, value_enum, default_value_t = LogFormat::Human)]
    log_format: LogFormat,
}

impl Logs {
    fn start(&self) -> Result<(), Failure> {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log)
            .map_err(|error| Failure::Usage(format!("--log {}: {error}", self.log)))?;
        let builder =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        // A second subscriber in one process (tests) is not worth a failure.
        let _ = match self.log_format {
            LogFormat::Human => {
                use std::io::IsTerminal as _;
                builder.with_ansi(std::io::stderr().is_terminal()).try_init()
            }
            LogFormat::Json => builder.json().try_init(),
        };
        Ok(())
    }
}

/// Why a command ends without success.
#[derive(Debug)]
enum Failure {
    /// Exit code 2.
    Usage(String),
    /// Exit code 1.
    Failed(String),
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Settings(error) => Self::Usage(error.to_string()),
            ServerError::Broker(apogee_broker::BrokerError::Config(text)) => Self::Usage(text),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<crate::settings::SettingsError> for Failure {
    fn from(error: crate::settings::SettingsError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<crate::requests::RequestError> for Failure {
    fn from(error: crate::requests::RequestError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Prints a line to stdout. Whoever reads it may have had enough: that is no failure.
pub(crate) fn say(text: impl std::fmt::Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse_from(as_program(std::env::args_os().collect()));
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => {
            eprintln!("apogee: {text}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(text)) => {
            eprintln!("apogee: {text}");
            ExitCode::from(USAGE)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command.unwrap_or(Command::Serve(arguments.serve)) {
        Command::Serve(serve) => serve.run(),
        Command::Namesrv(namesrv) => namesrv.run(),
        Command::Broker(broker) => broker.run(),
        Command::Send(send) => small_runtime(1)?.block_on(send.run()),
        Command::Tail(tail) => small_runtime(1)?.block_on(tail.run()),
        Command::Store { store } => store.run(),
        Command::Bench { bench } => {
            let runtime = small_runtime(bench.threads())?;
            let done = runtime.block_on(bench.run()).map_err(|e| Failure::Failed(e.to_string()))?;
            if done { Ok(()) } else { Err(Failure::Failed("nothing succeeded".to_owned())) }
        }
    }
}

fn small_runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the runtime cannot be started: {error}")))
}

/// A link's name stands for a command.
fn as_program(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().map(Path::new).and_then(Path::file_stem);
    let command = match called.and_then(|name| name.to_str()) {
        Some("mqnamesrv") => "namesrv",
        Some("mqbroker") => "broker",
        _ => return arguments,
    };
    arguments.insert(1, command.into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &[&str]) -> Arguments {
        Arguments::parse_from(as_program(line.iter().map(OsString::from).collect()))
    }

    #[test]
    fn the_declared_options_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_link_acts_as_its_program_and_no_command_serves() {
        let broker = parse(&["/usr/bin/mqbroker", "-c", "broker.conf", "-n", "a:1;b:2"]);
        assert!(matches!(broker.command, Some(Command::Broker(_))));
        let namesrv = parse(&["mqnamesrv", "-p"]);
        assert!(matches!(namesrv.command, Some(Command::Namesrv(_))));
        assert!(parse(&["apogee", "--data", "x"]).command.is_none());
    }
}
