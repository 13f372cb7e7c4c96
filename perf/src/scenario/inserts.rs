//! Single-row durable inserts.

use super::Run;
use crate::floor::{self, Floor};
use crate::load::{back_to_back, paced, quantile_us};
use crate::pg::{Pg, execute_message};
use crate::report::{Line, median};
use std::io::Result;
use std::time::Duration;

/// The table.
pub const CREATE: &str =
    "CREATE ROWS TABLE IF NOT EXISTS perf_rows (name TEXT, model TEXT, active BOOL, n INT)";
/// The statement, prepared once per connection.
pub const INSERT: &str = "INSERT INTO perf_rows (name, model, active, n) VALUES ($1, $2, true, $3)";
const MANY: usize = 64;

/// Connections on which the statement is prepared, and the message that executes it.
pub fn prepared(address: &str, connections: usize) -> Result<(Vec<Pg>, Vec<u8>)> {
    let connect = |_| {
        let mut pg = Pg::connect(address)?;
        pg.prepare("i", INSERT)?;
        Ok(pg)
    };
    let message = execute_message("i", &["vehicle", "S8", "17"]);
    Ok((
        (0..connections).map(connect).collect::<Result<_>>()?,
        message,
    ))
}

/// One connection against the floor, on a schedule and back to back; then 64.
pub fn run(run: &mut Run) -> Result<()> {
    let server = run.fresh("insert")?;
    Pg::connect(&server.pg)?.query(CREATE)?;
    let (mut one, message) = prepared(&server.pg, 1)?;
    let (mut many, _) = prepared(&server.pg, MANY)?;
    let (time, warm) = (run.size.loop_time, Duration::from_millis(200));
    let mut rounds = Vec::new();
    // The floor moves with the neighbours of the machine: each round has its own, right before it.
    for _ in 0..run.size.rounds {
        let floor = floor::measure(&run.dir, run.size.floor_rounds)?;
        let (h, rate) = back_to_back(&mut one, &message, warm, time)?;
        let paced = paced(&mut one[0], &message, rate / 2.0, time)?;
        let bare_many = floor::group_commits(&run.dir, MANY, &message, warm, time)?;
        let (_, rate_many) = back_to_back(&mut many, &message, warm, time)?;
        rounds.push(Round {
            floor,
            p50_us: quantile_us(&h, 0.5),
            rate,
            paced_us: [0.5, 0.99, 0.999].map(|q| quantile_us(&paced.answers, q)),
            client_late_us: quantile_us(&paced.client_late, 0.99),
            rate_many,
            bare_many,
        });
    }
    let of = |f: fn(&Round) -> f64| median(rounds.iter().map(f).collect());
    let (write, trip) = (of(|r| r.floor.write_us), of(|r| r.floor.round_trip_us));
    let ratio = of(|r| r.p50_us / r.floor.sum_us());
    let (rate, rate_many) = (of(|r| r.rate), of(|r| r.rate_many));
    let line = Line::told(
        "insert",
        "durable single-row INSERT, 1 connection, back to back: p50",
        format!(
            "{:.0} µs = {ratio:.2} × floor; {rate:.0}/s",
            of(|r| r.p50_us)
        ),
        ratio,
    );
    run.report.add(
        // Nothing durable is faster than the floor: other work on the machine held the plain program up.
        line.at_most(1.5, "× floor")
            .void_if(ratio < 0.9)
            .yardstick(format!("floor {write:.0} + {trip:.0} µs")),
    );
    let paced_ratio = of(|r| r.paced_us[0] / r.floor.sum_us());
    let line = Line::told(
        "insert",
        "the same, open loop at half that rate",
        format!(
            "p50 {:.0} µs = {paced_ratio:.2} × floor; p99 {:.0}, p99.9 {:.0} µs (client late p99 {:.0} µs)",
            of(|r| r.paced_us[0]),
            of(|r| r.paced_us[1]),
            of(|r| r.paced_us[2]),
            of(|r| r.client_late_us),
        ),
        paced_ratio,
    );
    run.report
        .add(line.yardstick(format!("floor {write:.0} + {trip:.0} µs")));
    let times = of(|r| r.rate_many / r.rate);
    let bare = of(|r| r.bare_many);
    let line = Line::told(
        "insert",
        "the same, 64 connections, back to back",
        format!(
            "{rate_many:.0}/s = {times:.1} ×, and {:.2} × a bare server",
            of(|r| r.rate_many / r.bare_many)
        ),
        times,
    );
    run.report.add(
        line.target("≥ 15 × the rate of 1", times >= 15.0)
            .yardstick(format!(
                "1 connection: {rate:.0}/s; bare server: {bare:.0}/s = {:.1} ×",
                bare / rate
            )),
    );
    run.done(server)
}

struct Round {
    floor: Floor,
    p50_us: f64,
    rate: f64,
    paced_us: [f64; 3],
    client_late_us: f64,
    rate_many: f64,
    /// Of a server that does nothing but commit and answer.
    bare_many: f64,
}
