//! How fast column chunks encode and decode, and how small they are, on random walks like those of
//! monitoring data: whole numbers 0–100, two decimals, full precision. Run as a test, each goes once.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use strandline_core::codec::{Effort, decode, encode};
use strandline_core::format::block::{BlockData, Presence};

const ROWS: usize = 4096;
const BLOCKS: usize = 16;

/// SplitMix64: the same data in every run.
struct Seeded(u64);

impl Seeded {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        let angle = std::f64::consts::TAU * self.unit();
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * angle.cos()
    }
}

/// Blocks of a walk within 0–100 whose values went through `round`.
fn blocks(round: fn(f64) -> f64) -> Vec<BlockData> {
    let mut random = Seeded(20_260_101);
    let mut value = 50.0f64;
    let mut block = || {
        let values = (0..ROWS).map(|_| {
            value = (value + random.normal()).clamp(0.0, 100.0);
            round(value)
        });
        BlockData::F64(values.collect())
    };
    (0..BLOCKS).map(|_| block()).collect()
}

fn chunk(data: &BlockData, effort: Effort) -> Vec<u8> {
    let mut out = Vec::new();
    encode(data, &Presence::All, ROWS, effort, &mut out).expect("a full block encodes");
    out
}

fn codec(c: &mut Criterion) {
    type Kind = (&'static str, fn(f64) -> f64, f64);
    let kinds: [Kind; 3] = [
        ("whole", f64::floor, 0.9),
        ("cents", |v| (v * 100.0).round() / 100.0, 2.4),
        ("full", |v| v, 8.0),
    ];
    let mut group = c.benchmark_group("codec");
    group.throughput(Throughput::Bytes((BLOCKS * ROWS * 8) as u64));
    for (name, round, most) in kinds {
        let blocks = blocks(round);
        for effort in [Effort::Flush, Effort::Merge] {
            let chunks: Vec<_> = blocks.iter().map(|b| chunk(b, effort)).collect();
            let bytes: usize = chunks.iter().map(Vec::len).sum();
            let ratio = bytes as f64 / (BLOCKS * ROWS) as f64;
            println!("{name} {effort:?}: {ratio:.3} bytes per value");
            assert!(ratio < most, "{name} {effort:?}: {ratio} bytes per value");
            let id = |what: &str| BenchmarkId::new(format!("{what}/{name}"), format!("{effort:?}"));
            group.bench_function(id("encode"), |b| {
                b.iter(|| blocks.iter().map(|b| chunk(b, effort).len()).sum::<usize>())
            });
            group.bench_function(id("decode"), |b| {
                b.iter(|| {
                    for chunk in &chunks {
                        black_box(decode(chunk, ROWS).expect("a sound chunk decodes"));
                    }
                })
            });
        }
    }
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
