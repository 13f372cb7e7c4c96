//! Rows that are made anew, by column, in the shape in which sources give theirs.

use crate::segment::DecodedColumn;
use strandline_core::format::block::{Bitmap, BlockData, Presence};
use strandline_core::ids::ColumnId;
use strandline_core::stream::cells::ColView;
use strandline_core::stream::merge::SliceRef;
use strandline_core::value::{Cell, Kind, StrVec};

/// Takes rows.
pub(super) struct Pack {
    kinds: Vec<Kind>,
    ts: Vec<i64>,
    columns: Vec<(Vec<u32>, BlockData)>,
}

/// Rows of one entity, or of several where the order of rows says which.
pub(super) struct Packed {
    ts: Vec<i64>,
    columns: Vec<Option<DecodedColumn>>,
}

fn empty(kind: Kind) -> (Vec<u32>, BlockData) {
    let data = match kind {
        Kind::F64 => BlockData::F64(Vec::new()),
        Kind::Str => BlockData::Str(StrVec::new()),
    };
    (Vec::new(), data)
}

impl Pack {
    /// For these channels.
    pub fn new(channels: &[(ColumnId, Kind)]) -> Pack {
        let kinds: Vec<Kind> = channels.iter().map(|c| c.1).collect();
        Pack {
            ts: Vec::new(),
            columns: kinds.iter().map(|&k| empty(k)).collect(),
            kinds,
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.ts.len()
    }

    /// Adds a row; `cell` says what it has of each channel.
    pub fn row<'a>(&mut self, ts: i64, cell: impl Fn(usize) -> Cell<'a>) {
        let row = self.ts.len() as u32;
        self.ts.push(ts);
        for (c, (rows, data)) in self.columns.iter_mut().enumerate() {
            match (data, cell(c)) {
                (BlockData::F64(to), Cell::F64(x)) => to.push(x),
                (BlockData::Str(to), Cell::Str(text)) => to.push_bytes(text.as_bytes()),
                _ => continue,
            }
            rows.push(row);
        }
    }

    /// The rows; it is empty then.
    pub fn take(&mut self) -> Packed {
        let ts = std::mem::take(&mut self.ts);
        let fresh = self.kinds.iter().map(|&k| empty(k)).collect();
        let columns = std::mem::replace(&mut self.columns, fresh);
        let columns = columns.into_iter().map(|(rows, data)| {
            if rows.is_empty() {
                return None;
            }
            let presence = if rows.len() == ts.len() {
                Presence::All
            } else {
                let mut bits = Bitmap::new(ts.len());
                rows.iter().for_each(|&r| bits.set(r as usize));
                Presence::Some(bits)
            };
            Some(DecodedColumn::new(presence, data))
        });
        Packed {
            columns: columns.collect(),
            ts,
        }
    }
}

impl Packed {
    /// ts of every row.
    pub fn ts(&self) -> &[i64] {
        &self.ts
    }
    /// The channels, ready to read.
    pub fn views(&self) -> Vec<Option<ColView<'_>>> {
        let columns = self.columns.iter();
        columns.map(|c| c.as_ref().map(ColView::new)).collect()
    }
    /// The rows as a merge takes them.
    pub fn slice<'a>(&'a self, views: &'a [Option<ColView<'a>>]) -> SliceRef<'a> {
        SliceRef {
            ts: &self.ts,
            base: 0,
            channels: views,
        }
    }
}
