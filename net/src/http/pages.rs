//! What each path answers.

use super::{HttpContext, metrics};
use std::borrow::Cow;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    content_type: &'static str,
    /// For 405.
    allow: Option<&'static str>,
    body: Cow<'static, str>,
}

const TEXT: &str = "text/plain; charset=utf-8";

/// The type that Prometheus asks for.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

const FRONT_PAGE: &str = "Strandline\n\n\
    /health   200 while the process is up\n\
    /ready    200 while writes are taken, else 503 and why\n\
    /metrics  counters and gauges for Prometheus\n\n\
    Queries go over PostgreSQL's protocol, telemetry over line protocol; see the addresses in\n\
    run/addresses.json of the data directory.\n";

impl Response {
    fn text(status: u16, body: impl Into<Cow<'static, str>>) -> Self {
        Response {
            status,
            content_type: TEXT,
            allow: None,
            body: body.into(),
        }
    }

    /// A refusal that its status explains.
    pub fn error(status: u16) -> Self {
        Self::text(status, format!("{}\n", reason(status)))
    }

    /// Head and body as they go over the wire.
    pub fn encode(&self, keep_alive: bool, with_body: bool) -> Vec<u8> {
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len(),
            if keep_alive { "keep-alive" } else { "close" },
        );
        if let Some(allow) = self.allow {
            out.push_str("Allow: ");
            out.push_str(allow);
            out.push_str("\r\n");
        }
        out.push_str("\r\n");
        if with_body {
            out.push_str(&self.body);
        }
        out.into_bytes()
    }
}

/// Answers a request.
pub async fn answer(cx: &HttpContext, method: &str, path: &str) -> Response {
    if !matches!(path, "/" | "/health" | "/ready" | "/metrics") {
        return Response::text(404, format!("no such page: {path}\n"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Response {
            allow: Some("GET, HEAD"),
            ..Response::error(405)
        };
    }
    match path {
        "/health" => Response::text(200, "ok\n"),
        "/ready" => match cx.engine.ready() {
            Ok(()) => Response::text(200, "ready\n"),
            Err(e) => Response::text(503, format!("{e}\n")),
        },
        "/metrics" => match metrics::render(cx).await {
            Ok(body) => Response {
                content_type: PROMETHEUS,
                ..Response::text(200, body)
            },
            Err(e) => Response::text(503, format!("{e}\n")),
        },
        _ => Response::text(200, FRONT_PAGE),
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        414 => "URI Too Long",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}
