//! Unix domain datagrams.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::socket::{Descriptor, Direction, limits, socket};
use crate::sched::blocking::blocking;

/// Datagrams between processes of one machine; [`std::os::unix::net::UnixDatagram`] for goroutines. None is lost: who sends waits
/// while the receiver's queue is full.
///
/// # Blocks
/// Everything that sends or receives: the goroutine. On a plain thread: the thread.
///
/// # Example
/// ```
/// use runnext::net::UnixDatagram;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let (here, there) = UnixDatagram::pair()?;
///     runnext::go(move || here.send(b"ping"));
///     let mut buf = [0; 16];
///     let n = there.recv(&mut buf)?;
///     assert_eq!(&buf[..n], b"ping");
///     Ok(())
/// }
/// ```
pub struct UnixDatagram(Descriptor);

socket!(UnixDatagram, net::UnixDatagram, "socket");
limits!(UnixDatagram, both);

impl UnixDatagram {
    /// A socket with that name, which must not exist.
    ///
    /// # Errors
    /// The system's; `AddrInUse` if the name exists.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(blocking(|| net::UnixDatagram::bind(path))?)
    }

    /// As [`bind`](Self::bind), with an address of any kind.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(blocking(|| net::UnixDatagram::bind_addr(addr))?)
    }

    /// A socket without a name.
    ///
    /// # Errors
    /// The system's.
    pub fn unbound() -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(net::UnixDatagram::unbound()?)
    }

    /// Two sockets connected to each other.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = net::UnixDatagram::pair()?;
        Ok((UnixDatagram::from_std(a)?, UnixDatagram::from_std(b)?))
    }

    /// Makes [`send`](Self::send) send to the socket with that name.
    ///
    /// # Errors
    /// The system's.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.std().connect(path)
    }

    /// As [`connect`](Self::connect), to an address of any kind.
    ///
    /// # Errors
    /// The system's.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.std().connect_addr(addr)
    }

    /// Receives one datagram, and where it comes from. What does not fit is lost.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let std = self.std();
        self.0.io(Direction::Read, || match std.recv_from(buf) {
            Err(e) if self.is_over(&e) => Ok((0, SocketAddr::from_pathname("")?)),
            done => done,
        })
    }

    /// Receives one datagram.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Read, || match std.recv(buf) {
            Err(e) if self.is_over(&e) => Ok(0),
            done => done,
        })
    }

    /// After a shutdown the kernel tells only calls that block that there is nothing to come.
    fn is_over(&self, e: &io::Error) -> bool {
        e.kind() == io::ErrorKind::WouldBlock && self.0.is_shut()
    }

    /// Sends one datagram to the socket with that name.
    ///
    /// # Blocks
    /// The goroutine, while the receiver's queue is full.
    ///
    /// # Errors
    /// The system's.
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let (std, path) = (self.std(), path.as_ref());
        // The kernel tells a sender of room in a queue only if it is connected to it.
        self.0.io_paced(Direction::Write, || std.send_to(buf, path))
    }

    /// As [`send_to`](Self::send_to), to an address of any kind.
    ///
    /// # Blocks
    /// The goroutine, while the receiver's queue is full.
    ///
    /// # Errors
    /// The system's.
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        let std = self.std();
        self.0
            .io_paced(Direction::Write, || std.send_to_addr(buf, addr))
    }

    /// Sends one datagram to where it is connected to.
    ///
    /// # Blocks
    /// The goroutine, while the receiver's queue is full.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Write, || std.send(buf))
    }

    /// Ends one direction, or both. Calls that wait in it return.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.std().shutdown(how)?;
        if how == Shutdown::Write {
            self.0.rouse_all();
        } else {
            self.0.set_shut();
        }
        Ok(())
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// The address it is connected to.
    ///
    /// # Errors
    /// `NotConnected` if there is none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    fn pass_on_timeouts(
        socket: &net::UnixDatagram,
        [read, write]: [Option<Duration>; 2],
    ) -> io::Result<()> {
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}
