//! Queueing a goroutine by its lane, and who gives way for it.
//!
//! A goroutine of the lane whose turn it is on the waker's P goes into the ring, or `runnext`, like any other; a hog into the lane's list.
//! One of another lane goes into that lane's list; then, if no P is idle, it may take the turn of the least entitled P:
//! `runnext_core::group::preempt_after` says of which, and when. A light one may take that of a hog of its own lane. The goroutine moves to
//! that P.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::group::preempt::MIN_RUN;
use runnext_core::group::{GroupId, ROOT, preempt_after};
use runnext_core::list::List;
use runnext_sys::clock;

use super::ROOT_LANE;
use super::watch::PATIENCE;
use crate::g::G;
use crate::m;
use crate::p::P;
use crate::sched::Shared;

/// Wake-ups within a turn are measured in one of so many dispatches: a prime, or of those that take turns always the same one would be.
const SAMPLE: u32 = 61;
/// Ticks to the unit of a stamp, as a shift: less than a microsecond.
const STAMP_SHIFT: u32 = 10;

/// A time as a header keeps it; never 0.
#[inline]
fn stamp() -> u32 {
    (clock::ticks() >> STAMP_SHIFT) as u32 | 1
}

/// The time since a stamp, in ns.
pub(super) fn since(stamp: u32) -> u64 {
    let now = (clock::ticks() >> STAMP_SHIFT) as u32 | 1;
    let units = now.wrapping_sub(stamp);
    // Clocks of two cores may differ by a little.
    let units = if units > u32::MAX / 2 { 0 } else { units };
    clock::ticks_to_ns(u64::from(units) << STAMP_SHIFT)
}

impl Shared {
    /// A goroutine was made runnable, `woken` or new, by the owner of `p`. While groups are in use. True: another P may help, and nobody was told.
    pub(in crate::sched) fn put_in_lane(&self, p: &P, g: &G, lane: u32, woken: bool) -> bool {
        let here = &p.groups;
        if lane != ROOT_LANE {
            self.put_in_list(p, g, lane);
            return false;
        }
        let waits = here.is_on() && here.lane() != ROOT_LANE; // for its lane's turn
        let kept = woken && !waits && p.keeps_its_own(&p.runq);
        self.put_ungrouped(p, g);
        if waits {
            self.root_woke(p);
        }
        self.may_help(!kept)
    }

    /// A goroutine is woken in the turn of its own group on `p`: once in a while it is measured how long it waits then.
    #[inline]
    pub(in crate::sched) fn sample_wait(&self, p: &P, g: &G) {
        if p.tick.load(Relaxed).is_multiple_of(SAMPLE) {
            g.stamp().store(stamp(), Relaxed);
        }
    }

    /// Whether an idle P could run a new goroutine of a group with a limit, which it finds in lists only. Not for one that is woken: it waits for what is
    /// left of the turn at most, and a P woken for each would use up the same limit, at the price of a thread's wake-up.
    #[cold]
    pub(in crate::sched) fn may_start_elsewhere(&self, lane: u32) -> bool {
        let id = GroupId::from_index(lane as usize);
        self.searchers.idle() != 0 && self.groups.ledger.may_start(id, clock::now_ns())
    }

    /// What the full ring of the turn on `p` gave away joins the list of its lane.
    pub(in crate::sched) fn list_overflow(&self, p: &P, gs: List<G>) {
        p.groups
            .take_overflow(&self.groups.ledger, gs, clock::now_ns());
    }

    /// A goroutine of `lane` gave way on `p`, or was woken to queue at the end, and goes into a list; by the owner of `p`.
    pub(in crate::sched) fn put_back(&self, p: &P, g: &G, lane: u32) {
        if lane != p.groups.lane() {
            return self.put_in_list(p, g, lane);
        }
        let (home, now) = (self.home_of(p, lane), clock::now_ns());
        home.groups
            .list(&self.groups.ledger, lane, g.ptr(), false, now);
        if home.id != p.id {
            self.wake_for(lane, now);
        }
    }

    /// One of `lane` was queued where its waker does not run it: if its group may run, an idle P looks, or the monitor. If it may not, whoever lets it
    /// wakes one; so nobody is woken who would find nothing.
    fn wake_for(&self, lane: u32, now: u64) {
        let id = GroupId::from_index(lane as usize);
        if !self.limits(id) {
            return self.wake_one(); // nobody has to let it; one fence will do
        }
        fence(SeqCst); // pairs with that of who lets the group go on, in `wake_one`
        if self.groups.ledger.may_start(id, now) {
            self.wake_one();
        }
    }

