//! The unit of a line's timestamp. Over TCP it is nanoseconds; over HTTP the request names it.

use strandline_core::time::TIMESTAMP_END_MS;

/// What one step of a timestamp is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Precision {
    /// As `/write` of InfluxDB 1 names it: `n` or `ns`, `u` or `us`, `ms`, `s`, `m`, `h`.
    pub fn of_v1(name: &str) -> Option<Precision> {
        match name {
            "n" => Some(Precision::Nanoseconds),
            "u" | "µ" | "µs" => Some(Precision::Microseconds),
            "m" => Some(Precision::Minutes),
            "h" => Some(Precision::Hours),
            _ => Precision::of_v2(name),
        }
    }

    /// As `/api/v2/write` of InfluxDB 2 names it: `ns`, `us`, `ms`, `s`.
    pub fn of_v2(name: &str) -> Option<Precision> {
        match name {
            "ns" => Some(Precision::Nanoseconds),
            "us" => Some(Precision::Microseconds),
            "ms" => Some(Precision::Milliseconds),
            "s" => Some(Precision::Seconds),
            _ => None,
        }
    }

    /// The unit in messages.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Nanoseconds => "nanoseconds",
            Precision::Microseconds => "microseconds",
            Precision::Milliseconds => "milliseconds",
            Precision::Seconds => "seconds",
            Precision::Minutes => "minutes",
            Precision::Hours => "hours",
        }
    }

    /// Unix ms, floored; `None` before 1970 and from [`TIMESTAMP_END_MS`] on: the same axis as
    /// `$timestamp`, with its bounds.
    #[inline]
    pub(crate) fn to_ms(self, time: i64) -> Option<i64> {
        let ms = match self {
            Precision::Nanoseconds => time.div_euclid(1_000_000),
            Precision::Microseconds => time.div_euclid(1_000),
            Precision::Milliseconds => time,
            Precision::Seconds => time.checked_mul(1_000)?,
            Precision::Minutes => time.checked_mul(60_000)?,
            Precision::Hours => time.checked_mul(3_600_000)?,
        };
        (0..TIMESTAMP_END_MS).contains(&ms).then_some(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_floor_to_milliseconds_within_the_axis() {
        use Precision::*;
        for (unit, time, ms) in [
            (Nanoseconds, 1_999_999, Some(1)),
            (Nanoseconds, -1, None),
            (Microseconds, 1_999, Some(1)),
            (Milliseconds, 7, Some(7)),
            (Milliseconds, TIMESTAMP_END_MS, None),
            (
                Milliseconds,
                TIMESTAMP_END_MS - 1,
                Some(TIMESTAMP_END_MS - 1),
            ),
            (Seconds, 1_767_225_600, Some(1_767_225_600_000)),
            (Seconds, i64::MAX, None),
            (Minutes, 1, Some(60_000)),
            (Hours, 1, Some(3_600_000)),
            (Hours, i64::MIN, None),
        ] {
            assert_eq!(unit.to_ms(time), ms, "{time} {}", unit.name());
        }
        let v1 = ["n", "ns", "u", "us", "ms", "s", "m", "h"];
        assert!(v1.iter().all(|p| Precision::of_v1(p).is_some()));
        assert_eq!(
            v1.iter().filter(|p| Precision::of_v2(p).is_some()).count(),
            4
        );
        assert_eq!(Precision::of_v1("d"), None);
        assert_eq!(Precision::of_v1(""), None);
    }
}
