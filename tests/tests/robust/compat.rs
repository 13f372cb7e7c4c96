//! Data directories that earlier versions wrote: this one opens them and gives the same answers.
//!
//! Each folder under `tests/fixtures/` is a version's: its files, each packed with gzip, and `expected.txt`,
//! which holds questions and what that version answered. `STRANDLINE_WRITE_FIXTURE=1` writes the folder of the
//! current version anew; the README beside it says when.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline_tests::server::Server;

/// The folder that this version writes.
const CURRENT: &str = "v2";
const BASE_MS: i64 = 1_767_225_600_000;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Files below `dir`, relative to it, in order.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(dir).expect("below").to_path_buf());
            }
        }
    }
    files.sort();
    files
}

fn unpack(fixture: &Path, data: &Path) {
    let packed = fixture.join("data");
    for file in files_below(&packed) {
        let mut bytes = Vec::new();
        let content = std::fs::File::open(packed.join(&file)).expect("a packed file");
        GzDecoder::new(content)
            .read_to_end(&mut bytes)
            .expect("gzip");
        let to = data.join(file.with_extension(""));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        std::fs::write(to, bytes).expect("written");
    }
}

/// Rows, tab-separated, and the SQLSTATE where it fails.
fn ask(server: &Server, sql: &str) -> String {
    let args = [
        "-q",
        "-A",
        "-t",
        "-F",
        "\t",
        "-v",
        "VERBOSITY=sqlstate",
        "-c",
        sql,
    ];
    let (out, err) = server.psql(&args);
    let errors = err.lines().filter(|l| l.contains("ERROR:"));
    errors.fold(out, |out, line| {
        out + line.trim_start_matches("psql: ") + "\n"
    })
}

/// Questions and answers of an `expected.txt`.
fn expected(fixture: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(fixture.join("expected.txt")).expect("expected.txt");
    let parts = text.split("\n> ").map(|p| p.trim_start_matches("> "));
    let split = |part: &str| {
        let (question, answer) = part.split_once('\n').unwrap_or((part, ""));
        (question.to_string(), answer.to_string())
    };
    parts.map(split).collect()
}

fn compare(server: &Server, fixture: &Path) {
    let expected = expected(fixture);
    assert!(
        expected.len() > 20,
        "{} has few questions",
        fixture.display()
    );
    for (question, answer) in expected {
        let got = ask(server, &question);
        assert_eq!(
            got.trim_end(),
            answer.trim_end(),
            "{}: {question}",
            fixture.display()
        );
    }
}

