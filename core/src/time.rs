//! Time on the wire and in storage: whole milliseconds since the Unix epoch, UTC.

/// The first ms that a TIMESTAMP can no longer hold (2262-04-11T23:47:16.854Z: 2^63 ns).
pub const TIMESTAMP_END_MS: i64 = 9_223_372_036_854;

/// Milliseconds of a UTC day.
pub const DAY_MS: i64 = 86_400_000;

/// How wide buckets of time are. They are counted from the epoch: bucket 0 begins there, negative ones
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// So many ms, ≥ 1.
    Ms(i64),
    /// So many calendar months of UTC, ≥ 1.
    Months(i64),
}

impl Interval {
    /// The number of the bucket that holds `ts`.
    pub fn bucket(self, ts: i64) -> i64 {
        match self {
            Interval::Ms(ms) => ts.div_euclid(ms.max(1)),
            Interval::Months(n) => month_of(ts).div_euclid(n.max(1)),
        }
    }

    /// Where a bucket begins; saturates.
    pub fn start(self, bucket: i64) -> i64 {
        match self {
            Interval::Ms(ms) => bucket.saturating_mul(ms.max(1)),
            Interval::Months(n) => month_start(bucket.saturating_mul(n.max(1))),
        }
    }

    /// The start of the bucket that holds `ts`.
    pub fn floor(self, ts: i64) -> i64 {
        self.start(self.bucket(ts))
    }

    /// The start of the bucket behind the one that holds `ts`; none when that is past all times.
    pub fn next(self, ts: i64) -> Option<i64> {
        let next = self.start(self.bucket(ts).checked_add(1)?);
        (next > ts).then_some(next)
    }
}

/// Months from January 1970 to the one that holds `ts` (Howard Hinnant, "chrono-compatible low-level date
/// algorithms", civil_from_days).
fn month_of(ts: i64) -> i64 {
    let z = ts.div_euclid(DAY_MS) + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let from_march = (5 * doy + 2) / 153;
    (yoe + era * 400 - 1970) * 12 + from_march + 2
}

/// The first ms of the month so many after January 1970; saturates (days_from_civil of the same).
fn month_start(month: i64) -> i64 {
    // Past these years every ms of an i64 has gone by: nothing below overflows.
    let month = month.clamp(-12 * 300_000_000, 12 * 300_000_000);
    let from_march = month.saturating_sub(2);
    let (year, month) = (1970 + from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, yoe) = (year.div_euclid(400), year.rem_euclid(400));
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + (153 * month + 2) / 5;
    (era * 146_097 + doe - 719_468).saturating_mul(DAY_MS)
}

/// `2026-01-01T10:00:00.250Z`, for messages and file names.
pub fn format_ms(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(t) => format!("{t:.3}"),
        Err(_) => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> i64 {
        let t: jiff::Timestamp = text.parse().unwrap();
        t.as_millisecond()
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        for (months, ts, floor, next) in [
            (
                1,
                "2024-02-29T23:59:59.999Z",
                "2024-02-01T00:00:00Z",
                "2024-03-01T00:00:00Z",
            ),
            (
                1,
                "2023-12-31T00:00:00Z",
                "2023-12-01T00:00:00Z",
                "2024-01-01T00:00:00Z",
            ),
            (
                1,
                "1970-01-01T00:00:00Z",
                "1970-01-01T00:00:00Z",
                "1970-02-01T00:00:00Z",
            ),
            (
                1,
                "1969-12-31T23:59:59.999Z",
                "1969-12-01T00:00:00Z",
                "1970-01-01T00:00:00Z",
            ),
            (
                3,
                "2026-05-17T12:00:00Z",
                "2026-04-01T00:00:00Z",
                "2026-07-01T00:00:00Z",
            ),
            (
                12,
                "2026-05-17T12:00:00Z",
                "2026-01-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            (
                60,
                "2026-05-17T12:00:00Z",
                "2025-01-01T00:00:00Z",
                "2030-01-01T00:00:00Z",
            ),
        ] {
            let i = Interval::Months(months);
            assert_eq!(i.floor(at(ts)), at(floor), "{months} {ts}");
            assert_eq!(i.next(at(ts)), Some(at(next)), "{months} {ts}");
        }
    }

    proptest! {
        #[test]
        fn buckets_follow_each_other(ts in any::<i64>(), width in 1i64..1 << 40, months in 1i64..500) {
            for i in [Interval::Ms(width), Interval::Months(months)] {
                let b = i.bucket(ts);
                let (start, next) = (i.start(b), i.next(ts));
                // The first bucket may begin before all times.
                prop_assert!(start <= ts || start == i64::MIN);
                if start > i64::MIN {
                    prop_assert_eq!(i.bucket(start), b);
                    prop_assert_eq!(i.floor(ts), start);
                }
                if let Some(next) = next {
                    prop_assert!(next > ts);
                    prop_assert_eq!(i.bucket(next - 1), b);
                    prop_assert!(next == i64::MAX || i.bucket(next) == b + 1);
                }
            }
        }

        #[test]
        fn months_agree_with_jiff(ms in -62_135_596_800_000i64..253_402_300_799_000) {
            let date = jiff::Timestamp::from_millisecond(ms).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
            let month = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1;
            prop_assert_eq!(month_of(ms), month);
            let first = date.first_of_month().unwrap().start_of_day().unwrap();
            prop_assert_eq!(month_start(month), first.timestamp().as_millisecond());
        }
    }
}
