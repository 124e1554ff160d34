//! Starts a broker and speaks the remoting protocol with it, as an old client would.

use apogee_broker::{Broker, BrokerConfig, Listen};
use apogee_model::RecordView;
use apogee_model::record::{LogEntry, parse_entry};
use apogee_net::{Client, Connection, Limits, OutBuffer, Service};
use apogee_protocol::bodies::{
    ConsumerData, HeartbeatData, JsonBody, MessageModel, ProducerData, SubscriptionData,
};
use apogee_protocol::headers::{
    PullMessageRequestHeader, PullMessageResponseHeader, SendMessageHeader,
    SendMessageResponseHeader,
};
use apogee_protocol::{Header, RemotingCommand, RequestCode, ResponseCode, Str};
use apogee_store::StoreConfig;
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A broker with everything that belongs to it.
pub struct Fixture {
    pub broker: Arc<Broker>,
    pub folder: Option<tempfile::TempDir>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

/// Small files, so that a test's store costs nothing.
pub fn store_config(root: &Path) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: 1 << 20,
        mapped_file_size_consume_queue: 20 * 1000,
        max_hash_slot_num: 1000,
        max_index_num: 4000,
        ..StoreConfig::new(root)
    }
}

impl Fixture {
    pub async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut BrokerConfig, &mut StoreConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut fixture = Self::open(folder.path(), change).await;
        fixture.folder = Some(folder);
        fixture
    }

    pub async fn open(
        root: &Path,
        change: impl FnOnce(&mut BrokerConfig, &mut StoreConfig),
    ) -> Self {
        let mut config = BrokerConfig::default();
        let mut store = store_config(root);
        change(&mut config, &mut store);
        let listen =
            Listen { host: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0, limits: Limits::default() };
        let broker = Broker::start(config, store, listen).await.unwrap();
        Self { broker, folder: None, shutdown: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    pub async fn connect(&self) -> Peer {
        self.connect_to(self.broker.address().port()).await
    }

    pub async fn connect_to(&self, port: u16) -> Peer {
        let (sender, requests) = mpsc::unbounded_channel();
        let client = Client::new(
            Limits::default(),
            Arc::new(Inbox(sender)),
            self.shutdown.clone(),
            self.tasks.clone(),
        );
        let connection = client.open(&format!("127.0.0.1:{port}")).await.unwrap();
        Peer { connection, requests }
    }

    /// Stops the broker and gives the folder for a restart.
    pub async fn stop(mut self) -> Option<tempfile::TempDir> {
        self.broker.shutdown().await;
        self.shutdown.cancel();
        self.folder.take()
    }
}

struct Inbox(mpsc::UnboundedSender<RemotingCommand>);

impl Service for Inbox {
    fn serve(&self, _: &Arc<Connection>, requests: &mut Vec<RemotingCommand>, _: &mut OutBuffer) {
        for request in requests.drain(..) {
            let _ = self.0.send(request);
        }
    }
}

/// One client connection.
pub struct Peer {
    pub connection: Arc<Connection>,
    pub requests: mpsc::UnboundedReceiver<RemotingCommand>,
}

/// What a pull brought.
#[derive(Debug)]
pub struct Pulled {
    pub code: ResponseCode,
    pub header: PullMessageResponseHeader,
    pub body: Bytes,
}

impl Pulled {
    pub fn bodies(&self) -> Vec<String> {
        self.each(|record| String::from_utf8_lossy(record.body()).into_owned())
    }

    pub fn each<T>(&self, f: impl Fn(RecordView<'_>) -> T) -> Vec<T> {
        let mut rest = &self.body[..];
        let mut out = Vec::new();
        while !rest.is_empty() {
            let LogEntry::Record(record) = parse_entry(rest).unwrap() else { panic!("no record") };
            rest = &rest[record.total_size()..];
            out.push(f(record));
        }
        out
    }
}

pub fn send_header(topic: &str, queue_id: i32, properties: &str) -> SendMessageHeader {
    SendMessageHeader {
        producer_group: Str::from_static("PG"),
        topic: Str::from(topic.to_owned()),
        default_topic: Str::from_static("TBW102"),
        default_topic_queue_nums: 4,
        queue_id,
        born_timestamp: 1_700_000_000_000,
        properties: Some(Str::from(properties.to_owned())),
        ..SendMessageHeader::default()
    }
}

pub fn pull_header(
    group: &str,
    topic: &str,
    queue_id: i32,
    offset: i64,
) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        consumer_group: Str::from(group.to_owned()),
        topic: Str::from(topic.to_owned()),
        queue_id,
        queue_offset: offset,
        max_msg_nums: 32,
        sys_flag: 4,
        subscription: Some(Str::from_static("*")),
        ..PullMessageRequestHeader::default()
    }
}

