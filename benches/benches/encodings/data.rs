//! What is encoded: blocks as a store cuts them, from fixed seeds, and the weather of the demo.

use flate2::read::GzDecoder;
use std::f64::consts::TAU;
use std::io::Read;

/// Rows of a full block.
pub const ROWS: usize = 4096;

/// Blocks of one kind of column.
pub enum Blocks {
    /// Channels.
    Numbers(Vec<Vec<f64>>),
    /// Times and counts that are whole numbers from the start.
    Whole(Vec<Vec<i64>>),
    /// Text.
    Text(Vec<Vec<String>>),
}

/// A kind of column with a name.
pub struct Set {
    pub name: &'static str,
    pub blocks: Blocks,
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same data in every run.
pub struct Seeded(u64);

impl Seeded {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (TAU * v).cos()
    }
    fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}

fn decimals(v: f64, power: f64) -> f64 {
    (v * power).round() / power
}

/// `blocks` blocks of what `next` gives, in one go: a long series of one entity that was cut.
fn numbers(blocks: usize, mut next: impl FnMut(usize) -> f64) -> Blocks {
    let block = |b| (0..ROWS).map(|i| next(b * ROWS + i)).collect();
    Blocks::Numbers((0..blocks).map(block).collect())
}

fn whole(blocks: usize, mut next: impl FnMut(usize) -> i64) -> Blocks {
    let block = |b| (0..ROWS).map(|i| next(b * ROWS + i)).collect();
    Blocks::Whole((0..blocks).map(block).collect())
}

fn text(blocks: usize, mut next: impl FnMut(usize) -> String) -> Blocks {
    let block = |b| (0..ROWS).map(|i| next(b * ROWS + i)).collect();
    Blocks::Text((0..blocks).map(block).collect())
}

/// A walk within 0–100 of normal steps, as TSBS's "cpu-only" has it.
fn walk(seed: u64) -> impl FnMut(usize) -> f64 {
    let mut random = Seeded(seed);
    let mut value = random.unit() * 100.0;
    move |_| {
        value = (value + random.normal()).clamp(0.0, 100.0);
        value
    }
}

