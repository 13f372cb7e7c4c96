//! The rules of line protocol once more, as plainly as possible: splits, copies, no prediction, all bytes
//! at once. The tests hold the fast parser against it.

use super::local::LocalCatalog;
use super::parser::IlpOptions;
use super::precision::Precision;
use std::collections::BTreeMap;
use strandline_core::limits::Limits;
use strandline_core::schema::{ColumnDef, ColumnSpec, Family, Fill, Label, TableDef};
use strandline_core::value::Value;

/// A row that is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub table: String,
    pub entity: String,
    pub ts: i64,
    pub cells: BTreeMap<String, Value>,
}

/// All rows of `input`, and the bad lines.
pub fn run(
    catalog: &mut LocalCatalog,
    limits: &Limits,
    options: &IlpOptions,
    input: &[u8],
    now_ms: i64,
) -> (Vec<Row>, Vec<Vec<u8>>) {
    let mut input = input.to_vec();
    if input.last().is_some_and(|&b| b != b'\n') {
        input.push(b'\n');
    }
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < input.len() {
        let first = newline(&input, at).unwrap();
        match line(catalog, limits, options, &input, at, now_ms) {
            Ok((row, next)) => {
                rows.extend(row);
                at = next;
            }
            Err(()) => {
                bad.push(input[at..first].to_vec());
                at = first + 1;
            }
        }
    }
    (rows, bad)
}

fn newline(input: &[u8], from: usize) -> Option<usize> {
    (from..input.len()).find(|&i| input[i] == b'\n')
}

fn line(
    catalog: &mut LocalCatalog,
    limits: &Limits,
    options: &IlpOptions,
    input: &[u8],
    start: usize,
    now_ms: i64,
) -> Result<(Option<Row>, usize), ()> {
    let mut end = newline(input, start).unwrap();
    let max = limits.ilp_line_bytes as usize;
    if end + 1 - start > max {
        return Err(());
    }
    if let Blank::Yes = blank(&input[start..end]) {
        return Ok((None, end + 1));
    }
    let tokens = loop {
        match split(strip(&input[start..end])) {
            Split::Tokens(tokens) => break tokens,
            Split::Bad => return Err(()),
            Split::Open => {
                let next = newline(input, end + 1).ok_or(())?;
                if let Split::Tokens(t) = split(trim_cr(&input[end + 1..next]))
                    && !t.tags.is_empty()
                    && t.fields
                        .iter()
                        .all(|(_, v)| value(v).is_some_and(|v| v.is_some()))
                    && t.time.as_ref().is_none_or(|t| nanoseconds(t).is_some())
                {
                    return Err(());
                }
                end = next;
            }
        }
    };
    let whole = &input[start..end];
    if end + 1 - start > max || std::str::from_utf8(whole).is_err() || whole.contains(&0) {
        return Err(());
    }
    row(catalog, limits, options, &tokens, now_ms).map(|row| (Some(row), end + 1))
}

enum Blank {
    Yes,
    No,
}

fn blank(line: &[u8]) -> Blank {
    match strip(line) {
        [] | [b'#', ..] => Blank::Yes,
        _ => Blank::No,
    }
}

fn trim_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Without what may stand around a line.
fn strip(line: &[u8]) -> &[u8] {
    let mut line = trim_cr(line);
    loop {
        line = match line {
            [b' ' | b'\t', rest @ ..] => rest,
            [0xEF, 0xBB, 0xBF, rest @ ..] => rest,
            _ => return line,
        }
    }
}

struct Tokens {
    table: Vec<u8>,
    tags: Vec<(Vec<u8>, Vec<u8>)>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    time: Option<Vec<u8>>,
}

enum Split {
    Tokens(Tokens),
    Bad,
    Open,
}

/// Splits at each `delimiter` that no backslash stands before.
fn split_at(text: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut from = 0;
    for i in 0..text.len() {
        if text[i] == delimiter && (i == from || text[i - 1] != b'\\') {
            parts.push(&text[from..i]);
            from = i + 1;
        }
    }
    parts.push(&text[from..]);
    parts
}

fn plain(raw: &[u8], escapes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < raw.len() {
        if raw[i] == b'\\' && i + 1 < raw.len() && escapes.contains(&raw[i + 1]) {
            i += 1;
        }
        out.push(raw[i]);
        i += 1;
    }
    out
}

/// `name=value` with both there, and no second `=`.
fn pair(raw: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    match split_at(raw, b'=').as_slice() {
        [name, value] if !name.is_empty() && !value.is_empty() => {
            Some((plain(name, b",= "), plain(value, b",= ")))
        }
        _ => None,
    }
}

