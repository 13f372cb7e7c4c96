//! Whole numbers: times, revisions, scaled channels, lengths and dictionary codes.
//!
//! Written by hand beside `pco` because a flush must not cost more than the ingest it serves: packing
//! encodes several times as fast, and on blocks of a few thousand rows it is close in size. A merge tries
//! `pco` too and keeps the smaller.

use super::bytes::{Reader, put_prefixed, put_signed, put_varint, varint_len, zigzag};
use super::{CodecError, Effort, pcodec};

const CONSTANT: u8 = 0;
const STEP: u8 = 1;
const PACKED: u8 = 2;
const PACKED_DELTA: u8 = 3;
const PCO: u8 = 4;
const PIECES: u8 = 5;

/// [`PIECES`] is tried when a piece has at least so many numbers on average.
const PIECE_LEN_WORTH: usize = 8;

/// Numbers that share a width. Smaller adapts better, larger costs less per number.
const GROUP: usize = 256;
/// The bytes of a full group of 64-bit numbers, and slack so that loads of 16 bytes stay inside.
const GROUP_BYTES: usize = GROUP * 8 + 16;

/// Appends an encoding of `values` that knows its own length, but not how many they are.
pub(super) fn encode(values: &[i64], effort: Effort, out: &mut Vec<u8>) {
    encode_at(values, effort, true, out);
}

fn encode_at(values: &[i64], effort: Effort, may_split: bool, out: &mut Vec<u8>) {
    let first = values.first().copied().unwrap_or(0);
    let step = values.get(1).map_or(0, |v| v.wrapping_sub(first));
    if values.windows(2).all(|w| w[1].wrapping_sub(w[0]) == step) {
        out.push(if step == 0 { CONSTANT } else { STEP });
        put_signed(first, out);
        if step != 0 {
            put_signed(step, out);
        }
        return;
    }
    let deltas = differences(values);
    let (plain, plain_len) = frames(values);
    let (delta, delta_len) = frames(&deltas);
    let delta_len = delta_len + varint_len(zigzag(first));
    let packed_len = plain_len.min(delta_len);
    if let Some(pieces) = may_split.then(|| pieces(values, &deltas)).flatten() {
        let start = out.len();
        out.push(PIECES);
        put_varint(pieces.lens.len() as u64, out);
        encode_at(&pieces.lens, effort, false, out);
        encode_at(&pieces.firsts, effort, false, out);
        encode_at(&pieces.steps, effort, false, out);
        if out.len() - start <= packed_len {
            return;
        }
        out.truncate(start);
    }
    if effort == Effort::Merge {
        let order = match delta_len < plain_len {
            false => 0,
            true if frames(&differences(&deltas)).1 < delta_len => 2,
            true => 1,
        };
        let worth = packed_len - packed_len / pcodec::SAVING_ASKED;
        if let Some(bytes) = pcodec::encode(values, order, effort, worth) {
            out.push(PCO);
            put_prefixed(&bytes, out);
            return;
        }
    }
    out.reserve(packed_len + 8);
    if plain_len <= delta_len {
        out.push(PACKED);
        pack(values, &plain, out);
    } else {
        out.push(PACKED_DELTA);
        put_signed(first, out);
        pack(&deltas, &delta, out);
    }
}

/// Whether differences of these numbers pack better than they do themselves.
pub(super) fn differences_pack_better(values: &[i64]) -> bool {
    frames(&differences(values)).1 < frames(values).1
}

fn differences(values: &[i64]) -> Vec<i64> {
    let mut deltas = Vec::with_capacity(values.len());
    deltas.extend(values.windows(2).map(|w| w[1].wrapping_sub(w[0])));
    deltas
}

/// Reads `n` numbers.
pub(super) fn decode(r: &mut Reader<'_>, n: usize) -> Result<Vec<i64>, CodecError> {
    decode_at(r, n, 0)
}

/// Pieces do not nest, so that no bytes make this recurse without end.
fn decode_at(r: &mut Reader<'_>, n: usize, depth: u32) -> Result<Vec<i64>, CodecError> {
    match r.u8()? {
        CONSTANT => Ok(vec![r.signed()?; n]),
        STEP => {
            let (mut next, step) = (r.signed()?, r.signed()?);
            Ok((0..n)
                .map(|_| {
                    let v = next;
                    next = next.wrapping_add(step);
                    v
                })
                .collect())
        }
        PACKED => {
            let mut out = Vec::with_capacity(n);
            unpack(r, n, &mut out)?;
            Ok(out)
        }
        PACKED_DELTA => {
            let first = r.signed()?;
            let mut out = Vec::with_capacity(n);
            out.push(first);
            unpack(r, n.saturating_sub(1), &mut out)?;
            out.truncate(n);
            let mut sum = 0i64;
            for v in &mut out {
                sum = sum.wrapping_add(*v);
                *v = sum;
            }
            Ok(out)
        }
        PCO => pcodec::decode(r.prefixed()?, n),
        PIECES if depth == 0 => {
            let count = usize::try_from(r.varint()?)
                .ok()
                .filter(|&c| c <= n)
                .ok_or(CodecError::Invalid("the count of pieces"))?;
            let lens = decode_at(r, count, 1)?;
            let firsts = decode_at(r, count, 1)?;
            let steps = decode_at(r, count, 1)?;
            let mut out = Vec::with_capacity(n);
            for ((&len, &first), &step) in lens.iter().zip(&firsts).zip(&steps) {
                let len = usize::try_from(len)
                    .ok()
                    .filter(|&l| l <= n - out.len())
                    .ok_or(CodecError::Invalid("the length of a piece"))?;
                let mut next = first;
                out.extend((0..len).map(|_| {
                    let v = next;
                    next = next.wrapping_add(step);
                    v
                }));
            }
            if out.len() != n {
                return Err(CodecError::Invalid("the lengths of pieces"));
            }
            Ok(out)
        }
        _ => Err(CodecError::Invalid("the encoding of whole numbers")),
    }
}

