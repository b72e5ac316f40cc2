//! `Condvar`: waiting for something to become true under a [`Mutex`](super::Mutex).
//!
//! # Protocol
//! wait:   1 in one call: queue up, release the mutex, park  2 take the mutex again
//! notify: 1 take the first, or all, out of the queue  2 wake them
//!
//! Queueing up before the release is the ticket: a notification after the release finds the waiter, whether it is parked
//! yet or not, and one that comes later cannot steal it, for it stands further back. All of step 1 is one runtime call, because a
//! goroutine that switched between publishing itself and parking would lose its wake-up.
//!
//! There are no spurious wake-ups, but what was notified may be false again when the mutex is taken: others were faster. So callers
//! loop, or use [`Condvar::wait_while`].

use std::fmt;
use std::time::Duration;

use runnext_core::timers::deadline;
use runnext_sys::clock;

use super::mutex::MutexGuard;
use super::queue::{Node, Queue};
use super::raw;
use crate::g::WaitReason;
use crate::lock::Lock;
use crate::sched::call::Call;

/// A place to wait until another goroutine says that something under a [`Mutex`](super::Mutex) has changed.
///
/// Waiters are notified in the order they came. A condition variable may be used with several mutexes.
///
/// # Example
/// ```
/// use runnext::sync::{Condvar, Mutex};
///
/// #[runnext::main]
/// fn main() {
///     let (ready, changed) = (Mutex::new(false), Condvar::new());
///     runnext::scope(|s| {
///         s.go(|| {
///             *ready.lock() = true;
///             changed.notify_one();
///         });
///         let mut guard = ready.lock();
///         while !*guard {
///             changed.wait(&mut guard);
///         }
///     });
/// }
/// ```
pub struct Condvar {
    queue: Lock<Queue>,
}

impl Condvar {
    /// A condition variable that nobody waits for.
    ///
    /// ```
    /// static CHANGED: runnext::sync::Condvar = runnext::sync::Condvar::new();
    /// CHANGED.notify_all();
    /// ```
    pub const fn new() -> Condvar {
        Condvar {
            queue: Lock::new(Queue::new()),
        }
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again.
    ///
    /// The release and the beginning of the wait are one step: no notification falls between. Check the condition again
    /// afterwards, in a loop: another goroutine may have been faster.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until it is notified and the mutex is free.
    ///
    /// # Example
    /// ```
    /// use runnext::sync::{Condvar, Mutex};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (stock, changed) = (Mutex::new(0), Condvar::new());
    ///     runnext::scope(|s| {
    ///         let mut guard = stock.lock();
    ///         s.go(|| {
    ///             *stock.lock() += 5; // gets the lock while the other waits
    ///             changed.notify_one();
    ///         });
    ///         while *guard < 5 {
    ///             changed.wait(&mut guard);
    ///         }
    ///         *guard -= 5;
    ///     });
    ///     assert_eq!(stock.into_inner(), 0);
    /// }
    /// ```
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        let mutex = guard.raw();
        let mut call = Call::enter();
        Node::new(&call).wait_after(&mut call, &self.queue, WaitReason::Cond, |call| {
            // SAFETY: the guard holds the mutex, and is borrowed until it holds it again.
            unsafe { mutex.unlock_within(call) };
        });
        drop(call);
        raw::settle_own();
        mutex.lock(WaitReason::Mutex);
    }