fn split(line: &[u8]) -> Split {
    let head = split_at(line, b' ')[0];
    let mut parts = split_at(head, b',').into_iter();
    let table = plain(parts.next().unwrap(), b", ");
    let tags: Option<Vec<_>> = parts.map(pair).collect();
    let (Some(tags), false, true) = (tags, table.is_empty(), head.len() < line.len()) else {
        return Split::Bad;
    };
    let mut rest = &line[head.len()..];
    while let [b' ', more @ ..] = rest {
        rest = more;
    }
    let mut fields = Vec::new();
    loop {
        // Name.
        let stop = (0..rest.len()).find(|&i| {
            matches!(rest[i], b',' | b'=' | b' ' | b'\n')
                && (rest[i] == b'\n' || i == 0 || rest[i - 1] != b'\\')
        });
        let Some(stop) = stop.filter(|&i| i > 0 && rest[i] == b'=') else {
            return Split::Bad;
        };
        let name = plain(&rest[..stop], b",= ");
        rest = &rest[stop + 1..];
        // Value.
        let stop = if rest.first() == Some(&b'"') {
            let mut i = 1;
            loop {
                match rest.get(i) {
                    None => return Split::Open,
                    Some(b'"') => break i + 1,
                    Some(b'\\') if matches!(rest.get(i + 1), Some(b'"' | b'\\')) => i += 2,
                    Some(_) => i += 1,
                }
            }
        } else {
            (0..rest.len())
                .find(|&i| matches!(rest[i], b',' | b' ' | b'\n'))
                .unwrap_or(rest.len())
        };
        let text = rest[..stop].to_vec();
        if value(&text).is_none() {
            return Split::Bad;
        }
        fields.push((name, text));
        rest = &rest[stop..];
        match rest.first() {
            Some(b',') => rest = &rest[1..],
            Some(b' ') | None => break,
            Some(_) => return Split::Bad,
        }
    }
    let time: Vec<&[u8]> = rest
        .split(|&b| b == b' ')
        .filter(|t| !t.is_empty())
        .collect();
    match time.as_slice() {
        [] => Split::Tokens(Tokens {
            table,
            tags,
            fields,
            time: None,
        }),
        [t] => Split::Tokens(Tokens {
            table,
            tags,
            fields,
            time: Some(t.to_vec()),
        }),
        _ => Split::Bad,
    }
}

fn nanoseconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || digits.len() > 19 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A value and its label. `None`: not of the form of a value; `Some(None)`: a number that cannot be stored.
#[allow(clippy::option_option)]
fn value(text: &[u8]) -> Option<Option<(Value, Label)>> {
    if let Some(inner) = text.strip_prefix(b"\"") {
        let inner = inner.strip_suffix(b"\"")?;
        let text = String::from_utf8_lossy(&plain(inner, b"\"\\")).into_owned();
        return Some(Some((Value::str(text), Label::TEXT)));
    }
    let text = std::str::from_utf8(text).ok()?;
    let bool_value = |b: f64| Some(Some((Value::F64(b), Label::Bool)));
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => return bool_value(1.0),
        "f" | "F" | "false" | "False" | "FALSE" => return bool_value(0.0),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    let whole = match (text.strip_suffix('i'), text.strip_suffix('u')) {
        (Some(_), _)
            if digits(unsigned.trim_end_matches('i')) && unsigned.matches('i').count() == 1 =>
        {
            Some(
                text.trim_end_matches('i')
                    .parse::<i128>()
                    .ok()
                    .filter(|v| i64::try_from(*v).is_ok()),
            )
        }
        (_, Some(t)) if digits(t) => {
            Some(t.parse::<i128>().ok().filter(|v| u64::try_from(*v).is_ok()))
        }
        _ => None,
    };
    if let Some(whole) = whole {
        let exact = whole.filter(|v| (*v as f64) as i128 == *v);
        return Some(exact.map(|v| {
            let label = if v.abs() <= 1 << 53 {
                Label::Int
            } else {
                Label::Double
            };
            (Value::F64(v as f64), label)
        }));
    }
    if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned
            .bytes()
            .all(|b| b.is_ascii_digit() || b".eE+-".contains(&b))
    {
        let number: f64 = text.parse().ok()?;
        return Some(
            number
                .is_finite()
                .then_some((Value::F64(number), Label::Double)),
        );
    }
    None
}

