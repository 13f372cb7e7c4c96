//! Messages to the client, written straight into the buffer that goes out.

use super::value::{put_cell, put_datum, put_xid};
use crate::glue::{Chunk, Notice};
use strandline_core::error::{Error, Result, SqlState};
use strandline_sql::plan::{OutputColumn, OutputSource};
use strandline_sql::types::{SqlType, check_width};

/// What clients take for one message; its length field could say twice as much.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// How wide a result column goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formats {
    /// All as text, or all binary.
    All {
        /// Binary?
        binary: bool,
    },
    /// For each column, whether it is binary.
    Each(Box<[bool]>),
}

impl Formats {
    /// What a simple query gets.
    pub const TEXT: Formats = Formats::All { binary: false };

    /// Whether column `i` is binary.
    pub fn binary(&self, i: usize) -> bool {
        match self {
            Formats::All { binary } => *binary,
            Formats::Each(each) => each.get(i).copied().unwrap_or(false),
        }
    }
}

/// Bytes on their way to the client.
#[derive(Debug, Default)]
pub struct Output {
    /// Whole messages.
    pub buf: Vec<u8>,
}

/// The severity of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
}

impl Output {
    fn begin(&mut self, kind: u8) -> usize {
        self.buf.push(kind);
        self.buf.extend_from_slice(&[0; 4]);
        self.buf.len()
    }

    /// Fills in the length of the message begun at `at`. A message is far below 4 GiB: its parts are
    /// bounded by the limits on statements, values and columns.
    fn end(&mut self, at: usize) {
        let len = (self.buf.len() - at + 4) as u32;
        if let Some(slot) = self.buf.get_mut(at - 4..at) {
            slot.copy_from_slice(&len.to_be_bytes());
        }
    }

    fn text(&mut self, s: &str) {
        // A NUL would end the field early and shift what follows.
        self.buf.extend(s.bytes().filter(|&b| b != 0));
        self.buf.push(0);
    }

    /// A message without a body.
    pub fn bare(&mut self, kind: u8) {
        self.buf.extend_from_slice(&[kind, 0, 0, 0, 4]);
    }

    /// AuthenticationOk.
    pub fn authentication_ok(&mut self) {
        self.buf.extend_from_slice(b"R\0\0\0\x08\0\0\0\0");
    }

    /// ParameterStatus.
    pub fn parameter_status(&mut self, name: &str, value: &str) {
        let at = self.begin(b'S');
        self.text(name);
        self.text(value);
        self.end(at);
    }

    /// BackendKeyData.
    pub fn backend_key(&mut self, pid: i32, secret: [u8; 4]) {
        let at = self.begin(b'K');
        self.buf.extend_from_slice(&pid.to_be_bytes());
        self.buf.extend_from_slice(&secret);
        self.end(at);
    }

    /// NegotiateProtocolVersion: the newest version spoken here, and the options not understood.
    pub fn negotiate(&mut self, options: &[&str]) {
        let at = self.begin(b'v');
        self.buf.extend_from_slice(&(3u32 << 16).to_be_bytes());
        self.buf
            .extend_from_slice(&(options.len() as u32).to_be_bytes());
        for o in options {
            self.text(o);
        }
        self.end(at);
    }

    /// ReadyForQuery.
    pub fn ready(&mut self, status: u8) {
        self.buf.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
    }

    /// CommandComplete.
    pub fn complete(&mut self, tag: &str) {
        let at = self.begin(b'C');
        self.text(tag);
        self.end(at);
    }

    /// CommandComplete with a count behind the words.
    pub fn complete_count(&mut self, words: &str, count: u64) {
        let at = self.begin(b'C');
        self.buf.extend_from_slice(words.as_bytes());
        self.buf.push(b' ');
        self.buf
            .extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        self.buf.push(0);
        self.end(at);
    }

    /// ErrorResponse.
    pub fn error(&mut self, severity: Severity, e: &Error) {
        let severity = match severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        let position = e.position().map(|p| p.to_string());
        self.report(
            b'E',
            severity,
            e.state().code(),
            e.message(),
            e.hint_text(),
            position.as_deref(),
        );
    }

