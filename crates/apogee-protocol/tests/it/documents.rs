//! Documents on disk of the original read and write to the same tree and to the same lines.

use apogee_protocol::bodies::*;
use serde_json::Value;
use std::collections::BTreeSet;

fn tree(bytes: &[u8]) -> Value {
    serde_json::from_str(&apogee_protocol::lenient::to_standard(bytes).unwrap()).unwrap()
}

/// Lists that are sets have no order.
fn without_order(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(without_order).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(key, value)| (key, without_order(value))).collect(),
        ),
        other => other,
    }
}

fn check<T: JsonBody>(document: &[u8]) {
    let read = T::from_json(document).unwrap();
    for written in [read.to_pretty(), read.to_raw(), read.to_json(Dialect::Standard)] {
        assert_eq!(without_order(tree(&written)), without_order(tree(document)));
    }
    // The original's tabs and line breaks, apart from the order of its hash maps and bare arrays on one line.
    if !document.windows(3).any(|piece| piece == b"[74") && document.contains(&b'\n') {
        let lines = |bytes: &[u8]| -> BTreeSet<String> {
            String::from_utf8_lossy(bytes)
                .lines()
                .map(|line| line.trim_end_matches(',').to_owned())
                .collect()
        };
        assert_eq!(lines(&read.to_pretty()), lines(document));
    }
}

#[test]
fn every_document_of_the_original_reads_and_writes_the_same() {
    check::<TopicConfigSerializeWrapper>(include_bytes!("../fixtures/config/topics.json"));
    check::<SubscriptionGroupWrapper>(include_bytes!("../fixtures/config/subscriptionGroup.json"));
    check::<ConsumerOffsetSerializeWrapper>(include_bytes!(
        "../fixtures/config/consumerOffset.json"
    ));
    check::<ConsumerOffsetSerializeWrapper>(include_bytes!(
        "../fixtures/config/lmqConsumerOffset.json"
    ));
    check::<DelayOffsetSerializeWrapper>(include_bytes!("../fixtures/config/delayOffset.json"));
    check::<MessageRequestModeSerializeWrapper>(include_bytes!(
        "../fixtures/config/messageRequestMode.json"
    ));
    check::<ConsumerFilterWrapper>(include_bytes!("../fixtures/config/consumerFilter.json"));
    check::<ConsumerOrderInfoWrapper>(include_bytes!("../fixtures/config/consumerOrderInfo.json"));
    check::<TimerMetricsSerializeWrapper>(include_bytes!("../fixtures/config/timermetrics"));
    check::<TransactionMetricsSerializeWrapper>(include_bytes!(
        "../fixtures/config/transactionMetrics"
    ));
}

#[test]
fn a_document_full_of_zeros_or_cut_short_is_refused() {
    let whole = include_bytes!("../fixtures/config/consumerOffset.json");
    for document in [&b""[..], b"  \n", &[0; 64], &whole[..whole.len() / 2]] {
        assert!(ConsumerOffsetSerializeWrapper::from_json(document).is_err());
    }
}

#[test]
fn missing_null_and_quoted_values_take_the_places_java_gives_them() {
    let config = TopicConfig::from_json(br#"{"topicName":"T","perm":"4","order":"true","readQueueNums":null,"topicFilterType":1,"new":{}}"#).unwrap();
    assert_eq!((config.perm, config.order, config.write_queue_nums), (4, true, 16));
    assert_eq!(config.topic_filter_type, TopicFilterType::MultiTag);
    assert!(TopicConfig::from_json(br#"{"perm":"x"}"#).is_err());
    assert!(TopicConfig::from_json(br#"{"perm":99999999999}"#).is_err());
}

#[test]
fn number_keys_are_bare_in_the_raw_dialect_and_quoted_in_the_standard_one() {
    let mut route = TopicRouteData::default();
    let mut broker = BrokerData { broker_name: "中\"".to_owned(), ..BrokerData::default() };
    broker.broker_addrs.insert(0, "h:1".to_owned());
    route.broker_datas.push(broker);
    let raw = r#"{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"中\"","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[]}"#;
    assert_eq!(String::from_utf8(route.to_raw()).unwrap(), raw);
    let standard = r#"{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"\u4E2D\"","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[]}"#;
    assert_eq!(String::from_utf8(route.to_json(Dialect::Standard)).unwrap(), standard);
    for text in [raw, standard] {
        assert_eq!(TopicRouteData::from_json(text.as_bytes()).unwrap(), route);
    }
}

#[test]
fn object_keys_are_raw_objects_and_read_in_every_form() {
    let mut body = ResetOffsetBody::default();
    body.offset_table.insert(MessageQueue::new("T", "b", 1), 5);
    let raw = br#"{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}"#;
    assert_eq!(body.to_raw(), raw);
    assert_eq!(ResetOffsetBody::from_json(raw).unwrap(), body);
    assert_eq!(ResetOffsetBody::from_json(&body.to_json(Dialect::Standard)).unwrap(), body);
}

#[test]
fn a_text_that_looks_like_an_object_stays_a_quoted_key() {
    let mut table = KVTable::default();
    table.table.insert("{\"a\":1}".to_owned(), "1".to_owned());
    assert_eq!(table.to_raw(), br#"{"table":{"{\"a\":1}":"1"}}"#);
    assert_eq!(KVTable::from_json(&table.to_raw()).unwrap(), table);
}

#[test]
fn a_batch_acknowledgement_has_its_bits_in_base64() {
    let bits: BitSet = [0, 3, 9].into_iter().collect();
    let ack = BatchAck { bit_set: bits.clone(), ..BatchAck::default() };
    let text = String::from_utf8(ack.to_raw()).unwrap();
    assert!(text.starts_with(r#"{"b":"CQI=","#), "{text}");
    assert_eq!(
        BatchAck::from_json(text.as_bytes()).unwrap().bit_set.ones().collect::<Vec<_>>(),
        [0, 3, 9]
    );
}