/// All of them, `blocks` full blocks each (the weather as much as there is, at most that).
pub fn sets(blocks: usize) -> Vec<Set> {
    let mut sets = Vec::new();
    let mut add = |name, blocks| sets.push(Set { name, blocks });
    let mut w = walk(1);
    add("whole numbers", numbers(blocks, |i| w(i).floor()));
    let mut w = walk(2);
    add("two decimals", numbers(blocks, |i| decimals(w(i), 100.0)));
    let (mut r, mut load) = (Seeded(3), walk(3));
    let mut count = 0u64;
    add(
        "counter",
        numbers(blocks, |i| {
            // Requests in a step: as many as the load of the hour gives, sometimes none.
            let rate = 40.0 * load(i);
            count += (rate + rate.sqrt() * r.normal()).max(0.0) as u64;
            count as f64
        }),
    );
    let mut r = Seeded(4);
    let mut count = 7_000_000_000u64;
    add(
        "counter of bytes",
        numbers(blocks, |_| {
            // From a few hundred bytes to some MB in a step.
            count += (8.0 + 2.2 * r.normal()).exp() as u64;
            count as f64
        }),
    );
    let mut r = Seeded(5);
    let mut level = 0.0;
    add(
        "drifting floats",
        numbers(blocks, |i| {
            level += 1e-4 * r.normal();
            21.0 + level + 3.0 * (TAU * i as f64 / 8640.0).sin()
        }),
    );
    let mut r = Seeded(6);
    add(
        "noisy floats",
        numbers(blocks, |_| 230.0 + 2.5 * r.normal()),
    );
    let mut r = Seeded(7);
    add(
        "noisy singles",
        numbers(blocks, |i| {
            f64::from((50.0 + (TAU * i as f64 / 600.0).sin() + 0.01 * r.normal()) as f32)
        }),
    );
    // A vehicle: its heading changes slowly, and its receiver gives 7 decimals with some noise.
    let mut r = Seeded(8);
    let (mut heading, mut latitude) = (0.0f64, 48.137_154);
    add(
        "GPS latitude",
        numbers(blocks, |i| {
            heading += 0.05 * r.normal();
            let stands = i % 1000 > 800;
            let speed = if stands { 0.0 } else { 1.2e-4 };
            latitude += speed * heading.cos() + 1e-6 * r.normal();
            decimals(latitude, 1e7)
        }),
    );
    let mut r = Seeded(9);
    let mut state = 0.0;
    add(
        "state as number",
        numbers(blocks, |_| {
            if r.below(60) == 0 {
                state = r.below(5) as f64;
            }
            state
        }),
    );
    let mut r = Seeded(10);
    add(
        "few odd values",
        numbers(blocks, |_| {
            // As a sensor's steps in another unit: knots as miles per hour.
            ((r.normal() * 3.0 + 9.0).abs().floor()) * 1.150_779_448
        }),
    );
    add(
        "times, constant step",
        whole(blocks, |i| 1_767_225_600_000 + 10_000 * i as i64),
    );
    let mut r = Seeded(11);
    add(
        "times, jitter of ms",
        whole(blocks, |i| {
            1_767_225_600_000 + 10_000 * i as i64 + (4.0 * r.normal()) as i64
        }),
    );
    let mut r = Seeded(12);
    let mut at = 1_767_225_600_000;
    add(
        "times, events",
        whole(blocks, |_| {
            at += (-5_000.0 * (1.0 - r.unit()).ln()) as i64;
            at
        }),
    );
    let mut r = Seeded(13);
    let mut state = 0;
    const STATES: [&str; 5] = ["idle", "charging", "driving", "fault", "offline"];
    add(
        "states",
        text(blocks, |_| {
            if r.below(60) == 0 {
                state = r.below(5) as usize;
            }
            STATES[state].into()
        }),
    );
    let mut r = Seeded(14);
    add(
        "states, by turns",
        text(blocks, |_| {
            STATES[(r.unit() * r.unit() * 5.0) as usize].into()
        }),
    );
    let mut r = Seeded(15);
    const WORDS: [&str; 24] = [
        "battery",
        "temperature",
        "above",
        "limit",
        "cell",
        "charger",
        "connected",
        "lost",
        "signal",
        "door",
        "open",
        "closed",
        "sensor",
        "restart",
        "after",
        "timeout",
        "low",
        "pressure",
        "left",
        "front",
        "wheel",
        "error",
        "retry",
        "update",
    ];
    add(
        "free text",
        text(blocks, |i| {
            let words = 3 + r.below(9);
            let mut line = format!("[{}] ", i * 7 % 9973);
            for _ in 0..words {
                line += WORDS[(r.unit() * r.unit() * 24.0) as usize];
                line += if r.below(7) == 0 { ", " } else { " " };
            }
            line + &format!("{:.1} V", 11.0 + 2.0 * r.unit())
        }),
    );
    weather(blocks, &mut sets);
    sets
}

/// The columns of the demo's weather, each airport's hours in order.
fn weather(blocks: usize, sets: &mut Vec<Set>) {
    let packed = include_bytes!("../../../demo/weather.csv.gz");
    let mut csv = String::new();
    GzDecoder::new(&packed[..])
        .read_to_string(&mut csv)
        .expect("the demo's weather is sound");
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    const COLUMNS: [(usize, &str); 7] = [
        (2, "weather: temp"),
        (4, "weather: humid"),
        (5, "weather: wind_dir"),
        (6, "weather: wind_speed"),
        (8, "weather: precip"),
        (9, "weather: pressure"),
        (10, "weather: visib"),
    ];
    for (at, name) in COLUMNS {
        let cells = rows[1..].iter().filter_map(|r| r[at].parse().ok());
        let cells: Vec<f64> = cells.collect();
        let cut = cells.chunks_exact(ROWS).take(blocks);
        sets.push(Set {
            name,
            blocks: Blocks::Numbers(cut.map(<[f64]>::to_vec).collect()),
        });
    }
}
