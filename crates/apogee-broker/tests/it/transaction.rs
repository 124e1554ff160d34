//! Half messages, their ends, and being asked about them.

use crate::harness::{Fixture, send_header};
use crate::transaction_kit::{
    COMMIT, GIVEN_UP, HALF, Half, OP, ROLLBACK, UNKNOWN, bodies, eager, eager_fixture, end_header,
    half_properties, op_offsets, records, until,
};
use apogee_broker::now_ms;
use apogee_model::RecordView;
use apogee_model::id::OffsetId;
use apogee_model::record::RecordFields;
use apogee_protocol::headers::{
    CheckTransactionStateRequestHeader, ResumeCheckHalfMessageRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use apogee_store::Appending;
use std::net::SocketAddr;

const SUCCESS: ResponseCode = ResponseCode::SUCCESS;
const ENDED: ResponseCode = ResponseCode::ILLEGAL_OPERATION;
const WRONG: ResponseCode = ResponseCode::SYSTEM_ERROR;

#[tokio::test]
async fn a_half_message_is_stored_as_the_original_stores_it_and_nobody_sees_it() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let told = peer.half_with("T", 1, &half_properties("0A"), "x").await;
    assert_eq!((told.queue_id, told.queue_offset), (1, 0));
    assert_eq!(told.transaction_id.as_deref(), Some("0A"));
    let stored = records(fixture.broker.store(), HALF, 0).remove(0);
    assert_eq!((stored.body.as_str(), stored.sys_flag, stored.prepared), ("x", 0, 0));
    let expected = [
        ("CLUSTER", "DefaultCluster"),
        ("KEYS", "k-0A"),
        ("MSG_REGION", "DefaultRegion"),
        ("PGROUP", "PG"),
        ("REAL_QID", "1"),
        ("REAL_TOPIC", "T"),
        ("TAGS", "TagX"),
        ("TRACE_ON", "true"),
        ("TRAN_MSG", "true"),
        ("UNIQ_KEY", "0A"),
        ("WAIT", "true"),
        ("__transactionId__", "0A"),
    ];
    let pairs: Vec<_> =
        stored.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(pairs, expected);
    assert_eq!(fixture.broker.store().max_offset("T", 1), 0);
}

#[tokio::test]
async fn a_commit_delivers_the_message_and_leaves_an_op_message() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.half_with("T", 1, &half_properties("first"), "other").await;
    let half = peer.half("T", "0A").await;
    assert_eq!(peer.end_code(&half, COMMIT).await, SUCCESS);
    assert_eq!(peer.pull_all("T", 0, 0, 1).await, ["0A"]);
    let stored = records(fixture.broker.store(), "T", 0).remove(0);
    assert_eq!((stored.sys_flag, stored.prepared), (8, half.physical));
    let names: Vec<_> = stored.properties.keys().map(String::as_str).collect();
    let expected = [
        "CLUSTER",
        "KEYS",
        "MSG_REGION",
        "PGROUP",
        "TAGS",
        "TRACE_ON",
        "TRAN_MSG",
        "UNIQ_KEY",
        "WAIT",
        "__transactionId__",
    ];
    assert_eq!(names, expected);
    let op = records(fixture.broker.store(), OP, 0).remove(0);
    assert_eq!((op.body.as_str(), op.sys_flag, op.property("TAGS")), ("1,", 0, Some("d")));
    assert!(op.physical > stored.physical, "the final message comes first");
}

#[tokio::test]
async fn a_rollback_leaves_an_op_message_only() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let half = peer.half("T", "0A").await;
    assert_eq!(peer.end_code(&half, ROLLBACK).await, SUCCESS);
    assert_eq!(bodies(fixture.broker.store(), OP, 0), ["0,"]);
    assert_eq!(fixture.broker.store().max_offset("T", 0), 0);
    assert_eq!(peer.end_code(&half, COMMIT).await, ENDED);
}

#[tokio::test]
async fn one_way_ends_count_too() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let half = peer.half("T", "0A").await;
    let mut command =
        RemotingCommand::request(RequestCode::END_TRANSACTION, &end_header(&half, COMMIT)).oneway();
    command.opaque = peer.connection.next_opaque();
    peer.connection.send(&command);
    assert_eq!(peer.pull_all("T", 0, 0, 1).await, ["0A"]);
}

