//! Where a bucket of time begins.

use strandline_core::time::Interval;

const DAY_MS: i64 = 86_400_000;

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// The first day (from 1 January 1970) of a month (from January 1970), counted month by month.
fn first_day(month: i64) -> i64 {
    let days = |m: i64| days_of_month(1970 + m.div_euclid(12), m.rem_euclid(12));
    match month {
        0.. => (0..month).map(days).sum(),
        _ => -(month..0).map(days).sum::<i64>(),
    }
}

/// The month (from January 1970) that holds a ts.
fn month_of(ts: i64) -> i64 {
    let day = ts.div_euclid(DAY_MS);
    let mut month = day.div_euclid(31);
    while first_day(month + 1) <= day {
        month += 1;
    }
    while first_day(month) > day {
        month -= 1;
    }
    month
}

/// The first ms of the bucket that holds `ts`. Buckets are counted from the epoch.
pub fn bucket_start(interval: Interval, ts: i64) -> i64 {
    match interval {
        Interval::Ms(ms) => ts - ts.rem_euclid(ms),
        Interval::Months(n) => {
            let month = month_of(ts);
            first_day(month - month.rem_euclid(n)) * DAY_MS
        }
    }
}

/// The first ms of the bucket behind the one that begins at `start`.
pub fn next_start(interval: Interval, start: i64) -> i64 {
    match interval {
        Interval::Ms(ms) => start + ms,
        Interval::Months(n) => first_day(month_of(start) + n) * DAY_MS,
    }
}
