//! `cargo xtask`: checks of the workspace that compilers do not make, and documentation made from code.
//!
//! What always holds: `tidy` and `compat --check` write nothing; what a command found wrong is told all at
//! once, one line each, and ends with exit code 1.

mod arrows;
mod compat;
mod links;
mod status;
mod tables;
mod tidy;

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  tidy             check arrows between crates, file sizes, heads, names, links
  compat           write docs/compatibility.md from the code
  compat --check   fail if docs/compatibility.md differs from the code";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["compat"] => compat::write(&root()),
        ["compat", "--check"] => compat::check(&root()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
