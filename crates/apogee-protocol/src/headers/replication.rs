//! Broker to broker (replicas, metadata), and users and policies.
//!
//! Tables only; how they read is told in [`super`].

use super::table::*;

headers! {
    /// Request GET_ALL_TOPIC_CONFIG (21).
    GetAllTopicConfigRequestHeader {
        req topic_seq: i32 = "topicSeq",
        opt data_version: Str = "dataVersion",
        opt max_topic_num: i32 = "maxTopicNum",
    }

    /// Answer to GET_ALL_TOPIC_CONFIG (21).
    GetAllTopicConfigResponseHeader {
        req total_topic_num: i32 = "totalTopicNum",
    }

    /// Request GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201).
    GetAllSubscriptionGroupRequestHeader {
        req group_seq: i32 = "groupSeq",
        opt data_version: Str = "dataVersion",
        opt max_group_num: i32 = "maxGroupNum",
    }

    /// Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201).
    GetAllSubscriptionGroupResponseHeader {
        req total_group_num: i32 = "totalGroupNum",
    }

    /// Request EXCHANGE_BROKER_HA_INFO (906).
    ExchangeHAInfoRequestHeader {
        opt master_ha_address: Str = "masterHaAddress",
        opt master_flush_offset: i64 = "masterFlushOffset",
        opt master_address: Str = "masterAddress",
    }

    /// Answer to EXCHANGE_BROKER_HA_INFO (906).
    ExchangeHAInfoResponseHeader {
        opt master_ha_address: Str = "masterHaAddress",
        opt master_flush_offset: i64 = "masterFlushOffset",
        opt master_address: Str = "masterAddress",
    }

    /// Request RESET_MASTER_FLUSH_OFFSET (908).
    ResetMasterFlushOffsetHeader {
        req master_flush_offset: i64 = "masterFlushOffset",
    }

    /// Request AUTH_CREATE_USER (3001).
    CreateUserRequestHeader {
        opt username: Str = "username",
    }

    /// Request AUTH_UPDATE_USER (3002).
    UpdateUserRequestHeader {
        opt username: Str = "username",
    }

    /// Request AUTH_DELETE_USER (3003).
    DeleteUserRequestHeader {
        opt username: Str = "username",
    }

    /// Request AUTH_GET_USER (3004).
    GetUserRequestHeader {
        opt username: Str = "username",
    }

    /// Request AUTH_LIST_USER (3005).
    ListUsersRequestHeader {
        opt filter: Str = "filter",
    }

    /// Request AUTH_CREATE_ACL (3006).
    CreateAclRequestHeader {
        opt subject: Str = "subject",
    }

    /// Request AUTH_UPDATE_ACL (3007).
    UpdateAclRequestHeader {
        opt subject: Str = "subject",
    }

    /// Request AUTH_DELETE_ACL (3008).
    DeleteAclRequestHeader {
        opt subject: Str = "subject",
        opt policy_type: Str = "policyType",
        opt resource: Str = "resource",
    }

    /// Request AUTH_GET_ACL (3009).
    GetAclRequestHeader {
        opt subject: Str = "subject",
    }

    /// Request AUTH_LIST_ACL (3010).
    ListAclsRequestHeader {
        opt subject_filter: Str = "subjectFilter",
        opt resource_filter: Str = "resourceFilter",
    }
}
