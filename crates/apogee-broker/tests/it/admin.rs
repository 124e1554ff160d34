//! What tools ask.

use crate::harness::{Fixture, Peer, pull_header, subscription};
use apogee_protocol::bodies::{
    ConsumeStats, ConsumerConnection, JsonBody, KVTable, MessageQueue, SubscriptionGroupConfig,
    TopicConfigAndMappingSerializeWrapper, TopicStatsTable,
};
use apogee_protocol::headers::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, GetConsumeStatsRequestHeader,
    GetConsumerConnectionListRequestHeader, GetTopicStatsInfoRequestHeader, NoHeader,
    QueryMessageRequestHeader, ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::Bytes;

async fn create(peer: &Peer, topic: &str, queues: i32, attributes: &str) -> RemotingCommand {
    let header = CreateTopicRequestHeader {
        topic: Str::from(topic.to_owned()),
        default_topic: Str::from_static("TBW102"),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_filter_type: Str::from_static("SINGLE_TAG"),
        attributes: Some(Str::from(attributes.to_owned())),
        ..CreateTopicRequestHeader::default()
    };
    peer.ask(RequestCode::UPDATE_AND_CREATE_TOPIC, &header).await
}

async fn commit(peer: &Peer, topic: &str, offset: i64) {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Str::from(topic.to_owned()),
        commit_offset: offset,
        ..UpdateConsumerOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
}

async fn delete(peer: &Peer, topic: &str) -> ResponseCode {
    let header = DeleteTopicRequestHeader {
        topic: Str::from(topic.to_owned()),
        ..DeleteTopicRequestHeader::default()
    };
    peer.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &header).await.response_code()
}

#[tokio::test]
async fn a_topic_is_created_changed_and_listed() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    assert_eq!(
        create(&peer, "T", 5, "+message.type=FIFO").await.response_code(),
        ResponseCode::SUCCESS
    );
    let answer = peer.ask(RequestCode::GET_ALL_TOPIC_CONFIG, &NoHeader).await;
    let all = TopicConfigAndMappingSerializeWrapper::from_json(&answer.body).unwrap();
    let topic = &all.topic_config_table["T"];
    assert_eq!((topic.read_queue_nums, topic.attributes["message.type"].as_str()), (5, "FIFO"));
    for name in
        ["TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"]
    {
        assert!(all.topic_config_table.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn attributes_and_system_topics_are_refused_as_the_original_does() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let answer = create(&peer, "T", 5, "+nosuch.attr=1").await;
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(answer.remark.as_deref(), Some("unsupported key: nosuch.attr"));
    assert_eq!(
        create(&peer, "SELF_TEST_TOPIC", 5, "").await.response_code(),
        ResponseCode::INVALID_PARAMETER
    );
    assert_eq!(delete(&peer, "SELF_TEST_TOPIC").await, ResponseCode::INVALID_PARAMETER);
    assert_eq!(
        create(&peer, "T", 70_000, "").await.response_code(),
        ResponseCode::INVALID_PARAMETER
    );
    assert_eq!(
        create(&peer, "T", 1, "+queue.type=BatchCQ").await.response_code(),
        ResponseCode::SYSTEM_ERROR
    );
}

#[tokio::test]
async fn a_topic_deleted_and_made_again_starts_at_zero_with_no_positions() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..10 {
        peer.send("T", 0, &format!("old {n}")).await;
    }
    commit(&peer, "T", 10).await;
    assert_eq!(delete(&peer, "T").await, ResponseCode::SUCCESS);
    for n in 0..5 {
        assert_eq!(peer.send("T", 0, &format!("new {n}")).await.queue_offset, n);
    }
    assert_eq!(peer.pull("T", 0, 0).await.bodies().len(), 5);
    let header = GetConsumeStatsRequestHeader {
        consumer_group: Str::from_static("CG"),
        ..GetConsumeStatsRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_CONSUME_STATS, &header).await;
    assert!(ConsumeStats::from_json(&answer.body).unwrap().offset_table.is_empty());
    let folder = fixture.stop().await.unwrap();
    let again = Fixture::open(folder.path(), |_, _| {}).await;
    let peer = again.connect().await;
    assert_eq!(peer.pull("T", 0, 0).await.bodies(), ["new 0", "new 1", "new 2", "new 3", "new 4"]);
}

#[tokio::test]
async fn topic_and_group_positions_are_shown() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..3 {
        peer.send("T", 0, &n.to_string()).await;
    }
    commit(&peer, "T", 2).await;
    let header = GetTopicStatsInfoRequestHeader {
        topic: Str::from_static("T"),
        ..GetTopicStatsInfoRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_TOPIC_STATS_INFO, &header).await;
    let table = TopicStatsTable::from_json(&answer.body).unwrap().offset_table;
    let queue = MessageQueue::new("T", "broker-a", 0);
    assert_eq!((table.len(), table[&queue].min_offset, table[&queue].max_offset), (4, 0, 3));
    assert!(table[&queue].last_update_timestamp > 1_700_000_000_000);
    let header = GetConsumeStatsRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Some(Str::from_static("T")),
        ..GetConsumeStatsRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_CONSUME_STATS, &header).await;
    let stats = ConsumeStats::from_json(&answer.body).unwrap();
    assert_eq!(
        (stats.offset_table[&queue].broker_offset, stats.offset_table[&queue].consumer_offset),
        (3, 2)
    );
}

