//! For how long, in all, something was so of a group: that it was stopped, or that it had something to run and nothing of it ran.
//!
//! # Why this shape
//! It changes where Ps begin and end turns, and where the first of a group is queued: two plain words, and no order between them and the counts they
//! follow. Who begins a spell *overwrites* the time, so what a slower one left behind after the spell had ended is never counted: it is gone when the next
//! begins, and only the one who ends a spell adds it up. One that begins and ends while both are on their way may be lost; it was that short.
//!
//! Rejected, for stalls: sampling by the monitor (short waits, which are what latency is about, would be missed); the sum of all waits of goroutines, which grows
//! with their number and is in the histogram of latencies already.

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
