//! Rings between cores: bounded, many senders, one receiver, with wakeups for async tasks on any executor.
//! A full ring makes senders wait; nothing is buffered without bound.
//!
//! Three promises that `loom-tests` checks on this very code: a value that was sent is received exactly once,
//! nobody sleeps while there is something to receive or room to send, and when the receiver has gone no
//! value stays behind. The executors' mailboxes are such rings.

mod ring;
#[cfg(test)]
mod tests;
mod waiters;

pub use ring::{Closed, Receiver, Sender, TrySendError, ring};
#[cfg(loom)]
pub use ring::{Orders, ring_with};
pub(crate) use waiters::Waiters;