    /// A grouped goroutine was made runnable by somebody without a P, who then wakes one. A signal handler may, in user state.
    pub(in crate::sched) fn put_outside(&self, g: &G, lane: u32) {
        let at = self.groups.outside.fetch_add(1, Relaxed) % self.procs();
        if let Some(p) = self.p(at) {
            self.put_in_list(p, g, lane);
        }
    }

    /// Where a goroutine that waits in a list does: on `p`, but for groups that have work for one P only.
    pub(super) fn home_of<'a>(&'a self, p: &'a P, lane: u32) -> &'a P {
        let id = GroupId::from_index(lane as usize);
        if !self.groups.ledger.is_narrow(id) {
            return p;
        }
        self.p(lane as usize % self.procs()).unwrap_or(p)
    }

    /// Queues in a list of `p`'s, and sees who gives way.
    fn put_in_list(&self, p: &P, g: &G, lane: u32) {
        let now = clock::now_ns();
        let p = self.home_of(p, lane);
        g.stamp().store(stamp(), Relaxed);
        p.groups
            .list(&self.groups.ledger, lane, g.ptr(), false, now);
        if self.searchers.idle() == 0 {
            self.claim_turn(p, g.ptr(), lane, now);
        }
        self.wake_for(lane, now);
    }

    /// `g`, just queued on `home`, takes the turn of the least entitled P of those it may take one of.
    fn claim_turn(&self, home: &P, g: NonNull<G>, lane: u32, now: u64) {
        let ledger = &self.groups.ledger;
        let id = GroupId::from_index(lane as usize);
        let wake = ledger.wake(id);
        let root = ledger.wake(ROOT).key;
        let key_of = |p: &P| match p.groups.is_on() {
            true => p.groups.key(),
            false => root, // no turns there: it runs ungrouped ones
        };
        let victims = self.all_ps().take(self.procs()).filter(|p| {
            let here = &p.groups;
            let at = |least| here.since.load(Relaxed).saturating_add(least);
            here.lane() != lane
                && preempt_after(wake, key_of(p)).is_some_and(|least| !here.ends_by(at(least), now))
        });
        let worst = victims.reduce(|a, b| match key_of(b).is_worse(key_of(a)) {
            true => b,
            false => a,
        });
        let (p, least) = match worst {
            Some(p) => (p, preempt_after(wake, key_of(p)).unwrap_or(0)),
            None => match self.hog_of(lane, g, now) {
                Some(p) => (p, MIN_RUN),
                None => return,
            },
        };
        if p.id != home.id && !self.move_listed(home, p, g, id, now) {
            return; // somebody has it already
        }
        self.cut_short(p, p.groups.since.load(Relaxed).saturating_add(least), now);
    }

    /// A P on which a hog has the turn of `lane`, if `g`, of the same, is light.
    fn hog_of(&self, lane: u32, g: NonNull<G>, now: u64) -> Option<&P> {
        // SAFETY: headers are type-stable; somebody else may run it by now, and then it is not found.
        let light = unsafe { g.as_ref() }.is_light();
        let mut ps = self.all_ps().take(self.procs());
        ps.find(|p| {
            let here = &p.groups;
            let at = here.since.load(Relaxed).saturating_add(MIN_RUN);
            light && here.has_hog(lane) && !here.ends_by(at, now)
        })
    }

    /// The root lane got something on `p` while a group has its turn there.
    fn root_woke(&self, p: &P) {
        let ledger = &self.groups.ledger;
        let here = &p.groups;
        let now = clock::now_ns();
        here.lanes().root_ready(ledger, now);
        if let Some(least) = preempt_after(ledger.wake(ROOT), here.key()) {
            let at = here.since.load(Relaxed).saturating_add(least);
            if !here.ends_by(at, now) {
                self.cut_short(p, at, now);
            }
        }
    }

