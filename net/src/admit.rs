//! Admission: one count of open connections for all protocols together. A place is held by a [`Permit`],
//! so a connection that ends in any way gives its place back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_core::error::{Result, SqlState};
use strandline_core::limits::Limits;

/// Connections of the whole process; shared by every executor and every listener.
#[derive(Debug)]
pub struct Admission {
    open: AtomicU64,
    refused: AtomicU64,
    limits: Arc<Limits>,
}

/// One connection's place. Dropping it frees the place.
#[derive(Debug)]
pub struct Permit(Arc<Admission>);

impl Admission {
    /// Allows `limits.connections` of them.
    pub fn new(limits: Arc<Limits>) -> Arc<Self> {
        Arc::new(Admission {
            open: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            limits,
        })
    }

    /// Takes a place; `53300`, naming the limit, when there is none left.
    pub fn admit(self: &Arc<Self>) -> Result<Permit> {
        let limit = self.limits.connections;
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < limit).then_some(n + 1)
            });
        match taken {
            Ok(_) => Ok(Permit(self.clone())),
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(self.limits.exceeded(
                    "connections",
                    SqlState::TooManyConnections,
                    "too many connections",
                ))
            }
        }
    }

    /// Connections that hold a place now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections refused since the start of the process.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let limits = Limits {
            connections: 2,
            ..Limits::default()
        };
        let admission = Admission::new(Arc::new(limits));
        let a = admission.admit().unwrap();
        let b = admission.admit().unwrap();
        let e = admission.admit().unwrap_err();
        assert_eq!(e.state(), SqlState::TooManyConnections);
        assert!(e.message().contains("connections = 2"), "{e}");
        assert_eq!((admission.open(), admission.refused()), (2, 1));
        drop(a);
        let c = admission.admit().unwrap();
        drop((b, c));
        assert_eq!(admission.open(), 0);
    }
}
