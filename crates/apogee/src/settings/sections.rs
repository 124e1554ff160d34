//! From checked settings to each part's own configuration.
//!
//! One list for each part binds keys to fields; reading, `-p` and the test that compares the lists with
//! the table all use it. What always holds: a key that the table says works stands in a list, and
//! the other way round.

use super::{Program, Settings, SettingsError};
use apogee_broker::BrokerConfig;
use apogee_namesrv::NamesrvConfig;
use apogee_net::Limits;
use apogee_protocol::bodies::MessageRequestMode;
use apogee_store::{FlushDiskType, StoreConfig};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A key bound to a field of `C`.
pub(crate) struct Binding<C> {
    pub(crate) key: &'static str,
    pub(super) set: fn(&mut C, &str) -> Result<(), String>,
    pub(crate) get: fn(&C) -> String,
}

/// A field that a setting can fill.
trait Setting: Sized {
    fn parse(text: &str) -> Result<Self, String>;
    fn print(&self) -> String;
}

macro_rules! whole_numbers {
    ($($ty:ty),*) => {$(
        impl Setting for $ty {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| {
                    format!("a whole number from {} to {} is allowed", <$ty>::MIN, <$ty>::MAX)
                })
            }

            fn print(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
whole_numbers!(i32, i64, u16, u32, u64, usize);

impl Setting for bool {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.eq_ignore_ascii_case("true"))
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl Setting for String {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("it may not be empty".to_owned());
        }
        Ok(text.to_owned())
    }

    fn print(&self) -> String {
        self.clone()
    }
}

impl Setting for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        String::parse(text).map(PathBuf::from)
    }

    fn print(&self) -> String {
        self.display().to_string()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn print(&self) -> String {
        self.as_ref().map(T::print).unwrap_or_default()
    }
}

/// Name server lists are separated by semicolons; commas are taken as well.
impl Setting for Vec<String> {
    fn parse(text: &str) -> Result<Self, String> {
        let items: Vec<String> = text
            .split([';', ','])
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect();
        match items.iter().find(|item| !has_port(item)) {
            Some(bad) => Err(format!("{bad:?} is no address: write host:port;host:port")),
            None => Ok(items),
        }
    }

    fn print(&self) -> String {
        self.join(";")
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

impl Setting for IpAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "an IPv4 or IPv6 address is allowed".to_owned())
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

/// In seconds, as the keys that need it.
impl Setting for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        match u64::parse(text)? {
            0 => Err("a whole number of seconds from 1 is allowed".to_owned()),
            seconds => Ok(Duration::from_secs(seconds)),
        }
    }

    fn print(&self) -> String {
        self.as_secs().to_string()
    }
}

impl Setting for FlushDiskType {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "ASYNC_FLUSH" => Ok(Self::AsyncFlush),
            "SYNC_FLUSH" => Ok(Self::SyncFlush),
            _ => Err("allowed are ASYNC_FLUSH, SYNC_FLUSH".to_owned()),
        }
    }

    fn print(&self) -> String {
        match self {
            Self::AsyncFlush => "ASYNC_FLUSH".to_owned(),
            Self::SyncFlush => "SYNC_FLUSH".to_owned(),
        }
    }
}

impl Setting for MessageRequestMode {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "PULL" => Ok(Self::Pull),
            "POP" => Ok(Self::Pop),
            _ => Err("allowed are PULL, POP".to_owned()),
        }
    }

    fn print(&self) -> String {
        match self {
            Self::Pull => "PULL".to_owned(),
            Self::Pop => "POP".to_owned(),
        }
    }
}

macro_rules! bindings {
    ($name:ident: $config:ty { $($key:literal => $field:ident,)* }) => {
        pub(crate) const $name: &[Binding<$config>] = &[$(Binding {
            key: $key,
            set: |config, text| {
                config.$field = Setting::parse(text)?;
                Ok(())
            },
            get: |config| Setting::print(&config.$field),
        },)*];
    };
}

