//! A full fence in every thread of the process at once: Linux's `membarrier`.
//!
//! Who seldom meets others that are often somewhere uses it in place of a fence of theirs (`runnext_core::fence`). The kernel interrupts the CPUs
//! that run threads of this process, a few microseconds; threads that do not run have passed a fence when they stopped.
//!
//! # Context
//! Async-signal-safe.

use crate::{check, syscall};
use std::io;

/// Says that this process will use [`heavy`]. An error: this kernel, or a filter of system calls, has none.
///
/// ```
/// if runnext_sys::fence::register().is_ok() {
///     runnext_sys::fence::heavy().unwrap();
/// }
/// ```
pub fn register() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Returns when every other thread of the process has passed a full fence since the call; one for the caller too.
///
/// # Errors
/// If the process has not [registered](register), or the system call is refused by now.
pub fn heavy() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier(command: i32) -> io::Result<()> {
    // SAFETY: takes no memory.
    check(unsafe { syscall!(libc::SYS_membarrier, command, 0, 0) }).map(drop)
}
