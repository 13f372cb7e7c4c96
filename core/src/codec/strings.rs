//! Text and keys.

use super::bytes::{Reader, put_prefixed, put_varint};
use super::{CodecError, Effort, ints};
use crate::value::StrVec;
use hashbrown::HashMap;
use std::cell::RefCell;

const CONSTANT: u8 = 0;
const DICTIONARY: u8 = 1;
const DICTIONARY_RUNS: u8 = 2;
const PLAIN: u8 = 3;
const KEYS_16: u8 = 4;

const BYTES_RAW: u8 = 0;
const BYTES_ZSTD: u8 = 1;

/// Keys of 16 bytes are split as xids are: ms, sequence, node. Each runs on its own way.
const LANES: [std::ops::Range<usize>; 3] = [0..6, 6..14, 14..16];

/// Bytes of text that one chunk may hold; the stores cut their blocks long before.
pub const MAX_CHUNK_TEXT_BYTES: usize = 1 << 30;
/// zstd makes at most 128 KiB out of a block of four bytes.
const ZSTD_MAX_RATIO: usize = 1 << 15;
/// Below this zstd's own header eats what it saves.
const ZSTD_WORTH_BYTES: usize = 48;
const ZSTD_LEVEL_FLUSH: i32 = 1;
const ZSTD_LEVEL_MERGE: i32 = 3;

/// Appends an encoding of `values`.
pub(super) fn encode(values: &StrVec, effort: Effort, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let values = &*values.packed();
    let n = values.len();
    if values.bytes().len() > MAX_CHUNK_TEXT_BYTES {
        return Err(CodecError::TooLarge);
    }
    let all = || (0..n).map(|i| values.get_bytes(i));
    let first = all().next().unwrap_or(&[]);
    if all().all(|v| v == first) {
        out.push(CONSTANT);
        put_prefixed(first, out);
        return Ok(());
    }
    if all().all(|v| v.len() == 16) {
        let start = out.len();
        out.push(KEYS_16);
        for lane in LANES {
            let numbers: Vec<i64> = all()
                .map(|v| {
                    let be = v[lane.clone()].iter();
                    be.fold(0u64, |n, &b| n << 8 | b as u64) as i64
                })
                .collect();
            ints::encode(&numbers, effort, out);
        }
        // Ids from our own clock and sequence are worth it; sixteen letters of text are not.
        if out.len() - start <= n * 8 {
            return Ok(());
        }
        out.truncate(start);
    }
    if let Some((dictionary, codes)) = dictionary(values) {
        let runs = 1 + codes.windows(2).filter(|w| w[0] != w[1]).count();
        if runs * 4 <= n {
            out.push(DICTIONARY_RUNS);
            put_varint(dictionary.len() as u64, out);
            texts(&dictionary, effort, out);
            put_varint(runs as u64, out);
            let (mut run_codes, mut run_lens) = (Vec::new(), Vec::new());
            for run in codes.chunk_by(|a, b| a == b) {
                run_codes.push(run[0]);
                run_lens.push(run.len() as i64);
            }
            ints::encode(&run_codes, effort, out);
            ints::encode(&run_lens, effort, out);
        } else {
            out.push(DICTIONARY);
            put_varint(dictionary.len() as u64, out);
            texts(&dictionary, effort, out);
            ints::encode(&codes, effort, out);
        }
        return Ok(());
    }
    out.push(PLAIN);
    texts(values, effort, out);
    Ok(())
}

