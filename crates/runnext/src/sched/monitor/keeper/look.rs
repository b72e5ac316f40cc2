//! What the monitor sees of one P's thread, and what it does about it: the table of *stalls* in `monitor`.
//!
//! Invariants: I2 of `monitor`, whose look this is a part of.

use std::cell::LazyCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runnext_core::owner::{Seen, State};
use runnext_sys::thread::{self, CpuSet};

use super::{CALM_NS, FAST_NS, FORGIVEN_NS, Keeper, LONG_NS, PEACE_AFTER_NS, PEACE_NS, STEADY_NS};
use crate::g::G;
use crate::m::M;
use crate::p::P;
use crate::sched::preempt;

/// Dispatches between two looks that make a P a lively one.
const LIVELY: u32 = 16;
/// A P is asked at most this often to give way to a light goroutine.
pub(super) const ASK_EVERY_NS: u64 = 250_000;
/// So often one P is asked first, then the next: of two that compute all the time one would else pay for all who wake up. Not in turn: who
/// gives way wakes the same few threads, and these are best where they ran last (`bench tailtcp`: p90 0.4 ms against 0.8).
const REQUESTS_IN_A_ROW: usize = 32;

/// What the monitor saw of a P's thread when it last looked.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// Whose word it is: threads that take turns on a P often reach the same number.
    m: u32,
    word: Seen,
    pub(super) tick: u32,
    slice: u32,
    /// When it first saw that slice, and the CPU time of the thread then.
    since: u64,
    since_cpu: u64,
    pub(super) at: u64,
    cpu: u64,
    asked: u64,
}

impl Look {
    pub(super) const NONE: Look = Look {
        m: u32::MAX,
        word: Seen::NEW,
        tick: 0,
        slice: 0,
        since: 0,
        since_cpu: 0,
        at: 0,
        cpu: 0,
        asked: 0,
    };

    /// Only how often its P has dispatched.
    pub(super) fn of_dispatches(tick: u32, at: u64) -> Look {
        Look {
            tick,
            at,
            ..Look::NONE
        }
    }
}

impl Keeper {
    /// The P to look at first, and to ask first. Best one whose thread is on this CPU: it is interrupted already.
    pub(super) fn first(&self, procs: usize) -> usize {
        let here = thread::cpu();
        // SAFETY: I2.
        let is_here =
            |p: &P| unsafe { p.m.load(Acquire).as_ref() }.is_some_and(|m| m.cpu() == here);
        let found = self.shared.all_ps().take(procs).position(is_here);
        found.unwrap_or(self.requests / REQUESTS_IN_A_ROW % procs)
    }

    /// How many Ps were asked to give way just now, and have not yet: each does so for one that waits.
    pub(super) fn on_its_way(&self, now: u64) -> usize {
        let asked = |p: &&P| {
            self.looks.get(p.id).is_some_and(|look| {
                now < look.asked + ASK_EVERY_NS && look.slice == p.slice.load(Relaxed)
            })
        };
        self.shared.all_ps().filter(asked).count()
    }

    /// Whether a P has dispatched often since the last look: whoever waits there gets a turn soon.
    pub(super) fn is_lively(&self, p: &P) -> bool {
        let before = self.looks[p.id].tick;
        p.tick.load(Relaxed).wrapping_sub(before) >= LIVELY
    }

    /// Whether a thread blocked lately without having said so.
    pub(super) fn blocked_lately(&self, now: u64) -> bool {
        self.blocked_at.is_some_and(|at| now < at + FORGIVEN_NS)
    }

    /// How soon to look again at Ps that dispatch one after the other.
    pub(super) fn lively_pace(&self, now: u64) -> u64 {
        if self.blocked_lately(now) {
            STEADY_NS
        } else if self.is_peaceful(now) {
            PEACE_NS
        } else {
            CALM_NS
        }
    }

    /// Whether goroutines have taken turns by themselves for a while.
    pub(super) fn is_peaceful(&self, now: u64) -> bool {
        now >= self.disturbed_at + PEACE_AFTER_NS && !self.blocked_lately(now)
    }

    /// Whether all Ps run hogs and nobody light waits behind one: what was asked for at the last look has been done. Then it is only noted who runs, so that the
    /// next look knows for how long; the kernel is not asked for more.
    pub(super) fn all_compute(&mut self, now: u64) -> bool {
        let shared = Arc::clone(&self.shared);
        let procs = shared.procs();
        self.make_room(procs);
        // SAFETY: I2.
        let m_of = |p: &P| unsafe { p.m.load(Acquire).as_ref() };
        let computes = |p: &P| {
            let hog = |m: &&M| m.g().is_some_and(|g| shared.may_hog(g));
            m_of(p)
                .filter(hog)
                .is_some_and(|m| m.look().state() == State::User)
                && !p.light_waits()
        };
        // All of them first: a look that follows compares with what was seen at the last one, not just now.
        if !shared.all_ps().take(procs).all(computes) {
            return false;
        }
        for p in shared.all_ps().take(procs) {
            if let Some(m) = m_of(p) {
                self.looks[p.id] = self.glance(p, m, now);
            }
        }
        true
    }

