use super::*;
use proptest::prelude::*;

fn sample<'a>(
    topic: &'a str,
    body: &'a [u8],
    properties: &'a [u8],
    host: &str,
) -> RecordFields<'a> {
    RecordFields {
        topic,
        queue_id: 3,
        flag: -1,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host.parse().unwrap(),
        store_host: "127.0.0.1:10911".parse().unwrap(),
        reconsume_times: 2,
        prepared_transaction_offset: 77,
        body,
        properties,
    }
}

#[test]
fn encoded_record_reads_back_with_its_position() {
    let fields = sample("TopicA", b"hello", b"TAGS\x01A\x02", "10.1.2.3:1234");
    let mut out = Vec::new();
    encode(&fields, &mut out).unwrap();
    set_position(&mut out, 11, 22, 33);
    assert_eq!(out.len(), encoded_len(&fields));
    let LogEntry::Record(view) = parse_entry(&out).unwrap() else { panic!("not a record") };
    assert_eq!((view.queue_offset(), view.physical_offset(), view.store_timestamp()), (11, 22, 33));
    assert_eq!(view.born_host(), "10.1.2.3:1234".parse().unwrap());
    assert_eq!(view.properties().get("TAGS"), Some("A"));
    assert!(view.check_crc());
    assert_eq!(view.version(), RecordVersion::V1);
}

#[test]
fn v6_hosts_and_mapped_v4_hosts_set_the_flag_that_fits() {
    let mut out = Vec::new();
    encode(&sample("T", b"x", b"", "[::1]:5"), &mut out).unwrap();
    set_position(&mut out, 1, 2, 3);
    let view = RecordView::parse(&out).unwrap();
    assert_eq!(view.sys_flag(), sys_flag::BORN_HOST_V6);
    assert_eq!(view.store_timestamp(), 3);
    assert_eq!(view.born_host(), "[::1]:5".parse().unwrap());
    out.clear();
    encode(&sample("T", b"x", b"", "[::ffff:1.2.3.4]:5"), &mut out).unwrap();
    assert_eq!(RecordView::parse(&out).unwrap().born_host(), "1.2.3.4:5".parse().unwrap());
}

#[test]
fn a_topic_over_127_bytes_makes_a_version_2_record() {
    for (len, version) in [(127, RecordVersion::V1), (128, RecordVersion::V2)] {
        let topic = "t".repeat(len);
        let mut out = Vec::new();
        encode(&sample(&topic, b"x", b"", "1.1.1.1:1"), &mut out).unwrap();
        let view = RecordView::parse(&out).unwrap();
        assert_eq!((view.version(), view.topic()), (version, topic.as_str()));
    }
}

#[test]
fn properties_over_32767_bytes_are_refused_by_name_and_limit() {
    let long = vec![b'a'; 32_768];
    let mut out = Vec::new();
    let error = encode(&sample("T", b"x", &long, "1.1.1.1:1"), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "properties has 32768 bytes, the limit is 32767");
    assert!(out.is_empty());
    assert!(encode(&sample("T", b"x", &long[..32_767], "1.1.1.1:1"), &mut out).is_ok());
}

#[test]
fn blank_and_empty_are_told_apart() {
    let mut rest = vec![0; 100];
    assert!(matches!(parse_entry(&rest), Ok(LogEntry::Empty)));
    rest[..8].copy_from_slice(&encode_blank(100));
    assert!(matches!(parse_entry(&rest), Ok(LogEntry::Blank { size: 100 })));
    assert!(matches!(parse_entry(&[0; 3]), Ok(LogEntry::Empty)));
    assert!(parse_entry(&[0, 0, 1]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_entry(&bytes);
    }

    #[test]
    fn a_damaged_record_never_panics_and_never_reads_past_itself(
        at in 0usize..140, value in any::<u8>(), cut in 0usize..140,
    ) {
        let mut out = Vec::new();
        encode(&sample("TopicA", b"some body", b"KEYS\x01k\x02", "[::1]:9"), &mut out).unwrap();
        if let Some(byte) = out.get_mut(at) { *byte = value; }
        out.truncate(cut.max(1));
        if let Ok(LogEntry::Record(view)) = parse_entry(&out) {
            prop_assert!(view.total_size() <= out.len());
        }
    }

    #[test]
    fn encode_and_parse_are_inverse(
        topic in "[a-zA-Z%_|-]{1,200}",
        body in proptest::collection::vec(any::<u8>(), 0..300),
        properties in proptest::collection::vec(any::<u8>(), 0..100),
        sys in any::<i32>(), flag in any::<i32>(),
    ) {
        let mut fields = sample(&topic, &body, &properties, "9.9.9.9:9");
        fields.sys_flag = sys;
        fields.flag = flag;
        let mut out = Vec::new();
        encode(&fields, &mut out).unwrap();
        let view = RecordView::parse(&out).unwrap();
        let mut again = Vec::new();
        encode(&view.fields(), &mut again).unwrap();
        prop_assert_eq!(out, again);
    }
}
