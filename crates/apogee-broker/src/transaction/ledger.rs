//! The ledger: which half messages wait for their end. Pure: no store, no clock, no lock.
//!
//! The half queue is read in order, once ([`Ledger::saw`], [`Ledger::pass`]); what is not pending below
//! `next_half` has ended. A half message that was put back to the queue's tail is one transaction with
//! its earlier copies: an end that names any of them ends all of them, so the first end wins.
//!
//! What always holds: each pending transaction stands under the queue offset of its newest copy; `older`
//! offsets lead to it; an ended offset never becomes pending again. Memory follows what is pending: an
//! entry takes about 150 bytes, earlier copies 24 each (at most [`MAX_OLDER`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Earlier copies of one transaction that an end may still name.
const MAX_OLDER: usize = 32;
/// Ends that are remembered so that a late one can be told what came before it.
const MAX_RECENT: usize = 8_192;
/// Op messages that share one entry of the op queue's bookkeeping.
const OPS_IN_BLOCK: i64 = 64;
/// A protected half message is put back when so many stand behind it.
const RENEW_BEHIND: i64 = 1_000;
/// Or when so many bytes of log do: a start reads the log from the oldest one on.
const RENEW_BEHIND_BYTES: i64 = 64 << 20;

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The message was delivered.
    Committed,
    /// It was thrown away on its producer's word.
    RolledBack,
    /// It was asked about too often, is too old or cannot be read.
    Discarded,
}

impl Outcome {
    /// The outcome as a remark tells it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::Discarded => "discarded",
        }
    }
}

/// A record of the half queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Half {
    /// Its offset in the half queue.
    pub(crate) offset: i64,
    /// Its offset in the commit log.
    pub(crate) physical: i64,
    /// When it was stored (ms).
    pub(crate) stored_ms: i64,
    /// When the first copy was stored (ms).
    pub(crate) first_stored_ms: i64,
    /// How long the producer wants not to be asked (ms).
    pub(crate) immunity_ms: Option<i64>,
    /// How often its producer was asked.
    pub(crate) checks: u32,
    /// The same for all copies; 0 when the record has nothing that could tell.
    pub(crate) identity: u64,
    /// Queue offset of the first copy, in a later one.
    pub(crate) first_offset: Option<i64>,
    /// Whether it names group, topic and queue.
    pub(crate) whole: bool,
}

impl Half {
    fn is_copy(&self) -> bool {
        self.checks > 0 || self.first_offset.is_some()
    }
}

/// A transaction that waits for its end.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// The newest copy.
    pub(crate) half: Half,
    /// Queue offsets of earlier copies, oldest first.
    older: Vec<i64>,
}

impl Pending {
    /// Queue offset of the first copy.
    pub(crate) fn first_offset(&self) -> i64 {
        self.older.first().copied().unwrap_or(self.half.offset)
    }

    /// Queue offsets of all copies.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = i64> {
        self.older.iter().copied().chain([self.half.offset])
    }
}

/// What the ledger knows of a queue offset.
#[derive(Debug)]
pub(crate) enum Standing<'a> {
    /// It waits for its end.
    Pending(&'a Pending),
    /// It has ended; long ago if the outcome is not known.
    Ended(Option<Outcome>),
    /// The queue was not read that far.
    Unknown,
}

/// What a check round is to do with a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Put it back, one check more, and ask its producer.
    Check,
    /// Put it back as it is, so that it holds nothing up.
    Renew,
    /// Give it up.
    Discard,
}

/// The rules of a check round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Age (ms) up to which nobody is asked (`transactionTimeOut`).
    pub(crate) timeout_ms: i64,
    /// Checks before a transaction is given up (`transactionCheckMax`).
    pub(crate) max_checks: u32,
    /// Age (ms) at which it is given up anyway (`fileReservedTime`).
    pub(crate) reserved_ms: i64,
    /// The commit log's end.
    pub(crate) log_end: i64,
}

/// Op messages that follow each other.
#[derive(Debug, Clone, Copy)]
struct OpBlock {
    first: i64,
    next: i64,
    /// The highest half offset that they name.
    highest: i64,
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    next_half: i64,
    pending: BTreeMap<i64, Pending>,
    /// Offset of an earlier copy to that of the newest.
    older: HashMap<i64, i64>,
    by_identity: HashMap<u64, i64>,
    /// Ended before the queue was read that far.
    ended_ahead: BTreeSet<i64>,
    recent: HashMap<i64, Outcome>,
    recent_order: VecDeque<i64>,
    ops: VecDeque<OpBlock>,
    next_op: i64,
}

