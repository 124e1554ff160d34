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

/// Asks a broker as `mqadmin` does; the answer's code and remark.
fn ask(broker: &str, code: i32, body: &str) -> (i64, String, String) {
    use std::io::{Read, Write};
    let header = format!(
        "{{\"code\":{code},\"flag\":0,\"language\":\"JAVA\",\"opaque\":1,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}}"
    );
    let length = u32::try_from(4 + header.len() + body.len()).unwrap();
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&u32::try_from(header.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(header.as_bytes());
    frame.extend_from_slice(body.as_bytes());
    let mut stream = std::net::TcpStream::connect(broker).unwrap();
    stream.write_all(&frame).unwrap();
    let mut word = [0; 4];
    stream.read_exact(&mut word).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(word) as usize];
    stream.read_exact(&mut answer).unwrap();
    let header_len = (u32::from_be_bytes(answer[..4].try_into().unwrap()) & 0x00FF_FFFF) as usize;
    let header: serde_json::Value = serde_json::from_slice(&answer[4..4 + header_len]).unwrap();
    let remark = header["remark"].as_str().unwrap_or_default().to_owned();
    let body = String::from_utf8(answer[4 + header_len..].to_vec()).unwrap();
    (header["code"].as_i64().unwrap(), remark, body)
}

const UPDATE_BROKER_CONFIG: i32 = 25;
const GET_BROKER_CONFIG: i32 = 26;
const INVALID_PARAMETER: i64 = 29;
const NO_PERMISSION: i64 = 16;

#[test]
fn what_changes_at_run_time_is_in_the_file_and_counts_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "# ours\ntraceOn = true\nmessageDelayLevel = 1s 5s 10s\n").unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let serving = Serving::start(folder.path(), &arguments);
    let (code, remark, _) =
        ask(&serving.address("broker"), UPDATE_BROKER_CONFIG, "traceOn=false\ndeleteWhen=03;15\n");
    assert_eq!((code, remark.as_str()), (0, ""));
    let (_, _, all) = ask(&serving.address("broker"), GET_BROKER_CONFIG, "");
    let port = serving.address("broker").rsplit_once(':').unwrap().1.to_owned();
    for line in [
        "traceOn=false",
        "deleteWhen=03;15",
        "messageDelayLevel=1s 5s 10s",
        &format!("listenPort={port}"),
    ] {
        assert!(all.lines().any(|shown| shown == line), "{line}");
    }
    drop(serving);
    let saved = std::fs::read_to_string(&file).unwrap();
    assert_eq!(saved, "# ours\ntraceOn=false\nmessageDelayLevel = 1s 5s 10s\ndeleteWhen=03;15\n");
    assert!(folder.path().join("broker.conf.bak").exists());
    let again = Serving::start(folder.path(), &arguments);
    let (_, _, all) = ask(&again.address("broker"), GET_BROKER_CONFIG, "");
    assert!(all.lines().any(|shown| shown == "traceOn=false"));
}

#[test]
fn no_update_runs_a_command_moves_a_file_or_cuts_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.conf");
    std::fs::write(&file, "traceOn = true\n").unwrap();
    let serving = Serving::start(folder.path(), &["--config", file.to_str().unwrap()]);
    let mark = folder.path().join("run");
    let shell = format!("$(touch {0}) `touch {0}`;touch {0}", mark.display());
    for (key, expected) in [
        ("rocketmqHome", NO_PERMISSION),
        ("brokerConfigPath", NO_PERMISSION),
        ("configBlackList", NO_PERMISSION),
        ("storePathRootDir", INVALID_PARAMETER),
        ("storePathCommitLog", INVALID_PARAMETER),
        ("kvConfigPath", INVALID_PARAMETER),
        ("namesrvAddr", INVALID_PARAMETER),
        ("regionId", INVALID_PARAMETER),
        ("noSuchKey", INVALID_PARAMETER),
    ] {
        let (code, remark, _) =
            ask(&serving.address("broker"), UPDATE_BROKER_CONFIG, &format!("{key}={shell}\n"));
        assert_eq!(code, expected, "{key}: {remark}");
        assert!(remark.contains(key), "{key}: {remark}");
    }
    let (code, remark, _) =
        ask(&serving.address("broker"), UPDATE_BROKER_CONFIG, "messageDelayLevel=1s 2s 3s\n");
    assert_eq!(code, INVALID_PARAMETER);
    assert!(remark.contains("messageDelayLevel=1s 2s 3s"), "{remark}");
    assert!(!mark.exists());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "traceOn = true\n");
}
