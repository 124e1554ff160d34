//! All settings with their effective values, `key=value` a line, as the original's `-p` prints them.

use super::sections::{BROKER, Binding, ENDPOINT, Endpoint, LIMITS, NAMESRV, STORE};
use super::{Program, Settings, table};
use apogee_broker::BrokerConfig;
use apogee_namesrv::NamesrvConfig;
use apogee_net::Limits;
use apogee_store::StoreConfig;
use std::collections::BTreeMap;

/// Effective values by key.
#[derive(Debug, Clone, Default)]
pub struct Effective {
    values: BTreeMap<String, String>,
}

impl Effective {
    /// What was given, else the original's default, for every key of `program`.
    #[must_use]
    pub fn new(settings: &Settings, program: Program) -> Self {
        let mut values = BTreeMap::new();
        let shown = |key: &&super::Key| program.owns(key.section) && key.section != "legacy";
        for key in table::keys().iter().filter(shown) {
            values.entry(key.name.to_owned()).or_insert_with(|| key.default.to_owned());
        }
        for (key, given) in &settings.given {
            values.insert(key.clone(), given.value.clone());
        }
        Self { values }
    }

    /// The values by key.
    pub(super) fn into_values(self) -> BTreeMap<String, String> {
        self.values
    }

    fn overlay<C>(mut self, list: &[Binding<C>], config: &C) -> Self {
        for binding in list {
            self.values.insert(binding.key.to_owned(), (binding.get)(config));
        }
        self
    }

    /// The same with what a broker really uses.
    #[must_use]
    pub fn broker(self, broker: &BrokerConfig, store: &StoreConfig) -> Self {
        self.overlay(STORE, store).overlay(BROKER, broker)
    }

    /// The same with what a name server really uses.
    #[must_use]
    pub fn namesrv(self, namesrv: &NamesrvConfig) -> Self {
        self.overlay(NAMESRV, namesrv)
    }

    /// The same with what connections really use.
    #[must_use]
    pub fn listening(self, endpoint: &Endpoint, limits: &Limits) -> Self {
        self.overlay(ENDPOINT, endpoint).overlay(LIMITS, limits)
    }
}

impl std::fmt::Display for Effective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (key, value) in &self.values {
            writeln!(f, "{key}={value}")?;
        }
        Ok(())
    }
}
