//! Request and response codes, and who speaks them.
//!
//! Always holds: numbers and names are those of the original (a test counts them). A code from the wire is
//! kept as it came, known or not, so an unknown one can be named in the refusal.

/// How far a request reaches: decides what must work first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeClass {
    /// Ordinary producers, consumers and brokers need it.
    A,
    /// Administration, dashboards, metrics, replication.
    B,
    /// Rare: controller, container, RocksDB, lite topics, or a number nobody answers any more.
    C,
}

macro_rules! request_codes {
    ($($name:ident = $code:literal $class:ident,)*) => {
        impl RequestCode {
            $(#[doc = concat!("Request code ", stringify!($code), ".")]
            pub const $name: RequestCode = RequestCode($code);)*

            /// Every known code with its name and class, in numeric order.
            pub const ALL: &'static [(RequestCode, &'static str, CodeClass)] =
                &[$((RequestCode($code), stringify!($name), CodeClass::$class),)*];
        }
    };
}

macro_rules! response_codes {
    ($($name:ident = $code:literal,)*) => {
        impl ResponseCode {
            $(#[doc = concat!("Response code ", stringify!($code), ".")]
            pub const $name: ResponseCode = ResponseCode($code);)*

            /// Every known code with its name.
            pub const ALL: &'static [(ResponseCode, &'static str)] =
                &[$((ResponseCode($code), stringify!($name)),)*];
        }
    };
}

/// What a request asks for. Any number can be held; [`RequestCode::name`] tells whether it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestCode(pub i32);

impl RequestCode {
    /// The name, if the code is known.
    pub fn name(self) -> Option<&'static str> {
        Self::entry(self).map(|(_, name, _)| *name)
    }

    /// The class, if the code is known.
    pub fn class(self) -> Option<CodeClass> {
        Self::entry(self).map(|(_, _, class)| *class)
    }

    /// The code of a name such as `SEND_MESSAGE`.
    pub fn from_name(name: &str) -> Option<RequestCode> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(code, _, _)| *code)
    }

    fn entry(self) -> Option<&'static (RequestCode, &'static str, CodeClass)> {
        let at = Self::ALL.binary_search_by_key(&self, |(code, _, _)| *code).ok()?;
        Self::ALL.get(at)
    }
}

/// How a request went. Any number can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResponseCode(pub i32);

impl ResponseCode {
    /// The name, if the code is known.
    pub fn name(self) -> Option<&'static str> {
        Self::ALL.iter().find(|(code, _)| *code == self).map(|(_, name)| *name)
    }
}

