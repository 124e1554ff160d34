//! SQL92 filters of consumer groups, compiled once, saved as `consumerFilter.json`.
//!
//! A heartbeat brings them, a pull finds them by group and topic. What always holds: the newest
//! version of a subscription counts; an expression that cannot be parsed takes the place of the one
//! before it and is answered to pulls with its reason, but is not saved; a filter that nobody has
//! subscribed for a day is forgotten. One lock, held for look-ups and changes only: parsing and
//! saving happen outside of it.

use crate::clock::now_ms;
use crate::error::BrokerError;
use apogee_model::sql::{Expression, FILTER_BITS, SqlError, filter_bits};
use apogee_model::subscription::{EXPRESSION_SQL92, EXPRESSION_TAG};
use apogee_protocol::bodies::{
    BloomFilterData, ConsumerFilterData, ConsumerFilterWrapper, FilterDataMapByTopic, JsonBody,
    SubscriptionData,
};
use apogee_store::Document;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Filters at most; what is above is answered to pulls as missing.
const MAX_FILTERS: usize = 65_536;
/// Bytes of all expressions at most.
const MAX_EXPRESSION_BYTES: usize = 64 * 1024 * 1024;
/// A filter that is saved without an end ended about this long before the start (ms).
const SILENT_BEFORE_START_MS: i64 = 30_000;

/// Whether a subscription of this type is one by tags.
pub(crate) fn is_tag_type(kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| kind.is_empty() || kind == EXPRESSION_TAG)
}

/// Why a group's filter cannot be used.
pub(crate) enum Missing {
    /// No heartbeat has brought one.
    Unknown,
    /// It cannot be parsed.
    Unusable(SqlError),
    /// Only an older version is known.
    Older(i64),
}

/// An expression that cannot be parsed, and why.
struct Refused {
    text: Box<str>,
    error: SqlError,
}

struct Filter {
    compiled: Result<Arc<Expression>, Refused>,
    client_version: i64,
    born_ms: i64,
    /// When its last subscriber left.
    dead_ms: Option<i64>,
}

impl Filter {
    fn parse(text: &str, client_version: i64, now: i64) -> Self {
        let compiled = Expression::parse(text)
            .map(Arc::new)
            .map_err(|error| Refused { text: text.into(), error });
        Self { compiled, client_version, born_ms: now, dead_ms: None }
    }

    fn text(&self) -> &str {
        match &self.compiled {
            Ok(expression) => expression.source(),
            Err(refused) => &refused.text,
        }
    }

    /// Whether a subscription tells nothing new. A dead filter speaks for nobody, so that a client
    /// whose clock went back can replace it.
    fn covers(&self, data: &SubscriptionData) -> bool {
        self.dead_ms.is_none() && data.sub_version <= self.client_version
    }
}

type Topics = HashMap<Box<str>, Filter>;

/// All filters by group and topic.
pub(crate) struct FilterTable {
    groups: RwLock<HashMap<Box<str>, Topics>>,
    changed: AtomicBool,
    document: Document,
    /// Two saves must not overtake each other.
    saving: Mutex<()>,
    clean_after_ms: i64,
}

fn is_document(bytes: &[u8]) -> bool {
    ConsumerFilterWrapper::from_json(bytes).is_ok()
}

fn expression_of(data: &SubscriptionData) -> &str {
    data.sub_string.as_deref().unwrap_or_default()
}

fn is_sql(data: &SubscriptionData) -> bool {
    data.expression_type.as_deref() == Some(EXPRESSION_SQL92)
}

impl FilterTable {
    /// Loads `consumerFilter.json`; filters are forgotten `clean_after_ms` after their last subscriber.
    ///
    /// # Errors
    /// When the document and its backup are both unreadable.
    pub(crate) fn load(config_dir: &Path, clean_after_ms: i64) -> Result<Self, BrokerError> {
        let document = Document::new(config_dir.join("consumerFilter.json"), is_document);
        let mut groups: HashMap<Box<str>, Topics> = HashMap::new();
        if let Some(bytes) = document.load()?.into_bytes() {
            let saved = ConsumerFilterWrapper::from_json(&bytes)?;
            for (topic, filters) in saved.filter_data_by_topic {
                for (group, data) in filters.group_filter_data {
                    if let Some(filter) = loaded(&group, &topic, &data) {
                        groups
                            .entry(group.into())
                            .or_default()
                            .insert(topic.as_str().into(), filter);
                    }
                }
            }
        }
        Ok(Self {
            groups: RwLock::new(groups),
            changed: AtomicBool::new(false),
            document,
            saving: Mutex::new(()),
            clean_after_ms,
        })
    }

