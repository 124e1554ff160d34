//! Registration and routes: what brokers, name servers and clients tell each other about topics.

use super::json::{JsonKey, JsonWriter, bodies, names};
use std::collections::{BTreeMap, BTreeSet};

names! {
    /// Whether a message of a topic has one tag or several.
    TopicFilterType(SingleTag) {
        SingleTag = "SINGLE_TAG",
        MultiTag = "MULTI_TAG",
    }
}

bodies! {
    /// Version of a table of configuration. Two versions are the same when all three numbers are.
    #[derive(Eq)]
    DataVersion {
        counter: i64 = "counter";
        state_version: i64 = "stateVersion";
        /// Milliseconds since 1970.
        timestamp: i64 = "timestamp";
    }

    /// A topic as its broker keeps it.
    #[derive(Eq)]
    TopicConfig {
        attributes: BTreeMap<String, String> = "attributes";
        order: bool = "order";
        /// Bits: 4 read, 2 write, 1 inherit.
        perm: i32 = "perm", 6;
        read_queue_nums: i32 = "readQueueNums", 16;
        topic_filter_type: TopicFilterType = "topicFilterType";
        topic_name: String = "topicName";
        topic_sys_flag: i32 = "topicSysFlag";
        write_queue_nums: i32 = "writeQueueNums", 16;
    }

    /// A stretch of a static topic's logical queue.
    #[derive(Eq)]
    LogicQueueMappingItem {
        bname: Option<String> = "bname";
        end_offset: i64 = "endOffset", -1;
        generation: i32 = "gen";
        logic_offset: i64 = "logicOffset";
        queue_id: i32 = "queueId";
        start_offset: i64 = "startOffset";
        time_of_end: i64 = "timeOfEnd", -1;
        time_of_start: i64 = "timeOfStart", -1;
    }

    /// Which logical queues of a static topic a broker leads.
    #[derive(Eq)]
    TopicQueueMappingInfo {
        bname: Option<String> = "bname";
        /// Logical queue id to physical queue id.
        curr_id_map: BTreeMap<i32, i32> = "currIdMap";
        dirty: bool = "dirty";
        epoch: i64 = "epoch";
        scope: Option<String> = "scope";
        topic: Option<String> = "topic";
        total_queues: i32 = "totalQueues";
    }

    /// The same with every stretch of the queues.
    #[derive(Eq)]
    TopicQueueMappingDetail {
        bname: Option<String> = "bname";
        curr_id_map: BTreeMap<i32, i32> = "currIdMap";
        dirty: bool = "dirty";
        epoch: i64 = "epoch";
        hosted_queues: BTreeMap<i32, Vec<LogicQueueMappingItem>> = "hostedQueues";
        scope: Option<String> = "scope";
        topic: Option<String> = "topic";
        total_queues: i32 = "totalQueues";
    }

    /// `topics.json`.
    TopicConfigSerializeWrapper {
        data_version: DataVersion = "dataVersion";
        topic_config_table: BTreeMap<String, TopicConfig> = "topicConfigTable";
    }

    /// All topics of a broker with their static mappings: answer to GET_ALL_TOPIC_CONFIG, part of a registration.
    TopicConfigAndMappingSerializeWrapper {
        data_version: DataVersion = "dataVersion";
        mapping_data_version: Option<DataVersion> = "mappingDataVersion";
        topic_config_table: BTreeMap<String, TopicConfig> = "topicConfigTable";
        topic_queue_mapping_detail_map: BTreeMap<String, TopicQueueMappingDetail> = "topicQueueMappingDetailMap";
        topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingInfo> = "topicQueueMappingInfoMap";
    }

    /// `topicQueueMapping.json`.
    TopicQueueMappingSerializeWrapper {
        data_version: DataVersion = "dataVersion";
        topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingDetail> = "topicQueueMappingInfoMap";
    }

    /// Body of REGISTER_BROKER; its binary form is in `register.rs`.
    RegisterBrokerBody {
        filter_server_list: Vec<String> = "filterServerList";
        topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = "topicConfigSerializeWrapper";
    }

    /// A group of brokers with one name.
    #[derive(Eq)]
    BrokerData {
        /// Broker id (0 = master) to address.
        broker_addrs: BTreeMap<i64, String> = "brokerAddrs";
        broker_name: String = "brokerName";
        cluster: Option<String> = "cluster";
        enable_acting_master: bool = "enableActingMaster";
        zone_name: Option<String> = "zoneName";
    }

    /// The queues of a topic on one group of brokers.
    #[derive(Eq, PartialOrd, Ord)]
    QueueData {
        broker_name: String = "brokerName";
        perm: i32 = "perm";
        read_queue_nums: i32 = "readQueueNums";
        topic_sys_flag: i32 = "topicSysFlag";
        write_queue_nums: i32 = "writeQueueNums";
    }

    /// The route of a topic.
    TopicRouteData {
        broker_datas: Vec<BrokerData> = "brokerDatas";
        filter_server_table: BTreeMap<String, Vec<String>> = "filterServerTable";
        order_topic_conf: Option<String> = "orderTopicConf";
        queue_datas: Vec<QueueData> = "queueDatas";
        topic_queue_mapping_by_broker: Option<BTreeMap<String, TopicQueueMappingInfo>> = "topicQueueMappingByBroker";
    }

    /// Every broker of every cluster.
    ClusterInfo {
        broker_addr_table: BTreeMap<String, BrokerData> = "brokerAddrTable";
        /// Cluster to broker names.
        cluster_addr_table: BTreeMap<String, BTreeSet<String>> = "clusterAddrTable";
    }

    /// The brokers of one name.
    #[derive(Eq)]
    BrokerMemberGroup {
        broker_addrs: BTreeMap<i64, String> = "brokerAddrs";
        broker_name: Option<String> = "brokerName";
        cluster: Option<String> = "cluster";
    }

    /// Answer to GET_BROKER_MEMBER_GROUP.
    GetBrokerMemberGroupResponseBody {
        broker_member_group: Option<BrokerMemberGroup> = "brokerMemberGroup";
    }

    /// Names and values: runtime information, a namespace of the key-value configuration.
    #[derive(Eq)]
    KVTable {
        table: BTreeMap<String, String> = "table";
    }

    /// `kvConfig.json`.
    #[derive(Eq)]
    KVConfigSerializeWrapper {
        /// Namespace to key to value.
        config_table: BTreeMap<String, BTreeMap<String, String>> = "configTable";
    }

    /// Names of topics.
    #[derive(Eq)]
    TopicList {
        broker_addr: Option<String> = "brokerAddr";
        topic_list: Vec<String> = "topicList";
    }

    /// A queue of a topic on a broker group. Also a map key.
    #[derive(Eq, Hash, PartialOrd, Ord)]
    MessageQueue {
        broker_name: String = "brokerName";
        queue_id: i32 = "queueId";
        topic: String = "topic";
    }

    /// Body of UPDATE_AND_CREATE_TOPIC_LIST.
    CreateTopicListRequestBody {
        topic_config_list: Vec<TopicConfig> = "topicConfigList";
    }

    /// Answer to GET_TOPIC_CONFIG.
    TopicConfigAndQueueMapping {
        attributes: BTreeMap<String, String> = "attributes";
        mapping_detail: Option<TopicQueueMappingDetail> = "mappingDetail";
        order: bool = "order";
        perm: i32 = "perm", 6;
        read_queue_nums: i32 = "readQueueNums", 16;
        topic_filter_type: TopicFilterType = "topicFilterType";
        topic_name: String = "topicName";
        topic_sys_flag: i32 = "topicSysFlag";
        write_queue_nums: i32 = "writeQueueNums", 16;
    }
}

