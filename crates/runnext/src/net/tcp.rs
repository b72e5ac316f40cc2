//! TCP.

mod ack;
mod connect;

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;

use runnext_sys::net as sys;

use super::backoff::{self, Backoff};
use super::socket::{self, Descriptor, Direction, limits, socket};
use super::stream::stream;

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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?; // or a name: ("localhost", 80)
    ///     let (_other_end, from) = listener.accept()?;
    ///     assert_eq!(from, stream.local_addr()?);
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(30))?;
    ///     assert_eq!(stream.peer_addr()?, addr);
    ///     let no_time = TcpStream::connect_timeout(&addr, Duration::ZERO);
    ///     assert_eq!(no_time.unwrap_err().kind(), ErrorKind::InvalidInput);
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     TcpStream::connect(listener.local_addr()?)?.write_all(b"GET /")?;
    ///     let (mut stream, _) = listener.accept()?;
    ///     let mut first = [0];
    ///     stream.peek(&mut first)?;
    ///     assert_eq!(first, *b"G"); // TLS would begin with a 22
    ///     let mut all = String::new();
    ///     stream.read_to_string(&mut all)?;
    ///     assert_eq!(all, "GET /");
    ///     Ok(())
    /// }
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.transfer(Direction::Read, 0, || std.peek(buf))
    }

    /// Ends one direction, or both. Calls that wait in it return: a read finds the end of the stream, a write fails.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{Shutdown, TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut stream = TcpStream::connect(listener.local_addr()?)?;
    ///     runnext::go(move || -> std::io::Result<()> {
    ///         let (mut stream, _) = listener.accept()?;
    ///         let mut question = String::new();
    ///         stream.read_to_string(&mut question)?; // up to the end of the stream
    ///         write!(stream, "{} bytes", question.len())
    ///     });
    ///     stream.write_all(b"how long is this?")?;
    ///     stream.shutdown(Shutdown::Write)?; // the other direction stays open
    ///     let mut answer = String::new();
    ///     stream.read_to_string(&mut answer)?;
    ///     assert_eq!(answer, "17 bytes");
    ///     Ok(())
    /// }
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let done = self.std().shutdown(how);
        self.0.rouse_all();
        done
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// `NotConnected` if there is none any more.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    ///     Ok(())
    /// }
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.std().peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     let (accepted, _) = listener.accept()?;
    ///     assert_eq!(stream.local_addr()?, accepted.peer_addr()?);
    ///     Ok(())
    /// }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// `TCP_NODELAY`: small writes are sent at once.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::io::Write;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut keys = TcpStream::connect(listener.local_addr()?)?;
    ///     keys.set_nodelay(true)?;
    ///     keys.write_all(b"k")?; // does not wait for what was sent before to be acknowledged
    ///     assert!(keys.nodelay()?);
    ///     Ok(())
    /// }
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.std().set_nodelay(nodelay)
    }

    /// The value of `TCP_NODELAY`.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     assert!(!stream.nodelay()?); // unless it is asked for
    ///     Ok(())
    /// }
    /// ```
    pub fn nodelay(&self) -> io::Result<bool> {
        self.std().nodelay()
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     stream.set_ttl(1)?; // from now on nothing leaves this network
    ///     assert_eq!(stream.ttl()?, 1);
    ///     Ok(())
    /// }
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.std().set_ttl(ttl)
    }

    /// What [`set_ttl`](Self::set_ttl) sets.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     let usual = stream.ttl()?;
    ///     stream.set_ttl(1)?;
    ///     stream.set_ttl(usual)?; // as it was
    ///     assert_eq!(stream.ttl()?, usual);
    ///     Ok(())
    /// }
    /// ```
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
///
/// # Example
/// ```
/// use runnext::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let addr = listener.local_addr()?;
///     runnext::go(move || {
///         while let Ok((mut stream, from)) = listener.accept() {
///             runnext::go(move || write!(stream, "hello {from}")); // one goroutine for each client
///         }
///     });
///     let mut stream = TcpStream::connect(addr)?;
///     let mut greeting = String::new();
///     stream.read_to_string(&mut greeting)?;
///     assert_eq!(greeting, format!("hello {}", stream.local_addr()?));
///     Ok(())
/// }
/// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{SocketAddr, TcpListener};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    ///     let first = TcpListener::bind(any_port)?;
    ///     let taken = first.local_addr()?;
    ///     assert!(TcpListener::bind(taken).is_err());
    ///     let second = TcpListener::bind(&[taken, any_port][..])?; // what can be had
    ///     assert_ne!(second.local_addr()?, taken);
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     let client = runnext::go(move || TcpStream::connect(addr)?.write_all(b"it's me"));
    ///     let (mut stream, from) = listener.accept()?; // waits until the client has come
    ///     assert!(from.ip().is_loopback());
    ///     let mut said = String::new();
    ///     stream.read_to_string(&mut said)?;
    ///     assert_eq!(said, "it's me");
    ///     client.join().unwrap()
    /// }
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, peer) = Backoff::new().accept(&self.0, || sys::accept(self.0.fd()))?;
        Ok((TcpStream(Descriptor::new(fd)), peer))
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
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     let server = runnext::spawn(async move { poll_fn(|cx| listener.poll_accept(cx)).await });
    ///     let stream = TcpStream::connect(addr)?;
    ///     let (_accepted, from) = server.join().unwrap()?;
    ///     assert_eq!(from, stream.local_addr()?);
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accept = || sys::accept(self.0.fd());
        let next = self.0.poll_accept(cx, backoff::passes, accept);
        next.map_ok(|(fd, peer)| (TcpStream(Descriptor::new(fd)), peer))
    }

    /// An iterator over connections, which never ends.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     for word in ["two ", "clients"] {
    ///         TcpStream::connect(addr)?.write_all(word.as_bytes())?;
    ///     }
    ///     let mut said = String::new();
    ///     for stream in listener.incoming().take(2) {
    ///         stream?.read_to_string(&mut said)?;
    ///     }
    ///     assert_eq!(said, "two clients");
    ///     Ok(())
    /// }
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// As [`incoming`](Self::incoming), by value.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    /// use std::io::Read;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     let mut connections = listener.into_incoming(); // may leave this function, and go to a goroutine
    ///     runnext::go(move || connections.next()); // accepts one, and closes it
    ///     assert_eq!(TcpStream::connect(addr)?.read(&mut [0])?, 0);
    ///     Ok(())
    /// }
    /// ```
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming { listener: self }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::TcpListener;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     assert_ne!(listener.local_addr()?.port(), 0); // the port that the system has chosen
    ///     Ok(())
    /// }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     listener.set_ttl(7)?;
    ///     let _client = TcpStream::connect(listener.local_addr()?)?;
    ///     let (accepted, _) = listener.accept()?;
    ///     assert_eq!(accepted.ttl()?, 7); // it has the listener's
    ///     Ok(())
    /// }
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.std().set_ttl(ttl)
    }

    /// What [`set_ttl`](Self::set_ttl) sets.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::TcpListener;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     assert!(listener.ttl()? > 0); // the system's, until it is set
    ///     listener.set_ttl(255)?;
    ///     assert_eq!(listener.ttl()?, 255);
    ///     Ok(())
    /// }
    /// ```
    pub fn ttl(&self) -> io::Result<u32> {
        self.std().ttl()
    }

    /// The standard library's listeners have no time-outs.
    fn take_over(&self) {}

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
///
/// # Example
/// ```
/// use runnext::net::{Incoming, TcpListener, TcpStream};
///
/// /// Accepts as long as clients come from this machine.
/// fn local_ones(connections: Incoming<'_>) -> impl Iterator<Item = TcpStream> {
///     let is_local = |s: &TcpStream| s.peer_addr().is_ok_and(|addr| addr.ip().is_loopback());
///     connections.flatten().take_while(is_local)
/// }
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let client = TcpStream::connect(listener.local_addr()?)?;
///     let first = local_ones(listener.incoming()).next().unwrap();
///     assert_eq!(first.peer_addr()?, client.local_addr()?);
///     Ok(())
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::net::{IntoIncoming, TcpListener, TcpStream};
///
/// struct Server {
///     connections: IntoIncoming, // with the listener in it
///     served: u32,
/// }
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let clients = [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()));
///     let mut server = Server { connections: listener.into_incoming(), served: 0 };
///     for stream in server.connections.by_ref().take(clients.len()) {
///         stream?;
///         server.served += 1;
///     }
///     assert_eq!(server.served, 2);
///     Ok(())
/// }
/// ```
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
