//! The seam between the engine and the world: files, clock, randomness and tasks. The real ones stand in
//! `strandline-shard`'s `runtime/`, the simulated ones in `tests/sim`; nothing else may touch the world.
//!
//! Everything is single-threaded per executor: futures are not `Send`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A boxed future that stays on its executor.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Writes through [`FileMode::Direct`] start and end on multiples of this.
pub const DIRECT_ALIGN: u64 = 4096;

/// How a file is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Past the page cache (O_DIRECT): the log. Offsets and lengths are multiples of [`DIRECT_ALIGN`].
    Direct,
    /// Through the page cache: segments, manifests.
    Buffered,
}

/// A directory tree. Paths are relative to its root, with `/` between parts, never beginning with one.
pub trait Disk {
    /// Makes an empty file, replacing one that is there. Its name is durable only after [`Disk::sync_dir`].
    fn create<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>>;
    /// Opens a file that is there, for reading and writing.
    fn open<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>>;
    /// Renames, replacing the target in one step. Durable after [`Disk::sync_dir`].
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>>;
    /// Removes a file.
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>>;
    /// A second name for a file.
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>>;
    /// Makes a directory and its parents; fine when it is there.
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>>;
    /// Names of the files and directories directly in `path`, sorted; empty when there is no such directory.
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>>;
    /// Makes creations, renames and removals directly in `path` durable.
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>>;
}

/// An open file.
pub trait File {
    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>>;
    /// Writes all of `data` at `offset`, making the file longer where needed.
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>>;
    /// Returns once everything written so far is on stable storage (fdatasync).
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>>;
    /// [`File::write_at`] and [`File::sync`] in one: returns once the data, and everything written before, is
    /// on stable storage. After an error nothing is known about the bytes at that place.
    fn write_and_sync<'a>(
        &'a self,
        offset: u64,
        data: &'a [u8],
    ) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.write_at(offset, data).await?;
            self.sync().await
        })
    }
    /// Bytes in it.
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>>;
}

/// The time.
pub trait Clock {
    /// Unix ms by the wall clock. May step back.
    fn now_ms(&self) -> i64;
    /// Nanoseconds since some fixed moment; never steps back. For durations.
    fn monotonic_ns(&self) -> u64;
}

/// Random numbers.
pub trait Random {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The queues of an executor, each with its share of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskQueue {
    /// Commits and their acknowledgements: latency matters.
    Ingest,
    /// Reads.
    Query,
    /// Flush, merge, VACUUM.
    Background,
}

/// Tasks on this executor.
pub trait Tasks {
    /// Starts a task; it goes on by itself.
    fn spawn(&self, queue: TaskQueue, task: LocalFuture<'static, ()>);
    /// Lets others run if the time slice is used up. Long loops call it every few dozen µs; it costs a few
    /// ns when there is nothing to do.
    fn yield_if_needed(&self) -> LocalFuture<'_, ()>;
    /// Whether [`Tasks::yield_if_needed`] would give way: ask first, so that a loop does not allocate.
    fn should_yield(&self) -> bool;
    /// Waits.
    fn sleep(&self, time: Duration) -> LocalFuture<'_, ()>;
}

/// Everything an actor sees of the world.
#[derive(Clone)]
pub struct Env {
    /// Files; the root is the database's directory.
    pub disk: Rc<dyn Disk>,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// Random numbers.
    pub random: Rc<dyn Random>,
    /// Tasks.
    pub tasks: Rc<dyn Tasks>,
}

impl Env {
    /// Gives way when the time slice is used up.
    pub async fn breathe(&self) {
        if self.tasks.should_yield() {
            self.tasks.yield_if_needed().await;
        }
    }
}
