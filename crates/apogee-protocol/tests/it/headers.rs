//! Every captured header reads as its type and writes the same fields again.

use crate::fixtures::captured;
use apogee_protocol::headers::*;
use apogee_protocol::{ExtFields, RequestCode};

type Again = fn(&ExtFields) -> Result<ExtFields, HeaderError>;

fn again<H: Header>(ext: &ExtFields) -> Result<ExtFields, HeaderError> {
    H::decode(ext).map(|header| ExtFields::of(&header))
}

macro_rules! table {
    ($($name:ident => $header:ident,)*) => {
        &[$((RequestCode::$name, again::<$header> as Again),)*]
    };
}

const REQUESTS: &[(RequestCode, Again)] = table! {
    SEND_MESSAGE => SendMessageHeader,
    PULL_MESSAGE => PullMessageRequestHeader,
    QUERY_MESSAGE => QueryMessageRequestHeader,
    QUERY_CONSUMER_OFFSET => QueryConsumerOffsetRequestHeader,
    UPDATE_CONSUMER_OFFSET => UpdateConsumerOffsetRequestHeader,
    UPDATE_AND_CREATE_TOPIC => CreateTopicRequestHeader,
    UPDATE_AND_CREATE_TOPIC_LIST => CreateTopicListRequestHeader,
    GET_ALL_TOPIC_CONFIG => GetAllTopicConfigRequestHeader,
    SEARCH_OFFSET_BY_TIMESTAMP => SearchOffsetRequestHeader,
    GET_MAX_OFFSET => GetMaxOffsetRequestHeader,
    GET_MIN_OFFSET => GetMinOffsetRequestHeader,
    GET_EARLIEST_MSG_STORETIME => GetEarliestMsgStoretimeRequestHeader,
    VIEW_MESSAGE_BY_ID => ViewMessageRequestHeader,
    HEART_BEAT => HeartbeatRequestHeader,
    UNREGISTER_CLIENT => UnregisterClientRequestHeader,
    CONSUMER_SEND_MSG_BACK => ConsumerSendMsgBackRequestHeader,
    END_TRANSACTION => EndTransactionRequestHeader,
    GET_CONSUMER_LIST_BY_GROUP => GetConsumerListByGroupRequestHeader,
    CHECK_TRANSACTION_STATE => CheckTransactionStateRequestHeader,
    NOTIFY_CONSUMER_IDS_CHANGED => NotifyConsumerIdsChangedRequestHeader,
    LOCK_BATCH_MQ => LockBatchMqRequestHeader,
    UNLOCK_BATCH_MQ => UnlockBatchMqRequestHeader,
    PUT_KV_CONFIG => PutKVConfigRequestHeader,
    GET_KV_CONFIG => GetKVConfigRequestHeader,
    DELETE_KV_CONFIG => DeleteKVConfigRequestHeader,
    REGISTER_BROKER => RegisterBrokerRequestHeader,
    UNREGISTER_BROKER => UnRegisterBrokerRequestHeader,
    GET_ROUTEINFO_BY_TOPIC => GetRouteInfoRequestHeader,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG => GetAllSubscriptionGroupRequestHeader,
    GET_TOPIC_STATS_INFO => GetTopicStatsInfoRequestHeader,
    GET_CONSUMER_CONNECTION_LIST => GetConsumerConnectionListRequestHeader,
    GET_PRODUCER_CONNECTION_LIST => GetProducerConnectionListRequestHeader,
    WIPE_WRITE_PERM_OF_BROKER => WipeWritePermOfBrokerRequestHeader,
    DELETE_SUBSCRIPTIONGROUP => DeleteSubscriptionGroupRequestHeader,
    GET_CONSUME_STATS => GetConsumeStatsRequestHeader,
    DELETE_TOPIC_IN_BROKER => DeleteTopicRequestHeader,
    DELETE_TOPIC_IN_NAMESRV => DeleteTopicFromNamesrvRequestHeader,
    REGISTER_TOPIC_IN_NAMESRV => RegisterTopicRequestHeader,
    GET_KVLIST_BY_NAMESPACE => GetKVListByNamespaceRequestHeader,
    RESET_CONSUMER_CLIENT_OFFSET => ResetOffsetRequestHeader,
    GET_CONSUMER_STATUS_FROM_CLIENT => GetConsumerStatusRequestHeader,
    INVOKE_BROKER_TO_RESET_OFFSET => ResetOffsetRequestHeader,
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS => GetConsumerStatusRequestHeader,
    GET_TOPICS_BY_CLUSTER => GetTopicsByClusterRequestHeader,
    QUERY_TOPIC_CONSUME_BY_WHO => QueryTopicConsumeByWhoRequestHeader,
    QUERY_CONSUME_TIME_SPAN => QueryConsumeTimeSpanRequestHeader,
    GET_CONSUMER_RUNNING_INFO => GetConsumerRunningInfoRequestHeader,
    QUERY_CORRECTION_OFFSET => QueryCorrectionOffsetHeader,
    CONSUME_MESSAGE_DIRECTLY => ConsumeMessageDirectlyResultRequestHeader,
    SEND_MESSAGE_V2 => SendMessageHeader,
    CLONE_GROUP_OFFSET => CloneGroupOffsetRequestHeader,
    VIEW_BROKER_STATS_DATA => ViewBrokerStatsDataRequestHeader,
    GET_BROKER_CONSUME_STATS => GetConsumeStatsInBrokerHeader,
    SEND_BATCH_MESSAGE => SendMessageHeader,
    QUERY_CONSUME_QUEUE => QueryConsumeQueueRequestHeader,
    QUERY_DATA_VERSION => QueryDataVersionRequestHeader,
    RESUME_CHECK_HALF_MESSAGE => ResumeCheckHalfMessageRequestHeader,
    SEND_REPLY_MESSAGE => SendMessageHeader,
    SEND_REPLY_MESSAGE_V2 => SendMessageHeader,
    PUSH_REPLY_MESSAGE_TO_CLIENT => ReplyMessageRequestHeader,
    ADD_WRITE_PERM_OF_BROKER => AddWritePermOfBrokerRequestHeader,
    GET_ALL_PRODUCER_INFO => GetAllProducerInfoRequestHeader,
    QUERY_TOPICS_BY_CONSUMER => QueryTopicsByConsumerRequestHeader,
    QUERY_SUBSCRIPTION_BY_CONSUMER => QuerySubscriptionByConsumerRequestHeader,
    GET_TOPIC_CONFIG => GetTopicConfigRequestHeader,
    GET_SUBSCRIPTIONGROUP_CONFIG => GetSubscriptionGroupConfigRequestHeader,
    UPDATE_AND_GET_GROUP_FORBIDDEN => UpdateGroupForbiddenRequestHeader,
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS => CheckRocksdbCqWriteProgressRequestHeader,
    LITE_PULL_MESSAGE => PullMessageRequestHeader,
    RECALL_MESSAGE => RecallMessageRequestHeader,
    UPDATE_AND_CREATE_STATIC_TOPIC => CreateTopicRequestHeader,
    GET_BROKER_MEMBER_GROUP => GetBrokerMemberGroupRequestHeader,
    BROKER_HEARTBEAT => BrokerHeartbeatRequestHeader,
    NOTIFY_MIN_BROKER_ID_CHANGE => NotifyMinBrokerIdChangeRequestHeader,
    EXCHANGE_BROKER_HA_INFO => ExchangeHAInfoRequestHeader,
    RESET_MASTER_FLUSH_OFFSET => ResetMasterFlushOffsetHeader,
    AUTH_CREATE_USER => CreateUserRequestHeader,
    AUTH_UPDATE_USER => UpdateUserRequestHeader,
    AUTH_DELETE_USER => DeleteUserRequestHeader,
    AUTH_GET_USER => GetUserRequestHeader,
    AUTH_LIST_USER => ListUsersRequestHeader,
    AUTH_CREATE_ACL => CreateAclRequestHeader,
    AUTH_UPDATE_ACL => UpdateAclRequestHeader,
    AUTH_DELETE_ACL => DeleteAclRequestHeader,
    AUTH_GET_ACL => GetAclRequestHeader,
    AUTH_LIST_ACL => ListAclsRequestHeader,
    POP_MESSAGE => PopMessageRequestHeader,
    ACK_MESSAGE => AckMessageRequestHeader,
    PEEK_MESSAGE => PeekMessageRequestHeader,
    CHANGE_MESSAGE_INVISIBLETIME => ChangeInvisibleTimeRequestHeader,
    NOTIFICATION => NotificationRequestHeader,
    POLLING_INFO => PollingInfoRequestHeader,
};

