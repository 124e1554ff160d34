//! Pops (and notifications) that found nothing and wait for a message.
//!
//! What always holds: a parked request is in this table or on its way to the delivery task; their number
//! is limited in all and for each topic, group and queue. A message wakes one request of each group (one
//! that waits for its queue, one that waits for any); whoever leaves messages behind wakes the next. One
//! lock, which arrivals take only while somebody waits.

use super::popping::PopRequest;
use apogee_model::names::RETRY_PREFIX;
use apogee_net::Connection;
use apogee_protocol::ReplyTo;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use tokio::sync::mpsc;

/// A waiting request.
pub(crate) struct Parked {
    pub(crate) connection: Arc<Connection>,
    pub(crate) reply_to: ReplyTo,
    pub(crate) request: Arc<PopRequest>,
    /// When it is answered even without a message (ms).
    pub(crate) deadline_ms: i64,
    /// When it looks again without being woken: an ordered queue is free then (ms).
    pub(crate) look_again_ms: i64,
    /// How often in a row it was told of news and found nothing that moved it on.
    pub(crate) fruitless: u8,
}

/// Who waits for what: group, queue (-1: any) and whether a message or only the news of one is wanted.
type Key = (Box<str>, i32, bool);

#[derive(Default)]
struct State {
    topics: HashMap<Box<str>, HashMap<Key, VecDeque<Parked>>>,
    /// Retry topics that somebody waits for, with their topic and group.
    retries: HashMap<Box<str>, (Box<str>, Box<str>)>,
}

/// The table of waiting requests.
pub(crate) struct PopPolling {
    state: Mutex<State>,
    count: AtomicUsize,
    limit: usize,
    limit_of_key: usize,
    woken: mpsc::UnboundedSender<Vec<Parked>>,
}

impl PopPolling {
    /// A table for up to `limit` requests, `limit_of_key` of one topic, group and queue. The channel needs
    /// no limit of its own: only counted requests go through it.
    pub(crate) fn new(
        limit: usize,
        limit_of_key: usize,
    ) -> (Self, mpsc::UnboundedReceiver<Vec<Parked>>) {
        let (woken, receiver) = mpsc::unbounded_channel();
        (
            Self {
                state: Mutex::default(),
                count: AtomicUsize::new(0),
                limit,
                limit_of_key,
                woken,
            },
            receiver,
        )
    }

    /// Parks a request, or gives it back if the table is full. `has_news` is asked under the lock: what
    /// arrived since the read that found nothing must not be slept through.
    pub(crate) fn park(
        &self,
        mut parked: Parked,
        has_news: impl FnOnce() -> bool,
    ) -> Result<(), Box<Parked>> {
        if self.count.fetch_add(1, Ordering::SeqCst) >= self.limit {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Err(Box::new(parked));
        }
        // Pairs with the fence in `arrived`: that one sees the count, or `has_news` sees the message.
        fence(Ordering::SeqCst);
        let mut state = self.state.lock();
        if has_news() {
            drop(state);
            parked.fruitless = parked.fruitless.saturating_add(1);
            self.send(vec![parked]);
            return Ok(());
        }
        parked.fruitless = 0;
        let request = Arc::clone(&parked.request);
        let key: Key =
            (request.group.as_str().into(), request.queue_id.max(-1), request.is_notification);
        let waiting =
            state.topics.entry(request.topic.as_str().into()).or_default().entry(key).or_default();
        if waiting.len() >= self.limit_of_key {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Err(Box::new(parked));
        }
        waiting.push_back(parked);
        for retry in &request.retry_topics {
            if !state.retries.contains_key(retry.1.as_str()) {
                let of = (request.topic.as_str().into(), request.group.as_str().into());
                state.retries.insert(retry.1.as_str().into(), of);
            }
        }
        Ok(())
    }

    /// Messages came into a queue.
    pub(crate) fn arrived(&self, topic: &str, queue_id: i32) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut woken = Vec::new();
        {
            let mut state = self.state.lock();
            take_one_of_each(&mut state, topic, |key| key.1 == queue_id || key.1 < 0, &mut woken);
            if topic.starts_with(RETRY_PREFIX)
                && let Some((topic, group)) = state.retries.get(topic).cloned()
            {
                take_one_of_each(&mut state, &topic, |key| key.0 == group, &mut woken);
            }
        }
        self.send(woken);
    }

    /// A group may find something now: messages were left, or a queue is free again.
    pub(crate) fn wake(&self, topic: &str, group: &str) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut woken = Vec::new();
        take_one_of_each(&mut self.state.lock(), topic, |key| key.0.as_ref() == group, &mut woken);
        self.send(woken);
    }

    /// Sends on what has waited long enough, or, with `everything`, all there is (shutdown).
    pub(crate) fn expire(&self, now: i64, everything: bool) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut expired = Vec::new();
        let mut state = self.state.lock();
        state.topics.retain(|_, keys| {
            keys.retain(|_, waiting| {
                let due = |parked: &Parked| {
                    let time = parked.deadline_ms.min(parked.look_again_ms);
                    everything || time <= now || parked.connection.is_closed()
                };
                if waiting.iter().any(due) {
                    let (over, kept): (Vec<Parked>, Vec<Parked>) = waiting.drain(..).partition(due);
                    expired.extend(over);
                    *waiting = kept.into();
                }
                !waiting.is_empty()
            });
            !keys.is_empty()
        });
        let State { topics, retries } = &mut *state;
        retries.retain(|_, (topic, _)| topics.contains_key(topic));
        drop(state);
        self.send(expired);
    }

    /// How many pops of a group wait for a queue.
    pub(crate) fn waiting(&self, topic: &str, group: &str, queue_id: i32) -> usize {
        let state = self.state.lock();
        let key: Key = (group.into(), queue_id.max(-1), false);
        state.topics.get(topic).and_then(|keys| keys.get(&key)).map_or(0, VecDeque::len)
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The delivery task has taken this many requests.
    pub(crate) fn taken(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }

    fn send(&self, parked: Vec<Parked>) {
        if !parked.is_empty() {
            // The receiver lives as long as the broker; after that nobody needs an answer.
            let _ = self.woken.send(parked);
        }
    }
}

fn take_one_of_each(
    state: &mut State,
    topic: &str,
    wanted: impl Fn(&Key) -> bool,
    into: &mut Vec<Parked>,
) {
    let Some(keys) = state.topics.get_mut(topic) else { return };
    for (_, waiting) in keys.iter_mut().filter(|(key, _)| wanted(key)) {
        into.extend(waiting.pop_front());
    }
    keys.retain(|_, waiting| !waiting.is_empty());
    if keys.is_empty() {
        state.topics.remove(topic);
    }
}
