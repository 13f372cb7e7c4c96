//! The command itself: what it refuses, where it listens, how it ends, and the demo.

use std::path::Path;
use std::process::{Command, Output};
use strandline_tests::server::{Server, binary};

fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary());
    command.args(args).envs(env.iter().copied());
    command.output().expect("it runs")
}

/// Runs `serve` over `data` with arguments that it must refuse; what it wrote to standard error.
fn refused(data: &Path, args: &[&str]) -> String {
    let mut all = vec!["serve", "--data", data.to_str().expect("UTF-8")];
    all.extend(args);
    let out = run(&all, &[]);
    assert!(!out.status.success(), "{args:?} was accepted");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("strandline.toml");
    let path = file.to_str().expect("UTF-8");
    for (args, words) in [
        (&["--pg", "0.0.0.0:0"][..], &["pg", "--insecure"][..]),
        (&["--ilp", "0.0.0.0:0"], &["ilp", "--insecure"]),
        (&["--http", "0.0.0.0:0"], &["http", "--insecure"]),
        (&["--pg", "localhost"], &["pg", "HOST:PORT"]),
        (&["--memory", "plenty"], &["memory", "plenty"]),
        (&["--memory", "1M"], &["memory_bytes"]),
        (&["--node-id", "12345"], &["node_id", "12345"]),
        (&["--shards", "0"], &["shards"]),
        (&["--config", path], &["strandline.toml"]),
    ] {
        let said = refused(dir.path(), args);
        assert!(words.iter().all(|w| said.contains(w)), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
    for (text, words) in [
        ("shards = 2\nno_such = 1", &["line 2", "no_such"][..]),
        ("[limits]\nno_such = 1", &["no_such"]),
        ("[limits]\nblock_rows = 3", &["block_rows", "16"]),
        ("pg = 5", &["line 1"]),
        ("pg = ", &["line 1"]),
    ] {
        std::fs::write(&file, text).expect("written");
        let said = refused(dir.path(), &["--config", path]);
        assert!(words.iter().all(|w| said.contains(w)), "{text}: {said}");
    }
    // Nothing of it made a database.
    assert!(!dir.path().join("dbs").exists());
}

#[test]
fn settings_come_from_flags_then_environment_then_the_file() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("strandline.toml");
    std::fs::write(
        &file,
        "shards = 3\nnode_id = '00a1'\nilp_entity_tag = 'host'\n[limits]\nbuckets = 10",
    )
    .expect("written");
    let server = Server::start(
        data.path(),
        &[
            "--config",
            file.to_str().expect("UTF-8"),
            "--node-id",
            "00b2",
        ],
    );
    assert_eq!(server.query("SELECT count(*) FROM $sys.shards"), [["3"]]);
    server.query("CREATE ROWS TABLE t (a INT)");
    let xid = &server.query("INSERT INTO t (a) VALUES (1)")[0][0];
    assert!(xid.ends_with("00b2"), "{xid}");
    let limits = server.query("SHOW limits");
    let buckets = limits
        .iter()
        .find(|l| l[0] == "buckets")
        .expect("the limit");
    assert_eq!(buckets[1], "10");
    server.send_lines(b"m,host=a v=1 1\n");
    assert_eq!(server.query("SELECT entity, ts FROM m"), [["a", "0"]]);
    assert_eq!(server.terminate(), Some(0));
    // The shards were fixed by the first start.
    let said = refused(
        data.path(),
        &[
            "--pg",
            "127.0.0.1:0",
            "--ilp",
            "off",
            "--http",
            "off",
            "--shards",
            "2",
        ],
    );
    assert!(said.contains("3 shards"), "{said}");
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.query("SELECT a FROM t"), [["1"]]);
}

