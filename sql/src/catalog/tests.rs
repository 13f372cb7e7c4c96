//! Questions and what they answer: the literal queries of psql 15, and the shapes of SQL that the evaluator
//! knows, over the catalog of `bind`'s tests.

use super::*;
use crate::bind::BindContext;
use crate::fuzz::{NOW, catalog};
use crate::parse;
use crate::plan::Plan;
use strandline_core::error::{Error, SqlState};

/// What psql 15 sends for its backslash commands, a query a paragraph, as `psql -E` shows them.
const PSQL: &str = include_str!("psql15_queries.txt");

fn context<'a>(catalog: &'a Catalog, limits: &'a Limits) -> SystemContext<'a> {
    let text = |t: &str| Datum::Text {
        text: t.into(),
        unknown: false,
    };
    SystemContext {
        database: "main",
        user: "ada",
        version: "PostgreSQL 15.0 (Strandline)",
        settings: vec![("timezone".into(), "UTC".into(), "Time zone.".into())],
        backend_pid: 7,
        shards: SystemAnswer {
            columns: vec![("shard".into(), SqlType::Int8)],
            rows: vec![vec![Datum::Int(0)], vec![Datum::Int(1)]],
        },
        tables: SystemAnswer {
            columns: ["name", "rows", "segment_bytes", "memtable_bytes"]
                .iter()
                .zip([SqlType::Text, SqlType::Int8, SqlType::Int8, SqlType::Int8])
                .map(|(n, t)| ((*n).to_owned(), t))
                .collect(),
            rows: vec![vec![
                text("tele"),
                Datum::Int(3),
                Datum::Int(9000),
                Datum::Int(24),
            ]],
        },
        ..SystemContext::bare(catalog, limits, NOW)
    }
}

fn question(sql: &str, params: &[Datum]) -> Result<SystemQuery> {
    let (catalog, limits) = (catalog(), Limits::default());
    let cx = BindContext {
        catalog: &catalog,
        limits: &limits,
        shards: 2,
        now_ms: NOW,
        insert_returns_none: false,
    };
    let statements = parse(sql, &limits)?;
    match statements[0].bind(&cx, params)? {
        Plan::System(query) => Ok(*query),
        other => panic!("{sql}: {other:?}"),
    }
}

fn answer_with(sql: &str, params: &[Datum]) -> Result<SystemAnswer> {
    let query = question(sql, params)?;
    let (catalog, mut limits) = (catalog(), Limits::default());
    // A question of psql's stays far below the default; what runs away is stopped sooner here.
    limits.catalog_rows = 100_000;
    let cx = context(&catalog, &limits);
    let answer = query.run(&cx)?;
    assert_eq!(query.describe(&cx)?, answer.columns, "{sql}");
    for row in &answer.rows {
        assert_eq!(row.len(), answer.columns.len(), "{sql}");
    }
    Ok(answer)
}

fn shown(d: &Datum) -> String {
    match d {
        Datum::Null => "NULL".into(),
        Datum::Bool(b) => b.to_string(),
        Datum::Int(i) | Datum::Timestamp(i) => i.to_string(),
        Datum::Float(f) => f.to_string(),
        Datum::Text { text, .. } => text.clone(),
    }
}

/// The rows, cells apart by `|`.
fn rows(sql: &str) -> Vec<String> {
    let answer = answer_with(sql, &[]).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let row = |r: &Vec<Datum>| r.iter().map(shown).collect::<Vec<_>>().join("|");
    answer.rows.iter().map(row).collect()
}

fn one(sql: &str) -> String {
    let rows = rows(sql);
    assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
    rows.into_iter().next().unwrap()
}

fn fails(sql: &str) -> SqlState {
    answer_with(sql, &[])
        .map(|a| panic!("{sql}: {a:?}"))
        .unwrap_err()
        .state()
}

