//! A column of a run or of a block, read by row number in constant time although only present cells are
//! stored.

use crate::format::block::{BlockData, Presence};
use crate::format::decoded::DecodedColumn;
use crate::value::{Cell, Value};

/// A column as a reader sees it: which rows have a cell, and the packed cells.
#[derive(Clone, Copy, Debug)]
pub struct ColView<'a> {
    bits: Option<(&'a [u64], &'a [u32])>,
    data: &'a BlockData,
}

impl<'a> ColView<'a> {
    /// Of a column.
    pub fn new(column: &'a DecodedColumn) -> Self {
        let bits = match &column.presence {
            Presence::All => None,
            Presence::Some(b) => Some((b.words(), column.ranks())),
        };
        ColView {
            bits,
            data: &column.data,
        }
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
    /// Which of the 64 rows of a word have a cell, and how many cells stand before them. Of a column that
    /// has all, rows behind its last count as having one.
    #[inline]
    pub fn word(&self, word: usize) -> (u64, usize) {
        match self.bits {
            None => (u64::MAX, word * 64),
            Some((words, rank)) => match words.get(word) {
                Some(bits) => (*bits, rank[word] as usize),
                None => (0, 0),
            },
        }
    }
    /// As [`ColView::word`], of rows below `rows`.
    #[inline]
    pub fn word_within(&self, word: usize, rows: usize) -> (u64, usize) {
        let (bits, rank) = self.word(word);
        match rows.saturating_sub(word * 64) {
            64.. => (bits, rank),
            left => (bits & ((1u64 << left) - 1), rank),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::Bitmap;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn views_agree_with_counting(flags in prop::collection::vec(prop::bool::weighted(0.2), 1..300), a in 0usize..300, b in 0usize..300) {
            let mut bits = Bitmap::new(flags.len());
            flags.iter().enumerate().filter(|(_, f)| **f).for_each(|(i, _)| bits.set(i));
            let n = bits.count_ones();
            let cells = DecodedColumn::new(Presence::Some(bits), BlockData::F64((0..n).map(|i| i as f64).collect()));
            let v = ColView::new(&cells);
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
