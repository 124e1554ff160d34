//! Bodies of administration: statistics, connections, groups, users and policies.

use super::client::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use super::json::{bodies, names};
use super::route::MessageQueue;
use crate::language::LanguageCode;
use std::collections::BTreeMap;

names! {
    /// How long a group waits between retries.
    GroupRetryPolicyType(Customized) {
        Exponential = "EXPONENTIAL",
        Customized = "CUSTOMIZED",
    }
}

bodies! {
    /// Positions of a group in a queue.
    #[derive(Eq)]
    OffsetWrapper {
        broker_offset: i64 = "brokerOffset";
        consumer_offset: i64 = "consumerOffset";
        last_timestamp: i64 = "lastTimestamp";
        pull_offset: i64 = "pullOffset";
    }

    /// Answer to GET_CONSUME_STATS.
    ConsumeStats {
        consume_tps: f64 = "consumeTps";
        offset_table: BTreeMap<MessageQueue, OffsetWrapper> = "offsetTable";
    }

    /// Answer to GET_BROKER_CONSUME_STATS.
    ConsumeStatsList {
        broker_addr: Option<String> = "brokerAddr";
        consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>> = "consumeStatsList";
        total_diff: i64 = "totalDiff";
        total_inflight_diff: i64 = "totalInflightDiff";
    }

    /// Positions of a queue.
    #[derive(Eq)]
    TopicOffset {
        last_update_timestamp: i64 = "lastUpdateTimestamp";
        max_offset: i64 = "maxOffset";
        min_offset: i64 = "minOffset";
    }

    /// Answer to GET_TOPIC_STATS_INFO.
    TopicStatsTable {
        offset_table: BTreeMap<MessageQueue, TopicOffset> = "offsetTable";
        topic_put_tps: f64 = "topicPutTps";
    }

    /// A client's connection.
    #[derive(Eq)]
    Connection {
        client_addr: Option<String> = "clientAddr";
        client_id: Option<String> = "clientId";
        language: Option<LanguageCode> = "language";
        /// Version ordinal.
        version: i32 = "version";
    }

    /// Answer to GET_CONSUMER_CONNECTION_LIST.
    ConsumerConnection {
        connection_set: Vec<Connection> = "connectionSet";
        consume_from_where: Option<ConsumeFromWhere> = "consumeFromWhere";
        consume_type: Option<ConsumeType> = "consumeType";
        message_model: Option<MessageModel> = "messageModel";
        subscription_table: BTreeMap<String, SubscriptionData> = "subscriptionTable";
    }

    /// Answer to GET_PRODUCER_CONNECTION_LIST.
    ProducerConnection {
        connection_set: Vec<Connection> = "connectionSet";
    }

    /// A producer.
    #[derive(Eq)]
    ProducerInfo {
        client_id: Option<String> = "clientId";
        language: Option<LanguageCode> = "language";
        last_update_timestamp: i64 = "lastUpdateTimestamp";
        remote_ip: Option<String> = "remoteIP";
        version: i32 = "version";
    }

    /// Answer to GET_ALL_PRODUCER_INFO.
    ProducerTableInfo {
        /// Group to producers.
        data: BTreeMap<String, Vec<ProducerInfo>> = "data";
    }

    /// Answer to QUERY_TOPIC_CONSUME_BY_WHO.
    GroupList {
        group_list: Vec<String> = "groupList";
    }

    /// Times of a group in a queue; the texts are derived from the numbers.
    QueueTimeSpan {
        consume_time_stamp: i64 = "consumeTimeStamp";
        consume_time_stamp_str: Option<String> = "consumeTimeStampStr";
        delay_time: i64 = "delayTime";
        max_time_stamp: i64 = "maxTimeStamp";
        max_time_stamp_str: Option<String> = "maxTimeStampStr";
        message_queue: Option<MessageQueue> = "messageQueue";
        min_time_stamp: i64 = "minTimeStamp";
        min_time_stamp_str: Option<String> = "minTimeStampStr";
    }

    /// Answer to QUERY_CONSUME_TIME_SPAN.
    QueryConsumeTimeSpanBody {
        consume_time_span_set: Vec<QueueTimeSpan> = "consumeTimeSpanSet";
    }

    /// Answer to QUERY_CORRECTION_OFFSET.
    QueryCorrectionOffsetBody {
        correction_offsets: BTreeMap<i32, i64> = "correctionOffsets";
    }

    /// Answer to QUERY_SUBSCRIPTION_BY_CONSUMER.
    QuerySubscriptionResponseBody {
        group: Option<String> = "group";
        subscription_data: Option<SubscriptionData> = "subscriptionData";
        topic: Option<String> = "topic";
    }

    /// A unit of a consume queue.
    ConsumeQueueData {
        bit_map: Option<String> = "bitMap";
        eval: bool = "eval";
        extend_data_json: Option<String> = "extendDataJson";
        msg: Option<String> = "msg";
        physic_offset: i64 = "physicOffset";
        physic_size: i32 = "physicSize";
        tags_code: i64 = "tagsCode";
    }

    /// Answer to QUERY_CONSUME_QUEUE.
    QueryConsumeQueueResponseBody {
        filter_data: Option<String> = "filterData";
        max_queue_index: i64 = "maxQueueIndex";
        min_queue_index: i64 = "minQueueIndex";
        queue_data: Vec<ConsumeQueueData> = "queueData";
        subscription_data: Option<SubscriptionData> = "subscriptionData";
    }

    /// One span of a statistic.
    BrokerStatsItem {
        /// Average of one event.
        avgpt: f64 = "avgpt";
        sum: i64 = "sum";
        tps: f64 = "tps";
    }

    /// Answer to VIEW_BROKER_STATS_DATA.
    BrokerStatsData {
        stats_day: BrokerStatsItem = "statsDay";
        stats_hour: BrokerStatsItem = "statsHour";
        stats_minute: BrokerStatsItem = "statsMinute";
    }

    /// Answer to UPDATE_AND_GET_GROUP_FORBIDDEN.
    #[derive(Eq)]
    GroupForbidden {
        group: Option<String> = "group";
        readable: Option<bool> = "readable";
        topic: Option<String> = "topic";
    }

    /// Fixed waits between retries, ms.
    #[derive(Eq)]
    CustomizedRetryPolicy {
        next: Vec<i64> = "next", vec![
            1000, 5000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000,
            540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
        ];
    }

    /// Growing waits between retries.
    #[derive(Eq)]
    ExponentialRetryPolicy {
        /// Milliseconds.
        initial: i64 = "initial", 5000;
        /// Milliseconds.
        max: i64 = "max", 7_200_000;
        multiplier: i64 = "multiplier", 2;
    }

    /// Waits between retries of a group.
    #[derive(Eq)]
    GroupRetryPolicy {
        customized_retry_policy: Option<CustomizedRetryPolicy> = "customizedRetryPolicy";
        exponential_retry_policy: Option<ExponentialRetryPolicy> = "exponentialRetryPolicy";
        policy_type: GroupRetryPolicyType = "type";
    }

    /// A fixed subscription of a group.
    #[derive(Eq)]
    SimpleSubscriptionData {
        expression: Option<String> = "expression";
        expression_type: Option<String> = "expressionType";
        topic: Option<String> = "topic";
        version: i64 = "version";
    }

    /// A consumer group as its broker keeps it.
    #[derive(Eq)]
    SubscriptionGroupConfig {
        attributes: BTreeMap<String, String> = "attributes";
        broker_id: i64 = "brokerId";
        consume_broadcast_enable: bool = "consumeBroadcastEnable", true;
        consume_enable: bool = "consumeEnable", true;
        consume_from_min_enable: bool = "consumeFromMinEnable", true;
        consume_message_orderly: bool = "consumeMessageOrderly";
        consume_timeout_minute: i32 = "consumeTimeoutMinute", 15;
        group_name: String = "groupName";
        group_retry_policy: Option<GroupRetryPolicy> = "groupRetryPolicy", Some(GroupRetryPolicy::default());
        group_sys_flag: i32 = "groupSysFlag";
        notify_consumer_ids_changed_enable: bool = "notifyConsumerIdsChangedEnable", true;
        retry_max_times: i32 = "retryMaxTimes", 16;
        retry_queue_nums: i32 = "retryQueueNums", 1;
        subscription_data_set: Option<Vec<SimpleSubscriptionData>> = "subscriptionDataSet";
        which_broker_when_consume_slowly: i64 = "whichBrokerWhenConsumeSlowly", 1;
    }

    /// Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST.
    SubscriptionGroupList {
        group_config_list: Vec<SubscriptionGroupConfig> = "groupConfigList";
    }

    /// A replica as its master sees it.
    HAConnectionRuntimeInfo {
        addr: Option<String> = "addr";
        diff: i64 = "diff";
        in_sync: bool = "inSync";
        slave_ack_offset: i64 = "slaveAckOffset";
        transfer_from_where: i64 = "transferFromWhere";
        transferred_byte_in_second: i64 = "transferredByteInSecond";
    }

    /// A replica as it sees itself.
    HAClientRuntimeInfo {
        last_read_timestamp: i64 = "lastReadTimestamp";
        last_write_timestamp: i64 = "lastWriteTimestamp";
        master_addr: Option<String> = "masterAddr";
        master_flush_offset: i64 = "masterFlushOffset";
        max_offset: i64 = "maxOffset";
        transferred_byte_in_second: i64 = "transferredByteInSecond";
    }

    /// Answer to GET_BROKER_HA_STATUS.
    HARuntimeInfo {
        ha_client_runtime_info: Option<HAClientRuntimeInfo> = "haClientRuntimeInfo", Some(HAClientRuntimeInfo::default());
        ha_connection_info: Vec<HAConnectionRuntimeInfo> = "haConnectionInfo";
        in_sync_slave_nums: i32 = "inSyncSlaveNums";
        master: bool = "master";
        master_commit_log_max_offset: i64 = "masterCommitLogMaxOffset";
    }

    /// A user.
    #[derive(Eq)]
    UserInfo {
        password: Option<String> = "password";
        user_status: Option<String> = "userStatus";
        user_type: Option<String> = "userType";
        username: Option<String> = "username";
    }

    /// One rule of a policy.
    #[derive(Eq)]
    PolicyEntryInfo {
        actions: Option<Vec<String>> = "actions";
        decision: Option<String> = "decision";
        resource: Option<String> = "resource";
        source_ips: Option<Vec<String>> = "sourceIps";
    }

    /// Rules of one kind.
    #[derive(Eq)]
    PolicyInfo {
        entries: Vec<PolicyEntryInfo> = "entries";
        policy_type: Option<String> = "policyType";
    }

    /// What a subject may do.
    #[derive(Eq)]
    AclInfo {
        policies: Vec<PolicyInfo> = "policies";
        subject: Option<String> = "subject";
    }
}
