//! Entropy coding of small alphabets: tANS (Duda 2013), in the form of Collet's FSE. A symbol costs what its
//! share of all symbols says, to a fraction of a bit, and decoding is a table look-up for each.
//!
//! Eight states take turns, four on each of two streams of bits, so that the processor works on eight symbols
//! at once. Shares are frequencies that add up to 2^log; they are written before the streams.

use super::CodecError;
use super::bytes::{Reader, put_varint};

/// Shares add up to at most 2^11: the table fits beside the data in the first cache.
pub(super) const MAX_LOG: u32 = 11;
/// Below this shares are too coarse.
const MIN_LOG: u32 = 6;
pub(super) const TABLE: usize = 1 << MAX_LOG;
/// Symbols are bytes.
pub(super) const MAX_SYMBOLS: usize = 256;
/// States that take turns.
const LANES: usize = 8;
const PER_STREAM: usize = LANES / 2;
/// Orders of the Exp-Golomb code that are tried for shares.
const ORDERS: std::ops::Range<u32> = 0..6;

/// Shares of the symbols, adding up to 2^`log`.
pub(super) struct Shares {
    log: u32,
    of: Vec<u32>,
}

impl Shares {
    /// From how often each symbol occurs; at least one does.
    pub(super) fn new(counts: &[u32]) -> Self {
        let present = counts.iter().filter(|&&c| c > 0).count();
        let log = (usize::BITS - present.leading_zeros() + 4).clamp(MIN_LOG, MAX_LOG);
        let size = 1u64 << log;
        let total = counts.iter().map(|&c| c as u64).sum::<u64>().max(1);
        let mut of: Vec<u32> = counts
            .iter()
            .map(|&c| match c {
                0 => 0,
                c => ((c as u64 * size + total / 2) / total).max(1) as u32,
            })
            .collect();
        // What rounding left over, or took too much, is the business of the largest: it changes them least.
        let mut sum: u64 = of.iter().map(|&f| f as u64).sum();
        while sum != size {
            let Some(largest) = of.iter_mut().max() else {
                break;
            };
            if sum < size {
                *largest += (size - sum) as u32;
                sum = size;
            } else {
                let take = ((*largest / 4).max(1) as u64).min(sum - size);
                *largest -= take as u32;
                sum -= take;
            }
        }
        Shares { log, of }
    }