#[tokio::test]
async fn unknown_changes_nothing_and_an_unknown_word_is_refused() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let half = peer.half("T", "0A").await;
    assert_eq!(peer.end_code(&half, UNKNOWN).await, SUCCESS);
    assert_eq!(peer.end_code(&half, 5).await, WRONG);
    assert_eq!(fixture.broker.store().max_offset(OP, 0), 0);
    assert_eq!(peer.end_code(&half, COMMIT).await, SUCCESS);
}

/// every order of three ends, before and after the producer was asked, by each copy.
#[tokio::test]
async fn the_first_end_wins_in_every_order_and_by_every_copy() {
    let fixture = eager_fixture().await;
    let (peer, mut producer) = (fixture.connect().await, fixture.connect().await);
    producer.produce("A").await;
    let mut delivered = Vec::new();
    for case in 0..32 {
        let key = format!("case-{case}");
        let first = peer.half("T", &key).await;
        let copy = loop {
            let (copy, _) = producer.asked().await;
            if copy.key == key {
                break copy;
            }
        };
        assert_ne!(copy, first);
        let mut codes = Vec::new();
        for place in 0..3 {
            let how = if case >> place & 1 == 0 { COMMIT } else { ROLLBACK };
            let named = if case >> 3 & 1 == place & 1 { &first } else { &copy };
            codes.push(peer.end_code(named, how).await);
            if case >> 4 & 1 == 1 {
                codes.push(peer.end_code(named, UNKNOWN).await);
            }
        }
        codes.retain(|code| *code != SUCCESS || case >> 4 & 1 == 0);
        let refused = codes.iter().filter(|code| **code == ENDED).count();
        assert_eq!(refused, 2, "{case}: {codes:?}");
        if case & 1 == 0 {
            delivered.push(key);
        }
    }
    assert_eq!(peer.pull_all("T", 0, 0, delivered.len()).await, delivered);
    // A sentinel is asked about three times: by then every ended one would have been, too.
    peer.half("T", "sentinel").await;
    for _ in 0..3 {
        while producer.asked().await.0.key != "sentinel" {}
    }
    while let Ok(request) = producer.requests.try_recv() {
        let header: CheckTransactionStateRequestHeader = request.header().unwrap();
        assert_eq!(header.msg_id.as_deref(), Some("sentinel"));
    }
    assert_eq!(bodies(fixture.broker.store(), "T", 0), delivered);
}

#[tokio::test]
async fn an_end_about_another_message_is_refused_and_the_transaction_still_waits() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let plain = peer.send("P", 0, "plain").await;
    let half = peer.half("T", "0A").await;
    let plain_at = apogee_model::id::OffsetId::parse(&plain.msg_id).unwrap().physical_offset;
    let wrong = [
        (Half { offset: 1, ..half.clone() }, "state table offset"),
        (Half { physical: half.physical + 1, ..half.clone() }, "Find prepared"),
        (Half { physical: -1, ..half.clone() }, "Find prepared"),
        (Half { physical: i64::MAX, ..half.clone() }, "Find prepared"),
        (Half { physical: plain_at, ..half.clone() }, "Find prepared"),
    ];
    for (named, reason) in wrong {
        let answer = peer.end(&named, COMMIT).await;
        assert_eq!(answer.response_code(), WRONG, "{named:?}");
        assert!(answer.remark.as_deref().unwrap().contains(reason), "{:?}", answer.remark);
    }
    let mut header = end_header(&half, COMMIT);
    header.producer_group = "other".into();
    let answer = peer.ask(RequestCode::END_TRANSACTION, &header).await;
    assert_eq!(answer.response_code(), WRONG);
    assert!(answer.remark.as_deref().unwrap().starts_with("The producer group wrong"));
    assert_eq!(peer.end_code(&half, COMMIT).await, SUCCESS);
}

