//! UDP.

mod poll;

use std::fmt;
use std::io;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::socket::{self, Descriptor, Direction, limits, socket};

/// A UDP socket; [`std::net::UdpSocket`] for goroutines.
///
/// # Blocks
/// Everything that sends, receives or peeks: the goroutine. On a plain thread: the thread.
///
/// # Example
/// ```
/// use runnext::net::UdpSocket;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
///     let to = b.local_addr()?;
///     let sender = runnext::go(move || a.send_to(b"ping", to).map(|_| a));
///     let mut buf = [0; 16];
///     let (n, from) = b.recv_from(&mut buf)?;
///     assert_eq!(&buf[..n], b"ping");
///     assert_eq!(from, sender.join().unwrap()?.local_addr()?);
///     Ok(())
/// }
/// ```
pub struct UdpSocket(Descriptor);

socket!(UdpSocket, net::UdpSocket, "socket");
limits!(UdpSocket, both);

/// Options that the standard library's socket has: the same call there. Each has a line that says what it is, and an example.
macro_rules! options {
    ($(#[$what:meta] $(#[$example:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        impl UdpSocket {
            $(
                #[$what]
                ///
                /// # Errors
                /// The system's.
                ///
                /// # Example
                $(#[$example])*
                pub fn $name(&self, $($arg: $ty),*) -> io::Result<$ret> {
                    self.std().$name($($arg),*)
                }
            )*
        }
    };
}

options! {
    /// The address of this end.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     assert!(socket.local_addr()?.port() != 0); // the system has chosen one
    ///     Ok(())
    /// }
    /// ```
    local_addr() -> SocketAddr;
    /// The address it is connected to.
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     assert_eq!(a.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    ///     a.connect(b.local_addr()?)?;
    ///     assert_eq!(a.peer_addr()?, b.local_addr()?);
    ///     Ok(())
    /// }
    /// ```
    peer_addr() -> SocketAddr;
    /// Whether it may send to a broadcast address.
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     let everyone = "127.255.255.255:9";
    ///     let refused = socket.send_to(b"who is there?", everyone).unwrap_err();
    ///     assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    ///     socket.set_broadcast(true)?;
    ///     assert_eq!(socket.send_to(b"who is there?", everyone)?, 13);
    ///     Ok(())
    /// }
    /// ```
    set_broadcast(broadcast: bool) -> ();
    /// What [`set_broadcast`](Self::set_broadcast) sets.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     assert!(!socket.broadcast()?);
    ///     socket.set_broadcast(true)?;
    ///     assert!(socket.broadcast()?);
    ///     Ok(())
    /// }
    /// ```
    broadcast() -> bool;
    /// Whether what it sends to an IPv4 group comes back to this machine.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     socket.set_multicast_loop_v4(false)?; // for others only
    ///     assert!(!socket.multicast_loop_v4()?);
    ///     Ok(())
    /// }
    /// ```
    set_multicast_loop_v4(on: bool) -> ();
    /// What [`set_multicast_loop_v4`](Self::set_multicast_loop_v4) sets.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     assert!(socket.multicast_loop_v4()?); // unless it is switched off
    ///     Ok(())
    /// }
    /// ```
    multicast_loop_v4() -> bool;
    /// How many routers a packet to an IPv4 group may pass.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     let usual = socket.ttl()?;
    ///     socket.set_multicast_ttl_v4(4)?;
    ///     assert_eq!(socket.multicast_ttl_v4()?, 4);
    ///     assert_eq!(socket.ttl()?, usual); // that of other packets
    ///     Ok(())
    /// }
    /// ```
    set_multicast_ttl_v4(ttl: u32) -> ();
    /// What [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4) sets.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     assert_eq!(socket.multicast_ttl_v4()?, 1); // to this network only, unless it is set
    ///     Ok(())
    /// }
    /// ```
    multicast_ttl_v4() -> u32;
    /// Whether what it sends to an IPv6 group comes back to this machine.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let Ok(socket) = UdpSocket::bind("[::1]:0") else { return Ok(()) }; // a machine without IPv6
    ///     socket.set_multicast_loop_v6(false)?;
    ///     assert!(!socket.multicast_loop_v6()?);
    ///     socket.set_multicast_loop_v6(true)?;
    ///     assert!(socket.multicast_loop_v6()?);
    ///     Ok(())
    /// }
    /// ```
    set_multicast_loop_v6(on: bool) -> ();
    /// What [`set_multicast_loop_v6`](Self::set_multicast_loop_v6) sets.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let Ok(socket) = UdpSocket::bind("[::1]:0") else { return Ok(()) }; // a machine without IPv6
    ///     assert!(socket.multicast_loop_v6()?); // unless it is switched off
    ///     Ok(())
    /// }
    /// ```
    multicast_loop_v6() -> bool;
    /// How many routers a packet may pass.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     socket.set_ttl(1)?; // the first router drops it, and says who it is
    ///     assert_eq!(socket.ttl()?, 1);
    ///     Ok(())
    /// }
    /// ```
    set_ttl(ttl: u32) -> ();
    /// What [`set_ttl`](Self::set_ttl) sets.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     let usual = socket.ttl()?;
    ///     socket.set_ttl(9)?;
    ///     assert_eq!(socket.ttl()?, 9);
    ///     socket.set_ttl(usual)?;
    ///     Ok(())
    /// }
    /// ```
    ttl() -> u32;
    /// Joins an IPv4 group, on the interface with that address.
    /// ```
    /// use runnext::net::{Ipv4Addr, UdpSocket};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let group = Ipv4Addr::new(239, 1, 2, 3);
    ///     let member = UdpSocket::bind("0.0.0.0:0")?;
    ///     member.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
    ///     let speaker = UdpSocket::bind("127.0.0.1:0")?;
    ///     speaker.send_to(b"to all", (group, member.local_addr()?.port()))?;
    ///     let mut buf = [0; 6];
    ///     assert_eq!(member.recv_from(&mut buf)?, (6, speaker.local_addr()?));
    ///     assert_eq!(&buf, b"to all");
    ///     Ok(())
    /// }
    /// ```
    join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Joins an IPv6 group, on the interface with that number.
    /// ```
    /// use runnext::net::{Ipv6Addr, UdpSocket};
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let Ok(socket) = UdpSocket::bind("[::1]:0") else { return Ok(()) }; // a machine without IPv6
    ///     let group = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 0x1234);
    ///     socket.join_multicast_v6(&group, 1)?; // the loopback interface
    ///     let again = socket.join_multicast_v6(&group, 1).unwrap_err();
    ///     assert_eq!(again.kind(), ErrorKind::AddrInUse);
    ///     Ok(())
    /// }
    /// ```
    join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    /// Leaves an IPv4 group.
    /// ```
    /// use runnext::net::{Ipv4Addr, UdpSocket};
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     let (group, interface) = (Ipv4Addr::new(239, 1, 2, 4), Ipv4Addr::LOCALHOST);
    ///     socket.join_multicast_v4(&group, &interface)?;
    ///     socket.leave_multicast_v4(&group, &interface)?;
    ///     let again = socket.leave_multicast_v4(&group, &interface).unwrap_err();
    ///     assert_eq!(again.kind(), ErrorKind::AddrNotAvailable);
    ///     Ok(())
    /// }
    /// ```
    leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Leaves an IPv6 group.
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let Ok(socket) = UdpSocket::bind("[::1]:0") else { return Ok(()) }; // a machine without IPv6
    ///     let group = "ff01::1235".parse().unwrap();
    ///     socket.join_multicast_v6(&group, 1)?;
    ///     socket.leave_multicast_v6(&group, 1)?;
    ///     assert!(socket.leave_multicast_v6(&group, 1).is_err()); // not a member any more
    ///     Ok(())
    /// }
    /// ```
    leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
}

impl UdpSocket {
    /// A socket bound to `addr`; to the first address of a name that can be had.
    ///
    /// # Blocks
    /// The goroutine, until the name is resolved.
    ///
    /// # Errors
    /// The last address's, as the system has it; `InvalidInput` if there is none.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::io::ErrorKind;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?; // the system chooses a port
    ///     let taken = UdpSocket::bind(socket.local_addr()?);
    ///     assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    ///     Ok(())
    /// }
    /// ```
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        UdpSocket::from_std(net::UdpSocket::bind(&socket::resolve(addr)?[..])?)
    }

    /// Makes [`send`](Self::send) send to `addr`, and lets nothing from elsewhere in.
    ///
    /// # Blocks
    /// The goroutine, until the name is resolved.
    ///
    /// # Errors
    /// The last address's, as the system has it; `InvalidInput` if there is none.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (client, server) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     client.connect(server.local_addr()?)?;
    ///     let stranger = UdpSocket::bind("127.0.0.1:0")?;
    ///     stranger.send_to(b"listen to me", client.local_addr()?)?;
    ///     server.send_to(b"answer", client.local_addr()?)?;
    ///     let mut buf = [0; 16];
    ///     let n = client.recv(&mut buf)?;
    ///     assert_eq!(&buf[..n], b"answer"); // the stranger's did not get in
    ///     Ok(())
    /// }
    /// ```
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        self.std().connect(&socket::resolve(addr)?[..])
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
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.send_to(b"too long", b.local_addr()?)?;
    ///     a.send_to(b"fits", b.local_addr()?)?;
    ///     let mut buf = [0; 4];
    ///     assert_eq!(b.recv_from(&mut buf)?, (4, a.local_addr()?));
    ///     assert_eq!(&buf, b"too "); // the rest of it is lost
    ///     b.recv_from(&mut buf)?;
    ///     assert_eq!(&buf, b"fits");
    ///     Ok(())
    /// }
    /// ```
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.io(Direction::Read, || self.recv_from_or_end(buf))
    }

    /// As [`recv_from`](Self::recv_from), without taking it.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.send_to(b"\x05hello", b.local_addr()?)?;
    ///     let mut len = [0];
    ///     let (_, from) = b.peek_from(&mut len)?; // the first byte says how long it is
    ///     let mut whole = vec![0; 1 + usize::from(len[0])];
    ///     assert_eq!(b.recv_from(&mut whole)?, (6, from));
    ///     assert_eq!(&whole[1..], b"hello");
    ///     Ok(())
    /// }
    /// ```
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let std = self.std();
        self.0.io(Direction::Read, || {
            self.or_end(std.peek_from(buf), from_nowhere)
        })
    }

    /// Receives one datagram from where it is connected to.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.connect(b.local_addr()?)?;
    ///     let to = a.local_addr()?;
    ///     runnext::go(move || b.send_to(b"news", to));
    ///     let mut buf = [0; 16];
    ///     let n = a.recv(&mut buf)?; // waits for it
    ///     assert_eq!(&buf[..n], b"news");
    ///     Ok(())
    /// }
    /// ```
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, || self.recv_or_end(buf))
    }

    /// As [`recv`](Self::recv), without taking it.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.connect(b.local_addr()?)?;
    ///     b.send_to(b"once", a.local_addr()?)?;
    ///     let (mut seen, mut taken) = ([0; 4], [0; 4]);
    ///     a.peek(&mut seen)?;
    ///     a.recv(&mut taken)?;
    ///     assert_eq!((&seen, &taken), (b"once", b"once"));
    ///     Ok(())
    /// }
    /// ```
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let std = self.std();
        self.0
            .io(Direction::Read, || self.or_end(std.peek(buf), || Ok(0)))
    }

    /// Sends one datagram to `addr`, the first address of a name.
    ///
    /// # Blocks
    /// The goroutine, until the name is resolved and there is room.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if there is no address.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     let others = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    ///     for (i, other) in others.iter().enumerate() {
    ///         let text = format!("you are number {i}");
    ///         assert_eq!(socket.send_to(text.as_bytes(), other.local_addr()?)?, text.len());
    ///     }
    ///     let mut buf = [0; 16];
    ///     others[1].recv_from(&mut buf)?;
    ///     assert_eq!(&buf, b"you are number 1");
    ///     Ok(())
    /// }
    /// ```
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let to = socket::resolve_or(addr, "no addresses to send data to")?[0];
        let std = self.std();
        self.0.io(Direction::Write, || std.send_to(buf, to))
    }

    /// Sends one datagram to where it is connected to.
    ///
    /// # Blocks
    /// The goroutine, until there is room.
    ///
    /// # Errors
    /// The system's; that of the peer, if it refused an earlier one.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (metrics, server) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     metrics.connect(server.local_addr()?)?; // once, instead of an address each time
    ///     metrics.send(b"hits 1")?;
    ///     metrics.send(b"hits 2")?;
    ///     let mut buf = [0; 6];
    ///     server.recv_from(&mut buf)?;
    ///     assert_eq!(&buf, b"hits 1");
    ///     Ok(())
    /// }
    /// ```
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Write, || std.send(buf))
    }

    fn recv_or_end(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.or_end(self.std().recv(buf), || Ok(0))
    }

    fn recv_from_or_end(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.or_end(self.std().recv_from(buf), from_nowhere)
    }

    /// What a call that blocks would give, if nothing comes any more: the kernel does not tell others.
    fn or_end<T>(
        &self,
        received: io::Result<T>,
        end: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match received {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.0.is_over() => end(),
            received => received,
        }
    }

    fn pass_on_timeouts(
        socket: &net::UdpSocket,
        [read, write]: [Option<Duration>; 2],
    ) -> io::Result<()> {
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

/// The end has no address, and the standard library's calls have this error for it.
fn from_nowhere() -> io::Result<(usize, SocketAddr)> {
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the socket was shut down: nothing comes any more",
    ))
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}
