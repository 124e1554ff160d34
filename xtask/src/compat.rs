//! `docs/compatibility.md`: every request, `mqadmin` command and setting of the original, and what becomes
//! of it here.
//!
//! Always holds: the page is a function of the code and the lists below `xtask/data`, so a test can tell
//! whether it is up to date.

use crate::read;
use crate::status::{Requests, Status};
use crate::tables::{self, Key};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const REQUESTS: &str = include_str!("../data/requests.tsv");
const COMMANDS: &str = include_str!("../data/mqadmin.tsv");
const ABILITIES: &str = include_str!("../data/abilities.tsv");
const HEAD: &str = include_str!("../data/compatibility-head.md");
const SETTINGS: &str = "crates/apogee/src/settings/keys.tsv";

/// Sections of the settings in the order of the page, with their headings.
const SECTIONS: [(&str, &str); 13] = [
    ("broker", "Broker"),
    ("store", "Store"),
    ("server", "Listening and connections"),
    ("namesrv", "Name server"),
    ("tls", "TLS"),
    ("auth", "Authentication and authorization"),
    ("client", "Outgoing connections"),
    ("controller", "Controller"),
    ("proxy", "Proxy"),
    ("tiered", "Tiered storage"),
    ("container", "Broker container"),
    ("sysprop", "JVM properties"),
    ("legacy", "Old spellings"),
];

fn page(root: &Path) -> PathBuf {
    root.join("docs/compatibility.md")
}

/// Writes the page.
pub(crate) fn write(root: &Path) -> Result<()> {
    let path = page(root);
    std::fs::write(&path, generate(root)?).with_context(|| format!("write {}", path.display()))
}

/// Compares the page with what it should be.
pub(crate) fn check(root: &Path) -> Result<()> {
    if read(&page(root))? != generate(root)? {
        bail!("docs/compatibility.md is not what the code says: run cargo xtask compat");
    }
    Ok(())
}

fn generate(root: &Path) -> Result<String> {
    let requests = Requests::judge(root, tables::requests(REQUESTS)?)?;
    let keys = tables::keys(&read(&root.join(SETTINGS))?)?;
    let mut out = HEAD.replace("<!-- abilities -->\n", &abilities(&requests, &keys)?);
    add_requests(&mut out, &requests);
    add_commands(&mut out, &requests)?;
    add_settings(&mut out, &keys)?;
    Ok(out)
}

fn abilities(requests: &Requests, keys: &[Key]) -> Result<String> {
    let mut out = "| ability | here |\n|---|---|\n".to_owned();
    for ability in tables::abilities(ABILITIES)? {
        let status = requests.judge_ability(&ability, keys)?;
        let _ = writeln!(out, "| {} | {} |", cell(&ability.name), cell(&status.to_string()));
    }
    out.push('\n');
    Ok(out)
}

/// Counts of works, differs, not yet, never as a sentence.
fn summary<'a>(all: impl Iterator<Item = &'a Status>) -> String {
    let mut counts = [0_usize; 4];
    for status in all {
        let [works, differs, not_yet, never] = &mut counts;
        *match status {
            Status::Works => works,
            Status::Differs(_) => differs,
            Status::NotYet(_) => not_yet,
            Status::Never(_) => never,
        } += 1;
    }
    let [works, differs, not_yet, never] = counts;
    format!("{works} work, {differs} differ, {not_yet} not yet, {never} never.")
}

fn add_requests(out: &mut String, requests: &Requests) {
    let groups: [(&str, &[&str]); 4] = [
        ("Requests to the broker", &["broker"]),
        ("Requests to the name server", &["name server"]),
        ("Requests to clients", &["client"]),
        ("Other requests", &["controller", "container", "nobody"]),
    ];
    for (title, asked) in groups {
        let chosen: Vec<_> = requests
            .all
            .iter()
            .filter(|(_, request, _)| asked.contains(&request.asked.as_str()))
            .collect();
        let counts = summary(chosen.iter().map(|(_, _, status)| status));
        let _ = write!(
            out,
            "\n## {title}\n\n{counts}\n\n| code | name | purpose | here |\n|---|---|---|---|\n"
        );
        for (code, request, status) in chosen {
            let _ = writeln!(
                out,
                "| {} | `{}` | {} | {} |",
                code.0,
                request.name,
                cell(&request.purpose),
                cell(&status.to_string())
            );
        }
    }
}

fn add_commands(out: &mut String, requests: &Requests) -> Result<()> {
    let mut lines = String::new();
    let mut verdicts = Vec::new();
    for command in tables::commands(COMMANDS)? {
        let status = requests.judge_command(&command)?;
        let _ = writeln!(lines, "| `{}` | {} |", command.name, cell(&status.to_string()));
        verdicts.push(status);
    }
    let counts = summary(verdicts.iter());
    let _ = write!(
        out,
        "\n## mqadmin\n\nA command works when everything that it may ask is served. {counts}\n\n\
         | command | here |\n|---|---|\n{lines}"
    );
    Ok(())
}

fn add_settings(out: &mut String, keys: &[Key]) -> Result<()> {
    let _ = write!(
        out,
        "\n## Settings\n\nWhat the keys that work mean is in [configuration.md](configuration.md). \
         \"Only its default\" means that any other value stops the start.\n"
    );
    for (section, title) in SECTIONS {
        let mut by_effect: BTreeMap<(usize, &str), Vec<&str>> = BTreeMap::new();
        for key in keys.iter().filter(|key| key.section == section) {
            by_effect.entry((rank(&key.effect)?, &key.effect)).or_default().push(&key.name);
        }
        let _ = write!(out, "\n### {title}\n\n| here | keys |\n|---|---|\n");
        for ((_, effect), names) in by_effect {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(out, "| {} | {} |", cell(effect), names.join(", "));
        }
    }
    let known = |key: &&Key| SECTIONS.iter().any(|(section, _)| *section == key.section);
    if let Some(key) = keys.iter().find(|key| !known(key)) {
        bail!("section {} of {SETTINGS} has no heading in xtask/src/compat.rs", key.section);
    }
    Ok(())
}

fn rank(effect: &str) -> Result<usize> {
    let kinds = ["works", "only its default: ", "not yet: ", "no meaning here: "];
    kinds
        .iter()
        .position(|kind| effect.starts_with(kind))
        .with_context(|| format!("{SETTINGS}: unknown effect \"{effect}\""))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compatibility_page_is_what_the_code_says() {
        check(&crate::root()).unwrap();
    }

    #[test]
    fn a_command_is_not_yet_there_while_one_of_its_requests_is_missing() {
        let requests =
            Requests::judge(&crate::root(), tables::requests(REQUESTS).unwrap()).unwrap();
        let text = "command\trequests\tnote\tnever\n\
                    a\tPULL_MESSAGE\t\t\n\
                    b\tPULL_MESSAGE, CONTROLLER_ELECT_MASTER\t\t\n\
                    c\tPULL_MESSAGE\t\tno\n";
        let verdicts: Vec<Status> = tables::commands(text)
            .unwrap()
            .iter()
            .map(|command| requests.judge_command(command).unwrap())
            .collect();
        assert_eq!(
            verdicts,
            [
                Status::Works,
                Status::NotYet("the controller".to_owned()),
                Status::Never("no".to_owned())
            ]
        );
    }
}
