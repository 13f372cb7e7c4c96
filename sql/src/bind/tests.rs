//! Statements through parse, describe and bind against a fixed catalog: one test per verb and family, and
//! the table of refusals with state, position and words.

use super::*;
use crate::parse;
use crate::plan::{OutputSource, Shape, SortKey, Source, Transaction};
use strandline_core::ids::{ColumnId, Rev, TableId};
use strandline_core::scan::*;
use strandline_core::schema::{ColumnDef, Fill, Label};
use strandline_core::stream::batch::BatchCells;
use strandline_core::value::Value;
use strandline_core::xid::Xid;

/// 2026-01-01T10:00:00Z.
pub(crate) const NOW: i64 = 1_767_261_600_000;

/// A timeseries table, one WITH (ENTITY UUID), a rows table.
pub(crate) fn catalog() -> Catalog {
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
        ],
    )
}

pub(crate) fn with_context<T>(f: impl FnOnce(&BindContext<'_>) -> T) -> T {
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

fn bind_with(sql: &str, params: &[Datum]) -> Result<Plan> {
    with_context(|cx| {
        let mut statements = parse(sql, cx.limits)?;
        assert_eq!(statements.len(), 1, "{sql}");
        let statement = statements.remove(0);
        // Whatever binds can be described, and says the same of its columns.
        let plan = statement.bind(cx, params)?;
        let described = statement
            .describe(cx, &[])
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
        if !matches!(plan, Plan::System(_)) {
            assert_eq!(described.columns, columns(&plan, cx).unwrap(), "{sql}");
        }
        Ok(plan)
    })
}

fn plan(sql: &str) -> Plan {
    bind_with(sql, &[]).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn describe(sql: &str) -> Description {
    with_context(|cx| {
        parse(sql, cx.limits).unwrap()[0]
            .describe(cx, &[])
            .unwrap_or_else(|e| panic!("{sql}: {e}"))
    })
}

fn error(sql: &str) -> Error {
    match bind_with(sql, &[]) {
        Ok(plan) => panic!("{sql} was accepted: {plan:?}"),
        Err(e) => e,
    }
}

fn text(s: &str) -> Datum {
    Datum::Text {
        text: s.to_owned(),
        unknown: true,
    }
}

fn select(sql: &str) -> (Source, Shape) {
    match plan(sql) {
        Plan::Select { source, shape } => (source, shape),
        other => panic!("{sql}: {other:?}"),
    }
}

fn stream(sql: &str) -> (StreamScan, Shape) {
    match select(sql) {
        (Source::Stream(scan), shape) => (scan, shape),
        other => panic!("{sql}: {other:?}"),
    }
}

fn aggregate(sql: &str) -> (StreamAggregate, Shape) {
    match select(sql) {
        (Source::Aggregate(scan), shape) => (scan, shape),
        other => panic!("{sql}: {other:?}"),
    }
}

fn keyed(sql: &str) -> (KeyedScan, Shape) {
    match select(sql) {
        (Source::Keyed(scan), shape) => (scan, shape),
        other => panic!("{sql}: {other:?}"),
    }
}

/// Rows of an INSERT, as (entity, ts, cells) in order of shard.
fn inserted(sql: &str, params: &[Datum]) -> Vec<(String, i64, Vec<(u32, Value)>)> {
    let Plan::InsertStream { batches, rows, .. } =
        bind_with(sql, params).unwrap_or_else(|e| panic!("{sql}: {e}"))
    else {
        panic!("{sql}")
    };
    let mut out = Vec::new();
    for (_, b) in batches {
        for r in 0..b.rows() {
            let cells = b.columns.iter().filter_map(|c| {
                let i = match &c.rows {
                    None => r,
                    Some(list) => list.iter().position(|x| *x as usize == r)?,
                };
                Some((
                    c.id.0,
                    match &c.cells {
                        BatchCells::F64(v) => Value::F64(v[i]),
                        BatchCells::Str(v) => Value::str(v.get(i)),
                    },
                ))
            });
            let mut cells: Vec<_> = cells.collect();
            cells.sort_by_key(|c| c.0);
            let entity = b.entities.get(b.entity_of_row[r] as usize).to_owned();
            out.push((entity, b.ts[r], cells));
        }
    }
    assert_eq!(out.len() as u64, rows);
    out
}

#[test]
fn create_timeseries() {
    let Plan::CreateTable {
        spec,
        if_not_exists,
    } = plan(
        "CREATE TABLE IF NOT EXISTS Telemetry (speed DOUBLE PRECISION FILL HOLD STALENESS 1hour 2min 3s, \
         \"Event\" VARCHAR(8) FILL NONE, n int8, ok boolean, seen timestamptz, s symbol FILL HOLD) WITH (ENTITY UUID)",
    )
    else {
        panic!()
    };
    assert!(if_not_exists && spec.entity_uuid);
    assert_eq!(
        (spec.name.as_str(), spec.family),
        ("telemetry", Family::Timeseries)
    );
    let got: Vec<_> = spec
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.label, c.fill))
        .collect();
    assert_eq!(
        got,
        [
            (
                "speed",
                Label::Double,
                Fill::Hold {
                    staleness_ms: Some(3_723_000)
                }
            ),
            ("Event", Label::Text { max_chars: Some(8) }, Fill::None),
            ("n", Label::Int, Fill::None),
            ("ok", Label::Bool, Fill::None),
            ("seen", Label::Timestamp, Fill::None),
            ("s", Label::TEXT, Fill::Hold { staleness_ms: None }),
        ]
    );
    for spelling in [
        "DOUBLE",
        "FLOAT8",
        "FLOAT",
        "REAL",
        "F64",
        "INT",
        "INTEGER",
        "BIGINT",
        "INT64",
        "SMALLINT",
        "BOOL",
        "TIMESTAMP",
        "TEXT",
        "STRING",
        "VARCHAR",
    ] {
        plan(&format!(
            "CREATE TABLE t (c {spelling} STALENESS 5 FILL HOLD)"
        ));
    }
    plan("CREATE TABLE t ()");
    plan("CREATE TABLE t (x_rev INT, timestamp TIMESTAMP, value TEXT, date TEXT)");
}

#[test]
fn create_rows_and_drop() {
    let Plan::CreateTable { spec, .. } =
        plan("create rows table devices (name text, ts timestamp, entity text)")
    else {
        panic!()
    };
    assert_eq!((spec.family, spec.columns.len()), (Family::Rows, 3));
    assert!(matches!(
        plan("DROP TABLE IF EXISTS a, public.\"B\" CASCADE"),
        Plan::DropTables { names, if_exists: true } if names == ["a", "B"]
    ));
}

#[test]
fn insert_stream() {
    let rows = inserted(
        "INSERT INTO tele (entity, ts, speed, event, gear) VALUES ('a', 1000, 1.5, 'it''s', NULL), \
         ('b', 2026-01-01T10:00:00.250, -2, NULL, '7'), (E'c\\n', now() - 1 h, NULL, $1, 9.0), \
         ('d', today + 1hour 30min, '3', NULL, 1+1)",
        &[text("x")],
    );
    let find = |e: &str| rows.iter().find(|r| r.0 == e).unwrap().clone();
    assert_eq!(
        find("a"),
        (
            "a".into(),
            1000,
            vec![(64, Value::F64(1.5)), (65, Value::str("it's"))]
        )
    );
    assert_eq!(
        find("b"),
        (
            "b".into(),
            NOW + 250,
            vec![(64, Value::F64(-2.0)), (66, Value::F64(7.0))]
        )
    );
    assert_eq!(
        find("c\n"),
        (
            "c\n".into(),
            NOW - 3_600_000,
            vec![(65, Value::str("x")), (66, Value::F64(9.0))]
        )
    );
    assert_eq!(find("d").1, NOW - 10 * 3_600_000 + 5_400_000);
    // Without a list: entity, ts, channels in order.
    assert_eq!(
        inserted(
            "INSERT INTO tele VALUES ('a', '2026-01-01 10:00:00Z', 5)",
            &[]
        ),
        [("a".to_owned(), NOW, vec![(64, Value::F64(5.0))])]
    );
    assert_eq!(
        inserted(
            "INSERT INTO tele ($timestamp, entity, seen, on_off) VALUES ($1, $2, $3, $4)",
            &[
                Datum::Timestamp(7),
                text("e"),
                Datum::Int(9),
                Datum::Bool(true)
            ]
        ),
        [(
            "e".to_owned(),
            7,
            vec![(67, Value::F64(1.0)), (68, Value::F64(9.0))]
        )]
    );
    // Entities of a UUID table in their one stored form.
    assert_eq!(
        inserted(
            "INSERT INTO ids (entity, ts, v) VALUES ('0198F31D-B000-7000-8000-00000000ABCD', 1, 1)",
            &[]
        )[0]
        .0,
        "0198f31db0007000800000000000abcd"
    );
    let d = describe("INSERT INTO tele (entity, ts, speed) VALUES ('a', 1, 2)");
    assert_eq!((d.parameters.len(), d.columns), (0, None));
    let d = describe("INSERT INTO tele (entity, $timestamp, speed, event) VALUES ($1, $2, $4, $3)");
    assert_eq!(
        d.parameters,
        [
            SqlType::Text,
            SqlType::Timestamptz,
            SqlType::Text,
            SqlType::Float8
        ]
    );
}

#[test]
fn insert_rows() {
    let Plan::InsertRows {
        columns,
        rows,
        returning,
        ..
    } = plan(
        "INSERT INTO devices (name, active, born) VALUES ('V 1', 't', '2026-01-01T10:00:00Z'), (NULL, false, DEFAULT)",
    )
    else {
        panic!()
    };
    assert_eq!(columns, [ColumnId(64), ColumnId(66), ColumnId(68)]);
    assert_eq!(
        rows,
        [
            vec![Value::str("V 1"), Value::F64(1.0), Value::F64(NOW as f64)],
            vec![Value::Null, Value::F64(0.0), Value::Null]
        ]
    );
    assert!(returning.is_none());
    let d = describe("INSERT INTO devices VALUES ($1, $2, $3, $4)");
    assert_eq!(
        d.parameters,
        [SqlType::Text, SqlType::Text, SqlType::Bool, SqlType::Int8]
    );
    assert_eq!(d.columns, Some(vec![("xid".to_owned(), SqlType::Text)]));
    let d =
        describe("INSERT INTO devices DEFAULT VALUES RETURNING xid AS id, x_rev, x_deleted, size");
    let names: Vec<_> = d.columns.unwrap().into_iter().map(|c| c.0).collect();
    assert_eq!(names, ["id", "x_rev", "x_deleted", "size"]);
    let d = describe("INSERT INTO devices (name) VALUES ('x') RETURNING *");
    assert_eq!(d.columns.unwrap().len(), 6);
}

#[test]
fn update_and_delete() {
    let id = "019f31db000000000000000000000001";
    let Plan::UpdateRow {
        xid, expected, set, ..
    } = plan(&format!(
        "UPDATE devices SET name = 'x', size = -3 WHERE x_rev = 5 AND xid = '{}'",
        id.to_uppercase()
    ))
    else {
        panic!()
    };
    assert_eq!((xid, expected), (Xid::parse(id), Some(Rev(5))));
    assert_eq!(
        set,
        [
            (ColumnId(64), Value::str("x")),
            (ColumnId(67), Value::F64(-3.0))
        ]
    );
    let Plan::DeleteRow { xid, expected, .. } =
        plan("DELETE FROM devices WHERE xid = '019f31db-0000-0000-0000-000000000001'")
    else {
        panic!()
    };
    assert_eq!((xid, expected), (Xid::parse(id), None));
    for none in [
        "xid = NULL",
        "xid = 'no id'",
        &format!("xid = '{id}' AND x_rev = 1.5"),
        &format!("xid = '{id}' AND x_rev = -1"),
    ] {
        assert!(matches!(
            plan(&format!("DELETE FROM devices WHERE {none}")),
            Plan::DeleteRow { xid: None, .. }
        ));
    }
    let d = describe(
        "UPDATE devices SET size = $1, model = $2 WHERE xid = $3 AND x_rev = $4 RETURNING x_rev",
    );
    assert_eq!(
        d.parameters,
        [SqlType::Int8, SqlType::Text, SqlType::Text, SqlType::Int8]
    );
    assert_eq!(d.columns, Some(vec![("x_rev".to_owned(), SqlType::Int8)]));
}

fn named(shape: &Shape) -> Vec<(&str, SqlType, Option<usize>)> {
    shape
        .columns
        .iter()
        .map(|c| {
            let source = match c.source {
                OutputSource::Column(i) => Some(i),
                OutputSource::Const(_) => None,
            };
            (c.name.as_str(), c.ty, source)
        })
        .collect()
}

#[test]
fn select_rows_of_a_timeseries() {
    use SqlType::*;
    let (scan, shape) =
        stream("SELECT speed, event FROM tele WHERE entity = 'veh-1' AND ts BETWEEN 10 AND 20");
    assert_eq!(
        named(&shape),
        [("speed", Float8, Some(2)), ("event", Text, Some(3))]
    );
    assert_eq!(scan.entities, Entities::In(vec!["veh-1".into()]));
    assert_eq!(scan.range, TsRange { from: 10, to: 20 });
    assert!(scan.filled && scan.predicate.is_none() && scan.limit.is_none() && scan.output == 2);
    assert_eq!(
        scan.channels[0].fill,
        Fill::Hold {
            staleness_ms: Some(60_000)
        }
    );

    let (scan, shape) = stream("SELECT * FROM tele t RAW");
    assert_eq!(
        named(&shape)[..3],
        [
            ("entity", Text, Some(0)),
            ("ts", Int8, Some(1)),
            ("speed", Float8, Some(2))
        ]
    );
    assert!(!scan.filled && scan.channels.len() == 5 && scan.range == TsRange::ALL);

    let (scan, shape) = stream(
        "SELECT t.$timestamp AS at, 1 one, t.gear FROM tele AS t IN RANGE (2026-01-01, +1day) \
         WHERE (event = 'brake' OR NOT speed > 3) AND entity IN ('b', 'a', 'b') AND on_off AND 5 < gear",
    );
    assert_eq!(
        named(&shape),
        [
            ("at", Timestamptz, Some(1)),
            ("one", Int8, None),
            ("gear", Int8, Some(2))
        ]
    );
    assert_eq!(
        scan.range,
        TsRange {
            from: NOW - 36_000_000,
            to: NOW - 36_000_000 + 86_400_000 - 1
        }
    );
    assert_eq!(scan.entities, Entities::In(vec!["a".into(), "b".into()]));
    assert_eq!((scan.channels.len(), scan.output), (4, 1));
    let cmp = |channel, op, value| Predicate::Compare { channel, op, value };
    assert_eq!(
        scan.predicate,
        Some(Predicate::And(vec![
            Predicate::Or(vec![
                cmp(1, CmpOp::Eq, Value::str("brake")),
                Predicate::Not(Box::new(cmp(2, CmpOp::Gt, Value::F64(3.0)))),
            ]),
            cmp(3, CmpOp::Eq, Value::F64(1.0)),
            cmp(0, CmpOp::Gt, Value::F64(5.0)),
        ]))
    );

    let (scan, _) = stream("SELECT entity, ts FROM tele");
    assert!(scan.channels.is_empty() && scan.entities == Entities::All);
}

#[test]
fn times_in_where() {
    let range = |cond: &str| {
        stream(&format!("SELECT speed FROM tele WHERE {cond}"))
            .0
            .range
    };
    let (min, max) = (i64::MIN, i64::MAX);
    for (cond, from, to) in [
        ("ts > 10", 11, max),
        ("ts >= 10 AND ts < 20", 10, 19),
        (
            "10 <= ts AND $timestamp <= '1970-01-01T00:00:00.020Z'",
            10,
            20,
        ),
        ("ts = 5", 5, 5),
        ("ts IN (5)", 5, 5),
        ("ts > 1.5 AND ts < 9.5", 2, 9),
        ("ts > now() - 1 h", NOW - 3_600_000 + 1, max),
        ("ts >= 2026-01-01T10:00:00", NOW, max),
        ("ts >= TIMESTAMP '2026-01-01 10:00:00'", NOW, max),
        (
            "ts >= '2026-01-01 10:00:00'::timestamptz - interval '1 hour'",
            NOW - 3_600_000,
            max,
        ),
        (
            "ts > yesterday AND ts < today()",
            NOW - 36_000_000 - 86_400_000 + 1,
            NOW - 36_000_000 - 1,
        ),
        ("ts IN RANGE (0, +1day)", 0, 86_399_999),
        ("ts > NULL", 1, 0),
        ("ts IS NOT NULL", min, max),
    ] {
        let got = range(cond);
        if from > to {
            assert!(got.is_empty(), "{cond}");
        } else {
            assert_eq!(got, TsRange { from, to }, "{cond}");
        }
    }
    assert_eq!(describe("SELECT speed FROM tele WHERE ts > $1 AND $timestamp < $2 AND entity = $3 AND gear = $4 LIMIT $5").parameters,
        [SqlType::Int8, SqlType::Timestamptz, SqlType::Text, SqlType::Int8, SqlType::Int8]);
    let d = with_context(|cx| {
        parse(
            "SELECT speed FROM tele WHERE ts > $1 AND entity = $2",
            cx.limits,
        )
        .unwrap()[0]
            .describe(cx, &[Some(SqlType::Timestamptz), None])
            .unwrap()
    });
    assert_eq!(d.parameters, [SqlType::Timestamptz, SqlType::Text]);
}

#[test]
fn order_and_limit() {
    let key = |column, descending| SortKey {
        column,
        descending,
        nulls_first: descending,
    };
    let (scan, shape) =
        stream("SELECT speed FROM tele WHERE entity = 'a' ORDER BY ts LIMIT 5 OFFSET 2");
    assert!(shape.order.is_empty());
    assert_eq!(
        (scan.limit, shape.limit, shape.offset),
        (Some(7), Some(5), 2)
    );
    let (scan, shape) =
        stream("SELECT speed AS v FROM tele ORDER BY entity, 1 DESC, ts, v LIMIT 5");
    assert_eq!(
        shape.order,
        [key(0, false), key(2, true), key(1, false), key(2, false)]
    );
    assert_eq!(scan.limit, None);
    let (scan, shape) =
        stream("SELECT speed FROM tele WHERE event = 'x' AND gear = 1 ORDER BY gear NULLS FIRST");
    assert_eq!(
        (
            scan.output,
            shape.order[0].column,
            shape.order[0].nulls_first
        ),
        (3, 4, true)
    );
    assert_eq!(
        stream("SELECT speed FROM tele LIMIT ALL OFFSET NULL")
            .1
            .limit,
        None
    );
    assert_eq!(
        error("SELECT speed FROM tele ORDER BY gear").state(),
        SqlState::FeatureNotSupported
    );
    assert_eq!(
        error("SELECT speed FROM tele LIMIT -1").state(),
        SqlState::InvalidParameterValue
    );
}

#[test]
fn latest() {
    for sql in [
        "SELECT * FROM tele WHERE entity = 'a' AND ts <= 50 LATEST ON ts PARTITION BY entity",
        "SELECT * FROM tele LATEST ON ts PARTITION BY entity WHERE entity = 'a' AND ts <= 50",
    ] {
        let (Source::Latest(scan), shape) = select(sql) else {
            panic!()
        };
        assert_eq!(
            (scan.from, scan.until, scan.channels.len()),
            (i64::MIN, 50, 5)
        );
        assert_eq!(scan.entities, Entities::In(vec!["a".into()]));
        assert_eq!(shape.columns.len(), 7);
    }
    let (Source::Latest(scan), shape) = select(
        "SELECT entity, ts FROM tele LATEST ON ts PARTITION BY entity ORDER BY ts DESC LIMIT 3",
    ) else {
        panic!()
    };
    assert_eq!(
        (scan.channels.len(), shape.order[0].column, shape.limit),
        (5, 1, Some(3))
    );
}

#[test]
fn aggregates() {
    use SqlType::*;
    let (scan, shape) = aggregate(
        "SELECT count(*), avg(speed) a, min(gear), last(event), count(gear), avg(speed) FROM tele",
    );
    assert_eq!(
        named(&shape),
        [
            ("count", Int8, Some(0)),
            ("a", Float8, Some(1)),
            ("min", Int8, Some(2)),
            ("last", Text, Some(3)),
            ("count", Int8, Some(4)),
            ("avg", Float8, Some(1)),
        ]
    );
    assert!(!scan.by_entity && scan.sample.is_none() && scan.aggregates.len() == 5);

    let (scan, shape) = aggregate(
        "SELECT ts, avg(speed) FROM tele WHERE entity = 'x' AND ts BETWEEN 0 AND 99999 SAMPLE BY 5 m FILL(PREV)",
    );
    assert_eq!(
        named(&shape),
        [("ts", Int8, Some(0)), ("avg", Float8, Some(1))]
    );
    assert_eq!(
        scan.sample,
        Some(SampleBy {
            interval_ms: 300_000,
            fill: Some(BucketFill::Prev)
        })
    );

    let (scan, shape) = aggregate(
        "SELECT entity, $timestamp, max(gear) FROM tele SAMPLE BY 1h ORDER BY entity, ts",
    );
    assert_eq!(
        named(&shape),
        [
            ("entity", Text, Some(0)),
            ("$timestamp", Timestamptz, Some(1)),
            ("max", Int8, Some(2))
        ]
    );
    assert!(scan.by_entity && shape.order.is_empty());

    let (scan, shape) =
        aggregate("SELECT entity e, sum(gear) FROM tele GROUP BY e ORDER BY sum(gear) DESC");
    assert!(scan.by_entity && shape.order[0].column == 1);
    assert_eq!(named(&shape)[1].1, Float8);
    let (scan, _) =
        aggregate("SELECT ts, entity, count(1) FROM tele SAMPLE BY 60000 GROUP BY 2, ts");
    assert!(scan.by_entity && scan.aggregates[0].column.is_none());
    let linear = "SELECT ts, max(gear), count(*) FROM tele WHERE ts IN RANGE (0, 1000) SAMPLE BY 10 FILL(LINEAR)";
    assert_eq!(named(&aggregate(linear).1)[1].1, Float8);
    let number = "SELECT ts, max(gear) FROM tele WHERE ts IN RANGE (0, 1000) SAMPLE BY 10 FILL(-1)";
    let (scan, shape) = aggregate(number);
    assert_eq!(scan.sample.unwrap().fill, Some(BucketFill::Number(-1.0)));
    assert_eq!(named(&shape)[1].1, Int8);
    // Conditions that are constant need no channel.
    assert_eq!(
        aggregate("SELECT count(*) FROM tele WHERE 1=1 AND true")
            .0
            .entities,
        Entities::All
    );
    assert_eq!(
        aggregate("SELECT count(*) FROM tele WHERE 1=0").0.entities,
        Entities::In(vec![])
    );
}

#[test]
fn select_on_a_rows_table() {
    use SqlType::*;
    let (scan, shape) = keyed("SELECT * FROM devices");
    assert_eq!(named(&shape)[0], ("xid", Text, Some(0)));
    assert_eq!(
        (scan.columns.len(), scan.filter, scan.feed),
        (6, None, None)
    );
    let (scan, shape) = keyed(
        "SELECT name, x_rev AS r, name FROM devices WHERE 3 <= size ORDER BY born DESC, r LIMIT 5 OFFSET 10",
    );
    assert_eq!(
        named(&shape),
        [
            ("name", Text, Some(0)),
            ("r", Int8, Some(1)),
            ("name", Text, Some(0))
        ]
    );
    assert_eq!(
        scan.filter,
        Some(KeyedFilter::Compare {
            column: ColumnId(67),
            op: CmpOp::Ge,
            value: Value::F64(3.0)
        })
    );
    assert_eq!(
        (scan.limit, scan.offset, shape.limit, scan.order.len()),
        (Some(5), 10, None, 2)
    );
    assert!(
        scan.order[0].descending
            && scan.order[0].nulls_first
            && scan.order[1].column == KeyedColumn::Rev
    );
    let (scan, shape) = keyed("SELECT count(*) FROM devices LIMIT 1");
    assert!(scan.count && scan.limit.is_none() && shape.limit == Some(1));
    let filter = |cond: &str| {
        keyed(&format!("SELECT xid FROM devices WHERE {cond}"))
            .0
            .filter
    };
    assert_eq!(
        filter("xid = '019F31DB-0000-0000-0000-000000000001'"),
        Xid::parse("019f31db000000000000000000000001").map(KeyedFilter::XidEq)
    );
    for cond in ["xid = 'x'", "xid = NULL", "name = NULL", "xid IS NULL"] {
        assert_eq!(filter(cond), Some(KeyedFilter::Nothing), "{cond}");
    }
    assert_eq!(
        filter("active"),
        Some(KeyedFilter::Compare {
            column: ColumnId(66),
            op: CmpOp::Eq,
            value: Value::F64(1.0)
        })
    );
    assert_eq!(filter("NOT active"), filter("active = false"));
    assert_eq!(
        filter("name IS NOT NULL"),
        Some(KeyedFilter::IsNull {
            column: ColumnId(64),
            negated: true
        })
    );
    assert_eq!(
        keyed("SELECT * FROM log WHERE ts > 2026-01-01").0.feed,
        None
    );
    assert_eq!(keyed("SELECT 1 FROM devices").0.columns, [KeyedColumn::Xid]);
}

#[test]
fn the_feed() {
    let feed = |cond: &str| {
        let scan = keyed(&format!("SELECT xid, x_deleted FROM devices WHERE {cond}")).0;
        let f = scan.feed.unwrap();
        (f.after.0, f.after_given, f.until.0, f.deleted, scan.filter)
    };
    let top = Rev::MAX.0;
    for (cond, after, given, until) in [
        ("x_rev > 5", 5, true, u64::MAX),
        ("5 < x_rev", 5, true, u64::MAX),
        ("x_rev >= 5", 4, true, u64::MAX),
        ("x_rev >= 0", 0, true, u64::MAX),
        ("x_rev > -7", 0, true, u64::MAX),
        ("x_rev > 5.5", 5, true, u64::MAX),
        ("x_rev <= 5", 0, false, 5),
        ("x_rev < 5", 0, false, 4),
        ("x_rev = 5", 4, false, 5),
        ("x_rev <= 99999999999999999", 0, false, top),
    ] {
        assert_eq!(feed(cond), (after, given, until, None, None), "{cond}");
    }
    assert_eq!(feed("x_deleted"), (0, false, top, Some(true), None));
    assert_eq!(feed("x_deleted = 'f'").3, Some(false));
    assert_eq!(feed("NOT x_deleted").3, Some(false));
    assert_eq!(feed("x_rev < 0").4, Some(KeyedFilter::Nothing));
    assert_eq!(feed("x_rev = NULL").4, Some(KeyedFilter::Nothing));
    assert!(
        keyed("SELECT count(*) FROM devices WHERE x_rev > 0")
            .0
            .feed
            .is_some()
    );
}

#[test]
fn settings_and_transactions() {
    let set = |sql: &str| match plan(sql) {
        Plan::Set { name, value, local } => (name, value, local),
        other => panic!("{sql}: {other:?}"),
    };
    let s = |x: &str| x.to_owned();
    for (sql, name, value, local) in [
        (
            "SET insert_returns = none",
            "insert_returns",
            Some("none"),
            false,
        ),
        (
            "SET SESSION DateStyle TO 'ISO, MDY'",
            "datestyle",
            Some("ISO, MDY"),
            false,
        ),
        ("SET LOCAL a.b = DEFAULT", "a.b", None, true),
        (
            "SET search_path TO public, \"$user\"",
            "search_path",
            Some("public, $user"),
            false,
        ),
        ("SET TIME ZONE 'UTC'", "timezone", Some("UTC"), false),
        (
            "SET statement_timeout = 5s",
            "statement_timeout",
            Some("5s"),
            false,
        ),
        (
            "SET extra_float_digits = -3",
            "extra_float_digits",
            Some("-3"),
            false,
        ),
        ("SET NAMES 'UTF8'", "client_encoding", Some("UTF8"), false),
        (
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
            "transaction_isolation",
            Some("read committed"),
            true,
        ),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "default_transaction_read_only",
            Some("off"),
            false,
        ),
        ("RESET work_mem", "work_mem", None, false),
    ] {
        assert_eq!(set(sql), (s(name), value.map(s), local), "{sql}");
    }
    let show = |sql: &str| match plan(sql) {
        Plan::ShowSetting(name) => name,
        other => panic!("{sql}: {other:?}"),
    };
    assert_eq!(show("SHOW ALL"), None);
    assert_eq!(show("SHOW server_version"), Some(s("server_version")));
    assert_eq!(
        show("show transaction isolation level"),
        Some(s("transaction_isolation"))
    );
    for (sql, want) in [
        ("BEGIN", Transaction::Begin),
        ("BEGIN WORK", Transaction::Begin),
        (
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE",
            Transaction::Begin,
        ),
        (
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
            Transaction::Begin,
        ),
        ("COMMIT TRANSACTION", Transaction::Commit),
        ("END AND NO CHAIN", Transaction::Commit),
        ("ROLLBACK", Transaction::Rollback),
        ("ABORT WORK", Transaction::Rollback),
    ] {
        assert!(
            matches!(plan(sql), Plan::Transaction(t) if t == want),
            "{sql}"
        );
    }
    assert!(matches!(plan("RESET ALL"), Plan::ResetAll));
    assert!(matches!(plan("DISCARD ALL"), Plan::DiscardAll));
    assert!(matches!(
        plan("CLOSE ALL"),
        Plan::Nothing("CLOSE CURSOR ALL")
    ));
    assert!(matches!(plan("UNLISTEN *"), Plan::Nothing("UNLISTEN")));
    assert!(matches!(plan("CHECKPOINT"), Plan::Checkpoint));
    assert!(matches!(
        plan("VACUUM VERBOSE devices"),
        Plan::Vacuum { verbose: true, .. }
    ));
    assert!(matches!(
        plan("VACUUM (VERBOSE off) devices"),
        Plan::Vacuum { verbose: false, .. }
    ));
    assert!(matches!(plan("SHOW FEED devices"), Plan::ShowFeed(t) if t.name == "devices"));
    assert!(matches!(plan("DEALLOCATE PREPARE a"), Plan::Deallocate(Some(n)) if n == "a"));
    assert!(matches!(plan("DEALLOCATE ALL"), Plan::Deallocate(None)));
    with_context(|cx| {
        let all = parse("BEGIN; COMMIT; ROLLBACK; SELECT 1; ;-- x", cx.limits).unwrap();
        let control: Vec<_> = all
            .iter()
            .map(crate::Statement::is_transaction_control)
            .collect();
        assert_eq!(control, [false, true, true, false]);
        assert_eq!(all[3].text(), "SELECT 1");
    });
}

