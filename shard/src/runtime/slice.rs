//! The time slice that the kernel gives to an executor's thread.

use std::io;
use std::mem::size_of;

/// What is asked for, ns. The scheduler runs the task of the earliest deadline, and a short slice makes an early
/// one (EEVDF): a message or a completion is seen in the middle of a client's long slice. Threads that the kernel
/// makes for this one's fdatasyncs inherit it, so that a busy executor does not keep them waiting.
const SLICE_NS: u64 = 200_000;

/// `struct sched_attr` of `sched_setattr(2)`, its first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for short slices for the calling thread; its nice value stays.
///
/// # Errors
/// What the kernel says; then nothing changes. Before Linux 6.12 it takes the wish and ignores it.
pub(super) fn shorten() -> io::Result<()> {
    // SAFETY: it takes no pointers. A nice value of -1 looks like an error, and is kept as well.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the pointer is to a live struct of the size that it names.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nice_value_stays() {
        std::thread::spawn(|| {
            // SAFETY: it takes no pointers.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            // SAFETY: as above; the thread is this test's own.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            let before = nice();
            // A sandbox may refuse it; then nothing has changed either.
            let _ = shorten();
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }
}
