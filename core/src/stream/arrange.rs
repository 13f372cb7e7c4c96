//! Columns of written rows, put in the order of a run. What a column costs here goes by its cells: of ten
//! thousand channels a row mostly has ten.

use super::batch::{BatchCells, BatchColumn};
use crate::format::block::{Bitmap, BlockData, Presence};
use crate::format::decoded::DecodedColumn;
use crate::ids::ColumnId;
use crate::value::StrVec;
use hashbrown::HashTable;
use std::cell::OnceCell;

const ABSENT: u32 = u32::MAX;

/// Where the columns of a memtable stand, by number.
#[derive(Debug, Default)]
pub(super) struct ColumnIndex {
    places: HashTable<u32>,
}

impl ColumnIndex {
    /// The place of a column, which `add` makes when it has none.
    pub fn place(
        &mut self,
        columns: &mut Vec<BatchColumn>,
        id: ColumnId,
        add: impl FnOnce() -> BatchColumn,
    ) -> usize {
        if let Some(&at) = self
            .places
            .find(spread(id), |&at| columns[at as usize].id == id)
        {
            return at as usize;
        }
        columns.push(add());
        let at = columns.len() - 1;
        let key = |&at: &u32| spread(columns[at as usize].id);
        self.places.insert_unique(spread(id), at as u32, key);
        at
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.places = HashTable::new();
    }
}

/// Numbers stand close together; a hash table wants them apart (Fibonacci hashing).
fn spread(id: ColumnId) -> u64 {
    u64::from(id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The order of a run: position p is written row `rows[p]`.
pub(super) struct Order {
    pub rows: Vec<u32>,
    /// Rows written, of which some may not be in `rows`.
    written: usize,
    /// The position of each written row.
    positions: OnceCell<Vec<u32>>,
}

impl Order {
    /// Of these rows among so many.
    pub fn new(rows: Vec<u32>, written: usize) -> Self {
        Order {
            rows,
            written,
            positions: OnceCell::new(),
        }
    }

    fn positions(&self) -> &[u32] {
        self.positions.get_or_init(|| {
            let mut positions = vec![ABSENT; self.written];
            for (p, &row) in self.rows.iter().enumerate() {
                positions[row as usize] = p as u32;
            }
            positions
        })
    }
}

/// The cells of a column by position.
pub(super) enum Placed {
    /// Written row i has cell i.
    All,
    /// Position and cell, by position.
    Some(Vec<(u32, u32)>),
}

impl Placed {
    /// The cells of a column whose `rows` are none when it has cells of the first rows.
    pub fn new(column: &BatchColumn, order: &Order) -> Placed {
        let cells = column.cells.len();
        if column.rows.is_none() && cells == order.written {
            return Placed::All;
        }
        let row_of = |cell: usize| match &column.rows {
            None => cell,
            Some(rows) => rows[cell] as usize,
        };
        let mut placed = Vec::with_capacity(cells.min(order.rows.len()));
        if cells >= order.rows.len() / 8 {
            // Sorting them would take longer than going over all rows.
            let mut by_row = vec![ABSENT; order.written];
            (0..cells).for_each(|cell| by_row[row_of(cell)] = cell as u32);
            for (p, &row) in order.rows.iter().enumerate() {
                let cell = by_row[row as usize];
                if cell != ABSENT {
                    placed.push((p as u32, cell));
                }
            }
        } else {
            let positions = order.positions();
            let all = (0..cells).map(|cell| (positions[row_of(cell)], cell as u32));
            placed.extend(all.filter(|&(p, _)| p != ABSENT));
            placed.sort_unstable();
        }
        Placed::Some(placed)
    }

    /// Calls `f` with position and cell, by position.
    fn each(&self, order: &Order, mut f: impl FnMut(u32, u32)) {
        match self {
            Placed::All => {
                let rows = order.rows.iter().enumerate();
                rows.for_each(|(p, &row)| f(p as u32, row));
            }
            Placed::Some(list) => list.iter().for_each(|&(p, cell)| f(p, cell)),
        }
    }
}

/// Where coalesced rows stand: group g has rows `base[g]..base[g + 1]`, one with `dedup`.
pub(super) struct Layout {
    dedup: bool,
    group: Vec<u32>,
    /// The first position of each group.
    pub first: Vec<u32>,
    pub base: Vec<u32>,
    pub rows: usize,
}

impl Layout {
    /// Positions with equal keys are one group.
    pub fn new(
        order: &Order,
        key: impl Fn(u32) -> (u32, i64),
        columns: &[(&BatchColumn, Placed)],
        dedup: bool,
    ) -> Layout {
        let mut group = Vec::with_capacity(order.rows.len());
        let mut first: Vec<u32> = Vec::new();
        for (p, &r) in order.rows.iter().enumerate() {
            if p == 0 || key(order.rows[p - 1]) != key(r) {
                first.push(p as u32);
            }
            group.push(first.len() as u32 - 1);
        }
        let mut height = vec![0u32; first.len()];
        for (_, placed) in columns {
            let (mut g, mut k) = (0, 0);
            placed.each(order, |p, _| {
                if group[p as usize] != g {
                    (g, k) = (group[p as usize], 0);
                }
                k = if dedup { 1 } else { k + 1 };
                height[g as usize] = height[g as usize].max(k);
            });
        }
        let mut base = vec![0u32];
        let mut rows = 0;
        for h in height {
            rows += h;
            base.push(rows);
        }
        Layout {
            dedup,
            group,
            first,
            base,
            rows: rows as usize,
        }
    }
}

/// One column in the order of a run: the k-th cell of a group goes to the k-th row of the group.
pub(super) fn gather(
    column: &BatchColumn,
    placed: &Placed,
    order: &Order,
    layout: Option<&Layout>,
    rows: usize,
) -> Option<DecodedColumn> {
    let mut places: Vec<u32> = Vec::new();
    let mut picked: Vec<u32> = Vec::new();
    match (layout, placed) {
        (None, Placed::All) => picked.extend_from_slice(&order.rows),
        (None, Placed::Some(list)) => (places, picked) = list.iter().copied().unzip(),
        (Some(l), _) => {
            let (mut g, mut k) = (0, 0);
            placed.each(order, |p, cell| {
                if l.group[p as usize] != g {
                    (g, k) = (l.group[p as usize], 0);
                }
                if l.dedup && k > 0 {
                    // The later arrival stands where the earlier one stood.
                    places.pop();
                    picked.pop();
                    k = 0;
                }
                places.push(l.base[g as usize] + k);
                picked.push(cell);
                k += 1;
            });
        }
    }
    if picked.is_empty() {
        return None;
    }
    let presence = if picked.len() == rows {
        Presence::All
    } else {
        let mut bits = Bitmap::new(rows);
        places.iter().for_each(|&r| bits.set(r as usize));
        Presence::Some(bits)
    };
    let data = match &column.cells {
        BatchCells::F64(v) => BlockData::F64(picked.iter().map(|&i| v[i as usize]).collect()),
        BatchCells::Str(v) => {
            let mut out = StrVec::with_capacity(picked.len());
            let len = |&i: &u32| v.get_bytes(i as usize).len();
            out.reserve_bytes(picked.iter().map(len).sum());
            picked
                .iter()
                .for_each(|&i| out.push_bytes(v.get_bytes(i as usize)));
            BlockData::Str(out)
        }
    };
    Some(DecodedColumn::new(presence, data))
}
