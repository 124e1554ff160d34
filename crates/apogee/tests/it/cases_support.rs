//! A client that speaks to a real process as official clients do, and looks at the process.

use apogee_model::record::{LogEntry, parse_entry};
use apogee_net::client::NoService;
use apogee_net::{Client, Connection, Limits};
use apogee_protocol::headers::{
    CreateTopicRequestHeader, DeleteTopicRequestHeader, Header, PullMessageRequestHeader,
    PullMessageResponseHeader, SendMessageHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a broker.
pub(crate) struct Peer {
    pub(crate) connection: Arc<Connection>,
}

impl Peer {
    pub(crate) async fn connect(address: &str) -> Self {
        let client = Client::new(
            Limits::default(),
            Arc::new(NoService),
            CancellationToken::new(),
            TaskTracker::new(),
        );
        Self { connection: client.open(address).await.unwrap() }
    }

    pub(crate) async fn ask(&self, code: RequestCode, header: &impl Header) -> RemotingCommand {
        let command = RemotingCommand::request(code, header);
        self.connection.invoke(command, PATIENCE).await.unwrap()
    }

    pub(crate) async fn create_topic(&self, topic: &str, perm: i32) {
        let header = CreateTopicRequestHeader {
            topic: Str::from(topic.to_owned()),
            default_topic: Str::from_static("TBW102"),
            read_queue_nums: 1,
            write_queue_nums: 1,
            perm,
            topic_filter_type: Str::from_static("SINGLE_TAG"),
            ..CreateTopicRequestHeader::default()
        };
        let answer = self.ask(RequestCode::UPDATE_AND_CREATE_TOPIC, &header).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    }

    pub(crate) async fn delete_topic(&self, topic: &str) {
        let header =
            DeleteTopicRequestHeader { topic: Str::from(topic.to_owned()), ..Default::default() };
        let answer = self.ask(RequestCode::DELETE_TOPIC_IN_BROKER, &header).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    }

    /// Sends to queue 0 and waits until all is acknowledged.
    pub(crate) async fn send_all(&self, topic: &str, properties: &str, bodies: Vec<Bytes>) {
        let mut waiting = Vec::new();
        for body in bodies {
            let command = send_command(topic, properties, body);
            let connection = Arc::clone(&self.connection);
            waiting.push(tokio::spawn(async move {
                connection.invoke(command, PATIENCE).await.unwrap()
            }));
        }
        for answer in waiting {
            let answer = answer.await.unwrap();
            assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
        }
    }

    /// Pulls from queue 0: the bodies and where to go on. Nothing when there is no such topic yet.
    pub(crate) async fn pull(&self, topic: &str, offset: i64, wait_ms: i64) -> (Vec<Bytes>, i64) {
        let header = PullMessageRequestHeader {
            consumer_group: Str::from_static("CG"),
            topic: Str::from(topic.to_owned()),
            queue_offset: offset,
            max_msg_nums: 32,
            sys_flag: 4 | 2,
            suspend_timeout_millis: wait_ms,
            subscription: Some(Str::from_static("*")),
            ..PullMessageRequestHeader::default()
        };
        let answer = self.ask(RequestCode::PULL_MESSAGE, &header).await;
        let Ok(header) = answer.header::<PullMessageResponseHeader>() else {
            return (Vec::new(), offset);
        };
        let (mut rest, mut bodies) = (&answer.body[..], Vec::new());
        while !rest.is_empty() {
            let LogEntry::Record(record) = parse_entry(rest).unwrap() else { panic!("no record") };
            bodies.push(Bytes::copy_from_slice(record.body()));
            rest = &rest[record.total_size()..];
        }
        (bodies, header.next_begin_offset)
    }
}

pub(crate) fn send_command(topic: &str, properties: &str, body: Bytes) -> RemotingCommand {
    let header = SendMessageHeader {
        producer_group: Str::from_static("PG"),
        topic: Str::from(topic.to_owned()),
        default_topic: Str::from_static("TBW102"),
        default_topic_queue_nums: 1,
        queue_id: 0,
        properties: Some(Str::from(properties.to_owned())),
        ..SendMessageHeader::default()
    };
    RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header).body(body)
}

pub(crate) fn frame(command: &RemotingCommand) -> Vec<u8> {
    let mut out = BytesMut::new();
    command.encode_into(&mut out).unwrap();
    out.to_vec()
}

/// How many times more than usual a long run wants of everything: `APOGEE_CASES_SCALE`, usually 1.
pub(crate) fn scale() -> usize {
    std::env::var("APOGEE_CASES_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// KiB of a process by a line of its status, such as `VmRSS` or `RssAnon`.
pub(crate) fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Asks again and again until the answer is the wanted one.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let begin = Instant::now();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(last) => assert!(begin.elapsed() < PATIENCE, "{what} does not come: {last}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
