//! Settings: every key of the original, checked once, handed out by section.
//!
//! The way: a [`Source`] collects values (file, `--set`, environment, options), [`Settings::check`]
//! holds them against the one table of keys, and [`sections`] makes each part's own configuration.
//!
//! What always holds: no key is silently ignored. A key without effect is named once with the reason; a
//! key that nobody knows, a value of the wrong type, and a value that would promise what is not kept stop
//! the start, all of them in one message. Plain data, no threads, no locks.

pub mod address;
mod persist;
mod print;
mod running;
pub mod sections;
mod source;
mod table;

pub use print::Effective;
pub(crate) use running::RunningSettings;
pub use source::Source;
pub use table::{Effect, Key, Kind, keys};

use source::Given;
use std::collections::BTreeMap;

/// What is wrong with the settings: one or more complaints, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// The complaints.
    pub problems: Vec<String>,
}

impl SettingsError {
    pub(crate) fn one(problem: String) -> Self {
        Self { problems: vec![problem] }
    }
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl std::error::Error for SettingsError {}

/// The program whose settings these are: decides which sections count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A broker alone.
    Broker,
    /// A name server alone.
    NameServer,
    /// Everything in one process; `listenPort` is the broker's.
    Everything,
}

impl Program {
    fn owns(self, section: &str) -> bool {
        match section {
            "server" | "client" | "tls" | "sysprop" | "auth" => true,
            "broker" | "store" | "legacy" | "tiered" => self != Self::NameServer,
            "namesrv" => self != Self::Broker,
            _ => false,
        }
    }
}

/// Checked settings of one program.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) given: BTreeMap<String, Given>,
    pub(crate) file: Option<std::path::PathBuf>,
    notes: Vec<String>,
    warnings: Vec<String>,
}

impl Settings {
    /// Holds `source` against the table. With `allow_unknown_keys` an unknown key is only a warning.
    ///
    /// # Errors
    /// All complaints at once: unknown keys with the nearest known name, values of the wrong type with
    /// what is allowed, values that this release can't keep.
    pub fn check(
        source: Source,
        program: Program,
        allow_unknown_keys: bool,
    ) -> Result<Self, SettingsError> {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let mut idle: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, given) in &source.given {
            let Some(key) = strongest(name, program) else {
                let place = if allow_unknown_keys { &mut warnings } else { &mut problems };
                place.push(unknown(name, given));
                continue;
            };
            if let Some(problem) = complaint(key, given) {
                problems.push(problem);
            }
            if let Some(reason) = idle_reason(key, program) {
                idle.entry(reason).or_default().push(name);
            }
        }
        if !problems.is_empty() {
            return Err(SettingsError { problems });
        }
        let notes = idle
            .into_iter()
            .map(|(reason, names)| {
                format!("settings without effect, {reason}: {}", names.join(", "))
            })
            .collect();
        Ok(Self { given: source.given, file: source.file, notes, warnings })
    }

    /// The given value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(|given| given.value.as_str())
    }

    /// What shall be said at the start: settings that have no effect, grouped by reason.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Unknown keys that were allowed.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The row that counts for `program`: one of its own sections if there is one, the strongest of those.
fn strongest(name: &str, program: Program) -> Option<&'static Key> {
    table::find(name).max_by_key(|key| (program.owns(key.section), key.effect.strength()))
}

fn unknown(name: &str, given: &Given) -> String {
    let hint = match table::nearest(name) {
        Some(near) => format!("did you mean {near}?"),
        None => "no known key is like it".to_owned(),
    };
    format!("unknown key {name} ({}): {hint}", given.origin)
}

fn complaint(key: &Key, given: &Given) -> Option<String> {
    let Given { value, origin } = given;
    if let Err(allowed) = key.kind.check(value) {
        return Some(format!("{}={value} ({origin}): {allowed}", key.name));
    }
    match key.effect {
        Effect::OnlyDefault(reason) if !value.eq_ignore_ascii_case(key.default) => Some(format!(
            "{}={value} ({origin}): only {} can be served: {reason}",
            key.name, key.default
        )),
        _ => None,
    }
}

fn idle_reason(key: &Key, program: Program) -> Option<String> {
    match key.effect {
        _ if !program.owns(key.section) => Some(format!("they belong to the {} part", key.section)),
        Effect::Works | Effect::OnlyDefault(_) => None,
        Effect::NotYet(reason) => Some(format!("not yet ({reason})")),
        Effect::NoMeaning(reason) => Some(format!("no meaning here ({reason})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)], program: Program) -> Result<Settings, SettingsError> {
        let mut source = Source::new();
        for (key, value) in pairs {
            source.put(key, value, "test");
        }
        Settings::check(source, program, false)
    }

    #[test]
    fn an_unknown_key_stops_with_the_nearest_name_and_can_be_allowed() {
        let error = check(&[("flushDiscType", "SYNC_FLUSH")], Program::Broker).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown key flushDiscType (test): did you mean flushDiskType?"
        );
        let mut source = Source::new();
        source.put("flushDiscType", "x", "test");
        let settings = Settings::check(source, Program::Broker, true).unwrap();
        assert_eq!(settings.warnings().len(), 1);
    }

    #[test]
    fn wrong_types_are_refused_with_key_value_and_what_is_allowed_all_at_once() {
        let error = check(
            &[("flushDiskType", "SOMETIMES"), ("listenPort", "ten"), ("traceOn", "yes")],
            Program::Broker,
        )
        .unwrap_err();
        assert_eq!(error.problems.len(), 3);
        assert_eq!(
            error.problems[0],
            "flushDiskType=SOMETIMES (test): allowed are ASYNC_FLUSH, SYNC_FLUSH"
        );
    }

    #[test]
    fn a_value_that_would_promise_too_much_stops_the_start_and_its_default_does_not() {
        let error = check(&[("brokerRole", "SLAVE")], Program::Broker).unwrap_err();
        assert!(error.to_string().contains("only ASYNC_MASTER can be served"), "{error}");
        assert!(check(&[("authenticationEnabled", "true")], Program::NameServer).is_err());
        let fine = check(&[("brokerRole", "ASYNC_MASTER")], Program::Broker).unwrap();
        assert!(fine.notes().is_empty());
    }

    #[test]
    fn keys_without_effect_are_named_once_with_their_reason() {
        let settings = check(
            &[
                ("sendMessageThreadPoolNums", "1"),
                ("pullMessageThreadPoolNums", "1"),
                ("grpcServerPort", "1"),
                ("brokerName", "b"),
            ],
            Program::Broker,
        )
        .unwrap();
        assert_eq!(settings.notes().len(), 2);
        let all = settings.notes().join("\n");
        assert!(all.contains("pullMessageThreadPoolNums, sendMessageThreadPoolNums"), "{all}");
        assert!(all.contains("they belong to the proxy part: grpcServerPort"), "{all}");
    }

    #[test]
    fn a_broker_key_belongs_elsewhere_in_a_name_server() {
        let settings = check(&[("flushDiskType", "SYNC_FLUSH")], Program::NameServer).unwrap();
        assert_eq!(settings.notes().len(), 1);
    }
}
