//! The body of a request: where it ends, whole or in chunks, and what it is once unpacked. It is read as it
//! comes: of a body of any size a few buffers are held.

use super::head::{BodyLength, Encoding};
use flate2::bufread::MultiGzDecoder;
use futures_lite::AsyncRead;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use strandline_core::io::{LocalFuture, Tasks};

/// One read of bytes that have to be looked at before they are lines.
const READ_BYTES: usize = 16 << 10;
/// A chunk's size line, extensions included.
const CHUNK_LINE_BYTES: usize = 1 << 10;
/// The fields behind the last chunk, all together.
const TRAILER_BYTES: usize = 8 << 10;

/// Why a body cannot be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Over the limit `http_body_bytes`, as it comes or unpacked.
    TooLarge,
    /// Its chunks are not of the form.
    Chunks(&'static str),
    /// It is not the gzip that it should be.
    Gzip(String),
    /// Nothing came for too long.
    Slow,
    /// The client closed within it.
    Cut,
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BodyError::TooLarge => f.write_str("the body is over the limit http_body_bytes"),
            BodyError::Chunks(what) => write!(f, "the body's chunks are malformed: {what}"),
            BodyError::Gzip(what) => write!(f, "the body is not the gzip it says it is: {what}"),
            BodyError::Slow => f.write_str("the rest of the body did not come in time"),
            BodyError::Cut => f.write_str("the connection ended within the body"),
        }
    }
}

impl std::error::Error for BodyError {}

impl BodyError {
    /// The one that an error of reading holds.
    pub fn of(error: &io::Error) -> BodyError {
        let inner = error.get_ref().and_then(|e| e.downcast_ref::<BodyError>());
        inner.cloned().unwrap_or(BodyError::Cut)
    }
}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        io::Error::other(error)
    }
}

/// Where in a body the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes of a body without chunks are to come.
    Whole(u64),
    /// In a chunk's size.
    Size {
        size: u64,
        digits: usize,
    },
    /// Behind the size, so many bytes into the line.
    Extension {
        size: u64,
        length: usize,
    },
    /// Before the LF behind the size.
    SizeEnd {
        size: u64,
    },
    /// So many bytes of the chunk are to come.
    Chunk(u64),
    /// Behind the chunk's bytes.
    ChunkCr,
    ChunkLf,
    /// At the beginning of a line behind the last chunk.
    Trailer {
        length: usize,
    },
    /// Within such a line.
    TrailerLine {
        length: usize,
    },
    TrailerLf {
        length: usize,
    },
    /// Before the very last LF.
    LastLf,
    Done,
}

/// Finds the bytes of a body among those that frame it.
#[derive(Debug)]
pub struct Framing(State);

impl Framing {
    /// At the beginning of a body.
    pub fn new(length: BodyLength) -> Self {
        Framing(match length {
            BodyLength::Bytes(0) => State::Done,
            BodyLength::Bytes(n) => State::Whole(n),
            BodyLength::Chunked => State::Size { size: 0, digits: 0 },
        })
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.0 == State::Done
    }

    /// Bytes of the body that come next, with nothing in between.
    pub fn run(&self) -> u64 {
        match self.0 {
            State::Whole(n) | State::Chunk(n) => n,
            _ => 0,
        }
    }

    /// Notes that so many bytes of [`Framing::run`] were taken.
    fn took(&mut self, count: u64) {
        self.0 = match self.0 {
            State::Whole(n) if n > count => State::Whole(n - count),
            State::Whole(_) => State::Done,
            State::Chunk(n) if n > count => State::Chunk(n - count),
            State::Chunk(_) => State::ChunkCr,
            other => other,
        };
    }

    /// Looks at the bytes that have come: how many of them are dealt with, and which of those, at most `max`,
    /// are the body's. It stops behind them, and behind the end.
    ///
    /// # Errors
    /// [`BodyError::Chunks`].
    pub fn next(&mut self, input: &[u8], max: usize) -> Result<(usize, Range<usize>), BodyError> {
        let mut at = 0;
        while at < input.len() && !self.is_done() {
            let run = self.run();
            if run > 0 {
                let room = max.min(input.len() - at);
                let count = usize::try_from(run).unwrap_or(usize::MAX).min(room);
                self.took(count as u64);
                return Ok((at + count, at..at + count));
            }
            self.0 = framing_byte(self.0, input[at])?;
            at += 1;
        }
        Ok((at, at..at))
    }
}

