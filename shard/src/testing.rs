//! A world for unit tests: real files under one directory, and time, randomness and tasks that belong to
//! the test's thread and repeat exactly. Futures run inside [`block_on`]; a test that waits for the clock
//! does not wait, because the clock jumps to the next timer once nothing else can go on.
//!
//! It injects no faults: the simulator in `tests/` does that.
#![allow(clippy::disallowed_methods)] // it is the test's disk: blocking calls on std::fs are the point

use futures_util::stream::{FuturesUnordered, Stream};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use strandline_core::io::{
    Clock, DIRECT_ALIGN, Disk, Env, File, FileMode, LocalFuture, Random, TaskQueue, Tasks,
};

/// 2026-01-01T00:00:00Z: where the clock of every test thread starts.
pub const START_MS: i64 = 1_767_225_600_000;

/// What a test thread's futures share.
struct World {
    now_ns: Cell<u64>,
    /// Added to the time since the start to make the wall clock, which may step back.
    wall_ms: Cell<i64>,
    timers: RefCell<Vec<(u64, Waker)>>,
    spawned: RefCell<Vec<LocalFuture<'static, ()>>>,
    running: RefCell<FuturesUnordered<LocalFuture<'static, ()>>>,
}

thread_local! {
    static WORLD: World = World {
        now_ns: Cell::new(0),
        wall_ms: Cell::new(START_MS),
        timers: RefCell::default(),
        spawned: RefCell::default(),
        running: RefCell::default(),
    };
}

/// An [`Env`] whose disk is `dir`, which exists.
pub fn env(dir: &Path) -> Env {
    Env {
        disk: Rc::new(TestDisk {
            root: dir.to_path_buf(),
        }),
        clock: Rc::new(TestClock),
        random: Rc::new(TestRandom(Cell::new(0x5EED))),
        tasks: Rc::new(TestTasks(Cell::new(0))),
    }
}

/// Runs a future to its end, and the tasks of this thread beside it. Tasks that have not ended by then go
/// on in the next call.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    futures_lite::future::block_on(std::future::poll_fn(|cx| {
        if let Poll::Ready(out) = future.as_mut().poll(cx) {
            return Poll::Ready(out);
        }
        if run_tasks(cx) {
            // A task ended, and what it did may be what the future waits for without having woken it yet.
            cx.waker().wake_by_ref();
        } else {
            fire_next_timer();
        }
        Poll::Pending
    }))
}

/// Moves the clocks forward and wakes whoever waited for that.
pub fn advance(time: Duration) {
    WORLD.with(|w| {
        let until = w.now_ns.get() + time.as_nanos() as u64;
        w.now_ns.set(until);
        w.timers.borrow_mut().retain(|(at, waker)| {
            if *at <= until {
                waker.wake_by_ref();
            }
            *at > until
        });
    });
}

/// Sets the wall clock, forward or back; the monotonic clock and timers do not notice.
pub fn set_wall_ms(now_ms: i64) {
    WORLD.with(|w| w.wall_ms.set(now_ms - (w.now_ns.get() / 1_000_000) as i64));
}

/// Polls every task that was woken; whether one of them ended.
fn run_tasks(cx: &mut Context<'_>) -> bool {
    WORLD.with(|w| {
        let mut ended = false;
        let mut running = w.running.take();
        loop {
            running.extend(w.spawned.take());
            match Pin::new(&mut running).poll_next(cx) {
                Poll::Ready(Some(())) => ended = true,
                Poll::Ready(None) | Poll::Pending if w.spawned.borrow().is_empty() => break,
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
        *w.running.borrow_mut() = running;
        ended
    })
}

fn fire_next_timer() {
    WORLD.with(|w| {
        let next = w.timers.borrow().iter().map(|(at, _)| *at).min();
        if let Some(at) = next {
            advance(Duration::from_nanos(at.saturating_sub(w.now_ns.get())));
        }
    });
}

struct TestClock;

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        WORLD.with(|w| w.wall_ms.get() + (w.now_ns.get() / 1_000_000) as i64)
    }
    fn monotonic_ns(&self) -> u64 {
        WORLD.with(|w| w.now_ns.get())
    }
}

/// SplitMix64.
struct TestRandom(Cell<u64>);

