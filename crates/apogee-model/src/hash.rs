//! Java's string hash, which is on disk (tags codes, index keys) and therefore part of the format.

/// `String.hashCode` of `text`: over its UTF-16 units, wrapping at 32 bits.
#[must_use]
pub fn java_hash(text: &str) -> i32 {
    java_hash_from(0, text)
}

/// Continues a [`java_hash`]: `java_hash_from(java_hash(a), b) == java_hash(a + b)`.
#[must_use]
pub fn java_hash_from(seed: i32, text: &str) -> i32 {
    if text.is_ascii() {
        return text
            .bytes()
            .fold(seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    }
    text.encode_utf16().fold(seed, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The tags code of a consume-queue unit: the hash, sign-extended; 0 without a tag.
#[must_use]
pub fn tags_code(tags: &str) -> i64 {
    i64::from(java_hash(tags))
}

/// The key hash of an index entry: the absolute value of the hash of all parts in a row
/// (`i32::MIN`, which has no absolute value, becomes 0).
#[must_use]
pub fn index_key_hash(parts: &[&str]) -> i32 {
    let hash = parts.iter().fold(0, |seed, part| java_hash_from(seed, part));
    hash.checked_abs().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_equals_java_for_ascii_collisions_and_wide_characters() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("Aa"), 2112);
        assert_eq!(java_hash("BB"), 2112);
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(java_hash("标签"), 0x6807_i32 * 31 + 0x7b7e);
        // One emoji is two UTF-16 units.
        assert_eq!(java_hash("😀"), 0xd83d_i32 * 31 + 0xde00);
    }

    #[test]
    fn index_hash_of_parts_equals_the_hash_of_their_concatenation() {
        assert_eq!(index_key_hash(&["TopicA", "#", "key1"]), java_hash("TopicA#key1").abs());
        assert_eq!(index_key_hash(&["polygene", "lubricants"]), 0);
    }

    #[test]
    fn tags_code_keeps_the_sign() {
        assert_eq!(tags_code("polygenelubricants"), i64::from(i32::MIN));
    }
}
