//! Bytes of a connection between the socket and the parser. The parser sees a *region*: everything up to
//! the last newline that has come, so that it never meets the end of the input within a line.

use super::bad::{BadLine, Reason, bad};
use memchr::{memchr, memrchr};

/// What one read asks for: at first, so that thousands of quiet connections stay small…
const FIRST_READ_BYTES: usize = 8 << 10;
/// …and at most, for a connection whose reads come back full.
const READ_BYTES: usize = 256 << 10;

/// Input that is not parsed yet.
#[derive(Debug)]
pub struct LineBuffer {
    data: Vec<u8>,
    /// First byte that is not parsed.
    start: usize,
    /// One past the last newline.
    region: usize,
    /// One past the last byte that came.
    end: usize,
    /// The region is UTF-8 without NUL, so its lines need no check of their own.
    clean: bool,
    /// The input has ended: nothing that is open can be closed any more.
    ended: bool,
    /// Within a line that is too long: bytes are dropped until its newline.
    skipping: bool,
    line_bytes: usize,
    read_bytes: usize,
    read_bytes_max: usize,
}

impl LineBuffer {
    /// For lines of at most `line_bytes` bytes.
    pub fn new(line_bytes: u64) -> Self {
        LineBuffer {
            data: Vec::new(),
            start: 0,
            region: 0,
            end: 0,
            clean: true,
            ended: false,
            skipping: false,
            line_bytes: line_bytes as usize,
            read_bytes: FIRST_READ_BYTES,
            read_bytes_max: READ_BYTES,
        }
    }

    /// Bounds what a read asks for, within what a read of any stream asks for.
    pub(crate) fn bound_reads(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(READ_BYTES);
        self.read_bytes_max = bytes.clamp(FIRST_READ_BYTES, READ_BYTES);
        self.read_bytes = self.read_bytes.min(self.read_bytes_max);
    }

    /// Gives memory back while there is nothing to keep: of thousands of connections most are quiet.
    pub(crate) fn rest(&mut self) {
        if self.start == self.end {
            (self.start, self.region, self.end) = (0, 0, 0);
            self.data = Vec::new();
            self.read_bytes = FIRST_READ_BYTES;
        }
    }

    /// Room for the next read.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.region, self.end) = (0, 0, 0);
        } else if self.start >= self.end - self.start {
            // What is left moves over bytes that are done with, so a byte moves only a few times.
            self.data.copy_within(self.start..self.end, 0);
            self.region -= self.start;
            self.end -= self.start;
            self.start = 0;
        }
        if self.data.len() - self.end < self.read_bytes {
            self.data.resize(self.end + self.read_bytes, 0);
        }
        &mut self.data[self.end..]
    }

    /// Takes over `count` bytes that were read into [`LineBuffer::space`].
    pub fn filled(&mut self, count: usize) {
        if count >= self.data.len() - self.end {
            self.read_bytes = (self.read_bytes * 2).min(self.read_bytes_max);
        }
        let mut from = self.end;
        self.end = (self.end + count).min(self.data.len());
        if self.skipping {
            match memchr(b'\n', &self.data[from..self.end]) {
                Some(newline) => {
                    from += newline + 1;
                    self.skipping = false;
                    (self.start, self.region) = (from, from);
                }
                None => {
                    (self.start, self.region, self.end) = (0, 0, 0);
                    return;
                }
            }
        }
        if let Some(newline) = memrchr(b'\n', &self.data[from..self.end]) {
            self.grow_region(from + newline + 1);
        }
    }

    fn grow_region(&mut self, to: usize) {
        let new = &self.data[self.region..to];
        let clean = memchr(0, new).is_none() && std::str::from_utf8(new).is_ok();
        self.clean = clean && (self.clean || self.start == self.region);
        self.region = to;
    }

    /// The input has ended well: a last line without a newline is whole.
    pub fn finish(&mut self) {
        self.ended = true;
        if self.end > self.region && !self.skipping {
            self.data.truncate(self.end);
            self.data.push(b'\n');
            self.end += 1;
            self.grow_region(self.end);
        }
    }

    /// Takes bytes as one read would; for input that is in memory.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// All complete lines, parsed ones too.
    pub(crate) fn region(&self) -> &[u8] {
        &self.data[..self.region]
    }
    /// Where the first line that is not parsed begins.
    pub(crate) fn start(&self) -> usize {
        self.start
    }
    /// Whether the region is UTF-8 without NUL.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean
    }
    /// Everything before `to` is parsed.
    pub(crate) fn advance(&mut self, to: usize) {
        self.start = to.min(self.region);
    }
    /// Whether a line that is not whole in the region can still become whole.
    pub(crate) fn can_grow(&self) -> bool {
        !self.ended && self.end - self.start <= self.line_bytes
    }
    /// The limit.
    pub(crate) fn line_bytes(&self) -> usize {
        self.line_bytes
    }

    /// When no line is whole and the one that has begun is too long already: drops it, to its newline.
    pub(crate) fn drop_long_line(&mut self, report: &mut dyn FnMut(BadLine, &[u8])) {
        if self.start < self.region || self.end - self.start <= self.line_bytes {
            return;
        }
        report(too_long(self.line_bytes), &self.data[self.start..self.end]);
        self.skipping = true;
        (self.start, self.region, self.end) = (0, 0, 0);
    }
}

#[cold]
pub(crate) fn too_long(line_bytes: usize) -> BadLine {
    bad(
        Reason::TooLong,
        format_args!("the line is over the limit ilp_line_bytes = {line_bytes}"),
    )
}

#[cfg(test)]
impl LineBuffer {
    /// Memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.data.capacity()
    }
}
