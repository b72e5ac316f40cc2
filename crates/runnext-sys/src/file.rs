//! Locks on open files, which the standard library has only since Rust 1.89.

use std::io;
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
