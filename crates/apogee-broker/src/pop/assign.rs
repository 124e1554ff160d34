//! Which client gets which queues when the broker decides, and whether it pops or pulls:
//! QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE.
//!
//! The modes are saved as `messageRequestMode.json` before they are answered. What always holds: all members
//! of a group get parts that cover every queue, since each is computed from the same sorted lists. Routes
//! come from the name servers, kept for some seconds; without one the broker's own queues are taken.

use crate::broker::Broker;
use crate::dispatch::Context;
use crate::error::BrokerError;
use crate::processor::send_rules::PERM_READ;
use apogee_model::names::RETRY_PREFIX;
use apogee_net::Connection;
use apogee_protocol::bodies::{
    JsonBody, MessageModel, MessageQueue, MessageQueueAssignment, MessageRequestMode,
    MessageRequestModeSerializeWrapper, QueryAssignmentRequestBody, QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody, TopicRouteData,
};
use apogee_protocol::{RemotingCommand, Response, ResponseCode};
use apogee_store::Document;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

type Handled = Result<Response, Response>;
type Modes = BTreeMap<String, BTreeMap<String, SetMessageRequestModeRequestBody>>;

/// How long a route counts (ms).
const ROUTE_MS: i64 = 10_000;
/// Most routes kept.
const ROUTE_LIMIT: usize = 10_000;

/// Modes of groups in topics, and the routes needed to share queues.
pub(crate) struct RequestModes {
    document: Document,
    modes: Mutex<Modes>,
    routes: Mutex<HashMap<String, (i64, Vec<MessageQueue>)>>,
}

fn is_document(bytes: &[u8]) -> bool {
    MessageRequestModeSerializeWrapper::from_json(bytes).is_ok()
}

impl RequestModes {
    /// Loads `messageRequestMode.json`.
    ///
    /// # Errors
    /// When the document and its backup are both unreadable.
    pub(crate) fn load(config_dir: &Path) -> Result<Self, BrokerError> {
        let document = Document::new(config_dir.join("messageRequestMode.json"), is_document);
        let modes = match document.load()?.into_bytes() {
            Some(bytes) => {
                MessageRequestModeSerializeWrapper::from_json(&bytes)?.message_request_mode_map
            }
            None => Modes::new(),
        };
        Ok(Self { document, modes: Mutex::new(modes), routes: Mutex::default() })
    }

    fn wrapper(&self) -> MessageRequestModeSerializeWrapper {
        MessageRequestModeSerializeWrapper { message_request_mode_map: self.modes.lock().clone() }
    }

    fn save(&self) -> Result<(), BrokerError> {
        Ok(self.document.save(&self.wrapper().to_pretty())?)
    }

    /// Forgets a topic.
    pub(super) fn forget_topic(&self, topic: &str) {
        self.routes.lock().remove(topic);
        let known = self.modes.lock().remove(topic).is_some();
        if known && let Err(error) = self.save() {
            tracing::error!(%error, "messageRequestMode.json cannot be saved");
        }
    }

    fn get(&self, topic: &str, group: &str) -> Option<SetMessageRequestModeRequestBody> {
        self.modes.lock().get(topic)?.get(group).cloned()
    }
}

/// GET_ALL_MESSAGE_REQUEST_MODE.
pub(crate) fn all_modes(context: &Context<'_>) -> Handled {
    Ok(Response::success().body(context.broker.pop.modes.wrapper().to_raw()))
}

