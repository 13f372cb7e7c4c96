//! A real driver, tokio-postgres, over a pipe in memory: what it assumes of a server must hold.

use super::*;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio_postgres::types::Type;
use tokio_postgres::{Client as Driver, Config, NoTls, SimpleQueryMessage};

/// A tokio stream as the rest of the world knows streams.
struct Compat(tokio::io::DuplexStream);

impl futures_lite::AsyncRead for Compat {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<std::io::Result<usize>> {
        let mut buf = tokio::io::ReadBuf::new(buf);
        let done = tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), cx, &mut buf);
        done.map_ok(|()| buf.filled().len())
    }
}

impl futures_lite::AsyncWrite for Compat {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

fn drive<Fut: Future<Output = ()>>(engine: &Rc<FakeEngine>, test: impl FnOnce(Driver) -> Fut) {
    let rt = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let cx = context(engine.clone());
    local.block_on(&rt, async {
        let (a, b) = tokio::io::duplex(1 << 16);
        let server = tokio::task::spawn_local(serve(Compat(a), cx));
        let mut config = Config::new();
        config.user("ann").dbname("main").application_name("test");
        let (client, connection) = config.connect_raw(b, NoTls).await.unwrap();
        let connection = tokio::task::spawn_local(connection);
        test(client).await;
        connection.await.unwrap().unwrap();
        server.await.unwrap();
    });
    assert_eq!(engine.open_streams.get(), 0);
}

#[test]
fn values_there_and_back() {
    drive(&engine(), |db| async move {
        db.batch_execute(DEVICES).await.unwrap();
        let insert = db
            .prepare("INSERT INTO devices (name, score, n, ok, at) VALUES ($1, $2, $3, $4, $5)")
            .await
            .unwrap();
        let expected = [
            Type::TEXT,
            Type::FLOAT8,
            Type::INT8,
            Type::BOOL,
            Type::TIMESTAMPTZ,
        ];
        assert_eq!(insert.params(), expected);
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_261_600_250);
        let row = db
            .query_one(&insert, &[&"ä", &-0.125f64, &(1i64 << 53), &true, &at])
            .await
            .unwrap();
        let xid: &str = row.get("xid");
        assert_eq!(xid.len(), 32);
        let select = "SELECT name, score, n, ok, at, xid FROM devices WHERE xid = $1";
        let row = db.query_one(select, &[&xid]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "ä");
        assert_eq!(row.get::<_, f64>(1), -0.125);
        assert_eq!(row.get::<_, i64>(2), 1 << 53);
        assert!(row.get::<_, bool>(3));
        assert_eq!(row.get::<_, SystemTime>(4), at);
        assert_eq!(row.get::<_, &str>(5), xid);
        let nulls = db
            .query_one(
                "INSERT INTO devices (name) VALUES ($1) RETURNING name, score, x_rev",
                &[&None::<String>],
            )
            .await;
        let nulls = nulls.unwrap();
        assert_eq!(nulls.get::<_, Option<&str>>(0), None);
        assert_eq!(nulls.get::<_, Option<f64>>(1), None);
        let update = "UPDATE devices SET n = $1 WHERE xid = $2";
        assert_eq!(db.execute(update, &[&5i64, &xid]).await.unwrap(), 1);
        assert_eq!(
            db.execute(update, &[&5i64, &"f".repeat(32)]).await.unwrap(),
            0
        );
        let count = db
            .query_one("SELECT count(*) FROM devices", &[])
            .await
            .unwrap();
        assert_eq!(count.get::<_, i64>(0), 2);
        // execute() wants no rows from a plain INSERT, and gets none.
        db.batch_execute("SET insert_returns = none").await.unwrap();
        let n = db
            .execute("INSERT INTO devices (name) VALUES ($1)", &[&"b"])
            .await;
        assert_eq!(n.unwrap(), 1);
    });
}

#[test]
fn errors_and_transactions() {
    drive(&engine(), |mut db| async move {
        db.batch_execute(DEVICES).await.unwrap();
        let e = db.query("SELECT nope FROM devices", &[]).await.unwrap_err();
        let e = e.as_db_error().unwrap().clone();
        assert_eq!(e.code().code(), "42703");
        let at = tokio_postgres::error::ErrorPosition::Original(8);
        assert_eq!(e.position(), Some(&at));
        let tx = db.transaction().await.unwrap();
        tx.execute("INSERT INTO devices (name) VALUES ('a')", &[])
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let tx = db.transaction().await.unwrap();
        tx.execute("INSERT INTO devices (name) VALUES ('b')", &[])
            .await
            .unwrap();
        let e = tx.rollback().await.unwrap_err();
        assert_eq!(e.code().unwrap().code(), "25000");
        // The connection is as good as ever.
        let tx = db.transaction().await.unwrap();
        tx.query("SELECT nope FROM devices", &[]).await.unwrap_err();
        let e = tx.query("SELECT name FROM devices", &[]).await.unwrap_err();
        assert_eq!(e.code().unwrap().code(), "25P02");
        tx.rollback().await.unwrap();
        let rows = db.query("SELECT name FROM devices", &[]).await.unwrap();
        assert_eq!(rows.len(), 2);
    });
}

#[test]
fn portals_and_pipelines() {
    let e = engine();
    *e.stream_batches.borrow_mut() = vec![numbers(0, 1000), numbers(1000, 2500)];
    drive(&e.clone(), |mut db| async move {
        db.batch_execute(TELEMETRY).await.unwrap();
        let tx = db.transaction().await.unwrap();
        let portal = tx
            .bind("SELECT ts, speed FROM telemetry", &[])
            .await
            .unwrap();
        let mut seen = vec![];
        loop {
            let rows = tx.query_portal(&portal, 999).await.unwrap();
            if rows.is_empty() {
                break;
            }
            seen.extend(
                rows.iter()
                    .map(|r| (r.get::<_, i64>(0), r.get::<_, f64>(1))),
            );
        }
        assert_eq!(seen, (0..2500).map(|n| (n, n as f64)).collect::<Vec<_>>());
        tx.commit().await.unwrap();
        let insert = db
            .prepare("INSERT INTO telemetry (entity, ts, speed) VALUES ($1, $2, $3)")
            .await
            .unwrap();
        let mut all = vec![];
        for ts in 0..50i64 {
            let (db, insert) = (&db, &insert);
            all.push(async move { db.execute(insert, &[&"veh", &ts, &1.5f64]).await });
        }
        let done = futures_util::future::join_all(all).await;
        assert!(done.into_iter().all(|n| n.unwrap() == 1));
    });
    assert_eq!(e.stream_rows.get(), 50);
}

#[test]
fn simple_messages() {
    drive(&engine(), |db| async move {
        let heard = db
            .simple_query("SHOW server_version; CREATE ROWS TABLE t (a TEXT); SELECT a FROM t")
            .await
            .unwrap();
        let rows = heard.iter().filter_map(|m| match m {
            SimpleQueryMessage::Row(r) => r.get(0),
            _ => None,
        });
        assert_eq!(rows.collect::<Vec<_>>(), [crate::settings::SERVER_VERSION]);
        assert!(matches!(
            heard.last(),
            Some(SimpleQueryMessage::CommandComplete(0))
        ));
    });
}
