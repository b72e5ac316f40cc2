//! The limit on governed groups, and latency feedback: `runnext_core::group`'s `Governor` and `Feedback` on real time.
//!
//! *Limit.* When the turn of a governed group ends, the governor is charged for it, under the governor's lock. If the governor stops the group, the
//! ledger holds it, and no P picks the group until the governor releases it, at a time that is armed like a timer (`Groups::at`). While governed groups
//! are in debt a new one is held before its first turn.
//!
//! *Feedback*, with `CpuLimit::Adaptive`. Every 10 ms the monitor looks at how long the wake-ups of the other groups waited, and moves the limit of
//! the governed and of the Low groups. A goroutine that waits and never gets to run yields no such sample; so the monitor also looks, up to
//! once a millisecond, for groups that wait while none of their goroutines runs. Neither observation counts if no limited group was running by
//! the time the wait became too long: then the limit was not the cause. (At a load of 60 % requests now and then wait for each other;
//! counting that, Low groups got only half of what was left over.)

use std::sync::atomic::Ordering::*;

use runnext_core::group::governor::SLICE;
use runnext_core::group::{
    CpuLimit, Feedback, Governor, GroupId, Ledger, Priority, ROOT, Refused, Verdict, config,
};
use runnext_sys::clock;

use super::local::NO_LANE;
use super::{Groups, ROOT_LANE};
use crate::g::G;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::call::Call;
use crate::sched::timers::NEVER;

/// How often clocks are put right and the feedback looks, in ns.
const LOOK: u64 = 10_000_000;
/// How often at most it is looked for groups that stand still, in ns.
const STALLS: u64 = 1_000_000;

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
    /// How often Low and governed groups had been stopped by then, in all.
    stops: u64,
    /// By place, for the feedback.
    standing: Vec<Standing>,
    stalls_at: u64,
}

/// Since when a group has waited with nothing of it running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// When it was first seen so; NEVER: it is not.
    since: u64,
    /// What it had used by then: if it has used more it was running in between.
    used: u64,
}

impl Standing {
    const NOT: Standing = Standing {
        since: NEVER,
        used: 0,
    };

    /// It waits and does not run. For how long so far, as far as was seen.
    fn seen(&mut self, used: u64, now: u64) -> u64 {
        if self.since == NEVER || self.used != used {
            *self = Standing { since: now, used };
        }
        now - self.since
    }
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
            stops: 0,
            standing: Vec::new(),
            stalls_at: 0,
        }
    }

    /// A governed group ran for `used` ns. True: it waits from now on. One that has gone is no more charged, though its last turn ends now.
    fn charge(&mut self, ledger: &Ledger, id: GroupId, used: u64, now: u64) -> bool {
        if !ledger.group(id).is_governed() {
            return false;
        }
        match self.governor.charge(id, used, now) {
            Verdict::Wait => {
                ledger.hold(id, now); // under the lock: a release that follows must find it held
                true
            }
            Verdict::GoOn(left) => {
                ledger.leave(id, left);
                false
            }
        }
    }

    /// A new group comes under the governor. True: it waits, as others made a debt.
    fn begin(&mut self, ledger: &Ledger, id: GroupId, now: u64) -> bool {
        let waits = self.governor.begin(id, now) == Verdict::Wait;
        if waits {
            ledger.hold(id, now); // under the lock, as in `charge`
        }
        waits
    }

    /// A group has gone. Both under the lock, or a turn that ends would make it known again.
    fn forget(&mut self, ledger: &Ledger, id: GroupId) {
        ledger.ungovern(id);
        self.governor.forget(id);
    }

    /// Moves into more room for `standing`; the caller drops what comes back.
    fn make_standing(&mut self, mut room: Vec<Standing>) -> Vec<Standing> {
        if room.len() > self.standing.len() {
            room[..self.standing.len()].copy_from_slice(&self.standing);
            std::mem::swap(&mut self.standing, &mut room);
        }
        room
    }
}

impl Groups {
    /// Room for so many groups. In user context.
    pub(super) fn grow_governor(&self, places: usize) {
        let mut room = Governor::unlimited();
        room.reserve(places);
        let standing = match self.limit {
            Limit::Adaptive(_) => vec![Standing::NOT; places],
            _ => Vec::new(),
        };
        let call = Call::brief();
        let old = {
            let mut govern = self.governor.lock();
            (govern.governor.grow(room), govern.make_standing(standing))
        };
        drop(call);
        drop(old);
    }
}

