//! Statistics that tools ask for, and where groups stand in time.

use crate::harness::{Fixture, Peer, pull_header, subscription};
use apogee_protocol::bodies::{
    BrokerStatsData, BrokerStatsItem, ConsumeStats, GetConsumerStatusBody, JsonBody, KVTable,
    MessageQueue, QueryConsumeTimeSpanBody, QueryCorrectionOffsetBody, TopicStatsTable,
};
use apogee_protocol::headers::{
    ConsumerSendMsgBackRequestHeader, DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader, GetConsumeStatsRequestHeader, GetConsumerStatusRequestHeader,
    GetTopicStatsInfoRequestHeader, NoHeader, QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader, UpdateConsumerOffsetRequestHeader,
    ViewBrokerStatsDataRequestHeader,
};
use apogee_protocol::{RemotingCommand, ReplyTo, RequestCode, Response, ResponseCode, Str};
use std::collections::BTreeMap;

async fn view(peer: &Peer, name: &str, key: &str) -> RemotingCommand {
    let header = ViewBrokerStatsDataRequestHeader {
        stats_name: Str::from(name.to_owned()),
        stats_key: Str::from(key.to_owned()),
    };
    peer.ask(RequestCode::VIEW_BROKER_STATS_DATA, &header).await
}

async fn minute(peer: &Peer, name: &str, key: &str) -> BrokerStatsItem {
    let answer = view(peer, name, key).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{name} {key}: {:?}", answer.remark);
    BrokerStatsData::from_json(&answer.body).unwrap().stats_minute
}

async fn commit(peer: &Peer, group: &str, topic: &str, offset: i64) {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: Str::from(group.to_owned()),
        topic: Str::from(topic.to_owned()),
        commit_offset: offset,
        ..UpdateConsumerOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
}

/// Five messages of two bytes in queue 1 of `T`, read by `CG`.
async fn five_read(peer: &Peer) {
    for n in 0..5 {
        peer.send("T", 1, &format!("{n}!")).await;
    }
    assert_eq!(peer.pull("T", 1, 0).await.bodies().len(), 5);
}

#[tokio::test]
async fn sends_and_pulls_show_at_once_under_the_originals_keys() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    five_read(&peer).await;
    for (name, key, sum) in [
        ("TOPIC_PUT_NUMS", "T", 5),
        ("TOPIC_PUT_SIZE", "T", 10),
        ("QUEUE_PUT_NUMS", "T@1", 5),
        ("QUEUE_PUT_SIZE", "T@1", 10),
        ("GROUP_GET_NUMS", "T@CG", 5),
        ("QUEUE_GET_NUMS", "T@1@CG", 5),
        ("BROKER_PUT_NUMS", "DefaultCluster", 5),
        ("BROKER_GET_NUMS", "DefaultCluster", 5),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 5),
    ] {
        let item = minute(&peer, name, key).await;
        assert_eq!(item.sum, sum, "{name} {key}");
        assert!(item.tps > 0.0 && item.avgpt > 0.0, "{name} {key}: {item:?}");
    }
    assert!(minute(&peer, "GROUP_GET_SIZE", "T@CG").await.sum > 5 * 91);
    assert!(
        view(&peer, "GROUP_GET_LATENCY", "1@T@CG").await.response_code() == ResponseCode::SUCCESS
    );
    let all = BrokerStatsData::from_json(&view(&peer, "TOPIC_PUT_NUMS", "T").await.body).unwrap();
    assert_eq!((all.stats_hour.sum, all.stats_day.sum), (5, 5));
}

#[tokio::test]
async fn what_was_never_counted_is_refused_as_the_original_does() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for (name, key) in
        [("TOPIC_PUT_NUMS", "none"), ("NO_SUCH_STAT", "T"), ("GROUP_GET_NUMS", "@@@"), ("", "")]
    {
        let answer = view(&peer, name, key).await;
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
        assert_eq!(
            answer.remark.as_deref(),
            Some(format!("The stats <{name}> <{key}> not exist").as_str())
        );
    }
}

#[tokio::test]
async fn a_message_sent_back_counts_for_its_retry_topic() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    five_read(&peer).await;
    let offset = peer.pull("T", 1, 0).await.each(|record| record.physical_offset())[0];
    let header = ConsumerSendMsgBackRequestHeader {
        group: Str::from_static("CG"),
        offset,
        delay_level: -1,
        ..ConsumerSendMsgBackRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::CONSUMER_SEND_MSG_BACK, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(minute(&peer, "SNDBCK_PUT_NUMS", "%DLQ%CG@CG").await.sum, 1);
    assert_eq!(minute(&peer, "TOPIC_PUT_NUMS", "%DLQ%CG").await.sum, 1);
}

