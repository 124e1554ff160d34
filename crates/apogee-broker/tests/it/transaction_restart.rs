//! Transactions across stops, crashes and another program's store.

use crate::cases_support::{Disk, faults};
use crate::harness::{Fixture, Peer, store_config};
use crate::transaction_kit::{
    COMMIT, GIVEN_UP, HALF, Half, OP, ROLLBACK, bodies, eager, end_header, half_properties,
    op_offsets, records, until,
};
use apogee_broker::now_ms;
use apogee_model::RecordView;
use apogee_model::record::RecordFields;
use apogee_protocol::bodies::{HeartbeatData, ProducerData};
use apogee_protocol::{RequestCode, ResponseCode};
use apogee_store::{Appending, FlushDiskType, MessageStore, NoListener, Placed};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

const SUCCESS: ResponseCode = ResponseCode::SUCCESS;
const ENDED: ResponseCode = ResponseCode::ILLEGAL_OPERATION;

/// What the disk would hold if the process died now (nothing that it wrote is lost).
fn crash_image(root: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => copy(&entry.path(), &target),
                false => drop(std::fs::copy(entry.path(), target).unwrap()),
            }
        }
    }
    let image = tempfile::tempdir().unwrap();
    copy(root, image.path());
    image
}

/// Saved offsets of the half queue and the op queue, as the original reads them.
fn saved_offsets(root: &Path) -> [Option<i64>; 2] {
    let text = std::fs::read_to_string(root.join("config/consumerOffset.json")).unwrap_or_default();
    let text: String = text.split_whitespace().collect();
    [HALF, OP].map(|topic| {
        let (_, rest) = text.split_once(&format!("\"{topic}@CID_RMQ_SYS_TRANS\":{{0:"))?;
        rest.split(['}', ',']).next()?.parse().ok()
    })
}

async fn open(root: &Path) -> Fixture {
    Fixture::open(root, |config, _| eager(config)).await
}

/// Keys of what is asked about until the sentinel was asked about `rounds` times.
async fn asked_until(peer: &mut Peer, sentinel: &str, rounds: usize) -> Vec<String> {
    let (mut keys, mut seen) = (Vec::new(), 0);
    while seen < rounds {
        let (half, _) = peer.asked().await;
        if half.key == sentinel {
            seen += 1;
        } else {
            keys.push(half.key);
        }
    }
    keys
}

#[tokio::test]
async fn what_waits_goes_on_after_a_stop_and_what_ended_stays_so() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let (committed, rolled_back) = (peer.half("T", "c").await, peer.half("T", "r").await);
    let (waiting, late) = (peer.half("T", "w").await, peer.half("T", "l").await);
    peer.end(&committed, COMMIT).await;
    peer.end(&rolled_back, ROLLBACK).await;
    let folder = fixture.stop().await.unwrap();
    let again = Fixture::open(folder.path(), |_, _| {}).await;
    let peer = again.connect().await;
    for ended in [&committed, &rolled_back] {
        for how in [COMMIT, ROLLBACK] {
            assert_eq!(peer.end_code(ended, how).await, ENDED);
        }
    }
    assert_eq!(peer.end_code(&waiting, COMMIT).await, SUCCESS);
    assert_eq!(peer.end_code(&late, ROLLBACK).await, SUCCESS);
    assert_eq!(bodies(again.broker.store(), "T", 0), ["c", "w"]);
    again.stop().await;
    assert_eq!(saved_offsets(folder.path()), [Some(4), Some(4)]);
}

