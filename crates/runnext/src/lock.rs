//! The runtime's own lock: a word, a short spin, then a futex.
//!
//! # Why this shape
//! It is taken inside signal handlers and on scheduler stacks, so it must not allocate, must not
//! touch thread-locals and must have no poison. `std::sync::Mutex` promises none of that.
//!
//! # Context
//! On a worker it is taken only in the `RT` state (see `sched::call`), where the holder is neither
//! preempted nor robbed of its P; plain threads may take it at any time. No user code, no allocator
//! call and no other wait happens under it: a goroutine preempted inside `malloc` may hold the
//! allocator's lock, and it needs the scheduler to move on before it lets go.
//!
//! # Ranks
//! A thread that holds a lock may only take one of a higher rank; HACKING.md has the order.
//!
//! | value | meaning                          |
//! |-------|----------------------------------|
//! | 0     | free                             |
//! | 1     | held, nobody sleeps              |
//! | 2     | held, somebody may be asleep     |

use std::cell::UnsafeCell;
use std::hint;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering::*};

use runnext_sys::futex;

/// Pauses between looks at a lock that is taken, before sleeping: 16, 32, 64. Not at once, and not without a break: critical
/// sections are tens of instructions, and who holds the lock has its line and wants it again soon. One that waits and looks
/// takes the line away for every look; one that stays away lets the other do a few dozen operations at the speed of one core.
/// `bench fanin` shows it: 11 million messages a second with a look after every pause, 21 with these.
const PAUSES: [u32; 3] = [16, 32, 64];

pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the word serialises all access to the value, which therefore moves between threads one
// at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for Lock<T> {}

// No user code runs under it, so no panic leaves what it protects half-way.
impl<T> UnwindSafe for Lock<T> {}
impl<T> RefUnwindSafe for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        if self.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
        LockGuard { lock: self }
    }

    /// The lock if nobody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        let free = self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        free.then(|| LockGuard { lock: self })
    }

    #[cold]
    fn lock_slow(&self) {
        for pauses in PAUSES {
            for _ in 0..pauses {
                hint::spin_loop();
            }
            if self.word.load(Relaxed) == 0
                && self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
            {
                return;
            }
        }
        while self.word.swap(2, Acquire) != 0 {
            futex::wait(&self.word, 2);
        }
    }
}

pub(crate) struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while the word says "held" on its behalf.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes this the only reference through the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &raw const self.lock.word;
        if self.lock.word.swap(0, Release) == 2 {
            futex::wake_one(word);
        }
    }
}
