//! Which sockets of an executor are ready: one epoll instance for all of them, whose own descriptor the
//! reactor watches. A connection is registered once, and edge-triggered: a statement then costs its recv and
//! its send, and its share of one look at the list of ready sockets, where a poll in the ring for each wait
//! costs an entry, a completion, and a task of the kernel's that interrupts the executor.
//!
//! Edge-triggered means: what was reported is remembered here until an operation has found nothing more. A
//! read that did not fill its buffer has found that out too, unless the peer has closed, which is reported
//! once only.

use glommio::io::PollableFd;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Ready sockets taken in one call.
const EVENTS: usize = 256;
/// A long task asks after this time at the soonest: a look takes half a microsecond.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// What is known of one socket.
#[derive(Debug, Default)]
struct Readiness {
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer has closed, or the connection broke: reads find an end, however little there was before it.
    ended: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

#[derive(Debug, Default)]
struct Sockets {
    slots: Vec<Option<Rc<Readiness>>>,
    free: Vec<usize>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    sockets: RefCell<Sockets>,
    looked: Cell<Instant>,
}

/// A socket's place in the poller. It must go no later than the socket.
#[derive(Debug)]
pub(super) struct Registered {
    poller: Rc<Poller>,
    slot: usize,
    readiness: Rc<Readiness>,
}

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Poller {
    pub(super) fn new() -> io::Result<Rc<Poller>> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Rc::new(Poller {
            // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            sockets: RefCell::default(),
            looked: Cell::new(Instant::now()),
        }))
    }

    /// Watches a socket from now on. `connected`: it is worth trying at once.
    pub(super) fn register(
        self: &Rc<Self>,
        socket: &impl AsRawFd,
        connected: bool,
    ) -> io::Result<Registered> {
        let readiness = Rc::new(Readiness::default());
        readiness.readable.set(connected);
        readiness.writable.set(connected);
        let slot = {
            let mut sockets = self.sockets.borrow_mut();
            match sockets.free.pop() {
                Some(slot) => {
                    sockets.slots[slot] = Some(readiness.clone());
                    slot
                }
                None => {
                    sockets.slots.push(Some(readiness.clone()));
                    sockets.slots.len() - 1
                }
            }
        };
        let registered = Registered {
            poller: self.clone(),
            slot,
            readiness,
        };
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event {
            events: interest as u32,
            u64: slot as u64,
        };
        // SAFETY: the event is live for the call, which copies it; both descriptors are open.
        let added = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                socket.as_raw_fd(),
                &mut event,
            )
        };
        match added {
            0 => Ok(registered),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Wakes whoever waits for a socket, for as long as the executor lives.
    pub(super) async fn serve(self: Rc<Self>) {
        struct Watched(RawFd);
        impl AsRawFd for Watched {
            fn as_raw_fd(&self) -> RawFd {
                self.0
            }
        }
        let watched = match PollableFd::new(Watched(self.epoll.as_raw_fd())) {
            Ok(watched) => watched,
            Err(e) => {
                tracing::error!("sockets cannot be watched: {e}");
                return;
            }
        };
        loop {
            if let Err(e) = watched.readable().await {
                tracing::error!("sockets cannot be watched: {e}");
                return;
            }
            self.take();
        }
    }

    /// For long tasks, which ask between two steps: takes what is ready, once in [`LOOK_EVERY`]. Whether there
    /// was any.
    pub(super) fn notice(&self, now: Instant) -> bool {
        if now.duration_since(self.looked.get()) < LOOK_EVERY {
            return false;
        }
        self.looked.set(now);
        self.take()
    }

    /// Takes what is ready now; whether there was any.
    fn take(&self) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut any = false;
        loop {
            // SAFETY: the kernel writes at most EVENTS events, which is how many there is room for.
            let count = unsafe {
                libc::epoll_wait(
                    self.epoll.as_raw_fd(),
                    events.as_mut_ptr(),
                    EVENTS as libc::c_int,
                    0,
                )
            };
            let count = usize::try_from(count).unwrap_or(0);
            any |= count > 0;
            for event in &events[..count] {
                let (slot, what) = (event.u64 as usize, event.events as libc::c_int);
                // A socket that went meanwhile has no slot; one that has its slot now looks once in vain.
                let sockets = self.sockets.borrow();
                let Some(Some(found)) = sockets.slots.get(slot) else {
                    continue;
                };
                let found = found.clone();
                drop(sockets);
                found.note(what);
            }
            if count < EVENTS {
                return any;
            }
        }
    }
}

impl Readiness {
    fn note(&self, what: libc::c_int) {
        let broken = what & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        if broken || what & libc::EPOLLRDHUP != 0 {
            self.ended.set(true);
        }
        if broken || what & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0 {
            self.readable.set(true);
            wake(&self.reader);
        }
        if broken || what & libc::EPOLLOUT != 0 {
            self.writable.set(true);
            wake(&self.writer);
        }
    }
}

fn wake(waiting: &RefCell<Option<Waker>>) {
    // Taken first: waking may run code of ours.
    let waiting = waiting.borrow_mut().take();
    if let Some(waker) = waiting {
        waker.wake();
    }
}

impl Registered {
    fn of(&self, direction: Direction) -> (&Cell<bool>, &RefCell<Option<Waker>>) {
        match direction {
            Direction::Read => (&self.readiness.readable, &self.readiness.reader),
            Direction::Write => (&self.readiness.writable, &self.readiness.writer),
        }
    }

    /// Whether an operation is worth trying; else the task is woken when it is. One task for each direction.
    pub(super) fn poll_ready(&self, cx: &mut Context<'_>, direction: Direction) -> Poll<()> {
        let (ready, waiting) = self.of(direction);
        if ready.get() {
            return Poll::Ready(());
        }
        let mut waiting = waiting.borrow_mut();
        if waiting.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
            *waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// An operation would have had to wait.
    pub(super) fn would_block(&self, direction: Direction) {
        self.of(direction).0.set(false);
    }

    /// A read left room in its buffer: it took all there was.
    pub(super) fn drained(&self) {
        self.readiness.readable.set(self.readiness.ended.get());
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // The kernel forgets the socket when it is closed.
        let mut sockets = self.poller.sockets.borrow_mut();
        sockets.slots[self.slot] = None;
        sockets.free.push(self.slot);
    }
}
