//! `core::io::Disk` on the machine's files. Reads, writes and syncs go through the executor's ring; what
//! names files (open, rename, remove, list) goes to the executor's helper thread, because removing a large
//! file takes milliseconds.

use super::ring::{Buffer, Ring};
use std::fs::{File as StdFile, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use strandline_core::io::{Disk, File, FileMode, LocalFuture};

/// Writes and direct reads go in pieces of this, which bounds the memory of one operation.
const PIECE_BYTES: usize = 8 << 20;
/// Up to this much a read tries the page cache on the spot; copying it takes some 20 µs.
const INLINE_READ_BYTES_MAX: usize = 256 << 10;

/// The files below one directory.
pub(super) struct RealDisk {
    root: PathBuf,
    ring: Rc<Ring>,
}

impl RealDisk {
    pub(super) fn new(root: &Path, ring: Rc<Ring>) -> RealDisk {
        RealDisk {
            root: root.to_path_buf(),
            ring,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    async fn open_with(
        &self,
        path: &str,
        mode: FileMode,
        create: bool,
    ) -> io::Result<Rc<dyn File>> {
        let path = self.path(path);
        let file = blocking(move || open(&path, mode, create)).await?;
        Ok(Rc::new(RealFile {
            file: Rc::new(file),
            mode,
            ring: self.ring.clone(),
        }))
    }
}

/// Runs on the executor's helper thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    glommio::executor().spawn_blocking(work).await
}

fn open(path: &Path, mode: FileMode, create: bool) -> io::Result<StdFile> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(create)
        .truncate(create);
    if mode == FileMode::Direct {
        match options.clone().custom_flags(libc::O_DIRECT).open(path) {
            // A file system without O_DIRECT: the page cache and fdatasync are slower and just as safe.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            other => return other,
        }
    }
    options.open(path)
}

impl Disk for RealDisk {
    fn create<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(self.open_with(path, mode, true))
    }
    fn open<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(self.open_with(path, mode, false))
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let (from, to) = (self.path(from), self.path(to));
        Box::pin(blocking(move || std::fs::rename(from, to)))
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let path = self.path(path);
        Box::pin(blocking(move || std::fs::remove_file(path)))
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let (from, to) = (self.path(from), self.path(to));
        Box::pin(blocking(move || std::fs::hard_link(from, to)))
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let is_root = path.is_empty();
        let path = self.path(path);
        Box::pin(blocking(move || {
            if is_root {
                return create_root(&path);
            }
            std::fs::create_dir_all(path)
        }))
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        let path = self.path(path);
        Box::pin(blocking(move || list(&path)))
    }
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let path = self.path(path);
        Box::pin(blocking(move || StdFile::open(path)?.sync_all()))
    }
}

/// Makes the root and its parents, durably: nobody else sees the directories above it.
fn create_root(root: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = root.ancestors().take_while(|p| !p.exists()).collect();
    std::fs::create_dir_all(root)?;
    for made in missing {
        let parent = made.parent().filter(|p| !p.as_os_str().is_empty());
        StdFile::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn list(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // We never make a name that is not UTF-8; one that is not ours is none of our business.
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

struct RealFile {
    file: Rc<StdFile>,
    mode: FileMode,
    ring: Rc<Ring>,
}

impl RealFile {
    async fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let rest = self.file.metadata()?.len().saturating_sub(offset);
        let len = len.min(usize::try_from(rest).unwrap_or(usize::MAX));
        let mut out = vec![0; len];
        let mut done = 0;
        if self.mode == FileMode::Buffered && len <= INLINE_READ_BYTES_MAX {
            done = read_cached(&self.file, offset, &mut out);
        }
        while done < len {
            let piece = (len - done).min(PIECE_BYTES);
            // A direct read may only ask for whole blocks; the file's end cuts it.
            let whole = match self.mode {
                FileMode::Direct => piece.next_multiple_of(4096),
                FileMode::Buffered => piece,
            };
            let buffer = self.ring.buffer(whole);
            let (read, buffer) = self
                .ring
                .read(&self.file, offset + done as u64, buffer)
                .await;
            let got = read?.min(piece);
            out[done..done + got].copy_from_slice(&buffer.as_slice()[..got]);
            self.ring.recycle(buffer);
            if got == 0 {
                break;
            }
            done += got;
        }
        out.truncate(done);
        Ok(out)
    }

    /// Writes; with `sync` returns only once it is on stable storage.
    async fn write(&self, mut offset: u64, data: &[u8], sync: bool) -> io::Result<()> {
        let last = data.len().saturating_sub(1) / PIECE_BYTES;
        for (index, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let linked = sync && index == last;
            self.write_piece(offset, piece, linked).await?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    async fn write_piece(&self, mut offset: u64, mut piece: &[u8], linked: bool) -> io::Result<()> {
        while !piece.is_empty() {
            let buffer: Buffer = self.ring.buffer_of(piece);
            let (written, buffer) = if linked {
                self.ring.write_and_sync(&self.file, offset, buffer).await
            } else {
                self.ring.write(&self.file, offset, buffer).await
            };
            self.ring.recycle(buffer);
            let written = written?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            // A short write says that the rest is still to do; the next round meets the error, if there is one.
            piece = piece.get(written..).unwrap_or_default();
            offset += written as u64;
        }
        Ok(())
    }
}

impl File for RealFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(self.read(offset, len))
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.write(offset, data, false))
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(self.ring.sync(&self.file))
    }
    fn write_and_sync<'a>(
        &'a self,
        offset: u64,
        data: &'a [u8],
    ) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if data.is_empty() {
                return self.ring.sync(&self.file).await;
            }
            self.write(offset, data, true).await
        })
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        Box::pin(std::future::ready(self.file.metadata().map(|m| m.len())))
    }
}

