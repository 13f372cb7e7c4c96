//! How writers are slowed when flushes and merges lag behind: by a little that grows with what is owed, so
//! that ingest settles at what the disk can take, instead of running at full speed into a wall. Who writes
//! much waits much: a single row beside a stream of batches owes next to nothing, and must not stand still
//! for what the stream has left behind (numbers of a rows table are granted before it waits, so that others
//! would wait with it).

use crate::worker::{Shard, Store, count};
use std::time::Duration;
use strandline_core::ids::TableId;

/// The longest that one write waits for the sake of pace.
const LONGEST: Duration = Duration::from_millis(40);
/// Below this part of what a shard may owe nobody is slowed: a flush that is under way is no debt.
const FREE: f64 = 0.5;
/// A write of that many bytes waits for all of the delay, a smaller one for its part of it.
const FULL_BYTES: usize = 64 << 10;
/// Timers are no finer: what is shorter is added up until it is as long.
const SHORTEST: Duration = Duration::from_micros(100);
/// Merges may owe so many times the largest segment before writers wait longest.
const MERGE_SEGMENTS: u64 = 8;

/// What a shard owes, each as a part of what it may: 0 nothing, 1 all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// Memory of memtables, from where flushes begin to where writers wait for them.
    pub memory: f64,
    /// Bytes of log that a start would replay, past the limit `log_bytes`: as much again is all.
    pub log: f64,
    /// Bytes that merges have still to rewrite.
    pub merges: f64,
}

impl Debt {
    /// How long a write of [`FULL_BYTES`] waits: not at all up to the half of what may be owed, then with the square of it.
    pub fn delay(self) -> Duration {
        let owed = self.memory.max(self.log).max(self.merges).clamp(0.0, 1.0);
        let over = ((owed - FREE) / (1.0 - FREE)).max(0.0);
        LONGEST.mul_f64(over * over)
    }

    /// The share of a write of so many bytes.
    fn delay_of(self, bytes: usize) -> Duration {
        self.delay()
            .mul_f64((bytes as f64 / FULL_BYTES as f64).min(1.0))
    }
}

impl Shard {
    /// What this shard owes now.
    pub fn debt(&self) -> Debt {
        let (active, frozen) = self.memtable_bytes();
        let part = |now: u64, from: u64, to: u64| {
            now.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64
        };
        let (flush_at, wait_at) = (self.plan.flush_at as u64, self.plan.wait_at as u64);
        let limits = &self.shared.limits;
        Debt {
            memory: part((active + frozen) as u64, flush_at, wait_at),
            log: part(
                self.wal.live_bytes(),
                limits.log_bytes,
                limits.log_bytes.saturating_mul(2),
            ),
            merges: part(
                self.debt_bytes.get(),
                0,
                limits.segment_bytes.saturating_mul(MERGE_SEGMENTS),
            ),
        }
    }

    /// Waits as long as the debt asks of a write of so many bytes; `false`: it asks for nothing.
    pub(crate) async fn slow_down(&self, bytes: usize) -> bool {
        let delay = self.debt().delay_of(bytes);
        if delay.is_zero() {
            return false;
        }
        // One of many small writes waits for the others too.
        let delay = delay + self.pace_change.take();
        if delay < SHORTEST {
            self.pace_change.set(delay);
            return false;
        }
        count(&self.counters.writes_slowed, 1);
        count(&self.counters.slowed_us, delay.as_micros() as u64);
        self.env.tasks.sleep(delay).await;
        true
    }

    /// Takes anew what merges of a table owe. Its segments have changed.
    pub(crate) fn note_debt(&self, table: TableId) {
        let debt = self
            .tables
            .borrow()
            .get(&table)
            .map(Store::merge_debt_bytes);
        let before = match debt {
            Some(debt) => self.debts.borrow_mut().insert(table, debt),
            None => self.debts.borrow_mut().remove(&table),
        };
        let all = self.debt_bytes.get() + debt.unwrap_or(0);
        self.debt_bytes.set(all - before.unwrap_or(0));
    }

    /// Forgets a table that was dropped.
    pub(crate) fn forget_debt(&self, table: TableId) {
        let before = self.debts.borrow_mut().remove(&table).unwrap_or(0);
        self.debt_bytes.set(self.debt_bytes.get() - before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_the_debt_and_is_bounded() {
        let at = |memory| {
            Debt {
                memory,
                ..Debt::default()
            }
            .delay()
        };
        assert_eq!(at(0.0), Duration::ZERO);
        assert_eq!(at(FREE), Duration::ZERO);
        let delays: Vec<Duration> = (0..=100).map(|n| at(f64::from(n) / 100.0)).collect();
        assert!(delays.is_sorted());
        // Smooth: no step is more than a small part of the whole.
        assert!(delays.windows(2).all(|w| w[1] - w[0] <= LONGEST / 20));
        assert_eq!(delays[100], LONGEST);
        assert_eq!(at(7.0), LONGEST);
        let full = Debt {
            memory: 1.0,
            ..Debt::default()
        };
        assert_eq!(full.delay_of(FULL_BYTES), LONGEST);
        assert_eq!(full.delay_of(100 * FULL_BYTES), LONGEST);
        assert_eq!(full.delay_of(FULL_BYTES / 4), LONGEST / 4);
        assert!(full.delay_of(100) < SHORTEST, "a row is not stopped");
        let log = Debt {
            log: 1.0,
            ..Debt::default()
        };
        assert_eq!(log.delay(), LONGEST);
        let merges = Debt {
            merges: 1.0,
            ..Debt::default()
        };
        assert_eq!(merges.delay(), LONGEST);
    }
}
