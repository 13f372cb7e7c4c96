//! Keeps executors from sleeping on work.
//!
//! glommio-ng 0.12 has a race: when its preempt timer fires between the arming of the timer and the first
//! look at the run queues (the thread lost its core for a millisecond just then), the executor takes "I may
//! not run now" for "there is nothing to run" and parks with runnable tasks, until some other event comes,
//! which may be never. With time slices of 1 ms on a machine that is busy otherwise this happens within
//! seconds. It is repaired upstream (glommio/glommio pull request 53) and in no release yet; when one has it,
//! this file can go.
//!
//! So we count the tasks that were woken and not yet polled. One thread looks at the counts; an executor that
//! has such tasks and has polled none since the last look gets a signal, which interrupts its sleep in the
//! kernel and does nothing else. An executor that is merely busy does not notice.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Between two looks: while executors are busy, after that many looks at which nothing had been polled, and
/// after that many. A task that was slept on waits twice that at most. Under load it happens to one wake in
/// fifty, so it is the 99th percentile of all that waits for a disk or a client.
const LOOKS: [(u32, Duration); 3] = [
    (0, Duration::from_millis(1)),
    (50, Duration::from_millis(5)),
    (1000, Duration::from_millis(40)),
];
/// Tasks that wait to be noticed by a long one; more take the reactor's way.
const EARLY_MAX: usize = 1024;
/// The signal: ignored by default, and hardly used for anything.
const SIGNAL: libc::c_int = libc::SIGURG;

/// One executor, as the watching thread sees it.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Tasks woken and not yet polled.
    runnable: AtomicUsize,
    /// Polls of tasks so far.
    polls: AtomicU64,
    /// The kernel's number of the thread; 0: not started yet.
    thread: AtomicI32,
    /// What it is to run has been polled for the first time. Until then nothing has been counted, and it can
    /// be slept on like any other task.
    running: AtomicBool,
    /// Its main has ended; it must come round once more to notice.
    ending: AtomicBool,
    ended: AtomicBool,
    /// The task that is being polled is a long one, which asks now and then who else waits.
    stepping: AtomicBool,
    /// Tasks that other threads have woken meanwhile. The reactor learns of them too, but looks only when the
    /// time slice is over.
    early: Mutex<Vec<Arc<TaskWaker>>>,
}

thread_local! {
    /// The pulse of this thread's executor, by its address; 0: there is none.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

impl Pulse {
    /// Called on the executor's thread, before it runs.
    pub(super) fn started(&self) {
        // SAFETY: it takes nothing and cannot fail.
        let thread = unsafe { libc::gettid() };
        self.thread.store(thread, Ordering::Release);
    }
    /// Called on the executor's thread too.
    pub(super) fn running(&self) {
        OWN.set(std::ptr::from_ref(self).addr());
        self.running.store(true, Ordering::Release);
    }
    pub(super) fn ending(&self) {
        self.ending.store(true, Ordering::Release);
    }
    pub(super) fn ended(&self) {
        self.ended.store(true, Ordering::Release);
        // They hold this.
        let early = std::mem::take(&mut *self.early.lock().unwrap_or_else(PoisonError::into_inner));
        drop(early);
    }

    /// Tasks woken and not yet polled.
    pub(super) fn runnable(&self) -> usize {
        self.runnable.load(Ordering::Acquire)
    }
    /// Polls of tasks so far.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Acquire)
    }

    /// For long tasks, which ask between two steps: lets those run next that other threads have woken since
    /// the last question, and says whether there are any. `None`: it is the first question of this poll. On
    /// the executor's thread.
    pub(super) fn notice(&self) -> Option<bool> {
        if !self.stepping.swap(true, Ordering::AcqRel) {
            return None;
        }
        let early = std::mem::take(&mut *self.early.lock().unwrap_or_else(PoisonError::into_inner));
        let mut any = false;
        for task in early {
            // Others have been polled since.
            if task.state.load(Ordering::Acquire) == WOKEN
                && let Some(inner) = task.inner.get()
            {
                inner.wake_by_ref();
                any = true;
            }
        }
        Some(any)
    }

    /// It has something to do, if it sleeps.
    fn must_wake(&self) -> bool {
        self.runnable() > 0
            || self.ending.load(Ordering::Acquire)
            || !self.running.load(Ordering::Acquire)
    }

    fn interrupt(&self) {
        let thread = self.thread.load(Ordering::Acquire);
        if thread != 0 {
            // SAFETY: no pointers. A thread that is gone is an error that does not matter; should its number
            // belong to another thread of ours by now, the handler does nothing there either.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) };
        }
    }
}

const IDLE: u8 = 0;
const WOKEN: u8 = 1;
const DONE: u8 = 2;

/// A task's waker, which counts.
#[derive(Debug)]
pub(super) struct TaskWaker {
    state: AtomicU8,
    pulse: Arc<Pulse>,
    /// glommio's own, known from the first poll on.
    inner: OnceLock<Waker>,
}

impl TaskWaker {
    /// Of a task that is about to be scheduled for the first time.
    pub(super) fn new(pulse: Arc<Pulse>) -> Arc<TaskWaker> {
        pulse.runnable.fetch_add(1, Ordering::AcqRel);
        Arc::new(TaskWaker {
            state: AtomicU8::new(WOKEN),
            pulse,
            inner: OnceLock::new(),
        })
    }

