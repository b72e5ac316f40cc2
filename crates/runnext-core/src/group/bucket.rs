//! A token bucket in CPU time that fills continuously, as one atomic word.
//!
//! # Why this shape
//! The word is not the level but the moment at which the bucket was, or will be, empty: `dry`. The level follows from the
//! clock, so nobody has to fill it; taking moves `dry` later, giving back moves it earlier, a debt is a `dry` that lies ahead,
//! and the moment at which an amount is affordable is a sum. Rejected: periods (a group that used up its part freezes until
//! the next one begins: cliffs of tens of milliseconds); level and time stamp as two words (a lock, or a race).
//!
//! # Words
//! *level*: CPU time in the bucket, in ns; negative in debt. *borrow*: what a P takes at a time, and settles at the end of
//! the residency.
//!
//! # Invariants
//! I1  level ≤ capacity: `dry` is never used from further back than the time that fills the bucket.
//! I2  level ≥ −debt limit after every take: what was overdrawn beyond it is forgiven, so a wait ends.
//! I3  In any window τ at most rate · τ + capacity is taken by [`borrow`](Bucket::borrow), to which overruns add.
//!
//! # Bounds
//! `dry` is in 1/16 ns: good for 18 years of uptime, and for a thousand cores exact to 6 ns of CPU time. Amounts are cut
//! at 2³⁸ ns (4.5 minutes).
//!
//! # Context
//! No locks, no allocation, not a clock in sight. Rate and level change one after the other; a take between the two errs by
//! its own amount. Tests: `tables.rs`, and the envelope in `tests/groups`.

use super::config::{MS, RATE_BITS, Rate};
use crate::shim::{AtomicU64, Ordering::Relaxed};

/// Fractional bits of `dry`.
const BITS: u32 = 4;
const MAX_AMOUNT: u64 = 1 << 38;
/// The most a P borrows at once.
pub const BORROW: u64 = MS;
/// The least worth borrowing: less would be used up before it was noticed.
pub const MIN_BORROW: u64 = MS / 4;

/// The bucket. See the [module](self).
#[derive(Debug)]
pub struct Bucket {
    /// When it was, or will be, empty, as an `i64`.
    dry: AtomicU64,
    /// In 2⁻²⁰ cores; 0: no limit.
    rate: AtomicU64,
    capacity: AtomicU64,
    debt: AtomicU64,
}

impl Bucket {
    /// Without a limit.
    pub fn unlimited() -> Bucket {
        Bucket {
            dry: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            capacity: AtomicU64::new(BORROW),
            debt: AtomicU64::new(0),
        }
    }

    /// Full, at `now`.
    pub fn new(rate: Rate, capacity: u64, debt: u64, now: u64) -> Bucket {
        let bucket = Bucket::unlimited();
        bucket.limit(rate, capacity, debt, now);
        bucket
    }

    /// Whether there is a limit at all.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.rate.load(Relaxed) != 0
    }

    /// Sets the limit. The level stays, or is full if there was no limit.
    pub fn limit(&self, rate: Rate, capacity: u64, debt: u64, now: u64) {
        let level = if self.is_limited() {
            self.level(now)
        } else {
            i64::MAX
        };
        let capacity = capacity.clamp(BORROW, MAX_AMOUNT);
        self.capacity.store(capacity, Relaxed);
        self.debt.store(debt.min(MAX_AMOUNT), Relaxed);
        self.rate.store(rate.raw(), Relaxed);
        let level = level.clamp(-(debt as i64), capacity as i64);
        let back = span(level.unsigned_abs(), rate.raw()) * level.signum();
        self.dry.store((fine(now) - back) as u64, Relaxed);
    }

    /// Removes the limit.
    pub fn unlimit(&self) {
        self.rate.store(0, Relaxed);
    }

    /// What is in it, in ns; debts are negative. All there is, without a limit.
    pub fn level(&self, now: u64) -> i64 {
        let rate = self.rate.load(Relaxed);
        if rate == 0 {
            return i64::MAX;
        }
        let age = fine(now) - self.dry.load(Relaxed) as i64;
        let level = (i128::from(age) * i128::from(rate)) >> (BITS + RATE_BITS);
        level.min(i128::from(self.capacity.load(Relaxed))) as i64
    }

    /// What it can hold, in ns.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    /// How many Ps may use it at once: its rate rounded up, and one more while it is more than half full. A group of half a core
    /// runs steadily on one P, not on four for an eighth of the time.
    #[inline]
    pub fn parallelism(&self, now: u64) -> u32 {
        let rate = self.rate.load(Relaxed);
        if rate == 0 {
            return u32::MAX;
        }
        let credit = self.level(now) > (self.capacity() / 2) as i64;
        rate.div_ceil(1 << RATE_BITS) as u32 + u32::from(credit)
    }

    /// Whether no more than one P can use it for long.
    #[inline]
    pub fn is_narrow(&self) -> bool {
        let rate = self.rate.load(Relaxed);
        rate != 0 && rate <= 1 << RATE_BITS
    }

    /// Takes up to `want` and at most [`BORROW`], leaving as much for the other of `procs` users. If there is not even
    /// [`MIN_BORROW`], says when a whole borrow will be affordable.
    pub fn borrow(&self, now: u64, want: u64, procs: u32) -> Result<u64, u64> {
        if !self.is_limited() {
            return Ok(want);
        }
        let level = self.level(now);
        if level < MIN_BORROW as i64 {
            return Err(self.when(now, BORROW));
        }
        let part = level as u64 / (2 * u64::from(procs.max(1)));
        let amount = part.clamp(MIN_BORROW, BORROW).min(want);
        self.take(now, amount);
        Ok(amount)
    }

    /// Takes `ns`, there or not.
    pub fn take(&self, now: u64, ns: u64) {
        let rate = self.rate.load(Relaxed);
        if rate == 0 || ns == 0 {
            return;
        }
        let full = fine(now) - span(self.capacity.load(Relaxed), rate); // I1
        let least = fine(now) + span(self.debt.load(Relaxed), rate); // I2
        let cost = span(ns, rate);
        self.update(|dry| (dry.max(full) + cost).min(least.max(dry)));
    }

    /// Puts `ns` back. Beyond the capacity it is lost.
    pub fn give(&self, ns: u64) {
        let rate = self.rate.load(Relaxed);
        if rate != 0 && ns != 0 {
            self.dry.fetch_sub(span(ns, rate) as u64, Relaxed);
        }
    }

    /// When `ns` will be there: not before `now`, and later than it if they are not there yet. Never more than the capacity is waited for.
    pub fn when(&self, now: u64, ns: u64) -> u64 {
        let rate = self.rate.load(Relaxed);
        let ns = ns.min(self.capacity());
        if rate == 0 || self.level(now) >= ns as i64 {
            return now;
        }
        let at = self.dry.load(Relaxed) as i64 + span(ns, rate);
        // Rounded up to whole ns, and one more for the level's own rounding.
        ((at >> BITS) as u64 + 2).max(now + 1)
    }

    fn update(&self, f: impl Fn(i64) -> i64) {
        let mut old = self.dry.load(Relaxed);
        while let Err(seen) =
            self.dry
                .compare_exchange_weak(old, f(old as i64) as u64, Relaxed, Relaxed)
        {
            old = seen;
        }
    }
}

#[inline]
fn fine(now: u64) -> i64 {
    (now << BITS) as i64
}

/// How long it takes to fill `ns` in, in 1/16 ns; rounded up.
#[inline]
fn span(ns: u64, rate: u64) -> i64 {
    (ns.min(MAX_AMOUNT) << (BITS + RATE_BITS)).div_ceil(rate) as i64
}
