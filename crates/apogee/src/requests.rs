//! The remoting requests that the commands send: routes, topics, sends, pulls, offsets.
//!
//! What always holds: a failure names its cause, each cause with words of its own: a name that does not
//! resolve, a name server that is not there, a topic that does not exist, a topic without a living
//! broker, a broker that is not there, a refusal. No retries, no caches; every wait has a limit.

use apogee_net::client::NoService;
use apogee_net::{Client, ClientError, Limits};
use apogee_protocol::bodies::{ClusterInfo, JsonBody, TopicRouteData};
use apogee_protocol::headers::{
    CreateTopicRequestHeader, GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader,
    GetRouteInfoRequestHeader, Header, NoHeader, SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Topic whose settings a topic takes that a send creates.
pub(crate) const AUTO_CREATE_TOPIC: &str = apogee_model::names::AUTO_CREATE_TOPIC;

/// Queues of a topic that a send creates.
pub(crate) const NEW_TOPIC_QUEUES: i32 = 4;

/// The name servers to ask: those given, else `NAMESRV_ADDR`, else the one on this machine.
pub(crate) fn name_servers(given: Option<&str>) -> String {
    given
        .map(str::to_owned)
        .or_else(|| std::env::var("NAMESRV_ADDR").ok())
        .unwrap_or_else(|| "127.0.0.1:9876".to_owned())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Why a command could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the address {address:?} cannot be resolved: {source}")]
    NotResolved { address: String, source: std::io::Error },
    #[error("no name server can be reached: {0}")]
    NameServersUnreachable(String),
    #[error(
        "topic {topic} does not exist: name server {name_server} knows no broker that has it{hint}"
    )]
    TopicAbsent { topic: String, name_server: String, hint: &'static str },
    #[error(
        "topic {topic} has no living broker that is a master: its brokers have expired or wait for one"
    )]
    NoBroker { topic: String },
    #[error("no queue of topic {topic} can be {what}: its permissions forbid it")]
    NoQueue { topic: String, what: &'static str },
    #[error("name server {0} knows no broker at all: none has registered, or all have expired")]
    NoBrokersAtAll(String),
    #[error("broker {name} ({address}) cannot be reached: {source}")]
    BrokerUnreachable { name: String, address: String, source: ClientError },
    #[error("{who} answered {} ({code}): {remark}", ResponseCode(*.code).name().unwrap_or("an unknown code"))]
    Refused { who: String, code: i32, remark: String },
    #[error("{who} sent an answer that cannot be read: {why}")]
    Unreadable { who: String, why: String },
}

/// One queue of a topic and the master that serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) broker: Arc<str>,
    pub(crate) address: Arc<str>,
    pub(crate) id: i32,
}

/// What a queue is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Send,
    Read,
}

/// Sends requests; its connections end when it is dropped.
pub(crate) struct Requests {
    client: Client,
    name_servers: Vec<String>,
    shutdown: CancellationToken,
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Requests {
    /// `name_servers` is a list `host:port;host:port`.
    pub(crate) fn new(name_servers: &str) -> Self {
        let shutdown = CancellationToken::new();
        let client = Client::new(
            Limits::default(),
            Arc::new(NoService),
            shutdown.clone(),
            TaskTracker::new(),
        );
        let name_servers =
            name_servers.split([';', ',']).map(str::trim).filter(|one| !one.is_empty());
        Self { client, name_servers: name_servers.map(str::to_owned).collect(), shutdown }
    }

    /// Asks the first name server that answers.
    async fn ask_name_server(
        &self,
        request: RemotingCommand,
    ) -> Result<(String, RemotingCommand), RequestError> {
        let mut failures = Vec::new();
        for address in &self.name_servers {
            if let Err(source) = apogee_net::client::resolve(address).await {
                failures.push(
                    RequestError::NotResolved { address: address.clone(), source }.to_string(),
                );
                continue;
            }
            match self.client.invoke(address, request.clone(), PATIENCE).await {
                Ok(answer) => return Ok((address.clone(), answer)),
                Err(error) => failures.push(error.to_string()),
            }
        }
        if failures.is_empty() {
            failures.push("none is given".to_owned());
        }
        Err(RequestError::NameServersUnreachable(failures.join("; ")))
    }

    /// The route of a topic; `None` when the name server knows none.
    pub(crate) async fn find_route(
        &self,
        topic: &str,
    ) -> Result<Option<TopicRouteData>, RequestError> {
        let header = GetRouteInfoRequestHeader {
            topic: topic.into(),
            accept_standard_json_only: Some(true),
            ..Default::default()
        };
        let request = RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header);
        let (name_server, answer) = self.ask_name_server(request).await?;
        if answer.response_code() == ResponseCode::TOPIC_NOT_EXIST {
            return Ok(None);
        }
        let who = format!("name server {name_server}");
        body(&who, &success(&who, answer)?).map(Some)
    }

