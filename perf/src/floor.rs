//! What the machine can do at best: one aligned 4 KiB direct write and fdatasync by a plain program, and one
//! round trip over loopback. It is measured beside what is held against it, not once for all: on a shared
//! machine it moves.

use crate::load::{Histogram, back_to_back, histogram};
use crate::pg::Pg;
use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

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
    let mut file = Prewritten::new(dir, "floor")?;
    let mut times = histogram();
    for _ in 0..rounds {
        let began = Instant::now();
        file.commit()?;
        times.saturating_record(began.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// A file of zeros that goes with this.
struct Prewritten {
    path: std::path::PathBuf,
    file: File,
    page: Page,
    commits: u64,
}

impl Prewritten {
    const BLOCKS: u64 = 1024;

    fn new(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        std::fs::write(&path, vec![0u8; Self::BLOCKS as usize * 4096])?;
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
        Ok(Prewritten {
            path,
            file,
            page: Page([0; 4096]),
            commits: 0,
        })
    }

    /// Writes the next block and waits for the disk.
    fn commit(&mut self) -> Result<()> {
        self.commits += 1;
        self.page.0[..8].copy_from_slice(&self.commits.to_le_bytes());
        let at = self.commits % Self::BLOCKS * 4096;
        self.file.write_all_at(&self.page.0, at)?;
        self.file.sync_data()
    }
}

impl Drop for Prewritten {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What a server can do at best for `connections` clients at a time: one thread for each of two cores takes
/// whatever has come from its clients, writes one block for all of it, waits for the disk, and sends each an
/// answer that was made before. It understands nothing and keeps nothing. Answers per second.
pub fn group_commits(
    dir: &Path,
    connections: usize,
    message: &[u8],
    warm: Duration,
    time: Duration,
) -> Result<f64> {
    const THREADS: usize = 2;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let accepting = std::thread::spawn(move || -> Result<Vec<TcpStream>> {
        (0..connections)
            .map(|_| {
                let (mut peer, _) = listener.accept()?;
                peer.set_nodelay(true)?;
                // What it is greeted with.
                let mut greeting = [0; 1024];
                let _ = peer.read(&mut greeting)?;
                peer.write_all(ANSWER)?;
                Ok(peer)
            })
            .collect()
    });
    let mut clients = (0..connections)
        .map(|_| Pg::connect(&address))
        .collect::<Result<Vec<_>>>()?;
    let mut peers = accepting
        .join()
        .map_err(|_| Error::other("the bare server died"))??;
    let mut servers = Vec::new();
    for n in 0..THREADS {
        let left = THREADS - n;
        let mine = peers.split_off(peers.len() - peers.len() / left);
        let mut file = Prewritten::new(dir, &format!("floor-{n}"))?;
        servers.push(std::thread::spawn(move || answer_all(mine, &mut file)));
    }
    let (_, rate) = back_to_back(&mut clients, message, warm, time)?;
    drop(clients);
    for server in servers {
        server
            .join()
            .map_err(|_| Error::other("the bare server died"))??;
    }
    Ok(rate)
}

/// BindComplete, CommandComplete and ReadyForQuery.
const ANSWER: &[u8] = b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 1\0Z\0\0\0\x05I";

/// Until all have gone.
fn answer_all(peers: Vec<TcpStream>, file: &mut Prewritten) -> Result<()> {
    let mut fds: Vec<libc::pollfd> = peers
        .iter()
        .map(|p| libc::pollfd {
            fd: p.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let mut open = peers.len();
    let mut bytes = [0u8; 1024];
    let mut asked = Vec::with_capacity(peers.len());
    while open > 0 {
        // SAFETY: `fds` is a live array of that many pollfd structs, whose descriptors `peers` keeps open.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
        if ready < 0 {
            return Err(Error::last_os_error());
        }
        asked.clear();
        for (i, peer) in peers.iter().enumerate() {
            if fds[i].revents == 0 {
                continue;
            }
            if { peer }.read(&mut bytes).unwrap_or(0) > 0 {
                asked.push(peer);
            } else {
                fds[i].fd = -1;
                open -= 1;
            }
        }
        if asked.is_empty() {
            continue;
        }
        file.commit()?;
        for peer in &mut asked {
            peer.write_all(ANSWER)?;
        }
    }
    Ok(())
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
