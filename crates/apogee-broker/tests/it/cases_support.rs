//! What several cases need: a disk that fails or waits on demand, a disk that fills up, raw peers.

use crate::harness::{Fixture, Peer, Pulled, TIMEOUT, pull_header};
use apogee_protocol::headers::{
    CreateTopicRequestHeader, QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use apogee_store::cleaning::SpaceProbe;
use apogee_store::faults::DiskFaults;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A disk whose syncs can be made to wait or fail, and whose space can run out.
#[derive(Default)]
pub struct Disk {
    pub sync_fails: AtomicBool,
    pub no_space: AtomicBool,
    held: Mutex<bool>,
    changed: Condvar,
}

impl Disk {
    /// Makes syncs wait until they are let go.
    pub fn hold_syncs(&self, hold: bool) {
        *self.held.lock().unwrap() = hold;
        self.changed.notify_all();
    }
}

impl DiskFaults for Disk {
    fn before_sync(&self) -> io::Result<()> {
        let held = self.held.lock().unwrap();
        // A test that fails must not hang: its broker still wants to stop.
        drop(self.changed.wait_timeout_while(held, TIMEOUT, |held| *held).unwrap());
        if self.sync_fails.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    fn before_allocate(&self) -> io::Result<()> {
        if self.no_space.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

/// A disk that is as full as the test says, in percent.
#[derive(Default)]
pub struct Usage(AtomicU32);

impl Usage {
    pub fn set(&self, percent: u32) {
        self.0.store(percent, Ordering::Relaxed);
    }
}

impl SpaceProbe for Usage {
    fn used_ratio(&self, _: &Path) -> io::Result<f64> {
        Ok(f64::from(self.0.load(Ordering::Relaxed)) / 100.0)
    }
}

/// As a probe of the store.
pub fn probe(usage: &Arc<Usage>) -> Option<Arc<dyn SpaceProbe>> {
    Some(Arc::clone(usage) as Arc<dyn SpaceProbe>)
}

/// As faults of the store.
pub fn faults(disk: &Arc<Disk>) -> Option<Arc<dyn DiskFaults>> {
    Some(Arc::clone(disk) as Arc<dyn DiskFaults>)
}

/// How many times more than usual a long run wants of everything: `APOGEE_CASES_SCALE`, usually 1.
pub fn scale() -> u64 {
    std::env::var("APOGEE_CASES_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Waits until `done` holds. For states that nobody tells of.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < TIMEOUT, "{what} does not come");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl Fixture {
    /// Stops the broker and waits until nothing holds its store any more, however slow the disk is.
    pub async fn stop_wholly(self) -> Option<tempfile::TempDir> {
        let store = Arc::downgrade(self.broker.store());
        let folder = self.stop().await;
        until("the end of the store", || store.strong_count() == 0).await;
        folder
    }
}

impl Peer {
    pub async fn create_topic(&self, topic: &str, queues: i32) {
        let header = CreateTopicRequestHeader {
            topic: Str::from(topic.to_owned()),
            default_topic: Str::from_static("TBW102"),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: 6,
            topic_filter_type: Str::from_static("SINGLE_TAG"),
            ..CreateTopicRequestHeader::default()
        };
        let answer = self.ask(RequestCode::UPDATE_AND_CREATE_TOPIC, &header).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
    }

    pub async fn commit(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> RemotingCommand {
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: Str::from(group.to_owned()),
            topic: Str::from(topic.to_owned()),
            queue_id,
            commit_offset: offset,
            ..UpdateConsumerOffsetRequestHeader::default()
        };
        self.ask(RequestCode::UPDATE_CONSUMER_OFFSET, &header).await
    }

    /// Where a group's member starts with a queue, as an official client asks.
    pub async fn position(&self, group: &str, topic: &str, queue_id: i32) -> Option<i64> {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: Str::from(group.to_owned()),
            topic: Str::from(topic.to_owned()),
            queue_id,
            ..QueryConsumerOffsetRequestHeader::default()
        };
        let answer = self.ask(RequestCode::QUERY_CONSUMER_OFFSET, &header).await;
        answer.header::<QueryConsumerOffsetResponseHeader>().ok().map(|found| found.offset)
    }

    /// A pull that waits for messages.
    pub async fn pull_waiting(
        &self,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Pulled {
        let mut header = pull_header(group, topic, queue_id, offset);
        header.sys_flag |= 2;
        header.suspend_timeout_millis = 15_000;
        self.pull_with(&header).await
    }
}
