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
        b"cpu,entity=with\\ space,other=ignored v=4 -1500000\n",
    ];
    server.send_lines(&lines.concat());
    assert_eq!(
        server.query("SELECT entity, ts, v FROM cpu ORDER BY entity, ts"),
        vec![
            vec!["a", "1000", "1"],
            vec!["a", "2000", "3"],
            vec!["with space", "-2", "4"]
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
    assert_eq!(bad, 8.0, "{metrics}");
    assert!(
        server.log().contains("registry"),
        "the log names the table of a bad line: {}",
        server.log()
    );
}
