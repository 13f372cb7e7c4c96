//! Encodings of columns: what the store uses, measured by criterion, and beside it what it could have used, as a
//! table: `cargo bench -p strandline-benches --bench encodings -- --table [data]`. MB are of what was put in, 8
//! bytes a number. Run as a test, each goes once.
#![allow(clippy::disallowed_methods)] // a benchmark reads the real clock

mod candidates;
mod data;
mod table;

use candidates::{block, ours, ours_decode, values};
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use strandline_core::codec::Effort;

fn encodings(c: &mut Criterion, blocks: usize) {
    let mut group = c.benchmark_group("encodings");
    for set in data::sets(blocks) {
        let data: Vec<_> = values(&set.blocks).iter().map(block).collect();
        group.throughput(Throughput::Bytes((data.len() * data::ROWS * 8) as u64));
        for effort in [Effort::Flush, Effort::Merge] {
            let chunks: Vec<_> = data.iter().map(|d| ours(d, effort)).collect();
            let id = |what: &str| {
                BenchmarkId::new(format!("{what}/{}", set.name), format!("{effort:?}"))
            };
            group.bench_function(id("encode"), |b| {
                b.iter(|| data.iter().map(|d| ours(d, effort).len()).sum::<usize>())
            });
            group.bench_function(id("decode"), |b| {
                b.iter(|| {
                    for chunk in &chunks {
                        black_box(ours_decode(chunk));
                    }
                })
            });
        }
    }
    group.finish();
}

fn main() {
    let mut args = std::env::args().skip_while(|a| a != "--table");
    if args.next().is_some() {
        let only = args.find(|a| !a.starts_with('-'));
        return table::print(only.as_deref());
    }
    let tiny = std::env::args().any(|a| a == "--test");
    if tiny {
        // Every candidate gives back what it was given.
        for set in data::sets(1) {
            for b in values(&set.blocks) {
                for c in candidates::ALL {
                    if let Some(chunk) = (c.encode)(&b) {
                        assert!((c.decode)(&chunk) == b, "{}: {}", set.name, c.name);
                    }
                }
            }
        }
    }
    let mut criterion = Criterion::default().configure_from_args();
    encodings(&mut criterion, if tiny { 1 } else { 8 });
    criterion.final_summary();
}
