//! The records of a revive queue: checkpoints and acknowledgements, as the original writes and reads them.
//!
//! | tag | body (JSON, keys in this order) |
//! | --- | --- |
//! | `ck` | bm (bits acknowledged already), bn broker, c group, d[] distances of the offsets from so, it invisible time, n count, pt pop time, q queue, reviveTime, ro, rp (re-puts, if any), so start offset, sp suspended, t topic |
//! | `ack` | ao offset, bn, c, pt, q, so, t |
//! | `bAck` | aol[] offsets, ao (-1), bn, c, pt, q, so, t |
//!
//! The long names of older releases are read too. A record is written straight into its revive queue: when
//! it counts is told by its body, so no timer is needed. `TIMER_DELIVER_MS` is the moment of writing; the
//! original takes the largest one it has read for the time up to which it knows everything.

use super::machine::{self, Checkpoint, State};
use apogee_model::properties::{append_pair, keys};
use apogee_model::record::{RecordFields, RecordView};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Tag of a checkpoint.
pub(crate) const CK_TAG: &str = "ck";
/// Tag of an acknowledgement.
pub(crate) const ACK_TAG: &str = "ack";
/// Tag of several acknowledgements.
pub(crate) const BATCH_ACK_TAG: &str = "bAck";
/// Most messages of a checkpoint that are believed; a pop has 32 at most.
const MAX_MESSAGES: usize = 1_024;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CkBody {
    #[serde(alias = "bitMap")]
    bm: i64,
    #[serde(alias = "brokerName")]
    bn: Option<String>,
    #[serde(alias = "cid", alias = "cId", alias = "consumerGroup")]
    c: Option<String>,
    #[serde(alias = "queueOffsetDiff")]
    d: Option<Vec<i64>>,
    #[serde(alias = "invisibleTime")]
    it: i64,
    #[serde(alias = "num")]
    n: i64,
    #[serde(alias = "popTime")]
    pt: i64,
    #[serde(alias = "queueId")]
    q: i32,
    #[serde(rename = "reviveTime")]
    revive_time: i64,
    #[serde(alias = "reviveOffset")]
    ro: i64,
    #[serde(alias = "startOffset")]
    so: i64,
    #[serde(alias = "suspend")]
    sp: bool,
    #[serde(alias = "topic")]
    t: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct AckBody {
    #[serde(alias = "ackOffset")]
    ao: i64,
    #[serde(alias = "ackOffsetList", skip_serializing_if = "Vec::is_empty")]
    aol: Vec<i64>,
    #[serde(alias = "brokerName")]
    bn: Option<String>,
    #[serde(alias = "consumerGroup")]
    c: Option<String>,
    #[serde(alias = "popTime")]
    pt: i64,
    #[serde(alias = "queueId")]
    q: i32,
    #[serde(alias = "startOffset")]
    so: i64,
    #[serde(alias = "topic")]
    t: Option<String>,
}

/// A record to be appended: body and encoded properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) body: Vec<u8>,
    pub(crate) properties: Vec<u8>,
}

impl Written {
    fn new(body: &impl Serialize, tag: &str, unique_key: &str, now: i64) -> Self {
        let mut properties = Vec::new();
        append_pair(&mut properties, keys::TAGS, tag);
        append_pair(&mut properties, keys::UNIQ_KEY, unique_key);
        append_pair(&mut properties, keys::TIMER_DELIVER_MS, &now.to_string());
        Self { body: serde_json::to_vec(body).unwrap_or_default(), properties }
    }

    /// The fields of the record in a revive queue.
    pub(crate) fn fields<'a>(
        &'a self,
        topic: &'a str,
        revive_queue: i32,
        host: SocketAddr,
        now: i64,
    ) -> RecordFields<'a> {
        RecordFields {
            topic,
            queue_id: revive_queue,
            flag: 0,
            sys_flag: 0,
            born_timestamp: now,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &self.body,
            properties: &self.properties,
        }
    }
}

