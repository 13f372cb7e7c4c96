//! The command line.

mod demo;
mod serve;

use clap::{Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;
use strandline_core::error::Result;
use strandline_shard::runtime::signals;
use tracing_subscriber::EnvFilter;

/// Telemetry at full speed, current state beside it, and a change feed that never skips.
#[derive(Parser, Debug)]
#[command(name = "strandline", version, about, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  strandline demo                          look around: real weather, a registry, a few telling questions
  strandline serve --data /var/lib/strandline
  psql -h 127.0.0.1 -p 5433 -d main        connect to it
  printf 'weather,entity=JFK temp=21.5\\n' | nc -N 127.0.0.1 9009

Logs go to standard error; STRANDLINE_LOG=debug shows more (error, warn, info, debug, or module=level).";

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a server
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(Box<crate::config::Flags>),
    /// Load real telemetry into a server of its own and ask it some questions
    #[command(long_about = demo::LONG_ABOUT)]
    Demo(demo::Flags),
}

/// Parses the arguments and runs what they ask for.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let quiet = matches!(cli.command, Command::Demo(_));
    log_to_stderr(if quiet { "warn" } else { "info" });
    // Before any thread: all of them inherit it.
    let held = signals::hold_termination().map_err(Into::into);
    match held.and_then(|()| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("strandline: {} ({})", e.message(), e.state().code());
            if let Some(hint) = e.hint_text() {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(flags) => serve::run(&flags),
        Command::Demo(flags) => demo::run(&flags),
    }
}

fn log_to_stderr(default: &str) {
    let filter =
        EnvFilter::try_from_env("STRANDLINE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_make_sense() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from([
            "strandline",
            "serve",
            "--pg",
            "off",
            "--shards",
            "3",
            "--insecure",
        ]);
        let Command::Serve(flags) = cli.unwrap().command else {
            panic!("not serve")
        };
        assert_eq!(
            (flags.pg.as_deref(), flags.shards, flags.insecure),
            (Some("off"), Some(3), true)
        );
    }
}
