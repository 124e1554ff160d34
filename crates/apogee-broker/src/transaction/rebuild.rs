//! What waits when a broker starts: read from both queues, then checked against the log.
//!
//! 1. The op queue, from its committed offset: these half messages have ended.
//! 2. The half queue, from its committed offset: the others wait.
//! 3. If any waits: the log from a little before the oldest of them. A final message or a discarded one
//!    means that its half message has ended though no op message tells, because of a crash between the
//!    two, or because the original merges op messages for three seconds. Its op message is made up for.
//!
//! Copies that the original made of half messages that had ended (it asks about them again) are known
//! by their unique key, born time and producer.

use super::half::{identity, op_offsets};
use super::ledger::{Ledger, Outcome};
use super::{GROUP, READ_AHEAD, follow_some};
use crate::offsets::OffsetTable;
use apogee_model::names::{TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};
use apogee_model::record::{LogEntry, RecordView, parse_entry};
use apogee_model::sys_flag;
use apogee_store::{ConsumeQueue, MessageStore};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// Half messages before the oldest pending one from which the log is read.
const HALVES_BEFORE: i64 = 1_000;
/// Log bytes before it at most.
const BYTES_BEFORE: i64 = 64 << 20;
/// Log bytes read at a time; a longer record doubles it.
const CHUNK: usize = 8 << 20;
/// No record is longer.
const MAX_CHUNK: usize = 1 << 30;

/// The ledger of a store, and the half messages that need an op message still.
pub(super) fn rebuild(
    store: &MessageStore,
    offsets: &OffsetTable,
) -> io::Result<(Ledger, Vec<i64>)> {
    let (half_queue, next_half) = position(store, offsets, TRANS_HALF_TOPIC);
    let (op_queue, next_op) = position(store, offsets, TRANS_OP_HALF_TOPIC);
    let mut ledger = Ledger::new(next_half, next_op);
    let mut ended = HashSet::new();
    if let Some(queue) = op_queue {
        read_ops(store, &queue, next_op, next_half, &mut ledger, &mut ended)?;
    }
    let mut due = Vec::new();
    if let Some(queue) = half_queue {
        while follow_some(store, &queue, &mut ledger, |offset| ended.contains(&offset))? {}
        if ledger.len() > 0 {
            due = end_by_log(store, &queue, &mut ledger)?;
        }
    }
    if ledger.len() > 0 || !due.is_empty() {
        tracing::info!(
            pending = ledger.len(),
            ended_by_log = due.len(),
            "transactions wait for their end"
        );
    }
    Ok((ledger, due))
}

/// A queue and where to begin: its committed offset, moved into what is there.
fn position(
    store: &MessageStore,
    offsets: &OffsetTable,
    topic: &str,
) -> (Option<Arc<ConsumeQueue>>, i64) {
    let committed = offsets.query(GROUP, topic, 0);
    let Some(queue) = store.queue(topic, 0) else { return (None, 0) };
    let min = queue.min_offset(store.min_physical_offset());
    let start = committed.unwrap_or(min).clamp(min, queue.max_offset().max(min));
    (Some(queue), start)
}

fn read_ops(
    store: &MessageStore,
    queue: &ConsumeQueue,
    from: i64,
    half_from: i64,
    ledger: &mut Ledger,
    ended: &mut HashSet<i64>,
) -> io::Result<()> {
    let mut at = from;
    loop {
        let units = queue.read(at, READ_AHEAD)?;
        if units.is_empty() {
            return Ok(());
        }
        for unit in units {
            let size = usize::try_from(unit.size).ok();
            let bytes = match unit.is_filler() {
                true => None,
                false => store.get_by_physical_offset(unit.physical_offset, size)?,
            };
            let mut highest = -1;
            if let Some(Ok(record)) = bytes.as_deref().map(RecordView::parse) {
                for offset in op_offsets(&record) {
                    highest = highest.max(offset);
                    if offset >= half_from {
                        ended.insert(offset);
                    }
                }
            }
            ledger.wrote_op(at, highest);
            at += 1;
        }
    }
}

