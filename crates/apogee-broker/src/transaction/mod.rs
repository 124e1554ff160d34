//! Transactions: half messages, their ends, and asking producers that stay silent.
//!
//! A half message waits in queue 0 of `RMQ_SYS_TRANS_HALF_TOPIC`. Its end appends the final message (for
//! a commit), then an op message that names its queue offset. Which ones wait is known to the
//! [`ledger`], which is rebuilt at the start from both queues and the offsets of `CID_RMQ_SYS_TRANS`.
//!
//! What always holds: a half message ends once. The first end wins because look-up, appends and ledger
//! share one lock. After a crash between final and op message the log still tells: a start looks for
//! final messages behind the oldest pending half message ([`rebuild`]). An op message comes before its
//! rollback is answered. Offsets are committed only when the log is flushed as far as they rely on it.
//!
//! Locks: `state` is taken before the store's append lock, never across an `.await`; the check round
//! takes it for one transaction at a time and reads the disk outside of it.

mod check;
mod half;
mod ledger;
mod rebuild;

pub(crate) use check::start;
pub(crate) use half::to_half;
pub(crate) use ledger::Outcome;

use crate::broker::Broker;
use crate::offsets::OffsetTable;
use apogee_model::names::{TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};
use apogee_model::record::{RecordFields, RecordView};
use apogee_store::{AppendError, Appending, ConsumeQueue, MessageStore, Placed};
use half::{final_message, half_of, op_body, op_fields};
use ledger::{Half, Ledger, Standing};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// The group whose offsets tell how far both queues are done with.
const GROUP: &str = "CID_RMQ_SYS_TRANS";
/// Units of the half queue read at a time.
const READ_AHEAD: usize = 256;
/// Half messages named by one op message at most (4,096 bytes in the original).
const OFFSETS_IN_OP: usize = 200;

/// The broker's transactions.
pub(crate) struct Transactions {
    state: Mutex<State>,
    /// Copies of the ledger's numbers, for sends that ask whether there is room.
    pending: AtomicUsize,
    next_half: AtomicI64,
    /// Whose turn it is to be asked.
    turn: AtomicUsize,
}

struct State {
    ledger: Ledger,
    /// Copies that a newer one has replaced, and that no op message names yet.
    replaced: Vec<i64>,
    /// Half messages that ended, but whose op message could not be stored yet.
    ops_due: Vec<i64>,
    /// Offsets that may be committed once the log is flushed so far.
    ready: Option<(i64, (i64, i64))>,
}

/// Why an end was refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It had ended before.
    Ended(Option<Outcome>),
    /// The producer let the time pass that it had asked for: the next check decides.
    TooLate { age_ms: i64, limit_ms: i64 },
    /// It waits for its end already.
    Waits,
    /// The half message does not say where it belongs.
    NotWhole,
    /// The store did not take the final or the op message.
    Store(AppendError),
}

/// An end as its producer tells it, checked against its half message.
pub(crate) struct End<'a> {
    pub(crate) record: RecordView<'a>,
    pub(crate) outcome: Outcome,
    pub(crate) from_check: bool,
    pub(crate) now: i64,
}

impl Transactions {
    /// Reads what waits. Takes as long as reading the log behind the oldest pending half message; a
    /// store without such is open at once.
    ///
    /// # Errors
    /// When a queue or the log cannot be read.
    pub(crate) fn open(
        store: &MessageStore,
        offsets: &OffsetTable,
        host: SocketAddr,
        now: i64,
    ) -> std::io::Result<Self> {
        let (ledger, ops_due) = rebuild::rebuild(store, offsets)?;
        let mut state = State { ledger, replaced: Vec::new(), ops_due, ready: None };
        state.write_due_ops(store, host, now);
        let transactions = Self {
            pending: AtomicUsize::new(0),
            next_half: AtomicI64::new(0),
            turn: AtomicUsize::new(0),
            state: Mutex::new(state),
        };
        transactions.note(&transactions.state.lock().ledger);
        Ok(transactions)
    }

    fn note(&self, ledger: &Ledger) {
        self.pending.store(ledger.len(), Ordering::Relaxed);
        self.next_half.store(ledger.next_half(), Ordering::Relaxed);
    }

    /// Half messages that wait for their end; at most too many by those that ended within the last
    /// second.
    pub(crate) fn waiting(&self, store: &MessageStore) -> usize {
        let unread = store.max_offset(TRANS_HALF_TOPIC, 0) - self.next_half.load(Ordering::Relaxed);
        self.pending.load(Ordering::Relaxed) + usize::try_from(unread).unwrap_or(0)
    }

    /// Ends a transaction: when this returns `Ok`, it is final.
    pub(crate) fn end(&self, broker: &Broker, end: &End<'_>) -> Result<(), Refusal> {
        let half = half_of(&end.record);
        let mut state = self.state.lock();
        follow(&broker.store, &mut state.ledger);
        let offset = state.ledger.meet(half);
        let ended = state.end(broker, end, offset);
        self.note(&state.ledger);
        ended
    }

