//! Whether this process is a copy of another one. `fork` copies one thread only: whoever counts on the others must notice.
//!
//! ```
//! use runnext_sys::fork;
//! fork::watch();
//! let before = fork::count();
//! assert_eq!(fork::count(), before); // no fork since
//! ```
//!
//! # Why this shape
//! libc calls a handler in each child that `fork` makes, so asking is one load, where comparing process ids would be a system call. A child by a bare
//! `clone` goes unnoticed; `vfork` and `posix_spawn`, whose children share our memory until they run another program, call no handlers.

use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

static FORKS: AtomicU32 = AtomicU32::new(0);
static MORE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Counts from now on. What the system refuses stays uncounted.
pub fn watch() {
    unsafe extern "C" fn in_child() {
        FORKS.fetch_add(1, Relaxed);
        let more = MORE.load(Acquire);
        if !more.is_null() {
            // SAFETY: stored by `in_child`, whose caller promises that it may be called here.
            unsafe { std::mem::transmute::<*mut (), fn()>(more)() };
        }
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handler is async-signal-safe, and is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Calls `f`, too, in each child from now on, and [`watch`]es. There is one such function.
///
/// # Safety
/// It is async-signal-safe.
pub unsafe fn in_child(f: fn()) {
    MORE.store(f as *mut (), Release);
    watch();
}

/// How many forks lie between this process and the one that began to [`watch`]. Async-signal-safe.
#[inline]
pub fn count() -> u32 {
    FORKS.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Before anybody watches nothing is counted, and a child counts for itself only.
    #[test]
    fn a_child_counts_one_more() {
        testing::child_passes(|| {
            watch();
            watch();
            // SAFETY: the child makes async-signal-safe calls only.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(count() as i32) };
            }
            let mut status = 0;
            // SAFETY: a place for the status of our child.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(libc::WEXITSTATUS(status), 1);
            assert_eq!(count(), 0);
        });
    }
}