/// Ends what the log says has ended; answers the queue offsets that need an op message.
fn end_by_log(
    store: &MessageStore,
    queue: &ConsumeQueue,
    ledger: &mut Ledger,
) -> io::Result<Vec<i64>> {
    let mut by_place = HashMap::new();
    let mut by_identity = HashMap::new();
    for pending in ledger.all() {
        by_place.insert(pending.half.physical, pending.half.offset);
        for older in pending.offsets() {
            if let Some(unit) = queue.unit(older).ok().flatten().filter(|unit| !unit.is_filler()) {
                by_place.insert(unit.physical_offset, pending.half.offset);
            }
        }
        if pending.half.identity != 0 {
            by_identity.insert(pending.half.identity, pending.half.offset);
        }
    }
    let mut due = Vec::new();
    let Some(from) = scan_start(store, queue, ledger) else { return Ok(due) };
    walk(store, from, |record| {
        let committed =
            sys_flag::transaction_type(record.sys_flag()) == sys_flag::TRANSACTION_COMMIT;
        let discarded = record.topic() == TRANS_CHECK_MAX_TIME_TOPIC;
        if !committed && !discarded {
            return;
        }
        let place =
            committed.then(|| by_place.get(&record.prepared_transaction_offset())).flatten();
        let found = place.or_else(|| by_identity.get(&identity(record)));
        let outcome = if committed { Outcome::Committed } else { Outcome::Discarded };
        let Some(pending) = found.and_then(|offset| ledger.get(*offset)) else { return };
        // One that was given up and then put into the half queue again by an operator does wait.
        if committed || record.physical_offset() > pending.half.physical {
            let offset = pending.half.offset;
            due.extend(ledger.end(offset, outcome).unwrap_or_default());
        }
    })?;
    Ok(due)
}

/// Log offset of a half message somewhat before the oldest pending one.
fn scan_start(store: &MessageStore, queue: &ConsumeQueue, ledger: &Ledger) -> Option<i64> {
    let oldest = ledger.all().map(|pending| pending.half).min_by_key(|half| half.physical)?;
    let from = oldest
        .offset
        .saturating_sub(HALVES_BEFORE)
        .max(queue.min_offset(store.min_physical_offset()));
    let before =
        queue.read(from, usize::try_from(oldest.offset - from).unwrap_or(0)).unwrap_or_default();
    let near = oldest.physical.saturating_sub(BYTES_BEFORE);
    let start = before.iter().find(|unit| !unit.is_filler() && unit.physical_offset >= near);
    Some(start.map_or(oldest.physical, |unit| unit.physical_offset.min(oldest.physical)))
}

/// Shows each record of the log from `from` on. Stops with a warning where none can be read.
fn walk(store: &MessageStore, from: i64, mut show: impl FnMut(&RecordView<'_>)) -> io::Result<()> {
    let mut at = from.max(store.min_physical_offset());
    let mut chunk = CHUNK;
    while at < store.max_physical_offset() {
        let bytes = store.read_log(at, chunk)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let step = match parse_entry(rest) {
                Ok(LogEntry::Record(record)) => {
                    show(&record);
                    record.total_size()
                }
                Ok(LogEntry::Blank { size }) => size,
                Ok(LogEntry::Empty) | Err(_) => break,
            };
            at += i64::try_from(step).unwrap_or(0);
            rest = rest.get(step..).unwrap_or_default();
        }
        if rest.len() < bytes.len() {
            chunk = CHUNK;
        } else if bytes.len() == chunk && chunk < MAX_CHUNK {
            // Perhaps one record that is longer.
            chunk *= 2;
        } else {
            tracing::warn!(
                at,
                "the log cannot be read on: transactions that ended behind may be asked about"
            );
            return Ok(());
        }
    }
    Ok(())
}
