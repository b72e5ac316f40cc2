//! The ends of turns, where they do not end by themselves: the monitor's look, the preemption handler, blocking sections.
//!
//! A goroutine that holds locks of `sync` is not stopped at once: others may wait for them. It runs on for [`GRACE`], once in a turn, and the
//! group pays for it later.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::group::GroupId;
use runnext_core::group::preempt::MIN_RUN;
use runnext_core::owner::{Seen, State};
use runnext_sys::clock;

use super::fifo::Fifo;
use super::local::{GroupLanes, Local, NO_LANE};
use super::turn::{self, Next};
use super::{ROOT_LANE, Record};
use crate::g::G;
use crate::m::{self, Gauge, M};
use crate::observe::event::Kind;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::preempt::{self, Stop};
use crate::sched::timers::NEVER;

/// How long the owner of a lock runs on, in ns.
const GRACE: u64 = 1_000_000;
/// A thread that makes no call for this long after it was left a note gets a signal, in ns.
pub(super) const PATIENCE: u64 = 150_000;
/// How soon the monitor looks again at a turn that should have ended, in ns.
const AGAIN: u64 = 100_000;

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
    /// Somebody of a group that is not Low waits in its turn, or its time has come; and no P has been told to help yet.
    wants: Cell<bool>,
}

/// When a turn from `since` to `until`, of which its thread waited for `stolen` ns, ends if it still waits; None if not later than it
/// would.
fn stretched(since: u64, until: u64, stolen: u64, now: u64) -> Option<u64> {
    let most = until.saturating_sub(since).saturating_mul(STRETCH);
    let later = until.saturating_add(stolen.min(most));
    (until <= now && now < later).then(|| later.max(now + LEEWAY))
}

