//! UDP.

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

/// Options that the standard library's socket has: the same call there.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        impl UdpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The system's.
                pub fn $name(&self, $($arg: $ty),*) -> io::Result<$ret> {
                    self.std().$name($($arg),*)
                }
            )*
        }
    };
}

options! {
    /// The address of this end.
    local_addr() -> SocketAddr;
    /// The address it is connected to.
    peer_addr() -> SocketAddr;
    /// Whether it may send to a broadcast address.
    set_broadcast(broadcast: bool) -> ();
    /// What [`set_broadcast`](Self::set_broadcast) sets.
    broadcast() -> bool;
    /// Whether what it sends to an IPv4 group comes back to this machine.
    set_multicast_loop_v4(on: bool) -> ();
    /// What [`set_multicast_loop_v4`](Self::set_multicast_loop_v4) sets.
    multicast_loop_v4() -> bool;
    /// How many routers a packet to an IPv4 group may pass.
    set_multicast_ttl_v4(ttl: u32) -> ();
    /// What [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4) sets.
    multicast_ttl_v4() -> u32;
    /// Whether what it sends to an IPv6 group comes back to this machine.
    set_multicast_loop_v6(on: bool) -> ();
    /// What [`set_multicast_loop_v6`](Self::set_multicast_loop_v6) sets.
    multicast_loop_v6() -> bool;
    /// How many routers a packet may pass.
    set_ttl(ttl: u32) -> ();
    /// What [`set_ttl`](Self::set_ttl) sets.
    ttl() -> u32;
    /// Joins an IPv4 group, on the interface with that address.
    join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Joins an IPv6 group, on the interface with that number.
    join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    /// Leaves an IPv4 group.
    leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Leaves an IPv6 group.
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
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let std = self.std();
        self.0.io(Direction::Read, || std.recv_from(buf))
    }

    /// As [`recv_from`](Self::recv_from), without taking it.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let std = self.std();
        self.0.io(Direction::Read, || std.peek_from(buf))
    }

    /// Receives one datagram from where it is connected to.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Read, || std.recv(buf))
    }

    /// As [`recv`](Self::recv), without taking it.
    ///
    /// # Blocks
    /// The goroutine, until there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Read, || std.peek(buf))
    }

    /// Sends one datagram to `addr`, the first address of a name.
    ///
    /// # Blocks
    /// The goroutine, until the name is resolved and there is room.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if there is no address.
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
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let std = self.std();
        self.0.io(Direction::Write, || std.send(buf))
    }

    fn pass_on_timeouts(
        socket: &net::UdpSocket,
        [read, write]: [Option<Duration>; 2],
    ) -> io::Result<()> {
        socket.set_read_timeout(read)?;
        socket.set_write_timeout(write)
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.std(), f)
    }
}