#[test]
fn prepare_and_execute() {
    let Plan::Prepare {
        name,
        declared,
        statement,
    } = plan("PREPARE p (int, unknown) AS INSERT INTO devices (size, name) VALUES ($1, $2)")
    else {
        panic!()
    };
    assert_eq!(
        (name.as_str(), declared),
        ("p", vec![Some(SqlType::Int8), None])
    );
    assert_eq!(statement.parameters(), 2);
    let plan = with_context(|cx| statement.bind(cx, &[Datum::Int(1), text("x")]).unwrap());
    assert!(matches!(plan, Plan::InsertRows { .. }));
    assert!(matches!(
        self::plan("EXECUTE p (1, 'x', now())"),
        Plan::Execute { arguments, .. } if arguments == [Datum::Int(1), text("x"), Datum::Timestamp(NOW)]
    ));
    with_context(|cx| {
        let s = &parse("SELECT speed FROM tele WHERE gear = $2", cx.limits).unwrap()[0];
        assert_eq!(
            s.bind(cx, &[Datum::Int(1)]).unwrap_err().state(),
            SqlState::UndefinedParameter
        );
    });
}

#[test]
fn questions_for_the_evaluator() {
    for sql in [
        "SELECT 1",
        "SELECT version(), current_database() AS d, $1::int",
        "SELECT * FROM $sys.tables WHERE name = 'x'",
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r','p') AND n.nspname !~ '^pg_toast' AND c.relname OPERATOR(pg_catalog.~) '^(x)$' COLLATE pg_catalog.default ORDER BY 1, 2",
        "SELECT oid FROM pg_type WHERE typname = 'a' UNION ALL SELECT 1",
        "WITH x AS (SELECT 1 AS a) SELECT * FROM x",
        "VALUES (1, 'a'), (2, 'b')",
        "SELECT table_name FROM information_schema.tables",
        "SELECT (SELECT count(*) FROM pg_class), E'a\\'b', $$x$$",
        "SHOW TABLES",
        "SHOW TABLE tele",
        "DESCRIBE devices",
        "SELECT * FROM (SELECT 1) s",
        "SELECT * FROM generate_series(1, 3)",
    ] {
        assert!(
            matches!(
                bind_with(sql, &[Datum::Int(1)]).unwrap_or_else(|e| panic!("{sql}: {e}")),
                Plan::System(_)
            ),
            "{sql}"
        );
    }
    assert!(matches!(plan(" -- nothing\n"), Plan::Empty));
    assert!(matches!(plan(";;"), Plan::Empty));
}

