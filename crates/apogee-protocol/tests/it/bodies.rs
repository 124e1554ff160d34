//! Every captured JSON body reads as its type and writes the same tree again.

use crate::fixtures::captured;
use apogee_protocol::RequestCode;
use apogee_protocol::bodies::*;
use serde_json::Value;

type Again = fn(&[u8]) -> Result<Vec<u8>, BodyError>;

fn again<T: JsonBody>(bytes: &[u8]) -> Result<Vec<u8>, BodyError> {
    T::from_json(bytes).map(|body| body.to_raw())
}

macro_rules! table {
    ($($name:ident => $body:ty,)*) => {
        &[$((RequestCode::$name, again::<$body> as Again),)*]
    };
}

const REQUESTS: &[(RequestCode, Again)] = table! {
    AUTH_CREATE_ACL => AclInfo,
    AUTH_CREATE_USER => UserInfo,
    AUTH_UPDATE_ACL => AclInfo,
    AUTH_UPDATE_USER => UserInfo,
    BATCH_ACK_MESSAGE => BatchAckMessageRequestBody,
    CHECK_CLIENT_CONFIG => CheckClientRequestBody,
    HEART_BEAT => HeartbeatData,
    LOCK_BATCH_MQ => LockBatchRequestBody,
    QUERY_ASSIGNMENT => QueryAssignmentRequestBody,
    QUERY_DATA_VERSION => DataVersion,
    REGISTER_BROKER => RegisterBrokerBody,
    REGISTER_TOPIC_IN_NAMESRV => TopicRouteData,
    SET_MESSAGE_REQUEST_MODE => SetMessageRequestModeRequestBody,
    UNLOCK_BATCH_MQ => LockBatchRequestBody,
    UPDATE_AND_CREATE_STATIC_TOPIC => TopicQueueMappingDetail,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => SubscriptionGroupConfig,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => SubscriptionGroupList,
    UPDATE_AND_CREATE_TOPIC_LIST => CreateTopicListRequestBody,
};

const ANSWERS: &[(RequestCode, Again)] = table! {
    AUTH_GET_ACL => AclInfo,
    AUTH_GET_USER => UserInfo,
    AUTH_LIST_ACL => Vec<AclInfo>,
    AUTH_LIST_USER => Vec<UserInfo>,
    CONSUME_MESSAGE_DIRECTLY => ConsumeMessageDirectlyResult,
    GET_ALL_CONSUMER_OFFSET => ConsumerOffsetSerializeWrapper,
    GET_ALL_DELAY_OFFSET => DelayOffsetSerializeWrapper,
    GET_ALL_MESSAGE_REQUEST_MODE => MessageRequestModeSerializeWrapper,
    GET_ALL_PRODUCER_INFO => ProducerTableInfo,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG => SubscriptionGroupWrapper,
    GET_ALL_TOPIC_CONFIG => TopicConfigAndMappingSerializeWrapper,
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER => TopicList,
    GET_BROKER_CLUSTER_INFO => ClusterInfo,
    GET_BROKER_CONSUME_STATS => ConsumeStatsList,
    GET_BROKER_HA_STATUS => HARuntimeInfo,
    GET_BROKER_MEMBER_GROUP => GetBrokerMemberGroupResponseBody,
    GET_BROKER_RUNTIME_INFO => KVTable,
    GET_CONSUMER_CONNECTION_LIST => ConsumerConnection,
    GET_CONSUMER_LIST_BY_GROUP => GetConsumerListByGroupResponseBody,
    GET_CONSUMER_RUNNING_INFO => ConsumerRunningInfo,
    GET_CONSUME_STATS => ConsumeStats,
    GET_HAS_UNIT_SUB_TOPIC_LIST => TopicList,
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => TopicList,
    GET_KVLIST_BY_NAMESPACE => KVTable,
    GET_PRODUCER_CONNECTION_LIST => ProducerConnection,
    GET_ROUTEINFO_BY_TOPIC => TopicRouteData,
    GET_SUBSCRIPTIONGROUP_CONFIG => SubscriptionGroupConfig,
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER => TopicList,
    GET_SYSTEM_TOPIC_LIST_FROM_NS => TopicList,
    GET_TIMER_METRICS => TimerMetricsSerializeWrapper,
    GET_TOPICS_BY_CLUSTER => TopicList,
    GET_TOPIC_CONFIG => TopicConfigAndQueueMapping,
    GET_TOPIC_STATS_INFO => TopicStatsTable,
    GET_UNIT_TOPIC_LIST => TopicList,
    INVOKE_BROKER_TO_RESET_OFFSET => ResetOffsetBody,
    LOCK_BATCH_MQ => LockBatchResponseBody,
    QUERY_ASSIGNMENT => QueryAssignmentResponseBody,
    QUERY_CONSUME_QUEUE => QueryConsumeQueueResponseBody,
    QUERY_CONSUME_TIME_SPAN => QueryConsumeTimeSpanBody,
    QUERY_CORRECTION_OFFSET => QueryCorrectionOffsetBody,
    QUERY_DATA_VERSION => DataVersion,
    QUERY_SUBSCRIPTION_BY_CONSUMER => QuerySubscriptionResponseBody,
    QUERY_TOPICS_BY_CONSUMER => TopicList,
    QUERY_TOPIC_CONSUME_BY_WHO => GroupList,
    REGISTER_BROKER => KVTable,
    UNLOCK_BATCH_MQ => LockBatchResponseBody,
    UPDATE_AND_GET_GROUP_FORBIDDEN => GroupForbidden,
    VIEW_BROKER_STATS_DATA => BrokerStatsData,
};

