//! What becomes of popped messages: a pure state machine over the checkpoints of one revive queue.
//!
//! A pop makes a checkpoint: some messages of one queue that one group does not see until a moment. Each
//! of them is invisible, and then exactly once either acknowledged, moved to a newer checkpoint (its
//! invisible time was changed) or revived (put into the retry topic or the dead letters).
//!
//! What always holds: a message leaves `Invisible` once and never comes back to it; a checkpoint is known
//! as long as one of its messages is invisible, and after that only while a handle of it could mislead
//! (a changed one that is not over yet); the lowest position of a checkpoint that is not done bounds from
//! where a restart must read. No clock, no I/O, no locks: the caller has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Most checkpoints of one revive queue that may be open; a pop beyond that is refused.
pub(crate) const OPEN_LIMIT: usize = 200_000;
/// Most acknowledgements kept whose checkpoint has not been seen yet.
const ORPHAN_LIMIT: usize = 100_000;
/// How long such acknowledgements are kept after their handle is over (ms).
const ORPHAN_MS: i64 = 600_000;
/// Pauses before a revive that failed is tried again (s), as the original's.
const REVIVE_AGAIN_S: [i64; 17] =
    [10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];

/// What one popped message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// A client has it.
    Invisible,
    /// Done.
    Acked,
    /// Its invisible time was changed: another checkpoint has it.
    Moved,
    /// Put into the retry topic or the dead letters.
    Revived,
}

/// Messages of a queue that were popped together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) topic: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) broker: Arc<str>,
    pub(crate) queue_id: i32,
    /// Where the pop began to read.
    pub(crate) start_offset: i64,
    pub(crate) pop_time: i64,
    pub(crate) invisible_ms: i64,
    /// Queue offsets and what became of each.
    pub(crate) messages: Vec<(i64, State)>,
    /// A revive after a suspension does not count as an attempt.
    pub(crate) suspended: bool,
    /// Revives that failed.
    pub(crate) failures: u32,
    /// Where its record stands in the revive queue.
    pub(crate) revive_offset: i64,
    /// When it is looked at next (ms); the machine's own.
    pub(crate) next_ms: i64,
}

impl Checkpoint {
    /// The name that acknowledgements refer to.
    pub(crate) fn key(&self) -> String {
        key(&self.topic, &self.group, self.queue_id, self.start_offset, self.pop_time, &self.broker)
    }

    /// When its messages become visible again (ms).
    pub(crate) fn revive_time(&self) -> i64 {
        self.pop_time.saturating_add(self.invisible_ms)
    }

    /// Offsets that nobody has settled.
    pub(crate) fn invisible(&self) -> impl Iterator<Item = i64> + '_ {
        self.messages
            .iter()
            .filter(|(_, state)| *state == State::Invisible)
            .map(|(offset, _)| *offset)
    }

    fn is_settled(&self) -> bool {
        self.invisible().next().is_none()
    }
}

/// The name of a checkpoint.
pub(crate) fn key(
    topic: &str,
    group: &str,
    queue_id: i32,
    start: i64,
    pop_time: i64,
    broker: &str,
) -> String {
    format!("{topic}@{queue_id}@{start}@{group}@{pop_time}@{broker}")
}

/// What is known of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The message is as [`State`] says.
    Here(State),
    /// The checkpoint does not hold this offset.
    NotInIt,
    /// There is no such checkpoint: settled long ago, or never seen.
    Nothing,
}

struct Orphan {
    offsets: Vec<i64>,
    until_ms: i64,
}

/// The checkpoints of one revive queue.
#[derive(Default)]
pub(crate) struct Machine {
    open: HashMap<Arc<str>, Checkpoint>,
    /// When each is looked at next.
    due: BTreeSet<(i64, Arc<str>)>,
    /// Positions of the records of checkpoints that are not settled.
    held: BTreeMap<i64, Arc<str>>,
    /// Acknowledgements that came before their checkpoint (another broker's timers may hold it back).
    orphans: HashMap<String, Orphan>,
}

