//! `cargo xtask tidy`: the rules of CONTRIBUTING.md that a program can check.

use crate::{arrows, links, read};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// Longest file of code.
const MAX_LINES: usize = 800;
/// Longest function: the rule is 70, this is the end.
const MAX_FUNCTION_LINES: usize = 80;
/// The one file that may hold `unsafe`.
const UNSAFE_FILE: &str = "crates/apogee-store/src/segment.rs";
/// Endings of type and module names that say nothing.
const EMPTY_WORDS: [&str; 5] = ["Manager", "Util", "Utils", "Helper", "Impl"];
/// Files whose name says nothing.
const EMPTY_FILES: [&str; 6] =
    ["common.rs", "helper.rs", "helpers.rs", "misc.rs", "util.rs", "utils.rs"];
/// Folders of one person's machine.
const FOREIGN_PATHS: [&str; 2] = ["/Users/", "C:\\Users"];
/// Kinds of text that paths are looked for in.
const TEXTS: [&str; 10] =
    [".rs", ".md", ".toml", ".py", ".sh", ".go", ".java", ".tsv", ".yml", ".xml"];

/// Checks everything and prints what it found.
///
/// # Errors
/// When something is not as it should be.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = tracked(root)?;
    let mut problems = Vec::new();
    arrows::check(root, &mut problems)?;
    for file in files.iter().filter(|file| is_text(file)) {
        // A file may be deleted but not yet committed so.
        let Ok(text) = read(&root.join(file)) else { continue };
        check_text(file, &text, &mut problems);
    }
    check_crates(root, &files, &mut problems)?;
    let pages: Vec<String> = files
        .iter()
        .filter(|file| file.ends_with(".md") && !file.starts_with("xtask/data/"))
        .cloned()
        .collect();
    links::check(root, &pages, &mut problems)?;
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => bail!("{count} problems"),
    }
}

fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files"])
        .current_dir(root)
        .output()
        .context("run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn is_text(file: &str) -> bool {
    !file.contains("/fixtures/") && TEXTS.iter().any(|ending| file.ends_with(ending))
}

fn check_text(file: &str, text: &str, problems: &mut Vec<String>) {
    // This file has to name what it looks for.
    if file != "xtask/src/tidy.rs"
        && let Some(path) = FOREIGN_PATHS.iter().find(|path| text.contains(**path))
    {
        problems.push(format!("{file} names a folder of one machine: {path}"));
    }
    if file.ends_with(".rs") {
        check_rust(file, text, problems);
    }
}

fn check_rust(file: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{file} has {lines} lines, {MAX_LINES} are allowed"));
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    if EMPTY_FILES.contains(&name) {
        problems.push(format!("{file}: name it after what it does"));
    }
    let is_test_module = file.contains("/src/") && name == "tests.rs";
    let is_fuzz_target = file.starts_with("fuzz/");
    if !text.starts_with("//!") && !is_test_module && !is_fuzz_target {
        problems.push(format!("{file} does not begin with //!: what it owns, what always holds"));
    }
    if name == "lib.rs" && text.lines().any(|line| line.starts_with("#![allow")) {
        problems.push(format!("{file} allows a lint for a whole crate"));
    }
    if file != UNSAFE_FILE && text.contains("allow(unsafe_code") && file != "xtask/src/tidy.rs" {
        problems.push(format!("{file} allows unsafe code; {UNSAFE_FILE} is the only place for it"));
    }
    for (name, lines) in long_functions(text) {
        problems.push(format!("{file}: fn {name} has {lines} lines, 70 are the rule"));
    }
    for (at, line) in text.lines().enumerate() {
        if let Some(name) = declared(line)
            && EMPTY_WORDS.iter().any(|word| name.ends_with(word))
        {
            problems.push(format!("{file}:{}: {name}: name it after what it does", at + 1));
        }
    }
}

/// Functions that are too long. A formatted function ends with the first brace as far in as its head.
fn long_functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (begin, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()) else { continue };
        let is_end = |line: &&str| {
            line.len() - line.trim_start().len() == indent && line.trim_start().starts_with('}')
        };
        let is_only_a_head = line.ends_with(';');
        let count = lines.iter().skip(begin).position(is_end).map_or(0, |end| end + 1);
        if count > MAX_FUNCTION_LINES && !is_only_a_head {
            long.push((name, count));
        }
    }
    long
}

/// The name of the function that a line begins.
fn function_name(line: &str) -> Option<&str> {
    let before = |word: &&str| {
        word.starts_with("pub") || matches!(*word, "const" | "async" | "unsafe" | "extern")
    };
    let mut words = line.split_whitespace().skip_while(before);
    let name = words.next().filter(|word| *word == "fn").and_then(|_| words.next())?;
    name.split(['(', '<']).next()
}

/// The name that a line declares, if it declares a type.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let kind = words.next()?;
    let name = words.next().filter(|_| matches!(kind, "struct" | "enum" | "trait" | "type"))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Rules that hold for each crate as a whole.
fn check_crates(root: &Path, files: &[String], problems: &mut Vec<String>) -> Result<()> {
    for file in files {
        let parts: Vec<&str> = file.split('/').collect();
        match parts.as_slice() {
            ["crates", _, "tests", name] if name.ends_with(".rs") => {
                problems.push(format!(
                    "{file}: integration tests are modules of tests/it, one program a crate"
                ));
            }
            ["crates", _, "Cargo.toml"] | ["xtask", "Cargo.toml"] => {
                let text = read(&root.join(file))?;
                if !text.contains("[lints]\nworkspace = true") {
                    problems.push(format!("{file} does not take the workspace's lints"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check_text(file, text, &mut problems);
        problems
    }

    #[test]
    fn a_file_that_is_as_it_should_be_passes() {
        assert!(
            found("crates/x/src/y.rs", "//! What it is.\npub(crate) struct Table;\n").is_empty()
        );
    }

    #[test]
    fn long_files_missing_heads_and_empty_names_are_told() {
        let long = format!("//! x\n{}", "\n".repeat(MAX_LINES));
        assert_eq!(found("crates/x/src/y.rs", &long).len(), 1);
        assert_eq!(found("crates/x/src/y.rs", "struct A;\n").len(), 1);
        assert_eq!(found("crates/x/src/util.rs", "//! x\n").len(), 1);
        assert_eq!(found("crates/x/src/y.rs", "//! x\npub struct TopicManager<T> {\n").len(), 1);
    }

    #[test]
    fn long_functions_are_told_by_name() {
        let of = |lines: usize| {
            format!("//! x\n    pub(crate) async fn f<T>() {{\n{}    }}\n", "\n".repeat(lines))
        };
        assert!(found("crates/x/src/y.rs", &of(78)).is_empty());
        assert_eq!(
            found("crates/x/src/y.rs", &of(79)),
            ["crates/x/src/y.rs: fn f has 81 lines, 70 are the rule"]
        );
    }
}
