//! Frames captured from the original: `tests/fixtures/frames.jsonl`, one JSON object a line.

use apogee_protocol::RemotingCommand;
use bytes::{Bytes, BytesMut};
use serde_json::Value;

/// A captured frame and what the original said is in it.
pub(crate) struct Captured {
    pub(crate) line: Value,
    /// The frame with its length word.
    pub(crate) raw: Vec<u8>,
}

impl Captured {
    pub(crate) fn text(&self, key: &str) -> &str {
        self.line[key].as_str().unwrap_or("")
    }

    pub(crate) fn int(&self, key: &str) -> i32 {
        i32::try_from(self.line[key].as_i64().unwrap()).unwrap()
    }

    pub(crate) fn is_response(&self) -> bool {
        self.text("type") == "response"
    }

    pub(crate) fn command(&self) -> RemotingCommand {
        let mut buf = BytesMut::from(&self.raw[..]);
        let frame = apogee_protocol::split_frame(&mut buf, 1 << 24).unwrap().unwrap();
        assert!(buf.is_empty());
        RemotingCommand::decode(frame).unwrap()
    }

    pub(crate) fn body(&self) -> Bytes {
        self.command().body
    }
}

/// All captured frames.
pub(crate) fn captured() -> Vec<Captured> {
    let text = include_str!("../fixtures/frames.jsonl");
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let raw = base64(line["raw"].as_str().unwrap());
            Captured { line, raw }
        })
        .collect()
}

fn base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
