//! Timers: per-P heaps of waits that end at a deadline.
//!
//! # Why this shape
//! An entry is a [`Ticket`]: the right to end one wait. At its deadline whoever runs the heap claims the ticket and
//! wakes the waiter; if the wait ended otherwise the claim fails, and nothing else happens. So an entry needs no
//! state of its own, cancelling writes nothing to it, and a stale one is harmless. A P has two heaps: goroutines of groups, which wake into lists, do not wait
//! behind others for [room](room_for_due) in the local queue. Tickers and contexts are made above from
//! waits with deadlines; only a function that is to be started at some time needs another kind of entry, a `task`, and so does
//! a future, which has no wait of its own: an `alarm`.
//! Rejected: callbacks in entries (user code in RT), and removing entries on cancel (a lock on another P's heap and a
//! search in it, for what is mostly short-lived).
//!
//! # Words
//! *due*: the deadline has come. *dead*: the ticket is claimed, the entry not yet removed. `next` is the heap's earliest key,
//! or NEVER; it is written under the heap's lock and read by anybody. *Grouped*: of the second heap. The two share a lock.
//!
//! # Who runs a heap
//! | who                                       | when                                                         |
//! |-------------------------------------------|--------------------------------------------------------------|
//! | the P's owner                             | before each dispatch, if the heap has entries                |
//! | any P's owner                             | after 64 dispatches, all heaps: their owners may be busy, or |
//! |                                           | the P retired                                                |
//! | a thief, on its last pass                 | all heaps of Ps in use                                       |
//! | the M in the poller (`seat`)              | some P is idle: it wakes at the earliest deadline of all     |
//! | the P's owner, interrupted                | no P is idle and it runs something long: the monitor asks it |
//! |                                           | to give way (`preempt`)                                      |
//!
//! A P that is idle or retired keeps its heap.
//!
//! # Invariants
//! I1  `next` is not after the deadline of any live entry, whenever the heap's lock is free.
//! I2  A goroutine that was claimed is woken exactly once, by the claimer, with no lock held.
//! I3  Entries fire in the order of their deadlines, those with the same one in the order they were armed (per heap).
//!
//! # Context
//! Everything here is in RT, or on a thread that has no P at all. Nothing allocates (`store`) and no user code runs.
//! The heap's lock is a leaf.
//!
//! Tests: `tests/time.rs`, `tests/time_stress.rs`. Tunables, all guesses: BATCH, long enough to pay for the lock, short
//! enough not to keep others from it; SLACK keeps small heaps from being purged all the time; HELP_EVERY; FULL, less than a local queue.

mod alarm;
mod cell;
mod heaps;
mod sleeper;
mod store;
mod task;

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*, fence};

use runnext_core::next::CHAIN;
use runnext_core::timers::Entry;
pub(crate) use runnext_core::timers::NEVER;
use runnext_sys::clock;

use super::Shared;
use super::call::Call;
use super::groups::ROOT_LANE;
use super::wait::{Ticket, Who};
use crate::g::{G, WaitReason};
use crate::lock::Lock;
use crate::p::P;
use heaps::{Batch, Heaps};
use sleeper::{Sleeper, What};

pub(crate) use alarm::Alarm;
pub(crate) use task::Task;

/// Waiters taken from a heap at one go.
const BATCH: usize = 32;
/// So many in a local queue leave no room for those who are due.
const FULL: usize = 192;
/// With so many of those who are due, one comes along that has waited in the global queue for longer. While timers keep a local queue full nobody would
/// come from there but every 61st. The more do, the sooner the last of many goroutines has slept its sleeps, and the later are all (`bench timers` in turn: with none, one
/// beside 8, 4 and 1 of them 722, 682, 650 and 595 ms, late by 0.9, 12, 26 and 55 ms at p99).
const BESIDE_ONE: usize = 8;
/// Nobody comes along while some are later than this, as they are for good where more is asked for than Ps can do: with four times as many sleepers all would be
/// late by 66 ms.
const TOO_LATE_NS: u64 = 10_000_000;
/// After how many dispatches a P's owner looks at the heaps of others.
const HELP_EVERY: u32 = 64;
/// Dead entries that are not worth a purge.
const SLACK: usize = 32;

/// The timers of one P.
pub(crate) struct Timers {
    next: AtomicU64,
    /// The earliest of goroutines of groups.
    next_grouped: AtomicU64,
    len: AtomicUsize,
    /// Cancelled since the last purge, whether or not they have left by themselves.
    dead: AtomicUsize,
    heaps: Lock<Heaps>,
}