#[tokio::test]
async fn messages_are_found_by_key_by_unique_key_and_by_place() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send_with("T", 0, "KEYS\u{1}k1 k2\u{2}UNIQ_KEY\u{1}U1\u{2}", "one").await;
    let second = peer.send_with("T", 0, "KEYS\u{1}k2\u{2}UNIQ_KEY\u{1}U2\u{2}", "two").await;
    for (key, unique, count) in
        [("k1", false, 1), ("k2", false, 2), ("U2", true, 1), ("none", false, 0)]
    {
        let header = QueryMessageRequestHeader {
            topic: Str::from_static("T"),
            key: Str::from(key.to_owned()),
            max_num: 32,
            end_timestamp: i64::MAX,
            ..QueryMessageRequestHeader::default()
        };
        let mut command = RemotingCommand::request(RequestCode::QUERY_MESSAGE, &header);
        command.ext.set("_UNIQUE_KEY_QUERY", if unique { "true" } else { "false" });
        let answer = peer.connection.invoke(command, crate::harness::TIMEOUT).await.unwrap();
        let pulled = crate::harness::Pulled {
            code: answer.response_code(),
            header: Default::default(),
            body: answer.body.clone(),
        };
        assert_eq!(pulled.bodies().len(), count, "{key}");
        let code = if count == 0 { ResponseCode::QUERY_NOT_FOUND } else { ResponseCode::SUCCESS };
        assert_eq!(pulled.code, code);
    }
    let place = apogee_model::id::OffsetId::parse(&second.msg_id).unwrap().physical_offset;
    let header = ViewMessageRequestHeader { topic: None, offset: place };
    let answer = peer.ask(RequestCode::VIEW_MESSAGE_BY_ID, &header).await;
    assert_eq!(apogee_model::RecordView::parse(&answer.body).unwrap().body(), b"two");
}

#[tokio::test]
async fn a_reset_is_told_to_the_member_that_waits() {
    let fixture = Fixture::start().await;
    let (member, tool) = (fixture.connect().await, fixture.connect().await);
    for n in 0..3 {
        member.send("T", 0, &n.to_string()).await;
    }
    commit(&member, "T", 3).await;
    let mut header = pull_header("CG", "T", 0, 3);
    header.sys_flag |= 2;
    header.suspend_timeout_millis = 15_000;
    let waiting = tokio::spawn(async move { member.pull_with(&header).await });
    while fixture.broker.waiting_pulls() == 0 {
        tokio::task::yield_now().await;
    }
    let header = ResetOffsetRequestHeader {
        group: Str::from_static("CG"),
        topic: Str::from_static("T"),
        queue_id: -1,
        timestamp: 0,
        is_force: true,
        ..ResetOffsetRequestHeader::default()
    };
    let answer = tool.ask(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    let told = waiting.await.unwrap();
    assert_eq!((told.code, told.header.next_begin_offset), (ResponseCode::PULL_OFFSET_MOVED, 0));
}

#[tokio::test]
async fn runtime_information_and_connections_are_shown() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.join("c1", "CG", vec![subscription("T", "A", 1)]).await;
    let answer = peer.ask(RequestCode::GET_BROKER_RUNTIME_INFO, &NoHeader).await;
    let table = KVTable::from_json(&answer.body).unwrap().table;
    for key in [
        "putTps",
        "getTransferredTps",
        "commitLogMaxOffset",
        "brokerVersionDesc",
        "runtime",
        "commitLogDiskRatio",
    ] {
        assert!(table.contains_key(key), "{key}");
    }
    let header = GetConsumerConnectionListRequestHeader {
        consumer_group: Str::from_static("CG"),
        ..GetConsumerConnectionListRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_CONSUMER_CONNECTION_LIST, &header).await;
    let shown = ConsumerConnection::from_json(&answer.body).unwrap();
    assert_eq!(shown.connection_set[0].client_id.as_deref(), Some("c1"));
    assert_eq!(shown.subscription_table["T"].sub_string.as_deref(), Some("A"));
}

#[tokio::test]
async fn a_group_that_may_not_consume_is_refused() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "x").await;
    let config = SubscriptionGroupConfig {
        group_name: "CG".to_owned(),
        consume_enable: false,
        ..SubscriptionGroupConfig::default()
    };
    let body = Bytes::from(config.to_raw());
    peer.ask_with(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &NoHeader, body).await;
    let answer = peer.ask(RequestCode::PULL_MESSAGE, &pull_header("CG", "T", 0, 0)).await;
    assert_eq!(answer.response_code(), ResponseCode::NO_PERMISSION);
}
