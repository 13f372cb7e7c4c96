//! What a commit of the log costs, beside the floor of the machine, measured in one run: a plain program's
//! write and fdatasync of one block, a loopback round trip, and then the same through our file layer, our log,
//! and a connection with the log behind it. Also how fast a log is read at start.
//!
//! `cargo run --release -p strandline-shard --example log_latency [directory]`
#![allow(clippy::disallowed_methods)] // it measures the machine

use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use strandline_core::error::{Error, Result};
use strandline_core::ids::Lsn;
use strandline_core::io::{Env, FileMode, TaskQueue};
use strandline_core::limits::Limits;
use strandline_shard::runtime::net::Port;
use strandline_shard::runtime::{Executors, spawn};
use strandline_shard::wal::{RecordKind, Wal, WalOptions};

const ROUNDS: usize = 3000;
const BLOCK: usize = 4096;
const BLOCKS: u64 = 2048;

struct Times(&'static str, Histogram<u64>);

impl Times {
    fn new(name: &'static str) -> Times {
        Times(
            name,
            Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap(),
        )
    }
    fn add(&mut self, since: Instant) {
        self.1.saturating_record(since.elapsed().as_nanos() as u64);
    }
    fn show(&self) -> f64 {
        let us = |q: f64| self.1.value_at_quantile(q) as f64 / 1000.0;
        let (name, p50, p99) = (self.0, us(0.5), us(0.99));
        println!("{name:<58} p50 {p50:>8.1} µs   p99 {p99:>8.1} µs");
        p50
    }
}

fn block_floor(dir: &Path) -> f64 {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(dir.join("floor"))
        .unwrap();
    let memory = vec![0_u8; 2 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let block = &memory[start..start + BLOCK];
    for n in 0..BLOCKS {
        file.write_all_at(block, n * BLOCK as u64).unwrap();
    }
    file.sync_all().unwrap();
    let mut times = Times::new("floor: 4 KiB O_DIRECT write + fdatasync, plain program");
    for n in 0..ROUNDS as u64 {
        let since = Instant::now();
        file.write_all_at(block, n % BLOCKS * BLOCK as u64).unwrap();
        file.sync_data().unwrap();
        times.add(since);
    }
    times.show()
}

fn ask(stream: &mut std::net::TcpStream, times: &mut Times) {
    let mut back = [0; 100];
    for _ in 0..ROUNDS {
        let since = Instant::now();
        stream.write_all(&[1; 100]).unwrap();
        stream.read_exact(&mut back).unwrap();
        times.add(since);
    }
}

fn loopback_floor() -> f64 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buf = [0; 100];
        while stream.read_exact(&mut buf).is_ok() {
            stream.write_all(&buf).unwrap();
        }
    });
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut times = Times::new("floor: loopback round trip, plain program");
    ask(&mut stream, &mut times);
    drop(stream);
    echo.join().unwrap();
    times.show()
}

async fn open(env: &Env, dir: &str) -> Result<(Wal, u64)> {
    let limits = Limits::default();
    let mut bytes = 0;
    let mut replay = |_: Lsn, _: RecordKind, record: &[u8]| {
        bytes += record.len() as u64;
        Ok(())
    };
    let options = WalOptions::default();
    let (wal, _) = Wal::open(env, dir, &limits, options, &mut replay).await?;
    Ok((wal, bytes))
}

async fn commit(wal: &Wal, bytes: &[u8]) -> Result<Lsn> {
    let (told, durable) = futures_channel::oneshot::channel();
    wal.append(
        RecordKind(1),
        &mut |out| out.extend_from_slice(bytes),
        Box::new(move |result| {
            let _ = told.send(result);
        }),
    )?;
    durable.await.map_err(|_| Error::internal("no answer"))?
}

