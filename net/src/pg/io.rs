//! The line to the client: what goes out, and when it is flushed.

use super::frame::Input;
use super::out::Output;
use crate::counters::Counters;
use crate::pg::cancel::Cancel;
use futures_lite::future::{poll_fn, poll_once};
use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use strandline_core::error::Error;

/// Past so many bytes the buffer is sent before more is put in.
pub const FLUSH_BYTES: usize = 64 * 1024;
/// A buffer that one large row made bigger than this is given back.
const KEEP_BYTES: usize = 4 * FLUSH_BYTES;

/// Why a step of a conversation ended.
#[derive(Debug)]
pub enum Fail {
    /// The client is told, and the session goes on.
    Sql(Error),
    /// The line is gone.
    Io(io::Error),
}

impl From<Error> for Fail {
    fn from(e: Error) -> Self {
        Fail::Sql(e)
    }
}
impl From<io::Error> for Fail {
    fn from(e: io::Error) -> Self {
        Fail::Io(e)
    }
}

/// What came of waiting for the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Bytes.
    Bytes,
    /// The client is gone.
    End,
    /// The server goes down.
    Closing,
}

/// The line.
pub struct Io<S> {
    stream: S,
    /// What goes out next.
    pub out: Output,
    /// Something in `out` is worth sending before a wait: a finished reply, or rows.
    pub due: bool,
    counters: Arc<Counters>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    /// Nothing sent yet.
    pub fn new(stream: S, counters: Arc<Counters>) -> Self {
        Io {
            stream,
            out: Output::default(),
            due: false,
            counters,
        }
    }

    /// Sends everything, with one write where the line takes it.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.due = false;
        if self.out.buf.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.out.buf).await?;
        self.stream.flush().await?;
        let sent = self.out.buf.len() as u64;
        self.counters.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        if self.out.buf.capacity() > KEEP_BYTES {
            self.out.buf = Vec::new();
        } else {
            self.out.buf.clear();
        }
        Ok(())
    }

    /// Waits for `work`. When it does not finish at once, the client first gets what is due to it.
    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> io::Result<T> {
        let mut work = pin!(work);
        if let Some(done) = poll_once(work.as_mut()).await {
            return Ok(done);
        }
        if self.due {
            self.flush().await?;
        }
        Ok(work.await)
    }

    /// Reads more; ends when the server goes down, too.
    pub async fn hear(&mut self, input: &mut Input, cancel: &Cancel) -> io::Result<Heard> {
        let n = poll_fn(|cx| {
            if let Poll::Ready(n) = input.poll_fill(cx, &mut self.stream) {
                return Poll::Ready(n.map(Some));
            }
            cancel.poll_closing(cx).map(|()| Ok(None))
        })
        .await?;
        let Some(n) = n else {
            return Ok(Heard::Closing);
        };
        self.counters
            .received_bytes
            .fetch_add(n as u64, Ordering::Relaxed);
        Ok(if n == 0 { Heard::End } else { Heard::Bytes })
    }

    /// Sends what is left and says that nothing more comes.
    pub async fn close(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.stream.close().await
    }
}
