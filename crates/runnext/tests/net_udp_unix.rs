//! UDP and Unix domain sockets, and conversions between all sockets and descriptors.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use common::runtime;
use runnext::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use runnext::time::Instant;
use runnext::{go, yield_now};

/// A name for a socket, removed at the end.
struct Name(PathBuf);

impl Name {
    fn new() -> Name {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "runnext-sock-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, SeqCst)
        );
        Name(std::env::temp_dir().join(name))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn udp_exchange() {
    let a = UdpSocket::bind("127.0.0.1:0").unwrap();
    let b = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let (at, bt) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    assert_eq!(a.send_to(b"one", bt).unwrap(), 3);
    let mut buf = [0; 16];
    assert_eq!(b.peek_from(&mut buf).unwrap(), (3, at));
    assert_eq!(b.recv_from(&mut buf).unwrap(), (3, at));
    a.connect(bt).unwrap();
    b.connect(at).unwrap();
    assert_eq!(a.peer_addr().unwrap(), bt);
    assert_eq!(b.send(b"two!").unwrap(), 4);
    assert_eq!(a.peek(&mut buf).unwrap(), 4);
    assert_eq!(a.recv(&mut buf).unwrap(), 4);
    assert_eq!(&buf[..4], b"two!");
    assert_eq!(a.send(b"").unwrap(), 0);
    assert_eq!(b.recv(&mut buf).unwrap(), 0, "an empty datagram is one");
}

#[test]
fn udp_anywhere() {
    udp_exchange();
    runtime(1).run(udp_exchange);
}

#[runnext::test]
fn udp_waits() {
    let a = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = a.local_addr().unwrap();
    let receiver = go(move || {
        let mut buf = [0; 16];
        (0..100).map(|_| a.recv(&mut buf).unwrap()).sum::<usize>()
    });
    let b = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        b.send_to(b"xy", at).unwrap();
        yield_now();
    }
    assert_eq!(receiver.join().unwrap(), 200);
}

#[runnext::test]
fn udp_options() {
    let s = UdpSocket::bind("0.0.0.0:0").unwrap();
    s.set_broadcast(true).unwrap();
    assert!(s.broadcast().unwrap());
    s.set_multicast_loop_v4(false).unwrap();
    assert!(!s.multicast_loop_v4().unwrap());
    s.set_multicast_ttl_v4(3).unwrap();
    assert_eq!(s.multicast_ttl_v4().unwrap(), 3);
    s.set_ttl(9).unwrap();
    assert_eq!(s.ttl().unwrap(), 9);
    let (group, any) = (Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::UNSPECIFIED);
    if s.join_multicast_v4(&group, &any).is_ok() {
        s.leave_multicast_v4(&group, &any).unwrap();
    }
    assert!(s.leave_multicast_v4(&group, &any).is_err(), "not a member");
    assert!(s.take_error().unwrap().is_none());
    assert_eq!(
        s.send(b"x").unwrap_err().raw_os_error(),
        Some(libc::EDESTADDRREQ)
    );
    assert!(format!("{s:?}").contains("UdpSocket"));
}

#[runnext::test(procs = 2)]
fn unix_streams() {
    let name = Name::new();
    let listener = UnixListener::bind(&name.0).unwrap();
    assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*name.0));
    assert_eq!(
        UnixListener::bind(&name.0).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    let server = go(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        }
    });
    for _ in 0..4 {
        let mut stream = UnixStream::connect(&name.0).unwrap();
        assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*name.0));
        stream.write_all(b"loud").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "LOUD");
    }
    server.join().unwrap();
    assert_eq!(
        UnixStream::connect(&name.0).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(
        UnixStream::connect("/no/such").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// The listener's queue is full: those who connect wait, on one P, until somebody accepts.
#[runnext::test(procs = 1)]
fn connecting_to_a_full_queue() {
    let addr =
        UnixAddr::from_abstract_name(format!("runnext-full-{}", std::process::id())).unwrap();
    let listener = UnixListener::bind_addr(&addr).unwrap();
    // SAFETY: an open socket; listening again changes the length of the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let addr = addr.clone();
            go(move || UnixStream::connect_addr(&addr).map(drop))
        })
        .collect();
    (0..6).for_each(|_| drop(listener.accept().unwrap()));
    clients.into_iter().for_each(|c| c.join().unwrap().unwrap());
}

