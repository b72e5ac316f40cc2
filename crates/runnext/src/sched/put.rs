//! Where a runnable goroutine is queued.
//!
//! | which                                            | where                                                             |
//! |--------------------------------------------------|-------------------------------------------------------------------|
//! | made runnable by a thread without a P of its runtime | the global queue                                               |
//! | new or woken, light                              | `runnext` of the caller's P; the one that was there goes to the tail |
//! | gave way, light                                  | the tail of the local queue                                       |
//! | was preempted                                    | the global queue, wired to its thread (`preempt`)                 |
//! | a hog                                            | the global queue, where every P finds it: in a local queue, light ones behind it would wait for whole slices |
//! | of the group whose turn it is on the P           | as those without a group, in the ring of the turn                 |
//! | of another group, or a hog of a group            | the list of its group on the P (`groups`)                         |
//! | with `chaos=1`, without a group                  | any of these places, so that no program relies on one             |
//!
//! # Context
//! In RT, by the owner of the P that is named, except for `put_global`. The goroutine is runnable and in no queue. Nothing allocates.

use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_core::list::List;
use runnext_core::runq::RunQueue;

use super::Shared;
use super::groups::ROOT_LANE;
use crate::g::G;
use crate::p::P;

impl Shared {
    /// By a thread without a P of this runtime.
    pub(super) fn put_global(&self, g: &G) {
        let _visit = self.visit();
        self.observe.queued_outside(g);
        // SAFETY: runnable, and in no queue: the caller made it so.
        unsafe { self.push_global(g.ptr()) };
        self.wake_one();
    }

    /// A new goroutine. True: another P may help with it, and none was told.
    #[inline(always)] // as `put_tail`
    pub(super) fn put_local(&self, p: &P, g: &G) -> bool {
        if let Some(lane) = self.special_lane(p, g) {
            return self.put_special(p, g, lane, false);
        }
        self.put_ungrouped(p, g);
        true
    }

    /// The lane of a goroutine, if groups or chaos decide where it is queued. Groups do not, where they are of no concern to either: those without one
    /// are to pay nothing for those that others made.
    #[inline(always)] // as `put_tail`
    pub(super) fn special_lane(&self, p: &P, g: &G) -> Option<u32> {
        if !self.special.load(Relaxed) {
            return None;
        }
        let lane = g.lane(); // read once, as in `put_tail`
        (lane != ROOT_LANE || p.groups.is_on() || self.config.chaos).then_some(lane)
    }

    /// As [`put_local`](Self::put_local), with groups or chaos. `woken`: it is not a new one.
    #[inline]
    pub(super) fn put_special(&self, p: &P, g: &G, lane: u32, woken: bool) -> bool {
        if !g.is_light() || !p.groups.takes_back(lane) {
            return self.put_elsewhere(p, g, lane, woken);
        }
        let kept = self.put_next_in_turn(p, g, woken);
        self.may_help(!kept)
    }

    /// Into `runnext` of the group whose turn it is. True: the P will most likely run it at once.
    #[inline]
    fn put_next_in_turn(&self, p: &P, g: &G, woken: bool) -> bool {
        self.sample_wait(p, g);
        let ring = p.groups.ring();
        let kept = woken && p.keeps_its_own(ring);
        // SAFETY: the caller owns p; g is runnable and in no queue.
        if let Err(overflow) = unsafe { ring.put_next_kick(g.ptr()) } {
            self.put_overflow(p, ring, overflow);
        }
        kept
    }

    /// Passes `others` on: whether other Ps may help with a goroutine that was queued. If not, it waits until its waker blocks; the monitor is told, which
    /// acts if the waker does not.
    #[inline]
    pub(super) fn may_help(&self, others: bool) -> bool {
        if !others {
            self.monitor.work_waits(false);
        }
        others
    }

    /// Into `runnext`; a hog into the global queue.
    #[inline(always)] // as `put_tail`
    pub(super) fn put_ungrouped(&self, p: &P, g: &G) {
        if g.is_light() {
            self.put_next(p, g);
        } else {
            self.put_hog(p, g);
        }
    }

    /// Into the global queue.
    fn put_hog(&self, p: &P, g: &G) {
        // SAFETY: runnable, and in no queue.
        unsafe { self.push_global(g.ptr()) };
        self.wake_another(p);
    }

    /// Into `runnext`.
    #[inline]
    pub(super) fn put_next(&self, p: &P, g: &G) {
        // SAFETY: the caller owns p; g is runnable and in no queue.
        if let Err(overflow) = unsafe { p.runq.put_next_kick(g.ptr()) } {
            self.append_global(overflow);
        }
    }

    /// A goroutine that is not of the group whose turn it is on `p`, or is a hog of it, or others may not help with its ring.
    #[inline(never)]
    fn put_elsewhere(&self, p: &P, g: &G, lane: u32, woken: bool) -> bool {
        if p.groups.takes(g, lane) && (woken || !self.may_start_elsewhere(lane)) {
            self.put_next_in_turn(p, g, woken);
            return self.may_help(false);
        }
        if self.config.chaos && lane == ROOT_LANE {
            self.put_chaotic(p, g);
            return true;
        }
        self.put_in_lane(p, g, lane, woken)
    }

    /// A goroutine that gave way on `p`.
    #[inline(always)] // six registers to save otherwise, at every yield
    pub(super) fn put_tail(&self, p: &P, g: &G) {
        let special = self.special.load(Relaxed);
        // Read once, because it may change meanwhile (`lend`, I3).
        let lane = if special { g.lane() } else { ROOT_LANE };
        let ring = match lane {
            _ if !g.is_light() => return self.put_aside(p, g, lane),
            _ if special && p.groups.takes_back(lane) => p.groups.ring(),
            ROOT_LANE => &p.runq,
            _ => return self.put_aside(p, g, lane),
        };
        // SAFETY: the caller owns p; g is runnable and in no queue.
        if let Err(overflow) = unsafe { ring.push(g.ptr()) } {
            self.put_overflow(p, ring, overflow);
        }
    }

    /// Up to `n` light ones come from the head of the global queue to the tail of `p`'s.
    pub(super) fn fetch_light(&self, p: &P, n: usize) {
        if n == 0 || self.global_len() == 0 {
            return;
        }
        let mut list = self.take_light(n);
        // SAFETY: the caller owns p; what was queued is alive, and now in no queue.
        unsafe { p.runq.push_batch(&mut list) };
        if !list.is_empty() {
            self.prepend_global(list);
        }
    }

    /// A goroutine that waits in no ring: a hog, or one of a group whose turn it is not.
    #[cold]
    fn put_aside(&self, p: &P, g: &G, lane: u32) {
        match lane {
            ROOT_LANE => self.put_hog(p, g),
            lane => self.put_back(p, g, lane),
        }
    }

    /// A full ring of `p` gave away half: the root lane's, or that of the lane whose turn it is.
    #[cold]
    fn put_overflow(&self, p: &P, ring: &RunQueue<G>, gs: List<G>) {
        match ptr::eq(ring, &p.runq) {
            true => self.append_global(gs),
            false => self.list_overflow(p, gs),
        }
    }

    /// With `chaos=1`: anywhere.
    #[cold]
    fn put_chaotic(&self, p: &P, g: &G) {
        // SAFETY: the caller owns p.
        match unsafe { p.own() }.dice.below(4) {
            0 => self.put_tail(p, g),
            // SAFETY: runnable, and in no queue.
            1 => unsafe { self.push_global(g.ptr()) },
            _ => self.put_next(p, g),
        }
    }
}