/// What a P's owner remembers of its timers.
pub(crate) struct Watch {
    /// Before this tick of the P, goroutines that timers woke may still be in its queue.
    burst: Cell<u32>,
    /// Likewise, in the ring of a group's turn.
    grouped_burst: Cell<u32>,
    /// The tick at which somebody who was due was let in last.
    let_in: Cell<u32>,
    /// The tick of the last look at the heaps of others.
    helped: Cell<u32>,
    /// The tick of the last look for events.
    pub(super) looked: Cell<u32>,
    /// Until the CPU's counter shows `quiet_until` it is not the time for `quiet_for`: no need to read the clock, which
    /// costs twice as much.
    quiet_for: Cell<u64>,
    quiet_until: Cell<u64>,
}

impl Watch {
    pub(crate) const fn new() -> Watch {
        Watch {
            burst: Cell::new(0),
            grouped_burst: Cell::new(0),
            let_in: Cell::new(0),
            helped: Cell::new(0),
            looked: Cell::new(0),
            quiet_for: Cell::new(NEVER),
            quiet_until: Cell::new(0),
        }
    }

    #[inline(always)]
    fn burst(&self, grouped: bool) -> &Cell<u32> {
        match grouped {
            true => &self.grouped_burst,
            false => &self.burst,
        }
    }

    #[inline]
    fn is_in_burst(&self, grouped: bool, tick: u32) -> bool {
        (tick.wrapping_sub(self.burst(grouped).get()) as i32) < 0
    }

    #[inline]
    fn is_quiet(&self, next: u64) -> bool {
        self.quiet_for.get() == next && clock::ticks() < self.quiet_until.get()
    }

    /// It is `now`, and nothing is due before `next`.
    fn rest(&self, next: u64, now: u64) {
        const TICKS: u64 = 1 << 16;
        let per_ns = TICKS as f64 / clock::ticks_to_ns(TICKS).max(1) as f64;
        // Short of it, since the counter and the clock are not the same; from there on the clock is read.
        let ticks = (next - now) as f64 * per_ns * 0.98;
        self.quiet_for.set(next);
        self.quiet_until
            .set(clock::ticks().saturating_add(ticks as u64));
    }
}

