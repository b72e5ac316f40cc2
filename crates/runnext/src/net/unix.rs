//! Unix domain sockets: streams and listeners.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::backoff::Backoff;
use super::socket::{self, Descriptor, limits, socket, stream};
use crate::sched::blocking::blocking;

/// A connection between processes of one machine; [`std::os::unix::net::UnixStream`] for goroutines.
///
/// # Blocks
/// [`connect`](Self::connect) and everything that reads or writes: the goroutine. On a plain thread: the thread.
///
/// # Example
/// ```
/// use runnext::net::UnixStream;
/// use std::io::{Read, Write};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let (mut here, mut there) = UnixStream::pair()?;
///     runnext::go(move || here.write_all(b"hello"));
///     let mut text = String::new();
///     there.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok(())
/// }
/// ```
pub struct UnixStream(Descriptor);

socket!(UnixStream, net::UnixStream, "connection");
limits!(UnixStream, both);
// A read stops where descriptors were passed along, so less than asked for need not be all.
stream!(UnixStream, false);

impl UnixStream {
    /// Connects to the socket with that name.
    ///
    /// # Blocks
    /// The goroutine, while the listener's queue is full.
    ///
    /// # Errors
    /// The system's.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        // Not by waiting until it can be written to: the kernel does not tell when there is room in the queue.
        UnixStream::from_std(blocking(|| net::UnixStream::connect(path))?)
    }

    /// As [`connect`](Self::connect), to an address of any kind.
    ///
    /// # Blocks
    /// The goroutine, while the listener's queue is full.
    ///
    /// # Errors
    /// The system's.
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        UnixStream::from_std(blocking(|| net::UnixStream::connect_addr(addr))?)
    }

    /// Two ends of a connection without a name.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = net::UnixStream::pair()?;
        Ok((UnixStream::from_std(a)?, UnixStream::from_std(b)?))
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

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    fn pass_on_timeouts(
        socket: &net::UnixStream,
        [read, write]: [Option<Duration>; 2],
    ) -> io::Result<()> {
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}

/// A Unix socket that accepts connections; [`std::os::unix::net::UnixListener`] for goroutines.
///
/// # Blocks
/// [`accept`](Self::accept) and the iterator: the goroutine. On a plain thread: the thread.
pub struct UnixListener(Descriptor);

socket!(UnixListener, net::UnixListener, "listener");
limits!(UnixListener, read);

impl UnixListener {
    /// Listens under that name, which must not exist.
    ///
    /// # Errors
    /// The system's; `AddrInUse` if the name exists.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        UnixListener::from_std(blocking(|| net::UnixListener::bind(path))?)
    }

    /// As [`bind`](Self::bind), on an address of any kind.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        UnixListener::from_std(blocking(|| net::UnixListener::bind_addr(addr))?)
    }

    /// The next connection, and the address of its other end. Out of descriptors it behaves like
    /// [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let std = self.std();
        let (stream, peer) = Backoff::new().accept(&self.0, || std.accept())?;
        Ok((UnixStream(socket::adopt(stream.into())?), peer))
    }

    /// An iterator over connections, which never ends.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// The standard library's listeners have no time-outs.
    fn take_over_timeouts(&self) {}

    fn timeouts(&self) {}

    fn pass_on_timeouts(_socket: &net::UnixListener, (): ()) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;

    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

/// Connections of a listener, one after the other; see [`UnixListener::incoming`].
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for UnixIncoming<'_> {}