/// The record of a checkpoint.
pub(crate) fn checkpoint(made: &Checkpoint, now: i64) -> Written {
    let body = CkBody {
        bn: Some(made.broker.to_string()),
        c: Some(made.group.to_string()),
        d: Some(made.messages.iter().map(|(offset, _)| offset - made.start_offset).collect()),
        it: made.invisible_ms,
        n: made.messages.len() as i64,
        pt: made.pop_time,
        q: made.queue_id,
        revive_time: made.revive_time(),
        so: made.start_offset,
        sp: made.suspended,
        t: Some(made.topic.to_string()),
        ..CkBody::default()
    };
    Written::new(&body, CK_TAG, &format!("{}@{CK_TAG}", made.key()), now)
}

/// What an acknowledgement refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle<'a> {
    pub(crate) topic: &'a str,
    pub(crate) group: &'a str,
    pub(crate) broker: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) start_offset: i64,
    pub(crate) pop_time: i64,
}

impl Handle<'_> {
    /// The checkpoint's name.
    pub(crate) fn key(&self) -> String {
        machine::key(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker,
        )
    }
}

impl<'a> From<&'a Checkpoint> for Handle<'a> {
    fn from(made: &'a Checkpoint) -> Self {
        Self {
            topic: &made.topic,
            group: &made.group,
            broker: &made.broker,
            queue_id: made.queue_id,
            start_offset: made.start_offset,
            pop_time: made.pop_time,
        }
    }
}

/// The record that acknowledges offsets (at least one) of a checkpoint.
pub(crate) fn acknowledgement(handle: &Handle<'_>, offsets: &[i64], now: i64) -> Written {
    let (ao, aol, tag) = match offsets {
        [one] => (*one, Vec::new(), ACK_TAG),
        several => (-1, several.to_vec(), BATCH_ACK_TAG),
    };
    let body = AckBody {
        ao,
        aol,
        bn: Some(handle.broker.to_owned()),
        c: Some(handle.group.to_owned()),
        pt: handle.pop_time,
        q: handle.queue_id,
        so: handle.start_offset,
        t: Some(handle.topic.to_owned()),
    };
    let Handle { topic, group, broker, queue_id, pop_time, .. } = handle;
    let first = offsets.first().copied().unwrap_or(-1);
    let name = format!("{topic}@{queue_id}@{first}@{group}@{pop_time}@{broker}@{tag}");
    Written::new(&body, tag, &name, now)
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    /// Messages were popped.
    Popped(Checkpoint),
    /// Messages of the named checkpoint are acknowledged; its pop time.
    Acked(String, Vec<i64>, i64),
}

/// Reads a record of a revive queue; `None` when it is nothing that counts. `own_name` is meant where an
/// acknowledgement names no broker.
pub(crate) fn read(record: &RecordView<'_>, own_name: &str) -> Option<Read> {
    match record.properties().get(keys::TAGS)? {
        CK_TAG => read_checkpoint(
            serde_json::from_slice(record.body()).ok()?,
            record.queue_offset(),
            own_name,
        ),
        ACK_TAG | BATCH_ACK_TAG => {
            let body: AckBody = serde_json::from_slice(record.body()).ok()?;
            let broker =
                body.bn.filter(|name| !name.is_empty()).unwrap_or_else(|| own_name.to_owned());
            let key = machine::key(&body.t?, &body.c?, body.q, body.so, body.pt, &broker);
            let offsets = if body.aol.is_empty() { vec![body.ao] } else { body.aol };
            Some(Read::Acked(key, offsets, body.pt))
        }
        _ => None,
    }
}

