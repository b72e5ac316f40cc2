//! One P's part: the ring of the group whose turn it is, and the lists of those that wait for theirs.
//!
//! | word          | written by                                  | read by                                       |
//! |---------------|---------------------------------------------|-----------------------------------------------|
//! | `on`          | who queues a grouped goroutine here; the monitor; the owner | every dispatch and every yield of the owner |
//! | `over`        | anybody: the turn is to end                 | the owner, where the meter is due: who sets it makes it so |
//! | `wanted`      | the monitor: somebody waits in the turn of a more entitled group elsewhere | the owner, where a turn ends |
//! | `lane`, `since`, `key`, `tick` | the owner, where a turn begins or ends | wakers, thieves, monitor            |
//! | `until`       | the owner; wakers bring it forward, the monitor back if that is soon enough | the monitor, wakers |
//! | `graced`      | the owner                                   | the monitor                                   |
//!
//! What runs here is measured by the [`meter`](super::meter).

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use runnext_core::group::{Ended, GroupId, Key, Lanes, Ledger, Storage};
use runnext_core::list::List;
use runnext_core::next::{self, Pick};
use runnext_core::runq::RunQueue;

use super::ROOT_LANE;
use super::fifo::Fifo;
use super::meter::Meter;
use crate::g::G;
use crate::lock::{Lock, LockGuard};
use crate::m::M;
use crate::p::{P, Sight, light_leads, look_ahead};
use crate::sched::Shared;

/// No turn.
pub(super) const NO_LANE: u32 = u32::MAX;
/// Goroutines moved from a list to the ring at once: half of it, so that those they wake find room.
const BATCH: usize = 128;
pub(super) type GroupLanes = Lanes<Fifo>;

/// See the [module](self).
pub(crate) struct Local {
    on: AtomicBool,
    pub(super) over: AtomicBool,
    pub(super) wanted: AtomicBool,
    /// The group had a limit when its turn began: what the owner goes by. All others ask [`Shared::limits`], which knows of a new one too.
    pub(super) limited: Cell<bool>,
    /// The lane whose turn it is, if that is a group's without a limit: who gave way goes into the ring.
    back_lane: Cell<u32>,
    /// An owner of locks was let run on in this turn.
    pub(super) graced: AtomicBool,
    lane: AtomicU32,
    pub(super) since: AtomicU64,
    pub(super) until: AtomicU64,
    key: AtomicU64,
    pub(super) ring: RunQueue<G>,
    /// In all lists together.
    listed: AtomicUsize,
    lanes: Lock<GroupLanes>,
    /// Dispatches before this turn.
    tick: AtomicU32,
    /// The tick at which a list was served last, before the ring.
    list_at: Cell<u32>,
    pub(super) meter: Meter,
}

// SAFETY: `Cell`s are used by the P's owner only, as those of the P itself are.
unsafe impl Sync for Local {}

