//! Messages with a delivery time: taken, refused, delivered, taken back.

use crate::harness::{Fixture, Peer, send_header};
use apogee_broker::{BrokerConfig, now_ms};
use apogee_model::batch;
use apogee_protocol::headers::{
    NoHeader, RecallMessageRequestHeader, RecallMessageResponseHeader, SendMessageResponseHeader,
};
use apogee_protocol::{RequestCode, ResponseCode, Str};
use apogee_store::StoreConfig;
use apogee_store::timer::TIMER_TOPIC;

const TICK: i64 = 100;

fn quick(config: &mut BrokerConfig, store: &mut StoreConfig) {
    config.recall_message_enable = true;
    store.timer_precision_ms = TICK;
    store.mapped_file_size_timer_log = 64 * 1024;
}

async fn start() -> Fixture {
    Fixture::start_with(quick).await
}

fn timed(name: &str, value: i64) -> String {
    format!("{name}\u{1}{value}\u{2}")
}

async fn refused(peer: &Peer, properties: &str) -> (ResponseCode, String) {
    let answer = peer.try_send(&send_header("T", 0, properties), b"x").await;
    (answer.response_code(), answer.remark.map(|text| text.to_string()).unwrap_or_default())
}

async fn recall(peer: &Peer, topic: &'static str, handle: &str) -> (ResponseCode, Option<Str>) {
    let header = RecallMessageRequestHeader {
        producer_group: Some(Str::from_static("PG")),
        topic: Str::from_static(topic),
        recall_handle: Str::from(handle.to_owned()),
        ..RecallMessageRequestHeader::default()
    };
    let answer = peer.ask(RequestCode::RECALL_MESSAGE, &header).await;
    let id = answer.header::<RecallMessageResponseHeader>().ok().map(|header| header.msg_id);
    (answer.response_code(), id)
}

async fn send_timed(peer: &Peer, delay: i64, body: &str) -> SendMessageResponseHeader {
    peer.send_with("T", 0, &timed("TIMER_DELAY_MS", delay), body).await
}

#[tokio::test]
async fn a_timer_message_comes_not_before_its_time_and_soon_after() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let mut due = Vec::new();
    for (n, delay) in [250_i64, 400, 777].into_iter().enumerate() {
        let now = now_ms();
        due.push(now + delay);
        let properties = match n {
            0 => timed("TIMER_DELAY_MS", delay),
            _ => timed("TIMER_DELIVER_MS", now + delay),
        };
        let sent = peer.send_with("T", 1, &properties, &n.to_string()).await;
        assert_eq!(sent.queue_id, 1);
    }
    assert_eq!(fixture.broker.store().max_offset(TIMER_TOPIC, 0), 3);
    assert_eq!(peer.pull_all("T", 1, 0, 3).await, ["0", "1", "2"]);
    let stored = peer.pull("T", 1, 0).await.each(|record| record.store_timestamp());
    for (stored, due) in stored.iter().zip(&due) {
        // One tick, and time for a machine that does much else.
        assert!((0..TICK + 400).contains(&(stored - due)), "{} ms after", stored - due);
    }
}

#[tokio::test]
async fn seconds_count_too_and_the_waiting_record_is_the_originals() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let before = now_ms();
    let sent = peer.send_with("T", 2, &timed("TIMER_DELAY_SEC", 60), "x").await;
    let seen = peer.pull(TIMER_TOPIC, 0, 0).await.each(|record| {
        let property = |name: &str| record.properties().get(name).map(str::to_owned);
        (property("TIMER_OUT_MS"), property("REAL_TOPIC"), property("REAL_QID"))
    });
    let (out, topic, queue) = &seen[0];
    assert_eq!((topic.as_deref(), queue.as_deref()), (Some("T"), Some("2")));
    let out: i64 = out.as_ref().unwrap().parse().unwrap();
    assert_eq!(out % TICK, 0);
    assert!((59_800..60_200).contains(&(out - before)), "{}", out - before);
    assert!(sent.recall_handle.is_some());
}

#[tokio::test]
async fn a_time_that_is_over_means_now() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let sent = peer.send_with("T", 0, &timed("TIMER_DELIVER_MS", now_ms() - 5_000), "now").await;
    assert_eq!(sent.recall_handle, None);
    assert_eq!(peer.pull("T", 0, 0).await.bodies(), ["now"]);
}

#[tokio::test]
async fn impossible_delays_are_refused_with_the_reason_and_stored_nowhere() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    for name in ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"] {
        for value in ["9223372036854775807", "-1", "9223372036854775808", "soon", "1.5"] {
            let (code, remark) = refused(&peer, &format!("{name}\u{1}{value}\u{2}")).await;
            assert_eq!(code, ResponseCode::MESSAGE_ILLEGAL, "{name}={value}");
            assert!(remark.contains(name) && remark.contains(value), "{remark}");
        }
    }
    let (code, remark) = refused(&peer, &timed("TIMER_DELAY_SEC", 259_201)).await;
    assert_eq!(code, ResponseCode::MESSAGE_ILLEGAL);
    assert!(remark.contains("timerMaxDelaySec"), "{remark}");
    assert_eq!(fixture.broker.store().max_offset(TIMER_TOPIC, 0), 0);
    assert_eq!(fixture.broker.store().max_offset("T", 0), 0);
}

