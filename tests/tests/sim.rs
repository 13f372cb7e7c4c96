//! The simulator over many seeds, and the proof that it notices what it must notice.

use strandline_tests::sim::run::{Planted, run};

/// `STRANDLINE_SEEDS=from..to` runs others; a failing seed prints itself.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("STRANDLINE_SEEDS").unwrap_or_default();
    match text
        .split_once("..")
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
    {
        Some((from, to)) => from..to,
        None => 0..1_000,
    }
}

fn run_part(part: u64, parts: u64) {
    let mut acked = 0;
    let mut crashes = 0;
    for seed in seeds().filter(|s| s % parts == part) {
        match run(seed, Planted::Nothing) {
            Ok(done) => {
                acked += done.acked;
                crashes += done.crashes;
            }
            Err(e) => panic!(
                "seed {seed}: {e}\nrepeat it with STRANDLINE_SEEDS={seed}..{}",
                seed + 1
            ),
        }
    }
    println!("{acked} writes acknowledged over {crashes} crashes");
    let few = seeds().end - seeds().start < 100;
    assert!(
        few || (acked > 1_000 && crashes > 100),
        "the seeds did next to nothing"
    );
}

#[test]
fn seeds_part_1() {
    run_part(0, 2);
}

#[test]
fn seeds_part_2() {
    run_part(1, 2);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 17, 4_711] {
        assert_eq!(
            run(seed, Planted::Nothing),
            run(seed, Planted::Nothing),
            "seed {seed}"
        );
    }
}

fn caught(planted: Planted) {
    let caught = (0..60).filter(|&seed| run(seed, planted).is_err()).count();
    println!("{planted:?}: caught by {caught} of 60 seeds");
    assert!(caught > 0, "{planted:?} goes unnoticed");
}

#[test]
fn a_skipped_sync_is_caught() {
    caught(Planted::SkipSync);
}

#[test]
fn an_early_answer_is_caught() {
    caught(Planted::AckEarly);
}

#[test]
fn an_early_watermark_is_caught() {
    caught(Planted::PublishEarly);
}
