//! One descriptor and one thread: waiting for it without a poller, and being called away.
//!
//! # Why this shape
//! A thread that no scheduler knows waits for a socket now and then. `ppoll(2)` needs no registration and nobody else's
//! help. So that another thread can end the wait, it polls an eventfd beside the descriptor: a [`Kick`].
//!
//! # Context
//! Blocks the thread. Nothing allocates. Tests: below.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::{check, clock, syscall};

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A read would not block.
    Read,
    /// A write would not block.
    Write,
}

/// How a [`wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// By the kick, the time or a signal.
    NotReady,
    /// It is ready, says the kernel.
    Ready,
    /// There is an error and nothing else. The next call may report it, or block all the same: what is in a socket's error queue stays there until
    /// somebody fetches it, and `wait` returns at once until then.
    Error,
}

/// Waits until `fd` is ready, `kick` was given, or `timeout_ns` have passed; a signal may end it too. No `kick` or no
/// timeout: pass `None`.
///
/// # Errors
/// Those of `ppoll`; a descriptor that is not open counts as ready, since the next call reports it.
///
/// # Blocks
/// The thread.
pub fn wait(
    fd: RawFd,
    interest: Interest,
    kick: Option<&Kick>,
    timeout_ns: Option<u64>,
) -> io::Result<Polled> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    let watch = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // A negative descriptor is passed over.
    let mut fds = [
        watch(fd, events),
        watch(kick.map_or(-1, |kick| kick.0.as_raw_fd()), libc::POLLIN),
    ];
    let timeout = timeout_ns.map(clock::timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (mask, size) = (ptr::null::<u8>(), 0);
    // SAFETY: array and timeout are alive, the length is the array's; no signal mask.
    let ret = unsafe {
        syscall!(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timeout,
            mask,
            size
        )
    };
    match ret {
        n if n == -(libc::EINTR as isize) => Ok(Polled::NotReady),
        n => check(n).map(|_| match (fds[0].revents, fds[1].revents) {
            (libc::POLLERR, 0) => Polled::Error,
            (1.., 0) => Polled::Ready,
            _ => Polled::NotReady,
        }),
    }
}

/// Whether nothing comes any more: the socket was shut down for reading, through whatever descriptor. Does not block; async-signal-safe.
///
/// ```
/// use std::net::Shutdown;
/// use std::os::fd::AsRawFd;
/// use std::os::unix::net::UnixDatagram;
///
/// let (socket, _peer) = UnixDatagram::pair()?;
/// let twin = socket.try_clone()?;
/// assert!(!runnext_sys::ready::is_shut(socket.as_raw_fd()));
/// twin.shutdown(Shutdown::Read)?;
/// assert!(runnext_sys::ready::is_shut(socket.as_raw_fd()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_shut(fd: RawFd) -> bool {
    let mut asked = libc::pollfd {
        fd,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    let (at_once, mask, size) = (clock::timespec(0), ptr::null::<u8>(), 0);
    // SAFETY: both are alive, and it is one descriptor; no signal mask.
    let ret = unsafe {
        syscall!(
            libc::SYS_ppoll,
            &raw mut asked,
            1,
            &raw const at_once,
            mask,
            size
        )
    };
    ret == 1 && asked.revents & libc::POLLRDHUP != 0
}

/// Ends a [`wait`] from another thread, once.
#[derive(Debug)]
pub struct Kick(OwnedFd);

impl Kick {
    /// One that was not given yet.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Kick> {
        // SAFETY: integers only.
        let fd = check(unsafe { syscall!(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC) })?;
        // SAFETY: new, so nobody else owns it.
        Ok(Kick(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// For [`give`](Self::give). Good until the kick was [`taken`](Self::take).
    pub fn id(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Gives the kick with that id. Async-signal-safe.
    pub fn give(id: RawFd) {
        let one = 1u64;
        // SAFETY: eight bytes of a live integer. Its owner waits for it, so it is open.
        unsafe { syscall!(libc::SYS_write, id, &raw const one, size_of::<u64>()) };
    }

    /// Waits until it was given.
    ///
    /// # Blocks
    /// The thread.
    pub fn take(self) {
        let mut count = 0u64;
        let fd = self.0.as_raw_fd();
        // SAFETY: eight bytes of a live integer. Interrupted: again.
        while unsafe { syscall!(libc::SYS_read, fd, &raw mut count, size_of::<u64>()) }
            == -(libc::EINTR as isize)
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn ready_or_late() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let fd = here.as_raw_fd();
        assert_eq!(
            wait(fd, Interest::Write, None, None).unwrap(),
            Polled::Ready
        );
        let start = Instant::now();
        let late = wait(fd, Interest::Read, None, Some(2_000_000)).unwrap();
        assert_eq!(late, Polled::NotReady);
        assert!(start.elapsed() >= Duration::from_millis(2));
        there.write_all(b"x").unwrap();
        wait(fd, Interest::Read, None, None).unwrap();
        here.read_exact(&mut [0]).unwrap();
        drop(there);
        assert_eq!(wait(fd, Interest::Read, None, None).unwrap(), Polled::Ready);
    }

    /// A pipe that nobody reads any more has an error, and no room while it is full.
    #[test]
    fn only_an_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        let fd = writer.as_raw_fd();
        // SAFETY: integers only.
        let set = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        while writer.write(&[0; 1 << 12]).is_ok() {}
        drop(reader);
        assert_eq!(wait(fd, Interest::Read, None, None).unwrap(), Polled::Error);
    }

    #[test]
    fn a_kick_ends_it() {
        let (here, _there) = UnixStream::pair().unwrap();
        let kick = Kick::new().unwrap();
        let id = kick.id();
        let other = std::thread::spawn(move || Kick::give(id));
        let kicked = wait(here.as_raw_fd(), Interest::Read, Some(&kick), None).unwrap();
        assert_eq!(kicked, Polled::NotReady);
        kick.take();
        other.join().unwrap();
    }
}