#[tokio::test]
async fn rates_stand_in_topic_and_group_statistics_and_in_the_runtime_table() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    five_read(&peer).await;
    let header = GetTopicStatsInfoRequestHeader {
        topic: Str::from_static("T"),
        ..GetTopicStatsInfoRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_TOPIC_STATS_INFO, &header).await;
    assert!(TopicStatsTable::from_json(&answer.body).unwrap().topic_put_tps > 0.0);
    let header = GetConsumeStatsRequestHeader {
        consumer_group: Str::from_static("CG"),
        topic: Some(Str::from_static("T")),
        ..GetConsumeStatsRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::GET_CONSUME_STATS, &header).await;
    assert!(ConsumeStats::from_json(&answer.body).unwrap().consume_tps > 0.0);
    let answer = peer.ask(RequestCode::GET_BROKER_RUNTIME_INFO, &NoHeader).await;
    let table = KVTable::from_json(&answer.body).unwrap().table;
    for (key, value) in [
        ("msgPutTotalTodayNow", "5"),
        ("msgGetTotalTodayNow", "5"),
        ("msgPutTotalTodayMorning", "0"),
        ("msgGetTotalYesterdayMorning", "0"),
        ("putMessageTimesTotal", "5"),
        ("putMessageSizeTotal", "10"),
        ("putMessageFailedTimes", "0"),
    ] {
        assert_eq!(table[key], value, "{key}");
    }
    assert!(
        table["putMessageDistributeTime"].starts_with("[<=0ms]:"),
        "{}",
        table["putMessageDistributeTime"]
    );
    for key in ["putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"] {
        assert_eq!(
            table[key].split(' ').filter(|rate| rate.parse::<f64>().is_ok()).count(),
            3,
            "{key}"
        );
    }
}

#[tokio::test]
async fn statistics_go_with_their_topic_and_their_group() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    five_read(&peer).await;
    let group = DeleteSubscriptionGroupRequestHeader {
        group_name: Str::from_static("CG"),
        ..DeleteSubscriptionGroupRequestHeader::default()
    };
    peer.ask(RequestCode::DELETE_SUBSCRIPTIONGROUP, &group).await;
    assert_eq!(
        view(&peer, "GROUP_GET_NUMS", "T@CG").await.response_code(),
        ResponseCode::SYSTEM_ERROR
    );
    assert_eq!(minute(&peer, "TOPIC_PUT_NUMS", "T").await.sum, 5);
    let topic = DeleteTopicRequestHeader {
        topic: Str::from_static("T"),
        ..DeleteTopicRequestHeader::default()
    };
    assert_eq!(
        peer.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &topic).await.response_code(),
        ResponseCode::SUCCESS
    );
    assert_eq!(
        view(&peer, "TOPIC_PUT_NUMS", "T").await.response_code(),
        ResponseCode::SYSTEM_ERROR
    );
}

#[tokio::test]
async fn a_groups_place_in_time_is_told_for_each_queue() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..3 {
        peer.send("T", 0, &n.to_string()).await;
    }
    commit(&peer, "CG", "T", 2).await;
    let ask = |topic: &'static str| QueryConsumeTimeSpanRequestHeader {
        topic: Str::from_static(topic),
        group: Str::from_static("CG"),
        ..QueryConsumeTimeSpanRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::QUERY_CONSUME_TIME_SPAN, &ask("T")).await;
    let spans = QueryConsumeTimeSpanBody::from_json(&answer.body).unwrap().consume_time_span_set;
    assert_eq!(spans.len(), 4);
    let queue = MessageQueue::new("T", "broker-a", 0);
    let read = spans.iter().find(|span| span.message_queue.as_ref() == Some(&queue)).unwrap();
    assert!(read.min_time_stamp > 1_700_000_000_000);
    assert!(
        read.min_time_stamp <= read.consume_time_stamp
            && read.consume_time_stamp <= read.max_time_stamp
    );
    assert!((0..60_000).contains(&read.delay_time));
    let empty = spans.iter().find(|span| span.message_queue.as_ref() != Some(&queue)).unwrap();
    assert_eq!((empty.min_time_stamp, empty.max_time_stamp, empty.delay_time), (-1, -1, 0));
    let answer = peer.ask(RequestCode::QUERY_CONSUME_TIME_SPAN, &ask("none")).await;
    assert_eq!(answer.response_code(), ResponseCode::TOPIC_NOT_EXIST);
}

