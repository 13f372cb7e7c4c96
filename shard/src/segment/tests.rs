//! Whole segments: what goes in comes out, and damage anywhere is an error that names the file, never a
//! wrong value.
#![allow(clippy::disallowed_methods)] // damages files behind the engine's back

use super::*;
use crate::testing::{block_on, env};
use proptest::prelude::*;
use std::path::Path;
use std::rc::Rc;
use strandline_core::format::block::{
    Bitmap, Block, BlockColumn, BlockData, Presence, SegmentInfo, SegmentKind,
};
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::io::Env;
use strandline_core::routing::hash64;
use strandline_core::value::StrVec;

const ID: SegmentId = SegmentId(12);

fn info() -> SegmentInfo {
    SegmentInfo {
        kind: SegmentKind::Stream,
        table: TableId(4),
        flushes: (1, 1),
        rows: 300,
        range: (0, 299),
        max_rev: 0,
        tombstones: 0,
    }
}

/// Block `n` of 100 rows: entities, times, a full and a sparse channel, and text.
fn block(section: u8, n: i64) -> Block {
    let mut some = Bitmap::new(100);
    (0..100)
        .filter(|r| *r as i64 % 7 == n % 7)
        .for_each(|r| some.set(r));
    let sparse: Vec<f64> = some.ones().map(|r| r as f64 / 3.0).collect();
    let column = |id, presence, data| BlockColumn {
        id: ColumnId(id),
        presence,
        data,
        edges_ts: (id == 65).then_some((n, n + 1)),
    };
    let texts: StrVec = (0..100).map(|r| ["on", "off", "?"][r * r % 3]).collect();
    let names: StrVec = ["a", "b"].into_iter().collect();
    let counts = vec![40, 60];
    let full = (0..100).map(|r| (r * r % 17) as f64 + n as f64).collect();
    Block {
        section,
        rows: 100,
        first_key: n.to_be_bytes().to_vec(),
        last_key: n.to_be_bytes().to_vec(),
        range: (n, n + 99),
        // Not in order, and one without cells: the sink sorts and leaves it out.
        columns: vec![
            column(65, Presence::Some(some), BlockData::F64(sparse)),
            column(66, Presence::Some(Bitmap::new(100)), BlockData::F64(vec![])),
            column(0, Presence::All, BlockData::StrRuns { names, counts }),
            column(1, Presence::All, BlockData::I64((n..n + 100).collect())),
            column(64, Presence::All, BlockData::F64(full)),
            column(67, Presence::All, BlockData::Str(texts)),
        ],
    }
}

const ALL: [ColumnId; 6] = [
    ColumnId(0),
    ColumnId(1),
    ColumnId(64),
    ColumnId(65),
    ColumnId(66),
    ColumnId(67),
];

fn write(env: &Env, effort: Effort) -> SegmentFile {
    block_on(async {
        env.disk.create_dir_all("t/s").await.unwrap();
        let mut sink = SegmentSink::create(env, "t/s", ID, info())
            .await
            .unwrap()
            .with_effort(effort);
        for n in 0..3 {
            sink.push(block(0, n * 100)).await.unwrap();
        }
        sink.push(block(2, 0)).await.unwrap();
        for n in 0..500u64 {
            sink.add_hash(hash64(&n.to_le_bytes()));
        }
        sink.finish(info()).await.unwrap()
    })
}

/// Reads everything and compares; the first error.
fn read_all(env: &Env) -> strandline_core::Result<()> {
    block_on(async {
        let cache = BlockCache::new(1 << 20);
        let segment = Segment::open(env, "t/s", ID, cache).await?;
        assert_eq!(segment.info(), &info());
        assert_eq!([0, 1, 2].map(|s| segment.blocks(s).len()), [3, 0, 1]);
        for (section, count) in [(0, 3), (2, 1)] {
            for n in 0..count {
                let want = block(section, n as i64 * 100);
                let meta = &segment.blocks(section)[n];
                assert_eq!((meta.rows, meta.range), (want.rows, want.range));
                assert_eq!(meta.first_key, want.first_key);
                let got = segment.read(section, n, &ALL).await?;
                assert_eq!(got.rows, 100);
                assert!(got.get(ColumnId(66)).is_none());
                for c in want.columns.iter().filter(|c| !c.data.is_empty()) {
                    let column = got.get(c.id).unwrap();
                    assert_eq!((&column.presence, &column.data), (&c.presence, &c.data));
                    let chunk = meta.chunk(c.id).unwrap();
                    assert_eq!(chunk.count as usize, c.data.len());
                    assert_eq!(chunk.edges_ts, c.edges_ts);
                }
            }
        }
        for n in 0..500u64 {
            assert!(segment.may_contain(hash64(&n.to_le_bytes())));
        }
        Ok(())
    })
}

fn file(dir: &Path) -> std::path::PathBuf {
    dir.join("t/s").join(file_name(ID))
}

