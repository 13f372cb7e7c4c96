//! Rings between cores: bounded, many senders, one receiver, with wakeups for async tasks on any executor.
//! A full ring makes senders wait; nothing is buffered without bound.
//!
//! Two promises that `loom-tests` checks on this very code: a value that was sent is received exactly once,
//! and nobody sleeps while there is something to receive or room to send.

mod ring;
#[cfg(test)]
mod tests;
mod waiters;

pub use ring::{Closed, Receiver, Sender, TrySendError, ring};
pub(crate) use waiters::Waiters;
