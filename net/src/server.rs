//! The server: reserves addresses, locks the data directory, opens the database, accepts on every core, and
//! drains when it is told to end.
//!
//! # The end of a server
//! SIGTERM, SIGINT or [`StopHandle::stop`] → listeners close → idle sessions end, running statements have
//! `drain_ms` to end by themselves, then they are cancelled → line-protocol connections commit what they have read
//! → shards finish their commits and close. A second signal ends the process at once, which loses nothing that
//! was acknowledged.

use crate::admit::Admission;
use crate::config::Config;
use crate::counters::Counters;
use crate::http::{self, HttpContext, HttpCounters};
use crate::ilp::{self, IlpContext, IlpCounters, IlpOptions};
use crate::pg::{self, cancel::Registry};
use crate::session::SessionContext;
use futures_lite::{AsyncWriteExt, FutureExt};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::io::{LocalFuture, TaskQueue};
use strandline_shard::recover::Recovery;
use strandline_shard::runtime::net::{Port, TcpListener, TcpStream};
use strandline_shard::runtime::signals::Termination;
use strandline_shard::runtime::{
    self, DataLock, ExecutorContext, executors, sleep, spawn, timeout,
};
use strandline_shard::server::Front;
use strandline_shard::shared::Options;

/// Where a ready server says how to reach it, below the data directory.
pub const ADDRESSES_FILE: &str = "run/addresses.json";
/// Pause after an `accept` that failed for want of descriptors: they come back when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What cancelled statements and closing connections have to end in.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// A peer that is silent for so long is asked whether it still lives.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Where a ready server listens.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Addresses {
    /// PostgreSQL's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pg: Option<SocketAddr>,
    /// Line protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ilp: Option<SocketAddr>,
    /// HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
}

/// Ends the server from any thread, as SIGTERM does.
#[derive(Clone)]
pub struct StopHandle(ExecutorContext);

