//! The executor's own io_uring for files. An operation owns its buffer and its file until the kernel has
//! answered, so a future may be dropped at any time. A commit is one submission: the write with the
//! fdatasync linked behind it, and one completion for both.
//!
//! The ring's descriptor becomes readable when something is complete; one task in the ingest queue waits
//! for that through glommio's reactor and wakes whoever asked.
//!
//! That way is long: the write's end interrupts the reactor's sleep for the kernel's own work, which costs a
//! round of the reactor, and the end of the fdatasync takes another one; some twelve system calls and two
//! wakeups in all, as much time as a fast disk needs for the commit. So a commit that is small and alone on
//! an executor with nothing else to do is waited for in the ring itself. [`WAIT_MAX`] bounds what others may
//! lose by that.

use super::pulse::Pulse;
use glommio::io::PollableFd;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What O_DIRECT asks of addresses in memory, on every file system we know.
const MEMORY_ALIGN: usize = 4096;
/// Submission entries; every call submits at once, so this bounds one call only.
const ENTRIES: u32 = 64;
/// Completion entries; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 2048;
/// Buffers kept for reuse, and the largest that is kept.
const POOL_BUFFERS: usize = 8;
const POOL_BUFFER_BYTES_MAX: usize = 9 << 20;
/// How long an executor that has nothing else to do waits for a commit at most, deaf to all others: half of
/// a task's time slice.
const WAIT_MAX: Duration = Duration::from_micros(500);
/// A commit of up to this is small.
const WAIT_BYTES_MAX: usize = 64 << 10;
/// Polls of tasks from one commit to the next that a single connection needs, some three times over; more
/// are of others, who are about to come again. Then the time of a commit is better spent on them.
const WAIT_POLLS_MAX: u64 = 16;
/// Commits in a row with so few polls before the first one is waited for.
const WAIT_AFTER: u32 = 8;
/// One commit in so many goes the reactor's way all the same: a client that answers at once would otherwise
/// keep the executor from ever looking at its other sockets, and those from showing that they are there.
const WAIT_TURNS: u32 = 4;
/// Where every third wait is in vain the disk is slow, and the reactor's way is not what counts: then one
/// commit in so many is waited for, to see whether it still is.
const WAIT_PROBE: u32 = 256;

/// Whether commits are worth waiting for on the spot.
#[derive(Default)]
struct Patience {
    /// The pulse's polls at the last look.
    polls: Cell<u64>,
    /// Looks in a row that found few polls.
    quiet: Cell<u32>,
    /// Less and more by waits that were in vain and that were not; from 0 to 8.
    debt: Cell<u32>,
    /// Waits so far.
    waits: Cell<u64>,
}

impl Patience {
    /// A look before each wait for the ring, given the pulse's count of polls.
    fn look(&self, polls: u64) -> bool {
        let few = polls.wrapping_sub(self.polls.replace(polls)) <= WAIT_POLLS_MAX;
        self.quiet.set(if few {
            self.quiet.get().saturating_add(1)
        } else {
            0
        });
        let quiet = self.quiet.get();
        quiet >= WAIT_AFTER
            && quiet % WAIT_TURNS != WAIT_TURNS - 1
            && (self.debt.get() < 8 || quiet.is_multiple_of(WAIT_PROBE))
    }

    fn waited(&self, in_vain: bool) {
        self.waits.set(self.waits.get() + 1);
        let debt = self.debt.get();
        self.debt.set(match in_vain {
            true => (debt + 2).min(8),
            false => debt.saturating_sub(1),
        });
    }
}

/// Memory for one operation. The used part starts on a [`MEMORY_ALIGN`] boundary.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn allocate(len: usize) -> Buffer {
        // The next power of two, so that a pooled buffer fits many sizes.
        let room = len.max(MEMORY_ALIGN).next_power_of_two();
        let bytes = vec![0; room + MEMORY_ALIGN];
        let start = bytes.as_ptr().align_offset(MEMORY_ALIGN);
        Buffer { bytes, start, len }
    }
    /// The used part.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
    fn capacity(&self) -> usize {
        self.bytes.len() - self.start
    }
}

