//! Values by label: what fits which column, and with which SQLSTATE it does not. Literals,
//! parameters and defaults all come through here, borrowed, so that a cell of a large INSERT is checked
//! without being copied.

use crate::time::{self, BadTime};
use crate::types::{Datum, SqlType};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::limits::Limits;
use strandline_core::schema::Label;
use strandline_core::time::TIMESTAMP_END_MS;
use strandline_core::value::{Kind, Value};

/// The largest whole number that f64 holds with all its neighbours.
pub const INT_MAX: i64 = 1 << 53;

/// A [`Datum`] without its ownership.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// NULL.
    Null,
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Unix ms.
    Timestamp(i64),
    /// Text; `unknown`: takes the type of where it stands.
    Text(&'a str, bool),
}

impl<'a> From<&'a Datum> for Scalar<'a> {
    fn from(d: &'a Datum) -> Self {
        match d {
            Datum::Null => Scalar::Null,
            Datum::Bool(b) => Scalar::Bool(*b),
            Datum::Int(i) => Scalar::Int(*i),
            Datum::Float(f) => Scalar::Float(*f),
            Datum::Timestamp(t) => Scalar::Timestamp(*t),
            Datum::Text { text, unknown } => Scalar::Text(text, *unknown),
        }
    }
}

impl Scalar<'_> {
    /// What it is, for messages.
    fn kind(self) -> &'static str {
        match self {
            Scalar::Null => "NULL",
            Scalar::Bool(_) => "a boolean",
            Scalar::Int(_) | Scalar::Float(_) => "a number",
            Scalar::Timestamp(_) => "a time",
            Scalar::Text(..) => "text",
        }
    }
    fn shown(self) -> String {
        match self {
            Scalar::Null => "NULL".to_owned(),
            Scalar::Bool(b) => b.to_string(),
            Scalar::Int(i) => i.to_string(),
            Scalar::Float(f) => f.to_string(),
            Scalar::Timestamp(t) => strandline_core::time::format_ms(t),
            Scalar::Text(s, _) if s.chars().nth(60).is_some() => {
                format!("\"{}…\"", s.chars().take(60).collect::<String>())
            }
            Scalar::Text(s, _) => format!("\"{s}\""),
        }
    }
}

/// Why a value does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// `22003`.
    OutOfRange,
    /// `22P02`: text that is no such value, or a fraction for INT.
    BadText,
    /// `22007`.
    BadTime,
    /// `22008`.
    TimeOutOfRange,
    /// `42804`.
    Type,
    /// `22008`: a 13th month, a 25th hour.
    NoSuchTime,
    /// `22001`.
    TooLong(u32),
    /// `22021`.
    Nul,
    /// `54000`: over `text_bytes`.
    TooLarge,
}

impl From<BadTime> for Misfit {
    fn from(b: BadTime) -> Self {
        match b {
            BadTime::Syntax => Misfit::BadTime,
            BadTime::Range => Misfit::NoSuchTime,
        }
    }
}

