//! Field values that are numbers. Nearly all are short decimals, so those are read digit by digit where
//! they stand; everything else goes the slow way round.

use super::bad::{Checked, Reason, bad, excerpt};
use strandline_core::schema::Label;

/// The narrowest label that a value asks for. The order is the order of widening; text is apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// `t`, `true`, `f`, `false`.
    Bool,
    /// `42i`, `42u`, within ±2^53.
    Int,
    /// `4.2`, and integers outside ±2^53 that f64 holds exactly.
    Double,
    /// `"…"`.
    Text,
}

impl Needs {
    /// The label that a channel gets from it.
    pub fn label(self) -> Label {
        match self {
            Needs::Bool => Label::Bool,
            Needs::Int => Label::Int,
            Needs::Double => Label::Double,
            Needs::Text => Label::TEXT,
        }
    }
}

/// Whole numbers up to here are exact in f64.
pub(crate) const EXACT: f64 = 9_007_199_254_740_992.0;

/// 15 digits stay below 2^53, and 10^15 is exact: one division then rounds correctly.
const FAST_DIGITS: usize = 15;

const POWERS: [f64; FAST_DIGITS + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

#[inline]
fn ends_value(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b',' | b' ' | b'\n'))
}

#[inline]
fn digits(text: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0'))
        && digit < 10
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

/// Reads `[-]digits[.digits]` or `[-]digits` + `i` of at most 15 digits that a delimiter follows. Answers
/// the value, what it needs and where it ends; `None`: take the slow way.
#[inline]
pub(crate) fn fast_number(text: &[u8], start: usize) -> Option<(f64, Needs, usize)> {
    let negative = text.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let (whole, mut at) = digits(text, first, 0);
    let mut count = at - first;
    if count == 0 || count > FAST_DIGITS {
        return None;
    }
    let mut value = whole as f64;
    let mut needs = Needs::Double;
    match text.get(at) {
        Some(b'.') => {
            let (mantissa, end) = digits(text, at + 1, whole);
            let decimals = end - at - 1;
            count += decimals;
            if count > FAST_DIGITS {
                return None;
            }
            value = mantissa as f64 / POWERS[decimals];
            at = end;
        }
        Some(b'i') => {
            needs = Needs::Int;
            at += 1;
            if whole == 0 {
                // An integer has no negative zero.
                return ends_value(text.get(at)).then_some((0.0, needs, at));
            }
        }
        _ => {}
    }
    ends_value(text.get(at)).then_some((if negative { -value } else { value }, needs, at))
}

/// Reads any token that is not text.
pub(crate) fn slow_number(token: &[u8]) -> Checked<(f64, Needs)> {
    match token {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => return Ok((1.0, Needs::Bool)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => return Ok((0.0, Needs::Bool)),
        [] => return Err(bad(Reason::Syntax, "a value is missing")),
        _ => {}
    }
    let shown = || excerpt(token, 40);
    let text = std::str::from_utf8(token)
        .map_err(|_| bad(Reason::Syntax, format_args!("'{}' is no value", shown())))?;
    if let Some(whole) = text.strip_suffix('i') {
        if is_digits(whole.trim_start_matches(['-', '+'])) && signs(whole) <= 1 {
            let exact = whole
                .parse::<i64>()
                .ok()
                .filter(|v| i128::from(*v) == (*v as f64) as i128);
            return exact
                .map(|v| integer(v as f64))
                .ok_or_else(|| inexact(text));
        }
    } else if let Some(whole) = text.strip_suffix('u') {
        if is_digits(whole) {
            let exact = whole
                .parse::<u64>()
                .ok()
                .filter(|v| u128::from(*v) == (*v as f64) as u128);
            return exact
                .map(|v| integer(v as f64))
                .ok_or_else(|| inexact(text));
        }
    } else if is_decimal(text) {
        let value: f64 = fast_float2::parse(text.strip_prefix('+').unwrap_or(text))
            .map_err(|_| bad(Reason::Syntax, format_args!("'{}' is no number", shown())))?;
        if value.is_finite() {
            return Ok((value, Needs::Double));
        }
        return Err(bad(
            Reason::Value,
            format_args!("'{}' is beyond the largest DOUBLE", shown()),
        ));
    }
    let plain = text.trim_start_matches(['-', '+']);
    if ["nan", "inf", "infinity"]
        .iter()
        .any(|w| plain.eq_ignore_ascii_case(w))
    {
        return Err(bad(
            Reason::Value,
            format_args!("'{}' is not a finite number", shown()),
        ));
    }
    Err(bad(
        Reason::Syntax,
        format_args!(
            "'{}' is no value: expected a number, 42i, 42u, true, false or \"text\"",
            shown()
        ),
    ))
}

fn integer(value: f64) -> (f64, Needs) {
    let fits = value.abs() <= EXACT;
    (value, if fits { Needs::Int } else { Needs::Double })
}

#[cold]
fn inexact(text: &str) -> super::bad::BadLine {
    bad(
        Reason::Value,
        format_args!(
            "{} is not exact in a 64-bit float",
            excerpt(text.as_bytes(), 40)
        ),
    )
}

fn signs(text: &str) -> usize {
    text.bytes().filter(|b| matches!(b, b'-' | b'+')).count()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `[+-]digits[.digits][e[+-]digits]`, where one side of the point may be empty.
fn is_decimal(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((m, e)) => (m, Some(e.strip_prefix(['-', '+']).unwrap_or(e))),
        None => (body, None),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    all(whole)
        && all(decimals)
        && !(whole.is_empty() && decimals.is_empty())
        && exponent.is_none_or(is_digits)
}

/// Reads the whole number of a timestamp at `start`, and where it ends.
#[inline]
pub(crate) fn whole_number(text: &[u8], start: usize) -> Option<(i64, usize)> {
    let negative = text.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let (value, end) = digits(text, first, 0);
    // 19 digits stay within u64, so nothing has wrapped.
    if end == first || end - first > 19 {
        return None;
    }
    let signed = if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    };
    signed.map(|time| (time, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fast(token: &str) -> Option<(f64, Needs)> {
        let line = format!("{token},");
        fast_number(line.as_bytes(), 0).map(|(v, n, end)| {
            assert_eq!(end, token.len());
            (v, n)
        })
    }

    #[test]
    fn tokens() {
        use Needs::*;
        for (token, expect) in [
            ("42", Some((42.0, Double))),
            ("-4.25", Some((-4.25, Double))),
            ("+4.", Some((4.0, Double))),
            (".5", Some((0.5, Double))),
            ("1e3", Some((1000.0, Double))),
            ("-1.5E-2", Some((-0.015, Double))),
            ("42i", Some((42.0, Int))),
            ("-42i", Some((-42.0, Int))),
            ("+42i", Some((42.0, Int))),
            ("42u", Some((42.0, Int))),
            ("9007199254740992i", Some((9007199254740992.0, Int))),
            ("9007199254740994i", Some((9007199254740994.0, Double))),
            (
                "18446744073709549568u",
                Some((18446744073709549568.0, Double)),
            ),
            ("T", Some((1.0, Bool))),
            ("false", Some((0.0, Bool))),
            ("9007199254740993i", None),
            ("18446744073709551615u", None),
            ("99999999999999999999i", None),
            ("-1u", None),
            ("+-1i", None),
            ("1e400", None),
            ("NaN", None),
            ("-Inf", None),
            ("infinity", None),
            ("tRue", None),
            ("0x10", None),
            ("1_000", None),
            ("1e", None),
            (".", None),
            ("-", None),
            ("", None),
            ("i", None),
            ("4.2i", None),
        ] {
            assert_eq!(slow_number(token.as_bytes()).ok(), expect, "{token}");
        }
        assert_eq!(fast("-0i"), Some((0.0, Int)));
        assert!(fast("-0i").unwrap().0.is_sign_positive());
    }

    #[test]
    fn times() {
        assert_eq!(whole_number(b"-1 ", 0), Some((-1, 2)));
        assert_eq!(
            whole_number(b"9223372036854775807\n", 0),
            Some((i64::MAX, 19))
        );
        assert_eq!(
            whole_number(b"-9223372036854775808\n", 0),
            Some((i64::MIN, 20))
        );
        assert_eq!(whole_number(b"9223372036854775808\n", 0), None);
        assert_eq!(whole_number(b"99999999999999999999\n", 0), None);
        assert_eq!(whole_number(b"-\n", 0), None);
    }

    proptest! {
        #[test]
        fn the_fast_way_answers_what_the_slow_way_answers(token in "-?[0-9]{0,17}(\\.[0-9]{0,17})?i?") {
            if let Some(answer) = fast(&token) {
                let slow = slow_number(token.as_bytes()).unwrap();
                prop_assert_eq!((answer.0.to_bits(), answer.1), (slow.0.to_bits(), slow.1));
            }
        }
    }
}
