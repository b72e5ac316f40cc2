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
/// [`clock::now_ns`](crate::clock::now_ns)) reads `deadline_ns`. False means the deadline has
/// passed; true promises nothing. `u64::MAX` is no deadline.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{await_sleep, child_passes};
    use crate::{clock, errno, map, signal, thread};
    use std::sync::atomic::{AtomicI32, Ordering::*};
    use std::thread as os;

    #[test]
    fn another_value_does_not_sleep() {
        let word = AtomicU32::new(1);
        wait(&word, 0);
        assert!(wait_until(&word, 0, u64::MAX));
        assert!(wait_until(&word, 0, clock::now_ns() + 3_600_000_000_000));
    }

    /// Puts `count` threads to sleep on a word, gives it to `f`, and joins them.
    fn with_sleepers(count: usize, deadline: u64, f: impl FnOnce(&AtomicU32)) {
        let word = AtomicU32::new(0);
        let tids: Vec<AtomicI32> = (0..count).map(|_| AtomicI32::new(0)).collect();
        os::scope(|s| {
            for tid in &tids {
                let word = &word;
                s.spawn(move || {
                    tid.store(thread::tid(), Release);
                    while word.load(Acquire) == 0 {
                        assert!(wait_until(word, 0, deadline));
                    }
                });
            }
            for tid in &tids {
                while tid.load(Acquire) == 0 {
                    os::yield_now();
                }
                await_sleep(tid.load(Acquire));
            }
            f(&word);
        });
    }

    #[test]
    fn wake_one_wakes_the_sleeper() {
        with_sleepers(1, u64::MAX, |word| {
            word.store(1, Release);
            wake_one(word);
        });
    }

    #[test]
    fn wake_all_wakes_all() {
        with_sleepers(4, u64::MAX - 1, |word| {
            word.store(1, Release);
            wake_all(word);
        });
    }

    #[test]
    fn wake_one_at_a_time_wakes_all_in_the_end() {
        with_sleepers(3, u64::MAX, |word| {
            word.store(1, Release);
            for _ in 0..3 {
                wake_one(word);
            }
        });
    }

    #[test]
    fn deadline_is_never_early() {
        let word = AtomicU32::new(0);
        assert!(!wait_until(&word, 0, 0), "a deadline in the past");
        for ns in [1, 50_000, 1_500_000] {
            let deadline = clock::now_ns() + ns;
            while wait_until(&word, 0, deadline) {}
            assert!(clock::now_ns() >= deadline);
        }
    }

    #[test]
    fn wake_needs_only_the_address() {
        let page = map::page_size();
        let region = map::Region::reserve(page, page, false).expect("a page");
        let word: *const AtomicU32 = region.base().cast();
        drop(region);
        wake_one(word);
        wake_all(word);
        wake_all(ptr::null());
    }

    #[test]
    fn errno_is_left_alone() {
        let word = AtomicU32::new(0);
        errno::set(4711);
        wait(&word, 1);
        wait_until(&word, 0, 1);
        wake_one(&word);
        assert_eq!(errno::get(), 4711);
    }

    #[test]
    fn a_signal_ends_a_wait() {
        unsafe extern "C" fn nothing(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        child_passes(|| {
            // SAFETY: a handler that does nothing.
            unsafe { signal::install_with(libc::SIGUSR1, nothing, false) }.expect("installed");
            let (word, tid) = (AtomicU32::new(0), AtomicI32::new(0));
            os::scope(|s| {
                let sleeper = s.spawn(|| {
                    tid.store(thread::tid(), Release);
                    assert!(wait_until(&word, 0, u64::MAX), "a signal is not a timeout");
                });
                while tid.load(Acquire) == 0 {
                    os::yield_now();
                }
                await_sleep(tid.load(Acquire));
                thread::tgkill(tid.load(Acquire), libc::SIGUSR1).expect("sent");
                sleeper.join().expect("no panic");
            });
        });
    }
}
