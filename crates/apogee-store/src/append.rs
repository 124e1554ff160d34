//! The append path before the lock: checks, encoding, look-up of queues.
//!
//! Records of a batch are encoded into one buffer of the calling thread, which is reused; a message
//! that breaks a rule gets its own error and the others go on.

use crate::commit_log::Encoded;
use crate::consume_queue::ConsumeQueue;
use crate::error::AppendError;
use crate::message_store::MessageStore;
use crate::queues::is_safe_folder;
use apogee_model::properties::keys;
use apogee_model::record::{self, RecordFields};
use apogee_model::{Properties, sys_flag};
use std::cell::RefCell;
use std::sync::Arc;

/// What a thread's buffer may keep between batches.
const KEPT_BUFFER: usize = 8 << 20;
/// Room for properties and fixed fields above the body limit, as in the original.
const RECORD_OVERHEAD: usize = 64 * 1024;

/// A message to append, and what became of it.
#[derive(Debug)]
pub struct Appending<'a> {
    /// What is stored.
    pub fields: RecordFields<'a>,
    /// Filled in by the append.
    pub outcome: Option<Result<Placed, AppendError>>,
}

impl<'a> Appending<'a> {
    /// A message that waits for its append.
    #[must_use]
    pub fn new(fields: RecordFields<'a>) -> Self {
        Self { fields, outcome: None }
    }
}

/// Where a message was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Offset in its queue (0 for prepared and rollback records).
    pub queue_offset: i64,
    /// Offset in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub size: usize,
    /// Store time (ms).
    pub store_timestamp: i64,
}

impl Placed {
    /// Commit log position behind the record: what a flush or a replica must reach.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.physical_offset + self.size as i64
    }
}

#[derive(Default)]
struct Scratch {
    buffer: Vec<u8>,
    encoded: Vec<Encoded>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl MessageStore {
    /// Appends a batch. Each message gets its `outcome`; the return value is the log position
    /// behind the last one stored (wait for it in [`MessageStore::flushed`] where the flush mode
    /// or the message asks for that), or `None` when none was stored.
    ///
    /// With asynchronous flush the messages are visible to readers when this returns, or a moment
    /// later when another thread is just dispatching.
    pub fn append(&self, batch: &mut [Appending<'_>], now_ms: i64) -> Option<i64> {
        if let Some(error) = self.refusal() {
            for item in batch.iter_mut() {
                item.outcome = Some(Err(error.clone()));
            }
            return None;
        }
        // Taken out, not borrowed: an arrival listener may append from within.
        let mut scratch = SCRATCH.take();
        self.encode_batch(&mut scratch, batch);
        let stored =
            self.log.append(&mut scratch.buffer, &mut scratch.encoded, batch, &self.queues, now_ms);
        scratch.encoded.clear();
        scratch.buffer.clear();
        scratch.buffer.shrink_to(KEPT_BUFFER);
        SCRATCH.set(scratch);
        if stored.is_some() {
            self.after_append();
        }
        stored
    }

    fn encode_batch(&self, scratch: &mut Scratch, batch: &mut [Appending<'_>]) {
        let mut last: Option<Arc<ConsumeQueue>> = None;
        for (at, item) in batch.iter_mut().enumerate() {
            let start = scratch.buffer.len();
            let checked = self.check(&item.fields).and_then(|()| {
                record::encode(&item.fields, &mut scratch.buffer)
                    .map_err(|error| AppendError::Illegal(error.to_string()))
            });
            if let Err(error) = checked {
                scratch.buffer.truncate(start);
                item.outcome = Some(Err(error));
                continue;
            }
            item.outcome = None;
            let (topic, queue_id) = (item.fields.topic, item.fields.queue_id);
            let queue = match &last {
                Some(queue) if queue.queue_id() == queue_id && &**queue.topic() == topic => {
                    Arc::clone(queue)
                }
                _ => self.queues.get_or_create(topic, queue_id),
            };
            scratch.encoded.push(Encoded {
                item: at,
                range: start..scratch.buffer.len(),
                queue: Arc::clone(&queue),
            });
            last = Some(queue);
        }
    }

    fn check(&self, fields: &RecordFields<'_>) -> Result<(), AppendError> {
        let limit = self.config.max_message_size;
        if fields.body.len() > limit {
            return Err(AppendError::TooLarge {
                size: fields.body.len(),
                limit,
                key: "maxMessageSize",
            });
        }
        let size = record::encoded_len(fields);
        let segment = self.config.mapped_file_size_commit_log;
        if size > limit + RECORD_OVERHEAD {
            return Err(AppendError::TooLarge {
                size,
                limit: limit + RECORD_OVERHEAD,
                key: "maxMessageSize",
            });
        }
        if size + record::MIN_BLANK > segment {
            return Err(AppendError::TooLarge {
                size,
                limit: segment - record::MIN_BLANK,
                key: "mappedFileSizeCommitLog",
            });
        }
        if !is_safe_folder(fields.topic) {
            return Err(AppendError::Illegal(format!(
                "topic {:?} cannot be stored: it must have 1 to 255 bytes without '/' and NUL and not be \".\" or \"..\"",
                fields.topic
            )));
        }
        if fields.queue_id < 0 {
            return Err(AppendError::Illegal(format!("queue id {} is negative", fields.queue_id)));
        }
        self.check_kind(fields)
    }

    fn check_kind(&self, fields: &RecordFields<'_>) -> Result<(), AppendError> {
        if fields.sys_flag & sys_flag::INNER_BATCH != 0 || self.queues.is_batch_topic(fields.topic)
        {
            return Err(AppendError::Unsupported(format!(
                "topic {} uses batch consume queues, which this release does not write",
                fields.topic
            )));
        }
        // One scan of the raw bytes; the name cannot appear by accident in a legal message.
        let properties = Properties::new(fields.properties);
        if memfind(fields.properties, keys::INNER_MULTI_DISPATCH.as_bytes())
            && properties.get(keys::INNER_MULTI_DISPATCH).is_some()
        {
            return Err(AppendError::Unsupported(
                "light message queues (INNER_MULTI_DISPATCH) are not written by this release"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

fn memfind(haystack: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else {
        return true;
    };
    haystack
        .iter()
        .enumerate()
        .filter(|(_, byte)| *byte == first)
        .any(|(at, _)| haystack.get(at..).is_some_and(|rest| rest.starts_with(needle)))
}
