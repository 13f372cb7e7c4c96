//! One process per data directory: two would destroy each other's log.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use strandline_core::error::{Error, Result, SqlState};

/// Name of the lock file in the data directory.
pub const LOCK_FILE: &str = "lock";

/// Holds the data directory until dropped. The kernel gives the lock back when the process ends, however
/// it ends; the file stays.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

impl DataLock {
    /// Takes the lock of the data directory `dir`, which exists.
    ///
    /// # Errors
    /// `55000` naming the process that holds it; `58030` when the file cannot be made.
    pub fn acquire(dir: &Path) -> Result<DataLock> {
        let path = dir.join(LOCK_FILE);
        let io = |e: std::io::Error| {
            Error::new(
                SqlState::IoError,
                format!("cannot lock the data directory: {}: {e}", path.display()),
            )
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(e)) => return Err(io(e)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&file).take(32).read_to_string(&mut holder);
                let holder = holder.trim();
                let who = if holder.is_empty() {
                    "another process".to_owned()
                } else {
                    format!("process {holder}")
                };
                return Err(Error::new(
                    SqlState::ObjectNotInPrerequisiteState,
                    format!("data directory {} is in use by {who}", dir.display()),
                )
                .hint("stop that process, or give this one a directory of its own"));
            }
        }
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(DataLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_and_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataLock::acquire(dir.path()).unwrap();
        let refusal = DataLock::acquire(dir.path()).unwrap_err();
        let pid = std::process::id().to_string();
        assert!(refusal.message().contains(&pid), "{refusal}");
        drop(first);
        DataLock::acquire(dir.path()).unwrap();
    }
}