impl Misfit {
    /// The error, for a value on its way to `place` ("column \"speed\" of table \"t\"") of a type.
    pub fn error(self, value: Scalar<'_>, type_name: &str, place: &str, limits: &Limits) -> Error {
        let shown = value.shown();
        match self {
            Misfit::OutOfRange => Error::new(
                SqlState::NumericOutOfRange,
                format!("{shown} is out of range for {type_name} {place}"),
            ),
            Misfit::BadText => Error::new(
                SqlState::InvalidTextRepresentation,
                format!("{shown} is not a valid value for {type_name} {place}"),
            ),
            Misfit::BadTime => Error::new(
                SqlState::InvalidDatetime,
                format!("{shown} is not a time, for {type_name} {place}"),
            )
            .hint("write Unix milliseconds, or ISO 8601 such as '2026-01-01T10:00:00Z'"),
            Misfit::TimeOutOfRange => Error::new(
                SqlState::DatetimeOverflow,
                format!("{shown} is out of the range of times, for {type_name} {place}"),
            )
            .hint("numbers are Unix milliseconds; times run from 1970-01-01 to 2262-04-11"),
            Misfit::NoSuchTime => Error::new(
                SqlState::DatetimeOverflow,
                format!(
                    "{shown} has a month, day or hour that there is not, for {type_name} {place}"
                ),
            ),
            Misfit::Type => {
                let e = Error::new(
                    SqlState::DatatypeMismatch,
                    format!("{} does not fit {type_name} {place}", value.kind()),
                );
                match (type_name, value) {
                    ("TEXT", _) => e.hint("put it in single quotes"),
                    (_, Scalar::Text(..)) => {
                        e.hint("cast it, or declare the parameter with the column's type")
                    }
                    _ => e,
                }
            }
            Misfit::TooLong(n) => Error::new(
                SqlState::StringTooLong,
                format!("value too long for VARCHAR({n}) {place}"),
            ),
            Misfit::Nul => Error::new(
                SqlState::CharacterNotInRepertoire,
                format!("text with a NUL character, for {place}"),
            ),
            Misfit::TooLarge => limits.exceeded(
                "text_bytes",
                SqlState::ProgramLimitExceeded,
                format_args!("text for {place}"),
            ),
        }
    }
}

/// A BOOL in PostgreSQL's spellings.
pub fn parse_bool(text: &str) -> Option<bool> {
    let t = text.trim().to_ascii_lowercase();
    let prefix = |word: &str, least: usize| t.len() >= least && word.starts_with(&t);
    match t.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ if prefix("true", 1) || prefix("yes", 1) || t == "on" => Some(true),
        _ if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) => Some(false),
        _ => None,
    }
}

/// A number as PostgreSQL's float8 takes it in quotes.
fn parse_f64(text: &str) -> Result<f64, Misfit> {
    let t = text.trim();
    let digits = t.trim_start_matches(['+', '-']);
    // `inf`, `nan` and hexadecimal are not for storage.
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        let named = ["nan", "infinity", "inf"]
            .iter()
            .any(|w| digits.eq_ignore_ascii_case(w));
        return Err(if named {
            Misfit::OutOfRange
        } else {
            Misfit::BadText
        });
    }
    let v: f64 =
        fast_float2::parse(t.strip_prefix('+').unwrap_or(t)).map_err(|_| Misfit::BadText)?;
    finite(v)
}

fn parse_i64(text: &str) -> Result<i64, Misfit> {
    let t = text.trim();
    t.parse().map_err(|_| {
        let digits = t.strip_prefix(['+', '-']).unwrap_or(t);
        let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if whole {
            Misfit::OutOfRange
        } else {
            Misfit::BadText
        }
    })
}

fn finite(v: f64) -> Result<f64, Misfit> {
    if v.is_finite() {
        Ok(v)
    } else {
        Err(Misfit::OutOfRange)
    }
}

