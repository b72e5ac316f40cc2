//! What a goroutine knows of its group, and of the CPU time it used.
//!
//! The words are the header's; what they mean is known to `sched::groups`, which alone writes them. `group` and `lent` are
//! counted references, given back in user context.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use super::G;

impl G {
    /// The lane it queues in: that of its group, or of one that lends it its own; 0 is the ungrouped ones'.
    #[inline]
    pub(crate) fn lane(&self) -> u32 {
        self.cold().lane.load(Relaxed)
    }

    pub(crate) fn set_lane(&self, lane: u32) {
        self.cold().lane.store(lane, Relaxed);
    }

    /// When it was made runnable, where that is measured; 0: it is not.
    #[inline]
    pub(crate) fn stamp(&self) -> &AtomicU32 {
        &self.cold().stamp
    }

    /// Its group. Written by itself.
    #[inline]
    pub(crate) fn group_ptr(&self) -> &AtomicPtr<()> {
        &self.cold().group
    }

    #[inline]
    pub(super) fn is_grouped(&self) -> bool {
        !self.cold().group.load(Relaxed).is_null()
    }

    /// Gives up its group, in user context.
    ///
    /// # Safety
    /// By the party that `life::I2` names.
    pub(super) unsafe fn drop_group(&self) {
        if self.is_grouped() {
            self.set_lane(0); // it may wait once more before it is gone, if it drops this itself
            let group = self.cold().group.swap(ptr::null_mut(), AcqRel);
            // SAFETY: its count, and the swap gave it to us.
            unsafe { (self.vtable().leave_group)(group) };
        }
    }

    /// The group in whose name it runs until it releases a lock; or a mark that it owes its turn then (`sched::groups::grace`).
    pub(crate) fn lent_ptr(&self) -> &AtomicPtr<()> {
        &self.cold().lent
    }

    /// Whether there is something to settle when it has released its last lock: it runs in the name of who waits for one, or owes its turn.
    #[inline(always)]
    pub(crate) fn has_debts(&self) -> bool {
        !self.cold().lent.load(Relaxed).is_null()
    }

    /// CPU time it was charged with so far, in ns. Written by who has it, and runs.
    #[inline]
    pub(crate) fn charged(&self) -> u64 {
        self.cold().cpu.load(Relaxed)
    }

    /// Charges CPU time. By who has it.
    #[inline]
    pub(crate) fn charge(&self, ns: u64) {
        let cpu: &AtomicU64 = &self.cold().cpu;
        cpu.store(cpu.load(Relaxed) + ns, Relaxed);
    }
}
