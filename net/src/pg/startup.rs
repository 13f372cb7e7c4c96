//! From the first byte to the first ReadyForQuery.

use super::frame::{Input, Reader, protocol};
use super::io::{Fail, Heard, Io};
use super::out::Severity;
use crate::session::{MAIN_DATABASE, Session, SessionContext};
use crate::settings::{Settings, parse_options};
use futures_lite::future::or;
use futures_lite::{AsyncRead, AsyncWrite};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The one request of a start-up packet.
#[derive(Debug)]
pub enum Request {
    /// SSLRequest or GSSENCRequest.
    Encrypt,
    /// CancelRequest.
    Cancel {
        /// Which session.
        pid: i32,
        /// Its secret.
        secret: Box<[u8]>,
    },
    /// StartupMessage.
    Start(Start),
}

/// A StartupMessage.
#[derive(Debug, Default)]
pub struct Start {
    minor: u16,
    parameters: Vec<(String, String)>,
}

/// Decodes a start-up packet without its length.
pub fn decode(body: &[u8]) -> Result<Request> {
    let mut r = Reader(body);
    let code = r.i32()? as u32;
    match code {
        SSL_REQUEST | GSSENC_REQUEST => return Ok(Request::Encrypt),
        CANCEL_REQUEST => {
            return Ok(Request::Cancel {
                pid: r.i32()?,
                secret: r.0.into(),
            });
        }
        _ => {}
    }
    let (major, minor) = ((code >> 16) as u16, code as u16);
    if major != 3 {
        return Err(Error::unsupported(format!(
            "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
        )));
    }
    let mut start = Start {
        minor,
        parameters: vec![],
    };
    loop {
        match r.text()? {
            "" => break,
            name => start
                .parameters
                .push((name.to_owned(), r.text()?.to_owned())),
        }
    }
    match r.end() {
        Ok(()) => Ok(Request::Start(start)),
        Err(_) => Err(protocol(
            "invalid startup packet layout: expected terminator as last byte",
        )),
    }
}

/// Leads a connection to its session; `None` when it ended before. `refusal`: why it may not have one.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Io<S>,
    input: &mut Input,
    cx: &Rc<SessionContext>,
    refusal: Option<&Error>,
) -> Result<Option<Session>, Fail> {
    let time = Duration::from_millis(cx.limits().startup_ms);
    let late = async {
        cx.tasks.sleep(time).await;
        // As PostgreSQL: a client that says nothing is told nothing.
        Ok(None)
    };
    let Some(start) = or(request(io, input, cx), late).await? else {
        return Ok(None);
    };
    let session = match refusal {
        Some(e) => Err(e.clone()),
        None => begin(cx, &start),
    };
    match session {
        Ok(mut session) => {
            greet(io, &mut session, &start);
            cx.counters
                .connections_total
                .fetch_add(1, Ordering::Relaxed);
            Ok(Some(session))
        }
        Err(e) => {
            cx.counters.error(e.state());
            io.out.error(Severity::Fatal, &e);
            Ok(None)
        }
    }
}

/// Answers requests for encryption and cancels; returns the StartupMessage.
async fn request<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut Io<S>,
    input: &mut Input,
    cx: &Rc<SessionContext>,
) -> Result<Option<Start>, Fail> {
    // Registered like a session, to hear when the server goes down: it does not wait for who has said nothing.
    let waiting = cx.registry.register(cx.random.next_u64());
    // A client may ask for TLS and for GSS once each.
    let mut refusals = 0;
    loop {
        let decoded = match input.next_startup() {
            Ok(Some(body)) => decode(body),
            Ok(None) => match io.hear(input, &waiting.cancel).await? {
                Heard::Bytes => continue,
                Heard::End | Heard::Closing => return Ok(None),
            },
            Err(e) => Err(e),
        };
        let e = match decoded {
            Ok(Request::Encrypt) if refusals < 2 => {
                refusals += 1;
                io.out.buf.push(b'N');
                io.flush().await?;
                continue;
            }
            Ok(Request::Encrypt) => protocol("encryption was refused already"),
            Ok(Request::Cancel { pid, secret }) => {
                if cx.registry.cancel(pid, &secret) {
                    cx.counters.cancels_total.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(None);
            }
            Ok(Request::Start(start)) => return Ok(Some(start)),
            Err(e) => e,
        };
        cx.counters.error(e.state());
        io.out.error(Severity::Fatal, &e);
        return Ok(None);
    }
}

/// Checks who wants what.
fn begin(cx: &Rc<SessionContext>, start: &Start) -> Result<Session> {
    let get = |name: &str| {
        let found = start.parameters.iter().find(|(n, _)| n == name);
        found.map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    };
    let user = get("user").ok_or_else(|| {
        Error::new(
            SqlState::InvalidAuthorization,
            "no PostgreSQL user name specified in startup packet",
        )
    })?;
    // A database that equals the user and does not exist means main: what psql asks for by default.
    let database = get("database").unwrap_or(user);
    if database != MAIN_DATABASE && database != user {
        return Err(Error::new(
            SqlState::InvalidCatalogName,
            format!("database \"{database}\" does not exist"),
        ));
    }
    let mut settings = Settings::new(user);
    if let Some(options) = get("options") {
        for (name, value) in parse_options(options)? {
            settings.set_at_start(&name, &value)?;
        }
    }
    for (name, value) in &start.parameters {
        match name.as_str() {
            "user" | "database" | "options" => {}
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => {
                return Err(Error::unsupported("the replication protocol is not spoken")
                    .hint("read a rows table's feed: WHERE x_rev > n"));
            }
            // Extensions of the protocol are negotiated, not set.
            name if name.starts_with("_pq_.") => {}
            name => settings.set_at_start(name, value)?,
        }
    }
    Ok(Session::new(cx.clone(), user, settings))
}

fn greet<S: AsyncRead + AsyncWrite + Unpin>(io: &mut Io<S>, session: &mut Session, start: &Start) {
    let out = &mut io.out;
    let unknown: Vec<&str> = start
        .parameters
        .iter()
        .map(|(n, _)| n.as_str())
        .filter(|n| n.starts_with("_pq_."))
        .collect();
    if start.minor > 0 || !unknown.is_empty() {
        out.negotiate(&unknown);
    }
    out.authentication_ok();
    session
        .settings
        .untold(|name, value| out.parameter_status(name, value));
    let registered = session.registered();
    out.backend_key(registered.pid, registered.secret);
    out.ready(session.status());
    io.due = true;
}
