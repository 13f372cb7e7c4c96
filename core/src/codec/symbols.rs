//! Whole numbers as bins and places: numbers whose distance from the smallest has the same high bits share a
//! bin, whose name goes through [`super::ans`]; the low bits, which are as good as random, are packed as they
//! are. As small as `pco` on most of what people store, at three times the speed both ways.
//!
//! Bins are either one beside the other, or, where the data has gaps (a unit converted to another, a handful
//! of states, a rare outlier), a list of those that occur.

use super::CodecError;
use super::ans::{BitWriter, MAX_SYMBOLS, Shares, TABLE};
use super::bytes::{Reader, put_signed, put_varint};
use super::ints::{GROUP, add_packed};

/// Fewer numbers do not pay for the table of shares.
const MIN_NUMBERS: usize = 64;
/// Bins that are counted one by one.
const DENSE_LOG: u32 = 10;
const DENSE: usize = 1 << DENSE_LOG;
/// Slots of the table that counts bins far apart: four for each.
const SLOTS: usize = 4 * MAX_SYMBOLS;
/// Bits that a bin costs in the header: its share; where bins are listed, its distance from the one before.
const SHARE_BITS: f32 = 5.0;
const GAP_BITS: f32 = 8.0;

const BESIDE: u8 = 0;
const LISTED: u8 = 1;

/// Which bins numbers fall into.
pub(super) struct Bins {
    min: i64,
    /// Low bits that are packed.
    low: u32,
    /// Bins that occur, ascending, and how many numbers each has.
    bins: Vec<(u64, u32)>,
    bits: f32,
}

impl Bins {
    /// The best bins for these numbers; `None` when there are none that are worth it.
    pub(super) fn new(values: &[i64]) -> Option<Self> {
        if values.len() < MIN_NUMBERS {
            return None;
        }
        let (min, max) = values
            .iter()
            .fold((i64::MAX, i64::MIN), |(lo, hi), &v| (lo.min(v), hi.max(v)));
        let width = 64 - (max.wrapping_sub(min) as u64).leading_zeros();
        let finest = width.saturating_sub(DENSE_LOG);
        let beside = Bins::beside(values, min, finest);
        // The bins were as fine as could be counted, and finer ones might be better still.
        if finest > 0 && beside.as_ref().is_none_or(|b| b.low == finest) {
            let few = Bins::listed(values, min, 0);
            let few = few.or_else(|| Bins::listed(values, min, by_sample(values).min(finest - 1)));
            return [beside, few]
                .into_iter()
                .flatten()
                .min_by(|a, b| a.bits.total_cmp(&b.bits));
        }
        beside
    }

