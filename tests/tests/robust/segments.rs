//! Segment files: through the reader as the stores use it, and the footer without its checksums.

use crate::codecs::samples;
use crate::fuzz::{Outcome, Target, size};
use crate::memdisk::{Files, MemDisk};
use strandline_core::format::block::{
    Bitmap, Block, BlockColumn, BlockData, Presence, SegmentInfo, SegmentKind,
};
use strandline_core::format::segment::{
    SEGMENT_HEADER_LEN, SEGMENT_TRAILER_LEN, check_header, decode_footer, decode_trailer,
};
use strandline_core::ids::{ColumnId, SegmentId, TableId};
use strandline_core::routing::hash64;
use strandline_shard::segment::{BlockCache, Effort, Segment, SegmentSink};
use strandline_tests::sim::world::{Rng, World};

const ID: SegmentId = SegmentId(12);
const PATH: &str = "s/0000000000000012.seg";

fn info(kind: SegmentKind) -> SegmentInfo {
    SegmentInfo {
        kind,
        table: TableId(4),
        flushes: (1, 3),
        rows: 240,
        range: (-5, 299),
        max_rev: 17,
        tombstones: 2,
    }
}

fn block(rng: &Rng, section: u8, n: i64, rows: usize) -> Block {
    let mut columns = Vec::new();
    for (id, data) in (60..).zip(samples(rng, rows)) {
        columns.push(BlockColumn {
            id: ColumnId(id),
            presence: Presence::All,
            data,
            edges_ts: (id % 3 == 0).then_some((n, n + 1)),
        });
    }
    let mut bits = Bitmap::new(rows);
    (0..rows).step_by(5).for_each(|r| bits.set(r));
    columns.push(BlockColumn {
        id: ColumnId(90),
        data: BlockData::F64(vec![1.25; bits.count_ones()]),
        presence: Presence::Some(bits),
        edges_ts: None,
    });
    Block {
        section,
        rows: rows as u32,
        first_key: n.to_be_bytes().to_vec(),
        last_key: n.to_be_bytes().to_vec(),
        range: (n, n + rows as i64),
        columns,
    }
}

/// A segment's file.
fn segment(kind: SegmentKind, effort: Effort, sections: &'static [u8], rows: usize) -> Vec<u8> {
    let disk = MemDisk::of(&Files::new());
    let world = World::new(1);
    let env = disk.env(&world);
    let written = world.block_on("a segment", async move {
        let rng = Rng::new(2);
        let mut sink = SegmentSink::create(&env, "s", ID, info(kind))
            .await?
            .with_effort(effort);
        for (&section, n) in sections.iter().zip(0..) {
            sink.push(block(&rng, section, n * 100, rows)).await?;
        }
        for n in 0..100u64 {
            sink.add_hash(hash64(&n.to_le_bytes()));
        }
        sink.finish(info(kind)).await
    });
    written.expect("an end").expect("a segment");
    disk.copy().remove(PATH).expect("its file")
}

fn corpus() -> Vec<Vec<u8>> {
    vec![
        segment(SegmentKind::Stream, Effort::Flush, &[0], 3),
        segment(SegmentKind::Stream, Effort::Flush, &[0, 0, 0], 40),
        segment(SegmentKind::Keyed, Effort::Merge, &[0, 0, 1, 1, 2], 60),
        segment(SegmentKind::Keyed, Effort::Merge, &[], 0),
    ]
}

/// Everything a reader can learn from a file.
fn read(file: &[u8]) -> strandline_core::error::Result<String> {
    let disk = MemDisk::of(&Files::from([(PATH.to_string(), file.to_vec())]));
    let world = World::new(1);
    let env = disk.env(&world);
    let answer = world.block_on("a segment", async move {
        let segment = Segment::open(&env, "s", ID, BlockCache::new(1 << 16)).await?;
        let mut all = format!("{:?}", segment.info());
        for section in 0..=255 {
            for n in 0..segment.blocks(section).len() {
                let meta = segment.blocks(section)[n].clone();
                let columns: Vec<ColumnId> = meta.chunks.iter().map(|c| c.id).collect();
                let block = segment.read(section, n, &columns).await?;
                // By a few rows, as readers do; the content is compared as a whole.
                for (id, column) in block.columns() {
                    for row in [0, block.rows / 2, block.rows.saturating_sub(1)] {
                        let _ = (column.f64_at(row), column.i64_at(row), column.str_at(row));
                    }
                    let crc = meta.chunk(*id).map(|c| (c.crc, c.stats, c.edges_ts));
                    all += &format!("{section} {n} {id} {crc:?} {}\n", column.data.len());
                }
                all += &format!(
                    "{:?} {:?} {:?}\n",
                    meta.range, meta.first_key, meta.last_key
                );
            }
        }
        let found = (0..200u64).filter(|n| segment.may_contain(hash64(&n.to_le_bytes())));
        Ok(all + &format!("{}", found.count()))
    });
    answer.expect("a segment is read to its end")
}

