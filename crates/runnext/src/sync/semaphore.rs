//! `Semaphore`: a number of permits, taken in the order of asking.
//!
//! | bits of `state` | meaning                  | changed by                                                          |
//! |-----------------|--------------------------|---------------------------------------------------------------------|
//! | WAITING         | the queue is not empty   | under the lock                                                      |
//! | the rest        | permits nobody has       | anybody by CAS, while WAITING is clear; under the lock otherwise    |
//!
//! # Invariants
//! I1  While WAITING is set there is no free permit: one that is given back goes straight to the first in the queue. So nobody who comes
//!     later can overtake.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use super::queue::{Batch, Node, Place, Queue, with_will};
use crate::g::WaitReason;
use crate::instant::Instant;
use crate::lock::Lock;
use crate::sched::call::Call;
use crate::sched::wait::Ticket;

const WAITING: usize = 1;
const ONE: usize = 2;
const REASON: WaitReason = WaitReason::Semaphore;
const MAX_PERMITS: usize = usize::MAX / ONE;

/// A counting semaphore: acquiring a permit waits until one is free; waiters are served in order of arrival.
///
/// # Example
/// ```
/// use runnext::sync::Semaphore;
/// use std::sync::atomic::{AtomicUsize, Ordering::*};
///
/// #[runnext::main]
/// fn main() {
///     let three = Semaphore::new(3);
///     let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
///     runnext::scope(|s| {
///         for _ in 0..20 {
///             s.go(|| {
///                 let _permit = three.acquire();
///                 most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
///                 runnext::yield_now();
///                 inside.fetch_sub(1, Relaxed);
///             });
///         }
///     });
///     assert!(most.load(Relaxed) <= 3);
/// }
/// ```
pub struct Semaphore {
    state: AtomicUsize,
    queue: Lock<Queue>,
}

impl Semaphore {
    /// A semaphore with `permits` free permits.
    ///
    /// ```
    /// static CONNECTIONS: runnext::sync::Semaphore = runnext::sync::Semaphore::new(100);
    /// assert!(CONNECTIONS.try_acquire().is_some());
    /// ```
    ///
    /// # Panics
    /// If `permits` is above half of `usize::MAX`.
    pub const fn new(permits: usize) -> Semaphore {
        assert!(
            permits <= MAX_PERMITS,
            "more permits than a semaphore counts"
        );
        Semaphore {
            state: AtomicUsize::new(permits * ONE),
            queue: Lock::new(Queue::new()),
        }
    }

