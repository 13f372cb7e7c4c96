//! What comes from the network: lines, frames of PostgreSQL's protocol, heads of HTTP requests.

use crate::fuzz::{Outcome, Target, size};
use crate::plain::reference::{self, Row};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::limits::Limits;
use strandline_core::routing::shard_of_entity;
use strandline_core::schema::{ColumnDef, Family, Fill, Label, TableDef};
use strandline_core::stream::batch::BatchCells;
use strandline_core::value::Value;
use strandline_net::http::head::{Taken, take};
use strandline_net::ilp::local::LocalCatalog;
use strandline_net::ilp::{IlpOptions, Precision, fuzz_entry};

const NOW: i64 = 1_767_225_600_123;

const LINE_TOKENS: &[&str] = &[
    "entity=a",
    "entity=",
    ",entity=veh-2",
    "t",
    "typed",
    "loose",
    "ids",
    "reg",
    "d",
    "i",
    "b",
    "at",
    "s",
    "v",
    "1",
    "-1.5",
    "1i",
    "1u",
    "9007199254740993i",
    "18446744073709551615u",
    "1e308",
    "1e400",
    "-0.0",
    "NaN",
    "inf",
    "true",
    "F",
    "\"text\"",
    "\"a\\\"b\"",
    "\"two\nlines\"",
    "\"",
    "\\",
    "\\ ",
    "\\,",
    "\\=",
    "=",
    ",",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\u{feff}",
    "#",
    "\0",
    "ä",
    "\u{10FFFF}",
    "1700000000000000000",
    "-1",
    "9223372036854775807",
    "019f31db000040008000000000000abc",
    "x y",
    "$timestamp",
    "ts",
];

const LINES: &[&str] = &[
    "typed,entity=veh-1 d=1.5,i=7i,b=t,at=1700000000000i,s=\"on\",v=\"abc\" 1700000000000000000\n",
    "loose,host=h\\ 1,entity=veh-2,region=eu d=-0.25,i=3i 1700000000001000000\nloose,entity=veh-2 d=2\n",
    "ids,entity=019f31db000040008000000000000abc d=1 5000000\n",
    "new\\ table,entity=a x=1,y=\"say \\\"hi\\\"\",z=f\nnew\\ table,entity=a x=2.5,w=1u\n",
    "# a comment\n\n \r\nt,entity=größe größe=1e3\r\n",
    "t,entity=a s=\"two\nlines\" 1\nt,entity=a s=\"open\nt,entity=b x=1\n",
    "reg,entity=a d=1\nt x=1\nt,entity=a\nt,entity=a x=nan\n",
];

fn catalog() -> LocalCatalog {
    let table = |id, name: &str, family, declared, entity_uuid| {
        let labels = [
            ("d", Label::Double),
            ("i", Label::Int),
            ("b", Label::Bool),
            ("at", Label::Timestamp),
            ("s", Label::TEXT),
            ("v", Label::Text { max_chars: Some(3) }),
        ];
        let columns = (64..).zip(labels).map(|(id, (name, label))| ColumnDef {
            id: ColumnId(id),
            name: name.into(),
            label,
            fill: Fill::None,
            declared,
        });
        TableDef {
            id: TableId(id),
            name: name.into(),
            family,
            columns: columns.collect(),
            entity_uuid,
            options: Default::default(),
            next_column: ColumnId(70),
        }
    };
    LocalCatalog::new(vec![
        table(1, "typed", Family::Timeseries, true, false),
        table(2, "loose", Family::Timeseries, false, false),
        table(3, "ids", Family::Timeseries, true, true),
        table(4, "reg", Family::Rows, true, false),
    ])
}

