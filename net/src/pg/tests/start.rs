//! The first packet.

use super::*;

#[test]
fn the_greeting() {
    talk(&engine(), |mut c, _| async move {
        let mut ssl = bytes::BytesMut::new();
        F::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(SslRequest::new()))
            .encode(&mut ssl)
            .unwrap();
        GssEncRequest::new().encode(&mut ssl).unwrap();
        c.send(&ssl).await;
        let mut no = [0; 2];
        futures_lite::AsyncReadExt::read_exact(&mut c.pipe, &mut no)
            .await
            .unwrap();
        assert_eq!(&no, b"NN");
        c.start(
            2,
            &[
                ("user", "ann"),
                ("_pq_.x", "1"),
                ("application_name", "t"),
                ("options", "-c statement_timeout=5s -c insert_returns=none"),
            ],
        )
        .await;
        let mut all = vec![];
        while all.last().is_none_or(|m: &String| !m.starts_with("Z ")) {
            all.push(c.hear().await);
        }
        assert_eq!(all[0], "v 196608 [\"_pq_.x\"]");
        assert_eq!(all[1], "R Ok");
        for expected in [
            "S application_name=t",
            "S client_encoding=UTF8",
            "S DateStyle=ISO, MDY",
            "S TimeZone=UTC",
            "S integer_datetimes=on",
            "S standard_conforming_strings=on",
            "S IntervalStyle=postgres",
            "S is_superuser=on",
            "S session_authorization=ann",
            "S in_hot_standby=off",
            "S default_transaction_read_only=off",
            "S server_encoding=UTF8",
            concat!(
                "S server_version=15.0 (Strandline ",
                env!("CARGO_PKG_VERSION"),
                ")"
            ),
        ] {
            assert!(all.iter().any(|m| m == expected), "{expected} in {all:?}");
        }
        assert_eq!(all[all.len() - 2..], ["K", "Z I"]);
        assert_ne!(c.key.0, 0);
        assert_eq!(
            c.query("SHOW statement_timeout").await,
            ["T statement_timeout:25", "D 5s", "C SHOW", "Z I"]
        );
        c.query("CREATE ROWS TABLE t (a INT)").await;
        assert_eq!(
            c.query("INSERT INTO t (a) VALUES (1)").await,
            ["C INSERT 0 1", "Z I"]
        );
    });
}

#[test]
fn refused_at_the_door() {
    for (parameters, expected) in [
        (vec![], "E FATAL 28000"),
        (
            vec![("user", "ann"), ("database", "other")],
            "E FATAL 3D000",
        ),
        (vec![("user", "a"), ("no_such", "1")], "E FATAL 42704"),
        (vec![("user", "a"), ("options", "-x")], "E FATAL 42601"),
        (
            vec![("user", "a"), ("replication", "true")],
            "E FATAL 0A000",
        ),
        (
            vec![("user", "a"), ("client_encoding", "LATIN1")],
            "E FATAL 22023",
        ),
    ] {
        talk(&engine(), |mut c, _| async move {
            c.start(0, &parameters).await;
            let heard = c.hear_all().await;
            assert!(heard[0].starts_with(expected), "{heard:?}");
            assert_eq!(heard[1], "closed");
        });
    }
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "E FATAL 08P01"),
        (b"\0\0\0\x08\0\x02\0\0", "E FATAL 0A000"),
        (b"\0\0\0\x09\0\x03\0\0x", "E FATAL 08P01"),
        (b"\0\0\0\x07\0\x03\0", "E FATAL 08P01"),
        (b"\xff\xff\xff\xff", "E FATAL 08P01"),
    ] {
        talk(&engine(), |mut c, _| async move {
            c.send(bytes).await;
            assert!(c.hear().await.starts_with(expected));
        });
    }
}

#[test]
fn no_room_and_no_hurry() {
    let full = FakeEngine::new(Limits {
        connections: 1,
        ..Limits::default()
    });
    let cx = context(full);
    let place = cx.admission.admit().unwrap();
    let (a, b) = pipe(1 << 16);
    block_on(zip(serve(a, cx.clone()), async {
        let mut c = Client::new(b);
        c.start(0, &[("user", "ann")]).await;
        let e = c.hear().await;
        assert!(
            e.starts_with("E FATAL 53300") && e.contains("connections = 1"),
            "{e}"
        );
    }));
    drop(place);
    // The test's clock is at 7 ms already.
    let impatient = FakeEngine::new(Limits {
        startup_ms: 7,
        ..Limits::default()
    });
    talk(&impatient, |mut c, _| async move {
        assert_eq!(c.hear().await, "closed");
    });
}

#[test]
fn going_down() {
    // Nobody waits for a client that has not said who it is.
    talk(&engine(), |mut c, cx| async move {
        c.send(b"\0\0").await;
        cx.registry.close();
        assert_eq!(c.hear().await, "closed");
        assert!(cx.registry.is_empty());
    });
    session(&engine(), |mut c, cx| async move {
        assert_eq!(c.query("").await, ["I", "Z I"]);
        cx.registry.close();
        assert!(c.hear().await.starts_with("E FATAL 57P01"));
        assert_eq!(c.hear().await, "closed");
    });
}