const ANSWERS: &[(RequestCode, Again)] = table! {
    SEND_MESSAGE => SendMessageResponseHeader,
    PULL_MESSAGE => PullMessageResponseHeader,
    QUERY_MESSAGE => QueryMessageResponseHeader,
    QUERY_CONSUMER_OFFSET => QueryConsumerOffsetResponseHeader,
    UPDATE_CONSUMER_OFFSET => UpdateConsumerOffsetResponseHeader,
    GET_ALL_TOPIC_CONFIG => GetAllTopicConfigResponseHeader,
    GET_BROKER_CONFIG => GetBrokerConfigResponseHeader,
    SEARCH_OFFSET_BY_TIMESTAMP => SearchOffsetResponseHeader,
    GET_MAX_OFFSET => GetMaxOffsetResponseHeader,
    GET_MIN_OFFSET => GetMinOffsetResponseHeader,
    GET_EARLIEST_MSG_STORETIME => GetEarliestMsgStoretimeResponseHeader,
    UNREGISTER_CLIENT => UnregisterClientResponseHeader,
    GET_CONSUMER_LIST_BY_GROUP => GetConsumerListByGroupResponseHeader,
    GET_KV_CONFIG => GetKVConfigResponseHeader,
    REGISTER_BROKER => RegisterBrokerResponseHeader,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG => GetAllSubscriptionGroupResponseHeader,
    WIPE_WRITE_PERM_OF_BROKER => WipeWritePermOfBrokerResponseHeader,
    SEND_MESSAGE_V2 => SendMessageResponseHeader,
    SEND_BATCH_MESSAGE => SendMessageResponseHeader,
    QUERY_DATA_VERSION => QueryDataVersionResponseHeader,
    SEND_REPLY_MESSAGE => SendMessageResponseHeader,
    SEND_REPLY_MESSAGE_V2 => SendMessageResponseHeader,
    ADD_WRITE_PERM_OF_BROKER => AddWritePermOfBrokerResponseHeader,
    LITE_PULL_MESSAGE => PullMessageResponseHeader,
    RECALL_MESSAGE => RecallMessageResponseHeader,
    EXCHANGE_BROKER_HA_INFO => ExchangeHAInfoResponseHeader,
    POP_MESSAGE => PopMessageResponseHeader,
    PEEK_MESSAGE => PopMessageResponseHeader,
    CHANGE_MESSAGE_INVISIBLETIME => ChangeInvisibleTimeResponseHeader,
    NOTIFICATION => NotificationResponseHeader,
    POLLING_INFO => PollingInfoResponseHeader,
};

