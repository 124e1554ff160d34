//! The body of a batch send: several messages of one topic in a row.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | total size of this message |
//! | 4, 4 | magic and body CRC, both 0 and ignored |
//! | 4 | flag |
//! | 4 + n | body |
//! | 2 + n | properties |

use crate::reader::Reader;

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMessage<'a> {
    /// The application's flag.
    pub flag: i32,
    /// Body.
    pub body: &'a [u8],
    /// Encoded properties.
    pub properties: &'a [u8],
}

/// A batch body whose lengths do not add up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message {index} of the batch is malformed: its {field} does not fit the body")]
pub struct BatchError {
    /// Which message, from 0.
    pub index: usize,
    /// Which part.
    pub field: &'static str,
}

/// Splits a batch body into its messages.
///
/// # Errors
/// [`BatchError`] for the first message that does not fit; nothing of a bad batch is usable.
pub fn decode(body: &[u8]) -> Result<Vec<BatchMessage<'_>>, BatchError> {
    let mut messages = Vec::new();
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        let index = messages.len();
        let error = |field| BatchError { index, field };
        let size = reader.i32().ok_or(error("size"))?;
        let rest = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_sub(4))
            .and_then(|rest| reader.take(rest))
            .ok_or(error("size"))?;
        let mut message = Reader::new(rest);
        message.take(8).ok_or(error("head"))?;
        let flag = message.i32().ok_or(error("flag"))?;
        let body_len = message.i32().and_then(|len| usize::try_from(len).ok());
        let body = body_len.and_then(|len| message.take(len)).ok_or(error("body"))?;
        let properties_len = message.i16().and_then(|len| usize::try_from(len).ok());
        let properties =
            properties_len.and_then(|len| message.take(len)).ok_or(error("properties"))?;
        messages.push(BatchMessage { flag, body, properties });
    }
    Ok(messages)
}

/// Appends one message; lengths beyond the format's fields append nothing and answer false.
#[must_use]
pub fn append(out: &mut Vec<u8>, message: &BatchMessage<'_>) -> bool {
    let total = 4 * 5 + message.body.len() + 2 + message.properties.len();
    let (Ok(total), Ok(body_len), Ok(properties_len)) = (
        i32::try_from(total),
        i32::try_from(message.body.len()),
        i16::try_from(message.properties.len()),
    ) else {
        return false;
    };
    out.extend_from_slice(&total.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&message.flag.to_be_bytes());
    out.extend_from_slice(&body_len.to_be_bytes());
    out.extend_from_slice(message.body);
    out.extend_from_slice(&properties_len.to_be_bytes());
    out.extend_from_slice(message.properties);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bad_message_is_named() {
        let mut out = Vec::new();
        assert!(append(&mut out, &BatchMessage { flag: 1, body: b"a", properties: b"" }));
        let good = out.len();
        assert!(append(&mut out, &BatchMessage { flag: 1, body: b"b", properties: b"" }));
        if let Some(byte) = out.get_mut(good + 19) {
            *byte = 200;
        }
        assert_eq!(decode(&out), Err(BatchError { index: 1, field: "body" }));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn append_and_decode_are_inverse(
            items in proptest::collection::vec(
                (any::<i32>(), proptest::collection::vec(any::<u8>(), 0..50),
                 proptest::collection::vec(any::<u8>(), 0..50)), 0..10),
        ) {
            let mut out = Vec::new();
            for (flag, body, properties) in &items {
                let message = BatchMessage { flag: *flag, body, properties };
                prop_assert!(append(&mut out, &message));
            }
            let read = decode(&out).unwrap();
            prop_assert_eq!(read.len(), items.len());
            for (message, (flag, body, properties)) in read.iter().zip(&items) {
                prop_assert_eq!((message.flag, message.body, message.properties),
                    (*flag, body.as_slice(), properties.as_slice()));
            }
        }
    }
}
