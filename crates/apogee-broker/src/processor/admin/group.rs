//! Consumer groups: make, change, delete, look at.

use crate::dispatch::Context;
use apogee_model::names;
use apogee_protocol::bodies::{
    GroupForbidden, JsonBody, SubscriptionGroupConfig, SubscriptionGroupList,
};
use apogee_protocol::headers::{
    DeleteSubscriptionGroupRequestHeader, GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader, GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
};
use apogee_protocol::{Response, ResponseCode};

type Handled = Result<Response, Response>;

/// Most retry queues of a group.
const MAX_RETRY_QUEUES: i32 = 1024;

fn invalid(remark: impl Into<String>) -> Response {
    Response::error(ResponseCode::INVALID_PARAMETER, remark.into())
}

fn check(config: &SubscriptionGroupConfig) -> Result<(), Response> {
    names::validate_group(&config.group_name).map_err(|error| invalid(error.to_string()))?;
    if !(0..=MAX_RETRY_QUEUES).contains(&config.retry_queue_nums) {
        return Err(invalid(format!(
            "retryQueueNums[{}] is illegal, allowed are 0 to {MAX_RETRY_QUEUES}",
            config.retry_queue_nums
        )));
    }
    Ok(())
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
pub(crate) fn update(context: &Context<'_>) -> Handled {
    let config: SubscriptionGroupConfig = context.body()?;
    check(&config)?;
    tracing::info!(group = config.group_name, by = %context.connection.peer(), "group created or changed");
    context.broker.groups.update(config);
    Ok(Response::success())
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST. Every group is checked before the first one is made.
pub(crate) fn update_list(context: &Context<'_>) -> Handled {
    let body: SubscriptionGroupList = context.body()?;
    body.group_config_list.iter().try_for_each(check)?;
    body.group_config_list.into_iter().for_each(|config| context.broker.groups.update(config));
    Ok(Response::success())
}

/// DELETE_SUBSCRIPTIONGROUP, with its offsets if asked.
pub(crate) fn delete(context: &Context<'_>) -> Handled {
    let header: DeleteSubscriptionGroupRequestHeader = context.header()?;
    let (broker, group) = (context.broker, header.group_name.as_str());
    names::validate_group(group).map_err(|error| invalid(error.to_string()))?;
    broker.groups.remove(group);
    broker.stats.remove_group(group);
    if header.clean_offset {
        broker.offsets.remove_group(group);
        broker.saved.save_offsets(&broker.offsets);
    }
    tracing::info!(group, by = %context.connection.peer(), "group deleted");
    Ok(Response::success())
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG, whole or by pages.
pub(crate) fn get_all(context: &Context<'_>) -> Handled {
    // Older tools send no header at all.
    let header: GetAllSubscriptionGroupRequestHeader = context.request.header().unwrap_or_default();
    let mut body = context.broker.groups.snapshot();
    let total = i32::try_from(body.subscription_group_table.len()).unwrap_or(i32::MAX);
    let skip = usize::try_from(header.group_seq).unwrap_or(0);
    let take =
        header.max_group_num.and_then(|max| usize::try_from(max).ok()).filter(|max| *max > 0);
    body.subscription_group_table = body
        .subscription_group_table
        .into_iter()
        .skip(skip)
        .take(take.unwrap_or(usize::MAX))
        .collect();
    let header = GetAllSubscriptionGroupResponseHeader { total_group_num: total };
    Ok(Response::success().header(&header).body(body.to_raw()))
}

/// GET_SUBSCRIPTIONGROUP_CONFIG.
pub(crate) fn get(context: &Context<'_>) -> Handled {
    let header: GetSubscriptionGroupConfigRequestHeader = context.header()?;
    let config = context.broker.groups.get(&header.group).ok_or_else(|| {
        Response::error(
            ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("No group in this broker. group: {}", header.group),
        )
    })?;
    Ok(Response::success().body(config.to_raw()))
}

/// UPDATE_AND_GET_GROUP_FORBIDDEN: may a group read a topic?
pub(crate) fn forbidden(context: &Context<'_>) -> Handled {
    let header: UpdateGroupForbiddenRequestHeader = context.header()?;
    names::validate_group(&header.group).map_err(|error| invalid(error.to_string()))?;
    names::validate_topic(&header.topic).map_err(|error| invalid(error.to_string()))?;
    let groups = &context.broker.groups;
    if let Some(readable) = header.readable {
        groups.set_readable(&header.group, &header.topic, readable);
    }
    let body = GroupForbidden {
        group: Some(header.group.to_string()),
        topic: Some(header.topic.to_string()),
        readable: Some(!groups.is_read_forbidden(&header.group, &header.topic)),
    };
    Ok(Response::success().body(body.to_raw()))
}
