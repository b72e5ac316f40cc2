//! P: the right to run goroutine code, and what belongs to it.
//!
//! Everything in a P except the queue's thief side is used only by the M that owns it (RT or USER state;
//! see `m`), so it needs no locks. Counters are plain words that only the owner writes and anybody reads.
//!
//! | word    | grows                                                     | read by                          |
//! |---------|-----------------------------------------------------------|----------------------------------|
//! | tick    | with each dispatch                                        | whatever is due after so many    |
//! | slice   | with each dispatch that does not inherit its slice        | CPU timer, monitor: "still the same?" |
//! | streak  | hand-offs through `runnext` the P itself took up          | whether to wake another P        |
//! | chain   | hand-offs through `runnext` since; reset otherwise        | the decision                     |

use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use runnext_core::list::List;
use runnext_core::next::{self, FAIRNESS, Look};
use runnext_core::rng::Dice;
use runnext_core::runq::RunQueue;
use runnext_sys::cpu;

use crate::g::{G, slab};
use crate::m::M;
use crate::observe::Eye;
use crate::sched::Shared;
use crate::sched::groups::Local;
use crate::sched::timers::{Timers, Watch};
use crate::stack::{self, NoStack, Stack};

/// Hand-offs in a row after which the next is presumed to be one too. A guess; `bench pingpong` gains from it, `bench wakeup` would
/// suffer if it were wrong often.
const STREAK: u32 = 8;

/// Goroutine ids a P takes at once (Go's figure).
const IDS: u64 = 16;

#[repr(align(128))]
pub(crate) struct P {
    pub(crate) id: usize,
    pub(crate) runq: RunQueue<G>,
    /// Its part in task groups.
    pub(crate) groups: Local,
    pub(crate) tick: AtomicU32,
    pub(crate) slice: AtomicU32,
    chain: Cell<u32>,
    /// The tick at which the global queue was served last.
    global_at: Cell<u32>,
    /// Since then its turn was put off.
    global_put_off: Cell<bool>,
    /// Of the urgent and the local queue, the urgent one was served last.
    after_urgent: Cell<bool>,
    /// The running slice is used up: set by the CPU timer or the monitor, cleared by the next fresh slice.
    pub(crate) expired: AtomicBool,
    /// Hand-offs through `runnext` in a row that this P itself took up; thieves and the monitor set it back.
    pub(crate) streak: AtomicU32,
    /// On the idle list.
    pub(crate) idle: AtomicBool,
    pub(crate) next_idle: Cell<*const P>,
    /// Beyond the number of Ps and in nobody's hands; changed under the idle lock.
    pub(crate) retired: AtomicBool,
    /// The M that owns it, for observers.
    pub(crate) m: AtomicPtr<M>,
    own: UnsafeCell<Own>,
    /// The CPU its M is on, as far as that has noticed.
    pub(crate) cpu: AtomicUsize,
    pub(crate) timers: Timers,
    pub(crate) watch: Watch,
    pub(crate) stats: Stats,
    pub(crate) eye: Eye,
}

/// What the owner alone touches.
pub(crate) struct Own {
    pub(crate) dice: Dice,
    free: List<G>,
    stacks: stack::Cache,
    next_id: u64,
    ids_left: u64,
}

/// Written by the owner, read by anybody.
#[derive(Default)]
pub(crate) struct Stats {
    /// Goroutines born here.
    pub(crate) created: AtomicU64,
    /// Goroutines that ended here. Released: who sees an end sees the birth before it.
    pub(crate) ended: AtomicU64,
    pub(crate) dispatched: AtomicU64,
    pub(crate) runnext_hits: AtomicU64,
    /// Searches that found something, and what they brought home.
    pub(crate) steals: AtomicU64,
    pub(crate) stolen: AtomicU64,
    /// Blocking sections begun here.
    pub(crate) sections: AtomicU64,
    /// What goroutines that go on here have waited for locks, in ticks.
    pub(crate) lock_wait: AtomicU64,
}