/// Reads `n` strings.
pub(super) fn decode(r: &mut Reader<'_>, n: usize) -> Result<StrVec, CodecError> {
    match r.u8()? {
        CONSTANT => repeat(r.prefixed()?, n),
        KEYS_16 => {
            let mut bytes = vec![0; n * 16];
            for lane in LANES {
                let numbers = ints::decode(r, n)?;
                for (key, number) in bytes.chunks_exact_mut(16).zip(numbers) {
                    key[lane.clone()].copy_from_slice(&number.to_be_bytes()[8 - lane.len()..]);
                }
            }
            let offsets = (0..=n as u32).map(|i| i * 16).collect();
            StrVec::from_parts(offsets, bytes).ok_or(CodecError::Invalid("keys"))
        }
        kind @ (DICTIONARY | DICTIONARY_RUNS) => {
            let entries = bounded(r.varint()?, n)?;
            let dictionary = read_texts(r, entries)?;
            let mut codes = Codes::new(&dictionary, n);
            if kind == DICTIONARY {
                ints::decode_groups(r, n, &mut |group| {
                    group.iter().for_each(|&code| codes.add(code, 1));
                })?;
            } else {
                let runs = bounded(r.varint()?, n)?;
                let (run_codes, lens) = (ints::decode(r, runs)?, ints::decode(r, runs)?);
                if lens.iter().any(|&l| !(1..=n as i64).contains(&l))
                    || lens.iter().sum::<i64>() != n as i64
                {
                    return Err(CodecError::Invalid("the lengths of runs"));
                }
                for (&code, &len) in run_codes.iter().zip(&lens) {
                    codes.add(code, len as usize);
                }
            }
            let codes = codes.finish()?;
            StrVec::from_dictionary(dictionary, codes)
                .ok_or(CodecError::Invalid("a dictionary code"))
        }
        PLAIN => read_texts(r, n),
        _ => Err(CodecError::Invalid("the encoding of text")),
    }
}

/// Names of a sorted block and how many rows each has.
pub(super) fn encode_runs(
    names: &StrVec,
    counts: &[u32],
    effort: Effort,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    if names.bytes().len() > MAX_CHUNK_TEXT_BYTES {
        return Err(CodecError::TooLarge);
    }
    put_varint(counts.len() as u64, out);
    let counts: Vec<i64> = counts.iter().map(|&c| c as i64).collect();
    ints::encode(&counts, effort, out);
    texts(names, effort, out);
    Ok(())
}

/// Reads names and counts of together `n` rows.
pub(super) fn decode_runs(r: &mut Reader<'_>, n: usize) -> Result<(StrVec, Vec<u32>), CodecError> {
    let runs = bounded(r.varint()?, n)?;
    let counts = ints::decode(r, runs)?;
    if counts.iter().any(|&c| !(1..=n as i64).contains(&c))
        || counts.iter().sum::<i64>() != n as i64
    {
        return Err(CodecError::Invalid("the counts of runs"));
    }
    let names = read_texts(r, runs)?;
    Ok((names, counts.iter().map(|&c| c as u32).collect()))
}

fn bounded(count: u64, most: usize) -> Result<usize, CodecError> {
    usize::try_from(count)
        .ok()
        .filter(|&c| c <= most)
        .ok_or(CodecError::Invalid("a count"))
}

fn repeat(value: &[u8], n: usize) -> Result<StrVec, CodecError> {
    if value.len().saturating_mul(n) > MAX_CHUNK_TEXT_BYTES {
        return Err(CodecError::TooLarge);
    }
    let mut entry = StrVec::new();
    entry.push_bytes(value);
    StrVec::from_dictionary(entry, vec![0; n]).ok_or(CodecError::Invalid("text"))
}

/// Codes of a dictionary as they are read.
struct Codes {
    lens: Vec<u32>,
    codes: Vec<u32>,
    text_bytes: usize,
    unknown: bool,
}

impl Codes {
    fn new(dictionary: &StrVec, n: usize) -> Self {
        let lens = dictionary.offsets().windows(2).map(|w| w[1] - w[0]);
        Codes {
            lens: lens.collect(),
            codes: Vec::with_capacity(n),
            text_bytes: 0,
            unknown: false,
        }
    }
    fn add(&mut self, code: i64, len: usize) {
        let bytes = usize::try_from(code).ok().and_then(|c| self.lens.get(c));
        self.unknown |= bytes.is_none();
        let bytes = bytes.copied().unwrap_or(0) as usize;
        self.text_bytes = self.text_bytes.saturating_add(bytes.saturating_mul(len));
        self.codes.resize(self.codes.len() + len, code as u32);
    }
    /// Written out, the texts must fit as well.
    fn finish(self) -> Result<Vec<u32>, CodecError> {
        if self.unknown {
            return Err(CodecError::Invalid("a dictionary code"));
        }
        if self.text_bytes > MAX_CHUNK_TEXT_BYTES {
            return Err(CodecError::TooLarge);
        }
        Ok(self.codes)
    }
}

