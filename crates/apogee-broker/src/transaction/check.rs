//! Asking producers about half messages that stay without an end, and giving up the ones that nobody
//! answers for.
//!
//! Every `transactionCheckInterval` a round looks at all that wait. What is due is put back to the half
//! queue's tail with one check more, so that the count survives, and one live member of its producer
//! group is asked. A half message that cannot be read, or that names no group, topic or queue, is given
//! up by itself; the others go on. Age is counted from the store time by this broker's clock.

use super::half::{copy_properties, half_of, question_body};
use super::ledger::{Due, Half, Outcome, Pending, Rules};
use super::{OFFSETS_IN_OP, Transactions, append, follow};
use crate::broker::Broker;
use crate::clock::now_ms;
use crate::processor::send_rules::{PERM_READ, PERM_WRITE};
use apogee_model::id::OffsetId;
use apogee_model::names::{TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC};
use apogee_model::properties::keys;
use apogee_model::record::{RecordFields, RecordView};
use apogee_net::Connection;
use apogee_protocol::headers::{CheckTransactionStateRequestHeader, RpcFields};
use apogee_protocol::{RemotingCommand, RequestCode, Str};
use apogee_store::AppendError;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often offsets are committed and the half queue is read on.
const TICK: Duration = Duration::from_secs(1);
/// Questions that wait for one flush of the log.
const QUESTIONS: usize = 64;
/// How long a round may take; the next one goes on.
const ROUND: Duration = Duration::from_secs(60);

/// Starts the task.
pub(crate) fn start(broker: &Arc<Broker>) {
    let task = Arc::clone(broker);
    broker.tasks.spawn(async move {
        let interval = Duration::from_millis(task.config.transaction_check_interval.max(1));
        let mut rounds = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        let mut ticks = tokio::time::interval(TICK);
        for series in [&mut rounds, &mut ticks] {
            series.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            let work: fn(&Broker) = tokio::select! {
                _ = rounds.tick() => round,
                _ = ticks.tick() => publish,
                () = task.shutdown.cancelled() => return,
            };
            let broker = Arc::clone(&task);
            // A panic in the work is logged by the runtime and must not end the series.
            let _ = tokio::task::spawn_blocking(move || work(&broker)).await;
        }
    });
}

fn publish(broker: &Broker) {
    broker.transactions.publish(&broker.store, broker.store_host, &broker.offsets, now_ms());
}

/// One check round.
fn round(broker: &Broker) {
    let now = now_ms();
    let rules = Rules {
        timeout_ms: broker.live.transaction_time_out(),
        max_checks: u32::try_from(broker.live.transaction_check_max()).unwrap_or(0),
        reserved_ms: broker.store.file_reserved_time().saturating_mul(3_600_000),
        log_end: broker.store.max_physical_offset(),
    };
    let due = {
        let mut state = broker.transactions.state.lock();
        follow(&broker.store, &mut state.ledger);
        broker.transactions.note(&state.ledger);
        state.ledger.due(now, &rules)
    };
    let (began, count) = (Instant::now(), due.len());
    let mut questions = Vec::new();
    for (done, (offset, physical, what)) in due.into_iter().enumerate() {
        if broker.shutdown.is_cancelled() || began.elapsed() > ROUND {
            tracing::info!(done, count, "a check round was cut short; the next one goes on");
            break;
        }
        match visit(broker, offset, physical, what) {
            Ok(question) => questions.extend(question),
            Err(error) => {
                tracing::warn!(offset, %error, "a check round stopped at a half message; it is tried again");
                break;
            }
        }
        if questions.len() >= QUESTIONS {
            ask(broker, &mut questions);
        }
    }
    ask(broker, &mut questions);
}

/// Does what is due for one transaction, unless it has ended meanwhile. Answers what its producer is to
/// be asked.
fn visit(
    broker: &Broker,
    offset: i64,
    physical: i64,
    what: Due,
) -> Result<Option<Question>, AppendError> {
    let store = &broker.store;
    if physical >= store.max_physical_offset() {
        // Its copy is not on the disk yet, and so not readable.
        return Ok(None);
    }
    let bytes = match store.get_by_physical_offset(physical, None) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!(offset, physical, %error, "a half message cannot be read; it is tried again");
            return Ok(None);
        }
    };
    let Some(Ok(record)) = bytes.as_deref().map(RecordView::parse) else {
        tracing::error!(offset, physical, "a half message is no longer in the log and is given up");
        broker.transactions.drop_unread(broker, offset)?;
        return Ok(None);
    };
    if what == Due::Discard {
        broker.transactions.discard(broker, offset, &record)?;
        return Ok(None);
    }
    let copied = broker.transactions.put_back(broker, offset, &record, what)?;
    let copied = copied.filter(|_| what == Due::Check);
    Ok(copied.and_then(|(copy, properties)| question(broker, &record, &copy, &properties)))
}

/// An error that the same append would have again.
fn is_permanent(error: &AppendError) -> bool {
    matches!(
        error,
        AppendError::Illegal(_) | AppendError::TooLarge { .. } | AppendError::Unsupported(_)
    )
}

