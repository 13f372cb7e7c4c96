//! Whole numbers: times, revisions, scaled channels, lengths and dictionary codes.
//!
//! Packing into as many bits as a group needs is the fastest to read; [`symbols`] is smaller. Which differences
//! to take, if any, is guessed from a sample at a flush, which must not cost more than the ingest it serves, and
//! tried out at a merge. `docs/encodings.md` has the measurements behind the choice.

use super::bytes::{Reader, put_signed, put_varint, varint_len, zigzag};
use super::symbols::{self, Bins, log2};
use super::{CodecError, Effort, pcodec};
use std::ops::Range;

const CONSTANT: u8 = 0;
const STEP: u8 = 1;
const PACKED: u8 = 2;
const PACKED_DELTA: u8 = 3;
/// Read only: earlier versions wrote it.
const PCO: u8 = 4;
const PIECES: u8 = 5;
const SYMBOLS: u8 = 6;

/// [`PIECES`] is tried when a piece has at least so many numbers on average.
const PIECE_LEN_WORTH: usize = 8;
/// [`SYMBOLS`] must save one part in so many over packing, which decodes faster.
const SAVING_ASKED: usize = 16;
/// Differences are taken at most so often.
const MAX_ORDER: usize = 2;

/// Numbers that share a width. Smaller adapts better, larger costs less per number.
pub(super) const GROUP: usize = 256;
/// So many bytes behind the packed numbers of a group are loaded too.
const LOAD_SLACK: usize = 16;

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
    let start = out.len();
    let worth = packed_len - packed_len / SAVING_ASKED;
    let orders = match effort {
        Effort::Merge => 0..MAX_ORDER + 1,
        Effort::Flush => orders_by_sample(values),
    };
    let second = match orders.contains(&2) {
        true => differences(&deltas),
        false => Vec::new(),
    };
    let of = [values, &deltas, &second];
    let bins = orders.filter_map(|order| Some((order, Bins::new(of[order])?)));
    if let Some((order, bins)) = bins.min_by_key(|(_, bins)| bins.estimate())
        && bins.estimate() < worth
    {
        out.push(SYMBOLS);
        out.push(order as u8);
        (0..order).for_each(|o| put_signed(of[o][0], out));
        bins.encode(of[order], out);
        // The estimate may be off by some bytes, which counts where there are few.
        if out.len() - start < packed_len {
            return;
        }
        out.truncate(start);
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

/// How often to take differences: which orders are worth trying. Differences pay when neighbours are nearer to
/// each other than numbers far apart are, by more than the half bit that a difference of two independent numbers
/// costs.
fn orders_by_sample(values: &[i64]) -> Range<usize> {
    const PAIRS: usize = 96;
    let n = values.len();
    if n < 16 {
        return 0..1;
    }
    let (stride, half) = ((n / 2 / PAIRS).max(1), n / 2 - 3);
    let bits = |d: i64| log2(d.unsigned_abs() as f32 + 1.0);
    let (mut far, mut near, mut count) = ([0.0; MAX_ORDER], [0.0; MAX_ORDER], 0.0);
    for i in (0..half).step_by(stride) {
        let diff = |i: usize| values[i + 1].wrapping_sub(values[i]);
        far[0] += bits(values[i].wrapping_sub(values[i + half]));
        near[0] += bits(diff(i));
        far[1] += bits(diff(i).wrapping_sub(diff(i + half)));
        near[1] += bits(diff(i + 1).wrapping_sub(diff(i)));
        count += 1.0;
    }
    let order = (0..MAX_ORDER)
        .take_while(|&o| near[o] + 0.5 * count < far[o])
        .count();
    // A handful of numbers far apart is best left alone, and the sample is blind to how often each occurs.
    let least = if order > 0 && far[0] > 24.0 * count {
        0
    } else {
        order
    };
    least..order + 1
}

fn differences(values: &[i64]) -> Vec<i64> {
    let mut deltas = Vec::with_capacity(values.len());
    deltas.extend(values.windows(2).map(|w| w[1].wrapping_sub(w[0])));
    deltas
}

/// Reads `n` numbers.
pub(super) fn decode(r: &mut Reader<'_>, n: usize) -> Result<Vec<i64>, CodecError> {
    let mut out = Vec::with_capacity(n);
    decode_groups(r, n, &mut |group| out.extend_from_slice(group))?;
    Ok(out)
}

/// Reads `n` numbers and gives them to `take` in order, at most [`GROUP`] at once: what is done with them is
/// done while they are in the first cache.
pub(super) fn decode_groups(
    r: &mut Reader<'_>,
    n: usize,
    take: &mut dyn FnMut(&[i64]),
) -> Result<(), CodecError> {
    match r.u8()? {
        PIECES => read_pieces(r, n, take),
        kind => decode_whole(kind, r, n, take),
    }
}

/// Pieces do not nest, so that no bytes make this recurse without end.
fn decode_whole(
    kind: u8,
    r: &mut Reader<'_>,
    n: usize,
    take: &mut dyn FnMut(&[i64]),
) -> Result<(), CodecError> {
    match kind {
        CONSTANT => {
            let group = [r.signed()?; GROUP];
            (0..n)
                .step_by(GROUP)
                .for_each(|at| take(&group[..GROUP.min(n - at)]));
            Ok(())
        }
        STEP => {
            let mut group = Grouped::new(take);
            group.progression(r.signed()?, r.signed()?, n);
            group.finish();
            Ok(())
        }
        PACKED => unpack(r, n, |group| take(group)),
        PACKED_DELTA => {
            let mut sums = Sums::read(r, 1, n, take)?;
            unpack(r, n.saturating_sub(1), |group| {
                sums.add(group);
                take(group);
            })
        }
        SYMBOLS => {
            let order = r.u8()? as usize;
            if order > MAX_ORDER {
                return Err(CodecError::Invalid("how often differences are taken"));
            }
            let mut sums = Sums::read(r, order, n, take)?;
            symbols::decode(r, n.saturating_sub(order), |group| {
                sums.add(group);
                take(group);
            })
        }
        PCO => {
            take(&pcodec::decode(r.prefixed()?, n)?);
            Ok(())
        }
        _ => Err(CodecError::Invalid("the encoding of whole numbers")),
    }
}

/// Numbers that come in pieces of any length, handed on in groups.
struct Grouped<'a> {
    group: [i64; GROUP],
    used: usize,
    take: &'a mut dyn FnMut(&[i64]),
}

