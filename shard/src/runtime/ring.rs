//! The executor's own io_uring for files. An operation owns its buffer and its file until the kernel has
//! answered, so a future may be dropped at any time. A commit is one submission: the write with the
//! fdatasync linked behind it, and one completion for both.
//!
//! The ring's descriptor becomes readable when something is complete; one task in the ingest queue waits
//! for that through glommio's reactor and wakes whoever asked.

use glommio::io::PollableFd;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What O_DIRECT asks of addresses in memory, on every file system we know.
const MEMORY_ALIGN: usize = 4096;
/// Submission entries; every call submits at once, so this bounds one call only.
const ENTRIES: u32 = 64;
/// Completion entries; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 2048;
/// Buffers kept for reuse, and the largest that is kept.
const POOL_BUFFERS: usize = 8;
const POOL_BUFFER_BYTES_MAX: usize = 9 << 20;

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
    reaper: Option<Waker>,
    pool: Vec<Buffer>,
}

/// See the module.
pub(super) struct Ring {
    inner: RefCell<Inner>,
    fd: RawFd,
    links: bool,
}

impl Ring {
    pub(super) fn new() -> io::Result<Rc<Ring>> {
        let uring = IoUring::builder()
            .dontfork()
            .setup_clamp()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        // Without "no completion on success" a chain would answer twice; then write and sync go one by one.
        let links = uring.params().is_feature_skip_cqe_on_success();
        Ok(Rc::new(Ring {
            fd: uring.as_raw_fd(),
            links,
            inner: RefCell::new(Inner {
                uring,
                slots: Vec::new(),
                free: Vec::new(),
                in_flight: 0,
                unsubmitted: false,
                reaper: None,
                pool: Vec::new(),
            }),
        }))
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
            } else if let Err(e) = watched.readable().await {
                tracing::error!("the file ring cannot be watched: {e}");
                return;
            }
            self.inner.borrow_mut().drain();
        }
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
        let slot = Slot {
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
