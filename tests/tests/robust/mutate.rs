//! How an input becomes another one that is nearly as good.

use strandline_tests::sim::world::Rng;

/// Longer inputs are cut: speed finds more than length does.
const MAX_LEN: usize = 1 << 21;

/// Bytes and small numbers at which code decides.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0xFFFF,
    0x1_0000,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Changes `input` in one to a handful of places. `other` is another input to take parts of; `tokens` are
/// the words of a text format.
pub fn mutate(rng: &Rng, input: &mut Vec<u8>, other: &[u8], tokens: &[&str]) {
    loop {
        if !tokens.is_empty() && rng.below(3) > 0 {
            token(rng, input, tokens);
        } else {
            bytes(rng, input, other);
        }
        if rng.below(5) < 2 {
            break;
        }
    }
    input.truncate(MAX_LEN);
}

fn place(rng: &Rng, len: usize) -> usize {
    // Headers and trailers matter more than their share.
    match rng.below(6) {
        0 => rng.below(len.min(64) as u64) as usize,
        1 => len.saturating_sub(1 + rng.below(len.clamp(1, 64) as u64) as usize),
        _ => rng.below(len as u64) as usize,
    }
}

/// A stretch of up to a few dozen bytes, at times of any length.
fn stretch(rng: &Rng, len: usize) -> std::ops::Range<usize> {
    if len == 0 {
        return 0..0;
    }
    let start = place(rng, len);
    let most = if rng.one_in(5) { len } else { 32 };
    start..len.min(start + 1 + rng.below(most as u64) as usize)
}

fn bytes(rng: &Rng, input: &mut Vec<u8>, other: &[u8]) {
    let len = input.len();
    if len == 0 {
        input.extend_from_slice(&other[stretch(rng, other.len())]);
        return;
    }
    match rng.below(13) {
        0..=2 => input[place(rng, len)] ^= 1 << rng.below(8),
        3 => input[place(rng, len)] = rng.next() as u8,
        4 => {
            // A number of some width at its edge, or a little more or less than it was.
            let width = 1usize << rng.below(4);
            let at = place(rng, len);
            if let Some(field) = input.get_mut(at..at + width) {
                let mut le = [0; 8];
                le[..width].copy_from_slice(field);
                let number = match rng.below(3) {
                    0 => EDGES[rng.below(16) as usize],
                    1 => u64::from_le_bytes(le).wrapping_add(rng.below(9).wrapping_sub(4)),
                    _ => (len as u64).wrapping_add(rng.below(9).wrapping_sub(4)),
                };
                let mut new = number.to_le_bytes();
                if rng.one_in(3) {
                    new[..width].reverse();
                }
                field.copy_from_slice(&new[..width]);
            }
        }
        5 => input.truncate(place(rng, len)),
        6 => drop(input.drain(stretch(rng, len))),
        7 => {
            let part = input[stretch(rng, len)].to_vec();
            let at = place(rng, len);
            input.splice(at..at, part);
        }
        8 => {
            let at = place(rng, len);
            let new: Vec<u8> = (0..1 + rng.below(8)).map(|_| rng.next() as u8).collect();
            input.splice(at..at, new);
        }
        9 => {
            let part = stretch(rng, len);
            input[part].fill([0, 0xFF][rng.below(2) as usize]);
        }
        10 if !other.is_empty() => {
            // The head of this one and the tail of the other.
            input.truncate(place(rng, len));
            input.extend_from_slice(&other[place(rng, other.len())..]);
        }
        11 if !other.is_empty() => {
            let at = place(rng, len);
            input.splice(at..at, other[stretch(rng, other.len())].iter().copied());
        }
        _ => {
            // Two stretches change places.
            let (a, b) = (stretch(rng, len), stretch(rng, len));
            let n = a.len().min(b.len());
            for i in 0..n {
                input.swap(a.start + i, b.start + i);
            }
        }
    }
}

/// Words of letters, digits and what belongs to them; any other character is a word of its own.
fn words(input: &[u8]) -> Vec<std::ops::Range<usize>> {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.' || b >= 0x80;
    let mut out: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, &b) in input.iter().enumerate() {
        match out.last_mut() {
            Some(word) if inside(b) && inside(input[i - 1]) => word.end = i + 1,
            _ => out.push(i..i + 1),
        }
    }
    out
}

fn token(rng: &Rng, input: &mut Vec<u8>, tokens: &[&str]) {
    let new = tokens[rng.below(tokens.len() as u64) as usize].as_bytes();
    let words = words(input);
    if words.is_empty() {
        input.extend_from_slice(new);
        return;
    }
    let pick = || words[rng.below(words.len() as u64) as usize].clone();
    let word = pick();
    match rng.below(6) {
        0 | 1 => drop(input.splice(word, new.iter().copied())),
        2 => drop(input.splice(word.start..word.start, new.iter().copied())),
        3 => drop(input.drain(word)),
        4 => {
            let other = input[pick()].to_vec();
            input.splice(word, other);
        }
        _ => {
            let (a, b) = (word.start, pick().end);
            let run = input[a.min(b)..a.max(b)].to_vec();
            let at = pick().start;
            input.splice(at..at, run);
        }
    }
}

#[test]
fn every_mutation_keeps_to_its_seed() {
    let run = |seed| {
        let rng = Rng::new(seed);
        let mut input = b"INSERT INTO t VALUES (1, 'x')".to_vec();
        for _ in 0..200 {
            mutate(&rng, &mut input, b"SELECT 1", &["x", "SELECT"]);
        }
        input
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