    /// A poll begins; wakes from here on ask for another one.
    pub(super) fn polled(&self, inner: &Waker) {
        self.inner.get_or_init(|| inner.clone());
        self.pulse.polls.fetch_add(1, Ordering::AcqRel);
        if self.pulse.stepping.load(Ordering::Relaxed) {
            self.pulse.stepping.store(false, Ordering::Release);
        }
        self.leave(IDLE);
    }

    /// The task has ended, or will not be polled again.
    pub(super) fn done(&self) {
        self.leave(DONE);
    }

    fn leave(&self, to: u8) {
        if self.state.swap(to, Ordering::AcqRel) == WOKEN {
            self.pulse.runnable.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        // Counted first, so that the count is never below the truth.
        self.pulse.runnable.fetch_add(1, Ordering::AcqRel);
        let woken = self
            .state
            .compare_exchange(IDLE, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if woken.is_err() {
            // Woken before and not polled since, or done.
            self.pulse.runnable.fetch_sub(1, Ordering::AcqRel);
        } else if let Some(inner) = self.inner.get() {
            if self.pulse.stepping.load(Ordering::Acquire)
                && OWN.get() != Arc::as_ptr(&self.pulse).addr()
            {
                let mut early = (self.pulse.early.lock()).unwrap_or_else(PoisonError::into_inner);
                if early.len() < EARLY_MAX {
                    early.push(self.clone());
                }
            }
            inner.wake_by_ref();
        }
    }
}

/// Starts the thread that watches these executors; it ends when they have.
pub(super) fn watch(pulses: Vec<Arc<Pulse>>) -> std::io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeros is a valid sigaction (no flags, empty mask). The handler does nothing, which is safe
    // at any moment. Without SA_RESTART the sleep in the kernel ends, which is the point.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        libc::sigaction(SIGNAL, &action, std::ptr::null_mut())
    };
    if set != 0 {
        return Err(std::io::Error::last_os_error());
    }
    std::thread::Builder::new()
        .name("pulse".to_owned())
        .spawn(move || {
            let mut seen = vec![0; pulses.len()];
            let mut quiet = 0_u32;
            loop {
                let look = LOOKS.iter().rfind(|(after, _)| quiet >= *after);
                std::thread::sleep(look.map_or(LOOKS[0].1, |(_, look)| *look));
                quiet = quiet.saturating_add(1);
                for (pulse, seen) in pulses.iter().zip(&mut seen) {
                    let polls = pulse.polls();
                    if std::mem::replace(seen, polls) != polls {
                        quiet = 0;
                        continue;
                    }
                    if pulse.must_wake() {
                        pulse.interrupt();
                    }
                }
                if pulses.iter().all(|p| p.ended.load(Ordering::Acquire)) {
                    return;
                }
            }
        })
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_that_sleeps_before_it_runs_is_woken() {
        let pulse = Arc::new(Pulse::default());
        watch(vec![pulse.clone()]).unwrap();
        let executor = std::thread::spawn(move || {
            pulse.started();
            // SAFETY: it takes nothing; it returns when a signal has been handled.
            unsafe { libc::pause() };
            pulse.running();
            assert!(!pulse.must_wake());
            pulse.ended();
        });
        executor.join().unwrap();
    }

    #[test]
    fn a_long_task_notices_whom_other_threads_woke() {
        let pulse = Arc::new(Pulse::default());
        pulse.running();
        let (task, gone) = (TaskWaker::new(pulse.clone()), TaskWaker::new(pulse.clone()));
        let long = TaskWaker::new(pulse.clone());
        let wakes = Arc::new(Count(AtomicUsize::new(0)));
        let inner = Waker::from(wakes.clone());
        task.polled(&inner);
        gone.polled(&inner);
        long.polled(&inner);
        let from_elsewhere = |of: &Arc<TaskWaker>| {
            let of = of.clone();
            std::thread::spawn(move || of.wake_by_ref()).join().unwrap();
        };
        // Nobody asks: the reactor's way is the only one.
        from_elsewhere(&task);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(pulse.notice(), None, "the first question of a poll");
        task.polled(&inner);
        long.polled(&inner);
        assert_eq!(pulse.notice(), None);
        assert_eq!(pulse.notice(), Some(false));
        from_elsewhere(&task);
        from_elsewhere(&gone);
        gone.done();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 3);
        assert_eq!(pulse.notice(), Some(true));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4, "once, from here");
        assert_eq!(pulse.notice(), Some(false));
        // Those that this thread wakes need no notice.
        task.polled(&inner);
        assert_eq!(pulse.notice(), None);
        task.wake_by_ref();
        assert_eq!(pulse.notice(), Some(false));
    }

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn woken_tasks_are_counted_once() {
        let pulse = Arc::new(Pulse::default());
        let task = TaskWaker::new(pulse.clone());
        let count = || pulse.runnable();
        assert_eq!(count(), 1);
        task.polled(Waker::noop());
        assert_eq!(count(), 0);
        let waker = Waker::from(task.clone());
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(count(), 1);
        task.polled(Waker::noop());
        waker.wake_by_ref();
        task.done();
        waker.wake();
        assert_eq!(count(), 0);
    }
}
