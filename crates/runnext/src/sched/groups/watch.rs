//! The monitor's look at turns: whose is to end, and when to look again.
//!
//! | what it sees on a P                                  | when the turn is to end                                              |
//! |------------------------------------------------------|----------------------------------------------------------------------|
//! | others wait, or the group has a limit                | when its slice is used up; later, if its thread waited for a CPU     |
//! | it was cut short                                     | as the waker said                                                    |
//! | Low, in what is left over; others wait in a turn elsewhere, or are due | now; one P at a time, and only after the least a turn lasts |
//! | far more of the group wait elsewhere                 | when its slice is used up: at a switch, or when who runs had been left alone |
//! | only Low groups wait                                 | the same, but not before their floor is due                          |
//! | somebody is due here, or a light one waits           | the turn goes on; who runs makes way, if it is a hog or another lane's |
//!
//! The rest of what ends turns is in `stop` and `wake`.

use std::cell::Cell;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::group::GroupId;
use runnext_core::group::preempt::MIN_RUN;
use runnext_core::owner::{Seen, State};
use runnext_sys::clock;

use super::ROOT_LANE;
use super::local::{Local, NO_LANE};
use super::turn;
use crate::g::G;
use crate::m::M;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::preempt;
use crate::sched::timers::NEVER;

/// A thread that makes no call for this long after it was left a note gets a signal, in ns.
pub(super) const PATIENCE: u64 = 150_000;
/// How soon the monitor looks again at a turn that should have ended, in ns; and how rarely, at most, if that does not end.
const AGAIN: u64 = 100_000;
const SELDOM: u64 = 2_000_000;

/// A thread that waits for a CPU is left alone for this long at least, in ns. It may be this look that keeps it from running: the monitor goes before
/// it, and would find that it waited again, and look again, for as long as a turn may be stretched.
const LEEWAY: u64 = 250_000;
/// A turn on a busy machine lasts for so many slices longer, at most, until it has had one. A guess.
const STRETCH: u64 = 4;

/// What the monitor saw of a P's turn.
#[derive(Clone, Copy)]
pub(in crate::sched) struct Watched {
    m: u32,
    /// The thread's word when it was left a note, and when that was; 0: it was not.
    word: Seen,
    asked: u64,
    cpu: u64,
    at: u64,
    /// Dispatches so far, and since when as many.
    tick: u32,
    since: u64,
}

impl Watched {
    pub(in crate::sched) const NEVER: Watched = Watched {
        m: u32::MAX,
        word: Seen::NEW,
        asked: 0,
        cpu: 0,
        at: 0,
        tick: 0,
        since: 0,
    };
}

/// Two groups of those that wait: enough to know of each lane whether another one does.
#[derive(Default)]
struct Two([Option<GroupId>; 2]);

impl Two {
    fn add(&mut self, id: GroupId) {
        match &mut self.0 {
            [first @ None, _] => *first = Some(id),
            [first, second @ None] if *first != Some(id) => *second = Some(id),
            _ => {}
        }
    }

    fn is_full(&self) -> bool {
        self.0[1].is_some()
    }

    fn any_but(&self, lane: u32) -> bool {
        let mut found = self.0.iter().flatten();
        found.any(|id| id.index() as u32 != lane)
    }
}

/// Which groups wait.
#[derive(Default)]
struct Waiting {
    fair: Two,
    low: Two,
    /// Somebody of the root lane waits on a P.
    root: bool,
    /// Somebody who is not of a Low group waits in its turn, or without a group, or its time has come; and no P has been told to help yet.
    wants: Cell<bool>,
}

impl Waiting {
    fn add(&mut self, id: GroupId, is_fair: bool) {
        match is_fair {
            true => self.fair.add(id),
            false => self.low.add(id),
        }
    }
}

/// When a turn from `since` to `until`, of which its thread waited for `stolen` ns, ends if it still waits; None if not later than it
/// would.
fn stretched(since: u64, until: u64, stolen: u64, now: u64) -> Option<u64> {
    let most = until.saturating_sub(since).saturating_mul(STRETCH);
    let later = until.saturating_add(stolen.min(most));
    (until <= now && now < later).then(|| later.max(now + LEEWAY))
}

/// How soon to look again at a thread that was asked so long ago to end its turn, and does not. One that waits for a CPU can do nothing before it has that, and
/// on a busy machine it may be these looks that keep it from running: so they become fewer.
fn again_after(asked: u64) -> u64 {
    (2 * asked).clamp(AGAIN, SELDOM)
}

