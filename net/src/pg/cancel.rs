//! Cancelling from another connection, which may be on another executor; and ending all sessions when the
//! server goes down.

use futures_util::task::AtomicWaker;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// One session's end of the registry. Its task is the only one that waits on it.
#[derive(Debug, Default)]
pub struct Cancel {
    requested: AtomicBool,
    closing: AtomicBool,
    waker: AtomicWaker,
}

impl Cancel {
    /// Asks the running statement to stop. One that comes between statements is forgotten.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
    }
    /// Forgets a request that came too late for the statement before.
    pub fn reset(&self) {
        self.requested.store(false, Ordering::Release);
    }
    /// Whether the running statement was asked to stop.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
    /// Ready when the running statement was asked to stop; else wakes the task when it is.
    pub fn poll_requested(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx, &self.requested)
    }
    /// Ready when the server goes down; else wakes the task when it does.
    pub fn poll_closing(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx, &self.closing)
    }
    /// Whether the server goes down.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
    fn poll(&self, cx: &mut Context<'_>, flag: &AtomicBool) -> Poll<()> {
        // Register first: a request between the look and the registration would be lost.
        if flag.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        if flag.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[derive(Debug)]
struct Entry {
    secret: [u8; 4],
    cancel: Arc<Cancel>,
}

#[derive(Debug, Default)]
struct Sessions {
    next: i32,
    closing: bool,
    by_pid: BTreeMap<i32, Entry>,
}

/// Every session of the process. Locked for moments only: when a connection comes or goes, and by a cancel.
#[derive(Debug, Default)]
pub struct Registry(Mutex<Sessions>);

/// A session's place in the registry; dropping it takes the session out.
#[derive(Debug)]
pub struct Registered {
    registry: Arc<Registry>,
    /// What BackendKeyData and `pg_backend_pid()` say.
    pub pid: i32,
    /// What a cancel request must bring.
    pub secret: [u8; 4],
    /// Where requests arrive.
    pub cancel: Arc<Cancel>,
}

impl Registry {
    /// Nobody yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        // Nothing under the lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session in; `random` becomes its secret.
    pub fn register(self: &Arc<Self>, random: u64) -> Registered {
        let secret = (random as u32 ^ (random >> 32) as u32).to_be_bytes();
        let cancel = Arc::new(Cancel::default());
        let mut sessions = self.lock();
        let pid = loop {
            sessions.next = sessions.next.checked_add(1).unwrap_or(1);
            if !sessions.by_pid.contains_key(&sessions.next) {
                break sessions.next;
            }
        };
        cancel.closing.store(sessions.closing, Ordering::Release);
        let entry = Entry {
            secret,
            cancel: cancel.clone(),
        };
        sessions.by_pid.insert(pid, entry);
        drop(sessions);
        Registered {
            registry: self.clone(),
            pid,
            secret,
            cancel,
        }
    }

    /// Carries out a cancel request; whether it named a session with its right secret.
    pub fn cancel(&self, pid: i32, secret: &[u8]) -> bool {
        let found = {
            let sessions = self.lock();
            match sessions.by_pid.get(&pid) {
                Some(e) if e.secret == secret => Some(e.cancel.clone()),
                _ => None,
            }
        };
        found.inspect(|c| c.request()).is_some()
    }

    /// The server goes down: sessions end at their next idle moment, new ones at once.
    pub fn close(&self) {
        let mut sessions = self.lock();
        sessions.closing = true;
        for e in sessions.by_pid.values() {
            e.cancel.closing.store(true, Ordering::Release);
            e.cancel.waker.wake();
        }
    }

    /// Cancels every running statement.
    pub fn cancel_all(&self) {
        for e in self.lock().by_pid.values() {
            e.cancel.request();
        }
    }

    /// Sessions there are.
    pub fn len(&self) -> usize {
        self.lock().by_pid.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.lock().by_pid.remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_cancels() {
        let registry = Registry::new();
        let a = registry.register(0x1111_2222_3333_4444);
        let b = registry.register(7);
        assert_ne!(a.pid, b.pid);
        assert!(!registry.cancel(a.pid, &b.secret));
        assert!(!registry.cancel(a.pid, &a.secret[..3]));
        assert!(!registry.cancel(99, &a.secret));
        assert!(registry.cancel(a.pid, &a.secret));
        assert!(a.cancel.is_requested() && !b.cancel.is_requested());
        a.cancel.reset();
        assert!(!a.cancel.is_requested());
        registry.close();
        assert!(a.cancel.is_closing() && b.cancel.is_closing());
        assert!(registry.register(1).cancel.is_closing());
        let pid = a.pid;
        drop(a);
        assert!(!registry.cancel(pid, &[0x22; 4]));
        assert_eq!(registry.len(), 1);
    }
}