/// SET_MESSAGE_REQUEST_MODE.
pub(crate) fn set_mode(context: &Context<'_>) -> Handled {
    let body: SetMessageRequestModeRequestBody = context.body()?;
    let broker = context.broker;
    let topic = body.topic.clone().unwrap_or_default();
    let group = body.consumer_group.clone().unwrap_or_default();
    if topic.starts_with(RETRY_PREFIX) {
        let remark = "retry topic is not allowed to set mode";
        return Err(Response::error(ResponseCode::NO_PERMISSION, remark));
    }
    if broker.topics.get(&topic).is_none() {
        return Err(Response::error(
            ResponseCode::TOPIC_NOT_EXIST,
            format!("topic[{topic}] not exist"),
        ));
    }
    if broker.groups.get_or_create(&group).is_none() {
        let remark = format!("subscription group does not exist: {group}");
        return Err(Response::error(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
    }
    tracing::info!(topic, group, mode = ?body.mode, share = body.pop_share_queue_num, "request mode set");
    let modes = &broker.pop.modes;
    modes.modes.lock().entry(topic).or_default().insert(group.clone(), body);
    modes.save().map_err(|error| Response::error(ResponseCode::SYSTEM_ERROR, error.to_string()))?;
    // Members ask again when they hear of a change.
    broker.group_changed(&group);
    Ok(Response::success())
}

/// QUERY_ASSIGNMENT.
pub(crate) fn query(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    request: RemotingCommand,
) -> Pin<Box<dyn Future<Output = Handled> + Send>> {
    Box::pin(async move {
        let body = QueryAssignmentRequestBody::from_json(&request.body).map_err(|error| {
            Response::error(ResponseCode::SYSTEM_ERROR, format!("request 400: {error}"))
        })?;
        let topic = body.topic.clone().unwrap_or_default();
        let queues = queues_of(&broker, &topic).await;
        let answer = assign(&broker, &body, &topic, queues);
        Ok(Response::success().body(answer.to_raw()))
    })
}

/// An empty answer takes all queues from the client.
fn assign(
    broker: &Broker,
    body: &QueryAssignmentRequestBody,
    topic: &str,
    queues: Vec<MessageQueue>,
) -> QueryAssignmentResponseBody {
    let group = body.consumer_group.clone().unwrap_or_default();
    let mode =
        broker.pop.modes.get(topic, &group).unwrap_or_else(|| SetMessageRequestModeRequestBody {
            mode: if topic.starts_with(RETRY_PREFIX) {
                MessageRequestMode::Pull
            } else {
                broker.config.default_message_request_mode
            },
            pop_share_queue_num: broker.config.default_pop_share_queue_num,
            ..SetMessageRequestModeRequestBody::default()
        });
    let share = (mode.mode == MessageRequestMode::Pop).then_some(mode.pop_share_queue_num);
    let all = body.message_model == Some(MessageModel::Broadcasting)
        || !broker.config.server_load_balancer_enable;
    let mine = if all {
        queues
    } else {
        let members = broker
            .clients
            .consumer_group(&group)
            .map(|group| group.client_ids())
            .unwrap_or_default();
        let client = body.client_id.as_deref().unwrap_or_default();
        let strategy = body.strategy_name.as_deref().unwrap_or("AVG");
        allocate_mode(strategy, client, &queues, &members, share)
    };
    let of = |queue| MessageQueueAssignment {
        attachments: None,
        message_queue: Some(queue),
        mode: mode.mode,
    };
    QueryAssignmentResponseBody { message_queue_assignments: mine.into_iter().map(of).collect() }
}

/// The readable queues of a topic in the whole cluster, sorted.
async fn queues_of(broker: &Arc<Broker>, topic: &str) -> Vec<MessageQueue> {
    let now = crate::clock::now_ms();
    if let Some((at, queues)) = broker.pop.modes.routes.lock().get(topic)
        && (0..ROUTE_MS).contains(&(now - at))
    {
        return queues.clone();
    }
    let route = broker.registration.route(topic).await;
    let mut queues: Vec<MessageQueue> = match &route {
        Some(route) => of_route(topic, route),
        None => {
            let config = broker.topics.get(topic).filter(|config| config.perm & PERM_READ != 0);
            let count = config.map_or(0, |config| config.read_queue_nums);
            (0..count)
                .map(|id| MessageQueue::new(topic, broker.config.broker_name.as_str(), id))
                .collect()
        }
    };
    queues.sort();
    if route.is_some() {
        let mut routes = broker.pop.modes.routes.lock();
        if routes.len() >= ROUTE_LIMIT {
            routes.retain(|_, (at, _)| now - *at < ROUTE_MS);
        }
        if routes.len() < ROUTE_LIMIT {
            routes.insert(topic.to_owned(), (now, queues.clone()));
        }
    }
    queues
}

fn of_route(topic: &str, route: &TopicRouteData) -> Vec<MessageQueue> {
    let readable = route.queue_datas.iter().filter(|data| data.perm & PERM_READ != 0);
    let each = readable.flat_map(|data| {
        (0..data.read_queue_nums.min(crate::topics::MAX_QUEUES))
            .map(|id| MessageQueue::new(topic, data.broker_name.as_str(), id))
    });
    each.collect()
}

/// A member's queues. With `share` (pop), members may take queues of the next members too; -1 stands for
/// every queue of a broker.
fn allocate_mode(
    strategy: &str,
    client: &str,
    queues: &[MessageQueue],
    members: &[String],
    share: Option<i32>,
) -> Vec<MessageQueue> {
    let Some(at) = members.iter().position(|member| member == client) else { return Vec::new() };
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    match share {
        None => allocate(strategy, at, members, queues),
        Some(share) if share <= 0 || i64::from(share) >= count - 1 => {
            let any = |queue: &MessageQueue| {
                MessageQueue::new(queue.topic.as_str(), queue.broker_name.as_str(), -1)
            };
            let mut all: Vec<MessageQueue> = queues.iter().map(any).collect();
            all.dedup();
            all
        }
        Some(_) if members.len() > queues.len() => {
            queues.get(at % queues.len().max(1)).cloned().into_iter().collect()
        }
        Some(share) => {
            let neighbours =
                (0..=usize::try_from(share).unwrap_or(0)).map(|step| (at + step) % members.len());
            let mut mine: Vec<MessageQueue> =
                neighbours.flat_map(|at| allocate(strategy, at, members, queues)).collect();
            mine.sort();
            mine.dedup();
            mine
        }
    }
}

/// The queues of the member at a place of the sorted members; an unknown strategy gives none.
fn allocate(
    strategy: &str,
    at: usize,
    members: &[String],
    queues: &[MessageQueue],
) -> Vec<MessageQueue> {
    let (total, count) = (queues.len(), members.len().max(1));
    match strategy {
        "AVG" | "" => {
            let (whole, more) = (total / count, total % count);
            let size = if total <= count { 1 } else { whole + usize::from(at < more) };
            let start = if more > 0 && at < more { at * size } else { at * size + more };
            queues.iter().skip(start).take(size).cloned().collect()
        }
        "AVG_BY_CIRCLE" => queues.iter().skip(at).step_by(count).cloned().collect(),
        other => {
            tracing::warn!(
                strategy = other,
                "no queues are assigned: the broker knows AVG and AVG_BY_CIRCLE"
            );
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: i32) -> Vec<MessageQueue> {
        (0..count).map(|id| MessageQueue::new("t", "b", id)).collect()
    }

    fn members(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("c{at}")).collect()
    }

    #[test]
    fn each_queue_has_exactly_one_owner_when_pulled() {
        for strategy in ["AVG", "AVG_BY_CIRCLE"] {
            for (count, of) in [(8, 3), (8, 8), (3, 5), (1, 1), (7, 2)] {
                let (queues, members) = (queues(count), members(of));
                let each = (0..of).map(|at| allocate(strategy, at, &members, &queues));
                let mut all: Vec<MessageQueue> = each.flatten().collect();
                all.sort();
                assert_eq!(all, queues, "{strategy} {count} queues {of} members");
            }
        }
    }

    #[test]
    fn average_parts_are_those_of_the_original() {
        let ids = |at| -> Vec<i32> {
            allocate("AVG", at, &members(3), &queues(8)).iter().map(|q| q.queue_id).collect()
        };
        assert_eq!((ids(0), ids(1), ids(2)), (vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]));
    }

    #[test]
    fn pop_shares_every_queue_or_those_of_the_next_members() {
        let ids = |share, of, count| -> Vec<i32> {
            let mine = allocate_mode("AVG", "c0", &queues(count), &members(of), Some(share));
            mine.iter().map(|q| q.queue_id).collect()
        };
        assert_eq!(ids(-1, 3, 8), [-1]);
        assert_eq!(ids(8, 3, 8), [-1]);
        assert_eq!(ids(1, 4, 8), [0, 1, 2, 3]);
        assert_eq!(ids(1, 4, 2), [0]);
        assert!(allocate_mode("AVG", "stranger", &queues(2), &members(2), None).is_empty());
        assert!(allocate_mode("AVG", "c0", &[], &members(5), Some(1)).is_empty());
    }
}