    /// The filter of a group for a topic, at least of `version`.
    pub(crate) fn find(
        &self,
        group: &str,
        topic: &str,
        version: i64,
    ) -> Result<Arc<Expression>, Missing> {
        let groups = self.groups.read();
        let filter =
            groups.get(group).and_then(|topics| topics.get(topic)).ok_or(Missing::Unknown)?;
        if filter.client_version < version {
            return Err(Missing::Older(filter.client_version));
        }
        match &filter.compiled {
            Ok(expression) => Ok(Arc::clone(expression)),
            Err(refused) => Err(Missing::Unusable(refused.error.clone())),
        }
    }

    /// Takes over what a full heartbeat tells of a group; topics that it leaves out lose their filter.
    pub(crate) fn heartbeat(&self, group: &str, subscriptions: &[SubscriptionData], now: i64) {
        if self.is_known(group, subscriptions) {
            return;
        }
        let wanted = subscriptions.iter().filter(|data| is_sql(data));
        let parsed: Vec<(&SubscriptionData, Filter)> = wanted
            .map(|data| (data, Filter::parse(expression_of(data), data.sub_version, now)))
            .collect();
        let mut groups = self.groups.write();
        if !has_room(&groups, &parsed) {
            drop(groups);
            tracing::warn!(
                group,
                limit = MAX_FILTERS,
                bytes = MAX_EXPRESSION_BYTES,
                "too many SQL92 filters: this group's are not taken"
            );
            return;
        }
        let topics = groups.entry(group.into()).or_default();
        for (topic, filter) in topics.iter_mut() {
            if !subscriptions.iter().any(|data| *data.topic == **topic && is_sql(data)) {
                filter.dead_ms.get_or_insert(now);
            }
        }
        for (data, filter) in parsed {
            take_over(topics, group, data, filter);
        }
        if topics.is_empty() {
            groups.remove(group);
        }
        self.changed.store(true, Ordering::Release);
    }

    /// Whether the heartbeat tells nothing new: the common case, under a shared lock.
    fn is_known(&self, group: &str, subscriptions: &[SubscriptionData]) -> bool {
        let groups = self.groups.read();
        let Some(topics) = groups.get(group) else {
            return !subscriptions.iter().any(is_sql);
        };
        let sql =
            |topic: &str| subscriptions.iter().find(|data| data.topic == topic && is_sql(data));
        let nothing_left =
            topics.iter().all(|(topic, filter)| filter.dead_ms.is_some() || sql(topic).is_some());
        let covered = |data: &SubscriptionData| {
            topics.get(data.topic.as_str()).is_some_and(|filter| filter.covers(data))
        };
        nothing_left && subscriptions.iter().filter(|data| is_sql(data)).all(covered)
    }

