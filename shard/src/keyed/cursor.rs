//! Walking a snapshot by key: one cursor for each memtable and segment, merged. A row is looked at in place
//! and only becomes a [`Version`] where one is needed.

use super::{BY_KEY, SharedMem};
use crate::segment::Segment;
use std::rc::Rc;
use strandline_core::error::{Error, Result};
use strandline_core::format::block::BlockData;
use strandline_core::format::decoded::DecodedBlock;
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::keyed::Version;
use strandline_core::value::{Cell, Value};

/// Keys taken from a memtable at once, so that its borrow is short.
const MEM_KEYS: usize = 256;

/// A row of a snapshot, wherever it stands.
#[derive(Clone, Copy)]
pub(crate) enum RowRef<'a> {
    /// In memory.
    Mem(&'a Rc<Version>),
    /// In a decoded block.
    Block(&'a DecodedBlock, usize),
}

fn damaged() -> Error {
    Error::corrupted("a segment of a rows table lacks the key or x_rev of a row")
}

/// The key of a block's row.
pub(crate) fn block_key(block: &DecodedBlock, row: usize) -> Result<&[u8]> {
    block
        .get(ColumnId::KEY)
        .and_then(|c| c.bytes_at(row))
        .ok_or_else(damaged)
}
/// A number column of a block's row.
pub(crate) fn block_i64(block: &DecodedBlock, id: ColumnId, row: usize) -> Result<i64> {
    block
        .get(id)
        .and_then(|c| c.i64_at(row))
        .ok_or_else(damaged)
}

impl RowRef<'_> {
    /// Its key.
    pub fn key(&self) -> Result<&[u8]> {
        match self {
            RowRef::Mem(v) => Ok(&v.key),
            RowRef::Block(b, row) => block_key(b, *row),
        }
    }
    /// Its x_rev.
    pub fn rev(&self) -> Result<Rev> {
        match self {
            RowRef::Mem(v) => Ok(v.rev),
            RowRef::Block(b, row) => Ok(Rev(block_i64(b, ColumnId::REV, *row)? as u64)),
        }
    }
    /// Whether it is a tombstone.
    pub fn deleted(&self) -> Result<bool> {
        match self {
            RowRef::Mem(v) => Ok(v.deleted),
            RowRef::Block(b, row) => Ok(block_i64(b, ColumnId::DELETED, *row)? != 0),
        }
    }
    /// A declared column.
    pub fn cell(&self, id: ColumnId) -> Cell<'_> {
        match self {
            RowRef::Mem(v) => match v.value(id) {
                Value::Null => Cell::Null,
                Value::F64(x) => Cell::F64(*x),
                Value::Str(s) => Cell::Str(s),
            },
            RowRef::Block(b, row) => {
                let Some(column) = b.get(id) else {
                    return Cell::Null;
                };
                match &column.data {
                    BlockData::F64(_) => column.f64_at(*row).map_or(Cell::Null, Cell::F64),
                    _ => column.str_at(*row).map_or(Cell::Null, Cell::Str),
                }
            }
        }
    }
    /// The whole version; the block must hold all of its columns.
    pub fn version(&self) -> Result<Rc<Version>> {
        match self {
            RowRef::Mem(v) => Ok((*v).clone()),
            RowRef::Block(b, row) => block_version(b, *row).map(Rc::new),
        }
    }
}

/// A row of a block that holds all of its columns, as a version.
pub(crate) fn block_version(block: &DecodedBlock, row: usize) -> Result<Version> {
    let mut values = Vec::new();
    for (id, column) in block.columns() {
        if *id >= ColumnId::FIRST_USER {
            let value = match &column.data {
                BlockData::F64(_) => column.f64_at(row).map(Value::F64),
                _ => column.str_at(row).map(Value::str),
            };
            values.extend(value.map(|v| (*id, v)));
        }
    }
    Ok(Version {
        key: block_key(block, row)?.into(),
        rev: Rev(block_i64(block, ColumnId::REV, row)? as u64),
        deleted: block_i64(block, ColumnId::DELETED, row)? != 0,
        first: block_i64(block, ColumnId::FIRST, row)? != 0,
        values,
    })
}

/// Every column that a block of section 0 has.
pub(crate) fn all_columns(segment: &Segment, block: usize) -> Vec<ColumnId> {
    segment
        .blocks(BY_KEY)
        .get(block)
        .map(|b| b.chunks.iter().map(|c| c.id).collect())
        .unwrap_or_default()
}