/// One byte that is not the body's. Lines end with CRLF: a reader before us might take a bare LF for
/// something else.
fn framing_byte(state: State, byte: u8) -> Result<State, BodyError> {
    let bad = |what| Err(BodyError::Chunks(what));
    Ok(match (state, byte) {
        (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
            // 15 digits stay within 60 bits.
            if digits >= 15 {
                return bad("a chunk's size has more than 15 digits");
            }
            let digit = char::from(byte).to_digit(16).unwrap_or_default();
            State::Size {
                size: size * 16 + u64::from(digit),
                digits: digits + 1,
            }
        }
        (State::Size { digits: 0, .. }, _) => return bad("a chunk does not begin with its size"),
        (State::Size { size, .. }, b'\r') => State::SizeEnd { size },
        (State::Size { size, .. }, b';' | b' ' | b'\t') => State::Extension { size, length: 0 },
        (State::Size { .. }, _) => return bad("a chunk's size is not a hexadecimal number"),
        (State::Extension { size, .. }, b'\r') => State::SizeEnd { size },
        (State::Extension { .. }, b'\n') => return bad("a chunk's first line ends without CR"),
        (State::Extension { size, length }, _) if length < CHUNK_LINE_BYTES => State::Extension {
            size,
            length: length + 1,
        },
        (State::Extension { .. }, _) => return bad("a chunk's first line is too long"),
        (State::SizeEnd { size: 0 }, b'\n') => State::Trailer { length: 0 },
        (State::SizeEnd { size }, b'\n') => State::Chunk(size),
        (State::ChunkCr, b'\r') => State::ChunkLf,
        (State::ChunkLf, b'\n') => State::Size { size: 0, digits: 0 },
        (State::ChunkCr | State::ChunkLf, _) => return bad("a chunk is longer than its size"),
        (State::Trailer { .. }, b'\r') => State::LastLf,
        (State::TrailerLine { length }, b'\r') => State::TrailerLf { length },
        (State::TrailerLf { length }, b'\n') => State::Trailer { length },
        (State::Trailer { .. } | State::TrailerLine { .. }, b'\n') => {
            return bad("a line behind the last chunk ends without CR");
        }
        (State::Trailer { length } | State::TrailerLine { length }, _) => {
            if length >= TRAILER_BYTES {
                return bad("too much stands behind the last chunk");
            }
            State::TrailerLine { length: length + 1 }
        }
        (State::LastLf, b'\n') => State::Done,
        (State::SizeEnd { .. } | State::TrailerLf { .. } | State::LastLf, _) => {
            return bad("LF does not follow CR");
        }
        (State::Whole(_) | State::Chunk(_) | State::Done, _) => state,
    })
}

/// Packed bytes on their way into the decoder, which is told to come again when there are none.
#[derive(Debug, Default)]
struct Feed {
    bytes: Vec<u8>,
    at: usize,
    ended: bool,
}

impl Read for Feed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buf)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Feed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &self.bytes[self.at..] {
            [] if !self.ended => Err(io::ErrorKind::WouldBlock.into()),
            rest => Ok(rest),
        }
    }
    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

/// The bytes of a body, unpacked. Reading answers 0 at its end, and an error that holds a [`BodyError`].
pub struct Body<'a, S> {
    stream: &'a mut S,
    /// Bytes that came and are not looked at: those of the next request too.
    raw: &'a mut Vec<u8>,
    /// Where in `raw` the first of them stands.
    at: usize,
    framing: Framing,
    gzip: Option<Box<MultiGzDecoder<Feed>>>,
    max_bytes: u64,
    /// As they came.
    packed_bytes: u64,
    bytes: u64,
    /// How long nothing may come.
    patience: Duration,
    tasks: &'a dyn Tasks,
    deadline: Option<LocalFuture<'a, ()>>,
}

impl<'a, S: AsyncRead + Unpin> Body<'a, S> {
    /// What follows a head: first what `raw` holds already. At most `max_bytes`, packed and unpacked.
    pub fn new(
        stream: &'a mut S,
        raw: &'a mut Vec<u8>,
        (length, encoding): (BodyLength, Encoding),
        max_bytes: u64,
        tasks: &'a dyn Tasks,
        patience: Duration,
    ) -> Self {
        let gzip = matches!(encoding, Encoding::Gzip);
        Body {
            stream,
            raw,
            at: 0,
            framing: Framing::new(length),
            gzip: gzip.then(|| Box::new(MultiGzDecoder::new(Feed::default()))),
            max_bytes,
            packed_bytes: 0,
            bytes: 0,
            patience,
            tasks,
            deadline: None,
        }
    }

