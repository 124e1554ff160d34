//! The requests of a name server: decoded, answered from the route table, settings and key-value
//! configuration.
//!
//! Synchronous: the caller brings the time and the connection, and carries out the commands. Locks are
//! taken one at a time, never two together, except the key-value configuration inside a registration's
//! answer, which comes after the table's lock was given back.
//!
//! Always holds: a refusal says what is wrong and what to do; a change of the key-value configuration or
//! the settings is on disk before it is answered; a one-way request gets no answer.

use crate::config::{ConfigError, NamesrvConfig};
use crate::document;
use crate::kv_config::{KvConfig, KvError, ORDER_TOPIC_CONFIG};
use crate::route_table::{Command, Policy, RegisterError, Registration, RouteTable};
use crate::routes::{UnitTopics, filter_by_zone};
use apogee_protocol::bodies::*;
use apogee_protocol::headers::*;
use apogee_protocol::{RemotingCommand, RequestCode, Response, ResponseCode, Str, version};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Fields beside the header with which zones are named.
const ZONE_NAME: &str = "__ZONE_NAME";
const ZONE_MODE: &str = "__ZONE_MODE";

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Number of the connection; later connections have higher ones.
    pub connection: u64,
    /// The other end.
    pub addr: SocketAddr,
}

/// State and rules of a name server.
#[derive(Debug)]
pub struct NamesrvProcessor {
    routes: RwLock<RouteTable>,
    kv: Mutex<KvConfig>,
    config: RwLock<NamesrvConfig>,
    /// Held while a document is changed and saved, so that readers need not wait for the disk.
    saving: Mutex<()>,
    started_ms: i64,
}

/// A refusal on its way to the answer.
struct Refusal(ResponseCode, String);

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Refusal(ResponseCode::SYSTEM_ERROR, error.to_string())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        Refusal(ResponseCode::SYSTEM_ERROR, error.to_string())
    }
}

impl From<RegisterError> for Refusal {
    fn from(error: RegisterError) -> Self {
        Refusal(ResponseCode::SYSTEM_ERROR, error.to_string())
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        let code = match error {
            ConfigError::Refused(_) => ResponseCode::NO_PERMISSION,
            _ => ResponseCode::INVALID_PARAMETER,
        };
        Refusal(code, error.to_string())
    }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal(ResponseCode::SYSTEM_ERROR, error.to_string())
}

type Answer = Result<Response, Refusal>;

