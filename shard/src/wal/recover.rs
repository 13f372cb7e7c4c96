//! Opening a log: replay, the cut of a torn tail, and telling that from damage. `docs/format.md` says how.

use super::files::{Directory, FreeFile, GAPS_FILE, LogFile, Role, SealedFile, role};
use super::list::{self, FileList};
use super::{RecordKind, Replay};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::format::log::{
    BLOCK_BYTES, FileHeader, FrameHeader, Gaps, LogError, Records, Scanner, Step, decode_gaps,
    encode_gaps,
};
use strandline_core::ids::Lsn;
use strandline_core::io::{File, FileMode};

/// Read at a time.
const CHUNK_BYTES: u64 = 2 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// How to open a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalOptions {
    /// Records up to and including this one are in segments: they are not replayed, and may be missing. An
    /// empty log numbers on behind it.
    pub after: Lsn,
    /// Go on although records are missing that were durable once.
    pub accept_loss: bool,
    /// The log has a list of its files: that it has none now is damage.
    pub listed: bool,
    /// Records up to and including this one were durable once, as others know.
    pub reached: Lsn,
}

/// What opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalReport {
    /// Records replayed.
    pub records: u64,
    /// Bytes of the commits they were in.
    pub bytes: u64,
    /// Bytes of a commit that was being written when the server ended, and was cut.
    pub torn_bytes: u64,
    /// Records that are missing although they were durable; only ever above 0 with
    /// [`WalOptions::accept_loss`].
    pub lost: u64,
    /// Files that are missing, cut or without a header: what they held beyond `lost` is not known. Only ever
    /// above 0 with [`WalOptions::accept_loss`].
    pub lost_files: u64,
}

/// What the log goes on from.
pub(super) struct Found {
    pub(super) active: Option<LogFile>,
    pub(super) spare: Option<LogFile>,
    pub(super) sealed: VecDeque<SealedFile>,
    pub(super) free: Vec<FreeFile>,
    pub(super) unneeded: Vec<SealedFile>,
    pub(super) next_number: u64,
    pub(super) next_lsn: u64,
    pub(super) next_commit: u64,
}

const ACCEPT: &str =
    "keep a copy of the directory, then start once with --accept-loss to go on without them";

/// A place in the log, for people.
#[derive(Clone, Debug)]
struct Place {
    path: String,
    offset: u64,
}

pub(super) fn io_error(path: &str, e: &io::Error) -> Error {
    let e = Error::from(io::Error::new(e.kind(), format!("log {path}: {e}")));
    // From() keeps the kind; only a full disk is not an I/O error of the log.
    match e.state() {
        SqlState::DiskFull => e,
        _ => Error::new(SqlState::IoError, e.message()),
    }
}

/// The walk over all files.
struct Walk<'a, 'r> {
    options: WalOptions,
    gaps: Gaps,
    /// Gaps that were met, old and new.
    met: Gaps,
    /// The commit that comes next, and the lsn; `None`: no intact commit so far.
    next: Option<(u64, u64)>,
    /// The first place since the last intact commit that is not one.
    broken: Option<Place>,
    /// Behind the last intact commit.
    last: Option<Place>,
    /// A commit that was being written, where the next one should be: file, offset, bytes.
    torn: Option<(Rc<dyn File>, Place, u64)>,
    /// Headers of commits behind missing ones, whose records are not intact: one past the highest commit and
    /// its last lsn, and where.
    evidence: Option<(u64, u64, Place)>,
    report: WalReport,
    replay: &'a mut Replay<'r>,
}

impl Walk<'_, '_> {
    /// Where the log goes on behind the last intact commit: an accepted loss skips numbers.
    fn next_commit(&self) -> Option<u64> {
        let (next, _) = self.next?;
        let accepted = self.gaps.iter().find(|(from, _)| *from == next);
        Some(accepted.map_or(next, |(_, to)| *to))
    }

