//! A histogram of durations: written without locks, read without stopping anybody.
//!
//! # Why this shape
//! Log-linear: each power of two is cut into [`SUB`] equal buckets, so a value is known to within an eighth of itself from
//! nanoseconds to days, in under 3 KiB. Recording is an index from the leading bit and two additions; it never
//! allocates, so it may happen in RT. Rejected: fixed boundaries (somebody always needs others), sketches that
//! merge buckets on the way (they allocate).
//!
//! ```text
//! value  0 1 2 … 7 │ 8 9 … 15 │ 16 18 … 30 │ 32 36 … 60 │ … │ 2^46 … │ above: in the last
//! bucket 0 1 2 … 7 │ 8 9 … 15 │ 16 17 … 23 │ 24 25 … 31 │
//! ```
//!
//! # Two types
//! [`Recorder`] is what the runtime writes to: atomics, shared by reference. [`Histogram`] is what readers get: plain numbers,
//! a copy. Copies of several recorders add up ([`Histogram::merge`]).
//!
//! # Invariants
//! I1  A copy's count is the sum of its buckets, also while others record: it is computed, not read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// Buckets to a power of two.
const SUB: usize = 1 << SUB_BITS;
const SUB_BITS: u32 = 3;
/// Values from here on (39 hours) share the last bucket.
const TOP_BITS: u32 = 47;
const BUCKETS: usize = (TOP_BITS - SUB_BITS + 1) as usize * SUB;

/// The bucket of a value in nanoseconds.
#[inline]
fn index(ns: u64) -> usize {
    let ns = ns.min((1 << TOP_BITS) - 1);
    if ns < SUB as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB_BITS;
    (shift as usize + 1) * SUB + (ns >> shift) as usize - SUB
}

/// The first value of a bucket; of the one after the last, where the last ends.
fn floor(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let shift = index / SUB - 1;
    ((SUB + index % SUB) as u64) << shift
}

/// The side that is written to. Any number of threads may record and read at once.
pub(crate) struct Recorder {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}

impl Recorder {
    pub(crate) const fn new() -> Recorder {
        Recorder {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
        }
    }

    /// Adds a value. By anybody.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        self.buckets[index(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// Adds a value to a recorder that only the caller writes to: no locked instruction.
    #[inline]
    pub(crate) fn record_own(&self, ns: u64) {
        let bucket = &self.buckets[index(ns)];
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
        self.sum_ns
            .store(self.sum_ns.load(Relaxed).wrapping_add(ns), Relaxed);
    }

    /// A copy of what was recorded so far.
    pub(crate) fn read(&self) -> Histogram {
        let mut copy = Histogram::default();
        self.add_to(&mut copy);
        copy
    }

    /// Adds what was recorded so far to a copy.
    pub(crate) fn add_to(&self, copy: &mut Histogram) {
        for (to, from) in copy.buckets.iter_mut().zip(&self.buckets) {
            *to += from.load(Relaxed);
        }
        copy.sum_ns = copy.sum_ns.wrapping_add(self.sum_ns.load(Relaxed));
    }
}

/// How often a duration of which size was seen. Durations are kept to within an eighth of themselves.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let latency = runnext::stats::read().sched_latency;
///     println!("{} samples, p99 {:?}", latency.count(), latency.quantile(0.99));
///     assert!(latency.quantile(0.5) <= latency.quantile(0.99));
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: Box::new([0; BUCKETS]),
            sum_ns: 0,
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.quantile(1.0))
            .finish()
    }
}