#[test]
fn refusals() {
    let mut wrong = Vec::new();
    // Statement (¦ marks the position), SQLSTATE, words of the message or hint.
    for (sql, state, words) in [
        // Syntax.
        ("¦SELEC 1", "42601", "syntax error at or near \"SELEC\""),
        ("SELECT speed FROM¦", "42601", "end of input"),
        ("SELECT speed ¦, FROM tele", "42601", ""),
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
        ("INSERT INTO devices (¦xid) VALUES ('a')", "428C9", "xid"),
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
            "CREATE TABLE t (a INT) WITH (¦RETENTION 90 d)",
            "0A000",
            "RETENTION",
        ),
        ("CREATE TABLE t (a INT) WITH (¦MUTABLE)", "0A000", "MUTABLE"),
        (
            "CREATE TABLE t (a INT) WITH (ENTITY UUID, ¦DEDUP)",
            "0A000",
            "DEDUP",
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
        ("¦ALTER TABLE tele ADD COLUMN a INT", "0A000", "ALTER"),
        ("¦TRUNCATE tele", "0A000", "TRUNCATE"),
        ("¦COPY tele FROM STDIN", "0A000", "COPY"),
        ("¦EXPLAIN SELECT 1", "0A000", "EXPLAIN"),
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
            "SELECT speed FROM tele WHERE event ¦LIKE 'a%'",
            "0A000",
            "LIKE",
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
            "SELECT avg(speed) FROM tele WHERE ¦event = 'x'",
            "0A000",
            "condition on channels",
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
            "SELECT ts, avg(speed) FROM tele SAMPLE BY ¦1 month",
            "0A000",
            "months",
        ),
        ("SELECT ts, avg(speed) FROM tele SAMPLE BY ¦0", "22023", ""),
        ("SELECT ¦stddev(speed) FROM tele", "0A000", "stddev"),
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
