//! SIGTERM and SIGINT as something to await.

use glommio::signal::{Signals, block};
use std::io;

/// What asks the server to go down.
const ENDING: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGINT];

/// Keeps SIGTERM and SIGINT from ending the process; they wait for [`Termination::recv`]. A write past the
/// largest size that a file may have (`ulimit -f`) fails, as on a full disk, and does not end the process
/// either. Call it in `main` before any thread is started: threads inherit it.
///
/// # Errors
/// What the kernel says; none is known to happen.
pub fn hold_termination() -> io::Result<()> {
    // SAFETY: to ignore a signal runs no code of ours.
    if unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    block(&ENDING).map_err(io::Error::from)
}

/// Receives SIGTERM and SIGINT. One per process: a signal goes to one receiver only.
#[derive(Debug)]
pub struct Termination(Signals);

impl Termination {
    /// Starts to listen, on the executor that calls it.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Termination> {
        Ok(Termination(Signals::new(&ENDING)?))
    }

    /// Waits for the next one: `"SIGTERM"` or `"SIGINT"`.
    ///
    /// # Errors
    /// The descriptor failed.
    pub async fn recv(&self) -> io::Result<&'static str> {
        match self.0.recv().await? {
            libc::SIGINT => Ok("SIGINT"),
            _ => Ok("SIGTERM"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_ends_no_process() {
        hold_termination().unwrap();
        // SAFETY: the signal is ignored; were it not, the test would end here.
        assert_eq!(unsafe { libc::raise(libc::SIGXFSZ) }, 0);
    }
}