bindings!(BROKER: BrokerConfig {
    "brokerClusterName" => broker_cluster_name,
    "brokerName" => broker_name,
    "brokerId" => broker_id,
    "brokerIP1" => broker_ip1,
    "namesrvAddr" => namesrv_addr,
    "brokerPermission" => broker_permission,
    "autoCreateTopicEnable" => auto_create_topic_enable,
    "defaultTopicQueueNums" => default_topic_queue_nums,
    "autoCreateSubscriptionGroup" => auto_create_subscription_group,
    "clusterTopicEnable" => cluster_topic_enable,
    "brokerTopicEnable" => broker_topic_enable,
    "traceTopicEnable" => trace_topic_enable,
    "traceOn" => trace_on,
    "regionId" => region_id,
    "longPollingEnable" => long_polling_enable,
    "slaveReadEnable" => slave_read_enable,
    "shortPollingTimeMills" => short_polling_time_mills,
    "notifyConsumerIdsChangedEnable" => notify_consumer_ids_changed_enable,
    "flushConsumerOffsetInterval" => flush_consumer_offset_interval,
    "flushDelayOffsetInterval" => flush_delay_offset_interval,
    "registerNameServerPeriod" => register_name_server_period,
    "registerBrokerTimeoutMills" => register_broker_timeout_mills,
    "maxMessageSize" => max_message_size,
    "validateSystemTopicWhenUpdateTopic" => validate_system_topic_when_update_topic,
    "sendThreadPoolQueueCapacity" => send_thread_pool_queue_capacity,
    "pullThreadPoolQueueCapacity" => pull_thread_pool_queue_capacity,
    "queryThreadPoolQueueCapacity" => query_thread_pool_queue_capacity,
    "adminBrokerThreadPoolQueueCapacity" => admin_broker_thread_pool_queue_capacity,
    "transactionTimeOut" => transaction_time_out,
    "transactionCheckMax" => transaction_check_max,
    "transactionCheckInterval" => transaction_check_interval,
    "rejectTransactionMessage" => reject_transaction_message,
    "channelExpiredTimeout" => channel_expired_timeout,
    "defaultQueryMaxNum" => default_query_max_num,
    "popPollingSize" => pop_polling_size,
    "maxPopPollingSize" => max_pop_polling_size,
    "reviveQueueNum" => revive_queue_num,
    "reviveInterval" => revive_interval,
    "popFromRetryProbability" => pop_from_retry_probability,
    "enableRetryTopicV2" => enable_retry_topic_v2,
    "retrieveMessageFromPopRetryTopicV1" => retrieve_message_from_pop_retry_topic_v1,
    "initPopOffsetByCheckMsgInMem" => init_pop_offset_by_check_msg_in_mem,
    "popResponseReturnActualRetryTopic" => pop_response_return_actual_retry_topic,
    "defaultMessageRequestMode" => default_message_request_mode,
    "defaultPopShareQueueNum" => default_pop_share_queue_num,
    "serverLoadBalancerEnable" => server_load_balancer_enable,
    "enablePropertyFilter" => enable_property_filter,
    "filterDataCleanTimeSpan" => filter_data_clean_time_span,
    "configBlackList" => config_black_list,
    "disableConsumeIfConsumerReadSlowly" => disable_consume_if_consumer_read_slowly,
    "consumerFallbehindThreshold" => consumer_fallbehind_threshold,
    "recallMessageEnable" => recall_message_enable,
    "allowRecallWhenBrokerNotWriteable" => allow_recall_when_broker_not_writeable,
});