    /// The last member of a group has left.
    pub(crate) fn group_left(&self, group: &str, now: i64) {
        let mut groups = self.groups.write();
        let filters = groups.get_mut(group).into_iter().flat_map(HashMap::values_mut);
        for filter in filters.filter(|filter| filter.dead_ms.is_none()) {
            filter.dead_ms = Some(now);
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Saves the filters if they changed, without those that are dead for too long.
    pub(crate) fn save(&self) {
        let _alone = self.saving.lock();
        self.forget_old(now_ms());
        if !self.changed.swap(false, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.document.save(&self.wrapper().to_pretty()) {
            tracing::error!(%error, "consumerFilter.json cannot be saved; it is tried again");
            self.changed.store(true, Ordering::Release);
        }
    }

    fn forget_old(&self, now: i64) {
        let old = |filter: &Filter| {
            filter.dead_ms.is_some_and(|at| now.saturating_sub(at) >= self.clean_after_ms)
        };
        if !self.groups.read().values().flat_map(HashMap::values).any(old) {
            return;
        }
        self.groups.write().retain(|_, topics| {
            topics.retain(|_, filter| !old(filter));
            !topics.is_empty()
        });
        self.changed.store(true, Ordering::Release);
    }

    fn wrapper(&self) -> ConsumerFilterWrapper {
        let mut by_topic: BTreeMap<String, FilterDataMapByTopic> = BTreeMap::new();
        for (group, topics) in self.groups.read().iter() {
            for (topic, filter) in topics.iter().filter(|(_, filter)| filter.compiled.is_ok()) {
                let entry =
                    by_topic.entry(topic.to_string()).or_insert_with(|| FilterDataMapByTopic {
                        topic: Some(topic.to_string()),
                        ..FilterDataMapByTopic::default()
                    });
                entry.group_filter_data.insert(group.to_string(), saved(group, topic, filter));
            }
        }
        ConsumerFilterWrapper { filter_data_by_topic: by_topic }
    }
}

fn has_room(groups: &HashMap<Box<str>, Topics>, more: &[(&SubscriptionData, Filter)]) -> bool {
    let held =
        || groups.values().flat_map(HashMap::values).chain(more.iter().map(|(_, filter)| filter));
    held().count() <= MAX_FILTERS
        && held().map(|filter| filter.text().len()).sum::<usize>() <= MAX_EXPRESSION_BYTES
}

/// Lets a new subscription replace, renew or revive the filter before it.
fn take_over(topics: &mut Topics, group: &str, data: &SubscriptionData, filter: Filter) {
    let topic = data.topic.as_str();
    if let Some(known) = topics.get_mut(topic) {
        if known.covers(data) {
            return;
        }
        if known.text() == filter.text() {
            known.client_version = known.client_version.max(data.sub_version);
            known.dead_ms = None;
            return;
        }
    }
    let expression = filter.text();
    match &filter.compiled {
        Ok(_) => tracing::info!(group, topic, expression, "SQL92 filter registered"),
        Err(Refused { error, .. }) => {
            tracing::warn!(group, topic, expression, %error, "the SQL92 filter cannot be used");
        }
    }
    topics.insert(topic.into(), filter);
}

fn loaded(group: &str, topic: &str, data: &ConsumerFilterData) -> Option<Filter> {
    if is_tag_type(data.expression_type.as_deref()) {
        return None;
    }
    let mut filter =
        Filter::parse(data.expression.as_deref()?, data.client_version, data.born_time);
    if let Err(Refused { error, .. }) = &filter.compiled {
        tracing::warn!(group, topic, expression = filter.text(), %error, "a saved SQL92 filter cannot be used");
    }
    // Nobody is connected yet; a heartbeat brings the filter to life.
    let ended = if data.dead_time > 0 { data.dead_time } else { now_ms() - SILENT_BEFORE_START_MS };
    filter.dead_ms = Some(ended.max(data.born_time));
    Some(filter)
}

fn saved(group: &str, topic: &str, filter: &Filter) -> ConsumerFilterData {
    ConsumerFilterData {
        bloom_filter_data: Some(BloomFilterData {
            bit_num: FILTER_BITS,
            bit_pos: filter_bits(group, topic).to_vec(),
        }),
        born_time: filter.born_ms,
        client_version: filter.client_version,
        consumer_group: Some(group.to_owned()),
        dead: Some(filter.dead_ms.is_some()),
        dead_time: filter.dead_ms.unwrap_or(0),
        expression: Some(filter.text().to_owned()),
        expression_type: Some(EXPRESSION_SQL92.to_owned()),
        topic: Some(topic.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 3600 * 1000;

    fn sql(topic: &str, expression: &str, version: i64) -> SubscriptionData {
        SubscriptionData {
            topic: topic.to_owned(),
            sub_string: Some(expression.to_owned()),
            expression_type: Some(EXPRESSION_SQL92.to_owned()),
            sub_version: version,
            ..SubscriptionData::default()
        }
    }

    fn table(folder: &tempfile::TempDir) -> FilterTable {
        FilterTable::load(folder.path(), DAY_MS).unwrap()
    }

    /// The expression on record, or what is said instead.
    fn found(table: &FilterTable, version: i64) -> String {
        match table.find("CG", "T", version) {
            Ok(expression) => expression.source().to_owned(),
            Err(Missing::Unknown) => "unknown".to_owned(),
            Err(Missing::Unusable(error)) => error.problem,
            Err(Missing::Older(version)) => format!("older: {version}"),
        }
    }

    #[test]
    fn the_newest_version_of_a_living_filter_counts() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&folder);
        assert_eq!(found(&table, 0), "unknown");
        table.heartbeat("CG", &[sql("T", "a = 1", 10)], 0);
        table.heartbeat("CG", &[sql("T", "a = 2", 9)], 0);
        assert_eq!(found(&table, 10), "a = 1");
        assert_eq!(found(&table, 11), "older: 10");
        table.heartbeat("CG", &[sql("T", "a = 2", 11)], 0);
        assert_eq!(found(&table, 11), "a = 2");
    }

    #[test]
    fn an_older_version_replaces_a_dead_filter() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&folder);
        table.heartbeat("CG", &[sql("T", "a = 1", 10)], 0);
        table.group_left("CG", 1);
        assert_eq!(found(&table, 10), "a = 1");
        table.heartbeat("CG", &[sql("T", "a = 2", 5)], 2);
        assert_eq!(found(&table, 5), "a = 2");
    }

    #[test]
    fn a_wrong_expression_takes_the_place_of_a_good_one_and_is_not_saved() {
        let folder = tempfile::tempdir().unwrap();
        let before = table(&folder);
        before.heartbeat("CG", &[sql("T", "a = 1", 1)], 0);
        before.heartbeat("CG", &[sql("T", "a =", 2)], 0);
        assert!(found(&before, 2).contains("expected"));
        before.save();
        assert_eq!(found(&table(&folder), 0), "unknown");
    }

    #[test]
    fn filters_survive_a_restart_and_are_forgotten_a_day_after_their_last_subscriber() {
        let folder = tempfile::tempdir().unwrap();
        let now = now_ms();
        let before = table(&folder);
        before.heartbeat("CG", &[sql("T", "a = 1", 7)], now);
        before.heartbeat("Old", &[sql("T", "a = 1", 7)], now - DAY_MS - 1);
        before.group_left("Old", now - DAY_MS);
        before.save();
        let again = table(&folder);
        assert_eq!(found(&again, 7), "a = 1");
        assert!(matches!(again.find("Old", "T", 7), Err(Missing::Unknown)));
        again.forget_old(now + DAY_MS - SILENT_BEFORE_START_MS - 60_000);
        assert_eq!(found(&again, 7), "a = 1");
        again.forget_old(now + DAY_MS + 60_000);
        assert_eq!(found(&again, 7), "unknown");
    }

    #[test]
    fn a_topic_that_a_heartbeat_leaves_out_loses_its_filter_and_the_same_heartbeat_changes_nothing()
    {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&folder);
        let both = [sql("T", "a = 1", 1), sql("U", "b = 1", 1)];
        table.heartbeat("CG", &both, 0);
        assert!(table.is_known("CG", &both));
        assert!(!table.is_known("CG", &both[1..]));
        table.heartbeat("CG", &both[1..], 5);
        assert!(table.is_known("CG", &both[1..]));
        let data = table.wrapper().filter_data_by_topic["T"].group_filter_data["CG"].clone();
        assert_eq!((data.dead, data.dead_time), (Some(true), 5));
        assert!(table.is_known("Tags", &[SubscriptionData::default()]));
    }

    #[test]
    fn the_document_of_the_original_is_kept_as_it_was() {
        let golden = include_bytes!("../tests/fixtures/consumerFilter.json");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("consumerFilter.json"), golden).unwrap();
        let table = FilterTable::load(folder.path(), i64::MAX).unwrap();
        assert_eq!(table.wrapper(), ConsumerFilterWrapper::from_json(golden).unwrap());
    }
}