/// Which heap an entry is in. The entry itself is found by its ticket.
#[derive(Clone, Copy)]
#[must_use = "an entry whose wait ended otherwise is disarmed, or it stays until its deadline"]
pub(crate) struct TimerKey(&'static Timers);

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers {
            next: AtomicU64::new(NEVER),
            next_grouped: AtomicU64::new(NEVER),
            len: AtomicUsize::new(0),
            dead: AtomicUsize::new(0),
            heaps: Lock::new(Heaps::new()),
        }
    }

    /// The earliest key; NEVER if there is none. May belong to a dead entry.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// As [`next`](Self::next), of goroutines of groups.
    #[inline]
    fn next_grouped(&self) -> u64 {
        self.next_grouped.load(Relaxed)
    }

    /// How many there are, dead ones included.
    pub(super) fn count(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether some deadline has come. Reads the clock only if there are any.
    pub(super) fn is_due(&self) -> bool {
        self.next() != NEVER && self.next() <= clock::now_ns()
    }

    /// Whether the lane of somebody who is due is `wanted`, as far as can be seen, None being that of one whose lane is not known. None: somebody else is
    /// at the heap. By anybody. Those that are dead leave, so that they do not stand before others.
    pub(super) fn any_due(
        &self,
        shared: &Shared,
        now: u64,
        wanted: impl FnMut(Option<u32>) -> bool,
    ) -> Option<bool> {
        if self.next() > now {
            return Some(false);
        }
        let mut heaps = self.heaps.try_lock()?;
        self.publish(&mut heaps, shared);
        let all = (heaps.grouped.peek_due(now)).chain(heaps.plain.peek_due(now));
        let due = all.filter(|sleeper| !sleeper.is_dead());
        Some(due.map(|sleeper| sleeper.lane()).any(wanted))
    }

    /// Brings both `next` and `len` up to date. With the heaps' lock held.
    #[inline]
    fn publish(&self, heaps: &mut Heaps, shared: &Shared) -> u64 {
        let plain = heaps.plain.next_deadline().unwrap_or(NEVER);
        let grouped = heaps.grouped.next_deadline().unwrap_or(NEVER);
        let next = plain.min(grouped);
        self.len.store(heaps.len(), Relaxed);
        self.next_grouped.store(grouped, Relaxed);
        self.set_next(next, shared);
        next
    }

    #[inline]
    fn set_next(&self, next: u64, shared: &Shared) {
        let before = self.next.load(Relaxed);
        if before != next {
            self.next.store(next, Relaxed);
            match (before, next) {
                (NEVER, _) => shared.seat.heap_filled(),
                (_, NEVER) => shared.seat.heap_emptied(),
                _ => {}
            }
        }
    }

    /// Adds an entry, of a goroutine of a group or another. True: it is the earliest of this P.
    fn insert(&self, when: u64, sleeper: Sleeper, grouped: bool, shared: &Shared) -> bool {
        let mut heaps = self.heaps.lock();
        let first = heaps.of(grouped).insert(when, sleeper);
        self.len.store(heaps.len(), Relaxed);
        if !first {
            return false;
        }
        if grouped {
            self.next_grouped.store(when, Relaxed);
        }
        let first = when < self.next();
        if first {
            self.set_next(when, shared);
        }
        first
    }

    /// The earliest deadline that is in force: dead entries in front of it leave.
    fn settle(&self, shared: &Shared) -> u64 {
        if self.next() == NEVER {
            return NEVER;
        }
        let mut heaps = self.heaps.lock();
        self.publish(&mut heaps, shared)
    }

    /// An entry was cancelled. Once too many are, they leave.
    fn note_dead(&self, shared: &Shared) {
        let dead = self.dead.fetch_add(1, Relaxed) + 1;
        if dead > SLACK + self.len.load(Relaxed) / 4 {
            self.purge(shared);
        }
    }

    #[cold]
    fn purge(&self, shared: &Shared) {
        let mut heaps = self.heaps.lock();
        self.dead.store(0, Relaxed);
        heaps.plain.purge();
        heaps.grouped.purge();
        self.publish(&mut heaps, shared);
    }

    /// Takes out what is due in one of the heaps, up to `most`, which is not more than a batch. Nothing if it is another P's, and somebody has the lock: that one sees to it, or
    /// is the monitor, which comes back to it.
    fn take_due(
        &self,
        (own, grouped): (bool, bool),
        now: u64,
        most: usize,
        shared: &Shared,
    ) -> Batch {
        let mut batch = Batch::new();
        let heaps = match own {
            true => Some(self.heaps.lock()),
            false => self.heaps.try_lock(),
        };
        let Some(mut heaps) = heaps else {
            return batch;
        };
        let heap = heaps.of(grouped);
        while batch.len < most
            && let Some((when, sleeper)) = heap.pop_due(now)
        {
            batch.late = batch.late.max(now.saturating_sub(when));
            sleeper.prefetch();
            batch.push(sleeper);
        }
        self.publish(&mut heaps, shared);
        batch
    }

    /// Takes out a batch, due or not.
    fn take_any(&self, shared: &Shared) -> Batch {
        let mut batch = Batch::new();
        let mut heaps = self.heaps.lock();
        while batch.len < BATCH
            && let Some(sleeper) = heaps.plain.pop_any().or_else(|| heaps.grouped.pop_any())
        {
            batch.push(sleeper);
        }
        self.publish(&mut heaps, shared);
        batch
    }
}

/// How many of those who are due may join `p`'s queue: as many as do not spill to the global one, where they would stand behind
/// everybody. Who is due and stays in the heap keeps its place, and can still be had by thieves. A nearly full queue takes none until
/// a whole batch fits; if it is full of others all the time, those who are due get every other dispatch, or the next one at which no chain of hand-offs
/// goes on: but after as many as such a chain may have at most, the next one. By `p`'s owner.
#[inline]
fn room_for_due(p: &P) -> usize {
    let room = FULL.saturating_sub(p.runq.len());
    if room < BATCH {
        let since = p.dispatches_since(&p.watch.let_in);
        let soon = since < 2 || p.runq.has_next() && since <= CHAIN;
        if soon || p.watch.is_in_burst(false, p.tick.load(Relaxed)) {
            return 0;
        }
    }
    room.max(1)
}

/// Acts on what is due. A goroutine that is runnable by that, and in no queue. `p` is owned by the caller.
fn fire(sleeper: Sleeper, shared: &Shared, p: &P) -> Option<NonNull<G>> {
    match sleeper.what() {
        What::Wait(ticket) => {
            if !ticket.expire() {
                return None; // the wait ended otherwise
            }
            let Who::Goroutine(g) = ticket.waiter.who() else {
                unreachable!("a plain thread keeps its own time")
            };
            // SAFETY: claimed, so it waits for us to wake it (I2).
            unsafe { G::wake(g.as_ref()) }.then_some(g)
        }
        What::Start(cell, turn) => cell.fire(turn, shared, p),
        What::Ring(cell, turn) => cell.fire(turn, shared, p),
    }
}