    /// Counts the finest bins and joins neighbours as long as that makes it smaller.
    fn beside(values: &[i64], min: i64, finest: u32) -> Option<Self> {
        let mut counts = [0u32; DENSE];
        for &v in values {
            let bin = (v.wrapping_sub(min) as u64 >> finest) as usize;
            counts[bin & (DENSE - 1)] += 1;
        }
        let mut used = DENSE - counts.iter().rev().take_while(|&&c| c == 0).count();
        let n = values.len() as f32;
        let mut best: Option<(f32, u32)> = None;
        let mut level = counts;
        for low in finest..64 {
            let (present, saved) = present_and_saved(&level[..used.next_multiple_of(8)]);
            let code = n * log2(n) - saved;
            if present <= MAX_SYMBOLS {
                let listed = present as f32 * (SHARE_BITS + GAP_BITS);
                let beside = (used.max(present)) as f32 * SHARE_BITS.min(4.0);
                let header = if used <= MAX_SYMBOLS {
                    beside.min(listed)
                } else {
                    listed
                };
                let bits = code + n * low as f32 + header;
                match best {
                    Some((least, _)) if bits >= least => {
                        // Coarser bins only get worse from here.
                        if bits > least + n * 0.25 {
                            break;
                        }
                    }
                    _ => best = Some((bits, low)),
                }
            }
            if used <= 1 {
                break;
            }
            for i in 0..used.div_ceil(2) {
                level[i] = level[2 * i] + level.get(2 * i + 1).copied().unwrap_or(0);
            }
            let old = used;
            used = used.div_ceil(2);
            level[used..old].fill(0);
        }
        let (bits, low) = best?;
        let mut bins: Vec<(u64, u32)> = Vec::new();
        for (bin, &count) in counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            let bin = (bin >> (low - finest)) as u64;
            match bins.last_mut() {
                Some((last, sum)) if *last == bin => *sum += count,
                _ => bins.push((bin, count)),
            }
        }
        Some(Bins {
            min,
            low,
            bins,
            bits,
        })
    }

    /// Bins of `low` bits wherever numbers are; wider ones when those are too many.
    fn listed(values: &[i64], min: i64, low: u32) -> Option<Self> {
        let mut low = low;
        let bins = loop {
            let mut slots = Slots::new();
            let fits = values
                .iter()
                .all(|v| slots.add(v.wrapping_sub(min) as u64 >> low));
            if fits {
                break slots.sorted();
            }
            // Few distinct numbers or many: nothing between.
            if low == 0 || low >= 56 {
                return None;
            }
            low += 2;
        };
        let n = values.len() as f32;
        let code: f32 = bins
            .iter()
            .map(|&(_, c)| c as f32 * (log2(n) - log2(c as f32)))
            .sum();
        let gaps: f32 = bins
            .windows(2)
            .map(|w| 8.0 * ((64 - (w[1].0 - w[0].0).leading_zeros()).div_ceil(7)) as f32)
            .sum();
        let bits = code + n * low as f32 + bins.len() as f32 * SHARE_BITS + gaps;
        Some(Bins {
            min,
            low,
            bins,
            bits,
        })
    }

    /// Bytes that [`Bins::encode`] will about take.
    pub(super) fn estimate(&self) -> usize {
        (self.bits / 8.0) as usize + 16
    }

    /// Appends the numbers that the bins were made from.
    pub(super) fn encode(&self, values: &[i64], out: &mut Vec<u8>) {
        out.push(self.low as u8);
        put_signed(self.min, out);
        let last = self.bins.last().map_or(0, |b| b.0);
        let listed = last >= MAX_SYMBOLS as u64 || last as usize > 2 * self.bins.len() + 8;
        let mut counts = Vec::with_capacity(MAX_SYMBOLS);
        if listed {
            put_varint(self.bins.len() as u64 - 1, out);
            out.push(LISTED);
            let mut before = 0;
            for &(bin, count) in &self.bins {
                put_varint(bin - before, out);
                before = bin;
                counts.push(count);
            }
        } else {
            put_varint(last, out);
            out.push(BESIDE);
            counts.resize(last as usize + 1, 0);
            for &(bin, count) in &self.bins {
                counts[bin as usize] = count;
            }
        }
        let shares = Shares::new(&counts);
        shares.write(out);
        let (min, low) = (self.min, self.low);
        let bin_of = move |v: i64| v.wrapping_sub(min) as u64 >> low;
        let symbols: Vec<u8> = if listed {
            let mut slots = Slots::new();
            for (symbol, &(bin, _)) in self.bins.iter().enumerate() {
                slots.name(bin, symbol as u32);
            }
            values.iter().map(|&v| slots.get(bin_of(v)) as u8).collect()
        } else {
            values.iter().map(|&v| bin_of(v) as u8).collect()
        };
        shares.encode(&symbols, out);
        if self.low > 0 {
            let mask = (1u64 << self.low) - 1;
            out.reserve((values.len() * self.low as usize).div_ceil(8) + 8);
            let mut w = BitWriter::new(out);
            for v in values {
                w.put(v.wrapping_sub(min) as u64 & mask, low);
            }
            w.finish();
        }
    }
}

