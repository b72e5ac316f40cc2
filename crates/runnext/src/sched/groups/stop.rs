//! The ends of turns, where they do not end by themselves: the preemption handler, blocking sections; and going on after one. The monitor's part is in `watch`.

use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_core::group::GroupId;
use runnext_sys::clock;

use super::fifo::Fifo;
use super::local::{GroupLanes, NO_LANE};
use super::turn::{self, Next};
use super::{ROOT_LANE, Record};
use crate::g::G;
use crate::m::{self, M};
use crate::observe::event::Kind;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::preempt::Stop;

impl Shared {
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
            here.end_soon(p);
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
        stop.weigh(self, g);
        g.wire(m);
        g.state.set_runnable();
        self.stranded.fetch_add(1, Relaxed);
        let used_up = here.over.load(Relaxed) || p.expired.load(Relaxed);
        match g.lane() {
            // SAFETY: runnable, and in no queue.
            ROOT_LANE if g.is_light() && self.may_hog(g) => unsafe {
                self.push_global_front(g.ptr())
            },
            // SAFETY: as above.
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
