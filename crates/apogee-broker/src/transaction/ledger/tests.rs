//! The ledger alone, and against a model: a log of records, random ends, checks and crashes.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn half(offset: i64) -> Half {
    Half {
        offset,
        physical: 1_000 + offset * 10,
        stored_ms: 0,
        first_stored_ms: 0,
        immunity_ms: None,
        checks: 0,
        identity: 77 + offset.unsigned_abs(),
        first_offset: None,
        whole: true,
    }
}

fn copy(of: Half, offset: i64) -> Half {
    Half {
        offset,
        physical: 1_000 + offset * 10,
        checks: of.checks + 1,
        first_offset: Some(of.offset),
        ..of
    }
}

fn rules() -> Rules {
    Rules { timeout_ms: 6_000, max_checks: 3, reserved_ms: 1_000_000, log_end: 0 }
}

fn is_pending(ledger: &Ledger, offset: i64) -> bool {
    matches!(ledger.standing(offset), Standing::Pending(_))
}

#[test]
fn the_first_end_wins_by_whatever_copy_it_names() {
    for (first, second) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let mut ledger = Ledger::default();
        ledger.saw(half(0));
        ledger.put_back(0, copy(half(0), 1));
        assert_eq!(ledger.end(first, Outcome::RolledBack), Some(vec![0, 1]));
        assert_eq!(ledger.end(second, Outcome::Committed), None);
        assert!(matches!(ledger.standing(second), Standing::Ended(Some(Outcome::RolledBack))));
        ledger.saw(copy(half(0), 1));
        assert!(!is_pending(&ledger, 1), "the queue was read on, and the copy came back");
    }
}

#[test]
fn an_end_may_come_before_the_queue_is_read_so_far() {
    let mut ledger = Ledger::default();
    assert!(matches!(ledger.standing(1), Standing::Unknown));
    ledger.meet(half(1));
    assert!(ledger.end(1, Outcome::Committed).is_some());
    assert_eq!(ledger.low_water().0, 0);
    ledger.saw(half(0));
    ledger.saw(half(1));
    assert!(is_pending(&ledger, 0));
    assert!(!is_pending(&ledger, 1));
    ledger.end(0, Outcome::Committed);
    assert_eq!(ledger.low_water().0, 2);
}

#[test]
fn a_copy_that_names_no_first_one_is_known_by_its_identity() {
    let mut ledger = Ledger::default();
    ledger.saw(half(0));
    ledger.saw(Half { first_offset: None, ..copy(half(0), 1) });
    assert_eq!(ledger.len(), 1);
    assert_eq!(ledger.end(0, Outcome::Committed), Some(vec![0, 1]));
}

#[test]
fn two_sends_with_one_key_are_two_transactions() {
    let mut ledger = Ledger::default();
    ledger.saw(half(0));
    ledger.saw(Half { identity: half(0).identity, ..half(1) });
    assert_eq!(ledger.end(0, Outcome::Committed), Some(vec![0]));
    assert_eq!(ledger.end(1, Outcome::Committed), Some(vec![1]));
}

#[test]
fn a_copy_that_names_a_stranger_does_not_end_with_it() {
    let mut ledger = Ledger::default();
    ledger.saw(half(0));
    ledger.saw(Half { checks: 0, first_offset: Some(0), ..half(1) });
    assert_eq!(ledger.len(), 2);
    assert_eq!(ledger.end(0, Outcome::RolledBack), Some(vec![0]));
    assert!(is_pending(&ledger, 1));
}

