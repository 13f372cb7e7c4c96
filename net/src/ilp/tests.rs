//! Lines and what becomes of them; the fast parser against the plain one; connections end to end.

use super::bad::Reason;
use super::local::LocalCatalog;
use super::parser::IlpOptions;
use super::reference::{self, Row};
use super::table::ShardWrite;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::limits::Limits;
use strandline_core::routing::shard_of_entity;
use strandline_core::schema::{ColumnDef, Family, Fill, Label, TableDef};
use strandline_core::stream::batch::{BatchCells, StreamBatch};
use strandline_core::value::Value;

const NOW: i64 = 1_767_225_600_123;

pub fn table(id: u32, name: &str, family: Family, columns: &[(&str, Label, bool)]) -> TableDef {
    TableDef {
        id: TableId(id),
        name: name.into(),
        family,
        columns: columns
            .iter()
            .enumerate()
            .map(|(i, (name, label, declared))| ColumnDef {
                id: ColumnId(64 + i as u32),
                name: (*name).into(),
                label: *label,
                fill: Fill::None,
                declared: *declared,
            })
            .collect(),
        entity_uuid: false,
        options: Default::default(),
        next_column: ColumnId(64 + columns.len() as u32),
    }
}

/// `typed` declares every label, `loose` has the same from line protocol, `ids` wants UUIDs, `reg` is a
/// rows table, `tagged` has its entity in the tag `zone`.
fn catalog() -> LocalCatalog {
    let label_columns = |declared| {
        [
            ("d", Label::Double, declared),
            ("i", Label::Int, declared),
            ("b", Label::Bool, declared),
            ("at", Label::Timestamp, true),
            ("s", Label::TEXT, declared),
            ("v", Label::Text { max_chars: Some(3) }, true),
        ]
    };
    let mut ids = table(3, "ids", Family::Timeseries, &[("d", Label::Double, true)]);
    ids.entity_uuid = true;
    let mut tagged = table(5, "tagged", Family::Timeseries, &label_columns(false));
    tagged.options.entity_tag = Some("zone".into());
    LocalCatalog::new(vec![
        table(1, "typed", Family::Timeseries, &label_columns(true)),
        table(2, "loose", Family::Timeseries, &label_columns(false)),
        ids,
        table(4, "reg", Family::Rows, &[("d", Label::Double, true)]),
        tagged,
    ])
}

fn limits() -> Arc<Limits> {
    Arc::new(Limits {
        ilp_line_bytes: 1024,
        ilp_fields: 12,
        entity_bytes: 64,
        ..Limits::default()
    })
}

/// The rows of a batch, in order.
pub fn rows_of(catalog: &LocalCatalog, table: TableId, batch: &StreamBatch) -> Vec<Row> {
    let def = catalog.catalog().table_by_id(table).unwrap().clone();
    let mut rows: Vec<Row> = (0..batch.rows())
        .map(|r| Row {
            table: def.name.clone(),
            entity: batch.entities.get(batch.entity_of_row[r] as usize).into(),
            ts: batch.ts[r],
            cells: BTreeMap::new(),
        })
        .collect();
    for c in &batch.columns {
        let name = &def.column_by_id(c.id).unwrap().name;
        for i in 0..c.cells.len() {
            let row = c.rows.as_ref().map_or(i, |r| r[i] as usize);
            let value = match &c.cells {
                BatchCells::F64(v) => Value::F64(v[i]),
                BatchCells::Str(v) => Value::str(v.get(i)),
            };
            rows[row].cells.insert(name.clone(), value);
        }
    }
    rows
}

struct Outcome {
    rows: Vec<Row>,
    bad: Vec<(Reason, String)>,
    bad_lines: Vec<Vec<u8>>,
    catalog: LocalCatalog,
}

fn parse(input: &[u8], chunk: usize, shards: u16) -> Outcome {
    parse_with(IlpOptions::default(), input, chunk, shards)
}

