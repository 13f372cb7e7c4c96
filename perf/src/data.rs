//! The benchmark data: 100 hosts × 10 metrics, one row each 10 s for 24 h, a random walk clamped to 0–100, as
//! TSBS's "cpu-only" writes it; whole numbers or two decimals. Seeded: every run sends the same bytes.

use std::io::Write;

/// Hosts.
pub const HOSTS: usize = 100;
/// Rows of each host.
pub const STEPS: usize = 8_640;
/// Rows in all.
pub const ROWS: usize = HOSTS * STEPS;
/// Metrics of each row.
pub const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];
/// The first row's time, Unix s (2026-01-01).
pub const START_S: i64 = 1_767_225_600;
/// Seconds between rows.
pub const STEP_S: i64 = 10;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Rng(pub u64);

impl Rng {
    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Normal, mean 0, deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole numbers.
    Int,
    /// Two decimals.
    Float,
}

/// The lines of the whole set into `table`, in time order.
pub fn line_protocol(mode: Mode, table: &str) -> Vec<u8> {
    let mut rng = Rng(20_260_101);
    let mut walk: Vec<[f64; 10]> = (0..HOSTS)
        .map(|_| std::array::from_fn(|_| rng.unit() * 100.0))
        .collect();
    let regions = [
        "us-east-1",
        "us-west-1",
        "us-west-2",
        "eu-west-1",
        "eu-central-1",
        "ap-southeast-1",
        "ap-southeast-2",
        "ap-northeast-1",
        "sa-east-1",
    ];
    let mut out = Vec::with_capacity(ROWS * 260);
    for step in 0..STEPS {
        let ts = START_S + STEP_S * step as i64;
        for (host, values) in walk.iter_mut().enumerate() {
            let region = regions[host % 9];
            let zone = ["a", "b", "c"][host % 3];
            let _ = write!(
                out,
                "{table},hostname=host_{host},region={region},datacenter={region}{zone} "
            );
            for (i, (name, v)) in FIELDS.iter().zip(values.iter()).enumerate() {
                let comma = if i == 0 { "" } else { "," };
                let _ = match mode {
                    Mode::Int => write!(out, "{comma}{name}={}", v.floor()),
                    Mode::Float => write!(out, "{comma}{name}={}", (v * 100.0).round() / 100.0),
                };
            }
            let _ = writeln!(out, " {ts}000000000");
            for v in values.iter_mut() {
                *v = (*v + rng.normal()).clamp(0.0, 100.0);
            }
        }
    }
    out
}