struct Slot {
    waker: Option<Waker>,
    /// The kernel's answer, once there.
    answer: Option<Answer>,
    /// Nobody waits any more; freed with its completion.
    abandoned: bool,
    buffer: Buffer,
    /// A small write with its fdatasync.
    commit: bool,
    /// Keeps the descriptor from being closed and given to another file meanwhile.
    _file: Rc<File>,
}

/// What the kernel said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Of a read, write or fdatasync alone, or of the write in front of an fdatasync (which then has not run).
    First(i32),
    /// Of the fdatasync behind a write that was done in full.
    Linked(i32),
}

struct Inner {
    uring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    in_flight: usize,
    /// Entries are queued that the kernel would not take yet.
    unsubmitted: bool,
    /// Commits among them.
    commits: usize,
    reaper: Option<Waker>,
    pool: Vec<Buffer>,
}

/// See the module.
pub(super) struct Ring {
    inner: RefCell<Inner>,
    fd: RawFd,
    links: bool,
    /// The kernel can end a wait after a time.
    timed: bool,
    pulse: Arc<Pulse>,
    patience: Patience,
}

impl Ring {
    /// For the executor of this pulse.
    pub(super) fn new(pulse: Arc<Pulse>) -> io::Result<Rc<Ring>> {
        let uring = IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        // Without "no completion on success" a chain would answer twice; then write and sync go one by one.
        let links = uring.params().is_feature_skip_cqe_on_success();
        let timed = uring.params().is_feature_ext_arg();
        Ok(Rc::new(Ring {
            fd: uring.as_raw_fd(),
            links,
            timed,
            pulse,
            patience: Patience::default(),
            inner: RefCell::new(Inner {
                uring,
                slots: Vec::new(),
                free: Vec::new(),
                in_flight: 0,
                unsubmitted: false,
                commits: 0,
                reaper: None,
                pool: Vec::new(),
            }),
        }))
    }

    /// Takes what is done, without waiting and without the kernel; whether there was any. For long loops, which
    /// ask between two steps.
    pub(super) fn notice(&self) -> bool {
        let Ok(mut inner) = self.inner.try_borrow_mut() else {
            return false;
        };
        let before = inner.in_flight;
        if before == 0 {
            return false;
        }
        inner.drain();
        inner.in_flight < before
    }

