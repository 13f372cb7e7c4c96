//! Lines over HTTP: `POST /write` as InfluxDB 1 has it, `POST /api/v2/write` as InfluxDB 2. The body is parsed
//! as it comes; the answer says that everything good in it is durable.
//!
//! A body that breaks off (cut, malformed, too large) stops where it is: what was handed over before stays
//! written, and the answer says how many rows that are; of a body under one batch nothing is.

use super::HttpContext;
use super::body::{Body, BodyError};
use super::head::{BodyLength, Encoding, Request, parameter};
use super::pages::Response;
use crate::ilp::pump::{Complaints, End, Pump, Stop, add};
use crate::ilp::{BadLine, IlpContext, IlpCounters, IlpOptions, Precision, Reason};
use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt};
use serde::Serialize;
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use strandline_core::error::{Error, SqlState};

/// Bad lines that an answer lists; it counts all of them.
const LISTED_LINES: usize = 100;
/// Of these, so many in its message.
const MESSAGE_LINES: usize = 10;
/// Seconds after which a client may try again: a full disk takes longer than a restart.
const RETRY_AFTER_S: (u64, u64) = (1, 10);

/// Which InfluxDB a client takes the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/write`.
    V1,
    /// `/api/v2/write`.
    V2,
}

impl Api {
    /// The API of a path.
    pub fn of(path: &str) -> Option<Api> {
        match path {
            "/write" => Some(Api::V1),
            "/api/v2/write" => Some(Api::V2),
            _ => None,
        }
    }

    /// The label in `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Api::V1 => "v1",
            Api::V2 => "v2",
        }
    }
}

/// Why a body is not taken, as far as `/metrics` tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A database, bucket, precision and the like that are not there.
    Parameter,
    /// `Content-Encoding` is neither gzip nor identity.
    Encoding,
    /// Over `http_body_bytes`.
    TooLarge,
    /// Chunks or gzip are not of the form.
    Malformed,
    /// It did not come in time, or the client went away.
    Cut,
    /// The server could not write it: another time it can.
    Unavailable,
}

impl Rejection {
    /// All of them, in the order of the counters.
    pub const ALL: [Rejection; 6] = [
        Rejection::Parameter,
        Rejection::Encoding,
        Rejection::TooLarge,
        Rejection::Malformed,
        Rejection::Cut,
        Rejection::Unavailable,
    ];

    /// The label in `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Rejection::Parameter => "parameter",
            Rejection::Encoding => "encoding",
            Rejection::TooLarge => "too_large",
            Rejection::Malformed => "malformed",
            Rejection::Cut => "cut",
            Rejection::Unavailable => "unavailable",
        }
    }
}

/// A bad line, as an answer lists it.
#[derive(Clone, Debug, Serialize)]
struct Listed {
    /// From 1; of lines that are not known one by one, the first it can be.
    line: u64,
    /// The last it can be, where it is not `line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_line: Option<u64>,
    reason: &'static str,
    message: Box<str>,
}

/// Bad lines for an answer.
struct Listing {
    counters: Arc<IlpCounters>,
    bad: u64,
    lines: Vec<Listed>,
}

impl Listing {
    fn list(&mut self, reason: Reason, count: u64, (from, to): (u64, u64), message: &str) {
        self.counters.count_bad(reason, count);
        self.bad += count;
        if self.lines.len() < LISTED_LINES {
            self.lines.push(Listed {
                line: from,
                to_line: (to > from).then_some(to),
                reason: reason.name(),
                message: message.into(),
            });
        }
    }
}

impl Complaints for Listing {
    fn bad_line(&mut self, error: &BadLine, _: &[u8]) {
        self.list(error.reason, 1, (error.line, error.line), &error.message);
    }
    fn left_out(&mut self, why: &Error, lines: u64, among: (u64, u64)) {
        let message = format!("{lines} of these lines: {}", why.message());
        self.list(Reason::Refused, lines, among, &message);
    }
}

/// What a refusal tells.
struct Refusal {
    status: u16,
    why: Rejection,
    message: String,
}

fn refuse(status: u16, why: Rejection, message: impl Into<String>) -> Refusal {
    Refusal {
        status,
        why,
        message: message.into(),
    }
}

/// The JSON of an error.
#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// Rows that are durable.
    rows: u64,
    /// Lines that are bad, those that are not listed too.
    bad_lines: u64,
    /// The first bad line, as InfluxDB 2 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    lines: &'a [Listed],
}

