//! Name server: registration, routes, key-value configuration.
//!
//! Tables only; how they read is told in [`super`].

use super::table::*;

headers! {
    /// Request PUT_KV_CONFIG (100).
    PutKVConfigRequestHeader {
        req namespace: Str = "namespace",
        req key: Str = "key",
        req value: Str = "value",
    }

    /// Request GET_KV_CONFIG (101).
    GetKVConfigRequestHeader {
        req namespace: Str = "namespace",
        req key: Str = "key",
    }

    /// Answer to GET_KV_CONFIG (101).
    GetKVConfigResponseHeader {
        opt value: Str = "value",
    }

    /// Request DELETE_KV_CONFIG (102).
    DeleteKVConfigRequestHeader {
        req namespace: Str = "namespace",
        req key: Str = "key",
    }

    /// Request REGISTER_BROKER (103).
    RegisterBrokerRequestHeader {
        req broker_name: Str = "brokerName",
        req broker_addr: Str = "brokerAddr",
        req cluster_name: Str = "clusterName",
        req ha_server_addr: Str = "haServerAddr",
        req broker_id: i64 = "brokerId",
        opt heartbeat_timeout_millis: i64 = "heartbeatTimeoutMillis",
        opt enable_acting_master: bool = "enableActingMaster",
        def compressed: bool = "compressed",
        opt body_crc32: i32 = "bodyCrc32",
    }

    /// Answer to REGISTER_BROKER (103).
    RegisterBrokerResponseHeader {
        opt ha_server_addr: Str = "haServerAddr",
        opt master_addr: Str = "masterAddr",
    }

    /// Request UNREGISTER_BROKER (104).
    UnRegisterBrokerRequestHeader {
        req broker_name: Str = "brokerName",
        req broker_addr: Str = "brokerAddr",
        req cluster_name: Str = "clusterName",
        req broker_id: i64 = "brokerId",
    }

    /// Request GET_ROUTEINFO_BY_TOPIC (105).
    GetRouteInfoRequestHeader + rpc {
        req topic: Str = "topic",
        opt accept_standard_json_only: bool = "acceptStandardJsonOnly",
    }

    /// Request WIPE_WRITE_PERM_OF_BROKER (205).
    WipeWritePermOfBrokerRequestHeader {
        req broker_name: Str = "brokerName",
    }

    /// Answer to WIPE_WRITE_PERM_OF_BROKER (205).
    WipeWritePermOfBrokerResponseHeader {
        req wipe_topic_count: i32 = "wipeTopicCount",
    }

    /// Request DELETE_TOPIC_IN_NAMESRV (216).
    DeleteTopicFromNamesrvRequestHeader + rpc {
        req topic: Str = "topic",
        opt cluster_name: Str = "clusterName",
    }

    /// Request REGISTER_TOPIC_IN_NAMESRV (217).
    RegisterTopicRequestHeader + rpc {
        req topic: Str = "topic",
    }

    /// Request GET_KVLIST_BY_NAMESPACE (219).
    GetKVListByNamespaceRequestHeader {
        req namespace: Str = "namespace",
    }

    /// Request GET_TOPICS_BY_CLUSTER (224).
    GetTopicsByClusterRequestHeader {
        req cluster: Str = "cluster",
    }

    /// Request QUERY_DATA_VERSION (322).
    QueryDataVersionRequestHeader {
        req broker_name: Str = "brokerName",
        req broker_addr: Str = "brokerAddr",
        req cluster_name: Str = "clusterName",
        req broker_id: i64 = "brokerId",
    }

    /// Answer to QUERY_DATA_VERSION (322).
    QueryDataVersionResponseHeader {
        req changed: bool = "changed",
    }

    /// Request ADD_WRITE_PERM_OF_BROKER (327).
    AddWritePermOfBrokerRequestHeader {
        req broker_name: Str = "brokerName",
    }

    /// Answer to ADD_WRITE_PERM_OF_BROKER (327).
    AddWritePermOfBrokerResponseHeader {
        req add_topic_count: i32 = "addTopicCount",
    }

    /// Request GET_BROKER_MEMBER_GROUP (901).
    GetBrokerMemberGroupRequestHeader {
        req cluster_name: Str = "clusterName",
        req broker_name: Str = "brokerName",
    }

    /// Request BROKER_HEARTBEAT (904).
    BrokerHeartbeatRequestHeader {
        req cluster_name: Str = "clusterName",
        req broker_addr: Str = "brokerAddr",
        req broker_name: Str = "brokerName",
        opt broker_id: i64 = "brokerId",
        opt epoch: i32 = "epoch",
        opt max_offset: i64 = "maxOffset",
        opt confirm_offset: i64 = "confirmOffset",
        opt heartbeat_timeout_mills: i64 = "heartbeatTimeoutMills",
        opt election_priority: i32 = "electionPriority",
    }

    /// Request NOTIFY_MIN_BROKER_ID_CHANGE (905).
    NotifyMinBrokerIdChangeRequestHeader {
        opt min_broker_id: i64 = "minBrokerId",
        opt broker_name: Str = "brokerName",
        opt min_broker_addr: Str = "minBrokerAddr",
        opt offline_broker_addr: Str = "offlineBrokerAddr",
        opt ha_broker_addr: Str = "haBrokerAddr",
    }
}