fn read_checkpoint(body: CkBody, revive_offset: i64, own_name: &str) -> Option<Read> {
    // Very old ones list no distances: their messages follow each other.
    let distances =
        body.d.filter(|d| !d.is_empty()).unwrap_or_else(|| (0..body.n.clamp(0, 64)).collect());
    if distances.len() > MAX_MESSAGES || body.it < 0 {
        return None;
    }
    let state =
        |at: usize| if at < 63 && body.bm >> at & 1 == 1 { State::Acked } else { State::Invisible };
    let offset = |distance: &i64| body.so.checked_add(*distance).filter(|offset| *offset >= 0);
    let messages: Option<Vec<_>> = distances
        .iter()
        .enumerate()
        .map(|(at, distance)| Some((offset(distance)?, state(at))))
        .collect();
    Some(Read::Popped(Checkpoint {
        topic: body.t?.into(),
        group: body.c?.into(),
        broker: body
            .bn
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| own_name.to_owned())
            .into(),
        queue_id: body.q,
        start_offset: body.so,
        pop_time: body.pt,
        invisible_ms: body.it,
        messages: messages?,
        suspended: body.sp,
        failures: 0,
        revive_offset,
        next_ms: 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apogee_model::record;

    fn made() -> Checkpoint {
        Checkpoint {
            topic: "TopicPop".into(),
            group: "CG_pop".into(),
            broker: "broker-a".into(),
            queue_id: 1,
            start_offset: 0,
            pop_time: 1_796_053_955_320,
            invisible_ms: 10_000,
            messages: (0..4).map(|offset| (offset, State::Invisible)).collect(),
            suspended: false,
            failures: 0,
            revive_offset: 0,
            next_ms: 0,
        }
    }

    fn stored(written: &Written) -> Vec<u8> {
        let mut bytes = Vec::new();
        let host = SocketAddr::from(([127, 0, 0, 1], 10_911));
        record::encode(&written.fields("rmq_sys_REVIVE_LOG_c", 0, host, 5), &mut bytes).unwrap();
        bytes
    }

    fn read_back(written: &Written) -> Option<Read> {
        read(&RecordView::parse(&stored(written)).unwrap(), "own")
    }

    #[test]
    fn a_checkpoint_is_written_as_the_original_does() {
        let written = checkpoint(&made(), 7);
        let golden = r#"{"bm":0,"bn":"broker-a","c":"CG_pop","d":[0,1,2,3],"it":10000,"n":4,"pt":1796053955320,"q":1,"reviveTime":1796053965320,"ro":0,"so":0,"sp":false,"t":"TopicPop"}"#;
        assert_eq!(String::from_utf8_lossy(&written.body), golden);
        let properties = apogee_model::Properties::new(&written.properties);
        assert_eq!(
            properties.get("UNIQ_KEY"),
            Some("TopicPop@1@0@CG_pop@1796053955320@broker-a@ck")
        );
        assert_eq!(read_back(&written), Some(Read::Popped(made())));
    }

    #[test]
    fn an_acknowledgement_is_written_as_the_original_does() {
        let made = made();
        let written = acknowledgement(&Handle::from(&made), &[2], 7);
        let golden = r#"{"ao":2,"bn":"broker-a","c":"CG_pop","pt":1796053955320,"q":1,"so":0,"t":"TopicPop"}"#;
        assert_eq!(String::from_utf8_lossy(&written.body), golden);
        let properties = apogee_model::Properties::new(&written.properties);
        assert_eq!(
            properties.get("UNIQ_KEY"),
            Some("TopicPop@1@2@CG_pop@1796053955320@broker-a@ack")
        );
        assert_eq!(read_back(&written), Some(Read::Acked(made.key(), vec![2], made.pop_time)));
        let several = acknowledgement(&Handle::from(&made), &[1, 3], 7);
        assert_eq!(read_back(&several), Some(Read::Acked(made.key(), vec![1, 3], made.pop_time)));
    }

    #[test]
    fn long_names_of_older_releases_are_read() {
        let body = r#"{"bitMap":2,"cId":"g","invisibleTime":10,"num":3,"popTime":5,"queueId":1,"startOffset":7,"topic":"t"}"#;
        let Some(Read::Popped(read)) =
            read_checkpoint(serde_json::from_str(body).unwrap(), 3, "own")
        else {
            panic!()
        };
        assert_eq!(
            read.messages,
            [(7, State::Invisible), (8, State::Acked), (9, State::Invisible)]
        );
        assert_eq!((read.broker.as_ref(), read.revive_offset), ("own", 3));
    }

    #[test]
    fn nonsense_counts_for_nothing() {
        for body in [
            r#"{"c":"g","d":[9223372036854775807],"so":1,"t":"t"}"#,
            r#"{"c":"g","it":-5,"t":"t"}"#,
            r#"{"c":"g"}"#,
            r#"{"t":"t"}"#,
        ] {
            assert_eq!(
                read_checkpoint(serde_json::from_str(body).unwrap(), 0, "own"),
                None,
                "{body}"
            );
        }
    }
}
