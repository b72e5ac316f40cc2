//! Latency feedback: how much Low and governed groups may use so that the others are not kept waiting.
//!
//! # Why this shape
//! Order and wake-up preemption do most of the work; this loop corrects the rest. It looks every 10 ms at what the others' wake-ups
//! waited, halves the limit when too many waited too long, and raises it by 5 % of the machine after every 50 ms in which somebody could have used
//! more. In any of their windows: as many goroutines as there are Ps are seen waiting only in the pauses that the limit makes, which a look may miss.
//! Falling fast and rising slowly is what keeps such a loop from swinging. Rejected: a step per second of a
//! tenth of a per cent (a change of load is over before the limit follows).
//!
//! # Words
//! *violation*: more than one wake-up in a hundred waited beyond the target, or somebody stood runnable with nothing of its group running for
//! longer than the target in one window. *window*: the 10 ms between two looks; what it saw fades by a quarter with each next one, so that few
//! samples per window still make a percentile, and is forgotten when the limit was halved for it.
//!
//! # Context
//! Plain values, for use under a lock or by the monitor alone. Tests: `tables.rs`, `tests/groups/classes.rs`.

use core::time::Duration;

use super::config::{self, FLOOR, MS};

/// How often the loop looks, in ns.
pub const WINDOW: u64 = 10 * MS;
/// How often it raises the limit, in ns.
pub const RISE_EVERY: u64 = 50 * MS;
/// By how much, in millionths of the machine.
pub const RISE: u32 = 50_000;
/// All of the machine, in millionths.
pub const ALL: u32 = 1_000_000;
/// What it never falls below: [`FLOOR`].
pub const LEAST: u32 = (FLOOR * 1e6) as u32;

/// The loop. See the [module](self).
#[derive(Clone, Debug)]
pub struct Feedback {
    target: u64,
    limit: u32,
    /// Samples, and those beyond the target; times 1024, as they fade.
    seen: u64,
    late: u64,
    stall: u64,
    looked: u64,
    raised: u64,
    /// Somebody could have used more since then.
    wanted: bool,
}

impl Feedback {
    /// Keeps 99 of 100 wake-ups below `target`, which is clamped to between 0.1 ms and 1 s; begins without a limit.
    pub fn new(target: Duration, now: u64) -> Feedback {
        Feedback {
            target: config::target(target).as_nanos() as u64,
            limit: ALL,
            seen: 0,
            late: 0,
            stall: 0,
            looked: now,
            raised: now,
            wanted: false,
        }
    }

    /// The limit, in millionths of the machine.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The limit to set, if it is one: who has all of the machine is not to be treated as limited.
    pub fn in_force(&self) -> Option<u32> {
        (self.limit < ALL).then_some(self.limit)
    }

    /// A wake-up of a High or Normal group waited for `ns`.
    #[inline]
    pub fn sample(&mut self, ns: u64) {
        self.samples(1, u64::from(ns > self.target));
    }

    /// Of `seen` wake-ups, `late` waited beyond the target: for those who count apart.
    #[inline]
    pub fn samples(&mut self, seen: u64, late: u64) {
        self.seen = self.seen.saturating_add(seen << 10);
        self.late = self.late.saturating_add(late.min(seen) << 10);
    }

    /// A High or Normal group stood runnable for `ns` with nothing of it running.
    #[inline]
    pub fn stalled(&mut self, ns: u64) {
        self.stall = self.stall.max(ns);
    }

    /// The target, in ns.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// Looks, if a window is over. `waits`: some Low or governed group could use more, or could have in the window. Returns the limit if it changed; then what is
    /// [in force](Self::in_force) is to be set.
    pub fn look(&mut self, waits: bool, now: u64) -> Option<u32> {
        if now.saturating_sub(self.looked) < WINDOW {
            return None;
        }
        self.looked = now;
        let before = self.limit;
        self.wanted |= waits;
        if self.late * 100 > self.seen || self.stall > self.target {
            self.limit = (self.limit / 2).max(LEAST);
            (self.seen, self.late) = (0, 0);
            (self.raised, self.wanted) = (now, false);
        } else if now.saturating_sub(self.raised) >= RISE_EVERY {
            let rise = if self.wanted { RISE } else { 0 };
            self.limit = (self.limit + rise).min(ALL);
            (self.raised, self.wanted) = (now, false);
        }
        self.seen -= self.seen / 4;
        self.late -= self.late.div_ceil(4);
        self.stall = 0;
        (self.limit != before).then_some(self.limit)
    }
}