#[runnext::test]
fn unix_stream_both_ways() {
    let (here, there) = UnixStream::pair().unwrap();
    let pump = go(move || {
        let mut there = there;
        let mut buf = vec![0; 100_000];
        let mut total = 0;
        loop {
            match there.read(&mut buf).unwrap() {
                0 => return total,
                n => total += n,
            }
        }
    });
    (&here).write_all(&vec![1; 3_000_000]).unwrap();
    here.shutdown(Shutdown::Both).unwrap();
    assert_eq!(pump.join().unwrap(), 3_000_000);
}

#[runnext::test]
fn unix_datagrams() {
    let name = Name::new();
    let server = UnixDatagram::bind(&name.0).unwrap();
    let client = UnixDatagram::unbound().unwrap();
    assert_eq!(client.send_to(b"one", &name.0).unwrap(), 3);
    let mut buf = [0; 16];
    let (n, from) = server.recv_from(&mut buf).unwrap();
    assert!(n == 3 && from.is_unnamed());
    client.connect(&name.0).unwrap();
    client.send(b"two").unwrap();
    assert_eq!(server.recv(&mut buf).unwrap(), 3);
    assert!(server.send(b"x").is_err(), "not connected");
    let (a, b) = UnixDatagram::pair().unwrap();
    let receiver = go(move || b.recv(&mut [0; 16]).unwrap());
    yield_now();
    a.send(b"abc").unwrap();
    assert_eq!(receiver.join().unwrap(), 3);
    a.shutdown(Shutdown::Both).unwrap();
    assert_eq!(a.recv(&mut buf).unwrap(), 0);
    assert!(a.recv_from(&mut buf).unwrap().1.is_unnamed());
    let (a, _b) = UnixDatagram::pair().unwrap();
    let a = std::sync::Arc::new(a);
    let waiting = std::sync::Arc::clone(&a);
    let receiver = go(move || waiting.recv(&mut [0; 16]).unwrap());
    yield_now();
    a.shutdown(Shutdown::Read).unwrap();
    assert_eq!(receiver.join().unwrap(), 0);
}

/// The receiver's queue is full, and the sender is not connected to it: no event would tell.
#[runnext::test(procs = 1)]
fn datagrams_to_a_full_queue() {
    let name = Name::new();
    let server = UnixDatagram::bind(&name.0).unwrap();
    let path = name.0.clone();
    let sender = go(move || {
        let client = UnixDatagram::unbound().unwrap();
        for _ in 0..500 {
            client.send_to(b"x", &path).unwrap();
        }
    });
    runnext::time::sleep(Duration::from_millis(5));
    for _ in 0..500 {
        assert_eq!(server.recv(&mut [0; 8]).unwrap(), 1);
    }
    sender.join().unwrap();
}