/// the age counts from the store time by the broker's clock.
#[tokio::test]
async fn a_producers_clock_does_not_bring_its_check_forward_or_put_it_off() {
    let fixture = Fixture::start_with(|config, _| {
        eager(config);
        config.transaction_time_out = 400;
    })
    .await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    let began = now_ms();
    for (key, skew) in [("slow", -120_000), ("fast", 120_000)] {
        let mut header = send_header("T", 0, &half_properties(key));
        header.born_timestamp = now_ms() + skew;
        assert_eq!(peer.try_send(&header, b"x").await.response_code(), SUCCESS);
    }
    let mut keys = Vec::new();
    while keys.len() < 2 {
        let (half, _) = peer.asked().await;
        assert!(now_ms() - began > 400, "{half:?}");
        keys.push(half.key);
        keys.dedup();
    }
    keys.sort();
    assert_eq!(keys, ["fast", "slow"]);
}

#[tokio::test]
async fn a_check_shows_the_message_as_its_consumers_will_see_it() {
    let fixture = eager_fixture().await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    peer.half_with("T", 3, &half_properties("0A"), "x").await;
    let (copy, request) = peer.asked().await;
    let header: CheckTransactionStateRequestHeader = request.header().unwrap();
    assert_eq!(header.topic.as_deref(), Some(HALF));
    assert_eq!(header.transaction_id.as_deref(), Some("0A"));
    assert_eq!(header.rpc.broker_name.as_deref(), Some("broker-a"));
    let record = RecordView::parse(&request.body).unwrap();
    assert_eq!((record.topic(), record.queue_id(), record.body()), ("T", 3, &b"x"[..]));
    assert_eq!((record.queue_offset(), record.physical_offset()), (copy.offset, copy.physical));
    let property = |name: &str| record.properties().get(name);
    assert_eq!((property("TRANSACTION_CHECK_TIMES"), property("PGROUP")), (Some("1"), Some("PG")));
    assert!(request.is_oneway());
    let stored = records(fixture.broker.store(), HALF, 0);
    assert_eq!(stored[1].physical, copy.physical);
    assert_eq!(stored[1].property("TRAN_PREPARED_QUEUE_OFFSET"), Some("0"));
    let mut answer = end_header(&copy, COMMIT);
    answer.from_transaction_check = Some(true);
    assert_eq!(peer.ask(RequestCode::END_TRANSACTION, &answer).await.response_code(), SUCCESS);
    let delivered = records(fixture.broker.store(), "T", 3).remove(0);
    assert_eq!((delivered.prepared, delivered.queue_id), (copy.physical, 3));
    assert_eq!(delivered.property("TRAN_PREPARED_QUEUE_OFFSET"), None);
}

#[tokio::test]
async fn after_the_last_check_a_half_message_is_given_up_once() {
    let fixture = Fixture::start_with(|config, _| {
        eager(config);
        config.transaction_check_max = 3;
    })
    .await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    let half = peer.half("T", "0A").await;
    let store = fixture.broker.store();
    until("the discard topic", || store.max_offset(GIVEN_UP, 0) == 1).await;
    let mut copies = Vec::new();
    while let Ok(request) = peer.requests.try_recv() {
        let header: CheckTransactionStateRequestHeader = request.header().unwrap();
        copies.push(header.tran_state_table_offset);
    }
    assert_eq!(copies, [1, 2, 3]);
    let stored = records(store, GIVEN_UP, 0).remove(0);
    assert_eq!(stored.property("TRANSACTION_CHECK_TIMES"), Some("3"));
    assert_eq!(
        (stored.property("REAL_TOPIC"), stored.property("REAL_QID")),
        (Some("T"), Some("0"))
    );
    assert_eq!(peer.end_code(&half, COMMIT).await, ENDED);
    until("op messages", || op_offsets(store) == [0, 1, 2, 3]).await;
    assert_eq!(store.max_offset("T", 0), 0);
}

