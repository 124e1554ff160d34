//! N-03 and N-04, the broker's part: name servers that hang, restart or are away delay nobody.

use crate::cases_support::until;
use crate::harness::{Fixture, TIMEOUT};
use apogee_net::{Connection, Limits, OutBuffer, Server, Service};
use apogee_protocol::{RemotingCommand, ReplyTo, RequestCode, Response};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A name server that only notes what brokers tell it; a silent one does not even answer.
struct Noting {
    told: mpsc::UnboundedSender<String>,
    silent: bool,
}

impl Service for Noting {
    fn serve(&self, _: &Arc<Connection>, requests: &mut Vec<RemotingCommand>, out: &mut OutBuffer) {
        for request in requests.drain(..) {
            if request.request_code() == RequestCode::REGISTER_BROKER {
                let _ = self.told.send(String::from_utf8_lossy(&request.body).into_owned());
            }
            if !self.silent {
                out.reply(ReplyTo::from(&request), Response::success());
            }
        }
    }
}

struct NameServer {
    address: SocketAddr,
    told: mpsc::UnboundedReceiver<String>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl NameServer {
    fn start(port: u16, silent: bool) -> Self {
        let (told, received) = mpsc::unbounded_channel();
        let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Server::bind(address, Limits::default()).unwrap();
        let address = server.local_addr();
        server.start(Arc::new(Noting { told, silent }), shutdown.clone(), &tasks);
        Self { address, told: received, shutdown, tasks }
    }

    /// Waits for a registration that names the topic.
    async fn hears_of(&mut self, topic: &str) {
        let heard = async { while !self.told.recv().await.unwrap().contains(topic) {} };
        tokio::time::timeout(TIMEOUT, heard).await.expect("the name server does not hear of it");
    }

    async fn stop(self) -> u16 {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.address.port()
    }
}

#[tokio::test]
async fn a_name_server_that_does_not_answer_delays_no_other() {
    let (silent, mut good) = (NameServer::start(0, true), NameServer::start(0, false));
    let addresses = [&silent, &good].map(|server| server.address.to_string()).to_vec();
    let fixture = Fixture::start_with(|config, _| config.namesrv_addr = addresses).await;
    let peer = fixture.connect().await;
    for topic in ["First", "Second", "Third"] {
        peer.send(topic, 0, "x").await;
        good.hears_of(topic).await;
    }
    drop(silent);
}

#[tokio::test]
async fn a_name_server_that_was_started_again_hears_of_everything_at_once() {
    let mut server = NameServer::start(0, false);
    let addresses = vec![server.address.to_string()];
    let fixture = Fixture::start_with(|config, _| config.namesrv_addr = addresses).await;
    let peer = fixture.connect().await;
    peer.send("Known", 0, "x").await;
    server.hears_of("Known").await;
    let port = server.stop().await;
    peer.send("Meanwhile", 0, "x").await;
    let mut again = None;
    // The port may be taken for a moment by what the old connections leave behind.
    until("the port", || {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free {
            again = Some(NameServer::start(port, false));
        }
        free
    })
    .await;
    let mut again = again.unwrap();
    again.hears_of("Meanwhile").await;
}
