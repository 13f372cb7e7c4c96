//! What a message between executors costs: a question and its answer, and how many go over when many tasks
//! ask at once, or nobody waits for an answer at all.
//!
//! `cargo run --release -p strandline-shard --example mailboxes`
#![allow(clippy::disallowed_methods)] // it measures the machine

use futures_channel::oneshot;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use strandline_core::error::{Error, Result};
use strandline_core::io::TaskQueue;
use strandline_shard::hop::Hop;
use strandline_shard::runtime::{ExecutorContext, Executors, Mailboxes, spawn};

const ROUNDS: u32 = 20_000;
const TASKS: u32 = 64;
const ONE_WAY: u32 = 1_000_000;

fn lost<E>(_: E) -> Error {
    Error::internal("a message was lost")
}

async fn ask(mailboxes: &Mailboxes, to: usize) -> Result<()> {
    let (reply, answer) = oneshot::channel();
    let job = move |_: &Rc<dyn std::any::Any>| {
        let _ = reply.send(());
    };
    mailboxes.send(to, Box::new(job));
    answer.await.map_err(lost)
}

async fn asking(mailboxes: Rc<Mailboxes>, to: usize, tasks: u32) -> Result<()> {
    let times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3);
    let times = Rc::new(RefCell::new(times.map_err(lost)?));
    let (left, since) = (Rc::new(Cell::new(tasks)), Instant::now());
    let (all, ended) = oneshot::channel();
    let all = Rc::new(Cell::new(Some(all)));
    for _ in 0..tasks {
        let (mailboxes, times) = (mailboxes.clone(), times.clone());
        let (left, all) = (left.clone(), all.clone());
        spawn(TaskQueue::Ingest, async move {
            for _ in 0..ROUNDS / tasks {
                let since = Instant::now();
                if ask(&mailboxes, to).await.is_err() {
                    return;
                }
                let took = since.elapsed().as_nanos() as u64;
                times.borrow_mut().saturating_record(took);
            }
            left.set(left.get() - 1);
            if left.get() == 0
                && let Some(all) = all.take()
            {
                let _ = all.send(());
            }
        });
    }
    ended.await.map_err(lost)?;
    let (times, rate) = (
        times.borrow(),
        f64::from(ROUNDS) / since.elapsed().as_secs_f64(),
    );
    let us = |q: f64| times.value_at_quantile(q) as f64 / 1000.0;
    let (p50, p99) = (us(0.5), us(0.99));
    println!("{tasks:>3} asking: p50 {p50:>7.1} µs   p99 {p99:>7.1} µs   {rate:>9.0}/s");
    Ok(())
}

async fn one_way(mailboxes: &Mailboxes, to: usize) -> Result<()> {
    let since = Instant::now();
    for n in 0..ONE_WAY {
        mailboxes.send(to, Box::new(|_| {}));
        if n % 64 == 0 {
            // As tasks do: others get their turn in time.
            futures_lite::future::yield_now().await;
        }
    }
    ask(mailboxes, to).await?;
    let rate = f64::from(ONE_WAY) / since.elapsed().as_secs_f64();
    println!("one way: {rate:>9.0}/s");
    Ok(())
}

async fn run(cx: ExecutorContext) -> Result<()> {
    cx.serve(Rc::new(()));
    if cx.index() == 1 {
        cx.stopped().await;
        return Ok(());
    }
    let mailboxes = Rc::new(cx.mailboxes());
    // The other one may not have started yet.
    ask(&mailboxes, 1).await?;
    strandline_shard::runtime::sleep(Duration::from_millis(20)).await;
    for _ in 0..3 {
        asking(mailboxes.clone(), 1, 1).await?;
        asking(mailboxes.clone(), 1, TASKS).await?;
        one_way(&mailboxes, 1).await?;
    }
    cx.stop();
    Ok(())
}

fn main() {
    let executors = Executors::start(2, |cx| Box::pin(run(cx)));
    executors.and_then(Executors::join).expect("it runs");
}
