//! `Instant`: a moment, in nanoseconds of the runtime's clock.
//!
//! Our own type, so that deadlines go to heaps and futexes as one number, "never" has a value, and the clock can be
//! another one than the system's. Public as [`time::Instant`](crate::time::Instant); it lives here because channels and
//! locks, which have deadlines, come before `time`.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use runnext_core::timers::{NEVER, deadline};
use runnext_sys::clock;

/// A moment of the runtime's monotonic clock, with nanosecond precision.
///
/// Like [`std::time::Instant`], but arithmetic never panics: what lies beyond the end of the clock is *never*, a moment that
/// no clock reaches, and what lies before its beginning is its beginning.
///
/// # Example
/// ```
/// use runnext::time::{self, Instant};
/// use std::time::Duration;
///
/// let start = Instant::now();
/// time::sleep_until(start + Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// assert!(Instant::now() < start + Duration::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// This moment.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    ///
    /// let before = Instant::now();
    /// let answer = (1..=6).product::<u32>();
    /// assert!(before <= Instant::now());
    /// assert_eq!(answer, 720);
    /// ```
    #[inline]
    pub fn now() -> Instant {
        Instant(clock::now_ns())
    }

    /// `d` from now; never, if that is out of range.
    #[inline]
    pub(crate) fn after(d: Duration) -> Instant {
        Instant(deadline(clock::now_ns(), d))
    }

    /// Later than all others: the deadline of what has none.
    pub(crate) const NEVER: Instant = Instant(NEVER);

    #[inline]
    pub(crate) fn from_ns(ns: u64) -> Instant {
        Instant(ns)
    }

    /// What the clock shows then, in ns; NEVER for never.
    #[inline]
    pub(crate) fn as_ns(self) -> u64 {
        self.0
    }

    /// How much later this is than `earlier`; zero if it is not later.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let arrival = Instant::now();
    /// let departure = arrival + Duration::from_secs(90);
    /// assert_eq!(departure.duration_since(arrival), Duration::from_secs(90));
    /// assert_eq!(arrival.duration_since(departure), Duration::ZERO);
    /// ```
    #[inline]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// As [`duration_since`](Self::duration_since); the name std has for it.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let due = Instant::now();
    /// let done = due - Duration::from_micros(1);
    /// assert_eq!(done.saturating_duration_since(due), Duration::ZERO); // not late
    /// ```
    #[inline]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }

    /// How much later this is than `earlier`; `None` if it is earlier.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let start = Instant::now();
    /// let end = start + Duration::from_millis(5);
    /// assert_eq!(end.checked_duration_since(start), Some(Duration::from_millis(5)));
    /// assert_eq!(start.checked_duration_since(end), None); // the wrong way round
    /// ```
    #[inline]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// How long ago this is; zero if it is yet to come.
    ///
    /// # Example
    /// ```
    /// use runnext::time::{self, Instant};
    /// use std::time::Duration;
    ///
    /// let start = Instant::now();
    /// time::sleep(Duration::from_millis(1));
    /// assert!(start.elapsed() >= Duration::from_millis(1));
    /// let tomorrow = start + Duration::from_secs(86_400);
    /// assert_eq!(tomorrow.elapsed(), Duration::ZERO);
    /// ```
    #[inline]
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// `self + d`, or `None` if that is out of range.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let now = Instant::now();
    /// assert_eq!(now.checked_add(Duration::from_secs(1)), Some(now + Duration::from_secs(1)));
    /// assert_eq!(now.checked_add(Duration::MAX), None); // where `+` gives never
    /// ```
    #[inline]
    pub fn checked_add(&self, d: Duration) -> Option<Instant> {
        Some(*self + d).filter(|sum| sum.0 != NEVER)
    }

    /// `self - d`, or `None` if that is before the clock's beginning.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let t = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(t.checked_sub(Duration::from_secs(1)).map(|s| t - s), Some(Duration::from_secs(1)));
    /// assert_eq!(t.checked_sub(Duration::MAX), None);
    /// ```
    #[inline]
    pub fn checked_sub(&self, d: Duration) -> Option<Instant> {
        let ns = u64::try_from(d.as_nanos()).ok()?;
        self.0.checked_sub(ns).map(Instant)
    }

    /// `self + d`; never, if that is out of range. What `+` does.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let never = Instant::now().saturating_add(Duration::MAX);
    /// assert_eq!(never.saturating_add(Duration::from_secs(1)), never);
    /// assert_eq!(format!("{never:?}"), "Instant(never)");
    /// ```
    #[inline]
    pub fn saturating_add(&self, d: Duration) -> Instant {
        Instant(deadline(self.0, d))
    }

    /// `self - d`; the clock's beginning, if that is out of range. What `-` does.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Instant;
    /// use std::time::Duration;
    ///
    /// let now = Instant::now();
    /// let beginning = now.saturating_sub(Duration::MAX);
    /// assert!(beginning < now);
    /// assert_eq!(beginning.saturating_sub(Duration::from_secs(1)), beginning);
    /// ```
    #[inline]
    pub fn saturating_sub(&self, d: Duration) -> Instant {
        self.checked_sub(d).unwrap_or(Instant(0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn add(self, d: Duration) -> Instant {
        self.saturating_add(d)
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    #[inline]
    fn sub(self, d: Duration) -> Instant {
        self.saturating_sub(d)
    }
}

impl SubAssign<Duration> for Instant {
    #[inline]
    fn sub_assign(&mut self, d: Duration) {
        *self = *self - d;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NEVER => f.write_str("Instant(never)"),
            ns => f
                .debug_tuple("Instant")
                .field(&Duration::from_nanos(ns))
                .finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn arithmetic_saturates() {
        let t = Instant::from_ns(5_000_000_000);
        assert_eq!((t + S).as_ns(), 6_000_000_000);
        assert_eq!((t - S).as_ns(), 4_000_000_000);
        assert_eq!((t + S) - t, S);
        assert_eq!(t - (t + S), Duration::ZERO);
        assert_eq!((t + Duration::MAX).as_ns(), NEVER);
        assert_eq!((t - Duration::MAX).as_ns(), 0);
        assert_eq!((t + S).checked_duration_since(t), Some(S));
        assert_eq!(t.checked_duration_since(t + S), None);
        assert_eq!(t.checked_add(S), Some(t + S));
        assert_eq!(t.checked_add(Duration::MAX), None);
        assert_eq!(t.checked_sub(6 * S), None);
        assert_eq!(t.checked_sub(Duration::MAX), None);
        let mut u = t;
        u += S;
        u -= 2 * S;
        assert_eq!(u, t - S);
        let never = t + Duration::MAX;
        assert!(never > t && never + S == never && never.elapsed() == Duration::ZERO);
    }

    #[test]
    fn shows_seconds() {
        let t = Instant::from_ns(1_500_000_000);
        assert_eq!(format!("{t:?}"), "Instant(1.5s)");
        assert_eq!(format!("{:?}", t + Duration::MAX), "Instant(never)");
    }
}
