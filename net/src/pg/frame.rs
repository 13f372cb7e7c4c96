//! Frames from the client: bounded reading and decoding without copies. Written by hand because the codec
//! of `pgwire` indexes past the end of a frame that lies about its lengths and replaces bytes that are not
//! UTF-8; here both are errors. The tests use `pgwire` as the other end of the line.

use futures_lite::AsyncRead;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use strandline_core::error::{Error, Result, SqlState};

/// The largest start-up packet (PostgreSQL: `MAX_STARTUP_PACKET_LENGTH`).
pub const STARTUP_BYTES: usize = 10_000;
/// No frame may claim more than this (PostgreSQL: `PQ_LARGE_MESSAGE_LIMIT`, 1 GiB − 1).
const FRAME_BYTES: usize = 0x3fff_ffff;
/// Room that is kept for reading; what one read takes at most unless a frame needs more.
const READ_BYTES: usize = 16 * 1024;
/// A buffer that grew past this for one frame is given back once it is empty.
const KEEP_BYTES: usize = 1024 * 1024;

/// Received bytes that are not used yet.
#[derive(Debug, Default)]
pub struct Input {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of a frame that was refused for its size, still to come.
    discard: usize,
}

/// What stands next in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole frame: type and body.
    Frame(u8, &'a [u8]),
    /// A frame over the limit, of so many bytes; it is passed over.
    TooLarge(u8, usize),
    /// Nothing whole yet: read more.
    More,
}

impl Input {
    fn have(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or(&[])
    }

    /// The next frame, if it is there whole. `max_body` bounds its body.
    pub fn next(&mut self, max_body: usize) -> Result<Next<'_>> {
        if self.discard > 0 {
            return Ok(Next::More);
        }
        let have = self.have();
        let Some((&kind, rest)) = have.split_first() else {
            return Ok(Next::More);
        };
        let Some(len) = rest
            .first_chunk::<4>()
            .map(|l| u32::from_be_bytes(*l) as usize)
        else {
            return Ok(Next::More);
        };
        if !(4..=FRAME_BYTES).contains(&len) {
            return Err(protocol(format!("invalid message length {len}")));
        }
        let body = len - 4;
        if body > max_body {
            let there = (have.len() - 5).min(body);
            self.start += 5 + there;
            self.discard = body - there;
            return Ok(Next::TooLarge(kind, body));
        }
        if have.len() < 5 + body {
            return Ok(Next::More);
        }
        let from = self.start + 5;
        self.start = from + body;
        Ok(Next::Frame(kind, &self.buf[from..from + body]))
    }

    /// The body of the start-up packet (length taken off), if it is there whole.
    pub fn next_startup(&mut self) -> Result<Option<&[u8]>> {
        let have = self.have();
        let Some(len) = have
            .first_chunk::<4>()
            .map(|l| u32::from_be_bytes(*l) as usize)
        else {
            return Ok(None);
        };
        if !(8..=STARTUP_BYTES).contains(&len) {
            return Err(protocol("invalid length of startup packet"));
        }
        if have.len() < len {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start += len;
        Ok(Some(&self.buf[from..from + len - 4]))
    }

    /// Whether a byte has come that is not used yet.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once; 0 at the end of the stream. The buffer grows with what has come, never with what a
    /// length field promises.
    pub fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buf.len() > KEEP_BYTES {
                self.buf = Vec::new();
            }
        }
        if self.buf.len() - self.end < READ_BYTES / 2 {
            if self.start > 0 {
                self.buf.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            if self.buf.len() - self.end < READ_BYTES / 2 {
                let target = (self.buf.len() * 2).max(READ_BYTES);
                self.buf.resize(target, 0);
            }
        }
        let n = ready!(Pin::new(stream).poll_read(cx, &mut self.buf[self.end..]))?;
        if self.discard > 0 {
            // `discard` is only set when everything before it was used up.
            let dropped = n.min(self.discard);
            self.discard -= dropped;
            self.start += dropped;
        }
        self.end += n;
        Poll::Ready(Ok(n))
    }

    /// Puts bytes in as if they had been read: for the fuzzer and the tests.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buf.truncate(self.end);
        self.buf.extend_from_slice(bytes);
        self.end = self.buf.len();
    }
}

/// `08P01`.
pub fn protocol(message: impl Into<String>) -> Error {
    Error::new(SqlState::ProtocolViolation, message)
}

/// Reads the fields of one body.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.0.split_at_checked(n) {
            Some((a, b)) => {
                self.0 = b;
                Ok(a)
            }
            None => Err(protocol("insufficient data left in message")),
        }
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.0.split_first_chunk::<N>() {
            Some((a, b)) => {
                self.0 = b;
                Ok(*a)
            }
            None => Err(protocol("insufficient data left in message")),
        }
    }
    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// A count: PostgreSQL's Int16, read without sign.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    /// Int32.
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }
    /// Bytes up to a NUL, which must be UTF-8.
    pub fn text(&mut self) -> Result<&'a str> {
        let Some(nul) = memchr::memchr(0, self.0) else {
            return Err(protocol("invalid string in message"));
        };
        let bytes = self.bytes(nul)?;
        self.0 = self.0.get(1..).unwrap_or(&[]);
        utf8(bytes)
    }
    /// Nothing may be left.
    pub fn end(self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(protocol("invalid message format"))
        }
    }
}

