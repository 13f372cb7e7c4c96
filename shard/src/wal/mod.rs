//! A shard's log. What [`Wal::append`] queues becomes one frame of one commit: written and synced in one go,
//! while the next commit gathers. There are no timers: a lone record is written at once, and under load a
//! commit is as large as the disk makes the others wait.
//!
//! ```text
//! append ─► pending ─► commit: finish frame, write + fdatasync ─► done callbacks, in lsn order
//!              ▲                   │ one in flight
//!              └── gathers ◄───────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `recover` | opening: replay, the torn tail, damage |
//! | `files` | files made ahead, recycled |
//! | `list` | which files there must be |
//!
//! Must stay true: one commit is in flight at a time, and its successor's frame is written only after its
//! fdatasync. That is what tells a torn tail (nothing intact behind it) from damage.

mod files;
mod list;
#[cfg(test)]
mod list_tests;
mod recover;
mod signal;
#[cfg(test)]
mod tests;

use files::{Directory, FreeFile, LogFile, SealedFile, Spare};
use futures_util::lock::Mutex;
use hdrhistogram::Histogram;
use signal::Signal;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::format::log::{FrameBuilder, LogError};
use strandline_core::ids::Lsn;
use strandline_core::io::{Env, TaskQueue};
use strandline_core::limits::Limits;

pub use recover::{WalOptions, WalReport};

/// What kind of record; the shard gives it meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKind(pub u8);

/// Takes the records of a log that is opened.
pub type Replay<'a> = dyn FnMut(Lsn, RecordKind, &[u8]) -> Result<()> + 'a;

/// Told when a record is durable, or never will be.
pub type Done = Box<dyn FnOnce(Result<Lsn>)>;

/// Counters from the opening of the log.
#[derive(Clone, Debug)]
pub struct WalStats {
    /// Commits: writes with their fdatasync.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes written, headers and padding included.
    pub bytes: u64,
    /// Microseconds of a commit, from the write to the end of its fdatasync.
    pub commit_us: Histogram<u64>,
}

/// A commit buffer keeps this much memory when it is empty.
const KEEP_BYTES: usize = 1 << 20;

/// Records that go into one commit, and who waits for them.
#[derive(Default)]
struct Batch {
    frame: FrameBuilder,
    done: Vec<Done>,
    first_lsn: u64,
}

/// Callbacks of a commit that has ended.
struct Ended {
    done: Vec<Done>,
    first_lsn: u64,
    result: Result<()>,
}

struct State {
    pending: Batch,
    /// The commit buffer that is not in use.
    idle: Option<FrameBuilder>,
    /// The commit task is running.
    committing: bool,
    next_lsn: u64,
    next_commit: u64,
    /// The last lsn of commits that are durable.
    durable_lsn: u64,
    /// Bytes of the files that the list names, by number.
    listed: BTreeMap<u64, u64>,
    /// Everything below it has ended, and its callbacks have run.
    ended_lsn: u64,
    /// The last records that were refused for want of a file: one past their lsn, and why.
    refused: Option<(u64, Error)>,
    /// How many of them there are since the last commit.
    refused_lsns: u32,
    /// Until when (monotonic ns) no file is tried to be made.
    refused_until: Option<(u64, Error)>,
    active: LogFile,
    sealed: VecDeque<SealedFile>,
    spare: Spare,
    free: Vec<FreeFile>,
    next_number: u64,
    released: Lsn,
    failed: Option<Error>,
    stats: WalStats,
}

struct Inner {
    files: Directory,
    file_bytes: u64,
    pending_bytes: usize,
    state: RefCell<State>,
    /// The list of files is written by one at a time.
    listing: Mutex<()>,
    /// Anything that somebody may wait for.
    changed: Signal,
    background: Cell<usize>,
    /// How many wait for the file that is being prepared.
    in_hurry: Cell<usize>,
}

/// The log of one shard. A clone is the same log.
#[derive(Clone)]
pub struct Wal(Rc<Inner>);

