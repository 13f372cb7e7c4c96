//! Numbers of channels and columns. Most that people store have few decimals: those become whole numbers
//! times a power of ten, which pack far better than the bits of doubles.

use super::bytes::{Reader, put_prefixed, put_varint};
use super::{CodecError, Effort, ints, pcodec};

const CONSTANT: u8 = 0;
const SCALED: u8 = 1;
const PCO: u8 = 2;
const RAW: u8 = 3;

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
    let raw_len = values.len() * 8;
    // pco orders doubles by value; NaN never gets here, and if it does its bits must come back.
    let packed = (!values.iter().any(|v| v.is_nan()))
        .then(|| pcodec::encode(values, raw_len - raw_len / pcodec::SAVING_ASKED))
        .flatten();
    match packed {
        Some(bytes) => {
            out.push(PCO);
            put_prefixed(&bytes, out);
        }
        None => {
            out.push(RAW);
            out.reserve(raw_len);
            for v in values {
                out.extend_from_slice(&v.to_bits().to_le_bytes());
            }
        }
    }
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
            let whole = ints::decode(r, n)?;
            let mut out: Vec<f64> = if power == 1.0 {
                whole.iter().map(|&i| i as f64).collect()
            } else {
                whole.iter().map(|&i| i as f64 / power).collect()
            };
            for (at, value) in exceptions {
                *usize::try_from(at)
                    .ok()
                    .and_then(|at| out.get_mut(at))
                    .ok_or(CodecError::Invalid("the place of an exception"))? = value;
            }
            Ok(out)
        }
        PCO => pcodec::decode(r.prefixed()?, n),
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
        let mut whole = Vec::with_capacity(values.len());
        let mut exceptions = Vec::new();
        let mut before = 0;
        for (at, &v) in values.iter().enumerate() {
            let (i, exact) = to_whole(v, power);
            if exact {
                before = i;
            } else {
                exceptions.push(at);
            }
            whole.push(before);
        }
        Scaled {
            power,
            whole,
            exceptions,
        }
    }
}

/// The whole number nearest to `v` × 10^power, and whether it gives back every bit of `v`.
#[inline]
fn to_whole(v: f64, power: usize) -> (i64, bool) {
    if power == 0 {
        let i = v as i64;
        return (i, (i as f64).to_bits() == v.to_bits());
    }
    let shifted = v * POWERS[power] + ROUNDER;
    let rounded = shifted - ROUNDER;
    let i = (shifted.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
    let exact = (rounded / POWERS[power]).to_bits() == v.to_bits() && rounded.abs() < ROUNDER_BOUND;
    (i, exact)
}

/// The smallest power from `from` on that makes `v` a whole number.
fn power_of(v: f64, from: usize) -> Option<usize> {
    (from..POWERS.len()).find(|&p| to_whole(v, p).1)
}
