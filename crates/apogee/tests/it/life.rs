//! Start, stop and sudden death of a real process.

use crate::process::{Serving, lines, run, said, succeed};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn the_ready_file_names_the_parts_that_exist_and_they_take_connections() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let parts: Vec<&String> = serving.ready().as_object().unwrap().keys().collect();
    assert_eq!(parts, ["namesrv", "broker", "pid"]);
    assert_eq!(serving.ready()["pid"].as_u64(), Some(u64::from(serving.pid())));
    for part in ["namesrv", "broker"] {
        TcpStream::connect(serving.address(part)).unwrap();
    }
    assert!(serving.log().contains("broker is ready"), "{}", serving.log());
}

#[test]
fn sigterm_and_sigint_end_it_with_0_within_two_seconds_even_with_waiting_pulls() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let serving = Serving::start(folder.path(), &[]);
        let name_server = serving.address("namesrv");
        succeed(&name_server, &["send", "Waiting", "x"]);
        // A reader whose pulls wait at the broker while it stops.
        let mut tail = crate::process::apogee()
            .args(["tail", "Waiting", "--from", "first", "--namesrv", &name_server])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut reader = std::io::BufReader::new(tail.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut reader, &mut first).unwrap();
        assert_eq!(first, "x\n");
        let (code, took) = serving.end_by(signal);
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(!folder.path().join("data").join("abort").exists());
        assert!(!folder.path().join("ready.json").exists());
        let _ = tail.kill();
        let _ = tail.wait();
    }
}

#[test]
fn name_server_and_broker_run_as_processes_of_their_own() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let namesrv = Serving::start_as(one.path(), &["namesrv", "--set", "listenPort=0"]);
    assert!(namesrv.ready().get("broker").is_none());
    let address = namesrv.address("namesrv");
    let broker = Serving::start_as(
        two.path(),
        &["broker", "-n", &address, "--host", "127.0.0.1", "--set", "listenPort=0"],
    );
    assert!(broker.ready().get("namesrv").is_none());
    succeed(&address, &["send", "Apart", "x"]);
    let read = succeed(&address, &["tail", "Apart", "--from", "first", "-n", "1"]);
    assert_eq!(lines(&read), ["x"]);
    assert!(two.path().join("store").join("commitlog").exists());
    assert_eq!(broker.end_by("TERM").0, Some(0));
    // It has said goodbye, so the cause is told at once.
    let gone = run(&["send", "Apart", "x", "-n", &address]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(said(&gone).contains("no broker"), "{}", said(&gone));
    assert_eq!(namesrv.end_by("TERM").0, Some(0));
}

#[test]
fn a_clean_stop_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    succeed(&serving.address("namesrv"), &["send", "Kept", "one", "two", "three"]);
    assert_eq!(serving.end_by("TERM").0, Some(0));
    let serving = Serving::start(folder.path(), &[]);
    let read =
        succeed(&serving.address("namesrv"), &["tail", "Kept", "--from", "first", "-n", "3"]);
    let mut words = lines(&read);
    words.sort();
    assert_eq!(words, ["one", "three", "two"]);
}

#[test]
fn kill_9_loses_no_message_that_was_acknowledged_with_sync_flush() {
    let folder = tempfile::tempdir().unwrap();
    let sync = ["--set", "flushDiskType=SYNC_FLUSH"];
    let serving = Serving::start(folder.path(), &sync);
    let name_server = serving.address("namesrv");
    // The load goes on while the server is killed: its report counts what was acknowledged.
    let load = crate::process::apogee()
        .args(["bench", "produce", "--topic", "Killed", "--queues", "2", "--connections", "2"])
        .args(["--in-flight", "32", "--seconds", "20", "--json", "-n", &name_server])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let log = folder.path().join("data/commitlog/00000000000000000000");
    let begin = Instant::now();
    while first_bytes(&log, 400_000).last().is_none_or(|byte| *byte == 0) {
        assert!(begin.elapsed() < Duration::from_secs(30), "the load does not arrive");
        std::thread::sleep(Duration::from_millis(5));
    }
    serving.end_by("KILL");
    let output = load.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let acknowledged = report["messages"].as_u64().unwrap();
    assert!(acknowledged > 0, "{report}");
    let serving = Serving::start(folder.path(), &sync);
    let arguments = ["bench", "consume", "--topic", "Killed", "--json"];
    let read = succeed(&serving.address("namesrv"), &arguments);
    let report: serde_json::Value = serde_json::from_slice(&read.stdout).unwrap();
    let kept = report["messages"].as_u64().unwrap();
    assert!(kept >= acknowledged, "{acknowledged} acknowledged, {kept} kept");
}

/// The last of the first `count` bytes of a file, if it has so many.
fn first_bytes(path: &std::path::Path, count: u64) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let mut byte = vec![0];
    let read = std::fs::File::open(path).and_then(|file| file.read_at(&mut byte, count));
    if read.is_ok_and(|read| read == 1) { byte } else { Vec::new() }
}

#[test]
fn a_port_in_use_is_a_failure_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = folder.path().to_str().unwrap();
    let output = run(&["serve", "--data", data, "--namesrv-port", &port, "--broker-port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&port), "{}", said(&output));
}
