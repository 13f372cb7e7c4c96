//! Rows of one entity out of several sorted sources: merged by ts, coalesced by arrival.

use super::cells::ColView;

/// Consecutive rows of one entity in one source.
#[derive(Clone, Copy, Debug)]
pub struct SliceRef<'a> {
    /// Their ts, ascending.
    pub ts: &'a [i64],
    /// Row number of the first within `channels`.
    pub base: usize,
    /// The channels that are read, in the reader's order; `None` where the source has no cell of it.
    pub channels: &'a [Option<ColView<'a>>],
}

/// A cell: which slice, and which of the packed cells of the channel there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef {
    /// Index of the slice.
    pub slice: u32,
    /// Index into the packed cells.
    pub index: u32,
}

impl CellRef {
    /// No cell.
    pub const NONE: CellRef = CellRef {
        slice: u32::MAX,
        index: 0,
    };
    /// Whether there is no cell.
    pub fn is_none(self) -> bool {
        self.slice == u32::MAX
    }
}

/// Goes through the coalesced rows of one entity. `slices` stand in order of arrival: of two samples of a
/// channel at one ts, the one of the earlier slice arrived first.
#[derive(Debug)]
pub struct EntityMerge<'s, 'a> {
    slices: &'s [SliceRef<'a>],
    dedup: bool,
    next: Vec<usize>,
    /// The slice that goes first, and the smallest ts of all others: while its ts stays below, no other
    /// slice has a say.
    current: usize,
    bound: Option<i64>,
    arrivals: Vec<Vec<CellRef>>,
    group_ts: i64,
    given: usize,
    height: usize,
}

