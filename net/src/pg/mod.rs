//! PostgreSQL's protocol, version 3.0, from the server's side. Generic over the stream, so that it runs over
//! a socket of any runtime and, in tests, over a pipe in memory.
//!
//! | module | holds |
//! |---|---|
//! | [`frame`] | what comes in: bounds and decoding |
//! | [`out`], [`value`] | what goes out: messages and cells |
//! | [`params`] | parameter values on their way in |
//! | [`startup`] | the first packet, the greeting |
//! | [`cancel`] | cancel requests, shutting down |
//! | [`io`] | reading, and when to flush |
//! | `simple`, `extended` | the two ways to run statements |

pub mod cancel;
mod extended;
pub mod frame;
pub mod io;
pub mod out;
pub mod params;
mod simple;
pub mod startup;
pub mod value;

use crate::counters::StatementKind;
use crate::glue::watch::Watch;
use crate::glue::{Rows, Tag};
use crate::session::{Session, SessionContext};
use extended::{Portal, Prepared};
use frame::{Input, Message, Next};
use futures_lite::{AsyncRead, AsyncWrite};
use hashbrown::HashMap;
use io::{FLUSH_BYTES, Fail, Heard, Io};
use out::{Formats, Severity};
use std::rc::Rc;
use strandline_core::error::{Error, SqlState};

/// Rows encoded before others may run: some dozen µs of work.
const ROWS_PER_BREATH: usize = 64;

/// Serves one connection to its end. A panic inside is the caller's to catch; everything else ends here.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, cx: Rc<SessionContext>) {
    // Over the limit the client is still heard out: it may bring a cancel request, and it gets a proper error.
    let permit = cx.admission.admit();
    let mut io = Io::new(stream, cx.counters.clone());
    let mut input = Input::default();
    let ended = match startup::run(&mut io, &mut input, &cx, permit.as_ref().err()).await {
        Ok(Some(session)) => {
            let mut connection = Connection {
                io,
                session,
                statements: HashMap::new(),
                portals: HashMap::new(),
                skipping: false,
            };
            let ended = connection.run(&mut input).await;
            io = connection.io;
            ended
        }
        Ok(None) => Ok(()),
        Err(Fail::Io(e)) => Err(e),
        Err(Fail::Sql(e)) => {
            io.out.error(Severity::Fatal, &e);
            Ok(())
        }
    };
    let ended = match ended {
        Ok(()) => io.close().await,
        Err(e) => Err(e),
    };
    if let Err(e) = ended {
        // Clients come and go; a lost line is no event.
        tracing::debug!("a PostgreSQL connection ended: {e}");
    }
}