    /// Waits for completions for as long as the executor lives.
    pub(super) async fn reap(self: Rc<Ring>) {
        struct Watched(RawFd);
        impl AsRawFd for Watched {
            fn as_raw_fd(&self) -> RawFd {
                self.0
            }
        }
        let watched = match PollableFd::new(Watched(self.fd)) {
            Ok(watched) => watched,
            Err(e) => {
                tracing::error!("the file ring cannot be watched: {e}");
                return;
            }
        };
        loop {
            std::future::poll_fn(|cx| {
                let mut inner = self.inner.borrow_mut();
                if inner.in_flight > 0 {
                    return Poll::Ready(());
                }
                inner.reaper = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            if self.inner.borrow().unsubmitted {
                self.inner.borrow_mut().submit();
                glommio::executor().yield_task_queue_now().await;
            } else if self.is_alone() {
                self.wait_here();
                if self.inner.borrow().in_flight > 0 {
                    // It takes longer: now the other way, which costs a round of the reactor.
                    if let Err(e) = watched.readable().await {
                        tracing::error!("the file ring cannot be watched: {e}");
                        return;
                    }
                }
            } else if let Err(e) = watched.readable().await {
                tracing::error!("the file ring cannot be watched: {e}");
                return;
            }
            self.inner.borrow_mut().drain();
        }
    }

    /// Nothing but one small commit is under way on this executor, nobody else is about to come, and it will
    /// not take long.
    fn is_alone(&self) -> bool {
        let patient = self.patience.look(self.pulse.polls());
        let inner = self.inner.borrow();
        let alone = inner.in_flight == 1 && inner.commits == 1 && self.pulse.runnable() == 0;
        self.timed && patient && alone
    }

    /// Sleeps until something is complete, or for [`WAIT_MAX`].
    fn wait_here(&self) {
        let mut inner = self.inner.borrow_mut();
        let limit = types::Timespec::from(WAIT_MAX);
        let limit = types::SubmitArgs::new().timespec(&limit);
        // An error is that the time is over, or a signal: the completions say what there is.
        let _ = inner.uring.submitter().submit_with_args(1, &limit);
        inner.drain();
        self.patience.waited(inner.in_flight > 0);
    }

    /// A buffer of `len` bytes whose content is arbitrary (ours of before, or zeros).
    pub(super) fn buffer(&self, len: usize) -> Buffer {
        let pool = &mut self.inner.borrow_mut().pool;
        let fits =
            |b: &Buffer| b.capacity() >= len && b.capacity() / 4 <= len.max(4 * MEMORY_ALIGN);
        match pool.iter().position(fits) {
            Some(at) => {
                let mut buffer = pool.swap_remove(at);
                buffer.len = len;
                buffer
            }
            None => Buffer::allocate(len),
        }
    }

    /// A buffer with a copy of `data`.
    pub(super) fn buffer_of(&self, data: &[u8]) -> Buffer {
        let mut buffer = self.buffer(data.len());
        buffer.as_mut_slice().copy_from_slice(data);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn recycle(&self, buffer: Buffer) {
        let pool = &mut self.inner.borrow_mut().pool;
        if pool.len() < POOL_BUFFERS && buffer.capacity() <= POOL_BUFFER_BYTES_MAX {
            pool.push(buffer);
        }
    }

    /// One read of up to the buffer's length; how many bytes it gave (0: end of file).
    pub(super) async fn read(
        &self,
        file: &Rc<File>,
        offset: u64,
        mut buffer: Buffer,
    ) -> (io::Result<usize>, Buffer) {
        let part = buffer.as_mut_slice();
        let entry = opcode::Read::new(
            types::Fd(file.as_raw_fd()),
            part.as_mut_ptr(),
            length(part.len()),
        )
        .offset(offset)
        .build();
        let (answer, buffer) = self.run(file, buffer, [Some(entry), None]).await;
        (answer.first(), buffer)
    }

    /// One write of up to the buffer's bytes; how many were written.
    pub(super) async fn write(
        &self,
        file: &Rc<File>,
        offset: u64,
        buffer: Buffer,
    ) -> (io::Result<usize>, Buffer) {
        let entry = write_entry(file, offset, buffer.as_slice());
        let (answer, buffer) = self.run(file, buffer, [Some(entry), None]).await;
        (answer.first(), buffer)
    }

    /// A write and an fdatasync behind it. `Ok(len)`: all is written and on stable storage; less: so much is
    /// written, and nothing is synced.
    pub(super) async fn write_and_sync(
        &self,
        file: &Rc<File>,
        offset: u64,
        buffer: Buffer,
    ) -> (io::Result<usize>, Buffer) {
        let len = buffer.len;
        if !self.links {
            let (written, buffer) = self.write(file, offset, buffer).await;
            if !matches!(written, Ok(n) if n == len) {
                return (written, buffer);
            }
            return (self.sync(file).await.map(|()| len), buffer);
        }
        let write = write_entry(file, offset, buffer.as_slice())
            .flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS);
        let (answer, buffer) = self
            .run(file, buffer, [Some(write), Some(sync_entry(file))])
            .await;
        let result = match answer {
            Answer::First(code) => outcome(code),
            Answer::Linked(code) => outcome(code).map(|_| len),
        };
        (result, buffer)
    }

    /// fdatasync.
    pub(super) async fn sync(&self, file: &Rc<File>) -> io::Result<()> {
        let (answer, _) = self
            .run(file, Buffer::default(), [Some(sync_entry(file)), None])
            .await;
        answer.first().map(|_| ())
    }

    fn run<'a>(
        &'a self,
        file: &Rc<File>,
        buffer: Buffer,
        entries: [Option<squeue::Entry>; 2],
    ) -> Wait<'a> {
        let mut inner = self.inner.borrow_mut();
        let commit = entries[1].is_some() && buffer.len <= WAIT_BYTES_MAX;
        inner.commits += usize::from(commit);
        let slot = Slot {
            commit,
            waker: None,
            answer: None,
            abandoned: false,
            buffer,
            _file: file.clone(),
        };
        let index = match inner.free.pop() {
            Some(index) => index,
            None => {
                inner.slots.push(None);
                inner.slots.len() - 1
            }
        };
        inner.slots[index] = Some(slot);
        inner.in_flight += 1;
        inner.push(index, entries);
        inner.submit();
        // What was done on the spot (a page in the cache) need not wait for the reactor.
        inner.drain();
        if inner.in_flight > 0
            && let Some(reaper) = inner.reaper.take()
        {
            reaper.wake();
        }
        Wait {
            ring: self,
            index: Some(index),
        }
    }
}

