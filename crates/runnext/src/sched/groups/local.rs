//! One P's part: the ring of the group whose turn it is, and the lists of those that wait for theirs.
//!
//! | word          | written by                                  | read by                                       |
//! |---------------|---------------------------------------------|-----------------------------------------------|
//! | `on`          | who queues a grouped goroutine here; the monitor; the owner | every dispatch and every yield of the owner |
//! | `over`        | anybody: the turn is to end                 | every dispatch of the owner                   |
//! | `lane`, `since`, `key`, `tick` | the owner, where a turn begins or ends | wakers, thieves, monitor            |
//! | `until`       | the owner; wakers bring it forward          | the monitor                                   |
//! | `last`, `mark`| the owner                                   | who asks for CPU time                         |
//! | `stolen`      | the monitor; taken by the owner             | who asks for CPU time; the end of a turn whose thread was not read |
//! | `slept`       | blocking sections; taken by the owner       | the end of the turn                           |
//! | `lost`        | the monitor; cleared by the owner           | who asks for a goroutine's CPU time           |
//! | `reading`     | the owner, where a turn begins or ends, or goes on on another thread | the end of the turn  |
//!
//! # CPU time of single goroutines
//! A clock for every switch would be a good part of the switch. So the clock is read at every switch only while some runs are long ([`LONG_RUN`],
//! [`EXACT`]); if all are short, only every so many, up to [`MAX_SKIP`], and whoever runs then gets the time since the last reading. Who runs long
//! is charged exactly, who runs often but shortly by fair sampling. A turn's time, which is what groups are charged by, is always exact.
//!
//! # What the system ran in between
//! On a busy machine a thread has its CPU for a part of the time only, and no group is to pay for the rest. A turn that lasted for long
//! enough to have been interrupted ([`LEAST_STOLEN`]) ends with a look at its thread's CPU clock, which costs half a microsecond, and is compared
//! with the last one: from its beginning, or from not more than [`FRESH`] before, since short turns do without. What the monitor notes meanwhile is
//! for those who ask while a turn goes on.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence,
};

use runnext_core::group::{Ended, GroupId, Key, Lanes, Ledger, Storage};
use runnext_core::list::List;
use runnext_core::next::{self, Pick, View};
use runnext_core::runq::RunQueue;
use runnext_sys::clock;

use super::ROOT_LANE;
use super::fifo::Fifo;
use crate::g::G;
use crate::lock::{Lock, LockGuard};
use crate::p::{P, light_leads, look_ahead};

/// No turn.
pub(super) const NO_LANE: u32 = u32::MAX;
/// Goroutines moved from a list to the ring at once: half of it, so that those they wake find room.
const BATCH: usize = 128;
/// After a run of this length, in ns, the clock is read at so many switches in a row: one that computes and those it wakes, which do not, take
/// turns, and no sampling by count is fair to both. If all of them are as short as can be it costs a twelfth, mostly nothing.
const LONG_RUN: u64 = 2_000;
const EXACT: u32 = 32;
/// Lost time below this is not lost but measured late, in ns.
pub(super) const LEAST_STOLEN: u64 = 100_000;
/// So old a reading of a thread's CPU clock will do where a turn begins, in ns: two readings a millisecond are a thousandth of it.
const FRESH: u64 = 1_000_000;
/// Scheduling has a price, which groups pay: the monitor looks, as much as this part of what they ran, and threads hand over, which is a part of short
/// turns and in long ones [`LEAST_STOLEN`]. What other processes take is more.
const SCHEDULING: u64 = 16;
const HANDING_OVER: u64 = 4;
/// The most switches from one reading of the clock to the next: a prime, or of those that take turns always the same one would be charged.
const MAX_SKIP: u32 = 67;

pub(super) type GroupLanes = Lanes<Fifo>;

/// What the CPU clock of a P's thread showed. Written by the owner; the monitor reads it too.
struct Reading {
    /// Whose it is; [`NOBODYS`] while it is being written, too.
    m: AtomicU32,
    at: AtomicU64,
    cpu: AtomicU64,
}

const NOBODYS: u32 = u32::MAX;

impl Reading {
    const fn new() -> Reading {
        Reading {
            m: AtomicU32::new(NOBODYS),
            at: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
        }
    }

    fn forget(&self) {
        self.m.store(NOBODYS, Relaxed);
        self.at.store(0, Relaxed);
    }