impl JsonKey for MessageQueue {
    fn from_key(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn write_key(&self, writer: &mut JsonWriter) {
        writer.object_key(self);
    }
}

impl DataVersion {
    /// Moves on to the next version at `now_ms`.
    pub fn next(&mut self, now_ms: i64, state_version: i64) {
        self.timestamp = now_ms;
        self.state_version = state_version;
        self.counter = self.counter.wrapping_add(1);
    }
}

impl MessageQueue {
    /// A queue.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        MessageQueue { broker_name: broker_name.into(), queue_id, topic: topic.into() }
    }
}

impl TopicConfigAndQueueMapping {
    /// The topic without its mapping.
    pub fn into_config(self) -> TopicConfig {
        TopicConfig {
            attributes: self.attributes,
            order: self.order,
            perm: self.perm,
            read_queue_nums: self.read_queue_nums,
            topic_filter_type: self.topic_filter_type,
            topic_name: self.topic_name,
            topic_sys_flag: self.topic_sys_flag,
            write_queue_nums: self.write_queue_nums,
        }
    }
}

impl From<TopicConfig> for TopicConfigAndQueueMapping {
    fn from(config: TopicConfig) -> Self {
        TopicConfigAndQueueMapping {
            attributes: config.attributes,
            mapping_detail: None,
            order: config.order,
            perm: config.perm,
            read_queue_nums: config.read_queue_nums,
            topic_filter_type: config.topic_filter_type,
            topic_name: config.topic_name,
            topic_sys_flag: config.topic_sys_flag,
            write_queue_nums: config.write_queue_nums,
        }
    }
}
