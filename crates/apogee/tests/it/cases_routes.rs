//! Why a command finds no way to a topic: each cause has words of its own.

use crate::cases_support::{Peer, until};
use crate::process::{Serving, lines, run, said, succeed};
use std::collections::BTreeSet;

fn failed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn failed_with(word: &str, arguments: &[&str]) -> String {
    until(word, || {
        let text = failed(arguments);
        if text.contains(word) { Ok(text) } else { Err(text) }
    })
}

/// N-04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cause_of_no_route_is_named_distinctly() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let namesrv = Serving::start_as(one.path(), &["namesrv", "--set", "listenPort=0"]);
    let address = namesrv.address("namesrv");
    let mut texts = vec![
        failed_with("cannot be resolved", &["send", "T", "x", "-n", "no-such-host.invalid:9876"]),
        failed_with("cannot connect", &["send", "T", "x", "-n", "127.0.0.1:1"]),
    ];
    // No broker has come yet.
    texts.push(failed(&["send", "T", "x", "-n", &address]));
    let broker = Serving::start_as(
        two.path(),
        &["broker", "-n", &address, "--host", "127.0.0.1", "--set", "listenPort=0"],
    );
    succeed(&address, &["send", "Known", "x"]);
    texts.push(failed_with("does not exist", &["tail", "Unknown", "--namesrv", &address]));
    let peer = Peer::connect(&broker.address("broker")).await;
    peer.create_topic("ReadOnly", 4).await;
    peer.create_topic("WriteOnly", 2).await;
    texts.push(failed_with("permissions", &["send", "ReadOnly", "x", "-n", &address]));
    let tail = ["tail", "WriteOnly", "-n", "1", "--namesrv", &address];
    texts.push(failed_with("permissions", &tail));
    broker.end_by("KILL");
    // The name server sees the connection end.
    texts.push(failed_with("no broker", &["send", "Known", "x", "-n", &address]));
    let distinct: BTreeSet<&String> = texts.iter().collect();
    assert_eq!(distinct.len(), texts.len(), "{texts:#?}");
    for text in &texts {
        assert!(!text.to_lowercase().contains("exception") && text.trim().len() > 20, "{text}");
    }
}

/// N-04: a broker that tells clients an address where nobody listens.
#[test]
fn a_broker_that_cannot_be_reached_is_named_with_its_address() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let namesrv = Serving::start_as(one.path(), &["namesrv", "--set", "listenPort=0"]);
    let address = namesrv.address("namesrv");
    let _broker = Serving::start_as(
        two.path(),
        &[
            "broker",
            "-n",
            &address,
            "--set",
            "bindAddress=127.0.0.1",
            "--set",
            "listenPort=0",
            "--set",
            "brokerIP1=127.0.0.77",
        ],
    );
    let text = failed_with("cannot be reached", &["send", "T", "x", "-n", &address]);
    assert!(text.contains("127.0.0.77"), "{text}");
}

/// N-05: as with the original, a topic made by a send is on the broker that got the message; creating
/// it brings it to all.
#[test]
fn a_topic_made_by_a_send_is_on_one_broker_and_a_created_one_is_on_all() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let namesrv = Serving::start_as(folders[0].path(), &["namesrv", "--set", "listenPort=0"]);
    let address = namesrv.address("namesrv");
    let brokers: Vec<Serving> = ["a", "b"]
        .iter()
        .zip(&folders[1..])
        .map(|(name, folder)| {
            let name = format!("brokerName=broker-{name}");
            let arguments = ["broker", "-n", &address, "--host", "127.0.0.1"];
            let settings = ["--set", "listenPort=0", "--set", &name];
            Serving::start_as(folder.path(), &[&arguments[..], &settings[..]].concat())
        })
        .collect();
    let brokers_of = |topic: &str, count: usize| -> BTreeSet<String> {
        let mut arguments = vec!["send", topic];
        arguments.extend(std::iter::repeat_n("x", count));
        let sent = lines(&succeed(&address, &arguments));
        assert_eq!(sent.len(), count);
        let broker = |line: &String| line.split(['/', ' ']).nth(1).unwrap().to_owned();
        sent.iter().map(broker).collect()
    };
    let first = brokers_of("BySend", 1);
    // Until the broker has told of it, sends would take the way of a new topic.
    let tail = ["tail", "BySend", "--from", "first", "-n", "1", "--namesrv", &address];
    until("the route", || {
        let output = run(&tail);
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    });
    assert_eq!(brokers_of("BySend", 8), first);
    let create =
        ["bench", "produce", "--topic", "Made", "--queues", "2", "--messages", "10", "--json"];
    succeed(&address, &create);
    // Each broker tells the name server on its own.
    until("the second broker", || match brokers_of("Made", 8) {
        used if used.len() == 2 => Ok(()),
        used => Err(format!("{used:?}")),
    });
    drop(brokers);
}