    /// Each as its distance from the one before, as an Exp-Golomb code.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let distances: Vec<u32> = self.distances();
        let bits = |order: u32| -> u32 {
            let len = |d: &u32| 2 * ((d >> order) + 1).ilog2() + 1 + order;
            distances.iter().map(len).sum()
        };
        let order = ORDERS.min_by_key(|&o| bits(o)).unwrap_or(0);
        out.push((self.log | order << 4) as u8);
        let mut w = BitWriter::new(out);
        for d in distances {
            let high = (d >> order) + 1;
            let zeros = high.ilog2();
            w.put(0, zeros);
            // The code's leading one comes first, so that a reader counts zeros.
            w.put(1, 1);
            w.put((high & ((1 << zeros) - 1)) as u64, zeros);
            w.put((d & ((1 << order) - 1)) as u64, order);
        }
        w.finish();
    }

    fn distances(&self) -> Vec<u32> {
        let mut before = 0i32;
        let distance = |&f: &u32| {
            let d = f as i32 - before;
            before = f as i32;
            (d << 1 ^ d >> 31) as u32
        };
        self.of.iter().map(distance).collect()
    }

    /// Reads the shares of `symbols` symbols.
    pub(super) fn read(r: &mut Reader<'_>, symbols: usize) -> Result<Self, CodecError> {
        const INVALID: CodecError = CodecError::Invalid("the shares of symbols");
        let head = r.u8()? as u32;
        let (log, order) = (head & 15, head >> 4);
        if !(MIN_LOG..=MAX_LOG).contains(&log) || !ORDERS.contains(&order) {
            return Err(INVALID);
        }
        let bytes = r.rest();
        let (mut at, mut sum, mut before) = (0usize, 0u32, 0i32);
        let mut of = Vec::with_capacity(symbols.min(MAX_SYMBOLS));
        for _ in 0..symbols {
            let word = load(bytes, at / 8) >> (at % 8);
            let zeros = word.trailing_zeros();
            if zeros > MAX_LOG + 1 {
                return Err(INVALID);
            }
            let high = (word >> (zeros + 1)) as u32 & ((1 << zeros) - 1) | 1 << zeros;
            let low = (word >> (2 * zeros + 1)) as u32 & ((1 << order) - 1);
            at += (2 * zeros + 1 + order) as usize;
            let d = (high - 1) << order | low;
            before += (d >> 1) as i32 ^ -((d & 1) as i32);
            if !(0..=1 << log).contains(&before) {
                return Err(INVALID);
            }
            sum += before as u32;
            of.push(before as u32);
        }
        r.take(at.div_ceil(8))?;
        if sum != 1 << log {
            return Err(INVALID);
        }
        Ok(Shares { log, of })
    }

    /// Which symbol each state stands for: those of one symbol far apart.
    fn spread(&self) -> [u8; TABLE] {
        let size = 1usize << self.log;
        // Odd, so that it visits every state once.
        let step = (size >> 1) + (size >> 3) + 3;
        let mut spread = [0; TABLE];
        let mut at = 0;
        for (symbol, &share) in self.of.iter().enumerate() {
            for _ in 0..share {
                spread[at & (TABLE - 1)] = symbol as u8;
                at = (at + step) & (size - 1);
            }
        }
        spread
    }

    /// Appends the two streams. `symbols` have a share each.
    pub(super) fn encode(&self, symbols: &[u8], out: &mut Vec<u8>) {
        let (log, size) = (self.log, 1usize << self.log);
        // Per symbol: what to add to a state to see its count of bits, and where its next states begin.
        let mut next = [(0u32, 0i32); MAX_SYMBOLS];
        let mut ends = [0usize; MAX_SYMBOLS];
        let mut start = 0;
        for (symbol, &share) in self.of.iter().enumerate().take(MAX_SYMBOLS) {
            ends[symbol] = start;
            let most = match share {
                0 | 1 => log,
                f => log - (f - 1).ilog2(),
            };
            next[symbol] = (
                (most << 16).wrapping_sub(share << most),
                start as i32 - share as i32,
            );
            start += share as usize;
        }
        let mut states = [0u16; TABLE];
        for (state, &symbol) in self.spread()[..size].iter().enumerate() {
            let at = &mut ends[symbol as usize];
            states[*at & (TABLE - 1)] = (size + state) as u16;
            *at += 1;
        }
        // Backwards: a reader meets them forwards.
        let (groups, rest) = symbols.as_chunks::<LANES>();
        let mut last = [symbols.first().copied().unwrap_or(0); LANES];
        last[..rest.len()].copy_from_slice(rest);
        let groups = groups.iter().chain((!rest.is_empty()).then_some(&last));
        let mut codes = vec![[0u32; LANES]; symbols.len().div_ceil(LANES)];
        let mut lanes = [size as u32; LANES];
        for (codes, group) in codes.iter_mut().rev().zip(groups.rev()) {
            for lane in 0..LANES {
                let (add, from) = next[group[lane] as usize];
                let state = lanes[lane];
                let bits = state.wrapping_add(add) >> 16;
                let mask = (1u32 << bits) - 1;
                codes[lane] = (state & mask) << 8 | bits;
                let place = ((state >> bits) as i32 + from) as usize;
                lanes[lane] = states[place & (TABLE - 1)] as u32;
            }
        }
        let stream = |half: usize| {
            let mut bytes = Vec::with_capacity(symbols.len() / 2 + 16);
            let mut w = BitWriter::new(&mut bytes);
            let lanes = &lanes[half * PER_STREAM..][..PER_STREAM];
            lanes
                .iter()
                .for_each(|&s| w.put((s as usize - size) as u64, log));
            for codes in &codes {
                let codes = &codes[half * PER_STREAM..][..PER_STREAM];
                let (mut word, mut used) = (0u64, 0);
                for &code in codes {
                    word |= ((code >> 8) as u64) << used;
                    used += code & 0xFF;
                }
                w.put(word, used);
            }
            w.finish();
            bytes
        };
        let (first, second) = (stream(0), stream(1));
        put_varint(first.len() as u64, out);
        put_varint(second.len() as u64, out);
        out.extend_from_slice(&first);
        out.extend_from_slice(&second);
    }

    /// Fills the look-up table of a reader: next state, its bits, symbol.
    pub(super) fn table(&self, table: &mut [u32; TABLE]) {
        let size = 1u32 << self.log;
        let mut next = [0u32; MAX_SYMBOLS];
        for (next, &share) in next.iter_mut().zip(&self.of) {
            *next = share;
        }
        let spread = self.spread();
        for (entry, &symbol) in table.iter_mut().zip(&spread[..size as usize]) {
            let x = next[symbol as usize];
            next[symbol as usize] = x + 1;
            let bits = (self.log + x.leading_zeros()).saturating_sub(31);
            *entry = (x << bits).wrapping_sub(size) << 16 | bits << 8 | symbol as u32;
        }
    }

    /// Takes the two streams, which are read from then on.
    pub(super) fn streams<'t, 'a>(
        &self,
        table: &'t [u32; TABLE],
        r: &mut Reader<'a>,
    ) -> Result<Streams<'t, 'a>, CodecError> {
        let lens = [r.varint()?, r.varint()?];
        let mut streams = Streams {
            table,
            lanes: [[0; PER_STREAM]; 2],
            bytes: [&[]; 2],
            at: [PER_STREAM * self.log as usize; 2],
        };
        for (half, len) in lens.into_iter().enumerate() {
            let bytes = r.take(usize::try_from(len).map_err(|_| CodecError::Truncated)?)?;
            let word = load(bytes, 0);
            for lane in 0..PER_STREAM {
                let state = word >> (lane * self.log as usize) & ((1 << self.log) - 1);
                streams.lanes[half][lane] = state as u32;
            }
            streams.bytes[half] = bytes;
        }
        Ok(streams)
    }
}

