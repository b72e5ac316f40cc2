//! Unix domain sockets: streams and listeners.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use super::backoff::{self, Backoff};
use super::socket::{self, Descriptor, limits, socket};
use super::stream::stream;
use crate::sched::blocking::blocking;

/// Linux's number, the same on all architectures.
const EINVAL: i32 = 22;

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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{UnixListener, UnixStream};
    /// use std::io::Read;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-stream-connect-{}", std::process::id()));
    ///     let listener = UnixListener::bind(&path)?;
    ///     runnext::go(move || listener.accept()); // accepts one, and closes it
    ///     let mut stream = UnixStream::connect(&path)?;
    ///     assert_eq!(stream.read(&mut [0; 8])?, 0);
    ///     std::fs::remove_file(path)
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{UnixListener, UnixStream};
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let name = format!("unix-stream-connect-addr-{}", std::process::id());
    ///     let addr = SocketAddr::from_abstract_name(name.as_bytes())?; // leaves no file behind
    ///     let _listener = UnixListener::bind_addr(&addr)?;
    ///     let stream = UnixStream::connect_addr(&addr)?;
    ///     assert_eq!(stream.peer_addr()?.as_abstract_name(), Some(name.as_bytes()));
    ///     Ok(())
    /// }
    /// ```
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        UnixStream::from_std(blocking(|| net::UnixStream::connect_addr(addr))?)
    }

    /// Two ends of a connection without a name.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixStream;
    /// use std::io::{BufRead, BufReader, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (mut here, there) = UnixStream::pair()?;
    ///     runnext::go(move || {
    ///         for line in BufReader::new(&there).lines().map_while(Result::ok) {
    ///             writeln!(&there, "{line}, indeed").unwrap();
    ///         }
    ///     });
    ///     here.write_all(b"it works both ways\n")?;
    ///     let mut reply = String::new();
    ///     BufReader::new(here).read_line(&mut reply)?;
    ///     assert_eq!(reply, "it works both ways, indeed\n");
    ///     Ok(())
    /// }
    /// ```
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = net::UnixStream::pair()?;
        Ok((UnixStream::from_std(a)?, UnixStream::from_std(b)?))
    }

    /// Ends one direction, or both. Calls that wait in it return: a read finds the end of the stream, a write fails.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{Shutdown, UnixStream};
    /// use std::io::{ErrorKind, Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (mut here, mut there) = UnixStream::pair()?;
    ///     let reader = runnext::go(move || {
    ///         let mut text = String::new();
    ///         there.read_to_string(&mut text).map(|_| text)
    ///     });
    ///     here.write_all(b"no more")?;
    ///     here.shutdown(Shutdown::Write)?; // what the reader waits for
    ///     assert_eq!(reader.join().unwrap()?, "no more");
    ///     assert_eq!(here.write(b"?").unwrap_err().kind(), ErrorKind::BrokenPipe);
    ///     Ok(())
    /// }
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let done = self.std().shutdown(how);
        self.0.rouse_all();
        done
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixStream;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, _there) = UnixStream::pair()?;
    ///     assert!(here.local_addr()?.is_unnamed()); // only listeners need a name
    ///     Ok(())
    /// }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{UnixListener, UnixStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-stream-peer-addr-{}", std::process::id()));
    ///     let _listener = UnixListener::bind(&path)?;
    ///     let stream = UnixStream::connect(&path)?;
    ///     assert_eq!(stream.peer_addr()?.as_pathname(), Some(&*path));
    ///     std::fs::remove_file(path)
    /// }
    /// ```
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
///
/// # Example
/// ```
/// use runnext::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("unix-listener-{}", std::process::id()));
///     let listener = UnixListener::bind(&path)?;
///     runnext::go(move || {
///         for (number, stream) in (1..).zip(&listener) {
///             write!(stream.unwrap(), "you are number {number}").unwrap();
///         }
///     });
///     let mut said = String::new();
///     UnixStream::connect(&path)?.read_to_string(&mut said)?;
///     assert_eq!(said, "you are number 1");
///     std::fs::remove_file(path)
/// }
/// ```
pub struct UnixListener(Descriptor);

socket!(UnixListener, net::UnixListener, "listener");
limits!(UnixListener, read);

