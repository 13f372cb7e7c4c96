//! A block as it comes back from a segment, ready for random access by row.

use super::block::{BlockData, Presence};
use crate::ids::ColumnId;
use std::rc::Rc;

/// One decoded column of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedColumn {
    /// Which rows have a cell.
    pub presence: Presence,
    /// Their cells, packed.
    pub data: BlockData,
    /// Cells before each word of the presence bits; empty when every row has one.
    rank: Vec<u32>,
    /// For runs: the row behind each run's last; else empty.
    run_ends: Vec<u32>,
}

impl DecodedColumn {
    /// From what the codec gives.
    pub fn new(presence: Presence, data: BlockData) -> Self {
        let rank = match &presence {
            Presence::All => Vec::new(),
            Presence::Some(bits) => running(bits.words().iter().map(|w| w.count_ones()), false),
        };
        let run_ends = match &data {
            BlockData::StrRuns { counts, .. } => running(counts.iter().copied(), true),
            _ => Vec::new(),
        };
        DecodedColumn {
            presence,
            data,
            rank,
            run_ends,
        }
    }
    /// Where a row's cell stands among the packed cells, if it has one. O(1).
    pub fn cell_of(&self, row: usize) -> Option<usize> {
        match &self.presence {
            Presence::All => Some(row),
            Presence::Some(bits) => {
                let word = *bits.words().get(row / 64)?;
                let bit = 1u64 << (row % 64);
                (word & bit != 0).then(|| {
                    self.rank[row / 64] as usize + (word & (bit - 1)).count_ones() as usize
                })
            }
        }
    }
    /// The number of a row, if it has one and this is a column of f64.
    pub fn f64_at(&self, row: usize) -> Option<f64> {
        match &self.data {
            BlockData::F64(v) => v.get(self.cell_of(row)?).copied(),
            _ => None,
        }
    }
    /// The number of a row, if it has one and this is a column of i64.
    pub fn i64_at(&self, row: usize) -> Option<i64> {
        match &self.data {
            BlockData::I64(v) => v.get(self.cell_of(row)?).copied(),
            _ => None,
        }
    }
    /// The text or key of a row, if it has one. O(1) for text, O(log runs) for runs.
    pub fn bytes_at(&self, row: usize) -> Option<&[u8]> {
        let cell = self.cell_of(row)?;
        match &self.data {
            BlockData::Str(v) => (cell < v.len()).then(|| v.get_bytes(cell)),
            BlockData::StrRuns { names, .. } => {
                let run = self.run_of(cell)?;
                (run < names.len()).then(|| names.get_bytes(run))
            }
            _ => None,
        }
    }
    /// As [`DecodedColumn::bytes_at`], as text.
    pub fn str_at(&self, row: usize) -> Option<&str> {
        self.bytes_at(row)
            .map(|b| std::str::from_utf8(b).unwrap_or("\u{FFFD}"))
    }
    /// For a column that lacks some rows: the cells before each 64-row word of its presence; else empty.
    pub fn ranks(&self) -> &[u32] {
        &self.rank
    }
    /// For a column of runs: which run a cell belongs to.
    pub fn run_of(&self, cell: usize) -> Option<usize> {
        let run = self.run_ends.partition_point(|&end| end as usize <= cell);
        (run < self.run_ends.len()).then_some(run)
    }
    /// For a column of runs: the cell behind each run's last, in order; else empty.
    pub fn run_ends(&self) -> &[u32] {
        &self.run_ends
    }
    /// Bytes held, for the cache budget.
    pub fn memory_bytes(&self) -> usize {
        let bits = match &self.presence {
            Presence::All => 0,
            Presence::Some(bits) => bits.words().len() * 8,
        };
        std::mem::size_of::<Self>()
            + self.data.memory_bytes()
            + bits
            + (self.rank.capacity() + self.run_ends.capacity()) * 4
    }
}

fn running(counts: impl Iterator<Item = u32>, after: bool) -> Vec<u32> {
    let mut sum = 0u32;
    counts
        .map(|c| {
            let before = sum;
            sum = sum.saturating_add(c);
            if after { sum } else { before }
        })
        .collect()
}

/// The columns of a block that were asked for and are there.
#[derive(Clone, Debug, Default)]
pub struct DecodedBlock {
    /// Rows.
    pub rows: usize,
    columns: Vec<(ColumnId, Rc<DecodedColumn>)>,
}

impl DecodedBlock {
    /// From its columns, in any order.
    pub fn new(rows: usize, mut columns: Vec<(ColumnId, Rc<DecodedColumn>)>) -> Self {
        columns.sort_by_key(|(id, _)| *id);
        DecodedBlock { rows, columns }
    }
    /// A column; none when no row of the block has a cell of it, or it was not asked for.
    pub fn get(&self, id: ColumnId) -> Option<&Rc<DecodedColumn>> {
        self.columns
            .binary_search_by_key(&id, |(c, _)| *c)
            .ok()
            .map(|i| &self.columns[i].1)
    }
    /// All of them, in order of number.
    pub fn columns(&self) -> &[(ColumnId, Rc<DecodedColumn>)] {
        &self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::Bitmap;
    use crate::value::StrVec;

    #[test]
    fn cells_are_found_by_row() {
        let mut bits = Bitmap::new(200);
        let rows: Vec<usize> = (0..200).filter(|r| r % 3 == 1 || *r > 150).collect();
        rows.iter().for_each(|&r| bits.set(r));
        let data = BlockData::F64(rows.iter().map(|&r| r as f64).collect());
        let c = DecodedColumn::new(Presence::Some(bits), data);
        for row in 0..210 {
            let want = rows.contains(&row).then_some(row as f64);
            assert_eq!(c.f64_at(row), want);
            assert_eq!(c.i64_at(row), None);
        }
    }

    #[test]
    fn runs_are_found_by_row() {
        let names: StrVec = ["a", "b", "c"].into_iter().collect();
        let counts = vec![2, 1, 3];
        let c = DecodedColumn::new(Presence::All, BlockData::StrRuns { names, counts });
        let got: Vec<_> = (0..7).map(|r| c.str_at(r)).collect();
        let (a, b, z) = (Some("a"), Some("b"), Some("c"));
        assert_eq!(got, [a, a, b, z, z, z, None]);
        assert_eq!(c.run_ends(), [2, 3, 6]);
    }
}