impl Histogram {
    /// How many durations were recorded.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::stats::Histogram;
    ///
    /// let mut latencies = Histogram::default();
    /// assert_eq!(latencies.count(), 0);
    /// [3, 5, 8].map(|ms| latencies.add(Duration::from_millis(ms)));
    /// assert_eq!(latencies.count(), 3);
    /// ```
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::stats::Histogram;
    ///
    /// let mut pauses = Histogram::default();
    /// [120, 340, 77].map(|us| pauses.add(Duration::from_micros(us)));
    /// assert_eq!(pauses.sum(), Duration::from_micros(537)); // exact, unlike the buckets
    /// ```
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Their mean; zero if there are none.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::stats::Histogram;
    ///
    /// let mut waits = Histogram::default();
    /// assert_eq!(waits.mean(), Duration::ZERO);
    /// waits.add(Duration::from_millis(2));
    /// waits.add(Duration::from_millis(5));
    /// assert_eq!(waits.mean(), Duration::from_micros(3500));
    /// ```
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count()).unwrap_or(0))
    }

    /// The duration that a share `q` of them does not exceed: `quantile(0.99)` is the 99th percentile. Zero if there are
    /// none; `q` below 0 counts as 0, above 1 (or not a number) as 1. Off by an eighth at most: values are taken
    /// to lie evenly in their bucket.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::stats::Histogram;
    ///
    /// let mut requests = Histogram::default();
    /// (0..99).for_each(|_| requests.add(Duration::from_millis(1)));
    /// requests.add(Duration::from_secs(1));
    /// // The mean of 11 ms is nobody's; these two say what happened.
    /// assert!(requests.quantile(0.5) < Duration::from_millis(2));
    /// assert!(requests.quantile(1.0) >= Duration::from_secs(1));
    /// ```
    pub fn quantile(&self, q: f64) -> Duration {
        let count = self.count();
        if count == 0 {
            return Duration::ZERO;
        }
        let q = if q.is_nan() { 1.0 } else { q.clamp(0.0, 1.0) };
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
        let mut below = 0;
        for (i, &n) in self.buckets.iter().enumerate() {
            if below + n >= rank {
                // As if a bucket's values lay evenly in it: the last of them at its end.
                let (from, to) = (floor(i), floor(i + 1) - 1);
                let part = (rank - below) as f64 / n as f64;
                return Duration::from_nanos(from + ((to - from) as f64 * part) as u64);
            }
            below += n;
        }
        unreachable!("the rank is not above the count")
    }

    /// The buckets that hold anything, in order: the largest duration that falls into each, and how many did.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::stats::Histogram;
    ///
    /// let mut calls = Histogram::default();
    /// [1, 1, 1, 1000].map(|us| calls.add(Duration::from_micros(us)));
    /// let mut rows = calls.buckets();
    /// assert!(matches!(rows.next(), Some((most, 3)) if most >= Duration::from_micros(1)));
    /// assert!(matches!(rows.next(), Some((most, 1)) if most >= Duration::from_micros(1000)));
    /// assert!(rows.next().is_none());
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|&(_, &n)| n > 0)
            .map(|(i, &n)| (Duration::from_nanos(floor(i + 1) - 1), n))
    }

    /// Adds one duration.
    ///
    /// # Example
    /// ```
    /// use std::time::Instant;
    ///
    /// let mut sorting = runnext::stats::Histogram::default();
    /// for n in [10, 100, 1000] {
    ///     let start = Instant::now();
    ///     (0..n).rev().collect::<Vec<u32>>().sort();
    ///     sorting.add(start.elapsed());
    /// }
    /// assert_eq!(sorting.count(), 3);
    /// ```
    pub fn add(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[index(ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }

    /// Adds the durations of another.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{go, stats::Histogram};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     // Each worker has its own, so nobody waits for a lock.
    ///     let workers = [1, 2, 3].map(|ms| go(move || {
    ///         let mut own = Histogram::default();
    ///         own.add(Duration::from_millis(ms));
    ///         own
    ///     }));
    ///     let mut all = Histogram::default();
    ///     workers.map(|worker| all.merge(&worker.join().unwrap()));
    ///     assert_eq!((all.count(), all.mean()), (3, Duration::from_millis(2)));
    /// }
    /// ```
    pub fn merge(&mut self, other: &Histogram) {
        for (to, from) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *to += from;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut values: Vec<u64> = (0..2000).collect();
        values.extend((0..TOP_BITS).flat_map(|e| {
            let p = 1u64 << e;
            [p - 1, p, p + 1, p + p / 3]
        }));
        for v in values.into_iter().filter(|&v| v < 1 << TOP_BITS) {
            let i = index(v);
            assert!(floor(i) <= v && v < floor(i + 1), "{v} in bucket {i}");
            assert!(
                floor(i + 1) - 1 - floor(i) <= v / SUB as u64,
                "{v}: bucket too wide"
            );
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        assert_eq!(index((1 << TOP_BITS) - 1), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_known_values() {
        let recorder = Recorder::new();
        for ns in 1..=1000 {
            recorder.record(ns * 1000);
        }
        let h = recorder.read();
        assert_eq!(h.count(), 1000);
        assert_eq!(h.sum(), Duration::from_micros(500_500));
        assert_eq!(h.mean(), Duration::from_nanos(500_500));
        for (q, exact) in [(0.5, 500_000u64), (0.9, 900_000), (0.99, 990_000)] {
            let got = h.quantile(q).as_nanos() as u64;
            assert!(
                got.abs_diff(exact) <= exact / 8,
                "{q}: {got} against {exact}"
            );
        }
        assert!(h.quantile(0.0) <= h.quantile(0.5) && h.quantile(0.5) <= h.quantile(1.0));
        assert!(h.quantile(1.0) >= Duration::from_millis(1));
        assert_eq!(h.quantile(f64::NAN), h.quantile(2.0));
        assert_eq!(h.quantile(-1.0), h.quantile(0.0));
        assert_eq!(h.buckets().map(|(_, n)| n).sum::<u64>(), 1000);
    }

    #[test]
    fn an_empty_one_says_zero() {
        let h = Histogram::default();
        assert_eq!((h.count(), h.quantile(0.5)), (0, Duration::ZERO));
        assert_eq!((h.mean(), h.buckets().count()), (Duration::ZERO, 0));
    }

    #[test]
    fn copies_add_up_and_owners_count_like_others() {
        let (a, b) = (Recorder::new(), Recorder::new());
        for ns in [5, 50, 500] {
            a.record(ns);
            b.record_own(ns);
        }
        assert_eq!(a.read(), b.read());
        let mut both = a.read();
        both.merge(&b.read());
        let mut added = a.read();
        b.add_to(&mut added);
        assert_eq!(both, added);
        assert_eq!(both.count(), 6);
    }

    #[test]
    fn threads_record_at_once() {
        let recorder = Recorder::new();
        std::thread::scope(|s| {
            for t in 0..4 {
                let recorder = &recorder;
                s.spawn(move || (0..10_000).for_each(|i| recorder.record(i * (t + 1))));
            }
        });
        assert_eq!(recorder.read().count(), 40_000);
    }
}