impl Stats {
    /// So many came from another P, by the owner.
    pub(crate) fn stole(&self, n: usize) {
        bump(&self.steals);
        bump_by(&self.stolen, n as u64);
    }
}

/// Adds to a counter that only the caller writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// As [`bump`], by more than one.
#[inline]
pub(crate) fn bump_by(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

/// As [`bump`], and with it all that happened before.
#[inline]
pub(crate) fn bump_release(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Release);
}

// SAFETY: `Cell`s and `own` are used by the owner only, `next_idle` under the idle lock; ownership passes with
// release/acquire edges (`M::hand`, the idle lock, the state word).
unsafe impl Sync for P {}
// SAFETY: as above.
unsafe impl Send for P {}

/// Whether who is first in a queue is light: `runnext` always is. A guess, by anybody.
pub(crate) fn light_leads(queue: &RunQueue<G>) -> bool {
    // SAFETY: a guess is all we need; headers are type-stable, whoever has them by now.
    let head = unsafe { queue.peek(0).map(|g| g.as_ref().is_light()) };
    queue.has_next() || head.unwrap_or(false)
}

/// So many goroutines are looked at together. A prefetch waits for the translation of its address; those of several overlap
/// (`bench timers`: 1, 4 and 8 tried).
const AHEAD: u32 = 4;

/// While some goroutines run, the cache fetches what the next ones of their queue will need: with more goroutines than fit in it, each
/// switch otherwise waits for the header and then for the stack it points to. By `p`'s owner, after a [`fresh_slice`](P::fresh_slice), by which it
/// counts: the queue's own count was just changed by a locked instruction, and the CPU would wait for that.
#[inline]
pub(crate) fn look_ahead(p: &P, queue: &RunQueue<G>) {
    if p.slice.load(Relaxed).is_multiple_of(AHEAD) {
        look_far_ahead(queue);
    }
}

#[inline(never)]
fn look_far_ahead(queue: &RunQueue<G>) {
    // SAFETY: the caller is the owner; headers are type-stable, whoever has them by now.
    unsafe {
        for next in (0..u64::from(AHEAD)).map_while(|i| queue.peek(i)) {
            next.as_ref().prefetch_stack();
        }
        for after in (u64::from(AHEAD)..u64::from(2 * AHEAD)).map_while(|i| queue.peek(i)) {
            cpu::prefetch(after.as_ptr());
        }
    }
}

impl P {
    pub(crate) fn new(id: usize, seed: u64) -> P {
        P {
            id,
            runq: RunQueue::new(),
            groups: Local::new(id),
            tick: AtomicU32::new(0),
            slice: AtomicU32::new(1),
            chain: Cell::new(0),
            global_at: Cell::new(0),
            global_put_off: Cell::new(false),
            after_urgent: Cell::new(false),
            expired: AtomicBool::new(false),
            streak: AtomicU32::new(0),
            idle: AtomicBool::new(false),
            next_idle: Cell::new(ptr::null()),
            retired: AtomicBool::new(true),
            m: AtomicPtr::new(ptr::null_mut()),
            own: UnsafeCell::new(Own {
                dice: Dice::new(seed),
                free: List::new(),
                stacks: stack::Cache::new(),
                next_id: 0,
                ids_left: 0,
            }),
            cpu: AtomicUsize::new(usize::MAX),
            timers: Timers::new(),
            watch: Watch::new(),
            stats: Stats::default(),
            eye: Eye::new(),
        }
    }

