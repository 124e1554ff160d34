//! Tells all name servers what this broker has, and says good-bye at the stop.
//!
//! What always holds: every name server is told by a task of its own (one that does not answer delays
//! nobody); a change of topics is told soon, many changes at once; the whole table is sent each time, and
//! at once when a connection has ended, so that a name server that was started again has it soon.

use crate::broker::Broker;
use crate::config::BrokerConfig;
use apogee_model::record::body_crc;
use apogee_net::client::NoService;
use apogee_net::{Client, Connection, Limits};
use apogee_protocol::bodies::{
    JsonBody, KVTable, RegisterBrokerBody, TopicConfigAndMappingSerializeWrapper, TopicRouteData,
};
use apogee_protocol::headers::{
    GetRouteInfoRequestHeader, RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Registrations come at least and at most this far apart (ms).
const PERIOD_MS: std::ops::RangeInclusive<u64> = 10_000..=60_000;
/// Changes within this time are told at once.
const MERGE_CHANGES: Duration = Duration::from_millis(20);
/// How long the start waits for name servers; they are told again later anyway.
const FIRST_ROUND: Duration = Duration::from_millis(500);
/// How long a name server may take to tell a route.
const ROUTE_PATIENCE: Duration = Duration::from_millis(3_000);
/// How long the stop waits for name servers.
const LAST_ROUND: Duration = Duration::from_millis(300);

/// How often a task looks whether its connection has ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One name server.
struct NameServer {
    address: String,
    wake: Notify,
}

/// What is needed to talk to name servers.
pub(crate) struct Registration {
    client: Client,
    servers: Vec<NameServer>,
    /// Which name servers answered last time, to log changes only.
    reachable: Mutex<HashMap<String, bool>>,
}

impl Registration {
    pub(crate) fn new(
        config: &BrokerConfig,
        shutdown: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            client: Client::new(Limits::default(), Arc::new(NoService), shutdown, tasks),
            servers: config
                .namesrv_addr
                .iter()
                .map(|address| NameServer { address: address.clone(), wake: Notify::new() })
                .collect(),
            reachable: Mutex::default(),
        }
    }

    /// Something changed that name servers should know.
    pub(crate) fn wake(&self) {
        self.servers.iter().for_each(|server| server.wake.notify_one());
    }

    /// Starts the tasks that register again and again.
    pub(crate) fn start(broker: &Arc<Broker>) {
        let (shortest, longest) = (*PERIOD_MS.start(), *PERIOD_MS.end());
        let period = Duration::from_millis(
            broker.config.register_name_server_period.clamp(shortest, longest),
        );
        for index in 0..broker.registration.servers.len() {
            let task = Arc::clone(broker);
            broker.tasks.spawn(async move {
                tokio::select! {
                    () = keep_registered(&task, index, period) => {}
                    () = task.shutdown.cancelled() => {}
                }
            });
        }
    }

    /// Registers before the start is complete, as long as that takes no noticeable time.
    pub(crate) async fn first_round(&self, broker: &Arc<Broker>) {
        let mut answers = tokio::task::JoinSet::new();
        for index in 0..self.servers.len() {
            let broker = Arc::clone(broker);
            answers.spawn(async move { broker.registration.register(&broker, index).await });
        }
        let all = async { while answers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FIRST_ROUND, all).await;
    }

    /// Registers with one name server; gives the connection if there is one.
    async fn register(&self, broker: &Broker, index: usize) -> Option<Arc<Connection>> {
        let address = self.servers.get(index)?.address.as_str();
        let timeout = Duration::from_millis(broker.live.register_broker_timeout_mills());
        let connection = match self.client.connect(address).await {
            Ok(connection) => connection,
            Err(error) => {
                self.note(broker, address, Err(error.to_string()));
                return None;
            }
        };
        let answer = connection.invoke(request(broker), timeout).await;
        self.note(broker, address, answer.map_err(|error| error.to_string()));
        Some(connection)
    }

    /// Logs what is new, and takes over which topics are ordered.
    fn note(&self, broker: &Broker, address: &str, answer: Result<RemotingCommand, String>) {
        let answer = answer.and_then(|response| {
            if response.response_code() == ResponseCode::SUCCESS {
                return Ok(response);
            }
            Err(response.remark.as_deref().unwrap_or("no reason given").to_owned())
        });
        let before = self.reachable.lock().insert(address.to_owned(), answer.is_ok());
        match answer {
            Ok(response) => {
                if before != Some(true) {
                    tracing::info!(namesrv = address, broker = %broker.config.address(), "registered");
                }
                take_order(broker, &response.body);
            }
            Err(error) if before != Some(false) => {
                tracing::warn!(namesrv = address, %error, "cannot register; it is tried again");
            }
            Err(_) => {}
        }
    }

    /// The route of a topic, from the first name server that answers.
    pub(crate) async fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let header = GetRouteInfoRequestHeader {
            topic: Str::from(topic.to_owned()),
            ..GetRouteInfoRequestHeader::default()
        };
        for address in self.servers.iter().map(|server| server.address.as_str()) {
            let request = RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header);
            let answer = self.client.invoke(address, request, ROUTE_PATIENCE).await;
            if let Ok(answer) = answer.as_ref().map_err(|_| ()) {
                let found = answer.response_code() == ResponseCode::SUCCESS;
                return found.then(|| TopicRouteData::from_json(&answer.body).ok()).flatten();
            }
        }
        None
    }

    /// Says good-bye to every name server.
    pub(crate) async fn unregister(&self, broker: &Arc<Broker>) {
        let config = &broker.config;
        let header = UnRegisterBrokerRequestHeader {
            broker_name: Str::from(config.broker_name.clone()),
            broker_addr: Str::from(config.address()),
            cluster_name: Str::from(config.broker_cluster_name.clone()),
            broker_id: config.broker_id,
        };
        let mut farewells = tokio::task::JoinSet::new();
        for server in &self.servers {
            let address = server.address.clone();
            let command = RemotingCommand::request(RequestCode::UNREGISTER_BROKER, &header);
            let broker = Arc::clone(broker);
            farewells.spawn(async move {
                let _ = broker.registration.client.invoke(&address, command, LAST_ROUND).await;
            });
        }
        let all = async { while farewells.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ROUND, all).await;
    }
}

