//! Time on the wire and in storage: whole milliseconds since the Unix epoch, UTC.

/// The first ms that a TIMESTAMP can no longer hold (2262-04-11T23:47:16.854Z: 2^63 ns).
pub const TIMESTAMP_END_MS: i64 = 9_223_372_036_854;

/// Milliseconds of a UTC day.
pub const DAY_MS: i64 = 86_400_000;

/// The start of the bucket of width `interval_ms` that holds `ts`, counted from the epoch (floor, also
/// before the epoch). `interval_ms` ≥ 1.
pub fn bucket_start(ts: i64, interval_ms: i64) -> i64 {
    ts.div_euclid(interval_ms).saturating_mul(interval_ms)
}

/// `2026-01-01T10:00:00.250Z`, for messages and file names.
pub fn format_ms(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(t) => format!("{t:.3}"),
        Err(_) => ms.to_string(),
    }
}
