//! Writes over HTTP, over a pipe in memory and an engine that does as each test says.

use super::body::BodyError;
use super::fuzz::body;
use super::head::{BodyLength, Encoding};
use super::*;
use crate::ilp::connection_tests::{Stage, stage};
use crate::testing::{FakeTasks, pipe};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_lite::future::zip;
use std::io::Write;
use strandline_core::error::SqlState;
use strandline_core::limits::Limits;
use strandline_shard::testing::block_on;

fn context(s: &Stage) -> HttpContext {
    HttpContext {
        engine: s.engine.clone(),
        tasks: s.cx.tasks.clone(),
        counters: Arc::default(),
        sql: Arc::default(),
        ilp: s.cx.counters.clone(),
        ilp_options: s.cx.options.clone(),
        admission: Admission::new(s.engine.limits.clone()),
    }
}

/// All that comes back until the server closes, which it does at the latest when the client has.
fn exchange(cx: &HttpContext, request: &[u8], room: usize) -> String {
    let (client, server) = pipe(room);
    let (mut reading, mut writing) = futures_lite::io::split(client);
    let stop = Box::pin(std::future::pending());
    let (mut text, serving) = (String::new(), serve(server, cx.clone(), stop));
    let sent = async {
        // The server may answer, and close, before it has read everything.
        let _ = writing.write_all(request).await;
        let _ = writing.close().await;
    };
    block_on(zip(
        serving,
        zip(sent, async {
            reading.read_to_string(&mut text).await.unwrap();
        }),
    ));
    text
}

fn post(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = format!("Content-Length: {}\r\n", body.len());
    post_as(path, &format!("{length}{fields}"), body)
}