    /// What is to be seen of one P and its thread at once.
    fn glance(&self, p: &P, m: &M, now: u64) -> Look {
        let last = &self.looks[p.id];
        let (word, slice) = (m.look(), p.slice.load(Relaxed));
        let since = match slice == last.slice && last.since != 0 {
            true => last.since,
            false => now,
        };
        let mut look = Look {
            m: m.id,
            word,
            tick: p.tick.load(Relaxed),
            slice,
            at: now,
            asked: last.asked,
            since,
            since_cpu: 0,
            cpu: 0,
        };
        // In a call too: else all its CPU time would count as used since, at the next look.
        if matches!(word.state(), State::User | State::Rt) {
            look.cpu = m.cpu_ns().unwrap_or(0);
            let known = since == last.since && last.m == m.id && last.since_cpu != 0;
            look.since_cpu = if known { last.since_cpu } else { look.cpu };
        }
        look
    }

    /// One look at one P. Returns how soon to look again.
    pub(super) fn look_at(&mut self, p: &P, light: &mut usize, now: u64) -> u64 {
        // SAFETY: I2.
        let Some(m) = (unsafe { p.m.load(Acquire).as_ref() }) else {
            return STEADY_NS;
        };
        let last = self.looks[p.id];
        let mut look = self.glance(p, m, now);
        let word = look.word;
        let same = last.m == m.id && last.word == word;
        let (mut pace, mut whole) = (STEADY_NS, false);
        if !same && self.is_peaceful(now) {
            pace = PEACE_NS;
        }
        match word.state() {
            State::Blk if same => self.take(m, word, now),
            State::Blk => {
                self.disturbed_at = now;
                pace = FAST_NS;
            }
            State::User => {
                let state = LazyCell::new(|| m.kernel_state()); // a system call: once
                if same && idled(&look, &last) && is_asleep(*state) {
                    self.take(m, word, now);
                } else {
                    let used = look.cpu.saturating_sub(last.cpu);
                    // One that is on a CPU, or waits for one, is not about to be taken for blocked; nor is one known to compute.
                    let hog = m.g().is_some_and(|g| self.shared.may_hog(g));
                    whole = last.m == m.id && used > (now - last.at) / 4 * 3;
                    // One that is new here may have come to sleep. If it has computed so far, and nobody blocks without saying so, it is taken for one
                    // that computes now: of many hogs, each look may meet another one.
                    let trusted = hog && !self.blocked_lately(now);
                    let sleeps = !whole && !trusted && is_asleep(*state);
                    let turns = u64::from(look.tick.wrapping_sub(last.tick));
                    let keeps_on = whole && now > last.at + STEADY_NS / 2 + turns * FAST_NS;
                    if hog || keeps_on || sleeps && m.g().is_some() {
                        self.disturbed_at = now;
                    }
                    if sleeps {
                        pace = FAST_NS;
                    } else if whole && same || hog {
                        pace = CALM_NS;
                    } else if self.is_lively(p) {
                        pace = self.lively_pace(now);
                    }
                    let computes = whole || same && used > (now - last.at) / 4 || trusted;
                    let computes = || computes && *state == Some(b'R');
                    let is_new = last.m != m.id;
                    let asked = self.consider_asking(p, m, is_new, computes, &mut look, light);
                    pace = pace.min(asked);
                }
            }
            _ => {}
        }
        self.lacks_cpu |= last.m == m.id && !whole;
        self.all_light &= m.g().is_none_or(|g| !self.shared.may_hog(g));
        self.looks[p.id] = look;
        pace
    }

    /// Nothing waits, and some Ps are idle. Threads that sleep with a P lose it all the same, if more slowly: what they do is not computing,
    /// and is counted as what it is.
    pub(super) fn look_for_sleepers(&mut self, idle: usize, now: u64) {
        let shared = Arc::clone(&self.shared);
        let procs = shared.procs();
        if idle == 0 || idle == procs {
            return;
        }
        self.make_room(procs);
        for p in shared.all_ps().take(procs) {
            if now >= self.looks[p.id].at + LONG_NS {
                self.look_at(p, &mut 0, now);
            }
        }
    }

    /// For so many Ps. Their number may change at any time: who looks at them asks once.
    pub(super) fn make_room(&mut self, procs: usize) {
        if self.looks.len() < procs {
            self.looks.resize(procs, Look::NONE); // within its capacity
        }
    }

    /// Takes the P of a thread that is blocked.
    fn take(&mut self, m: &M, word: Seen, now: u64) {
        if let Some(p) = m.rob(&mut self.robber, word) {
            let undeclared = word.state() == State::User;
            if undeclared {
                self.blocked_at = Some(now);
            }
            self.shared.observe.robbed(undeclared, p, m.g());
            self.shared.hand_off(p);
        }
    }

