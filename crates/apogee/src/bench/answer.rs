//! Reading answers cheaply: cut the stream, look at code and opaque, decode the rest only when asked.

use apogee_protocol::RemotingCommand;
use bytes::Bytes;

/// No answer to a send is larger; more means that the stream is not what it should be.
const MAX_FRAME: usize = 64 * 1024 * 1024;

/// What every answer is looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Glance {
    pub(crate) code: i32,
    pub(crate) opaque: u32,
}

/// The bytes of the first whole frame with its length word; `None` = more are needed.
pub(crate) fn first_frame(bytes: &[u8]) -> Result<Option<&[u8]>, String> {
    let Some(word) = bytes.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*word) as usize;
    if !(4..=MAX_FRAME).contains(&len) {
        return Err(format!("an answer of {len} bytes: this is not the remoting protocol"));
    }
    Ok(bytes.get(..len + 4))
}

/// Code and opaque of a frame (with its length word).
pub(crate) fn glance(frame: &[u8]) -> Result<Glance, String> {
    quick_glance(frame).map_or_else(
        || decode(frame).map(|c| Glance { code: c.code, opaque: c.opaque.cast_unsigned() }),
        Ok,
    )
}

/// The whole answer.
pub(crate) fn decode(frame: &[u8]) -> Result<RemotingCommand, String> {
    RemotingCommand::decode(Bytes::copy_from_slice(frame.get(4..).unwrap_or_default()))
        .map_err(|error| format!("an answer cannot be read: {error}"))
}

fn quick_glance(frame: &[u8]) -> Option<Glance> {
    let word = u32::from_be_bytes(*frame.get(4..)?.first_chunk::<4>()?);
    let header = frame.get(8..)?.get(..(word & 0x00FF_FFFF) as usize)?;
    if word >> 24 == 1 {
        let code = i16::from_be_bytes(*header.first_chunk::<2>()?);
        let opaque = u32::from_be_bytes(*header.get(5..)?.first_chunk::<4>()?);
        return Some(Glance { code: i32::from(code), opaque });
    }
    let code = number(header.strip_prefix(b"{\"code\":")?)?;
    // Opaque stands near the end. A text can't hold this key: its quotes would be escaped.
    const KEY: &[u8] = b"\"opaque\":";
    let at = header.windows(KEY.len()).rposition(|window| window == KEY)?;
    let opaque = number(header.get(at + KEY.len()..)?)?;
    Some(Glance { code: i32::try_from(code).ok()?, opaque })
}

fn number(text: &[u8]) -> Option<u32> {
    let mut value: u32 = 0;
    let mut digits = 0;
    for byte in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use apogee_protocol::SerializeType;
    use bytes::BytesMut;

    #[test]
    fn a_glance_sees_what_the_decoder_sees() {
        for serialize in [SerializeType::Json, SerializeType::RocketMq] {
            for code in [0, 19, 206] {
                let ext = [("msgId", "a\"opaque\":5"), ("queueId", "1")].into_iter().collect();
                let mut command = RemotingCommand::with_ext(code, ext);
                command.serialize = serialize;
                command.opaque = 1_000_000_042;
                command.remark = Some("because \"opaque\":7".into());
                let mut out = BytesMut::new();
                command.encode_into(&mut out).unwrap();
                let frame = first_frame(&out).unwrap().unwrap();
                assert_eq!(quick_glance(frame), Some(Glance { code, opaque: 1_000_000_042 }));
                assert_eq!(decode(frame).unwrap().code, code);
            }
        }
    }

    #[test]
    fn a_stream_of_something_else_is_an_error_and_a_part_of_a_frame_is_not() {
        assert!(first_frame(b"HTTP/1.1 400").is_err());
        assert_eq!(first_frame(&[0, 0, 0, 9, 1]), Ok(None));
        assert!(glance(&[0, 0, 0, 4, 9, 0, 0, 0]).is_err());
    }
}