/// The f64 that a label of kind f64 stores; `None` for NULL. Without `strict` a comparison asks: a number
/// that INT could not store still compares.
pub fn number(
    value: Scalar<'_>,
    label: Label,
    strict: bool,
    now_ms: i64,
) -> Result<Option<f64>, Misfit> {
    let v = match (label, value) {
        (_, Scalar::Null) => return Ok(None),
        (Label::Double, Scalar::Int(i)) => i as f64,
        (Label::Double, Scalar::Float(f)) => finite(f)?,
        (Label::Double, Scalar::Text(t, true)) => parse_f64(t)?,
        (Label::Int, Scalar::Int(i)) => int(i, strict)?,
        (Label::Int, Scalar::Text(t, true)) => int(parse_i64(t)?, strict)?,
        (Label::Int, Scalar::Float(f)) => {
            let f = finite(f)?;
            if strict && f.fract() != 0.0 {
                return Err(Misfit::BadText);
            }
            if strict && f.abs() > INT_MAX as f64 {
                return Err(Misfit::OutOfRange);
            }
            // -0.0 is not a whole number that anyone wrote.
            f + 0.0
        }
        (Label::Bool, Scalar::Bool(b)) => f64::from(u8::from(b)),
        (Label::Bool, Scalar::Int(i @ (0 | 1))) => i as f64,
        (Label::Bool, Scalar::Float(f)) if f == 0.0 || f == 1.0 => f + 0.0,
        (Label::Bool, Scalar::Int(_) | Scalar::Float(_)) => return Err(Misfit::OutOfRange),
        (Label::Bool, Scalar::Text(t, true)) => {
            f64::from(u8::from(parse_bool(t).ok_or(Misfit::BadText)?))
        }
        (Label::Timestamp, Scalar::Int(t) | Scalar::Timestamp(t)) => timestamp(t, strict)?,
        (Label::Timestamp, Scalar::Float(f)) => {
            let f = f.floor();
            // Comparisons beyond i64 saturate; NaN is no time.
            if f.is_nan() {
                return Err(Misfit::TimeOutOfRange);
            }
            timestamp(f as i64, strict)?
        }
        (Label::Timestamp, Scalar::Text(t, true)) => {
            timestamp(time::parse_text(t, now_ms)?, strict)?
        }
        _ => return Err(Misfit::Type),
    };
    Ok(Some(v))
}

fn int(i: i64, strict: bool) -> Result<f64, Misfit> {
    if strict && i.unsigned_abs() > INT_MAX as u64 {
        return Err(Misfit::OutOfRange);
    }
    Ok(i as f64)
}

fn timestamp(t: i64, strict: bool) -> Result<f64, Misfit> {
    if strict && !(0..TIMESTAMP_END_MS).contains(&t) {
        return Err(Misfit::TimeOutOfRange);
    }
    Ok(t as f64)
}

/// The text that TEXT stores; `None` for NULL.
pub fn text<'a>(
    value: Scalar<'a>,
    max_chars: Option<u32>,
    limits: &Limits,
) -> Result<Option<&'a str>, Misfit> {
    let t = match value {
        Scalar::Null => return Ok(None),
        Scalar::Text(t, _) => t,
        _ => return Err(Misfit::Type),
    };
    if let Some(max) = max_chars
        && t.len() > max as usize
        && t.chars().count() > max as usize
    {
        return Err(Misfit::TooLong(max));
    }
    if t.len() as u64 > limits.text_bytes {
        return Err(Misfit::TooLarge);
    }
    if t.as_bytes().contains(&0) {
        return Err(Misfit::Nul);
    }
    Ok(Some(t))
}

/// What a column of `label` stores of a value.
pub fn stored(
    value: Scalar<'_>,
    label: Label,
    strict: bool,
    now_ms: i64,
    limits: &Limits,
) -> Result<Value, Misfit> {
    Ok(match label.kind() {
        Kind::F64 => number(value, label, strict, now_ms)?.map_or(Value::Null, Value::F64),
        Kind::Str => {
            let max = match label {
                Label::Text { max_chars } if strict => max_chars,
                _ => None,
            };
            text(value, max, limits)?.map_or(Value::Null, Value::str)
        }
    })
}

/// A place on the time axis: the ms at or before it, and whether it is that ms exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisPoint {
    /// Floor, ms; saturates.
    pub ms: i64,
    /// False for a number with a fraction.
    pub exact: bool,
}

/// The ts of a value; `None` for NULL. Quoted digits are ms, because ts is an int8 on the wire.
pub fn axis(value: Scalar<'_>, now_ms: i64) -> Result<Option<AxisPoint>, Misfit> {
    let point = |ms| Ok(Some(AxisPoint { ms, exact: true }));
    match value {
        Scalar::Null => Ok(None),
        Scalar::Int(t) | Scalar::Timestamp(t) => point(t),
        Scalar::Float(f) if f.is_nan() => Err(Misfit::TimeOutOfRange),
        Scalar::Float(f) => Ok(Some(AxisPoint {
            ms: f.floor() as i64,
            exact: f.fract() == 0.0,
        })),
        Scalar::Text(t, true) => {
            let digits = t.trim();
            if let Some(ms) = digits.parse::<i64>().ok().filter(|_| digits.len() != 8) {
                return point(ms);
            }
            point(time::parse_text(t, now_ms)?)
        }
        Scalar::Bool(_) | Scalar::Text(_, false) => Err(Misfit::Type),
    }
}

