//! The two heaps of a P, and what is taken out of them at one go.

use std::mem::MaybeUninit;

use runnext_core::timers::TimerHeap;

use super::store::Mappings;
use super::{BATCH, Sleeper};

type Heap = TimerHeap<Sleeper, Mappings>;

/// The two heaps of a P.
pub(super) struct Heaps {
    pub(super) plain: Heap,
    pub(super) grouped: Heap,
}

impl Heaps {
    pub(super) fn new() -> Heaps {
        Heaps {
            plain: Heap::new(),
            grouped: Heap::new(),
        }
    }

    #[inline(always)]
    pub(super) fn of(&mut self, grouped: bool) -> &mut Heap {
        match grouped {
            true => &mut self.grouped,
            false => &mut self.plain,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.plain.len() + self.grouped.len()
    }
}

/// What was due, in order, and left the heap.
pub(super) struct Batch {
    sleepers: [MaybeUninit<Sleeper>; BATCH],
    pub(super) len: usize,
    /// How late the first of them is.
    pub(super) late: u64,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch {
            sleepers: [const { MaybeUninit::uninit() }; BATCH],
            len: 0,
            late: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, sleeper: Sleeper) {
        self.sleepers[self.len].write(sleeper);
        self.len += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Sleeper> + '_ {
        // SAFETY: `push` has written the first `len`.
        self.sleepers[..self.len]
            .iter()
            .map(|sleeper| unsafe { sleeper.assume_init() })
    }
}
