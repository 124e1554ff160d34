//! The command line: one binary, its commands, its exit codes.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

use crate::bench::Bench;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "apogee", about = "ApogeeMQ: a RocketMQ-compatible message server")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a broker
    Bench {
        #[command(subcommand)]
        bench: Bench,
    },
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Bench { bench } => {
            let threads = bench.threads();
            let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
            match rt.block_on(bench.run()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => { eprintln!("{error}"); ExitCode::FAILURE }
            }
        }
    }
}