/// Distinct values in order of appearance, and each row's place among them; `None` when too few repeat.
fn dictionary(values: &StrVec) -> Option<(StrVec, Vec<i64>)> {
    let n = values.len();
    let most = n / 2;
    let mut places: HashMap<&[u8], i64> = HashMap::new();
    let mut dictionary = StrVec::new();
    let mut codes = Vec::with_capacity(n);
    for i in 0..n {
        let value = values.get_bytes(i);
        let next = places.len() as i64;
        let code = *places.entry(value).or_insert(next);
        if code == next {
            // Half of a good start distinct: zstd finds what repeats inside the texts instead.
            if places.len() > most || (i > 512 && places.len() * 8 > i * 7) {
                return None;
            }
            dictionary.push_bytes(value);
        }
        codes.push(code);
    }
    Some((dictionary, codes))
}

thread_local! {
    // Contexts are 100 KB and more: made once per executor, not once per chunk.
    static COMPRESS: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESS: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compress(bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    COMPRESS.with_borrow_mut(|slot| {
        if !matches!(slot, Some((l, _)) if *l == level) {
            *slot = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        slot.as_mut()?.1.compress(bytes).ok()
    })
}

fn decompress(bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    // Before anything is reserved: what the chunk says must be what the frame says, and possible.
    let framed = zstd::zstd_safe::get_frame_content_size(bytes).ok()?;
    if framed != Some(len as u64) || len > bytes.len().saturating_mul(ZSTD_MAX_RATIO) {
        return None;
    }
    DECOMPRESS.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Some(zstd::bulk::Decompressor::new().ok()?);
        }
        let out = slot.as_mut()?.decompress(bytes, len).ok()?;
        (out.len() == len).then_some(out)
    })
}

/// Lengths, then all bytes end to end.
fn texts(values: &StrVec, effort: Effort, out: &mut Vec<u8>) {
    let lens: Vec<i64> = values
        .offsets()
        .windows(2)
        .map(|w| (w[1] - w[0]) as i64)
        .collect();
    ints::encode(&lens, effort, out);
    let bytes = values.bytes();
    let level = match effort {
        Effort::Flush => ZSTD_LEVEL_FLUSH,
        Effort::Merge => ZSTD_LEVEL_MERGE,
    };
    let packed = (bytes.len() >= ZSTD_WORTH_BYTES)
        .then(|| compress(bytes, level))
        .flatten()
        .filter(|packed| packed.len() < bytes.len());
    match packed {
        Some(packed) => {
            out.push(BYTES_ZSTD);
            put_prefixed(&packed, out);
        }
        None => {
            out.push(BYTES_RAW);
            out.extend_from_slice(bytes);
        }
    }
}

fn read_texts(r: &mut Reader<'_>, n: usize) -> Result<StrVec, CodecError> {
    let lens = ints::decode(r, n)?;
    let mut offsets = Vec::with_capacity(n + 1);
    let mut total = 0usize;
    offsets.push(0);
    for len in lens {
        total = usize::try_from(len)
            .ok()
            .and_then(|len| total.checked_add(len))
            .filter(|&t| t <= MAX_CHUNK_TEXT_BYTES)
            .ok_or(CodecError::Invalid("the lengths of texts"))?;
        offsets.push(total as u32);
    }
    let bytes = match r.u8()? {
        BYTES_RAW => r.take(total)?.to_vec(),
        BYTES_ZSTD => {
            decompress(r.prefixed()?, total).ok_or(CodecError::Invalid("text packed with zstd"))?
        }
        _ => return Err(CodecError::Invalid("the packing of text")),
    };
    StrVec::from_parts(offsets, bytes).ok_or(CodecError::Invalid("text"))
}