    /// Takes a permit, which is released when it is dropped.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until a permit is free and all earlier waiters have theirs.
    ///
    /// # Example
    /// ```
    /// use runnext::sync::Semaphore;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let one = Semaphore::new(1);
    ///     let mine = one.acquire();
    ///     runnext::scope(|s| {
    ///         let other = s.go(|| drop(one.acquire())); // waits for mine
    ///         drop(mine);
    ///         other.join().unwrap();
    ///     });
    ///     assert_eq!(one.available_permits(), 1);
    /// }
    /// ```
    #[inline]
    pub fn acquire(&self) -> Permit<'_> {
        if !self.take_free() {
            self.take_slow();
        }
        Permit { semaphore: self }
    }

    /// As [`acquire`](Self::acquire), for so long at most. None: the time is over.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until a permit is free and all earlier waiters have theirs.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[runnext::main] fn main() {
    /// let one = runnext::sync::Semaphore::new(1);
    /// let mine = one.acquire_timeout(Duration::from_secs(1));
    /// assert!(mine.is_some() && one.acquire_timeout(Duration::from_millis(1)).is_none());
    /// drop(mine);
    /// assert!(one.acquire_timeout(Duration::ZERO).is_some());
    /// # }
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<Permit<'_>> {
        let taken = self.take_free() || self.take_until(Instant::after(timeout).as_ns());
        taken.then(|| Permit { semaphore: self })
    }

    /// Takes a permit if one is free. While others wait for permits none is free: those that come back go to the waiters.
    ///
    /// ```
    /// let one = runnext::sync::Semaphore::new(1);
    /// let permit = one.try_acquire();
    /// assert!(permit.is_some() && one.try_acquire().is_none());
    /// ```
    #[inline]
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        // Lazily: a permit that is dropped is given back.
        self.take_free().then(|| Permit { semaphore: self })
    }

    /// Adds `n` permits; waiters get them first.
    ///
    /// ```
    /// let s = runnext::sync::Semaphore::new(0);
    /// s.add_permits(2);
    /// assert_eq!(s.available_permits(), 2);
    /// ```
    ///
    /// # Panics
    /// If the number would be above half of `usize::MAX`.
    #[track_caller]
    pub fn add_permits(&self, n: usize) {
        let mut old = self.state.load(Relaxed);
        while old & WAITING == 0 {
            assert!(
                n <= MAX_PERMITS - old / ONE,
                "more permits than a semaphore counts"
            );
            match self
                .state
                .compare_exchange_weak(old, old + n * ONE, Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
        assert!(n <= MAX_PERMITS, "more permits than a semaphore counts");
        self.give_to_waiters(n);
    }

    /// How many permits are free. A moment's view.
    ///
    /// ```
    /// assert_eq!(runnext::sync::Semaphore::new(3).available_permits(), 3);
    /// ```
    pub fn available_permits(&self) -> usize {
        self.state.load(Relaxed) / ONE
    }

    #[inline]
    fn take_free(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        while old >= ONE {
            match self
                .state
                .compare_exchange_weak(old, old - ONE, Acquire, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    #[cold]
    fn take_slow(&self) {
        let call = Call::begin();
        let node = Node::new(&call);
        with_will(call, REASON, &|| self.add_permits(1), |call| {
            let queue = self.queue.lock();
            if !self.take_or_announce() {
                node.wait(call, queue, |queue| queue, Place::Back, REASON);
            }
        });
    }

    #[cold]
    fn take_until(&self, deadline_ns: u64) -> bool {
        let call = Call::begin();
        let node = Node::timed(&call);
        let ticket = node.ticket();
        let lost = || {
            if !ticket.is_some_and(Ticket::is_expired) {
                self.add_permits(1);
            }
        };
        with_will(call, REASON, &lost, |call| {
            let queue = self.queue.lock();
            if self.take_or_announce() {
                return true;
            }
            let taken = node.wait_until(call, &self.queue, queue, REASON, deadline_ns);
            if !taken {
                let queue = self.queue.lock();
                if queue.is_empty() {
                    self.state.fetch_and(!WAITING, Relaxed); // no permit is free if it was set (I1)
                }
            }
            taken
        })
    }

    /// Takes a free permit, or says that somebody waits. Under the lock.
    fn take_or_announce(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        loop {
            let (new, taken) = if old >= ONE {
                (old - ONE, true)
            } else {
                (old | WAITING, false)
            };
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => return taken,
                Err(now) => old = now,
            }
        }
    }

    #[cold]
    fn give_to_waiters(&self, mut n: usize) {
        let call = Call::brief();
        while n > 0 {
            // Those that got none since their runtimes have stopped leave it to others.
            n = self.take_waiters(n).wake_to_give(&call);
        }
    }

    /// The first `n` of those who wait, each of whom has a permit then. What is left of the permits is free.
    fn take_waiters(&self, n: usize) -> Batch {
        let mut queue = self.queue.lock();
        let (batch, taken) = queue.take(n);
        if queue.is_empty() {
            // WAITING, if still set, means zero permits (I1), so nobody changes the word without the lock; if the queue was
            // emptied before we came, the permits are added like any others.
            let more = (n - taken.live) * ONE;
            let _ = self.state.fetch_update(Release, Relaxed, |old| {
                Some((old & !WAITING).saturating_add(more) & !WAITING)
            });
        }
        batch
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available_permits", &self.available_permits())
            .finish_non_exhaustive()
    }
}

/// A permit of a [`Semaphore`]; dropping it gives it back.
///
/// # Example
/// ```
/// use runnext::sync::{Permit, Semaphore};
///
/// struct Connection<'a> {
///     _slot: Permit<'a>, // goes with it
/// }
///
/// let slots = Semaphore::new(2);
/// let connections = [(); 2].map(|()| Connection { _slot: slots.acquire() });
/// assert!(slots.try_acquire().is_none());
/// drop(connections);
/// assert_eq!(slots.available_permits(), 2);
/// ```
#[derive(Debug)]
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
}

impl Permit<'_> {
    /// Never gives the permit back: the semaphore has one less from now on.
    ///
    /// ```
    /// let s = runnext::sync::Semaphore::new(2);
    /// s.acquire().forget();
    /// assert_eq!(s.available_permits(), 1);
    /// ```
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.add_permits(1);
    }
}