impl Local {
    pub(crate) fn new(p: usize) -> Local {
        Local {
            on: AtomicBool::new(false),
            over: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            limited: Cell::new(false),
            back_lane: Cell::new(NO_LANE),
            graced: AtomicBool::new(false),
            lane: AtomicU32::new(NO_LANE),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
            key: AtomicU64::new(Key::IDLE.to_bits()),
            ring: RunQueue::new(),
            listed: AtomicUsize::new(0),
            lanes: Lock::new(Lanes::new(p, Storage::new(1))),
            tick: AtomicU32::new(0),
            list_at: Cell::new(0),
            meter: Meter::new(),
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

    /// The turn is to end at the next dispatch, by anybody. Should the owner put off its next reading at the very same moment, it is the dispatch of that
    /// reading, which looks whether the turn is over afterwards.
    pub(super) fn end_soon(&self, p: &P) {
        self.over.store(true, Relaxed);
        self.meter.hasten(p);
    }

    /// The turn is to end.
    pub(in crate::sched) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Whose turn it is; [`NO_LANE`] if nobody's.
    #[inline]
    pub(super) fn lane(&self) -> u32 {
        self.lane.load(Relaxed)
    }

    /// Whether the turn is to end, and by force at `at` if not before: nobody need ask for that once more. One whose time is up, seen at
    /// `now`, is being ended already, however early `at` was.
    pub(super) fn ends_by(&self, at: u64, now: u64) -> bool {
        self.over.load(Relaxed) && self.until.load(Relaxed) <= at.max(now)
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
        self.listed() != 0 && {
            let lanes = self.lanes.lock();
            lanes.offer(ledger, None, now, Fifo::len).is_some()
        }
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

    /// Whether some of a group wait in its list.
    pub(super) fn lists(&self, id: GroupId) -> bool {
        self.in_list(id) != 0
    }

    fn in_list(&self, id: GroupId) -> usize {
        match self.listed() {
            0 => 0, // no need for the lock: the monitor asks at each look
            _ => self.lanes.lock().queue(id).len(),
        }
    }

    /// Whether somebody of the root lane waits on `p`, whose part this is: who is in `next` does if another lane has the turn.
    pub(super) fn root_queues(&self, p: &P) -> bool {
        match self.is_on() && self.lane() != ROOT_LANE {
            true => !p.runq.is_empty(),
            false => p.runq.has_local(),
        }
    }

    /// How many goroutines of a group wait here.
    pub(super) fn waiting(&self, id: GroupId) -> usize {
        let listed = self.in_list(id);
        match self.lane() as usize == id.index() {
            true => listed + self.ring.len(),
            false => listed,
        }
    }

    /// As [`waiting`](Self::waiting), with who is about to run. For observers.
    pub(super) fn runnable(&self, id: GroupId) -> usize {
        let next = self.lane() as usize == id.index() && self.ring.has_next();
        self.waiting(id) + usize::from(next)
    }

    /// Whether the one that runs in the turn of `lane` is a hog. A moment's view, for who would take its place.
    pub(super) fn has_hog(&self, lane: u32) -> bool {
        let hog = self.meter.last().is_some_and(|g| !g.is_light());
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
            let n = if self.limited.get() { 1 } else { BATCH };
            self.refill(lanes, id, n);
        }
        self.lane.store(lane, Relaxed);
        let shared = lane != ROOT_LANE && self.shares_ring();
        self.back_lane.set(if shared { lane } else { NO_LANE });
        self.since.store(now, Relaxed);
        self.key.store(key.to_bits(), Relaxed);
        self.over.store(false, Relaxed);
        self.graced.store(false, Relaxed);
        self.tick.store(p.tick.load(Relaxed), Relaxed);
        self.meter.begin(p);
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

    /// The full ring of the turn gave these away; by the owner.
    pub(super) fn take_overflow(&self, ledger: &Ledger, gs: List<G>, now: u64) {
        self.list_all(ledger, self.lane(), gs, false, now);
        self.recount(&mut self.lanes.lock(), ledger);
    }

    /// Puts right what is counted of the group whose turn it is (I2), which would else grow for as long as that lasts.
    fn recount(&self, lanes: &mut GroupLanes, ledger: &Ledger) {
        let id = GroupId::from_index(self.lane() as usize);
        let ring = self.ring.len() + usize::from(self.ring.has_next());
        let n = lanes.queue(id).len() + ring;
        lanes.recount(ledger, n);
    }

    /// The ring is dry, the turn is not over: more from the list, if there is more.
    pub(super) fn fetch_more(&self, ledger: &Ledger) -> bool {
        let lane = self.lane();
        if self.listed() == 0 || lane == ROOT_LANE || lane == NO_LANE {
            return false;
        }
        let n = if self.limited.get() { 1 } else { BATCH };
        let mut lanes = self.lanes.lock();
        let any = self.refill(&mut lanes, GroupId::from_index(lane as usize), n);
        self.recount(&mut lanes, ledger);
        any
    }

    /// If it is time, one from the list, before those in the ring: else they would keep it waiting for as long as they wake each
    /// other. From the ring if there is none.
    #[cold]
    fn fetch_one(&self, p: &P) -> Option<NonNull<G>> {
        if self.listed() != 0 && p.dispatches_since(&self.list_at) >= next::FAIRNESS {
            p.mark(&self.list_at); // also if those there are to wait: else each dispatch would lock
            let id = GroupId::from_index(self.lane() as usize);
            if let Some(g) = self.lanes.lock().queue(id).pop_patient() {
                self.listed.fetch_sub(1, Relaxed);
                return Some(g);
            }
        }
        // SAFETY: for the owner, in `go_on`.
        unsafe { self.ring.pop() }
    }

    /// The turn is over: what is left in the ring goes back to the list, and what it `used` is charged.
    pub(super) fn settle(
        &self,
        p: &P,
        lanes: &mut GroupLanes,
        ledger: &Ledger,
        now: u64,
        used: u64,
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
        // Each counts its own dispatches only, or who is served after so many of them would be in every turn.
        match lane {
            ROOT_LANE => self
                .list_at
                .set(self.list_at.get().wrapping_add(self.dispatches(p))),
            _ => p.skip_for_global(self.dispatches(p)),
        }
        self.lane.store(NO_LANE, Relaxed);
        self.back_lane.set(NO_LANE);
        self.key.store(Key::IDLE.to_bits(), Relaxed);
        lanes.end(ledger, now, used)
    }

    /// Whether a light goroutine of `lane`, other than the root lane, that gave way goes into the ring: its lane has the turn, and others may help with what is there.
    #[inline]
    pub(in crate::sched) fn takes_back(&self, lane: u32) -> bool {
        lane == self.back_lane.get()
    }

    /// Whether other Ps may help with what is in the ring.
    #[inline]
    pub(in crate::sched) fn shares_ring(&self) -> bool {
        !self.limited.get()
    }

    /// Whether a goroutine that was woken goes into the ring: light, and its group has the turn.
    #[inline]
    pub(in crate::sched) fn takes(&self, g: &G, lane: u32) -> bool {
        lane != ROOT_LANE && lane == self.lane() && g.is_light()
    }

    /// The ring of the lane whose turn it is.
    #[inline]
    pub(in crate::sched) fn ring(&self) -> &RunQueue<G> {
        &self.ring
    }

    /// What runs next in the turn of a group, if nothing has to be weighed. Of [`go_on`](Self::go_on)'s answers the two that nearly all get, from the
    /// little each of them takes: one that was woken last, and goes on; and those that yield to each other. Whoever in the list is owed a turn gets it
    /// when the meter is due, so nobody asks here. None in the root lane's turn: the ring is empty then.
    #[inline(always)] // at every dispatch, as the decision without groups is
    pub(super) fn follow(&self, p: &P) -> Option<NonNull<G>> {
        if self.ring.has_next() {
            if !p.goes_on() {
                return None;
            }
            // SAFETY: the caller owns the P. None if a thief was faster.
            return unsafe { self.ring.take_next() }.inspect(|_| p.inherit_slice());
        }
        // SAFETY: the caller owns the P.
        unsafe { self.ring.pop() }.inspect(|_| {
            p.fresh_slice();
            look_ahead(p, &self.ring);
        })
    }

    /// What runs next in the turn of a group, from its ring.
    pub(super) fn go_on(&self, shared: &Shared, p: &P) -> Option<NonNull<G>> {
        loop {
            let pick = next::pick(&Sight {
                p,
                ring: &self.ring,
                shared: None,
            });
            // SAFETY: the caller owns the P.
            let found = unsafe {
                match pick {
                    Pick::Next => self.ring.take_next().inspect(|_| p.inherit_slice()),
                    Pick::NextFresh => self.ring.take_next().inspect(|_| p.fresh_slice()),
                    Pick::Local => self.fetch_one(p).inspect(|_| p.fresh_slice()),
                    Pick::Kick => self.kick(shared, p),
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
    fn kick(&self, shared: &Shared, p: &P) -> Option<NonNull<G>> {
        // SAFETY: for the owner, in `go_on`; who was in `next` is in no queue then.
        let kicked = unsafe { self.ring.take_next().map(|g| self.ring.push(g)) };
        if let Some(Err(overflow)) = kicked {
            shared.list_overflow(p, overflow);
        }
        None
    }

    // ---- CPU time ----

    /// `m` takes the P, and calls this.
    pub(in crate::sched) fn taken(&self, m: &M) {
        match self.is_on() {
            true => self.meter.taken(m),
            false => m.paid.store(0, Relaxed), // `meter`, C5
        }
    }

    /// The P leaves its thread in the middle of what may be a turn.
    pub(in crate::sched) fn pass_on(&self, p: &P) {
        if self.is_on() {
            self.meter.read(p);
        }
    }

    /// The time of a group's turn that goes on here.
    pub(super) fn running_ns(&self, id: GroupId) -> u64 {
        match self.lane() as usize == id.index() {
            true => self.meter.turn_ns(),
            false => 0,
        }
    }
}