    /// The route of a topic that must exist. For sends, a topic that a send would create has the route
    /// of the topic it is made from, with the number of queues it will have.
    async fn route(&self, topic: &str, wanted: Use) -> Result<TopicRouteData, RequestError> {
        if let Some(route) = self.find_route(topic).await? {
            return Ok(route);
        }
        let mut hint = "";
        if wanted == Use::Send {
            if let Some(mut route) = self.find_route(AUTO_CREATE_TOPIC).await? {
                for data in &mut route.queue_datas {
                    data.write_queue_nums = data.write_queue_nums.min(NEW_TOPIC_QUEUES);
                }
                return Ok(route);
            }
            hint = ", and no broker creates topics by sending (autoCreateTopicEnable)";
        }
        let name_server = self.name_servers.join(";");
        Err(RequestError::TopicAbsent { topic: topic.to_owned(), name_server, hint })
    }

    /// All queues of a topic that can be used so, brokers in turn.
    pub(crate) async fn queues(
        &self,
        topic: &str,
        wanted: Use,
    ) -> Result<Vec<Queue>, RequestError> {
        queues_of(&self.route(topic, wanted).await?, topic, wanted)
    }

    /// Every master that the name server knows: name and address.
    pub(crate) async fn masters(&self) -> Result<Vec<(String, String)>, RequestError> {
        let request = RemotingCommand::request(RequestCode::GET_BROKER_CLUSTER_INFO, &NoHeader);
        let (name_server, answer) = self.ask_name_server(request).await?;
        let who = format!("name server {name_server}");
        let info: ClusterInfo = body(&who, &success(&who, answer)?)?;
        let masters: Vec<_> = info
            .broker_addr_table
            .into_iter()
            .filter_map(|(name, data)| Some((name, data.broker_addrs.get(&0)?.clone())))
            .collect();
        if masters.is_empty() {
            return Err(RequestError::NoBrokersAtAll(name_server));
        }
        Ok(masters)
    }

    /// Creates a topic on every master, or changes its number of queues.
    pub(crate) async fn create_topic(&self, topic: &str, queues: i32) -> Result<(), RequestError> {
        for (name, address) in self.masters().await? {
            let header = CreateTopicRequestHeader {
                topic: topic.into(),
                default_topic: AUTO_CREATE_TOPIC.into(),
                read_queue_nums: queues,
                write_queue_nums: queues,
                perm: 6,
                topic_filter_type: "SINGLE_TAG".into(),
                topic_sys_flag: Some(0),
                ..Default::default()
            };
            let request = RemotingCommand::request(RequestCode::UPDATE_AND_CREATE_TOPIC, &header);
            self.ask(&name, &address, request, PATIENCE).await?;
        }
        Ok(())
    }

    /// Asks a broker; any answer but SUCCESS is an error.
    pub(crate) async fn ask(
        &self,
        name: &str,
        address: &str,
        request: RemotingCommand,
        patience: Duration,
    ) -> Result<RemotingCommand, RequestError> {
        let answer = self.ask_any(name, address, request, patience).await?;
        success(&format!("broker {name} ({address})"), answer)
    }

    /// Asks a broker and returns whatever it answers.
    pub(crate) async fn ask_any(
        &self,
        name: &str,
        address: &str,
        request: RemotingCommand,
        patience: Duration,
    ) -> Result<RemotingCommand, RequestError> {
        self.client.invoke(address, request, patience).await.map_err(|source| {
            RequestError::BrokerUnreachable {
                name: name.to_owned(),
                address: address.to_owned(),
                source,
            }
        })
    }

    /// The offset after the last message of a queue.
    pub(crate) async fn max_offset(&self, topic: &str, queue: &Queue) -> Result<i64, RequestError> {
        let header = GetMaxOffsetRequestHeader {
            topic: topic.into(),
            queue_id: queue.id,
            committed: true,
            ..Default::default()
        };
        let request = RemotingCommand::request(RequestCode::GET_MAX_OFFSET, &header);
        let header: GetMaxOffsetResponseHeader = self.ask_queue(queue, request).await?;
        Ok(header.offset)
    }

    /// The offset of the first message of a queue that was stored at `timestamp_ms` or later.
    pub(crate) async fn search_offset(
        &self,
        topic: &str,
        queue: &Queue,
        timestamp_ms: i64,
    ) -> Result<i64, RequestError> {
        let header = SearchOffsetRequestHeader {
            topic: topic.into(),
            queue_id: queue.id,
            timestamp: timestamp_ms,
            ..Default::default()
        };
        let request = RemotingCommand::request(RequestCode::SEARCH_OFFSET_BY_TIMESTAMP, &header);
        let header: SearchOffsetResponseHeader = self.ask_queue(queue, request).await?;
        Ok(header.offset)
    }