impl StopHandle {
    /// Asks; returns at once.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// What a ready server tells.
pub struct Ready {
    /// Where it listens.
    pub addresses: Addresses,
    /// How to end it.
    pub stop: StopHandle,
}

type OnReady = Box<dyn FnOnce(Ready) + Send>;

/// What all executors share.
struct Process {
    config: Config,
    ports: Ports,
    addresses: Addresses,
    admission: Arc<Admission>,
    registry: Arc<Registry>,
    sql: Arc<Counters>,
    ilp: Arc<IlpCounters>,
    http: Arc<HttpCounters>,
    /// Executors that do not listen yet.
    starting: AtomicUsize,
    on_ready: Mutex<Option<OnReady>>,
}

struct Ports {
    pg: Option<Port>,
    ilp: Option<Port>,
    http: Option<Port>,
}

/// Runs a server until it is told to end, and blocks until then. `on_ready` is called once, on one of the server's
/// threads, when every core accepts connections. SIGTERM and SIGINT must be held
/// ([`strandline_shard::runtime::signals::hold_termination`]) before any thread is started.
///
/// # Errors
/// Why it could not start: io_uring or locked memory (with the remedy), an address, the data directory in use or
/// damaged. Or the error that took it down.
pub fn run(config: Config, on_ready: impl FnOnce(Ready) + Send + 'static) -> Result<()> {
    runtime::probe()?;
    match runtime::probe::raise_open_files() {
        Ok(files) => enough_files(files, config.limits.connections)?,
        Err(e) => tracing::warn!("the limit on open files stays as it is: {e}"),
    }
    let ports = Ports::reserve(&config)?;
    let data = config.data.clone();
    let io = |what: &str, path: &Path, e: std::io::Error| {
        Error::new(
            SqlState::IoError,
            format!("cannot {what} {}: {e}", path.display()),
        )
    };
    std::fs::create_dir_all(data.join("run"))
        .map_err(|e| io("make the data directory", &data, e))?;
    let _lock = DataLock::acquire(&data)?;
    // An address of a server that was killed would mislead whoever waits for this one.
    remove_addresses(&data)?;

    let executors = executors::cores();
    let options = Options {
        shards: config
            .shards
            .unwrap_or_else(|| u16::try_from(executors).unwrap_or(u16::MAX)),
        node_id: config.node_id,
        limits: config.limits.clone(),
        accept_loss: config.accept_loss,
        ..Options::default()
    };
    tracing::info!("opening {}", data.display());
    let process = Arc::new(Process {
        addresses: ports.addresses(),
        ports,
        admission: Admission::new(Arc::new(config.limits.clone())),
        registry: Registry::new(),
        sql: Arc::default(),
        ilp: Arc::default(),
        http: Arc::default(),
        starting: AtomicUsize::new(executors),
        on_ready: Mutex::new(Some(Box::new(on_ready))),
        config,
    });
    let ended = strandline_shard::server::run(&data, executors, options, move |front| {
        let process = process.clone();
        Box::pin(async move { serve(front, &process).await })
    });
    let removed = remove_addresses(&data);
    tracing::info!("ended");
    ended.and(removed)
}

/// Every connection is a file, and so is every segment that is read: found out late, it would be reads that
/// fail.
fn enough_files(allowed: u64, connections: u64) -> Result<()> {
    /// Listeners, logs, rings, and segments of a small database.
    const OTHER_FILES: u64 = 200;
    let needed = connections.saturating_add(OTHER_FILES);
    if allowed >= needed {
        return Ok(());
    }
    Err(Error::new(
        SqlState::ObjectNotInPrerequisiteState,
        format!(
            "the limit on open files is {allowed}, and connections = {connections} needs {needed} at least"
        ),
    )
    .hint(
        "raise it: `ulimit -n 65536` in the shell, LimitNOFILE=65536 in the systemd unit, or `docker run --ulimit \
         nofile=65536`; or lower connections under [limits]",
    ))
}

impl Ports {
    fn reserve(config: &Config) -> Result<Ports> {
        let reserve = |name: &str, address: &Option<String>| match address {
            None => Ok(None),
            Some(address) => {
                let port = Port::reserve(address)?;
                if !port.address().ip().is_loopback() && !config.insecure {
                    return Err(Error::new(
                        SqlState::InvalidAuthorization,
                        format!("{name} would listen on {address}, where others than this machine can connect, and there are no users"),
                    )
                    .hint("listen on 127.0.0.1, or say --insecure to trust everybody who can connect"));
                }
                Ok(Some(port))
            }
        };
        Ok(Ports {
            pg: reserve("pg", &config.pg)?,
            ilp: reserve("ilp", &config.ilp)?,
            http: reserve("http", &config.http)?,
        })
    }

    fn addresses(&self) -> Addresses {
        let of = |port: &Option<Port>| port.as_ref().map(Port::address);
        Addresses {
            pg: of(&self.pg),
            ilp: of(&self.ilp),
            http: of(&self.http),
        }
    }
}

fn remove_addresses(data: &Path) -> Result<()> {
    let path = data.join(ADDRESSES_FILE);
    // It is no part of the database: nothing of the engine's disk knows it.
    #[allow(clippy::disallowed_methods)]
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::new(
            SqlState::IoError,
            format!("cannot remove {}: {e}", path.display()),
        )),
        _ => Ok(()),
    }
}

/// Written whole and then renamed: who sees it sees all of it.
fn write_addresses(data: &Path, addresses: &Addresses) -> Result<()> {
    let path = data.join(ADDRESSES_FILE);
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".addresses")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(data.join("run"))?;
        serde_json::to_writer(&mut file, addresses)?;
        file.write_all(b"\n")?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(|e| {
        Error::new(
            SqlState::IoError,
            format!("cannot write {}: {e}", path.display()),
        )
    })
}

/// Connections of one executor, so that its end can wait for theirs.
#[derive(Default)]
struct Connections {
    open: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
}

struct Open(Rc<Connections>);

impl Connections {
    fn enter(self: &Rc<Self>) -> Open {
        self.open.set(self.open.get() + 1);
        Open(self.clone())
    }

