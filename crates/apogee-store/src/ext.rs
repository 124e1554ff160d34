//! The consume queue extension of older stores, as far as reading needs it: the real tags code
//! behind an ext address. Nothing here writes.
//!
//! | bytes | field of an ext unit |
//! | --- | --- |
//! | 2 | size of the unit, 20 + bit map |
//! | 8 | tags code |
//! | 8 | store timestamp |
//! | 2 + n | bit map of filters |

use crate::be::get_i64;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Tags codes up to this one are ext addresses.
const MAX_ADDRESS: i64 = i32::MIN as i64 - 1;

/// Whether a unit's tags code is an ext address.
pub(crate) fn is_address(tags_code: i64) -> bool {
    tags_code <= MAX_ADDRESS
}

/// The tags code at an ext address; `None` when its file does not hold it.
pub(crate) fn tags_code(dir: &Path, file_size: usize, address: i64) -> Option<i64> {
    let offset = address.wrapping_sub(i64::MIN);
    let size = i64::try_from(file_size).ok().filter(|size| *size > 0)?;
    let in_file = offset.rem_euclid(size);
    let path = dir.join(crate::segment::file_name(offset - in_file));
    let mut bytes = [0; 10];
    File::open(path).and_then(|file| file.read_exact_at(&mut bytes, in_file as u64)).ok()?;
    get_i64(&bytes, 2)
}
