//! How many locks of `sync` a goroutine holds: advice for whoever would stop it.
//!
//! Taken and released locks are counted apart, so that neither needs an atomic addition: the first word is the goroutine's own, the second
//! counts those that others released for it.

use std::sync::atomic::Ordering::*;

use super::G;

impl G {
    /// The goroutine itself has taken a lock of `sync`. Two plain instructions: nobody else writes the word.
    #[inline(always)]
    pub(crate) fn lock_taken(&self) {
        let locks = &self.cold().locks;
        locks.store(locks.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The goroutine itself has released one.
    #[inline(always)]
    pub(crate) fn lock_released(&self) {
        let locks = &self.cold().locks;
        locks.store(locks.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Somebody else has released one that this goroutine took: the guard was sent away.
    pub(crate) fn lock_released_elsewhere(&self) {
        self.cold().locks_elsewhere.fetch_add(1, Relaxed);
    }

    /// How many locks of `sync` it holds. A moment's view, good for advice: a guard that was leaked, or left the runtime,
    /// counts to the end of the goroutine.
    pub(crate) fn locks_held(&self) -> u16 {
        let cold = self.cold();
        let elsewhere = cold.locks_elsewhere.load(Relaxed);
        cold.locks.load(Relaxed).wrapping_sub(elsewhere)
    }
}
