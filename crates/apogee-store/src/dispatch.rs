//! Dispatch: reads the log from where it stopped up to the visible position and gives each record
//! to its consume queue and to the index. The same code runs live and in recovery.
//!
//! Live, whoever made records visible dispatches them: the appending thread after it released the
//! append lock, or the flusher after its fsync. One thread dispatches at a time; another one that
//! comes meanwhile leaves its work to the first, which looks again before it goes.
//!
//! What always holds: `dispatched` moves only behind whole records; the queue offset in the record
//! is the truth for the unit's place; arrivals are told once per round and queue.

use crate::be::record_queue_offset;
use crate::commit_log::CommitLog;
use crate::consume_queue::{ConsumeQueue, Put};
use crate::delay_level::{DelayLevels, SCHEDULE_TOPIC};
use crate::index::Index;
use crate::queues::Queues;
use crate::unit::Unit;
use apogee_model::hash::tags_code;
use apogee_model::record::{LogEntry, RecordView, parse_entry};
use apogee_model::sys_flag;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering, fence};

/// Arrivals told at once at most; a longer round tells several times.
const MAX_ARRIVALS: usize = 1_024;

/// New messages in a queue.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// One past the newest visible message.
    pub max_offset: i64,
    /// Tags code of the new messages when they all have the same one; `None` means several, so
    /// whoever filters must look.
    pub tags_code: Option<i64>,
    /// Store time of the newest one (ms).
    pub store_timestamp: i64,
}

/// Told about new messages, outside all locks but the dispatch lock. Must not block.
pub trait ArrivalListener: Send + Sync {
    /// Called once per dispatch round with one entry for each queue that got messages.
    fn arrived(&self, arrivals: &[Arrival]);
}

/// A listener that does nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoListener;

impl ArrivalListener for NoListener {
    fn arrived(&self, _arrivals: &[Arrival]) {}
}

/// Why dispatch stopped.
#[derive(Debug)]
pub(crate) struct DispatchError {
    pub(crate) position: i64,
    pub(crate) reason: String,
}

/// What to do when another thread is dispatching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    /// It will see to our records too; go on.
    Leave,
    /// Wait, so that our records are readable when we return.
    Wait,
}

/// What dispatch works with.
pub(crate) struct DispatchContext<'a> {
    pub(crate) log: &'a CommitLog,
    pub(crate) queues: &'a Queues,
    pub(crate) index: Option<&'a Index>,
    pub(crate) listener: &'a dyn ArrivalListener,
}

/// The dispatcher.
pub(crate) struct Dispatcher {
    visible: AtomicI64,
    dispatched: AtomicI64,
    state: Mutex<State>,
    levels: DelayLevels,
}

#[derive(Default)]
struct State {
    arrivals: Vec<Arrival>,
    last: Option<Arc<ConsumeQueue>>,
    last_timestamp: i64,
    last_record: i64,
}

/// How far dispatch has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    /// Position behind the last record.
    pub(crate) position: i64,
    /// Commit log offset of the last record (0 before the first).
    pub(crate) last_record: i64,
    /// Its store time (ms).
    pub(crate) timestamp: i64,
}

impl Dispatcher {
    /// A dispatcher at position 0.
    pub(crate) fn new(levels: DelayLevels) -> Self {
        Self {
            visible: AtomicI64::new(0),
            dispatched: AtomicI64::new(0),
            state: Mutex::default(),
            levels,
        }
    }

    /// Sets the position, at the start of recovery.
    pub(crate) fn settle(&self, position: i64, last_record: i64, last_timestamp: i64) {
        self.visible.store(position, Ordering::Release);
        self.dispatched.store(position, Ordering::Release);
        let mut state = self.state.lock();
        state.last_record = last_record;
        state.last_timestamp = last_timestamp;
    }

    /// Position behind the last dispatched record.
    pub(crate) fn dispatched(&self) -> i64 {
        self.dispatched.load(Ordering::Acquire)
    }