    /// # Safety
    /// The caller owns this P (is its M, in RT), and drops the reference before it calls anything that asks again.
    #[inline]
    #[allow(clippy::mut_from_ref)] // exclusive by the contract
    pub(crate) unsafe fn own(&self) -> &mut Own {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.own.get() }
    }

    /// Dispatches since the tick `at`.
    #[inline]
    pub(crate) fn dispatches_since(&self, at: &Cell<u32>) -> u32 {
        self.tick.load(Relaxed).wrapping_sub(at.get())
    }

    /// It is served now.
    #[inline]
    pub(crate) fn mark(&self, at: &Cell<u32>) {
        at.set(self.tick.load(Relaxed));
    }

    /// A dispatch from the global queue. A chain that waits meanwhile is not over: where the global queue is served before each chain's end, there would be none.
    pub(crate) fn global_slice(&self) {
        let chain = self.chain.get();
        self.mark(&self.global_at);
        self.global_put_off.set(false);
        self.fresh_slice();
        if self.runq.has_next() {
            self.chain.set(chain);
        }
    }

    /// Somebody was stopped for another who waits: if it is the turn of the global queue, it is that one's first. But not again before that queue was
    /// served: there may always be another.
    pub(crate) fn put_off_global(&self) {
        let since = self.dispatches_since(&self.global_at);
        if since >= FAIRNESS && !self.global_put_off.replace(true) {
            self.skip_for_global(since - (FAIRNESS - 1));
        }
    }

    /// So many dispatches were none of the root lane's: the global queue is that one's.
    pub(crate) fn skip_for_global(&self, dispatches: u32) {
        self.global_at
            .set(self.global_at.get().wrapping_add(dispatches));
    }

    /// The urgent queue is served, or the local one.
    #[inline]
    pub(crate) fn urgent_served(&self, urgent: bool) {
        self.after_urgent.set(urgent);
    }

    /// Whether `runnext` of a lane goes on with the running slice.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        next::goes_on(self.chain.get(), self.expired.load(Relaxed))
    }

    /// A dispatch on a slice of its own.
    #[inline]
    pub(crate) fn fresh_slice(&self) {
        self.tick
            .store(self.tick.load(Relaxed).wrapping_add(1), Relaxed);
        self.slice
            .store(self.slice.load(Relaxed).wrapping_add(1), Relaxed);
        self.chain.set(0);
        if self.expired.load(Relaxed) {
            self.expired.store(false, Relaxed);
        }
    }

    /// A dispatch that goes on with the running slice.
    #[inline]
    pub(crate) fn inherit_slice(&self) {
        self.tick
            .store(self.tick.load(Relaxed).wrapping_add(1), Relaxed);
        self.chain.set(self.chain.get() + 1);
        self.streak
            .store(self.streak.load(Relaxed).saturating_add(1), Relaxed);
        bump(&self.stats.runnext_hits);
    }

    /// Whether a goroutine woken now, alone, into this queue will most likely be run by this P at once: its waker is about to
    /// block, as the last ones did. Then waking another P for it only costs.
    #[inline]
    pub(crate) fn keeps_its_own(&self, queue: &RunQueue<G>) -> bool {
        // Asked by the owner, who kicks nobody meanwhile: no need for `is_empty`.
        self.streak.load(Relaxed) >= STREAK && !queue.has_next() && !queue.has_local()
    }

    /// Whether somebody light seems to be next here. Hogs that wait their turn do not count: they cost each other nothing but
    /// switches. For observers: a moment's view.
    pub(crate) fn light_waits(&self) -> bool {
        light_leads(&self.runq)
    }

    /// Whether the first in the local queue is known to be light. By the owner.
    pub(crate) fn known_light_leads(&self) -> bool {
        // SAFETY: by the owner; headers are type-stable, and a thief that has it by now makes this a guess.
        unsafe { self.runq.peek(0) }.is_some_and(|g| unsafe { g.as_ref() }.is_known_light())
    }

    /// An event, not the running chain, decides what is next: whatever follows has a slice of its own.
    pub(crate) fn break_chain(&self) {
        self.slice
            .store(self.slice.load(Relaxed).wrapping_add(1), Relaxed);
        self.chain.set(0);
        self.expired.store(false, Relaxed);
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.runq.is_empty()
    }
}

/// What the decision sees of a P, for a lane of it. By the owner.
pub(crate) struct Sight<'a> {
    pub(crate) p: &'a P,
    /// The lane's.
    pub(crate) ring: &'a RunQueue<G>,
    /// With its global and urgent queues. None: they are not this lane's.
    pub(crate) shared: Option<&'a Shared>,
}

