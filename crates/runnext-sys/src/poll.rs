//! The poller: which file descriptors became ready, asked by any thread, with or without waiting.
//!
//! # Why this shape
//! A descriptor is registered once, for both directions, edge-triggered: a read that finds
//! nothing costs no system call beyond itself, and no descriptor is ever re-armed. Any thread may
//! poll, several at a time, each with its own [`Events`]. Rejected: a poller tied to one thread
//! (`&mut self`), one-shot registration (a call per wait), level triggering (wakes for everyone
//! who is not interested).
//!
//! # Words
//! *token*: what the caller wants back for a descriptor; a slot number with a generation, so that
//! an event for a descriptor closed since is recognised. *breaker*: an eventfd that ends a wait.
//!
//! # Contract
//! 1. `add` a descriptor once, after making it non-blocking. What is ready then is reported too.
//! 2. An event tells that the state *changed*. Act until the call says `WouldBlock`, and only then
//!    wait.
//! 3. Hang-up and error count as ready in both directions, since the next call reports them.
//! 4. `remove` before closing. Closing does it too, unless a duplicate of the descriptor is still
//!    open. Events already fetched by another thread may still arrive: compare generations.
//! 5. Timeouts have nanosecond precision and never end early, but a signal ends them with no
//!    events.
//! 6. `notify` ends one blocking poll, of now or of the future. Any number of notifications before
//!    that poll returns count as one. A non-blocking poll neither sees nor consumes them.
//!
//! | `notified` | breaker | meaning                                   | changed by               |
//! |------------|---------|-------------------------------------------|--------------------------|
//! | 0          | empty   | nobody asked                              |                          |
//! | 1          | empty   | asked; the write follows                  | `notify`, 0→1            |
//! | 1          | full    | a blocking poll ends or will end          | `notify`, the write      |
//! | 1          | empty   | the poll drained it, is about to clear it | blocking `poll`          |
//!
//! # Invariants
//! I1  Only who moves `notified` from 0 to 1 writes to the breaker; only a blocking poll that saw
//!     it drains it, then clears the word. So a notification costs one atomic when one is pending.
//!     Two blocking polls that both saw it may leave the breaker full for a third one: an empty
//!     return too many, never one too few.
//! I2  What a thread wrote before `notify` is visible to who returns from the poll that it ended:
//!     both sides exchange the word with acquire and release, also when the notification was
//!     merged.
//! I3  The breaker is level-triggered: a non-blocking poll that meets it leaves it for a blocking
//!     one.
//!
//! # Context
//! Nothing allocates but `new`s. `notify` is async-signal-safe. `poll` blocks the thread.
//!
//! Tests: `poll/tests.rs`. Tunables: CAPACITY 128 (Go's value).

use crate::{check, clock, syscall};
use libc::epoll_event;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

#[cfg(test)]
mod tests;

/// Waits longer than this are made in parts. The kernel may end a wait in the poller late by a thousandth of it, a two-hundredth in processes
/// that are nice, so as to wake up for several at once: a millisecond of a second.
const LONG_NS: u64 = 10_000_000;

/// How long to wait first of `ns`, so that the kernel's leeway does not reach beyond the end; all of it if that is short enough.
fn part_of(ns: u64) -> u64 {
    if ns > LONG_NS { ns - ns / 128 } else { ns }
}

/// Events fetched per call.
const CAPACITY: usize = 128;

/// The breaker's own token; callers may not use it.
const BREAKER: u64 = u64::MAX;

const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const ENDING: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
const WATCHED: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// One descriptor became ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What was given to [`Poller::add`].
    pub token: u64,
    /// A read will not block: data, end of stream, hang-up or error.
    pub readable: bool,
    /// A write will not block: room, hang-up or error.
    pub writable: bool,
    /// Nothing but an error.
    pub error: bool,
    /// End of stream, hang-up, error or urgent data: from now on a read may find something even
    /// if the one before it found less than it asked for.
    pub ending: bool,
}

impl Event {
    fn new(token: u64, bits: u32) -> Event {
        Event {
            token,
            readable: bits & READABLE != 0,
            writable: bits & WRITABLE != 0,
            error: bits == libc::EPOLLERR as u32,
            ending: bits & ENDING != 0,
        }
    }
}

