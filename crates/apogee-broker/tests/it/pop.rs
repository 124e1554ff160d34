//! Pop consumption over the wire, and the cases P-01, P-03, P-05, P-06 and O-10.

use crate::harness::{Fixture, Peer, Pulled};
use apogee_broker::BrokerConfig;
use apogee_model::RecordView;
use apogee_model::record::{LogEntry, parse_entry};
use apogee_protocol::bodies::{BatchAck, BatchAckMessageRequestBody, JsonBody};
use apogee_protocol::headers::{
    AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader, ChangeInvisibleTimeResponseHeader,
    DeleteTopicRequestHeader, NoHeader, NotificationRequestHeader, NotificationResponseHeader,
    PeekMessageRequestHeader, PollingInfoRequestHeader, PollingInfoResponseHeader,
    PopMessageRequestHeader, PopMessageResponseHeader, PullMessageResponseHeader,
    ResetOffsetRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use apogee_store::StoreConfig;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

pub const GROUP: &str = "CG_pop";

/// Revives often, so that tests need not wait long.
fn quick(config: &mut BrokerConfig, _: &mut StoreConfig) {
    config.revive_interval = 10;
    config.flush_consumer_offset_interval = 50;
}

fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

pub fn pop_header(topic: &str, invisible_time: i64, poll_time: i64) -> PopMessageRequestHeader {
    PopMessageRequestHeader {
        consumer_group: text(GROUP),
        topic: text(topic),
        queue_id: -1,
        max_msg_nums: 32,
        invisible_time,
        poll_time,
        exp_type: Some(Str::from_static("TAG")),
        exp: Some(Str::from_static("*")),
        order: Some(false),
        ..PopMessageRequestHeader::default()
    }
}

/// A popped message with what an acknowledgement needs.
#[derive(Debug, Clone)]
struct Popped {
    body: String,
    topic: String,
    queue_id: i32,
    offset: i64,
    receipt: String,
    reconsume_times: i32,
    properties: Vec<(String, String)>,
}

impl Popped {
    fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// As a client does it: receipts come from the answer's header, those of retries with the message.
fn popped(answer: &RemotingCommand, topic: &str) -> Vec<Popped> {
    let header: PopMessageResponseHeader = answer.header().unwrap();
    let starts: Vec<Vec<String>> = header
        .start_offset_info
        .as_deref()
        .unwrap_or_default()
        .split(';')
        .map(|part| part.split(' ').map(str::to_owned).collect())
        .collect();
    let to_popped = |record: RecordView<'_>| {
        let properties: Vec<(String, String)> = record
            .properties()
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let carried =
            properties.iter().find(|(key, _)| key == "POP_CK").map(|(_, value)| value.clone());
        let (queue, offset) = (record.queue_id(), record.queue_offset());
        let start = starts
            .iter()
            .find(|part| part[0] == "0" && part[1] == queue.to_string())
            .map(|part| &part[2]);
        let receipt = carried.unwrap_or_else(|| {
            format!(
                "{} {} {} {} 0 broker-a {queue} {offset}",
                start.unwrap(),
                header.pop_time,
                header.invisible_time,
                header.revive_qid
            )
        });
        let kind = receipt.split(' ').nth(4).unwrap();
        Popped {
            body: String::from_utf8_lossy(record.body()).into_owned(),
            topic: if kind == "1" { format!("%RETRY%{GROUP}_{topic}") } else { topic.to_owned() },
            queue_id: queue,
            offset,
            receipt,
            reconsume_times: record.reconsume_times(),
            properties,
        }
    };
    let pulled = Pulled {
        code: answer.response_code(),
        header: PullMessageResponseHeader::default(),
        body: answer.body.clone(),
    };
    pulled.each(to_popped)
}

impl Peer {
    async fn pop_with(&self, header: &PopMessageRequestHeader) -> Vec<Popped> {
        let answer = self.ask(RequestCode::POP_MESSAGE, header).await;
        match answer.response_code() {
            ResponseCode::SUCCESS => popped(&answer, &header.topic),
            ResponseCode::POLLING_TIMEOUT => Vec::new(),
            other => panic!("pop refused: {other:?} {:?}", answer.remark),
        }
    }

    async fn pop(&self, topic: &str, invisible_time: i64, poll_time: i64) -> Vec<Popped> {
        self.pop_with(&pop_header(topic, invisible_time, poll_time)).await
    }

    async fn ack(&self, message: &Popped) -> ResponseCode {
        let header = AckMessageRequestHeader {
            consumer_group: text(GROUP),
            topic: text(&message.topic),
            queue_id: message.queue_id,
            extra_info: text(&message.receipt),
            offset: message.offset,
            ..AckMessageRequestHeader::default()
        };
        self.ask(RequestCode::ACK_MESSAGE, &header).await.response_code()
    }

    /// Changes a message's time; the answer is the message with its new receipt.
    async fn change(&self, message: &Popped, invisible_time: i64) -> Result<Popped, ResponseCode> {
        let header = ChangeInvisibleTimeRequestHeader {
            consumer_group: text(GROUP),
            topic: text(&message.topic),
            queue_id: message.queue_id,
            extra_info: text(&message.receipt),
            offset: message.offset,
            invisible_time,
            ..ChangeInvisibleTimeRequestHeader::default()
        };
        let answer = self.ask(RequestCode::CHANGE_MESSAGE_INVISIBLETIME, &header).await;
        if answer.response_code() != ResponseCode::SUCCESS {
            return Err(answer.response_code());
        }
        let new: ChangeInvisibleTimeResponseHeader = answer.header().unwrap();
        let kind = message.receipt.split(' ').nth(4).unwrap();
        let receipt = format!(
            "{} {} {} {} {kind} broker-a {} {}",
            message.offset,
            new.pop_time,
            new.invisible_time,
            new.revive_qid,
            message.queue_id,
            message.offset
        );
        Ok(Popped { receipt, ..message.clone() })
    }

    async fn send_many(&self, topic: &str, queue_id: i32, count: usize) {
        for at in 0..count {
            self.send(topic, queue_id, &format!("m{at}")).await;
        }
    }
}

fn bodies(messages: &[Popped]) -> BTreeSet<&str> {
    messages.iter().map(|message| message.body.as_str()).collect()
}

#[tokio::test]
async fn a_popped_message_is_seen_by_nobody_else_and_gone_when_acknowledged() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 4).await;
    let answer = peer.ask(RequestCode::POP_MESSAGE, &pop_header("T", 60_000, 0)).await;
    let header: PopMessageResponseHeader = answer.header().unwrap();
    assert_eq!(header.start_offset_info.as_deref(), Some("0 0 0"));
    assert_eq!(header.msg_offset_info.as_deref(), Some("0 0 0,1,2,3"));
    assert_eq!((header.rest_num, answer.remark.as_deref()), (0, Some("FOUND")));
    let first = popped(&answer, "T");
    assert_eq!(first.len(), 4);
    assert!(peer.pop("T", 60_000, 0).await.is_empty());
    for message in &first {
        assert_eq!(peer.ack(message).await, ResponseCode::SUCCESS);
        assert_eq!(
            peer.ack(message).await,
            ResponseCode::SUCCESS,
            "a repeated acknowledgement is no error"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_not_acknowledged_comes_back_with_its_properties_and_a_receipt() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_with("T", 0, "TAGS\u{1}A\u{2}KEYS\u{1}k\u{2}own\u{1}value\u{2}", "m").await;
    let first = peer.pop("T", 50, 0).await.remove(0);
    let again = peer.pop("T", 50, 10_000).await.remove(0);
    assert_eq!((again.body.as_str(), again.reconsume_times), ("m", 1));
    for (name, value) in [("TAGS", "A"), ("KEYS", "k"), ("own", "value"), ("ORIGIN_GROUP", GROUP)] {
        assert_eq!(again.property(name), Some(value));
    }
    assert_eq!(again.property("UNIQ_KEY"), first.property("UNIQ_KEY"));
    assert_eq!(again.property("1ST_POP_TIME"), first.receipt.split(' ').nth(1));
    assert_eq!(peer.ack(&first).await, ResponseCode::NO_MESSAGE, "its handle is over");
    // The second return keeps the moment of the first pop.
    let third = peer.pop("T", 60_000, 10_000).await.remove(0);
    assert_eq!(
        (third.reconsume_times, third.property("1ST_POP_TIME")),
        (2, again.property("1ST_POP_TIME"))
    );
    assert_eq!(peer.ack(&third).await, ResponseCode::SUCCESS);
    fixture.stop().await;
}

#[tokio::test]
async fn retries_of_the_second_version_have_a_plus_in_their_topic() {
    let fixture = Fixture::start_with(|config, store| {
        quick(config, store);
        config.enable_retry_topic_v2 = true;
    })
    .await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "m").await;
    peer.pop("T", 50, 0).await;
    let again = peer.pop("T", 60_000, 10_000).await.remove(0);
    assert_eq!(again.receipt.split(' ').nth(4), Some("2"));
    let topic = format!("%RETRY%{GROUP}+T");
    assert_eq!(peer.ack(&Popped { topic, ..again }).await, ResponseCode::SUCCESS);
    fixture.stop().await;
}