    /// NoticeResponse.
    pub fn notice(&mut self, n: &Notice) {
        self.report(
            b'N',
            n.severity.name(),
            n.code,
            &n.message,
            n.hint.as_deref(),
            None,
        );
    }

    fn report(
        &mut self,
        kind: u8,
        severity: &str,
        code: &str,
        message: &str,
        hint: Option<&str>,
        position: Option<&str>,
    ) {
        let at = self.begin(kind);
        let fields = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(code)),
            (b'M', Some(message)),
            (b'H', hint),
            (b'P', position),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                self.buf.push(field);
                self.text(value);
            }
        }
        self.buf.push(0);
        self.end(at);
    }

    /// ParameterDescription.
    pub fn parameters(&mut self, oids: impl ExactSizeIterator<Item = u32>) {
        let at = self.begin(b't');
        self.buf
            .extend_from_slice(&(oids.len() as u16).to_be_bytes());
        for oid in oids {
            self.buf.extend_from_slice(&oid.to_be_bytes());
        }
        self.end(at);
    }

    /// RowDescription.
    pub fn row_description<'a>(
        &mut self,
        columns: impl ExactSizeIterator<Item = (&'a str, SqlType)>,
        formats: &Formats,
    ) -> Result<()> {
        check_width(columns.len())?;
        let at = self.begin(b'T');
        self.buf
            .extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (i, (name, ty)) in columns.enumerate() {
            self.text(name);
            // No table, no column number.
            self.buf.extend_from_slice(&[0; 6]);
            self.buf.extend_from_slice(&ty.oid().to_be_bytes());
            self.buf.extend_from_slice(&ty.len().to_be_bytes());
            self.buf.extend_from_slice(&(-1i32).to_be_bytes());
            let format = u16::from(formats.binary(i));
            self.buf.extend_from_slice(&format.to_be_bytes());
        }
        self.end(at);
        Ok(())
    }

    /// DataRow. On an error nothing of the row stays in the buffer.
    pub fn data_row(
        &mut self,
        columns: &[OutputColumn],
        formats: &Formats,
        chunk: &Chunk,
        row: usize,
    ) -> Result<()> {
        check_width(columns.len())?;
        let before = self.buf.len();
        let at = self.begin(b'D');
        self.buf
            .extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (i, column) in columns.iter().enumerate() {
            let binary = formats.binary(i);
            let put = match (&column.source, chunk) {
                (OutputSource::Const(d), _) => put_datum(&mut self.buf, column.ty, binary, d),
                (OutputSource::Column(c), Chunk::Batch(batch)) => match batch.columns.get(*c) {
                    Some(data) => put_cell(&mut self.buf, column.ty, binary, data.cell(row)),
                    None => Err(Error::internal(format!("no column {c} in the batch"))),
                },
                (OutputSource::Column(c), Chunk::Datums(rows)) => {
                    match rows.get(row).and_then(|r| r.get(*c)) {
                        Some(d) => put_datum(&mut self.buf, column.ty, binary, d),
                        None => Err(Error::internal(format!("no column {c} in the answer"))),
                    }
                }
                (OutputSource::Column(_), Chunk::Xids(rows)) => match rows.get(row) {
                    Some(r) => {
                        put_xid(&mut self.buf, r.xid);
                        Ok(())
                    }
                    None => Err(Error::internal("no such row in the answer")),
                },
            };
            if let Err(e) = put {
                self.buf.truncate(before);
                return Err(e);
            }
            if self.buf.len() - at > MESSAGE_BYTES_MAX {
                self.buf.truncate(before);
                let what = "a row of the answer is over 1 GiB, which no message can hold";
                return Err(Error::new(SqlState::ProgramLimitExceeded, what)
                    .hint("ask for fewer columns at a time"));
            }
        }
        self.end(at);
        Ok(())
    }
}