request_codes! {
    SEND_MESSAGE = 10 A,
    PULL_MESSAGE = 11 A,
    QUERY_MESSAGE = 12 A,
    QUERY_BROKER_OFFSET = 13 C,
    QUERY_CONSUMER_OFFSET = 14 A,
    UPDATE_CONSUMER_OFFSET = 15 A,
    UPDATE_AND_CREATE_TOPIC = 17 A,
    UPDATE_AND_CREATE_TOPIC_LIST = 18 B,
    GET_ALL_TOPIC_CONFIG = 21 B,
    GET_TOPIC_CONFIG_LIST = 22 C,
    GET_TOPIC_NAME_LIST = 23 C,
    UPDATE_BROKER_CONFIG = 25 B,
    GET_BROKER_CONFIG = 26 B,
    TRIGGER_DELETE_FILES = 27 C,
    GET_BROKER_RUNTIME_INFO = 28 B,
    SEARCH_OFFSET_BY_TIMESTAMP = 29 A,
    GET_MAX_OFFSET = 30 A,
    GET_MIN_OFFSET = 31 A,
    GET_EARLIEST_MSG_STORETIME = 32 A,
    VIEW_MESSAGE_BY_ID = 33 A,
    HEART_BEAT = 34 A,
    UNREGISTER_CLIENT = 35 A,
    CONSUMER_SEND_MSG_BACK = 36 A,
    END_TRANSACTION = 37 A,
    GET_CONSUMER_LIST_BY_GROUP = 38 A,
    CHECK_TRANSACTION_STATE = 39 A,
    NOTIFY_CONSUMER_IDS_CHANGED = 40 A,
    LOCK_BATCH_MQ = 41 A,
    UNLOCK_BATCH_MQ = 42 A,
    GET_ALL_CONSUMER_OFFSET = 43 B,
    GET_ALL_DELAY_OFFSET = 45 B,
    CHECK_CLIENT_CONFIG = 46 A,
    GET_CLIENT_CONFIG = 47 C,
    GET_TIMER_CHECK_POINT = 60 B,
    GET_TIMER_METRICS = 61 B,
    PUT_KV_CONFIG = 100 B,
    GET_KV_CONFIG = 101 B,
    DELETE_KV_CONFIG = 102 B,
    REGISTER_BROKER = 103 A,
    UNREGISTER_BROKER = 104 A,
    GET_ROUTEINFO_BY_TOPIC = 105 A,
    GET_BROKER_CLUSTER_INFO = 106 A,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200 B,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201 B,
    GET_TOPIC_STATS_INFO = 202 B,
    GET_CONSUMER_CONNECTION_LIST = 203 B,
    GET_PRODUCER_CONNECTION_LIST = 204 B,
    WIPE_WRITE_PERM_OF_BROKER = 205 B,
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206 B,
    DELETE_SUBSCRIPTIONGROUP = 207 B,
    GET_CONSUME_STATS = 208 B,
    SUSPEND_CONSUMER = 209 C,
    RESUME_CONSUMER = 210 C,
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211 C,
    RESET_CONSUMER_OFFSET_IN_BROKER = 212 C,
    ADJUST_CONSUMER_THREAD_POOL = 213 C,
    WHO_CONSUME_THE_MESSAGE = 214 C,
    DELETE_TOPIC_IN_BROKER = 215 B,
    DELETE_TOPIC_IN_NAMESRV = 216 B,
    REGISTER_TOPIC_IN_NAMESRV = 217 B,
    GET_KVLIST_BY_NAMESPACE = 219 B,
    RESET_CONSUMER_CLIENT_OFFSET = 220 B,
    GET_CONSUMER_STATUS_FROM_CLIENT = 221 B,
    INVOKE_BROKER_TO_RESET_OFFSET = 222 B,
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223 B,
    GET_TOPICS_BY_CLUSTER = 224 B,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225 B,
    QUERY_TOPIC_CONSUME_BY_WHO = 300 B,
    REGISTER_FILTER_SERVER = 301 C,
    REGISTER_MESSAGE_FILTER_CLASS = 302 C,
    QUERY_CONSUME_TIME_SPAN = 303 B,
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304 B,
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305 B,
    CLEAN_EXPIRED_CONSUMEQUEUE = 306 B,
    GET_CONSUMER_RUNNING_INFO = 307 B,
    QUERY_CORRECTION_OFFSET = 308 B,
    CONSUME_MESSAGE_DIRECTLY = 309 B,
    SEND_MESSAGE_V2 = 310 A,
    GET_UNIT_TOPIC_LIST = 311 C,
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312 C,
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313 C,
    CLONE_GROUP_OFFSET = 314 B,
    VIEW_BROKER_STATS_DATA = 315 B,
    CLEAN_UNUSED_TOPIC = 316 B,
    GET_BROKER_CONSUME_STATS = 317 B,
    UPDATE_NAMESRV_CONFIG = 318 B,
    GET_NAMESRV_CONFIG = 319 B,
    SEND_BATCH_MESSAGE = 320 A,
    QUERY_CONSUME_QUEUE = 321 B,
    QUERY_DATA_VERSION = 322 A,
    RESUME_CHECK_HALF_MESSAGE = 323 B,
    SEND_REPLY_MESSAGE = 324 A,
    SEND_REPLY_MESSAGE_V2 = 325 A,
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326 A,
    ADD_WRITE_PERM_OF_BROKER = 327 B,
    GET_ALL_PRODUCER_INFO = 328 B,
    DELETE_EXPIRED_COMMITLOG = 329 B,
    QUERY_TOPICS_BY_CONSUMER = 343 B,
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345 B,
    GET_TOPIC_CONFIG = 351 B,
    GET_SUBSCRIPTIONGROUP_CONFIG = 352 B,
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353 B,
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354 C,
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355 C,
    LITE_PULL_MESSAGE = 361 A,
    RECALL_MESSAGE = 370 B,
    QUERY_ASSIGNMENT = 400 A,
    SET_MESSAGE_REQUEST_MODE = 401 B,
    GET_ALL_MESSAGE_REQUEST_MODE = 402 B,
    UPDATE_AND_CREATE_STATIC_TOPIC = 513 C,
    GET_BROKER_MEMBER_GROUP = 901 B,
    ADD_BROKER = 902 C,
    REMOVE_BROKER = 903 C,
    BROKER_HEARTBEAT = 904 B,
    NOTIFY_MIN_BROKER_ID_CHANGE = 905 B,
    EXCHANGE_BROKER_HA_INFO = 906 B,
    GET_BROKER_HA_STATUS = 907 B,
    RESET_MASTER_FLUSH_OFFSET = 908 B,
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001 C,
    CONTROLLER_ELECT_MASTER = 1002 C,
    CONTROLLER_REGISTER_BROKER = 1003 C,
    CONTROLLER_GET_REPLICA_INFO = 1004 C,
    CONTROLLER_GET_METADATA_INFO = 1005 C,
    CONTROLLER_GET_SYNC_STATE_DATA = 1006 C,
    GET_BROKER_EPOCH_CACHE = 1007 C,
    NOTIFY_BROKER_ROLE_CHANGED = 1008 C,
    UPDATE_CONTROLLER_CONFIG = 1009 C,
    GET_CONTROLLER_CONFIG = 1010 C,
    CLEAN_BROKER_DATA = 1011 C,
    CONTROLLER_GET_NEXT_BROKER_ID = 1012 C,
    CONTROLLER_APPLY_BROKER_ID = 1013 C,
    BROKER_CLOSE_CHANNEL_REQUEST = 1014 C,
    CHECK_NOT_ACTIVE_BROKER_REQUEST = 1015 C,
    GET_BROKER_LIVE_INFO_REQUEST = 1016 C,
    GET_SYNC_STATE_DATA_REQUEST = 1017 C,
    RAFT_BROKER_HEART_BEAT_EVENT_REQUEST = 1018 C,
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001 C,
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002 C,
    GET_COLD_DATA_FLOW_CTR_INFO = 2003 C,
    SET_COMMITLOG_READ_MODE = 2004 C,
    AUTH_CREATE_USER = 3001 B,
    AUTH_UPDATE_USER = 3002 B,
    AUTH_DELETE_USER = 3003 B,
    AUTH_GET_USER = 3004 B,
    AUTH_LIST_USER = 3005 B,
    AUTH_CREATE_ACL = 3006 B,
    AUTH_UPDATE_ACL = 3007 B,
    AUTH_DELETE_ACL = 3008 B,
    AUTH_GET_ACL = 3009 B,
    AUTH_LIST_ACL = 3010 B,
    SWITCH_TIMER_ENGINE = 5001 C,
    POP_MESSAGE = 200050 A,
    ACK_MESSAGE = 200051 A,
    PEEK_MESSAGE = 200052 C,
    CHANGE_MESSAGE_INVISIBLETIME = 200053 A,
    NOTIFICATION = 200054 B,
    POLLING_INFO = 200055 C,
    POP_ROLLBACK = 200056 C,
    POP_LITE_MESSAGE = 200070 C,
    LITE_SUBSCRIPTION_CTL = 200071 C,
    ACK_LITE_MESSAGE = 200072 C,
    NOTIFY_UNSUBSCRIBE_LITE = 200073 C,
    GET_BROKER_LITE_INFO = 200074 C,
    GET_PARENT_TOPIC_INFO = 200075 C,
    GET_LITE_TOPIC_INFO = 200076 C,
    GET_LITE_CLIENT_INFO = 200077 C,
    GET_LITE_GROUP_INFO = 200078 C,
    TRIGGER_LITE_DISPATCH = 200079 C,
    BATCH_ACK_MESSAGE = 200151 A,
}

