//! What operators and tools ask.

mod consumer;
mod group;
mod info;
mod relay;
mod settings;
mod statistics;
mod topic;

use crate::dispatch::{Entry, Handler, Lane, entry};
use crate::pop::assign;
use apogee_protocol::RequestCode as C;

/// Requests of operators; see `dispatch` for what a line means.
pub(crate) static TABLE: &[Entry] = {
    use Handler::{Blocking, Relay};
    &[
        entry(C::UPDATE_AND_CREATE_TOPIC, Lane::Admin, Blocking(topic::update)),
        entry(C::UPDATE_AND_CREATE_TOPIC_LIST, Lane::Admin, Blocking(topic::update_list)),
        entry(C::DELETE_TOPIC_IN_BROKER, Lane::Admin, Blocking(topic::delete)),
        entry(C::GET_ALL_TOPIC_CONFIG, Lane::Admin, Blocking(topic::get_all)),
        entry(C::GET_TOPIC_CONFIG, Lane::Admin, Blocking(topic::get)),
        entry(C::GET_TOPIC_STATS_INFO, Lane::Admin, Blocking(topic::stats)),
        entry(C::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Lane::Admin, Blocking(topic::system_list)),
        entry(C::CLEAN_UNUSED_TOPIC, Lane::Admin, Blocking(topic::clean_unused)),
        entry(C::QUERY_CONSUME_QUEUE, Lane::Admin, Blocking(topic::query_consume_queue)),
        entry(C::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Lane::Admin, Blocking(group::update)),
        entry(
            C::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            Lane::Admin,
            Blocking(group::update_list),
        ),
        entry(C::DELETE_SUBSCRIPTIONGROUP, Lane::Admin, Blocking(group::delete)),
        entry(C::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Lane::Admin, Blocking(group::get_all)),
        entry(C::GET_SUBSCRIPTIONGROUP_CONFIG, Lane::Admin, Blocking(group::get)),
        entry(C::UPDATE_AND_GET_GROUP_FORBIDDEN, Lane::Admin, Blocking(group::forbidden)),
        entry(C::GET_CONSUME_STATS, Lane::Admin, Blocking(consumer::consume_stats)),
        entry(C::GET_BROKER_CONSUME_STATS, Lane::Admin, Blocking(consumer::broker_consume_stats)),
        entry(C::GET_CONSUMER_CONNECTION_LIST, Lane::Admin, Blocking(consumer::connections)),
        entry(
            C::GET_PRODUCER_CONNECTION_LIST,
            Lane::Admin,
            Blocking(consumer::producer_connections),
        ),
        entry(C::GET_ALL_PRODUCER_INFO, Lane::Admin, Blocking(consumer::all_producers)),
        entry(C::QUERY_TOPIC_CONSUME_BY_WHO, Lane::Admin, Blocking(consumer::groups_of_topic)),
        entry(C::QUERY_TOPICS_BY_CONSUMER, Lane::Admin, Blocking(consumer::topics_of_group)),
        entry(C::QUERY_SUBSCRIPTION_BY_CONSUMER, Lane::Admin, Blocking(consumer::subscription)),
        entry(C::INVOKE_BROKER_TO_RESET_OFFSET, Lane::Admin, Blocking(consumer::reset_offset)),
        entry(C::CLONE_GROUP_OFFSET, Lane::Admin, Blocking(consumer::clone_offsets)),
        entry(C::GET_ALL_CONSUMER_OFFSET, Lane::Admin, Blocking(consumer::all_offsets)),
        entry(C::SET_MESSAGE_REQUEST_MODE, Lane::Admin, Blocking(assign::set_mode)),
        entry(C::GET_ALL_MESSAGE_REQUEST_MODE, Lane::Admin, Blocking(assign::all_modes)),
        entry(C::GET_ALL_DELAY_OFFSET, Lane::Admin, Blocking(info::delay_offsets)),
        entry(C::GET_CONSUMER_RUNNING_INFO, Lane::Admin, Relay(relay::running_info)),
        entry(C::CONSUME_MESSAGE_DIRECTLY, Lane::Admin, Relay(relay::consume_directly)),
        entry(C::GET_BROKER_RUNTIME_INFO, Lane::Admin, Blocking(info::runtime)),
        entry(C::GET_BROKER_CONFIG, Lane::Admin, Blocking(settings::get)),
        entry(C::UPDATE_BROKER_CONFIG, Lane::Admin, Blocking(settings::update)),
        entry(C::VIEW_BROKER_STATS_DATA, Lane::Admin, Blocking(statistics::view)),
        entry(C::QUERY_CONSUME_TIME_SPAN, Lane::Admin, Blocking(statistics::time_span)),
        entry(C::QUERY_CORRECTION_OFFSET, Lane::Admin, Blocking(statistics::correction_offset)),
        entry(C::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Lane::Admin, Relay(relay::consumer_status)),
        entry(C::GET_BROKER_HA_STATUS, Lane::Admin, Blocking(info::ha_status)),
        entry(C::CLEAN_EXPIRED_CONSUMEQUEUE, Lane::Admin, Blocking(info::clean_expired)),
        entry(C::DELETE_EXPIRED_COMMITLOG, Lane::Admin, Blocking(info::delete_expired)),
    ]
};
