//! The shell of a name server: sockets, clock, one worker for all changes.
//!
//! Reads (routes, lists) are answered on the task of their connection. Changes, ends of connections and
//! looks for expired brokers go through one bounded queue to one thread, so they happen in the order in
//! which they came and may wait for the disk there. At the queue's limit a change is answered SYSTEM_BUSY.
//!
//! Tasks: the server's, one ticker and one worker, all joined by [`NameServer::shutdown`]. Locks: the map of
//! broker connections, held for one insertion or removal.

use crate::config::NamesrvConfig;
use crate::requests::{NamesrvProcessor, Peer, is_change};
use crate::route_table::Command;
use apogee_net::client::NoService;
use apogee_net::{Client, Connection, Limits, OutBuffer, Server, Service};
use apogee_protocol::headers::NotifyMinBrokerIdChangeRequestHeader;
use apogee_protocol::{RemotingCommand, ReplyTo, RequestCode, Response, ResponseCode, Str};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Changes that may wait for the worker.
const MAX_WAITING_CHANGES: usize = 10_000;

/// Why a name server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is wrong.
    #[error("can't listen on {address}: {source}")]
    Address {
        /// The address as set.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The key-value configuration can't be read.
    #[error("the key-value configuration can't be loaded: {0}")]
    KvConfig(std::io::Error),
}

enum Work {
    Request(Arc<Connection>, RemotingCommand),
    Closed(u64),
    Tick,
}

/// A running name server. Dropping it stops it too, without waiting for its tasks.
#[derive(Debug)]
pub struct NameServer {
    addr: SocketAddr,
    processor: Arc<NamesrvProcessor>,
    tasks: TaskTracker,
    /// Cancels all tasks when dropped.
    stop: DropGuard,
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl NameServer {
    /// Starts listening. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the address can't be listened on, or the key-value configuration can't be read.
    pub async fn start(config: NamesrvConfig) -> Result<NameServer, StartError> {
        let address = format!("{}:{}", config.bind_address, config.listen_port);
        let bad = |source| StartError::Address { address: address.clone(), source };
        let socket = apogee_net::client::resolve(&address).await.map_err(bad)?;
        let idle = u64::try_from(config.server_channel_max_idle_time_seconds).unwrap_or(120);
        let limits = Limits { idle: Duration::from_secs(idle.max(1)), ..Limits::default() };
        let server = Server::bind(socket, limits.clone()).map_err(bad)?;
        let tick = Duration::from_millis(
            u64::try_from(config.scan_not_active_broker_interval).unwrap_or(5000).max(10),
        );
        let processor =
            Arc::new(NamesrvProcessor::new(config, now_ms()).map_err(StartError::KvConfig)?);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (work, queue) = mpsc::channel(MAX_WAITING_CHANGES);
        let service = Arc::new(Shell {
            processor: Arc::clone(&processor),
            work: work.downgrade(),
            brokers: Mutex::default(),
            client: Client::new(limits, Arc::new(NoService), stop.clone(), tasks.clone()),
            stop: stop.clone(),
            tasks: tasks.clone(),
        });
        let addr = server.local_addr();
        server.start(Arc::clone(&service) as Arc<dyn Service>, stop.clone(), &tasks);
        tasks.spawn(ticker(work, tick, stop.clone()));
        let runtime = tokio::runtime::Handle::current();
        tasks.spawn_blocking(move || worker(&service, queue, &runtime));
        Ok(NameServer { addr, processor, tasks, stop: stop.drop_guard() })
    }

    /// Where clients and brokers reach it.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// State and rules, for callers in the same process.
    pub fn processor(&self) -> &Arc<NamesrvProcessor> {
        &self.processor
    }

    /// Stops listening, ends all connections, works off the changes that came, and waits for all tasks.
    pub async fn shutdown(self) {
        drop(self.stop);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Asks for a look at expired brokers now and then. Holds the only strong end of the queue: when this task
/// ends, by the token or with its runtime, the worker works off what is left and ends too.
async fn ticker(work: mpsc::Sender<Work>, every: Duration, stop: CancellationToken) {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval.tick().await;
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = stop.cancelled() => return,
        }
        // A full queue means that the worker is behind; it will see the next tick.
        let _ = work.try_send(Work::Tick);
    }
}

fn worker(shell: &Arc<Shell>, mut queue: mpsc::Receiver<Work>, runtime: &tokio::runtime::Handle) {
    let mut commands = Vec::new();
    while let Some(work) = queue.blocking_recv() {
        match work {
            Work::Request(connection, request) => {
                shell.change(&connection, &request, &mut commands)
            }
            Work::Closed(id) => {
                shell.brokers.lock().remove(&id);
                shell.processor.connection_closed(id, &mut commands);
            }
            Work::Tick => shell.processor.tick(now_ms(), &mut commands),
        }
        for command in commands.drain(..) {
            shell.carry_out(command, runtime);
        }
    }
}

struct Shell {
    processor: Arc<NamesrvProcessor>,
    work: mpsc::WeakSender<Work>,
    /// Connections on which brokers registered, to close them when they expire.
    brokers: Mutex<HashMap<u64, Weak<Connection>>>,
    client: Client,
    stop: CancellationToken,
    tasks: TaskTracker,
}

fn peer(connection: &Connection) -> Peer {
    Peer { connection: connection.id(), addr: connection.peer() }
}

impl Shell {
    /// False when the queue is full or the name server stops.
    fn enqueue(&self, work: Work) -> bool {
        self.work.upgrade().is_some_and(|queue| queue.try_send(work).is_ok())
    }

