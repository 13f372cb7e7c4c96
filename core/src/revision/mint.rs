//! Where the next xids stand: strictly above all earlier ones whatever the clock does, and never across the
//! edge of a ms or of a run.

use crate::ids::ShardId;
use crate::routing::shard_of_xid;
use crate::xid::Xid;

/// Ids of one run (same ms, same upper 48 bits of the sequence) live on one shard.
pub(super) const RUN: u64 = 1 << 16;

/// An INSERT of fewer rows looks for a run of the writer's own shard; larger ones spread over all shards.
const PREFER_BELOW_ROWS: u32 = 64;

/// How many runs it looks at, per shard of the database: it misses one time in e^4.
const SKIP_RUNS_PER_SHARD: u32 = 4;

/// It never looks at more than this: each costs some 5 ns under the allocator's lock.
const SKIP_RUNS_MAX: u32 = 256;

/// The largest ms that an xid holds.
const MS_MAX: u64 = (1 << 48) - 1;

/// The last id handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mint {
    ms: u64,
    sequence: u64,
}

impl Mint {
    /// Continues above an id.
    pub(super) fn above(xid: Xid) -> Self {
        Mint {
            ms: xid.ms(),
            sequence: xid.sequence(),
        }
    }

    /// No id above it was ever handed out, whatever the node.
    pub(super) fn last(&self) -> Xid {
        Xid::new(self.ms, self.sequence, u16::MAX)
    }

    /// Marks `rows` ids from `first` as handed out.
    pub(super) fn advance(&mut self, first: Xid, rows: u32) {
        self.ms = first.ms();
        self.sequence = first.sequence() + (u64::from(rows) - 1);
    }

    /// The first of `rows` (1 to [`RUN`]) new ids; `None` at the end of time. Changes nothing: a refused
    /// INSERT uses no ids up.
    pub(super) fn place(
        &self,
        rows: u32,
        now_ms: i64,
        random: u64,
        node: u16,
        shards: u16,
        prefer: Option<ShardId>,
    ) -> Option<Xid> {
        let rows64 = u64::from(rows);
        let now = u64::try_from(now_ms).unwrap_or(0).min(MS_MAX);
        // With its top bit clear a seed leaves 2^63 numbers to count up through within the ms.
        let seed = random >> 1;
        let (mut ms, mut first) = if now > self.ms {
            (now, seed)
        } else {
            // The clock stands still or has stepped back: go on from the last id.
            match self.sequence.checked_add(1) {
                Some(next) => (self.ms, next),
                None => (ms_after(self.ms)?, seed),
            }
        };
        if first % RUN + rows64 > RUN {
            (ms, first) = match run_after(first) {
                Some(start) => (ms, start),
                // Aligned down, a seed has room for any batch.
                None => (ms_after(ms)?, seed & !(RUN - 1)),
            };
        }
        if let Some(shard) = prefer.filter(|_| rows < PREFER_BELOW_ROWS) {
            let mut run = Some(first);
            for _ in 0..(u32::from(shards) * SKIP_RUNS_PER_SHARD).min(SKIP_RUNS_MAX) {
                let Some(start) = run else { break };
                if shard_of_xid(Xid::new(ms, start, node), shards) == shard {
                    first = start;
                    break;
                }
                run = run_after(start);
            }
        }
        Some(Xid::new(ms, first, node))
    }
}

/// The start of the run after the one that holds `sequence`.
fn run_after(sequence: u64) -> Option<u64> {
    (sequence | (RUN - 1)).checked_add(1)
}

fn ms_after(ms: u64) -> Option<u64> {
    (ms < MS_MAX).then_some(ms + 1)
}