    /// The first lsn that would be missed.
    fn next_lsn(&self) -> u64 {
        let after = self.options.after.0.saturating_add(1);
        self.next.map_or(after, |(_, lsn)| lsn.max(after))
    }

    /// Commits before `to`, with records before `lsn`, are missing, and something behind them is at `place`.
    fn missing(&mut self, to: u64, lsn: u64, place: &Place) -> Result<()> {
        let at = self.broken.as_ref().unwrap_or(place);
        let what = format!("log file {} is damaged at offset {}", at.path, at.offset);
        let before = format!("before {} offset {}", place.path, place.offset);
        self.missing_by(to, lsn, &what, &before)
    }

    /// As [`Walk::missing`]: `what` is broken, and `before` proves it.
    fn missing_by(&mut self, to: u64, lsn: u64, what: &str, before: &str) -> Result<()> {
        let from = self.next.map_or(0, |(commit, _)| commit);
        let records = lsn.saturating_sub(self.next_lsn());
        if records == 0 {
            return Ok(());
        }
        let gap = (from, to);
        if !self.gaps.contains(&gap) {
            self.lose(records, what, before)?;
            self.gaps.push(gap);
        }
        self.met.push(gap);
        Ok(())
    }

    /// Counts records as lost, if that is accepted.
    fn lose(&mut self, records: u64, what: &str, before: &str) -> Result<()> {
        if !self.options.accept_loss {
            return Err(Error::corrupted(format!(
                "{what}: {records} records that were durable are missing {before}"
            ))
            .hint(ACCEPT));
        }
        tracing::warn!("{what}: {records} records are lost, as accepted");
        self.report.lost += records;
        Ok(())
    }

    /// Where the log ends, as far as it is intact.
    fn end(&self, files: &Directory) -> String {
        match (&self.broken, &self.last) {
            (Some(place), _) | (None, Some(place)) => {
                format!("log file {} ends at offset {}", place.path, place.offset)
            }
            (None, None) => format!("the log {} has no records", files.dir),
        }
    }

    /// What is known beside the files' own content: the list, and what the shard has seen of the log.
    fn hold_against(&mut self, files: &Directory, list: Option<&FileList>) -> Result<()> {
        if let Some(list) = list {
            if self.next_commit().is_none_or(|next| next <= list.commit) {
                let (what, before) = (
                    self.end(files),
                    format!("of those that {} counts", list::path(files)),
                );
                let gap = (self.next.map_or(0, |(commit, _)| commit), list.commit + 1);
                self.missing_by(gap.1, list.lsn + 1, &what, &before)?;
                if self.gaps.contains(&gap) {
                    self.next = Some((gap.1, self.next_lsn()));
                }
            }
            self.skip_to(list.lsn);
        }
        let reached = self.options.reached.0;
        if self.next_lsn() <= reached {
            let records = reached + 1 - self.next_lsn();
            let (what, before) = (self.end(files), "of those that segments were made after");
            self.lose(records, &what, before)?;
            self.skip_to(reached);
        }
        Ok(())
    }

    /// Numbers up to `lsn` are not given out again.
    fn skip_to(&mut self, lsn: u64) {
        let next = self.next_lsn().max(lsn + 1);
        let commit = self.next.map_or(1, |(commit, _)| commit);
        self.next = Some((commit, next));
    }

