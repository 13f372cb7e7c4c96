//! Times and durations as text: ISO 8601 / RFC 3339 as PostgreSQL takes it, and the units of
//! durations. Answers are Unix ms of any year from 0001 to 9999; whether a column can hold them is asked
//! where they are stored.

use strandline_core::error::{Error, SqlState};
use strandline_core::time::DAY_MS;

/// Why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTime {
    /// Not of the form.
    Syntax,
    /// Of the form, but there is no such day or hour.
    Range,
}

impl BadTime {
    /// As a client sees it.
    pub fn error(self, text: &str) -> Error {
        let shown: String = text.chars().take(60).collect();
        match self {
            BadTime::Syntax => Error::new(
                SqlState::InvalidDatetime,
                format!("invalid input syntax for a time: \"{shown}\""),
            )
            .hint("write Unix milliseconds, or ISO 8601 such as '2026-01-01T10:00:00Z'"),
            BadTime::Range => Error::new(
                SqlState::DatetimeOverflow,
                format!("date/time field value out of range: \"{shown}\""),
            ),
        }
    }
}

/// Days from the epoch to a day of the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Howard Hinnant, "chrono-compatible low-level date algorithms", days_from_civil.
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn eat(&mut self, c: u8) -> bool {
        let hit = self.0.first() == Some(&c);
        if hit {
            self.0 = &self.0[1..];
        }
        hit
    }
    fn spaces(&mut self) {
        while self.eat(b' ') {}
    }
    /// Exactly `n` digits.
    fn digits(&mut self, n: usize) -> Option<i64> {
        let d = self.0.get(..n)?;
        if !d.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = &self.0[n..];
        Some(d.iter().fold(0, |v, b| v * 10 + i64::from(b - b'0')))
    }
}

/// `2026-01-01[T| ]10:00[:00[.250]][Z|±hh[:mm]]`, no zone meaning UTC; digits below the ms are cut (floor).
pub fn parse_iso(text: &str) -> Result<i64, BadTime> {
    let mut s = Scan(text.trim().as_bytes());
    let mut number = |n: usize, after: Option<u8>| -> Result<i64, BadTime> {
        let v = s.digits(n).ok_or(BadTime::Syntax)?;
        if let Some(c) = after
            && !s.eat(c)
        {
            return Err(BadTime::Syntax);
        }
        Ok(v)
    };
    let (year, month, day) = (
        number(4, Some(b'-'))?,
        number(2, Some(b'-'))?,
        number(2, None)?,
    );
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) || year == 0 {
        return Err(BadTime::Range);
    }
    let mut ms = days(year, month, day) * DAY_MS;
    let had_t = s.eat(b'T') || s.eat(b't');
    if !had_t {
        s.spaces();
        if s.0.is_empty() {
            return Ok(ms);
        }
    }
    if s.0.first().is_some_and(u8::is_ascii_digit) {
        let hour = s.digits(2).ok_or(BadTime::Syntax)?;
        if !s.eat(b':') {
            return Err(BadTime::Syntax);
        }
        let minute = s.digits(2).ok_or(BadTime::Syntax)?;
        let mut second = 0;
        let mut milli = 0;
        if s.eat(b':') {
            second = s.digits(2).ok_or(BadTime::Syntax)?;
            if s.eat(b'.') {
                let n = s.0.iter().take_while(|b| b.is_ascii_digit()).count();
                if n == 0 {
                    return Err(BadTime::Syntax);
                }
                for (i, b) in s.0[..n].iter().take(3).enumerate() {
                    milli += i64::from(b - b'0') * [100, 10, 1][i];
                }
                s.0 = &s.0[n..];
            }
        }
        // PostgreSQL takes 24:00:00 and a second 60 too.
        let midnight = hour == 24 && minute == 0 && second == 0 && milli == 0;
        if (hour > 23 && !midnight) || minute > 59 || second > 60 {
            return Err(BadTime::Range);
        }
        ms += ((hour * 60 + minute) * 60 + second) * 1000 + milli;
        s.spaces();
    } else if had_t {
        return Err(BadTime::Syntax);
    }
    let rest = s.0;
    if rest.is_empty() || rest.eq_ignore_ascii_case(b"z") || rest.eq_ignore_ascii_case(b"utc") {
        return Ok(ms);
    }
    let sign = match rest[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return Err(BadTime::Syntax),
    };
    s.0 = &rest[1..];
    let hours = s.digits(2).ok_or(BadTime::Syntax)?;
    let colon = s.eat(b':');
    let minutes = match s.digits(2) {
        Some(m) => m,
        None if colon => return Err(BadTime::Syntax),
        None => 0,
    };
    if !s.0.is_empty() {
        return Err(BadTime::Syntax);
    }
    if hours > 15 || minutes > 59 {
        return Err(BadTime::Range);
    }
    Ok(ms - sign * (hours * 60 + minutes) * 60_000)
}

