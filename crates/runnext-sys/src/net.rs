//! What the standard library's sockets do not offer: connecting without waiting, accepting sockets that never block, and the two calls that
//! servers live in without the C library's points of cancellation. Nobody cancels our threads, and entering and leaving these was 8 % of the
//! time that an echo server spends outside of the kernel.
//!
//! # Context
//! Nothing here blocks, and nothing allocates. Errors are the kernel's. Tests: below, and `runnext`'s `tests/net_*.rs`.

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{sockaddr_in, sockaddr_in6, socklen_t};

use crate::{check, syscall};

/// An address as the kernel wants it.
#[repr(C)]
union Raw {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

fn to_raw(addr: &SocketAddr) -> (Raw, socklen_t) {
    match addr {
        SocketAddr::V4(a) => {
            let v4 = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: a.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(a.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            (Raw { v4 }, size_of::<sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(a) => {
            let v6 = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: a.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: a.ip().octets(),
                },
                sin6_scope_id: a.scope_id(),
            };
            (Raw { v6 }, size_of::<sockaddr_in6>() as socklen_t)
        }
    }
}

fn from_raw(raw: &Raw, len: socklen_t) -> io::Result<SocketAddr> {
    // SAFETY: both variants begin with the family, and the union is zeroed where the kernel did not write.
    let family = libc::c_int::from(unsafe { raw.v4.sin_family });
    match family {
        libc::AF_INET if len as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: the family says so.
            let a = unsafe { &raw.v4 };
            let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: the family says so.
            let a = unsafe { &raw.v6 };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            let port = u16::from_be(a.sin6_port);
            Ok(SocketAddrV6::new(ip, port, a.sin6_flowinfo, a.sin6_scope_id).into())
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the socket is not one of IPv4 or IPv6",
        )),
    }
}

