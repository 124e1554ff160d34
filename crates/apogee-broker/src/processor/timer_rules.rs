//! Messages with a delivery time: which are taken, how they are turned to the timer topic, and the
//! handle with which one can be taken back.
//!
//! A delay that is no number, negative, too large or beyond `timerMaxDelaySec` is refused; a time that
//! is over means now. What was turned carries TIMER_OUT_MS, REAL_TOPIC and REAL_QID.

use crate::broker::Broker;
use crate::processor::send_rules::{self, Target};
use apogee_model::PropertyMap;
use apogee_model::names::RETRY_PREFIX;
use apogee_model::properties::{MAX_PROPERTIES_LEN, Properties, keys};
use apogee_protocol::{Response, ResponseCode, Str};
use apogee_store::timer::{self, TIMER_TOPIC};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;

/// Version word of a handle.
const HANDLE_VERSION: &str = "v1";

/// Turns a message with a delivery time to the timer topic. False: it has none, or the time is over,
/// and the message goes on as it is.
pub(crate) fn transform(
    broker: &Broker,
    map: &mut PropertyMap,
    target: &mut Target,
    now: i64,
) -> Result<bool, Response> {
    if target.topic.as_str() == TIMER_TOPIC || map.get(keys::TIMER_OUT_MS).is_some() {
        return Ok(false);
    }
    let asked = [
        (keys::TIMER_DELAY_SEC, Some(1_000)),
        (keys::TIMER_DELAY_MS, Some(1)),
        (keys::TIMER_DELIVER_MS, None),
    ];
    let given = asked.iter().find_map(|(key, unit)| Some((*key, *unit, map.get(key)?.to_owned())));
    let Some((key, unit, value)) = given else { return Ok(false) };
    check_runs(broker)?;
    let limit_ms = broker.store.config().timer_max_delay_sec.saturating_mul(1_000);
    let refuse = |reason: &str| send_rules::illegal(&format!("{key}={value}: {reason}"));
    let number: i64 =
        value.trim().parse().map_err(|_| refuse("a whole number up to 2^63-1 is allowed"))?;
    if number < 0 {
        return Err(refuse("it may not be negative"));
    }
    let deliver = match unit {
        Some(unit) => number.checked_mul(unit).and_then(|delay| delay.checked_add(now)),
        None => Some(number),
    };
    let deliver =
        deliver.filter(|deliver| *deliver <= now.saturating_add(limit_ms)).ok_or_else(|| {
            refuse(&format!("the delay is longer than timerMaxDelaySec allows ({limit_ms} ms)"))
        })?;
    if deliver <= now {
        if map.get(keys::TIMER_DEL_UNIQKEY).is_some() {
            return Err(refuse("a message cannot be taken back when its time is over"));
        }
        return Ok(false);
    }
    let out = timer::out_time(deliver, broker.store.config().timer_precision_ms);
    map.set(keys::TIMER_OUT_MS, out.to_string());
    map.set(keys::REAL_TOPIC, target.topic.as_str());
    map.set(keys::REAL_QID, target.queue_id.to_string());
    let length: usize = map.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let room = MAX_PROPERTIES_LEN - timer::ADDED_PROPERTIES_LEN - broker.added_properties_len;
    if length > room {
        return Err(refuse(&format!(
            "properties have {length} bytes, {room} are allowed with a delivery time"
        )));
    }
    target.topic = Str::from_static(TIMER_TOPIC);
    target.queue_id = 0;
    Ok(true)
}

/// A message must not be accepted to lie where nobody fetches it.
fn check_runs(broker: &Broker) -> Result<(), Response> {
    if !broker.timer.is_enabled() {
        return Err(Response::error(
            ResponseCode::SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        ));
    }
    if !broker.timer.runs() {
        return Err(Response::error(
            ResponseCode::SERVICE_NOT_AVAILABLE,
            "the timer cannot work at the moment, its log tells why; try again or use a delay level",
        ));
    }
    Ok(())
}

/// The handle with which a stored timer message can be taken back.
pub(crate) fn recall_handle(broker: &Broker, stored: &[u8]) -> Option<Str> {
    let properties = Properties::new(stored);
    let topic =
        properties.get(keys::REAL_TOPIC).filter(|topic| !topic.starts_with(RETRY_PREFIX))?;
    let out: i64 = properties.get(keys::TIMER_OUT_MS)?.parse().ok()?;
    let unique = properties.get(keys::UNIQ_KEY)?;
    // One more than the tick's start, so that it falls into the same tick again.
    let text =
        format!("{HANDLE_VERSION} {topic} {} {} {unique}", broker.config.broker_name, out + 1);
    Some(Str::from(URL_SAFE.encode(text)))
}

/// What a handle says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) topic: String,
    pub(crate) broker_name: String,
    pub(crate) deliver_ms: Option<i64>,
    pub(crate) unique_key: String,
}

impl Handle {
    /// Reads a handle; `None` when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let unpadded = text.trim_end_matches('=');
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let text = String::from_utf8(engine.decode(unpadded).ok()?).ok()?;
        let mut words = text.split(' ');
        if words.next() != Some(HANDLE_VERSION) {
            return None;
        }
        let (topic, broker_name) = (words.next()?.to_owned(), words.next()?.to_owned());
        let deliver_ms = words.next()?.parse().ok();
        let unique_key = words.next().filter(|key| !key.is_empty())?.to_owned();
        Some(Self { topic, broker_name, deliver_ms, unique_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_the_original_is_read() {
        let text = "djEgVG9waWNUaW1lciBicm9rZXItYSAxNzk2MDYxMDIwMDAxIDdGMDAwMDAxMDlBNDRFMEUyRjJBOThCRTdBN0IwMDQx";
        let handle = Handle::parse(text).unwrap();
        let expected = Handle {
            topic: "TopicTimer".to_owned(),
            broker_name: "broker-a".to_owned(),
            deliver_ms: Some(1_796_061_020_001),
            unique_key: "7F00000109A44E0E2F2A98BE7A7B0041".to_owned(),
        };
        assert_eq!(handle, expected);
    }

    #[test]
    fn what_is_no_handle_is_told() {
        for text in ["", "=", "%%%", "djE", "djIgYSBiIDEgYw==", "\u{7f}", "djEgYSBiIDEg"] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}
