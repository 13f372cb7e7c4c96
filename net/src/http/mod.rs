//! HTTP/1.1 for those who watch the server: `/health`, `/ready`, `/metrics`. Generic over the stream.
//!
//! | module | holds |
//! |---|---|
//! | [`head`] | requests: reading and bounding their heads |
//! | [`pages`] | what each path answers |
//! | [`metrics`] | `/metrics` |

pub mod head;
pub mod metrics;
pub mod pages;

#[cfg(test)]
mod tests;

use crate::admit::Admission;
use crate::counters::Counters;
use crate::ilp::IlpCounters;
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use head::{Request, Taken};
use pages::Response;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use strandline_core::io::{LocalFuture, Tasks};
use strandline_shard::api::Engine;

/// What the HTTP listeners count. Shared by all executors.
#[derive(Debug, Default)]
pub struct HttpCounters {
    /// Connections accepted.
    pub connections_total: AtomicU64,
    by_class: [AtomicU64; 6],
}

impl HttpCounters {
    fn answered(&self, status: u16) {
        let class = usize::from(status / 100).min(5);
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Answers so far by the first digit of their status, 2 to 5.
    pub fn answers(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (2..6).map(|class| (class, self.by_class[class].load(Ordering::Relaxed)))
    }
}

/// What the connections of one executor share.
#[derive(Clone)]
pub struct HttpContext {
    /// The engine.
    pub engine: Rc<dyn Engine>,
    /// For timeouts.
    pub tasks: Rc<dyn Tasks>,
    /// Shared by all executors.
    pub counters: Arc<HttpCounters>,
    /// The SQL front's.
    pub sql: Arc<Counters>,
    /// Line protocol's.
    pub ilp: Arc<IlpCounters>,
    /// Connections of the process.
    pub admission: Arc<Admission>,
}

/// Why reading stopped.
enum Heard {
    Bytes(usize),
    Ended,
    TooSlow,
}

/// Serves one connection to its end.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    cx: HttpContext,
    mut stop: LocalFuture<'_, ()>,
) {
    cx.counters
        .connections_total
        .fetch_add(1, Ordering::Relaxed);
    let limits = cx.engine.limits().clone();
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        // The whole head has to come within this, however it dribbles in.
        let mut deadline = cx.tasks.sleep(Duration::from_millis(limits.startup_ms));
        let request = loop {
            match head::take(&mut buffer, limits.http_head_bytes as usize) {
                Taken::Request(request) => break Ok(request),
                Taken::Bad(status) => break Err(Response::error(status)),
                Taken::More => {}
            }
            match hear(&mut stream, &mut buffer, &mut deadline, &mut stop).await {
                Heard::Bytes(_) => {}
                Heard::TooSlow if !buffer.is_empty() => break Err(Response::error(408)),
                Heard::Ended | Heard::TooSlow => return,
            }
        };
        let keep_alive = request.as_ref().is_ok_and(|r| r.keep_alive);
        let with_body = request.as_ref().map_or(true, |r| r.method != "HEAD");
        let response = match &request {
            Ok(request) => answer(&cx, request).await,
            Err(refusal) => refusal.clone(),
        };
        cx.counters.answered(response.status);
        let bytes = response.encode(keep_alive, with_body);
        let sent = async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        };
        let mut deadline = cx.tasks.sleep(Duration::from_millis(limits.startup_ms));
        let sent = futures_lite::future::or(async { sent.await.is_ok() }, async {
            deadline.as_mut().await;
            false
        })
        .await;
        if !sent || !keep_alive {
            let _ = stream.close().await;
            return;
        }
    }
}

async fn answer(cx: &HttpContext, request: &Request) -> Response {
    pages::answer(cx, &request.method, &request.path).await
}

async fn hear<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
    deadline: &mut LocalFuture<'_, ()>,
    stop: &mut LocalFuture<'_, ()>,
) -> Heard {
    let mut chunk = [0; 4096];
    let mut read = stream.read(&mut chunk);
    let heard = poll_fn(|cx| {
        if let Poll::Ready(read) = Pin::new(&mut read).poll(cx) {
            return Poll::Ready(match read {
                Ok(count @ 1..) => Heard::Bytes(count),
                Ok(_) | Err(_) => Heard::Ended,
            });
        }
        if stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Heard::Ended);
        }
        deadline.as_mut().poll(cx).map(|()| Heard::TooSlow)
    })
    .await;
    if let Heard::Bytes(count) = heard {
        buffer.extend_from_slice(&chunk[..count]);
    }
    heard
}
