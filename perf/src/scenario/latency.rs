//! Durable inserts on a fixed schedule, alone and beside full scans and merges.

use super::{Run, drain, inserts, send};
use crate::data::{Data, Mode};
use crate::load::{Paced, paced, quantile_us};
use crate::pg::Pg;
use crate::report::{Line, median};
use std::io::{Error, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Inserts per second: few, so that the machine is busy with scans and merges, not with inserts.
const PER_SECOND: f64 = 200.0;

/// Line protocol for the merges comes at this pace: at full speed, its commits of many megabytes would stand
/// in front of the inserts in the log, and neither scan nor merge would be measured.
const TRICKLE_BYTES: usize = 256 << 10;
const TRICKLE_EVERY: Duration = Duration::from_millis(12);

/// Sends lines at some 20 MB/s.
fn trickle(address: &str, lines: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    for chunk in lines.chunks(TRICKLE_BYTES) {
        stream.write_all(chunk)?;
        std::thread::sleep(TRICKLE_EVERY);
    }
    drain(stream)
}

/// The p99 of the busy windows over the p50 of the idle ones.
pub fn run(run: &mut Run) -> Result<()> {
    let server = run.fresh("latency")?;
    let mut pg = Pg::connect(&server.pg)?;
    pg.query(inserts::CREATE)?;
    let (mut client, message) = inserts::prepared(&server.pg, 1)?;
    let mut window = |time| paced(&mut client[0], &message, PER_SECOND, time);
    window(run.size.loop_time / 4)?;
    let mut idle = Vec::new();
    for _ in 0..run.size.rounds {
        idle.push(window(run.size.loop_time)?);
    }
    let data = Data::new(run.size.shape, Mode::Float);
    let lines = data.lines("busy");
    send(&server.ilp, &lines)?;
    // An eighth of the day again and again: every CHECKPOINT makes a segment, and every fourth a merge.
    let part = &lines[..lines.len() / 8];
    let part = &part[..part.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1)];

    let (stop, scans) = (AtomicBool::new(false), AtomicU64::new(0));
    let scan = || -> Result<()> {
        let mut pg = Pg::connect(&server.pg)?;
        while !stop.load(Ordering::Relaxed) {
            pg.query(
                "SELECT entity, ts, usage_user, usage_idle FROM busy WHERE usage_user > 99.9",
            )?;
            scans.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let write = || -> Result<()> {
        let mut pg = Pg::connect(&server.pg)?;
        while !stop.load(Ordering::Relaxed) {
            trickle(&server.ilp, part)?;
            pg.query("CHECKPOINT")?;
        }
        Ok(())
    };
    let merges = |pg: &mut Pg| pg.number("SELECT sum(merges) FROM $sys.shards");
    let mut busy = Vec::new();
    let mut merged = 0.0;
    std::thread::scope(|scope| -> Result<()> {
        let others = [scope.spawn(scan), scope.spawn(write)];
        let mut measure = || -> Result<()> {
            // The measured windows begin with scans and merges under way.
            let began = Instant::now();
            while scans.load(Ordering::Relaxed) < 2 || merges(&mut pg)? == 0.0 {
                if began.elapsed() > Duration::from_secs(60)
                    || others.iter().any(|o| o.is_finished())
                {
                    return Err(Error::other("no scan or merge within 60 s"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let (scans_before, merges_before) = (scans.load(Ordering::Relaxed), merges(&mut pg)?);
            for _ in 0..run.size.rounds {
                busy.push(window(run.size.busy_time)?);
            }
            merged = merges(&mut pg)? - merges_before;
            scans.fetch_sub(scans_before, Ordering::Relaxed);
            Ok(())
        };
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        // What ended them early explains more than what it made us wait for.
        for other in others {
            other.join().map_err(|_| Error::other("a client died"))??;
        }
        measured
    })?;
    let scans = scans.into_inner();
    let of = |w: &[Paced], q| median(w.iter().map(|p| quantile_us(&p.answers, q)).collect());
    let late = median(
        busy.iter()
            .map(|p| quantile_us(&p.client_late, 0.99))
            .collect(),
    );
    let worst = busy
        .iter()
        .map(|p| quantile_us(&p.answers, 1.0))
        .fold(0.0, f64::max);
    let (p50, p99) = (of(&idle, 0.5), of(&busy, 0.99));
    let ratio = p99 / p50;
    let line = Line::told(
        "latency",
        format!("durable INSERT beside a full scan and merges, open loop at {PER_SECOND}/s: p99"),
        format!(
            "{p99:.0} µs = {ratio:.1} × (p50 {:.0}, worst {worst:.0} µs; {scans} scans, {merged} merges; client late p99 {late:.0} µs)",
            of(&busy, 0.5)
        ),
        ratio,
    );
    run.report.add(
        line.at_most(10.0, "× its idle p50")
            .yardstick(format!("idle p50 {p50:.0}, p99 {:.0} µs", of(&idle, 0.99))),
    );
    run.done(server)
}