#[tokio::test]
async fn a_message_that_is_never_acknowledged_ends_in_the_dead_letters() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    let group = apogee_protocol::bodies::SubscriptionGroupConfig {
        group_name: GROUP.to_owned(),
        retry_max_times: 1,
        ..Default::default()
    };
    let body = Bytes::from(group.to_raw());
    peer.ask_with(RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, &NoHeader, body).await;
    peer.send("T", 0, "m").await;
    assert_eq!(peer.pop("T", 20, 0).await.len(), 1);
    assert_eq!(peer.pop("T", 20, 10_000).await.len(), 1);
    let topic = format!("%DLQ%{GROUP}");
    let header = crate::harness::pull_header("CG", &topic, 0, 0);
    // The topic is made with the first dead letter.
    while peer.ask(RequestCode::PULL_MESSAGE, &header).await.response_code()
        == ResponseCode::TOPIC_NOT_EXIST
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let dead = peer.pull_all(&topic, 0, 0, 1).await;
    assert_eq!(dead, ["m"]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_waiting_pop_is_answered_by_the_message_that_comes() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "first").await;
    peer.ack(&peer.pop("T", 60_000, 0).await[0]).await;
    let (waiter, header) = (fixture.connect().await, pop_header("T", 60_000, 10_000));
    let waits = tokio::spawn(async move { waiter.pop_with(&header).await });
    let info = PollingInfoRequestHeader {
        consumer_group: text(GROUP),
        topic: text("T"),
        queue_id: -1,
        ..Default::default()
    };
    loop {
        let answer = peer.ask(RequestCode::POLLING_INFO, &info).await;
        if answer.header::<PollingInfoResponseHeader>().unwrap().polling_num == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    peer.send("T", 3, "second").await;
    assert_eq!(bodies(&waits.await.unwrap()), BTreeSet::from(["second"]));
    fixture.stop().await;
}