/// X-02.
#[tokio::test]
async fn of_ten_thousand_committed_transactions_none_is_asked_about_after_a_restart() {
    const TASKS: usize = 10;
    let fixture = Fixture::start_with(|_, store| store.mapped_file_size_commit_log = 8 << 20).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let peer = fixture.connect().await;
        tasks.spawn(async move {
            for n in 0..10_000 / TASKS {
                let half = peer.half("T", &format!("{task}-{n}")).await;
                assert_eq!(peer.end_code(&half, COMMIT).await, SUCCESS);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    fixture.connect().await.half("T", "sentinel").await;
    let image = crash_image(fixture.folder.as_ref().unwrap().path());
    let stopped = fixture.stop().await.unwrap();
    for root in [image.path(), stopped.path()] {
        let again = Fixture::open(root, |config, store| {
            eager(config);
            store.mapped_file_size_commit_log = 8 << 20;
        })
        .await;
        let mut peer = again.connect().await;
        peer.produce("A").await;
        assert_eq!(asked_until(&mut peer, "sentinel", 3).await, [""; 0]);
        assert_eq!(again.broker.store().max_offset("T", 0), 10_000);
        again.stop().await;
    }
}

#[tokio::test]
async fn copies_of_one_transaction_are_one_after_a_crash() {
    let fixture = Fixture::start_with(|config, _| eager(config)).await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    let first = peer.half("T", "0A").await;
    let (second, _) = peer.asked().await;
    let (third, _) = peer.asked().await;
    let root = fixture.folder.as_ref().unwrap().path().to_owned();
    for (named, others) in
        [(&first, [&second, &third]), (&second, [&third, &first]), (&third, [&first, &second])]
    {
        let image = crash_image(&root);
        let again = open(image.path()).await;
        let peer = again.connect().await;
        assert_eq!(peer.end_code(named, COMMIT).await, SUCCESS);
        for other in others {
            assert_eq!(peer.end_code(other, COMMIT).await, ENDED);
        }
        assert_eq!(bodies(again.broker.store(), "T", 0), ["0A"]);
    }
}

/// The original reads no link between copies: to it only one of them may be open at any time.
#[tokio::test]
async fn replaced_copies_are_closed_for_the_original() {
    let fixture = Fixture::start_with(|config, _| eager(config)).await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    peer.half("T", "0A").await;
    let mut last = 0;
    for _ in 0..3 {
        last = peer.asked().await.0.offset;
    }
    let store = fixture.broker.store();
    until("the op messages", || (0..last).all(|offset| op_offsets(store).contains(&offset))).await;
    let folder = fixture.stop().await.unwrap();
    let again = open(folder.path()).await;
    let mut peer = again.connect().await;
    peer.produce("A").await;
    let (copy, _) = peer.asked().await;
    assert_eq!(peer.end_code(&copy, COMMIT).await, SUCCESS);
    assert_eq!(bodies(again.broker.store(), "T", 0), ["0A"]);
}

#[tokio::test]
async fn a_crash_between_final_and_op_message_neither_loses_nor_doubles() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let half = peer.half("T", "0A").await;
    peer.half("T", "sentinel").await;
    let store = fixture.broker.store();
    append_final(store, &half, "T");
    let image = crash_image(fixture.folder.as_ref().unwrap().path());
    let again = open(image.path()).await;
    let mut peer = again.connect().await;
    peer.produce("A").await;
    assert_eq!(asked_until(&mut peer, "sentinel", 3).await, [""; 0]);
    assert_eq!(peer.end_code(&half, COMMIT).await, ENDED);
    assert_eq!(bodies(again.broker.store(), "T", 0), ["0A"]);
    let ops = op_offsets(again.broker.store());
    assert!(ops.contains(&0), "the op message is made up for: {ops:?}");
}

/// The original merges op messages for three seconds and asks again about what ended meanwhile.
#[tokio::test]
async fn a_store_of_the_original_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let store = MessageStore::open(store_config(folder.path()), Arc::new(NoListener)).unwrap();
    let halves: Vec<Half> = (0..6).map(|n| append_half(&store, &format!("j{n}"), "")).collect();
    append_op(&store, "1,2,");
    append_final(&store, &halves[0], "T");
    append_final(&store, &halves[1], "T");
    // Asked about though it ended, and asked about because it waits.
    append_half(&store, "j0", "TRANSACTION_CHECK_TIMES\u{1}1\u{2}");
    let copy = append_half(&store, "j3", "TRANSACTION_CHECK_TIMES\u{1}1\u{2}");
    store.shutdown().unwrap();
    drop(store);
    let fixture = open(folder.path()).await;
    let mut peer = fixture.connect().await;
    peer.produce("A").await;
    let mut keys = asked_until(&mut peer, "j5", 3).await;
    keys.sort();
    keys.dedup();
    assert_eq!(keys, ["j3", "j4"]);
    let codes = [
        peer.end_code(&halves[0], COMMIT).await,
        peer.end_code(&halves[1], ROLLBACK).await,
        peer.end_code(&halves[2], COMMIT).await,
        peer.end_code(&copy, COMMIT).await,
        peer.end_code(&halves[3], COMMIT).await,
        peer.end_code(&halves[4], COMMIT).await,
    ];
    assert_eq!(codes, [ENDED, ENDED, ENDED, SUCCESS, ENDED, SUCCESS]);
    let store = fixture.broker.store();
    until("the messages", || store.max_offset("T", 0) == 4).await;
    assert_eq!(bodies(store, "T", 0), ["j0", "j1", "j3", "j4"]);
}

/// A broker of the original was killed after it had asked eleven times.
#[tokio::test]
async fn a_real_store_with_an_open_transaction_goes_on_with_all_its_copies_as_one() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apogee-store/tests/fixtures");
    let image = crash_image(&fixtures.join("killed/root"));
    let fixture = Fixture::open(image.path(), |config, store| {
        eager(config);
        store.mapped_file_size_commit_log = 16_384;
        store.mapped_file_size_consume_queue = 200;
        store.max_hash_slot_num = 16;
        store.max_index_num = 64;
        // The store is older than files are kept by default.
        store.file_reserved_time = 1_000_000;
    })
    .await;
    let mut peer = fixture.connect().await;
    let data = HeartbeatData {
        client_id: "A".to_owned(),
        producer_data_set: vec![ProducerData { group_name: "PG_killtrans".to_owned() }],
        ..HeartbeatData::default()
    };
    peer.heartbeat(&data).await;
    let (asked, request) = peer.asked().await;
    let question = RecordView::parse(&request.body).unwrap();
    assert_eq!(question.body(), b"half message left undecided");
    let checks =
        question.properties().get("TRANSACTION_CHECK_TIMES").unwrap().parse::<i64>().unwrap();
    assert_eq!(checks, asked.offset, "each copy is one check");
    let store = fixture.broker.store();
    let copies = records(store, HALF, 0);
    let (topic, queue_id) = (question.topic(), question.queue_id());
    let before = store.max_offset(topic, queue_id);
    let mut codes = Vec::new();
    for (offset, copy) in copies.iter().enumerate().take(12) {
        let half = Half { key: "k".to_owned(), offset: offset as i64, physical: copy.physical };
        let mut header = end_header(&half, COMMIT);
        header.producer_group = "PG_killtrans".into();
        codes.push(peer.ask(RequestCode::END_TRANSACTION, &header).await.response_code());
    }
    assert_eq!((codes[0], &codes[1..]), (SUCCESS, &[ENDED; 11][..]));
    until("the message", || store.max_offset(topic, queue_id) == before + 1).await;
}

