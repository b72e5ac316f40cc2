//! Whether one that woke up may take the P of one that runs.
//!
//! # Why this shape
//! Each P publishes the [`Key`] of what it runs as one word (a relaxed store at the beginning of a residency), so a waker can choose the P
//! that runs the least entitled without a lock. The rest is a pure predicate.
//!
//! # The rules
//! 1. A Low group's residency in what is left over has no protection: nothing is left over while another may run, even one that is
//!    not eligible. (A group that runs on one P is ahead there, by what it was charged before; its next wake-up must not wait for a slice.)
//! 2. Otherwise one that is not eligible takes nobody's P: it has had its share.
//! 3. Low on its floor runs for [`FLOOR_GRANT`]: cut short at each wake-up it would need five times as many turns for its part, and each costs two switches of
//!    threads. Everything else runs for at least [`MIN_RUN`]: wake-ups in a row cannot keep it from getting on.
//! 4. High takes the P of Normal.
//! 5. Among equals the earlier deadline wins, if it is earlier by more than [`MARGIN`] of the woken group's own service.
//!
//! Tests: `tables.rs`.

use super::config::Priority;
use super::ledger::FLOOR_GRANT;
use super::vtime;

/// How long everything but leftovers runs undisturbed, in ns.
pub const MIN_RUN: u64 = 100_000;
/// How much earlier a deadline must be, in ns of service.
pub const MARGIN: u64 = 200_000;

/// How entitled what a P runs is, in one word: the virtual deadline, less its last four bits, and the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

const HIGH: u64 = 0;
const NORMAL: u64 = 1;
/// Low, on its floor.
const FLOOR: u64 = 2;
/// Low, in what is left over.
const LEFTOVER: u64 = 3;
/// Nothing runs: whoever comes may.
const IDLE: u64 = 4;
const CLASS: u64 = 15;

impl Key {
    /// Of a P that runs nothing.
    pub const IDLE: Key = Key(IDLE);

    /// Of a residency; `floor`: of a Low group whose floor was due.
    #[inline]
    pub(super) fn new(priority: Priority, floor: bool, deadline: u64) -> Key {
        let class = match (priority, floor) {
            (Priority::High, _) => HIGH,
            (Priority::Normal, _) => NORMAL,
            (Priority::Low, true) => FLOOR,
            (Priority::Low, false) => LEFTOVER,
        };
        Key(deadline & !CLASS | class)
    }

    /// As a word to publish.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// A published word.
    #[inline]
    pub fn from_bits(bits: u64) -> Key {
        Key(bits)
    }

    #[inline]
    fn class(self) -> u64 {
        self.0 & CLASS
    }

    #[inline]
    fn deadline(self) -> u64 {
        self.0 & !CLASS
    }

    /// Of a High or Normal group.
    #[inline]
    pub fn is_fair(self) -> bool {
        self.class() < FLOOR
    }

    /// Of a Low group in what is left over.
    #[inline]
    pub fn is_leftover(self) -> bool {
        self.class() == LEFTOVER
    }

    /// Whether this is less entitled than `other`: a later class, or a later deadline in the same.
    #[inline]
    pub fn is_worse(self, other: Key) -> bool {
        match self.class().cmp(&other.class()) {
            core::cmp::Ordering::Equal => vtime::before(other.deadline(), self.deadline()),
            order => order.is_gt(),
        }
    }
}

/// How entitled a group that woke up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// As if it ran.
    pub key: Key,
    /// It may run at all: it is not throttled.
    pub active: bool,
    /// It has had no more than its share.
    pub eligible: bool,
    /// [`MARGIN`] at its weight.
    pub margin: u64,
}

/// How long what runs must have run, in ns, before what woke may take its P. None: it may not.
#[inline]
pub fn preempt_after(woken: Wake, running: Key) -> Option<u64> {
    let (new, old) = (woken.key.class(), running.class());
    if old == IDLE {
        return Some(0);
    }
    if new < FLOOR && old == LEFTOVER {
        return woken.active.then_some(0);
    }
    if !woken.eligible || new > old {
        return None;
    }
    if new < FLOOR && old == FLOOR {
        // The two live by different clocks: their deadlines do not compare.
        return Some(FLOOR_GRANT);
    }
    let lead = running.deadline().wrapping_sub(woken.key.deadline()) as i64;
    let wins = new == HIGH && old == NORMAL || lead > woken.margin as i64;
    wins.then_some(MIN_RUN)
}