fn parse_with(options: IlpOptions, input: &[u8], chunk: usize, shards: u16) -> Outcome {
    let mut catalog = catalog();
    let (mut bad, mut bad_lines) = (Vec::new(), Vec::new());
    let writes: Vec<ShardWrite> = catalog.run(
        &limits(),
        options,
        shards,
        input.chunks(chunk.max(1)),
        NOW,
        &mut |e, line| {
            bad.push((e.reason, e.message.to_string()));
            bad_lines.push(line.to_vec());
        },
    );
    let mut rows = Vec::new();
    for w in &writes {
        for row in rows_of(&catalog, w.table, &w.batch) {
            assert_eq!(shard_of_entity(&row.entity, shards), w.shard);
            rows.push(row);
        }
    }
    Outcome {
        rows,
        bad,
        bad_lines,
        catalog,
    }
}

/// `table entity ts name=value …`, or `bad: reason`.
fn shown(line: &str) -> String {
    shown_with(IlpOptions::default(), line)
}

fn shown_with(options: IlpOptions, line: &str) -> String {
    let out = parse_with(options, format!("{line}\n").as_bytes(), usize::MAX, 1);
    match (&out.rows[..], &out.bad[..]) {
        ([], []) => "nothing".into(),
        ([], [(reason, _)]) => format!("bad: {}", reason.name()),
        ([row], []) => {
            let cells: Vec<String> = row
                .cells
                .iter()
                .map(|(name, value)| match value {
                    Value::F64(v) => format!("{name}={v}"),
                    Value::Str(s) => format!("{name}={s:?}"),
                    Value::Null => unreachable!(),
                })
                .collect();
            let ts = if row.ts == NOW {
                "now".into()
            } else {
                row.ts.to_string()
            };
            format!("{} {} {ts} {}", row.table, row.entity, cells.join(" "))
        }
        (rows, bad) => panic!("{rows:?} {bad:?}"),
    }
}

