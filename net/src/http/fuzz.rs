//! Bodies out of memory, for fuzzing and tests.

use super::body::{Body, BodyError};
use super::head::{BodyLength, Encoding};
use futures_lite::{AsyncRead, AsyncReadExt};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use strandline_core::io::{LocalFuture, TaskQueue, Tasks};

/// Bytes that come so many at a time, and then an end.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let count = self.bytes.len().min(self.piece).min(buf.len());
        let (now, later) = self.bytes.split_at(count);
        buf[..count].copy_from_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(count))
    }
}

/// Nothing here waits.
struct Still;

impl Tasks for Still {
    fn spawn(&self, _: TaskQueue, _: LocalFuture<'static, ()>) {}
    fn yield_if_needed(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    fn should_yield(&self) -> bool {
        false
    }
    fn sleep(&self, _: Duration) -> LocalFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// The bytes of a body that comes in pieces of `piece` bytes, and how many of `input` are its own.
///
/// # Errors
/// What is wrong with it; [`BodyError::Cut`] when it does not end.
pub fn body(
    input: &[u8],
    (length, encoding): (BodyLength, Encoding),
    piece: usize,
    max_bytes: u64,
) -> Result<(Vec<u8>, usize), BodyError> {
    let piece = piece.max(1);
    let mut stream = Pieces {
        bytes: input,
        piece,
    };
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    let mut buf = vec![0; piece.min(4096)];
    let mut body = Body::new(
        &mut stream,
        &mut raw,
        (length, encoding),
        max_bytes,
        &Still,
        Duration::ZERO,
    );
    let read = futures_lite::future::block_on(async {
        loop {
            match body.read(&mut buf).await {
                Ok(0) => return Ok(()),
                Ok(count) => out.extend_from_slice(&buf[..count]),
                Err(e) => return Err(BodyError::of(&e)),
            }
        }
    });
    drop(body);
    read.map(|()| (out, input.len() - stream.bytes.len() - raw.len()))
}
