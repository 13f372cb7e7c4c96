//! What the machine must allow before the first executor starts. Found out here it is one clear line; found
//! out later it is an error from deep inside a thread.

use io_uring::IoUring;
use strandline_core::error::{Error, Result, SqlState};

/// Locked memory that the runtime refuses to start below.
pub const MEMLOCK_BYTES_MIN: u64 = 512 << 10;

/// Checks io_uring and the limit on locked memory.
///
/// # Errors
/// `55000` with the remedy as its hint.
pub fn probe() -> Result<()> {
    let memlock = memlock_limit();
    if memlock < MEMLOCK_BYTES_MIN {
        return Err(refusal(format!(
            "the limit on locked memory is {} KiB, and the server needs {} KiB",
            memlock >> 10,
            MEMLOCK_BYTES_MIN >> 10
        ))
        .hint(
            "raise it: `ulimit -l 65536` in the shell, LimitMEMLOCK=64M in the systemd unit, or \
             `docker run --ulimit memlock=67108864`",
        ));
    }
    match IoUring::new(8) {
        Ok(_) => Ok(()),
        Err(e) => Err(explain(&e)),
    }
}

fn explain(e: &std::io::Error) -> Error {
    let failed = refusal(format!("the kernel does not give io_uring: {e}"));
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => failed.hint(
            "in Docker start with `--security-opt seccomp=unconfined` or a profile that allows \
             io_uring_setup, io_uring_enter and io_uring_register; outside, `sysctl kernel.io_uring_disabled` must be 0",
        ),
        Some(libc::ENOSYS) => failed.hint(
            "Linux 5.11 or newer built with io_uring is needed; a sandbox such as gVisor does not have it",
        ),
        Some(libc::ENOMEM) => failed.hint(
            "raise the limit on locked memory: `ulimit -l 65536`, LimitMEMLOCK=64M in the systemd unit, or \
             `docker run --ulimit memlock=67108864`",
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            failed.hint("raise the limit on open files: `ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit")
        }
        _ => failed,
    }
}

fn refusal(message: String) -> Error {
    Error::new(SqlState::ObjectNotInPrerequisiteState, message)
}

/// The soft limit in bytes; `u64::MAX` when there is none.
fn memlock_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit of ours.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 => limit.rlim_cur,
        // It cannot fail for a valid name; if it did, let the ring itself say what is wrong.
        _ => u64::MAX,
    }
}

/// Raises the soft limit on open files to the hard one: every connection and every segment that is read is
/// one, and shells start with 1024. The number that is allowed now.
///
/// # Errors
/// What the kernel says.
pub fn raise_open_files() -> std::io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit of ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_remedy() {
        probe().unwrap();
        for (code, word) in [
            (libc::EPERM, "seccomp"),
            (libc::ENOSYS, "Linux"),
            (libc::ENOMEM, "ulimit -l"),
            (libc::EMFILE, "ulimit -n"),
        ] {
            let e = explain(&std::io::Error::from_raw_os_error(code));
            assert!(e.hint_text().unwrap().contains(word), "{e}");
        }
    }
}
