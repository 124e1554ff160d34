//! Random timers against a model: restarts, crashes, lost, stale and wrong files, clock steps, taking
//! back. Each message comes once, never early, and soon after its time.

use crate::support::*;
use apogee_store::timer::{TIMER_TOPIC, Timers, out_time};
use apogee_store::{MessageStore, StoreConfig};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const PRECISION: i64 = 1_000;

#[derive(Debug, Clone)]
enum Op {
    /// Messages with these delays (ms).
    Send(Vec<i64>),
    /// Takes one of the messages back.
    Recall(usize),
    Advance(i64),
    Back(i64),
    Save,
    Restart,
    Crash,
    /// Crash, then lose some of: timercheck, timerlog, timerwheel.
    Lose(u8),
    /// Crash, then an older timercheck comes back.
    Stale(usize),
    /// Crash, then a timercheck of the original's form that is ahead of everything.
    Ahead,
    /// Crash, then bytes at the end of the timer log are garbage.
    Garble(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop::collection::vec(1..60_000_i64, 1..8).prop_map(Op::Send),
        2 => any::<usize>().prop_map(Op::Recall),
        6 => (1..15_000_i64).prop_map(Op::Advance),
        1 => (1..12_000_i64).prop_map(Op::Back),
        3 => Just(Op::Save),
        2 => Just(Op::Restart),
        2 => Just(Op::Crash),
        2 => any::<u8>().prop_map(Op::Lose),
        2 => any::<usize>().prop_map(Op::Stale),
        1 => Just(Op::Ahead),
        1 => any::<u8>().prop_map(Op::Garble),
    ]
}

struct Message {
    deliver: i64,
    /// Taken back in time.
    gone: bool,
}

struct World {
    config: StoreConfig,
    store: Option<Arc<MessageStore>>,
    timers: Option<Timers>,
    now: i64,
    messages: Vec<Message>,
    checks: Vec<Vec<u8>>,
}

fn config(root: &Path) -> StoreConfig {
    let mut config = small(root);
    config.timer_precision_ms = PRECISION;
    config.timer_roll_window_slot = 20;
    config.mapped_file_size_timer_log = 1_024;
    config
}

impl World {
    fn new(root: &Path) -> Self {
        let config = config(root);
        let (store, timers) = (None, None);
        let mut world =
            Self { config, store, timers, now: NOW, messages: Vec::new(), checks: Vec::new() };
        world.start();
        world
    }

    fn store(&self) -> &Arc<MessageStore> {
        self.store.as_ref().unwrap()
    }

    fn start(&mut self) {
        let store = open(self.config.clone());
        self.timers = Some(Timers::open(&store, self.now).unwrap());
        self.store = Some(store);
    }

    fn run(&mut self) {
        let timers = self.timers.as_mut().unwrap();
        while timers.step(self.now).unwrap().wait_ms == 0 {}
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.config.store_path_root_dir.join(name)
    }

    fn keep_check(&mut self) {
        if let Ok(bytes) = std::fs::read(self.path("config/timercheck")) {
            self.checks.push(bytes);
        }
    }

    fn send(&mut self, delay: i64) {
        let deliver = self.now + delay;
        let id = self.messages.len().to_string();
        self.messages.push(Message { deliver, gone: false });
        self.put(deliver, &id, &id, None);
    }

    fn put(&self, deliver: i64, body: &str, key: &str, takes_back: Option<&str>) {
        let out = out_time(deliver, PRECISION).to_string();
        let mut pairs = vec![
            ("UNIQ_KEY", key),
            ("TIMER_OUT_MS", out.as_str()),
            ("REAL_TOPIC", "T"),
            ("REAL_QID", "0"),
        ];
        pairs.extend(takes_back.map(|key| ("TIMER_DEL_UNIQKEY", key)));
        try_send(self.store(), TIMER_TOPIC, 0, body.as_bytes(), &pairs, self.now).unwrap();
    }

    fn recall(&mut self, which: usize) {
        if self.messages.is_empty() {
            return;
        }
        let which = which % self.messages.len();
        let handle_time = out_time(self.messages[which].deliver, PRECISION) + 1;
        // As the broker checks it.
        if handle_time > self.now {
            let key = which.to_string();
            self.put(handle_time, "0", &key, Some(&key));
            let came = self.delivered().contains_key(&which);
            self.messages[which].gone |= !came;
        }
    }

