//! The benchmark data: 100 hosts × 10 metrics, one row each 10 s for 24 h, a random walk clamped to 0–100, as
//! TSBS's "cpu-only" writes it; whole numbers or two decimals. Seeded: every run sends the same bytes. Beside
//! the rows stand the answers to the four questions, so that a fast wrong answer is seen.

use std::io::{BufWriter, Result, Write};
use std::path::Path;

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
const REGIONS: [&str; 9] = [
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
/// The first row's time, Unix s: midnight of [`DAY`].
pub const START_S: i64 = 1_767_225_600;
/// The one day that the data covers.
const DAY: &str = "2026-01-01";
const DAY_S: usize = 86_400;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Rng(pub u64);

impl Rng {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
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

impl Mode {
    /// As file and table names have it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Int => "int",
            Mode::Float => "float",
        }
    }
}

/// How much of it: always the whole day, with fewer hosts and rows for a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hosts.
    pub hosts: usize,
    /// Seconds between a host's rows; divides a minute.
    pub step_s: usize,
}

/// 864,000 rows.
pub const FULL: Shape = Shape {
    hosts: 100,
    step_s: 10,
};
/// 7,200 rows.
pub const SMALL: Shape = Shape {
    hosts: 5,
    step_s: 60,
};

impl Shape {
    /// Rows of each host.
    pub fn steps(self) -> usize {
        DAY_S / self.step_s
    }
    /// Rows in all.
    pub fn rows(self) -> usize {
        self.hosts * self.steps()
    }
    /// Values in all.
    pub fn values(self) -> usize {
        self.rows() * FIELDS.len()
    }
    /// The host that question (a) asks for.
    pub fn asked_host(self) -> usize {
        self.hosts * 42 / 100
    }
}

/// First ms of the data, and last.
pub fn range_ms() -> (i64, i64) {
    (START_S * 1000, START_S * 1000 + DAY_S as i64 * 1000 - 1)
}

/// First ms of question (a)'s hour, and last.
pub fn asked_hour_ms() -> (i64, i64) {
    let from = START_S * 1000 + 12 * 3_600_000;
    (from, from + 3_599_999)
}

/// How many numbers each question answers, and their sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// One host, one metric, max per minute over an hour.
    pub a: (usize, f64),
    /// All hosts, one metric, average per hour and host.
    pub b: (usize, f64),
    /// The last value of every metric of every host.
    pub c: (usize, f64),
    /// The average of one metric over all rows.
    pub d: (usize, f64),
    /// The same over the rows in which another metric is above [`ABOVE`].
    pub e: (usize, f64),
}

/// What `usage_system` must exceed in question (e).
pub const ABOVE: f64 = 50.0;

/// Whether two sums of the same numbers, added in another order, agree.
pub fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// The rows, as they are written.
pub struct Data {
    /// How many.
    pub shape: Shape,
    /// Rounded how.
    pub mode: Mode,
    /// In time order: all hosts at the first time, then at the next.
    rows: Vec<[f64; 10]>,
}

impl Data {
    /// Generates them.
    pub fn new(shape: Shape, mode: Mode) -> Data {
        assert_eq!(60 % shape.step_s, 0, "a step divides a minute");
        let mut rng = Rng(20_260_101);
        let mut walk: Vec<[f64; 10]> = (0..shape.hosts)
            .map(|_| std::array::from_fn(|_| rng.unit() * 100.0))
            .collect();
        let mut rows = Vec::with_capacity(shape.rows());
        for _ in 0..shape.steps() {
            for values in walk.iter_mut() {
                rows.push(values.map(|v| match mode {
                    Mode::Int => v.floor(),
                    Mode::Float => (v * 100.0).round() / 100.0,
                }));
                for v in values.iter_mut() {
                    *v = (*v + rng.normal()).clamp(0.0, 100.0);
                }
            }
        }
        Data { shape, mode, rows }
    }