/// Stretches of constant step: the times of several entities in one block, ids handed out in runs.
struct Pieces {
    lens: Vec<i64>,
    firsts: Vec<i64>,
    steps: Vec<i64>,
}

/// `None` when they would be too many.
fn pieces(values: &[i64], deltas: &[i64]) -> Option<Pieces> {
    let most = values.len() / PIECE_LEN_WORTH;
    let mut p = Pieces {
        lens: Vec::new(),
        firsts: Vec::new(),
        steps: Vec::new(),
    };
    let mut at = 0;
    while at < values.len() {
        if p.lens.len() >= most {
            return None;
        }
        let step = deltas.get(at).copied().unwrap_or(0);
        let len = 1 + deltas[at.min(deltas.len())..]
            .iter()
            .take_while(|&&d| d == step)
            .count();
        p.lens.push(len as i64);
        p.firsts.push(values[at]);
        p.steps.push(step);
        at += len;
    }
    Some(p)
}

/// The smallest number of each group and the bits that its distance to the largest takes, and the bytes
/// that the numbers packed so need.
fn frames(values: &[i64]) -> (Vec<(i64, u32)>, usize) {
    let mut len = 1;
    let frames = values
        .chunks(GROUP)
        .map(|group| {
            let (min, max) = group
                .iter()
                .fold((i64::MAX, i64::MIN), |(lo, hi), &v| (lo.min(v), hi.max(v)));
            let width = 64 - (max.wrapping_sub(min) as u64).leading_zeros();
            len += 1 + varint_len(zigzag(min)) + (group.len() * width as usize).div_ceil(8);
            (min, width)
        })
        .collect();
    (frames, len)
}

/// Per group: width in bits, smallest number, then each number's distance to it.
fn pack(values: &[i64], frames: &[(i64, u32)], out: &mut Vec<u8>) {
    let mut words = [0u8; GROUP * 8];
    for (group, &(min, width)) in values.chunks(GROUP).zip(frames) {
        out.push(width as u8);
        put_signed(min, out);
        if width == 0 {
            continue;
        }
        let (mut word, mut used, mut at) = (0u64, 0u32, 0);
        for &v in group {
            let v = v.wrapping_sub(min) as u64;
            word |= v << used;
            used += width;
            if used >= 64 {
                words[at..at + 8].copy_from_slice(&word.to_le_bytes());
                at += 8;
                used -= 64;
                // What of `v` did not fit; all of it did when the word ends with it.
                word = if used == 0 { 0 } else { v >> (width - used) };
            }
        }
        if used > 0 {
            words[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let len = (group.len() * width as usize).div_ceil(8);
        out.extend_from_slice(&words[..len]);
    }
}

fn unpack(r: &mut Reader<'_>, n: usize, out: &mut Vec<i64>) -> Result<(), CodecError> {
    let mut buffer = [0u8; GROUP_BYTES];
    let mut left = n;
    while left > 0 {
        let len = left.min(GROUP);
        left -= len;
        let width = r.u8()? as usize;
        if width > 64 {
            return Err(CodecError::Invalid("the width of packed numbers"));
        }
        let min = r.signed()?;
        let bytes = r.take((len * width).div_ceil(8))?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        let mask = if width == 64 {
            u64::MAX
        } else {
            (1 << width) - 1
        };
        if width <= 56 {
            out.extend((0..len).map(|i| {
                let bit = i * width;
                let word = load8(&buffer, bit / 8);
                min.wrapping_add((word >> (bit % 8) & mask) as i64)
            }));
        } else {
            out.extend((0..len).map(|i| {
                let bit = i * width;
                let word =
                    load8(&buffer, bit / 8) as u128 | (load8(&buffer, bit / 8 + 8) as u128) << 64;
                min.wrapping_add(((word >> (bit % 8)) as u64 & mask) as i64)
            }));
        }
    }
    Ok(())
}

fn load8(buffer: &[u8; GROUP_BYTES], at: usize) -> u64 {
    let mut le = [0; 8];
    le.copy_from_slice(&buffer[at..at + 8]);
    u64::from_le_bytes(le)
}