    /// Somebody of the root lane waits on `p`, or where every P looks, and no P is idle: it takes the turn of a group here if it may, as if it
    /// had been woken here. None: there is none. By the monitor, which looks at the turns next.
    pub(in crate::sched) fn claim_for_root(&self, p: &P, now: u64) -> Option<bool> {
        let (here, ledger) = (&p.groups, &self.groups.ledger);
        if !here.is_on() {
            return None;
        }
        let mut lanes = here.lanes(); // turns begin and end under it
        lanes.current().filter(|&(id, _)| id != ROOT)?;
        lanes.root_ready(ledger, now); // the turn's end comes before the P may be idle (I5)
        let Some(least) = preempt_after(ledger.wake(ROOT), here.key()) else {
            return Some(false);
        };
        let at = here.since.load(Relaxed).saturating_add(least);
        if here.ends_by(at, now) {
            return Some(false);
        }
        here.end_soon(p);
        here.until.fetch_min(at, Relaxed);
        Some(true)
    }

    /// Moves a goroutine, or one of its group that has waited for longer, from one P's list to the head of another's. False: it is not there any more.
    fn move_listed(&self, from: &P, to: &P, g: NonNull<G>, id: GroupId, now: u64) -> bool {
        let ledger = &self.groups.ledger;
        let moved = {
            let mut lanes = from.groups.lanes();
            let at = lanes.queue(id).near(g);
            at.and_then(|at| from.groups.pluck(&mut lanes, ledger, id, at, now))
        };
        match moved {
            Some(g) => {
                to.groups.list(ledger, id.index() as u32, g, true, now);
                true
            }
            None => false,
        }
    }

    /// The turn on `p` ends at its next switch, and by force not before `at`.
    fn cut_short(&self, p: &P, at: u64, now: u64) {
        p.groups.end_soon(p);
        p.groups.until.fetch_min(at, Relaxed);
        let own = m::current().filter(|m| std::ptr::eq(m.p_ptr(), p));
        let at = match own {
            // Between two goroutines: the next dispatch sees it.
            Some(m) if m.g().is_none() => return,
            // The note is read on the way out of this call, if it may move the goroutine.
            Some(m) if now >= at => {
                m.note.leave(p.slice.load(Relaxed), false);
                now + PATIENCE
            }
            _ => at,
        };
        self.hurry(at.max(now));
    }
}

#[cfg(test)]
mod tests {
    use runnext_core::group::Priority;
    use runnext_sys::clock;

    use crate::sched::call::Call;
    use crate::{Runtime, TaskGroup, go, m};

    /// Whether an ungrouped goroutine may take the caller's turn, and whether that is to end then.
    fn claim() -> (Option<bool>, bool) {
        let _call = Call::brief();
        let m = m::current().unwrap();
        let claimed = m.shared().claim_for_root(m.p(), clock::now_ns());
        (claimed, m.p().groups.over.load(super::Relaxed))
    }

    /// The monitor asked whoever ran, of whatever group.
    #[test]
    fn a_group_gives_way_to_ungrouped_ones_by_the_policy() {
        // Nobody else claims it.
        let alone = Runtime::builder().procs(1).preemption(false);
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { alone.build() }.unwrap();
        rt.run(|| {
            let of = |priority| TaskGroup::builder("one").priority(priority).build();
            let (high, low) = (of(Priority::High), of(Priority::Low));
            assert_eq!(high.go(claim).join().unwrap(), (Some(false), false));
            assert_eq!(low.go(claim).join().unwrap(), (Some(true), true));
            assert_eq!(go(claim).join().unwrap().0, None);
        });
    }

    /// Who had just been queued was looked for from the head of its list on, whatever waited there, with the lock held.
    #[test]
    fn of_a_long_list_the_first_is_moved() {
        let alone = Runtime::builder().procs(1).preemption(false);
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { alone.build() }.unwrap();
        // Of so many that wait: the places found for the first and for the last, and for the first when it has gone.
        let find = |n: usize| {
            let group = TaskGroup::new("many");
            let all: Vec<_> = (0..n).map(|_| group.go(|| ())).collect();
            let found = {
                let _call = Call::brief();
                let mut lanes = m::current().unwrap().p().groups.lanes();
                let id = lanes.groups()[0];
                let queue = lanes.queue(id);
                let ends = [queue.iter().next(), queue.iter().last()].map(Option::unwrap);
                let [first, last] = ends.map(|g| queue.near(g));
                queue.pluck(0).unwrap();
                let gone = queue.near(ends[0]);
                // SAFETY: it was taken out just now.
                unsafe { queue.push(ends[0], true) };
                [first, last, gone]
            };
            all.into_iter().for_each(|one| one.join().unwrap());
            found
        };
        rt.run(|| {
            assert_eq!(find(60), [Some(0), Some(59), None]);
            assert_eq!(find(1000), [Some(0), Some(0), Some(0)]);
        });
    }
}