#[test]
fn lines() {
    for (line, expect) in [
        // The form.
        (
            "t,entity=a x=1,y=2.5 1700000000123456789",
            "t a 1700000000123 x=1 y=2.5",
        ),
        ("t,entity=a x=1", "t a now x=1"),
        ("t,entity=a x=1\r", "t a now x=1"),
        ("  \tt,entity=a   x=1   5000000   ", "t a 5 x=1"),
        ("\u{feff}t,entity=a x=1 0", "t a 0 x=1"),
        ("t,host=h,entity=a,zone=z x=1 0", "t a 0 x=1"),
        ("", "nothing"),
        ("   \r", "nothing"),
        ("# t,entity=a x=1", "nothing"),
        ("t", "bad: syntax"),
        ("t x=1", "bad: entity"),
        ("t,host=a x=1", "bad: entity"),
        ("t,entity=a,entity=b x=1", "bad: entity"),
        ("t,entity= x=1", "bad: syntax"),
        ("t,entity=a", "bad: syntax"),
        ("t,entity=a ", "bad: syntax"),
        ("t,entity=a x", "bad: syntax"),
        ("t,entity=a x=", "bad: syntax"),
        ("t,entity=a =1", "bad: syntax"),
        ("t,entity=a x=1,", "bad: syntax"),
        ("t,entity=a x=1,,y=2", "bad: syntax"),
        ("t,entity=a x=1 2 3", "bad: timestamp"),
        ("t,entity=a=b x=1", "bad: syntax"),
        ("t,=a,entity=a x=1", "bad: syntax"),
        (",entity=a x=1", "bad: syntax"),
        ("t,entity=a, x=1", "bad: syntax"),
        // Times: floor to ms; the axis begins with 1970 and ends where TIMESTAMP does, as over SQL.
        ("t,entity=a x=1 -1", "bad: timestamp"),
        ("t,entity=a x=1 -0", "t a 0 x=1"),
        ("t,entity=a x=1 999999", "t a 0 x=1"),
        ("t,entity=a x=1 -1000001", "bad: timestamp"),
        (
            "t,entity=a x=1 9223372036853999999",
            "t a 9223372036853 x=1",
        ),
        ("t,entity=a x=1 9223372036854000000", "bad: timestamp"),
        ("t,entity=a x=1 9223372036854775808", "bad: timestamp"),
        ("t,entity=a x=1 1.5", "bad: timestamp"),
        ("t,entity=a x=1 1e9", "bad: timestamp"),
        ("t,entity=a x=1 -", "bad: timestamp"),
        // Values.
        (
            "t,entity=a x=42i,y=42u,z=t,w=FALSE",
            "t a now w=0 x=42 y=42 z=1",
        ),
        (
            "t,entity=a x=-1.5e3,y=+2,z=.5,w=4.",
            "t a now w=4 x=-1500 y=2 z=0.5",
        ),
        (
            "t,entity=a x=9007199254740992i",
            "t a now x=9007199254740992",
        ),
        ("t,entity=a x=9007199254740993i", "bad: value"),
        ("t,entity=a x=NaN", "bad: value"),
        ("t,entity=a x=-Inf", "bad: value"),
        ("t,entity=a x=1e999", "bad: value"),
        ("t,entity=a x=1.5i", "bad: syntax"),
        ("t,entity=a x=abc", "bad: syntax"),
        ("t,entity=a x='abc'", "bad: syntax"),
        ("t,entity=a x=1,x=2,x=3", "t a now x=3"),
        ("t,entity=a x=1,x=\"one\"", "bad: type"),
        // Escapes.
        (
            r"my\ table\,1,entity=veh\ 1\,b\=c f\ 1\,\==1",
            "my table,1 veh 1,b=c now f 1,==1",
        ),
        (r"t,entity=C:\dir x=1", r"t C:\dir now x=1"),
        (r"t,entity=a\ x=1", "bad: syntax"),
        (r"t,entity=a\\ b x=1", r"t a\ b now x=1"),
        (
            r#"t,entity=a s="say \"hi\"\\ \n""#,
            r#"t a now s="say \"hi\"\\ \\n""#,
        ),
        (
            r#"t,entity=a s="a,b=c d",x=1"#,
            r#"t a now s="a,b=c d" x=1"#,
        ),
        (r#"t,entity=a s="""#, r#"t a now s="""#),
        ("t,entity=a s=\"one\ntwo\" 0", "t a 0 s=\"one\\ntwo\""),
        (r#"t,entity=a s="open"#, "bad: syntax"),
        (r#"t,entity=a s="trailing\""#, "bad: syntax"),
        (r#"t,entity=a s="x"y"#, "bad: syntax"),
        // Labels: a declared one never changes.
        (
            "typed,entity=a d=1i,i=9.0,b=1i,at=1700000000000i,s=\"x\",v=\"abc\"",
            "typed a now at=1700000000000 b=1 d=1 i=9 s=\"x\" v=\"abc\"",
        ),
        ("typed,entity=a d=t,i=f", "typed a now d=1 i=0"),
        ("typed,entity=a i=1.5", "bad: value"),
        ("typed,entity=a i=9007199254740994i", "bad: value"),
        ("typed,entity=a b=2i", "bad: value"),
        ("typed,entity=a at=-1i", "bad: value"),
        ("typed,entity=a at=9223372036854i", "bad: value"),
        ("typed,entity=a at=1.5", "bad: value"),
        ("typed,entity=a v=\"äöü\"", "typed a now v=\"äöü\""),
        ("typed,entity=a v=\"abcd\"", "bad: value"),
        ("typed,entity=a d=\"1\"", "bad: type"),
        ("typed,entity=a s=1", "bad: type"),
        ("loose,entity=a i=1.5,b=7i", "loose a now b=7 i=1.5"),
        ("loose,entity=a s=1i", "bad: type"),
        ("loose,entity=a d=\"1\"", "bad: type"),
        // Tags that the table declares.
        (
            "typed,entity=a,s=tag,d=5,other=x i=1",
            "typed a now i=1 s=\"tag\"",
        ),
        (
            "typed,entity=a,s=tag s=\"field\"",
            "typed a now s=\"field\"",
        ),
        ("typed,entity=a,v=abcd i=1", "bad: value"),
        ("loose,entity=a,s=tag i=1", "loose a now i=1"),
        // Names, families, UUIDs.
        ("t,entity=a entity=1", "bad: reserved"),
        ("t,entity=a ts=1", "bad: reserved"),
        ("t,entity=a $timestamp=1", "bad: reserved"),
        ("t,entity=a $x=1", "bad: reserved"),
        ("t,entity=a x$=1", "t a now x$=1"),
        ("pg_t,entity=a x=1", "bad: reserved"),
        ("$t,entity=a x=1", "bad: reserved"),
        ("information_schema,entity=a x=1", "bad: reserved"),
        ("pgt,entity=a x=1", "pgt a now x=1"),
        ("reg,entity=a d=1", "bad: family"),
        (
            "ids,entity=019F31DB-0000-4000-8000-000000000ABC d=1",
            "ids 019f31db000040008000000000000abc now d=1",
        ),
        ("ids,entity=veh-1 d=1", "bad: entity"),
        ("t,entity=a \0=1", "bad: encoding"),
        ("t,entity=a s=\"nul\0\"", "bad: encoding"),
        ("größe,entity=ü m²=1", "größe ü now m²=1"),
    ] {
        assert_eq!(shown(line), expect, "{line}");
    }
    let long_name = "n".repeat(128);
    assert_eq!(shown(&format!("{long_name},entity=a x=1")), "bad: name");
    assert_eq!(shown(&format!("t,entity=a {long_name}=1")), "bad: name");
    assert_eq!(
        shown(&format!("t,entity={} x=1", "e".repeat(65))),
        "bad: entity"
    );
    assert_eq!(
        shown(&format!("t,entity=a x=1 {}", "1".repeat(1024))),
        "bad: too_long"
    );
    assert_eq!(shown(&format!("#{}", "1".repeat(1024))), "bad: too_long");
    let many: Vec<String> = (0..13).map(|i| format!("f{i}=1")).collect();
    assert_eq!(
        shown(&format!("t,entity=a {}", many.join(","))),
        "bad: too_long"
    );
}

#[test]
fn messages_name_table_channel_and_types() {
    for (line, parts) in [
        ("typed,entity=a d=\"1\"", &["typed.d", "TEXT", "DOUBLE"][..]),
        ("typed,entity=a s=1i", &["typed.s", "TEXT", "INT"]),
        ("typed,entity=a i=1.5", &["typed.i", "INT", "1.5"]),
        ("typed,entity=a v=\"abcd\"", &["typed.v", "VARCHAR(3)", "4"]),
        ("t,host=a x=1", &["t", "entity"]),
        ("reg,entity=a d=1", &["reg", "rows", "INSERT"]),
        (
            "t,entity=a x=9007199254740993i",
            &["9007199254740993i", "exact"],
        ),
    ] {
        let out = parse(format!("{line}\n").as_bytes(), 1, 1);
        let [(_, message)] = &out.bad[..] else {
            panic!("{line}: {:?}", out.bad)
        };
        assert!(
            parts.iter().all(|p| message.contains(p)),
            "{line}: {message}"
        );
    }
}

#[test]
fn a_bad_line_costs_itself_alone() {
    let mut input = Vec::new();
    for bad in [
        &b"t,entity=a s=\"open"[..],
        b"t,entity=a x=\"",
        b"\xff\xfe",
        b"t,entity=a\\",
        b"t,entity=a x=1\xc3",
        b"t,entity=\"a x=\"1",
        &[b'x'; 5000],
        b"t,entity=a x=\0",
        b"\"",
        b"=",
        b",,,",
        b"\\",
    ] {
        input.extend_from_slice(b"t,entity=good x=1i 0\n");
        input.extend_from_slice(bad);
        input.push(b'\n');
    }
    input.extend_from_slice(b"t,entity=good x=1i 0\n");
    for chunk in [1, 7, 1000, usize::MAX] {
        let out = parse(&input, chunk, 1);
        assert_eq!((out.rows.len(), out.bad.len()), (13, 12), "{:?}", out.bad);
        assert!(
            out.rows
                .iter()
                .all(|r| r.entity == "good" && r.cells.len() == 1)
        );
    }
}

#[test]
fn labels_come_from_the_first_value_and_widen() {
    let input = "n,entity=a a=t,b=1i,c=1,d=\"x\",e=t,f=t\nn,entity=a e=5i,b=2.5\nn,entity=a a=f,f=0.5\nn,entity=a d=7\n";
    let out = parse(input.as_bytes(), 3, 4);
    assert_eq!((out.rows.len(), out.bad.len()), (3, 1));
    let catalog = out.catalog.catalog();
    let labels: Vec<_> = catalog
        .table("n")
        .unwrap()
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.label, c.declared))
        .collect();
    assert_eq!(
        labels,
        [
            ("a", Label::Bool, false),
            ("b", Label::Double, false),
            ("c", Label::Double, false),
            ("d", Label::TEXT, false),
            ("e", Label::Int, false),
            ("f", Label::Double, false),
        ]
    );
}

#[test]
fn another_tag_can_name_the_entity() {
    let mut catalog = LocalCatalog::default();
    let mut bad = 0;
    let options = IlpOptions {
        entity_tag: "hostname".into(),
        ..IlpOptions::default()
    };
    let input: &[u8] = b"cpu,hostname=h1,region=r u=5 0\ncpu,entity=h2 u=5 0\n";
    let writes = catalog.run(&limits(), options, 1, [input], NOW, &mut |_, _| bad += 1);
    assert_eq!((writes.len(), bad), (1, 1));
    assert_eq!(
        rows_of(&catalog, writes[0].table, &writes[0].batch)[0].entity,
        "h1"
    );
}

#[test]
fn a_table_s_own_entity_tag_stands_over_the_listener_s() {
    for (line, expect) in [
        ("tagged,zone=z d=1 0", "tagged z 0 d=1"),
        ("tagged,zone=z,entity=a d=1 0", "tagged z 0 d=1"),
        ("tagged,entity=a d=1 0", "bad: entity"),
        ("tagged,zone=z,zone=y d=1 0", "bad: entity"),
        ("t,zone=z,entity=a x=1 0", "t a 0 x=1"),
    ] {
        assert_eq!(shown(line), expect, "{line}");
    }
    // The catalog has changed meanwhile: what was remembered of the table no longer holds.
    let mut parser = parser::Parser::new(limits(), IlpOptions::default(), 1, catalog().catalog());
    let mut input = buffer::LineBuffer::new(1024);
    let mut changed = catalog().catalog().table("typed").unwrap().as_ref().clone();
    let mut bad_lines = Vec::new();
    let mut step = |parser: &mut parser::Parser| {
        input.push(b"typed,entity=a,zone=z i=1i 0\n");
        let mut report = |e: &BadLine, _: &[u8]| bad_lines.push(e.reason);
        let step = parser.step(&mut input, NOW, &mut report);
        assert!(matches!(step, parser::Step::Drained), "{step:?}");
        parser.take()
    };
    let entity = |writes: Vec<ShardWrite>| writes[0].batch.entities.get(0).to_owned();
    assert_eq!(entity(step(&mut parser)), "a");
    for (version, tag, expect) in [(2, Some("zone"), "z"), (3, None, "a")] {
        changed.options.entity_tag = tag.map(Into::into);
        let tables = [Arc::new(changed.clone())];
        parser.sync(&Arc::new(strandline_core::schema::Catalog::new(
            version, tables,
        )));
        assert_eq!(entity(step(&mut parser)), expect);
    }
    assert_eq!(bad_lines, []);
}

#[test]
fn tags_become_channels_where_they_are_stored() {
    let options = || IlpOptions {
        store_tags: true,
        ..IlpOptions::default()
    };
    for (line, expect) in [
        (
            "t,region=r\\ 1,entity=a,zone=z x=1 0",
            "t a 0 region=\"r 1\" x=1 zone=\"z\"",
        ),
        ("t,region=r,entity=a region=\"s\" 0", "t a 0 region=\"s\""),
        ("t,region=r,entity=a region=1 0", "bad: type"),
        (
            "t,region=r,region=s,entity=a x=1 0",
            "t a 0 region=\"s\" x=1",
        ),
        ("loose,s=tag,entity=a i=1i 0", "loose a 0 i=1 s=\"tag\""),
        (
            "loose,new=tag,entity=a i=1i,z=2 0",
            "loose a 0 i=1 new=\"tag\" z=2",
        ),
        ("loose,i=1,entity=a d=1 0", "bad: type"),
        ("typed,v=long,entity=a d=1 0", "bad: value"),
        ("tagged,zone=z,d=1 i=1i 0", "bad: type"),
        ("tagged,zone=z,entity=a i=1i 0", "bad: reserved"),
        ("t,entity=a,ts=5 x=1 0", "bad: reserved"),
        ("t,entity=a,$x=5 x=1 0", "bad: reserved"),
        (
            "t,entity=a,a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1 x=1 0",
            "bad: too_long",
        ),
    ] {
        assert_eq!(shown_with(options(), line), expect, "{line}");
    }
    // The second line of a series whose first brought the channel; and what SQL refused stays bad.
    let input =
        b"t,entity=a,r=1 x=1 0\nt,entity=a,r=1 x=2 0\nt,entity=a,r=2 x=3 0\nt,entity=a x=4 0\n";
    let out = parse_with(options(), input, 7, 1);
    let tags: Vec<_> = out.rows.iter().map(|r| r.cells.get("r").cloned()).collect();
    let text = |t| Some(Value::str(t));
    assert_eq!(tags, [text("1"), text("1"), text("2"), None]);
    let channel = out
        .catalog
        .catalog()
        .table("t")
        .unwrap()
        .column("r")
        .cloned();
    assert_eq!(
        channel.map(|c| (c.label, c.declared)),
        Some((Label::TEXT, false))
    );
}

#[test]
fn a_refused_tag_is_never_left_away_in_silence() {
    let options = IlpOptions {
        store_tags: true,
        ..IlpOptions::default()
    };
    let mut parser = parser::Parser::new(limits(), options, 1, catalog().catalog());
    let mut input = buffer::LineBuffer::new(1024);
    let line = b"loose,entity=a,region=r d=1 0\n";
    input.push(&[&line[..], line].concat());
    let mut bad = Vec::new();
    loop {
        let mut report = |e: &BadLine, _: &[u8]| bad.push((e.reason, e.line));
        match parser.step(&mut input, NOW, &mut report) {
            parser::Step::Needs { table, columns } => {
                assert_eq!(
                    (table.as_str(), columns[0].name.as_str()),
                    ("loose", "region")
                );
                parser.refuse("columns is reached");
            }
            parser::Step::Drained => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bad, [(Reason::Refused, 1), (Reason::Refused, 2)]);
    assert_eq!(parser.rows(), 0);
}

#[test]
fn bad_lines_know_their_numbers() {
    let text = "t,entity=a x=1 0\n\n# c\nbad\nt,entity=a s=\"one\ntwo\" 0\nbad 2\n".to_owned()
        + &"x".repeat(3000)
        + "\nbad 3\n";
    for chunk in [1, 50, usize::MAX] {
        let mut lines = Vec::new();
        let mut catalog = catalog();
        catalog.run(
            &limits(),
            IlpOptions::default(),
            1,
            text.as_bytes().chunks(chunk.min(text.len())),
            NOW,
            &mut |e, _| lines.push(e.line),
        );
        assert_eq!(lines, [4, 7, 8, 9], "{chunk}");
    }
}

#[test]
fn times_have_the_unit_that_was_asked_for() {
    for (precision, expect) in [
        (Precision::Nanoseconds, "t a 1 x=1"),
        (Precision::Microseconds, "t a 1500 x=1"),
        (Precision::Milliseconds, "t a 1500000 x=1"),
        (Precision::Seconds, "t a 1500000000 x=1"),
        (Precision::Minutes, "t a 90000000000 x=1"),
        (Precision::Hours, "t a 5400000000000 x=1"),
    ] {
        let options = IlpOptions {
            precision,
            ..IlpOptions::default()
        };
        assert_eq!(shown_with(options, "t,entity=a x=1 1500000"), expect);
    }
}

#[test]
fn fuzz_entry_holds_on_what_is_at_hand() {
    for seed in [
        &b""[..],
        b"\x01",
        b"\x03t,entity=a x=1\nt,entity=\"\n\"\"\n",
        &[b'\n'; 100],
        &[b'"'; 3000],
    ] {
        fuzz_entry(seed);
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["x", "y", "z", "d", "i", "b", "at", "s", "v"]).prop_map(String::from),
        1 => r"[a-c\\ ,=]{1,4}".prop_map(|s| s.replace(' ', "\\ ").replace(',', "\\,")),
        1 => prop::sample::select(vec!["entity", "ts", "$x", "größe", ""]).prop_map(String::from),
    ]
}

fn field_value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "-?[0-9]{1,6}(\\.[0-9]{1,4})?",
        3 => "-?[0-9]{1,17}[iu]",
        1 => "[-+]?[0-9.]{0,20}(e[-+]?[0-9]{1,3})?",
        2 => prop::sample::select(vec!["t", "F", "true", "False", "NaN", "inf", "1.0", "0", "tru"]).prop_map(String::from),
        3 => "\"[a-z\\\\\" ,=\n]{0,6}\"",
        1 => "\"[a-zä]{0,5}",
    ]
}