#[test]
fn what_psql_asks() {
    let mut failed = Vec::new();
    for query in PSQL.split("\n\n") {
        // The table that they were recorded with, as it is numbered here.
        let query = &query.replace("16384", "16385").replace("vehicles", "tele");
        if let Err(e) = answer_with(query, &[]) {
            failed.push(format!("{e}\n{query}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    let about = PSQL
        .split("\n\n")
        .find(|q| q.starts_with("SELECT c.relchecks"))
        .unwrap();
    assert_eq!(
        one(&about.replace("16384", "16385")),
        "0|r|false|false|false|false|false|false|false||0||p|d|heap"
    );
}

#[test]
fn psql_lists_tables() {
    let list = PSQL.split("\n\n").next().unwrap();
    let answer = answer_with(list, &[]).unwrap();
    let names: Vec<&str> = answer.columns.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["Schema", "Name", "Type", "Owner"]);
    assert!(rows(list).contains(&"public|tele|table|ada".to_owned()));
    assert!(rows(list).iter().all(|r| r.starts_with("public|")));
}

#[test]
fn psql_describes_a_table() {
    let oid = one(
        "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
              LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relname OPERATOR(pg_catalog.~) '^(tele)$' COLLATE pg_catalog.default
           AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3",
    );
    assert_eq!(oid, "16385|public|tele");
    let columns = rows(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
           (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d
            WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull,
           (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t
            WHERE c.oid = a.attcollation AND t.oid = a.atttypid
              AND a.attcollation <> t.typcollation) AS attcollation, a.attidentity, a.attgenerated
         FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = '16385' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    );
    assert_eq!(columns[0], "entity|text|NULL|true|NULL||");
    assert_eq!(columns[1], "ts|bigint|NULL|true|NULL||");
    assert_eq!(columns[2], "speed|double precision|NULL|false|NULL||");
    assert_eq!(
        columns[6],
        "seen|timestamp with time zone|NULL|false|NULL||"
    );
    assert_eq!(columns.len(), 7);
}

#[test]
fn catalog_of_strandline() {
    assert_eq!(
        rows("SELECT shard FROM $sys.shards ORDER BY shard DESC"),
        ["1", "0"]
    );
    assert_eq!(
        one(
            "SELECT name, family, columns, rows, bytes, partition_by FROM $sys.tables WHERE name = 'tele'"
        ),
        "tele|timeseries|7|3|9024|NULL"
    );
    assert_eq!(
        rows("SHOW TABLE tele")[..3],
        [
            "entity|TEXT|NULL|NULL|entity",
            "ts|INT|NULL|NULL|time",
            "speed|DOUBLE|HOLD|1 min|channel"
        ]
    );
    assert_eq!(rows("SHOW TABLES").len(), catalog().len());
    assert_eq!(
        one("SELECT column_name FROM information_schema.columns
             WHERE table_schema = 'public' AND table_name = 'tele' AND data_type = 'boolean'"),
        "on_off"
    );
    assert_eq!(
        one("SELECT pg_size_pretty(pg_table_size('tele'::regclass))"),
        "9000 bytes"
    );
    let (catalog, limits) = (catalog(), Limits::default());
    let named = |sql: &str| {
        let named = question(sql, &[])
            .unwrap()
            .named(&context(&catalog, &limits))
            .unwrap();
        named.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        named("SELECT 1 WHERE EXISTS (SELECT 1 FROM $sys.shards)"),
        "$sys.shards"
    );
    assert_eq!(
        named("SELECT pg_table_size(oid) FROM pg_class"),
        "$sys.tables"
    );
    assert_eq!(named("SELECT relname FROM pg_class"), "");
}

#[test]
fn expressions() {
    for (sql, expected) in [
        ("SELECT 1", "1"),
        (
            "SELECT 1 + 2 * 3, 7 / 2, 7 % 4, -7 / 2.0, 7 & 3",
            "7|3|3|-3.5|3",
        ),
        ("SELECT 'a' || 1 || NULL, 'a' || 'b' || 3::text", "NULL|ab3"),
        (
            "SELECT NULL AND false, NULL AND true, NULL OR true, NOT NULL::bool",
            "false|NULL|true|NULL",
        ),
        (
            "SELECT 1 IN (2, NULL), 1 IN (1, NULL), 3 NOT IN (1, 2)",
            "NULL|true|true",
        ),
        (
            "SELECT NULL = NULL, NULL IS NULL, NULL IS DISTINCT FROM 1",
            "NULL|true|true",
        ),
        (
            "SELECT 'abc' LIKE 'a%', 'aXc' ILIKE 'A_C', 'a%b' LIKE 'a\\%b', 'x' NOT LIKE 'y'",
            "true|true|true|true",
        ),
        (
            "SELECT 'abc' ~ '^A', 'abc' ~* '^A', 'abc' !~ 'b'",
            "false|true|false",
        ),
        (
            "SELECT CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' END, CASE WHEN false THEN 1 END",
            "b|NULL",
        ),
        (
            "SELECT coalesce(NULL, 'x'), nullif(1, 1), nullif(1, 2), greatest(1, NULL, 3)",
            "x|NULL|1|3",
        ),
        (
            "SELECT '12'::int + 1, 1.5::int, 2.5::int, 't'::bool, 1::text || 'x'",
            "13|2|2|true|1x",
        ),
        (
            "SELECT 'tele'::regclass, 'tele'::regclass::oid, 16385::regclass::text",
            "tele|16385|tele",
        ),
        (
            "SELECT 'integer'::regtype, 23::regtype, 'pg_class'::regclass::oid",
            "integer|integer|1259",
        ),
        (
            "SELECT lower('AbC'), upper('x'), length('日本'), replace('aba', 'a', 'c')",
            "abc|X|2|cbc",
        ),
        (
            "SELECT substring('hello' FROM 2 FOR 3), substr('hello', 4), left('abc', -1)",
            "ell|lo|ab",
        ),
        (
            "SELECT position('l' IN 'hello'), trim('  x '), split_part('a,b', ',', 2)",
            "3|x|b",
        ),
        (
            "SELECT quote_ident('Ab'), quote_ident('ab'), quote_literal('it''s')",
            "\"Ab\"|ab|'it''s'",
        ),
        (
            "SELECT array_to_string(ARRAY['a', NULL, 'b'], ','), ARRAY[1, 2]",
            "a,b|{1,2}",
        ),
        (
            "SELECT 2 = ANY (ARRAY[1, 2]), 2 = ALL (ARRAY[1, 2]), 'a' = ANY ('{a,b}')",
            "true|false|true",
        ),
        (
            "SELECT (ARRAY['a', 'b'])[2], array_upper(ARRAY[1, 2, 3], 1)",
            "b|3",
        ),
        (
            "SELECT ARRAY(SELECT x FROM (VALUES (2), (1)) v(x) ORDER BY 1)",
            "{1,2}",
        ),
        (
            "SELECT current_database(), current_schema(), current_user, user, pg_backend_pid()",
            "main|public|ada|ada|7",
        ),
        (
            "SELECT current_schemas(true), current_setting('TimeZone')",
            "{pg_catalog,public}|UTC",
        ),
        (
            "SELECT format_type(1043, 14), format_type(0, NULL), format_type(1009, -1)",
            "character varying(10)|NULL|text[]",
        ),
        (
            "SELECT to_timestamp(1), now() = current_timestamp",
            "1000|true",
        ),
        (
            "SELECT abs(-3), round(2.5), floor(2.7), ceil(2.1), 5 BETWEEN 1 AND 5",
            "3|2|2|3|true",
        ),
        ("SELECT (1, 2) = (1, 2), 1 <> 2, (SELECT 5)", "true|true|5"),
        (
            "SELECT 'abcdef'::varchar(3), CAST('x' AS pg_catalog.text), int '4'",
            "abc|x|4",
        ),
        (
            "SELECT format('%I.%s=%L', 'Q', 1, 'x'), concat('a', 1, NULL)",
            "\"Q\".1='x'|a1",
        ),
        (
            "SELECT 9007199254740993, 0.1 + 0.2",
            "9007199254740993|0.30000000000000004",
        ),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
    assert!(one("SELECT version()").contains("Strandline"));
}

#[test]
fn questions() {
    for (sql, expected) in [
        ("VALUES (1, 'a'), (2, 'b') ORDER BY 1 DESC", &["2|b", "1|a"][..]),
        ("SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t(n, s) WHERE s IS NOT NULL", &["1|a"]),
        ("SELECT n FROM generate_series(1, 5) n WHERE n % 2 = 1 ORDER BY n LIMIT 2 OFFSET 1", &["3", "5"]),
        ("SELECT a, b FROM generate_series(1, 2) a, generate_series(a, 2) b", &["1|1", "1|2", "2|2"]),
        (
            "SELECT a.x, b.y FROM (VALUES (1), (2)) a(x) LEFT JOIN (VALUES (2, 'b')) b(x, y) ON a.x = b.x ORDER BY 1",
            &["1|NULL", "2|b"],
        ),
        (
            "SELECT a.x, b.x FROM (VALUES (1), (2)) a(x) FULL JOIN (VALUES (2), (3)) b(x) ON a.x = b.x ORDER BY 1, 2",
            &["1|NULL", "2|2", "NULL|3"],
        ),
        ("SELECT x, y FROM (VALUES (1, 2)) a(x, y) JOIN (VALUES (1)) b(x) USING (x)", &["1|2"]),
        (
            "SELECT s, count(*), sum(n), min(n), max(n), avg(n), string_agg(n::text, '+' ORDER BY n DESC)
             FROM (VALUES ('a', 1), ('b', 5), ('a', 3)) t(s, n) GROUP BY s HAVING count(*) > 1",
            &["a|2|4|1|3|2|3+1"],
        ),
        ("SELECT count(*), sum(n), count(DISTINCT n) FROM (VALUES (1), (1), (NULL)) t(n)", &["3|2|1"]),
        ("SELECT count(*), max(n) FROM (VALUES (1)) t(n) WHERE false", &["0|NULL"]),
        ("SELECT DISTINCT n FROM (VALUES (2), (1), (2)) t(n) ORDER BY n", &["1", "2"]),
        ("SELECT 1 UNION SELECT 1 UNION ALL SELECT 2 ORDER BY 1", &["1", "2"]),
        ("SELECT 1 UNION ALL SELECT 2.5", &["1", "2.5"]),
        ("SELECT n FROM generate_series(1, 3) n EXCEPT SELECT 2 ORDER BY 1", &["1", "3"]),
        ("(SELECT 1 AS a ORDER BY 1 LIMIT 1) UNION ALL (SELECT 2)", &["1", "2"]),
        ("WITH t AS (SELECT 1 AS n), u(m) AS (SELECT n + 1 FROM t) SELECT n, m FROM t, u", &["1|2"]),
        ("SELECT x FROM (VALUES (1), (2)) t(x) WHERE EXISTS (SELECT 1 FROM (VALUES (2)) u(y) WHERE y = x)", &["2"]),
        ("SELECT (SELECT max(y) FROM (VALUES (1), (2)) u(y) WHERE y <= x) FROM (VALUES (1), (9)) t(x)", &["1", "2"]),
        ("SELECT x FROM (VALUES (1), (2), (NULL)) t(x) WHERE x NOT IN (SELECT 1) ORDER BY 1", &["2"]),
        ("SELECT x FROM (VALUES (1), (2), (NULL)) t(x) ORDER BY x DESC NULLS LAST", &["2", "1", "NULL"]),
        ("SELECT t.x + 1 AS y FROM (VALUES (1)) t(x) ORDER BY y", &["2"]),
        ("SELECT u.* FROM (VALUES (1)) t(x) CROSS JOIN LATERAL (SELECT x + 1 AS z) u", &["2"]),
        ("SELECT d.datname, t.spcname FROM pg_database d JOIN pg_tablespace t ON d.dattablespace = t.oid", &["main|pg_default"]),
        ("SELECT x FROM unnest(ARRAY['a', 'b']) AS t(x) WHERE x > 'a'", &["b"]),
        ("SELECT count(*) FROM pg_class a JOIN pg_class b ON a.oid = b.oid WHERE a.relname = 'tele'", &["1"]),
    ] {
        assert_eq!(rows(sql), expected, "{sql}");
    }
}

#[test]
fn types_are_postgresqls() {
    let types = |sql: &str| -> Vec<SqlType> {
        answer_with(sql, &[])
            .unwrap()
            .columns
            .into_iter()
            .map(|(_, t)| t)
            .collect()
    };
    use SqlType::*;
    assert_eq!(
        types("SELECT 1, 5000000000, 1.5, 'x', true, NULL, now(), current_user, ARRAY['a']"),
        [
            Int4,
            Int8,
            Float8,
            Text,
            Bool,
            Text,
            Timestamptz,
            Name,
            TextArray
        ]
    );
    assert_eq!(
        types(
            "SELECT oid, relname, relkind, relnatts, relchecks = 0, count(*) FROM pg_class GROUP BY 1, 2, 3, 4, 5"
        ),
        [Oid, Name, Char, Int2, Bool, Int8]
    );
    let names = answer_with("SELECT 1, lower('x'), 1::int, 'a' AS \"B\", version()", &[]).unwrap();
    let names: Vec<&str> = names.columns.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["?column?", "lower", "int4", "B", "version"]);
}

#[test]
fn parameters() {
    let (catalog, limits) = (catalog(), Limits::default());
    let cx = BindContext {
        catalog: &catalog,
        limits: &limits,
        shards: 2,
        now_ms: NOW,
        insert_returns_none: false,
    };
    let describe = |sql: &str| parse(sql, &limits).unwrap()[0].describe(&cx, &[]).unwrap();
    let d = describe("SELECT $1::int + 1, relname FROM pg_class WHERE oid = $2 AND relname ~ $3");
    assert_eq!(d.parameters, [SqlType::Int4, SqlType::Oid, SqlType::Text]);
    let columns = d.columns.unwrap();
    assert_eq!((columns[0].1, columns[1].1), (SqlType::Int4, SqlType::Name));
    // The columns of these are the session's to tell.
    assert_eq!(describe("SELECT * FROM $sys.shards").columns, None);
    let text = |s: &str| Datum::Text {
        text: s.into(),
        unknown: true,
    };
    for param in [Datum::Int(4), text("4")] {
        let answer = answer_with("SELECT $1::int + 1", &[param]).unwrap();
        assert_eq!(answer.rows, [[Datum::Int(5)]]);
        assert_eq!(answer.columns[0].1, SqlType::Int4);
    }
    let answer = answer_with("SELECT $1 + 1", &[Datum::Int(4)]).unwrap();
    assert_eq!(answer.columns[0].1, SqlType::Int4);
    assert_eq!(
        answer_with("SELECT $1::int", &[text("x")])
            .unwrap_err()
            .state(),
        SqlState::InvalidTextRepresentation
    );
}

#[test]
fn refusals() {
    use SqlState::*;
    for (sql, state) in [
        ("SELECT * FROM pg_catalog.nothing", UndefinedTable),
        ("SELECT * FROM $sys.nothing", UndefinedTable),
        ("SELECT nothing FROM pg_class", UndefinedColumn),
        ("SELECT pg_class.nothing FROM pg_class", UndefinedColumn),
        ("SELECT x.oid FROM pg_class", UndefinedTable),
        ("SELECT oid FROM pg_class a, pg_class b", AmbiguousColumn),
        ("SELECT nothing()", UndefinedFunction),
        ("SELECT lower(1)", UndefinedFunction),
        ("SELECT 'a' = 1", InvalidTextRepresentation),
        ("SELECT relname = 1 FROM pg_class", UndefinedFunction),
        ("SELECT 'nothing'::regclass", UndefinedTable),
        ("SELECT 'nothing'::regtype", UndefinedObject),
        ("SELECT relname, count(*) FROM pg_class", GroupingError),
        ("SELECT 1 FROM pg_class WHERE count(*) > 1", GroupingError),
        ("SELECT sum(count(*)) FROM pg_class", GroupingError),
        ("SELECT 1 / 0", DivisionByZero),
        ("SELECT 2147483647 + 1", NumericOutOfRange),
        ("SELECT 1 WHERE 1", DatatypeMismatch),
        (
            "SELECT CASE WHEN true THEN 1 ELSE true END",
            DatatypeMismatch,
        ),
        ("SELECT 'x' ~ '('", InvalidParameterValue),
        ("SELECT rank() OVER (ORDER BY 1)", FeatureNotSupported),
        (
            "WITH RECURSIVE t AS (SELECT 1) SELECT * FROM t",
            FeatureNotSupported,
        ),
        ("SELECT (SELECT speed FROM tele)", FeatureNotSupported),
        ("SELECT (SELECT oid FROM pg_class)", ProgramLimitExceeded),
        ("SELECT repeat('x', 2000000000)", ProgramLimitExceeded),
        (
            "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
            ProgramLimitExceeded,
        ),
        (
            "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c",
            ProgramLimitExceeded,
        ),
    ] {
        assert_eq!(fails(sql), state, "{sql}");
    }
}

#[test]
fn long_chains_fit_the_stack() {
    let sum = |n: usize| format!("SELECT {}", vec!["1"; n].join(" + "));
    assert_eq!(one(&sum(250)), "250");
    let mut deep = "1".to_owned();
    for _ in 0..20 {
        deep = format!("(SELECT {deep})");
    }
    assert_eq!(one(&format!("SELECT {deep}")), "1");
}

#[test]
fn answers_fit_the_protocol() {
    for item in ["1", "*", "c.*"] {
        let items = vec![item; 40_000].join(", ");
        let state = fails(&format!("SELECT {items} FROM pg_class c"));
        assert_eq!(state, SqlState::ProgramLimitExceeded);
    }
}

#[test]
fn memory_is_bounded() {
    let big = "repeat('a', 15000000)";
    let wide = vec!["1"; 2000].join(", ");
    for sql in [
        format!("SELECT string_agg({big}, '') FROM generate_series(1, 3)"),
        format!("SELECT {big} FROM generate_series(1, 1000)"),
        format!("SELECT count({big}) FROM generate_series(1, 1000)"),
        format!("SELECT array_agg({big}) FROM generate_series(1, 1000)"),
        format!("SELECT {big} || {big}"),
        format!("SELECT concat({big}, {big})"),
        format!("SELECT concat_ws({big}, 1, 2, 3, 4)"),
        format!("SELECT array_to_string(ARRAY[1, 2, 3, 4], {big})"),
        "SELECT regexp_replace(repeat('a', 1000), 'a', repeat('b', 1000000), 'g')".to_owned(),
        "SELECT regexp_replace(repeat('a', 1000000), '(a+)', repeat('\\1', 1000))".to_owned(),
        format!("SELECT * FROM (SELECT {wide}) a, generate_series(1, 90000)"),
        format!("SELECT {wide} FROM generate_series(1, 90000)"),
    ] {
        let shown: String = sql.chars().take(80).collect();
        match answer_with(&sql, &[]) {
            Err(e) => assert_eq!(e.state(), SqlState::ProgramLimitExceeded, "{shown}: {e}"),
            Ok(_) => panic!("{shown} was answered"),
        }
    }
    assert_eq!(
        one("SELECT length(string_agg(repeat('a', 1000), ',')) FROM generate_series(1, 100)"),
        "100099"
    );
    assert_eq!(
        one("SELECT regexp_replace('abcabc', '(b)', '[\\1]', 'g')"),
        "a[b]ca[b]c"
    );
}

#[test]
fn what_drivers_call() {
    assert_eq!(one("SELECT pg_advisory_unlock_all()"), "");
    assert_eq!(
        one("SELECT json_build_object('a', 1, 'b', true, 'c', NULL, 'd', 'x\"y', 'e', 1.5)"),
        r#"{"a" : 1, "b" : true, "c" : null, "d" : "x\"y", "e" : 1.5}"#
    );
    assert_eq!(
        fails("SELECT json_build_object('a')"),
        SqlState::InvalidParameterValue
    );
}

#[test]
fn an_answer_can_be_stopped() {
    let (catalog, limits) = (catalog(), Limits::default());
    let stop = || Err(Error::new(SqlState::QueryCanceled, "stopped"));
    let mut cx = context(&catalog, &limits);
    cx.stop = Stop(Some(&stop));
    let long = question("SELECT count(*) FROM generate_series(1, 90000)", &[]).unwrap();
    let e = long.run(&cx).unwrap_err();
    assert_eq!(e.state(), SqlState::QueryCanceled);
    let short = question("SELECT count(*) FROM pg_type", &[]).unwrap();
    short.run(&cx).unwrap();
}

#[test]
fn arrays_have_one_dimension() {
    for sql in [
        "SELECT ARRAY[ARRAY[1]]",
        "SELECT ARRAY(SELECT ARRAY[1])",
        "SELECT array_agg(conkey) FROM pg_constraint",
    ] {
        assert_eq!(fails(sql), SqlState::FeatureNotSupported, "{sql}");
    }
}
