//! The lock without its data: what `Mutex` and the writers' side of `RwLock` are made of.
//!
//! The rules are in `runnext_core::mutex_state`; this file gives them a place to wait, a clock and the scheduler's advice on
//! spinning, and keeps account of who holds what.
//!
//! # Who holds what
//! Whoever acts on a holder (a waiter that lends it its entitlement, a limit that must not stop it) needs three facts, kept at the
//! price of one thread-local read and three plain instructions for each lock and unlock:
//!
//! | fact                       | where                 | when it is right                                              |
//! |----------------------------|-----------------------|---------------------------------------------------------------|
//! | how many locks a G holds   | its header, two counts| always, except for guards that were leaked or left the runtime|
//! | which G holds this lock    | `owner`               | while the lock is held, but for the instants around a change  |
//! | which G is to have it next | `heir`                | from when it is woken, or handed the lock, until it looks     |
//!
//! `owner` is null while a plain thread holds the lock. Both are hints of unknown age: they may be looked into only after
//! `Slab::contains` has said that it is a header of the reader's own runtime.
//! The heir counts as a holder from the moment it is woken: until it has run, no other waiter is woken, or none can get the lock. If its group were
//! paused meanwhile, all waiters behind it would wait for the pause to end; so they lend to it as to an owner, the best of those who wait already
//! when it is chosen in spite of them. There is at most one heir, and none
//! in a runtime without groups.
//! A guard may be dropped by another goroutine than took it: then the count of the one that took it goes down, not that of
//! the one that dropped it.
//!
//! A goroutine that releases its last lock gives back what was lent to it ([`settle`]), whether somebody waits or not: the lender may have got the
//! lock meanwhile, or may have lent after the unlock, which does not clear `owner`. A goroutine that should have stopped earlier, but was let run on
//! because it held locks, gives way then.
//!
//! # Those who never look
//! A waiter whose runtime stops after it was given a token and before it has gone on would keep what came with the token: the lock, or the duty to look. It
//! leaves a will (`g::will`), by which the next one gets the token. A future that blocks in its poll has no room for one.
//!
//! # Context
//! `lock` and `unlock` are never inlined: they read the thread-local (`m::current_g`). The uncontended ones do not enter the
//! runtime: one CAS, one subtraction. All others open a call. An unlock may move the goroutine to another thread: one that hands
//! the lock over makes way. [`RawMutex::unlock_here`] does not.

use std::hint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use runnext_core::mutex_state::{Contended, Gate, MutexState, Token};
use runnext_sys::clock;

use super::queue::{Batch, Node, Place, Queue, with_will};
use crate::g::{G, WaitReason};
use crate::lock::Lock;
use crate::m;
use crate::p::bump_by;
use crate::sched::call::{self, Call};
use crate::sched::groups;
use crate::sched::wait::Waiter;

/// Rounds of spinning before a locker waits, and pauses in each (Go's figures).
const SPIN_ROUNDS: u32 = 4;
const SPIN_PAUSES: u32 = 30;

/// Tokens, and a queue of waiters for them. A waiter joins at the back, or at the front if it has waited before. The first is served first; with task
/// groups, the most entitled one is, within bounds.
pub(super) struct Spot {
    inner: Lock<Inner>,
}

struct Inner {
    tokens: usize,
    queue: Queue,
    /// How often the first in the queue was passed over.
    passed: u8,
}

impl Spot {
    pub(super) const fn new() -> Spot {
        Spot {
            inner: Lock::new(Inner {
                tokens: 0,
                queue: Queue::new(),
                passed: 0,
            }),
        }
    }

    /// Takes a token, waiting for one if there is none. `lost` is what is done with it if the caller's runtime stops before the caller has gone on:
    /// then this never returns.
    pub(super) fn take(
        &self,
        call: Call,
        place: Place,
        reason: WaitReason,
        lost: impl Fn() + Sync,
    ) {
        if let Some(g) = call.stray() {
            self.take_in_vain(call, g, lost);
        }
        with_will(call, reason, &lost, |call| {
            self.take_within(call, place, reason);
        });
    }

    /// As [`take`](Self::take), by one that is abandoned and cannot wait any more: others reckon with it, so it does not just stop.
    #[cold]
    fn take_in_vain(&self, call: Call, g: &G, lost: impl Fn()) -> ! {
        let mut inner = self.inner.lock();
        if inner.tokens == 0 {
            Node::leave_in(g, call, inner, |inner| &mut inner.queue);
        }
        inner.tokens -= 1;
        drop((inner, call));
        lost();
        call::stop_here_for_good()
    }

