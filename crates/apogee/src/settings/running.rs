//! Changing settings of a broker that runs: checked against the same table as at the start, saved in the
//! file that it was started from, then applied.
//!
//! What always holds: either everything that was asked counts or nothing does; what is saved reads back as
//! asked and no other line changes; nothing that comes in names a file, runs a program or is replaced as a
//! placeholder. One mutex, held for a whole change.

use super::sections::{BROKER, Binding, Endpoint, STORE};
use super::source::Given;
use super::{Effect, Effective, Key, Program, Settings, complaint, persist, strongest, unknown};
use apogee_broker::{BrokerConfig, ChangeRefused, Changed, SettingsChange};
use apogee_net::Limits;
use apogee_store::{Retention, StoreConfig};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Who asks is told this as the origin of a value.
const ORIGIN: &str = "at run time";
/// Keys that are never changed from outside, whatever `configBlackList` says.
const NEVER: [&str; 3] = ["brokerConfigPath", "configBlackList", "rocketmqHome"];
/// Sections that a broker changes while it runs.
const SECTIONS: [&str; 6] = ["broker", "store", "server", "client", "auth", "tiered"];

/// A broker's settings.
#[derive(Debug)]
pub(crate) struct RunningSettings {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
struct State {
    broker: BrokerConfig,
    store: StoreConfig,
    shown: BTreeMap<String, String>,
}

impl RunningSettings {
    /// What a broker was started with.
    pub(crate) fn new(
        settings: &Settings,
        broker: &BrokerConfig,
        store: &StoreConfig,
        endpoint: &Endpoint,
        limits: &Limits,
    ) -> Arc<Self> {
        let all = Effective::new(settings, Program::Broker)
            .listening(endpoint, limits)
            .broker(broker, store);
        let mut shown = all.into_values();
        if let Some(file) = &settings.file {
            shown.insert("brokerConfigPath".to_owned(), file.display().to_string());
        }
        let state = State { broker: broker.clone(), store: store.clone(), shown };
        Arc::new(Self { file: settings.file.clone(), state: Mutex::new(state) })
    }
}

impl SettingsChange for RunningSettings {
    fn change(&self, pairs: &[(String, String)]) -> Result<Changed, ChangeRefused> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        forbid(pairs, &state.broker.config_black_list)?;
        let mut next = state.clone();
        let mut problems = Vec::new();
        let mut notes = Vec::new();
        for (key, value) in pairs {
            match take(&mut next, key, value) {
                Ok(note) => notes.extend(note),
                Err(problem) => problems.push(problem),
            }
        }
        problems.extend(next.broker.validate().err());
        problems.extend(next.store.validate().err().map(|error| error.to_string()));
        if !problems.is_empty() {
            return Err(ChangeRefused::Invalid(problems.join("; ")));
        }
        if let Some(file) = &self.file {
            persist::save(file, pairs).map_err(|why| {
                ChangeRefused::NotSaved(format!(
                    "nothing was changed: {} cannot be saved: {why}",
                    file.display()
                ))
            })?;
        } else {
            notes.push(
                "started without a configuration file: the change lasts until the next start"
                    .to_owned(),
            );
        }
        *state = next;
        Ok(Changed { broker: state.broker.clone(), retention: Retention::of(&state.store), notes })
    }