/// Symbols as they come back. Behind the end of a stream they go on with anything; [`Streams::end`] tells.
pub(super) struct Streams<'t, 'a> {
    table: &'t [u32; TABLE],
    lanes: [[u32; PER_STREAM]; 2],
    bytes: [&'a [u8]; 2],
    /// Bits read.
    at: [usize; 2],
}

impl Streams<'_, '_> {
    /// The next symbols; whole turns of all states, but for the last call.
    pub(super) fn next(&mut self, out: &mut [u8]) {
        let table = self.table;
        let [first, second] = self.bytes;
        let ([mut a, mut b], [mut at_a, mut at_b]) = (self.lanes, self.at);
        let (groups, rest) = out.as_chunks_mut::<LANES>();
        for group in groups {
            let one = turn(table, first, &mut at_a, &mut a);
            let two = turn(table, second, &mut at_b, &mut b);
            *group = (one as u64 | (two as u64) << 32).to_le_bytes();
        }
        if !rest.is_empty() {
            let one = turn(table, first, &mut at_a, &mut a);
            let two = turn(table, second, &mut at_b, &mut b);
            let group = (one as u64 | (two as u64) << 32).to_le_bytes();
            rest.copy_from_slice(&group[..rest.len()]);
        }
        self.lanes = [a, b];
        self.at = [at_a, at_b];
    }

    /// Whether exactly the bytes that are there were read.
    pub(super) fn end(&self) -> Result<(), CodecError> {
        let read = self.at.map(|bits| bits.div_ceil(8));
        if read == self.bytes.map(<[u8]>::len) {
            Ok(())
        } else {
            Err(CodecError::Invalid("the streams of symbols"))
        }
    }
}

/// One symbol from each state of a stream, the first in the low byte.
#[inline(always)]
fn turn(table: &[u32; TABLE], stream: &[u8], at: &mut usize, lanes: &mut [u32; PER_STREAM]) -> u32 {
    // At least 57 bits, and four codes take at most 44.
    let mut word = load(stream, *at / 8) >> (*at % 8);
    let mut used = 0;
    let mut symbols = 0;
    for (lane, state) in lanes.iter_mut().enumerate() {
        let entry = table[*state as usize & (TABLE - 1)];
        symbols |= (entry & 0xFF) << (8 * lane);
        let bits = entry >> 8 & 0xFF;
        *state = (entry >> 16) + (word as u32 & ((1 << bits) - 1));
        word >>= bits;
        used += bits;
    }
    *at += used as usize;
    symbols
}

/// Eight bytes, zeros where there are no more.
#[inline(always)]
fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_le_bytes(*word),
        None => load_end(bytes, at),
    }
}

#[cold]
fn load_end(bytes: &[u8], at: usize) -> u64 {
    let mut le = [0; 8];
    let rest = bytes.get(at..).unwrap_or(&[]);
    le[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(le)
}

/// Bits, the first in the low bit of the first byte.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    used: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter {
            out,
            word: 0,
            used: 0,
        }
    }
    /// `value` has no bits above the lowest `bits`, at most 64.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        self.word |= value << self.used;
        self.used += bits;
        if self.used >= 64 {
            self.out.extend_from_slice(&self.word.to_le_bytes());
            self.used -= 64;
            // What of `value` did not fit; all of it did when the word ends with it.
            self.word = if self.used == 0 {
                0
            } else {
                value >> (bits - self.used)
            };
        }
    }
    pub(super) fn finish(self) {
        let bytes = self.used.div_ceil(8) as usize;
        self.out
            .extend_from_slice(&self.word.to_le_bytes()[..bytes]);
    }
}