impl Look for Sight<'_> {
    #[inline]
    fn since_global(&self) -> u32 {
        self.p.dispatches_since(&self.p.global_at)
    }

    #[inline]
    fn next(&self) -> bool {
        self.ring.has_next()
    }

    #[inline]
    fn local(&self) -> bool {
        self.ring.has_local()
    }

    #[inline]
    fn urgent(&self) -> bool {
        self.shared.is_some_and(Shared::has_urgent)
    }

    #[inline]
    fn after_urgent(&self) -> bool {
        self.p.after_urgent.get()
    }

    #[inline]
    fn global(&self) -> usize {
        self.shared.map_or(0, Shared::global_len)
    }

    #[inline]
    fn procs(&self) -> usize {
        self.shared.map_or(1, Shared::procs)
    }

    #[inline]
    fn goes_on(&self) -> bool {
        self.p.goes_on()
    }

    #[inline]
    fn expired(&self) -> bool {
        self.p.expired.load(Relaxed)
    }
}

impl Own {
    /// A free header.
    #[inline]
    pub(crate) fn alloc_g(&mut self, shared: &Shared) -> std::io::Result<NonNull<G>> {
        if self.free.is_empty() {
            self.free = shared
                .slab
                .alloc(slab::BATCH, (&raw const *shared).cast())?;
        }
        Ok(self.free.pop_front().expect("the slab gives at least one"))
    }

    /// Takes a header back; nobody holds it any more.
    #[inline]
    pub(crate) fn free_g(&mut self, g: NonNull<G>, shared: &Shared) {
        // SAFETY: it is in no list: the last holder gives it (g, I2). In front: it is warm.
        unsafe { self.free.push_front(g) };
        if self.free.len() > slab::LOCAL_MAX {
            self.spill_free(shared);
        }
    }

    #[cold]
    fn spill_free(&mut self, shared: &Shared) {
        let keep = self.free.take(slab::BATCH);
        let spill = std::mem::replace(&mut self.free, keep);
        let last = shared.slab.free(spill);
        debug_assert!(!last, "a runtime with a running P is not orphaned");
    }

    #[inline]
    pub(crate) fn next_id(&mut self, shared: &Shared) -> u64 {
        if self.ids_left == 0 {
            self.next_id = shared.next_id.fetch_add(IDS, Relaxed);
            self.ids_left = IDS;
        }
        self.ids_left -= 1;
        self.next_id += 1;
        self.next_id - 1
    }

    #[inline]
    pub(crate) fn take_stack(&mut self, class: u8, shared: &Shared) -> Result<Stack, NoStack> {
        if class != shared.config.stack_class {
            return shared.stacks.take(class, None);
        }
        match self.stacks.take() {
            Some(stack) => Ok(stack),
            None => shared.stacks.take(class, Some(&mut self.stacks)),
        }
    }

    #[inline]
    pub(crate) fn give_stack(&mut self, stack: Stack, shared: &Shared) {
        if stack.class() == shared.config.stack_class {
            self.stacks.give(stack, &shared.stacks);
        } else {
            shared.stacks.give(stack);
        }
    }

    /// Everything the P kept for itself goes back: it is about to stand idle for long, or for ever.
    pub(crate) fn give_all_back(&mut self, shared: &Shared) -> List<G> {
        let n = self.stacks.len();
        self.stacks.spill(&shared.stacks, n);
        self.free.take(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root lane's queue was asked, which is always empty where all are in groups: so each was taken for one woken alone.
    #[test]
    fn one_that_is_woken_behind_others_is_not_kept() {
        let p = P::new(0, 1);
        let (root, ring) = (&p.runq, &RunQueue::new()); // a group's
        assert!(!p.keeps_its_own(root) && !p.keeps_its_own(ring));
        p.streak.store(STREAK, Relaxed);
        assert!(p.keeps_its_own(root) && p.keeps_its_own(ring));
        // SAFETY: nobody else has the P; what is queued is not looked at.
        assert!(unsafe { ring.put_next_kick(NonNull::dangling()) }.is_ok());
        assert!(p.keeps_its_own(root) && !p.keeps_its_own(ring));
    }
}
