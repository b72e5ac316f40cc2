//! For how long a group had something to run, and nothing of it ran.
//!
//! # Why this shape
//! It changes where Ps begin and end turns, and where the first of a group is queued: two plain words, and no order between them and the counts they
//! follow. Who begins to wait *overwrites* the time, so what a slower one left behind after the wait had ended is never counted: it is gone when the next
//! wait begins, and only the one who ends a wait (0 Ps ran it) adds it up. A wait that begins and ends while both are on their way may be lost; it was that short.
//!
//! Rejected: sampling by the monitor (short waits, which are what latency is about, would be missed); the sum of all waits of goroutines, which grows with
//! their number and is in the histogram of latencies already.

use super::shared::since;
use crate::shim::{AtomicU64, Ordering::Relaxed};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Stall {
    /// When it began to wait; 0: it does not.
    began: AtomicU64,
    total: AtomicU64,
}

impl Stall {
    pub(super) fn none() -> Stall {
        Stall {
            began: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    pub(super) fn reset(&self) {
        self.began.store(0, Relaxed);
        self.total.store(0, Relaxed);
    }

    /// There is something to run from here on, and nobody runs it.
    #[inline]
    pub(super) fn begin(&self, now: u64) {
        self.began.store(now, Relaxed);
    }

    /// Somebody runs it, or nothing is left to run.
    #[inline]
    pub(super) fn end(&self, now: u64) {
        let began = self.began.load(Relaxed);
        if began != 0 {
            self.began.store(0, Relaxed);
            self.total.fetch_add(since(began, now), Relaxed);
        }
    }

    /// In all, up to the end of the last wait.
    pub(super) fn ns(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Of one that waits: for how long by now.
    pub(super) fn goes_on_for(&self, now: u64) -> u64 {
        since(self.began.load(Relaxed), now)
    }
}