impl Machine {
    /// Takes a checkpoint in; one that is known already changes nothing.
    pub(crate) fn popped(&mut self, mut checkpoint: Checkpoint) {
        let key: Arc<str> = checkpoint.key().into();
        if self.open.contains_key(&key) {
            return;
        }
        if let Some(orphan) = self.orphans.remove(key.as_ref()) {
            for (offset, state) in &mut checkpoint.messages {
                if orphan.offsets.contains(offset) {
                    *state = State::Acked;
                }
            }
        }
        if checkpoint.is_settled() {
            return;
        }
        self.held.insert(checkpoint.revive_offset, Arc::clone(&key));
        checkpoint.next_ms = checkpoint.revive_time();
        self.due.insert((checkpoint.next_ms, Arc::clone(&key)));
        self.open.insert(key, checkpoint);
    }

    /// What is known of a message of a checkpoint.
    pub(crate) fn look(&self, key: &str, offset: i64) -> Known {
        let Some(checkpoint) = self.open.get(key) else { return Known::Nothing };
        let found = checkpoint.messages.iter().find(|(at, _)| *at == offset);
        found.map_or(Known::NotInIt, |(_, state)| Known::Here(*state))
    }

    /// A message of a checkpoint is settled. Only an invisible one changes. `until_ms` bounds how long an
    /// acknowledgement without checkpoint is kept.
    pub(crate) fn settle(&mut self, key: &str, offset: i64, to: State, until_ms: i64) {
        let Some(checkpoint) = self.open.get_mut(key) else {
            if to == State::Acked && self.orphans.len() < ORPHAN_LIMIT {
                let until_ms = until_ms.saturating_add(ORPHAN_MS);
                let orphan = self
                    .orphans
                    .entry(key.to_owned())
                    .or_insert(Orphan { offsets: Vec::new(), until_ms });
                orphan.offsets.push(offset);
            }
            return;
        };
        let found = checkpoint
            .messages
            .iter_mut()
            .find(|(at, state)| *at == offset && *state == State::Invisible);
        if let Some((_, state)) = found {
            *state = to;
        }
        if !checkpoint.is_settled() {
            return;
        }
        self.held.remove(&checkpoint.revive_offset);
        // A handle that was exchanged must be refused while its holder may still believe in it.
        if !checkpoint.messages.iter().any(|(_, state)| *state == State::Moved) {
            self.remove(key);
        }
    }

    /// Checkpoints whose messages are visible again, earliest first. Each is either settled by the caller
    /// or [`Self::failed`].
    pub(crate) fn due(&mut self, now: i64, limit: usize) -> Vec<Checkpoint> {
        let mut due = Vec::new();
        let mut over = Vec::new();
        for (_, key) in self.due.iter().take_while(|(at, _)| *at <= now) {
            match self.open.get(key) {
                Some(checkpoint) if !checkpoint.is_settled() => due.push(checkpoint.clone()),
                _ => over.push(Arc::clone(key)),
            }
            if due.len() >= limit {
                break;
            }
        }
        for key in over {
            self.remove(&key);
        }
        self.orphans.retain(|_, orphan| orphan.until_ms > now);
        due
    }

    /// A revive did not work: it is tried again later.
    pub(crate) fn failed(&mut self, key: &str, now: i64) {
        let Some((key, _)) = self.open.get_key_value(key) else { return };
        let key = Arc::clone(key);
        let Some(checkpoint) = self.open.get_mut(&key) else { return };
        let at = (checkpoint.failures as usize).min(REVIVE_AGAIN_S.len() - 1);
        let pause = REVIVE_AGAIN_S.get(at).copied().unwrap_or(10) * 1_000;
        checkpoint.failures = checkpoint.failures.saturating_add(1);
        self.due.remove(&(checkpoint.next_ms, Arc::clone(&key)));
        checkpoint.next_ms = now.saturating_add(pause);
        self.due.insert((checkpoint.next_ms, key));
    }

