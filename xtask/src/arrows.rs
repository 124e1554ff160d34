//! Which crate may use which: the list of ARCHITECTURE.md, held against `cargo metadata` and `Cargo.lock`.
//!
//! Only what is built into programs counts; tests may use what they like.

use crate::read;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Crate and what it may use of this workspace. `apogee` may use everything.
const ARROWS: [(&str, &[&str]); 7] = [
    ("apogee-model", &[]),
    ("apogee-protocol", &["apogee-model"]),
    ("apogee-store", &["apogee-model"]),
    ("apogee-net", &["apogee-protocol", "apogee-model"]),
    ("apogee-namesrv", &["apogee-net", "apogee-protocol", "apogee-model"]),
    ("apogee-broker", &["apogee-store", "apogee-net", "apogee-protocol", "apogee-model"]),
    ("xtask", &["apogee-broker", "apogee-namesrv", "apogee-protocol"]),
];

/// Crate and what must not come in by any way.
const FORBIDDEN: [(&str, &[&str]); 3] = [
    ("apogee-model", &["tokio", "mio"]),
    ("apogee-protocol", &["tokio", "mio"]),
    ("apogee-store", &["tokio", "mio", "apogee-net", "apogee-protocol"]),
];

/// Bindings that need more than a C compiler to build.
const NEVER: [&str; 4] = ["aws-lc-sys", "bindgen", "openssl-sys", "prost-build"];

/// Adds a line for each arrow that is not in the list.
pub(crate) fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let direct = direct_dependencies(root)?;
    for (package, uses) in &direct {
        if package == "apogee" {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| name == package) else {
            problems.push(format!(
                "{package}: a new crate needs its arrows in xtask/src/arrows.rs and ARCHITECTURE.md"
            ));
            continue;
        };
        for used in uses.iter().filter(|used| direct.contains_key(*used)) {
            if !allowed.contains(&used.as_str()) {
                problems.push(format!("{package} must not use {used}"));
            }
        }
    }
    let locked = locked_dependencies(root)?;
    for (package, forbidden) in FORBIDDEN {
        let reached = reach(direct.get(package), &direct, &locked);
        for name in forbidden.iter().filter(|name| reached.contains(**name)) {
            problems.push(format!("{package} must not bring in {name}, by whatever way"));
        }
    }
    for name in NEVER.iter().filter(|name| locked.contains_key(**name)) {
        problems.push(format!("{name} is in Cargo.lock: it needs more than a C compiler to build"));
    }
    Ok(())
}

/// Workspace crates and what their programs and libraries use directly.
fn direct_dependencies(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let name =
        |value: &Value| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut all = BTreeMap::new();
    for package in list(&metadata, "packages") {
        let uses = list(&package, "dependencies")
            .iter()
            .filter(|dependency| dependency.get("kind").is_none_or(Value::is_null))
            .map(name)
            .collect();
        all.insert(name(&package), uses);
    }
    Ok(all)
}

/// What each locked package uses, by name; several versions of one name are taken together.
fn locked_dependencies(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let text = read(&root.join("Cargo.lock"))?;
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("name = ") {
            current = name.trim_matches('"').to_owned();
            all.entry(current.clone()).or_default();
        } else if let Some(used) = line.strip_prefix(" \"") {
            let name = used.trim_end_matches([',', '"']).split(' ').next().unwrap_or_default();
            all.entry(current.clone()).or_default().insert(name.to_owned());
        }
    }
    Ok(all)
}

/// Everything that comes in with `start`. The lock file mixes tests into the workspace's own crates, so
/// those go by their manifests.
fn reach(
    start: Option<&BTreeSet<String>>,
    direct: &BTreeMap<String, BTreeSet<String>>,
    locked: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut todo: Vec<String> = start.into_iter().flatten().cloned().collect();
    while let Some(name) = todo.pop() {
        if reached.insert(name.clone()) {
            todo.extend(
                direct.get(&name).or_else(|| locked.get(&name)).into_iter().flatten().cloned(),
            );
        }
    }
    reached
}
