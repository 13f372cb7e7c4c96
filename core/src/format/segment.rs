//! The segment file: header, chunks, bloom filter, footer, trailer. Written once, from front to back, and
//! never changed. This is only the layout; `shard::segment` moves the bytes.
//!
//! ```text
//! header 32 │ chunk chunk … │ bloom filter │ footer (rkyv) │ trailer 40
//!            block 0, block 1, …                             found from the end of the file
//! ```
//!
//! rkyv checks structure only, so every part carries its own CRC-32C; and what the footer says is checked
//! against the file's size, so that no length of it makes a reader allocate or read too much.

use super::block::{BlockData, BlockMeta, ChunkMeta, ChunkStats, SegmentInfo, SegmentKind};
use super::bloom::Bloom;
use crate::ids::{ColumnId, SegmentId, TableId};
use rkyv::rancor;
use rkyv::util::AlignedVec;

/// First bytes of the file.
pub const SEGMENT_MAGIC: [u8; 8] = *b"STRLSEG\n";
/// Last bytes of the file.
pub const SEGMENT_END_MAGIC: [u8; 8] = *b"STRLEND\n";
/// Version of everything below. 2 has two more encodings of numbers and one of whole numbers.
pub const SEGMENT_VERSION: u16 = 2;
/// Bytes of the header.
pub const SEGMENT_HEADER_LEN: usize = 32;
/// Bytes of the trailer.
pub const SEGMENT_TRAILER_LEN: usize = 40;

/// Why a segment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// It does not begin and end like a segment.
    #[error("it is not a segment, or it was cut")]
    Magic,
    /// A newer release wrote it.
    #[error("format version {found}; this release reads up to {SEGMENT_VERSION}")]
    Newer {
        /// Its version.
        found: u16,
    },
    /// Bytes are not those that were written.
    #[error("the checksum of its {0} does not fit")]
    Checksum(&'static str),
    /// Parts contradict each other.
    #[error("its {0} does not make sense")]
    Inconsistent(&'static str),
    /// Another file stands under this name.
    #[error("it says it is segment {found}")]
    OtherSegment {
        /// The number in its header.
        found: SegmentId,
    },
    /// The footer cannot be written.
    #[error("its footer is too large")]
    TooLarge,
}

/// The first [`SEGMENT_HEADER_LEN`] bytes.
pub fn header(id: SegmentId, table: TableId) -> [u8; SEGMENT_HEADER_LEN] {
    let mut h = [0; SEGMENT_HEADER_LEN];
    h[0..8].copy_from_slice(&SEGMENT_MAGIC);
    h[8..10].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
    h[12..16].copy_from_slice(&table.0.to_le_bytes());
    h[16..24].copy_from_slice(&id.0.to_le_bytes());
    let crc = crc32c::crc32c(&h[..28]);
    h[28..32].copy_from_slice(&crc.to_le_bytes());
    h
}

/// Checks the first bytes of segment `id`; the table it belongs to.
///
/// # Errors
/// See [`SegmentError`].
pub fn check_header(bytes: &[u8], id: SegmentId) -> Result<TableId, SegmentError> {
    if bytes.len() < SEGMENT_HEADER_LEN || bytes[0..8] != SEGMENT_MAGIC {
        return Err(SegmentError::Magic);
    }
    check_version(u16_at(bytes, 8))?;
    if crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
        return Err(SegmentError::Checksum("header"));
    }
    let found = SegmentId(u64_at(bytes, 16));
    if found != id {
        return Err(SegmentError::OtherSegment { found });
    }
    Ok(TableId(u32_at(bytes, 12)))
}

/// What the last [`SEGMENT_TRAILER_LEN`] bytes say: where bloom filter and footer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes before the bloom filter.
    pub bloom_offset: u64,
    /// Bytes before the footer; the filter ends here.
    pub footer_offset: u64,
    /// Bytes of the footer.
    pub footer_len: u32,
    /// CRC-32C of filter and footer.
    pub crc: u32,
}

/// Reads the last bytes of a file of `file_len` bytes.
///
/// # Errors
/// See [`SegmentError`].
pub fn decode_trailer(bytes: &[u8], file_len: u64) -> Result<Trailer, SegmentError> {
    if bytes.len() != SEGMENT_TRAILER_LEN || bytes[32..40] != SEGMENT_END_MAGIC {
        return Err(SegmentError::Magic);
    }
    check_version(u16_at(bytes, 24))?;
    if crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
        return Err(SegmentError::Checksum("trailer"));
    }
    let trailer = Trailer {
        bloom_offset: u64_at(bytes, 0),
        footer_offset: u64_at(bytes, 8),
        footer_len: u32_at(bytes, 16),
        crc: u32_at(bytes, 20),
    };
    let end = trailer
        .footer_offset
        .checked_add(trailer.footer_len as u64 + SEGMENT_TRAILER_LEN as u64);
    let ordered = SEGMENT_HEADER_LEN as u64 <= trailer.bloom_offset
        && trailer.bloom_offset <= trailer.footer_offset;
    if !ordered || end != Some(file_len) {
        return Err(SegmentError::Inconsistent("trailer"));
    }
    Ok(trailer)
}