/// Receives into `buf`.
///
/// # Errors
/// Those of `recv`.
#[inline]
pub fn recv(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` is ours for the time of the call, and what the kernel writes are bytes.
    unsafe { recv_at(socket, buf.as_mut_ptr(), buf.len()) }
}

/// Receives into memory that need not be initialised; the first of its bytes, as many as returned, are afterwards.
///
/// # Errors
/// Those of `recv`.
#[inline]
pub fn recv_uninit(socket: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: as in `recv`.
    unsafe { recv_at(socket, buf.as_mut_ptr().cast(), buf.len()) }
}

/// # Safety
/// `len` bytes at `to` may be written.
#[inline]
unsafe fn recv_at(socket: BorrowedFd<'_>, to: *mut u8, len: usize) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `len` bytes, which the caller allows.
    check(unsafe { syscall!(libc::SYS_recvfrom, socket.as_raw_fd(), to, len) })
}

/// Sends what the socket takes of `buf`. That nobody receives any more is an error, not a signal.
///
/// # Errors
/// Those of `send`.
#[inline]
pub fn send(socket: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    let (from, len) = (buf.as_ptr(), buf.len());
    // SAFETY: the kernel reads at most `len` bytes of a live slice.
    check(unsafe {
        syscall!(
            libc::SYS_sendto,
            socket.as_raw_fd(),
            from,
            len,
            libc::MSG_NOSIGNAL
        )
    })
}

/// Sends what the socket takes of `bufs`, one after the other, of which the kernel takes 1024 at a time. That nobody receives any more is an error,
/// not a signal, as it would be for `writev`.
///
/// # Errors
/// Those of `sendmsg`.
pub fn send_vectored(socket: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    if let [only] = bufs {
        return send(socket, only);
    }
    // SAFETY: for all its fields zero is valid: no address, no slices, nothing beside them.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // An `IoSlice` is an iovec, says the standard library. The kernel only reads.
    message.msg_iov = bufs.as_ptr().cast_mut().cast();
    message.msg_iovlen = bufs.len().min(libc::UIO_MAXIOV as usize) as _;
    // SAFETY: the message is alive, and so are its slices, of which there are as many.
    check(unsafe {
        syscall!(
            libc::SYS_sendmsg,
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_NOSIGNAL
        )
    })
}

/// A TCP socket that begins to connect to `addr` and never blocks. False: it is not connected yet; once it is ready for
/// writing, `SO_ERROR` says what became of it.
///
/// # Errors
/// Those of `socket` and `connect`.
pub fn connect(addr: &SocketAddr) -> io::Result<(OwnedFd, bool)> {
    let family = match addr {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: integers only.
    let fd = check(unsafe { syscall!(libc::SYS_socket, family, kind, 0) })?;
    // SAFETY: new, so nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    let (raw, len) = to_raw(addr);
    // SAFETY: the address is alive and that long.
    let ret = unsafe { syscall!(libc::SYS_connect, fd.as_raw_fd(), &raw const raw, len) };
    match check(ret) {
        Ok(_) => Ok((fd, true)),
        // Interrupted is under way too.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            Ok((fd, false))
        }
        Err(e) => Err(e),
    }
}

/// The next connection of a TCP listener, as a socket that never blocks, and the peer's address.
///
/// # Errors
/// `WouldBlock` if there is none; those of `accept`.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    // SAFETY: all zeroes is an address of no family.
    let mut raw: Raw = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = mem::size_of::<Raw>() as socklen_t;
    let fd = listener.as_raw_fd();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: address and length are alive, and the length is right.
    let ret = unsafe { syscall!(libc::SYS_accept4, fd, &raw mut raw, &raw mut len, flags) };
    let fd = check(ret)?;
    // SAFETY: new, so nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    Ok((fd, from_raw(&raw, len)?))
}

/// Sets how many connections may wait to be accepted, as many as the system allows if that is less, on a socket that listens or is
/// bound.
///
/// # Errors
/// Those of `listen`.
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { syscall!(libc::SYS_listen, fd.as_raw_fd(), backlog) }).map(drop)
}

/// Whether a TCP socket acknowledges at once. The standard library asks so from 1.89 on.
///
/// # Errors
/// The kernel's.
pub fn quickack(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut on: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as socklen_t;
    // SAFETY: both are ours, and the length is that of the value.
    check(unsafe {
        syscall!(
            libc::SYS_getsockopt,
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            &raw mut on,
            &raw mut len
        )
    })?;
    Ok(on != 0)
}

/// Has a TCP socket acknowledge at once, or not, for now.
///
/// # Errors
/// The kernel's.
pub fn set_quickack(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    // SAFETY: the value is ours, and the length its own.
    check(unsafe {
        syscall!(
            libc::SYS_setsockopt,
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            &raw const on,
            size_of::<libc::c_int>()
        )
    })
    .map(drop)
}

/// Whether `fd` is a TCP socket. No, if it is no socket at all.
pub fn is_tcp(fd: BorrowedFd<'_>) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as socklen_t;
    // SAFETY: both are ours, and the length is that of the value.
    let asked = check(unsafe {
        syscall!(
            libc::SYS_getsockopt,
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            &raw mut protocol,
            &raw mut len
        )
    });
    asked.is_ok() && protocol == libc::IPPROTO_TCP
}

/// Makes calls on `fd` block, or not: a property of the open file, shared by all its descriptors.
///
/// # Errors
/// Those of `fcntl`.
pub fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: integers only.
    let flags = check(unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) })? as i32;
    let wanted = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    if wanted == flags {
        return Ok(());
    }
    // SAFETY: as above.
    check(unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_SETFL, wanted) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn addresses_survive() {
        for addr in [
            "127.0.0.1:80".parse::<SocketAddr>().unwrap(),
            "[::1]:65535".parse().unwrap(),
            SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 9, 3).into(),
        ] {
            let (raw, len) = to_raw(&addr);
            assert_eq!(from_raw(&raw, len).unwrap(), addr);
        }
    }

    #[test]
    fn what_is_sent_is_received() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(send(a.as_fd(), b"four").unwrap(), 4);
        let mut buf = [0; 3];
        assert_eq!(recv(b.as_fd(), &mut buf).unwrap(), 3);
        assert_eq!(&buf, b"fou");
        let mut buf = [MaybeUninit::uninit(); 8];
        assert_eq!(recv_uninit(b.as_fd(), &mut buf).unwrap(), 1);
        // SAFETY: one byte was received.
        assert_eq!(unsafe { buf[0].assume_init() }, b'r');
        set_nonblocking(b.as_fd(), true).unwrap();
        let none = recv(b.as_fd(), &mut [0]).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(recv(b.as_fd(), &mut [0]).unwrap(), 0);
        let gone = send(b.as_fd(), b"x").unwrap_err(); // and no SIGPIPE
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn slices_are_sent_one_after_the_other() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let send = |parts: &[&[u8]]| {
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            send_vectored(a.as_fd(), &slices)
        };
        assert_eq!(send(&[b"one"]).unwrap(), 3);
        assert_eq!(send(&[b" and", b"", b" more"]).unwrap(), 9);
        let mut buf = [0; 2000];
        assert_eq!(recv(b.as_fd(), &mut buf).unwrap(), 12);
        assert_eq!(&buf[..12], b"one and more");
        assert_eq!(send(&[&b"x"[..]; 1500]).unwrap(), 1024);
        drop(b);
        let gone = send(&[b"x", b"y"]).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_tcp() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_tcp(listener.as_fd()));
        let others = [
            OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()),
            OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0),
            OwnedFd::from(std::fs::File::open("/dev/null").unwrap()),
        ];
        assert!(others.iter().all(|other| !is_tcp(other.as_fd())));
    }

    #[test]
    fn accept_never_blocks() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        set_nonblocking(listener.as_fd(), true).unwrap();
        let none = accept(listener.as_fd()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let (client, _) = connect(&listener.local_addr().unwrap()).unwrap();
        let (_server, peer) = loop {
            match accept(listener.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => break other.unwrap(),
            }
        };
        let client = std::net::TcpStream::from(client);
        assert_eq!(client.local_addr().unwrap(), peer);
    }
}
