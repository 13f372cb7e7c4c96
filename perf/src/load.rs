//! How load arrives: back to back on some connections, or on a schedule that a stall cannot hold up.

use crate::pg::Pg;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Of nanoseconds, three digits.
pub type Histogram = hdrhistogram::Histogram<u64>;

/// An empty one, up to ten minutes.
pub fn histogram() -> Histogram {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("fixed bounds")
}

/// A quantile, µs.
pub fn quantile_us(h: &Histogram, q: f64) -> f64 {
    h.value_at_quantile(q) as f64 / 1e3
}

/// Elapsed ms.
pub fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Sends `message` on every connection again as soon as it is answered, for `warm` and then for `time`.
/// One thread serves all of them with poll(2), as `pgbench -c 64 -j 1` does: a thread for each would spend
/// more of the machine on switching between clients than the server spends on their statements.
pub fn back_to_back(
    connections: &mut [Pg],
    message: &[u8],
    warm: Duration,
    time: Duration,
) -> Result<(Histogram, f64)> {
    let mut h = histogram();
    let mut fds: Vec<libc::pollfd> = connections
        .iter()
        .map(|c| libc::pollfd {
            fd: c.stream().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let mut sent = Vec::with_capacity(connections.len());
    for c in connections.iter_mut() {
        c.send(message)?;
        sent.push(Instant::now());
    }
    let from = Instant::now() + warm;
    let until = from + time;
    let mut open = connections.len();
    while open > 0 {
        // SAFETY: `fds` is a live array of that many pollfd structs, whose descriptors `connections` keeps open.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, 10_000) };
        match ready {
            0 => return Err(Error::other("no answer within 10 s")),
            n if n < 0 => return Err(Error::last_os_error()),
            _ => {}
        }
        for (i, c) in connections.iter_mut().enumerate() {
            if fds[i].revents == 0 || !c.receive()? {
                continue;
            }
            let now = Instant::now();
            if now >= from && now < until {
                h.saturating_record((now - sent[i]).as_nanos() as u64);
            }
            if now < until {
                c.send(message)?;
                sent[i] = Instant::now();
            } else {
                // A negative descriptor is passed over.
                fds[i].fd = -1;
                open -= 1;
            }
        }
    }
    let rate = h.len() as f64 / time.as_secs_f64();
    Ok((h, rate))
}

/// What an open loop saw.
pub struct Paced {
    /// From the moment a statement was due until its answer, ns.
    pub answers: Histogram,
    /// By how much the client itself woke late, ns: no part of the above.
    pub client_late: Histogram,
}

/// Sends `message` at a fixed rate, whatever the answers do. A statement that had to wait for the answer
/// before it counts from the moment it was due, so a stall counts for every statement it holds up. Where the
/// client was free and merely woke late, it counts from the moment it was sent; how late is told apart.
pub fn paced(
    connection: &mut Pg,
    message: &[u8],
    per_second: f64,
    time: Duration,
) -> Result<Paced> {
    // Timers are rounded up by 50 µs unless told otherwise, which is as long as a statement may take.
    // SAFETY: PR_SET_TIMERSLACK takes one integer and concerns this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    let mut paced = Paced {
        answers: histogram(),
        client_late: histogram(),
    };
    let began = Instant::now();
    let mut free = began;
    for i in 0..(per_second * time.as_secs_f64()) as u64 {
        let due = began + Duration::from_secs_f64(i as f64 / per_second);
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        let mut since = due;
        if free <= due {
            since = Instant::now();
            let late = since.saturating_duration_since(due);
            paced.client_late.saturating_record(late.as_nanos() as u64);
        }
        connection.send(message)?;
        while !connection.receive()? {}
        free = Instant::now();
        paced
            .answers
            .saturating_record((free - since).as_nanos() as u64);
    }
    Ok(paced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const READY: &[u8] = b"Z\0\0\0\x05I";

    /// Answers ReadyForQuery to whatever comes, and stalls once before the answer of this number.
    fn answering(stall_at: usize, stall: Duration) -> (String, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let thread = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("a client");
            let mut bytes = [0u8; 4096];
            for n in 0.. {
                if peer.read(&mut bytes).expect("read") == 0 {
                    return;
                }
                if n == stall_at {
                    std::thread::sleep(stall);
                }
                peer.write_all(READY).expect("written");
            }
        });
        (address, thread)
    }

    #[test]
    fn a_stall_counts_for_every_statement_it_holds_up() {
        // Answer 0 is that of the start-up message.
        let (address, thread) = answering(50, Duration::from_millis(100));
        let mut pg = Pg::connect(&address).expect("connected");
        let paced = paced(&mut pg, b"x", 1_000.0, Duration::from_millis(500)).expect("paced");
        drop(pg);
        thread.join().expect("ended");
        assert_eq!(paced.answers.len(), 500);
        // A hundred were due in the stall; back to back, one alone would have shown it.
        let over = |ms: u64| {
            paced
                .answers
                .iter_recorded()
                .filter(|v| v.value_iterated_to() > ms * 1_000_000)
                .map(|v| v.count_at_value())
                .sum::<u64>()
        };
        assert!(over(50) >= 45, "{}", over(50));
        assert!(paced.answers.max() >= 99_000_000);
    }

    #[test]
    fn back_to_back_answers_are_counted() {
        let (address, thread) = answering(usize::MAX, Duration::ZERO);
        let mut pg = [Pg::connect(&address).expect("connected")];
        let (h, rate) =
            back_to_back(&mut pg, b"x", Duration::ZERO, Duration::from_millis(200)).expect("ran");
        drop(pg);
        thread.join().expect("ended");
        assert!(!h.is_empty());
        assert!((rate - h.len() as f64 * 5.0).abs() < 1.0);
    }
}