#[derive(rkyv::Archive, rkyv::Serialize)]
struct Footer {
    kind: u8,
    table: u32,
    flushes: [u64; 2],
    rows: u64,
    range: [i64; 2],
    max_rev: u64,
    tombstones: u64,
    blocks: Vec<BlockRecord>,
    /// First and last key of each block, end to end.
    keys: Vec<u8>,
    chunks: Vec<ChunkRecord>,
    /// min, max, sum, first, last of each chunk that has them, as bits.
    stats: Vec<[u64; 5]>,
    /// Of each chunk that has them.
    edges: Vec<[i64; 2]>,
}

#[derive(rkyv::Archive, rkyv::Serialize)]
struct BlockRecord {
    range: [i64; 2],
    rows: u32,
    chunks: u32,
    first_key_len: u32,
    last_key_len: u32,
    section: u8,
}

#[derive(rkyv::Archive, rkyv::Serialize)]
struct ChunkRecord {
    column: u32,
    len: u32,
    crc: u32,
    count: u32,
    /// Bit 0: has statistics; bit 1: has edges.
    flags: u8,
}

const HAS_STATS: u8 = 1;
const HAS_EDGES: u8 = 2;

/// Everything behind the chunks: bloom filter, footer, trailer. `chunks_end` is the file's length so far.
///
/// # Errors
/// [`SegmentError::TooLarge`] past 4 GiB.
pub fn encode_tail(
    info: &SegmentInfo,
    blocks: &[BlockMeta],
    bloom: &Bloom,
    chunks_end: u64,
) -> Result<Vec<u8>, SegmentError> {
    let mut footer = Footer {
        kind: match info.kind {
            SegmentKind::Stream => 0,
            SegmentKind::Keyed => 1,
        },
        table: info.table.0,
        flushes: [info.flushes.0, info.flushes.1],
        rows: info.rows,
        range: [info.range.0, info.range.1],
        max_rev: info.max_rev,
        tombstones: info.tombstones,
        blocks: Vec::with_capacity(blocks.len()),
        keys: Vec::new(),
        chunks: Vec::new(),
        stats: Vec::new(),
        edges: Vec::new(),
    };
    let too_large = |_| SegmentError::TooLarge;
    for b in blocks {
        footer.blocks.push(BlockRecord {
            range: [b.range.0, b.range.1],
            rows: b.rows,
            chunks: u32::try_from(b.chunks.len()).map_err(too_large)?,
            first_key_len: u32::try_from(b.first_key.len()).map_err(too_large)?,
            last_key_len: u32::try_from(b.last_key.len()).map_err(too_large)?,
            section: b.section,
        });
        footer.keys.extend_from_slice(&b.first_key);
        footer.keys.extend_from_slice(&b.last_key);
        for c in &b.chunks {
            let mut flags = 0;
            if let Some(s) = c.stats {
                flags |= HAS_STATS;
                footer
                    .stats
                    .push([s.min, s.max, s.sum, s.first, s.last].map(f64::to_bits));
            }
            if let Some((first, last)) = c.edges_ts {
                flags |= HAS_EDGES;
                footer.edges.push([first, last]);
            }
            footer.chunks.push(ChunkRecord {
                column: c.id.0,
                len: c.len,
                crc: c.crc,
                count: c.count,
                flags,
            });
        }
    }
    let mut tail = bloom.to_bytes();
    let footer_offset = chunks_end + tail.len() as u64;
    let bytes = rkyv::to_bytes::<rancor::Error>(&footer).map_err(|_| SegmentError::TooLarge)?;
    let footer_len = u32::try_from(bytes.len()).map_err(too_large)?;
    tail.extend_from_slice(&bytes);
    let crc = crc32c::crc32c(&tail);

    let mut t = [0; SEGMENT_TRAILER_LEN];
    t[0..8].copy_from_slice(&chunks_end.to_le_bytes());
    t[8..16].copy_from_slice(&footer_offset.to_le_bytes());
    t[16..20].copy_from_slice(&footer_len.to_le_bytes());
    t[20..24].copy_from_slice(&crc.to_le_bytes());
    t[24..26].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&t[..28]);
    t[28..32].copy_from_slice(&crc.to_le_bytes());
    t[32..40].copy_from_slice(&SEGMENT_END_MAGIC);
    tail.extend_from_slice(&t);
    Ok(tail)
}