    /// Asks the thread to give way if it has run long enough and somebody light waits, or anybody, if it has no timer that ends its slice: by a
    /// signal only if it computes, and is known to: it did so since the last look, or is trusted. One that makes calls finds the note; one in and out of the
    /// kernel would see a signal as EINTR.
    ///
    /// Returns in how long it may be worth asking again: when this one has run for long enough, or the one that comes now has.
    fn consider_asking(
        &mut self,
        p: &P,
        m: &M,
        is_new: bool,
        computes: impl Fn() -> bool,
        look: &mut Look,
        light: &mut usize,
    ) -> u64 {
        if !self.shared.config.preemption {
            return self.note_for_checkpoint(p, m, look);
        }
        if self.is_lively(p) {
            // It was, until this one came.
            let hog = m.g().is_some_and(|g| self.shared.may_hog(g));
            let waits = hog && (*light > 0 || p.light_waits());
            return if waits { ASK_EVERY_NS } else { u64::MAX };
        }
        if (*light > 0 || p.light_waits())
            && let Some(claimed) = self.shared.claim_for_root(p, look.at)
        {
            if claimed {
                look.asked = look.at;
                *light = light.saturating_sub(1);
            }
            return u64::MAX; // who ends turns sees to it
        }
        let least = if *light > 0 {
            m.g().map_or(0, |g| preempt::min_run(&self.shared, g))
        } else if p.light_waits() {
            m.g()
                .map_or(0, |g| preempt::min_run_at_home(&self.shared, g))
        } else if !m.is_timed.load(Relaxed) && self.shared.waits_for(p) {
            self.shared.config.time_slice.as_nanos() as u64
        } else {
            return u64::MAX;
        };
        // What it waited for a CPU is not its fault, and giving way would not help.
        let ran = look.cpu.saturating_sub(look.since_cpu);
        if ran < least {
            return (least - ran).max(FAST_NS);
        }
        // Who is only presumed to be a hog is not blamed for being stopped so soon. Its timer blames it when it has used up a slice; without one nobody would, and it
        // would keep its place before all others for good.
        let presumed =
            ran < preempt::MIN_RUN_NS && m.is_timed.load(Relaxed) && m.g().is_some_and(G::is_light);
        let since_asked = look.at.saturating_sub(look.asked);
        if since_asked < ASK_EVERY_NS {
            return ASK_EVERY_NS - since_asked;
        }
        if !computes() {
            m.note.leave(look.slice, !presumed);
            // If it is new on this P, the next look knows.
            return if is_new { FAST_NS } else { ASK_EVERY_NS };
        }
        if preempt::request(m, look.slice, !presumed) {
            look.asked = look.at;
            *light = light.saturating_sub(1); // one P for each
            self.requests = self.requests.wrapping_add(1);
            if self.requests.is_multiple_of(REQUESTS_IN_A_ROW) {
                move_on(self.shared.procs());
            }
        }
        if self.shared.urgent_len() > 1 {
            ASK_EVERY_NS
        } else {
            u64::MAX
        }
    }

    /// Without preemption: who has used up a slice while others wait finds a note at its next checkpoint. If a turn is to end, who ends turns sees to it.
    /// Returns as [`consider_asking`](Self::consider_asking).
    fn note_for_checkpoint(&self, p: &P, m: &M, look: &Look) -> u64 {
        let turns = p.groups.is_on();
        if turns && p.groups.is_over() || !self.shared.waits_for(p) {
            return u64::MAX;
        }
        let slice = self.shared.config.time_slice.as_nanos() as u64;
        let ran = look.cpu.saturating_sub(look.since_cpu);
        if ran < slice {
            if !turns {
                m.note.withdraw(); // of an earlier turn; in a group's it may be for somebody whose time has come
            }
            return (slice - ran).max(FAST_NS);
        }
        m.note.leave_for_checkpoint(look.slice);
        u64::MAX
    }
}

/// Goes to the next CPU. The kernel leaves a preferred thread where it is, and whoever else computes there would pay for all its
/// looks: of two equal hogs one took 5 % longer (`bench lost`). Not while there are CPUs to spare: it may be on one of those.
fn move_on(procs: usize) {
    let Some(all) = CpuSet::of(0).filter(|all| all.len() <= procs) else {
        return;
    };
    let next = all.after(thread::cpu()).and_then(CpuSet::only);
    if next.is_some_and(|next| next.bind(0)) {
        all.bind(0);
    }
}

/// Whether a thread that made no runtime call since the last look has hardly used a CPU either.
fn idled(look: &Look, last: &Look) -> bool {
    look.cpu.saturating_sub(last.cpu) <= (look.at - last.at) / 4
}

pub(super) fn is_asleep(state: Option<u8>) -> bool {
    matches!(state, Some(b'S' | b'D'))
}
