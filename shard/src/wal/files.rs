//! The log's files: made, filled with zeros and given their header before they are needed, and recycled.
//!
//! Writing into blocks that the file system has written before is what makes a commit cheap: fdatasync then
//! has no metadata to write. So a file is zero-filled once and used again and again; a new salt in its header
//! makes what it held unreadable.

use super::Inner;
use std::io;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::format::log::{BLOCK_BYTES, FileHeader};
use strandline_core::io::{Env, File, FileMode};

/// The note of accepted losses.
pub(super) const GAPS_FILE: &str = "accepted-loss";
/// The first file of a log. Each later one is four times as large, up to the limit `log_file_bytes`, so that
/// an idle shard is small.
pub(super) const FIRST_FILE_BYTES: u64 = 1 << 20;
const GROWTH: u64 = 4;
/// Recycled files that wait for use.
const FREE_FILES: usize = 2;
/// Zeros are written in pieces of this, so that commits get their turn at the disk. The fdatasync of a
/// commit waits for what was written before it, whoever wrote it: a piece adds some 200 µs to the next one.
const ZEROS_BYTES: usize = 64 << 10;

/// What a file in the directory is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Log(u64),
    Free(u64),
    /// Was never finished.
    New,
}

/// `None`: not ours.
pub(super) fn role(name: &str) -> Option<Role> {
    let (digits, kind) = name.split_once('.')?;
    if digits.len() != 16 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    match kind {
        "log" => Some(Role::Log(number)),
        "free" => Some(Role::Free(number)),
        "new" => Some(Role::New),
        _ => None,
    }
}

/// The directory of the log, and how its files are named.
#[derive(Clone)]
pub(super) struct Directory {
    pub(super) env: Env,
    pub(super) dir: String,
}

impl Directory {
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }
    pub(super) fn log(&self, number: u64) -> String {
        self.path(&format!("{number:016}.log"))
    }
    fn free(&self, number: u64) -> String {
        self.path(&format!("{number:016}.free"))
    }
    fn new_file(&self, number: u64) -> String {
        self.path(&format!("{number:016}.new"))
    }
    pub(super) async fn sync(&self) -> io::Result<()> {
        self.env.disk.sync_dir(&self.dir).await
    }

    /// Makes `from` (a free file, or a new one that is filled) the log file `number`.
    async fn put_to_use(
        &self,
        from: &str,
        file: Rc<dyn File>,
        size: u64,
        number: u64,
    ) -> io::Result<LogFile> {
        let salt = self.env.random.next_u64();
        let header = FileHeader { number, salt }.encode();
        // The header is durable before the name: a damaged header is damage, never a crash.
        file.write_and_sync(0, &header).await?;
        self.env.disk.rename(from, &self.log(number)).await?;
        self.sync().await?;
        Ok(LogFile {
            file,
            number,
            salt,
            size,
            at: BLOCK_BYTES as u64,
            live_from: BLOCK_BYTES as u64,
            last_lsn: 0,
        })
    }

    /// Zeros, at the pace of the log that they are for.
    async fn fill(&self, path: &str, size: u64, pace: Option<&Inner>) -> io::Result<Rc<dyn File>> {
        let file = self.env.disk.create(path, FileMode::Direct).await?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = 0;
        while at < size {
            if let Some(log) = pace {
                let ended = || log.state.borrow().failed.is_some();
                log.changed
                    .until(|| (ended() || log.zeros_due(size) > at).then_some(()))
                    .await;
                if ended() {
                    return Err(io::Error::other("the log has ended"));
                }
            }
            let len = (size - at).min(ZEROS_BYTES as u64);
            file.write_at(at, &zeros[..len as usize]).await?;
            at += len;
            self.env.breathe().await;
        }
        file.sync().await?;
        Ok(file)
    }

    /// A new file, zero-filled, with its header and its name. With a log to keep pace with it is there before
    /// that needs it, and no commit on the way waits for more than a piece of it.
    pub(super) async fn make(
        &self,
        number: u64,
        size: u64,
        pace: Option<&Inner>,
    ) -> io::Result<LogFile> {
        let path = self.new_file(number);
        let made = match self.fill(&path, size, pace).await {
            Ok(file) => self.put_to_use(&path, file, size, number).await,
            Err(e) => Err(e),
        };
        if made.is_err() {
            // Gives the space back; what cannot be removed now is removed at the next start.
            let _ = self.env.disk.remove(&path).await;
        }
        made
    }

    /// Takes a free file into use again.
    async fn reuse(&self, free: FreeFile, number: u64) -> io::Result<LogFile> {
        let path = self.free(free.number);
        let file = self.env.disk.open(&path, FileMode::Direct).await?;
        self.put_to_use(&path, file, free.size, number).await
    }

    pub(super) async fn remove(&self, path: &str) {
        if let Err(e) = self.env.disk.remove(path).await {
            tracing::warn!("could not remove {path}: {e}");
        }
    }
}

