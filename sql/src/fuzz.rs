//! An entry for fuzzers, and the fixed catalog that it and the tests bind against: whatever the bytes, the
//! front answers with plans or errors.

use crate::bind::BindContext;
use crate::catalog::SystemContext;
use crate::parser::parse;
use crate::plan::Plan;
use crate::types::Datum;
use std::sync::Arc;
use strandline_core::error::Error;
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::limits::Limits;
use strandline_core::schema::{Catalog, ColumnDef, Family, Fill, Label, TableDef};

/// The time of all statements: 2026-01-01T10:00:00Z.
pub const NOW: i64 = 1_767_261_600_000;

/// A timeseries table, one WITH (ENTITY UUID), a rows table.
pub fn catalog() -> Catalog {
    let columns = |list: &[(&str, Label, Fill)]| {
        list.iter()
            .enumerate()
            .map(|(i, (name, label, fill))| ColumnDef {
                id: ColumnId(64 + i as u32),
                name: (*name).to_owned(),
                label: *label,
                fill: *fill,
                declared: true,
            })
            .collect::<Vec<_>>()
    };
    let table = |id, name: &str, family, columns: Vec<ColumnDef>, entity_uuid| {
        Arc::new(TableDef {
            id: TableId(id),
            name: name.to_owned(),
            family,
            next_column: ColumnId(64 + columns.len() as u32),
            columns,
            entity_uuid,
            options: Default::default(),
        })
    };
    let hold = Fill::Hold {
        staleness_ms: Some(60_000),
    };
    Catalog::new(
        1,
        [
            table(
                1,
                "tele",
                Family::Timeseries,
                columns(&[
                    ("speed", Label::Double, hold),
                    ("event", Label::TEXT, Fill::None),
                    ("gear", Label::Int, Fill::None),
                    ("on_off", Label::Bool, Fill::None),
                    ("seen", Label::Timestamp, Fill::None),
                ]),
                false,
            ),
            table(
                2,
                "ids",
                Family::Timeseries,
                columns(&[("v", Label::Double, Fill::None)]),
                true,
            ),
            table(
                3,
                "devices",
                Family::Rows,
                columns(&[
                    ("name", Label::TEXT, Fill::None),
                    ("model", Label::Text { max_chars: Some(4) }, Fill::None),
                    ("active", Label::Bool, Fill::None),
                    ("size", Label::Int, Fill::None),
                    ("born", Label::Timestamp, Fill::None),
                ]),
                false,
            ),
            table(
                4,
                "log",
                Family::Rows,
                columns(&[
                    ("ts", Label::Timestamp, Fill::None),
                    ("entity", Label::TEXT, Fill::None),
                ]),
                false,
            ),
            mutable(table(
                5,
                "state",
                Family::Timeseries,
                columns(&[
                    ("name", Label::TEXT, Fill::None),
                    ("n", Label::Int, Fill::None),
                    ("up", Label::Bool, Fill::None),
                ]),
                false,
            )),
        ],
    )
}

fn mutable(mut table: Arc<TableDef>) -> Arc<TableDef> {
    Arc::make_mut(&mut table).options.mutable = true;
    table
}

