//! The server in this process: name server and broker wired together, for the program and for tests.
//!
//! What always holds: parts start in the order in which they need each other and stop in the reverse
//! order; when [`Server::start`] returns, requests are accepted and the broker has been registered with the
//! name server of this process. Tasks run on the runtime that `start` was called on.

use crate::settings::sections::Endpoint;
use crate::settings::{Program, RunningSettings, Settings, SettingsError, Source};
use apogee_broker::{Broker, BrokerConfig, BrokerError, Listen};
use apogee_namesrv::{NameServer, NamesrvConfig, StartError};
use apogee_net::Limits;
use apogee_store::StoreConfig;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The name server did not start.
    #[error("the name server did not start: {0}")]
    NameServer(#[from] StartError),
    /// The broker did not start.
    #[error("the broker did not start: {0}")]
    Broker(#[from] BrokerError),
    /// The data folder cannot be made.
    #[error("folder {path} cannot be made: {source}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What a server with all parts needs to know.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Folder of all data: the store's root unless `storePathRootDir` says another, and the name server's
    /// documents in `namesrv` below it.
    pub data: PathBuf,
    /// Address to listen on and to tell clients.
    pub host: IpAddr,
    /// Port of the name server; 0 = any free one.
    pub namesrv_port: u16,
    /// Port of the broker; 0 = any free one. The fast port is two below.
    pub broker_port: u16,
    /// Settings by the original's keys.
    pub settings: Source,
    /// Whether unknown keys are only a warning.
    pub allow_unknown_keys: bool,
}

impl ServeOptions {
    /// A server for this machine alone, on free ports, with its data in `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            namesrv_port: 0,
            broker_port: 0,
            settings: Source::new(),
            allow_unknown_keys: false,
        }
    }

    /// The same with one more setting.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.put(key, value, "options");
        self
    }
}

/// A broker that is configured but not started.
#[derive(Debug, Clone)]
pub(crate) struct BrokerPart {
    pub(crate) broker: BrokerConfig,
    pub(crate) store: StoreConfig,
    pub(crate) endpoint: Endpoint,
    pub(crate) limits: Limits,
}

/// What is configured but not started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(crate) namesrv: Option<NamesrvConfig>,
    pub(crate) broker: Option<BrokerPart>,
}

impl Parts {
    /// Everything in one process.
    pub(crate) fn everything(options: ServeOptions) -> Result<(Self, Settings), ServerError> {
        let ServeOptions { data, host, namesrv_port, broker_port, settings, allow_unknown_keys } =
            options;
        let settings = Settings::check(settings, Program::Everything, allow_unknown_keys)?;
        let limits = settings.limits()?;
        let endpoint = settings.endpoint(host, broker_port)?;
        let name_server =
            Endpoint { bind_address: endpoint.bind_address, listen_port: namesrv_port };
        let namesrv = settings.namesrv(name_server, &limits, &data.join("namesrv"))?;
        let store = settings.store(data)?;
        let ip = (!host.is_unspecified()).then_some(host);
        let mut broker = settings.broker(Program::Everything, endpoint, &store, ip)?;
        let running = RunningSettings::new(&settings, &broker, &store, &endpoint, &limits);
        broker.settings = Some(running);
        let broker = BrokerPart { broker, store, endpoint, limits };
        Ok((Self { namesrv: Some(namesrv), broker: Some(broker) }, settings))
    }
}

/// A running server with all parts.
#[derive(Debug)]
pub struct Server {
    running: Running,
    namesrv: SocketAddr,
    broker: SocketAddr,
}

impl Server {
    /// Starts name server and broker. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When a setting is wrong, a port is in use, or the store or a document cannot be opened.
    pub async fn start(options: ServeOptions) -> Result<Self, ServerError> {
        let (parts, settings) = Parts::everything(options)?;
        for note in settings.notes() {
            tracing::info!("{note}");
        }
        let running = Running::start(parts).await?;
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let (namesrv, broker) = (running.namesrv_addr(), running.broker_addr());
        Ok(Self { running, namesrv: namesrv.unwrap_or(nowhere), broker: broker.unwrap_or(nowhere) })
    }

    /// Where clients find the name server.
    #[must_use]
    pub fn namesrv_addr(&self) -> SocketAddr {
        self.namesrv
    }

    /// The broker's address as clients are told it.
    #[must_use]
    pub fn broker_addr(&self) -> SocketAddr {
        self.broker
    }

    /// Stops everything: answers what waits, saves and flushes all, ends all connections.
    pub async fn shutdown(self) {
        self.running.shutdown().await;
    }
}

/// The parts of this process that run.
#[derive(Debug)]
pub(crate) struct Running {
    namesrv: Option<NameServer>,
    broker: Option<Arc<Broker>>,
}

impl Running {
    pub(crate) async fn start(parts: Parts) -> Result<Self, ServerError> {
        let mut running = Self { namesrv: None, broker: None };
        if let Some(mut config) = parts.namesrv {
            make_parent(&config.kv_config_path)?;
            // The address is put together with the port by a colon.
            if config.bind_address.contains(':') {
                config.bind_address = format!("[{}]", config.bind_address);
            }
            running.namesrv = Some(NameServer::start(config).await?);
        }
        if let Some(part) = parts.broker {
            match start_broker(part, running.namesrv_addr()).await {
                Ok(broker) => running.broker = Some(broker),
                Err(error) => {
                    running.shutdown().await;
                    return Err(error);
                }
            }
        }
        Ok(running)
    }

    /// Where clients find the name server, if there is one.
    pub(crate) fn namesrv_addr(&self) -> Option<SocketAddr> {
        self.namesrv.as_ref().map(|namesrv| reachable(namesrv.addr()))
    }

    /// The broker's address as clients are told it, if there is one.
    pub(crate) fn broker_addr(&self) -> Option<SocketAddr> {
        let broker = self.broker.as_ref()?;
        Some(SocketAddr::new(broker.config().broker_ip1, broker.address().port()))
    }

    /// Stops in the reverse order of the start.
    pub(crate) async fn shutdown(self) {
        if let Some(broker) = self.broker {
            broker.shutdown().await;
        }
        if let Some(namesrv) = self.namesrv {
            namesrv.shutdown().await;
        }
    }
}

async fn start_broker(
    part: BrokerPart,
    namesrv: Option<SocketAddr>,
) -> Result<Arc<Broker>, ServerError> {
    let BrokerPart { mut broker, store, endpoint, limits } = part;
    if let Some(own) = namesrv.map(|address| address.to_string())
        && !broker.namesrv_addr.contains(&own)
    {
        broker.namesrv_addr.insert(0, own);
    }
    let root = &store.store_path_root_dir;
    std::fs::create_dir_all(root)
        .map_err(|source| ServerError::Folder { path: root.clone(), source })?;
    let listen = Listen { host: endpoint.bind_address, port: endpoint.listen_port, limits };
    Ok(Broker::start(broker, store, listen).await?)
}

fn make_parent(file: &str) -> Result<(), ServerError> {
    match std::path::Path::new(file).parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::fs::create_dir_all(folder)
            .map_err(|source| ServerError::Folder { path: folder.to_owned(), source }),
        _ => Ok(()),
    }
}

/// Who listens on all addresses is reached from this machine by loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
