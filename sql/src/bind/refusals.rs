//! Every refusal of a statement, with its SQLSTATE, its position and its words.

use super::tests::{error, plan};
use crate::fuzz::with_context;
use crate::parse;

#[test]
fn refusals() {
    let mut wrong = Vec::new();
    // Statement (¦ marks the position), SQLSTATE, words of the message or hint.
    for (sql, state, words) in [
        // Syntax.
        ("¦SELEC 1", "42601", "syntax error at or near \"SELEC\""),
        ("SELECT speed FROM¦", "42601", "end of input"),
        ("SELECT speed, ¦FROM tele", "42601", ""),
        (
            "SELECT speed FROM tele WHERE ¦ORDER BY ts",
            "42601",
            "\"ORDER\"",
        ),
        ("SELECT é, speed FROM tele WHERE ts > ¦)", "42601", "\")\""),
        ("INSERT INTO tele (entity, ts) VALUES ('a', 1¦", "42601", ""),
        ("CREATE TABLE t (a INT¦", "42601", "end of input"),
        ("CREATE TABLE t (¦select INT)", "42601", "\"select\""),
        ("DELETE tele", "42601", ""),
        ("COMMIT ¦foo", "42601", "\"foo\""),
        ("SELECT ¦'abc", "42601", "unterminated"),
        ("SELECT 1; SELECT ¦'abc", "42601", "unterminated"),
        // Names.
        (
            "SELECT speed FROM ¦nope",
            "42P01",
            "\"nope\" does not exist",
        ),
        (
            "SELECT a, b FROM ¦nope GROUP BY a HAVING b > 1",
            "42P01",
            "\"nope\"",
        ),
        ("INSERT INTO ¦nope VALUES (1)", "42P01", "nope"),
        ("UPDATE ¦nope SET a = 1", "42P01", "nope"),
        ("VACUUM ¦nope", "42P01", "nope"),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', ¦2026-1-1, 1)",
            "22007",
            "difference",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', ¦1 h, 1)",
            "42804",
            "length of time",
        ),
        (
            "SELECT speed FROM tele IN RANGE (2026-01-01, ¦1d)",
            "42804",
            "length of time",
        ),
        (
            "SELECT speed FROM tele WHERE ts > ¦interval '1 day'",
            "42804",
            "length of time",
        ),
        (
            "SELECT avg(speed) FROM tele SAMPLE BY ¦1M",
            "42601",
            "month",
        ),
        (
            "SELECT speed FROM tele WHERE ts > ¦'2026-13-01'",
            "22008",
            "that there is not",
        ),
        (
            "ALTER TABLE tele ¦ALTER COLUMN speed TYPE INT",
            "0A000",
            "TYPE",
        ),
        ("SHOW TABLE ¦nope", "42P01", "nope"),
        (
            "SELECT ¦sped FROM tele",
            "42703",
            "column \"sped\" of table \"tele\"",
        ),
        ("SELECT speed FROM tele WHERE ¦sped = 1", "42703", "sped"),
        ("SELECT ¦xid FROM tele", "42703", "no xid"),
        ("SELECT ¦entity FROM devices", "42703", "no entity"),
        ("SELECT ¦x.speed FROM tele t", "42P01", "FROM-clause entry"),
        (
            "INSERT INTO tele (entity, ts, ¦nope) VALUES ('a', 1, 2)",
            "42703",
            "nope",
        ),
        (
            "INSERT INTO tele (entity, ts, speed, ¦speed) VALUES ('a', 1, 2, 3)",
            "42701",
            "speed",
        ),
        (
            "INSERT INTO tele (entity, ts, ¦$timestamp, speed) VALUES ('a', 1, 2, 3)",
            "42701",
            "same time axis",
        ),
        (
            "INSERT INTO ¦tele (entity, speed) VALUES ('a', 1)",
            "23502",
            "must name ts",
        ),
        (
            "INSERT INTO ¦tele (ts, speed) VALUES (1, 1)",
            "23502",
            "must name entity",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES (¦NULL, 1, 1)",
            "23502",
            "entity",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', ¦NULL, 1)",
            "23502",
            "ts",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, 5), (¦'b', 2, NULL)",
            "23502",
            "row 2 for table \"tele\" has no channel",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, 2, ¦3)",
            "42601",
            "more expressions",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', ¦1)",
            "42601",
            "more target columns",
        ),
        // Values.
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, ¦'x')",
            "22P02",
            "\"x\" is not a valid value for DOUBLE column \"speed\" of table \"tele\"",
        ),
        (
            "INSERT INTO tele (entity, ts, gear) VALUES ('a', 1, ¦1.5)",
            "22P02",
            "gear",
        ),
        (
            "INSERT INTO tele (entity, ts, gear) VALUES ('a', 1, ¦9007199254740993)",
            "22003",
            "gear",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, ¦1e999)",
            "22003",
            "speed",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, ¦'NaN')",
            "22003",
            "speed",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, ¦true)",
            "42804",
            "speed",
        ),
        (
            "INSERT INTO tele (entity, ts, event) VALUES ('a', 1, ¦5)",
            "42804",
            "single quotes",
        ),
        (
            "INSERT INTO tele (entity, ts, event) VALUES ('a', 1, ¦now())",
            "42804",
            "event",
        ),
        (
            "INSERT INTO tele (entity, ts, on_off) VALUES ('a', 1, ¦2)",
            "22003",
            "on_off",
        ),
        (
            "INSERT INTO tele (entity, ts, seen) VALUES ('a', 1, ¦'soon')",
            "22007",
            "seen",
        ),
        (
            "INSERT INTO tele (entity, ts, seen) VALUES ('a', 1, ¦'2026-02-30')",
            "22008",
            "seen",
        ),
        (
            "INSERT INTO tele (entity, ts, seen) VALUES ('a', 1, ¦-5)",
            "22008",
            "seen",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', ¦'soon', 1)",
            "22007",
            "ts",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', ¦9223372036854, 1)",
            "22008",
            "ts",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES (¦7, 1, 1)",
            "42804",
            "entity",
        ),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, ¦foo)",
            "42703",
            "foo",
        ),
        (
            "INSERT INTO ids (entity, ts, v) VALUES (¦'a', 1, 1)",
            "22P02",
            "UUID",
        ),
        (
            "INSERT INTO devices (model) VALUES (¦'12345')",
            "22001",
            "VARCHAR(4)",
        ),
        ("INSERT INTO devices (name) VALUES (¦1)", "42804", "name"),
        ("SELECT speed FROM tele WHERE event = ¦5", "42804", "event"),
        ("SELECT speed FROM tele WHERE gear = ¦'x'", "22P02", "gear"),
        ("SELECT speed FROM tele WHERE ts > ¦'x'", "22007", "ts"),
        (
            "SELECT speed FROM tele WHERE ¦speed",
            "42804",
            "must be BOOL",
        ),
        (
            "SELECT speed FROM tele WHERE gear = ¦'x'::int",
            "22P02",
            "cast",
        ),
        // Engine-owned and reserved.
        (
            "INSERT INTO devices (¦xid) VALUES ('a')",
            "428C9",
            "\"xid\" of table \"devices\"",
        ),
        (
            "INSERT INTO devices (name, ¦x_rev) VALUES ('a', 1)",
            "428C9",
            "x_rev",
        ),
        (
            "UPDATE devices SET ¦x_deleted = true WHERE xid = 'a'",
            "428C9",
            "x_deleted",
        ),
        ("CREATE ROWS TABLE t (¦x_foo INT)", "42939", "x_"),
        ("CREATE ROWS TABLE t (¦xid INT)", "42939", "xid"),
        ("CREATE TABLE t (¦entity TEXT)", "42939", "entity"),
        ("CREATE TABLE t (¦ts TIMESTAMP)", "42939", "ts"),
        ("CREATE TABLE ¦pg_x (a INT)", "42939", "pg_x"),
        ("CREATE TABLE t (a INT, ¦A INT)", "42701", "twice"),
        (
            "UPDATE devices SET name = 'a', ¦name = 'b' WHERE xid = 'a'",
            "42701",
            "name",
        ),
        // CREATE.
        ("CREATE TABLE t (a ¦JSONB)", "0A000", "jsonb"),
        ("CREATE TABLE t (a ¦INT[])", "0A000", "int[]"),
        (
            "CREATE TABLE t (a ¦numeric(10,2))",
            "0A000",
            "DOUBLE, INT, BOOL",
        ),
        ("CREATE TABLE t (a INT ¦NOT NULL)", "0A000", "NOT NULL"),
        (
            "CREATE TABLE t (a INT ¦PRIMARY KEY)",
            "0A000",
            "PRIMARY KEY",
        ),
        (
            "CREATE TABLE t (a INT ¦STALENESS 5 s)",
            "42P16",
            "FILL HOLD",
        ),
        (
            "CREATE TABLE t (a INT) WITH (¦RETENTION 23 h)",
            "22023",
            "1 day",
        ),
        (
            "CREATE TABLE t (a INT) WITH (¦RETENTION 90)",
            "22023",
            "bare number is ms",
        ),
        (
            "CREATE TABLE t (a INT) WITH (¦RETENTION 0 d)",
            "22023",
            "RETENTION of table \"t\"",
        ),
        (
            "CREATE TABLE t (a INT) WITH (RETENTION ¦-1 d)",
            "42601",
            "\"-\"",
        ),
        (
            "CREATE TABLE t (a INT) WITH (RETENTION ¦)",
            "42601",
            "\")\"",
        ),
        (
            "CREATE TABLE t (a INT) WITH (RETENTION ¦1 mon)",
            "0A000",
            "days or weeks",
        ),
        (
            "CREATE TABLE t (a INT) WITH (RETENTION ¦1e300 d)",
            "22008",
            "too long",
        ),
        (
            "CREATE TABLE t (a INT) WITH (MUTABLE, ¦RETENTION 9 d)",
            "42P16",
            "RETENTION",
        ),
        (
            "CREATE TABLE t (a INT) WITH (RETENTION 9 d, ¦MUTABLE)",
            "42P16",
            "RETENTION",
        ),
        (
            "CREATE TABLE t (a INT) WITH (MUTABLE) WITH (¦DEDUP)",
            "42P16",
            "DEDUP",
        ),
        (
            "CREATE TABLE t (a INT) WITH (DEDUP, ENTITY UUID, ¦MUTABLE)",
            "42P16",
            "DEDUP",
        ),
        (
            "CREATE TABLE t (a INT FILL HOLD ¦STALENESS 5 s) WITH (MUTABLE)",
            "42P16",
            "STALENESS",
        ),
        (
            "CREATE TABLE t (a INT) WITH (DEDUP, ¦DEDUP)",
            "22023",
            "twice",
        ),
        (
            "CREATE TABLE t (a INT) WITH (ENTITY TAG a, ¦ENTITY TAG b)",
            "22023",
            "ENTITY TAG is given twice",
        ),
        ("CREATE TABLE t (a INT) WITH (ENTITY ¦a)", "42601", "\"a\""),
        ("CREATE TABLE t (a INT) WITH (ENTITY TAG ¦'a')", "42601", ""),
        ("CREATE TABLE t (a INT) WITH (¦SYNC)", "0A000", "dataspaces"),
        (
            "CREATE TABLE t (a INT) WITH (¦fillfactor = 10)",
            "22023",
            "ENTITY TAG name",
        ),
        (
            "CREATE TABLE t (a INT) ¦PARTITION BY a",
            "0A000",
            "PARTITION BY",
        ),
        (
            "CREATE TABLE t (¦$timestamp TIMESTAMP, a INT)",
            "0A000",
            "$timestamp",
        ),
        (
            "CREATE ROWS TABLE t (a INT ¦FILL HOLD)",
            "0A000",
            "rows table",
        ),
        (
            "CREATE ROWS TABLE t (a INT) WITH (¦RETENTION 1 d)",
            "0A000",
            "rows table",
        ),
        (
            "CREATE ROWS TABLE t (a INT) WITH (¦MUTABLE)",
            "0A000",
            "rows table",
        ),
        (
            "CREATE ROWS TABLE t (a INT) WITH (¦DEDUP)",
            "0A000",
            "rows table",
        ),
        (
            "CREATE ROWS TABLE t (a INT) WITH (¦ENTITY UUID)",
            "0A000",
            "rows table",
        ),
        (
            "CREATE ROWS TABLE t (a INT) WITH (¦ENTITY TAG a)",
            "0A000",
            "rows table",
        ),
        (
            "CREATE ROWS TABLE t (a INT) ¦PARTITION BY a",
            "0A000",
            "rows table",
        ),
        ("¦CREATE KV TABLE t", "0A000", "kv"),
        (
            "¦CREATE MUTABLE TABLE t (a INT) NATURAL KEY (a)",
            "0A000",
            "dataspace",
        ),
        ("¦CREATE INDEX i ON t (a)", "0A000", "CREATE INDEX"),
        ("¦DROP VIEW v", "0A000", "DROP VIEW"),
        // Verbs.
        (
            "ALTER TABLE tele ADD COLUMN ¦speed INT",
            "42701",
            "already exists",
        ),
        (
            "ALTER TABLE tele ADD COLUMN ¦ts INT",
            "42939",
            "has it already",
        ),
        (
            "ALTER TABLE tele ADD COLUMN ¦$timestamp TIMESTAMP",
            "42939",
            "has it already",
        ),
        (
            "ALTER TABLE tele ADD COLUMN a INT ¦STALENESS 5 s",
            "42P16",
            "FILL HOLD",
        ),
        ("ALTER TABLE tele DROP COLUMN ¦entity", "428C9", "engine's"),
        ("ALTER TABLE tele DROP COLUMN ¦nope", "42703", "nope"),
        (
            "ALTER TABLE tele RENAME COLUMN ¦ts TO t",
            "428C9",
            "engine's",
        ),
        (
            "ALTER TABLE tele RENAME COLUMN speed TO ¦entity",
            "42939",
            "reserved",
        ),
        (
            "ALTER TABLE tele ALTER COLUMN ¦$timestamp SET FILL HOLD",
            "428C9",
            "engine's",
        ),
        (
            "ALTER TABLE tele ALTER ¦nope SET FILL HOLD",
            "42703",
            "nope",
        ),
        (
            "ALTER TABLE tele ALTER speed SET FILL ¦SOMETIMES",
            "42601",
            "SOMETIMES",
        ),
        (
            "ALTER TABLE tele ALTER speed SET FILL NONE ¦STALENESS 5 s",
            "42P16",
            "FILL HOLD",
        ),
        (
            "ALTER TABLE tele ¦ALTER COLUMN speed SET NOT NULL",
            "0A000",
            "SET FILL",
        ),
        (
            "ALTER TABLE tele ¦ALTER COLUMN speed TYPE INT",
            "0A000",
            "ALTER",
        ),
        ("ALTER TABLE tele SET ¦RETENTION 5 h", "22023", "1 day"),
        (
            "ALTER TABLE tele SET RETENTION ¦FOREVER",
            "42601",
            "FOREVER",
        ),
        (
            "ALTER TABLE tele ¦SET (fillfactor = 10)",
            "0A000",
            "SET RETENTION",
        ),
        (
            "¦ALTER TABLE tele SET RETENTION 5 d, RENAME TO t",
            "0A000",
            "RENAME stands alone",
        ),
        (
            "ALTER TABLE devices SET ¦RETENTION 5 d",
            "0A000",
            "rows table",
        ),
        (
            "ALTER TABLE devices ALTER COLUMN name SET ¦FILL HOLD",
            "0A000",
            "rows table",
        ),
        ("¦TRUNCATE tele", "0A000", "TRUNCATE"),
        ("¦COPY tele FROM STDIN", "0A000", "COPY"),
        ("EXPLAIN (¦VERBOSE) SELECT 1", "0A000", "VERBOSE"),
        ("EXPLAIN (FORMAT ¦JSON) SELECT 1", "0A000", "JSON"),
        ("EXPLAIN (FORMAT ¦avro) SELECT 1", "22023", "format"),
        ("EXPLAIN ANALYZE ¦VERBOSE SELECT 1", "0A000", "VERBOSE"),
        (
            "EXPLAIN ANALYZE ¦INSERT INTO ids (size) VALUES (1)",
            "0A000",
            "writes",
        ),
        ("EXPLAIN ¦EXECUTE a", "0A000", "EXECUTE"),
        ("EXPLAIN SELECT speed FROM ¦nope", "42P01", "nope"),
        ("EXPLAIN SELECT ¦nope FROM tele", "42703", "nope"),
        ("¦DECLARE c CURSOR FOR SELECT 1", "0A000", "DECLARE CURSOR"),
        ("¦SAVEPOINT a", "0A000", "SAVEPOINT"),
        ("¦ROLLBACK TO SAVEPOINT a", "0A000", "SAVEPOINT"),
        ("¦VACUUM", "0A000", "rows table"),
        ("VACUUM ¦FULL devices", "0A000", "FULL"),
        // Families.
        (
            "UPDATE ¦tele SET speed = 1 WHERE entity = 'a'",
            "0A000",
            "timeseries",
        ),
        ("DELETE FROM ¦tele", "0A000", "append-only"),
        ("VACUUM ¦tele", "0A000", "timeseries"),
        ("SHOW FEED ¦tele", "0A000", "timeseries"),
        (
            "INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, 1) ¦RETURNING ts",
            "0A000",
            "RETURNING",
        ),
        ("SELECT name FROM devices ¦RAW", "0A000", "rows"),
        (
            "SELECT name FROM devices ¦LATEST ON ts PARTITION BY entity",
            "0A000",
            "LATEST",
        ),
        (
            "SELECT count(*) FROM devices ¦SAMPLE BY 5 m",
            "0A000",
            "SAMPLE BY",
        ),
        (
            "SELECT name FROM devices IN ¦RANGE (1, 2)",
            "0A000",
            "IN RANGE",
        ),
        ("SELECT name FROM devices WHERE ¦ts > 5", "0A000", "rows"),
        (
            "INSERT INTO devices (name) VALUES ('a') ¦ON CONFLICT DO NOTHING",
            "0A000",
            "rows",
        ),
        // Rows tables.
        (
            "SELECT name FROM devices WHERE name = 'a' AND ¦size = 1",
            "0A000",
            "second comparison",
        ),
        (
            "SELECT name FROM devices WHERE name = 'a' OR ¦size = 1",
            "0A000",
            "OR",
        ),
        (
            "SELECT name FROM devices WHERE ¦size BETWEEN 1 AND 2",
            "0A000",
            "BETWEEN",
        ),
        (
            "SELECT name FROM devices WHERE ¦size IN (1, 2)",
            "0A000",
            "IN",
        ),
        ("SELECT name FROM devices WHERE ¦size <> 1", "0A000", "<>"),
        (
            "SELECT name FROM devices WHERE ¦name > 'a'",
            "0A000",
            "range of TEXT",
        ),
        (
            "SELECT name FROM devices WHERE ¦xid > 'a'",
            "0A000",
            "range of xid",
        ),
        ("SELECT ¦max(size) FROM devices", "0A000", "count(*)"),
        (
            "SELECT name FROM devices ¦GROUP BY name",
            "0A000",
            "GROUP BY",
        ),
        (
            "SELECT name FROM devices ¦JOIN log ON true",
            "0A000",
            "join",
        ),
        ("SELECT count(*), ¦name FROM devices", "42803", ""),
        (
            "UPDATE devices SET name = 'a' WHERE ¦name = 'b'",
            "0A000",
            "xid",
        ),
        ("UPDATE ¦devices SET name = 'a'", "0A000", "xid"),
        ("DELETE FROM devices WHERE ¦x_rev = 5", "0A000", "xid"),
        (
            "UPDATE devices SET size = ¦size + 1 WHERE xid = 'a'",
            "0A000",
            "value",
        ),
        // General SELECT.
        (
            "SELECT speed FROM tele ¦JOIN ids ON true",
            "0A000",
            "a join",
        ),
        ("SELECT speed FROM tele¦, ids", "0A000", "a join"),
        ("SELECT speed ¦* 2 FROM tele", "0A000", "operator *"),
        (
            "SELECT ¦upper(event) FROM tele WHERE ts > now() - 5 m SAMPLE BY 1h",
            "0A000",
            "upper()",
        ),
        ("SELECT ¦DISTINCT event FROM tele", "0A000", "DISTINCT"),
        (
            "SELECT event, count(*) FROM tele ¦GROUP BY event",
            "0A000",
            "GROUP BY",
        ),
        (
            "SELECT max(speed) FROM tele GROUP BY entity ¦HAVING max(speed) > 1",
            "0A000",
            "HAVING",
        ),
        (
            "SELECT speed FROM tele ¦UNION SELECT v FROM ids",
            "0A000",
            "UNION",
        ),
        (
            "WITH a AS (SELECT speed FROM ¦tele SAMPLE BY 5m) SELECT * FROM a",
            "0A000",
            "WITH",
        ),
        (
            "SELECT speed FROM tele WHERE gear = ¦(SELECT 1)",
            "0A000",
            "subquery",
        ),
        ("SELECT avg(speed) ¦OVER () FROM tele", "0A000", "OVER"),
        (
            "SELECT speed FROM tele WHERE ¦speed LIKE 'a%'",
            "42883",
            "LIKE takes TEXT",
        ),
        (
            "SELECT speed FROM tele WHERE event LIKE ¦5",
            "42883",
            "LIKE takes TEXT",
        ),
        (
            "SELECT speed FROM tele WHERE event LIKE ¦'a\\'",
            "22025",
            "escape",
        ),
        (
            "SELECT speed FROM tele WHERE event LIKE 'a' ESCAPE ¦'ab'",
            "22025",
            "escape",
        ),
        (
            "SELECT speed FROM tele WHERE event ¦SIMILAR TO 'a%'",
            "0A000",
            "SIMILAR",
        ),
        (
            "SELECT speed FROM tele WHERE ¦entity LIKE 'a%'",
            "0A000",
            "entity",
        ),
        (
            "SELECT speed FROM tele WHERE ¦speed > gear",
            "0A000",
            "two columns",
        ),
        (
            "SELECT speed FROM tele WHERE ¦entity = 'a' OR speed > 1",
            "0A000",
            "entity",
        ),
        (
            "SELECT speed FROM tele WHERE ¦entity <> 'a'",
            "0A000",
            "entity",
        ),
        (
            "SELECT speed FROM tele WHERE ts <> ¦5",
            "0A000",
            "time axis",
        ),
        (
            "SELECT ts, avg(speed) FROM tele SAMPLE BY 1 month ¦5 d",
            "42601",
            "not both",
        ),
        (
            "SELECT ts, avg(speed) FROM tele SAMPLE BY 5 d ¦1 y",
            "42601",
            "not both",
        ),
        (
            "SELECT ts, avg(speed) FROM tele SAMPLE BY ¦1.5 months",
            "42601",
            "whole months",
        ),
        ("SELECT ¦ts, avg(speed) FROM tele", "42803", "SAMPLE BY"),
        (
            "SELECT ¦entity, avg(speed) FROM tele",
            "42803",
            "GROUP BY entity",
        ),
        (
            "SELECT ts, ¦speed, avg(speed) FROM tele SAMPLE BY 5 m",
            "42803",
            "last()",
        ),
        ("SELECT ¦avg(event) FROM tele", "42883", "TEXT"),
        ("SELECT ¦min(ts) FROM tele", "0A000", "min(ts)"),
        (
            "SELECT ts, avg(speed) FROM tele ¦SAMPLE BY 5 m FILL(PREV)",
            "0A000",
            "bounded",
        ),
        (
            "SELECT ts, avg(speed) FROM tele WHERE ts IN RANGE (0, 99999999999) ¦SAMPLE BY 1 ms FILL(NULL)",
            "54000",
            "buckets",
        ),
        (
            "SELECT ts, avg(speed) FROM tele SAMPLE BY ¦0 months",
            "22023",
            "1 ms",
        ),
        (
            "SELECT ts, avg(speed) FROM tele WHERE ts > now() - ¦1 month SAMPLE BY 1 d",
            "0A000",
            "no fixed length",
        ),
        (
            "SELECT ts, avg(speed) FROM tele SAMPLE BY ¦-5 m",
            "42601",
            "",
        ),
        (
            "SELECT ts, avg(speed) FROM tele WHERE ts BETWEEN 0 AND 9 SAMPLE BY 5 m FILL(¦NEXT)",
            "42601",
            "PREV, NULL, LINEAR",
        ),
        ("SELECT ts, avg(speed) FROM tele SAMPLE ¦5 m", "42601", ""),
        ("SELECT speed FROM tele ORDER BY ¦2", "42P10", "position 2"),
        ("SELECT ts, avg(speed) FROM tele SAMPLE BY ¦0", "22023", ""),
        ("SELECT ¦stddev(event) FROM tele", "42883", "stddev"),
        ("SELECT ¦median(event) FROM tele", "42883", "median"),
        (
            "SELECT approx_percentile_cont(speed, ¦1.5) FROM tele",
            "22023",
            "between 0 and 1",
        ),
        (
            "SELECT percentile_cont(¦-1) WITHIN GROUP (ORDER BY speed) FROM tele",
            "22023",
            "between 0 and 1",
        ),
        (
            "SELECT percentile_cont(0.5¦) FROM tele",
            "42883",
            "needs a column",
        ),
        (
            "SELECT approx_percentile_cont(speed¦) FROM tele",
            "42883",
            "needs a column",
        ),
        ("INSERT INTO tele ¦SELECT * FROM ids", "0A000", "a query"),
    ] {
        let at = sql.chars().position(|c| c == '¦').map(|i| i as u32 + 1);
        let clean = sql.replace('¦', "");
        let got = with_context(|cx| parse(&clean, cx.limits).and_then(|s| s[0].bind(cx, &[])));
        let e = match got {
            Ok(plan) => {
                wrong.push(format!("{clean}\n  accepted: {plan:?}"));
                continue;
            }
            Err(e) => e,
        };
        let said = format!("{} {}", e.message(), e.hint_text().unwrap_or_default());
        if e.state().code() != state
            || !said.contains(words)
            || (at.is_some() && e.position() != at)
        {
            wrong.push(format!(
                "{clean}\n  {e} at {:?}, not {state} at {at:?}",
                e.position()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bounds() {
    let state = |sql: &str| error(sql).state().code();
    let name = "n".repeat(128);
    assert_eq!(state(&format!("SELECT {name} FROM tele")), "42622");
    assert_eq!(state(&format!("CREATE TABLE {name} (a INT)")), "42622");
    plan(&format!("CREATE TABLE {} (a INT)", "n".repeat(127)));
    let deep = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(5000), close.repeat(5000))
    };
    for cond in [
        deep("(", "speed = 1", ")"),
        deep("NOT ", "on_off", ""),
        format!("speed = {}", deep("(", "1", ")")),
        format!("speed = {}", deep("- ", "1", "")),
        format!("speed = 1{}", " + 1".repeat(5000)),
        format!("speed = 1{}", "::int".repeat(5000)),
    ] {
        assert_eq!(
            state(&format!("SELECT speed FROM tele WHERE {cond}")),
            "54001"
        );
    }
    for query in [
        deep("SELECT (", "1", ")"),
        format!("SELECT {}", deep("(", "1", ")")),
        format!("SELECT 1{}", " + 1".repeat(5000)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(5000)),
        format!("SELECT {}", deep("CASE WHEN true THEN ", "1", " END")),
        format!("SELECT {}", deep("NOT ", "true", "")),
    ] {
        assert!(matches!(state(&query), "54001"), "{}", &query[..40]);
    }
    for (item, table) in [
        ("speed", "tele"),
        ("*", "tele"),
        ("ts, count(*), avg(speed)", "tele SAMPLE BY 1m"),
        ("xid", "devices"),
        ("*", "devices"),
        ("count(*)", "devices"),
    ] {
        let items = vec![item; 40_000].join(", ");
        assert_eq!(state(&format!("SELECT {items} FROM {table}")), "54000");
    }
    let items = vec!["xid"; 40_000].join(", ");
    for write in [
        "INSERT INTO devices (name) VALUES ('a')",
        "DELETE FROM devices WHERE xid = '0'",
    ] {
        assert_eq!(state(&format!("{write} RETURNING {items}")), "54000");
    }
    // Readings tried one inside the other must not double the work at every level.
    let nested = |open: &str, inner: &str, close: &str| {
        let levels = 60;
        format!(
            "SELECT {}{inner}{}",
            open.repeat(levels),
            close.repeat(levels)
        )
    };
    plan(&nested("abs(", "1", ")"));
    for (open, inner, close) in [
        ("CAST(", "1 +", " AS int)"),
        ("array(", "1 +", ")"),
        ("array[", "1 +", "]"),
        ("interval(", "1 +", ")"),
        ("* FROM (SELECT ", "1 +", ") a"),
        ("* FROM (", "1 +", ")"),
        ("position(", "1 +", " IN 1)"),
        ("1 IN (SELECT ", "1 +", ")"),
    ] {
        let query = nested(open, inner, close);
        let code = state(&query);
        assert!(
            ["42601", "54001"].contains(&code),
            "{code}: {}",
            &query[..40]
        );
    }
    // Wide is not deep.
    let list = vec!["'e'"; 20_000].join(", ");
    plan(&format!("SELECT speed FROM tele WHERE entity IN ({list})"));
    plan(&format!(
        "SELECT speed FROM tele WHERE {}",
        vec!["speed = 1"; 2000].join(" OR ")
    ));
    plan(&format!(
        "SELECT 1 WHERE 1 IN ({})",
        vec!["1"; 2000].join(", ")
    ));
}
