//! Tells all name servers what this broker has, and says good-bye at the stop.
//!
//! What always holds: every name server is told on its own (a dead one delays nobody); a change of
//! topics is told soon, many changes at once; the whole table is sent each time, so that a name server
//! that lost its memory has it again within a period.

use crate::broker::Broker;
use crate::config::BrokerConfig;
use apogee_model::record::body_crc;
use apogee_net::client::NoService;
use apogee_net::{Client, Limits};
use apogee_protocol::bodies::{
    JsonBody, KVTable, RegisterBrokerBody, TopicConfigAndMappingSerializeWrapper,
};
use apogee_protocol::headers::{RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Registrations come at least and at most this far apart (ms).
const PERIOD_MS: std::ops::RangeInclusive<u64> = 10_000..=60_000;
/// Changes within this time are told at once.
const MERGE_CHANGES: Duration = Duration::from_millis(20);
/// How long the start waits for name servers; they are told again later anyway.
const FIRST_ROUND: Duration = Duration::from_millis(500);
/// How long the stop waits for name servers.
const LAST_ROUND: Duration = Duration::from_millis(300);

/// What is needed to talk to name servers.
pub(crate) struct Registration {
    client: Client,
    addresses: Vec<String>,
    wake: Notify,
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
            addresses: config.namesrv_addr.clone(),
            wake: Notify::new(),
            reachable: Mutex::default(),
        }
    }

    /// Something changed that name servers should know.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Starts the task that registers again and again.
    pub(crate) fn start(broker: &Arc<Broker>) {
        let task = Arc::clone(broker);
        let (shortest, longest) = (*PERIOD_MS.start(), *PERIOD_MS.end());
        let period = Duration::from_millis(
            broker.config.register_name_server_period.clamp(shortest, longest),
        );
        broker.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(period) => {}
                    () = task.registration.wake.notified() => tokio::time::sleep(MERGE_CHANGES).await,
                    () = task.shutdown.cancelled() => return,
                }
                tokio::select! {
                    () = task.registration.register(&task) => {}
                    () = task.shutdown.cancelled() => return,
                }
            }
        });
    }

    /// Registers before the start is complete, as long as that takes no noticeable time.
    pub(crate) async fn first_round(&self, broker: &Arc<Broker>) {
        let _ = tokio::time::timeout(FIRST_ROUND, self.register(broker)).await;
    }

    /// Registers with every name server at the same time.
    async fn register(&self, broker: &Arc<Broker>) {
        let request = request(broker);
        let timeout = Duration::from_millis(broker.config.register_broker_timeout_mills);
        let mut answers = tokio::task::JoinSet::new();
        for address in self.addresses.clone() {
            let (broker, request) = (Arc::clone(broker), request.clone());
            answers.spawn(async move {
                let answer = broker.registration.client.invoke(&address, request, timeout).await;
                broker.registration.note(
                    &broker,
                    &address,
                    answer.map_err(|error| error.to_string()),
                );
            });
        }
        while answers.join_next().await.is_some() {}
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
        for address in self.addresses.clone() {
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