impl Shared {
    /// Whether the governor may stop this group.
    pub(super) fn governs(&self, id: GroupId) -> bool {
        !matches!(self.groups.limit, Limit::None) && self.groups.ledger.group(id).is_governed()
    }

    /// A new group has its place. Under the registry's lock.
    pub(super) fn note_governed(&self, id: GroupId) {
        if self.governs(id) {
            self.groups.ledger.leave(id, SLICE);
        }
    }

    /// And is about to be used for the first time, perhaps by several at once. In user context.
    pub(super) fn begin_governed(&self, id: GroupId) {
        if !self.governs(id) {
            return;
        }
        let _call = Call::brief();
        let now = clock::now_ns();
        let waits = (self.groups.governor.lock()).begin(&self.groups.ledger, id, now);
        if waits {
            self.release_governed(now);
        }
    }

    /// Whether a turn of this group must end on time even if nobody waits.
    pub(super) fn limits(&self, id: GroupId) -> bool {
        self.groups.ledger.is_limited(id) || self.governs(id)
    }

    /// Whether the turn of this lane must, and no other P may help with its ring.
    pub(super) fn is_limited(&self, lane: u32) -> bool {
        lane != NO_LANE && self.limits(GroupId::from_index(lane as usize))
    }

    /// A governed group's turn ended.
    pub(super) fn charge_governed(&self, id: GroupId, used: u64, now: u64) {
        if matches!(self.groups.limit, Limit::None) {
            return;
        }
        let ledger = &self.groups.ledger;
        let waits = self.groups.governor.lock().charge(ledger, id, used, now);
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
            let ledger = &self.groups.ledger;
            let ready = |id| ledger.group(id).is_present();
            while let Some(id) = govern.governor.release_of(now, ready) {
                ledger.leave(id, SLICE);
                ledger.release(id, now);
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
        self.groups.governor.lock().forget(&self.groups.ledger, id);
    }

    /// The number of Ps changed. The caller then [lets go on](Self::release_governed) who may.
    pub(super) fn limit_governed(&self, procs: usize, now: u64) {
        let mut govern = self.groups.governor.lock();
        let ppm = govern.ppm;
        govern.governor.limit(ppm, procs, now);
    }

    /// A goroutine in a turn of a High or Normal lane waited so long for a P. A governed group waits because of the limit itself, and is only looked at as a
    /// group, when it may run ([`look_for_stalls`](Self::look_for_stalls)); and so is one with a quota, or a parent with one, if that may have been why.
    pub(super) fn note_wait(&self, lane: u32, ns: u64) {
        if let Limit::Adaptive(target) = self.groups.limit
            && !self.waited_for_itself(GroupId::from_index(lane as usize), ns)
        {
            self.groups.seen.fetch_add(1, Relaxed);
            let target = target.as_nanos() as u64; // clamped
            if ns > target && self.elastic_ran_for(target, ns, clock::now_ns()) {
                self.groups.late.fetch_add(1, Relaxed);
            }
        }
    }

    fn waited_for_itself(&self, id: GroupId, ns: u64) -> bool {
        let quota = || {
            let now = clock::now_ns();
            let ledger = &self.groups.ledger;
            ledger.is_limited(id) && ledger.kept_itself_waiting(id, now.saturating_sub(ns), now)
        };
        self.governs(id) || quota()
    }

    /// As [`note_wait`](Self::note_wait), of one without a group, if it is: they carry no stamps, but some are timed for the statistics. Hogs wait for each
    /// other.
    pub(in crate::sched) fn note_ungrouped_wait(&self, g: &G, ns: u64) {
        if g.lane() == ROOT_LANE && g.is_light() {
            self.note_wait(ROOT_LANE, ns);
        }
    }

    /// Whether what `p` runs is moved by the feedback: a governed group, or a Low one in what is left over. Its floor it has whatever others wait for.
    pub(super) fn is_elastic(&self, p: &P) -> bool {
        let (here, limit) = (&p.groups, self.groups.limit);
        let lane = here.lane(); // once: of another P it may change at any time
        matches!(limit, Limit::Adaptive(_))
            && lane != NO_LANE
            && (here.key().is_leftover() || self.governs(GroupId::from_index(lane as usize)))
    }

    /// Whether such a group still ran when somebody, who waits for a P at `now` and has for `waited`, had waited for longer than `target`. If not, a
    /// lower limit would not have helped: it waited for its like.
    fn elastic_ran_for(&self, target: u64, waited: u64, now: u64) -> bool {
        let beyond = now.saturating_sub(waited) + target;
        self.groups.elastic_at.load(Relaxed) > beyond || self.all_ps().any(|p| self.is_elastic(p))
    }

    /// The monitor's regular look: clocks that races set wrong, and the feedback.
    pub(in crate::sched) fn tend_groups(&self, now: u64) {
        let limit = {
            let mut govern = self.groups.governor.lock();
            self.look_for_stalls(&mut govern, now);
            if now < govern.looked + LOOK {
                return;
            }
            govern.looked = now;
            let (seen, late) = (&self.groups.seen, &self.groups.late);
            let waits = self.elastic_waited(&mut govern.stops);
            let limit = govern.feedback.as_mut().and_then(|feedback| {
                feedback.samples(seen.swap(0, Relaxed), late.swap(0, Relaxed));
                feedback.look(waits, now).map(|_| feedback.in_force())
            });
            if let Some(ppm) = limit {
                govern.ppm = ppm;
                govern.governor.limit(ppm, self.procs(), now);
            }
            limit
        };
        self.groups.ledger.resync();
        if let Some(ppm) = limit {
            self.groups.ledger.set_low_limit(ppm, now);
            self.release_governed(now);
            self.groups.look_again(self); // Low groups may go on that were stopped
        }
    }

    /// Tells the feedback for how long groups have stood that could run. Who ran between two looks has used something, or is running still.
    fn look_for_stalls(&self, govern: &mut Govern, now: u64) {
        let Some(feedback) = govern.feedback.as_mut() else {
            return;
        };
        if now < govern.stalls_at {
            return;
        }
        govern.stalls_at = now + STALLS;
        let ledger = &self.groups.ledger;
        let known = govern.standing.iter_mut().take(ledger.places());
        for (at, standing) in known.enumerate() {
            let id = GroupId::from_index(at);
            let usage = ledger.usage(id);
            let stands = match id {
                ROOT => self.root_stands(),
                _ => usage.queued != 0 && usage.running == 0,
            };
            let group = ledger.group(id);
            let fair = group.priority() != Priority::Low && !group.is_governed();
            // One that its own quota stops does not wait for others.
            if stands && fair && ledger.may_start(id, now) {
                let waited = standing.seen(usage.cpu_ns, now);
                if self.elastic_ran_for(feedback.target(), waited, now) {
                    feedback.stalled(waited);
                }
            } else {
                *standing = Standing::NOT;
            }
        }
    }

    /// Whether goroutines without a group wait and none of them runs. A P that takes no turns runs no others.
    fn root_stands(&self) -> bool {
        let runs = |p: &P| match p.groups.is_on() {
            true => p.groups.lane() == ROOT_LANE,
            false => !p.m.load(Relaxed).is_null(),
        };
        let waits = self.has_global() || self.all_ps().any(P::has_work);
        waits && !self.all_ps().any(runs)
    }

    /// Whether a group that lives in what others leave, or is governed, wants more than it has, or was stopped since it was last looked: those that run
    /// have nothing queued, if they are no more than the Ps. `stops`: how often they had been by then.
    fn elastic_waited(&self, stops: &mut u64) -> bool {
        let ledger = &self.groups.ledger;
        let (mut queued, mut stopped) = (false, 0);
        for id in (1..ledger.places()).map(GroupId::from_index) {
            let group = ledger.group(id);
            if group.is_governed() || group.priority() == Priority::Low {
                let usage = ledger.usage(id);
                queued |= usage.queued != 0;
                stopped += usage.throttled_count;
            }
        }
        let before = std::mem::replace(stops, stopped); // more than now, if one has gone
        queued || stopped > before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use runnext_core::group::feedback::ALL;
    use runnext_core::group::{GroupConfig, Lanes, Pick, Storage};

    use super::*;
    use crate::{Runtime, TaskGroup, m};

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

    #[test]
    fn who_has_run_between_two_looks_did_not_stand() {
        let mut standing = Standing::NOT;
        assert_eq!(standing.seen(7, 100), 0);
        assert_eq!(standing.seen(7, 150), 50);
        assert_eq!(standing.seen(8, 200), 0);
        assert_eq!(standing.seen(8, 230), 30);
    }

    /// Goroutines of a group that waited beyond the target for others of their kind had Low groups limited, who had no part in it.
    #[test]
    fn who_waits_for_its_like_limits_nobody() {
        let target_p99 = Duration::from_millis(1);
        let alone = Runtime::builder().procs(1).preemption(false);
        let adaptive = alone.cpu_limit(CpuLimit::Adaptive { target_p99 });
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { adaptive.build() }.unwrap();
        let limit = || {
            let _call = Call::brief();
            let shared = m::current().unwrap().shared();
            let limit = shared.groups.governor.lock().feedback.as_ref()?.limit();
            (limit != ALL).then_some(limit)
        };
        // One of `group` has one of another wait for 5 ms.
        let keep_waiting = |group: &TaskGroup| {
            let other = TaskGroup::new("other");
            let waits = move || {
                let waits = other.go(|| ());
                let end = clock::now_ns() + 5 * target_p99.as_nanos() as u64;
                while clock::now_ns() < end {}
                waits
            };
            let waits = group.go(waits).join().unwrap();
            waits.join().unwrap();
        };
        rt.run(|| {
            let (fair, low) = (TaskGroup::new("fair"), TaskGroup::builder("low"));
            (0..20).for_each(|_| keep_waiting(&fair));
            assert_eq!(limit(), None);
            let low = low.priority(Priority::Low).build();
            while limit().is_none() {
                keep_waiting(&low);
            }
        });
    }

    /// Once there had been a limit all Low groups had one, though it was all of the machine again.
    #[test]
    fn a_limit_that_has_risen_to_all_is_none() {
        let target_p99 = Duration::from_millis(1);
        let alone = Runtime::builder().procs(1).preemption(false);
        let adaptive = alone.cpu_limit(CpuLimit::Adaptive { target_p99 });
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { adaptive.build() }.unwrap();
        let low = |name| TaskGroup::builder(name).priority(Priority::Low).build();
        let (runs, waits) = (low("runs"), low("waits"));
        let looks = move || {
            let waits = waits.go(|| ()); // or nobody could use more
            let call = Call::brief();
            let m = m::current().unwrap();
            let (shared, id) = (m.shared(), m.p().groups.lane() as usize);
            let ledger = &shared.groups.ledger;
            let mut now = clock::now_ns();
            shared.groups.late.store(1, Relaxed);
            shared.groups.seen.store(1, Relaxed);
            let found: [_; 60] = std::array::from_fn(|_| {
                now += LOOK; // the monitor's own looks come too early from now on
                shared.tend_groups(now);
                let ppm = shared.groups.governor.lock().ppm;
                (ppm.is_some(), ledger.is_limited(GroupId::from_index(id)))
            });
            drop(call);
            waits.join().unwrap();
            found
        };
        let found = rt.run(|| runs.go(looks).join().unwrap());
        assert_eq!(found[0], (true, true));
        assert_eq!(found[59], (false, false));
    }

    /// Goroutines that waited for their own group's quota had Low groups limited.
    #[test]
    fn who_waits_for_its_own_quota_limits_nobody() {
        let target_p99 = Duration::from_millis(1);
        let alone = Runtime::builder().procs(1).preemption(false);
        let adaptive = alone.cpu_limit(CpuLimit::Adaptive { target_p99 });
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { adaptive.build() }.unwrap();
        // Whether one of the caller's group that waited for so long counts, as late too, while a Low group runs.
        let counts = |ns| {
            let _call = Call::brief();
            let m = m::current().unwrap();
            let groups = &m.shared().groups;
            let _kept = groups.governor.lock(); // or the counts would be taken away by a look
            groups.elastic_at.store(NEVER, Relaxed);
            let counts = [&groups.seen, &groups.late];
            counts.iter().for_each(|count| count.store(0, Relaxed));
            m.shared().note_wait(m.p().groups.lane(), ns);
            let found = counts.map(|count| count.load(Relaxed));
            groups.elastic_at.store(0, Relaxed);
            found == [1, 1]
        };
        // As above, of one that has been throttled meanwhile.
        let counts_throttled = move || {
            let start = clock::now_ns();
            let pauses = || TaskGroup::current().unwrap().stats().throttled_count;
            let before = pauses();
            while pauses() == before {
                let end = clock::now_ns() + 5_000_000;
                while clock::now_ns() < end {}
                crate::yield_now();
            }
            counts(clock::now_ns() - start)
        };
        let plain = TaskGroup::new("plain");
        let quota = TaskGroup::builder("quota").quota(0.5).build();
        let child = TaskGroup::builder("child").parent(&quota).build();
        let groups = [&plain, &quota, &child];
        rt.run(|| {
            let found = groups.map(|group| group.go(move || counts(5_000_000)).join().unwrap());
            assert_eq!(found, [true; 3], "none of them has used up its quota");
            let found = groups[1..].iter().map(|group| group.go(counts_throttled));
            assert!(found.into_iter().all(|waits| !waits.join().unwrap()));
        });
    }

    /// One that may run on one P at a time waits there for its like, whatever runs on the others.
    #[test]
    fn who_may_run_on_few_ps_waits_there_for_itself() {
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { Runtime::builder().procs(2).build() }.unwrap();
        let waits_for_itself = || {
            let _call = Call::brief();
            let m = m::current().unwrap();
            let id = GroupId::from_index(m.p().groups.lane() as usize);
            // Never throttled, and without credit.
            (m.shared().groups.ledger).kept_itself_waiting(id, NEVER, 0)
        };
        let found = [0.5, 1.0, 1.9].map(|cores| {
            let group = TaskGroup::builder("quota").quota(cores).build();
            rt.run(|| group.go(waits_for_itself).join().unwrap())
        });
        assert_eq!(found, [true, true, false]);
    }

    /// Only groups were looked at, and who has none may be what the limit is there for.
    #[test]
    fn wake_ups_of_ungrouped_goroutines_are_looked_at() {
        let target_p99 = Duration::from_millis(1);
        let adaptive = Runtime::builder().cpu_limit(CpuLimit::Adaptive { target_p99 });
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { adaptive.procs(1).build() }.unwrap();
        rt.run(|| {
            let (tx, rx) = crate::chan::bounded::<()>(0);
            let other = crate::go(move || rx.iter().count());
            let seen = (0..5_000_000).any(|_| {
                tx.send(()).unwrap();
                let _call = Call::brief();
                let groups = &m::current().unwrap().shared().groups;
                groups.seen.load(Relaxed) != 0
            });
            drop(tx);
            other.join().unwrap();
            assert!(seen);
        });
    }

    /// Its last turn ended after it was forgotten, and the next group in its place had the rest of its slice.
    #[test]
    fn a_group_that_has_gone_is_not_known_again() {
        let config = GroupConfig {
            governed: true,
            ..GroupConfig::default()
        };
        let ledger = Ledger::new(1, 0);
        let mut govern = Govern::new(Limit::Part(500_000), 1, 0);
        govern.governor.reserve(2);
        let old = ledger.add(&config, 0).unwrap();
        assert!(!govern.charge(&ledger, old, SLICE / 2, SLICE));
        govern.forget(&ledger, old);
        assert!(!govern.charge(&ledger, old, SLICE, 2 * SLICE));
        ledger.remove(old).unwrap();
        let new = ledger.add(&config, 2 * SLICE).unwrap();
        assert_eq!(old, new, "the same place");
        assert!(!govern.charge(&ledger, new, SLICE / 2, 3 * SLICE));
        assert!(govern.charge(&ledger, new, SLICE / 2, 4 * SLICE));
        assert!(!ledger.may_start(new, 4 * SLICE));
    }

    /// A group with a slice of 100 ms had all of it before it was looked whether its 20 ms were used up.
    #[test]
    fn a_governed_turn_is_no_longer_than_what_is_left_of_the_slice() {
        let config = GroupConfig {
            governed: true,
            slice: 5 * SLICE,
            ..GroupConfig::default()
        };
        let builder = Runtime::builder().procs(1).preemption(false);
        let limited = builder.cpu_limit(CpuLimit::Fraction(0.5));
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { limited.build() }.unwrap();
        let group = TaskGroup::builder("long").governed(true);
        let group = group.slice(Duration::from_nanos(config.slice)).build();
        let turn = move || {
            let _call = Call::brief();
            let here = &m::current().unwrap().p().groups;
            here.until.load(Relaxed) - here.since.load(Relaxed)
        };
        let first = rt.run(|| group.go(turn).join().unwrap());
        assert_eq!(first, SLICE);

        let ledger = Ledger::new(1, 0);
        let mut govern = Govern::new(Limit::Part(500_000), 1, 0);
        govern.governor.reserve(2);
        let id = ledger.add(&config, 0).unwrap();
        let mut lanes: Lanes<()> = Lanes::new(0, Storage::new(2));
        let mut turn = |now| {
            lanes.pushed(&ledger, id, 1, now);
            let Pick::Run { until, .. } = lanes.pick(&ledger, now, false, false) else {
                panic!("it may run");
            };
            lanes.end(&ledger, now, 0);
            until - now
        };
        govern.charge(&ledger, id, SLICE / 4, SLICE);
        assert_eq!(turn(SLICE), SLICE / 4 * 3);
        govern.governor.limit(None, 1, SLICE);
        govern.charge(&ledger, id, SLICE, SLICE);
        assert_eq!(turn(SLICE), 5 * SLICE, "there is no limit any more");
    }
}
