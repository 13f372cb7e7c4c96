//! The server under load: the release binary beside this one, in a directory of its own.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
    /// Starts the `strandline` binary that stands beside the running one.
    pub fn start(data: &Path, args: &[&str]) -> Result<Server> {
        let exe = std::env::current_exe()?;
        let binary = exe.parent().unwrap_or(Path::new(".")).join("strandline");
        let addresses = data.join("run/addresses.json");
        let _ = std::fs::remove_file(&addresses);
        let began = Instant::now();
        let mut child = Command::new(&binary)
            .args([
                "serve",
                "--pg",
                "127.0.0.1:0",
                "--ilp",
                "127.0.0.1:0",
                "--http",
                "off",
                "--data",
            ])
            .arg(data)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| {
                Error::other(format!(
                    "{}: {e}; build it first: cargo build --release",
                    binary.display()
                ))
            })?;
        loop {
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
                return Err(Error::other(format!("the server ended with {status}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resident memory, bytes.
    pub fn rss(&self) -> u64 {
        let statm =
            std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap_or_default();
        statm
            .split(' ')
            .nth(1)
            .and_then(|p| p.parse::<u64>().ok())
            .unwrap_or(0)
            * 4096
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
