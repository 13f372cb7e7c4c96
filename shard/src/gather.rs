//! Answers of several shards made into one: parts that arrive as they come, and ordered parts merged.

use crate::api::BatchStream;
use crate::store::{BATCH_BYTES, BatchSink};
use std::collections::VecDeque;
use strandline_core::error::{Error, Result};
use strandline_core::io::LocalFuture;
use strandline_core::keyed::ScanLayout;
use strandline_core::profile::ScanCounters;
use strandline_core::value::{Batch, Cell, ColumnBuilder};

/// Batches that wait in a channel between a shard and a session: with the one each side works on, this
/// bounds what a slow client can hold.
pub const CHANNEL_BATCHES: usize = 4;

/// What a shard sends while it scans.
#[derive(Debug)]
pub enum Part {
    /// The shard has fixed what it will read.
    Begun,
    /// The shard has resolved versions above the reader's watermark: ask again with a newer one.
    Stale,
    /// Rows.
    Rows(Batch),
    /// The end, and what was looked at.
    End(Result<ScanCounters>),
}

/// Sends a scan's batches over a channel; a receiver that is gone ends the scan.
pub struct ChannelSink {
    tx: flume::Sender<Part>,
    /// What was looked at so far.
    pub looked_at: ScanCounters,
}

impl ChannelSink {
    /// To `tx`'s other side.
    pub fn new(tx: flume::Sender<Part>) -> Self {
        ChannelSink {
            tx,
            looked_at: ScanCounters::default(),
        }
    }
}

impl BatchSink for ChannelSink {
    fn push(&mut self, batch: Batch) -> LocalFuture<'_, Result<bool>> {
        // Most scans answer a batch or two: those need no boxed wait.
        match self.tx.try_send(Part::Rows(batch)) {
            Ok(()) => Box::pin(std::future::ready(Ok(true))),
            Err(flume::TrySendError::Disconnected(_)) => Box::pin(std::future::ready(Ok(false))),
            Err(flume::TrySendError::Full(part)) => {
                Box::pin(async move { Ok(self.tx.send_async(part).await.is_ok()) })
            }
        }
    }
    fn note(&mut self, looked_at: &ScanCounters) {
        self.looked_at.add_pass(looked_at);
    }
}

fn died() -> Error {
    Error::internal("a shard ended a scan without an answer; its log says why")
}

/// Batches of several shards over one channel, in no order.
pub struct Unordered {
    rx: flume::Receiver<Part>,
    open: usize,
    looked_at: ScanCounters,
}

impl Unordered {
    /// Of `shards` scans that send to `rx`'s other side.
    pub fn new(rx: flume::Receiver<Part>, shards: usize) -> Self {
        Unordered {
            rx,
            open: shards,
            looked_at: ScanCounters::default(),
        }
    }
}

impl BatchStream for Unordered {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            while self.open > 0 {
                match self.rx.recv_async().await.map_err(|_| died())? {
                    Part::Begun | Part::Stale => {}
                    Part::Rows(batch) => return Ok(Some(batch)),
                    Part::End(done) => {
                        self.looked_at.add(&done?);
                        self.open -= 1;
                    }
                }
            }
            Ok(None)
        })
    }
    fn looked_at(&self) -> ScanCounters {
        self.looked_at
    }
}

/// One shard's ordered rows.
struct Lane {
    rx: flume::Receiver<Part>,
    batch: Option<Batch>,
    row: usize,
    ended: bool,
}

impl Lane {
    /// Has a row at hand, or has ended.
    async fn fill(&mut self) -> Result<()> {
        while !self.ended && self.batch.as_ref().is_none_or(|b| self.row >= b.rows) {
            match self.rx.recv_async().await.map_err(|_| died())? {
                Part::Begun | Part::Stale => {}
                Part::Rows(batch) => {
                    self.batch = Some(batch);
                    self.row = 0;
                }
                Part::End(done) => {
                    done?;
                    self.ended = true;
                    self.batch = None;
                }
            }
        }
        Ok(())
    }
}

/// Rows answered at once by a merge, at most.
const MERGED_ROWS: usize = 1024;

/// Ordered batches of several shards, merged; offset and limit applied; hidden columns cut off.
pub struct Ordered {
    lanes: Vec<Lane>,
    layout: ScanLayout,
    skip: u64,
    left: u64,
}

impl Ordered {
    /// Of scans whose first parts have been taken from the channels already, back into `first`.
    pub fn new(
        channels: Vec<flume::Receiver<Part>>,
        layout: ScanLayout,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        let lanes = channels
            .into_iter()
            .map(|rx| Lane {
                rx,
                batch: None,
                row: 0,
                ended: false,
            })
            .collect();
        Ordered {
            lanes,
            layout,
            skip: offset,
            left: limit.unwrap_or(u64::MAX),
        }
    }

    /// A lane alone: whole batches pass through.
    async fn single(&mut self) -> Result<Option<Batch>> {
        let lane = &mut self.lanes[0];
        loop {
            lane.fill().await?;
            let Some(batch) = lane.batch.take() else {
                return Ok(None);
            };
            let from = self.skip.min(batch.rows as u64) as usize;
            self.skip -= from as u64;
            let rows = ((batch.rows - from) as u64).min(self.left) as usize;
            self.left -= rows as u64;
            if rows > 0 {
                return Ok(Some(self.layout.visible(batch, from, rows)));
            }
            if self.left == 0 {
                return Ok(None);
            }
        }
    }

    async fn merge(&mut self) -> Result<Option<Batch>> {
        let mut out: VecDeque<ColumnBuilder> = VecDeque::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < MERGED_ROWS && bytes < BATCH_BYTES && self.left > 0 {
            let mut best: Option<usize> = None;
            for i in 0..self.lanes.len() {
                self.lanes[i].fill().await?;
                let Some(batch) = &self.lanes[i].batch else {
                    continue;
                };
                let less = match best.map(|b| &self.lanes[b]) {
                    None => true,
                    Some(lane) => lane.batch.as_ref().is_some_and(|b| {
                        self.layout
                            .compare(batch, self.lanes[i].row, b, lane.row)
                            .is_lt()
                    }),
                };
                if less {
                    best = Some(i);
                }
            }
            let Some(lane) = best.map(|b| &mut self.lanes[b]) else {
                break;
            };
            if self.skip > 0 {
                self.skip -= 1;
            } else if let Some(batch) = &lane.batch {
                if out.is_empty() {
                    out = batch.columns[..self.layout.visible_columns()]
                        .iter()
                        .map(ColumnBuilder::like)
                        .collect();
                }
                for (builder, column) in out.iter_mut().zip(&batch.columns) {
                    let cell = column.cell(lane.row);
                    if let Cell::Str(text) = cell {
                        bytes += text.len();
                    }
                    builder.push(cell);
                }
                rows += 1;
                self.left -= 1;
            }
            lane.row += 1;
        }
        Ok((rows > 0).then(|| Batch {
            rows,
            columns: out.into_iter().map(ColumnBuilder::finish).collect(),
        }))
    }
}

impl BatchStream for Ordered {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if self.left == 0 {
                return Ok(None);
            }
            if self.lanes.len() == 1 {
                self.single().await
            } else {
                self.merge().await
            }
        })
    }
}

/// One batch that is there already.
pub struct Once(pub Option<Batch>);

impl BatchStream for Once {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Batch>>> {
        Box::pin(std::future::ready(Ok(self.0.take())))
    }
}