impl Shared {
    /// The earliest deadline of all Ps' timers, in the terms of `clock::now_ns`; NEVER if there is none.
    ///
    /// For whoever sleeps until then: the M in the poller, and, when no P is idle, the monitor.
    pub(crate) fn next_timer_ns(&self) -> u64 {
        if !self.seat.any_timers() {
            return NEVER;
        }
        let settled = self.all_ps().map(|p| p.timers.settle(self));
        settled.min().unwrap_or(NEVER).min(self.groups.at())
    }

    /// As [`next_timer_ns`](Self::next_timer_ns), without locks: perhaps that of a dead entry, never later than it.
    pub(super) fn next_timer_hint(&self) -> u64 {
        let hints = self.all_ps().map(|p| p.timers.next());
        hints.min().unwrap_or(NEVER).min(self.groups.at())
    }

    /// The earliest of the first deadlines of each P that is later than `now`, likewise.
    pub(super) fn next_timer_after(&self, now: u64) -> u64 {
        let heaps = self.all_ps().map(|p| p.timers.next());
        let all = heaps.chain([self.groups.at()]);
        all.filter(|&next| next > now).min().unwrap_or(NEVER)
    }

    /// Wakes whoever is due in `timers`, onto `p`, which the caller owns. True if anybody was.
    ///
    /// Of those without a group not more at once than `p`'s queue has [room](room_for_due) for.
    fn run_due_on(&self, p: &P, timers: &Timers, now: u64) -> bool {
        if timers.next() > now {
            return false;
        }
        let grouped = timers.next_grouped() <= now && self.fire_due(p, timers, true, now, BATCH);
        let room = room_for_due(p);
        room > 0 && self.fire_due(p, timers, false, now, room.min(BATCH)) || grouped
    }

    /// Wakes up to `most` of those who are due in one of the two heaps. The first goes before others that wait here, by `runnext`, as after any wake-up; unless some of them are of an earlier
    /// burst (I3), or are known to be as light as it is: of those who come one by one while others of their kind wait, the last would go first.
    #[inline(always)] // for those without groups, there is one of the two
    fn fire_due(&self, p: &P, timers: &Timers, grouped: bool, now: u64, most: usize) -> bool {
        let queue = match grouped {
            true => p.groups.ring(),
            false => &p.runq,
        };
        let queued = queue.len();
        let tick = p.tick.load(Relaxed);
        let in_burst = p.watch.is_in_burst(grouped, tick);
        let others = p.runq.has_local() || p.runq.has_next();
        let own = std::ptr::eq(timers, &p.timers);
        let mut woken = 0;
        let late = loop {
            let batch = timers.take_due((own, grouped), now, most, self);
            for g in batch.iter().filter_map(|sleeper| fire(sleeper, self, p)) {
                // SAFETY: runnable, so alive.
                let g = unsafe { g.as_ref() };
                p.eye.queued(&self.observe, g);
                if woken == 0 && others && !in_burst && !p.known_light_leads() {
                    self.put_local(p, g);
                    p.break_chain(); // or an expired slice would send it to the tail
                } else {
                    self.put_tail(p, g);
                }
                woken += 1;
            }
            // As many as were asked for, and all dead: there may be others behind them.
            if woken > 0 || batch.len < most {
                break batch.late;
            }
        };
        if woken > 0 && !grouped {
            p.mark(&p.watch.let_in);
            if late < TOO_LATE_NS {
                self.fetch_light(p, woken / BESIDE_ONE);
            }
        }
        let burst = p.watch.burst(grouped);
        match woken {
            0 => {}
            1 if !in_burst => burst.set(tick.wrapping_add(1)),
            _ => burst.set(tick.wrapping_add((queued + woken) as u32)),
        }
        // A single one, with nobody else there, is run right here.
        if woken > usize::from(!others) {
            self.wake_one();
        }
        woken > 0
    }

    /// The owner's turn, before each dispatch, if there are timers at all.
    pub(super) fn run_own_timers(&self, p: &P) {
        let mut next = p.timers.next();
        // The queue before the clock: while many are due it is full most of the time.
        if next != NEVER && room_for_due(p) == 0 {
            next = p.timers.next_grouped();
        }
        if next != NEVER && !p.watch.is_quiet(next) {
            let now = clock::now_ns();
            if next > now {
                p.watch.rest(next, now);
            } else {
                self.run_due_on(p, &p.timers, now);
            }
        }
        if p.dispatches_since(&p.watch.helped) >= HELP_EVERY {
            p.mark(&p.watch.helped);
            self.run_all_timers(p, clock::now_ns());
        }
    }