impl Wal {
    /// Opens the log in the directory `dir`, which is made if there is none, and gives every record with an
    /// lsn above `options.after` to `replay`, in order.
    ///
    /// # Errors
    /// `XX001` naming file and offset when records are missing that were durable once, unless
    /// `options.accept_loss`; `58030`; whatever `replay` answers.
    pub async fn open(
        env: &Env,
        dir: &str,
        limits: &Limits,
        options: WalOptions,
        replay: &mut Replay<'_>,
    ) -> Result<(Wal, WalReport)> {
        let files = Directory {
            env: env.clone(),
            dir: dir.to_owned(),
        };
        let (found, report) = recover::recover(&files, options, replay).await?;
        let active = match found.active {
            Some(active) => active,
            None => {
                let size = files::FIRST_FILE_BYTES.min(limits.log_file_bytes);
                let made = files.make(found.next_number, size, None).await;
                made.map_err(|e| recover::io_error(dir, &e))?
            }
        };
        let next_number = found.next_number.max(active.number + 1);
        let kept = [Some(&active), found.spare.as_ref()].into_iter().flatten();
        let mut listed: BTreeMap<u64, u64> = kept.map(|f| (f.number, f.size)).collect();
        listed.extend(found.sealed.iter().map(|f| (f.number, f.size)));
        let commit_us = Histogram::new_with_bounds(1, 60_000_000, 2)
            .map_err(|e| Error::internal(format!("histogram: {e}")))?;
        let inner = Rc::new(Inner {
            files,
            file_bytes: limits.log_file_bytes,
            pending_bytes: usize::try_from(limits.log_pending_bytes).unwrap_or(usize::MAX),
            state: RefCell::new(State {
                pending: Batch::default(),
                idle: None,
                committing: false,
                next_lsn: found.next_lsn,
                next_commit: found.next_commit,
                durable_lsn: found.next_lsn - 1,
                listed,
                ended_lsn: found.next_lsn,
                refused: None,
                refused_lsns: 0,
                refused_until: None,
                active,
                sealed: found.sealed,
                spare: found.spare.map_or(Spare::None, Spare::Ready),
                free: found.free,
                next_number,
                released: options.after,
                failed: None,
                stats: WalStats {
                    commits: 0,
                    records: 0,
                    bytes: 0,
                    commit_us,
                },
            }),
            listing: Mutex::new(()),
            changed: Signal::default(),
            background: Cell::new(0),
            in_hurry: Cell::new(0),
        });
        inner.change_list(None, &[]).await.map_err(|e| e.error)?;
        inner.recycle(found.unneeded);
        inner.release(options.after);
        inner.prepare_spare();
        Ok((Wal(inner), report))
    }

    /// Queues a record; `encode` appends its bytes to what it is given (and must not call the log). `done`
    /// runs once it is durable, or never will be: in lsn order, on a task of the ingest queue; it may call the
    /// log. This never waits and has no bound of its own: see [`Wal::room`].
    ///
    /// # Errors
    /// At once, and without a call of `done`, when the log has failed, or the commit would be over 1 GiB.
    pub fn append(
        &self,
        kind: RecordKind,
        encode: &mut dyn FnMut(&mut Vec<u8>),
        done: Done,
    ) -> Result<Lsn> {
        let lsn = {
            let state = &mut *self.0.state.borrow_mut();
            if let Some(e) = &state.failed {
                return Err(e.clone());
            }
            state
                .pending
                .frame
                .push(kind.0, encode)
                .map_err(|e| match e {
                    LogError::TooLarge => Error::new(SqlState::ProgramLimitExceeded, e.to_string()),
                    e => Error::internal(e.to_string()),
                })?;
            let lsn = state.next_lsn;
            if state.pending.done.is_empty() {
                state.pending.first_lsn = lsn;
            }
            state.pending.done.push(done);
            state.next_lsn += 1;
            if std::mem::replace(&mut state.committing, true) {
                return Ok(Lsn(lsn));
            }
            lsn
        };
        let inner = self.0.clone();
        self.0
            .files
            .env
            .tasks
            .spawn(TaskQueue::Ingest, Box::pin(inner.commit_all()));
        Ok(Lsn(lsn))
    }

