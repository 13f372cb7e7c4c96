//! TCP on an executor. Every executor listens on the same port; the kernel spreads connections over them.
//!
//! Sharing a port between executors (SO_REUSEPORT) would also let a second server of the same user take half
//! of the connections in silence. So a [`Port`] is reserved once per process: it asks for the port without
//! sharing first, which fails while anybody listens there, and holds an abstract socket of that name, which
//! closes the gap between two servers that start together. The kernel lets go of both when the process ends.

use super::executors::this_poller;
use super::poller::{Direction, Registered};
use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::io::PollableFd;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};

/// Connections that wait for `accept`, per executor.
const BACKLOG: i32 = 1024;

/// An address that this process alone listens on. Made before the executors, shared by them.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    /// Bound and never listening: keeps a port that the kernel chose.
    _held: Socket,
    _name: UnixListener,
}

impl Port {
    /// Takes an address such as `127.0.0.1:5432`; port 0 takes a free one.
    ///
    /// # Errors
    /// `55000` naming the address when somebody listens there already, or it is not one of this machine's.
    pub fn reserve(address: &str) -> Result<Port> {
        let refusal = |e: &io::Error| {
            let message = format!("cannot listen on {address}: {e}");
            let refusal = Error::new(SqlState::ObjectNotInPrerequisiteState, message);
            match e.kind() {
                io::ErrorKind::AddrInUse => refusal.hint("another process listens there"),
                io::ErrorKind::PermissionDenied => {
                    refusal.hint("ports below 1024 need a privilege; choose a higher one")
                }
                _ => refusal,
            }
        };
        Self::try_reserve(address).map_err(|e| refusal(&e))
    }

    fn try_reserve(address: &str) -> io::Result<Port> {
        let wanted = address
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such address"))?;
        let mut name = None;
        if wanted.port() != 0 {
            // A server of ours that lives holds the name, and this fails at once.
            name = Some(hold_name(wanted)?);
            unshared(wanted)?;
        }
        let held = shared_socket(&wanted)?;
        let address = held
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("a TCP socket without a TCP address"))?;
        let name = match name {
            Some(name) => name,
            None => hold_name(address)?,
        };
        Ok(Port {
            address,
            _held: held,
            _name: name,
        })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to listen on the executor that calls it.
    ///
    /// # Errors
    /// `58030`: no descriptor is left, or the like.
    pub fn listen(&self) -> Result<TcpListener> {
        let listen = || -> io::Result<TcpListener> {
            let socket = shared_socket(&self.address)?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(TcpListener {
                fd: PollableFd::new(socket.into())?,
            })
        };
        listen().map_err(|e| {
            Error::new(
                SqlState::IoError,
                format!("cannot listen on {}: {e}", self.address),
            )
        })
    }
}

fn hold_name(address: SocketAddr) -> io::Result<UnixListener> {
    let name = UnixAddr::from_abstract_name(format!("strandline/tcp/{address}"))?;
    UnixListener::bind_addr(&name)
}

/// Succeeds when nobody listens there.
fn unshared(address: SocketAddr) -> io::Result<()> {
    /// The kernel takes an io_uring apart after its process has ended, and until then a listener that the
    /// ring watched is still there. Nothing tells when that is done, so it is tried for a second.
    const TRIES: u32 = 50;
    const BETWEEN: Duration = Duration::from_millis(20);
    let mut tries = 0;
    loop {
        let probe = socket(&address)?;
        // Old connections of a server before us do not count; a listener does.
        probe.set_reuse_address(true)?;
        match probe.bind(&address.into()) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries < TRIES => tries += 1,
            bound => return bound,
        }
        std::thread::sleep(BETWEEN);
    }
}