/// `value::type`, as PostgreSQL casts.
pub fn cast(value: Scalar<'_>, ty: SqlType, now_ms: i64) -> Result<Datum, Misfit> {
    let text_of = |s: String| Datum::Text {
        text: s,
        unknown: false,
    };
    // A cast takes typed text too.
    let value = match value {
        Scalar::Text(t, _) => Scalar::Text(t, true),
        other => other,
    };
    Ok(match (ty, value) {
        (_, Scalar::Null) => Datum::Null,
        (SqlType::Float8, Scalar::Int(i)) => Datum::Float(i as f64),
        (SqlType::Float8, Scalar::Float(f)) => Datum::Float(finite(f)?),
        (SqlType::Float8, Scalar::Text(t, _)) => Datum::Float(parse_f64(t)?),
        (SqlType::Int8, Scalar::Int(i)) => Datum::Int(i),
        (SqlType::Int8, Scalar::Bool(b)) => Datum::Int(i64::from(b)),
        (SqlType::Int8, Scalar::Float(f)) => {
            let r = finite(f)?.round_ties_even();
            if r.abs() >= 9.2e18 {
                return Err(Misfit::OutOfRange);
            }
            Datum::Int(r as i64)
        }
        (SqlType::Int8, Scalar::Text(t, _)) => Datum::Int(parse_i64(t)?),
        (SqlType::Bool, Scalar::Bool(b)) => Datum::Bool(b),
        (SqlType::Bool, Scalar::Int(i)) => Datum::Bool(i != 0),
        (SqlType::Bool, Scalar::Text(t, _)) => Datum::Bool(parse_bool(t).ok_or(Misfit::BadText)?),
        (SqlType::Timestamptz, Scalar::Timestamp(t)) => Datum::Timestamp(t),
        (SqlType::Timestamptz, Scalar::Text(t, _)) => {
            Datum::Timestamp(time::parse_text(t, now_ms)?)
        }
        (SqlType::Text, Scalar::Text(t, _)) => text_of(t.to_owned()),
        (SqlType::Text, Scalar::Timestamp(t)) => text_of(strandline_core::time::format_ms(t)),
        (SqlType::Text, Scalar::Bool(b)) => text_of(b.to_string()),
        (SqlType::Text, Scalar::Int(i)) => text_of(i.to_string()),
        (SqlType::Text, Scalar::Float(f)) => text_of(f.to_string()),
        _ => return Err(Misfit::Type),
    })
}

