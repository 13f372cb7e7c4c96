//! What the SQL front counts, for `/metrics`: plain atomics shared by all executors, read without stopping
//! anyone. Counters count from the start of the process.

use std::sync::atomic::{AtomicU64, Ordering};
use strandline_core::error::SqlState;

/// What a statement did, as far as the counters tell statements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// INSERT, UPDATE, DELETE.
    Write,
    /// SELECT, SHOW.
    Read,
    /// Everything else: DDL, settings, transaction control, maintenance.
    Other,
}

impl StatementKind {
    /// All of them, in the order of the counters.
    pub const ALL: [StatementKind; 3] = [
        StatementKind::Write,
        StatementKind::Read,
        StatementKind::Other,
    ];
    /// The label in `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            StatementKind::Write => "write",
            StatementKind::Read => "read",
            StatementKind::Other => "other",
        }
    }
}

/// Upper bounds of the latency buckets, µs; one more bucket takes everything above the last.
pub const LATENCY_BOUNDS_US: [u64; 15] = [
    100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 409_600, 1_638_400,
    6_553_600, 26_214_400,
];

/// Statements of one kind by how long they took.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A reading of [`Latency`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyReading {
    /// Statements per bucket (not cumulative), the last one unbounded.
    pub buckets: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Sum of all, µs.
    pub sum_us: u64,
}

impl Latency {
    /// Counts one statement.
    pub fn record(&self, us: u64) {
        let bucket = LATENCY_BOUNDS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The numbers now; of statements that end meanwhile, some may be in one of them and not in the other.
    pub fn read(&self) -> LatencyReading {
        LatencyReading {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

/// The first two characters of every SQLSTATE that Strandline answers; the last stands for any other.
pub const ERROR_CLASSES: [&str; 18] = [
    "08", "0A", "22", "23", "25", "26", "28", "34", "3D", "42", "53", "54", "55", "57", "58", "XX",
    "20", "other",
];

/// Counters of the PostgreSQL front.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that finished their start-up.
    pub connections_total: AtomicU64,
    /// Cancel requests that named a live connection with its right key.
    pub cancels_total: AtomicU64,
    /// Bytes received.
    pub received_bytes: AtomicU64,
    /// Bytes sent.
    pub sent_bytes: AtomicU64,
    latency: [Latency; 3],
    errors: [AtomicU64; ERROR_CLASSES.len()],
}

impl Counters {
    /// Counts a statement that ended well; its rows are sent, or those of its first portion.
    pub fn statement(&self, kind: StatementKind, us: u64) {
        self.latency[kind as usize].record(us);
    }

    /// Counts an error that a client was told.
    pub fn error(&self, state: SqlState) {
        let class = &state.code()[..2];
        let slot = ERROR_CLASSES
            .iter()
            .position(|&c| c == class)
            .unwrap_or(ERROR_CLASSES.len() - 1);
        self.errors[slot].fetch_add(1, Ordering::Relaxed);
    }

    /// Latencies of a kind of statement.
    pub fn latency(&self, kind: StatementKind) -> LatencyReading {
        self.latency[kind as usize].read()
    }

    /// Errors so far, by class; classes without any are left out.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ERROR_CLASSES
            .iter()
            .zip(&self.errors)
            .map(|(&class, n)| (class, n.load(Ordering::Relaxed)))
            .filter(|&(_, n)| n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_classes() {
        let c = Counters::default();
        c.statement(StatementKind::Read, 100);
        c.statement(StatementKind::Read, 101);
        c.statement(StatementKind::Read, u64::MAX / 2);
        let r = c.latency(StatementKind::Read);
        assert_eq!((r.buckets[0], r.buckets[1], r.buckets[15]), (1, 1, 1));
        assert_eq!(c.latency(StatementKind::Write), LatencyReading::default());
        c.error(SqlState::SyntaxError);
        c.error(SqlState::UndefinedTable);
        c.error(SqlState::DiskFull);
        assert_eq!(c.errors().collect::<Vec<_>>(), [("42", 2), ("53", 1)]);
    }
}