    /// Puts a message that was given up into the half queue again; it begins without checks.
    pub(crate) fn resume(
        &self,
        broker: &Broker,
        record: &RecordView<'_>,
        now: i64,
    ) -> Result<(), Refusal> {
        let half = half_of(record);
        if !half.whole {
            return Err(Refusal::NotWhole);
        }
        let properties = half::resumed_properties(record);
        let mut state = self.state.lock();
        follow(&broker.store, &mut state.ledger);
        if state.ledger.waits(half.identity) {
            return Err(Refusal::Waits);
        }
        let fields = RecordFields {
            topic: TRANS_HALF_TOPIC,
            queue_id: 0,
            store_host: broker.store_host,
            properties: &properties,
            ..record.fields()
        };
        let placed = append(&broker.store, fields, now).map_err(Refusal::Store)?;
        state.ledger.meet(Half {
            offset: placed.queue_offset,
            physical: placed.physical_offset,
            stored_ms: placed.store_timestamp,
            first_stored_ms: placed.store_timestamp,
            checks: 0,
            first_offset: None,
            ..half
        });
        self.note(&state.ledger);
        Ok(())
    }

    /// Commits the offsets below which everything has ended, as far as the disk holds what they rely on.
    pub(crate) fn publish(
        &self,
        store: &MessageStore,
        host: SocketAddr,
        offsets: &OffsetTable,
        now: i64,
    ) {
        let mut state = self.state.lock();
        follow(store, &mut state.ledger);
        self.note(&state.ledger);
        state.write_due_ops(store, host, now);
        let flushed = store.flushed().get();
        if let Some((position, (half, op))) =
            state.ready.take_if(|(position, _)| *position <= flushed)
        {
            tracing::debug!(position, half, op, "transaction offsets move");
            for (topic, offset) in [(TRANS_HALF_TOPIC, half), (TRANS_OP_HALF_TOPIC, op)] {
                if offsets.query(GROUP, topic, 0) != Some(offset) {
                    offsets.commit(GROUP, topic, 0, offset);
                }
            }
        }
        if state.ready.is_none() {
            let reached = state.ledger.low_water();
            state.ready = Some((store.appended().get(), reached));
        }
    }

    /// Commits everything there is to commit: for the stop.
    pub(crate) fn close(
        &self,
        store: &MessageStore,
        host: SocketAddr,
        offsets: &OffsetTable,
        now: i64,
    ) {
        self.state.lock().ready = None;
        self.publish(store, host, offsets, now);
        if let Err(error) = store.flush_log() {
            tracing::warn!(%error, "the log is not flushed: the next start reads more of the transactions");
            return;
        }
        self.publish(store, host, offsets, now);
    }
}

impl State {
    fn end(&mut self, broker: &Broker, end: &End<'_>, offset: i64) -> Result<(), Refusal> {
        let half = match self.ledger.standing(offset) {
            Standing::Pending(pending) => pending.half,
            Standing::Ended(outcome) => return Err(Refusal::Ended(outcome)),
            Standing::Unknown => return Err(Refusal::Ended(None)),
        };
        if let Some(wanted) = half.immunity_ms.filter(|_| !end.from_check) {
            let limit_ms = wanted.max(broker.live.transaction_time_out());
            let age_ms = end.now.saturating_sub(half.first_stored_ms);
            if age_ms > limit_ms {
                return Err(Refusal::TooLate { age_ms, limit_ms });
            }
        }
        if end.outcome == Outcome::Committed {
            let (target, properties) =
                final_message(broker, &end.record).ok_or(Refusal::NotWhole)?;
            let fields = RecordFields {
                topic: &target.topic,
                queue_id: target.queue_id,
                sys_flag: target.sys_flag,
                store_host: broker.store_host,
                prepared_transaction_offset: end.record.physical_offset(),
                properties: &properties,
                ..end.record.fields()
            };
            let stored = append(&broker.store, fields, end.now);
            if stored.is_ok() {
                let (topic, bytes) = (target.topic.as_str(), end.record.body().len());
                let is_system = || broker.topics.is_system(topic);
                broker.stats.put_one(topic, target.queue_id, bytes, end.now, is_system);
            } else {
                broker.stats.refused(1);
            }
            stored.map_err(Refusal::Store)?;
            let offsets = self.ledger.end(offset, end.outcome).unwrap_or_default();
            self.ops_due.extend(offsets);
            self.write_due_ops(&broker.store, broker.store_host, end.now);
            return Ok(());
        }
        self.end_with_op(broker, offset, end.outcome, end.now).map_err(Refusal::Store)
    }