impl Transactions {
    /// Appends a copy of a pending half message; `None` if it has ended or was given up.
    fn put_back(
        &self,
        broker: &Broker,
        offset: i64,
        record: &RecordView<'_>,
        what: Due,
    ) -> Result<Option<(Half, Vec<u8>)>, AppendError> {
        let now = now_ms();
        let mut state = self.state.lock();
        let Some(pending) = state.ledger.get(offset) else { return Ok(None) };
        let checks = pending.half.checks.saturating_add(u32::from(what == Due::Check));
        let first_offset = pending.first_offset();
        let properties = copy_properties(record, first_offset, checks);
        let fields = RecordFields {
            store_host: broker.store_host,
            properties: &properties,
            ..record.fields()
        };
        let placed = match append(&broker.store, fields, now) {
            Ok(placed) => placed,
            Err(error) if is_permanent(&error) => {
                // It can never be put back, so it must not wait for that for ever.
                tracing::error!(offset, %error, "a half message cannot be put back and is discarded");
                drop(state);
                self.discard(broker, offset, record)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let copy = Half {
            offset: placed.queue_offset,
            physical: placed.physical_offset,
            stored_ms: placed.store_timestamp,
            checks,
            first_offset: Some(first_offset),
            ..half_of(record)
        };
        state.ledger.put_back(offset, copy);
        // The original would take the copies for two transactions, were it to open this store now.
        state.replaced.push(offset);
        if state.replaced.len() >= OFFSETS_IN_OP {
            state.write_replaced(broker, now);
        }
        self.note(&state.ledger);
        Ok(Some((copy, properties)))
    }

    /// Moves a pending half message to the discard topic and ends it.
    fn discard(
        &self,
        broker: &Broker,
        offset: i64,
        record: &RecordView<'_>,
    ) -> Result<(), AppendError> {
        let now = now_ms();
        let made = broker.topics.get(TRANS_CHECK_MAX_TIME_TOPIC).is_none();
        broker.topics.create_internal(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ | PERM_WRITE);
        if made {
            broker.register_soon();
        }
        let mut state = self.state.lock();
        let Some(pending) = state.ledger.get(offset) else { return Ok(()) };
        tell_discarded(pending, record);
        let fields = RecordFields {
            topic: TRANS_CHECK_MAX_TIME_TOPIC,
            queue_id: 0,
            store_host: broker.store_host,
            ..record.fields()
        };
        match append(&broker.store, fields, now) {
            // The half queue still has it.
            Err(error) if is_permanent(&error) => {
                tracing::error!(offset, %error, "a half message cannot be moved and is given up");
            }
            stored => drop(stored?),
        }
        let offsets = state.ledger.end(offset, Outcome::Discarded).unwrap_or_default();
        state.ops_due.extend(offsets);
        state.write_due_ops(&broker.store, broker.store_host, now);
        self.note(&state.ledger);
        Ok(())
    }

    /// Ends a transaction whose half message is gone.
    fn drop_unread(&self, broker: &Broker, offset: i64) -> Result<(), AppendError> {
        let mut state = self.state.lock();
        state.end_with_op(broker, offset, Outcome::Discarded, now_ms())?;
        self.note(&state.ledger);
        Ok(())
    }

    /// A live member of a producer group, a different one each time.
    fn producer(&self, broker: &Broker, group: &str) -> Option<Arc<Connection>> {
        let mut members = broker.clients.producers(group);
        members.retain(|member| !member.connection.is_closed());
        members.sort_unstable_by_key(|member| member.connection.id());
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let at = turn.checked_rem(members.len())?;
        members.get(at).map(|member| Arc::clone(&member.connection))
    }
}

fn tell_discarded(pending: &Pending, record: &RecordView<'_>) {
    let properties = record.properties();
    tracing::warn!(
        offset = pending.half.offset,
        checks = pending.half.checks,
        group = properties.get(keys::PGROUP),
        topic = properties.get(keys::REAL_TOPIC),
        id = properties.get(keys::UNIQ_KEY),
        "no end came for a half message: it goes to TRANS_CHECK_MAX_TIME_TOPIC"
    );
}

/// A question to a member of a producer group.
struct Question {
    group: Box<str>,
    command: RemotingCommand,
}

/// The question how the transaction ended.
fn question(
    broker: &Broker,
    record: &RecordView<'_>,
    copy: &Half,
    properties: &[u8],
) -> Option<Question> {
    let read = record.properties();
    let group = read.get(keys::PGROUP).unwrap_or_default();
    let Some(body) = question_body(record, copy, properties) else {
        tracing::error!(group, offset = copy.offset, "a half message is too long to ask about it");
        return None;
    };
    let id = read.get(keys::UNIQ_KEY).map(|id| Str::from(id.to_owned()));
    let offset_id = OffsetId { host: broker.store_host, physical_offset: copy.physical };
    let header = CheckTransactionStateRequestHeader {
        topic: Some(Str::from_static(TRANS_HALF_TOPIC)),
        tran_state_table_offset: copy.offset,
        commit_log_offset: copy.physical,
        msg_id: id.clone(),
        transaction_id: id,
        offset_msg_id: Some(Str::from(offset_id.to_string())),
        rpc: RpcFields {
            broker_name: Some(Str::from(broker.config.broker_name.clone())),
            ..RpcFields::default()
        },
    };
    let command = RemotingCommand::request(RequestCode::CHECK_TRANSACTION_STATE, &header)
        .body(Bytes::from(body))
        .oneway();
    Some(Question { group: group.into(), command })
}

/// Sends the questions. The copies that they name are readable by then, so that the answers find them.
fn ask(broker: &Broker, questions: &mut Vec<Question>) {
    broker.transactions.state.lock().write_replaced(broker, now_ms());
    if broker.store.is_sync_flush()
        && !questions.is_empty()
        && let Err(error) = broker.store.flush_log()
    {
        tracing::warn!(%error, "half messages were put back but not flushed; producers are asked in the next round");
        questions.clear();
    }
    for Question { group, mut command } in questions.drain(..) {
        let Some(connection) = broker.transactions.producer(broker, &group) else {
            tracing::warn!(%group, "no producer of the group can be asked about its transaction");
            continue;
        };
        command.opaque = connection.next_opaque();
        connection.send(&command);
    }
}
