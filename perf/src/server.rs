//! The server under load, in a directory of its own.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Starter {
    /// The `strandline` binary.
    pub binary: PathBuf,
    /// Further arguments of `strandline serve`.
    pub args: Vec<String>,
}

impl Starter {
    /// The binary that stands beside the running one.
    pub fn beside(args: Vec<String>) -> Result<Starter> {
        let exe = std::env::current_exe()?;
        let binary = exe.parent().unwrap_or(Path::new(".")).join("strandline");
        Ok(Starter { binary, args })
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// Its data directory.
    pub data: PathBuf,
    /// `host:port`.
    pub pg: String,
    /// `host:port`.
    pub ilp: String,
    /// How long it took to be ready.
    pub start: Duration,
}

impl Server {
    /// Starts one over `data`; what it logs goes into `data` with `.log` behind it.
    pub fn start(starter: &Starter, data: &Path) -> Result<Server> {
        let addresses = data.join("run/addresses.json");
        match std::fs::remove_file(&addresses) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let log = data.with_extension("log");
        let began = Instant::now();
        let mut child = Command::new(&starter.binary)
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args(["--pg", "127.0.0.1:0", "--ilp", "127.0.0.1:0"])
            .args(["--http", "off", "--ilp-entity-tag", "hostname"])
            .args(&starter.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .map_err(|e| {
                Error::other(format!(
                    "{}: {e}; build it first: cargo build --release --workspace",
                    starter.binary.display()
                ))
            })?;
        loop {
            // It is written whole, once the server is ready.
            if let Ok(text) = std::fs::read_to_string(&addresses)
                && let Ok(json) = serde_json::from_str::<serde_json::Value>(&text)
            {
                let address = |key: &str| json[key].as_str().unwrap_or_default().to_string();
                let (pg, ilp) = (address("pg"), address("ilp"));
                return Ok(Server {
                    child,
                    data: data.into(),
                    pg,
                    ilp,
                    start: began.elapsed(),
                });
            }
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(3).collect();
                return Err(Error::other(format!(
                    "the server ended with {status}: {}",
                    last.join(" / ")
                )));
            }
            if began.elapsed() > Duration::from_secs(120) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::other("the server is not ready after 120 s"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resident memory now and at its highest, bytes.
    pub fn rss(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = |key: &str| {
            let line = status.lines().find(|l| l.starts_with(key));
            line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
                .ok_or_else(|| Error::other(format!("/proc has no {key}")))
        };
        Ok((kib("VmRSS:")? * 1024, kib("VmHWM:")? * 1024))
    }

    /// Seconds of processor time so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may hold anything, stand state, ppid, …; utime is the 12th and stime the 13th.
        let rest = stat.rsplit_once(')').map_or("", |(_, r)| r);
        let ticks: u64 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|t| t.parse::<u64>().ok())
            .sum();
        // SAFETY: sysconf reads a constant and has no preconditions.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Ok(ticks as f64 / per_second.max(1) as f64)
    }

    /// Bytes of the segment files in the data directory, those kept only for a snapshot left out.
    pub fn segment_files(&self) -> Result<u64> {
        fn walk(dir: &Path) -> Result<u64> {
            let mut bytes = 0;
            for entry in std::fs::read_dir(dir)? {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                if kind.is_dir() && entry.file_name() != "snapshots" {
                    bytes += walk(&path)?;
                } else if kind.is_file() && path.extension().is_some_and(|e| e == "seg") {
                    bytes += entry.metadata()?.len();
                }
            }
            Ok(bytes)
        }
        walk(&self.data)
    }

    /// kill -9; the data stays.
    pub fn kill(mut self) -> PathBuf {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.data.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
