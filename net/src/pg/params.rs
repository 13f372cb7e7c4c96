//! Parameter values on their way in: what a client may declare, and its text and binary forms.

use super::frame::utf8;
use super::value::unix_ms;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::xid::Xid;
use strandline_sql::types::{Datum, SqlType};

// Type numbers of PostgreSQL's pg_type that a client may declare beyond those of `SqlType`.
const UNKNOWN: u32 = 705;
const FLOAT4: u32 = 700;
const BPCHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
const DATE: u32 = 1082;
const TIMESTAMP: u32 = 1114;
const NUMERIC: u32 = 1700;
const UUID: u32 = 2950;

/// The type that a declared number stands for in the binder; `None`: take it from where the parameter stands.
pub fn declared_type(oid: u32) -> Option<SqlType> {
    Some(match oid {
        16 => SqlType::Bool,
        18 => SqlType::Char,
        19 => SqlType::Name,
        20 => SqlType::Int8,
        21 => SqlType::Int2,
        23 => SqlType::Int4,
        25 | BPCHAR | VARCHAR | UUID => SqlType::Text,
        26 => SqlType::Oid,
        701 | FLOAT4 | NUMERIC => SqlType::Float8,
        1009 => SqlType::TextArray,
        1184 | TIMESTAMP | DATE => SqlType::Timestamptz,
        2206 => SqlType::Regtype,
        _ => return None,
    })
}

/// Whether a declared number says nothing.
pub fn is_undeclared(oid: u32) -> bool {
    oid == 0 || oid == UNKNOWN
}

/// Decodes one parameter, counted from 1. `oid` is the declared type, or where none was declared
/// (`declared` false) the one the binder found.
pub fn decode(
    number: usize,
    oid: u32,
    declared: bool,
    format: u16,
    value: Option<&[u8]>,
) -> Result<Datum> {
    let Some(value) = value else {
        return Ok(Datum::Null);
    };
    match format {
        0 => from_text(number, oid, declared, value),
        1 => from_binary(number, oid, value),
        other => Err(Error::new(
            SqlState::InvalidParameterValue,
            format!("unsupported format code: {other}"),
        )),
    }
}

fn from_text(number: usize, oid: u32, declared: bool, value: &[u8]) -> Result<Datum> {
    let text = utf8(value)?;
    if memchr::memchr(0, value).is_some() {
        return Err(Error::new(
            SqlState::CharacterNotInRepertoire,
            format!("parameter ${number} holds a NUL character"),
        ));
    }
    let unknown = || Datum::Text {
        text: text.to_owned(),
        unknown: true,
    };
    // What was not declared converts where it stands: the binder's error can name the column.
    if !declared {
        return Ok(unknown());
    }
    let trimmed = text.trim();
    let invalid = |name: &str| {
        Error::new(
            SqlState::InvalidTextRepresentation,
            format!("invalid input syntax for type {name}: \"{text}\" (parameter ${number})"),
        )
    };
    Ok(match oid {
        20 | 21 | 23 | 26 => {
            let (name, range) = match oid {
                20 => ("bigint", i64::MIN..=i64::MAX),
                21 => ("smallint", i64::from(i16::MIN)..=i64::from(i16::MAX)),
                26 => ("oid", 0..=i64::from(u32::MAX)),
                _ => ("integer", i64::from(i32::MIN)..=i64::from(i32::MAX)),
            };
            match trimmed.parse::<i64>() {
                Ok(i) if range.contains(&i) => Datum::Int(i),
                Ok(_) => return Err(out_of_range(text, name, number)),
                Err(e) if overflowed(&e) => return Err(out_of_range(text, name, number)),
                Err(_) => return Err(invalid(name)),
            }
        }
        701 | FLOAT4 | NUMERIC => match trimmed.parse::<i64>() {
            Ok(i) if oid == NUMERIC => Datum::Int(i),
            _ => {
                Datum::Float(fast_float2::parse(trimmed).map_err(|_| invalid("double precision"))?)
            }
        },
        16 => Datum::Bool(parse_bool(trimmed).ok_or_else(|| invalid("boolean"))?),
        18 | 19 | 25 | BPCHAR | VARCHAR => Datum::Text {
            text: text.to_owned(),
            unknown: false,
        },
        UUID => match Xid::parse(trimmed) {
            Some(id) => Datum::Text {
                text: id.to_string(),
                unknown: false,
            },
            None => return Err(invalid("uuid")),
        },
        _ => unknown(),
    })
}

fn overflowed(e: &std::num::ParseIntError) -> bool {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    matches!(e.kind(), PosOverflow | NegOverflow)
}

fn out_of_range(text: &str, name: &str, number: usize) -> Error {
    Error::new(
        SqlState::NumericOutOfRange,
        format!("value \"{text}\" is out of range for type {name} (parameter ${number})"),
    )
}

