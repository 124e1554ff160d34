//! Bodies between clients and brokers: heartbeats, locks, assignments, acknowledgements, and what a broker
//! asks of a client.

use super::json::{JsonWriter, ReadJson, WriteJson, bodies, names};
use super::route::MessageQueue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserializer;
use std::collections::{BTreeMap, BTreeSet};

names! {
    /// How a consumer gets its messages.
    ConsumeType(Passively) {
        Actively = "CONSUME_ACTIVELY",
        Passively = "CONSUME_PASSIVELY",
        Pop = "CONSUME_POP",
    }

    /// Where a group without a position begins.
    ConsumeFromWhere(LastOffset) {
        LastOffset = "CONSUME_FROM_LAST_OFFSET",
        LastOffsetAndFromMinWhenBootFirst = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        MinOffset = "CONSUME_FROM_MIN_OFFSET",
        MaxOffset = "CONSUME_FROM_MAX_OFFSET",
        FirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        Timestamp = "CONSUME_FROM_TIMESTAMP",
    }

    /// Whether each member of a group gets every message, or the group as one.
    MessageModel(Clustering) {
        Broadcasting = "BROADCASTING",
        Clustering = "CLUSTERING",
    }

    /// How a group gets the messages of a topic.
    MessageRequestMode(Pull) {
        Pull = "PULL",
        Pop = "POP",
    }

    /// What a consumer made of a message it was given directly.
    ConsumeResult(Success) {
        Success = "CR_SUCCESS",
        Later = "CR_LATER",
        Rollback = "CR_ROLLBACK",
        Commit = "CR_COMMIT",
        ThrowException = "CR_THROW_EXCEPTION",
        ReturnNull = "CR_RETURN_NULL",
    }
}