/// Registers with one name server for ever: every period, after changes, and as soon as the connection
/// has ended.
async fn keep_registered(broker: &Arc<Broker>, index: usize, period: Duration) {
    let registration = &broker.registration;
    let Some(server) = registration.servers.get(index) else { return };
    // What the first round did not reach is tried again at the first look.
    let mut connection: Option<Arc<Connection>> = None;
    let mut last = Instant::now();
    loop {
        tokio::select! {
            () = server.wake.notified() => tokio::time::sleep(MERGE_CHANGES).await,
            () = tokio::time::sleep(LOOK_EVERY) => {
                let lost = connection.as_ref().is_none_or(|known| known.is_closed());
                if !lost && last.elapsed() < period {
                    continue;
                }
            }
        }
        connection = registration.register(broker, index).await;
        last = Instant::now();
    }
}

fn request(broker: &Broker) -> RemotingCommand {
    let config = &broker.config;
    let mut topics = broker.topics.all();
    if broker.permission() & 6 != 6 {
        // A broker that may not be written (or read) shows that in every topic.
        for topic in topics.values_mut() {
            topic.perm &= broker.permission();
        }
    }
    let body = RegisterBrokerBody {
        topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper {
            data_version: broker.topics.version(),
            mapping_data_version: Some(broker.topics.version()),
            topic_config_table: topics,
            ..TopicConfigAndMappingSerializeWrapper::default()
        },
        ..RegisterBrokerBody::default()
    };
    let body = Bytes::from(body.to_raw());
    let ha = std::net::SocketAddr::new(config.broker_ip1, config.listen_port.wrapping_add(1));
    let header = RegisterBrokerRequestHeader {
        broker_name: Str::from(config.broker_name.clone()),
        broker_addr: Str::from(config.address()),
        cluster_name: Str::from(config.broker_cluster_name.clone()),
        ha_server_addr: Str::from(ha.to_string()),
        broker_id: config.broker_id,
        enable_acting_master: Some(false),
        compressed: false,
        body_crc32: Some(body_crc(&body)),
        ..RegisterBrokerRequestHeader::default()
    };
    RemotingCommand::request(RequestCode::REGISTER_BROKER, &header).body(body)
}

/// A name server answers which topics are consumed in order.
fn take_order(broker: &Broker, body: &Bytes) {
    let Ok(table) = KVTable::from_json(body) else { return };
    for topic in table.table.keys() {
        if let Some(config) = broker.topics.get(topic).filter(|config| !config.order) {
            let mut changed = config.as_ref().clone();
            changed.order = true;
            broker.topics.update(changed);
        }
    }
}
