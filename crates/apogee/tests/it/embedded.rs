//! The library half: a server in this process.

use apogee::{ServeOptions, Server, ServerError};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_run_side_by_side_on_free_ports_and_stop() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Server::start(ServeOptions::new(one.path())).await.unwrap();
    let second = Server::start(ServeOptions::new(two.path())).await.unwrap();
    let ports: std::collections::BTreeSet<u16> = [&first, &second]
        .iter()
        .flat_map(|server| [server.namesrv_addr(), server.broker_addr()])
        .map(|address| address.port())
        .collect();
    assert_eq!(ports.len(), 4);
    assert!(!ports.contains(&0));
    let begin = Instant::now();
    first.shutdown().await;
    second.shutdown().await;
    assert!(begin.elapsed() < Duration::from_secs(4));
    assert!(one.path().join("config").join("topics.json").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_and_a_wrong_setting_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(ServeOptions::new(folder.path())).await.unwrap();
    let taken = Server::start(ServeOptions::new(folder.path())).await.unwrap_err();
    assert!(matches!(taken, ServerError::Broker(_)), "{taken}");
    server.shutdown().await;
    let again = Server::start(ServeOptions::new(folder.path())).await.unwrap();
    again.shutdown().await;
    let wrong = ServeOptions::new(folder.path()).set("brokerNam", "b");
    let error = Server::start(wrong).await.unwrap_err().to_string();
    assert!(error.contains("did you mean brokerName?"), "{error}");
}