#[tokio::test]
async fn a_full_table_and_an_over_time_have_their_codes() {
    let fixture = Fixture::start_with(|config, store| {
        quick(config, store);
        config.max_pop_polling_size = 0;
    })
    .await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "m").await;
    peer.pop("T", 60_000, 0).await;
    let code = async |poll_time| {
        peer.ask(RequestCode::POP_MESSAGE, &pop_header("T", 60_000, poll_time))
            .await
            .response_code()
    };
    assert_eq!(code(0).await, ResponseCode::POLLING_TIMEOUT);
    assert_eq!(code(1_000).await, ResponseCode::POLLING_FULL);
    fixture.stop().await;
}

#[tokio::test]
async fn tags_filter_and_what_they_leave_out_is_passed_over() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    for at in 0..20 {
        let tag = if at % 5 == 0 { "A" } else { "B" };
        peer.send_with("T", 0, &format!("TAGS\u{1}{tag}\u{2}"), &format!("{tag}{at}")).await;
    }
    let header =
        PopMessageRequestHeader { exp: Some(Str::from_static("A")), ..pop_header("T", 60_000, 0) };
    let found = peer.pop_with(&header).await;
    assert_eq!(bodies(&found), BTreeSet::from(["A0", "A5", "A10", "A15"]));
    assert!(peer.pop_with(&header).await.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn expressions_over_properties_filter_pops_too() {
    let fixture = Fixture::start_with(|config, store| {
        quick(config, store);
        config.enable_property_filter = true;
    })
    .await;
    let peer = fixture.connect().await;
    for at in 0..4 {
        peer.send_with("T", 0, &format!("a\u{1}{at}\u{2}"), &format!("m{at}")).await;
    }
    let header = PopMessageRequestHeader {
        exp_type: Some(Str::from_static("SQL92")),
        exp: Some(Str::from_static("a > 1")),
        ..pop_header("T", 60_000, 0)
    };
    assert_eq!(bodies(&peer.pop_with(&header).await), BTreeSet::from(["m2", "m3"]));
    fixture.stop().await;
}

#[tokio::test]
async fn a_new_group_starts_where_it_asks_to() {
    let fixture = Fixture::start_with(|config, store| {
        quick(config, store);
        config.init_pop_offset_by_check_msg_in_mem = false;
    })
    .await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 5).await;
    let at_end = PopMessageRequestHeader { init_mode: 1, ..pop_header("T", 60_000, 0) };
    assert_eq!(bodies(&peer.pop_with(&at_end).await), BTreeSet::from(["m4"]));
    let other =
        PopMessageRequestHeader { consumer_group: text("CG_other"), ..pop_header("T", 60_000, 0) };
    assert_eq!(peer.pop_with(&other).await.len(), 5);
    fixture.stop().await;
}