    /// As [`wait`](Self::wait), but for no longer than `limit`; the result says whether the wait timed out. In either case the
    /// mutex is held again. `Duration::MAX` is no limit.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until it is notified or the time is over, and the mutex is free.
    ///
    /// # Example
    /// ```
    /// use runnext::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (m, never) = (Mutex::new(()), Condvar::new());
    ///     let mut guard = m.lock();
    ///     assert!(never.wait_timeout(&mut guard, Duration::from_millis(1)).timed_out());
    /// }
    /// ```
    pub fn wait_timeout<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: Duration,
    ) -> WaitTimeoutResult {
        self.wait_until(guard, deadline(clock::now_ns(), limit))
    }

    /// Waits as long as `condition` says so, under the mutex, but for no longer than `limit`. The result says whether the
    /// condition still held at the end.
    ///
    /// # Blocks
    /// As [`wait_timeout`](Self::wait_timeout).
    ///
    /// # Example
    /// ```
    /// use runnext::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// # #[runnext::main] fn main() {
    /// let (n, changed) = (Mutex::new(3), Condvar::new());
    /// let mut guard = n.lock();
    /// let limit = Duration::from_secs(5);
    /// assert!(!changed.wait_timeout_while(&mut guard, limit, |n| *n == 0).timed_out());
    /// # }
    /// ```
    pub fn wait_timeout_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> WaitTimeoutResult {
        let until = deadline(clock::now_ns(), limit);
        while condition(guard) {
            if self.wait_until(guard, until).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline_ns: u64,
    ) -> WaitTimeoutResult {
        let mutex = guard.raw();
        let mut call = Call::enter();
        let node = Node::timed(&call);
        let unlock = |call: &Call| {
            // SAFETY: as in `wait`.
            unsafe { mutex.unlock_within(call) };
        };
        let notified = node.wait_after_until(
            &mut call,
            &self.queue,
            WaitReason::Cond,
            deadline_ns,
            unlock,
        );
        drop(call);
        raw::settle_own();
        mutex.lock(WaitReason::Mutex);
        WaitTimeoutResult(!notified)
    }

    /// Waits as long as `condition` says so, under the mutex.
    ///
    /// # Blocks
    /// As [`wait`](Self::wait).
    ///
    /// # Example
    /// ```
    /// use runnext::sync::{Condvar, Mutex};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (queue, more) = (Mutex::new(Vec::new()), Condvar::new());
    ///     runnext::scope(|s| {
    ///         s.go(|| {
    ///             queue.lock().push("job");
    ///             more.notify_one();
    ///         });
    ///         let mut guard = queue.lock();
    ///         more.wait_while(&mut guard, |queue| queue.is_empty());
    ///         assert_eq!(guard.pop(), Some("job"));
    ///     });
    /// }
    /// ```
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Wakes the goroutine that has waited longest, if any waits. The caller may, but need not, hold the mutex.
    ///
    /// ```
    /// runnext::sync::Condvar::new().notify_one(); // nobody waits: nothing happens, now or later
    /// ```
    pub fn notify_one(&self) {
        let call = Call::brief();
        let waiter = self.queue.lock().pop();
        if let Some(waiter) = waiter {
            call.wake(waiter);
        }
    }

    /// Wakes all that wait.
    ///
    /// ```
    /// use runnext::sync::{Condvar, Mutex};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (open, changed) = (Mutex::new(false), Condvar::new());
    ///     runnext::scope(|s| {
    ///         for _ in 0..10 {
    ///             s.go(|| changed.wait_while(&mut open.lock(), |open| !*open));
    ///         }
    ///         *open.lock() = true;
    ///         changed.notify_all();
    ///     });
    /// }
    /// ```
    pub fn notify_all(&self) {
        let call = Call::brief();
        let batch = self.queue.lock().take_all();
        batch.wake(&call);
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

/// How a wait with a limit ended.
///
/// # Example
/// ```
/// use runnext::sync::{Condvar, Mutex, WaitTimeoutResult};
/// use std::time::Duration;
///
/// let (open, changed) = (Mutex::new(false), Condvar::new());
/// let mut guard = open.lock();
/// let limit = Duration::from_millis(1);
/// let ended: WaitTimeoutResult = changed.wait_timeout_while(&mut guard, limit, |open| !*open);
/// assert!(ended.timed_out() && !*guard);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it was the limit that ended the wait.
    ///
    /// # Example
    /// ```
    /// use runnext::sync::{Condvar, Mutex};
    ///
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// std::thread::scope(|s| {
    ///     let mut guard = ready.lock();
    ///     s.spawn(|| {
    ///         *ready.lock() = true;
    ///         changed.notify_one();
    ///     });
    ///     let ended = changed.wait_timeout(&mut guard, std::time::Duration::from_secs(600));
    ///     assert!(!ended.timed_out() && *guard);
    /// });
    /// ```
    pub fn timed_out(&self) -> bool {
        self.0
    }
}