/// `t`, `true`, `yes`, `on`, `1` and the beginnings that PostgreSQL takes, in any case.
pub fn parse_bool(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let starts = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if starts("true", 1) || starts("yes", 1) || text == "on" || text == "1" {
        Some(true)
    } else if starts("false", 1) || starts("no", 1) || starts("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

fn from_binary(number: usize, oid: u32, value: &[u8]) -> Result<Datum> {
    let wrong = || {
        Error::new(
            SqlState::InvalidBinaryRepresentation,
            format!("incorrect binary data format in bind parameter {number}"),
        )
    };
    fn fixed<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
        value.try_into().ok()
    }
    Ok(match oid {
        16 => match value {
            [0] => Datum::Bool(false),
            [1] => Datum::Bool(true),
            _ => return Err(wrong()),
        },
        20 => Datum::Int(i64::from_be_bytes(fixed(value).ok_or_else(wrong)?)),
        21 => Datum::Int(i16::from_be_bytes(fixed(value).ok_or_else(wrong)?).into()),
        23 => Datum::Int(i32::from_be_bytes(fixed(value).ok_or_else(wrong)?).into()),
        26 | 2206 => Datum::Int(u32::from_be_bytes(fixed(value).ok_or_else(wrong)?).into()),
        FLOAT4 => Datum::Float(f32::from_be_bytes(fixed(value).ok_or_else(wrong)?).into()),
        701 => Datum::Float(f64::from_be_bytes(fixed(value).ok_or_else(wrong)?)),
        TIMESTAMP | 1184 => match i64::from_be_bytes(fixed(value).ok_or_else(wrong)?) {
            i64::MIN | i64::MAX => return Err(infinite(number)),
            us => Datum::Timestamp(unix_ms(us)),
        },
        DATE => match i32::from_be_bytes(fixed(value).ok_or_else(wrong)?) {
            i32::MIN | i32::MAX => return Err(infinite(number)),
            days => Datum::Timestamp((i64::from(days) + 10_957) * 86_400_000),
        },
        UUID => Datum::Text {
            text: Xid::from_bytes(fixed(value).ok_or_else(wrong)?).to_string(),
            unknown: false,
        },
        // Binary text is text; an undeclared parameter that the binder found to be text comes here too.
        18 | 19 | 25 | BPCHAR | VARCHAR | UNKNOWN => {
            let text = utf8(value)?.to_owned();
            if text.contains('\0') {
                return Err(Error::new(
                    SqlState::CharacterNotInRepertoire,
                    format!("parameter ${number} holds a NUL character"),
                ));
            }
            Datum::Text {
                text,
                unknown: oid == UNKNOWN,
            }
        }
        other => {
            return Err(Error::unsupported(format!(
                "parameter ${number}: no binary input for the type with number {other}"
            ))
            .hint("send it as text"));
        }
    })
}

fn infinite(number: usize) -> Error {
    Error::new(
        SqlState::DatetimeOverflow,
        format!("parameter ${number}: timestamp out of range: infinity"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(oid: u32, value: &str) -> Result<Datum> {
        decode(1, oid, true, 0, Some(value.as_bytes()))
    }
    fn binary(oid: u32, value: &[u8]) -> Result<Datum> {
        decode(1, oid, true, 1, Some(value))
    }

    #[test]
    fn text_forms() {
        assert_eq!(text(23, "7").unwrap(), Datum::Int(7));
        assert_eq!(text(20, " -7 ").unwrap(), Datum::Int(-7));
        assert_eq!(text(701, "1.5").unwrap(), Datum::Float(1.5));
        assert_eq!(text(NUMERIC, "12").unwrap(), Datum::Int(12));
        assert_eq!(text(NUMERIC, "12.5").unwrap(), Datum::Float(12.5));
        assert_eq!(text(16, "TRUE").unwrap(), Datum::Bool(true));
        assert_eq!(text(16, "of").unwrap(), Datum::Bool(false));
        assert_eq!(
            text(21, "40000").unwrap_err().state(),
            SqlState::NumericOutOfRange
        );
        assert_eq!(
            text(20, "99999999999999999999").unwrap_err().state(),
            SqlState::NumericOutOfRange
        );
        for (oid, value) in [(20, "x"), (701, "x"), (16, "o"), (UUID, "x"), (20, "")] {
            assert_eq!(
                text(oid, value).unwrap_err().state(),
                SqlState::InvalidTextRepresentation
            );
        }
        let undeclared = decode(1, 20, false, 0, Some(b"x")).unwrap();
        assert!(matches!(undeclared, Datum::Text { unknown: true, .. }));
        assert_eq!(decode(1, 20, true, 0, None).unwrap(), Datum::Null);
        assert!(decode(1, 20, true, 2, Some(b"1")).is_err());
        assert!(text(25, "a\0b").is_err());
        assert!(decode(1, 25, true, 0, Some(b"\xff")).is_err());
    }

    #[test]
    fn binary_forms() {
        assert_eq!(binary(21, &[0, 7]).unwrap(), Datum::Int(7));
        assert_eq!(binary(23, &[255; 4]).unwrap(), Datum::Int(-1));
        assert_eq!(binary(26, &[255; 4]).unwrap(), Datum::Int(4_294_967_295));
        assert_eq!(
            binary(FLOAT4, &1.5f32.to_be_bytes()).unwrap(),
            Datum::Float(1.5)
        );
        assert_eq!(
            binary(1184, &0i64.to_be_bytes()).unwrap(),
            Datum::Timestamp(946_684_800_000)
        );
        assert_eq!(
            binary(DATE, &0i32.to_be_bytes()).unwrap(),
            Datum::Timestamp(946_684_800_000)
        );
        assert!(binary(1184, &i64::MAX.to_be_bytes()).is_err());
        assert!(binary(16, &[2]).is_err());
        assert_eq!(
            binary(20, &[1]).unwrap_err().state(),
            SqlState::InvalidBinaryRepresentation
        );
        let uuid = binary(UUID, &[0xab; 16]).unwrap();
        assert_eq!(
            uuid,
            Datum::Text {
                text: "ab".repeat(16),
                unknown: false
            }
        );
        assert_eq!(
            binary(NUMERIC, &[0; 8]).unwrap_err().state(),
            SqlState::FeatureNotSupported
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            oid in prop_oneof![Just(16u32), Just(20), Just(21), Just(23), Just(25), Just(26), Just(700), Just(701),
                Just(705), Just(1082), Just(1114), Just(1184), Just(1700), Just(2950), any::<u32>()],
            declared: bool, format in 0u16..3, value: Vec<u8>,
        ) {
            let _ = decode(1, oid, declared, format, Some(&value));
        }
    }
}
