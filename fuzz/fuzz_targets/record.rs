//! Bytes of a commit log: records of both versions, blanks, properties, inner batches.
#![no_main]

use apogee_model::{LogEntry, batch, record};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(LogEntry::Record(view)) = record::parse_entry(rest) {
        assert!(view.total_size() > 0 && view.total_size() <= rest.len());
        assert_eq!(view.bytes().len(), view.total_size());
        let _ = view.check_crc();
        let _ = view.properties().iter().count();
        let _ = batch::decode(view.body());
        let mut again = Vec::new();
        if record::encode(&view.fields(), &mut again).is_ok() {
            assert!(matches!(record::parse_entry(&again), Ok(LogEntry::Record(_))));
        }
        rest = rest.get(view.total_size()..).unwrap_or_default();
    }
    let _ = batch::decode(bytes);
});
