//! Years of data: 1,000 devices with ten channels each minute for a year are 5.3 billion values. `--scale` takes a
//! share of the devices, never of the year. Is the load as fast at its end as at its beginning, and is a month of one
//! device found at once?

use super::{Run, drain, must_count, settle_within};
use crate::data::{START_S, agree};
use crate::load::millis;
use crate::pg::Pg;
use crate::progress::Progress;
use crate::report::{Line, median};
use crate::scenario::telemetry::numbers;
use std::io::{Error, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Devices of the whole.
pub const DEVICES: usize = 1_000;
const CHANNELS: usize = 10;
const STEP_S: usize = 60;
/// Parts of the load whose rates are compared.
const PARTS: usize = 10;
/// The least that the slowest part may have of the mean.
const STEADY: f64 = 0.75;
/// A month, in the middle of what there is.
const MONTH_DAYS: usize = 30;

/// Tenths of a channel at a step: a daily wave of its own height, and noise that a hash makes, so that any part can
/// be worked out again.
fn tenths(device: usize, channel: usize, step: usize) -> usize {
    let minute = (step + 97 * device + 61 * channel) % 1440;
    let wave = 300 * minute.min(1440 - minute) / 720;
    let mut h = (device as u64) << 40 ^ (channel as u64) << 32 ^ step as u64;
    h = (h ^ h >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h = (h ^ h >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    100 + 20 * channel + wave + (h >> 40) as usize % 40
}

/// Loads it, tenth by tenth; then asks for a month.
pub fn run(run: &mut Run) -> Result<()> {
    let (devices, days) = (run.size.year_devices.max(1), run.size.year_days);
    let steps = days * 86_400 / STEP_S;
    let rows = steps * devices;
    let server = run.fresh("year")?;
    let mut pg = Pg::connect(&server.pg)?;
    let texts: Vec<String> = (0..1_000)
        .map(|t| format!("{}.{}", t / 10, t % 10))
        .collect();
    let heads: Vec<String> = (0..devices)
        .map(|d| format!("year,hostname=device-{d:04} "))
        .collect();
    let mut progress = Progress::new(&format!("{devices} devices, {days} days"), steps as u64);
    let mut stream = TcpStream::connect(&server.ilp)?;
    let mut lines = Vec::with_capacity(2 << 20);
    let (began, mut part_began) = (Instant::now(), Instant::now());
    let (mut rates, mut part_from) = (Vec::new(), 0);
    for step in 0..steps {
        let time = format!(" {}000000000\n", START_S as usize + step * STEP_S);
        for (device, head) in heads.iter().enumerate() {
            lines.extend_from_slice(head.as_bytes());
            for channel in 0..CHANNELS {
                let name = if channel == 0 {
                    b"c0=".as_slice()
                } else {
                    b",c"
                };
                lines.extend_from_slice(name);
                if channel > 0 {
                    lines.extend_from_slice(&[b'0' + channel as u8, b'=']);
                }
                lines.extend_from_slice(texts[tenths(device, channel, step)].as_bytes());
            }
            lines.extend_from_slice(time.as_bytes());
            if lines.len() > 1 << 20 {
                // It blocks while the server does not read: this is the rate at which it takes them.
                stream.write_all(&lines)?;
                lines.clear();
            }
        }
        progress.at(step as u64);
        if step + 1 >= (rates.len() + 1) * steps / PARTS && rates.len() + 1 < PARTS {
            let part = (step + 1 - part_from) * devices;
            rates.push(part as f64 / part_began.elapsed().as_secs_f64());
            (part_from, part_began) = (step + 1, Instant::now());
        }
    }
    stream.write_all(&lines)?;
    drain(stream)?;
    must_count(&mut pg, "SELECT count(c0) FROM year", rows)?;
    rates.push(((steps - part_from) * devices) as f64 / part_began.elapsed().as_secs_f64());
    let rate = rows as f64 / began.elapsed().as_secs_f64();
    let what = format!(
        "{days} days of {devices} devices ({} of {DEVICES}), one row a minute, {} values",
        percent(devices),
        rows * CHANNELS
    );
    let each: Vec<String> = rates.iter().map(|r| format!("{:.0}", r / 1e3)).collect();
    let slowest = rates.iter().copied().fold(f64::MAX, f64::min) / rate;
    let line = Line::told(
        "year",
        format!("{what}: slowest tenth of the load over the mean"),
        format!(
            "{slowest:.2} ({rate:.0} rows/s; tenths, 1,000 rows/s: {})",
            each.join(" ")
        ),
        slowest,
    );
    run.report
        .add(line.target(format!("≥ {STEADY}"), slowest >= STEADY));
    pg.query("CHECKPOINT")?;
    // Merges may take as long as the load did, and some.
    settle_within(&mut pg, began.elapsed() + Duration::from_secs(120))?;
    let bytes = pg.number("SELECT sum(bytes) FROM $sys.segments WHERE table_name = 'year'")?;
    let per_value = bytes / (rows * CHANNELS) as f64;
    run.report.add(Line::told(
        "year",
        "the same: bytes per value, one decimal",
        format!("{per_value:.3}"),
        per_value,
    ));
    month(run, &mut pg, devices, days)?;
    run.done(server)
}

fn percent(devices: usize) -> String {
    format!("{} %", devices as f64 * 100.0 / DEVICES as f64)
}

/// Averages by the hour of a month of one device after another, so that no cache has the answer.
fn month(run: &mut Run, pg: &mut Pg, devices: usize, days: usize) -> Result<()> {
    let days_asked = MONTH_DAYS.min(days);
    let first = (days - days_asked) / 2 * 86_400;
    let (from, hours) = (START_S as usize + first, days_asked * 24);
    let mut times = Vec::new();
    let mut cold = None;
    for round in 0..(run.size.rounds * 4).max(8) {
        let (device, channel) = (round * 7 % devices, round % CHANNELS);
        let sql = format!(
            "SELECT ts, avg(c{channel}) FROM year WHERE entity = 'device-{device:04}' AND ts BETWEEN {}000 AND {}999 SAMPLE BY 1h",
            from,
            from + hours * 3600 - 1
        );
        let began = Instant::now();
        let answer = pg.query(&sql)?;
        let ms = millis(began.elapsed());
        cold.get_or_insert(ms);
        times.push(ms);
        let (count, sum) = numbers(&answer, 1);
        let per_hour = 3600 / STEP_S;
        let steps = first / STEP_S..first / STEP_S + hours * per_hour;
        let expected: usize = steps.map(|s| tenths(device, channel, s)).sum();
        let expected = expected as f64 / 10.0 / per_hour as f64;
        if count != hours || !agree(sum, expected) {
            return Err(Error::other(format!(
                "{sql}: {count} numbers of sum {sum}, not {hours} of sum {expected}"
            )));
        }
    }
    let ms = median(times.clone());
    let worst = times.iter().copied().fold(0.0, f64::max);
    let line = Line::told(
        "year",
        format!("the same: SAMPLE BY 1 h of {days_asked} days of one device, another each time"),
        format!(
            "{ms:.3} ms (the first {:.3} ms, worst {worst:.3} ms)",
            cold.unwrap_or(ms)
        ),
        ms,
    );
    run.report.add(line.at_most(5.0, "ms"));
    Ok(())
}
