//! A real server process in a temporary directory, for end-to-end and crash tests.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a server may take to answer its first `/ready`; a debug build that replays a log is slow.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The `strandline` binary of this build.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("STRANDLINE_BIN") {
        return path.into();
    }
    // target/debug/deps/this-test → target/debug/strandline
    let exe = std::env::current_exe().expect("the test's own path");
    let dir = exe
        .parent()
        .and_then(Path::parent)
        .expect("a target folder");
    let path = dir.join("strandline");
    if !path.exists() {
        let release = dir.ends_with("release");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            "build",
            "--quiet",
            "-p",
            "strandline-net",
            "--bin",
            "strandline",
        ]);
        if release {
            cargo.arg("--release");
        }
        let built = cargo
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the strandline binary does not build");
    }
    path
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// `host:port`.
    pub pg: String,
    /// `host:port`.
    pub ilp: String,
    /// `host:port`.
    pub http: String,
    stderr: Arc<Mutex<String>>,
}

impl Server {
    /// Starts one over `data` with further arguments, and waits until it is ready.
    pub fn start(data: &Path, args: &[&str]) -> Server {
        Server::try_start(data, args).unwrap_or_else(|e| panic!("the server does not start: {e}"))
    }

    /// As [`Server::start`]; the error holds what it wrote.
    pub fn try_start(data: &Path, args: &[&str]) -> Result<Server, String> {
        let addresses = data.join("run/addresses.json");
        let _ = std::fs::remove_file(&addresses);
        let mut child = Command::new(binary())
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args([
                "--pg",
                "127.0.0.1:0",
                "--ilp",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
            ])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let stderr = Arc::new(Mutex::new(String::new()));
        let mut pipe = BufReader::new(child.stderr.take().expect("a pipe"));
        let sink = stderr.clone();
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                sink.lock()
                    .expect("the log")
                    .push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        let began = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(&addresses)
                && let Ok(json) = serde_json::from_str::<serde_json::Value>(&text)
            {
                let address = |key: &str| json[key].as_str().unwrap_or_default().to_string();
                let (pg, ilp, http) = (address("pg"), address("ilp"), address("http"));
                return Ok(Server {
                    child,
                    pg,
                    ilp,
                    http,
                    stderr,
                });
            }
            if let Ok(Some(status)) = child.try_wait() {
                // Its last words may still be in the pipe.
                std::thread::sleep(Duration::from_millis(50));
                return Err(format!(
                    "it ended with {status}: {}",
                    stderr.lock().expect("the log")
                ));
            }
            if began.elapsed() > READY_WITHIN {
                let _ = child.kill();
                return Err(format!(
                    "not ready in time: {}",
                    stderr.lock().expect("the log")
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.stderr.lock().expect("the log").clone()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM; answers the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        // SAFETY: a signal to a child that is not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.child.wait().ok().and_then(|s| s.code())
    }

    /// Runs psql with a command; answers standard output and error.
    pub fn psql(&self, args: &[&str]) -> (String, String) {
        self.psql_with(args, "")
    }

    /// As [`Server::psql`], with options of the session.
    fn psql_with(&self, args: &[&str], options: &str) -> (String, String) {
        let (host, port) = self.pg.rsplit_once(':').expect("host:port");
        let out = Command::new("psql")
            .args(["-X", "-h", host, "-p", port, "-U", "tester", "-d", "main"])
            .args(args)
            .env("PGCONNECT_TIMEOUT", "10")
            .env("PGOPTIONS", options)
            .output()
            .expect("psql is installed");
        (
            String::from_utf8_lossy(&out.stdout).into(),
            String::from_utf8_lossy(&out.stderr).into(),
        )
    }

    /// The tab-separated rows of one statement through psql; panics on an error.
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        let (out, err) = self.psql_with(
            &[
                "-q",
                "-A",
                "-t",
                "-F",
                "\t",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                sql,
            ],
            "-c client_min_messages=warning",
        );
        assert!(err.is_empty(), "{sql}: {err}");
        out.lines()
            .map(|l| l.split('\t').map(str::to_string).collect())
            .collect()
    }

    /// A driver's connection, driven by the current tokio runtime.
    pub async fn connect(&self) -> tokio_postgres::Client {
        self.try_connect().await.expect("a connection")
    }

    /// As [`Server::connect`].
    pub async fn try_connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (host, port) = self.pg.rsplit_once(':').expect("host:port");
        let config = format!("host={host} port={port} user=tester dbname=main");
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(client)
    }

    /// One HTTP request: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = std::net::TcpStream::connect(&self.http).expect("http");
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.http
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).expect("sent");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or(0);
        let body = text
            .split_once("\r\n\r\n")
            .map(|(_, b)| b.to_string())
            .unwrap_or_default();
        (status, body)
    }

    /// Sends lines over one connection and closes it cleanly; returns when the server has closed it too,
    /// which it does once all is durable.
    pub fn send_lines(&self, lines: &[u8]) {
        let mut stream = std::net::TcpStream::connect(&self.ilp).expect("ilp");
        std::io::Write::write_all(&mut stream, lines).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("closed");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
