//! A column of a run or of a block, read by row number in constant time although only present cells are
//! stored.

use crate::format::block::{Bitmap, BlockData, Presence};
use crate::value::{Cell, Value};

/// Cells before each 64-row word of `bits`.
pub fn ranks(bits: &Bitmap) -> Vec<u32> {
    let mut sum = 0;
    bits.words()
        .iter()
        .map(|w| {
            let before = sum;
            sum += w.count_ones();
            before
        })
        .collect()
}

/// A column as a reader sees it: which rows have a cell, and the packed cells.
#[derive(Clone, Copy, Debug)]
pub struct ColView<'a> {
    bits: Option<(&'a [u64], &'a [u32])>,
    data: &'a BlockData,
}

impl<'a> ColView<'a> {
    /// Of a column where `rank` is [`ranks`] of its bitmap (not looked at for [`Presence::All`]).
    pub fn new(presence: &'a Presence, rank: &'a [u32], data: &'a BlockData) -> Self {
        let bits = match presence {
            Presence::All => None,
            Presence::Some(b) => Some((b.words(), rank)),
        };
        ColView { bits, data }
    }
    /// The packed cells.
    pub fn data(&self) -> &'a BlockData {
        self.data
    }
    /// Number of the row's cell among the packed ones, if it has one.
    #[inline]
    pub fn index(&self, row: usize) -> Option<usize> {
        let Some((words, rank)) = self.bits else {
            return Some(row);
        };
        let (w, bit) = (row / 64, row % 64);
        let word = words[w];
        (word >> bit & 1 == 1)
            .then(|| rank[w] as usize + (word & ((1u64 << bit) - 1)).count_ones() as usize)
    }
    /// Cells in the rows before `row`; `row` may be one past the end.
    #[inline]
    pub fn rank(&self, row: usize) -> usize {
        let Some((words, rank)) = self.bits else {
            return row;
        };
        let (w, bit) = (row / 64, row % 64);
        match words.get(w) {
            Some(word) => rank[w] as usize + (word & ((1u64 << bit) - 1)).count_ones() as usize,
            None => match (rank.last(), words.last()) {
                (Some(r), Some(word)) => *r as usize + word.count_ones() as usize,
                _ => 0,
            },
        }
    }
    /// The first row in `rows` that has a cell.
    pub fn first_row(&self, rows: std::ops::Range<usize>) -> Option<usize> {
        let Some((words, _)) = self.bits else {
            return (!rows.is_empty()).then_some(rows.start);
        };
        let mut row = rows.start;
        while row < rows.end {
            let rest = words[row / 64] >> (row % 64);
            if rest != 0 {
                let found = row + rest.trailing_zeros() as usize;
                return (found < rows.end).then_some(found);
            }
            row = (row / 64 + 1) * 64;
        }
        None
    }
    /// The last row in `rows` that has a cell.
    pub fn last_row(&self, rows: std::ops::Range<usize>) -> Option<usize> {
        let Some((words, _)) = self.bits else {
            return (!rows.is_empty()).then(|| rows.end - 1);
        };
        let mut end = rows.end;
        while end > rows.start {
            let (w, top) = ((end - 1) / 64, (end - 1) % 64);
            let rest = words[w] << (63 - top);
            if rest != 0 {
                let found = end - 1 - rest.leading_zeros() as usize;
                return (found >= rows.start).then_some(found);
            }
            end = w * 64;
        }
        None
    }
    /// The packed cell of that number.
    #[inline]
    pub fn cell(&self, index: usize) -> Cell<'a> {
        match self.data {
            BlockData::F64(v) => Cell::F64(v[index]),
            BlockData::I64(v) => Cell::I64(v[index]),
            BlockData::Str(v) => Cell::Str(v.get(index)),
            // Repeats are for entity names, which no channel holds.
            BlockData::StrRuns { .. } => Cell::Null,
        }
    }
    /// The packed cell of that number, kept.
    pub fn value(&self, index: usize) -> Value {
        match self.cell(index) {
            Cell::F64(x) => Value::F64(x),
            Cell::Str(s) => Value::str(s),
            Cell::I64(x) => Value::F64(x as f64),
            Cell::Null => Value::Null,
        }
    }
}

/// A column in memory.
#[derive(Clone, Debug)]
pub struct Cells {
    presence: Presence,
    rank: Vec<u32>,
    data: BlockData,
}

impl Cells {
    /// From its parts; the cells are as many as the presence says.
    pub fn new(presence: Presence, data: BlockData) -> Self {
        let rank = match &presence {
            Presence::All => Vec::new(),
            Presence::Some(bits) => ranks(bits),
        };
        Cells {
            presence,
            rank,
            data,
        }
    }
    /// To read it.
    pub fn view(&self) -> ColView<'_> {
        ColView::new(&self.presence, &self.rank, &self.data)
    }
    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        let bits = match &self.presence {
            Presence::All => 0,
            Presence::Some(b) => b.words().len() * 8,
        };
        bits + self.rank.capacity() * 4 + self.data.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn views_agree_with_counting(flags in prop::collection::vec(prop::bool::weighted(0.2), 1..300), a in 0usize..300, b in 0usize..300) {
            let mut bits = Bitmap::new(flags.len());
            flags.iter().enumerate().filter(|(_, f)| **f).for_each(|(i, _)| bits.set(i));
            let n = bits.count_ones();
            let cells = Cells::new(Presence::Some(bits), BlockData::F64((0..n).map(|i| i as f64).collect()));
            let v = cells.view();
            let mut seen = 0;
            for (row, &f) in flags.iter().enumerate() {
                prop_assert_eq!(v.rank(row), seen);
                prop_assert_eq!(v.index(row), f.then_some(seen));
                seen += f as usize;
            }
            prop_assert_eq!(v.rank(flags.len()), n);
            let (a, b) = (a.min(flags.len()), b.min(flags.len()));
            let range = a.min(b)..a.max(b);
            prop_assert_eq!(v.first_row(range.clone()), range.clone().find(|&r| flags[r]));
            prop_assert_eq!(v.last_row(range.clone()), range.clone().rev().find(|&r| flags[r]));
        }
    }
}
