//! RECALL_MESSAGE: a timer message is taken back with the handle of its send; and
//! GET_TIMER_CHECK_POINT.
//!
//! Taking back is a message too: it waits in the same tick as the one it takes back and keeps it from
//! being delivered. It is answered when it is as safe as a send.

use crate::broker::Broker;
use crate::dispatch::Context;
use crate::processor::send_rules::{PERM_WRITE, Target};
use crate::processor::storing;
use crate::processor::timer_rules::{self, Handle};
use apogee_model::PropertyMap;
use apogee_model::properties::keys;
use apogee_model::record::RecordFields;
use apogee_net::Connection;
use apogee_protocol::headers::{RecallMessageRequestHeader, RecallMessageResponseHeader};
use apogee_protocol::{ExtWriter, RemotingCommand, Response, ResponseCode, Str};
use apogee_store::{Appending, Placed};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Tag of messages that take others back.
const RECALL_TAG: &str = "_RECALL_TAG_";
const BORN_TIMESTAMP: &str = "BORN_TIMESTAMP";

type Handled = Result<Response, Response>;

/// Takes a timer message back.
pub(crate) fn serve(
    broker: Arc<Broker>,
    connection: Arc<Connection>,
    request: RemotingCommand,
) -> Pin<Box<dyn Future<Output = Handled> + Send>> {
    Box::pin(async move {
        let with_region = |mut response: Response| {
            response.ext.put_str(keys::MSG_REGION, &broker.config.region_id);
            response
        };
        recall(&broker, &connection, &request).await.map(with_region).map_err(with_region)
    })
}

async fn recall(broker: &Broker, connection: &Connection, request: &RemotingCommand) -> Handled {
    let header: RecallMessageRequestHeader = request
        .header()
        .map_err(|error| Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
    let now = crate::clock::now_ms();
    let handle = check(broker, &header, now)?;
    let placed = store(broker, connection, &header, &handle, now)?;
    if !storing::is_kept(broker, placed.end()).await {
        return Err(Response::error(
            ResponseCode::FLUSH_DISK_TIMEOUT,
            "recall stored, but not flushed to disk within syncFlushTimeout",
        ));
    }
    Ok(Response::success()
        .header(&RecallMessageResponseHeader { msg_id: Str::from(handle.unique_key) }))
}

fn check(
    broker: &Broker,
    header: &RecallMessageRequestHeader,
    now: i64,
) -> Result<Handle, Response> {
    let config = &broker.config;
    if !config.recall_message_enable {
        return Err(Response::error(
            ResponseCode::NO_PERMISSION,
            "recall failed, operation is forbidden: recallMessageEnable is false",
        ));
    }
    if broker.permission() & PERM_WRITE == 0 && !config.allow_recall_when_broker_not_writeable {
        return Err(Response::error(
            ResponseCode::SERVICE_NOT_AVAILABLE,
            "recall failed, broker service not available: the broker is not writable",
        ));
    }
    let topic = header.topic.as_str();
    if broker.topics.get(topic).is_none() {
        let remark = format!("recall failed, the topic[{topic}] not exist");
        return Err(Response::error(ResponseCode::TOPIC_NOT_EXIST, remark));
    }
    let refuse = |reason: &str| Response::error(ResponseCode::ILLEGAL_OPERATION, reason.to_owned());
    let handle =
        Handle::parse(&header.recall_handle).ok_or_else(|| refuse("recall handle is invalid"))?;
    if handle.topic != topic {
        return Err(refuse("recall failed, topic not match"));
    }
    if handle.broker_name != config.broker_name {
        return Err(refuse(
            "recall failed, broker service not available: the handle is of another broker",
        ));
    }
    let longest = broker.store.config().timer_max_delay_sec.saturating_mul(1_000);
    let left = handle.deliver_ms.map_or(0, |deliver| deliver.saturating_sub(now));
    if left <= 0 {
        return Err(refuse(
            "recall failed, timestamp invalid: the message is delivered or about to be",
        ));
    }
    if left >= longest {
        return Err(refuse("recall failed, timestamp invalid: it is beyond timerMaxDelaySec"));
    }
    Ok(handle)
}

fn store(
    broker: &Broker,
    connection: &Connection,
    header: &RecallMessageRequestHeader,
    handle: &Handle,
    now: i64,
) -> Result<Placed, Response> {
    let mut map = PropertyMap::new();
    map.set(keys::TAGS, RECALL_TAG);
    map.set(keys::TIMER_DEL_UNIQKEY, handle.unique_key.as_str());
    map.set(keys::UNIQ_KEY, handle.unique_key.as_str());
    map.set(keys::TIMER_DELIVER_MS, handle.deliver_ms.unwrap_or(0).to_string());
    map.set(BORN_TIMESTAMP, now.to_string());
    map.set(keys::PGROUP, header.producer_group.as_ref().map_or("", Str::as_str));
    let mut target =
        Target { topic: header.topic.clone(), queue_id: 0, answer_queue_id: 0, sys_flag: 0 };
    timer_rules::transform(broker, &mut map, &mut target, now)?;
    let properties = map.encode();
    let mut batch = [Appending::new(RecordFields {
        topic: &target.topic,
        queue_id: target.queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: now,
        born_host: connection.peer(),
        store_host: broker.store_host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"0",
        properties: &properties,
    })];
    let _ = broker.store.append(&mut batch, now);
    let [item] = batch;
    match item.outcome {
        Some(Ok(placed)) => Ok(placed),
        other => {
            let reason =
                other.and_then(Result::err).map_or(String::new(), |error| format!(": {error}"));
            Err(Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("recall failed, execute error{reason}"),
            ))
        }
    }
}

/// The timer's saved progress, as replicas ask for it.
pub(crate) fn check_point(context: &Context<'_>) -> Handled {
    if !context.broker.timer.is_enabled() {
        let remark = "The checkpoint is null: timerWheelEnable is false";
        return Err(Response::error(ResponseCode::SYSTEM_ERROR, remark));
    }
    let mut response = Response::success();
    response.body = context.broker.timer.check().encode().into();
    Ok(response)
}