/// Copies what the page cache holds, without waiting for the disk; how much that was.
fn read_cached(file: &StdFile, offset: u64, out: &mut [u8]) -> usize {
    let part = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
    // SAFETY: the one iovec describes a live, exclusively borrowed slice.
    let got = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
    // An error (not cached, not supported) is met again by the read that may wait.
    usize::try_from(got).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Executors;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use strandline_core::io::Env;

    /// Runs `test` on an executor over an empty directory.
    fn on_executor<F: Future<Output = ()> + 'static>(test: fn(Env) -> F) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        let executors = Executors::start(1, move |cx| {
            let env = cx.env(&root);
            Box::pin(async move {
                test(env).await;
                Ok(())
            })
        });
        executors.unwrap().join().unwrap();
    }

    fn pattern(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| ((i + seed) % 251) as u8).collect()
    }

    #[test]
    fn both_modes_read_what_was_written() {
        on_executor(|env| async move {
            env.disk.create_dir_all("a/b").await.unwrap();
            for mode in [FileMode::Direct, FileMode::Buffered] {
                let file = env.disk.create("a/b/f", mode).await.unwrap();
                let first = pattern(20 << 20, 1);
                file.write_at(0, &first).await.unwrap();
                let second = pattern(9 << 20, 2);
                file.write_and_sync(4096, &second).await.unwrap();
                file.write_and_sync(0, &[]).await.unwrap();
                file.sync().await.unwrap();
                drop(file);
                env.disk.sync_dir("a/b").await.unwrap();
                let file = env.disk.open("a/b/f", mode).await.unwrap();
                assert_eq!(file.size().await.unwrap(), 20 << 20);
                let all = file.read_at(0, usize::MAX).await.unwrap();
                assert_eq!(all.len(), 20 << 20);
                assert_eq!(all[..4096], first[..4096]);
                assert!(all[4096..].starts_with(&second));
                assert_eq!(all[4096 + second.len()..], first[4096 + second.len()..]);
                let end = file.read_at((20 << 20) - 4096, 65536).await.unwrap();
                assert_eq!(end, first[first.len() - 4096..]);
                assert!(file.read_at(30 << 20, 4096).await.unwrap().is_empty());
            }
            let file = env.disk.open("a/b/f", FileMode::Buffered).await.unwrap();
            file.write_at(3, b"odd").await.unwrap();
            assert_eq!(file.read_at(3, 3).await.unwrap(), b"odd");
        });
    }

    #[test]
    fn names() {
        on_executor(|env| async move {
            let disk = &env.disk;
            disk.create_dir_all("d").await.unwrap();
            assert!(disk.list("d").await.unwrap().is_empty());
            assert!(disk.list("nowhere").await.unwrap().is_empty());
            let e = disk.open("d/none", FileMode::Buffered).await.err().unwrap();
            assert_eq!(e.kind(), io::ErrorKind::NotFound);
            disk.create("d/x", FileMode::Buffered).await.unwrap();
            disk.hard_link("d/x", "d/y").await.unwrap();
            disk.rename("d/x", "d/a").await.unwrap();
            assert_eq!(disk.list("d").await.unwrap(), ["a", "y"]);
            disk.remove("d/a").await.unwrap();
            assert_eq!(disk.list("d").await.unwrap(), ["y"]);
        });
    }

    #[test]
    fn an_abandoned_operation_harms_nobody() {
        on_executor(|env| async move {
            let file = env.disk.create("f", FileMode::Direct).await.unwrap();
            let data = pattern(1 << 20, 3);
            for _ in 0..50 {
                let mut write = pin!(file.write_and_sync(0, &data));
                let polled = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(polled, Poll::Pending | Poll::Ready(Ok(()))));
            }
            let other = pattern(1 << 20, 4);
            file.write_and_sync(1 << 20, &other).await.unwrap();
            assert_eq!(file.read_at(1 << 20, 1 << 20).await.unwrap(), other);
            let e = file.write_at(1, &data).await.unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
            let e = file.write_and_sync(1, &data).await.unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
        });
    }
}
