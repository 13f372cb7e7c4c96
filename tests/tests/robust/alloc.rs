//! Counts what the thread that asks has allocated, so that a target can say how much an input may cost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn note(change: isize) {
    // A thread that is ending has no counters any more, and nobody asks it.
    let _ = LIVE.try_with(|live| {
        let now = live.get() + change;
        live.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `f`; the most bytes that it held at once, over what there was before.
pub fn peak_bytes<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let out = f();
    (out, (PEAK.get() - before).max(0) as usize)
}

#[test]
fn allocations_are_counted() {
    let ((), peak) = peak_bytes(|| drop(std::hint::black_box(vec![1u8; 100_000])));
    assert!((100_000..110_000).contains(&peak), "{peak}");
    let (kept, peak) = peak_bytes(|| {
        let mut kept = std::hint::black_box(vec![0u64; 1000]);
        kept.extend_from_slice(&[1; 4000]);
        kept
    });
    assert!(peak >= 40_000, "{peak}");
    let ((), peak) = peak_bytes(|| drop(kept));
    assert_eq!(peak, 0);
}
