//! Sending.

use crate::harness::{Fixture, send_header};
use apogee_model::batch::{self, BatchMessage};
use apogee_model::id::OffsetId;
use apogee_protocol::headers::SendMessageResponseHeader;
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use apogee_store::FlushDiskType;
use bytes::Bytes;

#[tokio::test]
async fn a_sent_message_is_pulled_with_the_properties_that_the_original_adds() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let sent =
        peer.send_with("T", 2, "TAGS\u{1}A\u{2}KEYS\u{1}k\u{2}WAIT\u{1}true\u{2}", "hello").await;
    assert_eq!((sent.queue_id, sent.queue_offset), (2, 0));
    let id = OffsetId::parse(&sent.msg_id).unwrap();
    assert_eq!(id.host, fixture.broker.address());
    let pulled = peer.pull("T", 2, 0).await;
    assert_eq!(pulled.code, ResponseCode::SUCCESS);
    let names: Vec<Vec<(String, String)>> = pulled.each(|record| {
        assert_eq!(record.physical_offset(), id.physical_offset);
        assert_eq!(record.born_timestamp(), 1_700_000_000_000);
        record.properties().iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    });
    let value = |name: &str| names[0].iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    assert_eq!(value("CLUSTER"), Some("DefaultCluster"));
    assert_eq!(value("MSG_REGION"), Some("DefaultRegion"));
    assert_eq!(value("TRACE_ON"), Some("true"));
    assert_eq!(value("KEYS"), Some("k"));
    assert_eq!(value("UNIQ_KEY").map(str::len), Some(32));
}

#[tokio::test]
async fn both_headers_and_one_way_sends_are_stored() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let header = send_header("T", 0, "UNIQ_KEY\u{1}0A\u{2}");
    let mut ext = apogee_protocol::ExtBuf::new();
    header.encode_long(&mut ext);
    let long = RemotingCommand::with_ext(RequestCode::SEND_MESSAGE.0, ext.into_ext_fields())
        .body(&b"long"[..]);
    let answer = peer.connection.invoke(long, crate::harness::TIMEOUT).await.unwrap();
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
    let told: SendMessageResponseHeader = answer.header().unwrap();
    assert_eq!(told.transaction_id.as_deref(), Some("0A"));
    let mut oneway = RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header)
        .body(&b"one-way"[..])
        .oneway();
    oneway.opaque = peer.connection.next_opaque();
    peer.connection.send(&oneway);
    peer.send("T", 0, "short").await;
    assert_eq!(peer.pull("T", 0, 0).await.bodies(), ["long", "one-way", "short"]);
}

#[tokio::test]
async fn each_message_of_a_batch_has_its_own_offset_id_and_unique_id() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let mut body = Vec::new();
    for text in ["a", "b", "c"] {
        let properties = format!("UNIQ_KEY\u{1}{text}{text}\u{2}");
        assert!(batch::append(
            &mut body,
            &BatchMessage { flag: 7, body: text.as_bytes(), properties: properties.as_bytes() }
        ));
    }
    let mut header = send_header("T", 1, "UNIQ_KEY\u{1}batch\u{2}");
    header.batch = Some(true);
    let answer = peer.ask_with(RequestCode::SEND_BATCH_MESSAGE, &header, Bytes::from(body)).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    let told: SendMessageResponseHeader = answer.header().unwrap();
    let ids: Vec<&str> = told.msg_id.split(',').collect();
    let pulled = peer.pull("T", 1, 0).await;
    let stored = pulled.each(|record| {
        assert_eq!(record.flag(), 7);
        let place =
            OffsetId { host: record.store_host(), physical_offset: record.physical_offset() };
        (place.to_string(), record.properties().get("UNIQ_KEY").unwrap().to_owned())
    });
    let unique: Vec<&str> = stored.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(unique, ["aa", "bb", "cc"]);
    assert_eq!(ids, stored.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>());
}

#[tokio::test]
async fn under_sync_flush_success_means_on_disk_and_wait_false_does_not_wait() {
    let fixture =
        Fixture::start_with(|_, store| store.flush_disk_type = FlushDiskType::SyncFlush).await;
    let peer = fixture.connect().await;
    let sent = peer.send("T", 0, "kept").await;
    let store = fixture.broker.store();
    let id = OffsetId::parse(&sent.msg_id).unwrap();
    assert!(store.flushed().get() > id.physical_offset);
    peer.send_with("T", 0, "WAIT\u{1}false\u{2}", "soon").await;
    assert_eq!(peer.pull_all("T", 0, 0, 2).await, ["kept", "soon"]);
}

#[tokio::test]
async fn the_fast_port_takes_sends_and_refuses_pulls() {
    let fixture = Fixture::start().await;
    let fast = fixture.connect_to(fixture.broker.address().port() - 2).await;
    fast.send("T", 0, "x").await;
    let header = crate::harness::pull_header("CG", "T", 0, 0);
    let answer = fast.ask(RequestCode::PULL_MESSAGE, &header).await;
    assert_eq!(answer.response_code(), ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
}

#[tokio::test]
async fn a_topic_made_by_a_send_takes_the_smaller_number_of_queues() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    peer.send("T", 3, "x").await;
    let answer = peer.try_send(&send_header("T", 4, ""), b"x").await;
    assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER);
    assert!(answer.remark.unwrap().contains("queueId[4]"));
}