fn list(body: &impl JsonBody) -> Answer {
    Ok(Response::success().body(body.to_raw()))
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// Whether the request changes something, may take long, or waits for the disk. All others only read.
pub fn is_change(code: RequestCode) -> bool {
    matches!(
        code,
        RequestCode::PUT_KV_CONFIG
            | RequestCode::DELETE_KV_CONFIG
            | RequestCode::QUERY_DATA_VERSION
            | RequestCode::REGISTER_BROKER
            | RequestCode::UNREGISTER_BROKER
            | RequestCode::BROKER_HEARTBEAT
            | RequestCode::WIPE_WRITE_PERM_OF_BROKER
            | RequestCode::ADD_WRITE_PERM_OF_BROKER
            | RequestCode::DELETE_TOPIC_IN_NAMESRV
            | RequestCode::REGISTER_TOPIC_IN_NAMESRV
            | RequestCode::UPDATE_NAMESRV_CONFIG
    )
}

impl NamesrvProcessor {
    /// A name server that starts at `now_ms`, with the key-value configuration of its file.
    ///
    /// # Errors
    /// When there is a key-value file but neither it nor its backup can be read.
    pub fn new(config: NamesrvConfig, now_ms: i64) -> io::Result<Self> {
        let kv = KvConfig::load(path(&config.kv_config_path))?;
        Ok(NamesrvProcessor {
            routes: RwLock::default(),
            kv: Mutex::new(kv),
            config: RwLock::new(config),
            saving: Mutex::new(()),
            started_ms: now_ms,
        })
    }

    /// The settings as they are now.
    pub fn config(&self) -> NamesrvConfig {
        self.config.read().clone()
    }

    fn policy(&self) -> Policy {
        let config = self.config.read();
        Policy {
            notify_min_broker_id: config.notify_min_broker_id_changed,
            delete_missing_topics: config.delete_topic_with_broker_registration,
        }
    }

    /// Removes brokers that were silent for too long.
    pub fn tick(&self, now_ms: i64, commands: &mut Vec<Command>) {
        let policy = self.policy();
        for address in self.routes.write().expire(now_ms, policy, commands) {
            tracing::warn!(%address, "broker expired: it was silent for longer than it promised");
        }
    }

    /// A connection has ended.
    pub fn connection_closed(&self, connection: u64, commands: &mut Vec<Command>) {
        let policy = self.policy();
        self.routes.write().connection_closed(connection, policy, commands);
    }

    /// Answers a request; `None` when nobody waits for an answer.
    pub fn handle(
        &self,
        request: &RemotingCommand,
        peer: &Peer,
        now_ms: i64,
        commands: &mut Vec<Command>,
    ) -> Option<Response> {
        let answer = self.answer(request, peer, now_ms, commands);
        let response = answer.unwrap_or_else(|Refusal(code, remark)| {
            tracing::debug!(peer = %peer.addr, request = request.code, %remark, "request refused");
            Response::error(code, remark)
        });
        (!request.is_oneway()).then_some(response)
    }

    fn answer(
        &self,
        request: &RemotingCommand,
        peer: &Peer,
        now_ms: i64,
        commands: &mut Vec<Command>,
    ) -> Answer {
        match request.request_code() {
            RequestCode::GET_ROUTEINFO_BY_TOPIC => self.route(request, now_ms),
            RequestCode::REGISTER_BROKER => self.register_broker(request, peer, now_ms, commands),
            RequestCode::UNREGISTER_BROKER => self.unregister_broker(request, peer, commands),
            RequestCode::BROKER_HEARTBEAT => self.heartbeat(request, now_ms),
            RequestCode::QUERY_DATA_VERSION => self.query_data_version(request, now_ms),
            RequestCode::GET_BROKER_MEMBER_GROUP => self.member_group(request),
            RequestCode::GET_BROKER_CLUSTER_INFO => list(&self.routes.read().cluster_info()),
            RequestCode::PUT_KV_CONFIG => self.put_kv(request),
            RequestCode::GET_KV_CONFIG => self.get_kv(request),
            RequestCode::DELETE_KV_CONFIG => self.delete_kv(request),
            RequestCode::GET_KVLIST_BY_NAMESPACE => self.kv_namespace(request),
            RequestCode::WIPE_WRITE_PERM_OF_BROKER => self.wipe_write_permission(request),
            RequestCode::ADD_WRITE_PERM_OF_BROKER => self.add_write_permission(request),
            RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => self.all_topics(),
            RequestCode::REGISTER_TOPIC_IN_NAMESRV => self.register_topic(request),
            RequestCode::DELETE_TOPIC_IN_NAMESRV => self.delete_topic(request),
            RequestCode::GET_TOPICS_BY_CLUSTER => self.topics_of_cluster(request),
            RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS => list(&self.routes.read().system_topics()),
            RequestCode::GET_UNIT_TOPIC_LIST => self.unit_topics(UnitTopics::Unit),
            RequestCode::GET_HAS_UNIT_SUB_TOPIC_LIST => {
                self.unit_topics(UnitTopics::WithUnitSubscription)
            }
            RequestCode::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => {
                self.unit_topics(UnitTopics::WithUnitSubscriptionOnly)
            }
            RequestCode::UPDATE_NAMESRV_CONFIG => self.update_config(request),
            RequestCode::GET_NAMESRV_CONFIG => {
                Ok(Response::success().body(self.config.read().to_text()))
            }
            other => Err(Refusal(
                ResponseCode::REQUEST_CODE_NOT_SUPPORTED,
                format!(" request type {} not supported", other.0),
            )),
        }
    }

    fn route(&self, request: &RemotingCommand, now_ms: i64) -> Answer {
        let header: GetRouteInfoRequestHeader = request.header()?;
        let config = self.config.read();
        let (acting_master, ordered) = (config.support_acting_master, config.order_message_enable);
        let fresh = now_ms.saturating_sub(self.started_ms)
            < config.wait_seconds_for_service.saturating_mul(1000);
        let must_wait = config.need_wait_for_service;
        drop(config);
        if fresh && must_wait {
            return Err(failed("name server not ready"));
        }
        let Some(mut route) = self.routes.read().route(&header.topic, acting_master) else {
            return Err(self.no_route(&header.topic, fresh));
        };
        if ordered {
            route.order_topic_conf =
                self.kv.lock().get(ORDER_TOPIC_CONFIG, &header.topic).map(str::to_owned);
        }
        let zone_mode =
            request.ext.get(ZONE_MODE).is_some_and(|mode| mode.eq_ignore_ascii_case("true"));
        if let Some(zone) =
            request.ext.get(ZONE_NAME).filter(|zone| zone_mode && !zone.trim().is_empty())
        {
            filter_by_zone(&mut route, zone);
        }
        let standard =
            request.version >= version::V4_9_4 || header.accept_standard_json_only == Some(true);
        let dialect = if standard { Dialect::Standard } else { Dialect::Raw };
        Ok(Response::success().body(route.to_json(dialect)))
    }

    /// Why there is no route: nobody is there, or nobody has the topic.
    fn no_route(&self, topic: &str, fresh: bool) -> Refusal {
        let routes = self.routes.read();
        if fresh && !routes.any_complete() {
            // A restarted name server does not know yet; "absent" would make clients drop what they know.
            let text = format!(
                "name server not ready: it has just started and no broker has registered yet (topic {topic})"
            );
            return Refusal(ResponseCode::SYSTEM_ERROR, text);
        }
        let cause = match routes.live.len() {
            0 => "no broker is registered here: check that brokers run and name this name server"
                .to_owned(),
            count => format!(
                "none of the {count} registered brokers has it: create it, or check autoCreateTopicEnable of the brokers"
            ),
        };
        let text = format!("No topic route info in name server for the topic: {topic}; {cause}");
        Refusal(ResponseCode::TOPIC_NOT_EXIST, text)
    }

    fn register_broker(
        &self,
        request: &RemotingCommand,
        peer: &Peer,
        now_ms: i64,
        commands: &mut Vec<Command>,
    ) -> Answer {
        let header: RegisterBrokerRequestHeader = request.header()?;
        let wanted = header.body_crc32.unwrap_or(0);
        if wanted != 0 && wanted != apogee_model::record::body_crc(&request.body) {
            return Err(failed("crc32 not match"));
        }
        let body = if request.body.is_empty() {
            RegisterBrokerBody::default()
        } else {
            // Brokers of 5.5.0 compress the body but say that they do not; a zlib stream begins with 0x78,
            // which no JSON does.
            let compressed = header.compressed || request.body.first() == Some(&0x78);
            RegisterBrokerBody::decode(&request.body, compressed)?
        };
        let registration = Registration {
            cluster: header.cluster_name.to_string(),
            broker_name: header.broker_name.to_string(),
            broker_addr: header.broker_addr.to_string(),
            broker_id: header.broker_id,
            ha_server_addr: header.ha_server_addr.to_string(),
            zone_name: request.ext.get(ZONE_NAME).map(str::to_owned),
            timeout_ms: header.heartbeat_timeout_millis,
            enable_acting_master: header.enable_acting_master,
            topics: body.topic_config_serialize_wrapper,
            filter_servers: body.filter_server_list,
        };
        let policy = self.policy();
        let told = self.routes.write().register(
            registration,
            peer.connection,
            policy,
            now_ms,
            commands,
        )?;
        let mut response = Response::success().header(&RegisterBrokerResponseHeader {
            ha_server_addr: told.ha_server_addr.map(Str::from),
            master_addr: told.master_addr.map(Str::from),
        });
        if self.config.read().return_order_topic_config_to_broker
            && let Some(table) = self.kv.lock().namespace(ORDER_TOPIC_CONFIG)
        {
            response = response.body(table.to_raw());
        }
        Ok(response)
    }

    fn unregister_broker(
        &self,
        request: &RemotingCommand,
        peer: &Peer,
        commands: &mut Vec<Command>,
    ) -> Answer {
        let header: UnRegisterBrokerRequestHeader = request.header()?;
        let (cluster, addr) = (&header.cluster_name, &header.broker_addr);
        let policy = self.policy();
        let gone = self.routes.write().unregister(
            cluster,
            addr,
            header.broker_id,
            peer.connection,
            policy,
            commands,
        );
        tracing::info!(broker = %addr, name = %header.broker_name, gone, "broker unregisters");
        Ok(Response::success())
    }

    fn heartbeat(&self, request: &RemotingCommand, now_ms: i64) -> Answer {
        let header: BrokerHeartbeatRequestHeader = request.header()?;
        self.routes.write().heard(&header.cluster_name, &header.broker_addr, now_ms);
        Ok(Response::success())
    }

    fn query_data_version(&self, request: &RemotingCommand, now_ms: i64) -> Answer {
        let header: QueryDataVersionRequestHeader = request.header()?;
        let asked = DataVersion::from_json(&request.body)?;
        let mut routes = self.routes.write();
        routes.heard(&header.cluster_name, &header.broker_addr, now_ms);
        let known = routes.version_of(&header.cluster_name, &header.broker_addr);
        // Without the whole table "unchanged" would keep the rest away for good.
        let changed = known.is_none_or(|(version, complete)| !complete || *version != asked);
        let response = Response::success().header(&QueryDataVersionResponseHeader { changed });
        Ok(match known {
            Some((version, _)) => response.body(version.to_raw()),
            None => response,
        })
    }

    fn member_group(&self, request: &RemotingCommand) -> Answer {
        let header: GetBrokerMemberGroupRequestHeader = request.header()?;
        let group = self.routes.read().member_group(&header.cluster_name, &header.broker_name);
        list(&GetBrokerMemberGroupResponseBody { broker_member_group: Some(group) })
    }

    /// Changes and saves a copy, then puts it in place.
    fn change_kv(
        &self,
        change: impl FnOnce(&mut KvConfig) -> Result<(), KvError>,
    ) -> Result<(), Refusal> {
        let _saving = self.saving.lock();
        let mut next = self.kv.lock().clone();
        change(&mut next).map_err(failed)?;
        *self.kv.lock() = next;
        Ok(())
    }

    fn put_kv(&self, request: &RemotingCommand) -> Answer {
        let header: PutKVConfigRequestHeader = request.header()?;
        self.change_kv(|kv| kv.put(&header.namespace, &header.key, &header.value))?;
        Ok(Response::success())
    }

    fn get_kv(&self, request: &RemotingCommand) -> Answer {
        let header: GetKVConfigRequestHeader = request.header()?;
        let kv = self.kv.lock();
        let Some(value) = kv.get(&header.namespace, &header.key) else {
            let text =
                format!("No config item, Namespace: {} Key: {}", header.namespace, header.key);
            return Err(Refusal(ResponseCode::QUERY_NOT_FOUND, text));
        };
        Ok(Response::success().header(&GetKVConfigResponseHeader { value: Some(Str::from(value)) }))
    }

    fn delete_kv(&self, request: &RemotingCommand) -> Answer {
        let header: DeleteKVConfigRequestHeader = request.header()?;
        self.change_kv(|kv| kv.delete(&header.namespace, &header.key))?;
        Ok(Response::success())
    }

    fn kv_namespace(&self, request: &RemotingCommand) -> Answer {
        let header: GetKVListByNamespaceRequestHeader = request.header()?;
        let Some(table) = self.kv.lock().namespace(&header.namespace) else {
            let text = format!("No config item, Namespace: {}", header.namespace);
            return Err(Refusal(ResponseCode::QUERY_NOT_FOUND, text));
        };
        list(&table)
    }

    fn wipe_write_permission(&self, request: &RemotingCommand) -> Answer {
        let header: WipeWritePermOfBrokerRequestHeader = request.header()?;
        let count = self.routes.write().wipe_write_permission(&header.broker_name);
        let wipe_topic_count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(Response::success().header(&WipeWritePermOfBrokerResponseHeader { wipe_topic_count }))
    }

    fn add_write_permission(&self, request: &RemotingCommand) -> Answer {
        let header: AddWritePermOfBrokerRequestHeader = request.header()?;
        let count = self.routes.write().add_write_permission(&header.broker_name);
        let add_topic_count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(Response::success().header(&AddWritePermOfBrokerResponseHeader { add_topic_count }))
    }

    fn all_topics(&self) -> Answer {
        if !self.config.read().enable_all_topic_list {
            return Err(failed("disable"));
        }
        list(&self.routes.read().all_topics())
    }

    fn register_topic(&self, request: &RemotingCommand) -> Answer {
        let header: RegisterTopicRequestHeader = request.header()?;
        if !request.body.is_empty() {
            let route = TopicRouteData::from_json(&request.body)?;
            self.routes.write().register_topic(&header.topic, route.queue_datas);
        }
        Ok(Response::success())
    }

    fn delete_topic(&self, request: &RemotingCommand) -> Answer {
        let header: DeleteTopicFromNamesrvRequestHeader = request.header()?;
        let cluster = header.cluster_name.as_deref().filter(|cluster| !cluster.is_empty());
        self.routes.write().delete_topic(&header.topic, cluster);
        Ok(Response::success())
    }

    fn topics_of_cluster(&self, request: &RemotingCommand) -> Answer {
        if !self.config.read().enable_topic_list {
            return Err(failed("disable"));
        }
        let header: GetTopicsByClusterRequestHeader = request.header()?;
        list(&self.routes.read().topics_of_cluster(&header.cluster))
    }

    fn unit_topics(&self, which: UnitTopics) -> Answer {
        if !self.config.read().enable_topic_list {
            return Err(failed("disable"));
        }
        list(&self.routes.read().unit_topics(which))
    }

    fn update_config(&self, request: &RemotingCommand) -> Answer {
        let text =
            std::str::from_utf8(&request.body).map_err(|_| failed("the settings are not UTF-8"))?;
        let _saving = self.saving.lock();
        let next = self.config.read().updated(&read_properties(text))?;
        if !next.config_store_path.is_empty() {
            document::save(Path::new(&next.config_store_path), next.to_text().as_bytes())
                .map_err(|error| failed(format_args!("the settings can't be saved: {error}")))?;
        }
        *self.config.write() = next;
        Ok(Response::success())
    }
}