/// The first byte of an input says in which pieces the rest comes, and what the listener was told.
fn lines(input: &[u8]) -> Outcome {
    fuzz_entry(input);
    let (first, text) = input.split_first().unwrap_or((&0, &[]));
    let pieces = first % 32;
    let options = IlpOptions {
        store_tags: first & 32 > 0,
        precision: [
            Precision::Nanoseconds,
            Precision::Milliseconds,
            Precision::Seconds,
            Precision::Hours,
        ][usize::from(first >> 6)],
        ..IlpOptions::default()
    };
    let limits = Arc::new(Limits {
        ilp_line_bytes: 1024,
        ilp_fields: 12,
        entity_bytes: 64,
        ..Limits::default()
    });
    let shards = 2;
    let mut plain_catalog = catalog();
    let (expected, expected_bad) = reference::run(&mut plain_catalog, &limits, &options, text, NOW);
    let mut fast_catalog = catalog();
    let (mut bad, mut reasons) = (Vec::new(), Vec::new());
    let chunks = text.chunks(match pieces {
        0 => usize::MAX,
        n => usize::from(n),
    });
    let writes = fast_catalog.run(&limits, options, shards, chunks, NOW, &mut |e, line| {
        // A line that is too long may be reported before all of it has come.
        bad.push(line[..line.len().min(100)].to_vec());
        reasons.push(e.reason.name());
    });
    let mut rows: BTreeMap<(String, u16), Vec<Row>> = BTreeMap::new();
    for w in &writes {
        let def = fast_catalog
            .catalog()
            .table_by_id(w.table)
            .expect("its table")
            .clone();
        for row in 0..w.batch.rows() {
            let entity = w.batch.entities.get(w.batch.entity_of_row[row] as usize);
            let mut cells = BTreeMap::new();
            for c in &w.batch.columns {
                let cell = match &c.rows {
                    None => Some(row),
                    Some(list) => list.binary_search(&(row as u32)).ok(),
                };
                let Some(cell) = cell else { continue };
                let name = &def.column_by_id(c.id).expect("its channel").name;
                let value = match &c.cells {
                    BatchCells::F64(v) => Value::F64(v[cell]),
                    BatchCells::Str(v) => Value::str(v.get(cell)),
                };
                cells.insert(name.clone(), value);
            }
            let row = Row {
                table: def.name.clone(),
                entity: entity.into(),
                ts: w.batch.ts[row],
                cells,
            };
            rows.entry((def.name.clone(), w.shard.0))
                .or_default()
                .push(row);
        }
    }
    let mut wanted: BTreeMap<(String, u16), Vec<Row>> = BTreeMap::new();
    for row in expected {
        let shard = shard_of_entity(&row.entity, shards).0;
        wanted
            .entry((row.table.clone(), shard))
            .or_default()
            .push(row);
    }
    assert_eq!(rows, wanted, "the rows differ");
    let expected_bad: Vec<Vec<u8>> = expected_bad
        .into_iter()
        .map(|l| l[..l.len().min(100)].to_vec())
        .collect();
    assert_eq!(bad, expected_bad, "the bad lines differ");
    assert_eq!(*fast_catalog.catalog(), *plain_catalog.catalog());
    reasons.sort_unstable();
    reasons.dedup();
    Outcome::of((
        reasons,
        rows.len(),
        size(wanted.values().map(Vec::len).sum()),
    ))
}

