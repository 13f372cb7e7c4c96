//! What a scan of a rows table answers: the columns that were asked for, and behind them hidden ones by which
//! the gatherer merges the shards' rows. The gatherer cuts those off.

use crate::ids::ColumnId;
use crate::scan::{CmpOp, KeyedColumn, KeyedFilter, KeyedOrder, KeyedScan};
use crate::value::{Batch, Cell, Column, ColumnBuilder, ColumnData, Kind};
use std::cmp::Ordering;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanLayout {
    /// Visible columns, then hidden ones.
    columns: Vec<KeyedColumn>,
    visible: usize,
    /// Keys of the order: column of `columns`, descending, NULLs first. The last is always xid or x_rev, so
    /// that no two rows are equal.
    order: Vec<(usize, bool, bool)>,
    natural: NaturalOrder,
}

/// An order in which a store finds its rows anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaturalOrder {
    /// By xid, ascending.
    Key,
    /// By x_rev, ascending.
    Rev,
    /// Neither: rows are gathered and sorted.
    Sorted,
}

impl ScanLayout {
    /// Of a scan. A scan that counts has the one column of counts.
    pub fn of(scan: &KeyedScan) -> Self {
        if scan.count {
            return ScanLayout {
                columns: Vec::new(),
                visible: 1,
                order: Vec::new(),
                natural: NaturalOrder::Key,
            };
        }
        let mut keys: Vec<KeyedOrder> = scan.order.clone();
        if keys.is_empty() {
            let by = match (&scan.feed, &scan.filter) {
                (Some(_), _) => Some(KeyedColumn::Rev),
                (
                    None,
                    Some(KeyedFilter::Compare {
                        column,
                        op: CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge,
                        value,
                    }),
                ) => value.kind().map(|kind| KeyedColumn::User(*column, kind)),
                _ => None,
            };
            keys.extend(by.map(|column| KeyedOrder {
                column,
                descending: false,
                nulls_first: false,
            }));
        }
        let ascending = keys.first().is_none_or(|k| !k.descending);
        let natural = match keys.first().map(|k| k.column) {
            None => NaturalOrder::Key,
            Some(KeyedColumn::Xid) if ascending => NaturalOrder::Key,
            Some(KeyedColumn::Rev) if ascending => NaturalOrder::Rev,
            _ => NaturalOrder::Sorted,
        };
        if !keys
            .iter()
            .any(|k| matches!(k.column, KeyedColumn::Xid | KeyedColumn::Rev))
        {
            keys.push(KeyedOrder {
                column: KeyedColumn::Xid,
                descending: false,
                nulls_first: false,
            });
        }
        let mut columns = scan.columns.clone();
        let order = keys
            .iter()
            .map(|k| {
                let at = columns
                    .iter()
                    .position(|c| *c == k.column)
                    .unwrap_or_else(|| {
                        columns.push(k.column);
                        columns.len() - 1
                    });
                (at, k.descending, k.nulls_first)
            })
            .collect();
        ScanLayout {
            columns,
            visible: scan.columns.len(),
            order,
            natural,
        }
    }

    /// All columns of a shard's batches.
    pub fn columns(&self) -> &[KeyedColumn] {
        &self.columns
    }
    /// How many of them the client sees.
    pub fn visible_columns(&self) -> usize {
        self.visible
    }
    /// In which order a store should look for the rows. A feed in the order of xid is sorted as well.
    pub fn natural(&self) -> NaturalOrder {
        self.natural
    }
    /// Declared columns that the batches hold.
    pub fn user_columns(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.columns.iter().filter_map(|c| {
            if let KeyedColumn::User(id, _) = c {
                Some(*id)
            } else {
                None
            }
        })
    }

    /// Builders for all columns.
    pub fn builders(&self) -> Vec<ColumnBuilder> {
        self.columns
            .iter()
            .map(|c| match c {
                KeyedColumn::Xid => ColumnBuilder::str(),
                KeyedColumn::Rev | KeyedColumn::Deleted => ColumnBuilder::i64(),
                KeyedColumn::User(_, kind) => ColumnBuilder::of(*kind),
            })
            .collect()
    }

    /// The order of two rows.
    pub fn compare(&self, a: &Batch, row_a: usize, b: &Batch, row_b: usize) -> Ordering {
        for &(at, descending, nulls_first) in &self.order {
            let ordering = compare_cells(
                a.columns[at].cell(row_a),
                b.columns[at].cell(row_b),
                descending,
                nulls_first,
            );
            if ordering.is_ne() {
                return ordering;
            }
        }
        Ordering::Equal
    }

    /// Rows `from..from + rows` without the hidden columns.
    pub fn visible(&self, mut batch: Batch, from: usize, rows: usize) -> Batch {
        batch.columns.truncate(self.visible);
        if from == 0 && rows == batch.rows {
            return batch;
        }
        let columns = batch.columns.iter().map(|c| slice(c, from, rows)).collect();
        Batch { rows, columns }
    }

    /// Rows `from..from + rows` of the first `columns` columns.
    pub fn part(&self, batch: &Batch, columns: usize, from: usize, rows: usize) -> Batch {
        let columns = batch.columns[..columns]
            .iter()
            .map(|c| slice(c, from, rows))
            .collect();
        Batch { rows, columns }
    }

    /// The rows of some batches in the scan's order, at most `limit` of them: batch and row.
    pub fn sorted(&self, batches: &[Batch], limit: usize) -> Vec<(u32, u32)> {
        let mut rows: Vec<(u32, u32)> = (0u32..)
            .zip(batches)
            .flat_map(|(n, batch)| (0..batch.rows as u32).map(move |row| (n, row)))
            .collect();
        rows.sort_unstable_by(|a, b| {
            let (one, other) = (&batches[a.0 as usize], &batches[b.0 as usize]);
            self.compare(one, a.1 as usize, other, b.1 as usize)
        });
        rows.truncate(limit);
        rows
    }
}

/// SQL's order of two cells.
pub fn compare_cells(a: Cell<'_>, b: Cell<'_>, descending: bool, nulls_first: bool) -> Ordering {
    let ordering = match (a, b) {
        (Cell::Null, Cell::Null) => return Ordering::Equal,
        (Cell::Null, _) => {
            return if nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            };
        }
        (_, Cell::Null) => {
            return if nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            };
        }
        (Cell::F64(a), Cell::F64(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Cell::I64(a), Cell::I64(b)) => a.cmp(&b),
        (Cell::Str(a), Cell::Str(b)) => a.cmp(b),
        // Columns of one kind only.
        _ => Ordering::Equal,
    };
    if descending {
        ordering.reverse()
    } else {
        ordering
    }
}

fn slice(column: &Column, from: usize, rows: usize) -> Column {
    let mut builder = match &column.data {
        ColumnData::F64(_) => ColumnBuilder::of(Kind::F64),
        ColumnData::I64(_) => ColumnBuilder::i64(),
        ColumnData::Str(_) => ColumnBuilder::str(),
    };
    (from..from + rows).for_each(|row| builder.push(column.cell(row)));
    builder.finish()
}