#[tokio::test]
async fn what_was_given_up_can_be_asked_about_again_and_waits_through_a_restart() {
    let fixture = Fixture::start_with(|config, _| {
        eager(config);
        config.transaction_check_max = 1;
    })
    .await;
    let peer = fixture.connect().await;
    let half = peer.half("T", "0A").await;
    let store = fixture.broker.store();
    until("the discard topic", || store.max_offset(GIVEN_UP, 0) == 1).await;
    let folder = fixture.stop().await.unwrap();
    // One that asks after 30 s at the earliest.
    let fixture = Fixture::open(folder.path(), |_, _| {}).await;
    let peer = fixture.connect().await;
    let store = fixture.broker.store();
    let id = |physical_offset: i64| {
        OffsetId { host: "127.0.0.1:1".parse().unwrap(), physical_offset }.to_string().into()
    };
    let resume = |physical: i64| ResumeCheckHalfMessageRequestHeader {
        msg_id: Some(id(physical)),
        ..ResumeCheckHalfMessageRequestHeader::default()
    };
    let given_up = records(store, GIVEN_UP, 0).remove(0).physical;
    for (physical, code) in
        [(half.physical, WRONG), (-1, WRONG), (given_up, SUCCESS), (given_up, WRONG)]
    {
        let answer = peer.ask(RequestCode::RESUME_CHECK_HALF_MESSAGE, &resume(physical)).await;
        assert_eq!(answer.response_code(), code, "{:?}", answer.remark);
    }
    fixture.stop().await;
    let again = Fixture::open(folder.path(), |config, _| eager(config)).await;
    let mut peer = again.connect().await;
    peer.produce("A").await;
    let (copy, _) = peer.asked().await;
    assert_eq!(peer.end_code(&half, COMMIT).await, ENDED);
    assert_eq!(peer.end_code(&copy, COMMIT).await, SUCCESS);
    assert_eq!(bodies(again.broker.store(), "T", 0), ["0A"]);
}

#[tokio::test]
async fn half_messages_that_name_nobody_or_are_too_big_do_not_stop_the_others() {
    let fixture = eager_fixture().await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    let host: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let full = format!(
        "PGROUP\u{1}PG\u{2}REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}0\u{2}X\u{1}{}\u{2}",
        "x".repeat(32_700)
    );
    for properties in [
        "",
        "PGROUP\u{1}PG\u{2}",
        "PGROUP\u{1}PG\u{2}REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}-1\u{2}",
        &full,
    ] {
        let fields = RecordFields {
            topic: HALF,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"bad",
            properties: properties.as_bytes(),
        };
        fixture.broker.store().append(&mut [Appending::new(fields)], now_ms()).unwrap();
    }
    peer.half("T", "good").await;
    assert_eq!(peer.asked().await.0.key, "good");
    let store = fixture.broker.store();
    until("the discard topic", || bodies(store, GIVEN_UP, 0) == ["bad"; 4]).await;
    let (copy, _) = peer.asked().await;
    assert_eq!(peer.end_code(&copy, COMMIT).await, SUCCESS);
}

#[tokio::test]
async fn without_a_producer_the_half_message_waits_for_the_next_round() {
    let fixture = eager_fixture().await;
    let mut peer = fixture.connect().await;
    let half = peer.half("T", "0A").await;
    let store = fixture.broker.store();
    until("two rounds", || store.max_offset(HALF, 0) > 2).await;
    peer.produce("A").await;
    assert_eq!(peer.asked().await.0.key, "0A");
    assert_eq!(peer.end_code(&half, COMMIT).await, SUCCESS);
    assert_eq!(bodies(store, "T", 0), ["0A"]);
}

#[tokio::test]
async fn an_immunity_that_has_passed_leaves_the_word_to_the_check() {
    let fixture = Fixture::start_with(|config, _| config.transaction_time_out = 1).await;
    let peer = fixture.connect().await;
    let properties = format!("{}CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}0\u{2}", half_properties("0A"));
    let told = peer.half_with("T", 0, &properties, "x").await;
    let physical = apogee_model::id::OffsetId::parse(&told.msg_id).unwrap().physical_offset;
    let half = Half { key: "0A".to_owned(), offset: 0, physical };
    let stored = now_ms();
    until("the time to pass", || now_ms() > stored + 3).await;
    let answer = peer.end(&half, COMMIT).await;
    assert_eq!(answer.response_code(), ResponseCode::ILLEGAL_OPERATION);
    assert!(answer.remark.as_deref().unwrap().contains("CHECK_IMMUNITY_TIME_IN_SECONDS"));
    let mut header = end_header(&half, COMMIT);
    header.from_transaction_check = Some(true);
    assert_eq!(peer.ask(RequestCode::END_TRANSACTION, &header).await.response_code(), SUCCESS);
}

