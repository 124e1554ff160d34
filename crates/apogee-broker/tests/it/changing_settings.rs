//! Settings that tools change while the broker runs.

use crate::harness::{Fixture, Peer, send_header};
use apogee_broker::{BrokerConfig, ChangeRefused, Changed, SettingsChange};
use apogee_protocol::bodies::{JsonBody, TopicConfigAndMappingSerializeWrapper, read_properties};
use apogee_protocol::headers::NoHeader;
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};
use apogee_store::{Retention, StoreConfig};
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// Takes three keys.
#[derive(Debug, Default)]
struct Known(Mutex<BrokerConfig>);

impl SettingsChange for Known {
    fn change(&self, pairs: &[(String, String)]) -> Result<Changed, ChangeRefused> {
        let mut now = self.0.lock().unwrap();
        let mut next = now.clone();
        for (key, value) in pairs {
            match key.as_str() {
                "traceOn" => next.trace_on = value == "true",
                "autoCreateTopicEnable" => next.auto_create_topic_enable = value == "true",
                "brokerPermission" => next.broker_permission = value.parse().unwrap(),
                "configBlackList" => return Err(ChangeRefused::Forbidden("no".to_owned())),
                other => return Err(ChangeRefused::Invalid(format!("unknown key {other}"))),
            }
        }
        *now = next.clone();
        Ok(Changed {
            broker: next,
            retention: Retention::of(&StoreConfig::new("/x")),
            notes: Vec::new(),
        })
    }

    fn all(&self) -> Vec<(String, String)> {
        let now = self.0.lock().unwrap();
        vec![
            ("listenPort".to_owned(), "0".to_owned()),
            ("traceOn".to_owned(), now.trace_on.to_string()),
        ]
    }
}

async fn start() -> (Fixture, Peer) {
    let fixture =
        Fixture::start_with(|broker, _| broker.settings = Some(Arc::new(Known::default()))).await;
    let peer = fixture.connect().await;
    (fixture, peer)
}

async fn update(peer: &Peer, text: &str) -> RemotingCommand {
    peer.ask_with(
        RequestCode::UPDATE_BROKER_CONFIG,
        &NoHeader,
        Bytes::copy_from_slice(text.as_bytes()),
    )
    .await
}

async fn shown(peer: &Peer, key: &str) -> String {
    let answer = peer.ask(RequestCode::GET_BROKER_CONFIG, &NoHeader).await;
    let pairs = read_properties(std::str::from_utf8(&answer.body).unwrap());
    pairs.into_iter().find(|(known, _)| known == key).map(|(_, value)| value).unwrap()
}

#[tokio::test]
async fn a_new_value_counts_for_the_next_request_and_is_shown() {
    let (fixture, peer) = start().await;
    let traced = async |peer: &Peer| {
        let answer = peer.try_send(&send_header("T", 0, ""), b"x").await;
        answer.ext.get("TRACE_ON").map(str::to_owned)
    };
    assert_eq!(traced(&peer).await.as_deref(), Some("true"));
    assert_eq!(update(&peer, "traceOn=false\n").await.response_code(), ResponseCode::SUCCESS);
    assert_eq!(traced(&peer).await.as_deref(), Some("false"));
    assert_eq!(shown(&peer, "traceOn").await, "false");
    assert_eq!(shown(&peer, "listenPort").await, fixture.broker.address().port().to_string());
}

#[tokio::test]
async fn refusals_have_their_codes_and_change_nothing() {
    let (_fixture, peer) = start().await;
    let answer = update(&peer, "traceOn=false\nconfigBlackList=x\n").await;
    assert_eq!(answer.response_code(), ResponseCode::NO_PERMISSION);
    let answer = update(&peer, "traceOn=false\nnoSuchKey=1\n").await;
    assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER);
    assert_eq!(answer.remark.as_deref(), Some("unknown key noSuchKey"));
    let answer = peer
        .ask_with(RequestCode::UPDATE_BROKER_CONFIG, &NoHeader, Bytes::from_static(b"\xff=1"))
        .await;
    assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER);
    assert_eq!(shown(&peer, "traceOn").await, "true");
    assert_eq!(update(&peer, "").await.response_code(), ResponseCode::SUCCESS);
}

#[tokio::test]
async fn a_broker_without_write_permission_takes_no_sends_and_says_so_to_name_servers() {
    let (_fixture, peer) = start().await;
    let version = async |peer: &Peer| {
        let answer = peer.ask(RequestCode::GET_ALL_TOPIC_CONFIG, &NoHeader).await;
        TopicConfigAndMappingSerializeWrapper::from_json(&answer.body).unwrap().data_version
    };
    peer.send("T", 0, "x").await;
    let before = version(&peer).await;
    assert_eq!(update(&peer, "brokerPermission=4\n").await.response_code(), ResponseCode::SUCCESS);
    let answer = peer.try_send(&send_header("T", 0, ""), b"x").await;
    assert_eq!(answer.response_code(), ResponseCode::NO_PERMISSION);
    assert_eq!(peer.pull("T", 0, 0).await.bodies().len(), 1);
    assert_ne!(version(&peer).await, before);
    assert_eq!(update(&peer, "brokerPermission=6\n").await.response_code(), ResponseCode::SUCCESS);
    peer.send("T", 0, "y").await;
}

#[tokio::test]
async fn topics_are_no_longer_made_by_sends_once_that_is_off() {
    let (_fixture, peer) = start().await;
    peer.send("T", 0, "x").await;
    update(&peer, "autoCreateTopicEnable=false\n").await;
    let answer = peer.try_send(&send_header("U", 0, ""), b"x").await;
    assert_eq!(answer.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    peer.send("T", 0, "y").await;
}

#[tokio::test]
async fn a_broker_whose_settings_nobody_knows_says_that_they_are_fixed() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    let answer = update(&peer, "traceOn=false\n").await;
    assert_eq!(answer.response_code(), ResponseCode::INVALID_PARAMETER);
}