/// A turn is to end at `end`, for the sake of no one in particular: after that at its next switch, and by force when who runs was long enough `alone`.
fn soon(p: &P, end: u64, alone: u64, now: u64) -> u64 {
    let here = &p.groups;
    if now < end || alone <= now {
        return end;
    }
    let before = here.until.load(Relaxed);
    // Else somebody has just brought it forward.
    let _ = here.until.compare_exchange(before, alone, Relaxed, Relaxed);
    here.end_soon(p);
    here.until.load(Relaxed)
}

impl Shared {
    /// The monitor's look at all turns. Returns when to look again. An M that a P names is alive.
    pub(in crate::sched) fn watch_turns(&self, seen: &mut Vec<Watched>, now: u64) -> u64 {
        if !self.groups.is_used() {
            return u64::MAX;
        }
        self.groups.hurry.store(u64::MAX, SeqCst); // from here on this look sees it
        self.run_due_groups(now);
        self.tend_groups(now);
        let procs = self.procs();
        if seen.len() < procs {
            seen.resize(procs, Watched::NEVER); // within its capacity
        }
        let waiting = self.waiting_groups(now);
        let ps = self.all_ps().take(procs).zip(seen.iter_mut());
        let next = ps.map(|(p, seen)| self.watch_turn(p, seen, &waiting, now));
        next.min().unwrap_or(u64::MAX)
    }

    /// A turn is to end at `when`: the monitor looks then. It may be looking just now, and have seen the turn before it was cut
    /// short; so the time is left where it looks once more before it sleeps.
    pub(super) fn hurry(&self, when: u64) {
        self.groups.hurry.fetch_min(when, SeqCst);
        fence(SeqCst); // pairs with the monitor's before it sleeps: it sees this, or we how long it will
        self.monitor.wake_by(when);
    }

    /// The monitor's look at one P's turn: ends it if its time is up. Returns when to look again.
    fn watch_turn(&self, p: &P, seen: &mut Watched, waiting: &Waiting, now: u64) -> u64 {
        let here = &p.groups;
        if !here.is_on() {
            // Ungrouped ones are charged too while groups are at work.
            if self.groups.ledger.any_active() {
                here.set_on(true);
            }
            *seen = Watched::NEVER;
            return u64::MAX;
        }
        // SAFETY: the caller's promise.
        let Some(m) = (unsafe { p.m.load(Acquire).as_ref() }) else {
            *seen = Watched::NEVER;
            return u64::MAX;
        };
        let (computes, stolen) = self.look_at_thread(p, m, seen);
        let lane = here.lane();
        let must =
            here.over.load(Relaxed) || self.is_limited(lane) || self.contends(p, lane, waiting);
        let settled = self.note_dispatches(p, seen, now);
        let alone = seen.since + m.g().map_or(0, |g| preempt::min_run_at_home(self, g));
        let hog = m.g().is_some_and(|g| !g.is_light());
        let waits = (settled || hog) && here.light_waits();
        let woken = self
            .due_may_run(p, alone, now)
            .min(if waits { alone } else { NEVER });
        let slice = || self.end_of_slice(here, m, stolen, now);
        let until = match (lane, must) {
            (NO_LANE, true) => now,
            // Nothing is left over. One P will do.
            _ if here.key().is_leftover() && !here.graced.load(Relaxed) && waiting.wants.get() => {
                let soonest = here.since.load(Relaxed) + MIN_RUN;
                if soonest <= now {
                    waiting.wants.set(false);
                    here.wanted.store(true, Relaxed);
                }
                soonest
            }
            // Cut short by somebody who woke up.
            (_, true) if here.over.load(Relaxed) => here.until.load(Relaxed),
            (_, true) => slice(),
            (_, false) if self.is_outnumbered(p, lane) => soon(p, slice(), alone, now),
            (_, false) if waiting.low.any_but(lane) => {
                let floor = self.groups.ledger.floor_due_at(here.since.load(Relaxed));
                soon(p, slice().max(floor), alone, now)
            }
            (_, false) => u64::MAX,
        };
        if now < until.min(woken) {
            seen.asked = 0;
            return until.min(woken);
        }
        if until <= now {
            here.end_soon(p);
        }
        let again = self.insist(p, m, seen, now, computes);
        again.map_or(u64::MAX, |after| now + after)
    }