    fn frame(&mut self, header: &FrameHeader, payload: &[u8], place: &Place) -> Result<()> {
        let contiguous = match (self.next, self.next_commit()) {
            (Some((next, lsn)), Some(skipped)) => {
                if header.commit < next || header.first_lsn < lsn {
                    return Err(Error::corrupted(format!(
                        "log file {} at offset {}: commit {} (lsn {}) stands behind commit {} (lsn {lsn})",
                        place.path,
                        place.offset,
                        header.commit,
                        header.first_lsn,
                        next.saturating_sub(1),
                    ))
                    .hint("a file of an older copy of the log may be among these; take it away"));
                }
                if skipped != next && header.commit == skipped {
                    self.met.push((next, skipped));
                }
                header.commit == next || header.commit == skipped
            }
            _ => false,
        };
        if !contiguous {
            self.missing(header.commit, header.begin_lsn(), place)?;
        }
        self.next = Some((header.commit + 1, header.end_lsn()));
        self.last = Some(Place {
            path: place.path.clone(),
            offset: place.offset + header.frame_bytes(),
        });
        (self.broken, self.torn, self.evidence) = (None, None, None);
        if header.end_lsn() <= self.options.after.0.saturating_add(1) {
            return Ok(());
        }
        self.report.bytes += header.frame_bytes();
        for (lsn, record) in (header.first_lsn..).zip(Records::new(header, payload)) {
            let (kind, bytes) = match record {
                Ok(record) => record,
                Err(e) if !self.options.accept_loss => {
                    return Err(Error::corrupted(format!(
                        "log file {} at offset {}: {e}",
                        place.path, place.offset
                    )));
                }
                Err(_) => {
                    self.report.lost += header.end_lsn().saturating_sub(lsn);
                    break;
                }
            };
            if lsn > self.options.after.0 {
                (self.replay)(Lsn(lsn), RecordKind(kind), bytes)?;
                self.report.records += 1;
            }
        }
        Ok(())
    }

    fn broken(&mut self, file: &Rc<dyn File>, header: Option<FrameHeader>, place: Place) {
        self.broken.get_or_insert_with(|| place.clone());
        let Some(header) = header else { return };
        let later = match self.next_commit() {
            Some(next) if header.commit < next => return, // cut before, and not yet written over
            Some(next) => header.commit > next,
            None => header.begin_lsn() > self.next_lsn(),
        };
        if !later {
            self.torn = Some((file.clone(), place, header.frame_bytes()));
        } else if self
            .evidence
            .as_ref()
            .is_none_or(|(commit, ..)| *commit <= header.commit)
        {
            self.evidence = Some((header.commit + 1, header.end_lsn(), place));
        }
    }
}

