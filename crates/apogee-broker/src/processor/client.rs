//! Heartbeats, farewells, and who is in a group.

use crate::clients::Member;
use crate::dispatch::Context;
use crate::filters::is_tag_type;
use crate::live::Live;
use crate::processor::send_rules::{PERM_READ, PERM_WRITE};
use apogee_model::names;
use apogee_model::sql::Expression;
use apogee_model::subscription::EXPRESSION_SQL92;
use apogee_protocol::bodies::{
    CheckClientRequestBody, ConsumerData, GetConsumerListByGroupResponseBody, HeartbeatData,
    JsonBody,
};
use apogee_protocol::headers::{
    GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader,
};
use apogee_protocol::{ExtWriter, Response, ResponseCode};
use std::sync::Arc;

type Handled = Result<Response, Response>;

/// Groups that one client may name in a heartbeat.
const MAX_GROUPS: usize = 4096;

fn invalid(remark: impl Into<String>) -> Response {
    Response::error(ResponseCode::INVALID_PARAMETER, remark.into())
}

/// HEART_BEAT of both versions. A short one (without subscriptions) of a client that this broker does
/// not know is answered with IS_SUB_CHANGE, so that the full one follows.
pub(crate) fn heart_beat(context: &Context<'_>) -> Handled {
    let data: HeartbeatData = context.body()?;
    if data.client_id.trim().is_empty() {
        return Err(invalid("the heartbeat's field clientID is missing"));
    }
    let groups = data.consumer_data_set.len() + data.producer_data_set.len();
    if groups > MAX_GROUPS {
        return Err(invalid(format!(
            "the heartbeat names {groups} groups, the limit is {MAX_GROUPS}"
        )));
    }
    let broker = context.broker;
    let member = Member {
        connection: Arc::clone(context.connection),
        client_id: data.client_id.as_str().into(),
        language: context.request.language,
        version: context.request.version,
        last_seen_ms: context.now,
        fingerprint: data.heartbeat_fingerprint,
    };
    broker.clients.seen(&member);
    let mut refused = None;
    // The first version always carries everything, so the whole form is what comes next.
    let mut subscriptions_wanted = data.heartbeat_fingerprint == 0;
    for producer in &data.producer_data_set {
        match names::validate_group(&producer.group_name) {
            Ok(()) => broker.clients.register_producer(&producer.group_name, member.clone()),
            Err(error) => refused = Some(error.to_string()),
        }
    }
    for consumer in data.consumer_data_set {
        match register_consumer(context, consumer, &member, data.without_sub) {
            Ok(unknown) => subscriptions_wanted |= unknown,
            Err(reason) => refused = Some(reason),
        }
    }
    let mut response = match refused {
        None => Response::success(),
        Some(reason) => invalid(reason),
    };
    response.ext.put_bool("IS_SUPPORT_HEART_BEAT_V2", true);
    response.ext.put_bool("IS_SUB_CHANGE", subscriptions_wanted);
    Ok(response)
}

/// Takes over one group of a heartbeat; true if its subscriptions are not known here.
fn register_consumer(
    context: &Context<'_>,
    data: ConsumerData,
    member: &Member,
    without_subscriptions: bool,
) -> Result<bool, String> {
    names::validate_group(&data.group_name).map_err(|error| error.to_string())?;
    for subscription in &data.subscription_data_set {
        names::validate_topic(&subscription.topic).map_err(|error| error.to_string())?;
    }
    let broker = context.broker;
    let group = data.group_name.clone();
    let Some(config) = broker.groups.get_or_create(&group) else {
        return Err(format!(
            "subscription group [{group}] does not exist and autoCreateSubscriptionGroup is false"
        ));
    };
    let retry = names::retry_topic(&group);
    if broker.topics.get(&retry).is_none() {
        broker.topics.create_internal(&retry, config.retry_queue_nums, PERM_READ | PERM_WRITE);
        broker.register_soon();
    }
    if !without_subscriptions {
        // Before the subscription is known: a pull that finds one must find the other.
        broker.filters.heartbeat(&group, &data.subscription_data_set, context.now);
    }
    let change = broker.clients.register_consumer(data, member.clone(), without_subscriptions);
    if (change.members || change.subscriptions) && config.notify_consumer_ids_changed_enable {
        broker.group_changed(&group);
    }
    Ok(change.unknown_subscriptions)
}

/// UNREGISTER_CLIENT: a client says good-bye.
pub(crate) fn unregister_client(context: &Context<'_>) -> Handled {
    let header: UnregisterClientRequestHeader = context.header()?;
    let departure = context.broker.clients.unregister(
        context.connection.id(),
        header.producer_group.as_deref().filter(|group| !group.is_empty()),
        header.consumer_group.as_deref().filter(|group| !group.is_empty()),
        |one| context.broker.free_locks(one),
    );
    if let Some(departure) = departure {
        context.broker.departed(&departure);
    }
    Ok(Response::success())
}

/// Whether messages can be selected by expressions of this type, which is none by tags.
pub(crate) fn check_supported(live: &Live, kind: &str) -> Result<(), Response> {
    let sql = kind == EXPRESSION_SQL92;
    if sql && live.enable_property_filter() {
        return Ok(());
    }
    let hint = if sql { " (enablePropertyFilter is false)" } else { "" };
    Err(Response::error(
        ResponseCode::SYSTEM_ERROR,
        format!("The broker does not support consumer to filter message by {kind}{hint}"),
    ))
}

/// CHECK_CLIENT_CONFIG: can this broker filter as the client wants?
pub(crate) fn check_client_config(context: &Context<'_>) -> Handled {
    let body: CheckClientRequestBody = context.body()?;
    let Some(subscription) = body.subscription_data else {
        return Ok(Response::success());
    };
    let kind = subscription.expression_type.as_deref();
    if is_tag_type(kind) {
        return Ok(Response::success());
    }
    check_supported(&context.broker.live, kind.unwrap_or_default())?;
    match Expression::parse(subscription.sub_string.as_deref().unwrap_or_default()) {
        Ok(_) => Ok(Response::success()),
        Err(error) => {
            Err(Response::error(ResponseCode::SUBSCRIPTION_PARSE_FAILED, error.to_string()))
        }
    }
}

/// GET_CONSUMER_LIST_BY_GROUP: ids of the members, for their rebalancing.
pub(crate) fn get_consumer_list(context: &Context<'_>) -> Handled {
    let header: GetConsumerListByGroupRequestHeader = context.header()?;
    let group = header.consumer_group.as_str();
    match context.broker.clients.consumer_group(group).map(|members| members.client_ids()) {
        Some(ids) if !ids.is_empty() => Ok(Response::success()
            .body(GetConsumerListByGroupResponseBody { consumer_id_list: ids }.to_raw())),
        _ => Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            format!("no consumer for this group, {group}"),
        )),
    }
}