    async fn ask_queue<H: Header>(
        &self,
        queue: &Queue,
        request: RemotingCommand,
    ) -> Result<H, RequestError> {
        let answer = self.ask(&queue.broker, &queue.address, request, PATIENCE).await?;
        answer.header().map_err(|error| RequestError::Unreadable {
            who: format!("broker {} ({})", queue.broker, queue.address),
            why: error.to_string(),
        })
    }
}

/// The usable queues of a route: queue 0 of every broker, then queue 1, so that brokers take turns.
fn queues_of(route: &TopicRouteData, topic: &str, wanted: Use) -> Result<Vec<Queue>, RequestError> {
    let mut queues = Vec::new();
    let mut forbidden = false;
    for data in &route.queue_datas {
        let (bit, count) = match wanted {
            Use::Send => (2, data.write_queue_nums),
            Use::Read => (4, data.read_queue_nums),
        };
        let broker =
            route.broker_datas.iter().find(|broker| broker.broker_name == data.broker_name);
        let Some(address) = broker.and_then(|broker| broker.broker_addrs.get(&0)) else { continue };
        if data.perm & bit == 0 {
            forbidden = true;
            continue;
        }
        let (broker, address): (Arc<str>, Arc<str>) =
            (data.broker_name.as_str().into(), address.as_str().into());
        queues.extend((0..count).map(|id| Queue {
            broker: Arc::clone(&broker),
            address: Arc::clone(&address),
            id,
        }));
    }
    queues.sort_by_key(|queue| queue.id);
    let topic = topic.to_owned();
    match (queues.is_empty(), forbidden, wanted) {
        (false, _, _) => Ok(queues),
        (true, false, _) => Err(RequestError::NoBroker { topic }),
        (true, true, Use::Send) => Err(RequestError::NoQueue { topic, what: "written" }),
        (true, true, Use::Read) => Err(RequestError::NoQueue { topic, what: "read" }),
    }
}

/// The answer if it is SUCCESS, else the refusal that it is.
pub(crate) fn success(who: &str, answer: RemotingCommand) -> Result<RemotingCommand, RequestError> {
    if answer.response_code() == ResponseCode::SUCCESS {
        return Ok(answer);
    }
    Err(RequestError::Refused {
        who: who.to_owned(),
        code: answer.code,
        remark: answer.remark.as_deref().unwrap_or("no reason given").to_owned(),
    })
}

fn body<B: JsonBody>(who: &str, answer: &RemotingCommand) -> Result<B, RequestError> {
    B::from_json(&answer.body)
        .map_err(|error| RequestError::Unreadable { who: who.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apogee_protocol::bodies::{BrokerData, QueueData};

    fn route(perm: i32, broker_id: i64) -> TopicRouteData {
        let data = |name: &str| QueueData {
            broker_name: name.to_owned(),
            perm,
            read_queue_nums: 2,
            write_queue_nums: 1,
            topic_sys_flag: 0,
        };
        let broker = |name: &str| BrokerData {
            broker_name: name.to_owned(),
            broker_addrs: [(broker_id, format!("{name}:1"))].into(),
            ..Default::default()
        };
        TopicRouteData {
            broker_datas: vec![broker("a"), broker("b")],
            queue_datas: vec![data("a"), data("b")],
            ..Default::default()
        }
    }

    #[test]
    fn queues_of_all_masters_take_turns() {
        let read = queues_of(&route(6, 0), "T", Use::Read).unwrap();
        let names: Vec<_> = read.iter().map(|queue| (&*queue.broker, queue.id)).collect();
        assert_eq!(names, [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
        assert_eq!(queues_of(&route(6, 0), "T", Use::Send).unwrap().len(), 2);
    }

    #[test]
    fn every_cause_of_no_queue_has_words_of_its_own() {
        let texts = [
            queues_of(&route(4, 0), "T", Use::Send).unwrap_err().to_string(),
            queues_of(&route(2, 0), "T", Use::Read).unwrap_err().to_string(),
            queues_of(&route(6, 1), "T", Use::Read).unwrap_err().to_string(),
        ];
        assert!(texts[0].contains("written"), "{texts:?}");
        assert!(texts[1].contains("read"), "{texts:?}");
        assert!(texts[2].contains("no living broker"), "{texts:?}");
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_and_a_server_that_is_away_differ() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = gone.local_addr().unwrap().to_string();
        drop(gone);
        let away = Requests::new(&address).find_route("T").await.unwrap_err().to_string();
        assert!(away.contains("cannot connect"), "{away}");
        let unnamed = Requests::new("no-such-host.invalid:1").find_route("T").await.unwrap_err();
        assert!(unnamed.to_string().contains("cannot be resolved"), "{unnamed}");
    }
}
