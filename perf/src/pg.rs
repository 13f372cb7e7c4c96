//! A small blocking client of the PostgreSQL protocol, so that the client's own cost stays small beside what
//! is measured.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;

/// A connection.
pub struct Pg {
    stream: TcpStream,
    input: Vec<u8>,
    at: usize,
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
            input: Vec::new(),
            at: 0,
        };
        let mut body = 196_608u32.to_be_bytes().to_vec();
        body.extend_from_slice(b"user\0perf\0database\0main\0options\0-c insert_returns=none\0\0");
        let mut start = (body.len() as u32 + 4).to_be_bytes().to_vec();
        start.extend_from_slice(&body);
        pg.stream.write_all(&start)?;
        pg.finish()?;
        Ok(pg)
    }

    fn next(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            let left = &self.input[self.at..];
            if left.len() >= 5 {
                let len = u32::from_be_bytes([left[1], left[2], left[3], left[4]]) as usize;
                if left.len() > len {
                    let found = (left[0], left[5..len + 1].to_vec());
                    self.at += len + 1;
                    return Ok(found);
                }
            }
            self.input.drain(..self.at);
            self.at = 0;
            let mut chunk = [0u8; 65_536];
            let n = self.stream.read(&mut chunk)?;
            if n == 0 {
                return Err(Error::other("the server closed the connection"));
            }
            self.input.extend_from_slice(&chunk[..n]);
        }
    }

    /// Reads up to ReadyForQuery.
    fn finish(&mut self) -> Result<Answer> {
        let mut answer = Answer::default();
        let mut failed = None;
        loop {
            let (kind, body) = self.next()?;
            match kind {
                b'D' => answer.rows.push(cells(&body)),
                b'C' => {
                    answer.tag =
                        String::from_utf8_lossy(body.split_last().map_or(&[], |(_, t)| t)).into()
                }
                b'E' => failed = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'Z' => break,
                _ => {}
            }
        }
        failed.map_or(Ok(answer), |e| Err(Error::other(e)))
    }

    /// A simple query.
    pub fn query(&mut self, sql: &str) -> Result<Answer> {
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        self.stream.write_all(&message(b'Q', &body))?;
        self.finish()
    }

    /// Prepares a statement.
    pub fn prepare(&mut self, name: &str, sql: &str) -> Result<()> {
        let mut body = format!("{name}\0{sql}\0").into_bytes();
        body.extend_from_slice(&[0, 0]);
        let mut m = message(b'P', &body);
        m.extend(message(b'S', &[]));
        self.stream.write_all(&m)?;
        self.finish().map(drop)
    }

    /// Executes a prepared statement with text parameters.
    pub fn execute(&mut self, name: &str, params: &[&str]) -> Result<Answer> {
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
        self.stream.write_all(&m)?;
        self.finish()
    }
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
