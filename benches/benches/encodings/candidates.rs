//! Encodings that the store could have used, each in as few lines as say what it is about. Only sizes and speeds
//! matter here: nothing is checked that a reader of foreign bytes would have to check.

use crate::data::{Blocks, ROWS};
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};
use strandline_core::codec::{Effort, decode, encode};
use strandline_core::format::block::{BlockData, Presence};

/// A block, and what comes back.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    Numbers(Vec<f64>),
    Whole(Vec<i64>),
    Text(Vec<String>),
}

/// `encode` gives nothing for what it is not made for.
pub struct Candidate {
    pub name: &'static str,
    pub encode: fn(&Values) -> Option<Vec<u8>>,
    pub decode: fn(&[u8]) -> Values,
}

/// Blocks as candidates take them.
pub fn values(blocks: &Blocks) -> Vec<Values> {
    match blocks {
        Blocks::Numbers(b) => b.iter().cloned().map(Values::Numbers).collect(),
        Blocks::Whole(b) => b.iter().cloned().map(Values::Whole).collect(),
        Blocks::Text(b) => b.iter().cloned().map(Values::Text).collect(),
    }
}

pub const ALL: [Candidate; 9] = [
    Candidate {
        name: "pco 8, its own choice",
        encode: pco_own,
        decode: pco_decode,
    },
    Candidate {
        name: "pco 6 of scaled numbers",
        encode: pco_scaled,
        decode: scaled_decode,
    },
    Candidate {
        name: "ALP",
        encode: |v| alp(v, false),
        decode: alp_decode,
    },
    Candidate {
        name: "ALP, zstd 3",
        encode: |v| alp(v, true),
        decode: |b| alp_decode(&unzstd(b)),
    },
    Candidate {
        name: "Gorilla",
        encode: gorilla,
        decode: gorilla_decode,
    },
    Candidate {
        name: "delta of delta, varints",
        encode: double_delta,
        decode: double_delta_decode,
    },
    Candidate {
        name: "zstd 3 of the bytes",
        encode: zstd_raw,
        decode: zstd_raw_decode,
    },
    Candidate {
        name: "zstd 3 of transposed differences",
        encode: zstd_planes,
        decode: zstd_planes_decode,
    },
    Candidate {
        name: "FSST",
        encode: fsst,
        decode: fsst_decode,
    },
];

/// A block as the store has it.
pub fn block(values: &Values) -> BlockData {
    match values {
        Values::Numbers(v) => BlockData::F64(v.clone()),
        Values::Whole(v) => BlockData::I64(v.clone()),
        Values::Text(v) => BlockData::Str(v.iter().map(String::as_str).collect()),
    }
}

/// As the store writes it.
pub fn ours(data: &BlockData, effort: Effort) -> Vec<u8> {
    let mut out = Vec::new();
    encode(data, &Presence::All, ROWS, effort, &mut out).expect("a full block encodes");
    out
}

/// As the store reads it.
pub fn ours_decode(chunk: &[u8]) -> BlockData {
    decode(chunk, ROWS).expect("a sound chunk decodes").1
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).expect("memory is there")
}

fn unzstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::decompress(bytes, 64 << 20).expect("a sound frame")
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
}

fn pco_own(values: &Values) -> Option<Vec<u8>> {
    fn pack<T: Number>(tag: u8, values: &[T]) -> Option<Vec<u8>> {
        let packed = simple_compress(values, &ChunkConfig::default()).ok()?;
        Some([&[tag], &packed[..]].concat())
    }
    match values {
        Values::Numbers(v) => pack(0, v),
        Values::Whole(v) => pack(1, v),
        Values::Text(_) => None,
    }
}

fn pco_decode(bytes: &[u8]) -> Values {
    match bytes[0] {
        0 => Values::Numbers(simple_decompress(&bytes[1..]).expect("a sound file")),
        _ => Values::Whole(simple_decompress(&bytes[1..]).expect("a sound file")),
    }
}

/// As whole numbers times a power of ten, when all of them are.
fn scaled(values: &[f64]) -> Option<(u8, Vec<i64>)> {
    (0..=8u8).find_map(|power| {
        let factor = 10f64.powi(power.into());
        let whole: Vec<i64> = values.iter().map(|v| (v * factor).round() as i64).collect();
        let exact = |(i, v): (&i64, &f64)| (*i as f64 / factor).to_bits() == v.to_bits();
        whole
            .iter()
            .zip(values)
            .all(exact)
            .then_some((power, whole))
    })
}