#[tokio::test]
async fn a_batch_acknowledges_its_bits() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 4).await;
    let messages = peer.pop("T", 400, 0).await;
    let fields: Vec<i64> =
        messages[0].receipt.split(' ').take(4).map(|field| field.parse().unwrap()).collect();
    let ack = BatchAck {
        bit_set: [0usize, 1, 3].into_iter().collect(),
        consumer_group: Some(GROUP.to_owned()),
        topic: Some("T".to_owned()),
        retry: Some("0".to_owned()),
        start_offset: fields[0],
        pop_time: fields[1],
        invisible_time: fields[2],
        revive_queue_id: fields[3] as i32,
        queue_id: 0,
    };
    let body =
        BatchAckMessageRequestBody { acks: vec![ack], broker_name: Some("broker-a".to_owned()) };
    let answer =
        peer.ask_with(RequestCode::BATCH_ACK_MESSAGE, &NoHeader, Bytes::from(body.to_raw())).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
    assert_eq!(bodies(&peer.pop("T", 60_000, 10_000).await), BTreeSet::from(["m2"]));
    let nothing = peer.ask(RequestCode::BATCH_ACK_MESSAGE, &NoHeader).await;
    assert_eq!(nothing.response_code(), ResponseCode::NO_MESSAGE);
    fixture.stop().await;
}

#[tokio::test]
async fn peek_and_notification_take_nothing() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 3).await;
    let peek = PeekMessageRequestHeader {
        consumer_group: text(GROUP),
        topic: text("T"),
        queue_id: -1,
        max_msg_nums: 2,
        ..Default::default()
    };
    let news = NotificationRequestHeader {
        consumer_group: text(GROUP),
        topic: text("T"),
        queue_id: -1,
        poll_time: 0,
        ..Default::default()
    };
    for _ in 0..2 {
        let answer = peer.ask(RequestCode::PEEK_MESSAGE, &peek).await;
        let header: PopMessageResponseHeader = answer.header().unwrap();
        assert_eq!(
            (answer.response_code(), header.rest_num, header.pop_time),
            (ResponseCode::SUCCESS, 1, 0)
        );
        let answer = peer.ask(RequestCode::NOTIFICATION, &news).await;
        assert!(answer.header::<NotificationResponseHeader>().unwrap().has_msg);
    }
    assert_eq!(peer.pop("T", 60_000, 0).await.len(), 3);
    assert_eq!(
        peer.ask(RequestCode::PEEK_MESSAGE, &peek).await.response_code(),
        ResponseCode::PULL_NOT_FOUND
    );
    let answer = peer.ask(RequestCode::NOTIFICATION, &news).await;
    assert!(!answer.header::<NotificationResponseHeader>().unwrap().has_msg);
    fixture.stop().await;
}