    /// Bytes of the body so far, as they came and unpacked.
    pub fn counts(&self) -> (u64, u64) {
        (self.packed_bytes, self.bytes)
    }

    /// Whether the end was reached, so that another request may follow.
    pub fn is_whole(&self) -> bool {
        self.framing.is_done()
    }

    fn read_stream(
        stream: &mut S,
        deadline: &mut Option<LocalFuture<'a, ()>>,
        (tasks, patience): (&'a dyn Tasks, Duration),
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                *deadline = None;
                match read {
                    Ok(0) | Err(_) => Poll::Ready(Err(BodyError::Cut.into())),
                    Ok(count) => Poll::Ready(Ok(count)),
                }
            }
            Poll::Pending => {
                let deadline = deadline.get_or_insert_with(|| tasks.sleep(patience));
                match deadline.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Err(BodyError::Slow.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    /// Bytes of the body as they come; 0 at its end.
    fn poll_packed(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let waiting = (self.tasks, self.patience);
        let count = loop {
            if self.framing.is_done() || buf.is_empty() {
                return Poll::Ready(Ok(0));
            }
            if self.at < self.raw.len() {
                let (dealt, body) = self.framing.next(&self.raw[self.at..], buf.len())?;
                let body = body.start + self.at..body.end + self.at;
                buf[..body.len()].copy_from_slice(&self.raw[body.clone()]);
                self.at += dealt;
                match body.len() {
                    0 => continue,
                    count => break count,
                }
            }
            let run = usize::try_from(self.framing.run()).unwrap_or(usize::MAX);
            if run > 0 {
                // Nothing stands before them: they go where they are wanted at once.
                let room = buf.len().min(run);
                let read = Self::read_stream(
                    self.stream,
                    &mut self.deadline,
                    waiting,
                    cx,
                    &mut buf[..room],
                );
                let count = std::task::ready!(read)?;
                self.framing.took(count as u64);
                break count;
            }
            self.raw.resize(READ_BYTES, 0);
            self.at = 0;
            let read = Self::read_stream(self.stream, &mut self.deadline, waiting, cx, self.raw);
            match read {
                Poll::Ready(Ok(count)) => self.raw.truncate(count),
                other => {
                    self.raw.clear();
                    return other;
                }
            }
        };
        self.packed_bytes += count as u64;
        if self.packed_bytes > self.max_bytes {
            return Poll::Ready(Err(BodyError::TooLarge.into()));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_unpacked(
        &mut self,
        gzip: &mut MultiGzDecoder<Feed>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match gzip.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let mut bytes = std::mem::take(&mut gzip.get_mut().bytes);
                    bytes.resize(READ_BYTES, 0);
                    let read = self.poll_packed(cx, &mut bytes);
                    let feed = gzip.get_mut();
                    feed.at = 0;
                    match read {
                        Poll::Ready(Ok(count)) => {
                            bytes.truncate(count);
                            feed.ended = count == 0;
                            feed.bytes = bytes;
                        }
                        Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                        Poll::Pending => {
                            bytes.clear();
                            feed.bytes = bytes;
                            return Poll::Pending;
                        }
                    }
                }
                Err(e) => return Poll::Ready(Err(BodyError::Gzip(e.to_string()).into())),
                Ok(count) => return Poll::Ready(Ok(count)),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Body<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let read = match this.gzip.take() {
            None => this.poll_packed(cx, buf),
            Some(mut gzip) => {
                let read = this.poll_unpacked(&mut gzip, cx, buf);
                this.gzip = Some(gzip);
                read
            }
        };
        if let Poll::Ready(Ok(count)) = read {
            this.bytes += count as u64;
            if this.bytes > this.max_bytes {
                return Poll::Ready(Err(BodyError::TooLarge.into()));
            }
        }
        read
    }
}

impl<S> Drop for Body<'_, S> {
    /// Leaves what belongs to the next request.
    fn drop(&mut self) {
        self.raw.drain(..self.at.min(self.raw.len()));
    }
}
