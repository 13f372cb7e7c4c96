//! The table of `docs/encodings.md`.

use crate::candidates::{self, Values, block, ours, ours_decode, values};
use crate::data::{ROWS, Set, sets};
use std::hint::black_box;
use std::time::{Duration, Instant};
use strandline_core::codec::Effort;

/// Blocks of each kind.
const BLOCKS: usize = 8;

/// The least seconds that a run takes, of as many as fit into a while: other work only adds to it.
fn least(mut work: impl FnMut()) -> f64 {
    let mut least = f64::MAX;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(120) {
        let start = Instant::now();
        work();
        least = least.min(start.elapsed().as_secs_f64());
    }
    least
}

struct Measured {
    name: String,
    bytes_per_value: f64,
    encode_mb: f64,
    decode_mb: f64,
}

fn measure<T>(
    name: &str,
    blocks: &[T],
    raw: usize,
    encode: impl Fn(&T) -> Option<Vec<u8>>,
    decode: impl Fn(&[u8]),
) -> Option<Measured> {
    let chunks: Vec<Vec<u8>> = blocks.iter().map(&encode).collect::<Option<_>>()?;
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    let mb = |seconds: f64| raw as f64 / seconds / 1e6;
    Some(Measured {
        name: name.into(),
        bytes_per_value: bytes as f64 / (blocks.len() * ROWS) as f64,
        encode_mb: mb(least(|| {
            blocks.iter().for_each(|b| drop(black_box(encode(b))))
        })),
        decode_mb: mb(least(|| chunks.iter().for_each(|c| decode(c)))),
    })
}

fn lines(set: &Set) -> Vec<Measured> {
    let blocks = values(&set.blocks);
    let raw = blocks.iter().map(|b| match b {
        Values::Text(texts) => texts.iter().map(String::len).sum(),
        Values::Numbers(_) | Values::Whole(_) => ROWS * 8,
    });
    let raw: usize = raw.sum();
    let data: Vec<_> = blocks.iter().map(block).collect();
    let mut lines = Vec::new();
    for (name, effort) in [
        ("**Strandline, flush**", Effort::Flush),
        ("**Strandline, merge**", Effort::Merge),
    ] {
        for d in &data {
            assert!(ours_decode(&ours(d, effort)) == *d, "{}: {name}", set.name);
        }
        let encode = |d: &_| Some(ours(d, effort));
        lines.extend(measure(name, &data, raw, encode, |c| {
            black_box(ours_decode(c));
        }));
    }
    for c in candidates::ALL {
        for b in &blocks {
            if let Some(chunk) = (c.encode)(b) {
                assert!((c.decode)(&chunk) == *b, "{}: {}", set.name, c.name);
            }
        }
        lines.extend(measure(c.name, &blocks, raw, c.encode, |chunk| {
            black_box((c.decode)(chunk));
        }));
    }
    lines
}

/// Prints it as Markdown.
pub fn print(only: Option<&str>) {
    println!("| data | encoding | bytes per value | encode MB/s | decode MB/s |");
    println!("|---|---|---|---|---|");
    for set in sets(BLOCKS) {
        if only.is_some_and(|o| !set.name.contains(o)) {
            continue;
        }
        for m in lines(&set) {
            println!(
                "| {} | {} | {:.3} | {:.0} | {:.0} |",
                set.name, m.name, m.bytes_per_value, m.encode_mb, m.decode_mb
            );
        }
    }
}