#[tokio::test]
async fn illegal_requests_get_the_codes_of_the_original() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "m").await;
    let pop = async |header: PopMessageRequestHeader| {
        peer.ask(RequestCode::POP_MESSAGE, &header).await.response_code()
    };
    assert_eq!(pop(pop_header("Missing", 1_000, 0)).await, ResponseCode::TOPIC_NOT_EXIST);
    let header = pop_header("T", 1_000, 0);
    let wrong = PopMessageRequestHeader { queue_id: 99, ..header.clone() };
    assert_eq!(pop(wrong).await, ResponseCode::INVALID_PARAMETER);
    let wrong = PopMessageRequestHeader { max_msg_nums: 33, ..header.clone() };
    assert_eq!(pop(wrong).await, ResponseCode::INVALID_PARAMETER);
    let wrong = PopMessageRequestHeader { exp: Some(Str::from_static("||")), ..header };
    assert_eq!(pop(wrong).await, ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    let good = peer.pop("T", 60_000, 0).await.remove(0);
    let cases = [
        (Popped { topic: "Missing".to_owned(), ..good.clone() }, ResponseCode::TOPIC_NOT_EXIST),
        (Popped { queue_id: 99, ..good.clone() }, ResponseCode::MESSAGE_ILLEGAL),
        (Popped { offset: 99, ..good.clone() }, ResponseCode::NO_MESSAGE),
        (Popped { receipt: "nonsense".to_owned(), ..good.clone() }, ResponseCode::SYSTEM_ERROR),
        (
            Popped { receipt: "0 1 2 77 0 broker-a 0 0".to_owned(), ..good.clone() },
            ResponseCode::MESSAGE_ILLEGAL,
        ),
        (
            Popped { receipt: "0 1 2 0 0 broker-a 0 0".to_owned(), ..good.clone() },
            ResponseCode::NO_MESSAGE,
        ),
    ];
    for (message, code) in cases {
        assert_eq!(peer.ack(&message).await, code, "{message:?}");
        assert_eq!(peer.change(&message, 1_000).await.unwrap_err(), code, "{message:?}");
    }
    assert_eq!(peer.ack(&good).await, ResponseCode::SUCCESS);
    fixture.stop().await;
}

