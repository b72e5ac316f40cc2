//! TCP.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;

use runnext_sys::net as sys;

use super::backoff::Backoff;
use super::socket::{self, Descriptor, Direction, limits, socket, stream};

/// A TCP connection; [`std::net::TcpStream`] for goroutines.
///
/// Several goroutines may use one, through references or clones. It is closed when the last handle is dropped.
///
/// # Blocks
/// [`connect`](Self::connect), [`peek`](Self::peek), and everything that reads or writes: the goroutine. On a plain thread: the
/// thread.
///
/// # Example
/// ```
/// use runnext::net::{TcpListener, TcpStream};
/// use std::io::{ErrorKind, Read, Write};
/// use std::time::Duration;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut here = TcpStream::connect(listener.local_addr()?)?;
///     let (mut there, _) = listener.accept()?;
///     here.write_all(b"hello")?;
///     let mut buf = [0; 5];
///     there.read_exact(&mut buf)?;
///     assert_eq!(&buf, b"hello");
///     there.set_read_timeout(Some(Duration::from_millis(5)))?;
///     assert_eq!(there.read(&mut buf).unwrap_err().kind(), ErrorKind::TimedOut);
///     Ok(())
/// }
/// ```
pub struct TcpStream(Descriptor);

socket!(TcpStream, net::TcpStream, "connection");
limits!(TcpStream, both);
stream!(TcpStream, true);

impl TcpStream {
    /// Connects to `addr`; to each address of a name in turn, until one answers.
    ///
    /// # Blocks
    /// The goroutine, until the name is resolved and the connection made or refused.
    ///
    /// # Errors
    /// The last address's, as the system has it; `InvalidInput` if there is none.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        socket::for_each_address(addr, |addr| TcpStream::connect_to(addr, None))
    }

    /// Connects to `addr`, unless it takes longer than `timeout`.
    ///
    /// # Blocks
    /// The goroutine.
    ///
    /// # Errors
    /// `TimedOut` after that time; `InvalidInput` if it is zero; else as the system has it.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a 0 duration timeout: pass a longer one, or use connect",
            ));
        }
        TcpStream::connect_to(addr, Some(timeout))
    }

    fn connect_to(addr: &SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
        let (fd, connected) = sys::connect(addr)?;
        let stream = TcpStream(Descriptor::new(fd));
        if !connected {
            stream.0.set_timeout(Direction::Write, timeout);
            stream.0.io(Direction::Write, || stream.is_connected())?;
            stream.0.set_timeout(Direction::Write, None);
        }
        Ok(stream)
    }

    /// What has become of an attempt to connect; `WouldBlock` if nothing yet.
    fn is_connected(&self) -> io::Result<()> {
        if let Some(e) = self.take_error()? {
            return Err(e);
        }
        match self.peer_addr() {
            Err(e) if e.kind() == io::ErrorKind::NotConnected => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            found => found.map(drop),
        }
    }

    /// Receives without taking: the next read finds the same bytes.
    ///
    /// # Blocks
    /// The goroutine, until there is something.
    ///
    /// # Errors
    /// As for reading.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.transfer(Direction::Read, 0, || std.peek(buf))
    }

    /// Ends one direction, or both. Calls that wait in it return: a read finds the end of the stream, a write fails.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let done = self.std().shutdown(how);
        self.0.rouse_all();
        done
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// `NotConnected` if there is none any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// `TCP_NODELAY`: small writes are sent at once.
    ///
    /// # Errors
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.std().set_nodelay(nodelay)
    }

    /// The value of `TCP_NODELAY`.
    ///
    /// # Errors
    /// The system's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.std().nodelay()
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.std().set_ttl(ttl)
    }

    /// What [`set_ttl`](Self::set_ttl) sets.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.std().ttl()
    }

    fn pass_on_timeouts(
        socket: &net::TcpStream,
        [read, write]: [Option<Duration>; 2],
    ) -> io::Result<()> {
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}

/// A TCP socket that accepts connections; [`std::net::TcpListener`] for goroutines.
///
/// # Blocks
/// [`accept`](Self::accept) and the iterators: the goroutine. On a plain thread: the thread.
pub struct TcpListener(Descriptor);

socket!(TcpListener, net::TcpListener, "listener");
limits!(TcpListener, read);

impl TcpListener {
    /// Listens on `addr`; on the first address of a name that can be had. As many connections may wait to be accepted as the system
    /// allows: with the standard library's 128, a burst of clients is turned away for seconds.
    ///
    /// # Blocks
    /// The goroutine, until the name is resolved.
    ///
    /// # Errors
    /// The last address's, as the system has it; `InvalidInput` if there is none.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let listener = net::TcpListener::bind(&socket::resolve(addr)?[..])?;
        sys::listen(listener.as_fd(), i32::from(u16::MAX))?;
        TcpListener::from_std(listener)
    }

    /// The next connection, and where it comes from.
    ///
    /// Out of descriptors or memory it tries again, with growing pauses, for about a second before it fails: a loop around it
    /// neither spins nor dies of a shortage that passes. Deadlines and time-outs end the pauses too.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, peer) = Backoff::new().accept(&self.0, || sys::accept(self.0.fd()))?;
        Ok((TcpStream(Descriptor::new(fd)), peer))
    }

    /// As [`accept`](Self::accept), for futures: `Pending` if there is none, and then the waker is woken when there may be one.
    /// Several tasks may wait; all of them are woken.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let next = self
            .0
            .poll_io(cx, Direction::Read, || sys::accept(self.0.fd()));
        next.map_ok(|(fd, peer)| (TcpStream(Descriptor::new(fd)), peer))
    }

    /// An iterator over connections, which never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// As [`incoming`](Self::incoming), by value.
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming { listener: self }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.std().set_ttl(ttl)
    }

    /// What [`set_ttl`](Self::set_ttl) sets.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.std().ttl()
    }

    /// The standard library's listeners have no time-outs.
    fn take_over_timeouts(&self) {}

    fn timeouts(&self) {}

    fn pass_on_timeouts(_socket: &net::TcpListener, (): ()) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}

/// Connections of a listener, one after the other; see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}

/// Connections of a listener it owns; see [`TcpListener::into_incoming`].
#[derive(Debug)]
pub struct IntoIncoming {
    listener: TcpListener,
}

impl Iterator for IntoIncoming {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for IntoIncoming {}
