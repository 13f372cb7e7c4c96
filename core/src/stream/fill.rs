//! HOLD filling of one entity's rows, and conditions over the filled row.

use super::merge::{CellRef, SliceRef};
use crate::scan::{ChannelRead, Predicate};
use crate::schema::Fill;
use crate::value::{Cell, Value};
use std::cmp::Ordering;

#[derive(Clone, Debug)]
enum Held {
    Nothing,
    /// In a slice of the window that is being read.
    Here(i64, CellRef),
    /// From before it.
    Kept(i64, Value),
}

/// Remembers, channel by channel, the last sample of one entity while its rows go by in order.
#[derive(Debug)]
pub struct Filler {
    /// Per channel: none, or how old a held sample may be.
    hold: Vec<Option<i64>>,
    held: Vec<Held>,
}

impl Filler {
    /// For these channels; with `filled` false nothing is held.
    pub fn new(channels: &[ChannelRead], filled: bool) -> Self {
        let hold = channels.iter().map(|c| match c.fill {
            Fill::Hold { staleness_ms } if filled => Some(staleness_ms.unwrap_or(i64::MAX)),
            _ => None,
        });
        Filler {
            hold: hold.collect(),
            held: vec![Held::Nothing; channels.len()],
        }
    }

    /// Channels that are held: number and staleness (ms, `i64::MAX` for never stale).
    pub fn holding(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.hold
            .iter()
            .enumerate()
            .filter_map(|(i, h)| h.map(|s| (i, s)))
    }

    /// Starts the next entity.
    pub fn reset(&mut self) {
        self.held.fill(Held::Nothing);
    }

    /// The channel's last sample before the first row.
    pub fn seed(&mut self, channel: usize, ts: i64, value: Value) {
        self.held[channel] = Held::Kept(ts, value);
    }

    /// The cell of a row that has `own` of the channel.
    pub fn cell<'x>(
        &'x self,
        channel: usize,
        row_ts: i64,
        own: CellRef,
        slices: &[SliceRef<'x>],
    ) -> Cell<'x> {
        if !own.is_none() {
            return cell_at(slices, channel, own);
        }
        let Some(staleness) = self.hold[channel] else {
            return Cell::Null;
        };
        let fresh = |ts: i64| row_ts.saturating_sub(ts) <= staleness;
        match &self.held[channel] {
            Held::Here(ts, at) if fresh(*ts) => cell_at(slices, channel, *at),
            Held::Kept(ts, value) if fresh(*ts) => match value {
                Value::Null => Cell::Null,
                Value::F64(x) => Cell::F64(*x),
                Value::Str(s) => Cell::Str(s),
            },
            _ => Cell::Null,
        }
    }

    /// The row has gone by: its samples are what later rows hold.
    pub fn pass(&mut self, row_ts: i64, cells: &[CellRef]) {
        for ((held, hold), &cell) in self.held.iter_mut().zip(&self.hold).zip(cells) {
            if hold.is_some() && !cell.is_none() {
                *held = Held::Here(row_ts, cell);
            }
        }
    }

    /// The slices go away: copies what is held of them.
    pub fn end_window(&mut self, slices: &[SliceRef<'_>]) {
        for (channel, held) in self.held.iter_mut().enumerate() {
            if let Held::Here(ts, at) = *held {
                let value = slices[at.slice as usize].channels[channel]
                    .map_or(Value::Null, |v| v.value(at.index as usize));
                *held = Held::Kept(ts, value);
            }
        }
    }
}

/// The cell that a reference stands for.
pub fn cell_at<'a>(slices: &[SliceRef<'a>], channel: usize, at: CellRef) -> Cell<'a> {
    match slices.get(at.slice as usize) {
        Some(s) => s.channels[channel].map_or(Cell::Null, |v| v.cell(at.index as usize)),
        None => Cell::Null,
    }
}

/// A condition over the cells of a row, by SQL's three-valued logic.
pub fn evaluate<'a>(p: &Predicate, cell: &impl Fn(usize) -> Cell<'a>) -> Option<bool> {
    match p {
        Predicate::Const(b) => *b,
        Predicate::IsNull { channel, negated } => Some((cell(*channel) == Cell::Null) != *negated),
        Predicate::Compare { channel, op, value } => {
            compare(cell(*channel), value).map(|o| op.holds(o))
        }
        Predicate::In { channel, values } => match cell(*channel) {
            Cell::Null => None,
            cell => Some(
                values
                    .binary_search_by(|v| {
                        compare(cell, v).map_or(Ordering::Less, Ordering::reverse)
                    })
                    .is_ok(),
            ),
        },
        Predicate::Like { channel, pattern } => match cell(*channel) {
            Cell::Str(text) => Some(pattern.matches(text)),
            _ => None,
        },
        Predicate::Not(inner) => evaluate(inner, cell).map(|b| !b),
        Predicate::And(list) => {
            let mut all = Some(true);
            for p in list {
                match evaluate(p, cell) {
                    Some(false) => return Some(false),
                    None => all = None,
                    Some(true) => {}
                }
            }
            all
        }
        Predicate::Or(list) => {
            let mut any = Some(false);
            for p in list {
                match evaluate(p, cell) {
                    Some(true) => return Some(true),
                    None => any = None,
                    Some(false) => {}
                }
            }
            any
        }
    }
}

fn compare(cell: Cell<'_>, value: &Value) -> Option<Ordering> {
    match (cell, value) {
        (Cell::F64(a), Value::F64(b)) => a.partial_cmp(b),
        (Cell::I64(a), Value::F64(b)) => (a as f64).partial_cmp(b),
        (Cell::Str(a), Value::Str(b)) => Some(a.cmp(&**b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::CmpOp;

    #[test]
    fn three_values() {
        let cells = [Cell::F64(5.0), Cell::Null, Cell::Str("b")];
        let at = |i: usize| cells[i];
        let cmp = |channel, op, value| Predicate::Compare { channel, op, value };
        let yes = cmp(0, CmpOp::Gt, Value::F64(4.0));
        let no = cmp(2, CmpOp::Lt, Value::str("a"));
        let unknown = cmp(1, CmpOp::Eq, Value::F64(1.0));
        let e = |p: &Predicate| evaluate(p, &at);
        assert_eq!(e(&yes), Some(true));
        assert_eq!(e(&no), Some(false));
        assert_eq!(e(&unknown), None);
        let and = |list: &[&Predicate]| {
            Predicate::And(list.iter().map(|p| (*p).clone()).collect::<Vec<_>>())
        };
        let or = |list: &[&Predicate]| {
            Predicate::Or(list.iter().map(|p| (*p).clone()).collect::<Vec<_>>())
        };
        assert_eq!(e(&and(&[&yes, &unknown])), None);
        assert_eq!(e(&and(&[&unknown, &no])), Some(false));
        assert_eq!(e(&or(&[&unknown, &yes])), Some(true));
        assert_eq!(e(&or(&[&no, &unknown])), None);
        assert_eq!(e(&Predicate::Not(Box::new(unknown))), None);
        let null = |channel, negated| Predicate::IsNull { channel, negated };
        assert_eq!(e(&null(1, false)), Some(true));
        assert_eq!(e(&null(0, true)), Some(true));
    }
}