/// A quoted literal where a time stands: ISO 8601, or one of the words that PostgreSQL takes in quotes too.
pub fn parse_text(text: &str, now_ms: i64) -> Result<i64, BadTime> {
    let t = text.trim();
    if t.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return parse_iso(t);
    }
    match t.to_ascii_lowercase().as_str() {
        "now" => Ok(now_ms),
        "epoch" => Ok(0),
        "today" => Ok(day_start(now_ms, 0)),
        "yesterday" => Ok(day_start(now_ms, -1)),
        "tomorrow" => Ok(day_start(now_ms, 1)),
        "infinity" | "+infinity" | "-infinity" => Err(BadTime::Range),
        _ => Err(BadTime::Syntax),
    }
}

/// Midnight UTC of the day of `now_ms`, so many days on.
pub fn day_start(now_ms: i64, days: i8) -> i64 {
    now_ms
        .div_euclid(DAY_MS)
        .saturating_add(i64::from(days))
        .saturating_mul(DAY_MS)
}

/// A unit of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many ms.
    Fixed(i64),
    /// So many months: only SAMPLE BY knows them.
    Months(i64),
}

/// The unit that a word names, in any case.
pub fn unit(word: &str) -> Option<Unit> {
    if word.len() > 12 {
        return None;
    }
    Some(Unit::Fixed(match word.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => DAY_MS,
        "w" | "week" | "weeks" => 7 * DAY_MS,
        "mon" | "mons" | "month" | "months" => return Some(Unit::Months(1)),
        "y" | "year" | "years" => return Some(Unit::Months(12)),
        _ => return None,
    }))
}

/// A quoted duration: `'1 hour 30 min'`, `'90s'`, `'01:30:00'`, `'5'` (ms).
pub fn parse_duration(text: &str) -> Option<i64> {
    let t = text.trim();
    if let Some((h, rest)) = t.split_once(':') {
        let (m, s) = rest.split_once(':').unwrap_or((rest, "0"));
        let number = |x: &str| {
            (x.len() <= 6 && !x.is_empty() && x.bytes().all(|b| b.is_ascii_digit()))
                .then(|| x.parse::<i64>().ok())
                .flatten()
        };
        return Some(((number(h)? * 60 + number(m)?) * 60 + number(s)?) * 1000);
    }
    let mut total = 0i64;
    let mut rest = t;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        let value: i64 = rest.get(..n)?.parse().ok()?;
        rest = rest[n..].trim_start();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let scale = match unit(&rest[..letters]) {
            Some(Unit::Fixed(ms)) => ms,
            None if letters == 0 && rest.is_empty() => 1,
            _ => return None,
        };
        total = total.checked_add(value.checked_mul(scale)?)?;
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso() {
        let ok = |t: &str| parse_iso(t).unwrap();
        assert_eq!(ok("1970-01-01"), 0);
        assert_eq!(ok("2026-01-01T10:00:00Z"), 1_767_261_600_000);
        for same in [
            "2026-01-01 10:00",
            "2026-01-01 10:00:00+00",
            "2026-01-01T11:00:00+01:00",
            "2026-01-01T04:30:00-0530",
            " 2026-01-01T10:00:00 UTC ",
        ] {
            assert_eq!(ok(same), 1_767_261_600_000, "{same}");
        }
        assert_eq!(ok("2026-01-01T10:00:00.2509"), 1_767_261_600_250);
        assert_eq!(ok("2026-01-01T10:00:00.2"), 1_767_261_600_200);
        assert_eq!(ok("1969-12-31T23:59:59.9"), -100);
        assert_eq!(ok("2024-02-29T24:00:00"), ok("2024-03-01"));
        for bad in [
            "",
            "2026",
            "2026-1-1",
            "2026-01-01T",
            "2026-01-01T1:00",
            "2026-01-01 10:00 x",
            "2026-01-01T10:00:00+1",
            "x",
        ] {
            assert_eq!(parse_iso(bad), Err(BadTime::Syntax), "{bad}");
        }
        for bad in [
            "2026-13-01",
            "2026-02-29",
            "2026-01-01T25:00",
            "2026-01-01T10:60",
            "0000-01-01",
        ] {
            assert_eq!(parse_iso(bad), Err(BadTime::Range), "{bad}");
        }
    }

    #[test]
    fn days_agree_with_jiff() {
        for day in (-719_162..2_932_896).step_by(997) {
            let ms = day * DAY_MS;
            let text = strandline_core::time::format_ms(ms);
            assert_eq!(parse_iso(&text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("1 hour 30 min"), Some(5_400_000));
        assert_eq!(parse_duration("1h30m"), Some(5_400_000));
        assert_eq!(parse_duration("01:30:00"), Some(5_400_000));
        assert_eq!(parse_duration("250"), Some(250));
        assert_eq!(parse_duration("2 weeks"), Some(14 * DAY_MS));
        for bad in [
            "",
            "x",
            "1 month",
            "-1 s",
            "1 s x",
            "9999999999999999999 s",
            "::",
        ] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(parse_text("today", DAY_MS * 3 + 5), Ok(DAY_MS * 3));
        assert_eq!(parse_text("soon", 0), Err(BadTime::Syntax));
    }
}