/// Bodies of answers that no ordinary client, tool or broker reads.
const RARE: &[RequestCode] = &[
    RequestCode::CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    RequestCode::GET_BROKER_LITE_INFO,
    RequestCode::GET_COLD_DATA_FLOW_CTR_INFO,
];

/// The tree with lists sorted (they are sets to the original) and numbers as floats.
fn tree(bytes: &[u8]) -> Value {
    fn plain(value: Value) -> Value {
        match value {
            Value::Array(items) => {
                let mut items: Vec<Value> = items.into_iter().map(plain).collect();
                items.sort_by_key(Value::to_string);
                Value::Array(items)
            }
            Value::Object(fields) => {
                let mut fields: Vec<_> =
                    fields.into_iter().map(|(key, value)| (key, plain(value))).collect();
                fields.sort_by(|one, other| one.0.cmp(&other.0));
                Value::Object(fields.into_iter().collect())
            }
            other => other,
        }
    }
    plain(serde_json::from_str(&apogee_protocol::lenient::to_standard(bytes).unwrap()).unwrap())
}

/// Fields that the original leaves out in one place and writes with its default in another.
fn equal(written: &Value, captured: &Value) -> bool {
    match (written, captured) {
        (Value::Object(written), Value::Object(captured)) => {
            captured
                .iter()
                .all(|(key, value)| written.get(key).is_some_and(|twin| equal(twin, value)))
                && written
                    .iter()
                    .all(|(key, value)| captured.contains_key(key) || is_default(value))
        }
        (Value::Array(written), Value::Array(captured)) => {
            written.len() == captured.len()
                && written.iter().zip(captured).all(|(one, other)| equal(one, other))
        }
        _ => written == captured,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[test]
fn every_captured_json_body_keeps_its_tree() {
    let mut seen = 0;
    for frame in captured() {
        let body = frame.body();
        let json = matches!(body.first(), Some(b'{' | b'['));
        let Some(code) = RequestCode::from_name(frame.text("request")).filter(|_| json) else {
            continue;
        };
        let answer = frame.is_response()
            || frame.text("type") == "oneway" && code == RequestCode::QUERY_DATA_VERSION;
        let table = if answer { ANSWERS } else { REQUESTS };
        let Some((_, again)) = table.iter().find(|(known, _)| *known == code) else {
            assert!(
                RARE.contains(&code),
                "no type for the {} body of {}",
                frame.text("type"),
                frame.text("request")
            );
            continue;
        };
        let written =
            again(&body).unwrap_or_else(|error| panic!("{}: {error}", frame.text("request")));
        let (written, captured) = (tree(&written), tree(&body));
        assert!(equal(&written, &captured), "{}\n{written}\n{captured}", frame.text("request"));
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}