#[test]
fn due_follows_age_by_store_time_checks_and_the_producers_wish() {
    let cases = [
        (half(0), 6_000, None),
        (half(0), 6_001, Some(Due::Check)),
        (Half { immunity_ms: Some(2_000), ..half(0) }, 2_001, Some(Due::Check)),
        (Half { immunity_ms: Some(60_000), ..half(0) }, 60_000, None),
        (Half { immunity_ms: Some(60_000), ..half(0) }, 60_001, Some(Due::Check)),
        (Half { checks: 1, stored_ms: 9_000, ..half(0) }, 9_500, Some(Due::Check)),
        (Half { checks: 2, ..half(0) }, 9_000, Some(Due::Check)),
        (Half { checks: 3, ..half(0) }, 9_000, Some(Due::Discard)),
        (half(0), 1_000_001, Some(Due::Discard)),
        (Half { whole: false, ..half(0) }, 1, Some(Due::Discard)),
    ];
    for (half, now, expected) in cases {
        let mut ledger = Ledger::default();
        ledger.saw(half);
        let due: Vec<Due> = ledger.due(now, &rules()).into_iter().map(|(_, _, due)| due).collect();
        assert_eq!(due, expected.into_iter().collect::<Vec<_>>(), "{half:?} at {now}");
    }
}

#[test]
fn a_protected_half_message_is_renewed_only_when_it_holds_much_up() {
    let protected = Half { immunity_ms: Some(900_000), ..half(0) };
    let mut ledger = Ledger::default();
    ledger.saw(protected);
    assert!(ledger.due(10_000, &rules()).is_empty());
    let far = Rules { log_end: protected.physical + RENEW_BEHIND_BYTES + 1, ..rules() };
    assert_eq!(ledger.due(10_000, &far), [(0, protected.physical, Due::Renew)]);
    for offset in 1..=RENEW_BEHIND {
        ledger.pass(offset);
    }
    assert_eq!(ledger.due(10_000, &rules()), [(0, protected.physical, Due::Renew)]);
}

#[test]
fn a_clock_set_back_protects_nothing_for_longer() {
    let mut ledger = Ledger::default();
    ledger.saw(Half { stored_ms: 1_000_000, first_stored_ms: 1_000_000, ..half(0) });
    assert!(ledger.due(5_000, &rules()).is_empty());
    assert_eq!(ledger.due(11_001, &rules()).len(), 1);
}

#[test]
fn a_renewed_copy_keeps_the_age_of_the_first_one() {
    let mut ledger = Ledger::default();
    ledger.saw(Half { first_stored_ms: 5, ..half(0) });
    ledger.put_back(0, Half { checks: 0, first_stored_ms: 500, ..copy(half(0), 1) });
    assert_eq!(ledger.get(1).map(|pending| pending.half.first_stored_ms), Some(5));
}

#[test]
fn low_water_keeps_every_op_message_that_names_something_above_it() {
    let mut ledger = Ledger::default();
    for offset in 0..1_000 {
        ledger.saw(half(offset));
    }
    for offset in (0..1_000).filter(|offset| *offset != 500) {
        let op = if offset < 500 { offset } else { offset - 1 };
        ledger.end(offset, Outcome::Committed);
        ledger.wrote_op(op, offset);
    }
    let (half_offset, op) = ledger.low_water();
    assert_eq!(half_offset, 500);
    assert!((500 - OPS_IN_BLOCK..=500).contains(&op), "{op}");
    ledger.end(500, Outcome::Committed);
    ledger.wrote_op(999, 500);
    assert_eq!(ledger.low_water(), (1_000, 1_000));
    assert!(ledger.ops.is_empty());
}

#[test]
fn memory_follows_what_waits() {
    let mut ledger = Ledger::default();
    for offset in 0..100_000 {
        ledger.saw(half(offset));
        ledger.end(offset, Outcome::Committed);
        ledger.wrote_op(offset, offset);
        ledger.low_water();
    }
    assert_eq!(
        ledger.len() + ledger.older.len() + ledger.by_identity.len() + ledger.ended_ahead.len(),
        0
    );
    assert!(ledger.recent.len() <= MAX_RECENT && ledger.recent_order.len() <= MAX_RECENT);
    assert!(ledger.ops.len() <= 1);
    ledger.saw(half(100_000));
    for offset in 100_001..100_100 {
        ledger.put_back(offset - 1, copy(half(offset - 1), offset));
        ledger.pass(offset);
    }
    assert_eq!(ledger.older.len(), MAX_OLDER);
    assert_eq!(ledger.get(100_099).map(Pending::first_offset), Some(100_000));
}