    /// Whether as much is pending as the limit `log_pending_bytes` allows.
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Waits until less is pending than the limit `log_pending_bytes`, or the log has failed.
    pub async fn room(&self) {
        let inner = &self.0;
        let look = || (!inner.is_full() || inner.state.borrow().failed.is_some()).then_some(());
        inner.changed.until(look).await;
    }

    /// Returns once everything appended so far is durable and its callbacks have run.
    ///
    /// # Errors
    /// Some of it was refused for want of space, or the log has failed.
    pub async fn flush(&self) -> Result<()> {
        let (from, to) = {
            let state = self.0.state.borrow();
            (state.ended_lsn, state.next_lsn)
        };
        let look = || {
            let state = self.0.state.borrow();
            if state.ended_lsn < to {
                return None;
            }
            if let Some(e) = &state.failed {
                return Some(Err(e.clone()));
            }
            match &state.refused {
                Some((end, e)) if *end > from && *end <= to => Some(Err(e.clone())),
                _ => Some(Ok(())),
            }
        };
        self.0.changed.until(look).await
    }

    /// Returns once nothing is pending, no commit is in flight and no file is being made or recycled.
    ///
    /// # Errors
    /// The log has failed.
    pub async fn quiesce(&self) -> Result<()> {
        let inner = &self.0;
        let look =
            || (!inner.state.borrow().committing && inner.background.get() == 0).then_some(());
        let _hurry = inner.hurry();
        inner.changed.until(look).await;
        self.failed().map_or(Ok(()), Err)
    }

    /// Records up to and including `up_to` are in segments: recycles the files that hold no others.
    pub fn release(&self, up_to: Lsn) {
        self.0.release(up_to);
    }

    /// Bytes that a start would replay now.
    pub fn live_bytes(&self) -> u64 {
        let state = self.0.state.borrow();
        let sealed: u64 = state.sealed.iter().map(|f| f.live_bytes).sum();
        sealed + state.active.live_bytes()
    }

    /// The last lsn that was given out; [`Lsn`] 0: none.
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.0.state.borrow().next_lsn - 1)
    }

    /// Everything up to it has ended (is durable, or was refused), and its callbacks have run.
    pub fn ended_lsn(&self) -> Lsn {
        Lsn(self.0.state.borrow().ended_lsn - 1)
    }

    /// Counters.
    pub fn stats(&self) -> WalStats {
        self.0.state.borrow().stats.clone()
    }

    /// Why the log takes no more records, for good.
    pub fn failed(&self) -> Option<Error> {
        self.0.state.borrow().failed.clone()
    }

    /// Takes no more records, and returns once those that were appended have ended.
    pub async fn close(&self) {
        let _ = self.flush().await;
        self.0
            .state
            .borrow_mut()
            .failed
            .get_or_insert_with(|| Error::new(SqlState::AdminShutdown, "the log is closed"));
        self.0.changed.notify();
        let _ = self.quiesce().await;
    }
}

impl Inner {
    fn is_full(&self) -> bool {
        self.state.borrow().pending.frame.bytes() >= self.pending_bytes
    }

    fn in_background<F>(self: &Rc<Self>, work: impl FnOnce(Rc<Inner>) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        /// Counts down even if the work panics or is dropped: somebody may wait for it.
        struct Busy(Rc<Inner>);
        impl Drop for Busy {
            fn drop(&mut self) {
                self.0.background.set(self.0.background.get() - 1);
                self.0.changed.notify();
            }
        }
        self.background.set(self.background.get() + 1);
        let busy = Busy(self.clone());
        let work = work(self.clone());
        let task = async move {
            work.await;
            drop(busy);
        };
        self.files
            .env
            .tasks
            .spawn(TaskQueue::Background, Box::pin(task));
    }

    fn release(self: &Rc<Self>, up_to: Lsn) {
        let mut unneeded = Vec::new();
        {
            let state = &mut *self.state.borrow_mut();
            state.released = state.released.max(up_to);
            let up_to = state.released.0;
            while state.sealed.front().is_some_and(|f| f.last_lsn <= up_to) {
                unneeded.extend(state.sealed.pop_front());
            }
            if state.active.last_lsn <= up_to {
                state.active.live_from = state.active.at;
            }
        }
        self.recycle(unneeded);
    }