/// A file of the log that is open.
#[derive(Clone)]
pub(super) struct LogFile {
    pub(super) file: Rc<dyn File>,
    pub(super) number: u64,
    pub(super) salt: u64,
    /// Its bytes, a multiple of the block.
    pub(super) size: u64,
    /// Where the next frame goes.
    pub(super) at: u64,
    /// Frames before this are released.
    pub(super) live_from: u64,
    /// Of its last record; 0: it has none.
    pub(super) last_lsn: u64,
}

impl LogFile {
    pub(super) fn room(&self) -> u64 {
        self.size.saturating_sub(self.at)
    }
    pub(super) fn live_bytes(&self) -> u64 {
        self.at - self.live_from
    }
    pub(super) fn seal(self) -> SealedFile {
        SealedFile {
            number: self.number,
            size: self.size,
            live_bytes: self.live_bytes(),
            last_lsn: self.last_lsn,
        }
    }
}

/// A file that is full, and waits to be released.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedFile {
    pub(super) number: u64,
    pub(super) size: u64,
    pub(super) live_bytes: u64,
    pub(super) last_lsn: u64,
}

/// A file that waits to be used again.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeFile {
    pub(super) number: u64,
    pub(super) size: u64,
}

/// The file after the active one.
pub(super) enum Spare {
    None,
    Preparing,
    Ready(LogFile),
}

/// Somebody waits for the file that is being prepared.
pub(super) struct Hurry<'a>(&'a Inner);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.in_hurry.set(self.0.in_hurry.get() - 1);
    }
}

impl Inner {
    /// Starts to prepare the next file, in the background, once the active one is a quarter full.
    pub(super) fn prepare_spare(self: &Rc<Self>) {
        {
            let mut state = self.state.borrow_mut();
            let early = state.active.at < state.active.size / 4;
            if !matches!(state.spare, Spare::None) || early || state.refused_until.is_some() {
                return;
            }
            state.spare = Spare::Preparing;
        }
        self.in_background(|inner| async move {
            let made = inner.make_file(0).await;
            // An error is for whoever needs the file: nobody has asked for it yet.
            inner.state.borrow_mut().spare = made.map_or(Spare::None, Spare::Ready);
        });
    }

    /// How much of the next file of `size` bytes is to be zeros by now: nothing while the active file is a
    /// quarter full, all of it from three quarters on, and when somebody waits for it.
    fn zeros_due(&self, size: u64) -> u64 {
        if self.in_hurry.get() > 0 {
            return size;
        }
        let state = self.state.borrow();
        let (begin, span) = (state.active.size / 4, (state.active.size / 2).max(1));
        let done = state.active.at.saturating_sub(begin).min(span);
        // Rounded up, so that what is due is never less than the first piece.
        u64::try_from((u128::from(size) * u128::from(done)).div_ceil(u128::from(span)))
            .unwrap_or(size)
            .max(1)
    }

