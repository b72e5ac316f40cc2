//! The total time for which a condition of a group held: that it was throttled, or that it had goroutines to run and none of them ran.
//!
//! # Why this shape
//! A *spell* is one period for which the condition holds. Spells begin and end where Ps begin and end turns, and where the first goroutine of a
//! group is queued. Two plain words are enough, unordered with respect to the counts they follow. Beginning a spell *overwrites* its start time, so
//! a start that a slow thread stores after its spell has ended is never counted: the next beginning replaces it, and only the end of a spell adds
//! to the total. A spell that begins and ends while both threads are still on their way may be lost; it was that short.
//!
//! Rejected, for stalls: sampling by the monitor (it misses short waits, which are what latency is about); the sum of the waits of all goroutines,
//! which grows with their number and is in the latency histogram already.

use crate::shim::{AtomicU64, Ordering::Relaxed};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Spell {
    /// When the one that goes on began; 0: there is none, or nobody has noted it yet.
    began: AtomicU64,
    total: AtomicU64,
}

impl Spell {
    pub(super) fn none() -> Spell {
        Spell {
            began: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    pub(super) fn reset(&self) {
        self.began.store(0, Relaxed);
        self.total.store(0, Relaxed);
    }

    #[inline]
    pub(super) fn begin(&self, now: u64) {
        self.began.store(now, Relaxed);
    }

    /// Also if there is none.
    #[inline]
    pub(super) fn end(&self, now: u64) {
        if self.began.load(Relaxed) != 0 {
            let began = self.began.swap(0, Relaxed);
            self.total.fetch_add(since(began, now), Relaxed);
        }
    }

    /// In all, up to the end of the last one.
    pub(super) fn ns(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// If it `is` so now: for how long by now.
    pub(super) fn goes_on_for(&self, is: bool, now: u64) -> u64 {
        match is {
            true => since(self.began.load(Relaxed), now),
            false => 0,
        }
    }
}

/// Of a beginning that may not have been noted, or be one of another thread's clock.
fn since(at: u64, now: u64) -> u64 {
    if at == 0 { 0 } else { now.saturating_sub(at) }
}
