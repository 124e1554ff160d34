//! Half messages and their ends, as producers send them; what stands in the queues afterwards.

use crate::harness::{Fixture, Peer, TIMEOUT, send_header};
use apogee_model::RecordView;
use apogee_model::id::OffsetId;
use apogee_protocol::bodies::{HeartbeatData, ProducerData};
use apogee_protocol::headers::{
    CheckTransactionStateRequestHeader, EndTransactionRequestHeader, SendMessageResponseHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use apogee_store::MessageStore;
use std::collections::BTreeMap;
use std::time::Instant;

pub const HALF: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
pub const OP: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
pub const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";

pub const UNKNOWN: i32 = 0;
pub const COMMIT: i32 = 8;
pub const ROLLBACK: i32 = 12;

/// A copy of a half message, as an end names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Half {
    pub key: String,
    pub offset: i64,
    pub physical: i64,
}

/// Properties as the Java client sends them with a half message.
pub fn half_properties(key: &str) -> String {
    format!(
        "KEYS\u{1}k-{key}\u{2}TRAN_MSG\u{1}true\u{2}UNIQ_KEY\u{1}{key}\u{2}WAIT\u{1}true\u{2}\
         PGROUP\u{1}PG\u{2}TAGS\u{1}TagX\u{2}"
    )
}

/// A stored record.
#[derive(Debug, Clone)]
pub struct Stored {
    pub body: String,
    pub sys_flag: i32,
    pub prepared: i64,
    pub physical: i64,
    pub queue_id: i32,
    pub properties: BTreeMap<String, String>,
}

impl Stored {
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }
}

/// All records of a queue.
pub fn records(store: &MessageStore, topic: &str, queue_id: i32) -> Vec<Stored> {
    let Some(queue) = store.queue(topic, queue_id) else { return Vec::new() };
    let units = queue.read(0, usize::try_from(queue.max_offset()).unwrap()).unwrap();
    let record = |unit: &apogee_store::Unit| {
        let bytes = store.get_by_physical_offset(unit.physical_offset, None).unwrap().unwrap();
        let record = RecordView::parse(&bytes).unwrap();
        let pairs = record.properties();
        Stored {
            body: String::from_utf8_lossy(record.body()).into_owned(),
            sys_flag: record.sys_flag(),
            prepared: record.prepared_transaction_offset(),
            physical: record.physical_offset(),
            queue_id: record.queue_id(),
            properties: pairs
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    };
    units.iter().map(record).collect()
}

pub fn bodies(store: &MessageStore, topic: &str, queue_id: i32) -> Vec<String> {
    records(store, topic, queue_id).into_iter().map(|stored| stored.body).collect()
}

/// Half offsets that op messages name, each once.
pub fn op_offsets(store: &MessageStore) -> Vec<i64> {
    let all = bodies(store, OP, 0).concat();
    let numbers = all.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap());
    numbers.collect::<std::collections::BTreeSet<i64>>().into_iter().collect()
}

/// Waits for what a task of the broker does by itself.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < TIMEOUT, "waited in vain for {what}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

impl Peer {
    pub async fn half_with(
        &self,
        topic: &str,
        queue_id: i32,
        properties: &str,
        body: &str,
    ) -> SendMessageResponseHeader {
        let mut header = send_header(topic, queue_id, properties);
        header.sys_flag = 4;
        let answer = self.try_send(&header, body.as_bytes()).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
        answer.header().unwrap()
    }

    /// Sends a half message to queue 0.
    pub async fn half(&self, topic: &str, key: &str) -> Half {
        let told = self.half_with(topic, 0, &half_properties(key), key).await;
        let physical = OffsetId::parse(&told.msg_id).unwrap().physical_offset;
        Half { key: key.to_owned(), offset: told.queue_offset, physical }
    }

    pub async fn end(&self, half: &Half, how: i32) -> RemotingCommand {
        self.ask(RequestCode::END_TRANSACTION, &end_header(half, how)).await
    }

    /// The end's code alone.
    pub async fn end_code(&self, half: &Half, how: i32) -> ResponseCode {
        self.end(half, how).await.response_code()
    }

    /// Joins the producer group, so that the broker can ask.
    pub async fn produce(&self, client_id: &str) {
        let data = HeartbeatData {
            client_id: client_id.to_owned(),
            producer_data_set: vec![ProducerData { group_name: "PG".to_owned() }],
            ..HeartbeatData::default()
        };
        assert_eq!(self.heartbeat(&data).await.response_code(), ResponseCode::SUCCESS);
    }

    /// The next question about a transaction.
    pub async fn asked(&mut self) -> (Half, RemotingCommand) {
        let request = self.next_request().await;
        assert_eq!(request.code, RequestCode::CHECK_TRANSACTION_STATE.0);
        let header: CheckTransactionStateRequestHeader = request.header().unwrap();
        let half = Half {
            key: header.msg_id.as_deref().unwrap().to_owned(),
            offset: header.tran_state_table_offset,
            physical: header.commit_log_offset,
        };
        (half, request)
    }
}

pub fn end_header(half: &Half, how: i32) -> EndTransactionRequestHeader {
    EndTransactionRequestHeader {
        producer_group: Str::from_static("PG"),
        tran_state_table_offset: half.offset,
        commit_log_offset: half.physical,
        commit_or_rollback: how,
        from_transaction_check: Some(false),
        msg_id: Str::from(half.key.clone()),
        ..EndTransactionRequestHeader::default()
    }
}

/// A broker that asks soon and often.
pub fn eager(config: &mut apogee_broker::BrokerConfig) {
    config.transaction_time_out = 0;
    config.transaction_check_interval = 20;
    config.transaction_check_max = 1_000;
}

pub async fn eager_fixture() -> Fixture {
    Fixture::start_with(|config, _| eager(config)).await
}
