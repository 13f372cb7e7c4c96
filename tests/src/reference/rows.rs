//! `SELECT`: one row per (entity, ts) and arrival at which a referenced channel has a sample.

use super::Answered;
use super::facts::{Contents, coalesced};
use strandline_core::ids::ColumnId;
use strandline_core::scan::{CmpOp, Predicate, StreamScan};
use strandline_core::schema::Fill;
use strandline_core::value::Value;

/// Every stored row of these channels, unfilled.
pub fn stored(contents: &Contents, channels: &[ColumnId]) -> Vec<Answered> {
    let mut out = Vec::new();
    for (entity, rows) in &contents.entities {
        for (&ts, cells) in rows {
            for row in coalesced(cells, channels) {
                let row = row.into_iter().map(Option::unwrap_or_default).collect();
                out.push((entity.clone(), ts, row));
            }
        }
    }
    out
}

/// The answer, by entity and then ts.
pub fn scan(contents: &Contents, q: &StreamScan) -> Vec<Answered> {
    let contents = contents.clone().since(q.floor).of_entities(&q.entities);
    let mut out = Vec::new();
    for (entity, rows) in &contents.entities {
        // The last sample of each channel: ts and value. It may lie before the range.
        let mut held: Vec<Option<(i64, Value)>> = vec![None; q.channels.len()];
        for (&ts, cells) in rows {
            // Without channels (`SELECT entity, ts`) every stored row counts.
            let columns: Vec<ColumnId> = match q.channels.is_empty() {
                true => cells.keys().copied().collect(),
                false => q.channels.iter().map(|c| c.column).collect(),
            };
            for own in coalesced(cells, &columns) {
                let mut row = Vec::new();
                for (c, read) in q.channels.iter().enumerate() {
                    if let Some(value) = &own[c] {
                        held[c] = Some((ts, value.clone()));
                    }
                    row.push(match (&own[c], read.fill, &held[c]) {
                        (Some(value), _, _) => value.clone(),
                        (None, Fill::Hold { staleness_ms }, Some((at, value)))
                            if q.filled && staleness_ms.is_none_or(|most| ts - at <= most) =>
                        {
                            value.clone()
                        }
                        (None, _, _) => Value::Null,
                    });
                }
                let passes = q
                    .predicate
                    .as_ref()
                    .is_none_or(|p| truth(p, &row) == Some(true));
                if q.range.contains(ts) && passes {
                    row.truncate(q.output);
                    out.push((entity.clone(), ts, row));
                }
            }
        }
    }
    out.truncate(usize::try_from(q.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
    out
}

/// Whether a condition holds of a row: SQL's three values, `None` for unknown.
pub fn truth(p: &Predicate, row: &[Value]) -> Option<bool> {
    match p {
        Predicate::Const(b) => *b,
        Predicate::IsNull { channel, negated } => Some(row[*channel].is_null() != *negated),
        Predicate::Compare { channel, op, value } => match (&row[*channel], value) {
            (Value::F64(a), Value::F64(b)) => Some(compares(*op, a, b)),
            (Value::Str(a), Value::Str(b)) => Some(compares(*op, a, b)),
            _ => None,
        },
        Predicate::In { channel, values } => match &row[*channel] {
            Value::Null => None,
            value => Some(values.contains(value)),
        },
        Predicate::Like { channel, pattern } => match &row[*channel] {
            Value::Str(text) if pattern.folds() => {
                Some(like(&pattern.text().to_lowercase(), &text.to_lowercase()))
            }
            Value::Str(text) => Some(like(pattern.text(), text)),
            _ => None,
        },
        Predicate::Not(p) => truth(p, row).map(|b| !b),
        Predicate::And(all) => {
            let all: Vec<_> = all.iter().map(|p| truth(p, row)).collect();
            match all {
                _ if all.contains(&Some(false)) => Some(false),
                _ if all.contains(&None) => None,
                _ => Some(true),
            }
        }
        Predicate::Or(any) => {
            let any: Vec<_> = any.iter().map(|p| truth(p, row)).collect();
            match any {
                _ if any.contains(&Some(true)) => Some(true),
                _ if any.contains(&None) => None,
                _ => Some(false),
            }
        }
    }
}

fn compares<T: PartialOrd>(op: CmpOp, a: T, b: T) -> bool {
    match op {
        CmpOp::Eq => a == b,
        CmpOp::Ne => a != b,
        CmpOp::Lt => a < b,
        CmpOp::Le => a <= b,
        CmpOp::Gt => a > b,
        CmpOp::Ge => a >= b,
    }
}

/// `%` any text, `_` any one character; `\\` takes the meaning from the next.
fn like(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars();
    let first = |text: &str| text.chars().next().map(|c| (c, c.len_utf8()));
    match (rest.next(), first(text)) {
        (None, next) => next.is_none(),
        (Some('%'), next) => {
            like(rest.as_str(), text) || next.is_some_and(|(_, n)| like(pattern, &text[n..]))
        }
        (Some('_'), Some((_, n))) => like(rest.as_str(), &text[n..]),
        (Some('\\'), Some((c, n))) => rest.next() == Some(c) && like(rest.as_str(), &text[n..]),
        (Some(p), Some((c, n))) => p == c && like(rest.as_str(), &text[n..]),
        (Some(_), None) => false,
    }
}
