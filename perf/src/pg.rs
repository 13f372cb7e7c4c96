//! A small blocking client of the PostgreSQL protocol, so that the client's own cost stays small beside what
//! is measured.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;

/// A connection.
pub struct Pg {
    stream: TcpStream,
    chunk: Box<[u8]>,
    /// What has come and is not yet taken: from `at` on.
    input: Vec<u8>,
    at: usize,
    answer: Answer,
    error: Option<String>,
}

/// What a statement answered.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Rows of text cells.
    pub rows: Vec<Vec<Option<String>>>,
    /// The last tag.
    pub tag: String,
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut m = Vec::with_capacity(body.len() + 5);
    m.push(kind);
    m.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    m.extend_from_slice(body);
    m
}

impl Pg {
    /// Connects as `perf` to `main`.
    pub fn connect(address: &str) -> Result<Pg> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut pg = Pg {
            stream,
            chunk: vec![0; 65_536].into(),
            input: Vec::new(),
            at: 0,
            answer: Answer::default(),
            error: None,
        };
        let mut body = 196_608u32.to_be_bytes().to_vec();
        body.extend_from_slice(b"user\0perf\0database\0main\0options\0-c insert_returns=none\0\0");
        let mut start = (body.len() as u32 + 4).to_be_bytes().to_vec();
        start.extend_from_slice(&body);
        pg.send(&start)?;
        pg.finish()?;
        Ok(pg)
    }

    /// Its socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends messages made by [`query_message`] or [`execute_message`].
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.stream.write_all(message)
    }

    /// Reads once, and takes what has come whole; whether the answer has ended.
    pub fn receive(&mut self) -> Result<bool> {
        self.input.drain(..self.at);
        self.at = 0;
        let n = self.stream.read(&mut self.chunk)?;
        if n == 0 {
            return Err(Error::other("the server closed the connection"));
        }
        self.input.extend_from_slice(&self.chunk[..n]);
        loop {
            let left = &self.input[self.at..];
            let Some(len) = left
                .get(1..5)
                .map(|l| u32::from_be_bytes([l[0], l[1], l[2], l[3]]) as usize)
                .filter(|&len| left.len() > len)
            else {
                return Ok(false);
            };
            let (kind, body) = (left[0], &left[5..len + 1]);
            match kind {
                b'D' => self.answer.rows.push(cells(body)),
                b'C' => {
                    let tag = body.split_last().map_or(&[][..], |(_, t)| t);
                    self.answer.tag = String::from_utf8_lossy(tag).into();
                }
                b'E' => self.error = Some(String::from_utf8_lossy(body).replace('\0', " ")),
                _ => {}
            }
            self.at += len + 1;
            if kind == b'Z' {
                return match self.error.take() {
                    Some(e) => Err(Error::other(e)),
                    None => Ok(true),
                };
            }
        }
    }

    /// Reads up to ReadyForQuery.
    fn finish(&mut self) -> Result<Answer> {
        self.answer = Answer::default();
        while !self.receive()? {}
        Ok(std::mem::take(&mut self.answer))
    }

    /// A simple query.
    pub fn query(&mut self, sql: &str) -> Result<Answer> {
        self.send(&query_message(sql))?;
        self.finish()
            .map_err(|e| Error::other(format!("{}: {e}", sql.get(..120).unwrap_or(sql))))
    }

    /// The one number that a query answers.
    pub fn number(&mut self, sql: &str) -> Result<f64> {
        let answer = self.query(sql)?;
        let cell = answer
            .rows
            .first()
            .and_then(|r| r.first().cloned().flatten());
        cell.and_then(|c| c.parse().ok())
            .ok_or_else(|| Error::other(format!("{sql}: no number")))
    }

    /// Prepares a statement.
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        let mut body = format!("{name}\0{sql}\0").into_bytes();
        body.extend_from_slice(&[0, 0]);
        let mut m = message(b'P', &body);
        m.extend(message(b'S', &[]));
        self.send(&m)?;
        self.finish().map(drop)
    }
}

/// A simple query.
pub fn query_message(sql: &str) -> Vec<u8> {
    let mut body = sql.as_bytes().to_vec();
    body.push(0);
    message(b'Q', &body)
}

/// Executes a prepared statement with text parameters.
pub fn execute_message(name: &str, params: &[&str]) -> Vec<u8> {
    let mut body = format!("\0{name}\0").into_bytes();
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(&(params.len() as u16).to_be_bytes());
    for p in params {
        body.extend_from_slice(&(p.len() as u32).to_be_bytes());
        body.extend_from_slice(p.as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    let mut m = message(b'B', &body);
    m.extend(message(b'E', &[0, 0, 0, 0, 0]));
    m.extend(message(b'S', &[]));
    m
}

fn cells(body: &[u8]) -> Vec<Option<String>> {
    let mut at = 2;
    let mut row = Vec::new();
    while at + 4 <= body.len() {
        let len = i32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        at += 4;
        if len < 0 {
            row.push(None);
            continue;
        }
        row.push(Some(
            String::from_utf8_lossy(&body[at..at + len as usize]).into(),
        ));
        at += len as usize;
    }
    row
}