    /// When the slice of the running turn is used up, of which its thread was on no CPU for `stolen` ns. If it waits for one it gets that later, or on
    /// a busy machine turns would be too short to get anywhere. Not all of it: it may be a thread that gives its CPU away itself.
    fn end_of_slice(&self, here: &Local, m: &M, stolen: u64, now: u64) -> u64 {
        let (since, until) = (here.since.load(Relaxed), here.until.load(Relaxed));
        let waits = || m.kernel_state() == Some(b'R');
        match stretched(since, until, stolen, now) {
            Some(later) if waits() => later,
            _ => until,
        }
    }

    /// False: others run than at the last look. Where goroutines come and go nobody waits for long.
    fn note_dispatches(&self, p: &P, seen: &mut Watched, now: u64) -> bool {
        let tick = p.tick.load(Relaxed);
        if seen.tick != tick {
            (seen.tick, seen.since) = (tick, now);
            return false;
        }
        true
    }

    /// When the running goroutine makes way for those whose time has come on `p`, or will next. Until `alone` it is not disturbed by one of its own
    /// lane, whom the next dispatch wakes; of other lanes it is known whether they may take this turn when they are awake.
    fn due_may_run(&self, p: &P, alone: u64, now: u64) -> u64 {
        let (lane, soonest) = (p.groups.lane(), p.groups.since.load(Relaxed) + MIN_RUN);
        let next = p.timers.next();
        if next > now {
            return next.max(soonest);
        }
        let mut own = false;
        let other = p.timers.any_due(self, now, |due| {
            own |= due == Some(lane);
            due != Some(lane)
        });
        match other {
            Some(true) => soonest,
            Some(false) if own => alone,
            Some(false) => p.timers.next().max(soonest).max(now + AGAIN), // those had been woken otherwise
            None => now + AGAIN,
        }
    }

    /// Whether a lane is not that of a Low group.
    fn is_fair(&self, lane: u32) -> bool {
        let id = GroupId::from_index(lane as usize);
        self.groups.ledger.wake(id).key.is_fair()
    }

    /// Whether somebody's time has come, on any P, who is not of a Low group.
    fn fair_is_due(&self, now: u64) -> bool {
        let fair = |lane: Option<u32>| lane.is_none_or(|lane| self.is_fair(lane));
        self.all_ps()
            .any(|p| p.timers.any_due(self, now, fair) == Some(true))
    }

    /// Whether somebody's time has come on `p` who may be of the root lane. Those of groups are looked after where turns are.
    pub(in crate::sched) fn timer_waits(&self, p: &P, now: u64) -> bool {
        // Nobody has a turn on one that is too many.
        match p.groups.is_on() && p.id < self.procs() {
            true => {
                let root = |lane: Option<u32>| lane.is_none_or(|lane| lane == ROOT_LANE);
                p.timers.any_due(self, now, root) != Some(false)
            }
            false => p.timers.next() <= now,
        }
    }

    /// Leaves a note; a thread that computes, or does not read it, gets a signal. Returns how soon to look again. None: it is blocked, and would see neither. If
    /// somebody waits its P is taken away (`Keeper::look_at`), else the turn ends when it is awake: after a section at once, otherwise at a regular look.
    fn insist(&self, p: &P, m: &M, seen: &mut Watched, now: u64, computes: bool) -> Option<u64> {
        let word = m.look();
        let state = match word.state() {
            State::User => m.kernel_state(),
            _ => None,
        };
        let first = seen.asked == 0 || seen.word != word;
        let asleep = matches!(state, Some(b'S' | b'D')); // perhaps for a moment only: the next look knows
        if word.state() == State::Blk || asleep && !first {
            m.note.withdraw();
            if self.stopped.load(SeqCst) {
                m.note.leave_last(); // it may have been replaced by the one taken back
            }
            return None;
        }
        let slice = p.slice.load(Relaxed);
        // Who had the turn from its beginning may not have been seen before its end.
        let since = match p.groups.dispatches(p) {
            1 => p.groups.since.load(Relaxed).min(seen.since),
            _ => seen.since,
        };
        let light = m.g().is_some_and(G::is_light);
        let blamed = now >= since + if light { preempt::MIN_RUN_NS } else { 0 };
        if first {
            (seen.asked, seen.word) = (now, word);
            m.note.leave(slice, blamed);
        }
        let asked = now - seen.asked;
        if asleep {
            return Some(AGAIN);
        }
        if !self.config.preemption {
            return Some(SELDOM); // no more can be done
        }
        if !computes && asked < PATIENCE {
            return Some(PATIENCE - asked);
        }
        if state == Some(b'R') {
            preempt::request(m, slice, blamed);
        }
        Some(again_after(asked))
    }

