//! Line protocol over TCP: what is good is written, what is bad costs its own line.

use strandline_tests::server::Server;

#[test]
fn bad_lines_cost_themselves_alone() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    server.query("CREATE TABLE declared (n INT, flag BOOL, note TEXT, x DOUBLE)");
    server.query("CREATE ROWS TABLE registry (a INT)");
    let lines: &[&[u8]] = &[
        b"\xEF\xBB\xBFcpu,entity=a v=1 1000000000\r\n",
        b"# a comment\n",
        b"\n",
        b"cpu,entity=a v=2,v=3 2000000000\n",
        b"cpu,entity=a v=oops 3000000000\n",
        b"cpu v=1 3000000000\n",
        b"cpu,entity=a v=NaN 3000000000\n",
        b"cpu,entity=a v=\"text\" 3000000000\n",
        b"cpu,entity=a v=9007199254740993i 3000000000\n",
        b"registry,entity=a a=1 3000000000\n",
        b"declared,entity=a n=1.5 3000000000\n",
        b"declared,entity=a n=7i,flag=true,note=\"a \\\"b\\\"\",x=0.5 4000000000\n",
        b"\xFF\xFE,entity=a v=1 3000000000\n",
        b"widen,entity=a w=t 1000000\n",
        b"widen,entity=a w=5i 2000000\n",
        b"widen,entity=a w=0.25 3000000\n",
        b"cpu,entity=with\\ space,other=ignored v=4 1500000\n",
        b"cpu,entity=before\\ 1970 v=4 -1500000\n",
    ];
    server.send_lines(&lines.concat());
    assert_eq!(
        server.query("SELECT entity, ts, v FROM cpu ORDER BY entity, ts"),
        vec![
            vec!["a", "1000", "1"],
            vec!["a", "2000", "3"],
            vec!["with space", "1", "4"]
        ]
    );
    assert_eq!(
        server.query("SELECT n, flag, note, x FROM declared"),
        vec![vec!["7", "t", "a \"b\"", "0.5"]]
    );
    assert_eq!(
        server.query("SELECT w FROM widen ORDER BY ts"),
        vec![vec!["1"], vec!["5"], vec!["0.25"]]
    );
    let (_, metrics) = server.get("/metrics");
    let bad: f64 = metrics
        .lines()
        .filter(|l| l.starts_with("strandline_ilp") && l.contains("bad"))
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert_eq!(bad, 9.0, "{metrics}");
    // The log is rate limited: of these bad lines it has the first few.
    assert!(
        server.log().contains("cpu.v, which is DOUBLE"),
        "the log names table and channel of a bad line: {}",
        server.log()
    );
}

/// A table takes so many entities per shard and no more: a statement is refused whole, a line by itself.
#[test]
fn entities_over_the_limit_are_refused_before_anything_is_written() {
    let data = tempfile::tempdir().expect("a folder");
    let config = data.path().join("strandline.toml");
    std::fs::write(&config, "[limits]\nentities = 3\n").expect("written");
    let config = config.to_str().expect("a path").to_owned();
    let args = ["--config", config.as_str(), "--shards", "2"];
    let dir = data.path().join("data");
    let server = Server::start(&dir, &args);
    server.query("CREATE TABLE t (x DOUBLE)");
    // On two shards at most six fit, so that of ten some shard has too many.
    let values: Vec<String> = (0..10).map(|i| format!("('e{i}', 1, {i})")).collect();
    let insert = format!("INSERT INTO t (entity, ts, x) VALUES {}", values.join(", "));
    for _ in 0..2 {
        let (_, err) = server.psql(&["-v", "VERBOSITY=verbose", "-c", &insert]);
        assert!(
            err.contains("54000") && err.contains("entities = 3") && err.contains("\"t\""),
            "{err}"
        );
        assert_eq!(server.query("SELECT count(*) FROM t"), [["0"]]);
    }
    // Lines stand for themselves: some are in, the rest are bad; known entities go on.
    let lines: String = (0..10)
        .map(|i| format!("t,entity=e{i} x={i} 1000000\n"))
        .collect();
    server.send_lines(lines.as_bytes());
    let held = server.query("SELECT entity FROM t ORDER BY entity");
    assert!((3..=6).contains(&held.len()), "{held:?}");
    server.send_lines(lines.replace(" 1000000", " 2000000").as_bytes());
    assert_eq!(
        server.query("SELECT entity FROM t WHERE ts = 2 ORDER BY entity"),
        held
    );
    let (_, metrics) = server.get("/metrics");
    let refused = format!(
        "strandline_ilp_bad_lines_total{{reason=\"refused\"}} {}",
        2 * (10 - held.len())
    );
    assert!(metrics.contains(&refused), "no {refused} in {metrics}");
    let known = &held[0][0];
    server.query(&format!(
        "INSERT INTO t (entity, ts, x) VALUES ('{known}', 3, 1)"
    ));
    // The same after a restart: entities come back from the log.
    server.kill();
    let server = Server::start(&dir, &args);
    let (_, err) = server.psql(&["-c", &insert]);
    assert!(err.contains("entities = 3"), "{err}");
    assert_eq!(
        server.query("SELECT count(*) FROM t"),
        [[(2 * held.len() + 1).to_string()]]
    );
    let names = [
        "pg_t,entity=a x=1",
        "$t,entity=a x=1",
        "information_schema,entity=a x=1",
        "t,entity=a $x=1",
    ];
    server.send_lines(names.join("\n").as_bytes());
    assert_eq!(server.query("SELECT name FROM $sys.tables"), [["t"]]);
    let (_, metrics) = server.get("/metrics");
    assert!(
        metrics.contains("strandline_ilp_bad_lines_total{reason=\"reserved\"} 4"),
        "{metrics}"
    );
}
