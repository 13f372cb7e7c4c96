//! A fuzzer for one target: mutates inputs that the code itself has made, keeps those that bring out a new
//! outcome as a base for more, and holds each run against panics, time and memory.

use crate::alloc::peak_bytes;
use crate::mutate::mutate;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strandline_tests::sim::world::Rng;

/// Time of a target unless `STRANDLINE_FUZZ_SECONDS` says otherwise.
const SECONDS: f64 = 3.0;
/// A run that takes longer hangs.
const HANG: Duration = Duration::from_secs(30);
/// Inputs kept for the new outcome they brought.
const KEPT: usize = 4_000;

/// Changes an input so that it reaches further.
pub type Mend<'a> = &'a dyn Fn(&mut Vec<u8>);

/// What is fuzzed.
pub struct Target<'a> {
    /// Its name, for people.
    pub name: &'static str,
    /// Inputs to begin with; all of them pass.
    pub corpus: Vec<Vec<u8>>,
    /// Words of a text format.
    pub tokens: &'static [&'static str],
    /// Makes the checksums of a changed input right again, so that what stands behind them is reached.
    pub mend: Option<Mend<'a>>,
    /// Bytes that a run may hold at most: so many, and so many for each byte of input.
    pub memory: (usize, usize),
    /// Panics when something is wrong; else says which outcome it was.
    pub run: &'a dyn Fn(&[u8]) -> Outcome,
}

/// What came of an input, and bytes that it may rightly have cost beside the target's bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    kind: u64,
    extra_bytes: usize,
}

impl Outcome {
    /// Of anything that tells outcomes apart.
    pub fn of(kind: impl Hash) -> Outcome {
        let mut hasher = std::hash::DefaultHasher::new();
        kind.hash(&mut hasher);
        Outcome {
            kind: hasher.finish(),
            extra_bytes: 0,
        }
    }
    /// Of an error: its text without numbers, which are nearly as many as inputs.
    pub fn error(e: impl std::fmt::Display) -> Outcome {
        let text: String = e
            .to_string()
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .take(60)
            .collect();
        Outcome::of(text)
    }
    /// With an allowance for memory.
    pub fn with_bytes(self, extra_bytes: usize) -> Outcome {
        Outcome {
            extra_bytes,
            ..self
        }
    }
}

/// A count by its size only.
pub fn size(n: usize) -> u32 {
    usize::BITS - n.leading_zeros()
}

/// Time of a target.
pub fn seconds() -> Duration {
    Duration::from_secs_f64(setting("STRANDLINE_FUZZ_SECONDS", SECONDS))
}

/// What a target's random numbers begin with.
pub fn seed() -> u64 {
    setting("STRANDLINE_FUZZ_SEED", 1)
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

/// What runs now, for the thread that watches.
type Running = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Ends the process when an input runs too long: there is no other way to stop it.
fn watch(name: &'static str, running: &Running) {
    let running = Arc::downgrade(running);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let Some(running) = running.upgrade() else {
                return;
            };
            let now = running.lock().expect("the watch");
            if let Some((_, input)) = now.as_ref().filter(|(began, _)| began.elapsed() > HANG) {
                report(name, "an input that hangs", input);
                std::process::abort();
            }
        }
    });
}

fn report(name: &str, what: &str, input: &[u8]) {
    let path = std::env::temp_dir().join(format!("strandline-fuzz-{}.bin", name.replace(' ', "-")));
    let saved = std::fs::write(&path, input);
    let shown = &input[..input.len().min(2048)];
    eprintln!(
        "fuzz target \"{name}\", {what}: {} bytes, in {} ({saved:?})\n{}",
        input.len(),
        path.display(),
        shown.escape_ascii()
    );
}

impl Target<'_> {
    fn one(&self, input: &[u8], seed: u64) -> Outcome {
        let (out, peak) = peak_bytes(|| catch_unwind(AssertUnwindSafe(|| (self.run)(input))));
        let outcome = out.unwrap_or_else(|panic| {
            report(self.name, &format!("seed {seed}: a panic"), input);
            resume_unwind(panic)
        });
        let (fixed, each) = self.memory;
        let most = fixed + each * input.len() + outcome.extra_bytes;
        if peak > most {
            report(self.name, &format!("seed {seed}: memory"), input);
            panic!(
                "{peak} bytes of memory for {} bytes of input, at most {most} are allowed",
                input.len()
            );
        }
        outcome
    }

    /// Runs it for its time.
    pub fn fuzz(mut self) {
        if let Some(path) = std::env::var_os("STRANDLINE_FUZZ_INPUT") {
            let input = std::fs::read(path).expect("STRANDLINE_FUZZ_INPUT names a file");
            println!("{:?}", self.one(&input, 0));
            return;
        }
        let (seed, time) = (seed(), seconds());
        let running = Running::default();
        watch(self.name, &running);
        let mut seen = HashSet::new();
        for input in &self.corpus {
            seen.insert(self.one(input, seed).kind);
        }
        let given = self.corpus.len();
        assert!(given > 0);
        let began = Instant::now();
        let mut runs = 0u64;
        while began.elapsed() < time {
            let rng = Rng::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(runs));
            rng.next();
            runs += 1;
            let pick = || {
                // What is new gets half of the attention.
                let n = self.corpus.len();
                let recent = n.saturating_sub(50) as u64;
                &self.corpus[match rng.below(2) {
                    0 => rng.below(n as u64),
                    _ => rng.between(recent, n as u64 - 1),
                } as usize]
            };
            let (mut input, other) = (pick().clone(), pick());
            mutate(&rng, &mut input, other, self.tokens);
            if let Some(mend) = self.mend
                && rng.below(4) > 0
            {
                mend(&mut input);
            }
            *running.lock().expect("the watch") = Some((Instant::now(), input.clone()));
            let outcome = self.one(&input, seed);
            if seen.insert(outcome.kind) && self.corpus.len() < given + KEPT {
                self.corpus.push(input);
            }
        }
        *running.lock().expect("the watch") = None;
        println!(
            "fuzz target \"{}\": {runs} inputs, {} outcomes",
            self.name,
            seen.len()
        );
        assert!(
            runs > 10 && seen.len() > 1,
            "{runs} inputs with {} outcomes: it does next to nothing",
            seen.len()
        );
    }
}

#[test]
#[should_panic(expected = "is found")]
fn a_panic_is_found() {
    Target {
        name: "self-test of panics",
        corpus: vec![b"ab".to_vec()],
        tokens: &["abc"],
        mend: None,
        memory: (1 << 20, 0),
        run: &|input| {
            assert!(!input.windows(3).any(|w| w == b"abc"), "abc is found");
            Outcome::of(input.len())
        },
    }
    .fuzz();
}

#[test]
#[should_panic(expected = "bytes of memory")]
fn memory_that_an_input_promises_is_found() {
    Target {
        name: "self-test of memory",
        corpus: vec![vec![0; 8]],
        tokens: &[],
        mend: None,
        memory: (1 << 16, 10),
        run: &|input| {
            let claimed = input.first().copied().unwrap_or(0) as usize;
            let made: Vec<u8> = std::hint::black_box(Vec::with_capacity(claimed << 10));
            Outcome::of(size(made.capacity()))
        },
    }
    .fuzz();
}
