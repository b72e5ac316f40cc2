//! The limit on governed groups, and latency feedback: `runnext_core::group`'s `Governor` and `Feedback` on real time.
//!
//! The governor is told of governed groups' turns when they end, under its lock. When it stops a group the ledger is told, and no P picks the
//! group until the governor lets it go on: at a time that is armed like a timer (`Groups::at`). With `CpuLimit::Adaptive` the monitor looks
//! every 10 ms at what the wake-ups of the others waited, and moves the limit of the governed, and of the Low groups.

use std::sync::atomic::Ordering::*;

use runnext_core::group::{
    CpuLimit, Feedback, Governor, GroupId, Priority, Refused, Verdict, config,
};
use runnext_sys::clock;

use super::Groups;
use crate::sched::Shared;
use crate::sched::call::Call;

/// How often clocks are put right and the feedback looks, in ns.
const LOOK: u64 = 10_000_000;

/// A checked [`CpuLimit`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    None,
    /// In millionths of all Ps.
    Part(u32),
    /// The target, clamped: who compares with it and the feedback mean the same.
    Adaptive(std::time::Duration),
}

impl Limit {
    pub(crate) fn new(limit: CpuLimit) -> Result<Limit, Refused> {
        Ok(match limit {
            CpuLimit::Unlimited => Limit::None,
            CpuLimit::Fraction(part) => Limit::Part(config::fraction_ppm(part)?),
            CpuLimit::Adaptive { target_p99 } => Limit::Adaptive(config::target(target_p99)),
        })
    }
}

pub(super) struct Govern {
    governor: Governor,
    feedback: Option<Feedback>,
    /// The limit in force, in millionths.
    ppm: Option<u32>,
    looked: u64,
}

impl Govern {
    pub(super) fn new(limit: Limit, procs: usize, now: u64) -> Govern {
        let (ppm, feedback) = match limit {
            Limit::None => (None, None),
            Limit::Part(ppm) => (Some(ppm), None),
            Limit::Adaptive(target) => (None, Some(Feedback::new(target, now))),
        };
        let mut governor = Governor::unlimited();
        governor.limit(ppm, procs, now);
        Govern {
            governor,
            feedback,
            ppm,
            looked: now,
        }
    }
}

impl Groups {
    /// Room for so many groups. In user context.
    pub(super) fn grow_governor(&self, places: usize) {
        let mut room = Governor::unlimited();
        room.reserve(places);
        let call = Call::brief();
        let old = self.governor.lock().governor.grow(room);
        drop(call);
        drop(old);
    }
}

impl Shared {
    /// Whether the governor may stop this group.
    pub(super) fn governs(&self, id: GroupId) -> bool {
        !matches!(self.groups.limit, Limit::None) && self.groups.ledger.group(id).is_governed()
    }

    /// A governed group's turn ended.
    pub(super) fn charge_governed(&self, id: GroupId, used: u64, now: u64) {
        if matches!(self.groups.limit, Limit::None) {
            return;
        }
        let waits = {
            let mut govern = self.groups.governor.lock();
            let waits = govern.governor.charge(id, used, now) == Verdict::Wait;
            if waits {
                // Under the lock: a release that follows must find it held.
                self.groups.ledger.hold(id, now);
            }
            waits
        };
        if waits {
            self.release_governed(now);
        }
    }

    /// Lets go on who may; says when the next may.
    pub(super) fn release_governed(&self, now: u64) {
        if matches!(self.groups.limit, Limit::None) {
            return;
        }
        let (any, when) = {
            let mut govern = self.groups.governor.lock();
            let mut any = false;
            while let Some(id) = govern.governor.release(now) {
                self.groups.ledger.release(id, now);
                any = true;
            }
            (any, govern.governor.when(now))
        };
        if let Some(when) = when {
            self.arm_groups(when.max(now + 1));
        }
        if any {
            self.wake_one();
        }
    }

    /// A group is gone.
    pub(super) fn forget_governed(&self, id: GroupId) {
        self.groups.governor.lock().governor.forget(id);
    }

    /// The number of Ps changed.
    pub(super) fn limit_governed(&self, procs: usize) {
        let now = clock::now_ns();
        let mut govern = self.groups.governor.lock();
        let ppm = govern.ppm;
        govern.governor.limit(ppm, procs, now);
    }

    /// A goroutine of a High or Normal group waited so long for a P.
    pub(super) fn note_wait(&self, ns: u64) {
        if let Limit::Adaptive(target) = self.groups.limit {
            self.groups.seen.fetch_add(1, Relaxed);
            if u128::from(ns) > target.as_nanos() {
                self.groups.late.fetch_add(1, Relaxed);
            }
        }
    }

    /// The monitor's regular look: clocks that races set wrong, and the feedback.
    pub(in crate::sched) fn tend_groups(&self, now: u64) {
        let limit = {
            let mut govern = self.groups.governor.lock();
            if now < govern.looked + LOOK {
                return;
            }
            govern.looked = now;
            let (seen, late) = (&self.groups.seen, &self.groups.late);
            let waits = self.elastic_waits();
            let limit = govern.feedback.as_mut().and_then(|feedback| {
                feedback.samples(seen.swap(0, Relaxed), late.swap(0, Relaxed));
                feedback.look(waits, now)
            });
            if let Some(ppm) = limit {
                govern.ppm = Some(ppm);
                govern.governor.limit(Some(ppm), self.procs(), now);
            }
            limit
        };
        self.groups.ledger.resync();
        if let Some(ppm) = limit {
            self.groups.ledger.set_low_limit(Some(ppm), now);
            self.release_governed(now);
        }
    }

    /// Whether a group that lives in what others leave, or is governed, wants more than it has.
    fn elastic_waits(&self) -> bool {
        let ledger = &self.groups.ledger;
        (1..ledger.places()).any(|at| {
            let id = GroupId::from_index(at);
            let group = ledger.group(id);
            (group.is_governed() || group.priority() == Priority::Low)
                && ledger.usage(id).queued != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Wake-ups were compared with what was asked for, and so with a target of zero each one was late.
    #[test]
    fn a_target_is_clamped_where_it_is_taken() {
        let taken = |target_p99| match Limit::new(CpuLimit::Adaptive { target_p99 }) {
            Ok(Limit::Adaptive(target)) => target,
            other => panic!("{other:?}"),
        };
        let (least, most) = (Duration::from_micros(100), Duration::from_secs(1));
        for (asked, target) in [
            (Duration::ZERO, least),
            (least, least),
            (Duration::from_millis(2), Duration::from_millis(2)),
            (most, most),
            (Duration::MAX, most),
        ] {
            assert_eq!(taken(asked), target, "{asked:?}");
        }
    }
}