#[tokio::test]
async fn the_lowest_position_of_all_groups_is_told_and_no_position_is_lost() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for n in 0..9 {
        peer.send("T", 0, &n.to_string()).await;
    }
    for (group, offset) in [("A", 3), ("B", 5), ("C", 8)] {
        commit(&peer, group, "T", offset).await;
    }
    let lowest = async |filter: &'static str, compare: &'static str| {
        let header = QueryCorrectionOffsetHeader {
            filter_groups: Some(Str::from_static(filter)),
            compare_group: Str::from_static(compare),
            topic: Str::from_static("T"),
            ..QueryCorrectionOffsetHeader::default()
        };
        let answer = peer.ask(RequestCode::QUERY_CORRECTION_OFFSET, &header).await;
        QueryCorrectionOffsetBody::from_json(&answer.body).unwrap().correction_offsets
    };
    assert_eq!(lowest("", "C").await, BTreeMap::from([(0, 3)]));
    assert_eq!(lowest("A", "C").await, BTreeMap::from([(0, 5)]));
    assert_eq!(lowest("A", "A").await, BTreeMap::from([(0, i64::MAX)]));
    assert_eq!(lowest("", "none").await, BTreeMap::from([(0, 3)]));
    assert_eq!(lowest("A,B,C", "A").await, BTreeMap::new());
}

#[tokio::test]
async fn members_are_asked_for_the_positions_they_hold() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let mut member = fixture.connect().await;
    let header = GetConsumerStatusRequestHeader {
        topic: Str::from_static("T"),
        group: Str::from_static("CG"),
        ..GetConsumerStatusRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    member.join("me", "CG", vec![subscription("T", "*", 1)]).await;
    let queue = MessageQueue::new("T", "broker-a", 2);
    let held = GetConsumerStatusBody {
        message_queue_table: BTreeMap::from([(queue.clone(), 7)]),
        ..GetConsumerStatusBody::default()
    };
    let reply = async {
        loop {
            let request = member.next_request().await;
            if request.code == RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT.0 {
                member
                    .connection
                    .reply(ReplyTo::from(&request), Response::success().body(held.to_raw()));
                return;
            }
        }
    };
    let (answer, ()) =
        tokio::join!(peer.ask(RequestCode::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, &header), reply);
    let table = GetConsumerStatusBody::from_json(&answer.body).unwrap().consumer_table;
    assert_eq!(table["me"][&queue], 7);
}

#[tokio::test]
async fn a_group_that_reads_too_far_behind_is_stopped_only_if_settings_say_so() {
    for guarded in [false, true] {
        let fixture = Fixture::start_with(|broker, _| {
            broker.disable_consume_if_consumer_read_slowly = guarded;
            broker.consumer_fallbehind_threshold = 1_000;
        })
        .await;
        let peer = fixture.connect().await;
        for _ in 0..10 {
            peer.send("T", 0, &"x".repeat(200)).await;
        }
        for (group, offset) in [("SLOW", 1), ("NEAR", 9), ("DONE", 10)] {
            peer.join("me", group, vec![subscription("T", "*", 1)]).await;
            commit(&peer, group, "T", offset).await;
        }
        fixture.broker.look_at_water_marks();
        let refused = async |group: &'static str| {
            let answer = peer.ask(RequestCode::PULL_MESSAGE, &pull_header(group, "T", 0, 9)).await;
            answer.response_code() == ResponseCode::NO_PERMISSION
        };
        assert_eq!(refused("SLOW").await, guarded);
        assert!(!refused("NEAR").await && !refused("DONE").await);
    }
}

#[tokio::test]
async fn missing_header_fields_are_named() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    for (code, field) in [
        (RequestCode::VIEW_BROKER_STATS_DATA, "statsName"),
        (RequestCode::QUERY_CONSUME_TIME_SPAN, "topic"),
        (RequestCode::QUERY_CORRECTION_OFFSET, "compareGroup"),
        (RequestCode::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "topic"),
    ] {
        let answer = peer.ask(code, &NoHeader).await;
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
        assert!(
            answer.remark.as_deref().unwrap_or_default().contains(field),
            "{:?}",
            answer.remark
        );
    }
}