/// What the store wrote before, at a merge.
fn pco_scaled(values: &Values) -> Option<Vec<u8>> {
    let (power, whole) = match values {
        Values::Numbers(v) => scaled(v)?,
        Values::Whole(v) => (u8::MAX, v.clone()),
        Values::Text(_) => return None,
    };
    let packed = (0..3).filter_map(|order| {
        let delta = match order {
            0 => DeltaSpec::NoOp,
            _ => DeltaSpec::TryConsecutive(order),
        };
        let config = ChunkConfig::default()
            .with_compression_level(6)
            .with_mode_spec(ModeSpec::Classic)
            .with_delta_spec(delta);
        simple_compress(&whole, &config).ok()
    });
    let packed = packed.min_by_key(Vec::len)?;
    Some([&[power], &packed[..]].concat())
}

fn scaled_decode(bytes: &[u8]) -> Values {
    let whole: Vec<i64> = simple_decompress(&bytes[1..]).expect("a sound file");
    if bytes[0] == u8::MAX {
        return Values::Whole(whole);
    }
    let factor = 10f64.powi(bytes[0].into());
    Values::Numbers(whole.into_iter().map(|i| i as f64 / factor).collect())
}

/// Adaptive lossless floating point (Afroozeh, Kuffo, Boncz 2023): 10^e × 10^-f turns most values into whole
/// numbers, which are packed at one width; the others stand apart.
fn alp(values: &Values, squeeze: bool) -> Option<Vec<u8>> {
    let Values::Numbers(values) = values else {
        return None;
    };
    let digits = |v: f64, e: i32, f: i32| (v * 10f64.powi(e) * 10f64.powi(-f)).round_ties_even();
    let exact = |v: f64, e: i32, f: i32| {
        let d = digits(v, e, f);
        d.abs() < 9e15 && (d * 10f64.powi(f) * 10f64.powi(-e)).to_bits() == v.to_bits()
    };
    let sample: Vec<f64> = values.iter().copied().step_by(127).collect();
    let pairs = (0..=14).flat_map(|e| (0..=e).map(move |f| (e, f)));
    let fits = |&(e, f): &(i32, i32)| sample.iter().filter(|&&v| exact(v, e, f)).count();
    let (e, f) = pairs.max_by_key(|p| (fits(p), p.1 - p.0))?;
    if fits(&(e, f)) * 2 < sample.len() {
        return None;
    }
    let mut whole: Vec<i64> = Vec::with_capacity(values.len());
    let mut apart: Vec<u8> = Vec::new();
    for (i, &v) in values.iter().enumerate() {
        if exact(v, e, f) {
            whole.push(digits(v, e, f) as i64);
        } else {
            whole.push(whole.last().copied().unwrap_or(0));
            apart.extend((i as u16).to_le_bytes());
            apart.extend(v.to_bits().to_le_bytes());
        }
    }
    let (min, max) = (*whole.iter().min()?, *whole.iter().max()?);
    let width = 64 - ((max - min) as u64).leading_zeros();
    let mut out = vec![e as u8, f as u8, width as u8];
    out.extend(min.to_le_bytes());
    out.extend((apart.len() as u32).to_le_bytes());
    out.extend(apart);
    let (mut bits, mut used) = (0u128, 0);
    for v in whole {
        bits |= ((v - min) as u128) << used;
        used += width;
        while used >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            used -= 8;
        }
    }
    out.push(bits as u8);
    out.extend([0; 8]);
    Some(if squeeze { zstd(&out) } else { out })
}

fn alp_decode(bytes: &[u8]) -> Values {
    let (e, f, width) = (bytes[0] as i32, bytes[1] as i32, bytes[2] as usize);
    let min = word(&bytes[3..]) as i64;
    let apart = word(&bytes[11..]) as u32 as usize;
    let packed = &bytes[15 + apart..];
    let mask = (1u64 << width) - 1;
    let (up, down) = (10f64.powi(f), 10f64.powi(-e));
    let number = |i: usize| {
        let bit = i * width;
        let low = word(&packed[bit / 8..]) >> (bit % 8) & mask;
        (min + low as i64) as f64 * up * down
    };
    let mut out: Vec<f64> = (0..ROWS).map(number).collect();
    for entry in bytes[15..15 + apart].chunks(10) {
        out[u16::from_le_bytes([entry[0], entry[1]]) as usize] = f64::from_bits(word(&entry[2..]));
    }
    Values::Numbers(out)
}

