//! The checked-in lists: requests, `mqadmin` commands, settings. Lines of cells separated by tabs; lines
//! that begin with `#` are comments, the first other one names the columns.

use anyhow::{Result, bail};

/// A request of the original.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Name of the code.
    pub(crate) name: String,
    /// Who is asked.
    pub(crate) asked: String,
    /// What for.
    pub(crate) purpose: String,
    /// How the answer differs here; empty = not at all.
    pub(crate) differs: String,
    /// What is missing while nobody serves it.
    pub(crate) without: String,
}

/// A command of the original's `mqadmin`.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) name: String,
    /// Names of the requests that it may send.
    pub(crate) requests: Vec<String>,
    pub(crate) note: String,
    /// Why it has no meaning here; empty = it has.
    pub(crate) never: String,
}

/// Something that people ask for, made of requests and settings.
#[derive(Debug, Clone)]
pub(crate) struct Ability {
    pub(crate) name: String,
    pub(crate) needs: Vec<Need>,
    pub(crate) note: String,
    pub(crate) without: String,
}

/// What must be there.
#[derive(Debug, Clone)]
pub(crate) enum Need {
    Request(String),
    /// Section and name of a setting that must work.
    Key(String, String),
}

/// A configuration key.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) section: String,
    pub(crate) name: String,
    /// `works`, or kind and reason separated by `: `.
    pub(crate) effect: String,
}

fn rows<const N: usize>(text: &str) -> Result<Vec<[String; N]>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).skip(1);
    let row = |line: &str| {
        let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        match <[String; N]>::try_from(cells) {
            Ok(row) => Ok(row),
            Err(cells) => bail!("{} cells instead of {N} in the line: {line}", cells.len()),
        }
    };
    lines.map(row).collect()
}

pub(crate) fn requests(text: &str) -> Result<Vec<Request>> {
    let make = |[name, asked, purpose, differs, without]: [String; 5]| Request {
        name,
        asked,
        purpose,
        differs,
        without,
    };
    Ok(rows(text)?.into_iter().map(make).collect())
}

pub(crate) fn commands(text: &str) -> Result<Vec<Command>> {
    let make = |[name, requests, note, never]: [String; 4]| Command {
        name,
        requests: requests
            .split(',')
            .map(str::trim)
            .filter(|name| *name != "-")
            .map(str::to_owned)
            .collect(),
        note,
        never,
    };
    Ok(rows(text)?.into_iter().map(make).collect())
}

pub(crate) fn abilities(text: &str) -> Result<Vec<Ability>> {
    let need = |text: &str| match text.strip_prefix("key ").and_then(|rest| rest.split_once(' ')) {
        Some((section, name)) => Need::Key(section.to_owned(), name.to_owned()),
        None => Need::Request(text.to_owned()),
    };
    let make = |[name, needs, note, without]: [String; 4]| Ability {
        name,
        needs: needs.split(',').map(|text| need(text.trim())).collect(),
        note,
        without,
    };
    Ok(rows(text)?.into_iter().map(make).collect())
}

pub(crate) fn keys(text: &str) -> Result<Vec<Key>> {
    let make =
        |[section, name, _kind, _default, _hot, effect]: [String; 6]| Key { section, name, effect };
    Ok(rows(text)?.into_iter().map(make).collect())
}