#[test]
fn names() {
    assert_eq!(file_name(ID), "0000000000000012.seg");
    assert_eq!(parse_file_name("0000000000000012.seg"), Some(ID));
    for other in [
        "12.seg",
        "0000000000000012.seg.tmp",
        "+000000000000012.seg",
        "manifest",
    ] {
        assert_eq!(parse_file_name(other), None);
    }
}

#[test]
fn what_goes_in_comes_out() {
    for effort in [Effort::Flush, Effort::Merge] {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path());
        let written = write(&env, effort);
        assert_eq!(
            written.bytes,
            std::fs::metadata(file(dir.path())).unwrap().len()
        );
        read_all(&env).unwrap();
        assert_eq!(block_on(env.disk.list("t/s")).unwrap(), [file_name(ID)]);
    }
}

#[test]
fn columns_come_from_the_cache_the_second_time() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    write(&env, Effort::Flush);
    block_on(async {
        let cache = BlockCache::new(1 << 20);
        let segment = Segment::open(&env, "t/s", ID, cache.clone()).await.unwrap();
        let a = segment
            .read(0, 1, &[ColumnId(64), ColumnId(64)])
            .await
            .unwrap();
        let b = segment
            .read(0, 1, &[ColumnId(64), ColumnId(1)])
            .await
            .unwrap();
        let of = |b: &DecodedBlock| b.get(ColumnId(64)).unwrap().clone();
        assert!(Rc::ptr_eq(&of(&a), &of(&b)));
        let other = segment.read(2, 0, &[ColumnId(64)]).await.unwrap();
        assert!(
            !Rc::ptr_eq(&of(&a), &of(&other)),
            "sections must not be mixed up"
        );
        // Another opening (or another shard's segment of the same number) is another segment.
        let again = Segment::open(&env, "t/s", ID, cache).await.unwrap();
        let c = again.read(0, 1, &[ColumnId(64)]).await.unwrap();
        assert!(!Rc::ptr_eq(&of(&a), &of(&c)));
        assert!(segment.read(0, 3, &ALL).await.is_err());
    });
}

#[test]
fn a_bounded_filter_knows_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    block_on(async {
        env.disk.create_dir_all("s").await.unwrap();
        let sink = SegmentSink::create(&env, "s", ID, info()).await.unwrap();
        let mut sink = sink.with_key_bound(100_000);
        (0..300).for_each(|n| sink.add_hash(hash64(&[n as u8, 1])));
        let file = sink.finish(info()).await.unwrap();
        assert!(file.bytes < 2000, "{} bytes for 300 keys", file.bytes);
        let s = Segment::open(&env, "s", ID, BlockCache::new(0))
            .await
            .unwrap();
        assert!((0..300).all(|n| s.may_contain(hash64(&[n as u8, 1]))));
        assert!((0..200).any(|n| !s.may_contain(hash64(&[n as u8, 2]))));
    });
}

#[test]
fn a_missing_and_an_empty_file_are_errors_that_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let e = read_all(&env).unwrap_err();
    assert!(e.message().contains("t/s/0000000000000012.seg"), "{e:?}");
    write(&env, Effort::Flush);
    std::fs::write(file(dir.path()), b"").unwrap();
    let e = read_all(&env).unwrap_err();
    assert_eq!(e.state(), SqlState::DataCorrupted);
}

#[test]
fn a_damaged_chunk_is_named_by_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    write(&env, Effort::Flush);
    block_on(async {
        let open = || Segment::open(&env, "t/s", ID, BlockCache::new(1 << 20));
        let offset = open().await.unwrap().blocks(0)[1]
            .chunk(ColumnId(65))
            .unwrap()
            .offset;
        let mut bytes = std::fs::read(file(dir.path())).unwrap();
        bytes[offset as usize + 3] ^= 0x10;
        std::fs::write(file(dir.path()), &bytes).unwrap();
        let segment = open().await.unwrap();
        segment.read(0, 0, &ALL).await.unwrap();
        let e = segment.read(0, 1, &ALL).await.unwrap_err();
        assert_eq!(e.state(), SqlState::DataCorrupted);
        assert!(e.message().contains(&format!("offset {offset}")), "{e:?}");
        assert!(e.message().contains("t/s/0000000000000012.seg"), "{e:?}");
        // The block's other columns are still there.
        segment
            .read(0, 1, &[ColumnId(1), ColumnId(64)])
            .await
            .unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// `read_all` compares every value: a flip that it does not notice makes it panic.
    #[test]
    fn damage_anywhere_is_an_error(
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        cut in any::<prop::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path());
        write(&env, Effort::Merge);
        let good = std::fs::read(file(dir.path())).unwrap();
        let mut bad = good.clone();
        bad[at.index(good.len())] ^= 1 << bit;
        std::fs::write(file(dir.path()), &bad).unwrap();
        let e = read_all(&env).unwrap_err();
        prop_assert!(e.message().contains("t/s/0000000000000012.seg"));
        std::fs::write(file(dir.path()), &good[..cut.index(good.len())]).unwrap();
        prop_assert_eq!(read_all(&env).unwrap_err().state(), SqlState::DataCorrupted);
        std::fs::write(file(dir.path()), &good).unwrap();
        read_all(&env).unwrap();
    }
}