fn run(file: &[u8]) -> Outcome {
    match read(file) {
        Ok(answer) => Outcome::of((size(answer.len()), size(file.len()))),
        Err(e) => Outcome::error(e),
    }
}

/// Any change of a file is an error: nothing in it is without a checksum.
#[test]
fn a_changed_file_is_refused() {
    let corpus = corpus();
    Target {
        name: "segment files",
        corpus: corpus.clone(),
        tokens: &[],
        mend: None,
        memory: (1 << 20, 32),
        run: &|file| {
            let answer = read(file);
            if !corpus.iter().any(|whole| whole == file) {
                assert!(answer.is_err(), "a changed segment was read: {answer:?}");
            }
            answer.map_or_else(Outcome::error, |a| Outcome::of(a.len()))
        },
    }
    .fuzz();
}

fn put(file: &mut [u8], at: usize, crc: u32) {
    file[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// All checksums, and the places of filter and footer as far as they can be told.
pub fn mend(file: &mut [u8]) {
    let len = file.len();
    if len < SEGMENT_HEADER_LEN + SEGMENT_TRAILER_LEN {
        return;
    }
    put(file, 28, crc32c::crc32c(&file[..28]));
    let at = len - SEGMENT_TRAILER_LEN;
    let u64_at =
        |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("8 bytes"));
    let (bloom, footer) = (u64_at(file, at), u64_at(file, at + 8));
    let filter_len = footer.saturating_sub(bloom) as usize;
    let footer_len =
        u32::from_le_bytes(file[at + 16..at + 20].try_into().expect("4 bytes")) as usize;
    if let Some(footer) = at.checked_sub(footer_len)
        && let Some(bloom) = footer.checked_sub(filter_len)
        && bloom >= SEGMENT_HEADER_LEN
    {
        file[at..at + 8].copy_from_slice(&(bloom as u64).to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&(footer as u64).to_le_bytes());
        if let Ok((_, blocks)) = decode_footer(&file[footer..at], bloom as u64) {
            for chunk in blocks.iter().flat_map(|b| &b.chunks) {
                let start = chunk.offset as usize;
                let crc = crc32c::crc32c(&file[start..start + chunk.len as usize]);
                // The old one in the footer is found by its value.
                let old = chunk.crc.to_le_bytes();
                if crc != chunk.crc
                    && let Some(place) = file[footer..at].windows(4).position(|w| w == old)
                {
                    put(file, footer + place, crc);
                }
            }
        }
        put(file, at + 20, crc32c::crc32c(&file[bloom..at]));
    }
    put(file, at + 28, crc32c::crc32c(&file[at..at + 28]));
}

#[test]
fn behind_the_checksums() {
    Target {
        name: "segments behind the checksums",
        corpus: corpus(),
        tokens: &[],
        mend: Some(&|file: &mut Vec<u8>| mend(file)),
        // A block of 65,536 equal cells takes a few bytes.
        memory: (64 << 20, 64),
        run: &run,
    }
    .fuzz();
}

/// The rkyv part alone; an input is the end of the chunks, then the footer.
#[test]
fn footers() {
    let corpus = corpus().into_iter().map(|file| {
        let at = file.len() - SEGMENT_TRAILER_LEN;
        let trailer = decode_trailer(&file[at..], file.len() as u64).expect("its trailer");
        assert!(check_header(&file, ID).is_ok());
        let footer = &file[trailer.footer_offset as usize..at];
        [&trailer.bloom_offset.to_le_bytes(), footer].concat()
    });
    Target {
        name: "segment footers",
        corpus: corpus.collect(),
        tokens: &[],
        mend: None,
        memory: (16 << 10, 16),
        run: &|input| {
            let Some((end, footer)) = input.split_first_chunk::<8>() else {
                return Outcome::of("short");
            };
            match decode_footer(footer, u64::from_le_bytes(*end)) {
                Ok((info, blocks)) => {
                    Outcome::of((size(blocks.len()), info.kind == SegmentKind::Keyed))
                }
                Err(e) => Outcome::error(e),
            }
        },
    }
    .fuzz();
}
