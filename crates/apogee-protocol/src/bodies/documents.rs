//! Documents on disk, which are also what a replica fetches: positions, groups, delay levels, metrics.
//!
//! The original's file names stand in the documentation of each. [`super::JsonBody::to_pretty`] writes them as
//! the original does.

use super::admin::SubscriptionGroupConfig;
use super::json::bodies;
use super::route::DataVersion;
use std::collections::{BTreeMap, BTreeSet};

bodies! {
    /// `consumerOffset.json` and `lmqConsumerOffset.json`; answer to GET_ALL_CONSUMER_OFFSET.
    ConsumerOffsetSerializeWrapper {
        data_version: Option<DataVersion> = "dataVersion";
        group_topic_map: Option<BTreeMap<String, BTreeSet<String>>> = "groupTopicMap";
        lmq_offset_table: Option<BTreeMap<String, i64>> = "lmqOffsetTable";
        /// `topic@group` to queue to offset.
        offset_table: BTreeMap<String, BTreeMap<i32, i64>> = "offsetTable";
        pull_offset_table: Option<BTreeMap<String, BTreeMap<i32, i64>>> = "pullOffsetTable";
        /// `topic@group` to queue to the offset a reset asked for.
        reset_offset_table: Option<BTreeMap<String, BTreeMap<i32, i64>>> = "resetOffsetTable";
    }

    /// `subscriptionGroup.json`; answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
    SubscriptionGroupWrapper {
        data_version: DataVersion = "dataVersion";
        /// Group to topic to forbidden bits.
        forbidden_table: BTreeMap<String, BTreeMap<String, i32>> = "forbiddenTable";
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig> = "subscriptionGroupTable";
    }

    /// `delayOffset.json`; answer to GET_ALL_DELAY_OFFSET.
    DelayOffsetSerializeWrapper {
        data_version: Option<DataVersion> = "dataVersion";
        /// Delay level to offset.
        offset_table: BTreeMap<i32, i64> = "offsetTable";
    }

    /// A count and its last change.
    #[derive(Eq)]
    Metric {
        count: i64 = "count";
        time_stamp: i64 = "timeStamp";
    }

    /// `timermetrics`; answer to GET_TIMER_METRICS.
    TimerMetricsSerializeWrapper {
        data_version: DataVersion = "dataVersion";
        /// Topic to messages that wait.
        timing_count: BTreeMap<String, Metric> = "timingCount";
    }

    /// `transactionMetrics`.
    TransactionMetricsSerializeWrapper {
        data_version: DataVersion = "dataVersion";
        /// Topic to half messages.
        transaction_count: BTreeMap<String, Metric> = "transactionCount";
    }

    /// Bits of a filter in the Bloom filter of its topic.
    #[derive(Eq)]
    BloomFilterData {
        bit_num: i32 = "bitNum";
        bit_pos: Vec<i32> = "bitPos";
    }

    /// A SQL92 subscription that outlives its clients.
    #[derive(Eq)]
    ConsumerFilterData {
        bloom_filter_data: Option<BloomFilterData> = "bloomFilterData";
        born_time: i64 = "bornTime";
        client_version: i64 = "clientVersion";
        consumer_group: Option<String> = "consumerGroup";
        dead: Option<bool> = "dead";
        dead_time: i64 = "deadTime";
        expression: Option<String> = "expression";
        expression_type: Option<String> = "expressionType";
        topic: Option<String> = "topic";
    }

    /// The filters of a topic.
    FilterDataMapByTopic {
        group_filter_data: BTreeMap<String, ConsumerFilterData> = "groupFilterData";
        topic: Option<String> = "topic";
    }

    /// `consumerFilter.json`.
    ConsumerFilterWrapper {
        filter_data_by_topic: BTreeMap<String, FilterDataMapByTopic> = "filterDataByTopic";
    }

    /// Messages of a queue that an ordered pop consumer holds.
    #[derive(Eq)]
    OrderInfo {
        attempt_id: Option<String> = "a";
        /// Bit n = message n of the list is acknowledged.
        commit_offset_bit: i64 = "cm";
        invisible_time: Option<i64> = "i";
        last_consume_timestamp: i64 = "l";
        /// The first is an offset, the others are distances from it.
        offset_list: Vec<i64> = "o";
        offset_consumed_count: Option<BTreeMap<i64, i32>> = "oc";
        offset_next_visible_time: Option<BTreeMap<i64, i64>> = "ot";
        pop_time: i64 = "popTime";
    }

    /// `consumerOrderInfo.json`.
    ConsumerOrderInfoWrapper {
        order_info_count: Option<i32> = "orderInfoCount";
        ordered_consumption_level: Option<String> = "orderedConsumptionLevel";
        /// `topic@group` to queue to what is held.
        table: BTreeMap<String, BTreeMap<i32, OrderInfo>> = "table";
    }
}
