//! The SQL front: parse, describe, bind, and questions about the catalog.

use crate::fuzz::{Outcome, Target};
use strandline_sql::fuzz::{entry, with_context};
use strandline_sql::parse;

const TOKENS: &[&str] = &[
    "SELECT",
    "INSERT INTO",
    "UPDATE",
    "DELETE FROM",
    "CREATE TABLE",
    "CREATE ROWS TABLE",
    "DROP TABLE",
    "SHOW",
    "SET",
    "BEGIN",
    "COMMIT",
    "VACUUM",
    "CHECKPOINT",
    "PREPARE p AS",
    "EXECUTE p",
    "FROM",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "IS",
    "NULL",
    "BETWEEN",
    "IN",
    "RANGE",
    "LATEST ON ts PARTITION BY entity",
    "SAMPLE BY",
    "FILL",
    "PREV",
    "LINEAR",
    "ORDER BY",
    "GROUP BY",
    "LIMIT",
    "OFFSET",
    "RAW",
    "VALUES",
    "RETURNING",
    "ON CONFLICT",
    "AS",
    "CASE",
    "WHEN",
    "WITH",
    "UNION",
    "JOIN",
    "HAVING",
    "DISTINCT",
    "EXISTS",
    "CAST",
    "TIMESTAMP",
    "INTERVAL",
    "tele",
    "devices",
    "ids",
    "log",
    "$sys.tables",
    "pg_class",
    "pg_attribute",
    "count(*)",
    "lower(",
    "::regclass",
    "entity",
    "ts",
    "speed",
    "event",
    "gear",
    "on_off",
    "xid",
    "x_rev",
    "x_deleted",
    "name",
    "size",
    "avg",
    "max",
    "now()",
    "(",
    ")",
    "((((((((",
    ",",
    ";",
    ".",
    "*",
    "+",
    "-",
    "/",
    "=",
    "<>",
    "<=",
    "::",
    "||",
    "~",
    "[",
    "]",
    "$1",
    "$2",
    "$99999",
    "1",
    "2.5",
    "1e999",
    "-7",
    "9223372036854775807",
    "99999999999999999999",
    "5 m",
    "60 s",
    "1 month",
    "2026-01-01",
    "2026-01-01T10:00:00.250Z",
    "'a'",
    "'it''s'",
    "E'\\n'",
    "E'\\u00",
    "$$q$$",
    "$x$",
    "'2026-01-01'",
    "'019f31db000000000000000000000001'",
    "true",
    "int",
    "text",
    "DOUBLE",
    "\"Q q\"",
    "\"",
    "'",
    "é",
    "\u{10FFFF}",
    "--x\n",
    "/* c */",
    "/*",
    "DESC",
    "NULLS FIRST",
    "generate_series(1, 100000)",
    "repeat('x', 1000000000)",
    "ARRAY",
    "ROW",
    "\0",
];

const STATEMENTS: &[&str] = &[
    "SELECT speed, event FROM tele WHERE entity = 'veh-1' AND ts BETWEEN 2026-01-01 AND now() - 1h ORDER BY ts LIMIT 5",
    "SELECT entity, ts, avg(speed), last(event) FROM tele IN RANGE (2026-01-01, +1day) SAMPLE BY 5 m FILL(LINEAR)",
    "SELECT * FROM tele WHERE ts <= $1 LATEST ON ts PARTITION BY entity",
    "SELECT RAW speed FROM tele WHERE entity IN ('a', 'b') AND (speed > 3 OR NOT event = 'x')",
    "INSERT INTO tele (entity, ts, speed, event) VALUES ('a', $1, -1.5, 'é'), ('b', 2026-01-01T10:00:00, NULL, E'\\t')",
    "INSERT INTO devices (name, size) VALUES ('x', 1) RETURNING xid, x_rev",
    "UPDATE devices SET name = 'x', size = $1 WHERE xid = '019f31db000000000000000000000001' AND x_rev = 3 RETURNING *",
    "DELETE FROM devices WHERE xid = '019f31db000000000000000000000001'",
    "SELECT name, x_rev FROM devices WHERE x_rev > 5 ORDER BY born DESC NULLS LAST LIMIT $1 OFFSET 2",
    "CREATE TABLE t (a DOUBLE FILL HOLD STALENESS 60 s, \"B\" VARCHAR(5)) WITH (ENTITY UUID)",
    "CREATE ROWS TABLE IF NOT EXISTS r (a INT, b BOOL, c TIMESTAMP, d TEXT)",
    "BEGIN; SHOW TABLES; SHOW FEED devices; SET statement_timeout = 5; COMMIT",
    "PREPARE p AS SELECT name FROM devices WHERE size > $1; EXECUTE p (3); DEALLOCATE p",
    "SELECT n.nspname, c.relname, CASE c.relkind WHEN 'r' THEN 'table' END FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', '') AND n.nspname !~ '^pg_toast' ORDER BY 1, 2",
    "WITH x AS (SELECT c.relname FROM pg_class c) SELECT count(*), max(relname) FROM x GROUP BY 1 HAVING count(*) > 0",
    "SELECT s, string_agg(n::text, '+' ORDER BY n) FROM (VALUES ('a', 1), ('b', 2)) t(s, n) GROUP BY s UNION ALL SELECT 'x', NULL",
    "SELECT 1 + 2 * -3, 'a' || 'b', coalesce(NULL, 'x'), '12'::int, substring('abc' from 2 for 1), now()",
];

#[test]
fn statements() {
    Target {
        name: "sql statements",
        corpus: STATEMENTS.iter().map(|s| s.as_bytes().to_vec()).collect(),
        tokens: TOKENS,
        mend: None,
        memory: (64 << 20, 4096),
        run: &|input| {
            entry(input);
            let text = String::from_utf8_lossy(input);
            with_context(|cx| match parse(&text, cx.limits) {
                Err(e) => Outcome::error(e.message()),
                Ok(statements) => {
                    let bound: Vec<String> = statements
                        .iter()
                        .take(3)
                        .map(|s| match s.bind(cx, &[]) {
                            Ok(plan) => format!("{plan:?}")
                                .chars()
                                .take_while(|c| c.is_alphanumeric())
                                .collect(),
                            Err(e) => e
                                .message()
                                .chars()
                                .filter(|c| !c.is_ascii_digit())
                                .take(30)
                                .collect(),
                        })
                        .collect();
                    Outcome::of(bound)
                }
            })
        },
    }
    .fuzz();
}
