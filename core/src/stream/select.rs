//! Which rows of a unit (a block, a run) pass a condition: column by column, 64 rows at a time, into a bitmap.
//! And what statistics alone say of it.

use super::cells::ColView;
use crate::format::block::{BlockData, BlockMeta};
use crate::scan::{CmpOp, Predicate, RowFilter};
use crate::value::Value;
use std::cmp::Ordering;
use std::ops::Range;

/// Rows of a unit, as bits: bit `row % 64` of the word of its 64 rows.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The word of rows `64 × first_word ..`.
    first_word: usize,
    words: &'a [u64],
}

/// The bits of those of a word's rows that lie in `rows`.
fn within(word: usize, rows: &Range<usize>) -> u64 {
    let base = word * 64;
    let from = rows.start.saturating_sub(base).min(64);
    let to = rows.end.saturating_sub(base).min(64);
    if from >= to {
        return 0;
    }
    let below = |n: usize| if n >= 64 { u64::MAX } else { (1u64 << n) - 1 };
    below(to) & !below(from)
}

/// Set bits of a word, ascending.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let at = word.trailing_zeros() as usize;
            word &= word - 1;
            at
        })
    })
}

impl<'a> Selection<'a> {
    fn word(&self, word: usize) -> u64 {
        word.checked_sub(self.first_word)
            .and_then(|w| self.words.get(w))
            .copied()
            .unwrap_or(0)
    }

    /// The words that `rows` stand in, each with the selected ones of them.
    fn masks(self, rows: Range<usize>) -> impl Iterator<Item = (usize, u64)> + 'a {
        let words = rows.start / 64..rows.end.div_ceil(64).max(rows.start / 64);
        words.map(move |w| (w, self.word(w) & within(w, &rows)))
    }

    /// How many of `rows` are selected.
    pub fn count(&self, rows: Range<usize>) -> usize {
        self.masks(rows).map(|(_, m)| m.count_ones() as usize).sum()
    }

    /// The selected ones of `rows`, ascending.
    pub fn rows(&self, rows: Range<usize>) -> impl Iterator<Item = usize> + 'a {
        self.masks(rows)
            .flat_map(|(w, m)| ones(m).map(move |bit| w * 64 + bit))
    }

    /// The numbers of the selected ones of `rows` that have one, appended to `out`; and the first and the
    /// last of those rows.
    pub fn pick(
        &self,
        rows: Range<usize>,
        view: &ColView<'_>,
        cells: &[f64],
        out: &mut Vec<f64>,
    ) -> Option<(usize, usize)> {
        let mut edges: Option<(usize, usize)> = None;
        for (w, mask) in self.masks(rows) {
            let (present, rank) = view.word(w);
            let mask = mask & present;
            if mask == 0 {
                continue;
            }
            let first = w * 64 + mask.trailing_zeros() as usize;
            let last = w * 64 + 63 - mask.leading_zeros() as usize;
            edges = Some((edges.map_or(first, |e| e.0), last));
            if mask == present {
                let n = mask.count_ones() as usize;
                out.extend_from_slice(&cells[rank..rank + n]);
            } else if present == u64::MAX && mask.count_ones() > 16 {
                // Without a branch per row, which would go wrong half of the time.
                let from = &cells[rank..cells.len().min(rank + 64)];
                let mut buffer = [0.0f64; 64];
                let mut n = 0;
                for (i, &x) in from.iter().enumerate() {
                    buffer[n & 63] = x;
                    n += (mask >> i & 1) as usize;
                }
                out.extend_from_slice(&buffer[..n]);
            } else {
                for bit in ones(mask) {
                    let before = (present & ((1u64 << bit) - 1)).count_ones() as usize;
                    out.push(cells[rank + before]);
                }
            }
        }
        edges
    }
}

/// Finds the rows that pass a condition. Keeps its buffers from unit to unit.
#[derive(Debug)]
pub struct Selector {
    predicate: Predicate,
    words: Vec<u64>,
    spare: Vec<Vec<u64>>,
}