    /// Reads the clock of the turn's thread. Whether it has computed since the last look, and for how long of the turn it was on no CPU: that
    /// time is not the group's.
    fn look_at_thread(&self, p: &P, m: &M, seen: &mut Watched) -> (bool, u64) {
        let Some(cpu) = m.cpu_ns() else {
            return (false, 0);
        };
        let now = clock::now_ns(); // the look began earlier, perhaps much: the monitor too waits for a CPU
        let (same, passed) = (seen.m == m.id, now - seen.at);
        let ran = cpu.saturating_sub(seen.cpu);
        (seen.m, seen.cpu, seen.at) = (m.id, cpu, now);
        let computes = same && ran > passed / 4 * 3;
        let since = p.groups.since.load(Relaxed);
        let away = match p.groups.lane() {
            NO_LANE => 0,
            _ => p.groups.meter.look(m, cpu, since, now),
        };
        (computes, away)
    }

    /// Groups of which something waits that may run, on any P. Those of which all runs are not among them, though `Lanes` counts them until
    /// their turn ends. Not all, once every lane has one to make way for: there may be thousands.
    fn waiting_groups(&self, now: u64) -> Waiting {
        let mut waiting = Waiting::default();
        let may_start = |id| self.groups.ledger.may_start(id, now);
        let mut crowded = false;
        for p in self.all_ps() {
            let (here, lane) = (&p.groups, p.groups.lane());
            waiting.root |= here.root_queues(p);
            if lane != NO_LANE && lane != ROOT_LANE && !here.ring.is_empty() {
                let id = GroupId::from_index(lane as usize);
                if !self.is_limited(lane) && may_start(id) {
                    waiting.add(id, self.is_fair(lane));
                    // Who is in `next` is about to run.
                    crowded |= here.key().is_fair() && here.ring.has_local();
                }
            }
            if here.listed() != 0 && !waiting.fair.is_full() {
                let mut lanes = here.lanes();
                for at in 0..lanes.groups().len() {
                    let id = lanes.groups()[at];
                    if lanes.queue(id).len() != 0 && may_start(id) {
                        waiting.add(id, self.is_fair(id.index() as u32));
                    }
                    if waiting.fair.is_full() {
                        break;
                    }
                }
            }
        }
        let low = self.all_ps().any(|p| p.groups.key().is_leftover());
        let crowded = crowded || waiting.root;
        waiting.wants.set(crowded || low && self.fair_is_due(now));
        waiting
    }

    /// Whether anything of other lanes waits that may run, anywhere. Low groups do not beside another: they get their floor.
    fn contends(&self, p: &P, lane: u32, waiting: &Waiting) -> bool {
        lane != ROOT_LANE && (self.has_global() || waiting.root)
            || waiting.fair.any_but(lane)
            || waiting.low.any_but(lane) && !p.groups.key().is_fair()
    }

