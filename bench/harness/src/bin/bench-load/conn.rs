//! Connections that never block, and the epoll instance they share.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A connection: `n` of the reply have arrived.
pub struct Conn {
    pub stream: TcpStream,
    pub got: usize,
    pub sent_at: u64,
}

impl Conn {
    /// Connects; patient, since a storm fills the listener's queue.
    pub fn open(addr: SocketAddr) -> Conn {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(20)).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_nonblocking(true).expect("nonblocking");
        Conn {
            stream,
            got: 0,
            sent_at: 0,
        }
    }

    /// Connects `n` times, not faster than a listener with a queue of 128 accepts.
    pub fn open_all(addr: SocketAddr, n: usize) -> Vec<Conn> {
        let open = |i: usize| {
            if i % 64 == 63 {
                std::thread::sleep(Duration::from_millis(10));
            }
            Conn::open(addr)
        };
        (0..n).map(open).collect()
    }

    /// Sends a small message; there is always room for it.
    pub fn send(&mut self, message: &[u8]) {
        let n = self.stream.write(message).expect("write");
        assert_eq!(n, message.len(), "room for one small message");
        self.got = 0;
    }

    /// Reads what there is of a reply of `len` bytes. True: it is complete.
    pub fn receive(&mut self, buf: &mut [u8], len: usize) -> bool {
        match self.stream.read(&mut buf[..len - self.got]) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(n) => self.got += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => panic!("read: {e}"),
        }
        self.got == len
    }
}

/// Which connections have something to read.
pub struct Ready {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Ready {
    pub fn new() -> Ready {
        // SAFETY: integers only.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(fd >= 0, "epoll: {}", io::Error::last_os_error());
        Ready {
            // SAFETY: new, so nobody else owns it.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; 256],
        }
    }

    pub fn add(&self, conn: &Conn, id: usize) {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: id as u64,
        };
        let (epoll, fd) = (self.epoll.as_raw_fd(), conn.stream.as_raw_fd());
        // SAFETY: the event is alive.
        let rc = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
        assert_eq!(rc, 0, "epoll add: {}", io::Error::last_os_error());
    }

    /// Ids of those that can be read, waiting up to so many nanoseconds for one.
    pub fn wait(&mut self, timeout_ns: u64) -> impl Iterator<Item = usize> + '_ {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as i64,
        };
        // SAFETY: buffer and timeout are alive; no signal mask.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len(),
                &raw const timeout,
                std::ptr::null::<u8>(),
                8,
            )
        };
        self.events[..n.max(0) as usize]
            .iter()
            .map(|event| event.u64 as usize)
    }
}
