//! How far long work has come, on standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line that is written again and again on a terminal, and now and then into a file.
pub struct Progress {
    what: String,
    total: u64,
    began: Instant,
    shown: Instant,
    terminal: bool,
}

impl Progress {
    /// Of work with this many steps.
    pub fn new(what: &str, total: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        eprintln!("  … {what}");
        Progress {
            what: what.to_string(),
            total,
            began: now,
            shown: now,
            terminal,
        }
    }

    /// So many are done.
    pub fn at(&mut self, done: u64) {
        let every = Duration::from_millis(if self.terminal { 200 } else { 5_000 });
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let percent = done * 100 / self.total.max(1);
        let seconds = self.began.elapsed().as_secs();
        let end = if self.terminal { "\r" } else { "\n" };
        eprint!("  … {} {percent:>3} % after {seconds} s{end}", self.what);
        let _ = std::io::stderr().flush();
    }
}
