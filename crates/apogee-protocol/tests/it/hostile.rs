//! Nothing from the wire panics, and readers that do the same agree.

use crate::entries::{frame, json_body};
use apogee_protocol::{LanguageCode, RemotingCommand, SerializeType, Str, lenient, split_frame};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

fn framed(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&((4 + header.len() + body.len()) as u32).to_be_bytes());
    bytes.extend_from_slice(&(u32::from(kind) << 24 | header.len() as u32).to_be_bytes());
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(body);
    bytes
}

/// Texts made of what JSON is made of.
fn json_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(":".to_owned()),
        Just(",".to_owned()),
        Just("\"code\"".to_owned()),
        Just("\"extFields\"".to_owned()),
        Just("\"language\":\"JAVA\"".to_owned()),
        Just("\"remark\":".to_owned()),
        Just("null".to_owned()),
        Just("\\u00".to_owned()),
        Just("\"".to_owned()),
        Just("'".to_owned()),
        Just("\"a\":\"1\"".to_owned()),
        Just("-12".to_owned()),
        Just("1.5".to_owned()),
        Just("true".to_owned()),
        ".{0,3}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// A scalar as it stands in JSON text, escapes included.
fn json_scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        "[\u{1}\u{2}\"\\\\/a]{0,6}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        any::<i64>().prop_map(|number| number.to_string()),
        (-20i32..400).prop_map(|number| number.to_string()),
        prop::sample::select(vec![
            "true",
            "false",
            "null",
            "1.5",
            "-0",
            "1e3",
            "\"\\/\\b\\f\"",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\"GO\"",
            "\"12\""
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        frame(&bytes);
    }

    #[test]
    fn any_header_of_either_kind_is_taken_without_a_panic(
        kind in 0u8..3, header in prop::collection::vec(any::<u8>(), 0..128), body in prop::collection::vec(any::<u8>(), 0..16),
    ) {
        frame(&framed(kind, &header, &body));
    }

    #[test]
    fn json_like_headers_are_taken_without_a_panic(header in json_like()) {
        frame(&framed(0, header.as_bytes(), b""));
        frame(&framed(0, format!("{{\"code\":10,\"extFields\":{{{header}}}}}").as_bytes(), b""));
    }

    #[test]
    fn both_readers_make_the_same_of_headers_of_the_usual_shape(
        pairs in prop::collection::vec(("[a-c]{1,2}|.{0,6}", json_scalar()), 0..8), top in prop::collection::vec(json_scalar(), 4),
    ) {
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        let fields: Vec<String> = pairs.iter().map(|(key, value)| format!("{} : {value}", quoted(key))).collect();
        let [code, flag, remark, language] = top.as_slice() else { unreachable!() };
        let header = format!(
            "{{\"code\":{code},\"extFields\":{{{}}},\"flag\":{flag},\"remark\":{remark},\"language\":{language}}}", fields.join(","),
        );
        prop_assert!(apogee_protocol::readers_agree(header.as_bytes()), "{}", header);
    }

    #[test]
    fn a_command_reads_back_as_written(
        code in any::<i16>(), opaque in any::<i32>(), flag in 0..4, version in 0..600, remark in proptest::option::of(".{1,20}"),
        pairs in prop::collection::vec((".{1,12}", ".{1,40}"), 0..12), body in prop::collection::vec(any::<u8>(), 0..64), binary in any::<bool>(),
    ) {
        let command = RemotingCommand {
            code: i32::from(code), language: LanguageCode::GO, version, opaque, flag, remark: remark.map(Str::from),
            ext: pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            serialize: if binary { SerializeType::RocketMq } else { SerializeType::Json }, body: Bytes::from(body),
        };
        let mut out = BytesMut::new();
        command.encode_into(&mut out).unwrap();
        let again = RemotingCommand::decode(split_frame(&mut out, 1 << 24).unwrap().unwrap()).unwrap();
        prop_assert_eq!(again, command);
    }

    #[test]
    fn lenient_reading_gives_json_or_refuses(text in json_like()) {
        if let Ok(standard) = lenient::to_standard(text.as_bytes()) {
            let tree: Result<serde_json::Value, _> = serde_json::from_str(&standard);
            // Numbers may be too large for a tree; everything else must be JSON.
            prop_assert!(tree.is_ok() || tree.as_ref().is_err_and(|error| error.to_string().contains("range")), "{} -> {}", text, standard);
        }
        json_body(text.as_bytes());
    }

    #[test]
    fn standard_json_keeps_its_tree_when_read_leniently(text in json_like()) {
        if let Ok(tree) = serde_json::from_str::<serde_json::Value>(&text) {
            let standard = lenient::to_standard(text.as_bytes()).unwrap();
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&standard).unwrap(), tree);
        }
    }

    #[test]
    fn any_bytes_as_a_registration_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        json_body(&bytes);
    }
}

#[test]
fn frames_with_any_byte_flipped_are_taken_without_a_panic() {
    for captured in crate::fixtures::captured().iter().take(60) {
        for at in (0..captured.raw.len().min(160)).step_by(3) {
            let mut bytes = captured.raw.clone();
            bytes[at] ^= 0x81;
            frame(&bytes);
        }
    }
}