#[tokio::test]
async fn p01_an_acknowledged_part_of_a_batch_does_not_come_back_not_even_after_restarts() {
    let mut fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 32).await;
    let mut messages = peer.pop("T", 1_500, 0).await;
    assert_eq!(messages.len(), 32);
    let last = messages.pop().unwrap();
    for message in &messages {
        assert_eq!(peer.ack(message).await, ResponseCode::SUCCESS);
    }
    let folder = fixture.stop().await.unwrap();
    fixture = Fixture::open(folder.path(), quick).await;
    let peer = fixture.connect().await;
    assert_eq!(peer.ack(&last).await, ResponseCode::SUCCESS);
    assert!(peer.pop("T", 1_000, 2_000).await.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn p03_in_the_end_each_message_is_acknowledged_whatever_was_forgotten() {
    let mut fixture = Fixture::start_with(quick).await;
    let mut peer = fixture.connect().await;
    for queue in 0..4 {
        peer.send_many("T", queue, 50).await;
    }
    let folder = fixture.folder.take().unwrap();
    let (mut acked, mut rounds) = (BTreeSet::new(), 0usize);
    while acked.len() < 200 {
        for message in peer.pop("T", 150, 5_000).await {
            // Some 30 % are forgotten.
            if fastrand(&mut rounds) % 10 < 7 && peer.ack(&message).await == ResponseCode::SUCCESS {
                let unique = message.property("UNIQ_KEY").unwrap().to_owned();
                assert!(acked.insert(unique), "{message:?} came back");
            }
        }
        if rounds > 150 && acked.len() < 190 {
            rounds = 0;
            fixture.stop().await;
            fixture = Fixture::open(folder.path(), quick).await;
            peer = fixture.connect().await;
        }
    }
    assert!(peer.pop("T", 1_000, 300).await.is_empty());
    fixture.stop().await;
}

/// What a crash leaves: the files as they are, under another root.
fn crashed_copy(from: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                std::fs::create_dir_all(&target).unwrap();
                copy(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
    let to = tempfile::tempdir().unwrap();
    copy(from, to.path());
    to
}

#[tokio::test]
async fn a_crash_before_positions_are_saved_brings_back_nothing_acknowledged_and_loses_nothing() {
    let never_saved = |config: &mut BrokerConfig, store: &mut StoreConfig| {
        quick(config, store);
        config.flush_consumer_offset_interval = 3_600_000;
    };
    let fixture = Fixture::start_with(never_saved).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 10).await;
    let messages = peer.pop("T", 3_000, 0).await;
    for message in &messages[..5] {
        assert_eq!(peer.ack(message).await, ResponseCode::SUCCESS);
    }
    let copy = crashed_copy(fixture.folder.as_ref().unwrap().path());
    fixture.stop().await;
    let fixture = Fixture::open(copy.path(), never_saved).await;
    let peer = fixture.connect().await;
    assert!(peer.pop("T", 60_000, 0).await.is_empty(), "popped again");
    let mut back = Vec::new();
    while back.len() < 5 {
        back.extend(peer.pop("T", 60_000, 10_000).await);
    }
    assert_eq!(bodies(&back), BTreeSet::from(["m5", "m6", "m7", "m8", "m9"]));
    fixture.stop().await;
}

/// A small generator: the same numbers each time.
fn fastrand(state: &mut usize) -> usize {
    *state += 1;
    state.wrapping_mul(2_654_435_761) >> 7 & 0xFF
}

#[tokio::test]
async fn p05_a_topic_made_again_gives_back_no_strangers_and_delays_nobody() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 10).await;
    peer.send("Other", 0, "other").await;
    assert_eq!(peer.pop("T", 300, 0).await.len(), 10);
    assert_eq!(peer.pop("Other", 300, 0).await.len(), 1);
    peer.ask(
        RequestCode::DELETE_TOPIC_IN_BROKER,
        &DeleteTopicRequestHeader { topic: text("T"), ..Default::default() },
    )
    .await;
    peer.send_many("T", 0, 5).await;
    let new = peer.pop("T", 60_000, 0).await;
    assert_eq!(new.len(), 5);
    assert_eq!(bodies(&peer.pop("Other", 60_000, 10_000).await), BTreeSet::from(["other"]));
    assert!(peer.pop("T", 60_000, 200).await.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn p06_after_a_change_the_new_handle_acknowledges_and_the_old_one_is_refused() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 10).await;
    let messages = peer.pop("T", 300, 0).await;
    let changed = peer.change(&messages[4], 60_000).await.unwrap();
    assert_eq!(peer.ack(&messages[4]).await, ResponseCode::NO_MESSAGE);
    assert_eq!(peer.change(&messages[4], 1_000).await.unwrap_err(), ResponseCode::NO_MESSAGE);
    assert_eq!(peer.ack(&changed).await, ResponseCode::SUCCESS);
    assert_eq!(
        peer.change(&changed, 1_000).await.unwrap_err(),
        ResponseCode::NO_MESSAGE,
        "acknowledged is acknowledged"
    );
    let mut back = Vec::new();
    while back.len() < 9 {
        back.extend(peer.pop("T", 60_000, 10_000).await);
    }
    back.extend(peer.pop("T", 60_000, 100).await);
    assert_eq!(back.len(), 9);
    assert!(!bodies(&back).contains("m4"));
    fixture.stop().await;
}

#[tokio::test]
async fn a_shorter_time_brings_the_message_back_soon() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send("T", 0, "m").await;
    let message = peer.pop("T", 60_000, 0).await.remove(0);
    peer.change(&message, 20).await.unwrap();
    assert_eq!(peer.pop("T", 60_000, 10_000).await.remove(0).reconsume_times, 1);
    fixture.stop().await;
}

fn ordered(attempt: &str, invisible_time: i64, poll_time: i64) -> PopMessageRequestHeader {
    PopMessageRequestHeader {
        order: Some(true),
        attempt_id: Some(text(attempt)),
        max_msg_nums: 2,
        ..pop_header("T", invisible_time, poll_time)
    }
}

#[tokio::test]
async fn an_ordered_group_goes_on_only_behind_what_is_acknowledged() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 4).await;
    let answer = peer.ask(RequestCode::POP_MESSAGE, &ordered("a", 60_000, 0)).await;
    let header: PopMessageResponseHeader = answer.header().unwrap();
    assert_eq!((header.revive_qid, header.order_count_info.as_deref()), (999, Some("0 0 0")));
    let first = popped(&answer, "T");
    assert_eq!(bodies(&first), BTreeSet::from(["m0", "m1"]));
    assert!(peer.pop_with(&ordered("b", 60_000, 0)).await.is_empty());
    assert_eq!(
        peer.pop_with(&ordered("a", 60_000, 0)).await.len(),
        2,
        "the same attempt reads again"
    );
    let again = peer.pop_with(&ordered("a", 60_000, 0)).await;
    assert_eq!(peer.ack(&again[1]).await, ResponseCode::SUCCESS);
    assert!(peer.pop_with(&ordered("b", 60_000, 0)).await.is_empty());
    assert_eq!(peer.ack(&again[0]).await, ResponseCode::SUCCESS);
    assert_eq!(
        bodies(&peer.pop_with(&ordered("b", 60_000, 0)).await),
        BTreeSet::from(["m2", "m3"])
    );
    fixture.stop().await;
}

