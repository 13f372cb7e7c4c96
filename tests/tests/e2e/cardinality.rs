//! Many entities, channels and tables: what the limits say when they are reached, and that everything else
//! goes on.

use strandline_tests::server::Server;

fn config(dir: &std::path::Path, limits: &str) -> String {
    let path = dir.join("limits.toml");
    std::fs::write(&path, format!("[limits]\n{limits}")).expect("config");
    path.to_str().expect("a path").to_string()
}

/// SQLSTATE, message and hint of a statement that must fail.
fn refused(server: &Server, sql: &str) -> String {
    let (_, err) = server.psql(&["-v", "VERBOSITY=verbose", "-c", sql]);
    assert!(err.contains("ERROR"), "{sql}: {err}");
    err
}

#[test]
fn names_beyond_their_share_of_memory_are_refused_and_all_else_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let limits = "memory_bytes = \"64M\"\nnames_percent = 1\n";
    let args = ["--shards", "2", "--config", &config(dir.path(), limits)];
    let data = dir.path().join("data");
    let server = Server::start(&data, &args);
    server.query("CREATE TABLE fleet (v DOUBLE)");
    // Two shards have 327 KiB each: some ten thousand names of 30 bytes.
    let line =
        |n: usize| format!("fleet,entity=a-device-of-the-fleet-{n:08} v={n} 1700000000000000000\n");
    for part in 0..30 {
        let lines: String = (part * 1_000..(part + 1) * 1_000).map(line).collect();
        server.send_lines(lines.as_bytes());
    }
    let count = || -> usize {
        let rows = server.query("SELECT count(*) FROM fleet");
        rows[0][0].parse().expect("a number")
    };
    let taken = count();
    assert!(
        (3_000..30_000).contains(&taken),
        "{taken} of 30,000 were taken"
    );
    // An INSERT says why; over both shards nothing of it is written.
    let new: Vec<String> = (0..50).map(|n| format!("('new-{n}', 1, 1)")).collect();
    let sql = format!(
        "INSERT INTO fleet (entity, ts, v) VALUES {}",
        new.join(", ")
    );
    let err = refused(&server, &sql);
    for word in ["53200", "names_percent = 1", "\"fleet\"", "--memory"] {
        assert!(err.contains(word), "no {word} in {err}");
    }
    assert_eq!(count(), taken);
    // Entities that are known are written and read; other tables too, with theirs.
    server.query("INSERT INTO fleet (entity, ts, v) VALUES ('a-device-of-the-fleet-00000007', 1700000000001, 8)");
    let latest = "SELECT v FROM fleet WHERE entity = 'a-device-of-the-fleet-00000007' LATEST ON ts PARTITION BY entity";
    assert_eq!(server.query(latest), [["8"]]);
    assert_eq!(count(), taken + 1);
    // Lines of new entities are left out alone.
    let lines = format!("{}{}", line(90_000_000), line(8));
    server.send_lines(lines.as_bytes());
    assert_eq!(count(), taken + 2);
    server.kill();
    let server = Server::start(&data, &args);
    assert_eq!(
        server.query("SELECT count(*) FROM fleet"),
        [[(taken + 2).to_string()]]
    );
    assert!(refused(&server, &sql).contains("53200"));
    let (_, metrics) = server.get("/metrics");
    let names = metrics
        .lines()
        .filter(|l| l.starts_with("strandline_name_bytes{"));
    let bytes: f64 = names
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!(bytes > 600_000.0, "{bytes} bytes of names");
    // A dropped table gives its room back.
    server.query("DROP TABLE fleet");
    server.query("CREATE TABLE fleet (v DOUBLE)");
    server.query(&sql);
}