    fn all(&self) -> Vec<(String, String)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.shown.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

fn forbid(pairs: &[(String, String)], black_list: &str) -> Result<(), ChangeRefused> {
    let listed = |key: &str| {
        NEVER.contains(&key) || black_list.split(';').any(|listed| listed.trim() == key)
    };
    match pairs.iter().find(|(key, _)| listed(key)) {
        Some((key, _)) => Err(ChangeRefused::Forbidden(format!(
            "Can not update config in black list. {key} may not be changed."
        ))),
        None => Ok(()),
    }
}

/// Puts one value into the settings; answers what the operator should know about it.
fn take(state: &mut State, name: &str, value: &str) -> Result<Option<String>, String> {
    let given = Given { value: value.to_owned(), origin: ORIGIN.to_owned() };
    let known = strongest(name, Program::Broker).filter(|key| SECTIONS.contains(&key.section));
    let Some(key) = known else { return Err(unknown(name, &given)) };
    if let Some(letter) = value.chars().find(|letter| letter.is_control()) {
        return Err(format!(
            "{name}: the value has the control character {letter:?}, which no file keeps"
        ));
    }
    if value.contains("${") {
        return Err(format!(
            "{name}={value}: placeholders are replaced in files at the start only"
        ));
    }
    if let Some(problem) = complaint(key, &given) {
        return Err(problem);
    }
    let note = match key.effect {
        Effect::Works => live(state, key, value)?,
        Effect::OnlyDefault(_) => None,
        Effect::NotYet(reason) => {
            Some(format!("{name} is kept and has no effect: not yet ({reason})"))
        }
        Effect::NoMeaning(reason) => Some(format!("{name} is kept and has no effect ({reason})")),
    };
    state.shown.insert(name.to_owned(), value.to_owned());
    Ok(note)
}

/// Sets what counts at once; refuses what counts at a start only, unless it is the present value.
fn live(state: &mut State, key: &Key, value: &str) -> Result<Option<String>, String> {
    let name = key.name;
    if BrokerConfig::LIVE_KEYS.contains(&name) {
        set(BROKER, name, &mut state.broker, value)?;
    } else if Retention::LIVE_KEYS.contains(&name) {
        set(STORE, name, &mut state.store, value)?;
    } else if state.shown.get(name).is_none_or(|present| present != value) {
        return Err(format!(
            "{name}={value}: it counts from a start on only; write it into the configuration file"
        ));
    }
    Ok(None)
}

fn set<C>(list: &[Binding<C>], name: &str, config: &mut C, value: &str) -> Result<(), String> {
    let binding = list.iter().find(|binding| binding.key == name);
    let binding = binding.ok_or_else(|| format!("{name} has no effect"))?;
    (binding.set)(config, value).map_err(|allowed| format!("{name}={value} ({ORIGIN}): {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Source, keys};
    use super::*;
    use std::net::IpAddr;

    fn running(file: Option<&std::path::Path>) -> Arc<RunningSettings> {
        let mut source = Source::new();
        if let Some(file) = file {
            source.file(file).unwrap();
        }
        let settings = Settings::check(source, Program::Broker, false).unwrap();
        let endpoint = Endpoint { bind_address: IpAddr::from([127, 0, 0, 1]), listen_port: 10911 };
        let limits = settings.limits().unwrap();
        let store = settings.store("/x".into()).unwrap();
        let broker = settings
            .broker(Program::Broker, endpoint, &store, Some(endpoint.bind_address))
            .unwrap();
        RunningSettings::new(&settings, &broker, &store, &endpoint, &limits)
    }

    fn change(
        settings: &RunningSettings,
        pairs: &[(&str, &str)],
    ) -> Result<Changed, ChangeRefused> {
        let pairs: Vec<_> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        settings.change(&pairs)
    }

    fn shown(settings: &RunningSettings, key: &str) -> String {
        settings
            .all()
            .into_iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value)
            .unwrap_or_default()
    }

    #[test]
    fn a_change_is_answered_with_all_values_and_shown() {
        let settings = running(None);
        let changed = change(&settings, &[("traceOn", "false"), ("deleteWhen", "03;15")]).unwrap();
        assert!(!changed.broker.trace_on);
        assert_eq!(
            changed.retention,
            Retention::of(&StoreConfig {
                delete_when: "03;15".to_owned(),
                ..StoreConfig::new("/x")
            })
        );
        assert_eq!(
            (shown(&settings, "traceOn"), shown(&settings, "deleteWhen")),
            ("false".into(), "03;15".into())
        );
    }

    #[test]
    fn one_wrong_value_keeps_all_others_from_counting() {
        let settings = running(None);
        for (key, value, says) in [
            ("traceOm", "true", "did you mean traceOn?"),
            ("longPollingEnable", "perhaps", "true and false are allowed"),
            ("brokerPermission", "9", "allowed are 6"),
            ("deleteWhen", "noon", "hours from 00 to 23"),
            ("messageDelayLevel", "1s 2s", "from a start on only"),
            ("regionId", "a\nnamesrvAddr=b:1", "control character"),
            ("regionId", "${HOME}", "placeholders"),
            ("brokerRole", "SLAVE", "only ASYNC_MASTER"),
            ("kvConfigPath", "/etc/x", "unknown key"),
            ("tls.server.keyPath", "/etc/x", "unknown key"),
        ] {
            let refused =
                change(&settings, &[("fileReservedTime", "1"), (key, value)]).unwrap_err();
            let ChangeRefused::Invalid(why) = refused else { panic!("{refused:?}") };
            assert!(why.contains(says), "{key}: {why}");
        }
        assert_eq!(shown(&settings, "fileReservedTime"), "72");
    }

    #[test]
    fn keys_of_the_black_list_are_forbidden_whatever_the_value() {
        let settings = running(None);
        for key in ["configBlackList", "brokerConfigPath", "rocketmqHome"] {
            let refused =
                change(&settings, &[("traceOn", "false"), (key, "`touch /tmp/x`")]).unwrap_err();
            assert!(matches!(refused, ChangeRefused::Forbidden(_)), "{refused:?}");
        }
        assert_eq!(shown(&settings, "traceOn"), "true");
    }

    #[test]
    fn the_present_value_and_keys_without_effect_are_taken_whole() {
        let settings = running(None);
        let levels = shown(&settings, "messageDelayLevel");
        assert!(levels.contains("5s 10s"));
        change(&settings, &[("messageDelayLevel", &levels)]).unwrap();
        let changed =
            change(&settings, &[("commercialBaseCount", "3"), ("messageStorePlugIn", "a b c")]);
        let notes = changed.unwrap().notes.join("\n");
        assert!(notes.contains("commercialBaseCount is kept"), "{notes}");
        assert_eq!(shown(&settings, "messageStorePlugIn"), "a b c");
    }

    #[test]
    fn what_was_changed_is_there_after_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.conf");
        std::fs::write(&file, "# mine\nbrokerName=b\ntraceOn=true\n").unwrap();
        let settings = running(Some(&file));
        change(&settings, &[("traceOn", "false"), ("brokerPermission", "4")]).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "# mine\nbrokerName=b\ntraceOn=false\nbrokerPermission=4\n");
        assert!(
            std::fs::read_to_string(folder.path().join("broker.conf.bak"))
                .unwrap()
                .contains("traceOn=true")
        );
        let again = running(Some(&file));
        assert_eq!(
            (shown(&again, "traceOn"), shown(&again, "brokerPermission")),
            ("false".into(), "4".into())
        );
        assert_eq!(shown(&again, "brokerConfigPath"), file.display().to_string());
    }

    #[test]
    fn every_key_that_counts_at_once_is_one_that_works() {
        for name in BrokerConfig::LIVE_KEYS.iter().chain(Retention::LIVE_KEYS) {
            assert!(
                keys().iter().any(|key| key.name == *name && key.effect == Effect::Works),
                "{name}"
            );
        }
    }
}
