//! What becomes of a request, a command or a setting of the original.
//!
//! Whether a request is served is asked of the code: the broker's table, and the name server itself, which
//! gets each code once and is believed unless it answers that it does not support it. A request to clients is
//! sent if the broker's sources name its code.

use crate::read;
use crate::tables::{Ability, Command, Key, Need, Request};
use anyhow::{Context as _, Result, bail};
use apogee_namesrv::{NamesrvConfig, NamesrvProcessor, Peer};
use apogee_protocol::headers::NoHeader;
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Works,
    Differs(String),
    NotYet(String),
    Never(String),
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Works => write!(f, "works"),
            Self::Differs(how) => write!(f, "differs: {how}"),
            Self::NotYet(what) if what.is_empty() => write!(f, "not yet"),
            Self::NotYet(what) => write!(f, "not yet: {what}"),
            Self::Never(why) => write!(f, "never: {why}"),
        }
    }
}

/// All requests with their verdicts.
pub(crate) struct Requests {
    pub(crate) all: Vec<(RequestCode, Request, Status)>,
    by_name: BTreeMap<String, Status>,
}

impl Requests {
    /// # Errors
    /// When the list and the protocol's codes are not the same.
    pub(crate) fn judge(root: &Path, list: Vec<Request>) -> Result<Self> {
        let mut sources = String::new();
        gather(&root.join("crates/apogee-broker/src"), &mut sources)?;
        let by_namesrv = served_by_namesrv()?;
        let mut left: BTreeMap<String, Request> =
            list.into_iter().map(|request| (request.name.clone(), request)).collect();
        let mut all = Vec::new();
        for (code, name, _) in RequestCode::ALL {
            let Some(request) = left.remove(*name) else {
                bail!("xtask/data/requests.tsv has no line for {name} ({})", code.0);
            };
            let served = match request.asked.as_str() {
                "broker" => apogee_broker::find(code.0).is_some(),
                "name server" => by_namesrv.contains(&code.0),
                "client" => names(&sources, name),
                "controller" | "container" | "nobody" => false,
                other => bail!("{name} in xtask/data/requests.tsv is asked of \"{other}\""),
            };
            let status = verdict(&request, served)?;
            all.push((*code, request, status));
        }
        if let Some(name) = left.keys().next() {
            bail!("{name} in xtask/data/requests.tsv is no request code, or stands there twice");
        }
        let by_name =
            all.iter().map(|(_, request, status)| (request.name.clone(), status.clone())).collect();
        Ok(Self { all, by_name })
    }

    /// An ability is there when all it needs is.
    pub(crate) fn judge_ability(&self, ability: &Ability, keys: &[Key]) -> Result<Status> {
        let mut all = true;
        for need in &ability.needs {
            all &= match need {
                Need::Request(name) => match self.by_name.get(name) {
                    Some(status) => matches!(status, Status::Works | Status::Differs(_)),
                    None => bail!("\"{}\" needs {name}, which is no request", ability.name),
                },
                Need::Key(section, name) => {
                    match keys.iter().find(|key| key.section == *section && key.name == *name) {
                        Some(key) => key.effect == "works",
                        None => bail!(
                            "\"{}\" needs the key {section} {name}, which is none",
                            ability.name
                        ),
                    }
                }
            };
        }
        Ok(match (all, ability.note.as_str()) {
            (true, "") => Status::Works,
            (true, note) => Status::Differs(note.to_owned()),
            (false, _) => Status::NotYet(ability.without.clone()),
        })
    }

    /// A command works when everything it asks is served.
    pub(crate) fn judge_command(&self, command: &Command) -> Result<Status> {
        if !command.never.is_empty() {
            return Ok(Status::Never(command.never.clone()));
        }
        let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in &command.requests {
            match self.by_name.get(name) {
                None => bail!("{} asks {name}, which is no request code", command.name),
                Some(Status::NotYet(what) | Status::Never(what)) => {
                    missing.entry(what).or_default().push(name);
                }
                Some(Status::Works | Status::Differs(_)) => {}
            }
        }
        if !missing.is_empty() {
            let what: Vec<&str> = missing.into_keys().collect();
            return Ok(Status::NotYet(what.join(", ")));
        }
        Ok(if command.note.is_empty() {
            Status::Works
        } else {
            Status::Differs(command.note.clone())
        })
    }
}

/// Adds the text of all Rust files below a folder.
fn gather(folder: &Path, sources: &mut String) -> Result<()> {
    let what = || format!("list {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(what)? {
        let path = entry.with_context(what)?.path();
        if path.is_dir() {
            gather(&path, sources)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources.push_str(&read(&path)?);
        }
    }
    Ok(())
}

/// Whether the code of this name is used: not as the beginning of a longer name.
fn names(sources: &str, code: &str) -> bool {
    let used = format!("RequestCode::{code}");
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    sources.match_indices(&used).any(|(at, _)| sources.get(at + used.len()..).is_some_and(ends))
}

fn verdict(request: &Request, served: bool) -> Result<Status> {
    if served {
        return Ok(match request.differs.as_str() {
            "" => Status::Works,
            how => Status::Differs(how.to_owned()),
        });
    }
    let without = request.without.as_str();
    if without.is_empty() {
        bail!(
            "{} is not served, but xtask/data/requests.tsv does not say what is missing",
            request.name
        );
    }
    Ok(match without.strip_prefix("never: ") {
        Some(why) => Status::Never(why.to_owned()),
        None if request.asked == "nobody" => Status::Never(without.to_owned()),
        None => Status::NotYet(without.to_owned()),
    })
}

/// Codes that a name server knows. It has no files here, so asking it changes nothing.
fn served_by_namesrv() -> Result<BTreeSet<i32>> {
    let mut config = NamesrvConfig::default();
    config.kv_config_path.clear();
    config.config_store_path.clear();
    let server = NamesrvProcessor::new(config, 0)?;
    let peer = Peer { connection: 1, addr: SocketAddr::from(([127, 0, 0, 1], 1)) };
    let known = |code: RequestCode| {
        let request = RemotingCommand::request(code, &NoHeader);
        let answer = server.handle(&request, &peer, 0, &mut Vec::new());
        answer.is_none_or(|answer| answer.code != ResponseCode::REQUEST_CODE_NOT_SUPPORTED)
    };
    Ok(RequestCode::ALL
        .iter()
        .map(|(code, _, _)| *code)
        .filter(|code| known(*code))
        .map(|code| code.0)
        .collect())
}
