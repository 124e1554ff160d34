//! The bits of a message's `sysFlag`, as they stand on wire and disk.

/// The body is compressed; the algorithm is in [`COMPRESSION_TYPE_MASK`].
pub const COMPRESSED: i32 = 0x1;
/// The topic's filter type was MULTI_TAG.
pub const MULTI_TAGS: i32 = 0x2;
/// Both bits of the transaction type.
pub const TRANSACTION_MASK: i32 = 0xC;
/// An ordinary message (and a half message as it is stored).
pub const TRANSACTION_NOT: i32 = 0x0;
/// A half message as the producer sends it.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// A committed transaction message.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// A rolled back transaction message: neither index nor queue entry.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The born host has a 16-byte address.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host has a 16-byte address.
pub const STORE_HOST_V6: i32 = 0x20;
/// The client must unwrap an inner batch.
pub const NEED_UNWRAP: i32 = 0x40;
/// The body holds a whole batch.
pub const INNER_BATCH: i32 = 0x80;
/// Bits 8 to 10: compression algorithm.
pub const COMPRESSION_TYPE_MASK: i32 = 0x700;
/// LZ4 frame format.
pub const COMPRESSION_LZ4: i32 = 0x100;
/// Zstandard.
pub const COMPRESSION_ZSTD: i32 = 0x200;
/// zlib (0 with [`COMPRESSED`] means the same).
pub const COMPRESSION_ZLIB: i32 = 0x300;

/// The transaction type bits alone.
#[must_use]
pub fn transaction_type(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}

/// `sys_flag` with its transaction type replaced.
#[must_use]
pub fn with_transaction_type(sys_flag: i32, transaction: i32) -> i32 {
    (sys_flag & !TRANSACTION_MASK) | (transaction & TRANSACTION_MASK)
}