    fn change(
        &self,
        connection: &Arc<Connection>,
        request: &RemotingCommand,
        commands: &mut Vec<Command>,
    ) {
        // A broker whose connection is gone must not register after its end was worked off.
        if connection.is_closed() && request.request_code() == RequestCode::REGISTER_BROKER {
            return;
        }
        if request.request_code() == RequestCode::REGISTER_BROKER {
            self.brokers.lock().insert(connection.id(), Arc::downgrade(connection));
        }
        if let Some(response) =
            self.processor.handle(request, &peer(connection), now_ms(), commands)
        {
            connection.reply(ReplyTo::from(request), response);
        }
    }

    fn carry_out(self: &Arc<Self>, command: Command, runtime: &tokio::runtime::Handle) {
        match command {
            Command::Close { connection } => {
                let known = self.brokers.lock().remove(&connection);
                if let Some(connection) = known.and_then(|weak| weak.upgrade()) {
                    connection.close();
                }
            }
            Command::NotifyMinBrokerId {
                addresses,
                broker_name,
                min_broker_id,
                min_broker_addr,
                offline_broker_addr,
                ha_broker_addr,
            } => {
                let header = NotifyMinBrokerIdChangeRequestHeader {
                    min_broker_id: Some(min_broker_id),
                    broker_name: Some(Str::from(broker_name)),
                    min_broker_addr: Some(Str::from(min_broker_addr)),
                    offline_broker_addr: offline_broker_addr.map(Str::from),
                    ha_broker_addr: ha_broker_addr.map(Str::from),
                };
                let notice =
                    RemotingCommand::request(RequestCode::NOTIFY_MIN_BROKER_ID_CHANGE, &header)
                        .oneway();
                let shell = Arc::clone(self);
                let telling = async move {
                    for address in addresses {
                        shell.notify(&address, &notice).await;
                    }
                };
                let stop = self.stop.clone();
                self.tasks
                    .spawn_on(async move { stop.run_until_cancelled(telling).await }, runtime);
            }
        }
    }

    async fn notify(&self, address: &str, notice: &RemotingCommand) {
        match self.client.connect(address).await {
            Ok(connection) => {
                let mut notice = notice.clone();
                notice.opaque = connection.next_opaque();
                connection.send(&notice);
            }
            Err(error) => {
                tracing::warn!(%address, %error, "broker not told of the changed smallest broker id")
            }
        }
    }
}

impl Service for Shell {
    fn serve(
        &self,
        connection: &Arc<Connection>,
        requests: &mut Vec<RemotingCommand>,
        replies: &mut OutBuffer,
    ) {
        for request in requests.drain(..) {
            let to = ReplyTo::from(&request);
            if request.is_response() {
                continue;
            }
            if !is_change(request.request_code()) {
                // Reads give no commands.
                let response =
                    self.processor.handle(&request, &peer(connection), now_ms(), &mut Vec::new());
                if let Some(response) = response {
                    replies.reply(to, response);
                }
                continue;
            }
            let oneway = request.is_oneway();
            if !self.enqueue(Work::Request(Arc::clone(connection), request)) && !oneway {
                let text = format!(
                    "the name server stops, or {MAX_WAITING_CHANGES} changes wait already: try again"
                );
                replies.reply(to, Response::error(ResponseCode::SYSTEM_BUSY, text));
            }
        }
    }

    fn closed(&self, connection: &Arc<Connection>) {
        let id = connection.id();
        // Losing this would keep a dead broker until it expires, no longer: expiry is the safety net.
        if !self.enqueue(Work::Closed(id)) {
            tracing::debug!(
                connection = id,
                "end of a connection not worked off: the name server is behind or stops"
            );
        }
    }
}
