//! Rows on their way out: limits, cancelling, slow clients, flushes.

use super::*;

#[test]
fn order_limit_offset() {
    let e = engine();
    session(&e.clone(), |mut c, _| async move {
        c.query(TELEMETRY).await;
        *e.stream_batches.borrow_mut() = vec![numbers(0, 3), numbers(3, 5)];
        let select = "SELECT ts FROM telemetry";
        let rows = |heard: Vec<String>| -> Vec<String> {
            let rows = heard.into_iter().filter(|m| m.starts_with("D "));
            rows.map(|m| m[2..].to_owned()).collect()
        };
        for (tail, expected) in [
            ("", &["0", "1", "2", "3", "4"][..]),
            ("LIMIT 2 OFFSET 2", &["2", "3"]),
            ("ORDER BY ts DESC", &["4", "3", "2", "1", "0"]),
            ("ORDER BY ts DESC LIMIT 2", &["4", "3"]),
            ("ORDER BY ts DESC LIMIT 2 OFFSET 4", &["0"]),
            ("ORDER BY ts LIMIT 0", &[]),
            ("OFFSET 9", &[]),
        ] {
            assert_eq!(
                rows(c.query(&format!("{select} {tail}")).await),
                expected,
                "{tail}"
            );
        }
    });
}

#[test]
fn cancel_and_timeout() {
    let e = engine();
    e.endless.set(true);
    *e.stream_batches.borrow_mut() = vec![numbers(0, 2)];
    session(&e.clone(), |mut c, cx| async move {
        c.query(TELEMETRY).await;
        let select = "SELECT ts FROM telemetry";
        c.send(&raw(b'Q', &[select.as_bytes(), b"\0"].concat()))
            .await;
        // The rows that are there come although the query goes on.
        assert_eq!(c.hear().await, "T ts:20");
        assert_eq!(c.hear().await, "D 0");
        assert_eq!(c.hear().await, "D 1");
        assert_eq!(e.open_streams.get(), 1);
        let cancel = |pid: i32, secret: &[u8]| {
            let body = [&80_877_102u32.to_be_bytes()[..], &pid.to_be_bytes(), secret].concat();
            let len = (body.len() as u32 + 4).to_be_bytes();
            [&len[..], &body].concat()
        };
        let (pid, secret) = c.key.clone();
        for (bytes, counted) in [(cancel(pid, b"nope"), 0), (cancel(pid, &secret), 1)] {
            let (a, b) = pipe(1 << 10);
            let mut other = Client::new(b);
            other.send(&bytes).await;
            serve(a, cx.clone()).await;
            assert_eq!(other.hear().await, "closed");
            let cancels = cx
                .counters
                .cancels_total
                .load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(cancels, counted);
        }
        assert_eq!(
            c.hear_all().await,
            [
                "E ERROR 57014 canceling statement due to user request",
                "Z I"
            ]
        );
        assert_eq!(e.open_streams.get(), 0);
        // A cancel between statements is forgotten.
        assert!(cx.registry.cancel(pid, &secret));
        assert_eq!(c.query("").await, ["I", "Z I"]);
        c.query("SET statement_timeout = 7").await;
        let heard = c.query(select).await;
        assert!(
            heard.iter().any(
                |m| m.starts_with("E ERROR 57014 canceling statement due to statement timeout")
            ),
            "{heard:?}"
        );
        // Sorting waits for all rows: it is stopped too.
        assert!(c.query(&format!("{select} ORDER BY ts")).await[0].starts_with("E ERROR 57014"));
        assert_eq!(e.open_streams.get(), 0);
    });
}

#[test]
fn a_client_that_stops_reading_stops_its_query() {
    let e = engine();
    *e.stream_batches.borrow_mut() = (0..1000)
        .map(|i| numbers(i * 1000, (i + 1) * 1000))
        .collect();
    let cx = context(e.clone());
    let (a, b) = pipe(1 << 16);
    block_on(or(serve(a, cx), async {
        let mut c = ready_client(Client::new(b), &[]).await;
        c.query(TELEMETRY).await;
        c.send(&raw(b'Q', b"SELECT ts, speed FROM telemetry\0"))
            .await;
        for _ in 0..10_000 {
            futures_lite::future::yield_now().await;
        }
        // About 20 bytes a row: the pipe and the buffer are full long before the million rows.
        let asked = e.handed_out.get();
        assert!((1..50).contains(&asked), "{asked} batches asked for");
        assert_eq!(e.open_streams.get(), 1);
        // It goes away.
        drop(c);
        for _ in 0..100 {
            futures_lite::future::yield_now().await;
        }
    }));
    assert_eq!(e.open_streams.get(), 0);
}

#[test]
fn one_write_per_round_trip() {
    let e = engine();
    e.slow_writes.set(true);
    let cx = context(e);
    let (a, b) = pipe(1 << 20);
    let writes = a.writes.clone();
    block_on(zip(serve(a, cx), async {
        let mut c = ready_client(Client::new(b), &[]).await;
        c.query(DEVICES).await;
        let insert = "INSERT INTO devices (name) VALUES ($1)";
        ask(&mut c, [parse("s", insert, &[]), sync()]).await;
        let before = writes.get();
        let run = || {
            [
                bind("", "s", &[], &[Some(b"x")], &[]),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ]
        };
        ask(&mut c, run()).await;
        assert_eq!(writes.get() - before, 1);
        // Of two pipelined statements the first is answered while the second waits for the disk.
        c.send(&encode(run().into_iter().chain(run()))).await;
        assert_eq!(c.hear_all().await.len(), 5);
        assert_eq!(c.hear_all().await.len(), 5);
        assert_eq!(writes.get() - before, 3);
    }));
}