    fn take_within(&self, call: &mut Call, place: Place, reason: WaitReason) {
        let node = Node::new(call);
        let mut inner = self.inner.lock();
        if inner.tokens > 0 {
            inner.tokens -= 1;
            return;
        }
        let since = clock::ticks();
        node.wait(call, inner, |inner| &mut inner.queue, place, reason);
        if let Some(m) = call.m() {
            bump_by(&m.p().stats.lock_wait, clock::ticks().saturating_sub(since));
        }
    }

    /// Gives a token to one waiter, which becomes the `heir`. If nobody waits, apart from abandoned goroutines, the token stays for the next one that comes.
    fn give(&self, call: &Call, heir: &AtomicPtr<G>) {
        let grouped = call.m().is_some_and(|m| m.shared().groups.is_used());
        while let Some((waiter, lender)) = self.pop_or_keep(grouped) {
            if grouped && let Some(g) = waiter.header() {
                g.lock_taken(); // it sleeps, so nobody else counts
                heir.store(g.ptr().as_ptr(), Relaxed);
                if let Some(lender) = lender {
                    // Nobody takes that one out of the queue before the heir, not woken yet, has looked at the lock.
                    groups::lend_to_heir(call, lender.header(), g);
                }
            }
            if call.wake_to_give(waiter) {
                return;
            }
            heir.store(ptr::null_mut(), Relaxed);
        }
    }

    /// Who gets a token, and who lends to that one. None: the token stays.
    fn pop_or_keep(&self, grouped: bool) -> Option<(Waiter, Option<Waiter>)> {
        let mut inner = self.inner.lock();
        let Inner { queue, passed, .. } = &mut *inner;
        let found = match grouped {
            true => queue.pop_entitled(passed),
            false => queue.pop().map(|waiter| (waiter, None)),
        };
        if found.is_none() {
            inner.tokens += 1;
        }
        found
    }

    /// Gives `n` tokens at once, one for each of `n` that wait or are about to. Returns how many of these have been abandoned and got none.
    #[must_use]
    pub(super) fn give_many(&self, call: &Call, n: usize) -> usize {
        let (batch, gone): (Batch, usize) = {
            let mut inner = self.inner.lock();
            let (batch, taken) = inner.queue.take(n);
            inner.tokens += n.saturating_sub(taken.live + taken.gone);
            (batch, taken.gone)
        };
        gone + batch.wake_to_give(call)
    }
}

/// A lock.
pub(super) struct RawMutex {
    state: MutexState,
    owner: AtomicPtr<G>,
    heir: AtomicPtr<G>,
    spot: Spot,
}

impl RawMutex {
    pub(super) const fn new() -> RawMutex {
        RawMutex {
            state: MutexState::new(),
            owner: AtomicPtr::new(ptr::null_mut()),
            heir: AtomicPtr::new(ptr::null_mut()),
            spot: Spot::new(),
        }
    }

