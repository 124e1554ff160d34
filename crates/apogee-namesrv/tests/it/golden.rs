//! Captured traffic between brokers and the original's name server, played to ours.

use crate::support::World;
use apogee_protocol::bodies::{JsonBody, KVTable};
use apogee_protocol::headers::{DeleteKVConfigRequestHeader, PutKVConfigRequestHeader};
use apogee_protocol::{RemotingCommand, RequestCode, lenient, split_frame};
use base64::Engine as _;
use bytes::BytesMut;
use serde_json::Value;
use std::collections::BTreeMap;

fn command(base64: &Value) -> RemotingCommand {
    let raw = base64::engine::general_purpose::STANDARD.decode(base64.as_str().unwrap()).unwrap();
    let mut buf = BytesMut::from(&raw[..]);
    RemotingCommand::decode(split_frame(&mut buf, 1 << 24).unwrap().unwrap()).unwrap()
}

fn tree(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    serde_json::from_str(&lenient::to_standard(body).unwrap()).unwrap()
}

/// The captured name server had ordered topics from elsewhere; a registration's answer names them.
fn give_ordered_topics(world: &mut World, table: &KVTable) {
    let namespace = || "ORDER_TOPIC_CONFIG".into();
    for (topic, conf) in table.table.iter().chain([(&"Gone".to_owned(), &"b:1".to_owned())]) {
        let put = PutKVConfigRequestHeader {
            namespace: namespace(),
            key: topic.as_str().into(),
            value: conf.as_str().into(),
        };
        world.ask(RequestCode::PUT_KV_CONFIG, &put);
    }
    let delete = DeleteKVConfigRequestHeader { namespace: namespace(), key: "Gone".into() };
    world.ask(RequestCode::DELETE_KV_CONFIG, &delete);
}

/// Plays the requests in order and compares code, header fields and body with the original's answers.
fn play(world: &mut World, transcript: &str) -> usize {
    let mut played = 0;
    for line in transcript.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let request = command(&line["raw"]);
        let at = format!("{} at {} ms", line["name"], line["t"]);
        world.now_ms = line["t"].as_i64().unwrap();
        let registers = request.request_code() == RequestCode::REGISTER_BROKER;
        if registers && !line["answer"].is_null() {
            let told = command(&line["answer"]).body;
            if !told.is_empty() {
                give_ordered_topics(world, &KVTable::from_json(&told).unwrap());
            }
        }
        let answer = world.send(line["conn"].as_u64().unwrap(), request);
        if line["answer"].is_null() {
            assert!(answer.is_none(), "{at}");
            continue;
        }
        let (answer, expected) = (answer.unwrap(), command(&line["answer"]));
        assert_eq!(answer.code, expected.code, "{at}: {:?}", answer.remark);
        let fields = |command: &RemotingCommand| -> BTreeMap<String, String> {
            command.ext.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        assert_eq!(fields(&answer), fields(&expected), "{at}");
        assert_eq!(tree(&answer.body), tree(&expected.body), "{at}");
        assert_eq!(answer.opaque, expected.opaque);
        assert_eq!(answer.serialize, expected.serialize);
        played += 1;
    }
    played
}

#[test]
fn the_first_start_of_a_broker_is_answered_as_the_original_does() {
    assert!(play(&mut World::new(&[]), include_str!("../fixtures/first-start.jsonl")) > 4);
}

#[test]
fn a_replica_with_acting_master_is_answered_as_the_original_does() {
    let mut world = World::new(&[("supportActingMaster", "true")]);
    assert!(play(&mut world, include_str!("../fixtures/acting-master.jsonl")) > 10);
}

#[test]
fn a_replica_of_the_old_protocol_is_answered_as_the_original_does() {
    assert!(play(&mut World::new(&[]), include_str!("../fixtures/replica.jsonl")) > 10);
}

#[test]
fn binary_headers_are_answered_with_binary_headers() {
    assert!(play(&mut World::new(&[]), include_str!("../fixtures/binary-headers.jsonl")) > 4);
}

#[test]
fn a_compressed_registration_that_says_it_is_not_is_taken_although_the_original_refuses_it() {
    let mut world = World::new(&[]);
    let mut taken = 0;
    for line in include_str!("../fixtures/compressed.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let request = command(&line["raw"]);
        if request.request_code() == RequestCode::REGISTER_BROKER {
            let answer = world.send(line["conn"].as_u64().unwrap(), request).unwrap();
            assert_eq!(answer.code, 0, "{:?}", answer.remark);
            taken += 1;
        }
    }
    assert!(taken > 0);
    assert_eq!(world.route_data("TBW102").broker_datas.len(), 1);
}