#[test]
fn the_device_shadow_is_the_same_without_room_for_tails() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut answers = Vec::new();
    for (name, percent) in [("with", 10), ("without", 0)] {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).expect("made");
        let args = [
            "--config",
            &config(
                &folder,
                &format!("memory_bytes = \"64M\"\ntails_percent = {percent}\nblock_rows = 64\n"),
            ),
        ];
        let data = folder.join("data");
        let server = Server::start(&data, &args);
        server.query("CREATE TABLE fleet (v DOUBLE, s TEXT, late DOUBLE FILL HOLD STALENESS 1 m)");
        let mut told = Vec::new();
        let ask = |server: &Server| {
            server.query("SELECT * FROM fleet LATEST ON ts PARTITION BY entity ORDER BY entity")
        };
        for part in 0..4u64 {
            let lines: String = (0..2_000u64)
                .map(|n| {
                    let (entity, ts) = (n * 7 % 300, 1_700_000_000 + (n * 31 + part * 977) % 5_000);
                    let field = match n % 4 {
                        0 => format!("late={n}"),
                        1 => format!("s=\"t{n}\""),
                        _ => format!("v={n}.5"),
                    };
                    format!("fleet,entity=e{entity} {field} {ts}000000000\n")
                })
                .collect();
            server.send_lines(lines.as_bytes());
            told.push(ask(&server));
            if part % 2 == 0 {
                server.query("CHECKPOINT");
                told.push(ask(&server));
            }
        }
        let shards = server.query("SELECT tails_given_up FROM $sys.shards");
        let given_up: u64 = shards
            .iter()
            .map(|r| r[0].parse::<u64>().expect("a number"))
            .sum();
        assert_eq!(given_up > 0, percent == 0, "{given_up} given up");
        server.kill();
        told.push(ask(&Server::start(&data, &args)));
        assert_eq!(told[0].len(), 300);
        answers.push(told);
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn ten_thousand_channels_of_one_table_and_not_one_more() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    // Two lines bring them: what is a field of a line is a channel of the table.
    for part in 0..2 {
        let fields: Vec<String> = (0..5_000)
            .map(|n| format!("c{}={n}", part * 5_000 + n))
            .collect();
        let line = format!("wide,entity=first {} {part}000000000\n", fields.join(","));
        server.send_lines(line.as_bytes());
    }
    let lines: String = (0..2_000)
        .map(|n| {
            let (a, b) = (n * 7 % 10_000, (n * 131 + 5) % 10_000);
            format!(
                "wide,entity=e{} c{a}={n}.5,c{b}=2 {}000000000\n",
                n % 50,
                n + 10
            )
        })
        .collect();
    server.send_lines(lines.as_bytes());
    let few = "SELECT ts, c7, c8, c9999 FROM wide WHERE entity = 'first' ORDER BY ts";
    let expected = [["0", "7", "8", ""], ["1000", "", "", "4999"]];
    let check = || {
        assert_eq!(server.query(few), expected);
        let latest =
            "SELECT c5000, c4999 FROM wide WHERE entity = 'first' LATEST ON ts PARTITION BY entity";
        assert_eq!(server.query(latest), [["0", "4999"]]);
        assert_eq!(
            server.query("SELECT count(*), count(c7), max(c7) FROM wide"),
            [["2002", "2", "7"]]
        );
        let all = server
            .query("SELECT * FROM wide WHERE entity = 'first' LATEST ON ts PARTITION BY entity");
        assert_eq!((all.len(), all[0].len()), (1, 10_002));
    };
    check();
    server.query("CHECKPOINT");
    check();
    let err = refused(&server, "ALTER TABLE wide ADD COLUMN one_more DOUBLE");
    assert!(err.contains("columns = 10000"), "{err}");
    server.send_lines(
        b"wide,entity=first c7=70,one_more=1 20000000000\nwide,entity=first c7=71 21000000000\n",
    );
    assert_eq!(server.query("SELECT max(c7) FROM wide"), [["71"]]);
}

#[test]
fn tables_up_to_their_limit() {
    let dir = tempfile::tempdir().expect("a folder");
    let args = ["--config", &config(dir.path(), "tables = 60\n")];
    let data = dir.path().join("data");
    let server = Server::start(&data, &args);
    let lines: String = (0..60)
        .map(|n| format!("t{n},entity=e v={n} 1000000000\n"))
        .collect();
    server.send_lines(lines.as_bytes());
    let err = refused(&server, "CREATE TABLE one_more (v DOUBLE)");
    assert!(
        err.contains("53400") && err.contains("tables = 60"),
        "{err}"
    );
    server.send_lines(b"one_more,entity=e v=1 1000000000\nt7,entity=e v=70 2000000000\n");
    let check = |server: &Server| {
        assert_eq!(
            server.query("SELECT ts, v FROM t7"),
            [["1000", "7"], ["2000", "70"]]
        );
        assert_eq!(server.query("SELECT v FROM t59"), [["59"]]);
    };
    check(&server);
    server.kill();
    let server = Server::start(&data, &args);
    check(&server);
    server.query("DROP TABLE t0");
    server.query("CREATE TABLE one_more (v DOUBLE)");
}