    /// A thief's last resort: what is due on `victim` goes to `p`, which it owns. True: the first of them is its next.
    pub(super) fn steal_timers(&self, p: &P, victim: &P) -> bool {
        victim.timers.next() != NEVER && self.run_due_on(p, &victim.timers, clock::now_ns())
    }

    /// Wakes whoever is due on any P, onto `p`, which the caller owns.
    pub(super) fn run_all_timers(&self, p: &P, now: u64) {
        self.run_due_groups(now);
        for victim in self.all_ps() {
            self.run_due_on(p, &victim.timers, now);
        }
    }

    /// Something is due at `when`, before anything else in its heap, by somebody who goes on, perhaps for long.
    pub(super) fn tell_earlier(&self, when: u64) {
        fence(SeqCst); // pairs with the one in `seat::wait`
        self.seat.told_earlier(when);
        self.watch_until(when);
    }

    /// The runtime has stopped, and nothing fires any more: drops the functions of timers, and rings alarms before their time. In user context; who
    /// arms one from here on sees that it has stopped, and does the same.
    pub(crate) fn drop_tasks(&self) {
        for p in self.all_ps() {
            loop {
                let call = Call::brief(); // who stops it may be a goroutine of another runtime
                let batch = p.timers.take_any(self);
                drop(call);
                for sleeper in batch.iter() {
                    match sleeper.what() {
                        What::Start(cell, turn) => cell.give_up(turn),
                        What::Ring(cell, turn) => cell.give_up(turn),
                        What::Wait(_) => {} // abandoned
                    }
                }
                if batch.len < BATCH {
                    break;
                }
            }
        }
    }

    /// Whose heap a timer goes to that `call` sets: its own P's, or that of the first if it has none here.
    fn p_of(&self, call: &Call) -> &P {
        let own = call.m().filter(|m| std::ptr::eq(m.shared, self));
        match own {
            Some(m) => m.p(),
            None => self
                .p(0)
                .unwrap_or_else(|| unreachable!("every runtime has a first P")),
        }
    }

    /// Whether somebody waits for `p`: in its queue, in the global ones, or for a deadline that has come, on any P.
    pub(super) fn waits_for(&self, p: &P) -> bool {
        p.has_work()
            || self.has_global()
            || self.waits_in_group(p)
            || self.all_ps().any(|other| other.timers.is_due())
    }
}

/// At `deadline_ns`, unless somebody was faster: claims `ticket` and wakes its waiter, the calling goroutine, which is about
/// to park.
pub(crate) fn arm(call: &Call, ticket: Ticket, deadline_ns: u64) -> TimerKey {
    let Some(m) = call.m() else {
        unreachable!("a plain thread keeps its own time")
    };
    let shared = m.shared_static();
    let p: &'static P = m.p();
    let timers = &p.timers;
    let grouped = m.g().is_some_and(|g| g.lane() != ROOT_LANE);
    if timers.insert(deadline_ns, Sleeper::wait(ticket), grouped, shared) {
        fence(SeqCst); // pairs with the one in `seat::wait`
        // Nobody polls: whoever dispatches next on this P sees to it that somebody does (`seat`).
        shared.seat.told_earlier(deadline_ns);
    }
    TimerKey(timers)
}

/// The wait ended otherwise: the entry is dead.
pub(crate) fn disarm(call: &Call, key: TimerKey) {
    if let Some(m) = call.m() {
        key.0.note_dead(m.shared());
    }
}

/// Waits until somebody claims `ticket` and wakes the caller, whose it is, or until the deadline. False: the deadline
/// has come first.
///
/// As with [`Call::park`]: the ticket is published, and no lock held. NEVER is no deadline.
pub(crate) fn park_until(
    call: &mut Call,
    ticket: Ticket,
    deadline_ns: u64,
    reason: WaitReason,
) -> bool {
    match ticket.waiter.who() {
        // Not one that wakes by itself: it may be a deadlock (`sched::deadlock`).
        Who::Thread(parker) if deadline_ns == NEVER => {
            parker.park();
            true
        }
        Who::Thread(parker) => {
            if parker.park_until(deadline_ns) {
                return true;
            }
            if ticket.expire() {
                return false;
            }
            parker.park(); // somebody was faster, and its wake-up is on the way
            true
        }
        Who::Goroutine(_) if deadline_ns == NEVER => {
            call.park(reason);
            true
        }
        Who::Goroutine(_) => {
            let key = arm(call, ticket, deadline_ns);
            call.park(reason);
            let expired = ticket.is_expired();
            if !expired {
                disarm(call, key);
            }
            !expired
        }
    }
}