impl<'a> Grouped<'a> {
    fn new(take: &'a mut dyn FnMut(&[i64])) -> Self {
        Grouped {
            group: [0; GROUP],
            used: 0,
            take,
        }
    }
    fn progression(&mut self, first: i64, step: i64, len: usize) {
        let (mut next, mut left) = (first, len);
        while left > 0 {
            let now = left.min(GROUP - self.used);
            for v in &mut self.group[self.used..self.used + now] {
                *v = next;
                next = next.wrapping_add(step);
            }
            self.used += now;
            left -= now;
            if self.used == GROUP {
                (self.take)(&self.group);
                self.used = 0;
            }
        }
    }
    fn finish(self) {
        (self.take)(&self.group[..self.used]);
    }
}

/// Differences become numbers again.
struct Sums {
    order: usize,
    /// The last number, and with differences of differences the last difference.
    next: [i64; MAX_ORDER],
}

impl Sums {
    /// Reads what stands before the first difference, and gives the numbers that these are to `take`.
    fn read(
        r: &mut Reader<'_>,
        order: usize,
        n: usize,
        take: &mut dyn FnMut(&[i64]),
    ) -> Result<Self, CodecError> {
        let mut next = [0; MAX_ORDER];
        for first in &mut next[..order] {
            *first = r.signed()?;
        }
        let mut leading = next;
        if order == MAX_ORDER {
            // A number and a difference are two numbers; sums go on from the second.
            next[0] = next[0].wrapping_add(next[1]);
            leading[1] = next[0];
        }
        take(&leading[..order.min(n)]);
        Ok(Sums { order, next })
    }
    fn add(&mut self, group: &mut [i64]) {
        for next in self.next[..self.order].iter_mut().rev() {
            let mut sum = *next;
            for v in &mut *group {
                sum = sum.wrapping_add(*v);
                *v = sum;
            }
            *next = sum;
        }
    }
}

