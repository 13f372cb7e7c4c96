//! EXPLAIN through psql, on two shards.

use strandline_tests::server::Server;

/// The lines of a plan, without psql's frame.
fn explain(server: &Server, sql: &str) -> Vec<String> {
    let (out, err) = server.psql(&["-At", "-c", sql]);
    assert!(err.is_empty(), "{sql}: {err}");
    out.lines().map(str::to_owned).collect()
}

fn server_with_rows(data: &std::path::Path) -> Server {
    let server = Server::start(data, &["--shards", "2"]);
    let mut sql = String::from(
        "CREATE TABLE t (x DOUBLE, s TEXT FILL HOLD STALENESS 60 s);\nCREATE ROWS TABLE devices (name TEXT, size INT);\n\
         INSERT INTO devices (name, size) VALUES ('d', 1), ('e', 5);\n",
    );
    // 10,000 rows of one entity make several blocks, by time; x climbs.
    for part in 0..10 {
        sql.push_str("INSERT INTO t (entity, ts, x) VALUES ");
        let rows: Vec<String> = (0..1000)
            .map(|n| part * 1000 + n)
            .map(|n| format!("('a', {}, {n})", n * 1000))
            .collect();
        sql.push_str(&rows.join(", "));
        sql.push_str(";\n");
    }
    sql.push_str("INSERT INTO t (entity, ts, s) VALUES ('b', 1000, 'on'), ('b', 2000, 'off');\nCHECKPOINT;\n");
    let file = data.join("rows.sql");
    std::fs::write(&file, sql).expect("written");
    let (_, err) = server.psql(&[
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-f",
        file.to_str().expect("a path"),
    ]);
    assert!(!err.contains("ERROR"), "{err}");
    server
}

fn number_behind(lines: &[String], word: &str) -> u64 {
    let line = lines.iter().find(|l| l.contains(word));
    let line = line.unwrap_or_else(|| panic!("no {word} in {lines:?}"));
    let digits: String = (line[line.find(word).expect("found") + word.len()..].chars())
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number")
}

#[test]
fn explain_says_what_is_looked_at() {
    let data = tempfile::tempdir().expect("a folder");
    let server = server_with_rows(data.path());
    let all = |lines: &[String], words: &[&str]| {
        for w in words {
            assert!(lines.iter().any(|l| l.contains(w)), "no {w} in {lines:?}");
        }
    };

    let filled = explain(
        &server,
        "EXPLAIN SELECT ts, x, s FROM t WHERE entity = 'a' AND ts BETWEEN 0 AND 5000 AND s = 'on' ORDER BY x DESC LIMIT 3",
    );
    all(
        &filled,
        &[
            "Scan of t (filled rows)",
            "Channels: x, s",
            "Entities: 'a'",
            "Time: 1970-01-01T00:00:00.000Z to 1970-01-01T00:00:05.000Z",
            "Filter: s = 'on'",
            "Sort: x DESC",
            "Limit: 3",
            "Shards: 1 of 2",
        ],
    );
    // Footers alone rule out what lies at other times.
    let total = number_behind(&filled, "Blocks: 1 of");
    assert!(total >= 2, "{filled:?}");
    all(
        &explain(&server, "EXPLAIN SELECT x FROM t RAW"),
        &[
            "Scan of t (stored rows)",
            "Entities: all",
            "Time: all",
            "Shards: 2 of 2",
        ],
    );
    all(
        &explain(
            &server,
            "EXPLAIN SELECT * FROM t LATEST ON ts PARTITION BY entity",
        ),
        &[
            "Latest rows of t (newest samples, kept in memory)",
            "Entities in memory: 2",
        ],
    );
    all(
        &explain(
            &server,
            "EXPLAIN SELECT entity, ts, avg(x), percentile_cont(0.9) WITHIN GROUP (ORDER BY x DESC) FROM t \
             WHERE x > 1 AND (s LIKE 'o%' OR s IS NULL) AND ts IN RANGE (0, 10000) SAMPLE BY 2 s FILL(PREV)",
        ),
        &[
            "Aggregate of t (stored rows)",
            "Aggregates: avg(x), percentile_cont(0.9) WITHIN GROUP (ORDER BY x DESC)",
            "Group by: entity, every 2000 ms",
            "Fill: PREV",
            "Filter: x > 1 AND (s LIKE 'o%' OR s IS NULL)",
        ],
    );
    all(
        &explain(
            &server,
            "EXPLAIN SELECT name FROM devices WHERE size > 3 ORDER BY name LIMIT 5",
        ),
        &[
            "Scan of devices (by xid)",
            "Filter: size > 3",
            "Sort: name",
            "Limit: 5",
        ],
    );
    all(
        &explain(&server, "EXPLAIN SELECT x_rev FROM devices WHERE x_rev > 1"),
        &["Feed of devices", "Filter: x_rev > 1"],
    );
    all(
        &explain(
            &server,
            "EXPLAIN INSERT INTO t (entity, ts, x) VALUES ('a', 1, 1), ('b', 2, 2)",
        ),
        &["Insert into t", "Rows: 2"],
    );
}

#[test]
fn analyze_counts_what_was_looked_at() {
    let data = tempfile::tempdir().expect("a folder");
    let server = server_with_rows(data.path());
    // Whole blocks answer by their statistics, with a condition too where those settle it.
    for filter in ["", " WHERE x >= 0", " WHERE x < 20000"] {
        let lines = explain(
            &server,
            &format!("EXPLAIN ANALYZE SELECT avg(x), max(x) FROM t{filter}"),
        );
        assert_eq!(number_behind(&lines, "Rows:"), 1);
        assert_eq!(
            number_behind(&lines, "Rows read:"),
            0,
            "{filter}: {lines:?}"
        );
        assert!(
            lines.iter().any(
                |l| l.contains("by their statistics, ") && l.contains(" 0 decoded")
                    || l.contains("(0 decoded")
            ),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|l| l.starts_with("  Execution Time: ")),
            "{lines:?}"
        );
    }
    // A condition in the middle decodes the block that it cuts, and rules out those below it.
    let lines = explain(
        &server,
        "EXPLAIN ANALYZE SELECT count(*) FROM t WHERE x > 9500",
    );
    assert!(lines.iter().any(|l| l.contains("ruled out")), "{lines:?}");
    let read = number_behind(&lines, "Rows read:");
    assert!(read > 0 && read < 6000, "{lines:?}");
    let (out, err) = server.psql(&["-At", "-c", "SELECT count(*), avg(x) FROM t WHERE x > 9500"]);
    assert_eq!((out.trim(), &*err), ("499|9750", ""));
    // Rows are counted, not sent; what is sorted is sorted.
    let lines = explain(
        &server,
        "EXPLAIN ANALYZE SELECT x FROM t WHERE entity = 'a' ORDER BY x DESC LIMIT 7",
    );
    assert_eq!(number_behind(&lines, "  Rows:"), 7, "{lines:?}");
    assert_eq!(number_behind(&lines, "Rows read:"), 10_000, "{lines:?}");
    let lines = explain(
        &server,
        "EXPLAIN ANALYZE SELECT name FROM devices WHERE size > 3",
    );
    assert_eq!(number_behind(&lines, "  Rows:"), 1, "{lines:?}");
    let (_, err) = server.psql(&["-c", "EXPLAIN ANALYZE DELETE FROM devices WHERE xid = 'a'"]);
    assert!(err.contains("statement that writes"), "{err}");
}
