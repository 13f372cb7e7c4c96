//! Real telemetry: hourly weather of three airports (2013). What the server answers is compared with the same
//! computed here from the CSV, never with numbers it gave before.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use strandline_tests::server::Server;

fn demo(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../demo")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if name.ends_with(".gz") {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_end(&mut text)
            .expect("gzip");
        return text;
    }
    bytes
}

/// Year and month of Unix ms, by the civil calendar (Hinnant's days_from_civil, inverted).
fn month(ms: i64) -> (i64, i64) {
    let z = ms.div_euclid(86_400_000) + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let m = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(m <= 2), m)
}

struct Sample {
    ts: i64,
    values: BTreeMap<String, f64>,
}

/// The CSV, by station.
fn weather_csv() -> BTreeMap<String, Vec<Sample>> {
    let text = String::from_utf8(demo("weather.csv.gz")).expect("text");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a head").split(',').skip(2).collect();
    let mut stations: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let values = names
            .iter()
            .zip(&cells[2..])
            .filter_map(|(n, c)| Some((n.to_string(), c.parse::<f64>().ok()?)))
            .collect();
        stations
            .entry(cells[0].to_string())
            .or_default()
            .push(Sample {
                ts: cells[1].parse().expect("ts"),
                values,
            });
    }
    stations
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

fn check(server: &Server, when: &str) {
    let stations = weather_csv();
    let rows: usize = stations.values().map(Vec::len).sum();
    assert!(rows > 20_000);
    assert_eq!(
        server.query("SELECT count(*) FROM weather")[0][0],
        rows.to_string(),
        "{when}"
    );
    for (station, samples) in &stations {
        let counted = server.query(&format!(
            "SELECT count(*), count(temp), count(wind_gust), min(temp), max(temp) FROM weather WHERE entity = '{station}'"
        ));
        let temps: Vec<f64> = samples
            .iter()
            .filter_map(|s| s.values.get("temp").copied())
            .collect();
        let gusts = samples
            .iter()
            .filter(|s| s.values.contains_key("wind_gust"))
            .count();
        assert_eq!(
            counted[0][0],
            samples.len().to_string(),
            "{when}: {station}"
        );
        assert_eq!(counted[0][1], temps.len().to_string(), "{when}: {station}");
        assert_eq!(counted[0][2], gusts.to_string(), "{when}: {station}");
        let (min, max) = temps
            .iter()
            .fold((f64::MAX, f64::MIN), |(a, b), &t| (a.min(t), b.max(t)));
        assert!(
            close(counted[0][3].parse().expect("min"), min)
                && close(counted[0][4].parse().expect("max"), max)
        );

        // Monthly averages: one range for each month, its bounds found in the data.
        let mut months: BTreeMap<(i64, i64), Vec<&Sample>> = BTreeMap::new();
        for s in samples {
            months.entry(month(s.ts)).or_default().push(s);
        }
        assert!(months.len() >= 12);
        // The same from the calendar's own buckets.
        let sampled = server.query(&format!(
            "SELECT ts, count(temp), avg(temp) FROM weather WHERE entity = '{station}' SAMPLE BY 1 month"
        ));
        assert_eq!(sampled.len(), months.len(), "{when}: {station}");
        for (row, (name, list)) in sampled.iter().zip(&months) {
            let temps: Vec<f64> = list
                .iter()
                .filter_map(|s| s.values.get("temp").copied())
                .collect();
            assert_eq!(
                month(row[0].parse().expect("ts")),
                *name,
                "{when}: {station}"
            );
            assert_eq!(
                row[1],
                temps.len().to_string(),
                "{when}: {station} {name:?}"
            );
            let mean = temps.iter().sum::<f64>() / temps.len() as f64;
            assert!(
                close(row[2].parse().expect("avg"), mean),
                "{when}: {station} {name:?}"
            );
        }
        for (name, list) in months {
            let (from, to) = list
                .iter()
                .fold((i64::MAX, i64::MIN), |(a, b), s| (a.min(s.ts), b.max(s.ts)));
            let answer = server.query(&format!(
                "SELECT count(humid), avg(temp), sum(precip), first(pressure), last(pressure) FROM weather \
                 WHERE entity = '{station}' AND ts BETWEEN {from} AND {to}"
            ));
            let of = |channel: &str| -> Vec<f64> {
                let mut list: Vec<(i64, f64)> = list
                    .iter()
                    .filter_map(|s| Some((s.ts, *s.values.get(channel)?)))
                    .collect();
                list.sort_by_key(|(ts, _)| *ts);
                list.into_iter().map(|(_, v)| v).collect()
            };
            let number = |i: usize| answer[0][i].parse::<f64>().unwrap_or(f64::NAN);
            let temps = of("temp");
            assert_eq!(
                answer[0][0],
                of("humid").len().to_string(),
                "{when}: {station} {name:?}"
            );
            assert!(
                close(number(1), temps.iter().sum::<f64>() / temps.len() as f64),
                "{when}: {station} {name:?}"
            );
            assert!(
                close(number(2), of("precip").iter().sum()),
                "{when}: {station} {name:?}"
            );
            let pressure = of("pressure");
            if let (Some(first), Some(last)) = (pressure.first(), pressure.last()) {
                assert!(
                    close(number(3), *first) && close(number(4), *last),
                    "{when}: {station} {name:?}"
                );
            }
        }

        // A day's buckets.
        let day = samples[samples.len() / 2].ts / 86_400_000 * 86_400_000;
        let mut buckets: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for s in samples
            .iter()
            .filter(|s| (day..day + 86_400_000).contains(&s.ts))
        {
            if let Some(t) = s.values.get("temp") {
                buckets
                    .entry(s.ts / 10_800_000 * 10_800_000)
                    .or_default()
                    .push(*t);
            }
        }
        let answer = server.query(&format!(
            "SELECT ts, avg(temp) FROM weather WHERE entity = '{station}' AND ts BETWEEN {day} AND {} SAMPLE BY 3h",
            day + 86_399_999
        ));
        let got: BTreeMap<i64, f64> = answer
            .iter()
            .map(|r| (r[0].parse().expect("ts"), r[1].parse().expect("avg")))
            .collect();
        assert_eq!(
            got.keys().collect::<Vec<_>>(),
            buckets.keys().collect::<Vec<_>>(),
            "{when}: {station}"
        );
        for (ts, values) in &buckets {
            assert!(
                close(got[ts], values.iter().sum::<f64>() / values.len() as f64),
                "{when}: {station} {ts}"
            );
        }

        // The device shadow: each channel's newest sample.
        let mut newest: BTreeMap<&str, (i64, f64)> = BTreeMap::new();
        for s in samples {
            for (channel, &value) in &s.values {
                let last = newest.entry(channel).or_insert((s.ts, value));
                if last.0 <= s.ts {
                    *last = (s.ts, value);
                }
            }
        }
        let row = server.query(&format!(
            "SELECT ts, temp, wind_gust, visib FROM weather WHERE entity = '{station}' LATEST ON ts PARTITION BY entity"
        ));
        let expected = ["temp", "wind_gust", "visib"].map(|c| newest[c]);
        assert_eq!(
            row[0][0],
            expected
                .iter()
                .map(|e| e.0)
                .max()
                .expect("three")
                .to_string(),
            "{when}: {station}"
        );
        for (cell, (_, value)) in row[0][1..].iter().zip(expected) {
            assert!(
                close(cell.parse().expect("a number"), value),
                "{when}: {station}"
            );
        }
    }
}

