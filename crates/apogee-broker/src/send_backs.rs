//! Remembers which messages a group has sent back of late.
//!
//! Two members under one client id, or a member that stops while its handler fails, send the same
//! message back twice; each copy would double with every round. What always holds: one message of the
//! log is copied at most once a group within [`WINDOW_MS`]; at most [`LIMIT`] are remembered.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};

/// How long a send-back counts (ms): longer than the gap between members that share a queue by
/// mistake, shorter than a redelivery after a crash.
const WINDOW_MS: i64 = 10_000;
/// Most send-backs remembered.
const LIMIT: usize = 65_536;

type Key = (Box<str>, i64);

#[derive(Default)]
struct State {
    seen: HashMap<Key, i64>,
    order: VecDeque<(Key, i64)>,
}

/// Send-backs of the last seconds.
#[derive(Default)]
pub(crate) struct SendBacks {
    state: Mutex<State>,
}

impl SendBacks {
    /// Whether this is the first send-back of the message by the group.
    pub(crate) fn first(&self, group: &str, offset: i64, now: i64) -> bool {
        let mut state = self.state.lock();
        while let Some((key, at)) = state.order.front() {
            if now - at <= WINDOW_MS && state.order.len() < LIMIT {
                break;
            }
            let (key, at) = (key.clone(), *at);
            state.order.pop_front();
            if state.seen.get(&key) == Some(&at) {
                state.seen.remove(&key);
            }
        }
        let key: Key = (group.into(), offset);
        if state.seen.contains_key(&key) {
            return false;
        }
        state.seen.insert(key.clone(), now);
        state.order.push_back((key, now));
        true
    }

    /// The copy was not stored: the next try counts as the first.
    pub(crate) fn forget(&self, group: &str, offset: i64) {
        self.state.lock().seen.remove(&(Box::from(group), offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_counts_once_a_group_within_the_window() {
        let send_backs = SendBacks::default();
        assert!(send_backs.first("g", 1, 0));
        assert!(!send_backs.first("g", 1, 5_000));
        assert!(send_backs.first("h", 1, 5_000));
        assert!(send_backs.first("g", 1, 10_001));
        send_backs.forget("g", 1);
        assert!(send_backs.first("g", 1, 10_002));
    }

    #[test]
    fn memory_is_bounded() {
        let send_backs = SendBacks::default();
        for offset in 0..(LIMIT as i64 + 100) {
            assert!(send_backs.first("g", offset, 0));
        }
        assert!(send_backs.state.lock().seen.len() <= LIMIT);
    }
}