    /// The next file is wanted as soon as may be, for as long as this is held.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        self.in_hurry.set(self.in_hurry.get() + 1);
        self.changed.notify();
        Hurry(self)
    }

    /// A file with room for a frame of `need` bytes, and the number after all others.
    async fn make_file(&self, need: u64) -> Result<LogFile> {
        /// Between two attempts to make a file on a full disk: each writes zeros until it fails.
        const REFUSED_NS: u64 = 250_000_000;
        let with_room = |bytes: u64| {
            bytes
                .min(self.file_bytes)
                .max(need.saturating_add(BLOCK_BYTES as u64))
                .next_multiple_of(BLOCK_BYTES as u64)
        };
        let least = with_room(FIRST_FILE_BYTES);
        let (number, size, free) = {
            let mut state = self.state.borrow_mut();
            let number = state.next_number;
            state.next_number += 1;
            let grown = state.active.size.saturating_mul(GROWTH);
            let size = with_room(grown.max(FIRST_FILE_BYTES));
            let fits = state.free.iter().position(|f| f.size >= size);
            (number, size, fits.map(|at| state.free.swap_remove(at)))
        };
        let mut made = match free {
            Some(free) => self.files.reuse(free, number).await,
            None => {
                let pace = (need == 0).then_some(self);
                self.files.make(number, size, pace).await
            }
        };
        // A disk with a little room must not refuse writes for want of a large file.
        if size > least
            && made.as_ref().is_err_and(|e| {
                Error::from(io::Error::from(e.kind())).state() == SqlState::DiskFull
            })
        {
            made = self.files.make(number, least, None).await;
        }
        let made = match made {
            Ok(file) => self.list_new(file).await,
            Err(e) => Err(Error::from(e)),
        };
        let made = made.map_err(|e| {
            let dir = &self.files.dir;
            let message = format!(
                "cannot make a new file for the log in {dir}: {}",
                e.message()
            );
            let hint = e
                .hint_text()
                .unwrap_or("writes resume once that is repaired");
            Error::new(e.state(), message).hint(hint)
        });
        let ended = self.state.borrow().failed.is_some();
        self.state.borrow_mut().refused_until = match &made {
            Ok(_) => None,
            // Nobody needs it any more.
            Err(_) if ended => None,
            Err(e) => {
                tracing::warn!("{e}");
                let now = self.files.env.clock.monotonic_ns();
                Some((now.saturating_add(REFUSED_NS), e.clone()))
            }
        };
        made
    }

    /// Puts a new file into the list, before anything is written to it.
    async fn list_new(&self, file: LogFile) -> Result<LogFile> {
        let Err(failed) = self.change_list(Some((file.number, file.size)), &[]).await else {
            return Ok(file);
        };
        if !failed.in_doubt {
            // The list does not name it. One that may be named must stay, or the next start would miss it.
            self.files.remove(&self.files.log(file.number)).await;
        }
        Err(failed.error)
    }

    /// The active file has room for `need` bytes when this returns.
    ///
    /// # Errors
    /// No file can be made, which is no fault of the log: the next commit tries again.
    pub(super) async fn place(self: &Rc<Self>, need: u64) -> Result<()> {
        loop {
            if self.state.borrow().active.room() >= need {
                return Ok(());
            }
            let hurry = self.hurry();
            let ready = self
                .changed
                .until(|| {
                    let mut state = self.state.borrow_mut();
                    match std::mem::replace(&mut state.spare, Spare::None) {
                        Spare::Preparing => {
                            state.spare = Spare::Preparing;
                            None
                        }
                        Spare::Ready(file) => Some(Some(file)),
                        Spare::None => Some(None),
                    }
                })
                .await;
            drop(hurry);
            let next = match ready {
                Some(file) if file.room() >= need => file,
                Some(small) => {
                    self.recycle(vec![small.seal()]);
                    continue;
                }
                None => self.make_file_now(need).await?,
            };
            let full = std::mem::replace(&mut self.state.borrow_mut().active, next).seal();
            if full.last_lsn == 0 {
                self.recycle(vec![full]);
            } else {
                self.state.borrow_mut().sealed.push_back(full);
            }
            let released = self.state.borrow().released;
            self.release(released);
        }
    }

    async fn make_file_now(&self, need: u64) -> Result<LogFile> {
        let refused = self.state.borrow().refused_until.clone();
        match refused {
            Some((until, e)) if self.files.env.clock.monotonic_ns() < until => Err(e),
            _ => self.make_file(need).await,
        }
    }

    /// Takes files whose records nobody needs any more out of the log.
    pub(super) fn recycle(self: &Rc<Self>, files: Vec<SealedFile>) {
        if files.is_empty() {
            return;
        }
        self.in_background(|inner| async move {
            let disk = &inner.files.env.disk;
            let numbers: Vec<u64> = files.iter().map(|f| f.number).collect();
            if let Err(e) = inner.change_list(None, &numbers).await {
                // They stay, and are needless: the next start gives them back.
                tracing::warn!("could not recycle log files: {}", e.error);
                return;
            }
            for old in files {
                let path = inner.files.log(old.number);
                let keep = {
                    let state = inner.state.borrow();
                    // Small files of a log that has grown are of no more use; nor are the large ones that
                    // one large record asked for.
                    let useful = old.size >= inner.file_bytes.min(4 * state.active.size)
                        && old.size <= 2 * inner.file_bytes;
                    useful && state.free.len() < FREE_FILES
                };
                if !keep {
                    inner.files.remove(&path).await;
                    continue;
                }
                let renamed = disk.rename(&path, &inner.files.free(old.number)).await;
                // The name must be gone for good before the file gets another header.
                let renamed = match renamed {
                    Ok(()) => inner.files.sync().await,
                    Err(e) => Err(e),
                };
                match renamed {
                    Ok(()) => inner.state.borrow_mut().free.push(FreeFile {
                        number: old.number,
                        size: old.size,
                    }),
                    Err(e) => tracing::warn!("could not recycle {path}: {e}"),
                }
            }
        });
    }
}