#[tokio::test]
async fn offsets_move_behind_what_ended_while_the_broker_runs() {
    let fixture = Fixture::start_with(|config, store| {
        config.flush_consumer_offset_interval = 100;
        store.flush_interval_commit_log = 20;
        store.flush_commit_log_least_pages = 0;
    })
    .await;
    let peer = fixture.connect().await;
    for n in 0..10 {
        let half = peer.half("T", &n.to_string()).await;
        peer.end(&half, COMMIT).await;
    }
    let waiting = peer.half("T", "waits").await;
    let root = fixture.folder.as_ref().unwrap().path();
    until("the offsets", || saved_offsets(root) == [Some(10), Some(10)]).await;
    peer.end(&waiting, ROLLBACK).await;
    until("the offsets", || saved_offsets(root) == [Some(11), Some(11)]).await;
}

/// X-06: what the producer is asked about can be ended at once, however slow the disk is.
#[tokio::test]
async fn with_sync_flush_a_copy_is_asked_about_when_it_can_be_read_and_never_given_up() {
    let disk = Arc::new(Disk::default());
    let fixture = Fixture::start_with(|config, store| {
        eager(config);
        store.flush_disk_type = FlushDiskType::SyncFlush;
        store.disk_faults = faults(&disk);
    })
    .await;
    let mut peer = fixture.connect().await;
    let store = fixture.broker.store();
    peer.half("T", "0A").await;
    disk.hold_syncs(true);
    let sent = store.appended().get();
    until("a copy", || store.appended().get() > sent).await;
    peer.produce("A").await;
    assert!(peer.requests.try_recv().is_err(), "asked about a copy that nobody can read");
    disk.hold_syncs(false);
    let (copy, _) = peer.asked().await;
    assert_eq!(peer.end_code(&copy, COMMIT).await, SUCCESS);
    until("the message", || store.max_offset("T", 0) == 1).await;
    assert_eq!(store.max_offset(GIVEN_UP, 0), 0);
}

// ---- what the original would write -------------------------------------------------------------------

fn append(
    store: &MessageStore,
    topic: &str,
    body: &str,
    properties: &str,
    edit: impl Fn(&mut RecordFields<'_>),
) -> Placed {
    let host: SocketAddr = "127.0.0.1:10911".parse().unwrap();
    let mut fields = RecordFields {
        topic,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: body.as_bytes(),
        properties: properties.as_bytes(),
    };
    edit(&mut fields);
    let mut batch = [Appending::new(fields)];
    store.append(&mut batch, now_ms());
    batch[0].outcome.clone().unwrap().unwrap()
}

fn append_half(store: &MessageStore, key: &str, more: &str) -> Half {
    let real = "REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}0\u{2}";
    let properties =
        format!("{}{real}__transactionId__\u{1}{key}\u{2}{more}", half_properties(key));
    let placed = append(store, HALF, key, &properties, |_| {});
    Half { key: key.to_owned(), offset: placed.queue_offset, physical: placed.physical_offset }
}

fn append_final(store: &MessageStore, half: &Half, topic: &str) {
    append(store, topic, &half.key, &half_properties(&half.key), |fields| {
        fields.sys_flag = 8;
        fields.prepared_transaction_offset = half.physical;
    });
}

fn append_op(store: &MessageStore, body: &str) {
    append(store, OP, body, "TAGS\u{1}d\u{2}WAIT\u{1}true\u{2}", |_| {});
}
