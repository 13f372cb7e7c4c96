//! What each path answers.

use super::{HttpContext, metrics};
use std::borrow::Cow;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    content_type: Option<&'static str>,
    fields: Vec<(&'static str, Cow<'static, str>)>,
    body: Cow<'static, str>,
}

const TEXT: &str = "text/plain; charset=utf-8";

/// The type that Prometheus asks for.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

const FRONT_PAGE: &str = "Strandline\n\n\
    /write, /api/v2/write   POST of line protocol, as InfluxDB 1 and 2 take it\n\
    /ping     204\n\
    /health   200 while the process is up\n\
    /ready    200 while writes are taken, else 503 and why\n\
    /metrics  counters and gauges for Prometheus\n\n\
    Queries go over PostgreSQL's protocol, telemetry over line protocol; see the addresses in\n\
    run/addresses.json of the data directory.\n";

impl Response {
    fn text(status: u16, body: impl Into<Cow<'static, str>>) -> Self {
        Response {
            status,
            content_type: Some(TEXT),
            fields: Vec::new(),
            body: body.into(),
        }
    }

    /// An answer in JSON.
    pub fn json(status: u16, body: String) -> Self {
        Response {
            content_type: Some("application/json"),
            ..Self::text(status, body)
        }
    }

    /// An answer that is its status alone.
    pub fn empty(status: u16) -> Self {
        Response {
            content_type: None,
            ..Self::text(status, "")
        }
    }

    /// With one more field in its head.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// A refusal that its status explains.
    pub fn error(status: u16) -> Self {
        Self::text(status, format!("{}\n", reason(status)))
    }

    /// Head and body as they go over the wire.
    pub fn encode(&self, keep_alive: bool, with_body: bool) -> Vec<u8> {
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nConnection: {}\r\n",
            self.status,
            reason(self.status),
            if keep_alive { "keep-alive" } else { "close" },
        );
        let mut field = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                out.push_str(part);
            }
        };
        if let Some(content_type) = self.content_type {
            field("Content-Type", content_type);
        }
        // An answer without content has no length either.
        if self.status != 204 {
            field("Content-Length", &self.body.len().to_string());
        }
        for (name, value) in &self.fields {
            field(name, value);
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
    let allowed = match path {
        "/" | "/health" | "/ready" | "/metrics" | "/ping" => "GET, HEAD",
        "/write" | "/api/v2/write" => "POST",
        _ => return Response::text(404, format!("no such page: {path}\n")),
    };
    if !allowed.split(", ").any(|m| m == method) {
        return Response::error(405).with("Allow", allowed);
    }
    match path {
        "/health" => Response::text(200, "ok\n"),
        // Clients of InfluxDB ask whether it is there; some look for a version, of the API that `/write` has.
        "/ping" => Response::empty(204)
            .with("X-Influxdb-Build", "Strandline")
            .with("X-Influxdb-Version", "1.8.0"),
        "/ready" => match cx.engine.ready() {
            Ok(()) => Response::text(200, "ready\n"),
            Err(e) => Response::text(503, format!("{e}\n")),
        },
        "/metrics" => match metrics::render(cx).await {
            Ok(body) => Response {
                content_type: Some(PROMETHEUS),
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
        204 => "No Content",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Error",
    }
}
