//! The broker's section of the settings: the original's keys in snake case, with its defaults.
//!
//! Plain data, filled and checked by whoever starts the broker. Times are milliseconds.

use crate::live::SettingsChange;
use apogee_protocol::bodies::MessageRequestMode;
use std::net::IpAddr;
use std::sync::Arc;

/// Settings of a broker. Each field is the original's key of the same words.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Name of the cluster.
    pub broker_cluster_name: String,
    /// Name of the broker: master and slaves share it.
    pub broker_name: String,
    /// 0 = master.
    pub broker_id: i64,
    /// Address that clients are told (`brokerIP1`).
    pub broker_ip1: IpAddr,
    /// Port that clients are told.
    pub listen_port: u16,
    /// Name servers, `host:port` each.
    pub namesrv_addr: Vec<String>,
    /// Bits: 4 readable, 2 writable.
    pub broker_permission: i32,
    /// Whether a send to an unknown topic creates it.
    pub auto_create_topic_enable: bool,
    /// Most queues of a topic that a send creates.
    pub default_topic_queue_nums: i32,
    /// Whether an unknown group is created by use.
    pub auto_create_subscription_group: bool,
    /// Whether the cluster's name is a topic.
    pub cluster_topic_enable: bool,
    /// Whether the broker's name is a topic.
    pub broker_topic_enable: bool,
    /// Whether `RMQ_SYS_TRACE_TOPIC` exists.
    pub trace_topic_enable: bool,
    /// Told to clients in each answer to a send.
    pub trace_on: bool,
    /// Region told to clients.
    pub region_id: String,
    /// Whether empty pulls wait for messages.
    pub long_polling_enable: bool,
    /// Whether readers are sent to a slave when the master is slow.
    pub slave_read_enable: bool,
    /// How long an empty pull waits if long polling is off.
    pub short_polling_time_mills: i64,
    /// Whether members are told about changes of their group.
    pub notify_consumer_ids_changed_enable: bool,
    /// Interval at which consumer offsets are saved.
    pub flush_consumer_offset_interval: u64,
    /// Interval at which delay offsets are saved.
    pub flush_delay_offset_interval: u64,
    /// Interval of registrations, clamped to 10 to 60 s.
    pub register_name_server_period: u64,
    /// How long a name server may take to answer.
    pub register_broker_timeout_mills: u64,
    /// Largest message body in bytes.
    pub max_message_size: usize,
    /// Whether system topics are protected from admin commands.
    pub validate_system_topic_when_update_topic: bool,
    /// Send requests that may wait at one time.
    pub send_thread_pool_queue_capacity: usize,
    /// Pull requests that may wait at one time.
    pub pull_thread_pool_queue_capacity: usize,
    /// Query requests that may wait at one time.
    pub query_thread_pool_queue_capacity: usize,
    /// Admin requests that may wait at one time.
    pub admin_broker_thread_pool_queue_capacity: usize,
    /// A client that is silent for this long is forgotten.
    pub channel_expired_timeout: i64,
    /// Number of delay levels, from the store's `messageDelayLevel`.
    pub delay_levels: i32,
    /// Age up to which no producer is asked about its half message.
    pub transaction_time_out: i64,
    /// Checks before a half message goes to `TRANS_CHECK_MAX_TIME_TOPIC`.
    pub transaction_check_max: i32,
    /// Interval of check rounds.
    pub transaction_check_interval: u64,
    /// Whether half messages are refused.
    pub reject_transaction_message: bool,
    /// Half messages that may wait for their end; at the limit new ones are answered SYSTEM_BUSY. Each
    /// takes about 200 bytes of memory. No setting of the original.
    pub max_pending_transactions: usize,
    /// Pops of one topic, group and queue that may wait.
    pub pop_polling_size: usize,
    /// Pops that may wait in all.
    pub max_pop_polling_size: usize,
    /// Queues of the revive topic.
    pub revive_queue_num: i32,
    /// Interval at which popped messages are put back whose time is over.
    pub revive_interval: u64,
    /// Pops of a hundred that look for retries first.
    pub pop_from_retry_probability: i32,
    /// Whether retries of pops go to `%RETRY%group+topic` instead of `%RETRY%group_topic`.
    pub enable_retry_topic_v2: bool,
    /// Whether the older name is read as well then.
    pub retrieve_message_from_pop_retry_topic_v1: bool,
    /// Whether a new group that starts at a queue's end takes all of a queue that is still in memory.
    pub init_pop_offset_by_check_msg_in_mem: bool,
    /// Whether popped retries keep the name of their retry topic.
    pub pop_response_return_actual_retry_topic: bool,
    /// How members of a group get messages if nothing was set for it.
    pub default_message_request_mode: MessageRequestMode,
    /// How many members share a queue when popping; -1: all.
    pub default_pop_share_queue_num: i32,
    /// Whether the broker shares out queues to clients that ask for it.
    pub server_load_balancer_enable: bool,
    /// Who changes settings while the broker runs; without it they are fixed and not shown.
    pub settings: Option<Arc<dyn SettingsChange>>,
    /// Keys that must not be changed while the broker runs, `;` separated.
    pub config_black_list: String,
    /// Whether a group that reads too far behind the log's end may not consume any more.
    pub disable_consume_if_consumer_read_slowly: bool,
    /// How far that is, in bytes of the log.
    pub consumer_fallbehind_threshold: i64,
    /// Whether timer messages can be taken back.
    pub recall_message_enable: bool,
    /// Whether they can while the broker is not writable.
    pub allow_recall_when_broker_not_writeable: bool,
    /// Results of a query by unique key at most.
    pub default_query_max_num: i32,
    /// Whether consumers may filter by SQL92 expressions over properties.
    pub enable_property_filter: bool,
    /// How long a SQL92 filter is kept after its last subscriber left.
    pub filter_data_clean_time_span: i64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            broker_cluster_name: "DefaultCluster".to_owned(),
            broker_name: "broker-a".to_owned(),
            broker_id: 0,
            broker_ip1: IpAddr::from([127, 0, 0, 1]),
            listen_port: 10911,
            namesrv_addr: Vec::new(),
            broker_permission: 6,
            auto_create_topic_enable: true,
            default_topic_queue_nums: 8,
            auto_create_subscription_group: true,
            cluster_topic_enable: true,
            broker_topic_enable: true,
            trace_topic_enable: false,
            trace_on: true,
            region_id: "DefaultRegion".to_owned(),
            long_polling_enable: true,
            slave_read_enable: false,
            short_polling_time_mills: 1000,
            notify_consumer_ids_changed_enable: true,
            flush_consumer_offset_interval: 5_000,
            flush_delay_offset_interval: 10_000,
            register_name_server_period: 30_000,
            register_broker_timeout_mills: 24_000,
            max_message_size: 4 * 1024 * 1024,
            validate_system_topic_when_update_topic: true,
            send_thread_pool_queue_capacity: 10_000,
            pull_thread_pool_queue_capacity: 100_000,
            query_thread_pool_queue_capacity: 20_000,
            admin_broker_thread_pool_queue_capacity: 10_000,
            channel_expired_timeout: 120_000,
            transaction_time_out: 6_000,
            transaction_check_max: 15,
            transaction_check_interval: 30_000,
            reject_transaction_message: false,
            max_pending_transactions: 500_000,
            settings: None,
            config_black_list: "configBlackList;brokerConfigPath".to_owned(),
            disable_consume_if_consumer_read_slowly: false,
            consumer_fallbehind_threshold: 16 << 30,
            delay_levels: 18,
            pop_polling_size: 1_024,
            max_pop_polling_size: 100_000,
            revive_queue_num: 8,
            revive_interval: 1_000,
            pop_from_retry_probability: 20,
            enable_retry_topic_v2: false,
            retrieve_message_from_pop_retry_topic_v1: true,
            init_pop_offset_by_check_msg_in_mem: true,
            pop_response_return_actual_retry_topic: false,
            default_message_request_mode: MessageRequestMode::Pull,
            default_pop_share_queue_num: -1,
            server_load_balancer_enable: true,
            recall_message_enable: false,
            allow_recall_when_broker_not_writeable: true,
            default_query_max_num: 32,
            enable_property_filter: false,
            filter_data_clean_time_span: 24 * 3600 * 1000,
        }
    }
}

impl BrokerConfig {
    /// The address that clients and name servers know, `ip:port`.
    #[must_use]
    pub fn address(&self) -> String {
        std::net::SocketAddr::new(self.broker_ip1, self.listen_port).to_string()
    }
}