/// Text that came from the client: `22021` when it is not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        let byte = bytes.get(at).copied().unwrap_or(0);
        Error::new(
            SqlState::CharacterNotInRepertoire,
            format!("invalid byte sequence for encoding \"UTF8\": 0x{byte:02x} at byte {at}"),
        )
    })
}

/// A list of 16-bit format codes, still as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes<'a>(&'a [u8]);

impl Codes<'_> {
    /// How many.
    pub fn count(self) -> usize {
        self.0.len() / 2
    }
    /// The i-th.
    pub fn get(self, i: usize) -> Option<u16> {
        let b = self.0.get(i * 2..i * 2 + 2)?;
        Some(u16::from_be_bytes([b[0], b[1]]))
    }
}

/// A list of type numbers, still as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a>(&'a [u8]);

impl<'a> Oids<'a> {
    /// One after the other.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.0
            .chunks_exact(4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }
}

/// Parameter values, checked and still as they came.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    count: usize,
    reader: Reader<'a>,
}

impl<'a> Params<'a> {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }
    /// One after the other; `None` for NULL.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + 'a {
        let mut reader = self.reader;
        (0..self.count).map_while(move |_| one_param(&mut reader).ok())
    }
}

fn one_param<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>> {
    match reader.i32()? {
        -1 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) => reader.bytes(n).map(Some),
            Err(_) => Err(protocol(format!("invalid length {n} of a parameter"))),
        },
    }
}

/// What Describe and Close are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A prepared statement.
    Statement(&'a str),
    /// A portal.
    Portal(&'a str),
}

/// A message of the normal phase.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Simple query.
    Query(&'a str),
    /// Makes a prepared statement.
    Parse {
        /// Its name; empty: the unnamed one.
        name: &'a str,
        /// Its text.
        text: &'a str,
        /// Types that the client declares; 0: not declared.
        types: Oids<'a>,
    },
    /// Makes a portal.
    Bind {
        /// Its name; empty: the unnamed one.
        portal: &'a str,
        /// Of which statement.
        statement: &'a str,
        /// Formats of the parameters.
        formats: Codes<'a>,
        /// The parameters.
        params: Params<'a>,
        /// Formats of the answer's columns.
        results: Codes<'a>,
    },
    /// Asks for the shape of a statement or portal.
    Describe(Target<'a>),
    /// Runs a portal.
    Execute {
        /// Which.
        portal: &'a str,
        /// At most so many rows; ≤ 0: all.
        max_rows: i32,
    },
    /// Drops a statement or portal.
    Close(Target<'a>),
    /// Send what there is.
    Flush,
    /// Ends an extended query.
    Sync,
    /// Good bye.
    Terminate,
    /// Messages of COPY, which are ignored outside of one, as PostgreSQL does.
    Copy,
    /// The long obsolete function call.
    FunctionCall,
}

/// Decodes the body of a frame. An unknown type is `08P01`, after which the line cannot be trusted.
pub fn decode(kind: u8, body: &[u8]) -> Result<Message<'_>> {
    let mut r = Reader(body);
    let message = match kind {
        b'Q' => Message::Query(r.text()?),
        b'P' => {
            let (name, text) = (r.text()?, r.text()?);
            let n = usize::from(r.u16()?);
            let types = Oids(r.bytes(n * 4)?);
            Message::Parse { name, text, types }
        }
        b'B' => {
            let (portal, statement) = (r.text()?, r.text()?);
            let n = usize::from(r.u16()?);
            let formats = Codes(r.bytes(n * 2)?);
            let count = usize::from(r.u16()?);
            let params = Params { count, reader: r };
            for _ in 0..count {
                one_param(&mut r)?;
            }
            let n = usize::from(r.u16()?);
            let results = Codes(r.bytes(n * 2)?);
            Message::Bind {
                portal,
                statement,
                formats,
                params,
                results,
            }
        }
        b'D' => Message::Describe(target(&mut r)?),
        b'E' => Message::Execute {
            portal: r.text()?,
            max_rows: r.i32()?,
        },
        b'C' => Message::Close(target(&mut r)?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => return Ok(Message::Terminate),
        b'd' | b'c' | b'f' => return Ok(Message::Copy),
        b'F' => return Ok(Message::FunctionCall),
        other => return Err(protocol(format!("invalid frontend message type {other}"))),
    };
    r.end()?;
    Ok(message)
}

/// Whether a frame of this type can stand in the normal phase at all.
pub fn known(kind: u8) -> bool {
    b"QPBDECHSXdcfF".contains(&kind)
}

fn target<'a>(r: &mut Reader<'a>) -> Result<Target<'a>> {
    let kind = r.u8()?;
    let name = r.text()?;
    match kind {
        b'S' => Ok(Target::Statement(name)),
        b'P' => Ok(Target::Portal(name)),
        other => Err(protocol(format!(
            "invalid DESCRIBE or CLOSE message subtype {other}"
        ))),
    }
}
