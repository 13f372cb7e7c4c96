//! Requests over a pipe in memory.

use super::*;
use crate::testing::{FakeEngine, pipe};
use futures_lite::future::zip;
use strandline_core::error::{Error, SqlState};
use strandline_core::limits::Limits;
use strandline_shard::testing::{block_on, env};

fn context(limits: Limits) -> (HttpContext, Rc<FakeEngine>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let engine = FakeEngine::new(limits);
    let cx = HttpContext {
        engine: engine.clone(),
        tasks: env(dir.path()).tasks,
        counters: Arc::default(),
        sql: Arc::default(),
        ilp: Arc::default(),
        ilp_options: IlpOptions::default(),
        admission: Admission::new(engine.limits.clone()),
    };
    (cx, engine, dir)
}

/// What comes back for `request` until the server closes, which it does at the latest when the client does.
fn exchange(cx: &HttpContext, request: &[u8]) -> String {
    let (mut client, server) = pipe(1 << 20);
    let stop = Box::pin(std::future::pending());
    let (_, text) = block_on(zip(serve(server, cx.clone(), stop), async {
        // The server may close before it has read everything.
        let _ = client.write_all(request).await;
        let _ = client.close().await;
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }));
    text
}

fn status(text: &str) -> &str {
    text.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn pages_and_refusals() {
    let limits = Limits {
        http_head_bytes: 1024,
        ..Limits::default()
    };
    let (cx, engine, _dir) = context(limits);
    for (request, expect) in [
        ("GET /health HTTP/1.1\r\n\r\n", "200"),
        ("GET /ready?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("GET / HTTP/1.0\r\n\r\n", "200"),
        ("HEAD /health HTTP/1.1\r\n\r\n", "200"),
        ("GET /nothing HTTP/1.1\r\n\r\n", "404"),
        (
            "POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        ("GET /health HTTP/3.0\r\n\r\n", "505"),
        ("\u{1}\u{2}\u{3} rubbish\r\n\r\n", "400"),
        ("GET /health HTTP/1.1\r\n", "none"),
    ] {
        assert_eq!(
            status(&exchange(&cx, request.as_bytes())),
            expect,
            "{request}"
        );
    }
    let long = "x".repeat(2000);
    let too_long = exchange(&cx, format!("GET /{long} HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(status(&too_long), "414");
    let too_large = exchange(
        &cx,
        format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n").as_bytes(),
    );
    assert_eq!(status(&too_large), "431");
    let many = "A: b\r\n".repeat(101);
    let too_many = exchange(&cx, format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes());
    assert_eq!(status(&too_many), "431");
    assert!(exchange(&cx, b"PUT / HTTP/1.1\r\n\r\n").contains("Allow: GET, HEAD\r\n"));
    assert!(exchange(&cx, b"HEAD /health HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));

    *engine.refusal.borrow_mut() = Some(Error::new(SqlState::IoError, "the log failed"));
    let refused = exchange(&cx, b"GET /ready HTTP/1.1\r\n\r\n");
    assert_eq!(status(&refused), "503");
    assert!(refused.contains("the log failed"), "{refused}");
    assert_eq!(
        status(&exchange(&cx, b"GET /health HTTP/1.1\r\n\r\n")),
        "200"
    );
    let answers: u64 = cx.counters.answers().map(|(_, n)| n).sum();
    assert_eq!(answers, 15);
}

#[test]
fn connections_stay_open_for_the_next_request() {
    let (cx, _, _dir) = context(Limits::default());
    let two = exchange(&cx, b"GET /health HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(two.matches("HTTP/1.1 ").count(), 2, "{two}");
    assert!(two.contains("404 Not Found"));
    assert!(
        exchange(&cx, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .contains("Connection: keep-alive")
    );
}

#[test]
fn a_client_that_dribbles_is_given_up() {
    let (cx, _, _dir) = context(Limits::default());
    let (mut client, server) = pipe(1 << 20);
    let stop = Box::pin(std::future::pending());
    let (_, text) = block_on(zip(serve(server, cx.clone(), stop), async {
        client.write_all(b"GET /health HT").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }));
    assert_eq!(status(&text), "408");
}

#[test]
fn stop_ends_an_idle_connection() {
    let (cx, _, _dir) = context(Limits::default());
    let (_client, server) = pipe(1 << 20);
    block_on(serve(server, cx, Box::pin(std::future::ready(()))));
}

#[test]
fn metrics_are_well_formed() {
    let (cx, _, _dir) = context(Limits::default());
    block_on(async {
        let spec = strandline_core::schema::TableSpec {
            name: "we\"ird\\\n".into(),
            family: strandline_core::schema::Family::Rows,
            columns: vec![],
            entity_uuid: false,
            options: Default::default(),
        };
        cx.engine.create_table(spec, false).await.unwrap();
    });
    cx.sql.statement(crate::counters::StatementKind::Read, 150);
    let text = exchange(&cx, b"GET /metrics HTTP/1.1\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("version=0.0.4"), "{head}");
    let mut families = std::collections::BTreeSet::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(
                families.insert(rest.split(' ').next().unwrap()),
                "twice: {line}"
            );
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = families.iter().any(|f| {
                name.strip_prefix(f)
                    .is_some_and(|s| matches!(s, "" | "_sum" | "_count" | "_bucket"))
            });
            assert!(family, "{line}");
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    for part in [
        "strandline_ready 1\n",
        "strandline_log_commits_total{shard=\"0\"} 0\n",
        "strandline_statement_seconds_bucket{kind=\"read\",le=\"0.0001\"} 0\n",
        "strandline_statement_seconds_bucket{kind=\"read\",le=\"0.0002\"} 1\n",
        "strandline_statement_seconds_bucket{kind=\"read\",le=\"+Inf\"} 1\n",
        "strandline_table_rows{table=\"we\\\"ird\\\\\\n\",family=\"rows\"}",
        "strandline_ilp_bad_lines_total{reason=\"syntax\"} 0\n",
        "strandline_limit{name=\"connections\"} 1000\n",
    ] {
        assert!(body.contains(part), "{part} is not in\n{body}");
    }
}
