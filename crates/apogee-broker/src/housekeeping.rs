//! Tasks that keep the broker tidy: waiting pulls, silent clients, offsets to save, members to tell.

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::error::BrokerError;
use crate::long_polling::ParkedPull;
use crate::offsets::OffsetTable;
use crate::processor::pull;
use crate::watermarks;
use apogee_protocol::bodies::{ConsumerOffsetSerializeWrapper, DataVersion, JsonBody};
use apogee_protocol::headers::NotifyConsumerIdsChangedRequestHeader;
use apogee_protocol::{RemotingCommand, RequestCode, Str};
use apogee_store::Document;
use parking_lot::Mutex;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often waiting pulls are looked through for those whose time is up.
const POLLING_EVERY: Duration = Duration::from_millis(500);
/// How often silent clients are looked for.
const CLIENTS_EVERY: Duration = Duration::from_secs(10);
/// How often filters are saved, if they changed.
const FILTERS_EVERY: Duration = Duration::from_secs(10);
/// Changes of a group within this time are told at once: a hundred members that leave together must
/// not cause a hundred rebalances.
const MERGE_CHANGES: Duration = Duration::from_millis(50);

/// `consumerOffset.json`.
pub(crate) struct Saved {
    document: Document,
    state: Mutex<SavedState>,
}

struct SavedState {
    version: DataVersion,
    changes: u64,
}

fn is_document(bytes: &[u8]) -> bool {
    ConsumerOffsetSerializeWrapper::from_json(bytes).is_ok()
}

impl Saved {
    /// Fills `offsets` from the document.
    pub(crate) fn load(config_dir: &Path, offsets: &OffsetTable) -> Result<Self, BrokerError> {
        let document = Document::new(config_dir.join("consumerOffset.json"), is_document);
        let mut version = DataVersion::default();
        if let Some(bytes) = document.load()?.into_bytes() {
            let wrapper = ConsumerOffsetSerializeWrapper::from_json(&bytes)?;
            version = wrapper.data_version.unwrap_or_default();
            offsets.load(wrapper.offset_table.iter().map(|(key, queues)| (key.as_str(), queues)));
        }
        let changes = offsets.change_count();
        Ok(Self { document, state: Mutex::new(SavedState { version, changes }) })
    }

    /// Everything, as slaves ask for it.
    pub(crate) fn wrapper(&self, offsets: &OffsetTable) -> ConsumerOffsetSerializeWrapper {
        ConsumerOffsetSerializeWrapper {
            data_version: Some(self.state.lock().version.clone()),
            offset_table: offsets.snapshot(),
            ..ConsumerOffsetSerializeWrapper::default()
        }
    }

    /// Saves the offsets if they changed.
    pub(crate) fn save_offsets(&self, offsets: &OffsetTable) {
        let changes = offsets.change_count();
        {
            let mut state = self.state.lock();
            if state.changes == changes {
                return;
            }
            state.changes = changes;
            state.version.next(now_ms(), 0);
        }
        if let Err(error) = self.document.save(&self.wrapper(offsets).to_pretty()) {
            tracing::error!(%error, "consumerOffset.json cannot be saved; it is tried again");
            self.state.lock().changes = u64::MAX;
        }
    }
}

/// Starts all tasks.
pub(crate) fn start(broker: &Arc<Broker>, woken: mpsc::UnboundedReceiver<Vec<ParkedPull>>) {
    broker.tasks.spawn(deliver(Arc::clone(broker), woken));
    every(broker, POLLING_EVERY, |broker| broker.polling.expire(now_ms(), false));
    every_blocking(broker, Duration::from_secs(1), |broker| {
        broker.stats.sample(now_ms(), |topic| broker.topics.get(topic).is_some());
    });
    every_blocking(broker, watermarks::EVERY, watermarks::look);
    every(broker, CLIENTS_EVERY, |broker| {
        let now = now_ms();
        let silent = broker.config.channel_expired_timeout;
        for departure in broker.clients.expire(now, silent, |one| broker.free_locks(one)) {
            broker.departed(&departure);
        }
        broker.locks.sweep(now);
        broker.offsets.expire_resets(now);
    });
    let offsets_every =
        Duration::from_millis(broker.config.flush_consumer_offset_interval.max(100));
    every_blocking(broker, offsets_every, |broker| broker.saved.save_offsets(&broker.offsets));
    let delay_every = Duration::from_millis(broker.config.flush_delay_offset_interval.max(100));
    every_blocking(broker, delay_every, |broker| broker.delay.save(&broker.store));
    every_blocking(broker, FILTERS_EVERY, |broker| broker.filters.save());
    broker.tasks.spawn(tell_members(Arc::clone(broker)));
}

/// Runs `work` again and again until the broker stops.
fn every(broker: &Arc<Broker>, time: Duration, work: impl Fn(&Broker) + Send + 'static) {
    spawn_until_shutdown(broker, move |broker| async move {
        let mut ticks = tokio::time::interval(time);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            work(&broker);
        }
    });
}

/// The same for work that touches the disk.
fn every_blocking(broker: &Arc<Broker>, time: Duration, work: fn(&Broker)) {
    spawn_until_shutdown(broker, move |broker| async move {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + time, time);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let broker = Arc::clone(&broker);
            // A panic in the work is logged by the runtime and must not end the series.
            // The stop waits for it, so that nothing is saved behind the last save.
            let tasks = broker.tasks.clone();
            let _ = tasks.spawn_blocking(move || work(&broker)).await;
        }
    });
}

fn spawn_until_shutdown<F>(broker: &Arc<Broker>, work: impl FnOnce(Arc<Broker>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let shutdown = broker.shutdown.clone();
    let future = work(Arc::clone(broker));
    broker.tasks.spawn(async move {
        tokio::select! {
            () = future => {}
            () = shutdown.cancelled() => {}
        }
    });
}

/// Answers pulls that were woken.
async fn deliver(broker: Arc<Broker>, mut woken: mpsc::UnboundedReceiver<Vec<ParkedPull>>) {
    loop {
        let pulls = tokio::select! {
            biased;
            pulls = woken.recv() => pulls,
            () = broker.shutdown.cancelled() => return,
        };
        let Some(pulls) = pulls else { return };
        broker.polling.taken(pulls.len());
        for parked in pulls {
            pull::deliver(&broker, parked);
        }
    }
}

/// Tells members that their group changed.
async fn tell_members(broker: Arc<Broker>) {
    loop {
        tokio::select! {
            () = broker.groups_changed.notified() => {}
            () = broker.shutdown.cancelled() => return,
        }
        tokio::time::sleep(MERGE_CHANGES).await;
        let changed = std::mem::take(&mut *broker.changed_groups.lock());
        for group in changed {
            let Some(members) = broker.clients.consumer_group(&group) else { continue };
            let header = NotifyConsumerIdsChangedRequestHeader {
                consumer_group: Str::from(group.to_string()),
                ..Default::default()
            };
            let mut command =
                RemotingCommand::request(RequestCode::NOTIFY_CONSUMER_IDS_CHANGED, &header)
                    .oneway();
            for member in members.members() {
                command.opaque = member.connection.next_opaque();
                member.connection.send(&command);
            }
        }
    }
}