impl Ledger {
    /// A ledger that begins at these offsets of the half queue and the op queue.
    pub(crate) fn new(next_half: i64, next_op: i64) -> Self {
        Self { next_half, next_op, ..Self::default() }
    }

    /// Offset of the next record of the half queue to be read.
    pub(crate) fn next_half(&self) -> i64 {
        self.next_half
    }

    /// Number of transactions that wait.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// All that wait, oldest copy first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Pending> {
        self.pending.values()
    }

    /// The next record of the half queue.
    pub(crate) fn saw(&mut self, half: Half) {
        if half.offset < self.next_half {
            return;
        }
        self.next_half = half.offset + 1;
        // Its end, or the round that put it back, may have been faster than the reading.
        let known =
            self.pending.contains_key(&half.offset) || self.older.contains_key(&half.offset);
        if !self.ended_ahead.remove(&half.offset) && !known {
            self.insert(half);
        }
    }

    /// The next place of the half queue holds nothing to wait for.
    pub(crate) fn pass(&mut self, offset: i64) {
        if offset >= self.next_half {
            self.next_half = offset + 1;
            self.ended_ahead.remove(&offset);
        }
    }

    /// The half queue begins at `offset` now: what stood before it is gone.
    pub(crate) fn skip_to(&mut self, offset: i64) {
        if offset > self.next_half {
            self.next_half = offset;
            self.ended_ahead = self.ended_ahead.split_off(&offset);
        }
    }

    /// An end names this record: answers the offset by which its transaction is known here. A record
    /// that the queue was not read up to is taken in.
    pub(crate) fn meet(&mut self, half: Half) -> i64 {
        match self.standing(half.offset) {
            Standing::Pending(_) => return half.offset,
            Standing::Unknown => self.insert(half),
            // A copy between the first and the newest one is not known after a restart.
            Standing::Ended(_) => {
                let newest = half.first_offset.and_then(|first| self.older.get(&first).copied());
                let same = |offset: &i64| {
                    self.pending.get(offset).is_some_and(|p| p.half.identity == half.identity)
                };
                return newest.filter(same).unwrap_or(half.offset);
            }
        }
        half.offset
    }

    fn insert(&mut self, half: Half) {
        let before = self.copied_from(&half).and_then(|offset| self.take(offset));
        self.place(half, before);
    }

    fn place(&mut self, mut half: Half, before: Option<Pending>) {
        let mut older = Vec::new();
        if let Some(before) = before {
            half.first_stored_ms = half.first_stored_ms.min(before.half.first_stored_ms);
            older.extend(before.offsets());
            if older.len() > MAX_OLDER {
                // Not the first one: the producer itself knows no other.
                older.remove(1);
            }
        } else if let Some(first) = half.first_offset.filter(|first| *first < half.offset) {
            let taken = self.pending.contains_key(&first) || self.older.contains_key(&first);
            older.extend((!taken).then_some(first));
        }
        for offset in &older {
            self.older.insert(*offset, half.offset);
        }
        if half.identity != 0 {
            self.by_identity.insert(half.identity, half.offset);
        }
        self.pending.insert(half.offset, Pending { half, older });
    }

    /// The pending transaction that this record is a later copy of.
    fn copied_from(&self, half: &Half) -> Option<i64> {
        if !half.is_copy() {
            return None;
        }
        let named = half.first_offset.map(|first| self.older.get(&first).copied().unwrap_or(first));
        let same = |offset: &i64| {
            self.pending.get(offset).is_some_and(|p| p.half.identity == half.identity)
        };
        let by_name = named.filter(same);
        by_name
            .or_else(|| self.by_identity.get(&half.identity).copied())
            .filter(|offset| *offset < half.offset)
    }

    fn take(&mut self, offset: i64) -> Option<Pending> {
        let pending = self.pending.remove(&offset)?;
        for older in &pending.older {
            self.older.remove(older);
        }
        if self.by_identity.get(&pending.half.identity) == Some(&offset) {
            self.by_identity.remove(&pending.half.identity);
        }
        Some(pending)
    }

    /// A transaction was put back: `copy` stands for it now.
    pub(crate) fn put_back(&mut self, offset: i64, copy: Half) {
        if let Some(before) = self.take(offset) {
            self.place(copy, Some(before));
        }
    }

    /// Whether a transaction with this identity waits.
    pub(crate) fn waits(&self, identity: u64) -> bool {
        self.by_identity.contains_key(&identity)
    }

    /// What is known of an offset.
    pub(crate) fn standing(&self, offset: i64) -> Standing<'_> {
        let newest = self.older.get(&offset).copied().unwrap_or(offset);
        if let Some(pending) = self.pending.get(&newest) {
            return Standing::Pending(pending);
        }
        if offset < self.next_half || self.ended_ahead.contains(&offset) {
            return Standing::Ended(self.recent.get(&offset).copied());
        }
        Standing::Unknown
    }

    /// The transaction whose newest copy stands at `offset`.
    pub(crate) fn get(&self, offset: i64) -> Option<&Pending> {
        self.pending.get(&offset)
    }

    /// Ends a transaction by the offset of any copy; answers the offsets of all copies, or `None` when
    /// it had ended before.
    pub(crate) fn end(&mut self, offset: i64, outcome: Outcome) -> Option<Vec<i64>> {
        let newest = self.older.get(&offset).copied().unwrap_or(offset);
        let pending = self.take(newest)?;
        let offsets: Vec<i64> = pending.offsets().collect();
        for offset in &offsets {
            if *offset >= self.next_half {
                self.ended_ahead.insert(*offset);
            }
            if self.recent.insert(*offset, outcome).is_none() {
                self.recent_order.push_back(*offset);
            }
        }
        while self.recent_order.len() > MAX_RECENT {
            let forgotten = self.recent_order.pop_front();
            forgotten.and_then(|offset| self.recent.remove(&offset));
        }
        Some(offsets)
    }

    /// An op message stands in the op queue that names half messages up to `highest`.
    pub(crate) fn wrote_op(&mut self, op_offset: i64, highest: i64) {
        if op_offset < self.next_op {
            return;
        }
        self.next_op = op_offset + 1;
        match self.ops.back_mut().filter(|block| op_offset - block.first < OPS_IN_BLOCK) {
            Some(block) => {
                block.next = op_offset + 1;
                block.highest = block.highest.max(highest);
            }
            None => self.ops.push_back(OpBlock { first: op_offset, next: op_offset + 1, highest }),
        }
    }

    /// The offsets of both queues from which a start must read: everything in the half queue before the
    /// first has ended, and the op messages before the second name nothing from there on.
    pub(crate) fn low_water(&mut self) -> (i64, i64) {
        let half =
            self.pending.keys().next().map_or(self.next_half, |first| (*first).min(self.next_half));
        let mut op = self.next_op;
        while let Some(block) = self.ops.front() {
            if block.highest >= half {
                op = block.first;
                break;
            }
            op = block.next;
            self.ops.pop_front();
        }
        (half, op)
    }

    /// What a check round at `now` has to do: queue and log offset of the newest copy, and what for.
    pub(crate) fn due(&mut self, now: i64, rules: &Rules) -> Vec<(i64, i64, Due)> {
        let next_half = self.next_half;
        let mut due = Vec::new();
        for pending in self.pending.values_mut() {
            let half = &mut pending.half;
            // A clock that was set back must not protect anything for longer than its time.
            half.first_stored_ms = half.first_stored_ms.min(now);
            if let Some(what) = what_is_due(half, now, next_half, rules) {
                due.push((half.offset, half.physical, what));
            }
        }
        due
    }
}

fn what_is_due(half: &Half, now: i64, next_half: i64, rules: &Rules) -> Option<Due> {
    let age = now.saturating_sub(half.first_stored_ms);
    let asked_enough = half.checks > 0 && half.checks >= rules.max_checks;
    if !half.whole || asked_enough || age > rules.reserved_ms {
        return Some(Due::Discard);
    }
    if half.checks > 0 || age > half.immunity_ms.unwrap_or(rules.timeout_ms) {
        return Some(Due::Check);
    }
    let behind = next_half.saturating_sub(half.offset) > RENEW_BEHIND
        || rules.log_end.saturating_sub(half.physical) > RENEW_BEHIND_BYTES;
    (half.immunity_ms.is_some() && age > rules.timeout_ms && behind).then_some(Due::Renew)
}

#[cfg(test)]
mod tests;
