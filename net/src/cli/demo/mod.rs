//! `strandline demo`: a server of its own in a temporary directory, fed with real telemetry over line protocol and a
//! registry over SQL, and asked a handful of questions over PostgreSQL's protocol, as any client would.

mod data;
mod questions;
mod table;

use super::serve::psql;
use crate::config::Config;
use crate::server::{self, Addresses, Ready};
use clap::Args;
use std::sync::{Arc, Mutex, PoisonError};
use strandline_core::error::{Error, Result, SqlState};
use tokio_postgres::{Client, NoTls};

/// What `--help` tells.
pub const LONG_ABOUT: &str = "\
Load real telemetry into a server of its own and ask it some questions.

It starts a server in a temporary directory on free ports of 127.0.0.1, loads a year of hourly weather of three \
airports over line protocol and the registry of 3,322 planes over SQL, asks for the last state of each station, a \
hold-filled range, averages, a plane by its xid, the change feed and a compare-and-set that loses, and prints each \
question, its answer and how long it took. Then the server stays up for your own questions; Ctrl-C ends it and removes \
the directory.";

/// The flags of `demo`.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// End after the last question
    #[arg(long)]
    pub exit: bool,
}

/// Log files of the demo: its data is small, and a new file is written with zeros before its first use.
const LOG_FILE_BYTES: u64 = 4 << 20;

/// Runs the demo; with `--exit` until its last answer, else until the server is told to end.
pub fn run(flags: &Flags) -> Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("strandline-demo-")
        .tempdir()
        .map_err(|e| {
            Error::new(
                SqlState::IoError,
                format!("cannot make a temporary directory: {e}"),
            )
        })?;
    let free = || Some("127.0.0.1:0".to_owned());
    let mut config = Config {
        data: dir.path().to_owned(),
        pg: free(),
        ilp: free(),
        http: free(),
        ..Config::default()
    };
    config.limits.log_file_bytes = LOG_FILE_BYTES;
    // The thread's outcome; `None` when the server ended before it did.
    let outcome: Arc<Mutex<Option<Result<()>>>> = Arc::default();
    let (told, exit) = (outcome.clone(), flags.exit);
    server::run(config, move |ready| {
        // A client lives outside the server's threads, which must not block.
        #[allow(clippy::disallowed_methods)]
        std::thread::spawn(move || {
            let ended = visit(&ready, exit);
            let failed = ended.is_err();
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            if exit || failed {
                ready.stop.stop();
            }
        });
    })?;
    let ended = outcome
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    ended.unwrap_or(Ok(()))
}

/// Everything that the demo does as a client.
fn visit(ready: &Ready, exit: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(SqlState::IoError, format!("cannot start the client: {e}")))?;
    let Addresses {
        pg: Some(pg),
        ilp: Some(ilp),
        http: Some(http),
    } = ready.addresses
    else {
        return Err(Error::internal("the demo's server does not listen"));
    };
    runtime.block_on(async {
        let config = format!("host={} port={} user=demo dbname=main", pg.ip(), pg.port());
        let (client, connection) = tokio_postgres::connect(&config, NoTls)
            .await
            .map_err(failed)?;
        let driver = tokio::spawn(connection);
        data::load(&client, ilp).await?;
        questions::ask(&client).await?;
        drop(client);
        // It ends with the client; how it ended no longer matters.
        let _ = driver.await;
        Ok::<(), Error>(())
    })?;
    if !exit {
        println!("\nThe server stays up until Ctrl-C. Ask it yourself:\n");
        println!("  {}", psql(pg));
        println!(
            "  printf 'weather,entity=JFK temp=70.5\\n' | nc -N {} {}",
            ilp.ip(),
            ilp.port()
        );
        println!("  curl http://{http}/metrics");
    }
    Ok(())
}

/// A client's error as ours.
fn failed(e: tokio_postgres::Error) -> Error {
    let text = e
        .as_db_error()
        .map_or_else(|| e.to_string(), |d| d.message().to_owned());
    Error::internal(format!("the demo's client: {text}"))
}

/// One simple query's rows, and the tag's count.
async fn query(client: &Client, sql: &str) -> Result<table::Table> {
    let messages = client.simple_query(sql).await.map_err(failed)?;
    Ok(table::Table::of(messages))
}