/// Reads the log and decides from where it goes on.
pub(super) async fn recover(
    files: &Directory,
    options: WalOptions,
    replay: &mut Replay<'_>,
) -> Result<(Found, WalReport)> {
    let disk = &files.env.disk;
    let on_dir = |e: io::Error| io_error(&files.dir, &e);
    disk.create_dir_all(&files.dir).await.map_err(on_dir)?;
    let parent = files.dir.rsplit_once('/').map_or("", |(parent, _)| parent);
    disk.sync_dir(parent).await.map_err(on_dir)?;

    let mut numbers = Vec::new();
    let mut free = Vec::new();
    let mut next_number = 1;
    let mut note = false;
    for name in disk.list(&files.dir).await.map_err(on_dir)? {
        match role(&name) {
            Some(Role::Log(number)) => {
                numbers.push(number);
                next_number = next_number.max(number + 1);
            }
            Some(Role::Free(number)) => {
                next_number = next_number.max(number + 1);
                let path = files.path(&name);
                match disk.open(&path, FileMode::Direct).await {
                    Ok(file) => {
                        let size = file.size().await.map_err(on_dir)? / BLOCK * BLOCK;
                        free.push(FreeFile { number, size });
                    }
                    Err(e) => return Err(io_error(&path, &e)),
                }
            }
            Some(Role::New) => files.remove(&files.path(&name)).await,
            None => note |= name == GAPS_FILE,
        }
    }
    numbers.sort_unstable();
    let list = find_list(files, &options).await?;

    let mut walk = Walk {
        options,
        gaps: read_note(files, note).await?,
        met: Vec::new(),
        next: None,
        broken: None,
        last: None,
        torn: None,
        evidence: None,
        report: WalReport::default(),
        replay,
    };
    let list = list.unwrap_or_else(|()| {
        walk.report.lost_files += 1;
        None
    });
    let noted = walk.gaps.len();
    let mut opened = Vec::with_capacity(numbers.len());
    for &number in &numbers {
        opened.extend(read_file(files, number, &mut walk).await?);
    }
    if let Some((to, lsn, place)) = walk.evidence.clone() {
        walk.missing(to, lsn, &place)?;
        let from = walk.next.map_or(0, |(commit, _)| commit);
        walk.next = Some((from.max(to), walk.next_lsn().max(lsn)));
    }
    if let Some(list) = &list {
        // Files before one that has commits are proven by its numbers.
        let with_commits = opened.iter().rev().find(|f| f.last_lsn > 0);
        let proven = with_commits.map_or(0, |f| f.number);
        for (&number, &bytes) in list.files.range(proven..) {
            let there = opened.iter().any(|f| f.number == number);
            if !there && numbers.contains(&number) {
                continue; // its header is damaged, which is accepted and counted
            }
            let Some(fault) = list::fault(files, number, bytes, there).await? else {
                continue;
            };
            if !options.accept_loss {
                return Err(Error::corrupted(format!(
                    "{fault}: whether it held records is not known"
                ))
                .hint(ACCEPT));
            }
            tracing::warn!("{fault}: what it held is lost, as accepted");
            walk.report.lost_files += 1;
        }
    }
    walk.hold_against(files, list.as_ref())?;
    if let (Some((from, _)), Some(to)) = (walk.next, walk.next_commit())
        && from != to
    {
        walk.met.push((from, to));
    }
    if walk.gaps.len() > noted {
        write_note(files, &walk.gaps).await?;
    } else if note && walk.met.is_empty() {
        // What it was about is released.
        files.remove(&files.path(GAPS_FILE)).await;
    }
    let next_commit = walk.next_commit().unwrap_or(1);
    let next_lsn = walk.next_lsn();
    if let Some((file, place, bytes)) = walk.torn {
        walk.report.torn_bytes = bytes;
        tracing::info!(
            "log file {}: cut a commit of {bytes} bytes at offset {} that was being written",
            place.path,
            place.offset
        );
        let cut = file.write_and_sync(place.offset, &[0; BLOCK_BYTES]).await;
        cut.map_err(|e| io_error(&place.path, &e))?;
    }
    let mut found = Found {
        active: None,
        spare: None,
        sealed: VecDeque::new(),
        free,
        unneeded: Vec::new(),
        next_number,
        next_lsn,
        next_commit,
    };
    let last = opened.iter().rposition(|f: &LogFile| f.last_lsn > 0);
    for (index, file) in opened.into_iter().enumerate() {
        match last {
            Some(last) if index < last && file.last_lsn > 0 => found.sealed.push_back(file.seal()),
            Some(last) if index < last => found.unneeded.push(file.seal()),
            _ if found.active.is_none() => {
                // Its last commit may have been read from a cache: what was replayed must stay.
                let synced = file.file.sync().await;
                synced.map_err(|e| io_error(&files.log(file.number), &e))?;
                found.active = Some(file);
            }
            _ if found.spare.is_none() => found.spare = Some(file),
            _ => found.unneeded.push(file.seal()),
        }
    }
    Ok((found, walk.report))
}

