//! D-07: documents that a power cut left unreadable: the backup counts, and silence never means a replay.

use crate::harness::{Fixture, Peer, store_config, subscription};
use apogee_broker::{Broker, BrokerConfig, Listen};
use apogee_net::Limits;
use apogee_protocol::bodies::{JsonBody, SubscriptionGroupConfig};
use apogee_protocol::headers::NoHeader;
use apogee_protocol::{RequestCode, ResponseCode};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

const DOCUMENTS: [&str; 4] =
    ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"];

/// What a power cut leaves of a file.
fn damages(good: &[u8]) -> [Vec<u8>; 4] {
    [
        vec![0; good.len()],
        Vec::new(),
        good[..good.len() / 2].to_vec(),
        b"{\"dataVersion\":{},".to_vec(),
    ]
}

/// A stopped broker whose documents all have a backup that says the same.
async fn stopped(folder: &Path) {
    let levels =
        |store: &mut apogee_store::StoreConfig| store.message_delay_level = "1s".to_owned();
    for round in 0..2 {
        let fixture = Fixture::open(folder, |_, store| levels(store)).await;
        let peer = fixture.connect().await;
        peer.create_topic(&format!("Made{round}"), 3).await;
        group(&peer, &format!("Group{round}")).await;
        peer.send("T", 0, "x").await;
        peer.commit("CG", "T", 0, 1).await;
        peer.send_with("Late", 0, "DELAY\u{1}1\u{2}", "late").await;
        assert_eq!(peer.pull_all("Late", 0, round, 1).await, ["late"]);
        fixture.stop_wholly().await;
    }
    for name in DOCUMENTS {
        let path = folder.join("config").join(name);
        std::fs::copy(&path, path.with_file_name(format!("{name}.bak"))).unwrap();
    }
}

async fn group(peer: &Peer, name: &str) {
    let config = SubscriptionGroupConfig {
        group_name: name.to_owned(),
        ..SubscriptionGroupConfig::default()
    };
    let code = RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP;
    let answer = peer.ask_with(code, &NoHeader, config.to_raw().into()).await;
    assert_eq!(answer.response_code(), ResponseCode::SUCCESS, "{:?}", answer.remark);
}

async fn start(folder: &Path) -> Result<std::sync::Arc<Broker>, String> {
    let listen =
        Listen { host: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0, limits: Limits::default() };
    Broker::start(BrokerConfig::default(), store_config(folder), listen)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_document_that_cannot_be_read_is_replaced_by_its_backup() {
    let folder = tempfile::tempdir().unwrap();
    stopped(folder.path()).await;
    let config_dir = folder.path().join("config");
    for kind in 0..4 {
        for name in DOCUMENTS {
            let good = std::fs::read(config_dir.join(format!("{name}.bak"))).unwrap();
            std::fs::write(config_dir.join(name), &damages(&good)[kind]).unwrap();
        }
        let fixture = Fixture::open(folder.path(), |config, _| {
            config.auto_create_topic_enable = false;
            config.auto_create_subscription_group = false;
        })
        .await;
        let peer = fixture.connect().await;
        assert_eq!(peer.position("CG", "T", 0).await, Some(1), "damage {kind}");
        for topic in ["Made0", "Made1"] {
            peer.send(topic, 2, "x").await;
        }
        for group in ["Group0", "Group1", "CG"] {
            let joined = peer.join("c1", group, vec![subscription("T", "*", 1)]).await;
            assert_eq!(joined.response_code(), ResponseCode::SUCCESS, "damage {kind} {group}");
        }
        // Nothing is delivered a second time.
        assert_eq!(fixture.broker.store().max_offset("Late", 0), 2, "damage {kind}");
        fixture.stop_wholly().await;
    }
}

#[tokio::test]
async fn a_start_without_a_readable_document_is_refused_by_its_name_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    stopped(folder.path()).await;
    for name in DOCUMENTS {
        let path = folder.path().join("config").join(name);
        let backup = path.with_file_name(format!("{name}.bak"));
        let (good, good_backup) = (std::fs::read(&path).unwrap(), std::fs::read(&backup).unwrap());
        std::fs::write(&path, b"\0\0\0\0").unwrap();
        std::fs::write(&backup, b"{").unwrap();
        let error = start(folder.path()).await.map(|_| ()).unwrap_err();
        assert!(error.contains(name) && error.contains(".bak"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0\0");
        std::fs::write(&path, good).unwrap();
        std::fs::write(&backup, good_backup).unwrap();
    }
    let broker = start(folder.path()).await.unwrap();
    broker.shutdown().await;
}
