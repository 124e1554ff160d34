//! The load generators against a real process of ours.

use crate::process::{Serving, succeed};
use serde_json::Value;

fn bench(name_server: &str, arguments: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend_from_slice(arguments);
    all.extend_from_slice(&["--json", "--threads", "2"]);
    serde_json::from_slice(&succeed(name_server, &all).stdout).unwrap()
}

#[test]
fn every_message_that_was_produced_is_consumed_whatever_the_form() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let name_server = serving.address("namesrv");
    let forms: [&[&str]; 3] = [
        &["--messages", "3000"],
        &["--messages", "3000", "--batch", "32", "--connections", "3"],
        &["--messages", "1000", "--header", "rocketmq", "--in-flight", "7", "--size", "1000"],
    ];
    let mut produced = 0;
    for form in forms {
        let mut arguments = vec!["produce", "--topic", "Load", "--queues", "3"];
        arguments.extend_from_slice(form);
        let report = bench(&name_server, &arguments);
        assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
        assert!(report["rate"].as_f64().unwrap() > 0.0);
        assert!(report["latency_us"]["p99"].as_u64().unwrap() > 0);
        produced += report["messages"].as_u64().unwrap();
    }
    assert!(produced >= 7000);
    for batch in ["32", "1000"] {
        let report = bench(&name_server, &["consume", "--topic", "Load", "--pull-batch", batch]);
        assert_eq!(report["messages"].as_u64(), Some(produced), "{report}");
        assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
    }
}

#[test]
fn refusals_are_counted_by_their_code() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &["--set", "maxMessageSize=100"]);
    let output = crate::process::run(&[
        "bench",
        "produce",
        "--topic",
        "Small",
        "--messages",
        "10",
        "--size",
        "200",
        "--json",
        "-n",
        &serving.address("namesrv"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"].as_u64(), Some(10), "{report}");
    let (name, _) = report["errors_by_code"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(name, "MESSAGE_ILLEGAL");
}

#[test]
fn latency_sees_every_message_of_a_steady_rate() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let report = bench(
        &serving.address("namesrv"),
        &["latency", "--topic", "Steady", "--seconds", "1", "--warmup", "0.2", "--rate", "500"],
    );
    assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
    let messages = report["messages"].as_u64().unwrap();
    assert!((480..=500).contains(&messages), "{report}");
    assert!(report["latency_us"]["p50"].as_u64().unwrap() > 0);
    assert!(report["send_latency_us"]["count"].as_u64().unwrap() >= 480);
}
