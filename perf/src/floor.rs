//! What the machine can do at best: one aligned 4 KiB direct write and fdatasync by a plain program, and one
//! round trip over loopback. It is measured beside what is held against it, not once for all: on a shared
//! machine it moves.

use crate::load::{Histogram, histogram};
use std::fs::OpenOptions;
use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

/// A page-aligned page.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Medians, µs.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Write and fdatasync of 4 KiB into a prewritten file.
    pub write_us: f64,
    /// 64 bytes there and back.
    pub round_trip_us: f64,
}

impl Floor {
    /// Both, one after the other: the least a durable answer over a socket can take.
    pub fn sum_us(&self) -> f64 {
        self.write_us + self.round_trip_us
    }
}

/// Measures both, in `dir`.
pub fn measure(dir: &Path, rounds: usize) -> Result<Floor> {
    Ok(Floor {
        write_us: median_us(&writes(dir, rounds)?),
        round_trip_us: median_us(&round_trips(rounds)?),
    })
}

fn median_us(h: &Histogram) -> f64 {
    h.value_at_quantile(0.5) as f64 / 1e3
}

/// Times of writes, ns.
fn writes(dir: &Path, rounds: usize) -> Result<Histogram> {
    let path = dir.join("floor");
    let blocks = 1024u64;
    std::fs::write(&path, vec![0u8; blocks as usize * 4096])?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .map_err(|e| {
            Error::other(format!(
                "{}: {e}; name a folder on a disk that takes direct writes (--dir)",
                path.display()
            ))
        })?;
    file.sync_all()?;
    let mut page = Page([0; 4096]);
    let mut times = histogram();
    for i in 0..rounds as u64 {
        page.0[..8].copy_from_slice(&(i + 1).to_le_bytes());
        let began = Instant::now();
        file.write_all_at(&page.0, i % blocks * 4096)?;
        file.sync_data()?;
        times.saturating_record(began.elapsed().as_nanos() as u64);
    }
    std::fs::remove_file(&path)?;
    Ok(times)
}

/// Times of round trips, ns.
fn round_trips(rounds: usize) -> Result<Histogram> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut bytes = [0u8; 64];
        loop {
            let n = peer.read(&mut bytes)?;
            if n == 0 {
                return Ok(());
            }
            peer.write_all(&bytes[..n])?;
        }
    });
    let mut peer = TcpStream::connect(address)?;
    peer.set_nodelay(true)?;
    let mut bytes = [7u8; 64];
    let mut times = histogram();
    for _ in 0..rounds {
        let began = Instant::now();
        peer.write_all(&bytes)?;
        peer.read_exact(&mut bytes)?;
        times.saturating_record(began.elapsed().as_nanos() as u64);
    }
    drop(peer);
    echo.join().map_err(|_| Error::other("the echo died"))??;
    Ok(times)
}