    /// Takes the lock. `reason` is what a dump says while it waits.
    #[inline(never)]
    pub(super) fn lock(&self, reason: WaitReason) {
        if self.state.lock_fast() {
            self.taken();
        } else {
            self.lock_slow(reason);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, reason: WaitReason) {
        self.state.lock_slow(&AtSpot { lock: self, reason });
        self.taken_after_wait();
    }

    /// Not inlined: before the wait the goroutine may have been on another thread.
    #[inline(never)]
    fn taken_after_wait(&self) {
        match self.inherited() {
            Some(g) => self.owner.store(g.ptr().as_ptr(), Relaxed), // it was counted
            None => self.taken(),
        }
    }

    /// The calling goroutine, if it is the heir; from here on it is not.
    #[inline(always)]
    fn inherited<'a>(&self) -> Option<&'a G> {
        let g = m::current_g().filter(|g| ptr::eq(*g, self.heir.load(Relaxed)))?;
        self.heir.store(ptr::null_mut(), Relaxed);
        Some(g)
    }

    /// The calling goroutine waits again, because another one was faster and has the lock. Not inlined, as above.
    #[inline(never)]
    fn disinherit(&self) {
        if let Some(g) = self.inherited() {
            g.lock_released();
            settle(g);
        }
    }

    #[inline(never)]
    pub(super) fn try_lock(&self) -> bool {
        let taken = self.state.try_lock();
        if taken {
            self.taken();
        }
        taken
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds it, in the sense that a guard for it is being given up.
    #[inline(never)]
    pub(super) unsafe fn unlock(&self) {
        // First, because to the compiler it is a call: what was read before would have to be saved across it.
        let me = m::current_g().map_or(ptr::null(), ptr::from_ref);
        let owner = self.owner.load(Relaxed);
        if !ptr::eq(me, owner) {
            return self.unlock_for(owner);
        }
        // SAFETY: the caller, who runs.
        let g = unsafe { me.as_ref() };
        if let Some(g) = g {
            g.lock_released();
        }
        if let Some(left) = self.state.unlock_fast() {
            self.unlock_slow(left);
        }
        if let Some(g) = g {
            settle(g);
        }
    }

    /// The lock is released by another goroutine or thread than `owner`.
    #[cold]
    #[inline(never)]
    fn unlock_for(&self, owner: *const G) {
        released_for(&Call::brief(), owner);
        if let Some(left) = self.state.unlock_fast() {
            self.unlock_slow(left);
        }
    }

    /// One that was woken, or handed the lock, never runs again: the next one looks in its place. That one stays counted, as if the other
    /// had been lost while it waited (`runnext_core::mutex_state`).
    fn pass_on(&self) {
        self.spot.give(&Call::brief(), &self.heir);
    }

    /// The calling goroutine is about to wait for the owner, elsewhere than in this lock's queue.
    pub(super) fn lend_to_owner(&self) {
        groups::lend_to(self.owner.load(Relaxed));
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, left: Contended) {
        give_back_own();
        self.state.unlock_slow(left, |token| {
            let mut call = Call::enter_to_give();
            self.spot.give(&call, &self.heir);
            if token == Token::Lock {
                call.make_way();
            }
        });
    }

    /// Releases the lock as part of a call: whoever it is handed to runs when the caller parks, or later. When the call is closed
    /// [`settle_own`] has to follow.
    ///
    /// # Safety
    /// As for [`unlock`](Self::unlock).
    #[inline(never)]
    pub(super) unsafe fn unlock_within(&self, call: &Call) {
        let owner = self.owner.load(Relaxed);
        match call.g() {
            Some(g) if ptr::eq(g, owner) => g.lock_released(),
            _ => released_for(call, owner),
        }
        if let Some(left) = self.state.unlock_fast() {
            self.state
                .unlock_slow(left, |_| self.spot.give(call, &self.heir));
        }
    }

    /// Releases the lock without leaving the thread, for functions whose documentation has no `# Blocks`. A goroutine that is handed the lock
    /// does not run in the caller's place.
    ///
    /// # Safety
    /// As for [`unlock`](Self::unlock); and it was the caller that took it.
    #[inline(never)]
    pub(super) unsafe fn unlock_here(&self) {
        let g = m::current_g();
        if let Some(g) = g {
            g.lock_released();
        }
        if let Some(left) = self.state.unlock_fast() {
            self.state
                .unlock_slow(left, |_| self.spot.give(&Call::brief(), &self.heir));
        }
        if let Some(g) = g {
            settle(g);
        }
    }

    /// Callers are never inlined (`m::current_g`).
    #[inline(always)]
    fn taken(&self) {
        let owner = match m::current_g() {
            Some(g) => {
                g.lock_taken();
                ptr::from_ref(g).cast_mut()
            }
            None => ptr::null_mut(),
        };
        self.owner.store(owner, Relaxed);
    }
}

/// The calling goroutine has released a lock; others can have it. In user context. As a rule one load, from the part of the header that was just written.
#[inline(always)]
pub(super) fn settle(g: &G) {
    if g.has_debts() && g.locks_held() == 0 {
        groups::settle(g);
    }
}

/// As [`settle`], for callers that do not know their own header. Not inlined: before a wait the goroutine may have been on another thread.
#[inline(never)]
pub(super) fn settle_own() {
    if let Some(g) = m::current_g() {
        settle(g);
    }
}

/// The calling goroutine has released a lock that somebody waits for: it runs in its own name again. In user context; not inlined, as above.
#[inline(never)]
pub(super) fn give_back_own() {
    if let Some(g) = m::current_g() {
        groups::give_back(g);
    }
}

/// A lock that `owner` took is released by somebody else.
#[cold]
#[inline(never)]
pub(super) fn released_for(call: &Call, owner: *const G) {
    if let Some(m) = call.m()
        && m.shared().slab.contains(owner)
    {
        // SAFETY: a header of this runtime, and headers are type-stable. If the goroutine has ended, one that got its header
        // looks as if it held less: advice that is wrong for the rest of that goroutine's life.
        unsafe { (*owner).lock_released_elsewhere() };
    }
}

/// Counts a lock that may have several owners (a read lock) for the caller, and returns the caller.
#[inline(always)]
pub(super) fn note_taken() -> *const G {
    match m::current_g() {
        Some(g) => {
            g.lock_taken();
            g
        }
        None => ptr::null(),
    }
}

/// The counterpart of [`note_taken`], by the one that releases the lock. If it is the one that took it, it is returned, and [`settle`] has to follow.
#[inline(always)]
pub(super) fn note_released<'a>(owner: *const G) -> Option<&'a G> {
    match m::current_g() {
        Some(g) if ptr::eq(g, owner) => {
            g.lock_released();
            return Some(g);
        }
        None if owner.is_null() => {}
        _ => released_for(&Call::brief(), owner),
    }
    None
}

/// How a locker waits: the runtime is entered only for this.
struct AtSpot<'a> {
    lock: &'a RawMutex,
    reason: WaitReason,
}

impl Gate for AtSpot<'_> {
    fn wait(&self, front: bool) {
        let place = if front { Place::Front } else { Place::Back };
        let RawMutex { owner, heir, .. } = self.lock;
        // While it has what was lent to it as the heir, by those who still wait: that is for who has the lock in its stead.
        groups::lend_to(owner.load(Relaxed));
        self.lock.disinherit();
        let heir = heir.load(Relaxed);
        if !heir.is_null() {
            groups::lend_to(heir);
        }
        let lock = self.lock;
        (lock.spot).take(Call::begin(), place, self.reason, || lock.pass_on());
    }

