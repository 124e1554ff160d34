//! Administration of a broker.
//!
//! Tables only; how they read is told in [`super`].

use super::table::*;

headers! {
    /// Request UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_STATIC_TOPIC (513).
    CreateTopicRequestHeader + rpc {
        req topic: Str = "topic",
        req default_topic: Str = "defaultTopic",
        req read_queue_nums: i32 = "readQueueNums",
        req write_queue_nums: i32 = "writeQueueNums",
        req perm: i32 = "perm",
        req topic_filter_type: Str = "topicFilterType",
        opt topic_sys_flag: i32 = "topicSysFlag",
        req order: bool = "order",
        opt attributes: Str = "attributes",
        opt force: bool = "force",
    }

    /// Request UPDATE_AND_CREATE_TOPIC_LIST (18).
    CreateTopicListRequestHeader + rpc {}

    /// Answer to GET_BROKER_CONFIG (26).
    GetBrokerConfigResponseHeader {
        req version: Str = "version",
    }

    /// Request GET_TOPIC_STATS_INFO (202).
    GetTopicStatsInfoRequestHeader + rpc {
        req topic: Str = "topic",
    }

    /// Request GET_CONSUMER_CONNECTION_LIST (203).
    GetConsumerConnectionListRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
    }

    /// Request GET_PRODUCER_CONNECTION_LIST (204).
    GetProducerConnectionListRequestHeader + rpc {
        req producer_group: Str = "producerGroup",
    }

    /// Request DELETE_SUBSCRIPTIONGROUP (207).
    DeleteSubscriptionGroupRequestHeader + rpc {
        req group_name: Str = "groupName",
        def clean_offset: bool = "cleanOffset",
    }

    /// Request GET_CONSUME_STATS (208).
    GetConsumeStatsRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        opt topic: Str = "topic",
        opt topic_list: Str = "topicList",
    }

    /// Request DELETE_TOPIC_IN_BROKER (215).
    DeleteTopicRequestHeader + rpc {
        req topic: Str = "topic",
    }

    /// Request QUERY_TOPIC_CONSUME_BY_WHO (300).
    QueryTopicConsumeByWhoRequestHeader + rpc {
        req topic: Str = "topic",
    }

    /// Request QUERY_CONSUME_TIME_SPAN (303).
    QueryConsumeTimeSpanRequestHeader + rpc {
        req topic: Str = "topic",
        req group: Str = "group",
    }

    /// Request GET_CONSUMER_RUNNING_INFO (307).
    GetConsumerRunningInfoRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req client_id: Str = "clientId",
        def jstack_enable: bool = "jstackEnable",
    }

    /// Request QUERY_CORRECTION_OFFSET (308).
    QueryCorrectionOffsetHeader + rpc {
        opt filter_groups: Str = "filterGroups",
        req compare_group: Str = "compareGroup",
        req topic: Str = "topic",
    }

    /// Request CONSUME_MESSAGE_DIRECTLY (309).
    ConsumeMessageDirectlyResultRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        opt client_id: Str = "clientId",
        opt msg_id: Str = "msgId",
        opt broker_name: Str = "brokerName",
        opt topic: Str = "topic",
        opt topic_sys_flag: i32 = "topicSysFlag",
        opt group_sys_flag: i32 = "groupSysFlag",
    }

    /// Request CLONE_GROUP_OFFSET (314).
    CloneGroupOffsetRequestHeader + rpc {
        req src_group: Str = "srcGroup",
        req dest_group: Str = "destGroup",
        opt topic: Str = "topic",
        def offline: bool = "offline",
    }

    /// Request VIEW_BROKER_STATS_DATA (315).
    ViewBrokerStatsDataRequestHeader {
        req stats_name: Str = "statsName",
        req stats_key: Str = "statsKey",
    }

    /// Request GET_BROKER_CONSUME_STATS (317).
    GetConsumeStatsInBrokerHeader {
        req is_order: bool = "isOrder",
    }

    /// Request QUERY_CONSUME_QUEUE (321).
    QueryConsumeQueueRequestHeader + rpc {
        opt topic: Str = "topic",
        def queue_id: i32 = "queueId",
        def index: i64 = "index",
        def count: i32 = "count",
        opt consumer_group: Str = "consumerGroup",
    }

    /// Request RESUME_CHECK_HALF_MESSAGE (323).
    ResumeCheckHalfMessageRequestHeader {
        opt topic: Str = "topic",
        opt msg_id: Str = "msgId",
    }

    /// Request GET_ALL_PRODUCER_INFO (328).
    GetAllProducerInfoRequestHeader {}

    /// Request QUERY_TOPICS_BY_CONSUMER (343).
    QueryTopicsByConsumerRequestHeader + rpc {
        req group: Str = "group",
    }

    /// Request QUERY_SUBSCRIPTION_BY_CONSUMER (345).
    QuerySubscriptionByConsumerRequestHeader + rpc {
        req group: Str = "group",
        opt topic: Str = "topic",
    }

    /// Request GET_TOPIC_CONFIG (351).
    GetTopicConfigRequestHeader + rpc {
        req topic: Str = "topic",
    }

    /// Request GET_SUBSCRIPTIONGROUP_CONFIG (352).
    GetSubscriptionGroupConfigRequestHeader + rpc {
        req group: Str = "group",
    }

    /// Request UPDATE_AND_GET_GROUP_FORBIDDEN (353).
    UpdateGroupForbiddenRequestHeader + rpc {
        req group: Str = "group",
        req topic: Str = "topic",
        opt readable: bool = "readable",
    }

    /// Request CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354).
    CheckRocksdbCqWriteProgressRequestHeader {
        req topic: Str = "topic",
        def check_store_time: i64 = "checkStoreTime",
    }
}
