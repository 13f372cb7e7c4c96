//! Statements through parse, describe and bind against a fixed catalog: one test per verb and family, and
//! the table of refusals with state, position and words.

use super::*;
use crate::fuzz::{NOW, with_context};
use crate::parse;
use crate::plan::{OutputSource, Shape, SortKey, Source, Transaction};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::scan::*;
use strandline_core::schema::{Fill, Label};
use strandline_core::stream::batch::BatchCells;
use strandline_core::time::Interval;
use strandline_core::value::Value;
use strandline_core::xid::Xid;

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

pub(super) fn plan(sql: &str) -> Plan {
    bind_with(sql, &[]).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn describe(sql: &str) -> Description {
    with_context(|cx| {
        parse(sql, cx.limits).unwrap()[0]
            .describe(cx, &[])
            .unwrap_or_else(|e| panic!("{sql}: {e}"))
    })
}

pub(super) fn error(sql: &str) -> Error {
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

/// A row of an INSERT: entity, ts, cells by column number.
type Row = (String, i64, Vec<(u32, Value)>);

/// Rows of an INSERT in order of shard.
fn inserted(sql: &str, params: &[Datum]) -> Vec<Row> {
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
        ("ts > now() - '1 hour'", NOW - 3_600_000 + 1, max),
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
            interval: Interval::Ms(300_000),
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
        ("BEGIN", Transaction::Begin { read_only: false }),
        ("BEGIN WORK", Transaction::Begin { read_only: false }),
        (
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE",
            Transaction::Begin { read_only: true },
        ),
        (
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
            Transaction::Begin { read_only: false },
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
        "SELECT oid IS DISTINCT FROM 5 FROM pg_class",
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
fn forms_that_users_write() {
    for sql in [
        "select * from tele limit 5;",
        "SELECT speed s, ts FROM tele",
        "SELECT \"speed\" FROM public.tele",
        "SELECT tele.speed FROM public.tele WHERE tele.entity = 'a'",
        "SELECT * FROM tele WHERE ts > now() - interval '1 hour' AND speed IS NOT NULL",
        "SELECT * FROM tele WHERE ts BETWEEN '2026-01-01' AND '2026-01-02 12:00'",
        "SELECT * FROM tele WHERE ts >= $1 - 1 day AND speed > -1.5e3 AND gear NOT IN (1, -2)",
        "SELECT * FROM tele WHERE (entity = 'a' OR entity = 'b') AND NOT (speed > 1 AND event IS NULL)",
        "SELECT ts, speed FROM tele WHERE event = 'brake' ORDER BY 1 DESC",
        "SELECT max(speed) AS \"top speed\" FROM tele WHERE entity = 'a' -- and a comment",
        "SELECT ts, avg(speed) FROM tele WHERE ts IN RANGE (yesterday, today) SAMPLE BY 1hour 30min FILL(NULL) ORDER BY ts",
        "SELECT entity, ts, avg(speed) FROM tele SAMPLE BY 1h ORDER BY avg DESC LIMIT 3",
        "SELECT $timestamp, speed FROM tele IN RANGE (2026-01-01, 2026-01-02) WHERE entity = 'x' ORDER BY $timestamp",
        "SELECT xid, * FROM devices WHERE born < 2026-01-01T10:00:00 ORDER BY name NULLS FIRST",
        "SELECT count(*) FROM devices WHERE name = 'x'",
        "SELECT name, x_rev, x_deleted FROM devices WHERE x_rev > 0 LIMIT 100",
        "INSERT INTO devices (name, model) VALUES ('Vehicle 1', 'S8') RETURNING xid, x_rev",
        "INSERT INTO public.devices AS d (name) VALUES ('a')",
        "UPDATE ONLY devices d SET born = now(), active = NULL WHERE xid = '019f31db000000000000000000000001'",
    ] {
        bind_with(sql, &[Datum::Int(NOW)]).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
}
