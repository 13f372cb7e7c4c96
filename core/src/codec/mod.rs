//! How one column of one block becomes bytes and comes back. The encoding is chosen by looking at the
//! data; a chunk says itself which it is. Byte layout: `docs/format.md`.
//!
//! Chunks come from disk: decoding bytes of any content ends in an error or in values, never in a panic,
//! and never allocates more than the rows and [`MAX_CHUNK_TEXT_BYTES`] allow. Whether they are the bytes
//! once written is the container's business: it checks their CRC first.

mod ans;
mod bytes;
mod floats;
mod ints;
mod pcodec;
mod strings;
mod symbols;
#[cfg(test)]
mod tests;

use crate::format::block::{Bitmap, BlockData, Presence};
use bytes::{Reader, put_prefixed, put_varint};

pub use strings::MAX_CHUNK_TEXT_BYTES;

/// Most rows of a block; `limits.block_rows` stays below.
pub const MAX_BLOCK_ROWS: usize = 65_536;

const KIND_F64: u8 = 1;
const KIND_I64: u8 = 2;
const KIND_STR: u8 = 3;
const KIND_STR_RUNS: u8 = 4;

const PRESENT_ALL: u8 = 0;
const PRESENT_BITS: u8 = 1;
const PRESENT_RUNS: u8 = 2;

/// How much time an encoding may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Ingest waits for it in the end: the fast encodings.
    Flush,
    /// Written once, read for long: the smallest encoding that still decodes fast.
    Merge,
}

/// Why a chunk cannot be decoded, or encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It ends too early.
    #[error("it ends too early")]
    Truncated,
    /// Something in it makes no sense.
    #[error("{0} does not make sense")]
    Invalid(&'static str),
    /// More rows or text than a chunk may hold.
    #[error("it holds more rows or text than a chunk may")]
    TooLarge,
}

/// Appends the bytes of one column of a block of `rows` rows.
///
/// # Errors
/// [`CodecError::TooLarge`] for more than [`MAX_BLOCK_ROWS`] rows or [`MAX_CHUNK_TEXT_BYTES`] of text;
/// [`CodecError::Invalid`] when presence, data and `rows` do not fit each other.
pub fn encode(
    data: &BlockData,
    presence: &Presence,
    rows: usize,
    effort: Effort,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    if rows > MAX_BLOCK_ROWS {
        return Err(CodecError::TooLarge);
    }
    let cells = match presence {
        Presence::All => rows,
        Presence::Some(bits) if bits.len() == rows => bits.count_ones(),
        Presence::Some(_) => return Err(CodecError::Invalid("the length of the presence bits")),
    };
    if cells != data.len() {
        return Err(CodecError::Invalid("the count of cells"));
    }
    let kind = match data {
        BlockData::F64(_) => KIND_F64,
        BlockData::I64(_) => KIND_I64,
        BlockData::Str(_) => KIND_STR,
        BlockData::StrRuns { .. } => KIND_STR_RUNS,
    };
    match presence {
        Presence::Some(bits) if cells < rows => encode_presence(bits, kind, out),
        _ => out.push(kind | PRESENT_ALL << 4),
    }
    match data {
        BlockData::F64(v) => floats::encode(v, effort, out),
        BlockData::I64(v) => ints::encode(v, effort, out),
        BlockData::Str(v) => strings::encode(v, effort, out)?,
        BlockData::StrRuns { names, counts } => {
            if names.len() != counts.len() || counts.contains(&0) {
                return Err(CodecError::Invalid("the counts of runs"));
            }
            strings::encode_runs(names, counts, effort, out)?
        }
    }
    Ok(())
}

/// Reads a chunk of a block of `rows` rows, all of it.
///
/// # Errors
/// Any bytes that [`encode`] does not make may give a [`CodecError`]; no bytes make it panic.
pub fn decode(bytes: &[u8], rows: usize) -> Result<(Presence, BlockData), CodecError> {
    if rows > MAX_BLOCK_ROWS {
        return Err(CodecError::TooLarge);
    }
    let r = &mut Reader::new(bytes);
    let head = r.u8()?;
    let presence = match head >> 4 {
        PRESENT_ALL => Presence::All,
        PRESENT_BITS => {
            let words: Vec<u64> = r
                .take(rows.div_ceil(8))?
                .chunks(8)
                .map(|b| {
                    let mut le = [0; 8];
                    le[..b.len()].copy_from_slice(b);
                    u64::from_le_bytes(le)
                })
                .collect();
            Bitmap::from_words(words, rows)
                .map(Presence::Some)
                .ok_or(CodecError::Invalid("a presence bit behind the last row"))?
        }
        PRESENT_RUNS => Presence::Some(decode_presence_runs(r.prefixed()?, rows)?),
        _ => return Err(CodecError::Invalid("the presence")),
    };
    let cells = match &presence {
        Presence::All => rows,
        Presence::Some(bits) => bits.count_ones(),
    };
    let data = match head & 0x0F {
        KIND_F64 => BlockData::F64(floats::decode(r, cells)?),
        KIND_I64 => BlockData::I64(ints::decode(r, cells)?),
        KIND_STR => BlockData::Str(strings::decode(r, cells)?),
        KIND_STR_RUNS => {
            let (names, counts) = strings::decode_runs(r, cells)?;
            BlockData::StrRuns { names, counts }
        }
        _ => return Err(CodecError::Invalid("the kind of data")),
    };
    r.end()?;
    Ok((presence, data))
}

/// As bits, or as lengths of alternating runs (absent first) where that is shorter.
fn encode_presence(bits: &Bitmap, kind: u8, out: &mut Vec<u8>) {
    let bits_len = bits.len().div_ceil(8);
    let mut runs = Vec::new();
    let (mut present, mut start) = (false, 0);
    for row in 0..=bits.len() {
        if row == bits.len() || bits.get(row) != present {
            put_varint((row - start) as u64, &mut runs);
            (present, start) = (!present, row);
            if runs.len() >= bits_len {
                break;
            }
        }
    }
    if runs.len() < bits_len {
        out.push(kind | PRESENT_RUNS << 4);
        put_prefixed(&runs, out);
    } else {
        out.push(kind | PRESENT_BITS << 4);
        let start = out.len();
        for word in bits.words() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.truncate(start + bits_len);
    }
}

fn decode_presence_runs(bytes: &[u8], rows: usize) -> Result<Bitmap, CodecError> {
    let r = &mut Reader::new(bytes);
    let mut bits = Bitmap::new(rows);
    let (mut present, mut row) = (false, 0usize);
    while r.end().is_err() {
        let len = r.varint()?;
        let end = usize::try_from(len)
            .ok()
            .and_then(|len| row.checked_add(len))
            .filter(|&end| end <= rows)
            .ok_or(CodecError::Invalid("a run of presence"))?;
        if present {
            (row..end).for_each(|row| bits.set(row));
        }
        (present, row) = (!present, end);
    }
    if row != rows {
        return Err(CodecError::Invalid("the runs of presence"));
    }
    Ok(bits)
}
