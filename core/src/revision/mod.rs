//! Numbers of writes: who gets which x_rev and xid, which writes have landed, and how far a feed may read.
//!
//! ```text
//!  writer ── Allocator::insert/write ──► grant {rev range, xid range, Ticket}
//!              (one short lock: order of x_rev = order of xid = order of INSERT)
//!     │
//!     ▼ log record fsync'ed, rows visible to scans
//!  Ticket::land ──► Ledger: ring of ranges in flight ──► watermark ──► feeds
//! ```
//!
//! # The no-skip guarantee
//! 1. A range lands only after its log record is durable **and** its rows are visible to a scan.
//! 2. A feed loads the watermark W, then scans, and answers only x_rev ≤ W.
//! 3. Hence no write with x_rev ≤ W can appear after a reader has answered at W.
//!
//! A write that failed is *voided*: it lands with nothing in it. A write of which nobody knows whether it is
//! on disk (a failed fsync) is *leaked*: its range stays in flight and holds the watermark for ever, because
//! a restart may bring it back. `loom-tests` checks the three points on this code.

mod allocator;
mod ledger;
mod mint;
#[cfg(test)]
mod tests;

pub use allocator::{Allocator, InsertGrant, Refusal, WriteGrant};
#[cfg(loom)]
pub use ledger::Orders;
pub use ledger::{Ledger, Ticket};
