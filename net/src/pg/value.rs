//! Cells as PostgreSQL writes them, as text and binary.

use std::io::Write;
use strandline_core::error::{Error, Result};
use strandline_core::value::Cell;
use strandline_core::xid::Xid;
use strandline_sql::types::{Datum, SqlType};

/// PostgreSQL counts binary times from 2000-01-01: µs from the Unix epoch to there.
const PG_EPOCH_US: i64 = 946_684_800_000_000;

/// Unix ms → PostgreSQL's binary timestamptz.
pub fn pg_us(ms: i64) -> i64 {
    ms.saturating_mul(1000).saturating_sub(PG_EPOCH_US)
}

/// PostgreSQL's binary timestamptz → Unix ms, floored.
pub fn unix_ms(pg_us: i64) -> i64 {
    // Floor each part on its own: the sum cannot overflow then.
    pg_us.div_euclid(1000) + PG_EPOCH_US / 1000
}

/// Writes a field: its length, then what `body` writes.
fn field(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - at - 4) as u32;
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&len.to_be_bytes());
    }
}

fn bytes(out: &mut Vec<u8>, b: &[u8]) {
    out.extend_from_slice(&(b.len() as u32).to_be_bytes());
    out.extend_from_slice(b);
}

fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1i32).to_be_bytes());
}

/// An xid, 32 lowercase hex; text and binary are the same.
pub fn put_xid(out: &mut Vec<u8>, xid: Xid) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0u8; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(xid.to_bytes()) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    bytes(out, &text);
}

/// A cell of an engine's batch.
pub fn put_cell(out: &mut Vec<u8>, ty: SqlType, binary: bool, cell: Cell<'_>) -> Result<()> {
    match cell {
        Cell::Null => null(out),
        Cell::Str(s) => return put_text(out, ty, binary, s),
        Cell::I64(i) => return put_int(out, ty, binary, i),
        Cell::F64(x) => return put_float(out, ty, binary, x),
    }
    Ok(())
}

/// A single value.
pub fn put_datum(out: &mut Vec<u8>, ty: SqlType, binary: bool, datum: &Datum) -> Result<()> {
    match datum {
        Datum::Null => null(out),
        Datum::Bool(b) => return put_int(out, ty, binary, i64::from(*b)),
        Datum::Int(i) | Datum::Timestamp(i) => return put_int(out, ty, binary, *i),
        Datum::Float(x) => return put_float(out, ty, binary, *x),
        Datum::Text { text, .. } => return put_text(out, ty, binary, text),
    }
    Ok(())
}

fn put_text(out: &mut Vec<u8>, ty: SqlType, binary: bool, s: &str) -> Result<()> {
    match (ty, binary) {
        (SqlType::Text | SqlType::Name | SqlType::Char, _) | (_, false) => bytes(out, s.as_bytes()),
        (SqlType::TextArray, true) => return put_text_array(out, s),
        (ty, true) => return Err(no_binary(ty)),
    }
    Ok(())
}

fn no_binary(ty: SqlType) -> Error {
    Error::unsupported(format!("no binary output for values of type {ty:?}"))
        .hint("ask for this column in text format")
}

fn put_int(out: &mut Vec<u8>, ty: SqlType, binary: bool, i: i64) -> Result<()> {
    match (ty, binary) {
        (SqlType::Bool, false) => bytes(out, if i != 0 { b"t" } else { b"f" }),
        (SqlType::Bool, true) => bytes(out, &[u8::from(i != 0)]),
        (SqlType::Timestamptz, false) => field(out, |out| timestamp_text(out, i)),
        (SqlType::Timestamptz, true) => bytes(out, &pg_us(i).to_be_bytes()),
        (SqlType::Float8, _) => return put_float(out, ty, binary, i as f64),
        (_, false) => bytes(out, itoa::Buffer::new().format(i).as_bytes()),
        (SqlType::Int8, true) => bytes(out, &i.to_be_bytes()),
        (SqlType::Int4, true) => bytes(out, &narrow::<i32>(i)?.to_be_bytes()),
        (SqlType::Int2, true) => bytes(out, &narrow::<i16>(i)?.to_be_bytes()),
        (SqlType::Oid | SqlType::Regtype, true) => bytes(out, &narrow::<u32>(i)?.to_be_bytes()),
        (SqlType::Text | SqlType::Name | SqlType::Char, true) => {
            bytes(out, itoa::Buffer::new().format(i).as_bytes());
        }
        (SqlType::TextArray, true) => return Err(no_binary(ty)),
    }
    Ok(())
}

fn narrow<T: TryFrom<i64>>(i: i64) -> Result<T> {
    T::try_from(i).map_err(|_| Error::internal(format!("{i} does not fit its column's type")))
}

