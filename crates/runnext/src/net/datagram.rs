//! Unix domain datagrams.

mod poll;

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::socket::{Descriptor, Direction, limits, socket};
use crate::sched::blocking::blocking;

/// Datagrams between processes of one machine; [`std::os::unix::net::UnixDatagram`] for goroutines. None is lost: a sender waits
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
    /// # Blocks
    /// The goroutine, for as long as the file system takes: it runs as [`blocking`](crate::blocking) does.
    ///
    /// # Errors
    /// The system's; `AddrInUse` if the name exists.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-datagram-bind-{}", std::process::id()));
    ///     let log = UnixDatagram::bind(&path)?;
    ///     UnixDatagram::unbound()?.send_to(b"a line", &path)?; // who knows the name can send
    ///     let mut buf = [0; 64];
    ///     assert_eq!(log.recv(&mut buf)?, 6);
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(blocking(|| net::UnixDatagram::bind(path))?)
    }

    /// As [`bind`](Self::bind), with an address of any kind.
    ///
    /// # Blocks
    /// The goroutine, for as long as the file system takes: it runs as [`blocking`](crate::blocking) does.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let name = format!("unix-datagram-bind-addr-{}", std::process::id());
    ///     let addr = SocketAddr::from_abstract_name(&name)?; // no file, nothing to remove
    ///     let socket = UnixDatagram::bind_addr(&addr)?;
    ///     assert_eq!(socket.local_addr()?.as_abstract_name(), Some(name.as_bytes()));
    ///     Ok(())
    /// }
    /// ```
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(blocking(|| net::UnixDatagram::bind_addr(addr))?)
    }

    /// A socket without a name.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-datagram-unbound-{}", std::process::id()));
    ///     let server = UnixDatagram::bind(&path)?;
    ///     let client = UnixDatagram::unbound()?;
    ///     client.send_to(b"from nobody", &path)?;
    ///     let (n, from) = server.recv_from(&mut [0; 16])?;
    ///     assert_eq!(n, 11);
    ///     assert!(from.is_unnamed()); // no answer is possible
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn unbound() -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(net::UnixDatagram::unbound()?)
    }

    /// Two sockets connected to each other.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (jobs, worker) = UnixDatagram::pair()?;
    ///     runnext::go(move || {
    ///         let mut job = [0; 16];
    ///         while let Ok(n) = worker.recv(&mut job) {
    ///             worker.send(&job[..n].to_ascii_uppercase()).unwrap();
    ///         }
    ///     });
    ///     jobs.send(b"shout")?;
    ///     let mut done = [0; 5];
    ///     jobs.recv(&mut done)?;
    ///     assert_eq!(&done, b"SHOUT");
    ///     Ok(())
    /// }
    /// ```
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = net::UnixDatagram::pair()?;
        Ok((UnixDatagram::from_std(a)?, UnixDatagram::from_std(b)?))
    }

    /// Makes [`send`](Self::send) send to the socket with that name.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-datagram-connect-{}", std::process::id()));
    ///     let server = UnixDatagram::bind(&path)?;
    ///     let client = UnixDatagram::unbound()?;
    ///     assert!(client.send(b"where to?").is_err());
    ///     client.connect(&path)?;
    ///     client.send(b"there")?;
    ///     assert_eq!(server.recv(&mut [0; 16])?, 5);
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.std().connect(path)
    }

    /// As [`connect`](Self::connect), to an address of any kind.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let name = format!("unix-datagram-connect-addr-{}", std::process::id());
    ///     let server = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    ///     let client = UnixDatagram::unbound()?;
    ///     client.connect_addr(&server.local_addr()?)?;
    ///     client.send(b"no path needed")?;
    ///     assert_eq!(server.recv(&mut [0; 16])?, 14);
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let name = |end| std::env::temp_dir().join(format!("unix-datagram-recv-from-{}-{end}", std::process::id()));
    ///     let (client, server) = (UnixDatagram::bind(name("c"))?, UnixDatagram::bind(name("s"))?);
    ///     client.send_to(b"21", name("s"))?;
    ///     let mut buf = [0; 2];
    ///     let (_, from) = server.recv_from(&mut buf)?;
    ///     server.send_to_addr(b"42", &from)?; // back to where it came from
    ///     client.recv(&mut buf)?;
    ///     assert_eq!(&buf, b"42");
    ///     std::fs::remove_file(name("c"))?;
    ///     std::fs::remove_file(name("s"))
    /// }
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.io(Direction::Read, || self.recv_from_or_end(buf))
    }

    fn recv_from_or_end(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self.std().recv_from(buf) {
            Err(e) if self.is_over(&e) => Ok((0, SocketAddr::from_pathname("")?)),
            done => done,
        }
    }

    /// Receives one datagram.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, there) = UnixDatagram::pair()?;
    ///     here.send(b"one")?;
    ///     here.send(b"three")?;
    ///     let mut buf = [0; 16];
    ///     assert_eq!([there.recv(&mut buf)?, there.recv(&mut buf)?], [3, 5]); // one at a time
    ///     assert_eq!(&buf[..5], b"three");
    ///     Ok(())
    /// }
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, || self.recv_or_end(buf))
    }

    fn recv_or_end(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self.std().recv(buf) {
            Err(e) if self.is_over(&e) => Ok(0),
            done => done,
        }
    }

    /// After a shutdown the kernel tells only calls that block that there is nothing to come.
    fn is_over(&self, e: &io::Error) -> bool {
        e.kind() == io::ErrorKind::WouldBlock && (self.0.is_shut() || self.0.is_over())
    }

    /// Sends one datagram to the socket with that name.
    ///
    /// # Blocks
    /// The goroutine, while the receiver's queue is full.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-datagram-send-to-{}", std::process::id()));
    ///     let (server, to) = (UnixDatagram::bind(&path)?, path.clone());
    ///     let client = runnext::go(move || -> std::io::Result<usize> {
    ///         let socket = UnixDatagram::unbound()?;
    ///         (0..100).map(|_| socket.send_to(b"tick", &to)).sum() // waits whenever the queue is full
    ///     });
    ///     for _ in 0..100 {
    ///         server.recv(&mut [0; 4])?;
    ///     }
    ///     assert_eq!(client.join().unwrap()?, 400);
    ///     std::fs::remove_file(path)
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let name = format!("unix-datagram-send-to-addr-{}", std::process::id());
    ///     let addr = SocketAddr::from_abstract_name(name)?;
    ///     let socket = UnixDatagram::bind_addr(&addr)?;
    ///     socket.send_to_addr(b"note to self", &addr)?;
    ///     let mut buf = [0; 12];
    ///     socket.recv(&mut buf)?;
    ///     assert_eq!(&buf, b"note to self");
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, there) = UnixDatagram::pair()?;
    ///     assert_eq!(here.send(b"all of it, or nothing")?, 21);
    ///     let mut buf = [0; 32];
    ///     let n = there.recv(&mut buf)?;
    ///     assert_eq!(&buf[..n], b"all of it, or nothing");
    ///     Ok(())
    /// }
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Write, || std.send(buf))
    }

    /// Ends one direction, or both. Calls that wait in it return.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{Shutdown, UnixDatagram};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, _there) = UnixDatagram::pair()?;
    ///     let reader = here.try_clone()?;
    ///     let waiting = runnext::go(move || reader.recv(&mut [0; 16]));
    ///     here.shutdown(Shutdown::Both)?;
    ///     assert_eq!(waiting.join().unwrap()?, 0); // nothing is to come
    ///     assert!(here.send(b"?").is_err());
    ///     Ok(())
    /// }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("unix-datagram-local-addr-{}", std::process::id()));
    ///     let socket = UnixDatagram::bind(&path)?;
    ///     assert_eq!(socket.local_addr()?.as_pathname(), Some(&*path));
    ///     assert!(UnixDatagram::unbound()?.local_addr()?.is_unnamed());
    ///     std::fs::remove_file(path)
    /// }
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std().local_addr()
    }

    /// The address it is connected to.
    ///
    /// # Errors
    /// `NotConnected` if there is none.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, _there) = UnixDatagram::pair()?;
    ///     assert!(here.peer_addr()?.is_unnamed());
    ///     let alone = UnixDatagram::unbound()?;
    ///     assert_eq!(alone.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    ///     Ok(())
    /// }
    /// ```
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