async fn on_executor(env: Env, port: Arc<Port>) -> Result<()> {
    let file = env.disk.create("ours", FileMode::Direct).await?;
    file.write_at(0, &vec![0; BLOCKS as usize * BLOCK]).await?;
    file.sync().await?;
    let mut times = Times::new("ours: write_and_sync of 4 KiB, on the executor");
    for n in 0..ROUNDS as u64 {
        let since = Instant::now();
        file.write_and_sync(n % BLOCKS * BLOCK as u64, &[1; BLOCK])
            .await?;
        times.add(since);
    }
    times.show();
    let mut times = Times::new("ours: write_at, then sync");
    for n in 0..ROUNDS as u64 {
        let since = Instant::now();
        file.write_at(n % BLOCKS * BLOCK as u64, &[1; BLOCK])
            .await?;
        file.sync().await?;
        times.add(since);
    }
    times.show();

    let file = env.disk.create("cached", FileMode::Buffered).await?;
    file.write_at(0, &vec![7; 8 << 20]).await?;
    let mut times = Times::new("ours: read of 64 KiB from the page cache");
    for n in 0..ROUNDS as u64 {
        let since = Instant::now();
        file.read_at(n % 128 * (64 << 10), 64 << 10).await?;
        times.add(since);
    }
    times.show();

    let (wal, _) = open(&env, "log").await?;
    for n in 0..500 {
        commit(&wal, &[n as u8; 200]).await?; // past the small first files
    }
    wal.quiesce().await?;
    let mut times = Times::new("ours: one record through the log, on the executor");
    for _ in 0..ROUNDS {
        let since = Instant::now();
        commit(&wal, &[1; 200]).await?;
        times.add(since);
    }
    times.show();

    let listener = port.listen()?;
    let durable = Rc::new(wal.clone());
    spawn(TaskQueue::Ingest, async move {
        // The first connection is echoed at once, the second when its bytes are in the log.
        for logged in [false, true] {
            let mut stream = listener.accept().await.unwrap();
            let mut buf = [0; 100];
            while stream.read_exact(&mut buf).await.is_ok() {
                if logged {
                    commit(&durable, &buf).await.unwrap();
                }
                stream.write_all(&buf).await.unwrap();
            }
        }
    });
    let address = port.address();
    let (ended, end) = flume::bounded(1);
    std::thread::spawn(move || {
        for name in [
            "ours: loopback round trip to an executor",
            "ours: loopback round trip with a commit in it",
        ] {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut times = Times::new(name);
            ask(&mut stream, &mut times);
            let p50 = times.show();
            drop(stream);
            ended.send(p50).unwrap();
        }
    });
    end.recv_async().await.unwrap();
    let with_commit = end.recv_async().await.unwrap();
    println!("RESULT {with_commit}");
    wal.close().await;

    let (wal, _) = open(&env, "large").await?;
    let since = Instant::now();
    const MIB: usize = 1 << 20;
    let record = vec![3_u8; 64 << 10];
    for _ in 0..256 * MIB / record.len() {
        wal.room().await;
        wal.append(
            RecordKind(1),
            &mut |out| out.extend_from_slice(&record),
            Box::new(|_| {}),
        )?;
        if wal.stats().records % 4 == 0 {
            env.breathe().await;
        }
    }
    wal.flush().await?;
    let stats = wal.stats();
    println!(
        "256 MiB of records of 64 KiB written in {:?}, {} commits, of a commit p50 {} µs p99 {} µs",
        since.elapsed(),
        stats.commits,
        stats.commit_us.value_at_quantile(0.5),
        stats.commit_us.value_at_quantile(0.99)
    );
    wal.close().await;
    for _ in 0..2 {
        let since = Instant::now();
        let (wal, bytes) = open(&env, "large").await?;
        println!("{} MiB replayed in {:?}", bytes >> 20, since.elapsed());
        wal.close().await;
    }
    Ok(())
}

fn main() {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let dir = tempfile::tempdir_in(parent).unwrap();
    let disk = block_floor(dir.path());
    let net = loopback_floor();
    let port = Arc::new(Port::reserve("127.0.0.1:0").unwrap());
    let root = dir.path().to_path_buf();
    let executors = Executors::start(1, move |cx| {
        Box::pin(on_executor(cx.env(&root), port.clone()))
    });
    executors.unwrap().join().unwrap();
    let disk_after = block_floor(dir.path());
    let floor = (disk + disk_after) / 2.0 + net;
    println!("floor {floor:.1} µs; allowed p50 {:.1} µs", 1.5 * floor);
}