fn put_float(out: &mut Vec<u8>, ty: SqlType, binary: bool, x: f64) -> Result<()> {
    match (ty, binary) {
        (SqlType::Float8, false) => field(out, |out| float_text(out, x)),
        (SqlType::Float8, true) => bytes(out, &x.to_be_bytes()),
        (SqlType::Text | SqlType::Name | SqlType::Char, _) => field(out, |out| float_text(out, x)),
        // INT, BOOL and TIMESTAMP are stored as whole numbers within ±2^53: exact.
        _ => return put_int(out, ty, binary, x as i64),
    }
    Ok(())
}

/// The binary form of `text[]` from its text form `{a,"b c",NULL}`.
fn put_text_array(out: &mut Vec<u8>, text: &str) -> Result<()> {
    let items = parse_array(text).ok_or_else(|| no_binary(SqlType::TextArray))?;
    field(out, |out| {
        let nulls = items.iter().any(Option::is_none);
        out.extend_from_slice(&u32::from(!items.is_empty()).to_be_bytes());
        out.extend_from_slice(&u32::from(nulls).to_be_bytes());
        out.extend_from_slice(&SqlType::Text.oid().to_be_bytes());
        if !items.is_empty() {
            out.extend_from_slice(&(items.len() as u32).to_be_bytes());
            out.extend_from_slice(&1u32.to_be_bytes());
        }
        for item in &items {
            match item {
                Some(s) => bytes(out, s.as_bytes()),
                None => null(out),
            }
        }
    });
    Ok(())
}

fn parse_array(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() {
        let mut item = String::new();
        let quoted = chars.next_if_eq(&'"').is_some();
        loop {
            match chars.next() {
                Some('\\') => item.push(chars.next()?),
                Some('"') if quoted => {
                    if !matches!(chars.next(), None | Some(',')) {
                        return None;
                    }
                    break;
                }
                Some(',') if !quoted => break,
                None if quoted => return None,
                None => break,
                Some(c) => item.push(c),
            }
        }
        items.push((quoted || !item.eq_ignore_ascii_case("null")).then_some(item));
    }
    Some(items)
}

