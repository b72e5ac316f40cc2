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
//! # Where it lies
//! Who gives it back looks at it once more (`runnext_core::lock_word`, I2): in something that its user borrows, counts, or that never goes.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicU32;

use runnext_core::lock_word::{LockWord, Sleep};
use runnext_sys::futex;

use crate::fences;

pub(crate) struct Lock<T> {
    word: LockWord,
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
            word: LockWord::new(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        self.word.take::<Futex>();
        LockGuard { lock: self }
    }

    /// The lock if nobody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.word.try_take().then(|| LockGuard { lock: self })
    }
}

struct Futex;

impl Sleep for Futex {
    fn fence() {
        fences::heavy();
    }

    fn sleep(word: &AtomicU32, value: u32) {
        futex::wait(word, value);
    }

    #[cold]
    fn wake(word: &AtomicU32) {
        futex::wake_one(word);
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
        self.lock.word.give::<Futex>();
    }
}
