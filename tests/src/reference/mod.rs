//! What a timeseries table must answer, written to be read and not to be fast: fragments in, rows out.
//!
//! It shares the shape of questions with the engine (`strandline_core::scan`) and nothing else: no code of
//! stores, filling, buckets or calendars. The simulator, the store's own tests and the random statements
//! over the wire all compare with it, so that there is one place that says what is right.
//!
//! | file | says |
//! |---|---|
//! | `facts` | what is stored once fragments arrived: coalescing, repeats, DEDUP, dropped channels, RETENTION |
//! | `rows` | `SELECT`: rows of the referenced channels, HOLD and STALENESS, RAW, conditions |
//! | `latest` | `LATEST ON`: the device shadow |
//! | `buckets` | aggregates, `SAMPLE BY`, `FILL` |
//! | `mutable` | `WITH (MUTABLE)`: the current state, DELETE, revival |
//! | `calendar` | where a bucket begins |

pub mod buckets;
pub mod calendar;
pub mod facts;
pub mod latest;
pub mod mutable;
pub mod rows;

pub use buckets::aggregate;
pub use facts::{Cells, Contents, Fragment, Rows};
pub use latest::latest;
pub use mutable::Current;
pub use rows::{scan, stored};

use strandline_core::value::Value;

/// A row of an answer: entity (empty where it is not asked for), ts or bucket (0 likewise), cells. Counts
/// are numbers.
pub type Answered = (String, i64, Vec<Value>);

/// Whether two cells are the same answer. Numbers may differ by the rounding of sums in another order.
pub fn same_cell(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::F64(a), Value::F64(b)) => {
            a == b || (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
        }
        _ => a == b,
    }
}

fn same_row(a: &Answered, b: &Answered) -> bool {
    let cells = a.2.len() == b.2.len() && a.2.iter().zip(&b.2).all(|(a, b)| same_cell(a, b));
    a.0 == b.0 && a.1 == b.1 && cells
}

/// Whether an answer is as expected; names the first difference.
///
/// # Errors
/// Which row differs, and how.
pub fn same(what: &str, found: &[Answered], expected: &[Answered]) -> Result<(), String> {
    let n = found.len().min(expected.len());
    let differs = (0..n).find(|&i| !same_row(&found[i], &expected[i]));
    if differs.is_none() && found.len() == expected.len() {
        return Ok(());
    }
    let at = differs.unwrap_or(n);
    Err(format!(
        "{what}: row {at} of {} is {:?}, expected {:?} of {}",
        found.len(),
        found.get(at),
        expected.get(at),
        expected.len()
    ))
}