    async fn ended(&self) {
        poll_fn(|cx| {
            if self.open.get() == 0 {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        if self.0.open.get() == 0
            && let Some(waker) = self.0.waiting.take()
        {
            waker.wake();
        }
    }
}

/// One executor's part.
async fn serve(front: Front, process: &Arc<Process>) -> Result<()> {
    let (cx, engine) = (front.cx.clone(), front.engine.clone());
    if let Some(wanted) = process.config.shards
        && wanted != engine.shards()
    {
        return Err(Error::new(
            SqlState::ObjectNotInPrerequisiteState,
            format!(
                "the database has {} shards, fixed when it was made; it cannot have {wanted}",
                engine.shards()
            ),
        )
        .hint("leave --shards away"));
    }
    let connections = Rc::new(Connections::default());
    listen_pg(&front, process, &connections)?;
    listen_ilp(&front, process, &connections)?;
    listen_http(&front, process, &connections)?;
    if cx.index() == 0 {
        report(&front.recoveries);
        let termination = Termination::new()?;
        let stop = cx.clone();
        spawn(TaskQueue::Ingest, async move {
            match termination.recv().await {
                Ok(signal) => tracing::info!("{signal}: draining"),
                Err(e) => tracing::error!("signals can no longer be received; draining: {e}"),
            }
            stop.stop();
            if let Ok(signal) = termination.recv().await {
                tracing::warn!("{signal} again: ending at once");
                std::process::exit(1);
            }
        });
    }
    if process.starting.fetch_sub(1, Ordering::AcqRel) == 1 {
        ready(process, &cx)?;
    }
    cx.stopped().await;
    drain(process, &connections).await;
    Ok(())
}

fn ready(process: &Process, cx: &ExecutorContext) -> Result<()> {
    write_addresses(&process.config.data, &process.addresses)?;
    let of = |address: &Option<SocketAddr>| address.map_or("off".to_owned(), |a| a.to_string());
    let Addresses { pg, ilp, http } = &process.addresses;
    tracing::info!("ready: pg {}, ilp {}, http {}", of(pg), of(ilp), of(http));
    let on_ready = process
        .on_ready
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(tell) = on_ready {
        tell(Ready {
            addresses: process.addresses.clone(),
            stop: StopHandle(cx.clone()),
        });
    }
    Ok(())
}

/// What the start found in the logs.
fn report(recoveries: &[Recovery]) {
    let sum = |of: fn(&Recovery) -> u64| recoveries.iter().map(of).sum::<u64>();
    let (records, bytes) = (sum(|r| r.records), sum(|r| r.bytes));
    if records > 0 {
        tracing::info!("replayed {records} log records, {bytes} bytes");
    }
    let (torn, lost) = (sum(|r| r.torn_bytes), sum(|r| r.lost));
    if torn > 0 {
        tracing::warn!(
            "cut {torn} bytes of a commit that was never finished from the end of a log"
        );
    }
    let files = sum(|r| r.lost_files);
    if lost > 0 || files > 0 {
        tracing::error!(
            "--accept-loss: {lost} log records were given up, and {files} log files of which it is not known what else they held"
        );
    }
}

async fn drain(process: &Process, connections: &Connections) {
    process.registry.close();
    let time = Duration::from_millis(process.config.limits.drain_ms);
    if timeout(time, connections.ended()).await.is_some() {
        return;
    }
    tracing::warn!(
        "{} connections are still busy after drain_ms; cancelling their statements",
        connections.open.get()
    );
    process.registry.cancel_all();
    if timeout(CANCEL_GRACE, connections.ended()).await.is_none() {
        tracing::warn!(
            "{} connections did not end and are cut",
            connections.open.get()
        );
    }
}

/// Accepts until the server ends; `each` serves a connection as a task of its own.
fn accept<F>(front: &Front, listener: TcpListener, connections: &Rc<Connections>, each: F)
where
    F: Fn(TcpStream) -> LocalFuture<'static, ()> + 'static,
{
    let (cx, connections) = (front.cx.clone(), connections.clone());
    spawn(TaskQueue::Ingest, async move {
        let mut troubled = false;
        loop {
            let next = async { Some(listener.accept().await) };
            let stopped = async {
                cx.stopped().await;
                None
            };
            match stopped.or(next).await {
                None => return,
                Some(Ok(stream)) => {
                    troubled = false;
                    if let Err(e) = stream.set_keepalive(KEEPALIVE) {
                        tracing::debug!("{}: keepalive: {e}", stream.peer_addr());
                    }
                    let (open, served) = (connections.enter(), each(stream));
                    spawn(TaskQueue::Ingest, async move {
                        served.await;
                        drop(open);
                    });
                }
                Some(Err(e)) => {
                    if !troubled {
                        tracing::error!("cannot accept connections: {e}; trying again");
                    }
                    troubled = true;
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
}

fn listen_pg(front: &Front, process: &Process, connections: &Rc<Connections>) -> Result<()> {
    let Some(port) = &process.ports.pg else {
        return Ok(());
    };
    let cx = Rc::new(SessionContext {
        engine: front.engine.clone(),
        tasks: front.env.tasks.clone(),
        random: front.env.random.clone(),
        registry: process.registry.clone(),
        admission: process.admission.clone(),
        counters: process.sql.clone(),
    });
    accept(front, port.listen()?, connections, move |stream| {
        Box::pin(pg::serve(stream, cx.clone()))
    });
    Ok(())
}

fn ilp_options(config: &Config) -> IlpOptions {
    IlpOptions {
        entity_tag: config.ilp_entity_tag.clone(),
        store_tags: config.ilp_store_tags,
        ..IlpOptions::default()
    }
}

fn listen_ilp(front: &Front, process: &Process, connections: &Rc<Connections>) -> Result<()> {
    let Some(port) = &process.ports.ilp else {
        return Ok(());
    };
    let cx = IlpContext {
        engine: front.engine.clone(),
        tasks: front.env.tasks.clone(),
        counters: process.ilp.clone(),
        options: ilp_options(&process.config),
    };
    let (executor, admission) = (front.cx.clone(), process.admission.clone());
    accept(front, port.listen()?, connections, move |stream| {
        let (cx, executor, admission) = (cx.clone(), executor.clone(), admission.clone());
        Box::pin(async move {
            let peer = stream.peer_addr().to_string();
            match admission.admit() {
                Ok(_permit) => ilp::serve(stream, &peer, cx, Box::pin(executor.stopped())).await,
                Err(e) => tracing::warn!(peer, "line protocol: refused: {e}"),
            }
        })
    });
    Ok(())
}

fn listen_http(front: &Front, process: &Process, connections: &Rc<Connections>) -> Result<()> {
    let Some(port) = &process.ports.http else {
        return Ok(());
    };
    let cx = HttpContext {
        engine: front.engine.clone(),
        tasks: front.env.tasks.clone(),
        counters: process.http.clone(),
        sql: process.sql.clone(),
        ilp: process.ilp.clone(),
        ilp_options: ilp_options(&process.config),
        admission: process.admission.clone(),
    };
    let executor = front.cx.clone();
    accept(front, port.listen()?, connections, move |mut stream| {
        let (cx, executor) = (cx.clone(), executor.clone());
        Box::pin(async move {
            match cx.admission.clone().admit() {
                Ok(_permit) => http::serve(stream, cx, Box::pin(executor.stopped())).await,
                Err(_) => {
                    let refusal = http::pages::Response::error(503).encode(false, true);
                    // The client may be gone; there is nobody else to tell.
                    let _ = stream.write_all(&refusal).await;
                    let _ = stream.close().await;
                }
            }
        })
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_found_out_at_start() {
        assert_eq!(enough_files(1200, 1000), Ok(()));
        let e = enough_files(1199, 1000).unwrap_err();
        for part in ["1199", "connections = 1000", "1200"] {
            assert!(e.message().contains(part), "{e}");
        }
        assert!(e.hint_text().is_some_and(|h| h.contains("ulimit -n")));
    }
}