    fn may_spin(&self, round: u32) -> bool {
        round < SPIN_ROUNDS && call::spinning_helps()
    }

    fn spin(&self) {
        for _ in 0..SPIN_PAUSES {
            hint::spin_loop();
        }
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::RawMutex;
    use crate::g::WaitReason;
    use crate::m;
    use crate::runtime::tests::runtime;
    use crate::sched::call::Call;
    use crate::sync::{Condvar, Mutex, RwLock};
    use crate::{go, yield_now};

    fn held() -> u16 {
        m::current().and_then(m::M::g).map_or(0, |g| g.locks_held())
    }

    #[test]
    fn a_goroutine_knows_how_many_locks_it_holds() {
        runtime(2).run(|| {
            let (a, b) = (Mutex::new(()), RwLock::new(()));
            assert_eq!(held(), 0);
            let (one, two) = (a.lock(), b.read());
            let three = b.try_read();
            assert_eq!(held(), 3);
            assert!(a.try_lock().is_none() && b.try_write().is_none());
            assert_eq!(held(), 3);
            drop((one, two, three));
            let writing = b.write();
            assert_eq!(held(), 1);
            drop(writing);
            assert_eq!(held(), 0);
        });
    }

    #[test]
    fn waiting_for_a_condition_holds_nothing() {
        runtime(1).run(|| {
            let pair: &'static _ = Box::leak(Box::new((Mutex::new(false), Condvar::new())));
            let waiter = go(|| {
                let mut ready = pair.0.lock();
                pair.1.wait_while(&mut ready, |ready| !*ready);
                assert_eq!(held(), 1);
            });
            yield_now();
            assert!(format!("{:?}", waiter.goroutine()).contains("locks_held: 0"));
            *pair.0.lock() = true;
            pair.1.notify_one();
            waiter.join().unwrap();
        });
    }

    /// A waker was interrupted between taking a waiter out of the queue and waking it, until that one's runtime had stopped and looked at its queues for the last
    /// time: the token was lost, and all who waited slept for good.
    #[test]
    fn one_whose_runtime_has_stopped_gets_nothing_from_a_late_waker() {
        let lock: &'static RawMutex = Box::leak(Box::new(RawMutex::new()));
        lock.lock(WaitReason::Mutex);
        let rt = runtime(1);
        rt.go(|| lock.lock(WaitReason::Mutex));
        let pop = || {
            let _call = Call::brief(); // for the lock
            lock.spot.inner.lock().queue.pop()
        };
        let waiter = loop {
            match pop() {
                Some(waiter) => break waiter,
                None => std::thread::yield_now(),
            }
        };
        drop(rt);
        assert!(!Call::brief().wake_to_give(waiter));
    }

    /// The count that goes down is that of the one that took the lock.
    #[test]
    fn a_guard_dropped_by_another_goroutine() {
        runtime(2).run(|| {
            let m: &'static Mutex<()> = Box::leak(Box::new(Mutex::new(())));
            let l: &'static RwLock<()> = Box::leak(Box::new(RwLock::new(())));
            for _ in 0..3 {
                let guards = (m.lock(), l.read());
                assert_eq!(held(), 2);
                go(move || {
                    drop(guards);
                    assert_eq!(held(), 0);
                })
                .join()
                .unwrap();
                assert_eq!(held(), 0);
            }
            let writing = l.write();
            go(move || drop(writing)).join().unwrap();
            assert_eq!(held(), 0);
        });
    }

    #[test]
    fn contended_locks_count_too() {
        runtime(2).run(|| {
            let m: &'static Mutex<()> = Box::leak(Box::new(Mutex::new(())));
            let all: Vec<_> = (0..8)
                .map(|_| {
                    go(|| {
                        for _ in 0..200 {
                            let _held = m.lock();
                            assert_eq!(held(), 1);
                            yield_now();
                        }
                        assert_eq!(held(), 0);
                    })
                })
                .collect();
            for g in all {
                g.join().unwrap();
            }
        });
    }
}
