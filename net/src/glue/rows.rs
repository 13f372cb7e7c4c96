//! Rows of an answer as they come, a chunk at a time, with OFFSET and LIMIT applied. Dropping [`Rows`] stops
//! the work behind it.

use super::sort::Sorter;
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::io::Tasks;
use strandline_core::profile::ScanCounters;
use strandline_core::value::Batch;
use strandline_shard::api::{BatchStream, Engine, InsertedRow};
use strandline_sql::plan::{OutputColumn, Shape, Source};
use strandline_sql::types::Datum;

/// Rows that are here.
#[derive(Debug)]
pub enum Chunk {
    /// From the engine.
    Batch(Batch),
    /// Single values.
    Datums(Vec<Vec<Datum>>),
    /// The ids of an INSERT; the one column is the xid.
    Xids(Vec<InsertedRow>),
}

impl Chunk {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Chunk::Batch(b) => b.rows,
            Chunk::Datums(rows) => rows.len(),
            Chunk::Xids(rows) => rows.len(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

enum Behind {
    Nothing,
    Engine(Box<dyn BatchStream>),
    Sorted(Sorter),
}

/// An answer's rows.
pub struct Rows {
    columns: Rc<[OutputColumn]>,
    behind: Behind,
    chunk: Chunk,
    /// Rows of `chunk` from here to `end` are to be answered.
    at: usize,
    end: usize,
    skip: u64,
    left: u64,
}

impl Rows {
    fn new(columns: Rc<[OutputColumn]>, behind: Behind, chunk: Chunk) -> Self {
        let mut rows = Rows {
            columns,
            behind,
            chunk,
            at: 0,
            end: 0,
            skip: 0,
            left: u64::MAX,
        };
        rows.cut();
        rows
    }
    /// Rows made of single values.
    pub fn datums(columns: Rc<[OutputColumn]>, rows: Vec<Vec<Datum>>) -> Self {
        Rows::new(columns, Behind::Nothing, Chunk::Datums(rows))
    }
    /// The ids of an INSERT, as column `xid`.
    pub fn xids(columns: Rc<[OutputColumn]>, rows: Vec<InsertedRow>) -> Self {
        Rows::new(columns, Behind::Nothing, Chunk::Xids(rows))
    }

    /// The columns.
    pub fn columns(&self) -> &Rc<[OutputColumn]> {
        &self.columns
    }
    /// What is here: rows `range` of the chunk.
    pub fn here(&self) -> (&Chunk, std::ops::Range<usize>) {
        (&self.chunk, self.at..self.end)
    }
    /// Passes over `n` rows that are here.
    pub fn advance(&mut self, n: usize) {
        self.at = self.end.min(self.at + n);
    }

    /// Makes sure that a row is here; false at the end.
    pub async fn ready(&mut self) -> Result<bool> {
        while self.at == self.end {
            if self.left == 0 {
                // Nobody will ask for more: stop the shards now.
                self.behind = Behind::Nothing;
            }
            let next = match &mut self.behind {
                Behind::Nothing => None,
                Behind::Engine(stream) => stream.next().await?,
                Behind::Sorted(sorter) => sorter.next().await,
            };
            match next {
                Some(batch) => {
                    self.chunk = Chunk::Batch(batch);
                    self.cut();
                }
                None => {
                    self.behind = Behind::Nothing;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Applies OFFSET and LIMIT to a chunk that just came.
    fn cut(&mut self) {
        let len = self.chunk.len();
        let skip = self.skip.min(len as u64);
        self.skip -= skip;
        self.at = skip as usize;
        let take = self.left.min((len - self.at) as u64);
        self.left -= take;
        self.end = self.at + take as usize;
    }
}

/// What the engine answers to a SELECT.
pub(super) async fn open(engine: &Rc<dyn Engine>, source: Source) -> Result<Box<dyn BatchStream>> {
    Ok(match source {
        Source::Stream(scan) => engine.scan_stream(scan).await?,
        Source::Latest(scan) => engine.latest(scan).await?,
        Source::Keyed(scan) => engine.scan_keyed(scan).await?,
        Source::Aggregate(query) => {
            let (batch, looked_at) = engine.aggregate_counted(query).await?;
            Box::new(One(Some(batch), looked_at))
        }
    })
}

/// How many of so many rows OFFSET and LIMIT leave.
pub(super) fn row_limits(rows: u64, shape: &Shape) -> u64 {
    let left = rows.saturating_sub(shape.offset);
    shape.limit.map_or(left, |limit| left.min(limit))
}

/// Starts a SELECT.
pub async fn select(
    engine: &Rc<dyn Engine>,
    tasks: &Rc<dyn Tasks>,
    source: Source,
    shape: Shape,
) -> Result<Rows> {
    let columns: Rc<[OutputColumn]> = shape.columns.into();
    let empty = Chunk::Datums(vec![]);
    let mut rows = if shape.limit == Some(0) {
        Rows::new(columns, Behind::Nothing, empty)
    } else {
        let stream = open(engine, source).await?;
        if shape.order.is_empty() {
            Rows::new(columns, Behind::Engine(stream), empty)
        } else {
            let keep = shape.limit.map(|l| l.saturating_add(shape.offset));
            let mut sorter = Sorter::new(shape.order, keep, engine.limits(), tasks);
            let mut stream = stream;
            while let Some(batch) = stream.next().await? {
                sorter.push(batch).await?;
            }
            sorter.finish();
            Rows::new(columns, Behind::Sorted(sorter), empty)
        }
    };
    rows.skip = shape.offset;
    rows.left = shape.limit.unwrap_or(u64::MAX);
    Ok(rows)
}

/// A stream of one batch.
struct One(Option<Batch>, ScanCounters);

impl BatchStream for One {
    fn next(&mut self) -> strandline_core::io::LocalFuture<'_, Result<Option<Batch>>> {
        let batch = self.0.take();
        Box::pin(async move { Ok(batch) })
    }
    fn looked_at(&self) -> ScanCounters {
        self.1
    }
}