impl<'s, 'a> EntityMerge<'s, 'a> {
    /// Starts; `channels` is the length of each slice's `channels`. With `dedup`, of samples of a channel at
    /// one ts only the last to arrive is given, so that each ts has one row.
    pub fn new(slices: &'s [SliceRef<'a>], channels: usize, dedup: bool) -> Self {
        let mut merge = EntityMerge {
            slices,
            dedup,
            next: vec![0; slices.len()],
            current: 0,
            bound: None,
            arrivals: vec![Vec::new(); channels],
            group_ts: 0,
            given: 0,
            height: 0,
        };
        merge.choose();
        merge
    }

    fn head(&self, slice: usize) -> Option<i64> {
        self.slices[slice].ts.get(self.next[slice]).copied()
    }

    fn choose(&mut self) {
        let (mut best, mut bound): (Option<(i64, usize)>, Option<i64>) = (None, None);
        for s in 0..self.slices.len() {
            let Some(ts) = self.head(s) else { continue };
            match best {
                Some((b, _)) if b <= ts => bound = Some(bound.map_or(ts, |x| x.min(ts))),
                _ => {
                    bound = best.map_or(bound, |(b, _)| Some(b));
                    best = Some((ts, s));
                }
            }
        }
        self.current = best.map_or(usize::MAX, |(_, s)| s);
        self.bound = bound;
    }

    /// The next row: its ts, and for each channel its cell in `cells`. Rows without any cell of the
    /// channels are passed over.
    pub fn next_row(&mut self, cells: &mut [CellRef]) -> Option<i64> {
        loop {
            if self.given < self.height {
                for (cell, list) in cells.iter_mut().zip(&self.arrivals) {
                    *cell = list.get(self.given).copied().unwrap_or(CellRef::NONE);
                }
                self.given += 1;
                return Some(self.group_ts);
            }
            if self.current == usize::MAX {
                return None;
            }
            let slice = &self.slices[self.current];
            let at = self.next[self.current];
            let Some(&ts) = slice.ts.get(at) else {
                self.choose();
                continue;
            };
            if self.bound.is_some_and(|b| ts > b) {
                self.choose();
                continue;
            }
            if self.bound == Some(ts) || slice.ts.get(at + 1) == Some(&ts) {
                self.gather(ts);
                continue;
            }
            self.next[self.current] = at + 1;
            let mut any = false;
            for (cell, view) in cells.iter_mut().zip(slice.channels) {
                *cell = match view.as_ref().and_then(|v| v.index(slice.base + at)) {
                    Some(index) => {
                        any = true;
                        CellRef {
                            slice: self.current as u32,
                            index: index as u32,
                        }
                    }
                    None => CellRef::NONE,
                };
            }
            if any {
                return Some(ts);
            }
        }
    }

    /// Collects everything that stands at `ts`.
    fn gather(&mut self, ts: i64) {
        self.arrivals.iter_mut().for_each(Vec::clear);
        for (s, slice) in self.slices.iter().enumerate() {
            while slice.ts.get(self.next[s]) == Some(&ts) {
                let row = slice.base + self.next[s];
                for (list, view) in self.arrivals.iter_mut().zip(slice.channels) {
                    if let Some(index) = view.as_ref().and_then(|v| v.index(row)) {
                        if self.dedup {
                            list.clear();
                        }
                        list.push(CellRef {
                            slice: s as u32,
                            index: index as u32,
                        });
                    }
                }
                self.next[s] += 1;
            }
        }
        self.group_ts = ts;
        self.given = 0;
        self.height = self.arrivals.iter().map(Vec::len).max().unwrap_or(0);
        self.choose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::{Bitmap, BlockData, Presence};
    use crate::format::decoded::DecodedColumn;
    use proptest::prelude::*;

    /// ts of a row, and slice and number of its cells.
    type Merged = (i64, [Option<(u32, u32)>; 2]);

    /// Rows (ts, a?, b?) of each slice; the answer by counting arrivals.
    fn expected(slices: &[Vec<(i64, [bool; 2])>], dedup: bool) -> Vec<Merged> {
        let mut all: std::collections::BTreeMap<i64, [Vec<(u32, u32)>; 2]> = Default::default();
        for (s, rows) in slices.iter().enumerate() {
            let mut seen = [0, 0];
            for (ts, has) in rows {
                for c in 0..2 {
                    if has[c] {
                        let list = &mut all.entry(*ts).or_default()[c];
                        if dedup {
                            list.clear();
                        }
                        list.push((s as u32, seen[c]));
                        seen[c] += 1;
                    }
                }
            }
        }
        let mut out = Vec::new();
        for (ts, lists) in all {
            for k in 0..lists[0].len().max(lists[1].len()) {
                out.push((ts, [lists[0].get(k).copied(), lists[1].get(k).copied()]));
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn merges_and_coalesces(mut input in prop::collection::vec(prop::collection::vec((0i64..12, any::<[bool; 2]>()), 0..8), 0..4), dedup in any::<bool>()) {
            input.iter_mut().for_each(|rows| rows.sort_by_key(|r| r.0));
            let columns: Vec<[DecodedColumn; 2]> = input.iter().map(|rows| std::array::from_fn(|c| {
                let mut bits = Bitmap::new(rows.len());
                rows.iter().enumerate().filter(|(_, r)| r.1[c]).for_each(|(i, _)| bits.set(i));
                let n = bits.count_ones();
                DecodedColumn::new(Presence::Some(bits), BlockData::F64(vec![0.0; n]))
            })).collect();
            let ts: Vec<Vec<i64>> = input.iter().map(|rows| rows.iter().map(|r| r.0).collect()).collect();
            let views: Vec<[Option<ColView<'_>>; 2]> = columns.iter().map(|[a, b]| [Some(ColView::new(a)), Some(ColView::new(b))]).collect();
            let slices: Vec<SliceRef<'_>> = ts.iter().zip(&views).map(|(ts, v)| SliceRef { ts, base: 0, channels: v }).collect();
            let mut merge = EntityMerge::new(&slices, 2, dedup);
            let mut got = Vec::new();
            let mut cells = [CellRef::NONE; 2];
            while let Some(ts) = merge.next_row(&mut cells) {
                got.push((ts, cells.map(|c| (!c.is_none()).then_some((c.slice, c.index)))));
            }
            prop_assert_eq!(got, expected(&input, dedup));
        }
    }
}
