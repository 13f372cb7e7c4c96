//! Numbers of channels and columns. Most that people store have few decimals: those become whole numbers
//! times a power of ten. The bits of others, in an order that is that of the numbers, are whole numbers too.

use super::bytes::{Reader, put_varint};
use super::{CodecError, Effort, ints, pcodec};

const CONSTANT: u8 = 0;
const SCALED: u8 = 1;
/// Read only, as [`PCO_SINGLE`]: earlier versions wrote them.
const PCO: u8 = 2;
const RAW: u8 = 3;
const PCO_SINGLE: u8 = 4;
const ORDERED: u8 = 5;
const ORDERED_SINGLE: u8 = 6;

/// An encoding must save one part in so many over the raw bytes.
const SAVING_ASKED: usize = 16;

/// 10^k for the k that are tried. All exact, so that i / 10^k is the double nearest to that decimal.
const POWERS: [f64; 9] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// Values looked at before all are converted.
const SAMPLE: usize = 32;
/// One value in so many may be stored apart because it is no such decimal (-0.0, a computed value).
const EXCEPTIONS_ONE_IN: usize = 32;
/// Adding it rounds a double below 2^51 to a whole number, and leaves that number in the low bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
const ROUNDER_BOUND: f64 = (1u64 << 51) as f64;

/// Appends an encoding of `values`.
pub(super) fn encode(values: &[f64], effort: Effort, out: &mut Vec<u8>) {
    let first = values.first().copied().unwrap_or(0.0).to_bits();
    if values.iter().all(|v| v.to_bits() == first) {
        out.push(CONSTANT);
        out.extend_from_slice(&first.to_le_bytes());
        return;
    }
    if let Some(scaled) = Scaled::new(values) {
        out.push(SCALED);
        out.push(scaled.power as u8);
        put_varint(scaled.exceptions.len() as u64, out);
        let mut before = 0;
        for &at in &scaled.exceptions {
            put_varint((at - before) as u64, out);
            before = at;
            out.extend_from_slice(&values[at].to_bits().to_le_bytes());
        }
        ints::encode(&scaled.whole, effort, out);
        return;
    }
    let start = out.len();
    if values
        .iter()
        .all(|&v| (v as f32 as f64).to_bits() == v.to_bits())
    {
        out.push(ORDERED_SINGLE);
        let bits = values.iter().map(|&v| order32(v as f32).into());
        ints::encode(&bits.collect::<Vec<i64>>(), effort, out);
    } else {
        out.push(ORDERED);
        let bits = values.iter().map(|&v| order64(v));
        ints::encode(&bits.collect::<Vec<i64>>(), effort, out);
    }
    let raw = values.len() * 8;
    if out.len() - start > raw - raw / SAVING_ASKED {
        out.truncate(start);
        out.push(RAW);
        out.reserve(raw);
        for v in values {
            out.extend_from_slice(&v.to_bits().to_le_bytes());
        }
    }
}

