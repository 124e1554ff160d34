//! Random histories against a model: appends, restarts, crashes, torn tails, lost derived files.

use crate::support::*;
use apogee_store::{Appending, KeyKind, MessageStore};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const TOPICS: [&str; 3] = ["A", "B", "%RETRY%g"];

/// What must be readable: for each queue the bodies by offset.
type Model = BTreeMap<(usize, i32), Vec<String>>;

#[derive(Debug, Clone)]
enum Step {
    /// Appends messages as one batch: topic, queue, padding of each.
    Append(Vec<(usize, i32, usize)>),
    /// Clean stop and start.
    Restart,
    /// Stop without shutdown; what the page cache holds stays.
    Crash,
    /// Background work.
    Flush,
    Checkpoint,
    /// Stop, remove a derived file or folder, start.
    Lose(u8),
    /// Crash, then cut or garble the log behind `keep` records of the last batch.
    Tear(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let message = (0..TOPICS.len(), 0..3_i32, 0..600_usize);
    prop_oneof![
        8 => prop::collection::vec(message, 1..20).prop_map(Step::Append),
        2 => Just(Step::Restart),
        2 => Just(Step::Crash),
        2 => Just(Step::Flush),
        2 => Just(Step::Checkpoint),
        2 => any::<u8>().prop_map(Step::Lose),
        2 => (0..20_usize, any::<u8>()).prop_map(|(keep, how)| Step::Tear(keep, how)),
    ]
}

fn append(
    store: &MessageStore,
    model: &mut Model,
    counter: &mut usize,
    messages: &[(usize, i32, usize)],
) -> Vec<(usize, i32, i64, usize)> {
    let texts: Vec<String> = messages
        .iter()
        .map(|(_, _, padding)| {
            *counter += 1;
            format!("m{counter}-{}", "x".repeat(*padding))
        })
        .collect();
    let properties: Vec<Vec<u8>> =
        texts.iter().map(|text| properties(&[("KEYS", text.split('-').next().unwrap())])).collect();
    let mut batch: Vec<_> = messages
        .iter()
        .zip(texts.iter().zip(&properties))
        .map(|((topic, queue, _), (text, properties))| {
            Appending::new(fields(TOPICS[*topic], *queue, text.as_bytes(), properties))
        })
        .collect();
    store.append(&mut batch, NOW).unwrap();
    let mut placed = Vec::new();
    for (item, ((topic, queue, _), text)) in batch.iter().zip(messages.iter().zip(&texts)) {
        let place = item.outcome.clone().unwrap().unwrap();
        let bodies = model.entry((*topic, *queue)).or_default();
        assert_eq!(place.queue_offset, bodies.len() as i64);
        bodies.push(text.clone());
        placed.push((*topic, *queue, place.physical_offset, place.size));
    }
    placed
}

fn check(store: &MessageStore, model: &Model) {
    for ((topic, queue), expected) in model {
        let name = |text: &String| text.split('-').next().unwrap().to_owned();
        let found: Vec<_> = bodies(store, TOPICS[*topic], *queue).iter().map(name).collect();
        let wanted: Vec<_> = expected.iter().map(name).collect();
        assert_eq!(found, wanted, "{}@{queue}", TOPICS[*topic]);
        assert_eq!(store.max_offset(TOPICS[*topic], *queue), expected.len() as i64);
        // A sample of keys: the first, the middle and the last.
        for at in [0, expected.len() / 2, expected.len().saturating_sub(1)] {
            let Some(text) = expected.get(at) else {
                continue;
            };
            let key = text.split('-').next().unwrap();
            let hits = store.query(TOPICS[*topic], key, KeyKind::Key, 10, 0, i64::MAX).unwrap();
            assert_eq!(hits.records.len(), 1, "{key}");
        }
    }
}

/// Removes one derived file or folder.
fn lose(root: &Path, which: u8) {
    let mut candidates = Vec::new();
    for folder in ["consumequeue", "index"] {
        candidates.push(root.join(folder));
        collect(&root.join(folder), &mut candidates);
    }
    candidates.push(root.join("checkpoint"));
    let path = &candidates[which as usize % candidates.len()];
    if path.ends_with("checkpoint") {
        // Without it nobody knows which queues there were; only a crash recovery, which then
        // reads the whole log, can be asked to bring everything back.
        std::fs::write(root.join("abort"), "0").unwrap();
        std::fs::remove_file(path).unwrap();
    } else if path.is_dir() {
        std::fs::remove_dir_all(path).unwrap();
    } else if which & 0x80 == 0 {
        std::fs::remove_file(path).unwrap();
    } else {
        let len = std::fs::metadata(path).unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(len / 3).unwrap();
    }
}

fn collect(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        }
        found.push(path);
    }
    found.sort();
}

/// Destroys the log from a byte of a record on; gives false when the place is in a file that is
/// not the last one with data.
fn tear(root: &Path, at: i64, how: u8) {
    let size = 16 * 1024;
    let path = root.join(format!("commitlog/{:020}", at - at % size));
    let place = (at % size) as usize;
    let mut bytes = std::fs::read(&path).unwrap();
    match how % 3 {
        0 => bytes.truncate(place),
        1 => bytes[place..].fill(0),
        _ => bytes[place..].iter_mut().for_each(|byte| *byte ^= 0x5A),
    }
    std::fs::write(&path, bytes).unwrap();
    let mut later = at - at % size + size;
    while std::fs::remove_file(root.join(format!("commitlog/{later:020}"))).is_ok() {
        later += size;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_history_reads_like_its_model(steps in prop::collection::vec(step(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        let mut counter = 0;
        let mut last: Vec<(usize, i32, i64, usize)> = Vec::new();
        let mut store = open(small(dir.path()));
        let mut checkpointed = 0;
        for step in steps {
            match step {
                Step::Append(messages) => {
                    last = append(&store, &mut model, &mut counter, &messages);
                    continue;
                }
                Step::Flush => {
                    store.flush_log().unwrap();
                    store.flush_derived().unwrap();
                    continue;
                }
                Step::Checkpoint => {
                    store.save_checkpoint().unwrap();
                    checkpointed = store.appended().get();
                    continue;
                }
                Step::Restart => {
                    store.shutdown().unwrap();
                    checkpointed = store.appended().get();
                    drop(store);
                }
                Step::Crash => drop(store),
                Step::Lose(which) => {
                    store.shutdown().unwrap();
                    checkpointed = store.appended().get();
                    drop(store);
                    lose(dir.path(), which);
                }
                Step::Tear(keep, how) => {
                    drop(store);
                    // Only what no checkpoint calls flushed can be torn.
                    let torn = last.get(keep..).unwrap_or_default();
                    if let Some((_, _, at, size)) = torn.first().copied()
                        && at >= checkpointed
                    {
                        tear(dir.path(), at + (size as i64 * i64::from(how) / 300), how);
                        for (topic, queue, _, _) in torn {
                            model.get_mut(&(*topic, *queue)).unwrap().pop();
                        }
                        last.clear();
                    }
                }
            }
            store = open(small(dir.path()));
            check(&store, &model);
        }
        check(&store, &model);
    }
}
