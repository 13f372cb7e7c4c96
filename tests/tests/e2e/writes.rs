//! Lines over HTTP, as curl and bare sockets send them, and thousands of connections over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use strandline_tests::server::Server;

/// Status, head and body of a request by curl; `body` goes in over its standard input.
fn curl(server: &Server, path: &str, args: &[&str], body: &[u8]) -> (u16, String) {
    let mut child = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "60"])
        .args(args)
        .args(["--data-binary", "@-"])
        .arg(format!("http://{}{path}", server.http))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut input = child.stdin.take().expect("a pipe");
    let body = body.to_vec();
    let feed = std::thread::spawn(move || input.write_all(&body));
    let out = child.wait_with_output().expect("curl ends");
    let _ = feed.join();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    // Behind "100 Continue".
    let answer = text.rfind("HTTP/1.1 ").map_or("", |at| &text[at..]);
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or(0), text)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("packed");
    packer.finish().expect("packed")
}

fn metric(server: &Server, name: &str) -> f64 {
    let (_, metrics) = server.get("/metrics");
    let line = metrics
        .lines()
        .find(|l| l.strip_prefix(name).is_some_and(|l| l.starts_with(' ')));
    let value = line.and_then(|l| l.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

fn resident_bytes(server: &Server) -> u64 {
    metric(server, "process_resident_memory_bytes") as u64
}

#[test]
fn writes_by_curl_are_durable_when_they_are_answered() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    let (gz, chunked) = ("Content-Encoding: gzip", "Transfer-Encoding: chunked");
    let token = "Authorization: Token any";
    let line = |ts: u64| format!("cpu,entity=a v={ts} {ts}\n").into_bytes();
    for (ts, path, args) in [
        (1u64, "/write?db=main&precision=s", &[][..]),
        (2, "/write?db=main&precision=s&u=me&p=x", &["-H", chunked]),
        (3, "/write?precision=s", &["-u", "me:secret"]),
        (
            4,
            "/api/v2/write?org=o&bucket=main&precision=s",
            &["-H", token],
        ),
        (
            5,
            "/api/v2/write?org=o&bucket=main%2Fautogen&precision=s",
            &["-H", token],
        ),
    ] {
        let (status, text) = curl(&server, path, args, &line(ts));
        assert_eq!(status, 204, "{path}: {text}");
        let packed = [args, &["-H", gz]].concat();
        let (status, text) = curl(&server, path, &packed, &gzip(&line(ts + 100)));
        assert_eq!(status, 204, "{path}: {text}");
    }
    // Larger than what curl sends without asking first.
    let many: String = (0..100_000)
        .map(|i| format!("many,entity=e{} v={i} {i}\n", i % 7))
        .collect();
    let (status, text) = curl(
        &server,
        "/write?precision=ms",
        &["-H", "Expect: 100-continue"],
        many.as_bytes(),
    );
    assert_eq!(status, 204, "{text}");
    assert!(text.contains("100 Continue"), "{text}");
    server.kill();

    let server = Server::start(data.path(), &[]);
    let expect: Vec<Vec<String>> = (1..6)
        .chain(101..106)
        .map(|s| vec![(s * 1000).to_string()])
        .collect();
    assert_eq!(server.query("SELECT ts FROM cpu ORDER BY ts"), expect);
    assert_eq!(
        server.query("SELECT count(*), max(v) FROM many"),
        [["100000", "99999"]]
    );
}

#[test]
fn errors_name_lines_and_what_to_do() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    server.query("CREATE TABLE declared (n INT)");
    let body = b"declared,entity=a n=1i 1000000\ndeclared,entity=a n=1.5 2000000\nnonsense\n";
    let (status, text) = curl(&server, "/write?db=main", &[], body);
    assert_eq!(status, 400);
    for part in [
        r#"{"error":"partial write: 2 of 3 lines are bad, the others are written: line 2 (value): 1.5 for declared.n"#,
        r#""rows":1,"bad_lines":2"#,
        r#"{"line":3,"reason":"syntax","#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let (status, text) = curl(&server, "/api/v2/write?bucket=main", &[], body);
    assert_eq!(status, 400);
    assert!(
        text.contains(r#"{"code":"invalid","message":"partial write"#),
        "{text}"
    );
    let (status, text) = curl(&server, "/write?db=telegraf", &[], body);
    assert_eq!(status, 404);
    assert!(
        text.contains("database not found") && text.contains("main"),
        "{text}"
    );
    let (status, _) = curl(&server, "/write", &["-H", "Content-Encoding: zstd"], body);
    assert_eq!(status, 415);
    assert_eq!(
        server.query("SELECT ts, n FROM declared"),
        [["1", "1"], ["1", "1"]]
    );
    let bad = "strandline_ilp_bad_lines_total{reason=\"value\"}";
    assert_eq!(metric(&server, bad), 2.0);
    let rejected = |reason| {
        metric(
            &server,
            &format!("strandline_http_bodies_rejected_total{{reason=\"{reason}\"}}"),
        )
    };
    assert_eq!((rejected("parameter"), rejected("encoding")), (1.0, 1.0));
    assert_eq!(
        metric(&server, "strandline_http_writes_total{api=\"v1\"}"),
        3.0
    );
    assert_eq!(server.get("/ping").0, 204);
}

/// A body is parsed as it comes: a gigabyte of it, packed or not, takes a few megabytes.
#[test]
fn a_gigabyte_of_body_takes_little_memory() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    let (status, _) = curl(&server, "/write", &[], b"t,entity=a v=0 0\n");
    assert_eq!(status, 204);
    // Comments cost the least to read in an unoptimised build.
    let mut block = vec![b'x'; 1 << 20];
    block[0] = b'#';
    block[(1 << 20) - 1] = b'\n';
    let line = |i: usize| format!("t,entity=a v={i} {i}000000\n").into_bytes();
    let before = resident_bytes(&server);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for i in 1..=1024 {
        packer.write_all(&block).expect("packed");
        packer.write_all(&line(i)).expect("packed");
    }
    let packed = packer.finish().expect("packed");
    let (status, text) = curl(
        &server,
        "/write",
        &["-H", "Content-Encoding: gzip"],
        &packed,
    );
    assert_eq!(status, 204, "{text}");
    assert_eq!(server.query("SELECT count(*) FROM t"), [["1025"]]);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");

    // The same in chunks over a bare socket, and another request behind it on the same connection.
    let mut stream = TcpStream::connect(&server.http).expect("http");
    stream
        .write_all(b"POST /write HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .expect("sent");
    for i in 2000..2128 {
        for chunk in [&block, &line(i)] {
            stream
                .write_all(format!("{:x}\r\n", chunk.len()).as_bytes())
                .expect("sent");
            stream.write_all(chunk).expect("sent");
            stream.write_all(b"\r\n").expect("sent");
        }
    }
    stream.write_all(b"0\r\n\r\n").expect("sent");
    stream
        .write_all(b"HEAD /ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    assert_eq!(text.matches("HTTP/1.1 204 No Content").count(), 2, "{text}");
    assert_eq!(server.query("SELECT count(*) FROM t"), [["1153"]]);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[test]
fn tags_are_stored_where_the_server_is_told_to() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(
        data.path(),
        &["--ilp-tags", "store", "--ilp-entity-tag", "host"],
    );
    server.query("CREATE TABLE own (v DOUBLE) WITH (ENTITY TAG device)");
    let lines = b"cpu,host=h1,region=eu v=1 1000000\ncpu,host=h1,region=eu v=2 2000000\nown,device=d1,host=h1 v=3 3000000\n";
    server.send_lines(lines);
    let (status, text) = curl(
        &server,
        "/write",
        &[],
        b"cpu,host=h2,region=us,zone=z v=3 3000000\n",
    );
    assert_eq!(status, 204, "{text}");
    assert_eq!(
        server.query("SELECT entity, ts, region, zone FROM cpu ORDER BY ts"),
        [
            ["h1", "1", "eu", ""],
            ["h1", "2", "eu", ""],
            ["h2", "3", "us", "z"]
        ]
    );
    assert_eq!(
        server.query("SELECT entity, host, v FROM own"),
        [["d1", "h1", "3"]]
    );
    // Of another name from now on; who is connected already notices.
    server.query("DROP TABLE own");
    server.query("CREATE TABLE own (v DOUBLE)");
    server.send_lines(b"own,device=d1,host=h1 v=3 3000000\n");
    assert_eq!(
        server.query("SELECT entity, device FROM own"),
        [["h1", "d1"]]
    );
    let e = Server::try_start(&data.path().join("other"), &["--ilp-tags", "all"]).err();
    assert!(e.is_some_and(|e| e.contains("ilp_tags")));
}

/// Thousands of connections that send a little now and then, beside one that sends all it can: each costs
/// little memory, and none waits for the others.
#[test]
fn thousands_of_connections_trickle() {
    const CONNECTIONS: usize = 2_500;
    raise_open_files();
    let data = tempfile::tempdir().expect("a folder");
    let config = data.path().join("strandline.toml");
    std::fs::write(&config, "[limits]\nconnections = 5000\n").expect("written");
    let config = config.to_str().expect("a path").to_owned();
    let server = Server::start(&data.path().join("data"), &["--config", &config]);
    server.send_lines(b"t,entity=first v=0 0\n");
    let before = resident_bytes(&server);
    let mut all: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(&server.ilp).expect("a connection"))
        .collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let send = |all: &mut Vec<TcpStream>, round: usize| {
        for (i, stream) in all.iter_mut().enumerate() {
            let line = format!("t,entity=e{i} v={round} {round}000000\n");
            stream.write_all(line.as_bytes()).expect("sent");
        }
    };
    let seen = |round: usize| {
        let sql = format!("SELECT count(*) FROM t WHERE ts = {round}");
        let began = std::time::Instant::now();
        while server.query(&sql) != [[CONNECTIONS.to_string()]] {
            assert!(
                began.elapsed().as_secs() < 60,
                "not all of round {round} is there"
            );
        }
    };
    send(&mut all, 1);
    seen(1);
    assert_eq!(
        metric(&server, "strandline_ilp_connections"),
        CONNECTIONS as f64
    );
    let each = resident_bytes(&server).saturating_sub(before) / CONNECTIONS as u64;
    assert!(each < 24 << 10, "{each} bytes for each connection");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut greedy = TcpStream::connect(&server.ilp).expect("a connection");
            let lines: String = (0..10_000)
                .map(|i| format!("busy,entity=g{} v={i} {i}000000\n", i % 50))
                .collect();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                greedy.write_all(lines.as_bytes()).expect("sent");
            }
        });
        for round in 2..5 {
            send(&mut all, round);
            seen(round);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(all);
    let began = std::time::Instant::now();
    while metric(&server, "strandline_ilp_connections") > 0.0 {
        assert!(began.elapsed().as_secs() < 60, "connections do not end");
    }
}

/// As many as the hard limit allows: the clients are files of this process.
fn raise_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointers are to a live rlimit of ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// A table of what `influxdb-client` and Telegraf ask before and beside their writes.
#[test]
fn what_clients_ask_beside_their_writes() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    for (head, expect) in [
        ("GET /ping HTTP/1.1", "204"),
        ("HEAD /ping HTTP/1.1", "204"),
        ("GET /health HTTP/1.1", "200"),
        ("GET /write HTTP/1.1", "405"),
        ("POST /query?q=CREATE+DATABASE+main HTTP/1.1", "404"),
    ] {
        let mut stream = TcpStream::connect(&server.http).expect("http");
        let request = format!("{head}\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert_eq!(text.split(' ').nth(1), Some(expect), "{head}: {text}");
    }
}
