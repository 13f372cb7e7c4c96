//! Small sealed files: catalog, manifest, fence; and the log's note of accepted losses.

use crate::fuzz::{Outcome, Target, size};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use strandline_core::format::log::{decode_gaps, encode_gaps};
use strandline_core::format::sealed::{seal, unseal, unseal_all};
use strandline_core::ids::{ColumnId, Lsn, Rev, SegmentId, TableId};
use strandline_core::schema::{ColumnDef, Family, Fill, Label, TableDef, TableRevisions};
use strandline_shard::catalog_log::{EDIT_KIND, Edit};
use strandline_shard::manifest::{FENCE_KIND, Fence, KIND, Manifest, TableManifest};
use strandline_shard::shared::{CATALOG_KIND, CatalogFile};

/// Words of JSON, and numbers at their edges.
pub const TOKENS: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "[[[[[[[[",
    "{\"a\":",
    "\"\"",
    "\"tables\"",
    "\"segments\"",
    "\"flushed\"",
    "\"id\"",
    "\"Rows\"",
    "\"Timeseries\"",
    "\"next_segment\"",
    "0",
    "1",
    "-1",
    "1.5",
    "1e400",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    ",",
    ":",
    "}",
    "]",
    "\\u0000",
    "v2",
    "len=",
    "crc32c=00000000",
];

/// The catalog of a database with two tables.
pub fn catalog() -> CatalogFile {
    let column = |id, name: &str, label, fill| ColumnDef {
        id: ColumnId(id),
        name: name.into(),
        label,
        fill,
        declared: true,
    };
    let hold = Fill::Hold {
        staleness_ms: Some(60_000),
    };
    let table = |id, name: &str, family, columns: Vec<ColumnDef>| {
        Arc::new(TableDef {
            id: TableId(id),
            name: name.into(),
            family,
            next_column: ColumnId(64 + columns.len() as u32),
            columns,
            entity_uuid: false,
            options: Default::default(),
        })
    };
    let revisions = TableRevisions {
        reserved: Rev(1 << 20),
        horizon: Rev(17),
    };
    CatalogFile {
        version: 7,
        log: 0,
        shards: 2,
        next_table: TableId(3),
        tables: vec![
            table(
                1,
                "tele",
                Family::Timeseries,
                vec![
                    column(64, "speed", Label::Double, hold),
                    column(65, "event", Label::Text { max_chars: Some(9) }, Fill::None),
                ],
            ),
            table(
                2,
                "planes",
                Family::Rows,
                vec![column(64, "größe", Label::Int, Fill::None)],
            ),
        ],
        revisions: [(TableId(2), revisions)].into(),
    }
}

fn edit() -> Edit {
    Edit::between(&CatalogFile::default(), &catalog())
}

fn manifest() -> Manifest {
    let tables = [(1, vec![1, 4, 5]), (2, vec![]), (9, vec![3])].map(|(id, segments)| {
        let segments = segments.into_iter().map(SegmentId).collect();
        (
            TableId(id),
            TableManifest {
                flushed: Lsn(88),
                segments,
            },
        )
    });
    Manifest {
        tables: tables.into(),
        next_segment: 6,
        max_xid: "019f31db000000000000000000000001".into(),
        log_after: Lsn(40),
        void: vec![(Lsn(90), Lsn(94))],
        ..Manifest::default()
    }
}

/// Makes length and checksum of a sealed file those of its body.
pub fn mend(input: &mut Vec<u8>) {
    let Some(end) = input.iter().position(|&b| b == b'\n') else {
        return;
    };
    let head = String::from_utf8_lossy(&input[..end]).into_owned();
    let body = input.split_off(end + 1);
    let kept: Vec<&str> = head.split(' ').take(2).collect();
    let crc = crc32c::crc32c(&body);
    *input = format!("{} crc32c={crc:08x} len={}\n", kept.join(" "), body.len()).into_bytes();
    input.extend_from_slice(&body);
}

fn open<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    kind: &str,
    input: &[u8],
) -> Option<Outcome> {
    match unseal::<T>(kind, input, "the file") {
        Err(e) if e.message().contains("file, not a") => None,
        Err(e) => Some(Outcome::error(e)),
        Ok(value) => {
            let again = seal(kind, &value).expect("what was read is written");
            assert_eq!(
                unseal::<T>(kind, &again, "the file").expect("and read again"),
                value
            );
            Some(Outcome::of((kind.to_string(), size(input.len()))))
        }
    }
}

fn run(input: &[u8]) -> Outcome {
    open::<Manifest>(KIND, input)
        .or_else(|| open::<CatalogFile>(CATALOG_KIND, input))
        .or_else(|| open::<Fence>(FENCE_KIND, input))
        .or_else(|| open::<Edit>(EDIT_KIND, input))
        .unwrap_or(Outcome::of("another kind"))
}

#[test]
fn sealed_files() {
    Target {
        name: "sealed files",
        corpus: vec![
            seal(KIND, &manifest()).expect("a manifest"),
            seal(KIND, &Manifest::default()).expect("a manifest"),
            seal(CATALOG_KIND, &catalog()).expect("a catalog"),
            seal(FENCE_KIND, &Fence { from: Lsn(7) }).expect("a fence"),
            seal(EDIT_KIND, &edit()).expect("an edit"),
        ],
        tokens: TOKENS,
        mend: Some(&mend),
        memory: (64 << 10, 64),
        run: &run,
    }
    .fuzz();
}

#[test]
fn edits_end_to_end() {
    let one = seal(EDIT_KIND, &edit()).expect("an edit");
    let none = seal(EDIT_KIND, &Edit::default()).expect("an edit");
    Target {
        name: "edits of a catalog",
        corpus: vec![
            [&one[..], &none, &one].concat(),
            [&none[..], &none, &one[..40]].concat(),
            Vec::new(),
        ],
        tokens: TOKENS,
        mend: Some(&mend),
        memory: (64 << 10, 64),
        run: &|input| match unseal_all::<Edit>(EDIT_KIND, input, "the file") {
            Ok(edits) => {
                let mut file = catalog();
                let n = edits.len();
                edits.into_iter().for_each(|e| e.apply(&mut file));
                assert!(file.tables.is_sorted_by_key(|t| t.id));
                Outcome::of(n)
            }
            Err(e) => Outcome::error(e),
        },
    }
    .fuzz();
}

#[test]
fn the_note_of_accepted_losses() {
    Target {
        name: "note of losses",
        corpus: vec![encode_gaps(&[]), encode_gaps(&[(0, 9), (12, 14)])],
        tokens: &[],
        mend: Some(&|input: &mut Vec<u8>| {
            if input.len() >= 20 {
                input[16..20].fill(0);
                let crc = crc32c::crc32c(input).to_le_bytes();
                input[16..20].copy_from_slice(&crc);
            }
        }),
        memory: (16 << 10, 4),
        run: &|input| match decode_gaps(input) {
            Ok(gaps) => {
                assert_eq!(encode_gaps(&gaps), input);
                Outcome::of(gaps.len())
            }
            Err(e) => Outcome::error(e),
        },
    }
    .fuzz();
}
