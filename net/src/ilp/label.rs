//! Whether a value fits the label of its channel, by two rules: a declared label never changes, one that
//! line protocol gave widens BOOL → INT → DOUBLE.

use super::bad::{Checked, Reason, bad};
use super::number::{EXACT, Needs};
use strandline_core::schema::{ColumnDef, Label, TableDef};
use strandline_core::time::TIMESTAMP_END_MS;

/// What becomes of a value that is not bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It is stored.
    Fits,
    /// It is stored once the channel's label is at least this.
    Widens(Needs),
}

/// A number (or truth value) for a channel.
pub(crate) fn number(
    table: &TableDef,
    column: &ColumnDef,
    value: f64,
    needs: Needs,
) -> Checked<Fit> {
    let fits = match (column.label, column.declared) {
        (Label::Text { .. }, _) => {
            return Err(bad(
                Reason::Type,
                format_args!(
                    "a number ({}) for {}.{}, which is {}",
                    needs.label().name(),
                    table.name,
                    column.name,
                    column.label.name()
                ),
            ));
        }
        (Label::Double, _) => true,
        (Label::Int, false) if needs > Needs::Int => return Ok(Fit::Widens(needs)),
        (Label::Bool, false) if needs > Needs::Bool => return Ok(Fit::Widens(needs)),
        (Label::Int, _) => whole(value) && value.abs() <= EXACT,
        (Label::Bool, _) => value == 0.0 || value == 1.0,
        (Label::Timestamp, _) => whole(value) && (0.0..TIMESTAMP_END_MS as f64).contains(&value),
    };
    if fits {
        return Ok(Fit::Fits);
    }
    let expected = match column.label {
        Label::Int => "takes whole numbers within ±2^53",
        Label::Bool => "takes 0 and 1",
        Label::Timestamp => "takes whole milliseconds from 1970 to 2262",
        Label::Double | Label::Text { .. } => "does not take it",
    };
    Err(bad(
        Reason::Value,
        format_args!(
            "{value} for {}.{}, which is {} and {expected}",
            table.name,
            column.name,
            column.label.name()
        ),
    ))
}

/// Text for a channel.
pub(crate) fn text(
    table: &TableDef,
    column: &ColumnDef,
    value: &str,
    text_bytes: u64,
) -> Checked<()> {
    let Label::Text { max_chars } = column.label else {
        return Err(bad(
            Reason::Type,
            format_args!(
                "text (TEXT) for {}.{}, which is {}",
                table.name,
                column.name,
                column.label.name()
            ),
        ));
    };
    check_length(&table.name, &column.name, value, text_bytes)?;
    // A character takes at least a byte: most values need no count.
    if let Some(max) = max_chars
        && value.len() > max as usize
        && value.chars().count() > max as usize
    {
        return Err(bad(
            Reason::Value,
            format_args!(
                "text of {} characters for {}.{}, which is VARCHAR({max})",
                value.chars().count(),
                table.name,
                column.name
            ),
        ));
    }
    Ok(())
}

/// Text within the limit `text_bytes`.
pub(crate) fn check_length(table: &str, column: &str, value: &str, text_bytes: u64) -> Checked<()> {
    if value.len() as u64 > text_bytes {
        return Err(bad(
            Reason::Value,
            format_args!(
                "text of {} bytes for {table}.{column}: over the limit text_bytes = {text_bytes}",
                value.len()
            ),
        ));
    }
    Ok(())
}

fn whole(value: f64) -> bool {
    value.fract() == 0.0
}