/// What a footer says.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentIndex {
    /// Of the whole segment.
    pub info: SegmentInfo,
    /// All blocks, by section and key.
    pub blocks: Vec<BlockMeta>,
    /// Over the hashes that the writer added.
    pub bloom: Bloom,
}

/// Reads bloom filter and footer: `bytes` are those from `trailer.bloom_offset` to the trailer.
///
/// # Errors
/// See [`SegmentError`]; no bytes make it panic, even without the checksum.
pub fn decode_index(bytes: &[u8], trailer: &Trailer) -> Result<SegmentIndex, SegmentError> {
    if crc32c::crc32c(bytes) != trailer.crc {
        return Err(SegmentError::Checksum("footer"));
    }
    let bloom_len = usize::try_from(trailer.footer_offset.saturating_sub(trailer.bloom_offset))
        .map_err(|_| SegmentError::Inconsistent("trailer"))?;
    let (bloom, footer) = bytes
        .split_at_checked(bloom_len)
        .ok_or(SegmentError::Inconsistent("trailer"))?;
    let bloom = Bloom::from_bytes(bloom).ok_or(SegmentError::Inconsistent("bloom filter"))?;
    let (info, blocks) = decode_footer(footer, trailer.bloom_offset)?;
    Ok(SegmentIndex {
        info,
        blocks,
        bloom,
    })
}

/// Reads the rkyv part alone; its chunks fill the file from the header to `chunks_end`. Public so that it
/// can be fuzzed without a checksum before it.
///
/// # Errors
/// See [`SegmentError`].
pub fn decode_footer(
    bytes: &[u8],
    chunks_end: u64,
) -> Result<(SegmentInfo, Vec<BlockMeta>), SegmentError> {
    let bad = SegmentError::Inconsistent("footer");
    let mut aligned = AlignedVec::<16>::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    let f = rkyv::access::<ArchivedFooter, rancor::Error>(&aligned).map_err(|_| bad.clone())?;
    let mut keys = f.keys.as_slice();
    let mut chunks = f.chunks.iter();
    let mut stats = f.stats.iter();
    let mut edges = f.edges.iter();
    let mut offset = SEGMENT_HEADER_LEN as u64;
    let mut take_key = |len: u32| {
        let (key, rest) = keys.split_at_checked(len as usize)?;
        keys = rest;
        Some(key.to_vec())
    };
    let mut blocks: Vec<BlockMeta> = Vec::with_capacity(f.blocks.len());
    for b in f.blocks.iter() {
        let first_key = take_key(b.first_key_len.to_native()).ok_or(bad.clone())?;
        let last_key = take_key(b.last_key_len.to_native()).ok_or(bad.clone())?;
        let count = b.chunks.to_native() as usize;
        if count > chunks.len() {
            return Err(bad);
        }
        let mut metas: Vec<ChunkMeta> = Vec::with_capacity(count);
        for c in chunks.by_ref().take(count) {
            let id = ColumnId(c.column.to_native());
            if metas.last().is_some_and(|m| m.id >= id) || c.count > b.rows {
                return Err(bad);
            }
            let meta = ChunkMeta {
                id,
                offset,
                len: c.len.to_native(),
                crc: c.crc.to_native(),
                count: c.count.to_native(),
                stats: match c.flags & HAS_STATS {
                    0 => None,
                    _ => {
                        let s = stats.next().ok_or(bad.clone())?;
                        let at = |i: usize| f64::from_bits(s[i].to_native());
                        Some(ChunkStats {
                            min: at(0),
                            max: at(1),
                            sum: at(2),
                            first: at(3),
                            last: at(4),
                        })
                    }
                },
                edges_ts: match c.flags & HAS_EDGES {
                    0 => None,
                    _ => {
                        let e = edges.next().ok_or(bad.clone())?;
                        Some((e[0].to_native(), e[1].to_native()))
                    }
                },
            };
            offset += meta.len as u64;
            metas.push(meta);
        }
        if blocks.last().is_some_and(|last| last.section > b.section) {
            return Err(bad);
        }
        blocks.push(BlockMeta {
            section: b.section,
            rows: b.rows.to_native(),
            first_key,
            last_key,
            range: (b.range[0].to_native(), b.range[1].to_native()),
            chunks: metas,
        });
    }
    if offset != chunks_end || chunks.next().is_some() {
        return Err(SegmentError::Inconsistent("list of chunks"));
    }
    let flushes = (f.flushes[0].to_native(), f.flushes[1].to_native());
    // The next flush gets the number behind the highest.
    if flushes.0 > flushes.1 || flushes.1 == u64::MAX {
        return Err(SegmentError::Inconsistent("numbers of flushes"));
    }
    let info = SegmentInfo {
        kind: match f.kind {
            0 => SegmentKind::Stream,
            1 => SegmentKind::Keyed,
            _ => return Err(bad),
        },
        table: TableId(f.table.to_native()),
        flushes,
        rows: f.rows.to_native(),
        range: (f.range[0].to_native(), f.range[1].to_native()),
        max_rev: f.max_rev.to_native(),
        tombstones: f.tombstones.to_native(),
    };
    Ok((info, blocks))
}