/// Fields that stand beside a header: signatures, trace, switches of single requests.
const BESIDE: &[&str] = &[
    "AccessKey",
    "ReqT",
    "Signature",
    "SecurityToken",
    "_UNIQUE_KEY_QUERY",
    "INDEX_TYPE",
    "LAST_KEY",
    "IS_SUPPORT_HEART_BEAT_V2",
    "IS_SUB_CHANGE",
    "TRACE_ON",
    "MSG_REGION",
];

fn lookup(table: &[(RequestCode, Again)], name: &str) -> Option<Again> {
    let code = RequestCode::from_name(name)?;
    table.iter().find(|(known, _)| *known == code).map(|(_, again)| *again)
}

#[test]
fn every_captured_header_keeps_its_fields() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for frame in captured() {
        let table = if frame.is_response() { ANSWERS } else { REQUESTS };
        let Some(again) = lookup(table, frame.text("request")) else { continue };
        let command = frame.command();
        let written = match again(&command.ext) {
            Ok(written) => written,
            // An error answer carries no header, and some requests are wrong on purpose.
            Err(error) if error.problem == FieldProblem::Missing && command.ext.len() < 4 => {
                continue;
            }
            Err(error) => panic!("{}: {error}", frame.text("request")),
        };
        seen += 1;
        let long_send = frame.int("code") == 10 || frame.int("code") == 324;
        for (key, value) in command.ext.iter() {
            let same = written.get(key) == Some(value)
                || BESIDE.contains(&key)
                || long_send
                || value.is_empty();
            if !same {
                wrong.push(format!("{} lost {key}={value}", frame.text("request")));
            }
        }
        for (key, value) in written.iter() {
            let same =
                command.ext.get(key) == Some(value) || matches!(value, "0" | "false") || long_send;
            if !same {
                wrong.push(format!("{} made up {key}={value}", frame.text("request")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 150, "{seen}");
}