fn row(
    catalog: &mut LocalCatalog,
    limits: &Limits,
    options: &IlpOptions,
    tokens: &Tokens,
    now_ms: i64,
) -> Result<Row, ()> {
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).map_err(|_| ());
    let table = text(&tokens.table)?;
    let def = catalog.catalog().table(&table).cloned();
    let reserved =
        table.starts_with("pg_") || table.starts_with('$') || table == "information_schema";
    if table.len() > 127 || reserved || def.as_ref().is_some_and(|d| d.family != Family::Timeseries)
    {
        return Err(());
    }
    let entity_tag = def
        .as_ref()
        .and_then(|d| d.options.entity_tag.clone())
        .unwrap_or(options.entity_tag.clone());
    let (entities, others): (Vec<_>, Vec<_>) = tokens
        .tags
        .iter()
        .partition(|(name, _)| *name == entity_tag.as_bytes());
    let [(_, entity)] = entities.as_slice() else {
        return Err(());
    };
    let mut entity = text(entity)?;
    if entity.len() as u64 > limits.entity_bytes {
        return Err(());
    }
    if def.as_ref().is_some_and(|d| d.entity_uuid) {
        let parts: Vec<usize> = entity.split('-').map(str::len).collect();
        let hex: String = entity.to_lowercase().replace('-', "");
        let form = parts == [8, 4, 4, 4, 12] || parts == [32];
        if !form || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(());
        }
        entity = hex;
    }
    let ts = match &tokens.time {
        None => now_ms,
        Some(t) => {
            let time = i128::from(nanoseconds(t).ok_or(())?);
            let ms = match options.precision {
                Precision::Nanoseconds => time.div_euclid(1_000_000),
                Precision::Microseconds => time.div_euclid(1_000),
                Precision::Milliseconds => time,
                Precision::Seconds => time * 1_000,
                Precision::Minutes => time * 60_000,
                Precision::Hours => time * 3_600_000,
            };
            if !(0..9_223_372_036_854).contains(&ms) {
                return Err(());
            }
            ms as i64
        }
    };
    if options.store_tags && tokens.tags.len() as u64 > limits.ilp_fields {
        return Err(());
    }
    if tokens.fields.len() as u64 > limits.ilp_fields {
        return Err(());
    }
    let mut cells = BTreeMap::new();
    let mut missing: Vec<ColumnSpec> = Vec::new();
    for (name, value) in others {
        let column = def
            .as_ref()
            .and_then(|d| d.column(std::str::from_utf8(name).ok()?));
        let takes_text = |c: &&ColumnDef| c.declared && matches!(c.label, Label::Text { .. });
        if !options.store_tags && column.filter(takes_text).is_none() {
            continue;
        }
        let (name, value) = (text(name)?, text(value)?);
        match column.map(|c| c.label) {
            Some(Label::Text { max_chars })
                if max_chars.is_none_or(|n| value.chars().count() <= n as usize) => {}
            Some(_) => return Err(()),
            None => want(&mut missing, &name, Label::TEXT)?,
        }
        if value.len() as u64 > limits.text_bytes {
            return Err(());
        }
        cells.insert(name, Value::str(value));
    }
    for (name, raw) in &tokens.fields {
        let name = text(name)?;
        is_free(&name)?;
        let (value, label) = value(raw).flatten().ok_or(())?;
        if let Value::Str(s) = &value
            && s.len() as u64 > limits.text_bytes
        {
            return Err(());
        }
        if !fits(def.as_deref(), &name, &value, label)? {
            want(&mut missing, &name, label)?;
        }
        cells.insert(name, value);
    }
    if !missing.is_empty() {
        catalog.ensure(&table, &missing);
    }
    Ok(Row {
        table,
        entity,
        ts,
        cells,
    })
}

/// Whether a channel may have the name.
fn is_free(name: &str) -> Result<(), ()> {
    let taken = name.len() > 127 || name == "entity" || name == "ts" || name.starts_with('$');
    if taken { Err(()) } else { Ok(()) }
}

/// Notes that a line needs a channel of at least this label.
fn want(missing: &mut Vec<ColumnSpec>, name: &str, label: Label) -> Result<(), ()> {
    is_free(name)?;
    match missing.iter_mut().find(|c| c.name == name) {
        Some(there) if there.label.kind() != label.kind() => return Err(()),
        Some(there) if width(label) > width(there.label) => there.label = label,
        Some(_) => {}
        None => missing.push(ColumnSpec {
            name: name.to_owned(),
            label,
            fill: Fill::None,
            declared: false,
        }),
    }
    Ok(())
}

fn width(label: Label) -> u8 {
    match label {
        Label::Bool => 1,
        Label::Int => 2,
        _ => 3,
    }
}

/// Whether the channel is there and takes the value as it is.
fn fits(def: Option<&TableDef>, name: &str, value: &Value, label: Label) -> Result<bool, ()> {
    let Some(column) = def.and_then(|d| d.column(name)) else {
        return Ok(false);
    };
    let ok = |good: bool| if good { Ok(true) } else { Err(()) };
    match (value, column.label) {
        (Value::Str(s), Label::Text { max_chars }) => {
            ok(max_chars.is_none_or(|n| s.chars().count() <= n as usize))
        }
        (Value::F64(_), Label::Double) => Ok(true),
        (Value::F64(_), Label::Int | Label::Bool) if !column.declared => {
            Ok(width(label) <= width(column.label))
        }
        (Value::F64(v), Label::Int) => ok(v.trunc() == *v && v.abs() <= 9007199254740992.0),
        (Value::F64(v), Label::Bool) => ok(*v == 0.0 || *v == 1.0),
        (Value::F64(v), Label::Timestamp) => {
            ok(v.trunc() == *v && *v >= 0.0 && *v < 9223372036854.0)
        }
        _ => Err(()),
    }
}
