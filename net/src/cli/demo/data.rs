//! The data that the binary carries, and loading it.

use super::{failed, query};
use flate2::read::GzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Read;
use std::net::SocketAddr;
use strandline_core::error::{Error, Result, SqlState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::Client;

/// A year of hourly weather at three airports, as line protocol. See `demo/README.md`.
const WEATHER: &[u8] = include_bytes!("../../../../demo/weather.ilp.gz");
/// The registry of planes.
const PLANES: &str = include_str!("../../../../demo/planes.csv");

/// Bytes of lines sent at a time.
const CHUNK: usize = 64 << 10;
/// Planes of one INSERT.
const ROWS: usize = 250;

/// The weather is declared, so that its channels hold; gusts and rain are events.
const CREATE_WEATHER: &str = "CREATE TABLE weather (\
    temp DOUBLE FILL HOLD STALENESS 3 h, dewp DOUBLE FILL HOLD STALENESS 3 h, humid DOUBLE FILL HOLD STALENESS 3 h, \
    wind_dir INT FILL HOLD STALENESS 3 h, wind_speed DOUBLE FILL HOLD STALENESS 3 h, wind_gust DOUBLE, precip DOUBLE, \
    pressure DOUBLE FILL HOLD STALENESS 3 h, visib DOUBLE FILL HOLD STALENESS 3 h)";
const CREATE_PLANES: &str = "CREATE ROWS TABLE planes (\
    tailnum TEXT, year INT, type TEXT, manufacturer TEXT, model TEXT, engines INT, seats INT, speed INT, engine TEXT)";

/// Makes both tables and fills them. Returns once everything is durable and visible.
pub async fn load(client: &Client, ilp: SocketAddr) -> Result<()> {
    query(client, CREATE_WEATHER).await?;
    query(client, CREATE_PLANES).await?;
    let mut lines = Vec::new();
    GzDecoder::new(WEATHER)
        .read_to_end(&mut lines)
        .map_err(|e| Error::internal(format!("the weather that the binary carries: {e}")))?;
    weather(&lines, ilp).await?;
    planes(client).await
}

fn bar(what: &str, len: u64, done: &str) -> ProgressBar {
    let style = format!("{{msg:16}} [{{bar:40}}] {done} {{elapsed}}");
    let bar = ProgressBar::new(len).with_message(what.to_owned());
    match ProgressStyle::with_template(&style) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

async fn weather(lines: &[u8], ilp: SocketAddr) -> Result<()> {
    let io =
        |e: std::io::Error| Error::new(SqlState::IoError, format!("line protocol to {ilp}: {e}"));
    let mut socket = tokio::net::TcpStream::connect(ilp).await.map_err(io)?;
    let bar = bar(
        "weather, lines",
        lines.len() as u64,
        "{bytes} of {total_bytes}",
    );
    for chunk in lines.chunks(CHUNK) {
        socket.write_all(chunk).await.map_err(io)?;
        bar.inc(chunk.len() as u64);
    }
    // The server closes its side once all that it read is on disk.
    socket.shutdown().await.map_err(io)?;
    let mut end = [0; 1];
    socket.read(&mut end).await.map_err(io)?;
    bar.finish_and_clear();
    println!(
        "loaded {} observations over line protocol",
        lines.iter().filter(|&&b| b == b'\n').count()
    );
    Ok(())
}

async fn planes(client: &Client) -> Result<()> {
    let mut rows = PLANES.lines();
    let header = rows.next().unwrap_or_default();
    let rows: Vec<&str> = rows.collect();
    let bar = bar("planes, INSERTs", rows.len() as u64, "{pos} of {len}");
    // The tag alone: nobody reads these xids.
    client
        .batch_execute("SET insert_returns = none")
        .await
        .map_err(failed)?;
    for some in rows.chunks(ROWS) {
        let values: Vec<String> = some.iter().map(|row| values(row)).collect();
        let sql = format!("INSERT INTO planes ({header}) VALUES {}", values.join(", "));
        client.batch_execute(&sql).await.map_err(failed)?;
        bar.inc(some.len() as u64);
    }
    client
        .batch_execute("RESET insert_returns")
        .await
        .map_err(failed)?;
    bar.finish_and_clear();
    println!("loaded {} planes over SQL", rows.len());
    Ok(())
}

/// A line of the CSV, which quotes nothing, as a row of VALUES. Quoted literals convert to their column's label.
fn values(row: &str) -> String {
    let cells = row.split(',').map(|cell| match cell {
        "" => "NULL".to_owned(),
        text => format!("'{}'", text.replace('\'', "''")),
    });
    format!("({})", cells.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_whole() {
        let mut lines = String::new();
        GzDecoder::new(WEATHER).read_to_string(&mut lines).unwrap();
        assert_eq!(lines.lines().count(), 26_115);
        let width = PLANES.lines().next().unwrap().split(',').count();
        assert!(
            PLANES
                .lines()
                .all(|l| l.split(',').count() == width && !l.contains('"'))
        );
        assert_eq!(PLANES.lines().count(), 3_323);
        assert_eq!(values("N1,,O'Hare"), "('N1', NULL, 'O''Hare')");
    }
}