bodies! {
    /// What a group wants of a topic.
    #[derive(Eq)]
    SubscriptionData {
        class_filter_mode: bool = "classFilterMode";
        /// Java hash code of each tag.
        code_set: BTreeSet<i32> = "codeSet";
        expression_type: Option<String> = "expressionType", Some("TAG".to_owned());
        sub_string: Option<String> = "subString";
        /// The client's clock, ms.
        sub_version: i64 = "subVersion";
        tags_set: BTreeSet<String> = "tagsSet";
        topic: String = "topic";
    }

    /// A consumer group in a heartbeat.
    #[derive(Eq)]
    ConsumerData {
        consume_from_where: Option<ConsumeFromWhere> = "consumeFromWhere";
        consume_type: Option<ConsumeType> = "consumeType";
        group_name: String = "groupName";
        message_model: Option<MessageModel> = "messageModel";
        subscription_data_set: Vec<SubscriptionData> = "subscriptionDataSet";
        unit_mode: bool = "unitMode";
    }

    /// A producer group in a heartbeat.
    #[derive(Eq)]
    ProducerData {
        group_name: String = "groupName";
    }

    /// Body of HEART_BEAT.
    #[derive(Eq)]
    HeartbeatData {
        client_id: String = "clientID";
        consumer_data_set: Vec<ConsumerData> = "consumerDataSet";
        /// 0 = first version of the heartbeat.
        heartbeat_fingerprint: i32 = "heartbeatFingerprint";
        producer_data_set: Vec<ProducerData> = "producerDataSet";
        without_sub: bool = "withoutSub";
    }

    /// Body of CHECK_CLIENT_CONFIG.
    CheckClientRequestBody {
        client_id: Option<String> = "clientId";
        group: Option<String> = "group";
        namespace: Option<String> = "namespace";
        subscription_data: Option<SubscriptionData> = "subscriptionData";
    }

    /// Answer to GET_CONSUMER_LIST_BY_GROUP.
    GetConsumerListByGroupResponseBody {
        consumer_id_list: Vec<String> = "consumerIdList";
    }

    /// Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ.
    LockBatchRequestBody {
        client_id: Option<String> = "clientId";
        consumer_group: Option<String> = "consumerGroup";
        mq_set: BTreeSet<MessageQueue> = "mqSet";
        only_this_broker: bool = "onlyThisBroker";
    }

    /// Answer to LOCK_BATCH_MQ.
    LockBatchResponseBody {
        lock_ok_mq_set: BTreeSet<MessageQueue> = "lockOKMQSet";
    }

    /// Body of QUERY_ASSIGNMENT.
    QueryAssignmentRequestBody {
        client_id: Option<String> = "clientId";
        consumer_group: Option<String> = "consumerGroup";
        message_model: Option<MessageModel> = "messageModel";
        strategy_name: Option<String> = "strategyName";
        topic: Option<String> = "topic";
    }

    /// A queue given to a client.
    MessageQueueAssignment {
        attachments: Option<BTreeMap<String, String>> = "attachments";
        message_queue: Option<MessageQueue> = "messageQueue";
        mode: MessageRequestMode = "mode";
    }

    /// Answer to QUERY_ASSIGNMENT.
    QueryAssignmentResponseBody {
        message_queue_assignments: Vec<MessageQueueAssignment> = "messageQueueAssignments";
    }

    /// Body of SET_MESSAGE_REQUEST_MODE.
    SetMessageRequestModeRequestBody {
        consumer_group: Option<String> = "consumerGroup";
        mode: MessageRequestMode = "mode";
        pop_share_queue_num: i32 = "popShareQueueNum";
        topic: Option<String> = "topic";
    }

    /// `messageRequestMode.json`, and the answer to GET_ALL_MESSAGE_REQUEST_MODE.
    MessageRequestModeSerializeWrapper {
        /// Topic to group to mode.
        message_request_mode_map: BTreeMap<String, BTreeMap<String, SetMessageRequestModeRequestBody>> = "messageRequestModeMap";
    }

    /// Acknowledgements of one queue, relative to an offset.
    BatchAck {
        bit_set: BitSet = "b";
        consumer_group: Option<String> = "c";
        invisible_time: i64 = "it";
        pop_time: i64 = "pt";
        queue_id: i32 = "q";
        /// "0" plain, "1" retry topic, "2" retry topic of the second version.
        retry: Option<String> = "r";
        revive_queue_id: i32 = "rq";
        start_offset: i64 = "so";
        topic: Option<String> = "t";
    }

    /// Body of BATCH_ACK_MESSAGE.
    BatchAckMessageRequestBody {
        acks: Vec<BatchAck> = "acks";
        broker_name: Option<String> = "brokerName";
    }

    /// Body of RESET_CONSUMER_CLIENT_OFFSET, answer to INVOKE_BROKER_TO_RESET_OFFSET.
    ResetOffsetBody {
        offset_table: BTreeMap<MessageQueue, i64> = "offsetTable";
    }

    /// A queue and its offset, for C++ clients.
    MessageQueueForC {
        broker_name: String = "brokerName";
        offset: i64 = "offset";
        queue_id: i32 = "queueId";
        topic: String = "topic";
    }

    /// Body of RESET_CONSUMER_CLIENT_OFFSET for C++ clients.
    ResetOffsetBodyForC {
        offset_table: Vec<MessageQueueForC> = "offsetTable";
    }

    /// Answer to GET_CONSUMER_STATUS_FROM_CLIENT and INVOKE_BROKER_TO_GET_CONSUMER_STATUS.
    GetConsumerStatusBody {
        /// Client id to queue to offset.
        consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>> = "consumerTable";
        message_queue_table: BTreeMap<MessageQueue, i64> = "messageQueueTable";
    }

    /// What a client holds of a pulled queue.
    ProcessQueueInfo {
        cached_msg_count: i32 = "cachedMsgCount";
        cached_msg_max_offset: i64 = "cachedMsgMaxOffset";
        cached_msg_min_offset: i64 = "cachedMsgMinOffset";
        cached_msg_size_in_mib: i32 = "cachedMsgSizeInMiB";
        commit_offset: i64 = "commitOffset";
        /// Spelled so by the original.
        droped: bool = "droped";
        last_consume_timestamp: i64 = "lastConsumeTimestamp";
        last_lock_timestamp: i64 = "lastLockTimestamp";
        last_pull_timestamp: i64 = "lastPullTimestamp";
        locked: bool = "locked";
        transaction_msg_count: i32 = "transactionMsgCount";
        transaction_msg_max_offset: i64 = "transactionMsgMaxOffset";
        transaction_msg_min_offset: i64 = "transactionMsgMinOffset";
        try_unlock_times: i64 = "tryUnlockTimes";
    }

    /// What a client holds of a popped queue.
    PopProcessQueueInfo {
        droped: bool = "droped";
        last_pop_timestamp: i64 = "lastPopTimestamp";
        wait_ack_count: i32 = "waitAckCount";
    }

    /// Rates of a consumer for one topic.
    ConsumeStatus {
        consume_failed_msgs: i64 = "consumeFailedMsgs";
        consume_failed_tps: f64 = "consumeFailedTPS";
        consume_ok_tps: f64 = "consumeOKTPS";
        consume_rt: f64 = "consumeRT";
        pull_rt: f64 = "pullRT";
        pull_tps: f64 = "pullTPS";
    }

    /// Answer to GET_CONSUMER_RUNNING_INFO.
    ConsumerRunningInfo {
        jstack: Option<String> = "jstack";
        mq_pop_table: BTreeMap<MessageQueue, PopProcessQueueInfo> = "mqPopTable";
        mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> = "mqTable";
        properties: BTreeMap<String, String> = "properties";
        status_table: BTreeMap<String, ConsumeStatus> = "statusTable";
        subscription_set: Vec<SubscriptionData> = "subscriptionSet";
        user_consumer_info: BTreeMap<String, String> = "userConsumerInfo";
    }

    /// Answer to CONSUME_MESSAGE_DIRECTLY.
    ConsumeMessageDirectlyResult {
        auto_commit: bool = "autoCommit", true;
        consume_result: Option<ConsumeResult> = "consumeResult";
        order: bool = "order";
        remark: Option<String> = "remark";
        spent_time_mills: i64 = "spentTimeMills";
    }
}

/// Offsets of a batch acknowledgement: bit n of byte m is offset 8m+n past the start. Base64 in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BitSet(pub Vec<u8>);

impl BitSet {
    /// The places of the set bits, ascending.
    pub fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(byte_at, byte)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| byte_at * 8 + bit)
        })
    }
}

impl FromIterator<usize> for BitSet {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let mut bytes = Vec::new();
        for place in places {
            if bytes.len() <= place / 8 {
                bytes.resize(place / 8 + 1, 0);
            }
            if let Some(byte) = bytes.get_mut(place / 8) {
                *byte |= 1 << (place % 8);
            }
        }
        BitSet(bytes)
    }
}

impl ReadJson for BitSet {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::read(deserializer)?;
        BASE64.decode(&text).map(BitSet).map_err(serde::de::Error::custom)
    }
}

impl WriteJson for BitSet {
    fn write(&self, writer: &mut JsonWriter) {
        writer.text(&BASE64.encode(&self.0));
    }
}
