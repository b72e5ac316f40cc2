//! Virtual time: CPU time divided by weight, and the clock that says where everybody should be by now.
//!
//! # Words
//! *service*: CPU time in ns. *vtime*: service · 2¹⁶ / weight, a `u64` that wraps; only differences mean anything.
//! *clock*: the weighted mean V of the vtimes of all groups that compete. Residencies are paid in advance, so V runs ahead by what
//! is not used yet; the *settled* time is V without that, and is where newcomers are placed. *lag*: weight · (V − vtime), the service a
//! group is owed (positive) or has had too much of. By definition of the mean, all lags add up to nothing.
//!
//! # Why this shape
//! A mean can be kept without visiting anybody: when a competitor of weight w moves by d, the mean of all moves by
//! w·d/W, W being the sum of weights; one that joins or leaves moves it likewise. So the clock is two words, and each
//! of the changes is one atomic addition. Rejected: the least vtime (CFS's floor: a group that never wants what it could
//! have holds it back); per-P clocks (drift apart under stealing); a tree of all groups (a global ordered queue).
//!
//! # Bounds
//! Weights are 1 to 40 000 (four times the largest public one). A charge is cut at [`MAX_CHARGE`], 2⁴⁰ ns, so a step of
//! vtime is below 2⁵⁶. A competitor's lag is clamped to 2³⁸ ns, so vtimes that are compared differ by less
//! than 2⁵⁵: far from the 2⁶³ where a wrapping comparison turns round. Who sleeps is compared only if it slept for less than
//! [`FORGET`]; V then moved by at most 10 s · 1024 Ps · 2¹⁶ < 2⁶⁰.
//! Rounding: a step is exact to one unit, 2⁻¹⁶ ns at weight 1 and 0.6 ns at weight 40 000; the mean to half a unit, which is
//! W · 2⁻¹⁷ ns of service.
//!
//! # Context
//! No locks, no allocation. Two words change one after the other, so V may be off by one step while others are between
//! the two; `Clock::pull` takes such errors back.

use crate::shim::{AtomicU64, Ordering::Relaxed};

/// Fractional bits of a vtime.
const BITS: u32 = 16;
/// The most that one step charges, in ns (18 minutes).
pub const MAX_CHARGE: u64 = 1 << 40;
/// Whoever sleeps for longer than this, in ns, comes back without credit and without debt.
pub const FORGET: u64 = 10_000_000_000;

/// The vtime that `ns` of service take at `weight`; rounded up, so that nothing is free.
#[inline]
pub fn vtime(ns: u64, weight: u32) -> u64 {
    (ns.min(MAX_CHARGE) << BITS).div_ceil(u64::from(weight.max(1)))
}

