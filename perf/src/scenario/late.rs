//! The same rows twice: in order, and with a tenth of them up to a day late, interleaved with what is on time.
//! What that costs the load, the disk and the four questions.

use super::telemetry::{asked, numbers};
use super::{Run, must_count, send, settle};
use crate::data::{self, Data, Mode, Rng};
use crate::load::millis;
use crate::pg::Pg;
use crate::report::{Line, median};
use std::io::{Error, Result};
use std::time::Instant;

/// The day of the data, so many times over: each question has the same answer then.
const DAYS: usize = 3;
const DAY_S: i64 = 86_400;
const LATE_PART: f64 = 0.1;

/// What one load showed.
struct Seen {
    load_s: f64,
    /// Bytes that flushes and merges wrote for each byte that a flush wrote.
    amplification: f64,
    /// Of blocks that merges wrote, the part that was copied.
    copied: f64,
    segments: f64,
    /// Right after the load, and when no merge is due; ms.
    questions: [[f64; 4]; 2],
}

/// Measures both orders.
pub fn run(run: &mut Run) -> Result<()> {
    let data = Data::new(run.size.shape, Mode::Int);
    let mut rounds: [Vec<Seen>; 2] = Default::default();
    for _ in 0..run.size.rounds.min(3) {
        for (late, seen) in rounds.iter_mut().enumerate() {
            seen.push(load(run, &data, late == 1)?);
        }
    }
    let of =
        |late: usize, get: &dyn Fn(&Seen) -> f64| median(rounds[late].iter().map(get).collect());
    let rows = (data.shape.rows() * DAYS) as f64;
    let (ordered, late) = (of(0, &|s| s.load_s), of(1, &|s| s.load_s));
    let line = Line::told(
        "late",
        "load with a tenth up to 24 h late, against the same in order",
        format!(
            "{:.2} × ({:.0} against {:.0} rows/s)",
            late / ordered,
            rows / late,
            rows / ordered
        ),
        late / ordered,
    );
    run.report.add(line.at_most(1.3, "×"));
    let told = |late: usize| {
        format!(
            "{:.2} ({:.0} % of merged blocks copied, {:.0} segments)",
            of(late, &|s| s.amplification),
            of(late, &|s| s.copied) * 100.0,
            of(late, &|s| s.segments)
        )
    };
    run.report.add(Line::told(
        "late",
        "bytes written to segments per byte flushed, in order and late",
        format!("{} and {}", told(0), told(1)),
        of(1, &|s| s.amplification),
    ));
    for (place, when) in ["right after the load", "after merges"]
        .into_iter()
        .enumerate()
    {
        for (q, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let (ordered, late) = (
                of(0, &|s| s.questions[place][q]),
                of(1, &|s| s.questions[place][q]),
            );
            let line = Line::told(
                "late",
                format!("question {name} with late rows, against the same in order, {when}"),
                format!(
                    "{:.2} × ({late:.3} against {ordered:.3} ms)",
                    late / ordered
                ),
                late / ordered,
            );
            run.report.add(line.at_most(1.2, "×"));
        }
    }
    Ok(())
}

fn load(run: &Run, data: &Data, late: bool) -> Result<Seen> {
    let server = run.fresh(if late { "late" } else { "ordered" })?;
    let mut pg = Pg::connect(&server.pg)?;
    let lines = lines(data, late);
    let rows = data.shape.rows() * DAYS;
    let began = Instant::now();
    send(&server.ilp, &lines)?;
    must_count(&mut pg, "SELECT count(usage_user) FROM cpu", rows)?;
    let load_s = began.elapsed().as_secs_f64();
    drop(lines);
    must_count(&mut pg, "SELECT count(*) FROM cpu", rows)?;
    let at_once = questions(run, &mut pg, data)?;
    pg.query("CHECKPOINT")?;
    settle(&mut pg)?;
    let mut sum = |column: &str| {
        let sql = format!("SELECT coalesce(sum({column}), 0) FROM $sys.shards");
        pg.number(&sql)
    };
    let (flushed, merged) = (sum("flushed_bytes")?, sum("merge_written_bytes")?);
    let (copied, encoded) = (sum("blocks_copied")?, sum("blocks_encoded")?);
    let segments = sum("segments")?;
    let settled = questions(run, &mut pg, data)?;
    must_count(&mut pg, "SELECT count(*) FROM cpu", rows)?;
    run.done(server)?;
    Ok(Seen {
        load_s,
        amplification: (flushed + merged) / flushed.max(1.0),
        copied: copied / (copied + encoded).max(1.0),
        segments,
        questions: [at_once, settled],
    })
}

/// All lines of all days as they arrive.
fn lines(data: &Data, late: bool) -> Vec<u8> {
    let one_day = data.lines("cpu");
    // A line ends with its time in ns.
    let starts = std::iter::once(0).chain(memchr_ends(&one_day));
    let ends = memchr_ends(&one_day);
    let parts: Vec<(&[u8], i64)> = starts
        .zip(ends)
        .map(|(start, end)| {
            let line = &one_day[start..end];
            let at = line.iter().rposition(|&b| b == b' ').map_or(0, |p| p + 1);
            let time = std::str::from_utf8(&line[at..end - start - 1]).unwrap_or("0");
            (&line[..at], time.parse().unwrap_or(0))
        })
        .collect();
    let mut rng = Rng(0x1A7E);
    let mut arrivals: Vec<(i64, u32, u32)> = Vec::with_capacity(parts.len() * DAYS);
    for day in 0..DAYS {
        for (n, (_, ns)) in parts.iter().enumerate() {
            let mut at = ns / 1_000_000 + day as i64 * DAY_S * 1000;
            if late && rng.unit() < LATE_PART {
                at += (rng.unit() * DAY_S as f64 * 1e3) as i64;
            }
            arrivals.push((at, day as u32, n as u32));
        }
    }
    arrivals.sort_unstable();
    let mut out = Vec::with_capacity(one_day.len() * DAYS + 64);
    for (_, day, n) in arrivals {
        let (text, ns) = parts[n as usize];
        out.extend_from_slice(text);
        let ns = ns + i64::from(day) * DAY_S * 1_000_000_000;
        out.extend_from_slice(ns.to_string().as_bytes());
        out.push(b'\n');
    }
    out
}

/// Behind each line.
fn memchr_ends(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let ends = text.iter().enumerate().filter(|(_, b)| **b == b'\n');
    ends.map(|(at, _)| at + 1)
}

fn questions(run: &Run, pg: &mut Pg, data: &Data) -> Result<[f64; 4]> {
    let e = data.expected();
    let expected = [e.a, e.b, e.c, e.d];
    let mut seen = [0.0; 4];
    for (q, (_, _, skip, sql)) in asked("cpu", data.shape.asked_host())
        .into_iter()
        .enumerate()
    {
        let mut times = Vec::new();
        for round in 0..run.size.rounds.max(3) * 3 + 2 {
            let began = Instant::now();
            let answer = pg.query(&sql)?;
            if round >= 2 {
                times.push(millis(began.elapsed()));
            }
            let (count, sum) = numbers(&answer, skip);
            if count != expected[q].0 || !data::agree(sum, expected[q].1) {
                return Err(Error::other(format!(
                    "{sql}: {count} numbers of sum {sum}, not {:?}",
                    expected[q]
                )));
            }
        }
        seen[q] = median(times);
    }
    Ok(seen)
}