pub fn subscription(topic: &str, tags: &str, version: i64) -> SubscriptionData {
    SubscriptionData {
        topic: topic.to_owned(),
        sub_string: Some(tags.to_owned()),
        sub_version: version,
        ..SubscriptionData::default()
    }
}

impl Peer {
    pub async fn ask(&self, code: RequestCode, header: &impl Header) -> RemotingCommand {
        self.ask_with(code, header, Bytes::new()).await
    }

    pub async fn ask_with(
        &self,
        code: RequestCode,
        header: &impl Header,
        body: Bytes,
    ) -> RemotingCommand {
        let command = RemotingCommand::request(code, header).body(body);
        self.connection.invoke(command, TIMEOUT).await.unwrap()
    }

    pub async fn try_send(&self, header: &SendMessageHeader, body: &[u8]) -> RemotingCommand {
        self.ask_with(RequestCode::SEND_MESSAGE_V2, header, Bytes::copy_from_slice(body)).await
    }

    pub async fn send(&self, topic: &str, queue_id: i32, body: &str) -> SendMessageResponseHeader {
        self.send_with(topic, queue_id, "TAGS\u{1}A\u{2}", body).await
    }

    pub async fn send_with(
        &self,
        topic: &str,
        queue_id: i32,
        properties: &str,
        body: &str,
    ) -> SendMessageResponseHeader {
        let answer =
            self.try_send(&send_header(topic, queue_id, properties), body.as_bytes()).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
        answer.header().unwrap()
    }

    pub async fn pull_with(&self, header: &PullMessageRequestHeader) -> Pulled {
        let answer = self.ask(RequestCode::PULL_MESSAGE, header).await;
        Pulled {
            code: answer.response_code(),
            header: answer.header().unwrap_or_else(|_| panic!("pull refused: {:?}", answer.remark)),
            body: answer.body,
        }
    }

    pub async fn pull(&self, topic: &str, queue_id: i32, offset: i64) -> Pulled {
        self.pull_with(&pull_header("CG", topic, queue_id, offset)).await
    }

    /// Pulls until `count` messages came, waiting for those to come.
    pub async fn pull_all(
        &self,
        topic: &str,
        queue_id: i32,
        from: i64,
        count: usize,
    ) -> Vec<String> {
        let mut header = pull_header("CG", topic, queue_id, from);
        header.sys_flag |= 2;
        header.suspend_timeout_millis = 5_000;
        let mut out = Vec::new();
        while out.len() < count {
            let pulled = self.pull_with(&header).await;
            out.extend(pulled.bodies());
            header.queue_offset = pulled.header.next_begin_offset;
        }
        out
    }

    pub async fn heartbeat(&self, data: &HeartbeatData) -> RemotingCommand {
        self.ask_with(
            RequestCode::HEART_BEAT,
            &apogee_protocol::headers::NoHeader,
            Bytes::from(data.to_raw()),
        )
        .await
    }

    /// Joins a consumer group.
    pub async fn join(
        &self,
        client_id: &str,
        group: &str,
        subscriptions: Vec<SubscriptionData>,
    ) -> RemotingCommand {
        let data = HeartbeatData {
            client_id: client_id.to_owned(),
            producer_data_set: vec![ProducerData { group_name: "PG".to_owned() }],
            consumer_data_set: vec![ConsumerData {
                group_name: group.to_owned(),
                message_model: Some(MessageModel::Clustering),
                subscription_data_set: subscriptions,
                ..ConsumerData::default()
            }],
            ..HeartbeatData::default()
        };
        self.heartbeat(&data).await
    }

    /// The next request that the broker sends to this client.
    pub async fn next_request(&mut self) -> RemotingCommand {
        tokio::time::timeout(TIMEOUT, self.requests.recv()).await.unwrap().unwrap()
    }
}