impl UnixListener {
    /// Listens under that name, which must not exist.
    ///
    /// # Blocks
    /// The goroutine, for as long as the file system takes: it runs as [`blocking`](crate::blocking) does.
    ///
    /// # Errors
    /// The system's; `AddrInUse` if the name exists.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixListener;
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-listener-bind-{}", std::process::id()));
    ///     drop(UnixListener::bind(&path)?);
    ///     let again = UnixListener::bind(&path); // the name outlives the listener
    ///     assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
    ///     std::fs::remove_file(&path)?;
    ///     UnixListener::bind(&path)?;
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        UnixListener::from_std(blocking(|| net::UnixListener::bind(path))?)
    }

    /// As [`bind`](Self::bind), on an address of any kind.
    ///
    /// # Blocks
    /// The goroutine, for as long as the file system takes: it runs as [`blocking`](crate::blocking) does.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixListener;
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let name = format!("unix-listener-bind-addr-{}", std::process::id());
    ///     let addr = SocketAddr::from_abstract_name(name)?;
    ///     let listener = UnixListener::bind_addr(&addr)?;
    ///     assert!(UnixListener::bind_addr(&addr).is_err());
    ///     drop(listener);
    ///     UnixListener::bind_addr(&addr)?; // such a name goes with its listener
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{UnixListener, UnixStream};
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-listener-accept-{}", std::process::id()));
    ///     let listener = UnixListener::bind(&path)?;
    ///     let to = path.clone();
    ///     runnext::go(move || UnixStream::connect(to)?.write_all(b"it's me"));
    ///     let (mut stream, from) = listener.accept()?; // waits until the client has come
    ///     assert!(from.is_unnamed());
    ///     let mut said = String::new();
    ///     stream.read_to_string(&mut said)?;
    ///     assert_eq!(said, "it's me");
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, peer) = Backoff::new().accept(&self.0, || self.accept_or_end())?;
        Ok((UnixStream(socket::adopt(stream.into())?), peer))
    }

    /// As [`accept`](Self::accept), for futures: `Pending` if there is none, and then the waker is woken when there may be one.
    /// Several tasks may wait; all of them are woken.
    ///
    /// # Errors
    /// The system's. Out of descriptors or memory it is `Pending`, with growing pauses, for about a second before it fails, as `accept`. Only on a plain
    /// thread it may fail at once: if the thread that would end the pauses cannot be started for the same want.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{UnixListener, UnixStream};
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-poll-accept-{}", std::process::id()));
    ///     let listener = UnixListener::bind(&path)?;
    ///     let server = runnext::spawn(async move { poll_fn(|cx| listener.poll_accept(cx)).await });
    ///     let _stream = UnixStream::connect(&path)?;
    ///     let (_accepted, from) = server.join().unwrap()?;
    ///     assert!(from.is_unnamed());
    ///     std::fs::remove_file(path)
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let accept = || self.accept_or_end();
        let next = self.0.poll_accept(cx, backoff::passes, accept);
        next.map(|next| {
            let (stream, peer) = next?;
            Ok((UnixStream(socket::adopt(stream.into())?), peer))
        })
    }

    /// After a shutdown the kernel tells only calls that block that nobody comes any more: by this error.
    fn accept_or_end(&self) -> io::Result<(net::UnixStream, SocketAddr)> {
        match self.std().accept() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.0.is_over() => {
                Err(io::Error::from_raw_os_error(EINVAL))
            }
            accepted => accepted,
        }
    }

    /// An iterator over connections, which never ends.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{UnixListener, UnixStream};
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-listener-incoming-{}", std::process::id()));
    ///     let listener = UnixListener::bind(&path)?;
    ///     for word in ["first, ", "second"] {
    ///         UnixStream::connect(&path)?.write_all(word.as_bytes())?;
    ///     }
    ///     let mut said = String::new();
    ///     for stream in listener.incoming().take(2) {
    ///         stream?.read_to_string(&mut said)?;
    ///     }
    ///     assert_eq!(said, "first, second");
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixListener;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-listener-local-addr-{}", std::process::id()));
    ///     let listener = UnixListener::bind(&path)?;
    ///     assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// The standard library's listeners have no time-outs.
    fn take_over(&self) {}

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
///
/// # Example
/// ```
/// use runnext::net::{UnixIncoming, UnixListener, UnixStream};
///
/// fn accept_all(connections: UnixIncoming<'_>, n: usize) -> std::io::Result<Vec<UnixStream>> {
///     connections.take(n).collect()
/// }
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("unix-incoming-{}", std::process::id()));
///     let listener = UnixListener::bind(&path)?;
///     let clients = [UnixStream::connect(&path)?, UnixStream::connect(&path)?];
///     let accepted = accept_all(listener.incoming(), clients.len())?;
///     assert_eq!(accepted.len(), 2);
///     std::fs::remove_file(path)
/// }
/// ```
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
