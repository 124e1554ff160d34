//! Big-endian integers at fixed places, with bounds checks. Everything on disk is big endian.

/// Reads the `i32` at `at`, if it is there.
pub(crate) fn get_i32(bytes: &[u8], at: usize) -> Option<i32> {
    let end = at.checked_add(4)?;
    Some(i32::from_be_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Reads the `i64` at `at`, if it is there.
pub(crate) fn get_i64(bytes: &[u8], at: usize) -> Option<i64> {
    let end = at.checked_add(8)?;
    Some(i64::from_be_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Writes an `i32` at `at`; does nothing when there is no room.
pub(crate) fn put_i32(bytes: &mut [u8], at: usize, value: i32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes an `i64` at `at`; does nothing when there is no room.
pub(crate) fn put_i64(bytes: &mut [u8], at: usize, value: i64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Queue offset of a stored record (its head is at the start of `record`).
pub(crate) fn record_queue_offset(record: &[u8]) -> Option<i64> {
    get_i64(record, 20)
}

/// Store timestamp of a stored record (its head is at the start of `record`).
pub(crate) fn record_store_timestamp(record: &[u8]) -> Option<i64> {
    let born_v6 = get_i32(record, 36)? & apogee_model::sys_flag::BORN_HOST_V6 != 0;
    get_i64(record, if born_v6 { 68 } else { 56 })
}