#[tokio::test]
async fn what_an_ordered_group_has_in_hand_survives_a_crash() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 2).await;
    assert_eq!(peer.pop_with(&ordered("a", 60_000, 0)).await.len(), 2);
    let root = fixture.folder.as_ref().unwrap().path().to_owned();
    while !root.join("config/consumerOrderInfo.json").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let copy = crashed_copy(&root);
    fixture.stop().await;
    let fixture = Fixture::open(copy.path(), quick).await;
    let peer = fixture.connect().await;
    assert!(peer.pop_with(&ordered("b", 60_000, 0)).await.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn an_ordered_queue_is_free_when_the_time_is_over_and_counts_the_attempts() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 2).await;
    assert_eq!(peer.pop_with(&ordered("a", 100, 0)).await.len(), 2);
    let answer = peer.ask(RequestCode::POP_MESSAGE, &ordered("b", 60_000, 10_000)).await;
    let header: PopMessageResponseHeader = answer.header().unwrap();
    assert_eq!(header.order_count_info.as_deref(), Some("0 qo0%0 1;0 qo0%1 1;0 0 1"));
    fixture.stop().await;
}

#[tokio::test]
async fn o10_an_ordered_group_reset_backwards_gets_each_message_once_more() {
    let fixture = Fixture::start_with(quick).await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 20).await;
    let drain = async || {
        let mut seen = Vec::new();
        loop {
            let messages = peer.pop_with(&ordered("a", 60_000, 0)).await;
            if messages.is_empty() {
                return seen;
            }
            for message in messages {
                assert_eq!(peer.ack(&message).await, ResponseCode::SUCCESS);
                seen.push(message.body);
            }
        }
    };
    let all: Vec<String> = (0..20).map(|at| format!("m{at}")).collect();
    assert_eq!(drain().await, all);
    let reset = ResetOffsetRequestHeader {
        topic: text("T"),
        group: text(GROUP),
        timestamp: 0,
        offset: Some(10),
        is_force: true,
        queue_id: 0,
        ..ResetOffsetRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &reset).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    assert_eq!(drain().await, all[10..]);
    fixture.stop().await;
}

#[tokio::test]
async fn the_records_of_a_revive_queue_are_those_of_the_original() {
    let fixture = Fixture::start_with(|config, store| {
        quick(config, store);
        config.revive_queue_num = 1;
    })
    .await;
    let peer = fixture.connect().await;
    peer.send_many("T", 0, 2).await;
    let messages = peer.pop("T", 60_000, 0).await;
    peer.ack(&messages[1]).await;
    let pop_time = messages[0].receipt.split(' ').nth(1).unwrap();
    let pulled = peer.pull("rmq_sys_REVIVE_LOG_DefaultCluster", 0, 0).await;
    let revive_time = pop_time.parse::<i64>().unwrap() + 60_000;
    let ck = format!(
        r#"{{"bm":0,"bn":"broker-a","c":"{GROUP}","d":[0,1],"it":60000,"n":2,"pt":{pop_time},"q":0,"reviveTime":{revive_time},"ro":0,"so":0,"sp":false,"t":"T"}}"#
    );
    let ack =
        format!(r#"{{"ao":1,"bn":"broker-a","c":"{GROUP}","pt":{pop_time},"q":0,"so":0,"t":"T"}}"#);
    assert_eq!(pulled.bodies(), [ck, ack]);
    let tags = pulled.each(|record| record.properties().get("TAGS").unwrap_or_default().to_owned());
    assert_eq!(tags, ["ck", "ack"]);
    assert!(matches!(parse_entry(&pulled.body), Ok(LogEntry::Record(_))));
    fixture.stop().await;
}