    fn set(&self, m: u32, at: u64, cpu: u64) {
        self.m.store(NOBODYS, Relaxed);
        fence(Release); // who sees what follows sees that
        self.at.store(at, Relaxed);
        self.cpu.store(cpu, Relaxed);
        self.m.store(m, Release);
    }

    /// When it was, and what it showed, if it is this thread's.
    fn of(&self, m: u32) -> Option<(u64, u64)> {
        let is_its = self.m.load(Acquire) == m;
        let seen = (self.at.load(Relaxed), self.cpu.load(Relaxed));
        fence(Acquire);
        (is_its && self.m.load(Relaxed) == m).then_some(seen)
    }
}

/// See the [module](self).
pub(crate) struct Local {
    on: AtomicBool,
    pub(super) over: AtomicBool,
    /// The turn must end on time even if nobody waits.
    pub(super) limited: AtomicBool,
    /// An owner of locks was let run on in this turn.
    pub(super) graced: Cell<bool>,
    lane: AtomicU32,
    pub(super) since: AtomicU64,
    pub(super) until: AtomicU64,
    key: AtomicU64,
    /// Time in this turn in which another process ran, as far as the monitor has seen.
    stolen: AtomicU64,
    /// Time in this turn in which the goroutine was in a blocking section that is over.
    pub(super) slept: AtomicU64,
    /// As `stolen`, since the last reading of the clock: for who asks before the next, which finds out by itself.
    lost: AtomicU64,
    /// Since when the turn's goroutine is in a blocking section; 0: it is not.
    pub(super) blocked: AtomicU64,
    pub(super) ring: RunQueue<G>,
    /// In all lists together.
    listed: AtomicUsize,
    lanes: Lock<GroupLanes>,
    /// Dispatches before this turn.
    tick: AtomicU32,
    last: AtomicPtr<G>,
    mark: AtomicU64,
    /// The dispatch before which the clock was read last, and the one before which it is to be read again.
    read_at: Cell<u32>,
    read_next: Cell<u32>,
    /// The dispatch up to which it is read at every one.
    exact_to: Cell<u32>,
    /// What the clock of the P's thread showed after the last long run, and whose it is.
    own: Cell<(u32, u64)>,
    reading: Reading,
}

// SAFETY: `Cell`s are used by the P's owner only, as those of the P itself are.
unsafe impl Sync for Local {}

/// What the CPU clock of a P's thread shows, and which M that is.
fn thread_cpu(p: &P) -> Option<(u32, u64)> {
    // SAFETY: an M that owns a P is alive; so is one that was just robbed, for those who rob are watched (`monitor`, I2).
    let m = unsafe { p.m.load(Acquire).as_ref() }?;
    Some((m.id, m.gauge()?.cpu_ns()?))
}

/// Every so many dispatches whoever waits in the list goes before the ring.
#[inline]
fn list_is_due(p: &P) -> bool {
    p.tick.load(Relaxed).is_multiple_of(next::FAIRNESS)
}

impl Local {
    pub(crate) fn new(p: usize) -> Local {
        Local {
            on: AtomicBool::new(false),
            over: AtomicBool::new(false),
            limited: AtomicBool::new(false),
            graced: Cell::new(false),
            lane: AtomicU32::new(NO_LANE),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
            key: AtomicU64::new(Key::IDLE.to_bits()),
            stolen: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            ring: RunQueue::new(),
            listed: AtomicUsize::new(0),
            lanes: Lock::new(Lanes::new(p, Storage::new(1))),
            tick: AtomicU32::new(0),
            last: AtomicPtr::new(ptr::null_mut()),
            mark: AtomicU64::new(0),
            read_at: Cell::new(0),
            read_next: Cell::new(0),
            exact_to: Cell::new(0),
            own: Cell::new((NOBODYS, 0)),
            reading: Reading::new(),
        }
    }

    /// Groups are at work: this P takes turns.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    pub(super) fn set_on(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    /// Whose turn it is; [`NO_LANE`] if nobody's.
    #[inline]
    pub(super) fn lane(&self) -> u32 {
        self.lane.load(Relaxed)
    }

    pub(super) fn key(&self) -> Key {
        Key::from_bits(self.key.load(Relaxed))
    }

    pub(super) fn listed(&self) -> usize {
        self.listed.load(Relaxed)
    }

    /// Anything in ring or lists.
    pub(super) fn has_queued(&self) -> bool {
        self.listed() != 0 || !self.ring.is_empty()
    }