/// Walks one file; `None` when its header is damaged and that is accepted.
async fn read_file(
    files: &Directory,
    number: u64,
    walk: &mut Walk<'_, '_>,
) -> Result<Option<LogFile>> {
    let path = files.log(number);
    let on_file = |e: io::Error| io_error(&path, &e);
    let disk = &files.env.disk;
    let file = disk.open(&path, FileMode::Direct).await.map_err(on_file)?;
    let size = file.size().await.map_err(on_file)? / BLOCK * BLOCK;
    let start = file.read_at(0, BLOCK_BYTES).await.map_err(on_file)?;
    let header = match FileHeader::decode(&start) {
        Ok(header) if header.number == number => header,
        Err(e @ LogError::Version(_)) => {
            return Err(Error::unsupported(format!("log file {path}: {e}"))
                .hint("start the server version that wrote it"));
        }
        _ if !walk.options.accept_loss => {
            return Err(Error::corrupted(format!(
                "log file {path} is damaged at offset 0: its header, and with it all its records"
            ))
            .hint(ACCEPT));
        }
        _ => {
            tracing::warn!(
                "log file {path}: its header is damaged, its records are lost, as accepted"
            );
            walk.broken.get_or_insert(Place {
                path: path.clone(),
                offset: 0,
            });
            walk.report.lost_files += 1;
            let aside = files.path(&format!("{number:016}.damaged"));
            disk.rename(&path, &aside).await.map_err(on_file)?;
            files.sync().await.map_err(on_file)?;
            return Ok(None);
        }
    };
    let mut found = LogFile {
        file: file.clone(),
        number,
        salt: header.salt,
        size,
        at: BLOCK,
        live_from: BLOCK,
        last_lsn: 0,
    };
    let mut scanner = Scanner::new(header.salt, size);
    let (mut window_at, mut window) = (0, start);
    loop {
        match scanner.step(window_at, &window) {
            Step::Need { offset, bytes } => {
                let len = bytes.max(CHUNK_BYTES).min(size - offset);
                window = file.read_at(offset, len as usize).await.map_err(on_file)?;
                window_at = offset;
                if (window.len() as u64) < bytes {
                    return Err(on_file(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            Step::Frame {
                offset,
                header,
                payload,
            } => {
                let path = path.clone();
                walk.frame(&header, payload, &Place { path, offset })?;
                found.at = offset + header.frame_bytes();
                found.last_lsn = header.end_lsn() - 1;
            }
            Step::Broken { offset, header } => {
                let path = path.clone();
                walk.broken(&file, header, Place { path, offset });
            }
            Step::End => return Ok(Some(found)),
        }
        files.env.breathe().await;
    }
}

/// The list of files; `Err`: it should be there and is lost, as accepted.
async fn find_list(
    files: &Directory,
    options: &WalOptions,
) -> Result<std::result::Result<Option<FileList>, ()>> {
    let lost = match list::read(files).await? {
        list::Found::List(list) => return Ok(Ok(Some(list))),
        list::Found::None if !options.listed => return Ok(Ok(None)),
        list::Found::None => Error::corrupted(format!(
            "the list of log files {} is missing: log files may be missing too",
            list::path(files)
        )),
        list::Found::Damaged(e) => e,
    };
    if !options.accept_loss {
        return Err(lost.hint(ACCEPT));
    }
    tracing::warn!("{lost}: the log is taken as it is, as accepted");
    Ok(Err(()))
}

async fn read_note(files: &Directory, there: bool) -> Result<Gaps> {
    if !there {
        return Ok(Gaps::new());
    }
    let path = files.path(GAPS_FILE);
    let read = async {
        let file = files.env.disk.open(&path, FileMode::Buffered).await?;
        let size = file.size().await?;
        file.read_at(0, size as usize).await
    };
    let bytes = read.await.map_err(|e| io_error(&path, &e))?;
    Ok(decode_gaps(&bytes).unwrap_or_else(|e| {
        // At worst a loss must be accepted once more.
        tracing::warn!("{path}: {e}; it is not used");
        Gaps::new()
    }))
}

async fn write_note(files: &Directory, gaps: &[(u64, u64)]) -> Result<()> {
    let path = files.path(GAPS_FILE);
    let disk = &files.env.disk;
    let write = async {
        let part = format!("{path}.part");
        let file = disk.create(&part, FileMode::Buffered).await?;
        file.write_and_sync(0, &encode_gaps(gaps)).await?;
        disk.rename(&part, &path).await?;
        files.sync().await
    };
    write.await.map_err(|e| io_error(&path, &e))
}