impl Selector {
    /// For a filter, whose channels the views of [`Selector::select`] are.
    pub fn new(filter: &RowFilter) -> Self {
        Selector {
            predicate: filter.predicate.clone(),
            words: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Those of `rows` of a unit of which the condition is true; bits of other rows are anything.
    pub fn select(&mut self, rows: Range<usize>, views: &[Option<ColView<'_>>]) -> Selection<'_> {
        let first_word = rows.start / 64;
        let count = rows.end.div_ceil(64).saturating_sub(first_word);
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        words.resize(count, 0);
        let mut eval = Eval {
            first_word,
            rows: rows.end,
            views,
            spare: &mut self.spare,
        };
        eval.run(&self.predicate, false, &mut words);
        self.words = words;
        Selection {
            first_word,
            words: &self.words,
        }
    }

    /// Takes away what has been selected and has a cell in none of the views.
    pub fn retain_present(
        &mut self,
        rows: Range<usize>,
        views: &[Option<ColView<'_>>],
    ) -> Selection<'_> {
        let first_word = rows.start / 64;
        for (w, word) in self.words.iter_mut().enumerate() {
            let present = views.iter().flatten().map(|v| v.word(first_word + w).0);
            *word &= present.fold(0, |a, b| a | b);
        }
        Selection {
            first_word,
            words: &self.words,
        }
    }
}

struct Eval<'v, 'a> {
    first_word: usize,
    rows: usize,
    views: &'v [Option<ColView<'a>>],
    spare: &'v mut Vec<Vec<u64>>,
}

impl Eval<'_, '_> {
    /// Sets the bits of rows of which the condition is true, or false when `negated`; what is unknown is
    /// neither. `out` comes with all bits clear.
    fn run(&mut self, p: &Predicate, negated: bool, out: &mut [u64]) {
        match p {
            Predicate::Const(b) => {
                if *b == Some(!negated) {
                    out.fill(u64::MAX);
                }
            }
            Predicate::Not(inner) => self.run(inner, !negated, out),
            Predicate::And(list) => self.combine(list, negated, !negated, out),
            Predicate::Or(list) => self.combine(list, negated, negated, out),
            Predicate::IsNull {
                channel,
                negated: not,
            } => {
                let want_null = *not == negated;
                for (w, word) in out.iter_mut().enumerate() {
                    let present = self.views[*channel].map_or(0, |v| v.word(self.first_word + w).0);
                    *word = if want_null { !present } else { present };
                }
            }
            Predicate::Compare { channel, op, value } => {
                let Some(view) = &self.views[*channel] else {
                    return;
                };
                let op = if negated { opposite(*op) } else { *op };
                match (view.data(), value) {
                    (BlockData::F64(v), Value::F64(k)) => {
                        let k = *k;
                        match op {
                            CmpOp::Eq => self.numbers(view, v, out, |x| x == k),
                            CmpOp::Ne => self.numbers(view, v, out, |x| x != k),
                            CmpOp::Lt => self.numbers(view, v, out, |x| x < k),
                            CmpOp::Le => self.numbers(view, v, out, |x| x <= k),
                            CmpOp::Gt => self.numbers(view, v, out, |x| x > k),
                            CmpOp::Ge => self.numbers(view, v, out, |x| x >= k),
                        }
                    }
                    (BlockData::Str(v), Value::Str(k)) => {
                        let k = k.as_bytes();
                        let passes = v.passes(|text| match op {
                            CmpOp::Eq => text == k,
                            CmpOp::Ne => text != k,
                            op => op.holds(text.cmp(k)),
                        });
                        self.cells(view, out, |i| passes.at(i));
                    }
                    _ => {}
                }
            }
            Predicate::In { channel, values } => {
                let Some(view) = &self.views[*channel] else {
                    return;
                };
                match view.data() {
                    BlockData::F64(v) => {
                        let order = |known: &Value, x: f64| match known {
                            Value::F64(k) => k.partial_cmp(&x).unwrap_or(Ordering::Less),
                            _ => Ordering::Less,
                        };
                        self.numbers(view, v, out, |x| {
                            values.binary_search_by(|k| order(k, x)).is_ok() != negated
                        });
                    }
                    BlockData::Str(v) => {
                        let order = |known: &Value, text: &[u8]| match known {
                            Value::Str(k) => k.as_bytes().cmp(text),
                            _ => Ordering::Less,
                        };
                        let passes = v.passes(|text| {
                            values.binary_search_by(|k| order(k, text)).is_ok() != negated
                        });
                        self.cells(view, out, |i| passes.at(i));
                    }
                    _ => {}
                }
            }
            Predicate::Like { channel, pattern } => {
                if let Some(view) = &self.views[*channel]
                    && let BlockData::Str(v) = view.data()
                {
                    let passes = v.passes(|text| {
                        let text = std::str::from_utf8(text).unwrap_or("\u{FFFD}");
                        pattern.matches(text) != negated
                    });
                    self.cells(view, out, |i| passes.at(i));
                }
            }
        }
    }

    /// All of them (`all`), or any.
    fn combine(&mut self, list: &[Predicate], negated: bool, all: bool, out: &mut [u64]) {
        if all {
            out.fill(u64::MAX);
        }
        let mut one = self.spare.pop().unwrap_or_default();
        for p in list {
            one.clear();
            one.resize(out.len(), 0);
            self.run(p, negated, &mut one);
            let mut open = false;
            for (word, one) in out.iter_mut().zip(&one) {
                if all {
                    *word &= one;
                    open |= *word != 0;
                } else {
                    *word |= one;
                    open |= *word != u64::MAX;
                }
            }
            if !open {
                break;
            }
        }
        self.spare.push(one);
    }

    fn numbers(&self, view: &ColView<'_>, v: &[f64], out: &mut [u64], f: impl Fn(f64) -> bool) {
        for (w, word) in out.iter_mut().enumerate() {
            let (present, rank) = view.word_within(self.first_word + w, self.rows);
            let n = present.count_ones() as usize;
            let bits = match v.get(rank..rank + n).map(<&[f64; 64]>::try_from) {
                Some(Ok(full)) => {
                    let mut flags = [0u8; 64];
                    for (flag, &x) in flags.iter_mut().zip(full) {
                        *flag = u8::from(f(x));
                    }
                    pack(&flags)
                }
                Some(Err(_)) => (v[rank..rank + n].iter().enumerate())
                    .fold(0u64, |bits, (i, &x)| bits | u64::from(f(x)) << i),
                None => 0,
            };
            *word = spread(bits, present);
        }
    }

    fn cells(&self, view: &ColView<'_>, out: &mut [u64], f: impl Fn(usize) -> bool) {
        for (w, word) in out.iter_mut().enumerate() {
            let (present, rank) = view.word_within(self.first_word + w, self.rows);
            let n = present.count_ones() as usize;
            let bits = (0..n).fold(0u64, |bits, i| bits | u64::from(f(rank + i)) << i);
            *word = spread(bits, present);
        }
    }
}

fn opposite(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Eq => CmpOp::Ne,
        CmpOp::Ne => CmpOp::Eq,
        CmpOp::Lt => CmpOp::Ge,
        CmpOp::Le => CmpOp::Gt,
        CmpOp::Gt => CmpOp::Le,
        CmpOp::Ge => CmpOp::Lt,
    }
}

/// 64 flags, each 0 or 1, as bits.
fn pack(flags: &[u8; 64]) -> u64 {
    let mut word = 0;
    for (i, eight) in flags.chunks_exact(8).enumerate() {
        let mut le = [0; 8];
        le.copy_from_slice(eight);
        // The multiplication moves the lowest bit of byte n to bit 56 + n.
        let byte = u64::from_le_bytes(le).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word |= byte << (8 * i);
    }
    word
}

/// Moves the n-th bit to the place of the n-th present row.
fn spread(bits: u64, present: u64) -> u64 {
    if present == u64::MAX || bits == 0 {
        return bits;
    }
    if present & present.wrapping_add(1) == 0 {
        // The first rows, and no others.
        return bits;
    }
    let (mut out, mut bits, mut rest) = (0, bits, present);
    while rest != 0 && bits != 0 {
        let lowest = rest & rest.wrapping_neg();
        if bits & 1 == 1 {
            out |= lowest;
        }
        bits >>= 1;
        rest ^= lowest;
    }
    out
}

/// What statistics say of all rows of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Of every row the condition is true.
    Always,
    /// Of none.
    Never,
    /// It has to be looked at.
    Open,
}

/// Outcomes that a condition may have in some row.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outcomes(u8);

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const UNKNOWN: u8 = 4;

/// What the footer says of a condition over rows of a block.
pub fn verdict(filter: &RowFilter, block: &BlockMeta) -> Verdict {
    match outcomes(filter, &filter.predicate, block).0 {
        TRUE => Verdict::Always,
        o if o & TRUE == 0 => Verdict::Never,
        _ => Verdict::Open,
    }
}

fn outcomes(filter: &RowFilter, p: &Predicate, block: &BlockMeta) -> Outcomes {
    let chunk = |channel: usize| block.chunk(filter.channels[channel].0);
    let nulls = |channel: usize| match chunk(channel) {
        None => UNKNOWN,
        Some(c) if c.count < block.rows => UNKNOWN,
        Some(_) => 0,
    };
    // Of the numbers of a channel: which outcomes a test has between min and max.
    let numbers = |channel: usize, test: &dyn Fn(f64, f64) -> u8| match chunk(channel) {
        None => 0,
        Some(c) => c.stats.map_or(TRUE | FALSE, |s| test(s.min, s.max)),
    };
    Outcomes(match p {
        Predicate::Const(Some(true)) => TRUE,
        Predicate::Const(Some(false)) => FALSE,
        Predicate::Const(None) => UNKNOWN,
        Predicate::IsNull { channel, negated } => {
            let null = nulls(*channel) != 0;
            let some = chunk(*channel).is_some();
            let (if_null, if_some) = if *negated {
                (FALSE, TRUE)
            } else {
                (TRUE, FALSE)
            };
            (u8::from(null) * if_null) | (u8::from(some) * if_some)
        }
        Predicate::Compare {
            channel,
            op,
            value: Value::F64(k),
        } => {
            let test = |min: f64, max: f64| {
                let ends = |yes: bool, no: bool| (u8::from(yes) * TRUE) | (u8::from(no) * FALSE);
                match op {
                    CmpOp::Lt => ends(min < *k, max >= *k),
                    CmpOp::Le => ends(min <= *k, max > *k),
                    CmpOp::Gt => ends(max > *k, min <= *k),
                    CmpOp::Ge => ends(max >= *k, min < *k),
                    CmpOp::Eq => ends(min <= *k && *k <= max, min != *k || max != *k),
                    CmpOp::Ne => ends(min != *k || max != *k, min <= *k && *k <= max),
                }
            };
            nulls(*channel) | numbers(*channel, &test)
        }
        Predicate::In { channel, values } => {
            let test = |min: f64, max: f64| {
                let order = |v: &Value, k: f64| match v {
                    Value::F64(x) => x.partial_cmp(&k).unwrap_or(Ordering::Less),
                    _ => Ordering::Less,
                };
                let from = values.partition_point(|v| order(v, min).is_lt());
                match values.get(from) {
                    Some(Value::F64(x)) if *x == min && min == max => TRUE,
                    Some(Value::F64(x)) if *x <= max => TRUE | FALSE,
                    _ => FALSE,
                }
            };
            nulls(*channel) | numbers(*channel, &test)
        }
        Predicate::Compare { channel, .. } | Predicate::Like { channel, .. } => {
            let some = chunk(*channel).map_or(0, |_| TRUE | FALSE);
            nulls(*channel) | some
        }
        Predicate::Not(inner) => {
            let o = outcomes(filter, inner, block).0;
            o & UNKNOWN | (o & TRUE) << 1 | (o & FALSE) >> 1
        }
        Predicate::And(list) => list
            .iter()
            .fold(TRUE, |all, p| both(all, outcomes(filter, p, block).0)),
        Predicate::Or(list) => {
            let not = |o: u8| o & UNKNOWN | (o & TRUE) << 1 | (o & FALSE) >> 1;
            not(list
                .iter()
                .fold(TRUE, |all, p| both(all, not(outcomes(filter, p, block).0))))
        }
    })
}

/// AND of every outcome of one with every outcome of the other.
fn both(a: u8, b: u8) -> u8 {
    let mut out = 0;
    if a & FALSE != 0 || b & FALSE != 0 {
        out |= FALSE;
    }
    if a & TRUE != 0 && b & TRUE != 0 {
        out |= TRUE;
    }
    if a & UNKNOWN != 0 && b & (TRUE | UNKNOWN) != 0
        || b & UNKNOWN != 0 && a & (TRUE | UNKNOWN) != 0
    {
        out |= UNKNOWN;
    }
    out
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