fn post_as(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    [head.as_bytes(), body].concat()
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(size) {
        out.extend(format!("{:x};a=b\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
    }
    out.extend(b"0\r\nX-Sum: 1\r\n\r\n");
    out
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(body).unwrap();
    packer.finish().unwrap()
}

fn status(text: &str) -> u16 {
    text.split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(0)
}

fn json(text: &str) -> serde_json::Value {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("Content-Type: application/json\r\n"),
        "{head}"
    );
    serde_json::from_str(body).unwrap()
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

const LINE: &[u8] = b"t,entity=a x=1i 1700000000\n";

#[test]
fn parameters_as_influxdb_s_clients_give_them() {
    for (path, expect, ts) in [
        ("/write", 204, Some(1700)),
        ("/write?db=main", 204, Some(1700)),
        (
            "/write?db=main&rp=autogen&consistency=all&u=me&p=secret",
            204,
            Some(1700),
        ),
        ("/write?db=main&precision=n", 204, Some(1700)),
        ("/write?db=main&precision=ns", 204, Some(1700)),
        ("/write?db=main&precision=u", 204, Some(1_700_000)),
        ("/write?db=main&precision=us", 204, Some(1_700_000)),
        ("/write?db=main&precision=ms", 204, Some(1_700_000_000)),
        ("/write?db=main&precision=s", 204, Some(1_700_000_000_000)),
        ("/write?precision=m", 400, None),
        ("/write?db=other", 404, None),
        ("/write?db=main&rp=weekly", 404, None),
        ("/write?db=main&precision=d", 400, None),
        ("/write?db=main&consistency=some", 400, None),
        (
            "/api/v2/write?org=any&bucket=main&precision=s",
            204,
            Some(1_700_000_000_000),
        ),
        ("/api/v2/write?bucket=main%2Fautogen", 204, Some(1700)),
        ("/api/v2/write?bucket=main/weekly", 404, None),
        ("/api/v2/write?bucket=other", 404, None),
        ("/api/v2/write?precision=h", 400, None),
    ] {
        let s = stage(Limits::default());
        let cx = context(&s);
        let fields = "Authorization: Token abc\r\nContent-Type: text/plain; charset=utf-8\r\n";
        let text = exchange(&cx, &post(path, fields, LINE), 1 << 16);
        assert_eq!(status(&text), expect, "{path}: {text}");
        assert_eq!(s.values(), ts.into_iter().collect::<Vec<_>>(), "{path}");
        if expect == 204 {
            assert!(!text.contains("Content-Length"), "{text}");
        } else {
            let key = if path.starts_with("/api") {
                "message"
            } else {
                "error"
            };
            assert!(json(&text)[key].is_string(), "{text}");
        }
    }
    let s = stage(Limits::default());
    let text = exchange(
        &context(&s),
        &post("/write?precision=m", "", b"t,entity=a x=1 2"),
        99,
    );
    assert_eq!((status(&text), s.values()), (204, vec![120_000]));
}

#[test]
fn other_methods_and_ping() {
    let s = stage(Limits::default());
    let cx = context(&s);
    let ask = |request: &str| exchange(&cx, request.as_bytes(), 1 << 16);
    for path in ["/write", "/api/v2/write"] {
        let text = ask(&format!("GET {path} HTTP/1.1\r\n\r\n"));
        assert_eq!(status(&text), 405);
        assert!(text.contains("Allow: POST\r\n"), "{text}");
    }
    for method in ["GET", "HEAD"] {
        let text = ask(&format!(
            "{method} /ping?wait_for_leader=1s HTTP/1.1\r\n\r\n"
        ));
        assert_eq!(status(&text), 204);
        assert!(text.contains("X-Influxdb-Version: "), "{text}");
    }
}

#[test]
fn every_way_a_body_may_come_brings_the_same_rows() {
    let lines: String = (0..500)
        .map(|i| format!("t,entity=e{} x={i}i,s=\"text {i}\" {i}000000\n", i % 9))
        .collect();
    let lines = lines.as_bytes();
    let packed = gzip(lines);
    let members = [gzip(&lines[..1000]), gzip(&lines[1000..])].concat();
    let (pack, chunks) = (
        "Content-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\n",
    );
    let both = format!("{pack}{chunks}");
    let path = "/write?db=main";
    for request in [
        post(path, "", lines),
        post(path, pack, &packed),
        post(path, pack, &members),
        post(path, "Expect: 100-continue\r\n", lines),
        post_as(path, chunks, &chunked(lines, 1)),
        post_as(path, chunks, &chunked(lines, 5000)),
        post_as(path, chunks, &chunked(lines, 1 << 20)),
        post_as(path, &both, &chunked(&packed, 7)),
        post_as(path, &both, &chunked(&members, 4000)),
    ] {
        for room in [1, 100, 1 << 20] {
            let s = stage(Limits::default());
            let mut cx = context(&s);
            // Of a pipe that is always full no deadline may come.
            cx.tasks = Rc::new(FakeTasks);
            // Another request follows on the same connection: the end of the body is found exactly.
            let two = [&request[..], &request, b"GET /health HTTP/1.1\r\n\r\n"].concat();
            let text = exchange(&cx, &two, room);
            assert_eq!(text.matches("HTTP/1.1 204").count(), 2, "{text}");
            assert!(text.ends_with("ok\n"), "{text}");
            assert_eq!(s.written.borrow().len(), 1000);
            let counters = &cx.counters;
            assert_eq!(get(&counters.line_bytes), 2 * lines.len() as u64);
            assert_eq!(get(&s.cx.counters.lines_total), 1000);
            assert_eq!(get(&s.cx.counters.bodies_open), 0);
        }
    }
}

#[test]
fn an_empty_body_is_no_error() {
    let s = stage(Limits::default());
    let cx = context(&s);
    for request in [
        post("/write", "", b""),
        post_as("/write", "", b""),
        post("/write", "", b"\n# nothing\n\n"),
        post_as("/write", "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        post("/write", "Content-Encoding: gzip\r\n", &gzip(b"")),
    ] {
        assert_eq!(status(&exchange(&cx, &request, 1 << 16)), 204);
    }
    assert_eq!(s.writes.get(), 0);
}

#[test]
fn bad_lines_are_named_and_the_good_ones_written() {
    let body = b"t,entity=a x=1i 1000000\noops\n# c\nt,entity=a x=\"text\" 2000000\nrefused,entity=a x=1\nt,entity=a x=2i 3000000\n";
    let s = stage(Limits::default());
    let text = exchange(&context(&s), &post("/write?db=main", "", body), 1 << 16);
    assert_eq!((status(&text), s.values()), (400, vec![1, 3]));
    let v1 = json(&text);
    let message = v1["error"].as_str().unwrap();
    for part in [
        "partial write: 3 of 6 lines are bad, the others are written: line 2 (syntax): ",
        "; line 4 (type): text (TEXT) for t.x, which is INT",
        "; line 5 (refused): no such luck",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!((&v1["rows"], &v1["bad_lines"]), (&2.into(), &3.into()));
    assert_eq!(v1["lines"][1]["line"], 4);
    assert_eq!(v1["lines"][1]["reason"], "type");

    let s = stage(Limits::default());
    let text = exchange(
        &context(&s),
        &post("/api/v2/write?bucket=main", "", body),
        1 << 16,
    );
    let v2 = json(&text);
    assert_eq!((status(&text), s.values()), (400, vec![1, 3]));
    assert_eq!((&v2["code"], &v2["line"]), (&"invalid".into(), &2.into()));
    assert_eq!(v2["message"].as_str(), Some(message));

    // Many: the listing ends, the count does not.
    let s = stage(Limits::default());
    let cx = context(&s);
    let text = exchange(
        &cx,
        &post("/write", "", "oops\n".repeat(250).as_bytes()),
        1 << 16,
    );
    let all = json(&text);
    assert_eq!(all["bad_lines"], 250);
    assert_eq!(all["lines"].as_array().unwrap().len(), 100);
    let message = all["error"].as_str().unwrap();
    assert!(
        message.starts_with("unable to parse: 250 of 250 lines are bad"),
        "{message}"
    );
    assert!(
        message.contains("line 10 (syntax)") && message.ends_with("; …"),
        "{message}"
    );
    let syntax =
        s.cx.counters
            .bad_lines()
            .find(|(r, _)| r.name() == "syntax");
    assert_eq!(syntax.map(|r| r.1), Some(250));

    // Rows that the engine leaves out are known by their batch alone.
    let s = stage(Limits::default());
    s.engine.left_out.set(2);
    let body = [LINE, LINE, LINE].concat();
    let some = json(&exchange(&context(&s), &post("/write", "", &body), 1 << 16));
    let message = some["error"].as_str().unwrap();
    assert!(message.contains("lines 1 to 3 (refused): 2 of these lines: too many entities for table \"t\": over the limit entities = "), "{message}");
    assert_eq!((&some["rows"], &some["bad_lines"]), (&1.into(), &2.into()));
}

#[test]
fn the_answer_waits_for_the_disk() {
    let s = stage(Limits::default());
    let cx = context(&s);
    let done = s.hold_next();
    let (mut client, server) = pipe(1 << 16);
    let serving = serve(server, cx, Box::pin(std::future::pending()));
    block_on(zip(serving, async {
        client.write_all(&post("/write", "", LINE)).await.unwrap();
        while s.writes.get() == 0 {
            futures_lite::future::yield_now().await;
        }
        let mut byte = [0];
        for _ in 0..100 {
            let early = futures_lite::future::poll_once(client.read(&mut byte)).await;
            assert!(early.is_none(), "it is not durable yet");
            futures_lite::future::yield_now().await;
        }
        done.send(()).unwrap();
        client.close().await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(status(&text), 204);
    }));
}

#[test]
fn a_client_that_asks_is_told_to_go_on_or_why_not() {
    let s = stage(Limits {
        http_body_bytes: 5000,
        ..Limits::default()
    });
    let cx = context(&s);
    for (length, expect) in [(LINE.len(), "100"), (5001, "413")] {
        let (mut client, server) = pipe(1 << 16);
        let serving = serve(server, cx.clone(), Box::pin(std::future::pending()));
        block_on(zip(serving, async {
            let fields = format!("Content-Length: {length}\r\nExpect: 100-continue\r\n");
            client
                .write_all(&post_as("/write", &fields, b""))
                .await
                .unwrap();
            let mut first = [0; 12];
            client.read_exact(&mut first).await.unwrap();
            assert_eq!(&first[9..], expect.as_bytes());
            let _ = client.write_all(LINE).await;
            let _ = client.close().await;
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            let expect = if expect == "100" {
                "204 No Content"
            } else {
                "http_body_bytes = 5000"
            };
            assert!(text.contains(expect), "{text}");
        }));
    }
    assert_eq!(s.values().len(), 1);
}

#[test]
fn a_body_that_breaks_off_is_told_and_nothing_of_it_is_written() {
    let (pack, chunks) = (
        "Content-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\n",
    );
    let bomb = gzip(&LINE.repeat(10_000));
    let mut wrong_sum = gzip(LINE);
    let at = wrong_sum.len() - 8;
    wrong_sum[at] ^= 1;
    let short = gzip(LINE);
    for (request, expect, reason) in [
        (post("/write", "", &LINE.repeat(400)), 413, "too_large"),
        (
            post_as("/write", chunks, &chunked(&LINE.repeat(400), 999)),
            413,
            "too_large",
        ),
        (post("/write", pack, &bomb), 413, "too_large"),
        (post("/write", pack, &wrong_sum), 400, "malformed"),
        (
            post("/write", pack, &short[..short.len() - 3]),
            400,
            "malformed",
        ),
        (
            post("/write", pack, &[&short[..], b"garbage"].concat()),
            400,
            "malformed",
        ),
        (post("/write", pack, LINE), 400, "malformed"),
        (post("/write", pack, b""), 400, "malformed"),
        (
            post("/write", "Content-Encoding: br\r\n", LINE),
            415,
            "encoding",
        ),
        (post_as("/write", chunks, b"1b\nx"), 400, "malformed"),
        (
            post_as(
                "/write",
                chunks,
                &[b"1b\r\n", LINE, b"x\r\n0\r\n\r\n"].concat(),
            ),
            400,
            "malformed",
        ),
        (
            post_as("/write", "Content-Length: 99\r\n", LINE),
            400,
            "cut",
        ),
        (
            post_as("/write", chunks, &[b"1b\r\n", LINE].concat()),
            400,
            "cut",
        ),
    ] {
        let s = stage(Limits {
            http_body_bytes: 10_000,
            ..Limits::default()
        });
        let cx = context(&s);
        // What is left of the body is never taken for a request.
        let request = [&request[..], b"GET /health HTTP/1.1\r\n\r\n"].concat();
        let request = match reason {
            "cut" => &request[..request.len() - 24],
            _ => &request[..],
        };
        let text = exchange(&cx, request, 1 << 20);
        assert_eq!(status(&text), expect, "{text}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text}");
        assert!(text.contains("Connection: close\r\n"), "{text}");
        assert_eq!(s.values(), [0; 0], "{text}");
        let told = Rejection::ALL.map(|r| (r.name(), get(cx.counters.rejected(r))));
        assert_eq!(
            told.iter().filter(|r| r.1 > 0).collect::<Vec<_>>(),
            [&(reason, 1)]
        );
    }
}

#[test]
fn faults_of_the_server_are_worth_another_try() {
    for (state, expect, again) in [
        (SqlState::DiskFull, 507, true),
        (SqlState::OutOfMemory, 503, true),
        (SqlState::AdminShutdown, 503, true),
        (SqlState::IoError, 500, false),
    ] {
        let s = stage(Limits::default());
        s.fail_next(state);
        let cx = context(&s);
        let text = exchange(&cx, &post("/write", "", LINE), 1 << 16);
        assert_eq!(status(&text), expect, "{text}");
        assert_eq!(text.contains("Retry-After: "), again, "{text}");
        assert_eq!(s.writes.get(), 1, "it is the client that tries again");
        let message = json(&text)["error"].as_str().unwrap().to_owned();
        assert_eq!(message, "as the test wants it; nothing of it is written");
        assert_eq!(get(cx.counters.rejected(Rejection::Unavailable)), 1);
    }
}

#[test]
fn while_the_server_drains_a_body_may_still_end() {
    // A sleep of 7 ms is over at once, any other never ends.
    for (ends, drain_ms) in [(true, 200), (false, 14)] {
        let s = stage(Limits {
            drain_ms,
            ..Limits::default()
        });
        let mut cx = context(&s);
        cx.tasks = Rc::new(FakeTasks);
        let (ask, asked) = futures_channel::oneshot::channel::<()>();
        let (mut client, server) = pipe(1 << 16);
        let stop = Box::pin(async {
            let _ = asked.await;
        });
        block_on(zip(serve(server, cx, stop), async {
            let (head, tail) = LINE.split_at(9);
            let request = post_as("/write", "Content-Length: 27\r\n", head);
            client.write_all(&request).await.unwrap();
            for _ in 0..20 {
                futures_lite::future::yield_now().await;
            }
            ask.send(()).unwrap();
            for _ in 0..20 {
                futures_lite::future::yield_now().await;
            }
            if ends {
                client.write_all(tail).await.unwrap();
            }
            let mut first = [0; 12];
            client.read_exact(&mut first).await.unwrap();
            let expect: &[u8] = if ends { b"204" } else { b"503" };
            assert_eq!(&first[9..], expect);
            let _ = client.close().await;
        }));
        assert_eq!(s.values().len(), usize::from(ends));
    }
}

/// Of a large body only some is held at a time, however fast it comes and however small it was packed.
#[test]
fn a_large_body_is_never_held_whole() {
    let s = stage(Limits {
        ilp_in_flight_bytes: 64 << 10,
        ..Limits::default()
    });
    let cx = context(&s);
    let held: Vec<_> = (0..10_000).map(|_| s.hold_next()).collect();
    let packed = gzip(&LINE.repeat(150_000));
    let request = post("/write", "Content-Encoding: gzip\r\n", &packed);
    let (mut client, server) = pipe(1 << 12);
    let serving = serve(server, cx.clone(), Box::pin(std::future::pending()));
    let mut most = 0;
    let watch = async {
        let mut same = 0;
        while same < 100 {
            let before = get(&s.cx.counters.lines_total);
            futures_lite::future::yield_now().await;
            most = most.max(get(&s.cx.counters.in_flight_bytes));
            same = if get(&s.cx.counters.lines_total) == before {
                same + 1
            } else {
                0
            };
        }
        assert!(get(&s.cx.counters.lines_total) < 50_000);
        drop(held);
        std::future::pending::<()>().await;
    };
    let exchange = zip(serving, async {
        client.write_all(&request).await.unwrap();
        client.close().await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(status(&text), 204, "{text}");
    });
    block_on(futures_lite::future::or(
        async {
            exchange.await;
        },
        watch,
    ));
    assert_eq!(s.written.borrow().len(), 150_000);
    assert!(most < 2 << 20, "{most} bytes in flight");
}

#[test]
fn chunks_of_any_form_are_read_or_refused() {
    let read = |text: &str| {
        let how = (BodyLength::Chunked, Encoding::Identity);
        body(text.as_bytes(), how, 3, 1 << 20)
    };
    let good = |body: &str, at| Ok((body.as_bytes().to_vec(), at));
    assert_eq!(read("3\r\nabc\r\n0\r\n\r\nGET"), good("abc", 13));
    assert_eq!(
        read("A ;x=\"y\"\r\n0123456789\r\n00\r\na: b\r\n\r\n"),
        good("0123456789", 34)
    );
    for text in [
        "3\nabc\r\n0\r\n\r\n",
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "0\r\n\n",
        "0\r\na: b\n\r\n",
        "1000000000000000\r\n",
        "3;a\nb\r\nabc\r\n",
        "3\rabc",
    ] {
        assert!(matches!(read(text), Err(BodyError::Chunks(_))), "{text:?}");
    }
    let long = format!("3;{}\r\n", "x".repeat(2000));
    assert!(matches!(read(&long), Err(BodyError::Chunks(_))));
    let trailer = format!("0\r\n{}\r\n", "a: b\r\n".repeat(3000));
    assert!(matches!(read(&trailer), Err(BodyError::Chunks(_))));
    assert_eq!(read("3\r\nab"), Err(BodyError::Cut));
    let whole = |n| {
        body(
            b"abcdef",
            (BodyLength::Bytes(n), Encoding::Identity),
            4,
            1 << 20,
        )
    };
    assert_eq!(whole(0), good("", 0));
    assert_eq!(whole(5), good("abcde", 5));
    assert_eq!(whole(7), Err(BodyError::Cut));
}
