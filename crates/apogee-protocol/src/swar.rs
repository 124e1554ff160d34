//! Searching texts eight bytes at a time: header texts are where the time of a decode goes.
//!
//! Always holds: each search gives what a byte-by-byte search gives (tested against each other).

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte that is zero. Exact for the lowest such byte, which is the first in memory.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

const fn equal_bytes(word: u64, byte: u8) -> u64 {
    zero_bytes(word ^ (ONES * byte as u64))
}

/// The high bit of each byte below 32.
const fn control_bytes(word: u64) -> u64 {
    zero_bytes(word & (ONES * 0xe0))
}

fn search(text: &[u8], hits: impl Fn(u64) -> u64, hit: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = hits(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(at * 8 + (found.trailing_zeros() / 8) as usize);
        }
    }
    rest.iter().position(|byte| hit(*byte)).map(|at| words.len() * 8 + at)
}

/// Where a quote or a backslash stands first.
pub(crate) fn end_of_plain(text: &[u8]) -> Option<usize> {
    search(
        text,
        |word| equal_bytes(word, b'"') | equal_bytes(word, b'\\'),
        |byte| matches!(byte, b'"' | b'\\'),
    )
}

/// Where a byte stands first that a JSON text must not hold as it is.
pub(crate) fn first_to_escape(text: &[u8]) -> Option<usize> {
    search(
        text,
        |word| {
            control_bytes(word)
                | equal_bytes(word, b'"')
                | equal_bytes(word, b'\\')
                | equal_bytes(word, 0x7f)
        },
        |byte| byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7f),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_found_as_by_a_slow_search() {
        for byte in 0..=255_u8 {
            for filler in [b'a', b'!', 0xff, 0x80, byte.wrapping_add(1), byte.wrapping_sub(1)] {
                for at in 0..20 {
                    let mut text = [filler; 20];
                    text[at] = byte;
                    let plain = text.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                    assert_eq!(end_of_plain(&text), plain);
                    let escape = text
                        .iter()
                        .position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7f));
                    assert_eq!(first_to_escape(&text), escape);
                }
            }
        }
    }
}