bindings!(STORE: StoreConfig {
    "storePathRootDir" => store_path_root_dir,
    "storePathCommitLog" => store_path_commit_log,
    "mappedFileSizeCommitLog" => mapped_file_size_commit_log,
    "mappedFileSizeConsumeQueue" => mapped_file_size_consume_queue,
    "mappedFileSizeConsumeQueueExt" => mapped_file_size_consume_queue_ext,
    "maxHashSlotNum" => max_hash_slot_num,
    "maxIndexNum" => max_index_num,
    "messageIndexEnable" => message_index_enable,
    "flushDiskType" => flush_disk_type,
    "flushIntervalCommitLog" => flush_interval_commit_log,
    "flushCommitLogLeastPages" => flush_commit_log_least_pages,
    "flushCommitLogThoroughInterval" => flush_commit_log_thorough_interval,
    "flushIntervalConsumeQueue" => flush_interval_consume_queue,
    "flushConsumeQueueThoroughInterval" => flush_consume_queue_thorough_interval,
    "syncFlushTimeout" => sync_flush_timeout,
    "fileReservedTime" => file_reserved_time,
    "deleteWhen" => delete_when,
    "cleanResourceInterval" => clean_resource_interval,
    "deleteFileBatchMax" => delete_file_batch_max,
    "diskMaxUsedSpaceRatio" => disk_max_used_space_ratio,
    "diskSpaceWarningLevelRatio" => disk_space_warning_level_ratio,
    "diskSpaceCleanForciblyRatio" => disk_space_clean_forcibly_ratio,
    "cleanFileForciblyEnable" => clean_file_forcibly_enable,
    "maxMessageSize" => max_message_size,
    "osPageCacheBusyTimeOutMills" => os_page_cache_busy_time_out_mills,
    "messageDelayLevel" => message_delay_level,
    "maxTransferBytesOnMessageInMemory" => max_transfer_bytes_on_message_in_memory,
    "maxTransferCountOnMessageInMemory" => max_transfer_count_on_message_in_memory,
    "maxTransferBytesOnMessageInDisk" => max_transfer_bytes_on_message_in_disk,
    "maxTransferCountOnMessageInDisk" => max_transfer_count_on_message_in_disk,
    "accessMessageInMemoryMaxRatio" => access_message_in_memory_max_ratio,
    "maxFilterMessageSize" => max_filter_message_size,
    "maxMsgsNumBatch" => max_msgs_num_batch,
    "checkCRCOnRecover" => check_crc_on_recover,
    "timerWheelEnable" => timer_wheel_enable,
    "timerPrecisionMs" => timer_precision_ms,
    "timerRollWindowSlot" => timer_roll_window_slot,
    "timerMaxDelaySec" => timer_max_delay_sec,
    "timerFlushIntervalMs" => timer_flush_interval_ms,
    "mappedFileSizeTimerLog" => mapped_file_size_timer_log,
});

bindings!(NAMESRV: NamesrvConfig {
    "kvConfigPath" => kv_config_path,
    "configStorePath" => config_store_path,
    "configBlackList" => config_black_list,
    "orderMessageEnable" => order_message_enable,
    "returnOrderTopicConfigToBroker" => return_order_topic_config_to_broker,
    "scanNotActiveBrokerInterval" => scan_not_active_broker_interval,
    "supportActingMaster" => support_acting_master,
    "enableAllTopicList" => enable_all_topic_list,
    "enableTopicList" => enable_topic_list,
    "notifyMinBrokerIdChanged" => notify_min_broker_id_changed,
    "needWaitForService" => need_wait_for_service,
    "waitSecondsForService" => wait_seconds_for_service,
    "deleteTopicWithBrokerRegistration" => delete_topic_with_broker_registration,
});

bindings!(LIMITS: Limits {
    "com.rocketmq.remoting.frameMaxLength" => max_frame,
    "serverChannelMaxIdleTimeSeconds" => idle,
});

/// Where a part listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The address listened on.
    pub bind_address: IpAddr,
    /// The port; 0 = any free one.
    pub listen_port: u16,
}

bindings!(ENDPOINT: Endpoint {
    "bindAddress" => bind_address,
    "listenPort" => listen_port,
});