    /// Ends a transaction of which nothing but its op message tells: that one comes first.
    fn end_with_op(
        &mut self,
        broker: &Broker,
        offset: i64,
        outcome: Outcome,
        now: i64,
    ) -> Result<(), AppendError> {
        let Standing::Pending(pending) = self.ledger.standing(offset) else { return Ok(()) };
        let offsets: Vec<i64> = pending.offsets().collect();
        self.write_op(&broker.store, broker.store_host, &offsets, now)?;
        self.ledger.end(offset, outcome);
        Ok(())
    }

    /// Marks replaced copies as done with. Here the ledger knows that anyway, so a failure costs nothing.
    fn write_replaced(&mut self, broker: &Broker, now: i64) {
        let replaced = std::mem::take(&mut self.replaced);
        if !replaced.is_empty()
            && let Err(error) = self.write_op(&broker.store, broker.store_host, &replaced, now)
        {
            tracing::warn!(count = replaced.len(), %error, "replaced half messages got no op message");
        }
    }

    /// Stores the op messages that are due. What fails stays due: until then the log tells of the
    /// commits, and the offsets tell of what lies before them.
    fn write_due_ops(&mut self, store: &MessageStore, host: SocketAddr, now: i64) {
        let due = std::mem::take(&mut self.ops_due);
        let mut rest = due.as_slice();
        while !rest.is_empty() {
            let (some, others) = rest.split_at_checked(OFFSETS_IN_OP).unwrap_or((rest, &[]));
            if let Err(error) = self.write_op(store, host, some, now) {
                tracing::warn!(count = rest.len(), %error, "op messages could not be stored; it is tried again");
                self.ops_due.extend_from_slice(rest);
                return;
            }
            rest = others;
        }
    }

    fn write_op(
        &mut self,
        store: &MessageStore,
        host: SocketAddr,
        offsets: &[i64],
        now: i64,
    ) -> Result<(), AppendError> {
        let body = op_body(offsets);
        let placed = append(store, op_fields(&body, host, now), now)?;
        self.ledger.wrote_op(placed.queue_offset, offsets.iter().copied().max().unwrap_or(-1));
        Ok(())
    }
}

fn append(store: &MessageStore, fields: RecordFields<'_>, now: i64) -> Result<Placed, AppendError> {
    let mut batch = [Appending::new(fields)];
    let _ = store.append(&mut batch, now);
    let [item] = batch;
    item.outcome.unwrap_or(Err(AppendError::Closed))
}

/// Reads the half queue as far as it goes. What cannot be read now is tried again the next time.
fn follow(store: &MessageStore, ledger: &mut Ledger) {
    let Some(queue) = store.queue(TRANS_HALF_TOPIC, 0) else { return };
    ledger.skip_to(queue.min_offset(store.min_physical_offset()));
    loop {
        match follow_some(store, &queue, ledger, |_| false) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                let offset = ledger.next_half();
                tracing::error!(offset, %error, "the half queue cannot be read; it is tried again");
                return;
            }
        }
    }
}

/// Reads some units of the half queue; answers whether there were any. Those that `ended` are passed
/// without a look at their record.
fn follow_some(
    store: &MessageStore,
    queue: &ConsumeQueue,
    ledger: &mut Ledger,
    ended: impl Fn(i64) -> bool,
) -> std::io::Result<bool> {
    let units = queue.read(ledger.next_half(), READ_AHEAD)?;
    let any = !units.is_empty();
    for unit in units {
        let offset = ledger.next_half();
        if unit.is_filler() || ended(offset) {
            ledger.pass(offset);
            continue;
        }
        let bytes =
            store.get_by_physical_offset(unit.physical_offset, usize::try_from(unit.size).ok())?;
        match bytes.as_deref().map(RecordView::parse) {
            Some(Ok(record)) => {
                ledger.saw(Half { offset, ..with_first_copy(store, queue, &record) })
            }
            _ => {
                tracing::warn!(offset, "a half message is no longer in the log and is skipped");
                ledger.pass(offset);
            }
        }
    }
    Ok(any)
}

/// A copy is as old as the first one, if the log still has that.
fn with_first_copy(store: &MessageStore, queue: &ConsumeQueue, record: &RecordView<'_>) -> Half {
    let mut half = half_of(record);
    let first = half.first_offset.filter(|first| *first < half.offset);
    let unit =
        first.and_then(|first| queue.unit(first).ok().flatten()).filter(|unit| !unit.is_filler());
    let bytes = unit.and_then(|unit| {
        store
            .get_by_physical_offset(unit.physical_offset, usize::try_from(unit.size).ok())
            .ok()
            .flatten()
    });
    if let Some(Ok(first)) = bytes.as_deref().map(RecordView::parse)
        && half::identity(&first) == half.identity
    {
        half.first_stored_ms = half.first_stored_ms.min(first.store_timestamp());
    }
    half
}