fn line_text() -> impl Strategy<Value = String> {
    let table = prop::sample::select(vec![
        "t", "u", "typed", "loose", "ids", "reg", "tagged", "pg_t", "$t", r"a\ b", "",
    ]);
    let entity = prop_oneof![
        8 => prop::sample::select(vec![
            ",entity=a", ",entity=b", ",entity=c", r",entity=a\ b\\", "", ",entity=",
            ",entity=019f31db000040008000000000000abc", ",host=h,entity=a,s=tag", ",s=x,entity=b",
            ",zone=a,entity=b", ",zone=a,host=h", ",entity=a,x=1", ",entity=a,d=1,y=2",
        ]).prop_map(String::from),
        1 => r",entity=[a-c\\]{1,3}",
    ];
    let fields = prop::collection::vec((name(), field_value()), 1..5).prop_map(|f| {
        let parts: Vec<String> = f.into_iter().map(|(n, v)| format!("{n}={v}")).collect();
        parts.join(",")
    });
    let time = prop_oneof![4 => Just(" 1700000000000000000".to_string()), 1 => Just(String::new()), 1 => " -?[0-9]{1,20} ?"];
    let end = prop::sample::select(vec![
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\n\n# c\n",
        "",
        "\n\u{feff}",
    ]);
    (table, entity, fields, time, end).prop_map(|(t, e, f, ts, n)| format!("{t}{e} {f}{ts}{n}"))
}

