//! Settings as the program reads them.

use crate::process::{Serving, apogee, lines, said};
use std::process::Output;

fn print(config: &str, name: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, config).unwrap();
    apogee()
        .args(["broker", "-p", "-c"])
        .arg(&file)
        .args(more)
        .env("HOME", "/home/somebody")
        .env("NAMESRV_ADDR", "from-environment:1")
        .output()
        .unwrap()
}

fn value<'a>(printed: &'a [String], key: &str) -> &'a str {
    let line = printed.iter().find(|line| line.starts_with(&format!("{key}=")));
    line.unwrap().split_once('=').unwrap().1
}

const BROKER_CONF: &str = "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n\
    deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n\
    brokerIP1=192.0.2.1\nstorePathRootDir=${user.home}/rocketmq/store\n";

#[test]
fn the_originals_broker_conf_is_read_and_printed_with_effective_values() {
    let output = print(BROKER_CONF, "broker.conf", &["--set", "fileReservedTime=12"]);
    assert!(output.status.success(), "{}", said(&output));
    let printed = lines(&output);
    for (key, expected) in [
        ("fileReservedTime", "12"),
        ("storePathRootDir", "/home/somebody/rocketmq/store"),
        ("brokerIP1", "192.0.2.1"),
        ("namesrvAddr", "from-environment:1"),
        ("maxMessageSize", "4194304"),
        ("listenPort", "10911"),
    ] {
        assert_eq!(value(&printed, key), expected, "{key}");
    }
}

#[test]
fn toml_means_the_same_as_properties() {
    let toml = "brokerName = \"t\"\nbrokerIP1 = \"192.0.2.1\"\n[store]\nfileReservedTime = 9\n\
                flushDiskType = \"SYNC_FLUSH\"\n[server]\nlistenPort = 20911\n";
    let printed = lines(&print(toml, "broker.toml", &["-n", "given:1"]));
    for (key, expected) in [
        ("brokerName", "t"),
        ("fileReservedTime", "9"),
        ("flushDiskType", "SYNC_FLUSH"),
        ("listenPort", "20911"),
        ("namesrvAddr", "given:1"),
    ] {
        assert_eq!(value(&printed, key), expected, "{key}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_and_unknown_keys_can_be_allowed() {
    let config = format!("{BROKER_CONF}flushDiskTyp=SYNC_FLUSH\nfileReservedTime=many\n");
    let output = print(&config, "broker.conf", &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = said(&output);
    assert!(text.contains("did you mean flushDiskType?"), "{text}");
    assert!(text.contains("fileReservedTime=many"), "{text}");
    assert!(text.contains("broker.conf"), "{text}");
    let unknown = format!("{BROKER_CONF}myOwnKey=1\n");
    assert_eq!(print(&unknown, "broker.conf", &[]).status.code(), Some(2));
    let allowed = print(&unknown, "broker.conf", &["--allow-unknown-keys"]);
    assert!(allowed.status.success(), "{}", said(&allowed));
}

#[test]
fn keys_without_effect_are_named_once_at_start_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(
        folder.path(),
        &["--set", "sendMessageThreadPoolNums=4", "--set", "pullMessageThreadPoolNums=4"],
    );
    let log = serving.log();
    let named: Vec<&str> =
        log.lines().filter(|line| line.contains("sendMessageThreadPoolNums")).collect();
    assert_eq!(named.len(), 1, "{log}");
    assert!(
        named[0].contains("pullMessageThreadPoolNums") && named[0].contains("runtime"),
        "{log}"
    );
}

#[test]
fn a_setting_for_the_stores_folder_wins_over_the_data_option() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("elsewhere");
    let setting = format!("storePathRootDir={}", store.display());
    let _serving = Serving::start(folder.path(), &["--set", &setting]);
    assert!(store.join("commitlog").exists());
    assert!(!folder.path().join("data").join("commitlog").exists());
}