/// The bits of a double such that a greater number has greater ones; any bits come back, NaN's too.
#[inline(always)]
fn order64(v: f64) -> i64 {
    let bits = v.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

#[inline(always)]
fn unorder64(bits: i64) -> f64 {
    f64::from_bits((bits ^ ((bits >> 63) as u64 >> 1) as i64) as u64)
}

#[inline(always)]
fn order32(v: f32) -> i32 {
    let bits = v.to_bits() as i32;
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

/// Of the low 32 bits: an encoder leaves no others.
#[inline(always)]
fn unorder32(bits: i64) -> f64 {
    let bits = bits as i32;
    f32::from_bits((bits ^ ((bits >> 31) as u32 >> 1) as i32) as u32) as f64
}

/// Reads `n` numbers.
pub(super) fn decode(r: &mut Reader<'_>, n: usize) -> Result<Vec<f64>, CodecError> {
    match r.u8()? {
        CONSTANT => Ok(vec![f64::from_bits(r.u64()?); n]),
        SCALED => {
            let power = *POWERS
                .get(r.u8()? as usize)
                .ok_or(CodecError::Invalid("the power of ten"))?;
            let count = r.varint()?;
            if count > n as u64 {
                return Err(CodecError::Invalid("the count of exceptions"));
            }
            let mut exceptions = Vec::with_capacity(count as usize);
            let mut at = 0u64;
            for _ in 0..count {
                at = at.saturating_add(r.varint()?);
                exceptions.push((at, f64::from_bits(r.u64()?)));
            }
            let mut out = Vec::with_capacity(n);
            ints::decode_groups(r, n, &mut |group| scale(group, power, &mut out))?;
            for (at, value) in exceptions {
                *usize::try_from(at)
                    .ok()
                    .and_then(|at| out.get_mut(at))
                    .ok_or(CodecError::Invalid("the place of an exception"))? = value;
            }
            Ok(out)
        }
        PCO => pcodec::decode(r.prefixed()?, n),
        ORDERED => {
            let mut out = Vec::with_capacity(n);
            let mut take = |group: &[i64]| out.extend(group.iter().map(|&i| unorder64(i)));
            ints::decode_groups(r, n, &mut take)?;
            Ok(out)
        }
        ORDERED_SINGLE => {
            let mut out = Vec::with_capacity(n);
            let mut take = |group: &[i64]| out.extend(group.iter().map(|&i| unorder32(i)));
            ints::decode_groups(r, n, &mut take)?;
            Ok(out)
        }
        PCO_SINGLE => {
            let singles: Vec<f32> = pcodec::decode(r.prefixed()?, n)?;
            Ok(singles.into_iter().map(f64::from).collect())
        }
        RAW => Ok(r
            .take(n * 8)?
            .chunks_exact(8)
            .map(|b| {
                let mut le = [0; 8];
                le.copy_from_slice(b);
                f64::from_bits(u64::from_le_bytes(le))
            })
            .collect()),
        _ => Err(CodecError::Invalid("the encoding of numbers")),
    }
}

/// Appends i / `power` for each i.
fn scale(group: &[i64], power: f64, out: &mut Vec<f64>) {
    let half = ROUNDER_BOUND as i64;
    let outside = group
        .iter()
        .fold(0, |bits, &i| bits | (i.wrapping_add(half) as u64 >> 52));
    // There is no instruction that makes doubles of several 64-bit numbers; but those below 2^51 become doubles
    // by an addition of their bits.
    let small =
        |i: i64| f64::from_bits((i.wrapping_add(ROUNDER.to_bits() as i64)) as u64) - ROUNDER;
    match (outside == 0, power == 1.0) {
        (true, true) => out.extend(group.iter().map(|&i| small(i))),
        (true, false) => out.extend(group.iter().map(|&i| small(i) / power)),
        (false, _) => out.extend(group.iter().map(|&i| i as f64 / power)),
    }
}

/// Values as whole numbers times 10^-power; exceptions repeat their neighbour, which packs to nothing.
struct Scaled {
    power: usize,
    whole: Vec<i64>,
    exceptions: Vec<usize>,
}

impl Scaled {
    fn new(values: &[f64]) -> Option<Self> {
        let stride = (values.len() / SAMPLE).max(1);
        let (mut power, mut sampled, mut misses) = (0, 0, 0);
        for &v in values.iter().step_by(stride) {
            sampled += 1;
            match power_of(v, power) {
                Some(p) => power = p,
                None => misses += 1,
            }
        }
        // Before the exact count below: cheap for columns of full precision.
        if misses * 8 > sampled {
            return None;
        }
        let allowed = values.len() / EXCEPTIONS_ONE_IN;
        loop {
            let scaled = Scaled::with_power(values, power);
            if scaled.exceptions.len() <= allowed {
                return Some(scaled);
            }
            // The sample missed values with more decimals.
            power = scaled
                .exceptions
                .iter()
                .take(SAMPLE)
                .filter_map(|&at| power_of(values[at], power + 1))
                .max()?;
        }
    }

    fn with_power(values: &[f64], power: usize) -> Self {
        // Without a branch per value: nearly always all of them are exact.
        let mut exact = true;
        let mut whole: Vec<i64> = Vec::with_capacity(values.len());
        let mut keep = |(i, fits): (i64, bool)| {
            exact &= fits;
            i
        };
        if power == 0 {
            whole.extend(values.iter().map(|&v| keep(v_as_whole(v))));
        } else {
            let factor = POWERS[power];
            whole.extend(values.iter().map(|&v| keep(times_as_whole(v, factor))));
        }
        let mut exceptions = Vec::new();
        if !exact {
            let mut before = 0;
            for (at, (&v, i)) in values.iter().zip(&mut whole).enumerate() {
                if to_whole(v, power).1 {
                    before = *i;
                } else {
                    exceptions.push(at);
                    *i = before;
                }
            }
        }
        Scaled {
            power,
            whole,
            exceptions,
        }
    }
}

/// The whole number nearest to `v` × 10^power, and whether it gives back every bit of `v`.
#[inline(always)]
fn to_whole(v: f64, power: usize) -> (i64, bool) {
    match POWERS.get(power) {
        None | Some(1.0) => v_as_whole(v),
        Some(&factor) => times_as_whole(v, factor),
    }
}

#[inline(always)]
fn v_as_whole(v: f64) -> (i64, bool) {
    let i = v as i64;
    (i, (i as f64).to_bits() == v.to_bits())
}

#[inline(always)]
fn times_as_whole(v: f64, factor: f64) -> (i64, bool) {
    let shifted = v * factor + ROUNDER;
    let rounded = shifted - ROUNDER;
    let i = (shifted.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
    let same = (rounded / factor).to_bits() == v.to_bits();
    (i, same & (rounded.abs() < ROUNDER_BOUND))
}

/// The smallest power from `from` on that makes `v` a whole number.
fn power_of(v: f64, from: usize) -> Option<usize> {
    (from..POWERS.len()).find(|&p| to_whole(v, p).1)
}