    /// Whether of `lane`, which runs on `p`, far more wait elsewhere than here.
    fn is_outnumbered(&self, p: &P, lane: u32) -> bool {
        if lane == NO_LANE || lane == ROOT_LANE {
            return false;
        }
        let id = GroupId::from_index(lane as usize);
        let here = p.groups.waiting(id) + 1;
        let holders = self.groups.ledger.group(id).holders();
        holders
            .filter(|&at| at != p.id)
            .filter_map(|at| self.p(at))
            .any(|other| turn::outnumbers(other.groups.waiting(id), here))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sched::call::Call;
    use crate::{Runtime, TaskGroup, go, m};

    const SLICE: u64 = 2_000_000;

    #[test]
    fn who_waits_for_a_cpu_gets_its_slice_later() {
        let waited = |stolen, now| stretched(0, SLICE, stolen, now);
        assert_eq!(waited(0, SLICE), None);
        assert_eq!(waited(SLICE, SLICE - 1), None, "it is not over yet");
        assert_eq!(waited(SLICE, SLICE), Some(2 * SLICE));
        let most = (1 + STRETCH) * SLICE;
        assert_eq!(waited(u64::MAX, SLICE), Some(most));
        assert_eq!(waited(u64::MAX, most), None);
    }

    #[test]
    fn two_groups_tell_of_each_lane_whether_another_waits() {
        let waiting = |ids: &[usize]| {
            let mut waiting = Two::default();
            ids.iter()
                .for_each(|&id| waiting.add(GroupId::from_index(id)));
            [ROOT_LANE, 1, 2, 3, NO_LANE].map(|lane| waiting.any_but(lane))
        };
        assert_eq!(waiting(&[]), [false; 5]);
        assert_eq!(waiting(&[2, 2]), [true, true, false, true, true]);
        assert_eq!(waiting(&[2, 2, 1]), [true; 5]);
        assert_eq!(waiting(&[3, 1, 2]), [true; 5]);
    }

    /// The count of a group that runs is settled when its turn ends: until then it seemed to wait, and all others made way for it again and again.
    #[test]
    fn a_group_that_only_runs_does_not_wait() {
        // Its one P does nothing else meanwhile.
        let alone = Runtime::builder().procs(1).preemption(false);
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { alone.build() }.unwrap();
        let waits = || {
            let _call = Call::brief();
            let shared = m::current().unwrap().shared();
            let waiting = shared.waiting_groups(clock::now_ns());
            waiting.fair.any_but(ROOT_LANE)
        };
        let both = move || {
            let alone = waits();
            let child = go(|| ());
            let behind = waits();
            child.join().unwrap();
            (alone, behind)
        };
        let found = rt.run(|| TaskGroup::new("one").go(both).join().unwrap());
        assert_eq!(found, (false, true));
    }

    /// Whoever ran was stopped for each timer, a request of half a millisecond for the next one too; and the root lane got the turn, whoever's the timer was.
    #[test]
    fn light_ones_are_left_alone_by_timers_of_their_own_group() {
        // Nobody but the one P fires them, when it dispatches.
        let alone = Runtime::builder().procs(1).preemption(false);
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { alone.build() }.unwrap();
        // What the monitor would do about a goroutine of `group` that is due on the P of one of `own`.
        let look = |own: &TaskGroup, group: &TaskGroup| {
            let group = group.clone();
            let body = move || loop {
                let sleeper = group.go(|| crate::time::sleep(Duration::from_millis(5)));
                // It goes to sleep: one of another group once this turn has lasted for the least.
                while sleeps_until() == 0 && !sleeper.is_finished() {
                    crate::yield_now();
                }
                while clock::now_ns() < sleeps_until() {}
                if let Some(found) = due() {
                    return found;
                }
                sleeper.join().unwrap(); // too late: it was woken on the way
            };
            rt.run(|| own.go(body).join().unwrap())
        };
        let (one, other) = (TaskGroup::new("one"), TaskGroup::new("other"));
        assert_eq!(look(&one, &one), (false, At::Alone));
        assert_eq!(look(&one, &other), (false, At::Soonest));
    }

    #[derive(Debug, PartialEq)]
    enum At {
        /// When the running one was long enough alone.
        Alone,
        /// When its turn has lasted for the least.
        Soonest,
        Else,
    }

    /// When the next timer of the caller's P is due.
    fn sleeps_until() -> u64 {
        let _call = Call::brief();
        let next = m::current().unwrap().p().timers.next();
        if next == NEVER { 0 } else { next }
    }

    /// Whether somebody of the root lane is due on the caller's P, and when the caller makes way for who is. None: nobody is.
    fn due() -> Option<(bool, At)> {
        let _call = Call::brief();
        let (m, now) = (m::current()?, clock::now_ns());
        let (shared, p) = (m.shared(), m.p());
        if p.timers.next() > now {
            return None;
        }
        let (soonest, alone) = (p.groups.since.load(Relaxed) + MIN_RUN, u64::MAX - 1);
        let mut seen = None;
        // The monitor's own look has the heap's lock for a moment: who finds it taken assumes the worst.
        shared.monitor.while_looking(|| {
            let at = match shared.due_may_run(p, alone, now) {
                at if at == alone => At::Alone,
                at if at == soonest => At::Soonest,
                _ => At::Else,
            };
            seen = Some((shared.timer_waits(p, now), at));
        });
        seen
    }

    /// The thread waits while it is looked at: a monitor that came back as soon as that was made up for would keep it from running.
    #[test]
    fn a_look_is_not_followed_by_the_next_at_once() {
        let (look, mut now, mut stolen, mut looks) = (40_000, SLICE, 40_000, 0);
        while let Some(next) = stretched(0, SLICE, stolen, now) {
            assert!(next >= now + LEEWAY);
            (now, stolen, looks) = (next, stolen + look, looks + 1);
        }
        assert!(looks <= 2, "{looks} looks");
    }
}