fn error(api: Api, status: u16, message: &str, rows: u64, listing: Option<&Listing>) -> Response {
    let lines = listing.map_or(&[][..], |l| &l.lines);
    let code = match status {
        404 => "not found",
        413 => "request too large",
        415 => "unsupported media type",
        500 => "internal error",
        503 | 507 => "unavailable",
        _ => "invalid",
    };
    let v2 = api == Api::V2;
    let body = ErrorBody {
        code: v2.then_some(code),
        message: v2.then_some(message),
        error: (!v2).then_some(message),
        rows,
        bad_lines: listing.map_or(0, |l| l.bad),
        line: lines.first().map(|l| l.line).filter(|_| v2),
        lines,
    };
    // It holds strings and numbers alone, which cannot fail.
    let text = serde_json::to_string(&body).unwrap_or_default();
    let response = Response::json(status, text + "\n");
    match status {
        503 => response.with("Retry-After", RETRY_AFTER_S.0.to_string()),
        507 => response.with("Retry-After", RETRY_AFTER_S.1.to_string()),
        _ => response,
    }
}

/// What the parameters of a request ask for.
fn options(query: &str, api: Api, listener: &IlpOptions) -> Result<IlpOptions, Refusal> {
    let get = |name| parameter(query, name).filter(|v| !v.is_empty());
    let bad = |message: String| Err(refuse(400, Rejection::Parameter, message));
    let none = |what, name: &str, hint| {
        let message = format!("{what} not found: \"{name}\": {hint}");
        Err(refuse(404, Rejection::Parameter, message))
    };
    let precision = get("precision");
    let precision = match (api, precision.as_deref()) {
        (_, None) => Precision::Nanoseconds,
        (Api::V1, Some(p)) => match Precision::of_v1(p) {
            Some(p) => p,
            None => {
                return bad(format!(
                    "invalid precision \"{p}\" (use n, ns, u, us, ms, s, m or h)"
                ));
            }
        },
        (Api::V2, Some(p)) => match Precision::of_v2(p) {
            Some(p) => p,
            None => return bad(format!("invalid precision \"{p}\" (use ns, us, ms or s)")),
        },
    };
    let (what, place, policy) = match api {
        Api::V1 => ("database", get("db"), get("rp")),
        // `database/policy`, as InfluxDB 1.8 maps them.
        Api::V2 => match get("bucket") {
            None => ("bucket", None, None),
            Some(bucket) => match bucket.split_once('/') {
                Some((db, rp)) => ("bucket", Some(db.to_owned()), Some(rp.to_owned())),
                None => ("bucket", Some(bucket), None),
            },
        },
    };
    if let Some(name) = place.filter(|name| name != "main") {
        return none(what, &name, "this server has one, named main");
    }
    if let Some(name) = policy.filter(|name| name != "autogen") {
        let hint = "a table has its own, CREATE TABLE … WITH (RETENTION …)";
        return none("retention policy", &name, hint);
    }
    if let Some(level) = get("consistency").filter(|_| api == Api::V1)
        && !["any", "one", "quorum", "all"].contains(&level.as_str())
    {
        return bad(format!(
            "invalid consistency level \"{level}\" (use any, one, quorum or all: one server meets each of them)"
        ));
    }
    Ok(IlpOptions {
        precision,
        ..listener.clone()
    })
}

