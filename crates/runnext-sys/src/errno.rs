//! The calling thread's `errno`, for signal handlers that must hand it back unchanged.
//!
//! Both functions are async-signal-safe and never inlined: `errno` is a thread-local, and its
//! address must not be kept over a switch that may move a goroutine to another thread.
//!
//! ```
//! use runnext_sys::errno;
//! let saved = errno::get();
//! errno::set(11);
//! assert_eq!(errno::get(), 11);
//! errno::set(saved);
//! ```

/// The value now.
#[inline(never)]
pub fn get() -> i32 {
    // SAFETY: libc returns the address of this thread's errno, valid while the thread lives.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
#[inline(never)]
pub fn set(v: i32) {
    // SAFETY: as in `get`; no other thread writes it.
    unsafe { *libc::__errno_location() = v }
}

/// Runs `f` and puts `errno` back as it was.
#[inline]
pub fn preserved<T>(f: impl FnOnce() -> T) -> T {
    let saved = get();
    let value = f();
    set(saved);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        set(5);
        std::thread::spawn(|| set(6))
            .join()
            .expect("the thread ran");
        assert_eq!(get(), 5);
    }

    #[test]
    fn preserved_puts_it_back() {
        set(5);
        assert_eq!(preserved(|| (set(6), get()).1), 6);
        assert_eq!(get(), 5);
    }
}
