//! What the fuzz targets and the property tests feed with bytes: everything that happens before a handler runs.

use apogee_protocol::bodies::*;
use apogee_protocol::headers::{PullMessageRequestHeader, SendMessageHeader};
use apogee_protocol::{Header, RemotingCommand, lenient, split_frame};
use bytes::BytesMut;

/// Bytes as a stream of frames.
pub(crate) fn frame(bytes: &[u8]) {
    let mut buf = BytesMut::from(bytes);
    while let Ok(Some(frame)) = split_frame(&mut buf, 1 << 20) {
        if let Some(header) = frame.get(4..) {
            assert!(
                apogee_protocol::readers_agree(header),
                "the two readers of JSON headers differ"
            );
        }
        let Ok(command) = RemotingCommand::decode(frame) else { continue };
        let _ = SendMessageHeader::decode(&command.ext);
        let _ = PullMessageRequestHeader::decode(&command.ext);
        let mut out = BytesMut::new();
        if command.encode_into(&mut out).is_ok() {
            let again = split_frame(&mut out, usize::MAX).ok().flatten();
            let again = again.and_then(|frame| RemotingCommand::decode(frame).ok());
            assert_eq!(again.map(|again| again.body), Some(command.body));
        }
    }
}

/// Bytes as a body, and as a registration.
pub(crate) fn json_body(bytes: &[u8]) {
    if let Ok(standard) = lenient::to_standard(bytes) {
        let again = lenient::to_standard(standard.as_bytes());
        assert_eq!(again.as_ref(), Ok(&standard), "standard JSON must stay as it is");
    }
    let _ = HeartbeatData::from_json(bytes);
    let _ = RegisterBrokerBody::decode(bytes, true);
    if let Ok(body) = ConsumerRunningInfo::from_json(bytes) {
        assert!(ConsumerRunningInfo::from_json(&body.to_raw()).is_ok());
    }
    if let Ok(route) = TopicRouteData::from_json(bytes) {
        assert_eq!(
            TopicRouteData::from_json(&route.to_json(Dialect::Standard)).ok(),
            Some(route.clone())
        );
        assert_eq!(TopicRouteData::from_json(&route.to_raw()).ok(), Some(route));
    }
}