#[test]
fn directories_of_earlier_versions_open() {
    if std::env::var_os("STRANDLINE_WRITE_FIXTURE").is_some() {
        write_fixture(&fixtures().join(CURRENT));
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir(fixtures())
        .expect("tests/fixtures")
        .map(|e| e.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    versions.sort();
    assert!(versions.iter().any(|v| v.ends_with(CURRENT)));
    for fixture in versions {
        let data = tempfile::tempdir().expect("a folder");
        unpack(&fixture, data.path());
        // As kill -9 left it; then after a clean way down, which may have written all of it anew.
        let server = Server::start(data.path(), &[]);
        compare(&server, &fixture);
        assert_eq!(server.terminate(), Some(0));
        let server = Server::start(data.path(), &[]);
        compare(&server, &fixture);
        // Everything in segments that this version wrote.
        assert_eq!(ask(&server, "CHECKPOINT"), "");
        compare(&server, &fixture);
        goes_on(&server);
    }
}

/// Numbers go on above everything that the directory holds.
fn goes_on(server: &Server) {
    let feed = ask(
        server,
        "SELECT x_rev FROM planes WHERE x_rev <= 9007199254740991 ORDER BY x_rev DESC LIMIT 1",
    );
    let before: u64 = feed.trim().parse().expect("the highest x_rev");
    let xids = ask(server, "SELECT xid FROM planes ORDER BY xid DESC LIMIT 1");
    let new = ask(
        server,
        "INSERT INTO planes (name, seats) VALUES ('new', 1) RETURNING x_rev, xid",
    );
    let (rev, xid) = new.trim().split_once('\t').expect("two columns");
    assert!(
        rev.parse::<u64>().expect("a number") > before,
        "{rev} after {before}"
    );
    assert!(xid > xids.trim(), "{xid} after {xids}");
    server.send_lines(b"weather,entity=new t=1.5 1\n");
    assert_eq!(
        ask(server, "SELECT t FROM weather WHERE entity = 'new'"),
        "1.5\n"
    );
}

/// What the fixture is asked. Answers do not depend on what runs in the background: sums are of whole numbers, because
/// a merge changes the order in which a sum of fractions is rounded.
const QUESTIONS: &[&str] = &[
    "SELECT name, family FROM $sys.tables ORDER BY name",
    "SELECT table_name, name, type, fill, staleness, role FROM $sys.columns ORDER BY table_name, position",
    "SELECT count(*) FROM planes",
    "SELECT * FROM planes",
    "SELECT xid, x_rev, x_deleted, name, seats FROM planes WHERE x_rev > 300",
    "SELECT xid, x_rev, name FROM planes WHERE x_deleted = true",
    "SELECT name FROM planes WHERE x_rev > 0",
    "SELECT name, seats FROM planes WHERE seats >= 250 ORDER BY name DESC LIMIT 20",
    "SELECT count(*) FROM planes WHERE built IS NULL",
    "SELECT count(*) FROM nothing_in_it",
    "SELECT count(*) FROM dropped",
    "SELECT count(*), count(speed), sum(gear), min(speed), max(speed), first(event), last(event) FROM tele",
    "SELECT entity, count(*), avg(gear), max(speed), last(seen) FROM tele GROUP BY entity ORDER BY entity",
    "SELECT entity, ts, speed, event, gear, on_off, seen FROM tele WHERE entity = 'veh-1' ORDER BY ts",
    "SELECT entity, ts, speed, gear, on_off FROM tele RAW WHERE entity IN ('veh-2', 'größe 3') ORDER BY entity, ts",
    "SELECT entity, ts, speed FROM tele WHERE speed > 120 ORDER BY entity, ts",
    "SELECT * FROM tele LATEST ON ts PARTITION BY entity ORDER BY entity",
    "SELECT ts, count(*), sum(gear), max(speed) FROM tele IN RANGE (2025-12-31T23:40:00, +2h) SAMPLE BY 10 m FILL(PREV)",
    "SELECT entity, ts, v FROM ids ORDER BY entity, ts",
    "SELECT count(*), count(t), sum(n), min(t), max(t) FROM weather",
    "SELECT entity, ts, t, n, ok, note FROM weather RAW WHERE entity = 'st-2' ORDER BY ts",
    "SELECT * FROM weather LATEST ON ts PARTITION BY entity ORDER BY entity",
    "SELECT name, retention, mutable, dedup, entity_uuid, entity_tag FROM $sys.tables ORDER BY name",
    "SELECT * FROM fleet ORDER BY entity",
    "SELECT count(*), count(name), sum(n), max(fw) FROM fleet",
    "SELECT * FROM fleet WHERE entity = 'truck-3'",
    "SELECT entity, ts, v, s FROM dup RAW ORDER BY entity, ts",
    "SELECT entity, count(*), sum(v), last(s) FROM dup GROUP BY entity ORDER BY entity",
    "SELECT * FROM changed ORDER BY entity, ts",
    "SELECT entity, count(*), count(d), sum(amount), last(note) FROM changed GROUP BY entity ORDER BY entity",
    "SELECT * FROM changed LATEST ON ts PARTITION BY entity ORDER BY entity",
    "SELECT b FROM changed",
    "SELECT * FROM tagged ORDER BY entity, ts",
];

/// A statement that must work.
fn run(server: &Server, sql: &str) -> String {
    let answer = ask(server, sql);
    assert!(!answer.contains("ERROR"), "{sql}: {answer}");
    answer
}

fn telemetry(round: i64) -> String {
    let mut rows = Vec::new();
    for i in 0..120 {
        let entity = ["veh-0", "veh-1", "veh-2", "größe 3"][(i % 4) as usize];
        let ts = BASE_MS + round * 600_000 + i / 4 * 17_000 + i % 4;
        let speed = match round % 3 {
            0 => ((i * 37 + round * 11) % 500) as f64 / 4.0,
            1 => ((i * 7919) % 12_800) as f64 / 100.0,
            _ => 60.0 + 60.0 * (i as f64 / 9.0).sin(),
        };
        let speed = if i % 5 == 3 {
            "NULL".into()
        } else {
            format!("{speed:?}")
        };
        let event = match i % 7 {
            0 => format!("'round {round}: it''s {i}'"),
            3 => "'on'".into(),
            _ => "NULL".into(),
        };
        let gear = if i % 3 == 0 {
            "NULL".into()
        } else {
            format!("{}", i % 6 - 1)
        };
        let on_off = ["true", "false", "NULL"][(i / 10 % 3) as usize];
        let seen = if i % 9 == 1 {
            format!("{}", ts - 5_000)
        } else {
            "NULL".into()
        };
        rows.push(format!(
            "('{entity}', {ts}, {speed}, {event}, {gear}, {on_off}, {seen})"
        ));
    }
    format!(
        "INSERT INTO tele (entity, ts, speed, event, gear, on_off, seen) VALUES {}",
        rows.join(", ")
    )
}

fn weather(round: i64) -> String {
    let mut lines = String::new();
    for i in 0..90 {
        let ns = (BASE_MS + round * 3_600_000 + i / 3 * 60_000) * 1_000_000;
        let t = ((i * 31 + round * 7) % 400 - 100) as f64 / 10.0;
        let _ = write!(
            lines,
            "weather,entity=st-{},region=r\\ {} t={t},n={i}i",
            i % 3,
            i % 2
        );
        if i % 4 == 0 {
            let _ = write!(
                lines,
                ",ok={},note=\"round {round}, \\\"{i}\\\"\"",
                i % 8 == 0
            );
        }
        let _ = writeln!(lines, " {ns}");
    }
    lines
}

/// Rows of one round, and the changes to them: two updates of one row, one of another, one that sets NULL, and
/// two deletes.
fn planes(server: &Server, round: i64) {
    let row = |i: i64| {
        let name = format!("'plane {round}-{i} ü'");
        let seats = if i % 4 == 0 {
            "NULL".into()
        } else {
            format!("{}", i * 13 % 400)
        };
        let built = if i % 3 == 0 {
            "NULL".into()
        } else {
            format!("{}", BASE_MS - i * 86_400_000)
        };
        format!(
            "({name}, {seats}, {}, {built}, {:?})",
            i % 2 == 0,
            i as f64 * 1.1
        )
    };
    let rows: Vec<String> = (0..60).map(row).collect();
    let insert = format!(
        "INSERT INTO planes (name, seats, active, built, weight) VALUES {} RETURNING xid",
        rows.join(", ")
    );
    let xids: Vec<String> = run(server, &insert).lines().map(str::to_string).collect();
    assert_eq!(xids.len(), 60);
    for (n, change) in [
        (0, "UPDATE planes SET name = 'renamed', seats = 7"),
        (0, "UPDATE planes SET seats = 8"),
        (1, "UPDATE planes SET weight = -0.5"),
        (2, "UPDATE planes SET built = NULL"),
        (3, "DELETE FROM planes"),
        (59, "DELETE FROM planes"),
    ] {
        run(server, &format!("{change} WHERE xid = '{}'", xids[n]));
    }
}

/// Tables of current state, without duplicates, with changed columns, and with a tag of their own.
fn states(server: &Server, round: i64) {
    let at = |i: i64| BASE_MS + round * 3_600_000 + i * 60_000;
    for truck in 0..10 {
        // The older ones change nothing.
        let ts = at(truck) - truck % 2 * 4 * 3_600_000;
        let name = if truck % 3 == 0 {
            format!("'truck {round}.{truck}'")
        } else {
            "NULL".into()
        };
        run(
            server,
            &format!(
                "INSERT INTO fleet (entity, ts, name, fw, n) VALUES ('truck-{truck}', {ts}, {name}, {round}.5, {})",
                round + truck
            ),
        );
    }
    let gone = [3, 4, 5, 3, 4, 3][round as usize];
    run(
        server,
        &format!("DELETE FROM fleet WHERE entity = 'truck-{gone}'"),
    );
    // Each row twice; the second counts.
    for v in [99, 0] {
        let rows: Vec<String> = (0..8)
            .map(|i| {
                let value = round * 8 + i + v;
                format!("('d-{}', {}, {value}, 's {value}')", i % 2, at(i))
            })
            .collect();
        let sql = format!(
            "INSERT INTO dup (entity, ts, v, s) VALUES {}",
            rows.join(", ")
        );
        run(server, &sql);
    }
    let (number, text) = if round < 2 {
        ("a", "b")
    } else {
        ("amount", "d")
    };
    if round == 2 {
        run(server, "ALTER TABLE changed RENAME COLUMN a TO amount");
        run(server, "ALTER TABLE changed DROP COLUMN b");
        run(server, "ALTER TABLE changed ADD COLUMN d TEXT");
        run(
            server,
            "ALTER TABLE changed ALTER COLUMN note SET FILL NONE",
        );
        run(server, "ALTER TABLE dup SET RETENTION 5000 w");
    }
    for i in 0..6 {
        run(
            server,
            &format!(
                "INSERT INTO changed (entity, ts, {number}, {text}, note) VALUES ('m-{}', {}, {}, 'x{i}', 'r{round}')",
                i % 2,
                at(i),
                round * 10 + i
            ),
        );
    }
    let lines: String = (0..5)
        .map(|i| {
            format!(
                "tagged,host=h-{} x={} {}\n",
                i % 2,
                round * 5 + i,
                at(i) * 1_000_000
            )
        })
        .collect();
    server.send_lines(lines.as_bytes());
}

/// Waits for the merge worker.
fn await_merges(server: &Server, table: &str) {
    let began = Instant::now();
    let merged =
        format!("SELECT count(*) FROM $sys.segments WHERE table_name = '{table}' AND level > 0");
    while run(server, &merged).trim() == "0" {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no segments of {table} are merged"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn write_fixture(fixture: &Path) {
    let data = tempfile::tempdir().expect("a folder");
    let config = data.path().join("small.toml");
    let small = "[limits]\nlog_file_bytes = \"1M\"\nmerge_fan_in = 2\nblock_rows = 64\nrev_reservation = 256\n";
    std::fs::write(&config, small).expect("written");
    let root = data.path().join("data");
    std::fs::create_dir_all(&root).expect("made");
    let args = ["--shards", "2", "--config", config.to_str().expect("text")];
    let server = Server::start(&root, &args);
    for sql in [
        "CREATE TABLE tele (speed DOUBLE FILL HOLD STALENESS 60 s, event TEXT, gear INT FILL HOLD, on_off BOOL, seen TIMESTAMP)",
        "CREATE TABLE ids (v DOUBLE) WITH (ENTITY UUID)",
        "CREATE ROWS TABLE planes (name VARCHAR(40), seats INT, active BOOL, built TIMESTAMP, weight DOUBLE)",
        "CREATE ROWS TABLE nothing_in_it (a TEXT)",
        "CREATE ROWS TABLE dropped (a TEXT)",
        "INSERT INTO dropped (a) VALUES ('x')",
        "CREATE TABLE fleet (name TEXT, fw DOUBLE, n INT) WITH (MUTABLE)",
        "CREATE TABLE dup (v DOUBLE, s TEXT) WITH (DEDUP, RETENTION 5200 w)",
        "CREATE TABLE changed (a DOUBLE, b TEXT, note TEXT FILL HOLD)",
        "CREATE TABLE tagged (x DOUBLE) WITH (ENTITY TAG host)",
        "INSERT INTO ids (entity, ts, v) VALUES ('019f31db-0000-4000-8000-000000000abc', 1767225600000, 1.5)",
    ] {
        run(&server, sql);
    }
    for round in 0..6 {
        run(&server, &telemetry(round));
        server.send_lines(weather(round).as_bytes());
        planes(&server, round);
        states(&server, round);
        if round == 2 {
            run(&server, "DROP TABLE dropped");
            run(&server, "VACUUM planes");
        }
        if round < 5 {
            run(&server, "CHECKPOINT");
        }
    }
    for table in ["tele", "weather", "planes"] {
        await_merges(&server, table);
    }
    // A change that is in no file but the catalog's log, and rows after it.
    run(&server, "ALTER TABLE changed ADD COLUMN later BOOL");
    run(
        &server,
        "INSERT INTO changed (entity, ts, later) VALUES ('m-0', 1767312000000, true)",
    );
    // Late, repeated and corrected samples, in the log alone.
    run(&server, &telemetry(1));
    run(
        &server,
        "INSERT INTO tele (entity, ts, speed, event) VALUES ('veh-1', 1767225600001, 99.5, 'late')",
    );
    // Ten trucks, of which the one that was deleted last is not back; each time of a round once.
    assert_eq!(
        run(&server, "SELECT count(*), sum(n) FROM fleet").trim(),
        "9\t70"
    );
    assert_eq!(
        run(&server, "SELECT count(*), sum(v) FROM dup").trim(),
        "48\t1128"
    );
    // What is known without asking: 60 rows in each of 6 rounds, of which 2 are deleted; 30 times and 4
    // vehicles in each of 6 rounds and once more, and the late one; 90 lines in each round.
    assert_eq!(run(&server, "SELECT count(*) FROM planes").trim(), "348");
    assert_eq!(run(&server, "SELECT count(*) FROM tele").trim(), "841");
    assert_eq!(
        run(&server, "SELECT count(*), sum(n) FROM weather").trim(),
        "540\t24030"
    );
    // Three rounds' tombstones are purged, and who read before them starts over.
    assert_eq!(
        run(
            &server,
            "SELECT count(*) FROM planes WHERE x_deleted = true"
        )
        .trim(),
        "6"
    );
    assert!(ask(&server, "SELECT name FROM planes WHERE x_rev > 0").contains("55000"));
    let mut expected = String::new();
    for question in QUESTIONS {
        let _ = writeln!(expected, "> {question}\n{}", ask(&server, question));
    }
    server.kill();
    // The feed from below the horizon, the table that was dropped, and the column.
    assert_eq!(expected.matches("ERROR").count(), 3, "{expected}");

    let packed = fixture.join("data");
    let _ = std::fs::remove_dir_all(&packed);
    for file in files_below(&root) {
        let name = file.to_string_lossy();
        let local = name.starts_with("run/") || name == "lock" || name.contains("/snapshots/");
        if local {
            continue;
        }
        let to = packed.join(format!("{name}.gz"));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let bytes = std::fs::read(root.join(&file)).expect("read");
        gzip.write_all(&bytes).expect("packed");
        std::fs::write(to, gzip.finish().expect("packed")).expect("written");
    }
    std::fs::write(fixture.join("expected.txt"), expected).expect("written");
}