fn read_pieces(
    r: &mut Reader<'_>,
    n: usize,
    take: &mut dyn FnMut(&[i64]),
) -> Result<(), CodecError> {
    let count = usize::try_from(r.varint()?)
        .ok()
        .filter(|&c| c <= n)
        .ok_or(CodecError::Invalid("the count of pieces"))?;
    let mut numbers = || {
        let mut out = Vec::with_capacity(count);
        let kind = r.u8()?;
        decode_whole(kind, r, count, &mut |group| out.extend_from_slice(group))?;
        Ok::<_, CodecError>(out)
    };
    let (lens, firsts, steps) = (numbers()?, numbers()?, numbers()?);
    let mut left = n;
    let mut group = Grouped::new(take);
    for ((&len, &first), &step) in lens.iter().zip(&firsts).zip(&steps) {
        let len = usize::try_from(len)
            .ok()
            .filter(|&l| l <= left)
            .ok_or(CodecError::Invalid("the length of a piece"))?;
        left -= len;
        group.progression(first, step, len);
    }
    group.finish();
    match left {
        0 => Ok(()),
        _ => Err(CodecError::Invalid("the lengths of pieces")),
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

fn unpack(
    r: &mut Reader<'_>,
    n: usize,
    mut take: impl FnMut(&mut [i64]),
) -> Result<(), CodecError> {
    let mut group = [0i64; GROUP];
    let mut left = n;
    while left > 0 {
        let group = &mut group[..left.min(GROUP)];
        left -= group.len();
        let width = r.u8()? as usize;
        if width > 64 {
            return Err(CodecError::Invalid("the width of packed numbers"));
        }
        group.fill(r.signed()?);
        add_packed(r, width, group)?;
        take(group);
    }
    Ok(())
}

/// Reads numbers of `width` bits, packed from the low bit of the first byte, and adds them to those of a group.
pub(super) fn add_packed(
    r: &mut Reader<'_>,
    width: usize,
    group: &mut [i64],
) -> Result<(), CodecError> {
    let rest = r.rest();
    let len = r.take((group.len() * width).div_ceil(8))?.len();
    // Loads reach behind the last number: into what follows, or, at the end of the chunk, into a copy.
    match rest.get(..len + LOAD_SLACK) {
        Some(bytes) => add_bits(bytes, width, group),
        None => {
            let mut copy = [0u8; GROUP * 8 + LOAD_SLACK];
            copy[..len].copy_from_slice(&rest[..len]);
            add_bits(&copy[..len + LOAD_SLACK], width, group);
        }
    }
    Ok(())
}

/// `bytes` has [`LOAD_SLACK`] more than the numbers take.
fn add_bits(bytes: &[u8], width: usize, group: &mut [i64]) {
    let mask = u64::MAX.checked_shr(64 - width as u32).unwrap_or(0);
    let load = |at: usize| {
        let mut le = [0; 8];
        le.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(le)
    };
    if width <= 56 {
        for (i, v) in group.iter_mut().enumerate() {
            let bit = i * width;
            *v = v.wrapping_add((load(bit / 8) >> (bit % 8) & mask) as i64);
        }
    } else {
        for (i, v) in group.iter_mut().enumerate() {
            let bit = i * width;
            let word = load(bit / 8) as u128 | (load(bit / 8 + 8) as u128) << 64;
            *v = v.wrapping_add(((word >> (bit % 8)) as u64 & mask) as i64);
        }
    }
}