impl Random for TestRandom {
    fn next_u64(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Counts the questions of [`Tasks::should_yield`], so that every few of them give way.
struct TestTasks(Cell<u32>);

impl Tasks for TestTasks {
    fn spawn(&self, _queue: TaskQueue, task: LocalFuture<'static, ()>) {
        WORLD.with(|w| w.spawned.borrow_mut().push(task));
    }
    fn yield_if_needed(&self) -> LocalFuture<'_, ()> {
        Box::pin(futures_lite::future::yield_now())
    }
    fn should_yield(&self) -> bool {
        self.0.set(self.0.get().wrapping_add(1));
        self.0.get().is_multiple_of(7)
    }
    fn sleep(&self, time: Duration) -> LocalFuture<'_, ()> {
        let until = WORLD.with(|w| w.now_ns.get()) + time.as_nanos() as u64;
        Box::pin(std::future::poll_fn(move |cx| {
            WORLD.with(|w| {
                if w.now_ns.get() >= until {
                    return Poll::Ready(());
                }
                w.timers.borrow_mut().push((until, cx.waker().clone()));
                Poll::Pending
            })
        }))
    }
}

struct TestDisk {
    root: PathBuf,
}

impl TestDisk {
    fn path(&self, path: &str) -> PathBuf {
        assert!(
            !path.starts_with('/'),
            "paths are relative to the root: {path}"
        );
        self.root.join(path)
    }
}

fn ready<'a, T: 'a>(result: T) -> LocalFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Disk for TestDisk {
    fn create<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path(path));
        ready(file.map(|file| Rc::new(TestFile { file, mode }) as Rc<dyn File>))
    }
    fn open<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path(path));
        ready(file.map(|file| Rc::new(TestFile { file, mode }) as Rc<dyn File>))
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(std::fs::rename(self.path(from), self.path(to)))
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(std::fs::remove_file(self.path(path)))
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(std::fs::hard_link(self.path(from), self.path(to)))
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(std::fs::create_dir_all(self.path(path)))
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        ready(list(&self.path(path)))
    }
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        // Nothing to do for a test that never loses power, but the directory must be there.
        ready(std::fs::metadata(self.path(path)).map(|_| ()))
    }
}

fn list(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = entries
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

struct TestFile {
    file: std::fs::File,
    mode: FileMode,
}

impl TestFile {
    /// A test must notice what O_DIRECT would refuse.
    fn check_direct(&self, offset: u64, len: usize) -> io::Result<()> {
        let fits = offset.is_multiple_of(DIRECT_ALIGN) && (len as u64).is_multiple_of(DIRECT_ALIGN);
        if self.mode == FileMode::Direct && !fits {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("direct access at {offset}, {len} bytes: not a multiple of {DIRECT_ALIGN}"),
            ));
        }
        Ok(())
    }
    fn read(&self, mut offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.check_direct(offset, len)?;
        let size = self.file.metadata()?.len();
        let mut out = vec![0; len.min(size.saturating_sub(offset) as usize)];
        let mut done = 0;
        while done < out.len() {
            let n = self.file.read_at(&mut out[done..], offset)?;
            if n == 0 {
                break;
            }
            done += n;
            offset += n as u64;
        }
        out.truncate(done);
        Ok(out)
    }
}

impl File for TestFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        ready(self.read(offset, len))
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        ready(
            self.check_direct(offset, data.len())
                .and_then(|()| self.file.write_all_at(data, offset)),
        )
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        ready(Ok(()))
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        ready(self.file.metadata().map(|m| m.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_timers_go_on_beside_the_future() {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path());
        let log = Rc::new(RefCell::new(Vec::new()));
        let (inner, task_log) = (env.clone(), log.clone());
        env.tasks.spawn(
            TaskQueue::Background,
            Box::pin(async move {
                inner.tasks.sleep(Duration::from_secs(60)).await;
                task_log.borrow_mut().push("task");
            }),
        );
        block_on(async {
            env.tasks.sleep(Duration::from_secs(3600)).await;
            log.borrow_mut().push("main");
        });
        assert_eq!(*log.borrow(), ["task", "main"]);
        assert_eq!(env.clock.now_ms(), START_MS + 3_600_000);
        set_wall_ms(5);
        assert_eq!(env.clock.now_ms(), 5);
        assert_eq!(env.clock.monotonic_ns(), 3_600_000_000_000);
    }

    #[test]
    fn files() {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path());
        block_on(async {
            env.disk.create_dir_all("a/b").await.unwrap();
            let f = env.disk.create("a/b/x", FileMode::Buffered).await.unwrap();
            f.write_at(3, b"def").await.unwrap();
            assert_eq!(f.read_at(2, 10).await.unwrap(), b"\0def");
            assert_eq!(f.size().await.unwrap(), 6);
            env.disk.rename("a/b/x", "a/b/y").await.unwrap();
            assert_eq!(env.disk.list("a/b").await.unwrap(), ["y"]);
            assert!(env.disk.list("nowhere").await.unwrap().is_empty());
            let direct = env.disk.open("a/b/y", FileMode::Direct).await.unwrap();
            assert!(direct.write_at(1, &[0; 4096]).await.is_err());
        });
    }
}