/// Answers a write. Whether its body was read to the end, so that another request may follow.
pub(super) async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    cx: &HttpContext,
    request: &Request,
    api: Api,
    stream: &mut S,
    raw: &mut Vec<u8>,
    stop: &mut Stop<'_>,
) -> (Response, bool) {
    let counters = &cx.counters;
    add(counters.writes(api), 1);
    let options = match admit(cx, request, api) {
        Ok(options) => options,
        Err(refusal) => {
            add(counters.rejected(refusal.why), 1);
            let response = error(api, refusal.status, &refusal.message, 0, None);
            return (response, request.body == BodyLength::Bytes(0));
        }
    };
    if request.expects_continue && raw.is_empty() {
        let go_on = async {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            stream.flush().await
        };
        if go_on.await.is_err() {
            return (error(api, 400, "the connection broke", 0, None), false);
        }
    }
    let limits = cx.engine.limits();
    // Whoever is in the middle of a body may end it while the server drains.
    let mut late = Stop::new(Box::pin(async {
        poll_fn(|cx| match stop.poll(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        cx.tasks
            .sleep(Duration::from_millis(limits.drain_ms / 2))
            .await;
    }));
    let body = Body::new(
        stream,
        raw,
        (request.body, request.encoding),
        limits.http_body_bytes,
        &*cx.tasks,
        Duration::from_millis(limits.startup_ms),
    );
    let listing = Listing {
        counters: cx.ilp.clone(),
        bad: 0,
        lines: Vec::new(),
    };
    let lines = IlpContext {
        engine: cx.engine.clone(),
        tasks: cx.tasks.clone(),
        counters: cx.ilp.clone(),
        options,
    };
    let _open = Open::new(&cx.ilp);
    let mut pump = Pump::new(body, false, lines, &mut late, listing);
    let ended = pump.run().await;
    let (rows, lines) = (pump.rows_written(), pump.lines());
    let (body, listing) = pump.parts();
    let (packed, unpacked) = body.counts();
    add(&counters.body_bytes, packed);
    add(&counters.line_bytes, unpacked);
    let whole = body.is_whole();
    let refusal = match ended {
        Ok(End::Whole) if listing.bad == 0 => return (Response::empty(204), whole),
        Ok(End::Whole) => {
            let message = listing.message(rows, lines);
            return (error(api, 400, &message, rows, Some(listing)), whole);
        }
        Ok(End::Stopped) => refuse(503, Rejection::Unavailable, "the server is going down"),
        Ok(End::Broken(e)) => broken(cx, &BodyError::of(&e)),
        Err(e) => failed(&e),
    };
    add(counters.rejected(refusal.why), 1);
    let Refusal {
        status, message, ..
    } = refusal;
    let message = match rows {
        0 => format!("{message}; nothing of it is written"),
        _ => format!("{message}; {rows} rows from its beginning are written"),
    };
    (error(api, status, &message, rows, Some(listing)), false)
}

/// Looks at the head: what the lines are to be read as.
fn admit(cx: &HttpContext, request: &Request, api: Api) -> Result<IlpOptions, Refusal> {
    let options = options(&request.query, api, &cx.ilp_options)?;
    if request.encoding == Encoding::Unknown {
        let message = "Content-Encoding is neither gzip nor identity";
        return Err(refuse(415, Rejection::Encoding, message));
    }
    match request.body {
        BodyLength::Bytes(n) if n > cx.engine.limits().http_body_bytes => {
            Err(broken(cx, &BodyError::TooLarge))
        }
        _ => Ok(options),
    }
}

fn broken(cx: &HttpContext, e: &BodyError) -> Refusal {
    match e {
        BodyError::TooLarge => {
            let error = cx.engine.limits().exceeded(
                "http_body_bytes",
                SqlState::ProgramLimitExceeded,
                "the body is too large",
            );
            refuse(413, Rejection::TooLarge, error.message())
        }
        BodyError::Chunks(_) | BodyError::Gzip(_) => {
            refuse(400, Rejection::Malformed, e.to_string())
        }
        BodyError::Slow => refuse(408, Rejection::Cut, e.to_string()),
        BodyError::Cut => refuse(400, Rejection::Cut, e.to_string()),
    }
}

/// A write that failed for good.
fn failed(e: &Error) -> Refusal {
    let status = match e.state() {
        SqlState::DiskFull => 507,
        SqlState::OutOfMemory | SqlState::AdminShutdown => 503,
        _ => 500,
    };
    refuse(status, Rejection::Unavailable, e.message())
}

impl Listing {
    /// What is wrong with which lines. It begins as InfluxDB 1's does, which clients look for.
    fn message(&self, rows: u64, lines: u64) -> String {
        let (begin, rest) = match rows {
            0 => ("unable to parse", "none is written"),
            _ => ("partial write", "the others are written"),
        };
        let mut out = format!("{begin}: {} of {lines} lines are bad, {rest}", self.bad);
        for (i, l) in self.lines.iter().take(MESSAGE_LINES).enumerate() {
            let before = if i == 0 { ": " } else { "; " };
            let _ = match l.to_line {
                None => write!(out, "{before}line {} ({}): {}", l.line, l.reason, l.message),
                Some(to) => write!(
                    out,
                    "{before}lines {} to {to} ({}): {}",
                    l.line, l.reason, l.message
                ),
            };
        }
        if self.lines.len() > MESSAGE_LINES {
            out.push_str("; …");
        }
        out
    }
}

/// Counts a body for as long as it is read.
struct Open(Arc<IlpCounters>);

impl Open {
    fn new(counters: &Arc<IlpCounters>) -> Self {
        add(&counters.bodies_open, 1);
        Open(counters.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.bodies_open.fetch_sub(1, Ordering::Relaxed);
    }
}