/// The service, in ns, that lies between two vtimes at `weight`: from `from` to `to`.
#[inline]
pub fn service(from: u64, to: u64, weight: u32) -> i64 {
    let d = i128::from(to.wrapping_sub(from) as i64) * i128::from(weight);
    (d >> BITS).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// `a` is earlier than `b`.
#[inline]
pub fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// Where everybody should be by now. See the [module](self).
#[derive(Debug)]
pub struct Clock {
    v: AtomicU64,
    /// As an `i64`: one that leaves may be faster here than one that joined before it.
    weight: AtomicU64,
    /// Service paid in advance by residencies that run, times 2¹⁶.
    ahead: AtomicU64,
    /// How far newcomers have come, all of them taken for one; and when one last ran.
    young: AtomicU64,
    young_at: AtomicU64,
}

impl Clock {
    /// A clock nobody lives by.
    pub fn new() -> Clock {
        Clock {
            v: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            young: AtomicU64::new(0),
            young_at: AtomicU64::new(0),
        }
    }

    /// V.
    #[inline]
    pub fn now(&self) -> u64 {
        self.v.load(Relaxed)
    }

    /// V, less what was paid in advance.
    pub fn settled(&self) -> u64 {
        let ahead = self.ahead.load(Relaxed).checked_div(self.weight());
        self.now().wrapping_sub(ahead.unwrap_or(0))
    }

    /// Where a newcomer begins: with the settled time; or up to `most` ahead of it, so that it comes later, if the newcomers before it had more than
    /// one group's share.
    pub(super) fn beginning(&self, most: u64, now: u64) -> u64 {
        let settled = self.settled();
        let ahead = self
            .young(now)
            .map_or(0, |young| young.wrapping_sub(settled) as i64);
        settled.wrapping_add((ahead.max(0) as u64).min(most))
    }

    /// A newcomer ran for `step` from `from` on, and all of them taken for one came as much further; but not beyond `most` ahead of V.
    pub(super) fn newcomer_ran(&self, from: u64, step: u64, most: u64, now: u64) {
        let young = match self.young(now) {
            Some(young) if before(from, young) => young,
            _ => from,
        };
        let (to, last) = (young.wrapping_add(step), self.now().wrapping_add(most));
        if !before(last, to) {
            self.young.store(to, Relaxed);
        } else if before(young, last) {
            self.young.store(last, Relaxed);
        }
        self.young_at.store(now, Relaxed);
    }

    fn young(&self, now: u64) -> Option<u64> {
        let age = now.wrapping_sub(self.young_at.load(Relaxed)) as i64;
        (age < FORGET as i64).then(|| self.young.load(Relaxed))
    }

    /// A residency begins (or ends) that paid `ns` in advance.
    #[inline]
    pub(super) fn paid(&self, ns: u64, begins: bool) {
        match begins {
            true => self.ahead.fetch_add(ns << BITS, Relaxed),
            false => self.ahead.fetch_sub(ns << BITS, Relaxed),
        };
    }

    /// The weights of all that compete.
    #[inline]
    pub fn weight(&self) -> u64 {
        sum(self.weight.load(Relaxed))
    }

    /// A competitor of weight `w` moved by `dv`.
    #[inline]
    pub(super) fn moved(&self, w: u32, dv: i64) {
        self.shift(i128::from(dv) * i128::from(w), self.weight());
    }

    /// One with weight `w` at `v` begins to compete.
    pub(super) fn join(&self, w: u32, v: u64) {
        let w64 = u64::from(w);
        let sum = sum(self.weight.fetch_add(w64, Relaxed).wrapping_add(w64));
        let d = v.wrapping_sub(self.now()) as i64;
        self.shift(i128::from(d) * i128::from(w), sum);
    }

    /// One with weight `w` at `v` competes no more. The clock of nobody stands still.
    pub(super) fn leave(&self, w: u32, v: u64) {
        let w64 = u64::from(w);
        let sum = sum(self.weight.fetch_sub(w64, Relaxed).wrapping_sub(w64));
        let d = v.wrapping_sub(self.now()) as i64;
        self.shift(-i128::from(d) * i128::from(w), sum);
    }

    /// One that keeps its lag changed its weight.
    pub(super) fn reweighed(&self, old: u32, new: u32) {
        let change = u64::from(new).wrapping_sub(u64::from(old));
        self.weight.fetch_add(change, Relaxed);
    }

    /// Half-way to where the mean really is, as somebody counted.
    pub(super) fn pull(&self, mean: u64) {
        let d = mean.wrapping_sub(self.now()) as i64;
        self.v.fetch_add((d / 2) as u64, Relaxed);
    }

    #[inline]
    fn shift(&self, weighted: i128, sum: u64) {
        if sum != 0 {
            let d = match i64::try_from(weighted) {
                // Much the cheaper division. To nearest: errors cancel out.
                Ok(small) => small.saturating_add(sum as i64 / 2).div_euclid(sum as i64),
                Err(_) => weighted.div_euclid(i128::from(sum)) as i64,
            };
            self.v.fetch_add(d as u64, Relaxed);
        }
    }
}

/// A sum of weights that others are about to complete may look negative, and then counts as nobody's.
#[inline]
fn sum(word: u64) -> u64 {
    (word as i64).max(0) as u64
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}
