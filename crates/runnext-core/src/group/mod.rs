//! Which group runs next: CPU time as something that is shared, ordered and limited by group.
//!
//! A pure state machine. Time is a parameter, in ns of any monotonic clock; chance plays no part; nothing here parks, locks, makes a
//! thread or calls the allocator, except where a group is added or a P's storage grown. The runtime drives it with real
//! threads, the tests with a virtual clock, a seed and up to 128 Ps.
//!
//! # Four parts
//! | part                              | what                                                      | who touches it            |
//! |-----------------------------------|-----------------------------------------------------------|---------------------------|
//! | [`Ledger`] with its `Group`s      | vtimes, clocks, quotas, floor                             | all Ps: atomics           |
//! | [`Lanes`]                         | one P's queues by group, and the residency it is in       | the P; thieves: P's lock  |
//! | [`preempt_after`], [`Key`], scan  | decisions                                                 | pure                      |
//! | [`Governor`], [`Feedback`]        | the limit on governed and Low groups                      | the runtime's lock        |
//!
//! # The policy
//! *Between groups* EEVDF: a group is eligible if it has had no more than its share (lag ≥ 0); of those the one with
//! the earliest virtual deadline (vtime + slice/weight) runs. Weight sets the share, slice the latency, independently.
//! *Inside a group* the runtime decides, whose queues they are: light goroutines before hogs, each kind first in, first out. A pick grants a *residency*: the P runs the group's goroutines back to back for up to
//! a slice, so ordering costs per residency, not per switch. The residency is paid in advance and settled at its end, which
//! keeps all Ps from running to the same most-behind group.
//!
//! *High* groups run before the others while eligible, and count four times; they take no more than their share, so nobody
//! starves. *Low* groups have a clock of their own, run when nothing else can, and get 5 % of all in any case. *Ungrouped*
//! goroutines are the group [`ROOT`] of weight 100; a P on which no group is active does not come here at all.
//!
//! *Quotas* are continuous buckets; a group without tokens leaves the competition until the moment at which a borrow is affordable,
//! which the pick returns. The quota of a parent binds its children.
//!
//! # Invariants
//! I1  Work conservation: a P is told to wait only if nothing runnable is queued on it but what is throttled, held or at its parallelism;
//!     and, before that, told which group to steal if one has work elsewhere.
//! I2  |lag| ≤ P · (longest slice + gap + tick) for every group that can use its share, gap being the longest time between two checkpoints.
//! I3  In every window τ a group with quota r uses at most r·τ + capacity + P · tick.
//! I4  A queued goroutine of an unthrottled group waits at most [`lanes::PATIENCE`] + 2 · slice · W/w for the next residency of its
//!     group *on its P*, even if the group gets its share elsewhere.
//!
//! # How the runtime calls it
//! ```text
//! if lanes.refresh(&ledger, now)           // where a turn has ended; until the next a word of the P says so
//!     the root lane, as without groups
//! match lanes.pick(&ledger, now, root_has_work, true)
//!     Run(key, until)  publish key; run from lanes.queue(group), or the root lane, until `until`, an empty
//!                      queue or a preemption request; then lanes.end(&ledger, now, used)
//!     Steal(group)     try group.holders(); then pick again with `false`
//!     Wait(until)      search as ever, then sleep, at most until `until`
//! wake of g:  lanes.queue(g.group).push(g); lanes.pushed(&ledger, g.group, 1, now)
//!             if preempt_after(ledger.wake(g.group), running key) says when, ask that P then
//!             of the group that runs: runnext, as without groups; of a more entitled one: never there, it has a turn of its own soon
//! ```
//!
//! Tests: `tables.rs` and `loom.rs` here; `tests/groups/` drives everything through a simulator, `tests/group_threads.rs` with real
//! threads.

pub mod bucket;
pub mod config;
pub mod feedback;
pub mod governor;
pub mod lanes;
pub mod ledger;
#[cfg(all(test, loom))]
mod loom;
pub mod preempt;
pub mod shared;
mod spell;
#[cfg(all(test, not(loom)))]
mod tables;
pub mod vtime;
mod word;

pub use config::{CpuLimit, GroupConfig, Priority, Quota, Rate, Refused};
pub use feedback::Feedback;
pub use governor::{Governor, Verdict};
pub use lanes::{Ended, Lanes, Pick, Storage};
pub use ledger::Ledger;
pub use preempt::{Key, Wake, preempt_after};
pub use shared::Group;

use crate::shim::{AtomicU32, CachePadded, Ordering::Relaxed};
use vtime::Clock;
use word::Word;

/// The most Ps.
pub const MAX_PROCS: usize = 1024;

/// A group's place in the [`Ledger`]. Places are used again; whoever keeps one keeps the group alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

/// Everything ungrouped.
pub const ROOT: GroupId = GroupId(0);

impl GroupId {
    /// The group at a place below [`Ledger::places`].
    #[inline]
    pub fn from_index(index: usize) -> GroupId {
        GroupId(index as u32)
    }

    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The clock of High and Normal groups, and that of Low ones; and how many groups wait for a time.
#[derive(Debug, Default)]
pub struct Clocks {
    fair: CachePadded<Clock>,
    low: CachePadded<Clock>,
    throttled: CachePadded<AtomicU32>,
}

impl Clocks {
    /// The clock that groups of this priority live by.
    #[inline]
    pub fn of(&self, priority: Priority) -> &Clock {
        match priority {
            Priority::High | Priority::Normal => &self.fair,
            Priority::Low => &self.low,
        }
    }

    /// Whether any group is throttled.
    #[inline]
    fn any_throttled(&self) -> bool {
        self.throttled.load(Relaxed) != 0
    }

    /// A group's word changed.
    #[inline]
    fn count_throttled(&self, old: Word, new: Word) {
        match (old.is_throttled(), new.is_throttled()) {
            (false, true) => self.throttled.fetch_add(1, Relaxed),
            (true, false) => self.throttled.fetch_sub(1, Relaxed),
            _ => return,
        };
    }
}

/// What a group has used, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all residencies that ended, and what was [charged](Ledger::charge) beside them.
    pub cpu_ns: u64,
    /// Time spent throttled or held with something to run, up to the last time it went on.
    pub throttled_ns: u64,
    /// For how long it had something to run and no P ran it, up to the last time one did.
    pub stalled_ns: u64,
    /// How often it was throttled or held.
    pub throttled_count: u64,
    /// Goroutines queued, as the Ps last said.
    pub queued: usize,
    /// Ps that run it.
    pub running: usize,
    /// The CPU time it is owed; negative: has had too much.
    pub lag_ns: i64,
    /// Stopped by its quota or the governor, with something to run.
    pub throttled: bool,
}
