//! `strandline serve`.

use crate::config::{Config, Flags};
use crate::server::{self, Addresses, Ready};
use indicatif::ProgressBar;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use strandline_core::error::Result;

/// What `--help` tells.
pub const LONG_ABOUT: &str = "\
Run a server.

Settings come from flags, then from the environment, then from the TOML file that --config names: `--node-id`, \
STRANDLINE_NODE_ID and `node_id = \"00a1\"` are one setting. The file also has a table [limits]; `SHOW limits` lists \
them.

Once ready, the server prints its addresses and writes them to run/addresses.json in the data directory. \
SIGTERM and Ctrl-C drain and exit with 0.";

/// Runs a server until it is told to end.
pub fn run(flags: &Flags) -> Result<()> {
    let config = Config::load(flags)?;
    let data = config.data.display().to_string();
    // Hidden where standard error is no terminal.
    let progress = ProgressBar::new_spinner().with_message(format!("opening {data}"));
    progress.enable_steady_tick(Duration::from_millis(200));
    let shown = progress.clone();
    let ended = server::run(config, move |ready: Ready| {
        shown.finish_and_clear();
        // Nobody may be reading; the file says the same.
        let _ = writeln!(std::io::stdout(), "{}", greeting(&ready.addresses));
    });
    progress.finish_and_clear();
    ended
}

/// Where the server listens, and the psql line for it.
fn greeting(addresses: &Addresses) -> String {
    let mut lines = vec!["Strandline is ready.".to_owned()];
    let mut line = |name: &str, address: Option<SocketAddr>, how: &dyn Fn(SocketAddr) -> String| {
        lines.push(match address {
            Some(a) => format!("  {name:<14} {a:<22} {}", how(a)),
            None => format!("  {name:<14} off"),
        });
    };
    line("PostgreSQL", addresses.pg, &|a| psql(a));
    line("line protocol", addresses.ilp, &|_| {
        "table,entity=<id> field=value".into()
    });
    line("HTTP", addresses.http, &|a| {
        format!("curl http://{a}/metrics")
    });
    lines.join("\n")
}

/// The command that connects to it.
pub fn psql(address: SocketAddr) -> String {
    // Who listens everywhere is reached here too.
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        ip => ip.to_string(),
    };
    format!("psql -h {host} -p {} -d main", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_says_how_to_connect() {
        let addresses = Addresses {
            pg: Some("0.0.0.0:77".parse().unwrap()),
            http: Some("127.0.0.1:9".parse().unwrap()),
            ilp: None,
        };
        let text = greeting(&addresses);
        for part in [
            "psql -h 127.0.0.1 -p 77 -d main",
            "line protocol  off",
            "http://127.0.0.1:9/metrics",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