/// A turn is to end at `end`, for the sake of no one in particular: after that at its next switch, and by force when who runs was long enough `alone`.
fn soon(here: &Local, end: u64, alone: u64, now: u64) -> u64 {
    if now < end || alone <= now {
        return end;
    }
    let before = here.until.load(Relaxed);
    // Else somebody has just brought it forward.
    let _ = here.until.compare_exchange(before, alone, Relaxed, Relaxed);
    here.over.store(true, Relaxed);
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
        let alone = seen.since + m.g().map_or(0, preempt::min_run_at_home);
        let hog = m.g().is_some_and(|g| !g.is_light());
        let waits = (settled || hog) && here.light_waits();
        let woken = self
            .due_may_run(p, alone, now)
            .min(if waits { alone } else { NEVER });
        let slice = || self.end_of_slice(here, m, stolen, now);
        let until = match (lane, must) {
            (NO_LANE, true) => now,
            // Nothing is left over. One P will do, and not one that is to go on for a while.
            _ if here.key().is_leftover()
                && !here.graced.load(Relaxed)
                && now >= here.since.load(Relaxed) + MIN_RUN
                && waiting.wants.take() =>
            {
                here.wanted.store(true, Relaxed);
                now
            }
            // Cut short by somebody who woke up.
            (_, true) if here.over.load(Relaxed) => here.until.load(Relaxed),
            (_, true) => slice(),
            (_, false) if self.is_outnumbered(p, lane) => soon(here, slice(), alone, now),
            (_, false) if waiting.low.any_but(lane) => {
                let floor = self.groups.ledger.floor_due_at(here.since.load(Relaxed));
                soon(here, slice().max(floor), alone, now)
            }
            (_, false) => u64::MAX,
        };
        if now < until.min(woken) {
            seen.asked = 0;
            return until.min(woken);
        }
        if until <= now {
            here.over.store(true, Relaxed);
        }
        match self.insist(p, m, seen, now, computes) {
            true => now + AGAIN,
            false => u64::MAX,
        }
    }

    /// When the slice of the running turn is used up, of which its thread was on no CPU for `stolen` ns. If it waits for one it gets that later, or on
    /// a busy machine turns would be too short to get anywhere. Not all of it: it may be a thread that gives its CPU away itself.
    fn end_of_slice(&self, here: &Local, m: &M, stolen: u64, now: u64) -> u64 {
        let (since, until) = (here.since.load(Relaxed), here.until.load(Relaxed));
        let waits = || m.gauge().and_then(Gauge::state) == Some(b'R');
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

    /// Leaves a note; a thread that computes, or does not read it, gets a signal. False: it is blocked, and would see neither. If somebody waits
    /// its P is taken away (`Keeper::look_at`), else the turn ends when it is awake: after a section at once, otherwise at a regular look.
    fn insist(&self, p: &P, m: &M, seen: &mut Watched, now: u64, computes: bool) -> bool {
        let word = m.look();
        let state = match word.state() {
            State::User => m.gauge().and_then(Gauge::state),
            _ => None,
        };
        let first = seen.asked == 0 || seen.word != word;
        let asleep = matches!(state, Some(b'S' | b'D')); // perhaps for a moment only: the next look knows
        if word.state() == State::Blk || asleep && !first {
            m.note.withdraw();
            return false;
        }
        let slice = p.slice.load(Relaxed);
        // Who had the turn from its beginning may not have been seen before its end.
        let since = match p.groups.dispatches(p) {
            1 => p.groups.since.load(Relaxed).min(seen.since),
            _ => seen.since,
        };
        let blamed = now >= since + m.g().map_or(0, preempt::min_run);
        if first {
            (seen.asked, seen.word) = (now, word);
            m.note.leave(slice, blamed);
        }
        if state == Some(b'R')
            && self.config.preemption
            && (computes || now >= seen.asked + PATIENCE)
        {
            preempt::request(m, slice, blamed);
        }
        true
    }

    /// Reads the clock of the turn's thread. Whether it has computed since the last look, and for how long of the turn it was on no CPU: that
    /// time is not the group's.
    fn look_at_thread(&self, p: &P, m: &M, seen: &mut Watched) -> (bool, u64) {
        let Some(cpu) = m.gauge().and_then(Gauge::cpu_ns) else {
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
    /// their turn ends.
    fn waiting_groups(&self, now: u64) -> Waiting {
        let mut waiting = Waiting::default();
        let may_start = |id| self.groups.ledger.may_start(id, now);
        let mut add = |id: GroupId| match self.is_fair(id.index() as u32) {
            true => waiting.fair.add(id),
            false => waiting.low.add(id),
        };
        let mut crowded = false;
        for p in self.all_ps() {
            let (here, lane) = (&p.groups, p.groups.lane());
            if lane != NO_LANE && lane != ROOT_LANE && !here.ring.is_empty() {
                let id = GroupId::from_index(lane as usize);
                if !self.is_limited(lane) && may_start(id) {
                    add(id);
                    // Who is in `next` is about to run.
                    crowded |= here.key().is_fair() && here.ring.has_local();
                }
            }
            if here.listed() != 0 {
                let mut lanes = here.lanes();
                for at in 0..lanes.groups().len() {
                    let id = lanes.groups()[at];
                    if lanes.queue(id).len() != 0 && may_start(id) {
                        add(id);
                    }
                }
            }
        }
        let low = self.all_ps().any(|p| p.groups.key().is_leftover());
        waiting.wants.set(crowded || low && self.fair_is_due(now));
        waiting
    }

    /// Whether anything of other lanes waits that may run, anywhere. Low groups do not beside another: they get their floor.
    fn contends(&self, p: &P, lane: u32, waiting: &Waiting) -> bool {
        lane != ROOT_LANE && (self.has_global() || p.has_work())
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

    /// `g` goes on, with its thread, on a P that the thread found idle, or was handed: perhaps out of the global queue, or for want of another
    /// thread. If that is not in its group's turn it is from now on; or, if its group may not run, it gives way as soon as it can (I3). In any case its
    /// group pays, for the thread's `arrears` too.
    pub(in crate::sched) fn resume_in_group(&self, m: &M, g: &G, arrears: u64) {
        let (lane, p) = (g.lane(), m.p());
        let here = &p.groups;
        if lane == ROOT_LANE && !here.is_on() {
            return;
        }
        if arrears != 0 {
            // Before its group is asked whether it may run.
            g.charge(arrears);
            self.charge_outside(g, arrears, clock::now_ns());
        }
        if lane != ROOT_LANE && lane != here.lane() && !turn::open(self, p, g, lane) {
            here.over.store(true, Relaxed);
            m.note.leave(p.slice.load(Relaxed), false);
            self.hurry(clock::now_ns());
        }
        here.meter.resumed(m, g);
    }

    /// In the preemption handler, on a P that takes turns: `g` goes back to its lane, and the P to who is next. False: that is `g` itself.
    pub(in crate::sched) fn hand_over_turn(&self, m: &M, g: &G, p: &P, stop: Stop) -> bool {
        let now = clock::now_ns();
        if self.seat.any_timers() {
            self.run_all_timers(p, now); // it may be another's for which this P was asked
        }
        if self.holds_on(p, g) {
            return false;
        }
        let here = &p.groups;
        stop.weigh(g);
        g.wire(m);
        g.state.set_runnable();
        self.stranded.fetch_add(1, Relaxed);
        let used_up = here.over.load(Relaxed) || p.expired.load(Relaxed);
        match g.lane() {
            // SAFETY: runnable, and in no queue.
            ROOT_LANE => unsafe { self.push_global(g.ptr()) },
            lane => {
                let home = &self.home_of(p, lane).groups;
                home.list(&self.groups.ledger, lane, g.ptr(), !used_up, now);
            }
        }
        here.over.store(true, Relaxed);
        match turn::turn(self, p) {
            Next::Run(next) if next == g.ptr() => {
                self.stranded.fetch_sub(1, Relaxed);
                if m.locks.get() == 0 {
                    g.unwire();
                }
                g.state.set_running();
                m.timer_slice.set(p.slice.load(Relaxed));
                return false;
            }
            Next::Run(next) => {
                p.eye.stopped_runnable(Kind::Preempt, stop.why as u32, g, m);
                // SAFETY: it was queued, so it is alive.
                self.give_p(m, p, unsafe { next.as_ref() });
            }
            Next::Plain | Next::Search => {
                p.eye.stopped_runnable(Kind::Preempt, stop.why as u32, g, m);
                m.give_up();
                self.hand_off(p);
            }
        }
        if let Some(record) = Record::of_own(g) {
            record.preempted.fetch_add(1, Relaxed);
        }
        true
    }

    /// Gives the P to the thread that runs `next`. What else there is to do is done before: the kernel may run that thread in place of
    /// this one at once, and this one when that has computed for a while.
    fn give_p(&self, m: &M, p: &P, next: &G) {
        m.give_up();
        self.watch_timers(p, next);
        if let Some(owner) = next.wired_to() {
            self.wake_one();
            owner.hand_here(p);
            return;
        }
        let spare = self.idle.lock().pop_m();
        self.threads.check_spares(self);
        if let Some(spare) = spare {
            self.wake_one();
            spare.collect(); // nobody's: from here on it runs for the turn
            spare.hand_with(p, next);
            return;
        }
        // No thread for it: it goes back, and the P to one that brings its own, perhaps the caller's.
        match next.lane() {
            ROOT_LANE => self.put_next(p, next),
            lane => p
                .groups
                .list(&self.groups.ledger, lane, next.ptr(), true, clock::now_ns()),
        }
        self.end_turn(p);
        self.threads.want_m();
        self.wake_one();
        self.start_m(p, false);
    }

    /// Whether `g`, which is to stop, may run on for a while: it holds locks that others may wait for.
    pub(in crate::sched) fn holds_on(&self, p: &P, g: &G) -> bool {
        let here = &p.groups;
        if !here.is_on()
            || here.lane() == NO_LANE
            || here.graced.load(Relaxed)
            || g.locks_held() == 0
        {
            return false;
        }
        here.graced.store(true, Relaxed);
        here.until.store(clock::now_ns() + GRACE, Relaxed);
        here.over.store(false, Relaxed);
        true
    }

    /// Goroutines in the lists that bring their own thread: the thread of the first, which sleeps, and its goroutine out of the list.
    pub(in crate::sched) fn take_wired_grouped(&self) -> Option<&'static M> {
        let now = clock::now_ns();
        let mut ps = self.all_ps().filter(|p| p.groups.listed() != 0);
        ps.find_map(|p| {
            let mut lanes = p.groups.lanes();
            let (id, at, m) = find_wired(&mut lanes)?;
            p.groups.pluck(&mut lanes, &self.groups.ledger, id, at, now);
            Some(m)
        })
    }

    pub(in crate::sched) fn has_wired_grouped(&self) -> bool {
        let mut ps = self.all_ps().filter(|p| p.groups.listed() != 0);
        ps.any(|p| find_wired(&mut p.groups.lanes()).is_some())
    }
}

/// The first goroutine in the lists of a P that brings its own thread: its group, its place there, and the thread.
fn find_wired(lanes: &mut GroupLanes) -> Option<(GroupId, usize, &'static M)> {
    (0..lanes.groups().len()).find_map(|i| {
        let id = lanes.groups()[i];
        let (at, m) = first_wired(lanes.queue(id))?;
        Some((id, at, m))
    })
}

fn first_wired(list: &Fifo) -> Option<(usize, &'static M)> {
    // SAFETY: queued, so alive; and a wired goroutine's M sleeps with it.
    let wired = |g: ptr::NonNull<G>| unsafe { g.as_ref() }.wired_to();
    list.iter()
        .enumerate()
        .find_map(|(i, g)| Some((i, wired(g)?)))
}

/// The calling goroutine is charged with what it ran for, in user context: it is about to end.
pub(super) fn charge_own(g: &G) {
    let call = crate::sched::call::Call::brief();
    if let Some(m) = call.m()
        && m.p().groups.is_on()
        && call.g().is_some_and(|own| ptr::eq(own, g))
    {
        m.p().eye.ending(g);
        m.p().groups.meter.read(m.p());
        m.p().groups.meter.set_last(ptr::null());
    }
}

/// A blocking section opens on `p`, which the caller owns: from now on its time is not CPU time. When that was; 0 without groups.
pub(in crate::sched) fn blocked(p: &P) -> u64 {
    let here = &p.groups;
    if !here.is_on() || here.lane() == NO_LANE {
        return 0;
    }
    let now = clock::now_ns();
    here.meter.open_section(p, now);
    now
}

/// The section that opened at `since` is over. In user context or in RT, by the goroutine, which may have lost its P meanwhile.
#[cold]
#[inline(never)] // the thread may be another one than at the opening
pub(in crate::sched) fn unblocked(since: u64, kept: bool) {
    let lasted = clock::now_ns().saturating_sub(since);
    if let Some(g) = m::current().and_then(M::g)
        && let Some(record) = Record::of_own(g)
    {
        record.blocking_ns.fetch_add(lasted, Relaxed);
    }
    if kept {
        let call = crate::sched::call::Call::enter();
        if let Some(m) = call.m() {
            let meter = &m.p().groups.meter;
            if meter.section() == since {
                meter.close_section(m.p());
                if let Some(g) = m.g() {
                    meter.set_last(g);
                }
            }
            if m.p().groups.over.load(Relaxed) {
                m.note.leave(m.p().slice.load(Relaxed), false); // the monitor leaves one alone that is in a section
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sched::call::Call;
    use crate::{Runtime, TaskGroup, go};

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
                crate::yield_now(); // it goes to sleep
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
        let at = match shared.due_may_run(p, alone, now) {
            at if at == alone => At::Alone,
            at if at == soonest => At::Soonest,
            _ => At::Else,
        };
        Some((shared.timer_waits(p, now), at))
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