    /// Commits until nothing is pending.
    async fn commit_all(self: Rc<Self>) {
        let mut ended: Option<Ended> = None;
        loop {
            let batch = self.take_pending();
            match (batch, ended.take()) {
                (None, None) => {
                    // Nothing was awaited since the look: an append from now on starts a task again.
                    self.state.borrow_mut().committing = false;
                    break;
                }
                (None, Some(last)) => self.tell(last).await,
                (Some(batch), None) => ended = Some(self.commit(batch).await),
                (Some(batch), Some(last)) => {
                    // The disk works while the callbacks of the commit before run.
                    let both = futures_util::future::join(self.commit(batch), self.tell(last));
                    ended = Some(both.await.0);
                }
            }
        }
        self.changed.notify();
    }

    /// What is pending, if there is something.
    fn take_pending(&self) -> Option<Batch> {
        let state = &mut *self.state.borrow_mut();
        if state.pending.done.is_empty() {
            return None;
        }
        let next = Batch {
            frame: state.idle.take().unwrap_or_default(),
            ..Batch::default()
        };
        Some(std::mem::replace(&mut state.pending, next))
    }

    async fn commit(self: &Rc<Self>, mut batch: Batch) -> Ended {
        // Appending may go on: the buffer it goes to is empty now.
        self.changed.notify();
        let result = self.write(&mut batch).await;
        batch.frame.clear(KEEP_BYTES);
        self.state.borrow_mut().idle = Some(batch.frame);
        self.prepare_spare();
        Ended {
            done: batch.done,
            first_lsn: batch.first_lsn,
            result,
        }
    }

    async fn write(self: &Rc<Self>, batch: &mut Batch) -> Result<()> {
        if let Some(e) = &self.state.borrow().failed {
            return Err(e.clone());
        }
        let bytes = batch.frame.frame_bytes();
        let records = u64::from(batch.frame.records());
        let end_lsn = batch.first_lsn + records;
        if let Err(e) = self.place(bytes).await {
            let state = &mut *self.state.borrow_mut();
            state.refused = Some((end_lsn, e.clone()));
            state.refused_lsns = state.refused_lsns.saturating_add(batch.frame.records());
            return Err(e);
        }
        let (
            LogFile {
                file, at, number, ..
            },
            frame,
        ) = {
            let state = self.state.borrow();
            let (commit, salt) = (state.next_commit, state.active.salt);
            let frame = batch
                .frame
                .finish(salt, commit, batch.first_lsn, state.refused_lsns);
            (state.active.clone(), frame)
        };
        let clock = &self.files.env.clock;
        let start = clock.monotonic_ns();
        let written = file.write_and_sync(at, frame).await;
        let took_us = clock.monotonic_ns().saturating_sub(start) / 1000;
        let state = &mut *self.state.borrow_mut();
        if let Err(e) = written {
            // What the disk holds now is unknown, and a later fdatasync that succeeds would not prove it.
            let e = Error::new(
                SqlState::IoError,
                format!(
                    "the log has failed and takes no more writes: {} at {at}: {e}",
                    self.files.log(number)
                ),
            )
            .hint("repair the disk and restart the server; what was acknowledged is in the log");
            tracing::error!("{e}");
            state.failed = Some(e.clone());
            return Err(e);
        }
        state.next_commit += 1;
        state.durable_lsn = end_lsn - 1;
        state.refused_lsns = 0;
        state.active.at += bytes;
        state.active.last_lsn = end_lsn - 1;
        state.stats.commits += 1;
        state.stats.records += records;
        state.stats.bytes += bytes;
        state.stats.commit_us.saturating_record(took_us);
        Ok(())
    }

    /// Runs the callbacks of a commit.
    async fn tell(&self, ended: Ended) {
        let end = ended.first_lsn + ended.done.len() as u64;
        for (lsn, done) in (ended.first_lsn..).zip(ended.done) {
            done(ended.result.clone().map(|()| Lsn(lsn)));
            self.files.env.breathe().await;
        }
        let state = &mut *self.state.borrow_mut();
        state.ended_lsn = end;
        self.changed.notify();
    }
}
