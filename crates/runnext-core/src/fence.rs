//! A fence whose two sides do not cost the same.
//!
//! # Why
//! Two threads that each store a word and then look at the other's must both fence in between, or neither may see the other. Where one of them
//! does so at every call and the other a few times a second, the second can pay for both: Linux's `membarrier` makes every running thread of the
//! process pass a full fence, wherever it is. The first is then left with telling the compiler.
//!
//! # Protocol
//! often:  1 store own word  2 [`light`]  3 look at the other's word
//! seldom: 1 store own word  2 the heavy fence of `runnext-sys`, or a full one if [`rely_on_heavy`] was never called  3 look at the other's word
//!
//! The heavy fence falls, for the first thread, somewhere: before its 3, and then it sees the other's word; or behind its 1, and then the other sees its.
//!
//! # Context
//! Never blocks. Under loom `light` is a full fence, which is what the two promise together.

use crate::shim::{Ordering::SeqCst, fence};

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the other side has a heavy fence.
#[cfg(not(loom))]
static HEAVY: AtomicBool = AtomicBool::new(false);

/// From now on every counterpart of [`light`] uses a heavy fence. Before the first `light`, and for good.
#[cfg(not(loom))]
pub fn rely_on_heavy() {
    HEAVY.store(true, SeqCst);
}

/// Whether [`rely_on_heavy`] was called.
#[cfg(not(loom))]
pub fn relies_on_heavy() -> bool {
    HEAVY.load(SeqCst)
}

/// Between a store and a look, on the side that is often there.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    if HEAVY.load(Relaxed) {
        return compiler();
    }
    fence(SeqCst);
}

/// Between two steps that a signal handler on the same thread may come between.
#[inline(always)]
pub fn compiler() {
    core::sync::atomic::compiler_fence(SeqCst);
}
