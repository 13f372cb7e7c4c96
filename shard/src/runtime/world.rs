//! Time and randomness as they are.

use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use strandline_core::io::{Clock, Random};

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

/// All executors count from the same moment, so that they can compare.
static START: OnceLock<Instant> = OnceLock::new();

impl Clock for RealClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }
    fn monotonic_ns(&self) -> u64 {
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// The kernel's random numbers, fetched 512 bytes at a time. They are fit for nonces and salts.
#[derive(Debug)]
pub struct RealRandom {
    pool: RefCell<[u8; 512]>,
    next: Cell<usize>,
}

impl RealRandom {
    /// A source whose pool is filled at the first use.
    pub fn new() -> Self {
        RealRandom {
            pool: RefCell::new([0; 512]),
            next: Cell::new(512),
        }
    }
}

impl Default for RealRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for RealRandom {
    fn next_u64(&self) -> u64 {
        let mut pool = self.pool.borrow_mut();
        let mut at = self.next.get();
        if at + 8 > pool.len() {
            fill(&mut pool[..]);
            at = 0;
        }
        let mut word = [0; 8];
        word.copy_from_slice(&pool[at..at + 8]);
        // What was handed out does not stay in memory.
        pool[at..at + 8].fill(0);
        self.next.set(at + 8);
        u64::from_le_bytes(word)
    }
}

fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of a live, exclusively borrowed slice.
        let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => bytes = &mut bytes[n..],
            Err(_) => {
                let e = std::io::Error::last_os_error();
                // Without randomness no log salt and no nonce can be made; the call is there since Linux 3.17.
                assert_eq!(
                    e.kind(),
                    std::io::ErrorKind::Interrupted,
                    "the kernel gives no random numbers: {e}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_time_goes_on() {
        let random = RealRandom::new();
        let mut seen: Vec<u64> = (0..1000).map(|_| random.next_u64()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
        let before = RealClock.monotonic_ns();
        assert!(RealClock.monotonic_ns() >= before);
        assert!(RealClock.now_ms() > 1_700_000_000_000);
    }
}
