//! The questions of the demo.

use super::query;
use super::table::Table;
use std::time::Instant;
use strandline_core::error::{Error, Result};
use tokio_postgres::Client;

/// Rows of an answer that are printed.
const SHOWN: usize = 12;

/// Asks one question and prints it, its answer and the time.
async fn question(client: &Client, what: &str, sql: &str) -> Result<Table> {
    // A client has no other clock.
    #[allow(clippy::disallowed_methods)]
    let began = Instant::now();
    let answer = query(client, sql).await?;
    let took = began.elapsed();
    println!("\n-- {what}\n{sql};");
    println!("{}", answer.show(SHOWN));
    println!("   {:.2} ms", took.as_secs_f64() * 1000.0);
    Ok(answer)
}

/// All of them.
pub async fn ask(client: &Client) -> Result<()> {
    question(
        client,
        "What was each station's last state? One row per entity, from the tails in memory, however long the history.",
        "SELECT * FROM weather LATEST ON ts PARTITION BY entity",
    )
    .await?;
    question(
        client,
        "The storm of 31 January 2013 at JFK: each strong gust, with the pressure held from its last reading (stale after 3 h).",
        "SELECT $timestamp, wind_gust, pressure FROM weather\n  \
         WHERE entity = 'JFK' AND ts BETWEEN '2013-01-30T22:00:00Z' AND '2013-01-31T16:00:00Z' AND wind_gust > 45",
    )
    .await?;
    question(
        client,
        "The same night as it was stored: RAW fills nothing.",
        "SELECT $timestamp, wind_gust, pressure FROM weather RAW\n  \
         WHERE entity = 'JFK' AND ts BETWEEN '2013-01-30T22:00:00Z' AND '2013-01-31T16:00:00Z' AND wind_gust > 45",
    )
    .await?;
    question(
        client,
        "A week of temperatures, a day per row.",
        "SELECT ts, min(temp), avg(temp), max(temp), count(temp) FROM weather\n  \
         WHERE entity = 'LGA' AND ts BETWEEN '2013-07-14' AND '2013-07-20T23:59:59Z' SAMPLE BY 1d",
    )
    .await?;

    let found = question(
        client,
        "The registry: a plane by its tail number. Its xid came from the server, in the order of the INSERTs.",
        "SELECT xid, x_rev, tailnum, model, seats FROM planes WHERE tailnum = 'N102UW'",
    )
    .await?;
    let cell = |column: usize| {
        found
            .cell(0, column)
            .ok_or_else(|| Error::internal("the registry has lost a plane"))
            .map(str::to_owned)
    };
    let (xid, rev) = (cell(0)?, cell(1)?);
    question(
        client,
        "And by its xid.",
        &format!("SELECT * FROM planes WHERE xid = '{xid}'"),
    )
    .await?;
    let feed = query(client, "SHOW FEED planes").await?;
    let mark = feed.cell(0, 0).unwrap_or("0").to_owned();
    question(
        client,
        "Compare-and-set: seats become 180 only if nobody wrote the row since.",
        &format!("UPDATE planes SET seats = 180 WHERE xid = '{xid}' AND x_rev = {rev}"),
    )
    .await?;
    question(
        client,
        "Another client read the same x_rev, and loses: nothing is overwritten.",
        &format!("UPDATE planes SET seats = 150 WHERE xid = '{xid}' AND x_rev = {rev}"),
    )
    .await?;
    let gone = query(client, "SELECT xid FROM planes WHERE tailnum = 'N10156'").await?;
    let gone = gone.cell(0, 0).unwrap_or_default().to_owned();
    question(
        client,
        "A plane is sold.",
        &format!("DELETE FROM planes WHERE xid = '{gone}'"),
    )
    .await?;
    question(
        client,
        "The feed: what a replica that stopped before these writes has missed, tombstone included, never more, never less.",
        &format!("SELECT x_rev, tailnum, seats, x_deleted FROM planes WHERE x_rev > {mark} LIMIT 500"),
    )
    .await?;
    Ok(())
}