#[tokio::test]
async fn a_batch_with_a_timed_message_is_refused_whole() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let mut body = Vec::new();
    let timed = timed("TIMER_DELAY_MS", 1_000);
    for properties in ["", timed.as_str()] {
        let message =
            batch::BatchMessage { flag: 0, body: b"x", properties: properties.as_bytes() };
        assert!(batch::append(&mut body, &message));
    }
    let mut header = send_header("T", 0, "");
    header.batch = Some(true);
    let answer = peer.try_send(&header, &body).await;
    assert_eq!(answer.response_code(), ResponseCode::MESSAGE_ILLEGAL);
    assert_eq!(fixture.broker.store().max_offset("T", 0), 0);
}

#[tokio::test]
async fn without_the_wheel_a_delivery_time_is_refused() {
    let fixture = Fixture::start_with(|_, store| store.timer_wheel_enable = false).await;
    let peer = fixture.connect().await;
    let (code, remark) = refused(&peer, &timed("TIMER_DELAY_MS", 1_000)).await;
    assert_eq!(code, ResponseCode::SYSTEM_ERROR);
    assert!(remark.contains("timerWheelEnable"), "{remark}");
}

#[tokio::test]
async fn clients_cannot_send_to_the_timer_topic() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let answer = peer.try_send(&send_header(TIMER_TOPIC, 0, ""), b"x").await;
    assert_eq!(answer.response_code(), ResponseCode::NO_PERMISSION);
}

#[tokio::test]
async fn a_message_that_is_taken_back_never_comes_even_after_a_restart() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let gone = send_timed(&peer, 1_500, "gone").await;
    send_timed(&peer, 1_500, "kept").await;
    let handle = gone.recall_handle.unwrap();
    let (code, id) = recall(&peer, "T", &handle).await;
    assert_eq!(code, ResponseCode::SUCCESS);
    assert!(id.is_some_and(|id| !id.is_empty()));
    let folder = fixture.stop().await.unwrap();
    let again = Fixture::open(folder.path(), quick).await;
    let peer = again.connect().await;
    assert_eq!(peer.pull_all("T", 0, 0, 1).await, ["kept"]);
    // Both waited for one tick: what came after "kept" would be there by its end.
    send_timed(&peer, 300, "later").await;
    assert_eq!(peer.pull_all("T", 0, 1, 1).await, ["later"]);
    assert_eq!(again.broker.store().max_offset("T", 0), 2);
}

#[tokio::test]
async fn what_cannot_be_taken_back_is_told() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    peer.send("U", 0, "x").await;
    let sent = send_timed(&peer, 200, "came").await;
    let handle = sent.recall_handle.unwrap().to_string();
    for bad in ["", "%", "djE", "djIgVCBiIDEgYw=="] {
        assert_eq!(recall(&peer, "T", bad).await.0, ResponseCode::ILLEGAL_OPERATION, "{bad}");
    }
    assert_eq!(recall(&peer, "U", &handle).await.0, ResponseCode::ILLEGAL_OPERATION);
    assert_eq!(recall(&peer, "unknown", &handle).await.0, ResponseCode::TOPIC_NOT_EXIST);
    assert_eq!(peer.pull_all("T", 0, 0, 1).await, ["came"]);
    assert_eq!(recall(&peer, "T", &handle).await.0, ResponseCode::ILLEGAL_OPERATION, "it has come");
}

#[tokio::test]
async fn taking_back_is_off_by_default() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let sent = send_timed(&peer, 60_000, "x").await;
    let (code, _) = recall(&peer, "T", &sent.recall_handle.unwrap()).await;
    assert_eq!(code, ResponseCode::NO_PERMISSION);
}

#[tokio::test]
async fn timer_messages_wait_through_restarts_and_come_once() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    for n in 0..20 {
        send_timed(&peer, 300 + n * 40, &n.to_string()).await;
    }
    assert_eq!(peer.pull_all("T", 0, 0, 1).await[0], "0");
    let folder = fixture.stop().await.unwrap();
    // Without its progress the timer finds in the log what was delivered.
    std::fs::remove_file(folder.path().join("config/timercheck")).unwrap();
    let again = Fixture::open(folder.path(), quick).await;
    let peer = again.connect().await;
    let mut bodies = peer.pull_all("T", 0, 0, 20).await;
    bodies.sort_by_key(|body| body.parse::<i32>().unwrap());
    assert_eq!(bodies, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    again.stop().await;
    let third = Fixture::open(folder.path(), quick).await;
    let peer = third.connect().await;
    send_timed(&peer, 200, "last").await;
    assert_eq!(peer.pull_all("T", 0, 20, 1).await, ["last"]);
    assert_eq!(third.broker.store().max_offset("T", 0), 21);
}

#[tokio::test]
async fn the_check_point_is_told_in_the_originals_layout() {
    let fixture = start().await;
    let peer = fixture.connect().await;
    let answer = peer.ask(RequestCode::GET_TIMER_CHECK_POINT, &NoHeader).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
    assert_eq!(answer.body.len(), 56);
}
