//! Whatever bytes lie in a store's files: opening gives a store or an error, never a panic, and a
//! store that opens can be written, read and closed.

use crate::support::*;
use apogee_store::{KeyKind, MessageStore, NoListener, inspect};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A store with all kinds of files, made once.
fn template() -> &'static Path {
    static DIR: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(small(dir.path()));
        for n in 0..60 {
            let key = format!("k{n}");
            let pairs = [("KEYS", key.as_str()), ("TAGS", "a")];
            try_send(&store, "T", n % 2, &[b'x'; 600], &pairs, NOW + i64::from(n)).unwrap();
        }
        send(&store, "Gone", 0, "x");
        store.delete_topic("Gone").unwrap();
        store.shutdown().unwrap();
        dir
    })
    .path()
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

#[derive(Debug, Clone)]
struct Damage {
    file: prop::sample::Index,
    at: prop::sample::Index,
    bytes: Vec<u8>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..64),
        prop::collection::vec(Just(0), 1..600),
        prop::collection::vec(Just(0xFF), 1..32),
    ];
    (any::<prop::sample::Index>(), any::<prop::sample::Index>(), bytes)
        .prop_map(|(file, at, bytes)| Damage { file, at, bytes })
}

fn inflict(root: &Path, damage: &Damage) {
    let mut found = Vec::new();
    files(root, &mut found);
    let path = damage.file.get(&found);
    let mut bytes = std::fs::read(path).unwrap();
    if bytes.is_empty() {
        return;
    }
    let at = damage.at.index(bytes.len());
    for (place, byte) in bytes[at..].iter_mut().zip(&damage.bytes) {
        *place = *byte;
    }
    std::fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_files_never_panic(
        damages in prop::collection::vec(damage(), 1..4),
        crashed in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        copy_dir(template(), dir.path());
        for damage in &damages {
            inflict(dir.path(), damage);
        }
        if crashed {
            std::fs::write(dir.path().join("abort"), "1").unwrap();
        }
        let _ = inspect::check(&small(dir.path()));
        let Ok(store) = MessageStore::open(small(dir.path()), Arc::new(NoListener)) else {
            return Ok(());
        };
        let placed = try_send(&store, "New", 0, b"new", &[("KEYS", "fresh")], NOW + 100).unwrap();
        prop_assert_eq!(bodies(&store, "New", 0), ["new"]);
        prop_assert_eq!(placed.queue_offset, 0);
        let found = store.query("New", "fresh", KeyKind::Key, 10, 0, i64::MAX).unwrap();
        prop_assert_eq!(found.records.len(), 1);
        for queue in 0..2 {
            for offset in store.min_offset("T", queue)..store.max_offset("T", queue) {
                let _ = store.message_time("T", queue, offset);
            }
            let _ = store.offset_by_time("T", queue, NOW + 30, apogee_store::Boundary::Lower);
        }
        store.shutdown().unwrap();
    }
}
