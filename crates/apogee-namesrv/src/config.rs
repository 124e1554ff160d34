//! Settings of the name server: one table gives fields, defaults, parsing and the dump.
//!
//! Always holds: a value is of its type or refused; path keys never change while running; what the text of
//! an update can smuggle in (line breaks, unknown keys) is refused before anything of it is applied.

use apogee_protocol::bodies::write_properties;
use std::collections::BTreeMap;

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nobody knows the key.
    #[error("unknown key \"{key}\"{}", nearest.map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default())]
    Unknown {
        /// The key.
        key: String,
        /// The most similar known key.
        nearest: Option<&'static str>,
    },
    /// The value is not of its type.
    #[error("{key}={value}: {expected} expected")]
    Value {
        /// The key.
        key: String,
        /// The value, shortened.
        value: String,
        /// The type.
        expected: &'static str,
    },
    /// The value holds a line break or another control character.
    #[error("the value of {0} holds a line break or another control character")]
    ControlCharacter(String),
    /// The key can't be changed while running.
    #[error("{0} can't be changed while running: set it in the file and restart")]
    Refused(String),
}

trait Setting: Sized {
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn show(&self) -> String;
}

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for i64 {
    const EXPECTED: &'static str = "a whole number of 0 or more";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number| *number >= 0)
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for String {
    const EXPECTED: &'static str = "a text";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

/// When a key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// While running.
    Hot,
    /// Only in the file, effective after a restart; an update is kept for then.
    Start,
    /// Never by an update.
    Refused,
}

macro_rules! settings {
    ($($(#[$meta:meta])* $field:ident: $ty:ty = $key:literal, $default:expr, $change:ident;)*) => {
        /// The settings of a name server.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct NamesrvConfig {
            $($(#[$meta])* pub $field: $ty,)*
            /// Keys of the original that have no effect here, kept for the dump.
            ignored: BTreeMap<&'static str, String>,
        }

        impl Default for NamesrvConfig {
            fn default() -> Self {
                NamesrvConfig {
                    $($field: $default,)*
                    ignored: IGNORED.iter().map(|(key, default)| (*key, (*default).to_owned())).collect(),
                }
            }
        }

        const KEYS: &[(&str, Change)] = &[$(($key, Change::$change),)*];

        impl NamesrvConfig {
            fn assign(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
                match key {
                    $($key => self.$field = parse(key, value)?,)*
                    _ => match self.ignored.get_mut(key) {
                        Some(kept) => *kept = value.to_owned(),
                        None => return Err(ConfigError::Unknown { key: key.to_owned(), nearest: nearest(key) }),
                    },
                }
                Ok(())
            }

            /// Every key with its value, those without effect included.
            pub fn dump(&self) -> BTreeMap<&'static str, String> {
                let mut all = self.ignored.clone();
                $(all.insert($key, Setting::show(&self.$field));)*
                all
            }
        }
    };
}

settings! {
    /// Address to listen on.
    bind_address: String = "bindAddress", "0.0.0.0".to_owned(), Start;
    /// Port to listen on; 0 = any free one.
    listen_port: i64 = "listenPort", 9876, Start;
    /// Installation home of the original; only shown.
    rocketmq_home: String = "rocketmqHome", String::new(), Refused;
    /// File of the key-value configuration; empty = kept in memory only.
    kv_config_path: String = "kvConfigPath", String::new(), Refused;
    /// File that an update of the settings is written to; empty = not written.
    config_store_path: String = "configStorePath", String::new(), Refused;
    /// Further keys that an update may not change, separated by `;`.
    config_black_list: String = "configBlackList", "configBlackList;configStorePath;kvConfigPath".to_owned(), Refused;
    /// Whether routes carry the ordered-topic configuration.
    order_message_enable: bool = "orderMessageEnable", false, Hot;
    /// Whether a registering broker is told all ordered topics.
    return_order_topic_config_to_broker: bool = "returnOrderTopicConfigToBroker", true, Hot;
    /// Milliseconds between looks for expired brokers.
    scan_not_active_broker_interval: i64 = "scanNotActiveBrokerInterval", 5000, Start;
    /// Whether the smallest replica is shown as master when there is none.
    support_acting_master: bool = "supportActingMaster", false, Hot;
    /// Whether the full list of topics is served.
    enable_all_topic_list: bool = "enableAllTopicList", true, Hot;
    /// Whether lists of topics by cluster and unit are served.
    enable_topic_list: bool = "enableTopicList", true, Hot;
    /// Whether brokers are told when the smallest broker id of their name changes.
    notify_min_broker_id_changed: bool = "notifyMinBrokerIdChanged", false, Hot;
    /// Whether every route is refused for the first seconds.
    need_wait_for_service: bool = "needWaitForService", false, Hot;
    /// How long a fresh name server may be without routes it should know, seconds.
    wait_seconds_for_service: i64 = "waitSecondsForService", 45, Hot;
    /// Whether topics that a full registration no longer names are removed.
    delete_topic_with_broker_registration: bool = "deleteTopicWithBrokerRegistration", false, Hot;
    /// Seconds after which a silent connection is closed.
    server_channel_max_idle_time_seconds: i64 = "serverChannelMaxIdleTimeSeconds", 120, Start;
}

/// Keys of the original that configure what does not exist here: thread pools, Netty, the test cluster.
const IGNORED: &[(&str, &str)] = &[
    ("clientRequestThreadPoolNums", "8"),
    ("clientRequestThreadPoolQueueCapacity", "50000"),
    ("clusterTest", "false"),
    ("defaultThreadPoolNums", "16"),
    ("defaultThreadPoolQueueCapacity", "10000"),
    ("enableControllerInNamesrv", "false"),
    ("enableShutdownGracefully", "false"),
    ("productEnvName", "center"),
    ("serverAsyncSemaphoreValue", "64"),
    ("serverCallbackExecutorThreads", "0"),
    ("serverNettyWorkerGroupEnable", "true"),
    ("serverOnewaySemaphoreValue", "256"),
    ("serverPooledByteBufAllocatorEnable", "true"),
    ("serverSelectorThreads", "3"),
    ("serverSocketBacklog", "1024"),
    ("serverSocketRcvBufSize", "0"),
    ("serverSocketSndBufSize", "0"),
    ("serverWorkerThreads", "8"),
    ("shutdownWaitTimeSeconds", "30"),
    ("unRegisterBrokerQueueCapacity", "3000"),
    ("useEpollNativeSelector", "false"),
    ("writeBufferHighWaterMark", "0"),
    ("writeBufferLowWaterMark", "0"),
];

fn parse<T: Setting>(key: &str, value: &str) -> Result<T, ConfigError> {
    T::parse(value.trim()).ok_or_else(|| ConfigError::Value {
        key: key.to_owned(),
        value: value.chars().take(64).collect(),
        expected: T::EXPECTED,
    })
}

/// The known key with the fewest edits, when it is near enough to be meant.
fn nearest(key: &str) -> Option<&'static str> {
    let names = KEYS.iter().map(|(name, _)| *name).chain(IGNORED.iter().map(|(name, _)| *name));
    let lower = key.chars().take(128).collect::<String>().to_ascii_lowercase();
    let best = names.map(|name| (edits(&lower, &name.to_ascii_lowercase()), name)).min()?;
    (best.0 <= 1 + lower.len() / 4).then_some(best.1)
}

fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut previous = at;
        let mut left = at + 1;
        for (above, twin) in row.iter_mut().skip(1).zip(&other) {
            let change = previous + usize::from(letter != *twin);
            previous = *above;
            left = change.min(*above + 1).min(left + 1);
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = at + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

impl NamesrvConfig {
    /// Settings from a file's pairs. The second part names keys that have no effect here.
    ///
    /// # Errors
    /// At the first unknown key or wrong value.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(Self, Vec<&'static str>), ConfigError> {
        let mut config = NamesrvConfig::default();
        let mut without_effect = Vec::new();
        for (key, value) in pairs {
            config.assign(key, value)?;
            without_effect.extend(config.ignored.get_key_value(key).map(|(key, _)| *key));
        }
        Ok((config, without_effect))
    }

    /// The settings after an update that came over the network; all of it or nothing.
    ///
    /// # Errors
    /// When a key is unknown or must not change, or a value is wrong or holds a control character.
    pub fn updated(&self, pairs: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut next = self.clone();
        for (key, value) in pairs {
            let fixed = KEYS.iter().any(|(name, change)| name == key && *change == Change::Refused);
            if fixed || self.config_black_list.split(';').any(|name| name.trim() == key) {
                return Err(ConfigError::Refused(key.clone()));
            }
            if value.chars().any(char::is_control) {
                return Err(ConfigError::ControlCharacter(key.clone()));
            }
            next.assign(key, value)?;
        }
        Ok(next)
    }

    /// The settings as properties text, sorted by key.
    pub fn to_text(&self) -> String {
        let all = self.dump();
        write_properties(all.iter().map(|(key, value)| (*key, value.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(key: &str, value: &str) -> Result<NamesrvConfig, ConfigError> {
        NamesrvConfig::default().updated(&[(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn the_dump_names_every_key_of_the_original() {
        let golden = "bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest configBlackList \
            configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity deleteTopicWithBrokerRegistration enableAllTopicList \
            enableControllerInNamesrv enableShutdownGracefully enableTopicList kvConfigPath listenPort needWaitForService \
            notifyMinBrokerIdChanged orderMessageEnable productEnvName returnOrderTopicConfigToBroker rocketmqHome \
            scanNotActiveBrokerInterval serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds \
            serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads \
            serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds \
            supportActingMaster unRegisterBrokerQueueCapacity useEpollNativeSelector waitSecondsForService writeBufferHighWaterMark \
            writeBufferLowWaterMark";
        let dump = NamesrvConfig::default().dump();
        assert_eq!(
            dump.keys().copied().collect::<Vec<_>>(),
            golden.split_whitespace().collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_update_can_not_move_a_path_or_smuggle_a_line_or_an_unknown_key() {
        for key in ["kvConfigPath", "configStorePath", "rocketmqHome", "configBlackList"] {
            assert_eq!(update(key, "/x"), Err(ConfigError::Refused(key.to_owned())));
        }
        let smuggled = update("productEnvName", "a\nkvConfigPath=/x");
        assert_eq!(smuggled, Err(ConfigError::ControlCharacter("productEnvName".to_owned())));
        let unknown = update("orderMesageEnable", "true").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "unknown key \"orderMesageEnable\", did you mean \"orderMessageEnable\"?"
        );
        assert!(update("orderMessageEnable", "maybe").is_err());
        assert!(update("waitSecondsForService", "-1").is_err());
        assert!(update("orderMessageEnable", "TRUE").unwrap().order_message_enable);
    }

    #[test]
    fn a_wrong_pair_leaves_everything_as_it_was() {
        let pairs = [("orderMessageEnable", "true"), ("nosuch", "1")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert!(NamesrvConfig::default().updated(&pairs).is_err());
    }

    #[test]
    fn keys_without_effect_are_taken_and_named() {
        let (config, without_effect) =
            NamesrvConfig::from_pairs([("listenPort", "1"), ("useEpollNativeSelector", "true")])
                .unwrap();
        assert_eq!((config.listen_port, without_effect), (1, vec!["useEpollNativeSelector"]));
    }
}