    /// Position up to which records may be read.
    pub(crate) fn visible(&self) -> i64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Runs `work` between two rounds, with everything below the given position in the queues:
    /// what a checkpoint may vouch for once the queues are synced. The caller must call
    /// [`Dispatcher::run`] afterwards: a round that came meanwhile left its work to us.
    pub(crate) fn between_rounds<T>(&self, work: impl FnOnce(Reached) -> T) -> T {
        let state = self.state.lock();
        work(Reached {
            position: self.dispatched(),
            last_record: state.last_record,
            timestamp: state.last_timestamp,
        })
    }

    /// Makes records up to `visible` readable, now or by the thread that is dispatching.
    pub(crate) fn run(
        &self,
        context: &DispatchContext<'_>,
        visible: i64,
        busy: WhenBusy,
    ) -> Result<(), DispatchError> {
        self.visible.fetch_max(visible, Ordering::AcqRel);
        // Either the other thread, which looks again after it unlocked, sees our position, or we
        // see its lock free: the two fences rule out that both miss.
        fence(Ordering::SeqCst);
        while self.dispatched() < self.visible() {
            let mut state = match (self.state.try_lock(), busy) {
                (Some(state), _) => state,
                (None, WhenBusy::Leave) => return Ok(()),
                (None, WhenBusy::Wait) => self.state.lock(),
            };
            let result = self.round(context, &mut state);
            tell(&mut state, context.listener);
            drop(state);
            fence(Ordering::SeqCst);
            result?;
        }
        Ok(())
    }

    fn round(&self, context: &DispatchContext<'_>, state: &mut State) -> Result<(), DispatchError> {
        let mut at = self.dispatched();
        loop {
            let target = self.visible();
            if at >= target {
                return Ok(());
            }
            let fail = |reason: String| DispatchError { position: at, reason };
            let segment = context
                .log
                .segments
                .find(at)
                .ok_or_else(|| fail("the commit log file is gone".to_owned()))?;
            let end = segment.end().min(target);
            let start = (at - segment.base()) as usize;
            let bytes = segment
                .slice(start, (end - at) as usize)
                .ok_or_else(|| fail("outside of the commit log file".to_owned()))?;
            at = self.records(context, state, bytes, at, segment.end())?;
        }
    }

    /// Dispatches the records in `bytes`, which begin at `at`. Gives the position behind them.
    fn records(
        &self,
        context: &DispatchContext<'_>,
        state: &mut State,
        bytes: &[u8],
        at: i64,
        segment_end: i64,
    ) -> Result<i64, DispatchError> {
        let mut rest = bytes;
        let mut position = at;
        while !rest.is_empty() {
            let fail = |reason: String| DispatchError { position, reason };
            let step = match parse_entry(rest).map_err(|error| fail(error.to_string()))? {
                LogEntry::Record(record) => {
                    self.record(context, state, &record, position)
                        .map_err(|error| fail(error.to_string()))?;
                    record.total_size()
                }
                LogEntry::Blank { .. } => {
                    self.dispatched.store(segment_end, Ordering::Release);
                    return Ok(segment_end);
                }
                LogEntry::Empty => return Err(fail("no record where one was written".to_owned())),
            };
            position += step as i64;
            rest = rest.get(step..).unwrap_or_default();
            self.dispatched.store(position, Ordering::Release);
        }
        Ok(position)
    }

    fn record(
        &self,
        context: &DispatchContext<'_>,
        state: &mut State,
        record: &RecordView<'_>,
        position: i64,
    ) -> std::io::Result<()> {
        let kind = sys_flag::transaction_type(record.sys_flag());
        state.last_timestamp = record.store_timestamp();
        state.last_record = position;
        if kind == sys_flag::TRANSACTION_ROLLBACK {
            return Ok(());
        }
        let mut tags = None;
        let mut delay = None;
        let mut multi = (None, None);
        let mut words = Words::default();
        for (name, value) in record.properties().raw_pairs() {
            let place = match name {
                b"TAGS" => &mut tags,
                b"KEYS" => &mut words.keys,
                b"UNIQ_KEY" => &mut words.unique,
                b"DELAY" => &mut delay,
                b"INNER_MULTI_DISPATCH" => &mut multi.0,
                b"INNER_MULTI_QUEUE_OFFSET" => &mut multi.1,
                _ => continue,
            };
            *place = std::str::from_utf8(value).ok();
        }
        words.tags = tags;
        if kind != sys_flag::TRANSACTION_PREPARED && record.sys_flag() & sys_flag::INNER_BATCH == 0
        {
            let code = self.tags_code(record, tags, delay);
            let unit = Unit {
                physical_offset: position,
                size: record.total_size() as i32,
                tags_code: code,
            };
            self.enqueue(context, state, record, unit)?;
            if let (Some(names), Some(offsets)) = multi {
                light_queues(context.queues, names, offsets, unit)?;
            }
        }
        if let Some(index) = context.index {
            index.add(record.topic(), &words, position, record.store_timestamp())?;
        }
        Ok(())
    }

