//! Which bits of a message's filter map stand for a group: what `consumerFilter.json` holds of it.
//!
//! The original can note at arrival which groups' filters match a message, as a Bloom filter in the
//! extension of the consume queue. Here messages are always judged by their properties; the bits are
//! written so that the original accepts the document, which it discards whole when bits are missing.

/// Bits of a map, for the original's default of 32 groups and 20 percent of error.
pub const FILTER_BITS: i32 = 112;
/// Bits that stand for one group.
const BITS_OF_A_GROUP: usize = 3;

/// The bits of a group's filter for a topic, each below [`FILTER_BITS`].
#[must_use]
pub fn filter_bits(group: &str, topic: &str) -> [i32; BITS_OF_A_GROUP] {
    let hash = murmur3(format!("{group}#{topic}").as_bytes());
    let (low, high) = (hash as i32, (hash >> 32) as i32);
    let mut bit = low;
    [(); BITS_OF_A_GROUP].map(|()| {
        bit = bit.wrapping_add(high);
        (if bit < 0 { !bit } else { bit }) % FILTER_BITS
    })
}

/// The first half of MurmurHash3 x64 128 with seed 0.
fn murmur3(bytes: &[u8]) -> u64 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix1 = |word: u64| word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix2 = |word: u64| word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let (one, two) = halves(*block);
        h1 = (h1 ^ mix1(one)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix2(two)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let mut last = [0; 16];
    last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    let (one, two) = halves(last);
    let len = bytes.len() as u64;
    h1 ^= mix1(one) ^ len;
    h2 ^= mix2(two) ^ len;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2))
}

fn halves(block: [u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(block);
    (both as u64, (both >> 64) as u64)
}

fn finish(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(murmur3(b""), 0);
        assert_eq!(murmur3(b"hello"), 0xcbd8_a7b3_41bd_9b02);
        let long = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(murmur3(long), 0xe34b_bc7b_bc07_1b6c);
    }

    #[test]
    fn the_bits_are_those_that_the_original_wrote() {
        assert_eq!(filter_bits("CG_sql", "TopicSql"), [74, 76, 33]);
    }
}
