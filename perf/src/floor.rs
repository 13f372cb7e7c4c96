//! What the machine can do at best: one aligned 4 KiB direct write and fdatasync by a plain program, and one
//! round trip over loopback.

use std::fs::OpenOptions;
use std::io::{Read, Write};
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
    /// A byte there and back.
    pub round_trip_us: f64,
}

impl Floor {
    /// Both, one after the other: the least a durable answer over a socket can take.
    pub fn sum_us(&self) -> f64 {
        self.write_us + self.round_trip_us
    }
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// Measures both, in `dir`.
pub fn measure(dir: &Path, rounds: usize) -> std::io::Result<Floor> {
    Ok(Floor {
        write_us: write_us(dir, rounds)?,
        round_trip_us: round_trip_us(rounds)?,
    })
}

fn write_us(dir: &Path, rounds: usize) -> std::io::Result<f64> {
    let path = dir.join("floor");
    let blocks = 1024u64;
    std::fs::write(&path, vec![0u8; blocks as usize * 4096])?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)?;
    file.sync_all()?;
    let mut page = Page([0; 4096]);
    let mut times = Vec::with_capacity(rounds);
    for i in 0..rounds as u64 {
        page.0[..8].copy_from_slice(&(i + 1).to_le_bytes());
        let began = Instant::now();
        file.write_all_at(&page.0, i % blocks * 4096)?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(&path)?;
    Ok(median(times))
}

fn round_trip_us(rounds: usize) -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut byte = [0u8; 64];
        loop {
            let n = peer.read(&mut byte)?;
            if n == 0 {
                return Ok(());
            }
            peer.write_all(&byte[..n])?;
        }
    });
    let mut peer = TcpStream::connect(address)?;
    peer.set_nodelay(true)?;
    let mut byte = [7u8; 64];
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = Instant::now();
        peer.write_all(&byte)?;
        peer.read_exact(&mut byte)?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    drop(peer);
    let _ = echo.join();
    Ok(median(times))
}