#[runnext::test]
fn to_std_and_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut there, _) = listener.accept().unwrap();
    here.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let clone = here.try_clone().unwrap();
    let mut std_stream = here.into_std().unwrap();
    assert_ne!(
        std_stream.as_raw_fd(),
        clone.as_raw_fd(),
        "it has a clone, so this is a duplicate"
    );
    assert_eq!(
        std_stream.read_timeout().unwrap(),
        Some(Duration::from_millis(20))
    );
    drop(clone);
    std_stream.set_nonblocking(false).unwrap(); // it had a clone when it was given up
    there.write_all(b"to std").unwrap();
    let mut buf = [0; 6];
    std_stream.read_exact(&mut buf).unwrap();
    let fd = std_stream.as_raw_fd();
    let mut back = TcpStream::from_std(std_stream).unwrap();
    assert_eq!((back.as_raw_fd(), back.as_fd().as_raw_fd()), (fd, fd));
    assert_eq!(
        back.read_timeout().unwrap(),
        Some(Duration::from_millis(20))
    );
    assert_eq!(back.read(&mut buf).unwrap_err().kind(), ErrorKind::TimedOut);
    back.set_nonblocking(true).unwrap();
    let mut std_stream = back.into_std().unwrap();
    assert_eq!(std_stream.as_raw_fd(), fd, "no clone, no duplicate");
    assert_eq!(
        std_stream.read(&mut buf).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let std_listener = listener.into_std().unwrap();
    TcpListener::from_std(std_listener)
        .unwrap()
        .local_addr()
        .unwrap();
    let udp = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let std_udp = std::net::UdpSocket::try_from(udp).unwrap();
    UdpSocket::try_from(std_udp).unwrap().local_addr().unwrap();
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let a = UnixStream::from(OwnedFd::from(a));
    // SAFETY: given up by its owner.
    let mut b = unsafe { UnixStream::from_raw_fd(b.into_raw_fd()) };
    let writer = go(move || {
        OwnedFd::from({
            (&a).write_all(b"x").unwrap();
            a
        })
    });
    b.read_exact(&mut [0]).unwrap();
    drop(writer.join().unwrap());
    assert_eq!(b.read(&mut [0]).unwrap(), 0);
}

fn blocks(fd: &impl AsFd) -> bool {
    // SAFETY: reads the flags of an open descriptor.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK == 0
}

/// The mode belongs to all duplicates: giving up a clone must not make the calls of those that stay block their threads, out of reach
/// of deadlines.
#[test]
fn clones_of_one_given_up_do_not_block() {
    let given_up = || {
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        let (a, _b) = UnixStream::pair().unwrap();
        let clone = || a.try_clone().unwrap();
        let std_stream = clone().into_std().unwrap();
        let owned = OwnedFd::from(clone());
        // SAFETY: given up by its owner.
        let raw = unsafe { OwnedFd::from_raw_fd(clone().into_raw_fd()) };
        assert!(!blocks(&std_stream) && !blocks(&owned) && !blocks(&raw));
        a.set_deadline(soon()).unwrap();
        let read = (&a).read(&mut [0]).unwrap_err();
        assert_eq!(read.kind(), ErrorKind::TimedOut);
        a.set_deadline(soon()).unwrap();
        let written = std::iter::repeat_with(|| (&a).write(&[0; 1 << 16]));
        let full = written.filter_map(Result::err).next().unwrap();
        assert_eq!(full.kind(), ErrorKind::TimedOut);
        let last = a.into_std().unwrap();
        assert!(blocks(&last) && blocks(&std_stream) && blocks(&owned) && blocks(&raw));

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let std_listener = listener.try_clone().unwrap().into_std().unwrap();
        listener.set_read_deadline(soon()).unwrap();
        let accepted = listener.accept().unwrap_err();
        assert_eq!(accepted.kind(), ErrorKind::TimedOut);
        drop(listener);
        assert!(!blocks(&std_listener), "what was given up is left alone");
    };
    runtime(1).run(given_up);
    given_up();
}

/// Of two that are given up at the same moment one is the last.
#[test]
fn the_last_one_given_up_blocks() {
    let (a, _b) = UnixStream::pair().unwrap();
    let mut kept = a.into_std().unwrap();
    for _ in 0..1000 {
        let one = UnixStream::from_std(kept).unwrap();
        let other = one.try_clone().unwrap();
        let other = std::thread::spawn(move || other.into_std().unwrap());
        kept = one.into_std().unwrap();
        assert!(blocks(&other.join().unwrap()) && blocks(&kept));
    }
}