    pub(super) fn lanes(&self) -> LockGuard<'_, GroupLanes> {
        self.lanes.lock()
    }

    pub(super) fn grow(&self, storage: Storage<Fifo>) -> Storage<Fifo> {
        self.lanes.lock().grow(storage)
    }

    /// Whether something in the lists may run.
    pub(super) fn is_ready(&self, ledger: &Ledger, now: u64) -> bool {
        self.listed() != 0 && self.lanes.lock().offer(ledger, None, now).is_some()
    }

    /// Queues in a list. By anybody who may take the lock. True: in front.
    pub(super) fn list(&self, ledger: &Ledger, lane: u32, g: NonNull<G>, front: bool, now: u64) {
        let mut lanes = self.lanes.lock();
        let id = GroupId::from_index(lane as usize);
        // SAFETY: runnable and in no queue: the caller's.
        unsafe { lanes.queue(id).push(g, front) };
        lanes.pushed(ledger, id, 1, now);
        self.listed.fetch_add(1, Relaxed);
        self.set_on(true);
    }

    /// As [`list`](Self::list), of several.
    pub(super) fn list_all(&self, ledger: &Ledger, lane: u32, gs: List<G>, front: bool, now: u64) {
        if gs.is_empty() {
            return;
        }
        let mut lanes = self.lanes.lock();
        let id = GroupId::from_index(lane as usize);
        let n = gs.len();
        lanes.queue(id).put(gs, front);
        lanes.pushed(ledger, id, n, now);
        self.listed.fetch_add(n, Relaxed);
        self.set_on(true);
    }

    /// Takes up to `n` from the head of a list, with the lock held.
    pub(super) fn unlist(
        &self,
        lanes: &mut GroupLanes,
        ledger: &Ledger,
        id: GroupId,
        n: usize,
        now: u64,
    ) -> List<G> {
        let gs = lanes.queue(id).take(n);
        lanes.popped(ledger, id, gs.len(), now); // I2
        self.listed.fetch_sub(gs.len(), Relaxed);
        gs
    }

    /// Takes one out of the middle of a list, with the lock held.
    pub(super) fn pluck(
        &self,
        lanes: &mut GroupLanes,
        ledger: &Ledger,
        id: GroupId,
        at: usize,
        now: u64,
    ) -> Option<NonNull<G>> {
        let g = lanes.queue(id).pluck(at);
        if g.is_some() {
            lanes.popped(ledger, id, 1, now);
            self.listed.fetch_sub(1, Relaxed);
        }
        g
    }

    /// How many goroutines of a group wait here.
    pub(super) fn waiting(&self, id: GroupId) -> usize {
        let listed = match self.listed() {
            0 => 0, // no need for the lock: the monitor asks at each look
            _ => self.lanes.lock().queue(id).len(),
        };
        match self.lane() as usize == id.index() {
            true => listed + self.ring.len(),
            false => listed,
        }
    }

    /// Whether the one that runs in the turn of `lane` is a hog. A moment's view, for who would take its place.
    pub(super) fn has_hog(&self, lane: u32) -> bool {
        // SAFETY: headers are type-stable, whoever has them by now.
        let hog = unsafe { self.last.load(Relaxed).as_ref() }.is_some_and(|g| !g.is_light());
        self.lane() == lane && hog
    }

    /// Whether a light goroutine waits here for the one that runs, of the group whose turn it is. A guess.
    pub(super) fn light_waits(&self) -> bool {
        let lane = self.lane();
        if lane == NO_LANE || lane == ROOT_LANE {
            return false;
        }
        let id = GroupId::from_index(lane as usize);
        light_leads(&self.ring) || self.listed() != 0 && self.lanes.lock().queue(id).has_light()
    }

    // ---- turns; by the owner ----

    /// A group's turn begins: its goroutines go into the ring. What `Lanes` counts does not change (I2).
    pub(super) fn begin(&self, p: &P, lanes: &mut GroupLanes, id: GroupId, key: Key, now: u64) {
        let lane = id.index() as u32;
        if lane != ROOT_LANE {
            // With a limit others may not help, and what is in the ring looks as if they could.
            let n = if self.limited.load(Relaxed) { 1 } else { BATCH };
            self.refill(lanes, id, n);
        }
        self.lane.store(lane, Relaxed);
        self.since.store(now, Relaxed);
        self.key.store(key.to_bits(), Relaxed);
        self.over.store(false, Relaxed);
        self.graced.set(false);
        self.tick.store(p.tick.load(Relaxed), Relaxed);
        if now >= self.reading.at.load(Relaxed) + FRESH {
            self.read_cpu(p, now);
        }
    }

    fn refill(&self, lanes: &mut GroupLanes, id: GroupId, n: usize) -> bool {
        let mut batch = lanes.queue(id).take_turn(n);
        self.listed.fetch_sub(batch.len(), Relaxed);
        let any = !batch.is_empty();
        // SAFETY: the caller owns the P; the ring has room for a batch: it was empty.
        unsafe { self.ring.push_batch(&mut batch) };
        debug_assert!(batch.is_empty(), "half a ring");
        any
    }

    /// How many were dispatched in this turn. A moment's view, for others than the owner.
    pub(super) fn dispatches(&self, p: &P) -> u32 {
        p.tick.load(Relaxed).wrapping_sub(self.tick.load(Relaxed))
    }

    /// The ring is dry, the turn is not over: more from the list, if there is more.
    pub(super) fn fetch_more(&self) -> bool {
        let lane = self.lane();
        if self.listed() == 0 || lane == ROOT_LANE || lane == NO_LANE {
            return false;
        }
        let n = if self.limited.load(Relaxed) { 1 } else { BATCH };
        let mut lanes = self.lanes.lock();
        self.refill(&mut lanes, GroupId::from_index(lane as usize), n)
    }

    /// If it is time, one from the list, before those in the ring: else they would keep it waiting for as long as they wake each
    /// other. From the ring if there is none.
    #[cold]
    fn fetch_one(&self, p: &P) -> Option<NonNull<G>> {
        if self.listed() != 0 && list_is_due(p) {
            let id = GroupId::from_index(self.lane() as usize);
            if let Some(g) = self.lanes.lock().queue(id).pop_patient() {
                self.listed.fetch_sub(1, Relaxed);
                return Some(g);
            }
        }
        // SAFETY: for the owner, in `go_on`.
        unsafe { self.ring.pop() }
    }

    /// The turn is over: what is left in the ring goes back to the list, and the time is charged, less what its thread had [not](Self::unrun).
    pub(super) fn settle(
        &self,
        p: &P,
        lanes: &mut GroupLanes,
        ledger: &Ledger,
        now: u64,
        unrun: Option<u64>,
    ) -> Option<Ended> {
        let lane = self.lane();
        if lane == NO_LANE {
            return None;
        }
        let id = GroupId::from_index(lane as usize);
        if lane != ROOT_LANE {
            // SAFETY: the caller owns the P.
            let left = unsafe { self.ring.drain() }; // I1
            let n = left.len();
            self.listed.fetch_add(n, Relaxed);
            let turns = self.dispatches(p);
            let queue = lanes.queue(id);
            // Those that had no chance to run are older than what waits in the list, and than who ran last: that one is not in the ring.
            queue.put(left, turns as usize <= n);
            let (real, counted) = (queue.len(), lanes.queued(id)); // I2
            match real.checked_sub(counted) {
                Some(0) => {}
                Some(more) => lanes.pushed(ledger, id, more, now),
                None => lanes.popped(ledger, id, counted - real, now),
            }
        }
        self.lane.store(NO_LANE, Relaxed);
        self.key.store(Key::IDLE.to_bits(), Relaxed);
        let mut slept = self.slept.swap(0, Relaxed);
        let blocked = self.blocked.swap(0, Relaxed);
        if blocked != 0 {
            slept += now.saturating_sub(blocked);
        }
        let stolen = self.stolen.swap(0, Relaxed);
        let off = match unrun {
            // Of which the sections are a part, but for CPU time used in them.
            Some(unrun) => unrun.max(slept),
            None => stolen + slept,
        };
        lanes.end(ledger, now, off)
    }

    /// Whether a light goroutine that gave way goes into the ring: its lane has the turn, and others may help with what is there.
    #[inline]
    pub(in crate::sched) fn takes_back(&self, g: &G) -> bool {
        g.lane() == self.lane() && !self.limited.load(Relaxed)
    }

    /// Whether a goroutine that was woken goes into the ring: light, and its group has the turn.
    #[inline]
    pub(in crate::sched) fn takes(&self, g: &G) -> bool {
        let lane = g.lane();
        lane != ROOT_LANE && lane == self.lane() && g.is_light()
    }

    /// The ring of the lane whose turn it is.
    #[inline]
    pub(in crate::sched) fn ring(&self) -> &RunQueue<G> {
        &self.ring
    }

    /// What runs next in the turn of a group, from its ring.
    #[inline(always)] // at every dispatch, as the decision without groups is
    pub(super) fn go_on(&self, p: &P) -> Option<NonNull<G>> {
        // The two of `next::pick`'s answers that nearly all get, from the little each of them takes: one that was woken last, and goes on;
        // and those that yield to each other, if nobody in the list is owed a turn.
        if self.ring.has_next() {
            if p.goes_on()
                // SAFETY: the caller owns the P. None if a thief was faster.
                && let Some(g) = unsafe { self.ring.take_next() }
            {
                p.inherit_slice();
                return Some(g);
            }
        } else if self.listed() == 0 || !list_is_due(p) {
            // SAFETY: the caller owns the P.
            return unsafe { self.ring.pop() }.inspect(|_| {
                p.fresh_slice();
                look_ahead(&self.ring);
            });
        }
        loop {
            let view = View {
                next: self.ring.has_next(),
                local: self.ring.has_local(),
                ..p.view(false, 0, 1)
            };
            // SAFETY: the caller owns the P.
            let found = unsafe {
                match next::pick(&view) {
                    Pick::Next => self.ring.take_next().inspect(|_| p.inherit_slice()),
                    Pick::NextFresh => self.ring.take_next().inspect(|_| p.fresh_slice()),
                    Pick::Local => self.fetch_one(p).inspect(|_| p.fresh_slice()),
                    Pick::Kick => self.kick(),
                    Pick::Urgent | Pick::Global(_) | Pick::Search => return None,
                }
            };
            // None: a thief was faster, or after a kick.
            if found.is_some() {
                return found;
            }
        }
    }

    /// A chain of hand-offs is over while others wait. Never gives one: decide again.
    #[cold]
    fn kick(&self) -> Option<NonNull<G>> {
        // SAFETY: for the owner, in `go_on`.
        unsafe {
            if let Some(g) = self.ring.take_next() {
                let room = self.ring.push(g).is_ok();
                debug_assert!(room, "a place became free just now");
            }
        }
        None
    }

    // ---- CPU time ----

    /// Before the next dispatch: who ran is charged, if it is time for a clock.
    #[inline]
    pub(super) fn account(&self, p: &P) {
        let tick = p.tick.load(Relaxed);
        // More than half of all numbers away is behind.
        if tick.wrapping_sub(self.read_next.get()) as i32 >= 0 {
            self.read_clock(p, tick);
        }
    }

    #[cold]
    fn read_clock(&self, p: &P, tick: u32) {
        let ran = self.charge_last(p);
        let runs = tick.wrapping_sub(self.read_at.get()).max(1);
        if ran > LONG_RUN * u64::from(runs) {
            self.exact_to.set(tick.wrapping_add(EXACT));
        }
        let next = match self.exact_to.get().wrapping_sub(tick) {
            1..=EXACT => 1,
            _ => (2 * runs).min(MAX_SKIP),
        };
        self.read_at.set(tick);
        self.read_next.set(tick.wrapping_add(next));
    }

    /// Charges who ran last with the time since the last reading. Of a long run it looks at its thread's clock too: the system may have run something else.
    pub(super) fn charge_last(&self, p: &P) -> u64 {
        let ticks = clock::ticks();
        let mut ns = self.unread_ns(ticks);
        self.mark.store(ticks, Relaxed);
        if self.lost.load(Relaxed) != 0 {
            self.lost.store(0, Relaxed); // of what is added just now, a little may be lost
        }
        if ns >= LEAST_STOLEN
            && let Some(read) = thread_cpu(p)
        {
            let (m, before) = self.own.replace(read);
            if m == read.0 {
                ns = ns.min(read.1.saturating_sub(before));
            }
        }
        // SAFETY: it ran here last, and headers are type-stable; one that ended takes itself out (`charge_own`).
        let last = unsafe { self.last.load(Relaxed).as_ref() };
        last.map_or(0, |g| {
            g.charge(ns);
            ns
        })
    }

    /// Up to `ticks` since the last reading of the clock.
    fn unread_ns(&self, ticks: u64) -> u64 {
        clock::ticks_to_ns(ticks.saturating_sub(self.mark.load(Relaxed)))
    }

    /// Reads the CPU clock of the P's thread: whose it is, and what it shows.
    fn read_cpu(&self, p: &P, now: u64) -> Option<(u32, u64)> {
        let read = thread_cpu(p);
        match read {
            Some((m, cpu)) => self.reading.set(m, now, cpu),
            None => self.reading.forget(),
        }
        read
    }

    /// A thread has the P from here on, which calls this: another one than before, or the same after a sleep.
    pub(in crate::sched) fn taken(&self, p: &P) {
        if self.lane() != NO_LANE {
            let read = self.read_cpu(p, clock::now_ns());
            self.own.set(read.unwrap_or((NOBODYS, 0)));
        } else {
            self.reading.forget(); // the next turn begins with one
        }
    }

    /// How long of the turn, which ends now, its thread was not on a CPU: it waited for one, or slept. None of short turns, and where the
    /// thread's clock was not read.
    pub(super) fn unrun(&self, p: &P, now: u64) -> Option<u64> {
        let lasted = now.saturating_sub(self.since.load(Relaxed));
        if self.lane() == NO_LANE || lasted < LEAST_STOLEN {
            return None;
        }
        let whose = self.reading.m.load(Relaxed);
        let before = self.reading.of(whose);
        let (m, cpu) = self.read_cpu(p, now)?;
        let (at, was) = before.filter(|_| whose == m)?;
        let ran = cpu.saturating_sub(was);
        let price = LEAST_STOLEN.min(ran / HANDING_OVER) + ran / SCHEDULING;
        let passed = now - at.min(now - lasted);
        Some(passed.saturating_sub(ran + price).min(lasted))
    }

    /// The monitor's look at a turn whose thread is `m`: its CPU clock shows `cpu` now. For how long of the turn it was on none.
    pub(super) fn note_cpu(&self, m: u32, cpu: u64, now: u64) -> u64 {
        let since = self.since.load(Relaxed);
        let turn = self.lane() != NO_LANE && self.blocked.load(Relaxed) == 0;
        let Some((at, was)) = self.reading.of(m).filter(|_| turn) else {
            return self.stolen.load(Relaxed);
        };
        let passed = now.saturating_sub(at.min(since));
        let off = passed.saturating_sub(cpu.saturating_sub(was));
        let before = self.stolen.load(Relaxed);
        if off > before + LEAST_STOLEN && self.since.load(Relaxed) == since {
            self.stolen.store(off, Relaxed);
            self.lost.fetch_add(off - before, Relaxed);
        }
        self.stolen.load(Relaxed)
    }

    /// Another one runs: if who ran before is in a blocking section, that one went with it.
    #[inline]
    pub(super) fn leave_section(&self) {
        if self.blocked.load(Relaxed) != 0 {
            let since = self.blocked.swap(0, Relaxed);
            self.slept
                .fetch_add(clock::now_ns().saturating_sub(since), Relaxed);
        }
    }

    /// `g` is about to run, or nobody.
    #[inline]
    pub(super) fn set_last(&self, g: *const G) {
        self.last.store(g.cast_mut(), Relaxed);
    }

    /// Who ran last is charged, and the clock starts anew: what comes before the next is nobody's.
    pub(super) fn forget_last(&self, p: &P) {
        if !self.last.load(Relaxed).is_null() {
            self.charge_last(p);
            self.set_last(ptr::null());
        }
        let tick = p.tick.load(Relaxed);
        self.read_at.set(tick);
        self.read_next.set(tick);
    }

    /// What `g` ran for and was not charged with yet, if it runs here.
    pub(super) fn charging_ns(&self, g: &G) -> u64 {
        if !ptr::eq(self.last.load(Relaxed), g) || self.lane() == NO_LANE {
            return 0;
        }
        let lost = self.lost.load(Relaxed);
        self.unread_ns(clock::ticks()).saturating_sub(lost)
    }

    /// The time of a group's turn that goes on here.
    pub(super) fn running_ns(&self, id: GroupId, now: u64) -> u64 {
        if self.lane() as usize != id.index() {
            return 0;
        }
        let end = match self.blocked.load(Relaxed) {
            0 => now,
            since => since,
        };
        end.saturating_sub(self.since.load(Relaxed))
            .saturating_sub(self.stolen.load(Relaxed) + self.slept.load(Relaxed))
    }
}