/// Bits, the first in the high bit of the first byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: usize,
}

impl Bits {
    fn put(&mut self, value: u64, bits: usize) {
        for i in (0..bits).rev() {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let last = self.bytes.len() - 1;
            self.bytes[last] |= ((value >> i & 1) as u8) << (7 - self.used % 8);
            self.used += 1;
        }
    }
}

fn take(bytes: &[u8], at: &mut usize, bits: usize) -> u64 {
    let mut be = [0; 16];
    let rest = &bytes[*at / 8..];
    let len = rest.len().min(16);
    be[..len].copy_from_slice(&rest[..len]);
    let shifted = u128::from_be_bytes(be) << (*at % 8);
    *at += bits;
    if bits == 0 {
        0
    } else {
        (shifted >> (128 - bits)) as u64
    }
}

/// Gorilla (Pelkonen and others 2015): each value XOR the one before.
fn gorilla(values: &Values) -> Option<Vec<u8>> {
    let Values::Numbers(values) = values else {
        return None;
    };
    let mut out = Bits::default();
    let (mut before, mut window) = (0u64, None);
    for v in values {
        let x = v.to_bits() ^ before;
        before = v.to_bits();
        if x == 0 {
            out.put(0, 1);
            continue;
        }
        let (lead, trail) = (
            x.leading_zeros().min(31) as usize,
            x.trailing_zeros() as usize,
        );
        match window {
            Some((l, t)) if l <= lead && t <= trail => {
                out.put(0b10, 2);
                out.put(x >> t, 64 - l - t);
            }
            _ => {
                let bits = 64 - lead - trail;
                out.put(0b11, 2);
                out.put(lead as u64, 5);
                out.put(bits as u64 - 1, 6);
                out.put(x >> trail, bits);
                window = Some((lead, trail));
            }
        }
    }
    Some(out.bytes)
}

fn gorilla_decode(bytes: &[u8]) -> Values {
    let (mut at, mut value, mut lead, mut trail) = (0, 0u64, 0, 0);
    let next = |_| {
        if take(bytes, &mut at, 1) == 1 {
            if take(bytes, &mut at, 1) == 1 {
                lead = take(bytes, &mut at, 5) as usize;
                let bits = take(bytes, &mut at, 6) as usize + 1;
                trail = 64 - lead - bits;
            }
            value ^= take(bytes, &mut at, 64 - lead - trail) << trail;
        }
        f64::from_bits(value)
    };
    Values::Numbers((0..ROWS).map(next).collect())
}

fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn double_delta(values: &Values) -> Option<Vec<u8>> {
    let (power, whole) = match values {
        Values::Numbers(v) => scaled(v)?,
        Values::Whole(v) => (u8::MAX, v.clone()),
        Values::Text(_) => return None,
    };
    let mut out = vec![power];
    let (mut last, mut step) = (0i64, 0i64);
    for v in whole {
        let d = v.wrapping_sub(last).wrapping_sub(step);
        put_varint((d << 1 ^ d >> 63) as u64, &mut out);
        step = v.wrapping_sub(last);
        last = v;
    }
    Some(out)
}

