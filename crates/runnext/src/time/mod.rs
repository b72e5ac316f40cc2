//! Time: moments, sleeping, timers.
//!
//! Everything here blocks the goroutine, never its thread, and also works on plain threads, which it
//! blocks. Nothing ends early; how late depends on the system, usually well under a millisecond. A duration too long
//! to be counted, such as [`Duration::MAX`], means *never*.
//!
//! # Example
//! ```
//! use runnext::time::{self, Instant, Timer};
//! use std::time::Duration;
//!
//! #[runnext::main]
//! fn main() {
//!     let start = Instant::now();
//!     let nap = runnext::go(|| time::sleep(Duration::from_millis(1)));
//!     nap.join().unwrap();
//!     time::sleep_until(start + Duration::from_millis(2)); // what is left of two milliseconds
//!     assert!(start.elapsed() >= Duration::from_millis(2));
//!
//!     let never = Timer::new(Duration::MAX);
//!     assert!(never.c().try_recv().is_err() && never.stop());
//! }
//! ```

mod convert;
mod plain;
mod timer;

use std::time::Duration;

use crate::g::WaitReason;
pub use crate::instant::Instant;
use crate::sched::call::Call;
use crate::sched::timers;

pub use timer::{Ticker, Timer, after_func};

/// Pauses the calling goroutine for `d` at least. Zero returns at once; [`Duration::MAX`] never does.
///
/// # Blocks
/// The goroutine. On a plain thread: the thread.
///
/// # Example
/// ```
/// use std::time::{Duration, Instant};
///
/// #[runnext::main]
/// fn main() {
///     let start = Instant::now();
///     let sleepers: Vec<_> = (0..1000)
///         .map(|_| runnext::go(|| runnext::time::sleep(Duration::from_millis(10))))
///         .collect();
///     for sleeper in sleepers {
///         sleeper.join().unwrap();
///     }
///     assert!(start.elapsed() >= Duration::from_millis(10)); // and far less than 1000 times that
/// }
/// ```
pub fn sleep(d: Duration) {
    if !d.is_zero() {
        wait_until(Instant::after(d));
    }
}

/// Pauses the calling goroutine until `t`; returns at once if that has passed.
///
/// # Blocks
/// The goroutine. On a plain thread: the thread.
///
/// # Example
/// ```
/// use runnext::time::{self, Instant};
/// use std::time::Duration;
///
/// #[runnext::main]
/// fn main() {
///     let mut next = Instant::now();
///     for _ in 0..3 {
///         next += Duration::from_millis(1);
///         time::sleep_until(next); // does not drift, however long the work between takes
///     }
///     assert!(Instant::now() >= next);
/// }
/// ```
pub fn sleep_until(t: Instant) {
    if t > Instant::now() {
        wait_until(t);
    }
}

fn wait_until(t: Instant) {
    let mut call = Call::enter();
    let ticket = call.waiter().draw();
    // Never is a timer too: who sleeps for ever does so on purpose, and is no deadlock.
    let when = t.as_ns().min(timers::NEVER - 1);
    let woken = timers::park_until(&mut call, ticket, when, WaitReason::Sleep);
    debug_assert!(!woken, "nobody else knows the ticket");
}
