//! Locks on open files, which the standard library has only since Rust 1.89; and whether a file may refuse what is written to it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{check, syscall};

/// What is done to the lock of an open file. See flock(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Nobody else has it.
    Exclusive,
    /// Others may share it.
    Shared,
    /// It is given up.
    Release,
}

/// Does that; `waits` if it should wait for who has the lock.
///
/// # Errors
/// Those of `flock`: `WouldBlock` if another has it and this does not wait, `Interrupted` if a handler ran that does not let calls go on.
pub fn lock(fd: BorrowedFd<'_>, what: Lock, waits: bool) -> io::Result<()> {
    let operation = match what {
        Lock::Exclusive => libc::LOCK_EX,
        Lock::Shared => libc::LOCK_SH,
        Lock::Release => libc::LOCK_UN,
    };
    let patience = if waits { 0 } else { libc::LOCK_NB };
    // SAFETY: integers only.
    check(unsafe { syscall!(libc::SYS_flock, fd.as_raw_fd(), operation | patience) }).map(drop)
}

/// Whether a write may fail, or has to wait: the disk of a regular file may be full, nobody may read a pipe any more. False for a terminal, and for a pipe with
/// a reader and room.
///
/// ```
/// use std::os::fd::AsFd;
/// use runnext_sys::file::may_refuse;
/// let (reader, writer) = std::io::pipe()?;
/// assert!(!may_refuse(writer.as_fd()));
/// drop(reader);
/// assert!(may_refuse(writer.as_fd()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn may_refuse(fd: BorrowedFd<'_>) -> bool {
    let mut file = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills what is pointed to.
    if unsafe { libc::fstat(fd.as_raw_fd(), file.as_mut_ptr()) } != 0 {
        return true;
    }
    // SAFETY: it was filled.
    let mode = unsafe { file.assume_init() }.st_mode;
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one element, alive.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    mode & libc::S_IFMT == libc::S_IFREG || ready != 1 || poll.revents != libc::POLLOUT
}