#[test]
fn the_weather_of_2013_is_what_the_csv_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    server.send_lines(&demo("weather.ilp.gz"));
    check(&server, "in memory");
    server.kill();
    let server = Server::start(dir.path(), &[]);
    check(&server, "after kill -9");
    server.query("CHECKPOINT");
    check(&server, "in segments");
    assert_eq!(server.terminate(), Some(0));
    let server = Server::start(dir.path(), &[]);
    check(&server, "after a clean restart");
}

#[test]
fn a_snapshot_is_a_database() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    server.send_lines(&demo("weather.ilp.gz"));
    server.query("CREATE ROWS TABLE stations (name TEXT)");
    let ids = server
        .query("INSERT INTO stations (name) VALUES ('EWR'), ('JFK'), ('LGA') RETURNING xid, x_rev");
    let (_, notice) = server.psql(&["-c", "CHECKPOINT"]);
    let folder = notice
        .split_whitespace()
        .find(|w| w.contains("snapshots/"))
        .unwrap_or_else(|| panic!("{notice}"));
    let folder = folder.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    server.query("INSERT INTO stations (name) VALUES ('after')");
    server.query("INSERT INTO weather (entity, ts, temp) VALUES ('after', 1, 1)");
    let copy = tempfile::tempdir().expect("a folder");
    let to = copy.path().join("dbs/main");
    std::fs::create_dir_all(to.parent().expect("dbs")).expect("made");
    let from = dir.path().join("dbs/main").join(folder);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(&from)
        .arg(&to)
        .status()
        .expect("cp");
    assert!(copied.success(), "{}", from.display());
    let second = Server::start(copy.path(), &[]);
    check(&second, "in the copy of a snapshot");
    assert_eq!(second.query("SELECT xid, x_rev FROM stations"), ids);
    let more = second.query("INSERT INTO stations (name) VALUES ('copy') RETURNING x_rev");
    assert!(more[0][0].parse::<u64>().expect("a number") > ids[2][1].parse().expect("a number"));
}
