//! Real processes killed at random moments: what was acknowledged is kept, at its offset.
//!
//! The child is this very test binary, started again for one test with an environment variable.
//! It appends with SYNC_FLUSH and writes a line for each message after its flush; the parent kills
//! it (SIGKILL) after a random number of lines, opens the store and compares.

use crate::support::*;
use apogee_store::{Clock, NoListener, StoreConfig};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CHILD: &str = "APOGEE_STORE_CRASH_CHILD";
const SENDERS: i32 = 3;

fn config(root: &Path) -> StoreConfig {
    let mut config = small_sync(root);
    config.mapped_file_size_commit_log = 32 * 1024;
    config.flush_interval_consume_queue = 3;
    config.flush_consume_queue_thorough_interval = 0;
    config
}

/// The child's life: append, wait for the flush, tell, until killed.
fn child(root: &Path) {
    let store = open(config(root));
    let clock: Clock = Arc::new(|| NOW);
    let _threads = store.start_threads(&clock).unwrap();
    std::thread::scope(|scope| {
        for queue in 0..SENDERS {
            let store = &store;
            scope.spawn(move || {
                for n in 0..1_000_000 {
                    let body = format!("{queue}-{n}-{}", "x".repeat(n % 300));
                    let key = format!("k{n}");
                    let pairs = [("KEYS", key.as_str())];
                    let placed = try_send(store, "T", queue, body.as_bytes(), &pairs, NOW).unwrap();
                    let wait = Duration::from_secs(60);
                    store.flushed().wait_blocking(placed.end(), wait).unwrap();
                    let line = format!("{queue} {} {body}\n", placed.queue_offset);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn acknowledged_messages_survive_kill_9_at_any_moment() {
    if let Some(root) = std::env::var_os(CHILD) {
        child(Path::new(&root));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged: HashMap<(i32, i64), String> = HashMap::new();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(std::process::id());
    for round in 0..20 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let lines = 20 + (random >> 33) % 150;
        run_and_kill(dir.path(), lines, &mut acknowledged);
        verify(dir.path(), &acknowledged, round);
    }
}

fn run_and_kill(root: &Path, lines: u64, acknowledged: &mut HashMap<(i32, i64), String>) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["crash::acknowledged_messages_survive_kill_9_at_any_moment", "--exact"])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = 0;
    let mut killed = false;
    for line in BufReader::new(process.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8(line.unwrap()).unwrap();
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let ([queue, offset, body], true) = (&words[..], line.ends_with('x')) else {
            continue;
        };
        let (Ok(queue), Ok(offset)) = (queue.parse(), offset.parse()) else {
            continue;
        };
        let before = acknowledged.insert((queue, offset), (*body).to_owned());
        assert_eq!(before, None, "offset {offset} of queue {queue} was given twice");
        seen += 1;
        if seen >= lines && !killed {
            killed = true;
            process.kill().unwrap();
        }
    }
    process.wait().unwrap();
    assert!(killed, "the child ended by itself");
}

fn verify(root: &Path, acknowledged: &HashMap<(i32, i64), String>, round: usize) {
    let store = apogee_store::MessageStore::open(config(root), Arc::new(NoListener)).unwrap();
    assert!(store.recovery().crashed || round == 0);
    let queues: Vec<Vec<(i64, Vec<u8>)>> =
        (0..SENDERS).map(|queue| read_all(&store, "T", queue)).collect();
    for (queue, messages) in queues.iter().enumerate() {
        let offsets: Vec<i64> = messages.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..messages.len() as i64).collect::<Vec<_>>(), "queue {queue}");
    }
    for ((queue, offset), body) in acknowledged {
        let found = queues[*queue as usize].get(*offset as usize);
        let found = found.map(|(_, body)| String::from_utf8_lossy(body));
        assert_eq!(found.as_deref(), Some(body.as_str()), "{queue} {offset} round {round}");
    }
    // Left as after a crash, so that the next round begins with a recovery too.
}