enum Source {
    Mem {
        mem: SharedMem,
        seen: u64,
        rows: Vec<Rc<Version>>,
        after: Option<Box<[u8]>>,
        done: bool,
    },
    Segment {
        segment: Rc<Segment>,
        block: Option<DecodedBlock>,
        next_block: usize,
    },
}

struct Cursor {
    source: Source,
    row: usize,
}

impl Cursor {
    /// Has a row at hand, or is at its end.
    async fn fill(&mut self, columns: Option<&[ColumnId]>) -> Result<()> {
        match &mut self.source {
            Source::Mem {
                mem,
                seen,
                rows,
                after,
                done,
            } => {
                while self.row >= rows.len() && !*done {
                    let m = mem.borrow();
                    *rows = m.keys_after(after.as_deref(), MEM_KEYS, *seen);
                    match m.last_key_of(after.as_deref(), MEM_KEYS) {
                        Some(last) => *after = Some(last),
                        None => *done = true,
                    }
                    self.row = 0;
                }
            }
            Source::Segment {
                segment,
                block,
                next_block,
            } => {
                while block.as_ref().is_none_or(|b| self.row >= b.rows) {
                    if *next_block >= segment.blocks(BY_KEY).len() {
                        *block = None;
                        return Ok(());
                    }
                    let all;
                    let columns = match columns {
                        Some(columns) => columns,
                        None => {
                            all = all_columns(segment, *next_block);
                            &all
                        }
                    };
                    *block = Some(segment.read(BY_KEY, *next_block, columns).await?);
                    *next_block += 1;
                    self.row = 0;
                }
            }
        }
        Ok(())
    }

    fn row(&self) -> Option<RowRef<'_>> {
        match &self.source {
            Source::Mem { rows, .. } => rows.get(self.row).map(RowRef::Mem),
            Source::Segment { block, .. } => block
                .as_ref()
                .filter(|b| self.row < b.rows)
                .map(|b| RowRef::Block(b, self.row)),
        }
    }
}

/// All sources, merged by key and then newest first.
pub(crate) struct Merge {
    cursors: Vec<Cursor>,
    /// Columns to decode; `None`: all.
    columns: Option<Vec<ColumnId>>,
    current: usize,
    started: bool,
}

impl Merge {
    /// Over memtables (with each reader's bound) and segments.
    pub fn new(
        mems: &[(SharedMem, u64)],
        segments: &[Rc<Segment>],
        columns: Option<Vec<ColumnId>>,
    ) -> Self {
        let mems = mems.iter().map(|(mem, seen)| Source::Mem {
            mem: mem.clone(),
            seen: *seen,
            rows: Vec::new(),
            after: None,
            done: false,
        });
        let segments = segments.iter().map(|s| Source::Segment {
            segment: s.clone(),
            block: None,
            next_block: 0,
        });
        let cursors = mems
            .chain(segments)
            .map(|source| Cursor { source, row: 0 })
            .collect();
        Merge {
            cursors,
            columns,
            current: 0,
            started: false,
        }
    }

    /// Steps to the next row; false at the end.
    pub async fn step(&mut self) -> Result<bool> {
        if self.started {
            self.cursors[self.current].row += 1;
            let at = self.current;
            if self.cursors[at].row().is_none() {
                self.cursors[at].fill(self.columns.as_deref()).await?;
            }
        } else {
            self.started = true;
            for cursor in &mut self.cursors {
                cursor.fill(self.columns.as_deref()).await?;
            }
        }
        let mut best: Option<(usize, &[u8], Rev)> = None;
        for (i, cursor) in self.cursors.iter().enumerate() {
            let Some(row) = cursor.row() else { continue };
            let (key, rev) = match row {
                RowRef::Mem(v) => (&*v.key, v.rev),
                RowRef::Block(b, r) => (
                    block_key(b, r)?,
                    Rev(block_i64(b, ColumnId::REV, r)? as u64),
                ),
            };
            let better = best.is_none_or(|(_, k, r)| key < k || (key == k && rev > r));
            if better {
                best = Some((i, key, rev));
            }
        }
        match best {
            Some((i, ..)) => {
                self.current = i;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The row that the last step found.
    pub fn row(&self) -> Option<RowRef<'_>> {
        self.cursors.get(self.current)?.row()
    }
}
