//! Model checks of the ledger and the queue: loom runs the code of `strandline-core` itself, not a copy,
//! through every interleaving and every stale load that the memory model allows.
//!
//! Empty unless built for loom, in a folder of its own because the flag changes every dependency:
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p strandline-loom-tests --release`

#![deny(missing_docs)]

#[cfg(all(test, loom))]
mod guarantee;
#[cfg(all(test, loom))]
mod queue;

/// Runs a broken model and gives loom's complaint back.
#[cfg(all(test, loom))]
fn complaint(run: impl Fn() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(run).expect_err("loom must find the fault");
    match panic.downcast::<String>() {
        Ok(s) => *s,
        Err(p) => p
            .downcast::<&'static str>()
            .map_or_else(|_| "another panic".into(), |s| s.to_string()),
    }
}
