//! What the tests share: requests, answers and a name server with a hand-set clock.

use apogee_namesrv::{Command, NamesrvConfig, NamesrvProcessor, Peer};
use apogee_protocol::bodies::*;
use apogee_protocol::headers::*;
use apogee_protocol::{Header, RemotingCommand, ReplyTo, RequestCode, Str};

/// A processor, its clock and the commands it gave.
pub(crate) struct World {
    pub(crate) processor: NamesrvProcessor,
    pub(crate) now_ms: i64,
    pub(crate) commands: Vec<Command>,
}

pub(crate) fn config(pairs: &[(&str, &str)]) -> NamesrvConfig {
    NamesrvConfig::from_pairs(pairs.iter().copied()).unwrap().0
}

impl World {
    pub(crate) fn new(pairs: &[(&str, &str)]) -> World {
        let processor = NamesrvProcessor::new(config(pairs), 0).unwrap();
        World { processor, now_ms: 0, commands: Vec::new() }
    }

    /// Sends a request over a connection and gives the answer as a client decodes it.
    pub(crate) fn send(
        &mut self,
        connection: u64,
        request: RemotingCommand,
    ) -> Option<RemotingCommand> {
        let peer = Peer { connection, addr: ([127, 0, 0, 1], 1).into() };
        let response = self.processor.handle(&request, &peer, self.now_ms, &mut self.commands)?;
        Some(response.into_command(ReplyTo::from(&request)))
    }

    pub(crate) fn ask(&mut self, code: RequestCode, header: &impl Header) -> RemotingCommand {
        self.send(99, RemotingCommand::request(code, header)).unwrap()
    }

    pub(crate) fn route(&mut self, topic: &str) -> RemotingCommand {
        let header = GetRouteInfoRequestHeader { topic: topic.into(), ..Default::default() };
        self.ask(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header)
    }

    pub(crate) fn route_data(&mut self, topic: &str) -> TopicRouteData {
        let answer = self.route(topic);
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        TopicRouteData::from_json(&answer.body).unwrap()
    }

    pub(crate) fn closed(&mut self, connection: u64) {
        self.processor.connection_closed(connection, &mut self.commands);
    }

    pub(crate) fn tick(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.processor.tick(now_ms, &mut self.commands);
    }

    pub(crate) fn register(&mut self, connection: u64, broker: &Broker) -> RemotingCommand {
        self.send(connection, broker.registration()).unwrap()
    }
}

/// A broker as it registers.
#[derive(Clone)]
pub(crate) struct Broker {
    pub(crate) cluster: &'static str,
    pub(crate) name: &'static str,
    pub(crate) id: i64,
    pub(crate) addr: &'static str,
    pub(crate) topics: Vec<&'static str>,
    pub(crate) counter: i64,
    pub(crate) state: i64,
    pub(crate) acting: Option<bool>,
    pub(crate) zone: Option<&'static str>,
    pub(crate) timeout_ms: Option<i64>,
}

impl Broker {
    pub(crate) fn new(
        name: &'static str,
        id: i64,
        addr: &'static str,
        topics: &[&'static str],
    ) -> Broker {
        Broker {
            cluster: "C",
            name,
            id,
            addr,
            topics: topics.to_vec(),
            counter: 1,
            state: 0,
            acting: Some(false),
            zone: None,
            timeout_ms: None,
        }
    }

    pub(crate) fn version(&self) -> DataVersion {
        DataVersion { counter: self.counter, state_version: self.state, timestamp: 5 }
    }

    pub(crate) fn registration(&self) -> RemotingCommand {
        let mut body = RegisterBrokerBody::default();
        body.topic_config_serialize_wrapper.data_version = self.version();
        for topic in &self.topics {
            let config = TopicConfig {
                topic_name: (*topic).to_owned(),
                read_queue_nums: 4,
                write_queue_nums: 4,
                ..TopicConfig::default()
            };
            body.topic_config_serialize_wrapper
                .topic_config_table
                .insert((*topic).to_owned(), config);
        }
        let header = RegisterBrokerRequestHeader {
            broker_name: self.name.into(),
            broker_addr: self.addr.into(),
            cluster_name: self.cluster.into(),
            ha_server_addr: Str::from(format!("ha-{}", self.addr)),
            broker_id: self.id,
            enable_acting_master: self.acting,
            heartbeat_timeout_millis: self.timeout_ms,
            ..Default::default()
        };
        let mut request = RemotingCommand::request(RequestCode::REGISTER_BROKER, &header)
            .body(body.encode(false));
        if let Some(zone) = self.zone {
            request.ext.set("__ZONE_NAME", zone);
        }
        request
    }

    pub(crate) fn unregistration(&self) -> RemotingCommand {
        let header = UnRegisterBrokerRequestHeader {
            broker_name: self.name.into(),
            broker_addr: self.addr.into(),
            cluster_name: self.cluster.into(),
            broker_id: self.id,
        };
        RemotingCommand::request(RequestCode::UNREGISTER_BROKER, &header)
    }

    pub(crate) fn query_version(&self) -> RemotingCommand {
        let header = QueryDataVersionRequestHeader {
            broker_name: self.name.into(),
            broker_addr: self.addr.into(),
            cluster_name: self.cluster.into(),
            broker_id: self.id,
        };
        RemotingCommand::request(RequestCode::QUERY_DATA_VERSION, &header)
            .body(self.version().to_raw())
    }
}
