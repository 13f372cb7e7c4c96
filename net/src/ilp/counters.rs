//! What the line-protocol listeners count, and the log of bad lines, which is rate limited: a client that
//! sends rubbish must not fill the disk with complaints.

use super::bad::{BadLine, Reason, excerpt};
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of a bad line is logged, bytes.
const EXCERPT_BYTES: usize = 160;

/// Shared by all executors. Counters count from the start of the process.
#[derive(Debug, Default)]
pub struct IlpCounters {
    /// Connections accepted.
    pub connections_total: AtomicU64,
    /// Connections open now.
    pub connections_open: AtomicU64,
    /// Bytes received over TCP.
    pub received_bytes: AtomicU64,
    /// HTTP bodies of lines that are being read.
    pub bodies_open: AtomicU64,
    /// Lines that were read, bad ones and blank ones too.
    pub lines_total: AtomicU64,
    /// Bytes parsed and not durable yet.
    pub in_flight_bytes: AtomicU64,
    /// Rows that are durable and visible.
    pub rows_total: AtomicU64,
    /// Rows that were parsed and could not be written: their table was dropped, or their shard is dead.
    pub rows_lost_total: AtomicU64,
    /// Writes that were refused for want of disk or memory and tried again.
    pub retries_total: AtomicU64,
    bad: [AtomicU64; Reason::ALL.len()],
    window: LogWindow,
}

/// Lets so many log lines a second through.
#[derive(Debug, Default)]
struct LogWindow {
    second: AtomicU64,
    lines: AtomicU64,
    held_back: AtomicU64,
}

impl LogWindow {
    /// Whether a line may be logged now, and how many were held back before it.
    fn admit(&self, now_ns: u64, per_second: u64) -> Option<u64> {
        // From 1, so that the first second differs from "none yet".
        let second = now_ns / 1_000_000_000 + 1;
        // Two executors may both open a second's window: then a few lines more pass, which is harmless.
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.lines.store(0, Ordering::Relaxed);
        }
        if self.lines.fetch_add(1, Ordering::Relaxed) < per_second {
            Some(self.held_back.swap(0, Ordering::Relaxed))
        } else {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

impl IlpCounters {
    /// Bad lines so far, by reason.
    pub fn bad_lines(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL
            .iter()
            .map(|&r| (r, self.bad[r as usize].load(Ordering::Relaxed)))
    }

    /// Streams of lines that are open, 1 at least.
    pub(crate) fn streams_open(&self) -> u64 {
        let tcp = self.connections_open.load(Ordering::Relaxed);
        (tcp + self.bodies_open.load(Ordering::Relaxed)).max(1)
    }

    /// Counts bad lines whose client is told.
    #[cold]
    pub fn count_bad(&self, reason: Reason, lines: u64) {
        self.bad[reason as usize].fetch_add(lines, Ordering::Relaxed);
    }

    /// Counts lines that the engine refused once they were parsed, and logs why if the rate allows.
    #[cold]
    pub fn bad_rows(&self, why: &str, lines: u64, peer: &str, now_ns: u64, per_second: u64) {
        let reason = Reason::Refused;
        self.count_bad(reason, lines);
        if let Some(held_back) = self.window.admit(now_ns, per_second) {
            tracing::warn!(
                reason = reason.name(),
                peer,
                held_back,
                "{lines} bad lines: {why}"
            );
        }
    }

    /// Counts a bad line, and logs it if the rate allows.
    #[cold]
    pub fn bad_line(&self, error: &BadLine, line: &[u8], peer: &str, now_ns: u64, per_second: u64) {
        self.bad[error.reason as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(held_back) = self.window.admit(now_ns, per_second) {
            tracing::warn!(
                reason = error.reason.name(),
                peer,
                held_back,
                "bad line: {}: {}",
                error.message,
                excerpt(line, EXCERPT_BYTES)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_rate_limited_and_says_what_it_held_back() {
        let w = LogWindow::default();
        let s = 1_000_000_000;
        assert_eq!([1, 2, 3].map(|n| w.admit(n, 2)), [Some(0), Some(0), None]);
        assert_eq!(w.admit(4, 2), None);
        assert_eq!([s, s + 1].map(|n| w.admit(n, 2)), [Some(2), Some(0)]);
        assert_eq!(w.admit(9 * s, 0), None);
    }

    #[test]
    fn reasons_count_apart() {
        let c = IlpCounters::default();
        for reason in Reason::ALL {
            let e = super::super::bad::bad(reason, "x");
            c.bad_line(&e, b"line", "peer", 0, 0);
        }
        assert!(c.bad_lines().all(|(_, n)| n == 1));
    }
}