/// Reads `n` numbers and gives them to `take`, at most [`GROUP`] at once.
pub(super) fn decode(
    r: &mut Reader<'_>,
    n: usize,
    mut take: impl FnMut(&mut [i64]),
) -> Result<(), CodecError> {
    let low = r.u8()? as usize;
    if low >= 64 {
        return Err(CodecError::Invalid("the width of a bin"));
    }
    let min = r.signed()?;
    let symbols = r
        .varint()?
        .checked_add(1)
        .filter(|&s| s <= MAX_SYMBOLS as u64)
        .ok_or(CodecError::Invalid("the count of bins"))? as usize;
    let mut bases = [0i64; MAX_SYMBOLS];
    let mut bin = 0u64;
    let listed = match r.u8()? {
        BESIDE => false,
        LISTED => true,
        _ => return Err(CodecError::Invalid("the kind of bins")),
    };
    for base in &mut bases[..symbols] {
        if listed {
            bin = bin.wrapping_add(r.varint()?);
        }
        *base = min.wrapping_add((bin << low) as i64);
        if !listed {
            bin += 1;
        }
    }
    let shares = Shares::read(r, symbols)?;
    let mut table = [0; TABLE];
    shares.table(&mut table);
    let mut streams = shares.streams(&table, r)?;
    let (mut group, mut names) = ([0i64; GROUP], [0u8; GROUP]);
    let mut left = n;
    while left > 0 {
        let len = left.min(GROUP);
        let (group, names) = (&mut group[..len], &mut names[..len]);
        left -= len;
        streams.next(names);
        for (v, &name) in group.iter_mut().zip(&*names) {
            *v = bases[name as usize];
        }
        if low > 0 {
            add_packed(r, low, group)?;
        }
        take(group);
    }
    streams.end()
}

/// How many bins have numbers, and the sum of n × log2 n over them: what their shares save of the logarithm of
/// the whole. Eight sums side by side, without a branch: an empty bin adds nothing.
fn present_and_saved(counts: &[u32]) -> (usize, f32) {
    let (mut present, mut saved) = ([0u32; 8], [0f32; 8]);
    for counts in counts.as_chunks::<8>().0 {
        for i in 0..8 {
            present[i] += (counts[i] > 0) as u32;
            saved[i] += counts[i] as f32 * log2(counts[i] as f32);
        }
    }
    (present.iter().sum::<u32>() as usize, saved.iter().sum())
}

/// Low bits such that the middle half of the numbers falls into some four bins.
fn by_sample(values: &[i64]) -> u32 {
    let stride = (values.len() / 128).max(1);
    let mut sample: Vec<i64> = values.iter().copied().step_by(stride).collect();
    sample.sort_unstable();
    let (a, b) = (sample[sample.len() / 4], sample[sample.len() * 3 / 4]);
    let spread = b.wrapping_sub(a) as u64;
    (64 - spread.leading_zeros()).saturating_sub(2)
}

/// log2, near enough to choose by (to 0.01): the exponent, and a parabola through the mantissa's ends.
#[inline(always)]
pub(super) fn log2(n: f32) -> f32 {
    let bits = n.to_bits();
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F80_0000);
    let exponent = (bits >> 23) as i32 - 127;
    exponent as f32 + (2.0 - mantissa / 3.0) * mantissa - 5.0 / 3.0
}

/// Counts or names of bins far apart, by open addressing.
struct Slots {
    /// Bin and its count or name; a count of 0 is an empty slot, and names are one more.
    slots: Vec<(u64, u32)>,
    used: usize,
}

impl Slots {
    fn new() -> Self {
        Slots {
            slots: vec![(0, 0); SLOTS],
            used: 0,
        }
    }
    #[inline(always)]
    fn slot(&mut self, bin: u64) -> &mut (u64, u32) {
        let mut at = (bin.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        loop {
            let (there, count) = self.slots[at & (SLOTS - 1)];
            if count == 0 || there == bin {
                return &mut self.slots[at & (SLOTS - 1)];
            }
            at += 1;
        }
    }
    /// False when these are more bins than there are symbols.
    #[inline(always)]
    fn add(&mut self, bin: u64) -> bool {
        let slot = self.slot(bin);
        let new = slot.1 == 0;
        *slot = (bin, slot.1 + 1);
        if new {
            self.used += 1;
        }
        self.used <= MAX_SYMBOLS
    }
    fn name(&mut self, bin: u64, symbol: u32) {
        *self.slot(bin) = (bin, symbol + 1);
    }
    #[inline(always)]
    fn get(&mut self, bin: u64) -> u32 {
        self.slot(bin).1.saturating_sub(1)
    }
    fn sorted(self) -> Vec<(u64, u32)> {
        let mut bins: Vec<_> = self.slots.into_iter().filter(|s| s.1 > 0).collect();
        bins.sort_unstable();
        bins
    }
}
