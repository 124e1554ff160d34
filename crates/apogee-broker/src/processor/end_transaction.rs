//! END_TRANSACTION: a producer commits or rolls back, by itself or because it was asked; and
//! RESUME_CHECK_HALF_MESSAGE: an operator wants a producer to be asked again.
//!
//! What always holds: SUCCESS means that the transaction has ended so and not otherwise. Whatever comes
//! after the first end is refused and changes nothing. "Unknown" changes nothing either: the next check
//! round asks again.

use crate::dispatch::Context;
use crate::processor::send_rules;
use crate::transaction::{End, Outcome, Refusal};
use apogee_model::id::OffsetId;
use apogee_model::names::{TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC};
use apogee_model::properties::keys;
use apogee_model::record::RecordView;
use apogee_model::sys_flag;
use apogee_protocol::headers::{EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader};
use apogee_protocol::{Response, ResponseCode};

pub(crate) fn serve(context: &Context<'_>) -> Result<Response, Response> {
    let header: EndTransactionRequestHeader = context.header()?;
    let broker = context.broker;
    let outcome = match header.commit_or_rollback {
        sys_flag::TRANSACTION_COMMIT => Outcome::Committed,
        sys_flag::TRANSACTION_ROLLBACK => Outcome::RolledBack,
        sys_flag::TRANSACTION_NOT => return Ok(Response::success()),
        other => {
            return Err(wrong(format!(
                "commitOrRollback is {other}: 8 commits, 12 rolls back, 0 is unknown"
            )));
        }
    };
    let bytes = broker.store.get_by_physical_offset(header.commit_log_offset, None).ok().flatten();
    let record = bytes.as_deref().map(RecordView::parse).and_then(Result::ok);
    let record =
        record.filter(|record| record.topic() == TRANS_HALF_TOPIC && record.queue_id() == 0);
    let record = record.ok_or_else(|| {
        wrong(format!(
            "Find prepared transaction message failed: none at commit log offset {}",
            header.commit_log_offset
        ))
    })?;
    check(&header, &record)?;
    let from_check = header.from_transaction_check == Some(true);
    let end = End { record, outcome, from_check, now: context.now };
    broker.transactions.end(broker, &end).map_err(|refusal| {
        let response = refused(&refusal);
        tracing::warn!(
            group = %header.producer_group, id = %header.msg_id, offset = header.tran_state_table_offset,
            wanted = outcome.text(), reason = response.remark.as_deref(), "the end of a transaction is refused"
        );
        response
    })?;
    Ok(Response::success())
}

/// Lets a message of `TRANS_CHECK_MAX_TIME_TOPIC` wait for its end again.
pub(crate) fn resume_check(context: &Context<'_>) -> Result<Response, Response> {
    let header: ResumeCheckHalfMessageRequestHeader = context.header()?;
    let id = header.msg_id.as_deref().unwrap_or_default();
    let place = OffsetId::parse(id).map_err(|error| wrong(format!("msgId {id:?}: {error}")))?;
    let broker = context.broker;
    let bytes = broker.store.get_by_physical_offset(place.physical_offset, None).ok().flatten();
    let record = bytes.as_deref().map(RecordView::parse).and_then(Result::ok);
    let record = record.filter(|record| record.topic() == TRANS_CHECK_MAX_TIME_TOPIC);
    let record = record.ok_or_else(|| {
        wrong(format!("msgId {id} is the offset id of no message of {TRANS_CHECK_MAX_TIME_TOPIC}"))
    })?;
    let resumed = broker.transactions.resume(broker, &record, context.now);
    resumed.map_err(|refusal| refused(&refusal))?;
    Ok(Response::success())
}

fn wrong(remark: String) -> Response {
    Response::error(ResponseCode::SYSTEM_ERROR, remark)
}

/// Whether the request is about this half message.
fn check(header: &EndTransactionRequestHeader, record: &RecordView<'_>) -> Result<(), Response> {
    let group = record.properties().get(keys::PGROUP);
    if group != Some(header.producer_group.as_str()) {
        return Err(wrong(format!(
            "The producer group wrong: the half message belongs to {:?}, not to {:?}",
            group.unwrap_or_default(),
            header.producer_group.as_str()
        )));
    }
    if record.queue_offset() != header.tran_state_table_offset {
        return Err(wrong(format!(
            "The transaction state table offset wrong: the half message has {}, not {}",
            record.queue_offset(),
            header.tran_state_table_offset
        )));
    }
    if record.physical_offset() != header.commit_log_offset {
        return Err(wrong(format!(
            "The commit log offset wrong: the half message has {}, not {}",
            record.physical_offset(),
            header.commit_log_offset
        )));
    }
    Ok(())
}

fn refused(refusal: &Refusal) -> Response {
    match refusal {
        Refusal::Ended(outcome) => {
            let how = outcome.map_or("committed, rolled back or discarded", Outcome::text);
            Response::error(
                ResponseCode::ILLEGAL_OPERATION,
                format!("the transaction has ended before: it was {how}, and that stays so"),
            )
        }
        Refusal::TooLate { age_ms, limit_ms } => Response::error(
            ResponseCode::ILLEGAL_OPERATION,
            format!(
                "the half message is {age_ms} ms old and CHECK_IMMUNITY_TIME_IN_SECONDS gives it {limit_ms} ms: \
                 only the answer to a check counts now"
            ),
        ),
        Refusal::Waits => wrong("the transaction waits for its end already".to_owned()),
        Refusal::NotWhole => wrong(
            "the half message names no real topic or queue and cannot be committed".to_owned(),
        ),
        Refusal::Store(error) => send_rules::refused_by_store(error),
    }
}
