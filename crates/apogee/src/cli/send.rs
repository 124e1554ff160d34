//! `send`: messages from the command line or from the lines of standard input.
//!
//! Always holds: messages are sent one after another, each to the next queue; the first that is not
//! safely stored ends the command with its reason. Every message carries a unique key, as from the
//! original's clients.

use super::Failure;
use crate::requests::{
    AUTO_CREATE_TOPIC, NEW_TOPIC_QUEUES, Queue, RequestError, Requests, Use, name_servers, now_ms,
    success,
};
use apogee_model::id::UniqueIdMaker;
use apogee_model::properties::{MAX_PROPERTIES_LEN, PropertyMap, keys};
use apogee_protocol::headers::{SendMessageHeader, SendMessageResponseHeader};
use apogee_protocol::{RemotingCommand, RequestCode, Str};
use clap::Args;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How long a send may take; the broker itself waits up to five seconds for its disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of `apogee send`.
#[derive(Debug, Clone, Args)]
pub(super) struct Send {
    /// Topic
    topic: String,
    /// Bodies, one message each; - or nothing reads standard input, one message a line
    #[arg(value_name = "BODY")]
    bodies: Vec<String>,
    /// Name servers, host:port;host:port [default: NAMESRV_ADDR, else 127.0.0.1:9876]
    #[arg(short = 'n', long)]
    namesrv: Option<String>,
    /// Tag
    #[arg(short, long)]
    tag: Option<String>,
    /// Key to find the message by; may be repeated
    #[arg(short, long)]
    key: Vec<String>,
    /// Delay level, 1 to 18 for 1s 5s 10s 30s 1m 2m … 10m 20m 30m 1h 2h
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    delay: Option<u32>,
    /// Property of the message; may be repeated
    #[arg(short, long, value_name = "NAME=VALUE")]
    property: Vec<String>,
    /// Producer group
    #[arg(short, long, default_value = "apogee-send")]
    group: String,
}

impl Send {
    pub(super) async fn run(self) -> Result<(), Failure> {
        apogee_model::names::validate_topic(&self.topic)
            .map_err(|error| Failure::Usage(format!("topic {}: {error}", self.topic)))?;
        let properties = self.properties()?;
        let requests = Requests::new(&name_servers(self.namesrv.as_deref()));
        let queues = requests.queues(&self.topic, Use::Send).await?;
        let ip = crate::settings::address::advertised().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let hash = (now_ms() & 0xFFFF_FFFF) as u32;
        let ids = UniqueIdMaker::new(ip, std::process::id(), hash);
        let mut turn = queues.iter().cycle().skip(now_ms() as usize % queues.len().max(1));
        for body in self.messages() {
            let body = body.map_err(|error| Failure::Failed(format!("standard input: {error}")))?;
            let Some(queue) = turn.next() else { break };
            let stored = self.send_one(&requests, queue, &properties, &ids, body).await?;
            super::say(format_args!(
                "{} {}/{} offset {}",
                stored.msg_id, queue.broker, stored.queue_id, stored.queue_offset
            ));
        }
        Ok(())
    }

    fn messages(&self) -> Box<dyn Iterator<Item = std::io::Result<Vec<u8>>> + '_> {
        let from_lines = self.bodies.is_empty()
            || (self.bodies.len() == 1 && self.bodies.iter().any(|b| b == "-"));
        if from_lines {
            let lines = std::io::BufRead::split(std::io::BufReader::new(std::io::stdin()), b'\n');
            return Box::new(lines.map(|line| {
                line.map(|mut line| {
                    if line.last() == Some(&b'\r') {
                        line.pop();
                    }
                    line
                })
            }));
        }
        Box::new(self.bodies.iter().map(|body| Ok(body.clone().into_bytes())))
    }

    fn properties(&self) -> Result<PropertyMap, Failure> {
        let mut properties = PropertyMap::new();
        for pair in &self.property {
            match pair.split_once('=') {
                Some((name, value)) if !name.is_empty() => properties.set(name, value),
                _ => return Err(Failure::Usage(format!("--property {pair}: write name=value"))),
            }
        }
        properties.set(keys::WAIT, "true");
        if let Some(tag) = &self.tag {
            properties.set(keys::TAGS, tag.as_str());
        }
        if !self.key.is_empty() {
            properties.set(keys::KEYS, self.key.join(" "));
        }
        if let Some(level) = self.delay {
            properties.set(keys::DELAY, level.to_string());
        }
        let has_separator = |text: &str| text.contains(['\u{1}', '\u{2}']);
        if let Some((name, _)) =
            properties.iter().find(|(n, v)| has_separator(n) || has_separator(v))
        {
            return Err(Failure::Usage(format!(
                "property {name}: the characters 1 and 2 cannot be sent"
            )));
        }
        Ok(properties)
    }

    async fn send_one(
        &self,
        requests: &Requests,
        queue: &Queue,
        properties: &PropertyMap,
        ids: &UniqueIdMaker,
        body: Vec<u8>,
    ) -> Result<SendMessageResponseHeader, Failure> {
        let mut properties = properties.clone();
        properties.set(keys::UNIQ_KEY, ids.next(ms_in_month()));
        let encoded = properties.encode();
        if encoded.len() > MAX_PROPERTIES_LEN {
            let text =
                format!("properties of {} bytes are above {MAX_PROPERTIES_LEN}", encoded.len());
            return Err(Failure::Usage(text));
        }
        let header = SendMessageHeader {
            producer_group: self.group.as_str().into(),
            topic: self.topic.as_str().into(),
            default_topic: AUTO_CREATE_TOPIC.into(),
            default_topic_queue_nums: NEW_TOPIC_QUEUES,
            queue_id: queue.id,
            born_timestamp: now_ms().cast_signed(),
            properties: Some(Str::from(String::from_utf8_lossy(&encoded).into_owned())),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            batch: Some(false),
            ..SendMessageHeader::default()
        };
        let request = RemotingCommand::request(RequestCode::SEND_MESSAGE_V2, &header).body(body);
        let answer = requests.ask_any(&queue.broker, &queue.address, request, PATIENCE).await?;
        let who = format!("broker {} ({})", queue.broker, queue.address);
        let answer = success(&who, answer)?;
        answer
            .header()
            .map_err(|error| RequestError::Unreadable { who, why: error.to_string() }.into())
    }
}

/// As the unique keys of the original count: from the local month's first day.
fn ms_in_month() -> u32 {
    let now = jiff::ZonedDateTime::now();
    let hours = (i64::from(now.day()) - 1) * 24 + i64::from(now.hour());
    let seconds = (hours * 60 + i64::from(now.minute())) * 60 + i64::from(now.second());
    u32::try_from(seconds * 1000 + i64::from(now.millisecond())).unwrap_or(0)
}
