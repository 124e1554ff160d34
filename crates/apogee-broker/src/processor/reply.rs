//! SEND_REPLY_MESSAGE (both spellings): the answer to a request message goes to the client that asked.
//!
//! What always holds: a reply is pushed once, to the newest connection of the client that its
//! REPLY_TO_CLIENT names; the replier is told whether that client took it. The reply is stored too, so
//! that it can be found again.

use crate::broker::Broker;
use crate::processor::send::{Scan, stored_properties, with_region};
use crate::processor::send_rules::{self, Target};
use crate::processor::storing;
use apogee_model::PropertyMap;
use apogee_model::id::OffsetId;
use apogee_model::properties::Properties;
use apogee_model::record::RecordFields;
use apogee_net::Connection;
use apogee_protocol::headers::{
    ReplyMessageRequestHeader, SendMessageHeader, SendMessageResponseHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, Response, ResponseCode, Str};
use apogee_store::Placed;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How long the asking client may take to confirm.
const PATIENCE: Duration = Duration::from_secs(10);
const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";

type Handled = Result<Response, Response>;

/// Stores and pushes one reply.
pub(crate) fn serve(
    broker: Arc<Broker>,
    connection: Arc<Connection>,
    request: RemotingCommand,
) -> Pin<Box<dyn Future<Output = Handled> + Send>> {
    Box::pin(async move {
        let handled = store_and_push(&broker, &connection, &request).await;
        match handled {
            Ok(response) => Ok(with_region(&broker, response)),
            Err(response) => Err(with_region(&broker, response)),
        }
    })
}

async fn store_and_push(
    broker: &Arc<Broker>,
    connection: &Connection,
    request: &RemotingCommand,
) -> Handled {
    let header: SendMessageHeader = request
        .header()
        .map_err(|error| Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
    let target = send_rules::check(broker, connection, &header)?;
    if request.body.is_empty() {
        return Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            "the reply's body is empty: at least 1 byte is needed",
        ));
    }
    let raw = header.properties.as_ref().map_or(&[][..], |text| text.as_bytes());
    let properties = Properties::new(raw);
    let asker = properties.get(REPLY_TO_CLIENT).unwrap_or_default().to_owned();
    let stored = stored_properties(broker, raw, &Scan::of(properties));
    let placed = store(broker, connection, &header, &target, request, &stored)?;
    let told = SendMessageResponseHeader {
        msg_id: Str::from(
            OffsetId { host: broker.store_host, physical_offset: placed.physical_offset }
                .to_string(),
        ),
        queue_id: target.queue_id,
        queue_offset: placed.queue_offset,
        ..SendMessageResponseHeader::default()
    };
    let pushed = push(
        broker,
        connection,
        &header,
        &target,
        request,
        &stored,
        &asker,
        placed.store_timestamp,
    )
    .await;
    match pushed {
        Ok(()) => Ok(Response::success().header(&told)),
        Err(reason) => Err(Response::error(ResponseCode::SYSTEM_ERROR, reason).header(&told)),
    }
}

fn store(
    broker: &Broker,
    connection: &Connection,
    header: &SendMessageHeader,
    target: &Target,
    request: &RemotingCommand,
    properties: &[u8],
) -> Result<Placed, Response> {
    let fields = RecordFields {
        topic: &target.topic,
        queue_id: target.queue_id,
        flag: header.flag,
        sys_flag: target.sys_flag,
        born_timestamp: header.born_timestamp,
        born_host: connection.peer(),
        store_host: broker.store_host,
        reconsume_times: header.reconsume_times.unwrap_or(0),
        prepared_transaction_offset: 0,
        body: &request.body,
        properties,
    };
    storing::append_one(broker, fields, crate::clock::now_ms())
}

#[allow(clippy::too_many_arguments, reason = "one call site; a struct would only repeat the names")]
async fn push(
    broker: &Broker,
    replier: &Connection,
    header: &SendMessageHeader,
    target: &Target,
    request: &RemotingCommand,
    stored: &[u8],
    asker: &str,
    store_timestamp: i64,
) -> Result<(), String> {
    if asker.is_empty() {
        return Err(format!("the reply has no property {REPLY_TO_CLIENT}"));
    }
    let client = broker
        .clients
        .connection_of(asker)
        .ok_or_else(|| format!("push reply message fail, channel of <{asker}> not found."))?;
    let mut properties = PropertyMap::parse(stored);
    properties.set(PUSH_REPLY_TIME, crate::clock::now_ms().to_string());
    let encoded = String::from_utf8_lossy(&properties.encode()).into_owned();
    let push = ReplyMessageRequestHeader {
        producer_group: header.producer_group.clone(),
        topic: header.topic.clone(),
        default_topic: header.default_topic.clone(),
        default_topic_queue_nums: header.default_topic_queue_nums,
        queue_id: target.queue_id,
        sys_flag: target.sys_flag,
        born_timestamp: header.born_timestamp,
        flag: header.flag,
        properties: Some(Str::from(encoded)),
        reconsume_times: header.reconsume_times,
        unit_mode: header.unit_mode.unwrap_or(false),
        born_host: Str::from(replier.peer().to_string()),
        store_host: Str::from(broker.store_host.to_string()),
        store_timestamp,
        ..ReplyMessageRequestHeader::default()
    };
    let command = RemotingCommand::request(RequestCode::PUSH_REPLY_MESSAGE_TO_CLIENT, &push)
        .body(request.body.clone());
    let answer = client
        .invoke(command, PATIENCE)
        .await
        .map_err(|error| format!("push reply message to <{asker}> failed: {error}"))?;
    if answer.response_code() == ResponseCode::SUCCESS {
        return Ok(());
    }
    let reason = answer.remark.as_deref().unwrap_or("no reason given").to_owned();
    Err(format!("the client <{asker}> did not take the reply: {reason}"))
}
