//! MUTABLE tables over line protocol, and through the death of the process.

use strandline_tests::server::Server;

#[test]
fn lines_update_and_a_delete_outlives_the_process() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    server.query("CREATE TABLE dev (fw DOUBLE, name TEXT) WITH (MUTABLE)");
    let lines = (0..2000u64).map(|i| {
        let (entity, ns) = (i % 50, i * 1_000_000);
        format!("dev,entity=e{entity} fw={i},name=\"n{i}\" {ns}\n")
    });
    server.send_lines(lines.collect::<String>().as_bytes());
    let all = "SELECT count(*), max(fw), min(fw) FROM dev";
    assert_eq!(server.query(all), vec![vec!["50", "1999", "1950"]]);
    let delete = |server: &Server, entity: &str| {
        let sql = format!("DELETE FROM dev WHERE entity = '{entity}'");
        server.psql(&["-c", &sql]).0.trim().to_owned()
    };
    assert_eq!(delete(&server, "e0"), "DELETE 1");
    assert_eq!(delete(&server, "e10"), "DELETE 1");
    assert_eq!(delete(&server, "e10"), "DELETE 0");
    server.kill();

    let server = Server::start(data.path(), &[]);
    assert_eq!(server.query(all), vec![vec!["48", "1999", "1951"]]);
    server.query("CHECKPOINT");
    // The tombstone of e10 stands at 1960.
    server.send_lines(b"dev,entity=e10 fw=1 1960000000\ndev,entity=e0 fw=2 1951000000\n");
    server.kill();

    let server = Server::start(data.path(), &[]);
    let back = "SELECT entity, ts, fw, name FROM dev WHERE entity IN ('e0', 'e10')";
    assert_eq!(server.query(back), vec![vec!["e0", "1951", "2", ""]]);
    assert_eq!(delete(&server, "e10"), "DELETE 0");
}
