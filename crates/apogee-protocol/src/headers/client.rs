//! Clients: pulling, popping, offsets, transactions, heartbeats, and what a broker asks of a client.
//!
//! Tables only; how they read is told in [`super`].

use super::BoundaryType;
use super::table::*;

headers! {
    /// Request PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).
    PullMessageRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req queue_offset: i64 = "queueOffset",
        req max_msg_nums: i32 = "maxMsgNums",
        req sys_flag: i32 = "sysFlag",
        req commit_offset: i64 = "commitOffset",
        req suspend_timeout_millis: i64 = "suspendTimeoutMillis",
        opt subscription: Str = "subscription",
        req sub_version: i64 = "subVersion",
        opt expression_type: Str = "expressionType",
        opt max_msg_bytes: i32 = "maxMsgBytes",
        opt request_source: i32 = "requestSource",
        opt proxy_forward_client_id: Str = "proxyFrowardClientId",
    }

    /// Answer to PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).
    PullMessageResponseHeader {
        req suggest_which_broker_id: i64 = "suggestWhichBrokerId",
        req next_begin_offset: i64 = "nextBeginOffset",
        req min_offset: i64 = "minOffset",
        req max_offset: i64 = "maxOffset",
        opt offset_delta: i64 = "offsetDelta",
        opt topic_sys_flag: i32 = "topicSysFlag",
        opt group_sys_flag: i32 = "groupSysFlag",
        opt forbidden_type: i32 = "forbiddenType",
    }

    /// Request QUERY_MESSAGE (12).
    QueryMessageRequestHeader + rpc {
        req topic: Str = "topic",
        req key: Str = "key",
        req max_num: i32 = "maxNum",
        req begin_timestamp: i64 = "beginTimestamp",
        req end_timestamp: i64 = "endTimestamp",
        opt index_type: Str = "indexType",
        opt last_key: Str = "lastKey",
    }

    /// Answer to QUERY_MESSAGE (12).
    QueryMessageResponseHeader {
        req index_last_update_timestamp: i64 = "indexLastUpdateTimestamp",
        req index_last_update_phyoffset: i64 = "indexLastUpdatePhyoffset",
    }

    /// Request QUERY_CONSUMER_OFFSET (14).
    QueryConsumerOffsetRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        opt set_zero_if_not_found: bool = "setZeroIfNotFound",
    }

    /// Answer to QUERY_CONSUMER_OFFSET (14).
    QueryConsumerOffsetResponseHeader {
        req offset: i64 = "offset",
    }

    /// Request UPDATE_CONSUMER_OFFSET (15).
    UpdateConsumerOffsetRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req commit_offset: i64 = "commitOffset",
    }

    /// Answer to UPDATE_CONSUMER_OFFSET (15).
    UpdateConsumerOffsetResponseHeader {}

    /// Request SEARCH_OFFSET_BY_TIMESTAMP (29).
    SearchOffsetRequestHeader + rpc {
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req timestamp: i64 = "timestamp",
        opt boundary_type: BoundaryType = "boundaryType",
    }

    /// Answer to SEARCH_OFFSET_BY_TIMESTAMP (29).
    SearchOffsetResponseHeader {
        req offset: i64 = "offset",
    }

    /// Request GET_MAX_OFFSET (30).
    GetMaxOffsetRequestHeader + rpc {
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        def committed: bool = "committed",
    }

    /// Answer to GET_MAX_OFFSET (30).
    GetMaxOffsetResponseHeader {
        req offset: i64 = "offset",
    }

    /// Request GET_MIN_OFFSET (31).
    GetMinOffsetRequestHeader + rpc {
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
    }

    /// Answer to GET_MIN_OFFSET (31).
    GetMinOffsetResponseHeader {
        req offset: i64 = "offset",
    }

    /// Request GET_EARLIEST_MSG_STORETIME (32).
    GetEarliestMsgStoretimeRequestHeader + rpc {
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
    }

    /// Answer to GET_EARLIEST_MSG_STORETIME (32).
    GetEarliestMsgStoretimeResponseHeader {
        req timestamp: i64 = "timestamp",
    }

    /// Request VIEW_MESSAGE_BY_ID (33).
    ViewMessageRequestHeader {
        opt topic: Str = "topic",
        req offset: i64 = "offset",
    }

    /// Request HEART_BEAT (34).
    HeartbeatRequestHeader + rpc {}

    /// Request UNREGISTER_CLIENT (35).
    UnregisterClientRequestHeader + rpc {
        req client_id: Str = "clientID",
        opt producer_group: Str = "producerGroup",
        opt consumer_group: Str = "consumerGroup",
    }

    /// Answer to UNREGISTER_CLIENT (35).
    UnregisterClientResponseHeader {}

    /// Request CONSUMER_SEND_MSG_BACK (36).
    ConsumerSendMsgBackRequestHeader + rpc {
        req offset: i64 = "offset",
        req group: Str = "group",
        req delay_level: i32 = "delayLevel",
        opt origin_msg_id: Str = "originMsgId",
        opt origin_topic: Str = "originTopic",
        def unit_mode: bool = "unitMode",
        opt max_reconsume_times: i32 = "maxReconsumeTimes",
    }

    /// Request END_TRANSACTION (37).
    EndTransactionRequestHeader + rpc {
        opt topic: Str = "topic",
        req producer_group: Str = "producerGroup",
        req tran_state_table_offset: i64 = "tranStateTableOffset",
        req commit_log_offset: i64 = "commitLogOffset",
        req commit_or_rollback: i32 = "commitOrRollback",
        opt from_transaction_check: bool = "fromTransactionCheck",
        req msg_id: Str = "msgId",
        opt transaction_id: Str = "transactionId",
    }

    /// Request GET_CONSUMER_LIST_BY_GROUP (38).
    GetConsumerListByGroupRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
    }

    /// Answer to GET_CONSUMER_LIST_BY_GROUP (38).
    GetConsumerListByGroupResponseHeader {}

    /// Request CHECK_TRANSACTION_STATE (39).
    CheckTransactionStateRequestHeader + rpc {
        opt topic: Str = "topic",
        req tran_state_table_offset: i64 = "tranStateTableOffset",
        req commit_log_offset: i64 = "commitLogOffset",
        opt msg_id: Str = "msgId",
        opt transaction_id: Str = "transactionId",
        opt offset_msg_id: Str = "offsetMsgId",
    }

    /// Request NOTIFY_CONSUMER_IDS_CHANGED (40).
    NotifyConsumerIdsChangedRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
    }

    /// Request LOCK_BATCH_MQ (41).
    LockBatchMqRequestHeader + rpc {}

    /// Request UNLOCK_BATCH_MQ (42).
    UnlockBatchMqRequestHeader + rpc {}

    /// Request RESET_CONSUMER_CLIENT_OFFSET (220), INVOKE_BROKER_TO_RESET_OFFSET (222).
    ResetOffsetRequestHeader + rpc {
        req group: Str = "group",
        req topic: Str = "topic",
        def queue_id: i32 = "queueId",
        opt offset: i64 = "offset",
        req timestamp: i64 = "timestamp",
        req is_force: bool = "isForce",
    }

    /// Request GET_CONSUMER_STATUS_FROM_CLIENT (221), INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223).
    GetConsumerStatusRequestHeader + rpc {
        req topic: Str = "topic",
        req group: Str = "group",
        opt client_addr: Str = "clientAddr",
    }

    /// Request RECALL_MESSAGE (370).
    RecallMessageRequestHeader + rpc {
        opt producer_group: Str = "producerGroup",
        req topic: Str = "topic",
        req recall_handle: Str = "recallHandle",
    }

    /// Answer to RECALL_MESSAGE (370).
    RecallMessageResponseHeader {
        req msg_id: Str = "msgId",
    }

    /// Request POP_MESSAGE (200050).
    PopMessageRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req max_msg_nums: i32 = "maxMsgNums",
        req invisible_time: i64 = "invisibleTime",
        req poll_time: i64 = "pollTime",
        req born_time: i64 = "bornTime",
        req init_mode: i32 = "initMode",
        opt exp_type: Str = "expType",
        opt exp: Str = "exp",
        opt order: bool = "order",
        opt attempt_id: Str = "attemptId",
    }

    /// Answer to POP_MESSAGE (200050), PEEK_MESSAGE (200052).
    PopMessageResponseHeader {
        req pop_time: i64 = "popTime",
        req invisible_time: i64 = "invisibleTime",
        req revive_qid: i32 = "reviveQid",
        req rest_num: i64 = "restNum",
        opt start_offset_info: Str = "startOffsetInfo",
        opt msg_offset_info: Str = "msgOffsetInfo",
        opt order_count_info: Str = "orderCountInfo",
    }

    /// Request ACK_MESSAGE (200051).
    AckMessageRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req extra_info: Str = "extraInfo",
        req offset: i64 = "offset",
        opt lite_topic: Str = "liteTopic",
    }

    /// Request PEEK_MESSAGE (200052).
    PeekMessageRequestHeader + rpc {
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req max_msg_nums: i32 = "maxMsgNums",
        req consumer_group: Str = "consumerGroup",
    }

    /// Request CHANGE_MESSAGE_INVISIBLETIME (200053).
    ChangeInvisibleTimeRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req extra_info: Str = "extraInfo",
        req offset: i64 = "offset",
        req invisible_time: i64 = "invisibleTime",
        opt lite_topic: Str = "liteTopic",
        opt suspend: bool = "suspend",
    }

    /// Answer to CHANGE_MESSAGE_INVISIBLETIME (200053).
    ChangeInvisibleTimeResponseHeader {
        req pop_time: i64 = "popTime",
        req invisible_time: i64 = "invisibleTime",
        req revive_qid: i32 = "reviveQid",
    }

    /// Request NOTIFICATION (200054).
    NotificationRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
        req poll_time: i64 = "pollTime",
        req born_time: i64 = "bornTime",
        opt order: bool = "order",
        opt attempt_id: Str = "attemptId",
    }

    /// Answer to NOTIFICATION (200054).
    NotificationResponseHeader {
        req has_msg: bool = "hasMsg",
        def polling_full: bool = "pollingFull",
    }

    /// Request POLLING_INFO (200055).
    PollingInfoRequestHeader + rpc {
        req consumer_group: Str = "consumerGroup",
        req topic: Str = "topic",
        req queue_id: i32 = "queueId",
    }

    /// Answer to POLLING_INFO (200055).
    PollingInfoResponseHeader {
        req polling_num: i32 = "pollingNum",
    }
}