#[tokio::test]
async fn a_delay_level_counts_from_the_commit_on() {
    let fixture = Fixture::start_with(|_, store| store.message_delay_level = "1s".to_owned()).await;
    let peer = fixture.connect().await;
    let told =
        peer.half_with("T", 0, &format!("{}DELAY\u{1}1\u{2}", half_properties("0A")), "late").await;
    let physical = apogee_model::id::OffsetId::parse(&told.msg_id).unwrap().physical_offset;
    assert_eq!(fixture.broker.store().max_offset("SCHEDULE_TOPIC_XXXX", 0), 0);
    let committed = now_ms();
    assert_eq!(
        peer.end_code(&Half { key: "0A".to_owned(), offset: 0, physical }, COMMIT).await,
        SUCCESS
    );
    assert_eq!(peer.pull_all("T", 0, 0, 1).await, ["late"]);
    assert!(now_ms() - committed >= 1_000);
}

#[tokio::test]
async fn a_message_sent_on_begins_without_the_checks_it_had() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let old = "TRANSACTION_CHECK_TIMES\u{1}15\u{2}TRAN_PREPARED_QUEUE_OFFSET\u{1}0\u{2}";
    peer.half_with("T", 0, &format!("{}{old}", half_properties("0A")), "x").await;
    let stored = records(fixture.broker.store(), HALF, 0).remove(0);
    assert_eq!(stored.property("TRANSACTION_CHECK_TIMES"), None);
    assert_eq!(stored.property("TRAN_PREPARED_QUEUE_OFFSET"), None);
}

#[tokio::test]
async fn half_messages_can_be_refused_by_a_setting() {
    let fixture = Fixture::start_with(|config, _| config.reject_transaction_message = true).await;
    let peer = fixture.connect().await;
    let answer = peer.try_send(&send_header("T", 0, &half_properties("0A")), b"x").await;
    assert_eq!(answer.response_code(), ResponseCode::NO_PERMISSION);
    assert_eq!(fixture.broker.store().max_physical_offset(), 0);
}

#[tokio::test]
async fn at_the_limit_new_half_messages_are_busy_until_one_ends() {
    let fixture = Fixture::start_with(|config, _| config.max_pending_transactions = 3).await;
    let peer = fixture.connect().await;
    let mut halves = Vec::new();
    for n in 0..3 {
        halves.push(peer.half("T", &n.to_string()).await);
    }
    let header = send_header("T", 0, &half_properties("too many"));
    let answer = peer.try_send(&header, b"x").await;
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_BUSY);
    peer.send("T", 0, "plain messages pass").await;
    assert_eq!(peer.end_code(&halves[0], ROLLBACK).await, SUCCESS);
    assert_eq!(peer.try_send(&header, b"x").await.response_code(), SUCCESS);
}

#[tokio::test]
async fn many_ends_at_once_deliver_each_message_once() {
    let fixture = eager_fixture().await;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let mut peer = fixture.connect().await;
        tasks.spawn(async move {
            peer.produce(&worker.to_string()).await;
            for n in 0..50 {
                let half = peer.half("T", &format!("{worker}-{n}")).await;
                let (a, b) =
                    tokio::join!(peer.end_code(&half, COMMIT), peer.end_code(&half, COMMIT));
                // None when another member was asked and was faster.
                assert_ne!([a, b], [SUCCESS; 2]);
                while let Ok(request) = peer.requests.try_recv() {
                    let header: CheckTransactionStateRequestHeader = request.header().unwrap();
                    let key = header.msg_id.unwrap().to_string();
                    let half = Half {
                        key,
                        offset: header.tran_state_table_offset,
                        physical: header.commit_log_offset,
                    };
                    peer.end(&half, COMMIT).await;
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let store = fixture.broker.store();
    until("all messages", || store.max_offset("T", 0) >= 400 && store.dispatch_behind_bytes() == 0)
        .await;
    let mut all = bodies(store, "T", 0);
    all.sort();
    all.dedup();
    assert_eq!((all.len(), store.max_offset("T", 0)), (400, 400));
}
