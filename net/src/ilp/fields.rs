//! The fields of a line: names to channels, values to cells that fit them.

use super::bad::{BadLine, Checked, Reason, bad};
use super::label::{self, Fit};
use super::number::{Needs, fast_number, slow_number};
use super::parser::{Context, Parsed, ParsedValue, Scratch, check_name};
use super::table::{NONE, Table};
use super::text::{self, StringEnd};
use std::ops::Range;
use strandline_core::schema::{ColumnSpec, Fill, Label};

/// A value as it stands in the line.
enum RawValue {
    Number(f64, Needs),
    Text { range: Range<usize>, escaped: bool },
}

/// Reads a value; `None`: a string that is still open.
#[inline]
fn value(region: &[u8], at: usize) -> Checked<Option<(RawValue, usize)>> {
    if let Some((value, needs, end)) = fast_number(region, at) {
        return Ok(Some((RawValue::Number(value, needs), end)));
    }
    if region.get(at) == Some(&b'"') {
        return match text::string_end(region, at + 1) {
            StringEnd::Closed { quote, escaped } => Ok(Some((
                RawValue::Text {
                    range: at + 1..quote,
                    escaped,
                },
                quote + 1,
            ))),
            StringEnd::Unterminated => Err(bad(Reason::Syntax, "a string has no closing quote")),
            StringEnd::Open => Ok(None),
        };
    }
    let (token, end) = text::value_token(region, at);
    let (value, needs) = slow_number(token)?;
    Ok(Some((RawValue::Number(value, needs), end)))
}

/// What stands behind a value: the next field, or the end of the fields.
#[inline]
fn behind(region: &[u8], at: usize) -> Checked<Option<usize>> {
    match region.get(at) {
        Some(b',') => Ok(Some(at + 1)),
        Some(b' ' | b'\n') => Ok(None),
        Some(b'\r') if region.get(at + 1) == Some(&b'\n') => Ok(None),
        _ => Err(bad(
            Reason::Syntax,
            "text stands behind the closing quote of a string",
        )),
    }
}

#[cold]
pub(crate) fn too_many_fields(cx: &Context) -> BadLine {
    bad(
        Reason::TooLong,
        format_args!(
            "the line has more fields, or tags to store, than the limit ilp_fields = {}",
            cx.limits.ilp_fields
        ),
    )
}

/// Reads the fields of a line for a table that is there.
pub(crate) fn fields(
    cx: &Context,
    table: &mut Table,
    line: &mut Scratch,
    region: &[u8],
    mut at: usize,
) -> Checked<Option<usize>> {
    let mut last = NONE;
    let mut count = 0;
    loop {
        let guess = match table.fields.get(last as usize) {
            Some(field) => field.next,
            None => table.first,
        };
        let mut field = NONE;
        let mut name = at..at;
        match table.fields.get(guess as usize) {
            Some(expected) if expected.begins(&region[at..]) => {
                // Nearly all fields: known, where it was last time, and a short number for a DOUBLE.
                if expected.is_double
                    && let Some((value, _, end)) = fast_number(region, at + expected.raw.len())
                {
                    count += 1;
                    if count > cx.limits.ilp_fields {
                        return Err(too_many_fields(cx));
                    }
                    line.cells.push(Parsed {
                        field: guess,
                        value: ParsedValue::Number(value),
                    });
                    if region.get(end) == Some(&b',') {
                        (last, at) = (guess, end + 1);
                        continue;
                    }
                    return Ok(Some(end));
                }
                field = guess;
                at += expected.raw.len();
            }
            _ => {
                let equals = text::name_end(region, at)?;
                name = at..equals;
                if let Some(found) = known_field(cx, table, region, name.clone())? {
                    match table.fields.get_mut(last as usize) {
                        Some(before) => before.next = found,
                        None => table.first = found,
                    }
                    field = found;
                }
                at = equals + 1;
            }
        }
        let Some((raw, end)) = value(region, at)? else {
            return Ok(None);
        };
        at = end;
        count += 1;
        if count > cx.limits.ilp_fields {
            return Err(too_many_fields(cx));
        }
        match (table.fields.get(field as usize), raw) {
            (Some(known), RawValue::Number(value, _)) if known.is_double => {
                line.cells.push(Parsed {
                    field,
                    value: ParsedValue::Number(value),
                });
            }
            (Some(known), raw) => {
                let column = &table.def.columns[known.column];
                let value = match raw {
                    RawValue::Number(value, needs) => {
                        if let Fit::Widens(needs) = label::number(&table.def, column, value, needs)?
                        {
                            add_missing(&table.def.name, line, &column.name, needs)?;
                        }
                        ParsedValue::Number(value)
                    }
                    RawValue::Text { range, escaped } => {
                        let (value, text) = take_text(line, region, range, escaped)?;
                        label::text(&table.def, column, &text, cx.limits.text_bytes)?;
                        value
                    }
                };
                line.cells.push(Parsed { field, value });
            }
            (None, raw) => {
                let name = text::unescape(&region[name], text::NAME_ESCAPES);
                let name = text::utf8(&name)?;
                new_field(cx, &table.def.name, line, region, name, raw)?;
            }
        }
        last = field;
        match behind(region, at)? {
            Some(next) => at = next,
            None => return Ok(Some(at)),
        }
    }
}