#[test]
fn listeners_can_be_off_and_addresses_go_with_the_server() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    let addresses = data.path().join("run/addresses.json");
    let text = std::fs::read_to_string(&addresses).expect("addresses");
    for key in [
        "\"pg\":\"127.0.0.1:",
        "\"ilp\":\"127.0.0.1:",
        "\"http\":\"127.0.0.1:",
    ] {
        assert!(text.contains(key), "{text}");
    }
    let other = tempfile::tempdir().expect("a folder");
    let said = refused(
        other.path(),
        &["--pg", &server.pg, "--ilp", "off", "--http", "off"],
    );
    assert!(said.contains(&server.pg), "{said}");
    assert_eq!(server.terminate(), Some(0));
    assert!(!addresses.exists());
    // A later flag does not stand over an earlier one of the same name, so start it by hand.
    let mut child = Command::new(binary())
        .args([
            "serve",
            "--pg",
            "127.0.0.1:0",
            "--ilp",
            "off",
            "--http",
            "OFF",
            "--data",
        ])
        .arg(data.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let text = loop {
        if let Ok(text) = std::fs::read_to_string(&addresses) {
            break text;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let _ = child.kill();
    let _ = child.wait();
    assert!(
        text.contains("\"pg\"") && !text.contains("ilp") && !text.contains("http"),
        "{text}"
    );
}

#[test]
fn a_server_at_its_limit_of_connections_says_so_and_recovers() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("strandline.toml");
    std::fs::write(&file, "[limits]\nconnections = 3").expect("written");
    let server = Server::start(data.path(), &["--config", file.to_str().expect("UTF-8")]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut open = vec![];
        for _ in 0..3 {
            open.push(server.connect().await);
        }
        let e = server.try_connect().await.expect_err("one too many");
        let e = e.as_db_error().expect("an error of the server");
        assert_eq!(e.code().code(), "53300");
        assert!(e.message().contains("connections = 3"), "{}", e.message());
        open.pop();
        // The server notices the end of a connection by itself; until then it may still refuse.
        let again = async {
            while server.try_connect().await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), again)
            .await
            .expect("a place comes back");
        for client in &open {
            client
                .simple_query("SELECT 1")
                .await
                .expect("the others go on");
        }
    });
}

#[test]
fn the_demo_asks_and_ends() {
    let out = run(&["demo", "--exit"], &[]);
    let (said, log) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{said}{log}");
    for part in [
        "loaded 26115 observations",
        "loaded 3322 planes",
        "LATEST ON ts PARTITION BY entity",
        // The gust of 58.7 mph came without a pressure; it is held from an hour before. From the CSV.
        "2013-01-31 12:00:00+00 | 58.68978          | 985.7",
        "2013-01-31 12:00:00+00 | 58.68978          | ∅",
        " → 0 rows written",
        "3324  | N10156  | 55    | t",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
}

/// CHECKPOINT after CHECKPOINT left small segments behind that nothing merged until memory ran full.
#[test]
fn segments_of_checkpoints_are_merged() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &["--shards", "1"]);
    server.query("CREATE ROWS TABLE registry (a INT)");
    server.query("CREATE TABLE readings (v DOUBLE)");
    for i in 0..4 {
        server.query(&format!("INSERT INTO registry (a) VALUES ({i})"));
        server.query(&format!(
            "INSERT INTO readings (entity, ts, v) VALUES ('a', {i}, {i})"
        ));
        server.psql(&["-c", "CHECKPOINT"]);
    }
    let segments = || {
        server
            .query("SELECT table_name, count(*) FROM $sys.segments GROUP BY table_name ORDER BY 1")
    };
    let began = std::time::Instant::now();
    let one_each = vec![vec!["readings", "1"], vec!["registry", "1"]];
    while segments() != one_each {
        assert!(
            began.elapsed() < std::time::Duration::from_secs(20),
            "{:?}",
            segments()
        );
    }
    assert_eq!(
        server.query("SELECT count(v), sum(v) FROM readings"),
        vec![vec!["4", "6"]]
    );
    assert_eq!(
        server.query("SELECT count(*) FROM registry"),
        vec![vec!["4"]]
    );
}