fn socket(address: &SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(*address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // "::" listens for IPv6 alone, so that it does not collide with a listener on "0.0.0.0".
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn shared_socket(address: &SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&(*address).into())?;
    Ok(socket)
}

/// Listens on one executor; see [`Port::listen`].
#[derive(Debug)]
pub struct TcpListener {
    fd: PollableFd<net::TcpListener>,
}

impl Drop for TcpListener {
    /// Ends the listening at once, even while the ring still holds the socket.
    fn drop(&mut self) {
        let _ = SockRef::from(self.fd.get_ref()).shutdown(Shutdown::Both);
    }
}

impl TcpListener {
    /// The next connection, with Nagle's delay off.
    ///
    /// # Errors
    /// What the kernel says. `EMFILE` and `ENFILE` come again at once while no descriptor is free: wait a
    /// moment before the next call.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        loop {
            match self.fd.get_ref().accept() {
                Ok((stream, peer)) => return TcpStream::adopt(stream, peer, true),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.fd.readable().await?,
                // The client went away before we came to it.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// What the kernel says; none is known to happen.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().local_addr()
    }
}

/// A connection. `&TcpStream` reads and writes too, so that one task may read while another writes; each
/// direction wakes one task only.
#[derive(Debug)]
pub struct TcpStream {
    /// Before the socket: see [`Registered`].
    ready: Registered,
    socket: net::TcpStream,
    peer: SocketAddr,
}

impl TcpStream {
    fn adopt(socket: net::TcpStream, peer: SocketAddr, connected: bool) -> io::Result<TcpStream> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(TcpStream {
            ready: this_poller().register(&socket, connected)?,
            socket,
            peer,
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// What the kernel says: refused, unreachable.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket(&address)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => return Err(e),
            _ => {}
        }
        let stream = TcpStream::adopt(socket.into(), address, false)?;
        std::future::poll_fn(|cx| stream.ready.poll_ready(cx, Direction::Write)).await;
        match stream.socket.take_error()? {
            Some(e) => Err(e),
            None => Ok(stream),
        }
    }

    /// The client's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Our own address.
    ///
    /// # Errors
    /// What the kernel says; none is known to happen.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Turns Nagle's delay off (`true`, as it is from the start) or on.
    ///
    /// # Errors
    /// What the kernel says; none is known to happen.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.socket.set_nodelay(on)
    }

    /// Finds out that the peer is gone for good, by asking it after so much silence.
    ///
    /// # Errors
    /// What the kernel says; none is known to happen.
    pub fn set_keepalive(&self, silence: Duration) -> io::Result<()> {
        SockRef::from(&self.socket).set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(silence)
                .with_interval(silence),
        )
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// The connection has ended already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Reads without taking; 0 bytes: the peer has closed. It shares its waking with reading: do one or the
    /// other at a time.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_io(cx, Direction::Read, |s| s.peek(buf))).await
    }

    fn poll_io<T>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut io: impl FnMut(&net::TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(self.ready.poll_ready(cx, direction));
            match io(&self.socket) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.ready.would_block(direction);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncRead for &TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(self.poll_io(cx, Direction::Read, |mut s| s.read(buf)));
        if read.as_ref().is_ok_and(|&n| n < buf.len()) {
            self.ready.drained();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for &TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Direction::Write, |mut s| s.write(buf))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Direction::Write, |mut s| s.write_vectored(bufs))
    }
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_read(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write_vectored(cx, bufs)
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(cx)
    }
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Executors, spawn};
    use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
    use std::sync::Arc;
    use strandline_core::io::TaskQueue;

    #[test]
    fn one_port_for_all_executors_and_for_nobody_else() {
        let port = Arc::new(Port::reserve("127.0.0.1:0").unwrap());
        let address = port.address();
        assert_ne!(address.port(), 0);
        let listening = port.clone();
        let (served_by, served) = std::sync::mpsc::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let executors = Executors::start(2, move |cx| {
            let (port, served_by) = (listening.clone(), served_by.clone());
            let ready = ready.clone();
            Box::pin(async move {
                let listener = port.listen()?;
                ready.send(()).unwrap();
                let index = cx.index();
                spawn(TaskQueue::Query, async move {
                    while let Ok(mut stream) = listener.accept().await {
                        let _ = served_by.send(index);
                        spawn(TaskQueue::Query, async move {
                            let mut buf = vec![0; 1000];
                            while let Ok(n @ 1..) = stream.read(&mut buf).await {
                                stream.write_all(&buf[..n]).await.unwrap();
                            }
                        });
                    }
                });
                cx.stopped().await;
                Ok(())
            })
        })
        .unwrap();
        is_ready.recv().unwrap();
        is_ready.recv().unwrap();
        let mut seen = [0_usize; 2];
        while seen.contains(&0) {
            let mut client = net::TcpStream::connect(address).unwrap();
            client.write_all(&[7; 500]).unwrap();
            let mut back = [0; 500];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, [7; 500]);
            seen[served.recv().unwrap()] += 1;
            assert!(seen.iter().sum::<usize>() < 1000, "{seen:?}");
        }
        let e = Port::reserve(&address.to_string()).unwrap_err();
        assert!(e.message().contains(&address.to_string()), "{e}");

        let stopper = Executors::start(1, move |_| {
            Box::pin(async move {
                let mut client = TcpStream::connect(address).await.unwrap();
                client.write_all(b"from an executor").await.unwrap();
                let mut back = [0; 16];
                client.read_exact(&mut back).await.unwrap();
                assert_eq!(&back, b"from an executor");
                client.close().await.unwrap();
                assert_eq!(client.peek(&mut back).await.unwrap(), 0);
                Ok(())
            })
        })
        .unwrap();
        stopper.join().unwrap();
        executors.stop();
        executors.join().unwrap();
        drop(port);
        Port::reserve(&address.to_string()).unwrap();
    }

    #[test]
    fn two_holders_of_a_silent_port_collide_too() {
        let first = Port::reserve("127.0.0.1:0").unwrap();
        let e = Port::reserve(&first.address().to_string()).unwrap_err();
        assert!(e.message().contains("in use"), "{e}");
    }
}