    fn crash(&mut self) {
        self.timers = None;
        self.store = None;
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Send(delays) => delays.iter().for_each(|delay| self.send(*delay)),
            Op::Recall(which) => self.recall(*which),
            Op::Advance(ms) => self.now += ms,
            Op::Back(ms) => self.now -= ms,
            Op::Save => {
                let now = self.now;
                self.timers.as_mut().unwrap().save(now).unwrap();
                self.keep_check();
            }
            Op::Restart => {
                let now = self.now;
                self.timers.take().unwrap().close(now).unwrap();
                self.store.take().unwrap().shutdown().unwrap();
                self.keep_check();
                self.start();
            }
            other => {
                self.crash();
                self.damage(other);
                self.start();
            }
        }
        self.run();
    }

    fn damage(&self, op: &Op) {
        match op {
            Op::Lose(which) => {
                for (bit, name) in [(1, "config/timercheck"), (2, "timerwheel")] {
                    if which & bit != 0 {
                        let _ = std::fs::remove_file(self.path(name));
                    }
                }
                if which & 4 != 0 {
                    let _ = std::fs::remove_dir_all(self.path("timerlog"));
                }
            }
            Op::Stale(which) if !self.checks.is_empty() => {
                let old = &self.checks[which % self.checks.len()];
                std::fs::write(self.path("config/timercheck"), old).unwrap();
            }
            Op::Ahead => {
                let mut bytes = Vec::new();
                for field in [self.now + 3_600_000, 1 << 30, 1 << 20, 1 << 20, 0, 0, 9] {
                    bytes.extend(field.to_be_bytes());
                }
                bytes.resize(4096, 0);
                std::fs::create_dir_all(self.path("config")).unwrap();
                std::fs::write(self.path("config/timercheck"), bytes).unwrap();
            }
            Op::Garble(byte) => self.garble(*byte),
            _ => {}
        }
    }

    fn garble(&self, byte: u8) {
        let Ok(files) = std::fs::read_dir(self.path("timerlog")) else { return };
        let mut names: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        names.sort();
        let Some(last) = names.last() else { return };
        let mut bytes = std::fs::read(last).unwrap();
        let from = bytes.len() * usize::from(byte) / 256;
        bytes[from..].fill(byte | 0x40);
        std::fs::write(last, bytes).unwrap();
    }

    /// Store times of each message's deliveries.
    fn delivered(&self) -> BTreeMap<usize, Vec<i64>> {
        let store = self.store();
        let mut found: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for (offset, body) in read_all(store, "T", 0) {
            let id = String::from_utf8(body).unwrap().parse().unwrap();
            found.entry(id).or_default().push(store.message_time("T", 0, offset).unwrap());
        }
        found
    }
}

fn check(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path());
    for op in ops {
        world.apply(op);
    }
    for _ in 0..200 {
        world.now += 1_000;
        world.run();
    }
    world.apply(&Op::Restart);
    world.apply(&Op::Lose(7));
    let delivered = world.delivered();
    for (id, message) in world.messages.iter().enumerate() {
        let times = delivered.get(&id).cloned().unwrap_or_default();
        assert_eq!(times.len(), usize::from(!message.gone), "message {id} of {}", message.deliver);
        for time in times {
            assert!(
                time >= message.deliver,
                "message {id} came {} ms early",
                message.deliver - time
            );
        }
    }
}

/// Every case brings many files to the disk: a few by default, more on request.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn each_timer_message_comes_once_and_never_early(ops in prop::collection::vec(op(), 1..40)) {
        check(&ops);
    }
}

#[test]
fn a_message_of_many_windows_is_written_again_once_a_window() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path());
    world.send(200_000);
    for second in 0..210 {
        world.now += 1_000;
        world.run();
        match second % 60 {
            20 => world.apply(&Op::Restart),
            40 => world.apply(&Op::Crash),
            _ => {}
        }
    }
    assert_eq!(world.delivered()[&0].len(), 1);
    let rewrites = world.store().max_offset(TIMER_TOPIC, 0) - 1;
    assert!(rewrites <= 10, "{rewrites}");
}

#[test]
fn a_delivery_that_the_store_refuses_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path());
    for _ in 0..3 {
        world.send(1_500);
    }
    world.run();
    let faults = std::sync::Arc::new(Full::default());
    world.crash();
    world.config.disk_faults = Some(faults.clone());
    world.start();
    world.now += 3_000;
    faults.0.store(true, std::sync::atomic::Ordering::Relaxed);
    let now = world.now;
    let step = world.timers.as_mut().unwrap().step(now).unwrap();
    assert_eq!(step.delivered, 0);
    faults.0.store(false, std::sync::atomic::Ordering::Relaxed);
    world.store().try_recover().unwrap();
    world.run();
    let delivered = world.delivered();
    assert_eq!(delivered.values().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
}

#[derive(Default)]
struct Full(std::sync::atomic::AtomicBool);

impl apogee_store::faults::DiskFaults for Full {
    fn before_write(&self) -> std::io::Result<()> {
        if self.0.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

#[test]
fn a_message_taken_back_before_it_was_rolled_does_not_come_after_a_pause() {
    check(&[Op::Send(vec![26_001]), Op::Recall(0), Op::Advance(27_000), Op::Save]);
}

#[test]
fn what_takes_a_message_back_is_not_mistaken_for_its_copy() {
    let sent = vec![20_113, 39_682, 30_140, 13_334];
    let crash =
        [Op::Advance(8_822), Op::Crash, Op::Recall(0), Op::Advance(14_804), Op::Garble(194)];
    check(&[vec![Op::Send(sent)], crash.to_vec()].concat());
}

#[test]
fn a_log_made_anew_is_not_read_with_an_older_save() {
    let before = [Op::Send(vec![20_001]), Op::Send(vec![1]), Op::Save, Op::Send(vec![1])];
    let after = [Op::Advance(11_000), Op::Lose(6), Op::Crash, Op::Stale(0)];
    check(&[before.to_vec(), after.to_vec()].concat());
}