/// Reads the fields of a line for a table that is not there yet.
pub(crate) fn new_fields(
    cx: &Context,
    table: &str,
    line: &mut Scratch,
    region: &[u8],
    mut at: usize,
) -> Checked<Option<usize>> {
    let mut count = 0;
    loop {
        let equals = text::name_end(region, at)?;
        let name = text::unescape(&region[at..equals], text::NAME_ESCAPES);
        let name = text::utf8(&name)?;
        let Some((raw, end)) = value(region, equals + 1)? else {
            return Ok(None);
        };
        count += 1;
        if count > cx.limits.ilp_fields {
            return Err(too_many_fields(cx));
        }
        new_field(cx, table, line, region, name, raw)?;
        match behind(region, end)? {
            Some(next) => at = next,
            None => return Ok(Some(end)),
        }
    }
}

/// The field of a name, made when the table has the channel and it comes under these bytes the first time.
fn known_field(
    cx: &Context,
    table: &mut Table,
    region: &[u8],
    name: Range<usize>,
) -> Checked<Option<u32>> {
    let raw = &region[name.start..=name.end];
    if let Some(field) = table.find(raw) {
        return Ok(Some(field));
    }
    let name = text::unescape(&region[name], text::NAME_ESCAPES);
    let name = text::utf8(&name)?;
    check_channel_name(cx, &table.def.name, name)?;
    let column = table.def.columns.iter().position(|c| c.name == name);
    Ok(column.map(|column| table.add(raw, column)))
}

fn check_channel_name(cx: &Context, table: &str, name: &str) -> Checked<()> {
    if matches!(name, "entity" | "ts") || name.starts_with('$') {
        return Err(bad(
            Reason::Reserved,
            format_args!("a channel {name} for {table}: that name is the engine's own"),
        ));
    }
    check_name(cx, "channel", name)
}

/// Takes note of a channel that the table does not have.
fn new_field(
    cx: &Context,
    table: &str,
    line: &mut Scratch,
    region: &[u8],
    name: &str,
    raw: RawValue,
) -> Checked<()> {
    check_channel_name(cx, table, name)?;
    let needs = match raw {
        RawValue::Number(_, needs) => needs,
        RawValue::Text { range, escaped } => {
            let (_, text) = take_text(line, region, range, escaped)?;
            label::check_length(table, name, &text, cx.limits.text_bytes)?;
            Needs::Text
        }
    };
    add_missing(table, line, name, needs)
}

/// Takes note of a tag that is to be stored and has no channel yet.
pub(crate) fn new_tag(
    cx: &Context,
    table: &str,
    line: &mut Scratch,
    name: &str,
    raw: &[u8],
) -> Checked<()> {
    check_channel_name(cx, table, name)?;
    let value = text::unescape(raw, text::NAME_ESCAPES);
    label::check_length(table, name, text::utf8(&value)?, cx.limits.text_bytes)?;
    add_missing(table, line, name, Needs::Text)
}

fn add_missing(table: &str, line: &mut Scratch, name: &str, needs: Needs) -> Checked<()> {
    let label = needs.label();
    if let Some(there) = line.missing.iter_mut().find(|c| c.name == name) {
        if there.label.kind() != label.kind() {
            return Err(bad(
                Reason::Type,
                format_args!(
                    "{} and {} for {table}.{name} in one line",
                    there.label.name(),
                    label.name()
                ),
            ));
        }
        if rank(label) > rank(there.label) {
            there.label = label;
        }
        return Ok(());
    }
    line.missing.push(ColumnSpec {
        name: name.to_owned(),
        label,
        fill: Fill::None,
        declared: false,
    });
    Ok(())
}

fn rank(label: Label) -> u8 {
    match label {
        Label::Bool => 0,
        Label::Int => 1,
        _ => 2,
    }
}

/// The text of a string, and how the line keeps it.
fn take_text<'a>(
    line: &mut Scratch,
    region: &'a [u8],
    range: Range<usize>,
    escaped: bool,
) -> Checked<(ParsedValue, std::borrow::Cow<'a, str>)> {
    if !escaped {
        let text = text::utf8(&region[range.clone()])?;
        return Ok((ParsedValue::Text(range), text.into()));
    }
    let bytes = text::unescape_string(&region[range], escaped);
    let text = text::utf8(&bytes)?.to_owned();
    let start = line.unescaped.len();
    line.unescaped.push_str(&text);
    Ok((
        ParsedValue::Unescaped(start..line.unescaped.len()),
        text.into(),
    ))
}
