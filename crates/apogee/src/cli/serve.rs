//! `serve`, `namesrv`, `broker`: start, tell where, wait for a signal, stop.
//!
//! SIGTERM and SIGINT stop cleanly within two seconds; a second one ends the process at once.

use super::{Failure, Logs, ready};
use crate::server::{BrokerPart, Parts, Running, ServeOptions};
use crate::settings::{Effective, Program, RunningSettings, Settings, Source};
use clap::Args;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long a clean stop may take before the process ends anyway.
const STOP_PATIENCE: Duration = Duration::from_millis(1_900);
/// Threads for work that may block: recovery, cold reads, documents.
const BLOCKING_THREADS: usize = 16;
const NAMESRV_PORT: u16 = 9876;
const BROKER_PORT: u16 = 10911;

/// Where settings come from.
#[derive(Debug, Clone, Args)]
struct Configuration {
    /// Configuration file: the original's properties, or TOML if it ends in .toml
    #[arg(short = 'c', long = "config", alias = "configFile", value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Unknown keys are a warning, not an error
    #[arg(long)]
    allow_unknown_keys: bool,
    /// Print all settings with their effective values, and end
    #[arg(short = 'p', long = "print-config", alias = "printConfigItem")]
    print: bool,
}

impl Configuration {
    fn read_into(&self, source: &mut Source) -> Result<(), Failure> {
        if let Some(path) = &self.config {
            source.file(path)?;
        }
        for pair in &self.set {
            source.set(pair)?;
        }
        Ok(())
    }
}

/// Options of `apogee serve`.
#[derive(Debug, Clone, Args)]
pub(super) struct Serve {
    /// Folder of all data, unless a setting names another
    #[arg(long, default_value = "./apogee-data", value_name = "DIR")]
    data: PathBuf,
    /// Address to listen on and to tell clients
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    host: IpAddr,
    /// Port of the name server; 0 = any free one [default: 9876]
    #[arg(long, value_name = "PORT")]
    namesrv_port: Option<u16>,
    /// Port of the broker; 0 = any free one [default: listenPort, else 10911]
    #[arg(long, value_name = "PORT")]
    broker_port: Option<u16>,
    /// Port of the proxy; not in this release
    #[arg(long, value_name = "PORT")]
    proxy_port: Option<u16>,
    /// Port of the console; not in this release
    #[arg(long, value_name = "PORT")]
    console_port: Option<u16>,
    /// Port of the metrics; not in this release
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    /// Write addresses to this file once requests are accepted
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    configuration: Configuration,
    #[command(flatten)]
    logs: Logs,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut settings = Source::new();
        self.configuration.read_into(&mut settings)?;
        if let Some(port) = self.broker_port {
            settings.put("listenPort", &port.to_string(), "--broker-port");
        }
        let options = ServeOptions {
            data: self.data.clone(),
            host: self.host,
            namesrv_port: self.namesrv_port.unwrap_or(NAMESRV_PORT),
            broker_port: BROKER_PORT,
            settings,
            allow_unknown_keys: self.configuration.allow_unknown_keys,
        };
        let (parts, settings) = Parts::everything(options)?;
        if self.configuration.print {
            return print(&settings, Program::Everything, &parts);
        }
        self.logs.start()?;
        let asked = [
            ("--proxy-port", self.proxy_port),
            ("--console-port", self.console_port),
            ("--metrics-port", self.metrics_port),
        ];
        for (option, _) in asked.iter().filter(|(_, port)| port.is_some()) {
            tracing::info!("{option} has no effect: this part is not in this release");
        }
        serve(parts, &settings, self.ready_file)
    }
}

/// Options of `apogee namesrv`.
#[derive(Debug, Clone, Args)]
pub(super) struct Namesrv {
    #[command(flatten)]
    configuration: Configuration,
    /// Write the address to this file once requests are accepted
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    logs: Logs,
}

impl Namesrv {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut source = Source::new();
        self.configuration.read_into(&mut source)?;
        let program = Program::NameServer;
        let settings = Settings::check(source, program, self.configuration.allow_unknown_keys)?;
        let limits = settings.limits()?;
        let endpoint = settings.endpoint(IpAddr::V4(Ipv4Addr::UNSPECIFIED), NAMESRV_PORT)?;
        let namesrv = settings.namesrv(endpoint, &limits, &home()?.join("namesrv"))?;
        let parts = Parts { namesrv: Some(namesrv), broker: None };
        if self.configuration.print {
            return print(&settings, program, &parts);
        }
        self.logs.start()?;
        serve(parts, &settings, self.ready_file)
    }
}

/// Options of `apogee broker`.
#[derive(Debug, Clone, Args)]
pub(super) struct Broker {
    /// Name servers, host:port;host:port
    #[arg(short = 'n', long, alias = "namesrvAddr", value_name = "ADDRESSES")]
    namesrv: Option<String>,
    /// Address to tell clients (brokerIP1)
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    #[command(flatten)]
    configuration: Configuration,
    /// Write the address to this file once requests are accepted
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    logs: Logs,
}