fn double_delta_decode(bytes: &[u8]) -> Values {
    let (mut at, mut last, mut step) = (1, 0i64, 0i64);
    let next = |_| {
        let (mut v, mut shift) = (0u64, 0);
        loop {
            let byte = bytes[at];
            at += 1;
            v |= ((byte & 0x7F) as u64) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        step = step.wrapping_add((v >> 1) as i64 ^ -((v & 1) as i64));
        last = last.wrapping_add(step);
        last
    };
    let whole: Vec<i64> = (0..ROWS).map(next).collect();
    if bytes[0] == u8::MAX {
        return Values::Whole(whole);
    }
    let factor = 10f64.powi(bytes[0].into());
    Values::Numbers(whole.into_iter().map(|i| i as f64 / factor).collect())
}

fn zstd_raw(values: &Values) -> Option<Vec<u8>> {
    let (tag, bytes): (u8, Vec<u8>) = match values {
        Values::Numbers(v) => (0, v.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Values::Whole(v) => (1, v.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Values::Text(v) => {
            let lens = v.iter().flat_map(|t| (t.len() as u16).to_le_bytes());
            (2, lens.chain(v.iter().flat_map(|t| t.bytes())).collect())
        }
    };
    Some([&[tag], &zstd(&bytes)[..]].concat())
}

fn zstd_raw_decode(bytes: &[u8]) -> Values {
    let raw = unzstd(&bytes[1..]);
    match bytes[0] {
        0 => Values::Numbers(raw.chunks(8).map(|b| f64::from_bits(word(b))).collect()),
        1 => Values::Whole(raw.chunks(8).map(|b| word(b) as i64).collect()),
        _ => {
            let (lens, mut text) = raw.split_at(2 * ROWS);
            let next = |len: &[u8]| {
                let (head, rest) = text.split_at(u16::from_le_bytes([len[0], len[1]]) as usize);
                text = rest;
                String::from_utf8(head.to_vec()).expect("text")
            };
            Values::Text(lens.chunks(2).map(next).collect())
        }
    }
}

/// Differences of the bits; then all first bytes, all second bytes, …
fn zstd_planes(values: &Values) -> Option<Vec<u8>> {
    let (tag, bits): (u8, Vec<u64>) = match values {
        Values::Numbers(v) => (0, v.iter().map(|v| v.to_bits()).collect()),
        Values::Whole(v) => (1, v.iter().map(|&v| v as u64).collect()),
        Values::Text(_) => return None,
    };
    let mut before = 0u64;
    let difference = |v: &u64| {
        let d = v.wrapping_sub(before) as i64;
        before = *v;
        (d << 1 ^ d >> 63) as u64
    };
    let differences: Vec<u64> = bits.iter().map(difference).collect();
    let planes: Vec<u8> = (0..8)
        .flat_map(|p| differences.iter().map(move |d| (d >> (8 * p)) as u8))
        .collect();
    Some([&[tag], &zstd(&planes)[..]].concat())
}

fn zstd_planes_decode(bytes: &[u8]) -> Values {
    let planes = unzstd(&bytes[1..]);
    let mut sum = 0u64;
    let bits = (0..ROWS).map(|i| {
        let d = (0..8).fold(0u64, |d, p| d | (planes[p * ROWS + i] as u64) << (8 * p));
        sum = sum.wrapping_add(d >> 1 ^ (d & 1).wrapping_neg());
        sum
    });
    match bytes[0] {
        0 => Values::Numbers(bits.map(f64::from_bits).collect()),
        _ => Values::Whole(bits.map(|v| v as i64).collect()),
    }
}

/// Fast static symbol table (Boncz, Neumann, Leis 2020), trained on each block; each text stands alone.
fn fsst(values: &Values) -> Option<Vec<u8>> {
    let Values::Text(texts) = values else {
        return None;
    };
    let all: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let compressor = fsst::Compressor::train(&all);
    let symbols = compressor.symbol_table();
    let mut out = vec![symbols.len() as u8];
    out.extend(symbols.iter().flat_map(|s| s.to_u64().to_le_bytes()));
    out.extend(compressor.symbol_lengths());
    let packed: Vec<Vec<u8>> = all.iter().map(|t| compressor.compress(t)).collect();
    out.extend(packed.iter().flat_map(|p| (p.len() as u16).to_le_bytes()));
    out.extend(packed.concat());
    Some(out)
}

fn fsst_decode(bytes: &[u8]) -> Values {
    let n = bytes[0] as usize;
    let (symbols, rest) = bytes[1..].split_at(8 * n);
    let (lens, rest) = rest.split_at(n);
    let (sizes, mut packed) = rest.split_at(2 * ROWS);
    let mut table = [fsst::Symbol::from_slice(&[0; 8]); 255];
    for (symbol, bytes) in table.iter_mut().zip(symbols.chunks(8)) {
        *symbol = fsst::Symbol::from_slice(bytes.first_chunk().expect("eight bytes"));
    }
    let mut table_lens = [1; 255];
    table_lens[..n].copy_from_slice(lens);
    let decompressor = fsst::Decompressor::new(&table, &table_lens);
    let next = |size: &[u8]| {
        let (head, rest) = packed.split_at(u16::from_le_bytes([size[0], size[1]]) as usize);
        packed = rest;
        String::from_utf8(decompressor.decompress(head)).expect("text")
    };
    Values::Text(sizes.chunks(2).map(next).collect())
}