/// Statistics of a chunk of numbers; none for text and for no numbers at all.
pub fn chunk_stats(data: &BlockData) -> Option<ChunkStats> {
    fn of(mut numbers: impl Iterator<Item = f64>) -> Option<ChunkStats> {
        let first = numbers.next()?;
        let start = ChunkStats {
            min: first,
            max: first,
            // Not first: a sum that starts at 0.0 is the one that every reader computes.
            sum: 0.0 + first,
            first,
            last: first,
        };
        Some(numbers.fold(start, |s, v| ChunkStats {
            min: s.min.min(v),
            max: s.max.max(v),
            sum: s.sum + v,
            first: s.first,
            last: v,
        }))
    }
    match data {
        BlockData::F64(v) => of(v.iter().copied()),
        BlockData::I64(v) => of(v.iter().map(|&v| v as f64)),
        BlockData::Str(_) | BlockData::StrRuns { .. } => None,
    }
}

fn check_version(found: u16) -> Result<(), SegmentError> {
    match found {
        0 => Err(SegmentError::Inconsistent("version")),
        1..=SEGMENT_VERSION => Ok(()),
        _ => Err(SegmentError::Newer { found }),
    }
}

/// Callers have checked the length.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u16_at(bytes, at) as u32 | (u16_at(bytes, at + 2) as u32) << 16
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) as u64 | (u32_at(bytes, at + 4) as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> (SegmentInfo, Vec<BlockMeta>, u64) {
        let info = SegmentInfo {
            kind: SegmentKind::Stream,
            table: TableId(9),
            flushes: (3, 5),
            rows: 8192,
            range: (-5, 77),
            max_rev: 0,
            tombstones: 0,
        };
        let mut offset = SEGMENT_HEADER_LEN as u64;
        let mut blocks = Vec::new();
        for i in 0..6u32 {
            let mut chunks = Vec::new();
            for c in 0..5 {
                let len = 100 + i * 10 + c;
                chunks.push(ChunkMeta {
                    id: ColumnId(c * 3),
                    offset,
                    len,
                    crc: i ^ c,
                    count: 4096,
                    stats: (c % 2 == 0).then_some(ChunkStats {
                        min: -1.0,
                        max: 2.0,
                        sum: 3.5,
                        first: -0.0,
                        last: 1.0,
                    }),
                    edges_ts: (c > 2).then_some((4, 5)),
                });
                offset += len as u64;
            }
            blocks.push(BlockMeta {
                section: (i / 4) as u8,
                rows: 4096,
                first_key: vec![i as u8; 3],
                last_key: vec![i as u8; i as usize],
                range: (0, i as i64),
                chunks,
            });
        }
        (info, blocks, offset)
    }

    fn open(tail: &[u8], chunks_end: u64) -> Result<SegmentIndex, SegmentError> {
        let at = tail
            .len()
            .checked_sub(SEGMENT_TRAILER_LEN)
            .ok_or(SegmentError::Magic)?;
        let trailer = decode_trailer(&tail[at..], chunks_end + tail.len() as u64)?;
        let start = (trailer.bloom_offset.checked_sub(chunks_end)).ok_or(SegmentError::Magic)?;
        decode_index(&tail[start as usize..at], &trailer)
    }

    #[test]
    fn index_comes_back() {
        let (info, blocks, end) = sample();
        let mut bloom = Bloom::with_keys(100);
        bloom.add(7);
        let tail = encode_tail(&info, &blocks, &bloom, end).unwrap();
        let index = open(&tail, end).unwrap();
        assert_eq!(
            (index.info, index.blocks, index.bloom),
            (info, blocks, bloom)
        );
    }

    /// The number behind the highest flush is the next one's: it must exist.
    #[test]
    fn flushes_that_no_table_can_have_are_refused() {
        let (mut info, blocks, end) = sample();
        for (flushes, fits) in [
            ((3, 3), true),
            ((3, u64::MAX - 1), true),
            ((3, u64::MAX), false),
            ((4, 3), false),
        ] {
            info.flushes = flushes;
            let tail = encode_tail(&info, &blocks, &Bloom::default(), end).unwrap();
            assert_eq!(open(&tail, end).is_ok(), fits, "{flushes:?}");
        }
    }

    #[test]
    fn every_flipped_bit_and_cut_of_the_tail_is_noticed() {
        let (info, blocks, end) = sample();
        let tail = encode_tail(&info, &blocks, &Bloom::with_keys(9), end).unwrap();
        for at in 0..tail.len() {
            let mut bad = tail.clone();
            bad[at] ^= 1 << (at % 8);
            // The last bytes of the trailer's padding are under its checksum as well.
            assert!(open(&bad, end).is_err(), "byte {at} of {}", tail.len());
            assert!(open(&tail[..at], end).is_err());
        }
    }

    #[test]
    fn headers() {
        let h = header(SegmentId(12), TableId(4));
        assert_eq!(check_header(&h, SegmentId(12)), Ok(TableId(4)));
        assert_eq!(
            check_header(&h, SegmentId(13)),
            Err(SegmentError::OtherSegment {
                found: SegmentId(12)
            })
        );
        for at in 0..h.len() {
            let mut bad = h;
            bad[at] ^= 4;
            assert!(check_header(&bad, SegmentId(12)).is_err());
            assert!(check_header(&h[..at], SegmentId(12)).is_err());
        }
        let found = SEGMENT_VERSION + 1;
        let mut newer = h;
        newer[8] = found as u8;
        assert_eq!(
            check_header(&newer, SegmentId(12)),
            Err(SegmentError::Newer { found })
        );
        let mut older = h;
        older[8] = 1;
        let crc = crc32c::crc32c(&older[..28]);
        older[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(check_header(&older, SegmentId(12)), Ok(TableId(4)));
    }

    /// The section of `docs/format.md` under a heading, up to the next one.
    fn documented(heading: &str) -> &'static str {
        let text = include_str!("../../../docs/format.md");
        let start = text.find(&format!("\n{heading}\n")).unwrap() + heading.len() + 2;
        &text[start..][..text[start..].find("\n#").unwrap_or(text.len() - start)]
    }

    /// Offset and size of each row of the byte table in a section, which leave no gap.
    fn table_len(section: &str) -> usize {
        let mut end = 0;
        for line in section.lines() {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let number = |cell: Option<&str>| cell.and_then(|c| c.parse::<usize>().ok());
            if let (Some(offset), Some(size)) = (number(cells.next()), number(cells.next())) {
                assert_eq!(offset, end, "{line}");
                end += size;
            }
        }
        end
    }

    #[test]
    fn the_documented_layout_is_this_one() {
        let magic = |m: [u8; 8]| format!("`{}`", String::from_utf8_lossy(&m).escape_default());
        for (heading, len, magic) in [
            (
                "### Segment header",
                SEGMENT_HEADER_LEN,
                magic(SEGMENT_MAGIC),
            ),
            (
                "### Segment trailer",
                SEGMENT_TRAILER_LEN,
                magic(SEGMENT_END_MAGIC),
            ),
        ] {
            let section = documented(heading);
            assert!(section.contains(&format!("Version {SEGMENT_VERSION}, {len} bytes")));
            assert_eq!(table_len(section), len);
            assert!(section.contains(&magic), "{magic}");
        }
        let sealed = documented("## Sealed files");
        let version = super::super::sealed::SEALED_VERSION;
        assert!(sealed.contains(&format!("Current version: v{version}.")));
    }

    #[test]
    fn stats_of_numbers() {
        let s = chunk_stats(&BlockData::F64(vec![2.0, -1.0, 4.0])).unwrap();
        assert_eq!(
            (s.min, s.max, s.sum, s.first, s.last),
            (-1.0, 4.0, 5.0, 2.0, 4.0)
        );
        assert!(chunk_stats(&BlockData::I64(vec![])).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn footers_without_their_checksum_do_not_panic(
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let (info, blocks, end) = sample();
            let tail = encode_tail(&info, &blocks, &Bloom::default(), end).unwrap();
            let mut footer = tail[..tail.len() - SEGMENT_TRAILER_LEN].to_vec();
            let _ = decode_footer(&footer[..cut.index(footer.len())], end);
            for (at, byte) in flips {
                let at = at.index(footer.len());
                footer[at] = byte;
                let _ = decode_footer(&footer, end);
            }
        }
    }
}