struct Connection<S> {
    io: Io<S>,
    session: Session,
    statements: HashMap<String, Rc<Prepared>>,
    portals: HashMap<String, Portal>,
    /// An extended query failed: everything up to Sync is passed over.
    skipping: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self, input: &mut Input) -> std::io::Result<()> {
        let max_body = self.session.context().limits().statement_bytes as usize;
        loop {
            let next = match input.next(max_body) {
                Ok(next) => next,
                Err(e) => {
                    self.fatal(&e);
                    return Ok(());
                }
            };
            let go_on = match next {
                Next::More => {
                    self.io.flush().await?;
                    let cancel = self.session.registered().cancel.clone();
                    match self.io.hear(input, &cancel).await? {
                        Heard::Bytes => true,
                        Heard::End => return Ok(()),
                        Heard::Closing => {
                            self.fatal(&Error::new(
                                SqlState::AdminShutdown,
                                "terminating connection due to administrator command",
                            ));
                            false
                        }
                    }
                }
                Next::TooLarge(kind, bytes) if frame::known(kind) => {
                    let e = self.session.context().limits().exceeded(
                        "statement_bytes",
                        SqlState::ProgramLimitExceeded,
                        format!("a message of {bytes} bytes"),
                    );
                    self.settle(kind, Err(Fail::Sql(e)))?;
                    true
                }
                Next::Frame(kind, body) if frame::known(kind) => self.frame(kind, body).await?,
                Next::Frame(kind, _) | Next::TooLarge(kind, _) => {
                    let e = frame::protocol(format!("invalid frontend message type {kind}"));
                    self.fatal(&e);
                    false
                }
            };
            if !go_on {
                return Ok(());
            }
        }
    }

    /// Handles one frame; false when the conversation is over.
    async fn frame(&mut self, kind: u8, body: &[u8]) -> std::io::Result<bool> {
        if self.skipping && !matches!(kind, b'S' | b'X') {
            return Ok(true);
        }
        let done = match frame::decode(kind, body) {
            Ok(Message::Terminate) => return Ok(false),
            Ok(message) => self.message(message).await,
            Err(e) => Err(Fail::Sql(e)),
        };
        self.settle(kind, done)?;
        if self.io.out.buf.len() >= FLUSH_BYTES {
            self.io.flush().await?;
        }
        Ok(true)
    }

    async fn message(&mut self, message: Message<'_>) -> Result<(), Fail> {
        match message {
            Message::Query(text) => self.simple(text).await?,
            Message::Parse { name, text, types } => self.parse(name, text, types)?,
            Message::Bind {
                portal,
                statement,
                formats,
                params,
                results,
            } => self.bind(portal, statement, formats, &params, results)?,
            Message::Describe(target) => self.describe(target)?,
            Message::Execute { portal, max_rows } => self.execute(portal, max_rows).await?,
            Message::Close(target) => self.close_target(target),
            // Also asks for the rest to be sent, which happens before the next wait.
            Message::Flush => self.io.due = true,
            Message::Sync => {
                self.skipping = false;
                if self.session.is_idle() {
                    self.portals.clear();
                }
                self.ready();
            }
            Message::Terminate | Message::Copy => {}
            Message::FunctionCall => {
                return Err(
                    Error::unsupported("the function call message is not supported")
                        .hint("use a query")
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// What an error means for the messages that follow.
    fn settle(&mut self, kind: u8, done: Result<(), Fail>) -> std::io::Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(Fail::Io(e)) => Err(e),
            Err(Fail::Sql(e)) => {
                self.report(&e);
                match kind {
                    b'Q' | b'F' => self.ready(),
                    // A Sync that fails is still the end of the skipping.
                    b'S' => {
                        self.skipping = false;
                        self.ready();
                    }
                    b'd' | b'c' | b'f' | b'X' => {}
                    _ => self.skipping = true,
                }
                Ok(())
            }
        }
    }

    fn ready(&mut self) {
        let out = &mut self.io.out;
        self.session
            .settings
            .untold(|name, value| out.parameter_status(name, value));
        out.ready(self.session.status());
        self.io.due = true;
    }

    /// Tells the client of an error; an open block fails.
    fn report(&mut self, e: &Error) {
        self.session.context().counters.error(e.state());
        if matches!(
            e.state(),
            SqlState::InternalError | SqlState::DataCorrupted | SqlState::IoError
        ) {
            tracing::error!("a statement failed: {e}");
        }
        self.send_notices();
        self.io.out.error(Severity::Error, e);
        self.session.fail();
    }

    fn fatal(&mut self, e: &Error) {
        self.session.context().counters.error(e.state());
        self.io.out.error(Severity::Fatal, e);
    }

    fn send_notices(&mut self) {
        for notice in std::mem::take(&mut self.session.notices) {
            if self.session.settings.wants(&notice) {
                self.io.out.notice(&notice);
            }
        }
    }

    /// Ends a statement: its notices and its tag.
    fn complete(&mut self, tag: Tag, sent: u64) {
        self.send_notices();
        match tag {
            Tag::Words(words) => self.io.out.complete(words),
            Tag::Count(words, n) => self.io.out.complete_count(words, n),
            Tag::RowsSent(words) => self.io.out.complete_count(words, sent),
            Tag::Empty => self.io.out.bare(b'I'),
        }
    }

    /// Sends up to `max` rows as they come; whether the rows ended, and how many were sent.
    async fn send_rows(
        &mut self,
        watch: &mut Watch,
        rows: &mut Rows,
        formats: &Formats,
        max: u64,
    ) -> Result<(bool, u64), Fail> {
        let columns = rows.columns().clone();
        let mut sent = 0;
        while sent < max {
            if !self.io.wait(watch.run(rows.ready())).await?? {
                return Ok((true, sent));
            }
            let (chunk, range) = rows.here();
            let wanted = usize::try_from(max - sent).unwrap_or(usize::MAX);
            let n = range.len().min(wanted).min(ROWS_PER_BREATH);
            for row in range.start..range.start + n {
                self.io.out.data_row(&columns, formats, chunk, row)?;
            }
            rows.advance(n);
            sent += n as u64;
            self.io.due = true;
            if self.io.out.buf.len() >= FLUSH_BYTES {
                self.io.flush().await?;
            }
            let tasks = &self.session.context().tasks;
            if tasks.should_yield() {
                tasks.yield_if_needed().await;
            }
        }
        Ok((false, sent))
    }

    fn count(&self, kind: StatementKind, began_ns: u64) {
        let cx = self.session.context();
        let us = cx.engine.monotonic_ns().saturating_sub(began_ns) / 1000;
        cx.counters.statement(kind, us);
    }
}

/// Any bytes as a start-up packet, as frames and as parameter values: none may panic. For the fuzzer.
pub fn fuzz_entry(bytes: &[u8]) {
    let _ = startup::decode(bytes);
    let mut input = Input::default();
    input.push(bytes);
    let _ = input.next_startup();
    let mut input = Input::default();
    input.push(bytes);
    while let Ok(Next::Frame(kind, body)) = input.next(1 << 20) {
        let Ok(message) = frame::decode(kind, body) else {
            continue;
        };
        if let Message::Bind {
            params, formats, ..
        } = message
        {
            for (i, value) in params.iter().enumerate() {
                let format = formats.get(i).unwrap_or(1);
                for oid in [16, 20, 21, 23, 25, 700, 701, 1082, 1114, 1184, 1700, 2950] {
                    let _ = params::decode(i + 1, oid, true, format, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