    fn tags_code(&self, record: &RecordView<'_>, tags: Option<&str>, delay: Option<&str>) -> i64 {
        if record.topic() == SCHEDULE_TOPIC {
            let time =
                delay.and_then(|level| self.levels.delivery_time(level, record.store_timestamp()));
            if let Some(time) = time {
                return time;
            }
        }
        tags.map_or(0, tags_code)
    }

    fn enqueue(
        &self,
        context: &DispatchContext<'_>,
        state: &mut State,
        record: &RecordView<'_>,
        unit: Unit,
    ) -> std::io::Result<()> {
        let (topic, queue_id) = (record.topic(), record.queue_id());
        let known = state.last.as_ref().filter(|queue| {
            queue.queue_id() == queue_id && &**queue.topic() == topic && !queue.is_dead()
        });
        let queue = match known {
            Some(queue) if unit.physical_offset >= queue.born_at() => Arc::clone(queue),
            _ => {
                let found = context.queues.for_record(topic, queue_id, unit.physical_offset);
                let Some(queue) = found else {
                    return Ok(());
                };
                state.last = Some(Arc::clone(&queue));
                queue
            }
        };
        let offset = record_queue_offset(record.bytes()).unwrap_or(0);
        match queue.put(offset, unit)? {
            Put::Known => return Ok(()),
            Put::Absurd => {
                tracing::error!(
                    topic,
                    queue_id,
                    offset,
                    position = unit.physical_offset,
                    "a record's queue offset is far ahead of its queue; the record gets no unit"
                );
                return Ok(());
            }
            Put::Added => context.queues.mark_dirty(&queue),
        }
        note(state, queue, offset + 1, unit.tags_code, record.store_timestamp());
        if state.arrivals.len() >= MAX_ARRIVALS {
            tell(state, context.listener);
        }
        Ok(())
    }
}

/// What a record is indexed by.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) unique: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
    pub(crate) tags: Option<&'a str>,
}

/// Units of light message queues, which an older store may hold: kept complete on recovery.
fn light_queues(queues: &Queues, names: &str, offsets: &str, unit: Unit) -> std::io::Result<()> {
    for (name, offset) in names.split(',').zip(offsets.split(',')) {
        let Ok(offset) = offset.parse::<i64>() else {
            continue;
        };
        if let Some(queue) =
            queues.for_record(name, 0, unit.physical_offset).filter(|_| offset >= 0)
        {
            queue.put(offset, unit)?;
            queues.mark_dirty(&queue);
        }
    }
    Ok(())
}

fn note(state: &mut State, queue: Arc<ConsumeQueue>, max: i64, code: i64, timestamp: i64) {
    let slot = queue.arrival_slot.load(Ordering::Relaxed) as usize;
    if let Some(arrival) =
        state.arrivals.get_mut(slot).filter(|arrival| Arc::ptr_eq(&arrival.queue, &queue))
    {
        arrival.max_offset = max;
        arrival.store_timestamp = timestamp;
        if arrival.tags_code != Some(code) {
            arrival.tags_code = None;
        }
        return;
    }
    queue.arrival_slot.store(state.arrivals.len() as u32, Ordering::Relaxed);
    state.arrivals.push(Arrival {
        queue,
        max_offset: max,
        tags_code: Some(code),
        store_timestamp: timestamp,
    });
}

fn tell(state: &mut State, listener: &dyn ArrivalListener) {
    if !state.arrivals.is_empty() {
        listener.arrived(&state.arrivals);
        state.arrivals.clear();
    }
}