fn length(len: usize) -> u32 {
    // The callers split what is longer; a shorter operation is a short read or write, which they continue.
    u32::try_from(len).unwrap_or(1 << 30)
}

fn write_entry(file: &Rc<File>, offset: u64, data: &[u8]) -> squeue::Entry {
    opcode::Write::new(
        types::Fd(file.as_raw_fd()),
        data.as_ptr(),
        length(data.len()),
    )
    .offset(offset)
    .build()
}

fn sync_entry(file: &Rc<File>) -> squeue::Entry {
    opcode::Fsync::new(types::Fd(file.as_raw_fd()))
        .flags(types::FsyncFlags::DATASYNC)
        .build()
}

fn outcome(code: i32) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code))
}

impl Answer {
    fn first(self) -> io::Result<usize> {
        match self {
            Answer::First(code) | Answer::Linked(code) => outcome(code),
        }
    }
}

impl Inner {
    fn push(&mut self, index: usize, entries: [Option<squeue::Entry>; 2]) {
        let mut tagged = Vec::with_capacity(2);
        for (part, entry) in entries.into_iter().flatten().enumerate() {
            tagged.push(entry.user_data((index as u64) << 1 | part as u64));
        }
        loop {
            // SAFETY: the buffer and the file that the entries point to are owned by the slot, which stays
            // until the completion is drained; the buffer's memory does not move with it.
            if unsafe { self.uring.submission().push_multiple(&tagged) }.is_ok() {
                return;
            }
            // Full only while the kernel has not taken earlier ones.
            self.submit();
            self.drain();
        }
    }

    fn submit(&mut self) {
        loop {
            match self.uring.submit() {
                Ok(_) => {
                    self.unsubmitted = false;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // Short of memory or of completion entries: the entries stay queued, the reaper tries again.
                    tracing::warn!("the file ring would not take work yet: {e}");
                    self.unsubmitted = true;
                    return;
                }
            }
        }
    }

    fn drain(&mut self) {
        let Inner {
            uring,
            slots,
            free,
            in_flight,
            commits,
            pool,
            ..
        } = self;
        for done in uring.completion() {
            let index = (done.user_data() >> 1) as usize;
            let answer = match done.user_data() & 1 {
                0 => Answer::First(done.result()),
                _ => Answer::Linked(done.result()),
            };
            let Some(entry) = slots.get_mut(index) else {
                continue;
            };
            let Some(slot) = entry else { continue };
            *in_flight -= 1;
            *commits -= usize::from(slot.commit);
            slot.answer = Some(answer);
            if slot.abandoned {
                if let Some(slot) = entry.take()
                    && pool.len() < POOL_BUFFERS
                    && slot.buffer.capacity() <= POOL_BUFFER_BYTES_MAX
                {
                    pool.push(slot.buffer);
                }
                free.push(index);
            } else if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Drop for Inner {
    /// The kernel may still write into buffers of ours: wait for it.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            match self.uring.submit_and_wait(1) {
                Ok(_) => self.drain(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // Nothing can be waited for; keep the memory for ever rather than have it overwritten.
                    std::mem::forget(std::mem::take(&mut self.slots));
                    return;
                }
            }
        }
    }
}

