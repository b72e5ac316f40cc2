//! The channel of a timer: nobody sends, the time comes.
//!
//! # Why this shape
//! A timer's channel is in no heap and has no buffer. It is a moment, `when`: a receive at or after it succeeds, and
//! either clears it or moves it on by the period; a receive before it waits with that deadline, as any other wait with a
//! time-out does. So a timer that nobody waits for costs nothing and is gone when dropped, what is received is the
//! moment that was set, however late it is received, and `stop` and `reset` leave nothing stale behind because there is
//! nothing to leave. Rejected: a sender in the timer heap that fills a buffer of one, which has to be emptied again by
//! `stop` while receivers race for it.
//!
//! # Invariants
//! I1  `when` is NEVER, or a moment that has not been received yet. Once closed it is NEVER for good. A timer that is set to what never comes has
//!     NEVER_SET, which never comes either, but can be stopped.
//! I2  Whoever waits has queued up under the lock and looked at `when` after that; each change but that of a receive
//!     ends all waits, so that they look again.
//! I3  `turn` grows with each change of `when`.
//!
//! A clock that *ends* gives no values: at `when` it is closed, as it is by `close`. A context's `done` is one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};

use runnext_core::flavor::Flavor;
use runnext_core::probe::Probe;
use runnext_core::waiting::Ended;

use super::wait::{Mode, Node, Outcome, Queue, Step};
use crate::instant::Instant;
use crate::lock::Lock;
use crate::sched::call::Call;
use crate::sched::timers::NEVER;
use crate::sched::wait::Waiter;

/// The moment of a timer that is set and never goes off: `stop` tells it from one that is not set.
pub(crate) const NEVER_SET: u64 = NEVER - 1;

pub(super) struct Clock {
    side: Lock<Side>,
    when: AtomicU64,
    turn: AtomicUsize,
    closed: AtomicBool,
    ends: bool,
}

struct Side {
    /// Zero for a timer that goes off once.
    period_ns: u64,
    waiting: Queue,
}

impl Clock {
    pub(super) fn new(when: Instant, period_ns: u64) -> Clock {
        Clock {
            side: Lock::new(Side {
                period_ns,
                waiting: Queue::new(),
            }),
            when: AtomicU64::new(when.as_ns()),
            turn: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            ends: false,
        }
    }

    /// One that gives no values and is closed at `when`.
    pub(super) fn ending(when: Instant) -> Clock {
        Clock {
            ends: true,
            ..Clock::new(when, 0)
        }
    }

    /// Whether it was made by [`ending`](Self::ending).
    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// Sets it anew, unless it is closed. True if it was set and had not been received: it will not be any more.
    pub(super) fn set(&self, call: &Call, when: Instant, period_ns: u64) -> bool {
        let (was, ended) = {
            let mut side = self.side.lock();
            if self.closed.load(Relaxed) {
                return false; // I1
            }
            let was = self.when.load(Relaxed) != NEVER;
            side.period_ns = period_ns;
            self.change(when.as_ns());
            (was, side.waiting.end_all(Outcome::Again)) // I2
        };
        ended.wake(|waiter| call.wake(waiter));
        was
    }

    /// With the lock held.
    fn change(&self, when: u64) {
        self.when.store(when, Release);
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn.wrapping_add(1), Release); // I3
    }

    #[inline]
    fn is_due(&self) -> bool {
        let when = self.when.load(Acquire);
        when != NEVER && Instant::now().as_ns() >= when
    }
}

/// The first moment of the grid `when`, `when + period`, … after `now`: periods that were missed are skipped.
fn next_after(when: u64, period: u64, now: u64) -> u64 {
    if period == 0 {
        return NEVER;
    }
    let missed = now.saturating_sub(when) / period;
    period
        .checked_mul(missed + 1)
        .and_then(|step| when.checked_add(step))
        .unwrap_or(NEVER)
}

impl<T> Flavor<T, Waiter> for Clock {
    const TIMED: bool = true;

    unsafe fn send(&self, _: *mut T, _: &Node, _: Mode) -> Step {
        unreachable!("a timer's channel has no sender")
    }

    unsafe fn promise(&self, _: &Node, _: Mode) -> Step {
        unreachable!("a timer's channel has no sender")
    }

    /// `T` is `Instant`, unless it gives no values: only [`after`](super::after) and its like make the other kind.
    unsafe fn recv(&self, into: *mut T, node: &Node, mode: Mode) -> Step {
        debug_assert!(self.ends || size_of::<T>() == size_of::<Instant>());
        let mut side = self.side.lock();
        let now = Instant::now().as_ns();
        let when = self.when.load(Relaxed);
        let due = when != NEVER && now >= when;
        let closed = self.closed.load(Relaxed);
        match mode {
            Mode::Try if !due && !closed => return Step::Blocked,
            Mode::Queue | Mode::QueueMore(_) if !due && !closed => {
                // SAFETY: the caller keeps the node until its wait is over.
                unsafe { side.waiting.push(node) };
                return Step::Blocked;
            }
            Mode::QueueMore(own) if !own.claim() => return Step::Lost,
            _ => {}
        }
        if !due || self.ends {
            return Step::Closed;
        }
        self.change(next_after(when, side.period_ns, now));
        // SAFETY: valid for writes (contract), and of this type (see above).
        unsafe { into.cast::<Instant>().write(Instant::from_ns(when)) };
        Step::Done(None)
    }

    fn leave_send(&self, _: &Node) {}

    fn leave_recv(&self, node: &Node) {
        self.side.lock().waiting.leave(node);
    }

    fn probe_send(&self) -> Probe {
        Probe {
            stamp: 0,
            ready: false,
        }
    }

    fn probe_recv(&self) -> Probe {
        Probe {
            stamp: self.turn.load(Acquire),
            ready: self.is_due() || self.closed.load(Acquire),
        }
    }

    fn close(&self) -> Option<Ended<Waiter>> {
        let mut side = self.side.lock();
        if self.closed.load(Relaxed) {
            return None;
        }
        self.closed.store(true, Release);
        self.change(NEVER);
        Some(side.waiting.end_all(Outcome::Closed))
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Acquire) || (self.ends && self.is_due())
    }

    fn count(&self) -> usize {
        0
    }

    fn capacity(&self) -> Option<usize> {
        Some(0)
    }

    /// Who waits for [`NEVER_SET`] waits without a deadline: it wakes nobody, and would hide that all are asleep.
    fn due(&self) -> u64 {
        match self.when.load(Acquire) {
            NEVER_SET => NEVER,
            when => when,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_their_grid() {
        assert_eq!(next_after(100, 0, 100), NEVER);
        assert_eq!(next_after(100, 10, 100), 110);
        assert_eq!(next_after(100, 10, 109), 110);
        assert_eq!(next_after(100, 10, 110), 120);
        assert_eq!(next_after(100, 10, 555), 560);
        assert_eq!(next_after(100, u64::MAX / 2, u64::MAX - 1), NEVER);
    }
}