    /// The rows of some hosts as lines into `table`.
    pub fn lines_of(&self, table: &str, wanted: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rows.len() * 260);
        for (step, hosts) in self.rows.chunks(self.shape.hosts).enumerate() {
            let ts = START_S as usize + self.shape.step_s * step;
            for (host, values) in hosts.iter().enumerate().filter(|(h, _)| wanted(*h)) {
                let (region, zone) = place(host);
                let _ = write!(
                    out,
                    "{table},hostname=host_{host},region={region},datacenter={region}{zone} "
                );
                for (i, (name, v)) in FIELDS.iter().zip(values).enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    let _ = write!(out, "{comma}{name}={v}");
                }
                let _ = writeln!(out, " {ts}000000000");
            }
        }
        out
    }

    /// All rows as lines into `table`.
    pub fn lines(&self, table: &str) -> Vec<u8> {
        self.lines_of(table, |_| true)
    }

    /// Writes `cpu.lp`, `cpu.csv` (a header; times as `2026-01-01 00:00:00`, which every reader of CSV takes
    /// for a time, so that it converts to Parquet without a hint) and `meta.json` into `dir`.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("cpu.lp"), self.lines("cpu"))?;
        let mut csv = BufWriter::new(std::fs::File::create(dir.join("cpu.csv"))?);
        writeln!(csv, "ts,hostname,region,datacenter,{}", FIELDS.join(","))?;
        for (step, hosts) in self.rows.chunks(self.shape.hosts).enumerate() {
            let s = self.shape.step_s * step;
            let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
            for (host, values) in hosts.iter().enumerate() {
                let (region, zone) = place(host);
                write!(
                    csv,
                    "{DAY} {h:02}:{m:02}:{s:02},host_{host},{region},{region}{zone}"
                )?;
                for v in values {
                    write!(csv, ",{v}")?;
                }
                writeln!(csv)?;
            }
        }
        csv.flush()?;
        let (from, to) = range_ms();
        let (hour_from, hour_to) = asked_hour_ms();
        let e = self.expected();
        let answer =
            |(numbers, sum): (usize, f64)| serde_json::json!({ "numbers": numbers, "sum": sum });
        let meta = serde_json::json!({
            "mode": self.mode.name(),
            "rows": self.shape.rows(),
            "values": self.shape.values(),
            "hosts": self.shape.hosts,
            "fields": FIELDS,
            "from_ms": from, "to_ms": to,
            "asked_host": format!("host_{}", self.shape.asked_host()),
            "hour_from_ms": hour_from, "hour_to_ms": hour_to,
            "expected": {
                "a": answer(e.a), "b": answer(e.b), "c": answer(e.c), "d": answer(e.d),
                "e": answer(e.e),
            },
            "above": ABOVE,
        });
        std::fs::write(dir.join("meta.json"), format!("{meta:#}\n"))
    }

    /// The answers to the four questions, by plain loops over the rows.
    pub fn expected(&self) -> Expected {
        let (hosts, step_s) = (self.shape.hosts, self.shape.step_s);
        let user = |step: usize, host: usize| self.rows[step * hosts + host][0];
        let per_minute = 60 / step_s;
        let noon = 12 * 3600 / step_s;
        let a = (0..60).map(|minute| {
            (0..per_minute)
                .map(|i| user(noon + minute * per_minute + i, self.shape.asked_host()))
                .fold(f64::NEG_INFINITY, f64::max)
        });
        let per_hour = 3600 / step_s;
        let b = (0..hosts * 24).map(|i| {
            let (host, hour) = (i / 24, i % 24);
            let sum: f64 = (0..per_hour).map(|s| user(hour * per_hour + s, host)).sum();
            sum / per_hour as f64
        });
        let c = self.rows[self.rows.len() - hosts..].iter().flatten();
        let d = self.rows.iter().map(|r| r[0]).sum::<f64>() / self.rows.len() as f64;
        let above: Vec<f64> = (self.rows.iter().filter(|r| r[1] > ABOVE).map(|r| r[0])).collect();
        let e = above.iter().sum::<f64>() / above.len().max(1) as f64;
        Expected {
            a: (60, a.sum()),
            b: (hosts * 24, b.sum()),
            c: (hosts * FIELDS.len(), c.sum()),
            d: (1, d),
            e: (1, e),
        }
    }

    /// The sum of each metric over all rows.
    pub fn sums(&self) -> [f64; 10] {
        std::array::from_fn(|i| self.rows.iter().map(|r| r[i]).sum())
    }
}

/// A host's region and zone.
fn place(host: usize) -> (&'static str, &'static str) {
    (REGIONS[host % REGIONS.len()], ["a", "b", "c"][host % 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_every_time() {
        let one = Data::new(SMALL, Mode::Int).lines("cpu");
        let two = Data::new(SMALL, Mode::Int).lines("cpu");
        assert!(one == two);
        assert_eq!(one.iter().filter(|&&b| b == b'\n').count(), SMALL.rows());
        assert!(
            one.starts_with(b"cpu,hostname=host_0,region=us-east-1,datacenter=us-east-1a usage_")
        );
        assert!(one.ends_with(b" 1767311940000000000\n"));
    }

    #[test]
    fn hosts_can_be_shared_out() {
        let data = Data::new(SMALL, Mode::Float);
        let halves = [0, 1].map(|half| data.lines_of("cpu", |h| h % 2 == half).len());
        assert_eq!(halves[0] + halves[1], data.lines("cpu").len());
        assert!(halves.iter().all(|&n| n > 0));
    }

    /// The answers again, from the text that is sent rather than from the rows.
    #[test]
    fn the_answers_are_those_of_the_csv() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = Data::new(SMALL, Mode::Float);
        data.write(dir.path()).expect("written");
        let csv = std::fs::read_to_string(dir.path().join("cpu.csv")).expect("cpu.csv");
        let rows: Vec<Vec<&str>> = csv
            .lines()
            .skip(1)
            .map(|l| l.split(',').collect())
            .collect();
        assert_eq!(rows.len(), SMALL.rows());
        let user = |r: &Vec<&str>| r[4].parse::<f64>().expect("a number");
        let a: f64 = rows
            .iter()
            .filter(|r| r[1] == "host_2" && r[0].starts_with("2026-01-01 12:"))
            .map(user)
            .sum();
        let d = rows.iter().map(user).sum::<f64>() / rows.len() as f64;
        let c: f64 = rows
            .iter()
            .filter(|r| r[0] == "2026-01-01 23:59:00")
            .flat_map(|r| &r[4..])
            .map(|v| v.parse::<f64>().expect("a number"))
            .sum();
        let e = data.expected();
        // One row a minute: the highest of each is the only one, and hours are of equal length.
        let above: Vec<f64> = rows
            .iter()
            .filter(|r| r[5].parse::<f64>().expect("a number") > ABOVE)
            .map(user)
            .collect();
        assert!(above.len() > 100 && above.len() < rows.len() - 100);
        assert!(agree(e.e.1, above.iter().sum::<f64>() / above.len() as f64));
        assert_eq!((e.a.0, e.b.0, e.c.0, e.d.0, e.e.0), (60, 120, 50, 1, 1));
        assert!(agree(e.a.1, a) && agree(e.c.1, c) && agree(e.d.1, d));
        assert!(agree(e.b.1, d * 120.0));
        assert!(agree(data.sums()[0], d * rows.len() as f64));
    }
}