    /// The checkpoints that `wanted` names and that are not settled.
    pub(crate) fn select(&self, wanted: impl Fn(&Checkpoint) -> bool) -> Vec<Checkpoint> {
        self.open
            .values()
            .filter(|checkpoint| !checkpoint.is_settled() && wanted(checkpoint))
            .cloned()
            .collect()
    }

    /// The lowest position of a checkpoint that is not settled.
    pub(crate) fn lowest_held(&self) -> Option<i64> {
        self.held.keys().next().copied()
    }

    /// When the next checkpoint is due (ms).
    #[cfg(test)]
    pub(crate) fn next_due(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Number of known checkpoints.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    fn remove(&mut self, key: &str) {
        if let Some((key, checkpoint)) = self.open.remove_entry(key) {
            self.held.remove(&checkpoint.revive_offset);
            self.due.remove(&(checkpoint.next_ms, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn checkpoint(
        start: i64,
        pop_time: i64,
        offsets: &[i64],
        record: i64,
    ) -> Checkpoint {
        Checkpoint {
            topic: "t".into(),
            group: "g".into(),
            broker: "b".into(),
            queue_id: 0,
            start_offset: start,
            pop_time,
            invisible_ms: 1_000,
            messages: offsets.iter().map(|offset| (*offset, State::Invisible)).collect(),
            suspended: false,
            failures: 0,
            revive_offset: record,
            next_ms: 0,
        }
    }

    #[test]
    fn a_checkpoint_is_forgotten_when_all_is_acknowledged() {
        let mut machine = Machine::default();
        let made = checkpoint(0, 10, &[0, 1], 5);
        let key = made.key();
        machine.popped(made);
        machine.settle(&key, 0, State::Acked, 0);
        assert_eq!(machine.lowest_held(), Some(5));
        assert_eq!(machine.look(&key, 0), Known::Here(State::Acked));
        assert_eq!(machine.look(&key, 7), Known::NotInIt);
        machine.settle(&key, 1, State::Acked, 0);
        assert_eq!((machine.lowest_held(), machine.len(), machine.next_due()), (None, 0, None));
        assert_eq!(machine.look(&key, 0), Known::Nothing);
    }

    #[test]
    fn only_what_is_invisible_is_due() {
        let mut machine = Machine::default();
        let made = checkpoint(0, 10, &[0, 1, 2], 0);
        let key = made.key();
        machine.popped(made);
        machine.settle(&key, 1, State::Acked, 0);
        assert!(machine.due(1_009, 10).is_empty());
        let due = machine.due(1_010, 10);
        assert_eq!(due[0].invisible().collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn an_exchanged_handle_is_known_until_its_time_is_over() {
        let mut machine = Machine::default();
        let made = checkpoint(0, 10, &[0], 0);
        let key = made.key();
        machine.popped(made);
        machine.settle(&key, 0, State::Moved, 0);
        assert_eq!(machine.look(&key, 0), Known::Here(State::Moved));
        assert_eq!(machine.lowest_held(), None);
        assert!(machine.due(1_010, 10).is_empty());
        assert_eq!(machine.len(), 0);
    }

    #[test]
    fn an_acknowledgement_that_comes_before_its_checkpoint_counts() {
        let mut machine = Machine::default();
        let made = checkpoint(0, 10, &[0, 1], 9);
        machine.settle(&made.key(), 1, State::Acked, 1_010);
        machine.popped(made);
        let due = machine.due(2_000, 10);
        assert_eq!(due[0].invisible().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_failed_revive_waits_longer_each_time() {
        let mut machine = Machine::default();
        let made = checkpoint(0, 0, &[0], 9);
        let key = made.key();
        machine.popped(made);
        let mut now = 1_000;
        for pause in [10_000, 20_000, 30_000] {
            assert_eq!(machine.due(now, 10).len(), 1);
            machine.failed(&key, now);
            assert_eq!(machine.next_due(), Some(now + pause));
            now += pause;
        }
        machine.settle(&key, 0, State::Revived, 0);
        assert_eq!((machine.len(), machine.next_due()), (0, None));
    }

    /// What a log of a revive queue holds, for restarts.
    #[derive(Clone)]
    enum Record {
        Popped(Checkpoint),
        Settled(String, i64),
    }

    proptest! {
        // The model: each message of an endless queue is new, with a client, or done.
        #[test]
        fn nothing_acknowledged_returns_and_nothing_else_is_lost(steps in proptest::collection::vec((0u8..6, 0usize..64, 1i64..900), 1..120)) {
            let mut machine = Machine::default();
            let mut log: Vec<Record> = Vec::new();
            let mut committed = 0usize;
            let (mut now, mut next) = (0i64, 0i64);
            // Open handles: key, offset, when they are over; and what must never come again.
            let mut handles: Vec<(String, i64, i64)> = Vec::new();
            let mut done: Vec<i64> = Vec::new();
            let mut revived: Vec<i64> = Vec::new();
            for (what, which, amount) in steps {
                match what {
                    0 => {
                        let offsets: Vec<i64> = (next..next + (amount % 5) + 1).collect();
                        next += offsets.len() as i64;
                        let made = checkpoint(offsets[0], now, &offsets, log.len() as i64);
                        handles.extend(offsets.iter().map(|offset| (made.key(), *offset, made.revive_time())));
                        log.push(Record::Popped(made.clone()));
                        machine.popped(made);
                    }
                    1 | 2 if !handles.is_empty() => {
                        let (key, offset, until) = handles.swap_remove(which % handles.len());
                        prop_assert_eq!(machine.look(&key, offset), Known::Here(State::Invisible));
                        if what == 2 {
                            let made = Checkpoint { queue_id: log.len() as i32, ..checkpoint(offset, now, &[offset], log.len() as i64) };
                            handles.push((made.key(), offset, made.revive_time()));
                            log.push(Record::Popped(made.clone()));
                            machine.popped(made);
                        } else {
                            done.push(offset);
                        }
                        log.push(Record::Settled(key.clone(), offset));
                        machine.settle(&key, offset, if what == 2 { State::Moved } else { State::Acked }, until);
                    }
                    3 => now += amount,
                    4 => {
                        for checkpoint in machine.due(now, 8) {
                            for offset in checkpoint.invisible() {
                                prop_assert!(!done.contains(&offset), "acknowledged message {} came back", offset);
                                revived.push(offset);
                                log.push(Record::Settled(checkpoint.key(), offset));
                                machine.settle(&checkpoint.key(), offset, State::Revived, 0);
                            }
                            handles.retain(|(key, _, _)| *key != checkpoint.key());
                        }
                    }
                    _ => {
                        // A restart reads the log from what was committed last.
                        committed = committed.max(machine.lowest_held().map_or(log.len(), |at| at as usize));
                        machine = Machine::default();
                        for record in &log[committed..] {
                            match record.clone() {
                                Record::Popped(made) => machine.popped(made),
                                Record::Settled(key, offset) => machine.settle(&key, offset, State::Acked, now),
                            }
                        }
                    }
                }
                let open: Vec<i64> = handles.iter().map(|(_, offset, _)| *offset).collect();
                for offset in 0..next {
                    let places = usize::from(open.contains(&offset)) + usize::from(done.contains(&offset)) + usize::from(revived.contains(&offset));
                    prop_assert_eq!(places, 1, "message {}", offset);
                }
            }
            // In the end each message that nobody settled comes back.
            now += 1_000_000;
            let mut back: Vec<i64> = machine.due(now, usize::MAX).iter().flat_map(|c| c.invisible().collect::<Vec<_>>()).collect();
            let mut waiting: Vec<i64> = handles.iter().map(|(_, offset, _)| *offset).collect();
            back.sort_unstable();
            waiting.sort_unstable();
            prop_assert_eq!(back, waiting);
        }
    }
}