#[test]
fn line_protocol() {
    let whole = LINES.concat();
    let inputs = LINES.iter().copied().chain([whole.as_str()]);
    let corpus = inputs
        .zip(0u8..)
        .map(|(text, n)| [&[n % 5 + (n % 8) * 32], text.as_bytes()].concat());
    Target {
        name: "line protocol",
        corpus: corpus.collect(),
        tokens: LINE_TOKENS,
        mend: None,
        memory: (4 << 20, 400),
        run: &lines,
    }
    .fuzz();
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

/// Makes the length of the first frame that does not fit the rest of the input.
fn mend_frames(input: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = input.get(at..at + 5) {
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let rest = input.len() - at - 1;
        if !(4..=rest).contains(&len) {
            input[at + 1..at + 5].copy_from_slice(&(rest as u32).to_be_bytes());
            return;
        }
        at += 1 + len;
    }
}

#[test]
fn postgres_frames() {
    let startup = |rest: &[u8]| [&(rest.len() as u32 + 4).to_be_bytes()[..], rest].concat();
    let bind = |formats: &[u8], value: &[u8]| {
        let count = (formats.len() / 2) as u16;
        frame(
            b'B',
            &[
                b"p\0s\0",
                &count.to_be_bytes()[..],
                formats,
                &[0, 1],
                &(value.len() as u32).to_be_bytes(),
                value,
                &[0, 1, 0, 1],
            ]
            .concat(),
        )
    };
    let numeric = [0u8, 2, 0, 0, 0, 0, 0, 1, 0, 7, 19, 136];
    let corpus = vec![
        startup(b"\0\x03\0\0user\0tester\0database\0main\0application_name\0psql\0\0"),
        startup(&80_877_103u32.to_be_bytes()),
        startup(&[&80_877_102u32.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 2]].concat()),
        frame(b'Q', b"SELECT 1; BEGIN\0"),
        [
            frame(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x19"),
            bind(&[0, 1], &7i64.to_be_bytes()),
            frame(b'D', b"Pp\0"),
            frame(b'E', b"p\0\0\0\0\x05"),
            frame(b'C', b"Ss\0"),
            frame(b'S', b""),
        ]
        .concat(),
        bind(&[0, 0], b"2026-01-01 10:00:00.25+02"),
        bind(&[0, 1], &numeric),
        bind(&[0, 1], &1.5f64.to_be_bytes()),
        bind(&[], b"-12.50e3"),
        bind(&[0, 1], &[7; 16]),
        [frame(b'd', b"x"), frame(b'X', b"")].concat(),
    ];
    Target {
        name: "postgres frames",
        corpus,
        tokens: &[],
        mend: Some(&|input: &mut Vec<u8>| mend_frames(input)),
        memory: (128 << 10, 64),
        run: &|input| {
            strandline_net::pg::fuzz_entry(input);
            let mut frames = strandline_net::pg::frame::Input::default();
            frames.push(input);
            let mut seen = Vec::new();
            while let Ok(strandline_net::pg::frame::Next::Frame(kind, body)) = frames.next(1 << 20)
            {
                seen.push((
                    kind,
                    strandline_net::pg::frame::decode(kind, body)
                        .map(drop)
                        .map_err(|e| e.to_string()),
                ));
            }
            Outcome::of(seen)
        },
    }
    .fuzz();
}

const HTTP_TOKENS: &[&str] = &[
    "GET",
    "HEAD",
    "POST",
    "/health",
    "/ready",
    "/metrics",
    "/",
    "*",
    "?x=1",
    "#f",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/2.0",
    "\r\n",
    "\n",
    "\r\n\r\n",
    "Host: a",
    "Connection: close",
    "Connection: keep-alive, x",
    "Content-Length: 0",
    "Content-Length: 18446744073709551616",
    "Transfer-Encoding: chunked",
    ":",
    " ",
    "\t",
    "\0",
    "ü",
    "%00",
    "X: y\r\n",
];

#[test]
fn http_heads() {
    let max_bytes = 4096;
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(101));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(5000));
    Target {
        name: "http heads",
        corpus: [
            "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /metrics?x=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /ready HTTP/1.1\r\nConnection: close\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            &many,
            &long,
        ]
        .map(|text| text.as_bytes().to_vec())
        .into(),
        tokens: HTTP_TOKENS,
        mend: None,
        memory: (32 << 10, 8),
        run: &|input| {
            let mut buffer = input.to_vec();
            let mut seen = Vec::new();
            loop {
                let before = buffer.len();
                match take(&mut buffer, max_bytes) {
                    Taken::Request(r) => {
                        assert!(before - buffer.len() <= max_bytes && buffer.len() < before);
                        assert!(!r.path.contains(['?', '#']));
                        seen.push((u16::from(r.keep_alive), size(r.path.len())));
                    }
                    Taken::More => {
                        assert!(buffer.len() < max_bytes, "it waits for more of a head that is too long");
                        break;
                    }
                    Taken::Bad(status) => {
                        assert!((400..=505).contains(&status));
                        seen.push((status, 0));
                        break;
                    }
                }
            }
            seen.truncate(6);
            Outcome::of(seen)
        },
    }
    .fuzz();
}
