//! Futexes: put a thread to sleep while a word holds a value, and wake it by the word's address.
//!
//! # Why this shape
//! Parking an M must be possible inside a signal handler, where `std::thread::park` and every
//! `Mutex` are forbidden. A futex is one system call, needs no set-up, and `wake` needs only the
//! address: the sleeper may have seen the new value, gone on, and freed the word before the wake
//! arrives. All futexes are process-private.
//!
//! # Protocol
//! waiter: 1 load the word  2 if it says "go", go  3 `wait(word, value seen)`  4 from 1
//! waker:  1 store "go" (Release)  2 `wake_one(word)`
//!
//! # Invariants
//! I1  The kernel compares the word and sleeps in one step: a store before the comparison makes
//!     `wait` return at once, a wake after it is not lost.
//! I2  `wait` may return for no reason (a signal, a wake meant for a former user of the address).
//!     Callers loop on the word, never on the return.
//! I3  `wait_until` returns false only if the deadline has passed.
//!
//! # Context
//! All are async-signal-safe: raw system calls, `errno` untouched. Blocks: the thread.
//!
//! Tests: at the end of this file.

use crate::syscall;
use libc::timespec;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Sleeps while `*word == expected`, until woken. May return early for no reason (I2).
///
/// ```
/// use runnext_sys::futex;
/// use std::sync::atomic::{AtomicU32, Ordering::*};
///
/// let go = AtomicU32::new(0);
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         go.store(1, Release);
///         futex::wake_one(&go);
///     });
///     while go.load(Acquire) == 0 {
///         futex::wait(&go, 0);
///     }
/// });
/// ```
///
/// # Blocks
/// The thread, until `wake_one`, `wake_all` or a signal.
#[inline]
pub fn wait(word: &AtomicU32, expected: u32) {
    // A value already different comes back as EAGAIN, a signal as EINTR: both are I2.
    wait_raw(word, expected, ptr::null());
}

/// Sleeps while `*word == expected`, until woken or until the monotonic clock (see
/// [`clock::now_ns`](crate::clock::now_ns)) reads `deadline_ns`. False means the deadline has passed;
/// true promises nothing. `u64::MAX` is no deadline.
///
/// # Blocks
/// The thread, until `wake_one`, `wake_all`, a signal or the deadline.
#[inline]
pub fn wait_until(word: &AtomicU32, expected: u32, deadline_ns: u64) -> bool {
    if deadline_ns == u64::MAX {
        wait(word, expected);
        return true;
    }
    let deadline = crate::clock::timespec(deadline_ns);
    wait_raw(word, expected, &deadline) != -(libc::ETIMEDOUT as isize)
}

/// FUTEX_WAIT_BITSET takes an absolute time, so that a waiter that loops (I2) does not drift.
fn wait_raw(word: &AtomicU32, expected: u32, deadline: *const timespec) -> isize {
    const OP: i32 = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is alive while borrowed; the deadline is null or a live timespec.
    unsafe {
        syscall!(
            libc::SYS_futex,
            word.as_ptr(),
            OP,
            expected,
            deadline,
            0,
            libc::FUTEX_BITSET_MATCH_ANY as u32
        )
    }
}

/// Wakes one thread that sleeps on `word`, if any. Only the address is used: the word may be gone.
#[inline]
pub fn wake_one(word: *const AtomicU32) {
    wake(word, 1);
}

/// Wakes all threads that sleep on `word`. Only the address is used: the word may be gone.
#[inline]
pub fn wake_all(word: *const AtomicU32) {
    wake(word, i32::MAX);
}

fn wake(word: *const AtomicU32, count: i32) {
    const OP: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: for a private futex the kernel makes its key from the address and the address space
    // and does not read the word. A stale address at worst wakes a stranger, who loops (I2).
    unsafe { syscall!(libc::SYS_futex, word, OP, count) };
}
