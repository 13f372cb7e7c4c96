//! What else the machine does while we measure: figures from a busy one are no figures.

use std::io::{Error, Result};
use std::time::Duration;

/// Above this share of all cores, other work disturbs what is measured.
pub const QUIET: f64 = 0.05;

/// Busy and all ticks of all cores since the start of the machine, from `/proc/stat`.
fn ticks() -> Result<(u64, u64)> {
    parse(&std::fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| Error::other("/proc/stat has no line for all cores"))
}

fn parse(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find(|l| l.starts_with("cpu "))?;
    let t: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .map_while(|t| t.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal. Stolen time is other work too.
    let idle = t.get(3)? + t.get(4)?;
    let all: u64 = t.iter().sum();
    Some((all - idle, all))
}

/// The share of all cores that is busy while we do nothing.
pub fn busy(for_how_long: Duration) -> Result<f64> {
    let before = ticks()?;
    std::thread::sleep(for_how_long);
    let after = ticks()?;
    Ok((after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_for_the_disk_are_not_busy() {
        let stat = "cpu  10 1 5 100 20 1 2 3 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse(stat), Some((22, 142)));
        assert_eq!(parse("intr 1 2 3"), None);
    }
}