/// `2026-01-01 10:00:00.25+00`: ISO, UTC, trailing zeros of the fraction left out.
pub fn timestamp_text(out: &mut Vec<u8>, ms: i64) {
    let days = ms.div_euclid(86_400_000);
    let of_day = ms.rem_euclid(86_400_000);
    let (year, month, day) = civil(days);
    // There is no year 0: the year before AD 1 is 1 BC.
    let shown = if year > 0 { year } else { 1 - year };
    let (h, m, s) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{shown:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}");
    match of_day % 1000 {
        0 => {}
        f if f % 100 == 0 => drop(write!(out, ".{}", f / 100)),
        f if f % 10 == 0 => drop(write!(out, ".{:02}", f / 10)),
        f => drop(write!(out, ".{f:03}")),
    }
    out.extend_from_slice(b"+00");
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Days from the Unix epoch → year, month, day of the proleptic Gregorian calendar (Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// The shortest text that reads back as the same number, laid out as PostgreSQL's float8out does: plain
/// digits for exponents −4 to 14, else `d.ddde+XX` with at least two digits of exponent.
pub fn float_text(out: &mut Vec<u8>, x: f64) {
    if !x.is_finite() {
        let text: &[u8] = match (x.is_nan(), x > 0.0) {
            (true, _) => b"NaN",
            (_, true) => b"Infinity",
            _ => b"-Infinity",
        };
        return out.extend_from_slice(text);
    }
    let magnitude = x.abs();
    if magnitude < 1e15 && x.trunc() == x && (x != 0.0 || x.is_sign_positive()) {
        return out.extend_from_slice(itoa::Buffer::new().format(x as i64).as_bytes());
    }
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(x);
    if x == 0.0 || (1e-4..1e15).contains(&magnitude) {
        // Here ryu writes plain digits too; it only insists on a fraction.
        return out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    }
    let (text, sign) = match text.strip_prefix('-') {
        Some(rest) => (rest, "-"),
        None => (text, ""),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The value is 0.DIGITS × 10^point once leading zeros are taken off.
    let digits: String = whole.chars().chain(fraction.chars()).collect();
    let leading = digits.len() - digits.trim_start_matches('0').len();
    let exponent = exponent.parse::<i32>().unwrap_or(0) + whole.len() as i32 - leading as i32 - 1;
    let digits = digits.trim_matches('0');
    let (first, rest) = digits.split_at_checked(1).unwrap_or(("0", ""));
    let dot = if rest.is_empty() { "" } else { "." };
    let minus = if exponent < 0 { '-' } else { '+' };
    let _ = write!(
        out,
        "{sign}{first}{dot}{rest}e{minus}{:02}",
        exponent.unsigned_abs()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn float(x: f64) -> String {
        let mut out = Vec::new();
        float_text(&mut out, x);
        String::from_utf8(out).unwrap()
    }
    fn time(ms: i64) -> String {
        let mut out = Vec::new();
        timestamp_text(&mut out, ms);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_as_postgresql() {
        // As `select x::float8` of PostgreSQL 15 answers.
        for (x, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e-7, "1e-07"),
            (123_456_789_012_345.0, "123456789012345"),
            (999_999_999_999_999.0, "999999999999999"),
            (1e15, "1e+15"),
            (1_234_567_890_123_456.0, "1.234567890123456e+15"),
            (1e20, "1e+20"),
            (1e100, "1e+100"),
            (-1e300, "-1e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (12345.678, "12345.678"),
            (99_999_999_999_999.5, "99999999999999.5"),
        ] {
            assert_eq!(float(x), text);
        }
    }

    #[test]
    fn times_as_postgresql() {
        for (ms, text) in [
            (1_767_261_600_250, "2026-01-01 10:00:00.25+00"),
            (0, "1970-01-01 00:00:00+00"),
            (-1, "1969-12-31 23:59:59.999+00"),
            (951_782_400_100, "2000-02-29 00:00:00.1+00"),
            (9_223_372_036_853, "2262-04-11 23:47:16.853+00"),
            (-62_135_596_800_001, "0001-12-31 23:59:59.999+00 BC"),
        ] {
            assert_eq!(time(ms), text);
        }
        time(i64::MAX);
        time(i64::MIN);
        assert_eq!(unix_ms(pg_us(1_767_261_600_250)), 1_767_261_600_250);
        assert_eq!(unix_ms(-1), 946_684_799_999);
    }

    /// The label decides what a cell looks like, whatever the engine counted it in.
    #[test]
    fn cells_are_rendered_by_their_label() {
        let put = |ty, cell: Cell<'_>, binary| {
            let mut out = Vec::new();
            put_cell(&mut out, ty, binary, cell).unwrap();
            let mut datum = Vec::new();
            let same = match cell {
                Cell::F64(x) => Datum::Float(x),
                Cell::I64(i) => Datum::Int(i),
                _ => Datum::Null,
            };
            put_datum(&mut datum, ty, binary, &same).unwrap();
            assert_eq!(out, datum);
            let len = u32::from_be_bytes(out[..4].try_into().unwrap());
            assert_eq!(len as usize, out.len() - 4);
            out.split_off(4)
        };
        let us = pg_us(1_767_261_600_250);
        for (ty, n, text, binary) in [
            (SqlType::Float8, 7, "7", &7f64.to_be_bytes()[..]),
            (SqlType::Int8, 7, "7", &7i64.to_be_bytes()),
            (
                SqlType::Int8,
                -(1 << 53),
                "-9007199254740992",
                &(-(1i64 << 53)).to_be_bytes(),
            ),
            (
                SqlType::Float8,
                1 << 53,
                "9.007199254740992e+15",
                &9007199254740992f64.to_be_bytes(),
            ),
            (SqlType::Bool, 0, "f", &[0]),
            (SqlType::Bool, 1, "t", &[1]),
            (
                SqlType::Timestamptz,
                1_767_261_600_250,
                "2026-01-01 10:00:00.25+00",
                &us.to_be_bytes(),
            ),
            (SqlType::Int4, 7, "7", &7i32.to_be_bytes()),
            (SqlType::Text, 7, "7", b"7"),
        ] {
            for cell in [Cell::I64(n), Cell::F64(n as f64)] {
                assert_eq!(put(ty, cell, false), text.as_bytes(), "{ty:?} {cell:?}");
                assert_eq!(put(ty, cell, true), binary, "{ty:?} {cell:?}");
            }
        }
        assert_eq!(put(SqlType::Float8, Cell::F64(-0.5), false), b"-0.5");
    }

    #[test]
    fn arrays() {
        assert_eq!(parse_array("{}"), Some(vec![]));
        assert_eq!(
            parse_array(r#"{a,"b, \"c",NULL,"NULL"}"#),
            Some(vec![
                Some("a".into()),
                Some("b, \"c".into()),
                None,
                Some("NULL".into())
            ])
        );
        assert_eq!(parse_array("{\"a"), None);
        assert_eq!(parse_array("a"), None);
    }

    proptest! {
        #[test]
        fn floats_read_back(bits in any::<u64>()) {
            let x = f64::from_bits(bits);
            prop_assume!(x.is_finite());
            let text = float(x);
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), x.to_bits());
            prop_assert!(!text.contains('e') || x.abs() < 1e-4 || x.abs() >= 1e15);
        }

        #[test]
        fn times_agree_with_jiff(ms in -62_135_596_800_000i64..253_402_300_799_000) {
            let t = strandline_core::time::format_ms(ms);
            let ours = time(ms);
            let (date, rest) = ours.split_once(' ').unwrap();
            let rest = rest.strip_suffix("+00").unwrap();
            let (clock, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
            prop_assert_eq!(format!("{date}T{clock}.{fraction:0<3}Z"), t);
        }
    }
}