fn fill<C>(config: &mut C, list: &[Binding<C>], settings: &Settings) -> Result<(), SettingsError> {
    let mut problems = Vec::new();
    for binding in list {
        let Some(given) = settings.given.get(binding.key) else { continue };
        if let Err(allowed) = (binding.set)(config, &given.value) {
            let (key, value, origin) = (binding.key, &given.value, &given.origin);
            problems.push(format!("{key}={value} ({origin}): {allowed}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(SettingsError { problems }) }
}

impl Settings {
    /// Where the program listens: `host` and `port` unless `bindAddress` and `listenPort` are given.
    ///
    /// # Errors
    /// When a value is out of range.
    pub fn endpoint(&self, host: IpAddr, port: u16) -> Result<Endpoint, SettingsError> {
        let mut endpoint = Endpoint { bind_address: host, listen_port: port };
        fill(&mut endpoint, ENDPOINT, self)?;
        Ok(endpoint)
    }

    /// Limits of connections.
    ///
    /// # Errors
    /// When a value is out of range.
    pub fn limits(&self) -> Result<Limits, SettingsError> {
        let mut limits = Limits::default();
        fill(&mut limits, LIMITS, self)?;
        Ok(limits)
    }

    /// The store's section; `root` is its folder unless `storePathRootDir` is given.
    ///
    /// # Errors
    /// When a value is out of range.
    pub fn store(&self, root: PathBuf) -> Result<StoreConfig, SettingsError> {
        let mut store = StoreConfig::new(root);
        store.utc_offset_seconds = i64::from(jiff::ZonedDateTime::now().offset().seconds());
        fill(&mut store, STORE, self)?;
        store.validate().map_err(|error| SettingsError::one(error.to_string()))?;
        Ok(store)
    }

    /// The name server's section; its files are in `folder` unless their keys are given.
    ///
    /// # Errors
    /// When a value is out of range.
    pub fn namesrv(
        &self,
        endpoint: Endpoint,
        limits: &Limits,
        folder: &Path,
    ) -> Result<NamesrvConfig, SettingsError> {
        let idle_seconds = i64::try_from(limits.idle.as_secs()).unwrap_or(i64::MAX);
        let mut namesrv = NamesrvConfig::default();
        namesrv.bind_address = endpoint.bind_address.to_string();
        namesrv.listen_port = i64::from(endpoint.listen_port);
        namesrv.kv_config_path = folder.join("kvConfig.json").display().to_string();
        namesrv.config_store_path = folder.join("namesrv.properties").display().to_string();
        namesrv.server_channel_max_idle_time_seconds = idle_seconds;
        fill(&mut namesrv, NAMESRV, self)?;
        Ok(namesrv)
    }

    /// The broker's section. `ip` is what clients are told unless `brokerIP1` is given; `None` takes an
    /// address that others can reach.
    ///
    /// # Errors
    /// When a value is out of range, or no address can be told to clients.
    pub fn broker(
        &self,
        program: Program,
        endpoint: Endpoint,
        store: &StoreConfig,
        ip: Option<IpAddr>,
    ) -> Result<BrokerConfig, SettingsError> {
        let mut broker = BrokerConfig::default();
        if program == Program::Broker {
            broker.broker_name = host_name();
        }
        broker.broker_ip1 = match ip {
            Some(ip) => ip,
            None if self.get("brokerIP1").is_some() => broker.broker_ip1,
            None => super::address::advertised().map_err(SettingsError::one)?,
        };
        fill(&mut broker, BROKER, self)?;
        broker.listen_port = endpoint.listen_port;
        broker.delay_levels =
            i32::try_from(store.message_delay_level.split_whitespace().count()).unwrap_or(i32::MAX);
        if broker.broker_id != 0 {
            let text = "only 0 (master) can be served: replication is not in this release";
            return Err(SettingsError::one(format!("brokerId={}: {text}", broker.broker_id)));
        }
        broker.validate().map_err(SettingsError::one)?;
        Ok(broker)
    }
}

/// The original's default broker name.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "DEFAULT_BROKER".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::super::{Effect, Source, keys};
    use super::*;
    use std::collections::BTreeSet;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let mut source = Source::new();
        for (key, value) in pairs {
            source.put(key, value, "test");
        }
        Settings::check(source, Program::Everything, false).unwrap()
    }

    /// A value of the key's type that is not its default.
    fn another(key: &str, now: &str) -> String {
        match key {
            "brokerIP1" | "bindAddress" => "192.0.2.7".to_owned(),
            "namesrvAddr" => "h:1;i:2".to_owned(),
            "flushDiskType" => "SYNC_FLUSH".to_owned(),
            "defaultMessageRequestMode" => "POP".to_owned(),
            "messageDelayLevel" => "1s 2s".to_owned(),
            "deleteWhen" => "05;06".to_owned(),
            _ => match now {
                "true" => "false".to_owned(),
                "false" => "true".to_owned(),
                _ => now.parse::<i64>().map_or("/other".to_owned(), |n| (n + 1).to_string()),
            },
        }
    }

    fn all_change<C>(mut config: C, list: &[Binding<C>], seen: &mut BTreeSet<&'static str>) {
        for binding in list {
            let before = (binding.get)(&config);
            let value = another(binding.key, &before);
            fill(&mut config, list, &settings(&[(binding.key, &value)])).unwrap();
            assert_eq!((binding.get)(&config), value, "{}", binding.key);
            seen.insert(binding.key);
        }
    }

    #[test]
    fn the_keys_that_work_are_exactly_those_that_change_something() {
        let mut bound = BTreeSet::new();
        all_change(BrokerConfig::default(), BROKER, &mut bound);
        all_change(StoreConfig::new("/root"), STORE, &mut bound);
        all_change(NamesrvConfig::default(), NAMESRV, &mut bound);
        all_change(Limits::default(), LIMITS, &mut bound);
        let endpoint = Endpoint { bind_address: IpAddr::from([0, 0, 0, 0]), listen_port: 1 };
        all_change(endpoint, ENDPOINT, &mut bound);
        let works: BTreeSet<&str> =
            keys().iter().filter(|key| key.effect == Effect::Works).map(|key| key.name).collect();
        assert_eq!(works, bound);
    }

    #[test]
    fn our_defaults_are_those_of_the_table() {
        fn compare<C>(config: &C, list: &[Binding<C>], except: &[&str]) {
            for binding in list.iter().filter(|binding| !except.contains(&binding.key)) {
                let default = keys()
                    .iter()
                    .filter(|key| key.name == binding.key)
                    .max_by_key(|key| key.effect.strength())
                    .unwrap()
                    .default;
                assert_eq!((binding.get)(config), default, "{}", binding.key);
            }
        }
        // The name server has a key of the same name and another default.
        let except = ["brokerName", "brokerIP1", "namesrvAddr", "configBlackList"];
        compare(&BrokerConfig::default(), BROKER, &except);
        compare(&StoreConfig::new("/x"), STORE, &["storePathRootDir"]);
        compare(&NamesrvConfig::default(), NAMESRV, &["kvConfigPath", "configStorePath"]);
        compare(&Limits::default(), LIMITS, &[]);
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let error = settings(&[("listenPort", "70000")])
            .endpoint(IpAddr::from([127, 0, 0, 1]), 1)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "listenPort=70000 (test): a whole number from 0 to 65535 is allowed"
        );
        let error = settings(&[("namesrvAddr", "localhost")])
            .broker(
                Program::Everything,
                Endpoint { bind_address: IpAddr::from([127, 0, 0, 1]), listen_port: 1 },
                &StoreConfig::new("/x"),
                Some(IpAddr::from([127, 0, 0, 1])),
            )
            .unwrap_err();
        assert!(error.to_string().contains("host:port"), "{error}");
        assert!(settings(&[("deleteWhen", "noon")]).store("/x".into()).is_err());
    }

    #[test]
    fn the_number_of_delay_levels_follows_the_level_table() {
        let settings = settings(&[("messageDelayLevel", "1s 5s 1m")]);
        let store = settings.store("/x".into()).unwrap();
        let endpoint = Endpoint { bind_address: IpAddr::from([127, 0, 0, 1]), listen_port: 10911 };
        let ip = Some(endpoint.bind_address);
        let broker = settings.broker(Program::Everything, endpoint, &store, ip).unwrap();
        assert_eq!(broker.delay_levels, 3);
        assert_eq!(broker.broker_name, "broker-a");
    }
}