impl Broker {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut source = Source::new();
        source.environment();
        self.configuration.read_into(&mut source)?;
        if let Some(addresses) = &self.namesrv {
            source.put("namesrvAddr", addresses, "-n");
        }
        let program = Program::Broker;
        let settings = Settings::check(source, program, self.configuration.allow_unknown_keys)?;
        let limits = settings.limits()?;
        let endpoint = settings.endpoint(IpAddr::V4(Ipv4Addr::UNSPECIFIED), BROKER_PORT)?;
        let store = settings.store(home()?.join("store"))?;
        let mut broker = settings.broker(program, endpoint, &store, self.host)?;
        broker.settings =
            Some(RunningSettings::new(&settings, &broker, &store, &endpoint, &limits));
        let part = BrokerPart { broker, store, endpoint, limits };
        let parts = Parts { namesrv: None, broker: Some(part) };
        if self.configuration.print {
            return print(&settings, program, &parts);
        }
        self.logs.start()?;
        serve(parts, &settings, self.ready_file)
    }
}

/// The folder below which the original keeps files that no setting places.
fn home() -> Result<PathBuf, Failure> {
    std::env::var_os("HOME").map(PathBuf::from).ok_or_else(|| {
        let text = "the environment has no HOME: set storePathRootDir and kvConfigPath";
        Failure::Usage(text.to_owned())
    })
}

fn print(settings: &Settings, program: Program, parts: &Parts) -> Result<(), Failure> {
    let mut all = Effective::new(settings, program);
    if let Some(namesrv) = &parts.namesrv {
        all = all.namesrv(namesrv);
    }
    match &parts.broker {
        Some(part) => {
            all = all.listening(&part.endpoint, &part.limits).broker(&part.broker, &part.store);
        }
        None => {
            let endpoint = settings.endpoint(IpAddr::V4(Ipv4Addr::UNSPECIFIED), NAMESRV_PORT)?;
            all = all.listening(&endpoint, &settings.limits()?);
        }
    }
    super::say(all.to_string().trim_end());
    Ok(())
}

/// Runs until a signal comes.
fn serve(parts: Parts, settings: &Settings, ready_file: Option<PathBuf>) -> Result<(), Failure> {
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    for note in settings.notes() {
        tracing::warn!("{note}");
    }
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("apogee")
        .build()
        .map_err(|error| Failure::Failed(format!("the runtime cannot be started: {error}")))?;
    let result = runtime.block_on(until_signal(parts, ready_file));
    // Whatever still runs has nothing to lose: all parts have saved and closed.
    runtime.shutdown_timeout(Duration::from_millis(50));
    result
}

async fn until_signal(parts: Parts, ready_file: Option<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let places = parts.clone();
    let server = tokio::select! {
        server = Running::start(parts) => server?,
        () = either(&mut terminate, &mut interrupt) => return Ok(()),
    };
    announce(&server, &places);
    if let Some(path) = &ready_file
        && let Err(error) = ready::write(path, &server)
    {
        server.shutdown().await;
        let text = format!("ready file {} cannot be written: {error}", path.display());
        return Err(Failure::Failed(text));
    }
    either(&mut terminate, &mut interrupt).await;
    tracing::info!("stopping");
    let begin = std::time::Instant::now();
    // Tasks of their own: neither may be held up by what the other waits for.
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        eprintln!("apogee: ended by a second signal");
        std::process::exit(1);
    });
    let stopping = tokio::spawn(server.shutdown());
    let result = match tokio::time::timeout(STOP_PATIENCE, stopping).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::Failed(format!("the stop failed: {error}"))),
        Err(_) => Err(Failure::Failed("not everything stopped in time".to_owned())),
    };
    if let Some(path) = ready_file {
        let _ = std::fs::remove_file(path);
    }
    tracing::info!(took_ms = begin.elapsed().as_millis() as u64, "stopped");
    result
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn announce(server: &Running, parts: &Parts) {
    if let (Some(address), Some(config)) = (server.namesrv_addr(), &parts.namesrv) {
        tracing::info!(%address, kv_config = %config.kv_config_path, "name server is ready");
    }
    if let (Some(address), Some(part)) = (server.broker_addr(), &parts.broker) {
        tracing::info!(
            %address,
            fast_port = address.port().saturating_sub(2),
            name = %part.broker.broker_name,
            cluster = %part.broker.broker_cluster_name,
            store = %part.store.store_path_root_dir.display(),
            "broker is ready"
        );
        let reach = if address.ip().is_loopback() { "only this machine can use that" } else { "" };
        tracing::info!("clients are told {address}; brokerIP1 or --host changes that. {reach}");
    }
}

/// Every connection and open file needs a handle; the soft limit is often low.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
}
