//! The name server over a socket.

use crate::support::{Broker, config};
use apogee_namesrv::NameServer;
use apogee_net::client::NoService;
use apogee_net::{Client, Limits};
use apogee_protocol::headers::{GetRouteInfoRequestHeader, NoHeader};
use apogee_protocol::{RemotingCommand, RequestCode};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const WAIT: Duration = Duration::from_secs(10);

fn route(topic: &str) -> RemotingCommand {
    let header = GetRouteInfoRequestHeader { topic: topic.into(), ..Default::default() };
    RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_registers_over_a_socket_and_is_gone_when_its_connection_ends() {
    let server = NameServer::start(config(&[("bindAddress", "127.0.0.1"), ("listenPort", "0")]))
        .await
        .unwrap();
    let address = server.addr().to_string();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let client = Client::new(Limits::default(), Arc::new(NoService), stop.clone(), tasks.clone());
    let broker = client.open(&address).await.unwrap();
    let registration = Broker::new("a", 0, "h:1", &["a", "T"]).registration();
    assert_eq!(broker.invoke(registration, WAIT).await.unwrap().code, 0);
    assert_eq!(client.invoke(&address, route("T"), WAIT).await.unwrap().code, 0);
    broker.close();
    // The end of a connection is worked off soon; ask until it was.
    let gone = async {
        while client.invoke(&address, route("T"), WAIT).await.unwrap().code == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, gone).await.unwrap();
    let lists = RemotingCommand::request(RequestCode::GET_BROKER_CLUSTER_INFO, &NoHeader);
    assert_eq!(client.invoke(&address, lists, WAIT).await.unwrap().code, 0);
    stop.cancel();
    tokio::time::timeout(WAIT, server.shutdown()).await.unwrap();
    tasks.close();
    tokio::time::timeout(WAIT, tasks.wait()).await.unwrap();
}

#[test]
fn a_name_server_that_is_only_dropped_does_not_hold_up_its_runtime() {
    let (done, wait) = std::sync::mpsc::channel();
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let settings = config(&[("bindAddress", "127.0.0.1"), ("listenPort", "0")]);
        let server = runtime.block_on(NameServer::start(settings)).unwrap();
        drop(server);
        drop(runtime);
        done.send(()).unwrap();
    });
    wait.recv_timeout(WAIT).unwrap();
    life.join().unwrap();
}