/// Calls `f` with that catalog, the default limits and two shards.
pub fn with_context<T>(f: impl FnOnce(&BindContext<'_>) -> T) -> T {
    let catalog = catalog();
    let limits = Limits::default();
    f(&BindContext {
        catalog: &catalog,
        limits: &limits,
        shards: 2,
        now_ms: NOW,
        insert_returns_none: false,
    })
}

/// Parses, describes and binds whatever the bytes say as text, and answers questions about the catalog.
///
/// # Panics
/// When an error's position lies outside the text.
pub fn entry(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let end = text.chars().count() as u32 + 1;
    let check = |e: &Error| {
        assert!(
            e.position().is_none_or(|p| (1..=end).contains(&p)),
            "{e} at {:?} of {end}",
            e.position()
        );
    };
    with_context(|cx| match parse(&text, cx.limits) {
        Err(e) => check(&e),
        Ok(statements) => {
            for s in &statements {
                let params = [
                    Datum::Int(7),
                    Datum::Text {
                        text: "x".to_owned(),
                        unknown: true,
                    },
                    Datum::Null,
                ];
                if let Err(e) = s.describe(cx, &[]) {
                    check(&e);
                }
                match s.bind(cx, &params) {
                    Err(e) => check(&e),
                    Ok(Plan::System(query)) => {
                        let limits = Limits {
                            catalog_rows: 20_000,
                            ..cx.limits.clone()
                        };
                        let asked = SystemContext::bare(cx.catalog, &limits, cx.now_ms);
                        if let Ok(answer) = query.run(&asked) {
                            let width = answer.columns.len();
                            assert!(answer.rows.iter().all(|r| r.len() == width));
                        }
                    }
                    Ok(_) => {}
                }
                assert!(text.contains(s.text()));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strandline_core::stream::batch::BatchCells;
    use strandline_core::value::Value;

    /// Words from which statements and near-statements are made.
    const WORDS: &[&str] = &[
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
        "state",
        "$sys.tables",
        "pg_class",
        "pg_attribute a",
        "(VALUES (1, 'a')) t(x, y)",
        "JOIN",
        "LEFT JOIN",
        "ON",
        "x",
        "oid",
        "relname",
        "count(*)",
        "EXISTS (SELECT 1",
        "UNION",
        "lower(",
        "::regclass",
        "information_schema.tables",
        "entity",
        "ts",
        "$timestamp",
        "speed",
        "event",
        "gear",
        "on_off",
        "xid",
        "x_rev",
        "x_deleted",
        "name",
        "size",
        "count",
        "avg",
        "max",
        "now()",
        "today",
        "(",
        ")",
        "(",
        ")",
        ",",
        ",",
        ";",
        ".",
        "*",
        "+",
        "-",
        "/",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "::",
        "||",
        "~",
        "[",
        "]",
        "$1",
        "$2",
        "$3",
        "1",
        "2.5",
        "1e3",
        "-7",
        "9223372036854775807",
        "99999999999999999999",
        "1e999",
        "5 m",
        "60 s",
        "1h30m",
        "1 month",
        "2026-01-01",
        "2026-01-01T10:00:00.250Z",
        "'a'",
        "'it''s'",
        "E'\\n'",
        "$$q$$",
        "'2026-01-01'",
        "'019f31db000000000000000000000001'",
        "true",
        "false",
        "int",
        "text",
        "DOUBLE",
        "\"Q q\"",
        "é",
        "--x\n",
        "/* c */",
        "DESC",
        "NULLS FIRST",
        "SET name =",
        "COLLATE",
        "ARRAY",
        "ROW",
    ];

    /// Whole statements, for cutting and splicing.
    const SEEDS: &[&str] = &[
        "SELECT speed, event FROM tele WHERE entity = 'veh-1' AND ts BETWEEN 2026-01-01 AND now() - 1h ORDER BY ts LIMIT 5",
        "SELECT entity, ts, avg(speed), last(event) FROM tele IN RANGE (2026-01-01, +1day) SAMPLE BY 5 m FILL(LINEAR)",
        "SELECT * FROM tele WHERE ts <= $1 LATEST ON ts PARTITION BY entity",
        "SELECT n, count(*) FROM state WHERE NOT (ts IN ($1, 5) OR entity > 'b') AND up ORDER BY name",
        "DELETE FROM state WHERE entity = $1",
        "INSERT INTO tele (entity, ts, speed, event) VALUES ('a', $1, -1.5, 'é'), ('b', 2026-01-01T10:00:00, NULL, E'\\t')",
        "UPDATE devices SET name = 'x', size = $1 WHERE xid = '019f31db000000000000000000000001' AND x_rev = 3 RETURNING *",
        "SELECT name, x_rev FROM devices WHERE x_rev > 5 ORDER BY born DESC NULLS LAST LIMIT $1 OFFSET 2",
        "CREATE TABLE t (a DOUBLE FILL HOLD STALENESS 60 s, \"B\" VARCHAR(5)) WITH (ENTITY UUID)",
        "WITH x AS (SELECT c.relname, CASE WHEN c.relkind = 'r' THEN 1 ELSE 2 END FROM pg_class c) SELECT * FROM x",
        "SELECT s, count(*), string_agg(n::text, '+' ORDER BY n) FROM (VALUES ('a', 1), ('b', 2)) t(s, n) GROUP BY s HAVING count(*) > 1 UNION ALL SELECT 'x', 1, NULL",
        "SELECT x, (SELECT max(y) FROM generate_series(1, 5) y WHERE y <= x) FROM (VALUES (1)) t(x) LEFT JOIN LATERAL unnest(ARRAY['q']) u ON true",
        "SELECT a, sum(b) OVER (PARTITION BY c) FROM tele JOIN ids USING (entity) GROUP BY 1 HAVING count(*) > 1",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_answered(text in "\\PC{0,80}") {
            entry(text.as_bytes());
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            entry(&bytes);
        }

        #[test]
        fn any_words_are_answered(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..30)) {
            entry(words.join(" ").as_bytes());
        }

        #[test]
        fn a_cut_or_spliced_statement_is_answered(
            a in proptest::sample::select(SEEDS),
            b in proptest::sample::select(SEEDS),
            word in proptest::sample::select(WORDS),
            cut in 0usize..200,
            from in 0usize..200,
        ) {
            let head: String = a.chars().take(cut).collect();
            let tail: String = b.chars().skip(from).collect();
            entry(format!("{head} {word} {tail}").as_bytes());
            entry(format!("{head}{tail}").as_bytes());
            entry(head.as_bytes());
        }

        /// What a client quotes as PostgreSQL says comes out as it went in.
        #[test]
        fn values_survive(text in "[^\\x00]{0,20}", number in any::<f64>().prop_filter("finite", |n| n.is_finite()), ts in 0i64..9_223_372_036_854) {
            let sql = format!(
                "INSERT INTO tele (entity, ts, speed, event) VALUES ('e', {ts}, {number:?}, '{}')",
                text.replace('\'', "''")
            );
            let plan = with_context(|cx| parse(&sql, cx.limits).unwrap()[0].bind(cx, &[])).unwrap();
            let Plan::InsertStream { batches, .. } = plan else { panic!() };
            let batch = &batches[0].1;
            prop_assert_eq!(batch.ts[0], ts);
            let cells: Vec<Value> = batch
                .columns
                .iter()
                .map(|c| match &c.cells {
                    BatchCells::F64(v) => Value::F64(v[0]),
                    BatchCells::Str(v) => Value::str(v.get(0)),
                })
                .collect();
            prop_assert_eq!(cells, vec![Value::F64(number), Value::str(text)]);
        }
    }
}
