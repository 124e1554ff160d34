//! Every captured frame reads, says what the original says, and writes again.

use crate::fixtures::captured;
use apogee_protocol::{RemotingCommand, SerializeType, split_frame};
use bytes::BytesMut;
use std::collections::BTreeMap;

#[test]
fn every_captured_frame_reads_as_the_original_reads_it() {
    for frame in captured() {
        let command = frame.command();
        assert_eq!(command.code, frame.int("code"));
        assert_eq!(command.opaque, frame.int("opaque"));
        assert_eq!(command.flag, frame.int("flag"));
        assert_eq!(command.version, frame.int("version"));
        assert_eq!(command.language.name(), frame.text("language"));
        assert_eq!(command.remark.as_deref().unwrap_or(""), frame.text("remark"));
        assert_eq!(command.body.len(), frame.line["bodyLength"].as_u64().unwrap() as usize);
        let ext: BTreeMap<&str, &str> = command.ext.iter().collect();
        let said = frame.line["ext"].as_object().unwrap();
        let said: BTreeMap<&str, &str> =
            said.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
        assert_eq!(ext, said);
    }
}

#[test]
fn every_captured_frame_written_again_reads_the_same() {
    for frame in captured() {
        let command = frame.command();
        for serialize in [SerializeType::Json, SerializeType::RocketMq] {
            let command = RemotingCommand { serialize, ..command.clone() };
            let mut out = BytesMut::new();
            command.encode_into(&mut out).unwrap();
            let again =
                RemotingCommand::decode(split_frame(&mut out, 1 << 24).unwrap().unwrap()).unwrap();
            let pairs = |command: &RemotingCommand| -> Vec<(String, String)> {
                let texts = command
                    .ext
                    .iter()
                    .filter(|(_, value)| serialize == SerializeType::Json || !value.is_empty());
                texts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
            };
            assert_eq!(pairs(&again), pairs(&command));
            assert_eq!(
                (again.code, again.flag, &again.body),
                (command.code, command.flag, &command.body)
            );
            assert_eq!(again.remark.unwrap_or_default(), command.remark.unwrap_or_default());
        }
    }
}

#[test]
fn every_captured_binary_frame_is_written_byte_for_byte() {
    let mut seen = 0;
    for frame in captured() {
        let command = frame.command();
        if command.serialize == SerializeType::RocketMq {
            let mut out = BytesMut::new();
            command.encode_into(&mut out).unwrap();
            assert_eq!(&out[..], &frame.raw[..], "{}", frame.text("request"));
            seen += 1;
        }
    }
    assert!(seen > 50);
}

#[test]
fn every_captured_json_frame_is_written_byte_for_byte() {
    let mut seen = 0;
    for frame in captured() {
        let command = frame.command();
        // The original writes an empty map where we leave it out.
        let empty_map =
            command.ext.is_empty() && frame.raw.windows(11).any(|piece| piece == b"\"extFields\"");
        if command.serialize == SerializeType::Json && !empty_map {
            let mut out = BytesMut::new();
            command.encode_into(&mut out).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&out), text(&frame.raw), "{}", frame.text("request"));
            seen += 1;
        }
    }
    assert!(seen > 200);
}
