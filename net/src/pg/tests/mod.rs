//! Conversations over a pipe in memory, with `pgwire`'s codec at the other end.

mod driver;
mod extended;
mod hostile;
mod simple;
mod start;
mod stream;

use super::*;
use crate::testing::frame as raw;
use crate::testing::{Client, FakeEngine, Pipe, context, pipe};
use futures_lite::future::{block_on, or, zip};
use pgwire::messages::PgWireFrontendMessage as F;
use pgwire::messages::extendedquery as ext;
use pgwire::messages::startup::{GssEncRequest, SslRequest};
use pgwire::messages::{Message as _, SslNegotiationMetaMessage};
use proptest::prelude::*;
use std::future::Future;
use strandline_core::limits::Limits;
use strandline_core::value::{Batch, Cell, Column, ColumnBuilder, ColumnData};

/// Runs a server on one end of a pipe and `client` on the other.
fn talk<Fut: Future<Output = ()>>(
    engine: &Rc<FakeEngine>,
    client: impl FnOnce(Client, Rc<SessionContext>) -> Fut,
) {
    let cx = context(engine.clone());
    let (a, b) = pipe(1 << 20);
    block_on(zip(
        serve(a, cx.clone()),
        client(Client::new(b), cx.clone()),
    ));
    assert_eq!(cx.admission.open(), 0);
    assert_eq!(cx.registry.len(), 0);
    assert_eq!(engine.open_streams.get(), 0);
}

async fn ready_client(mut c: Client, parameters: &[(&str, &str)]) -> Client {
    let mut all = vec![("user", "ann"), ("database", "main")];
    all.extend_from_slice(parameters);
    c.start(0, &all).await;
    assert_eq!(c.hear_all().await, ["R Ok", "K", "Z I"]);
    c
}

fn session<Fut: Future<Output = ()>>(
    engine: &Rc<FakeEngine>,
    client: impl FnOnce(Client, Rc<SessionContext>) -> Fut,
) {
    talk(engine, |c, cx| async move {
        client(ready_client(c, &[]).await, cx).await;
    });
}

fn engine() -> Rc<FakeEngine> {
    FakeEngine::new(Limits::default())
}

fn encode(messages: impl IntoIterator<Item = F>) -> Vec<u8> {
    let mut buf = bytes::BytesMut::new();
    for m in messages {
        m.encode(&mut buf).unwrap();
    }
    buf.to_vec()
}

fn parse(name: &str, text: &str, oids: &[u32]) -> F {
    F::Parse(ext::Parse::new(
        Some(name.into()),
        text.into(),
        oids.to_vec(),
    ))
}
fn bind(portal: &str, name: &str, formats: &[i16], params: &[Option<&[u8]>], results: &[i16]) -> F {
    F::Bind(ext::Bind::new(
        Some(portal.into()),
        Some(name.into()),
        formats.to_vec(),
        params
            .iter()
            .map(|p| p.map(bytes::Bytes::copy_from_slice))
            .collect(),
        results.to_vec(),
    ))
}
fn describe(kind: u8, name: &str) -> F {
    F::Describe(ext::Describe::new(kind, Some(name.into())))
}
fn execute(portal: &str, max: i32) -> F {
    F::Execute(ext::Execute::new(Some(portal.into()), max))
}
fn close(kind: u8, name: &str) -> F {
    F::Close(ext::Close::new(kind, Some(name.into())))
}
fn sync() -> F {
    F::Sync(ext::Sync::new())
}

async fn ask(c: &mut Client, messages: impl IntoIterator<Item = F>) -> Vec<String> {
    c.send(&encode(messages)).await;
    c.hear_all().await
}

const DEVICES: &str =
    "CREATE ROWS TABLE devices (name TEXT, score DOUBLE, n INT, ok BOOL, at TIMESTAMP)";

fn numbers(from: i64, to: i64) -> Batch {
    let mut entity = ColumnBuilder::str();
    let mut speed = ColumnBuilder::f64();
    for n in from..to {
        entity.push(Cell::Str("veh"));
        speed.push(Cell::F64(n as f64));
    }
    let ts = Column::full(ColumnData::I64((from..to).collect()));
    Batch::new(vec![entity.finish(), ts, speed.finish()])
}

const TELEMETRY: &str = "CREATE TABLE telemetry (speed DOUBLE)";