fn mutate(mut bytes: Vec<u8>, edits: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(at, kind, byte) in edits {
        if bytes.is_empty() {
            break;
        }
        let at = at % bytes.len();
        match kind % 3 {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => {
                bytes.remove(at);
            }
        }
    }
    bytes
}

fn interesting_byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => prop::sample::select(b"\n\r\\\",= \"\"#\0ti-.0\xff".to_vec()), 1 => any::<u8>()]
}

fn options() -> impl Strategy<Value = IlpOptions> {
    let precision = prop_oneof![
        4 => Just(Precision::Nanoseconds),
        1 => prop::sample::select(vec![
            Precision::Microseconds,
            Precision::Milliseconds,
            Precision::Seconds,
            Precision::Minutes,
            Precision::Hours,
        ]),
    ];
    let tag = prop::sample::select(vec!["entity", "entity", "host"]);
    (any::<bool>(), precision, tag).prop_map(|(store_tags, precision, tag)| IlpOptions {
        entity_tag: tag.into(),
        store_tags,
        precision,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_parser_answers_what_the_plain_one_answers(
        lines in prop::collection::vec(line_text(), 1..30),
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), interesting_byte()), 0..6),
        chunk in prop_oneof![Just(1usize), 2usize..40, Just(usize::MAX)],
        shards in 1u16..4,
        options in options(),
    ) {
        let input = mutate(lines.concat().into_bytes(), &edits);
        let mut plain_catalog = catalog();
        let (expected, bad) = reference::run(&mut plain_catalog, &limits(), &options, &input, NOW);
        let got = parse_with(options, &input, chunk, shards);
        let shown = |lines: &[Vec<u8>]| {
            let cut = |l: &Vec<u8>| String::from_utf8_lossy(&l[..l.len().min(100)]).into_owned();
            lines.iter().map(cut).collect::<Vec<_>>()
        };
        // A line that is too long may be reported before all of it has come.
        prop_assert_eq!(shown(&got.bad_lines), shown(&bad), "{:?}", got.bad);
        prop_assert_eq!(&*got.catalog.catalog(), &*plain_catalog.catalog());
        prop_assert_eq!(got.rows.len(), expected.len());
        for shard in 0..shards {
            for table in ["t", "u", "typed", "loose", "ids", "tagged", "a b"] {
                let of = |r: &&Row| r.table == table && shard_of_entity(&r.entity, shards).0 == shard;
                let got: Vec<_> = got.rows.iter().filter(of).collect();
                let expected: Vec<_> = expected.iter().filter(of).collect();
                prop_assert_eq!(got, expected);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(data in prop::collection::vec(interesting_byte(), 0..400)) {
        fuzz_entry(&data);
    }
}