/// A buffer for what [`Poller::poll`] finds, made once and used for many polls.
pub struct Events {
    buffer: Box<[epoll_event; CAPACITY]>,
    len: usize,
    notified: bool,
}

impl Events {
    /// An empty buffer, for 128 events at a time.
    pub fn new() -> Events {
        Events {
            buffer: Box::new([epoll_event { events: 0, u64: 0 }; CAPACITY]),
            len: 0,
            notified: false,
        }
    }

    /// The events of the last poll.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.buffer[..self.len]
            .iter()
            .map(|event| Event::new(event.u64, event.events))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the last poll was ended by [`Poller::notify`].
    pub fn notified(&self) -> bool {
        self.notified
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Watches file descriptors; see the contract in the [module](self).
///
/// ```
/// use runnext_sys::poll::{Events, Poller};
/// use std::{io::Write, os::fd::AsRawFd, os::unix::net::UnixStream};
///
/// let (mut here, there) = UnixStream::pair()?;
/// let poller = Poller::new()?;
/// poller.add(there.as_raw_fd(), 7)?;
/// here.write_all(b"x")?;
/// let mut events = Events::new();
/// poller.poll(&mut events, None)?;
/// assert!(events.iter().any(|e| e.token == 7 && e.readable));
/// poller.remove(there.as_raw_fd())?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    breaker: OwnedFd,
    notified: AtomicU32,
}

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: integers only; the descriptor returned is ours alone.
        let epoll = unsafe { owned(syscall!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC))? };
        // SAFETY: as above.
        let breaker = unsafe {
            owned(syscall!(
                libc::SYS_eventfd2,
                0,
                libc::EFD_CLOEXEC | libc::EFD_NONBLOCK
            ))?
        };
        let poller = Poller {
            epoll,
            breaker,
            notified: AtomicU32::new(0),
        };
        // I3: no EPOLLET.
        poller.control(
            libc::EPOLL_CTL_ADD,
            poller.breaker.as_raw_fd(),
            libc::EPOLLIN as u32,
            BREAKER,
        )?;
        Ok(poller)
    }

    /// Watches `fd` in both directions from now on, under `token`.
    ///
    /// # Errors
    /// `AlreadyExists` if it is watched already, `PermissionDenied` (EPERM) for what cannot be
    /// polled, such as a regular file, `ENOSPC` at `fs.epoll.max_user_watches`.
    ///
    /// # Panics
    /// If `token` is `u64::MAX`, which is reserved.
    pub fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        assert!(
            token != BREAKER,
            "Poller::add: the token u64::MAX is reserved, pass another"
        );
        self.control(libc::EPOLL_CTL_ADD, fd, WATCHED, token)
    }

    /// Watches `fd`, which is watched already, under another token. What is ready now is reported
    /// once more.
    ///
    /// # Errors
    /// `NotFound` if it is not watched.
    pub fn rename(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, WATCHED, token)
    }

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// `NotFound` if it is not watched.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, op: i32, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
        let mut event = epoll_event { events, u64: token };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: the event is alive; a wrong descriptor is reported, not acted upon.
        check(unsafe { syscall!(libc::SYS_epoll_ctl, epoll, op, fd, &raw mut event) }).map(drop)
    }

    /// Fetches up to 128 events into `events`, replacing what was there, and returns how many.
    ///
    /// `Some(0)` does not wait, `Some(ns)` waits that long at most, `None` for as long as it takes.
    /// May return nothing before the time is over: after a [`notify`](Self::notify), or a signal.
    ///
    /// # Errors
    /// None in a working process; the kernel's word otherwise.
    ///
    /// # Blocks
    /// The thread, unless `Some(0)`.
    pub fn poll(&self, events: &mut Events, timeout_ns: Option<u64>) -> io::Result<usize> {
        events.len = 0;
        events.notified = false;
        let found = match self.wait(&mut events.buffer, timeout_ns) {
            n if n == -(libc::EINTR as isize) => 0,
            n => check(n)?,
        };
        events.len = found;
        if let Some(at) = events.buffer[..found]
            .iter()
            .position(|event| event.u64 == BREAKER)
        {
            events.len -= 1;
            events.buffer.swap(at, events.len);
            if timeout_ns != Some(0) {
                self.clear_notification();
                events.notified = true;
            }
        }
        Ok(events.len)
    }

    fn wait(&self, buffer: &mut [epoll_event; CAPACITY], timeout_ns: Option<u64>) -> isize {
        static OLD_KERNEL: AtomicBool = AtomicBool::new(false);
        // Only waits with an end need the newer call.
        if let Some(ns @ 1..) = timeout_ns
            && !OLD_KERNEL.load(Relaxed)
        {
            let found = self.wait_in_parts(buffer, ns);
            // Linux before 5.11, or a sandbox that does not know the call.
            let unknown = [-(libc::ENOSYS as isize), -(libc::EPERM as isize)].contains(&found);
            if !unknown {
                return found;
            }
            OLD_KERNEL.store(true, Relaxed);
        }
        self.wait_ms(buffer, timeout_ns)
    }

    /// Waits for `ns` at most, and is not late in proportion.
    fn wait_in_parts(&self, buffer: &mut [epoll_event; CAPACITY], ns: u64) -> isize {
        if part_of(ns) == ns {
            return self.wait_ns(buffer, ns);
        }
        let end = clock::now_ns().saturating_add(ns);
        let mut left = ns;
        loop {
            let part = part_of(left);
            let found = self.wait_ns(buffer, part);
            let now = clock::now_ns();
            if found != 0 || part == left || now >= end {
                return found;
            }
            left = end - now;
        }
    }

    fn wait_ns(&self, buffer: &mut [epoll_event; CAPACITY], ns: u64) -> isize {
        let timeout = clock::timespec(ns);
        let (epoll, mask) = (self.epoll.as_raw_fd(), ptr::null::<u8>());
        // SAFETY: buffer and timeout are alive, the capacity is the buffer's; no signal mask.
        unsafe {
            syscall!(
                libc::SYS_epoll_pwait2,
                epoll,
                buffer.as_mut_ptr(),
                CAPACITY,
                &raw const timeout,
                mask
            )
        }
    }

    fn wait_ms(&self, buffer: &mut [epoll_event; CAPACITY], timeout_ns: Option<u64>) -> isize {
        let (epoll, mask) = (self.epoll.as_raw_fd(), ptr::null::<u8>());
        let timeout = timeout_ms(timeout_ns);
        // SAFETY: the buffer is alive, the capacity is its; no signal mask.
        unsafe {
            syscall!(
                libc::SYS_epoll_pwait,
                epoll,
                buffer.as_mut_ptr(),
                CAPACITY,
                timeout,
                mask
            )
        }
    }

    /// Ends one blocking [`poll`](Self::poll): one that waits now, else the next. Cheap when one is
    /// already on its way. Async-signal-safe.
    #[inline]
    pub fn notify(&self) {
        // I1, I2. The swap releases what we wrote even if the word was set.
        if self.notified.swap(1, AcqRel) == 0 {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        let one = 1u64;
        let fd = self.breaker.as_raw_fd();
        // SAFETY: eight bytes of a live integer. Cannot fail: the counter is far from full (I1).
        unsafe { syscall!(libc::SYS_write, fd, &raw const one, size_of::<u64>()) };
    }

    fn clear_notification(&self) {
        let mut count = 0u64;
        let fd = self.breaker.as_raw_fd();
        // SAFETY: eight bytes of a live integer. If another blocking poll was faster there is
        // nothing to read (EAGAIN), and that is fine.
        unsafe { syscall!(libc::SYS_read, fd, &raw mut count, size_of::<u64>()) };
        // A notify between the read and here is merged into this return; the swap makes what came
        // before it visible (I2).
        self.notified.swap(0, AcqRel);
    }
}

/// Milliseconds for the older call: rounded up, so that no wait ends early.
fn timeout_ms(timeout_ns: Option<u64>) -> i32 {
    match timeout_ns {
        None => -1,
        Some(ns) => i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX),
    }
}

/// # Safety
/// `ret` is the result of a system call that makes a new descriptor.
unsafe fn owned(ret: isize) -> io::Result<OwnedFd> {
    // SAFETY: new, so nobody else owns it.
    check(ret).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
