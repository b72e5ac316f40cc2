//! Cells: what the heap refers to where there is no ticket to refer to.
//!
//! Entries leave the heap in RT, where nothing may be freed, and may be stale by then. So a cell is recycled but never freed, and an entry
//! has the number of an arming with it; a stale one finds another number and does nothing.
//!
//! | claim word | meaning   | left by                                              |
//! |------------|-----------|------------------------------------------------------|
//! | even: turn | armed     | whoever claims that turn, to fire or stop (CAS) → odd |
//! | odd        | not armed | its one owner, by `arm` → the next even number        |

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::sched::shield::{self, Shielded};

/// Something that fires at most once per arming, and what it takes to fire.
#[repr(align(64))] // room for the marks in a `Sleeper`, and nobody else's line
pub(super) struct Cell<T> {
    claim: AtomicU32,
    pub(super) content: T,
}

impl<T> Cell<T> {
    #[inline]
    pub(super) fn is_armed(&self, turn: u32) -> bool {
        self.claim.load(Acquire) == turn
    }

    /// The turn it is armed for.
    pub(super) fn armed(&self) -> Option<u32> {
        let word = self.claim.load(Relaxed);
        (word & 1 == 0).then_some(word)
    }

    /// Arms it, which it is not, for a turn nobody has heard of.
    pub(super) fn arm(&self) -> u32 {
        let turn = self.claim.load(Relaxed).wrapping_add(1);
        debug_assert_eq!(turn & 1, 0, "armed twice");
        self.claim.store(turn, Release);
        turn
    }

    /// It is the caller's to fire or to stop, if nobody was faster.
    pub(super) fn claim(&self, turn: u32) -> bool {
        self.claim
            .compare_exchange(turn, turn | 1, AcqRel, Relaxed)
            .is_ok()
    }
}

/// Cells without an owner. All of the process: who is stopped while it has the lock would stop everybody who sleeps in a future, so none is.
pub(super) struct Pool<T: 'static>(Mutex<Vec<&'static Cell<T>>>);

impl<T> Pool<T> {
    pub(super) const fn new() -> Pool<T> {
        Pool(Mutex::new(Vec::new()))
    }

    /// A cell that is not armed, with whatever its last owner left in it.
    pub(super) fn take(&self, make: impl FnOnce() -> T) -> &'static Cell<T> {
        let recycled = self.cells().pop();
        recycled.unwrap_or_else(|| {
            Box::leak(Box::new(Cell {
                claim: AtomicU32::new(1),
                content: make(),
            }))
        })
    }

    /// Takes back a cell that is not armed.
    pub(super) fn put(&self, cell: &'static Cell<T>) {
        debug_assert!(cell.armed().is_none(), "it may still fire");
        self.cells().push(cell);
    }

    fn cells(&self) -> Shielded<'_, Vec<&'static Cell<T>>> {
        shield::lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::m;
    use crate::runtime::tests::runtime;

    /// A goroutine of a throttled group that was stopped with the lock kept all from going to sleep in a future.
    #[test]
    fn who_has_the_lock_is_not_stopped() {
        runtime(1).run(|| {
            let (pool, m) = (Pool::<()>::new(), m::current().unwrap());
            let held = pool.cells();
            assert!(m.is_shielded());
            drop(held);
            assert!(!m.is_shielded());
        });
    }
}
