//! QUERY_MESSAGE and VIEW_MESSAGE_BY_ID: finding messages again.

use crate::dispatch::Context;
use apogee_model::names;
use apogee_protocol::headers::{
    QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader,
};
use apogee_protocol::{Body, Response, ResponseCode};
use apogee_store::KeyKind;

const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
const INDEX_TYPE: &str = "indexType";

/// Messages by key, unique key or tag, newest first.
pub(crate) fn query_message(context: &Context<'_>) -> Result<Response, Response> {
    let header: QueryMessageRequestHeader = context.header()?;
    let broker = context.broker;
    let topic = header.topic.as_str();
    names::validate_topic(topic)
        .map_err(|error| Response::error(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
    let ext = &context.request.ext;
    let unique = ext.get(UNIQUE_KEY_QUERY) == Some("true") || ext.get(INDEX_TYPE) == Some("U");
    let kind = match ext.get(INDEX_TYPE) {
        _ if unique => KeyKind::UniqueKey,
        Some("T") => KeyKind::Tag,
        _ => KeyKind::Key,
    };
    let max = if unique { broker.live.default_query_max_num() } else { header.max_num };
    let max = usize::try_from(max.max(0)).unwrap_or(0);
    let found = broker
        .store
        .query(topic, &header.key, kind, max, header.begin_timestamp, header.end_timestamp)
        .map_err(|error| {
            Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("the index cannot be read: {error}"),
            )
        })?;
    let answer = QueryMessageResponseHeader {
        index_last_update_timestamp: found.index_last_update_timestamp,
        index_last_update_phyoffset: found.index_last_update_physical_offset,
    };
    if found.records.is_empty() {
        return Err(Response::error(
            ResponseCode::QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
        )
        .header(&answer));
    }
    Ok(Response::success().header(&answer).body(Body::Many(found.records)))
}

/// A message by its place in the log.
pub(crate) fn view_message_by_id(context: &Context<'_>) -> Result<Response, Response> {
    let header: ViewMessageRequestHeader = context.header()?;
    match context.broker.store.get_by_physical_offset(header.offset, None) {
        Ok(Some(record)) => Ok(Response::success().body(record)),
        _ => Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("can not find message by the offset, {}", header.offset),
        )),
    }
}
