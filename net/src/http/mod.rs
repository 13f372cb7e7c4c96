//! HTTP/1.1: `/health`, `/ready`, `/metrics` for those who watch the server, lines for those who write over
//! InfluxDB's API. Generic over the stream.
//!
//! | module | holds |
//! |---|---|
//! | [`head`] | requests: reading and bounding their heads |
//! | [`body`] | their bodies: where they end, unpacking them |
//! | [`fuzz`] | bodies out of memory, for fuzzing and tests |
//! | [`write`] | `/write`, `/api/v2/write` |
//! | [`pages`] | what each path answers |
//! | [`metrics`] | `/metrics` |

pub mod body;
pub mod fuzz;
pub mod head;
pub mod metrics;
pub mod pages;
pub mod write;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;

use crate::admit::Admission;
use crate::counters::Counters;
use crate::ilp::pump::Stop;
use crate::ilp::{IlpCounters, IlpOptions};
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use head::{BodyLength, Taken};
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
use write::{Api, Rejection};

/// What the HTTP listeners count. Shared by all executors.
#[derive(Debug, Default)]
pub struct HttpCounters {
    /// Connections accepted.
    pub connections_total: AtomicU64,
    /// Bytes of bodies of lines, as they came.
    pub body_bytes: AtomicU64,
    /// The same, unpacked.
    pub line_bytes: AtomicU64,
    by_class: [AtomicU64; 6],
    writes: [AtomicU64; 2],
    rejected: [AtomicU64; Rejection::ALL.len()],
}

/// How long a connection is still read after an answer that ends it: closing with bytes unread would make the
/// kernel take the answer back.
const LINGER: Duration = Duration::from_secs(2);

impl HttpCounters {
    fn answered(&self, status: u16) {
        let class = usize::from(status / 100).min(5);
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests to write lines, by API.
    pub fn writes(&self, api: Api) -> &AtomicU64 {
        &self.writes[api as usize]
    }

    /// Bodies of lines that were not taken, or not to their end.
    pub fn rejected(&self, why: Rejection) -> &AtomicU64 {
        &self.rejected[why as usize]
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
    /// How lines are read.
    pub ilp_options: IlpOptions,
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
    stop: LocalFuture<'_, ()>,
) {
    let mut stop = Stop::new(stop);
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
        let mut keep_alive = false;
        let response = match &request {
            Err(refusal) => refusal.clone(),
            Ok(request) => match Api::of(&request.path) {
                Some(api) if request.method == "POST" => {
                    let (response, whole) =
                        write::answer(&cx, request, api, &mut stream, &mut buffer, &mut stop).await;
                    keep_alive = request.keep_alive && whole;
                    response
                }
                _ => {
                    // A body would have to be read before the next head: close instead.
                    keep_alive = request.keep_alive && request.body == BodyLength::Bytes(0);
                    pages::answer(&cx, &request.method, &request.path).await
                }
            },
        };
        let with_body = request.as_ref().map_or(true, |r| r.method != "HEAD");
        cx.counters.answered(response.status);
        let bytes = response.encode(keep_alive, with_body);
        let sent = async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        };
        let time = Duration::from_millis(limits.startup_ms);
        let sent = within(&cx, time, async { sent.await.is_ok() }).await;
        if !sent || !keep_alive {
            let _ = stream.close().await;
            if sent {
                within(&cx, LINGER, linger(&mut stream)).await;
            }
            return;
        }
    }
}

/// What `done` answers, or false when the time is over.
async fn within(cx: &HttpContext, time: Duration, done: impl Future<Output = bool>) -> bool {
    let mut deadline = cx.tasks.sleep(time);
    futures_lite::future::or(done, async {
        deadline.as_mut().await;
        false
    })
    .await
}

/// Reads and drops what still comes, to the client's close.
async fn linger<S: AsyncRead + Unpin>(stream: &mut S) -> bool {
    let mut dropped = [0; 4096];
    while let Ok(1..) = stream.read(&mut dropped).await {}
    true
}

async fn hear<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
    deadline: &mut LocalFuture<'_, ()>,
    stop: &mut Stop<'_>,
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
        if stop.poll(cx) {
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