response_codes! {
    SUCCESS = 0,
    SYSTEM_ERROR = 1,
    SYSTEM_BUSY = 2,
    REQUEST_CODE_NOT_SUPPORTED = 3,
    TRANSACTION_FAILED = 4,
    FLUSH_DISK_TIMEOUT = 10,
    SLAVE_NOT_AVAILABLE = 11,
    FLUSH_SLAVE_TIMEOUT = 12,
    MESSAGE_ILLEGAL = 13,
    SERVICE_NOT_AVAILABLE = 14,
    VERSION_NOT_SUPPORTED = 15,
    NO_PERMISSION = 16,
    TOPIC_NOT_EXIST = 17,
    TOPIC_EXIST_ALREADY = 18,
    PULL_NOT_FOUND = 19,
    PULL_RETRY_IMMEDIATELY = 20,
    PULL_OFFSET_MOVED = 21,
    QUERY_NOT_FOUND = 22,
    SUBSCRIPTION_PARSE_FAILED = 23,
    SUBSCRIPTION_NOT_EXIST = 24,
    SUBSCRIPTION_NOT_LATEST = 25,
    SUBSCRIPTION_GROUP_NOT_EXIST = 26,
    FILTER_DATA_NOT_EXIST = 27,
    FILTER_DATA_NOT_LATEST = 28,
    INVALID_PARAMETER = 29,
    TRANSACTION_SHOULD_COMMIT = 200,
    TRANSACTION_SHOULD_ROLLBACK = 201,
    TRANSACTION_STATE_UNKNOW = 202,
    TRANSACTION_STATE_GROUP_WRONG = 203,
    NO_BUYER_ID = 204,
    NOT_IN_CURRENT_UNIT = 205,
    CONSUMER_NOT_ONLINE = 206,
    CONSUME_MSG_TIMEOUT = 207,
    NO_MESSAGE = 208,
    POLLING_FULL = 209,
    POLLING_TIMEOUT = 210,
    BROKER_NOT_EXIST = 211,
    BROKER_DISPATCH_NOT_COMPLETE = 212,
    BROADCAST_CONSUMPTION = 213,
    FLOW_CONTROL = 215,
    NOT_LEADER_FOR_QUEUE = 501,
    ILLEGAL_OPERATION = 604,
    GO_AWAY = 1500,
    CONTROLLER_FENCED_MASTER_EPOCH = 2000,
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001,
    CONTROLLER_INVALID_MASTER = 2002,
    CONTROLLER_INVALID_REPLICAS = 2003,
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004,
    CONTROLLER_INVALID_REQUEST = 2005,
    CONTROLLER_BROKER_NOT_ALIVE = 2006,
    CONTROLLER_NOT_LEADER = 2007,
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008,
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009,
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010,
    CONTROLLER_MASTER_STILL_EXIST = 2011,
    CONTROLLER_ELECT_MASTER_FAILED = 2012,
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013,
    CONTROLLER_BROKER_ID_INVALID = 2014,
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015,
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016,
    LMQ_QUOTA_EXCEEDED = 2017,
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 2018,
    USER_NOT_EXIST = 3001,
    POLICY_NOT_EXIST = 3002,
    RPC_TIME_OUT = -1006,
    RPC_SEND_TO_CHANNEL_FAILED = -1004,
    RPC_ADDR_IS_NULL = -1002,
    RPC_UNKNOWN = -1000,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_code_of_the_original_is_known_once() {
        assert_eq!(RequestCode::ALL.len(), 169);
        assert!(RequestCode::ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(RequestCode::POP_MESSAGE.name(), Some("POP_MESSAGE"));
        assert_eq!(RequestCode::from_name("SEND_MESSAGE_V2"), Some(RequestCode(310)));
        assert_eq!(RequestCode(99_999).name(), None);
    }

    #[test]
    fn every_response_code_of_the_original_is_known_once() {
        assert_eq!(ResponseCode::ALL.len(), 68);
        assert_eq!(ResponseCode::TOPIC_NOT_EXIST.name(), Some("TOPIC_NOT_EXIST"));
    }
}