/// Waits for one operation.
struct Wait<'a> {
    ring: &'a Ring,
    index: Option<usize>,
}

impl Future for Wait<'_> {
    type Output = (Answer, Buffer);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(index) = self.index else {
            return Poll::Pending; // polled after its end
        };
        let mut inner = self.ring.inner.borrow_mut();
        let Some(slot) = inner.slots.get_mut(index).and_then(Option::as_mut) else {
            return Poll::Pending;
        };
        let Some(answer) = slot.answer else {
            slot.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let buffer = std::mem::take(&mut slot.buffer);
        inner.slots[index] = None;
        inner.free.push(index);
        drop(inner);
        self.index = None;
        Poll::Ready((answer, buffer))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut inner = self.ring.inner.borrow_mut();
        let Some(slot) = inner.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if slot.answer.is_some() {
            inner.slots[index] = None;
            inner.free.push(index);
        } else {
            slot.abandoned = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::executors::{Executors, spawn, this_ring};
    use strandline_core::error::{Error, Result};
    use strandline_core::io::TaskQueue;

    /// Commits on an executor of its own; how often it waited on the spot.
    fn commits(
        beside: impl Fn() + Send + Sync + 'static,
        expect: impl Fn(u64) + Send + Sync + 'static,
    ) {
        const COMMITS: u64 = 50;
        async fn run(file: Rc<File>) -> Result<u64> {
            let ring = this_ring();
            for n in 0..COMMITS {
                let block = ring.buffer_of(&[n as u8; 4096]);
                let (written, block) = ring.write_and_sync(&file, n * 4096, block).await;
                assert_eq!(written.map_err(Error::from)?, 4096);
                ring.recycle(block);
                let empty = ring.buffer(4096);
                let (read, block) = ring.read(&file, n * 4096, empty).await;
                assert_eq!(read.map_err(Error::from)?, 4096);
                assert_eq!(block.as_slice(), [n as u8; 4096]);
                ring.recycle(block);
            }
            Ok(ring.patience.waits.get())
        }
        let (beside, expect) = (Arc::new(beside), Arc::new(expect));
        let executors = Executors::start(1, move |_| {
            let (beside, expect) = (beside.clone(), expect.clone());
            Box::pin(async move {
                beside();
                let waits = run(Rc::new(tempfile::tempfile()?)).await?;
                expect(waits);
                Ok(())
            })
        });
        executors.unwrap().join().unwrap();
    }

    #[test]
    fn a_lone_commit_is_waited_for_on_the_spot() {
        commits(|| {}, |waits| assert!(waits > 0));
    }

    #[test]
    fn patience_ends_on_a_slow_disk_and_in_company() {
        let patience = Patience::default();
        let mut polls = 0;
        let mut look = |more| {
            polls += more;
            patience.look(polls)
        };
        assert!((1..WAIT_AFTER).all(|_| !look(6)));
        assert!(look(6));
        patience.waited(false);
        assert_eq!((0..8).filter(|_| look(6)).count(), 6, "others get turns");
        assert!(!look(60), "others have come");
        assert!((1..WAIT_AFTER).all(|_| !look(6)));
        for _ in 0..4 {
            assert!(look(6) || look(6));
            patience.waited(true);
        }
        let mut tried = 0;
        for _ in 0..4 * WAIT_PROBE {
            if look(6) {
                tried += 1;
                patience.waited(true);
            }
        }
        assert_eq!(tried, 4);
        while !look(6) {}
        patience.waited(false);
        assert!(look(6), "the disk is fast again");
    }

    #[test]
    fn nobody_waits_on_the_spot_while_others_have_work() {
        let others = || {
            spawn(TaskQueue::Query, async {
                loop {
                    futures_lite::future::yield_now().await;
                }
            });
        };
        commits(others, |waits| assert_eq!(waits, 0));
    }
}