/// How a type is called in messages.
pub fn type_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Float8 => "DOUBLE",
        SqlType::Int8 => "INT",
        SqlType::Bool => "BOOL",
        SqlType::Timestamptz => "TIMESTAMP",
        _ => "TEXT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scalar::{Bool, Float, Int, Text, Timestamp};

    fn put(value: Scalar<'_>, label: Label) -> Result<Value, &'static str> {
        let limits = Limits::default();
        stored(value, label, true, 1000, &limits).map_err(|m| {
            m.error(value, label.name(), "column \"c\"", &limits)
                .state()
                .code()
        })
    }

    #[test]
    fn labels() {
        let n = |v: f64| Ok(Value::F64(v));
        let s = |t: &str| Ok(Value::str(t));
        let varchar = Label::Text { max_chars: Some(3) };
        for (value, label, want) in [
            (Text("12", true), Label::Int, n(12.0)),
            (Text(" -12 ", true), Label::Int, n(-12.0)),
            (Float(9.0), Label::Int, n(9.0)),
            (Float(9.5), Label::Int, Err("22P02")),
            (Text("9.0", true), Label::Int, Err("22P02")),
            (Text("x", true), Label::Int, Err("22P02")),
            (Text("", true), Label::Int, Err("22P02")),
            (Text("99999999999999999999", true), Label::Int, Err("22003")),
            (Int(INT_MAX), Label::Int, n(9_007_199_254_740_992.0)),
            (Int(INT_MAX + 1), Label::Int, Err("22003")),
            (Int(-INT_MAX - 1), Label::Int, Err("22003")),
            (Float(1e300), Label::Int, Err("22003")),
            (Bool(true), Label::Int, Err("42804")),
            (Text("12", false), Label::Int, Err("42804")),
            (Int(3), Label::Double, n(3.0)),
            (Text("1e3", true), Label::Double, n(1000.0)),
            (Text("+1.5", true), Label::Double, n(1.5)),
            (Text("NaN", true), Label::Double, Err("22003")),
            (Text("-Infinity", true), Label::Double, Err("22003")),
            (Text("1e999", true), Label::Double, Err("22003")),
            (Float(f64::NAN), Label::Double, Err("22003")),
            (Float(f64::INFINITY), Label::Double, Err("22003")),
            (Text("1x", true), Label::Double, Err("22P02")),
            (Timestamp(5), Label::Double, Err("42804")),
            (Bool(true), Label::Bool, n(1.0)),
            (Int(0), Label::Bool, n(0.0)),
            (Int(2), Label::Bool, Err("22003")),
            (Text("t", true), Label::Bool, n(1.0)),
            (Text("FALSE", true), Label::Bool, n(0.0)),
            (Text("on", true), Label::Bool, n(1.0)),
            (Text("of", true), Label::Bool, n(0.0)),
            (Text("o", true), Label::Bool, Err("22P02")),
            (Text("maybe", true), Label::Bool, Err("22P02")),
            (Int(0), Label::Timestamp, n(0.0)),
            (Int(-1), Label::Timestamp, Err("22008")),
            (
                Int(TIMESTAMP_END_MS - 1),
                Label::Timestamp,
                n(9_223_372_036_853.0),
            ),
            (Int(TIMESTAMP_END_MS), Label::Timestamp, Err("22008")),
            (Float(1.9), Label::Timestamp, n(1.0)),
            (
                Text("1970-01-01T00:00:01.2349Z", true),
                Label::Timestamp,
                n(1234.0),
            ),
            (Text("1960-01-01", true), Label::Timestamp, Err("22008")),
            (Text("1970-13-01", true), Label::Timestamp, Err("22008")),
            (Text("soon", true), Label::Timestamp, Err("22007")),
            (Text("now", true), Label::Timestamp, n(1000.0)),
            (Bool(true), Label::Timestamp, Err("42804")),
            (Text("abc", true), varchar, s("abc")),
            (Text("äöü", true), varchar, s("äöü")),
            (Text("abcd", true), varchar, Err("22001")),
            (Int(1), Label::TEXT, Err("42804")),
            (Bool(true), Label::TEXT, Err("42804")),
            (Text("a\0", true), Label::TEXT, Err("22021")),
            (Scalar::Null, Label::TEXT, Ok(Value::Null)),
            (Scalar::Null, Label::Int, Ok(Value::Null)),
        ] {
            assert_eq!(put(value, label), want, "{value:?} as {label:?}");
        }
    }

    #[test]
    fn the_axis() {
        let at = |v| axis(v, 0).unwrap().unwrap();
        assert_eq!(at(Text("1700000000000", true)).ms, 1_700_000_000_000);
        assert_eq!(
            at(Float(1.5)),
            AxisPoint {
                ms: 1,
                exact: false
            }
        );
        assert_eq!(
            at(Float(-1.5)),
            AxisPoint {
                ms: -2,
                exact: false
            }
        );
        assert_eq!(at(Text("1970-01-01T00:00:01", true)).ms, 1000);
        assert!(axis(Text("20260101", true), 0).is_err());
        assert!(axis(Float(f64::NAN), 0).is_err());
    }
}