// ---- against a model ---------------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Record {
    Half {
        transaction: usize,
        half: Half,
    },
    Final {
        transaction: usize,
        prepared: i64,
    },
    /// It ends a transaction, or only says that a newer copy stands for it.
    Op {
        offsets: Vec<i64>,
        at: i64,
        ends: bool,
    },
    Discarded {
        transaction: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    End {
        pick: usize,
        by: usize,
        commit: bool,
        op_stored: bool,
    },
    Check {
        pick: usize,
        op_stored: bool,
    },
    Discard {
        pick: usize,
        op_stored: bool,
    },
    WriteDueOps,
    Read,
    SaveOffsets,
    /// The process dies; of what was not flushed, `lost` records are gone.
    Crash {
        lost: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0..64_usize;
    prop_oneof![
        6 => Just(Step::Send),
        8 => (pick.clone(), 0..4_usize, any::<bool>(), prop::bool::weighted(0.7))
            .prop_map(|(pick, by, commit, op_stored)| Step::End { pick, by, commit, op_stored }),
        4 => (pick.clone(), any::<bool>()).prop_map(|(pick, op_stored)| Step::Check { pick, op_stored }),
        1 => (pick, any::<bool>()).prop_map(|(pick, op_stored)| Step::Discard { pick, op_stored }),
        1 => Just(Step::WriteDueOps),
        3 => Just(Step::Read),
        2 => Just(Step::SaveOffsets),
        2 => (0..6_usize).prop_map(|lost| Step::Crash { lost }),
    ]
}

/// A broker with its log, as far as transactions go.
#[derive(Default)]
struct World {
    log: Vec<Record>,
    ledger: Ledger,
    ops_due: Vec<i64>,
    /// Committed offsets, and how much of the log was flushed for them.
    saved: (i64, i64),
    flushed: usize,
    /// The truth: how each transaction ended.
    ended: Vec<Option<Outcome>>,
    copies: Vec<Vec<i64>>,
}

impl World {
    fn halves(&self) -> impl Iterator<Item = (usize, Half)> {
        self.log.iter().filter_map(|record| match record {
            Record::Half { transaction, half } => Some((*transaction, *half)),
            _ => None,
        })
    }

    fn next_half(&self) -> i64 {
        self.halves().count() as i64
    }

    fn next_op(&self) -> i64 {
        self.log.iter().filter(|record| matches!(record, Record::Op { .. })).count() as i64
    }

    fn place(&self) -> i64 {
        self.log.len() as i64 + 1
    }

    fn read(&mut self) {
        let next = self.ledger.next_half();
        let unread: Vec<Half> =
            self.halves().map(|(_, half)| half).filter(|half| half.offset >= next).collect();
        unread.into_iter().for_each(|half| self.ledger.saw(half));
    }

    fn write_op(&mut self, offsets: Vec<i64>, ends: bool) {
        let at = self.next_op();
        self.ledger.wrote_op(at, offsets.iter().copied().max().unwrap_or(-1));
        self.log.push(Record::Op { offsets, at, ends });
    }

    fn send(&mut self) {
        let transaction = self.ended.len();
        let half = Half {
            physical: self.place(),
            identity: transaction as u64 + 1,
            ..half(self.next_half())
        };
        self.log.push(Record::Half { transaction, half });
        self.ended.push(None);
        self.copies.push(vec![half.offset]);
    }

    fn end(&mut self, pick: usize, by: usize, commit: bool, op_stored: bool) {
        let Some(transaction) = pick.checked_rem(self.ended.len()) else { return };
        let copies = &self.copies[transaction];
        let Some(at) = by.checked_rem(copies.len()) else { return };
        let offset = copies[at];
        let Some((_, named)) = self.halves().find(|(_, half)| half.offset == offset) else {
            return;
        };
        let offset = self.ledger.meet(named);
        let may = is_pending(&self.ledger, offset);
        assert_eq!(may, self.ended[transaction].is_none(), "transaction {transaction} by {offset}");
        if !may {
            assert_eq!(self.ledger.end(offset, Outcome::Committed), None);
            return;
        }
        if commit {
            self.log.push(Record::Final { transaction, prepared: named.physical });
            let offsets = self.ledger.end(offset, Outcome::Committed).unwrap();
            self.ended[transaction] = Some(Outcome::Committed);
            self.op_after_the_fact(offsets, op_stored);
        } else if op_stored {
            let Standing::Pending(pending) = self.ledger.standing(offset) else { unreachable!() };
            let offsets = pending.offsets().collect();
            self.write_op(offsets, true);
            self.ledger.end(offset, Outcome::RolledBack);
            self.ended[transaction] = Some(Outcome::RolledBack);
        }
    }

    fn op_after_the_fact(&mut self, offsets: Vec<i64>, stored: bool) {
        self.ops_due.extend(offsets);
        if stored {
            let due = std::mem::take(&mut self.ops_due);
            self.write_op(due, true);
        }
    }

    fn a_pending_one(&mut self, pick: usize) -> Option<Pending> {
        self.read();
        let at = pick.checked_rem(self.ledger.len())?;
        self.ledger.all().nth(at).cloned()
    }

    fn transaction_of(&self, offset: i64) -> usize {
        self.halves().find(|(_, half)| half.offset == offset).unwrap().0
    }

    fn check(&mut self, pick: usize, op_stored: bool) {
        let Some(pending) = self.a_pending_one(pick) else { return };
        let transaction = self.transaction_of(pending.half.offset);
        let copy = Half {
            offset: self.next_half(),
            physical: self.place(),
            checks: pending.half.checks + 1,
            first_offset: Some(pending.first_offset()),
            ..pending.half
        };
        self.log.push(Record::Half { transaction, half: copy });
        self.copies[transaction].push(copy.offset);
        self.ledger.put_back(pending.half.offset, copy);
        if op_stored {
            self.write_op(vec![pending.half.offset], false);
        }
    }

    fn discard(&mut self, pick: usize, op_stored: bool) {
        let Some(pending) = self.a_pending_one(pick) else { return };
        let transaction = self.transaction_of(pending.half.offset);
        self.log.push(Record::Discarded { transaction });
        let offsets = self.ledger.end(pending.half.offset, Outcome::Discarded).unwrap();
        self.ended[transaction] = Some(Outcome::Discarded);
        self.op_after_the_fact(offsets, op_stored);
    }

    fn save_offsets(&mut self) {
        self.read();
        self.saved = self.ledger.low_water();
        self.flushed = self.log.len();
    }

    /// What a start does, in the order of `rebuild`.
    fn crash(&mut self, lost: usize) {
        let kept = self.log.len().saturating_sub(lost).max(self.flushed);
        self.log.truncate(kept);
        self.learn_the_truth();
        let (next_half, next_op) = self.saved;
        self.ledger = Ledger::new(next_half.min(self.next_half()), next_op.min(self.next_op()));
        let mut named = HashSet::new();
        for record in &self.log {
            if let Record::Op { offsets, at, .. } = record
                && *at >= next_op
            {
                named.extend(offsets.iter().copied());
                self.ledger.wrote_op(*at, offsets.iter().copied().max().unwrap_or(-1));
            }
        }
        let unread: Vec<Half> = self
            .halves()
            .map(|(_, half)| half)
            .filter(|half| half.offset >= self.ledger.next_half())
            .collect();
        for half in unread {
            if named.contains(&half.offset) {
                self.ledger.pass(half.offset)
            } else {
                self.ledger.saw(half)
            }
        }
        let oldest =
            self.ledger.all().map(|pending| pending.half.physical).min().unwrap_or(i64::MAX);
        self.ops_due.clear();
        for (at, record) in self.log.iter().enumerate().filter(|(at, _)| *at as i64 + 1 >= oldest) {
            let (place, transaction, outcome) = match record {
                Record::Final { transaction, prepared } => {
                    (Some(*prepared), *transaction, Outcome::Committed)
                }
                Record::Discarded { transaction } => (None, *transaction, Outcome::Discarded),
                _ => continue,
            };
            let by_place = |p: &&Pending| Some(p.half.physical) == place;
            let by_identity = |p: &&Pending| p.half.identity == transaction as u64 + 1;
            let found =
                self.ledger.all().find(by_place).or_else(|| self.ledger.all().find(by_identity));
            let offset = found.map(|pending| pending.half.offset);
            let ended = offset.and_then(|offset| self.ledger.end(offset, outcome));
            self.ops_due.extend(ended.unwrap_or_default());
            assert!(at < kept);
        }
        if !self.ops_due.is_empty() {
            let due = std::mem::take(&mut self.ops_due);
            self.write_op(due, true);
        }
    }

    /// What was not flushed may be gone, with the ends that it told of.
    fn learn_the_truth(&mut self) {
        let there: HashSet<i64> = self.halves().map(|(_, half)| half.offset).collect();
        for copies in &mut self.copies {
            copies.retain(|offset| there.contains(offset));
        }
        let mut ended = vec![None; self.ended.len()];
        for record in &self.log {
            match record {
                Record::Final { transaction, .. } => ended[*transaction] = Some(Outcome::Committed),
                Record::Discarded { transaction } => ended[*transaction] = Some(Outcome::Discarded),
                Record::Op { offsets, ends: true, .. } => {
                    for offset in offsets {
                        let transaction = self.transaction_of(*offset);
                        ended[transaction] = ended[transaction].or(Some(Outcome::RolledBack));
                    }
                }
                Record::Op { .. } | Record::Half { .. } => {}
            }
        }
        self.ended = ended;
    }

    fn assert_sound(&self) {
        for transaction in 0..self.ended.len() {
            let is_end = |record: &&Record| match record {
                Record::Final { transaction: t, .. } | Record::Discarded { transaction: t } => {
                    *t == transaction
                }
                _ => false,
            };
            let ends = self.log.iter().filter(is_end).count();
            assert!(ends <= 1, "transaction {transaction} ended {ends} times");
            if self.ended[transaction] == Some(Outcome::RolledBack) {
                assert_eq!(ends, 0, "transaction {transaction} was rolled back and delivered");
            }
            let copies = [self.copies[transaction].first(), self.copies[transaction].last()];
            for offset in
                copies.into_iter().flatten().filter(|offset| **offset < self.ledger.next_half())
            {
                let pending = is_pending(&self.ledger, *offset);
                assert_eq!(
                    pending,
                    self.ended[transaction].is_none(),
                    "transaction {transaction} by {offset}"
                );
            }
        }
        let waiting = self.ledger.all().map(|pending| pending.half.offset);
        for offset in waiting {
            assert_eq!(
                self.ended[self.transaction_of(offset)],
                None,
                "{offset} would be asked about"
            );
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Send => self.send(),
            Step::End { pick, by, commit, op_stored } => self.end(pick, by, commit, op_stored),
            Step::Check { pick, op_stored } => self.check(pick, op_stored),
            Step::Discard { pick, op_stored } => self.discard(pick, op_stored),
            Step::WriteDueOps => {
                let due = std::mem::take(&mut self.ops_due);
                if !due.is_empty() {
                    self.write_op(due, true);
                }
            }
            Step::Read => self.read(),
            Step::SaveOffsets => self.save_offsets(),
            Step::Crash { lost } => self.crash(lost),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_transaction_ends_once_through_checks_and_crashes(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut world = World::default();
        for step in steps {
            world.run(step);
            world.assert_sound();
        }
        world.crash(0);
        world.read();
        world.assert_sound();
    }
}
