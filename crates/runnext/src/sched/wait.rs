//! Who waits: a goroutine or a plain thread, behind one word.
//!
//! Primitives keep [`Waiter`]s in their wait lists and never ask which kind they hold; that is how every
//! one of them works from plain threads too.
//!
//! # Tickets: several possible wakers
//! A wait that more than one party may end (a `select`, a time-out) draws a [`Ticket`]. Each party must
//! [`claim`](Ticket::claim) it before it wakes the waiter, and exactly one claim succeeds. A ticket outlives its wait
//! harmlessly: the next wait draws a new generation, and old claims fail. That is why the claim word lives in type-stable
//! memory: the goroutine's header, or a thread's parker, which is recycled but never freed.
//!
//! # The rule for wakers
//! One wake-up per wait. Whoever takes a waiter out of a list (or wins its ticket) wakes it, once; a waiter whose ticket
//! was claimed by another party parks until that wake-up comes, even if it no longer needs it.
//!
//! # Those who are gone
//! A runtime that stops leaves goroutines in wait lists, shared with threads and other runtimes, and never runs them again. What such a one is
//! given is lost, so whoever takes waiters out of a list asks [`Waiter::is_gone`] under the list's lock, before it claims anything,
//! and drops the node from the list if so. Nodes and headers of the abandoned are never freed. Once `stopped` is set no goroutine of that runtime
//! begins to run, so none is passed over that could still go on, but one that is on its way into the wait, which has no right to what comes.
//! One that was woken before, and never runs again, has been given something already: locks and semaphores have it passed on (`g::will`). So has one that was taken
//! out of a list before and is woken afterwards, perhaps much later: its waker finds that out (`Call::wake_to_give`).
//!
//! | thread's word | meaning                  | left by                |
//! |---------------|--------------------------|------------------------|
//! | 0             | running or waiting       | waker → 1              |
//! | 1             | woken                    | the thread → 0         |

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use runnext_core::park;
use runnext_sys::futex;

use super::deadlock::{self, BLOCKED, TIMED};
use super::groups::{ROOT_LANE, Rank};
use crate::g::G;

/// Some runtime of this process has abandoned goroutines. What lists are asked for as long as none has.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// A runtime that stops has goroutines left.
pub(super) fn note_abandoned() {
    ABANDONED.store(true, SeqCst);
}

/// Somebody who waits, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter(NonZero);

type NonZero = std::num::NonZeroUsize;

/// Marks a thread's parker; headers and parkers are aligned far beyond it.
const THREAD: usize = 1;

pub(super) enum Who {
    Goroutine(NonNull<G>),
    Thread(&'static Parker),
}

impl Waiter {
    #[inline]
    pub(crate) fn goroutine(g: &G) -> Waiter {
        Waiter(g.ptr().addr())
    }

    pub(super) fn thread() -> Waiter {
        let parker: *const Parker = Parker::current();
        Waiter(NonZero::new(parker.addr() | THREAD).expect("tagged, so not zero"))
    }

    #[inline]
    pub(super) fn who(self) -> Who {
        let word = self.0.get();
        if word & THREAD == 0 {
            // SAFETY: made from a reference by `goroutine`.
            Who::Goroutine(unsafe { NonNull::new_unchecked(word as *mut G) })
        } else {
            // SAFETY: made from a parker by `thread`, and parkers are never freed.
            Who::Thread(unsafe { &*((word & !THREAD) as *const Parker) })
        }
    }

    /// As a word, for atomics. Never zero.
    #[inline]
    pub(crate) fn into_raw(self) -> usize {
        self.0.get()
    }

    /// # Safety
    /// `raw` came from [`into_raw`](Self::into_raw).
    #[inline]
    pub(crate) unsafe fn from_raw(raw: usize) -> Waiter {
        // SAFETY: not zero, by the contract.
        Waiter(unsafe { NonZero::new_unchecked(raw) })
    }

    fn claim_word(&self) -> &AtomicU32 {
        match self.who() {
            // SAFETY: headers are type-stable while the runtime lives, and the goroutine of a waiter is alive.
            Who::Goroutine(g) => unsafe { &(*g.as_ptr()).claim },
            Who::Thread(parker) => &parker.claim,
        }
    }

    /// Whether it is a goroutine that its runtime has abandoned, and that must not be given anything. Of one in a wait list, with its lock held.
    #[inline]
    pub(crate) fn is_gone(self) -> bool {
        ABANDONED.load(Relaxed) && self.is_abandoned()
    }

    /// Its header, if it is a goroutine. It is in a list, or was taken out and is not woken yet.
    pub(crate) fn header<'a>(self) -> Option<&'a G> {
        match self.who() {
            // SAFETY: it waits to be woken, so it has not ended, and its runtime's memory is there.
            Who::Goroutine(g) => Some(unsafe { g.as_ref() }),
            Who::Thread(_) => None,
        }
    }

    /// How entitled it is at `now`. It is in a list.
    pub(crate) fn rank(self, now: u64) -> Rank {
        let Who::Goroutine(g) = self.who() else {
            return Rank::Normal;
        };
        // SAFETY: it is in a list, so it has not ended, and its runtime's memory is there.
        let (g, shared) = unsafe { (g.as_ref(), super::shared_of(g.as_ref())) };
        match g.lane() {
            ROOT_LANE => Rank::Normal,
            lane => shared.groups.rank(lane, now),
        }
    }

    #[cold]
    fn is_abandoned(self) -> bool {
        let Who::Goroutine(g) = self.who() else {
            return false;
        };
        // SAFETY: it is in a list, so it has not ended, and its runtime's memory is there.
        let (g, shared) = unsafe { (g.as_ref(), super::shared_of(g.as_ref())) };
        // An errand goes on where it can: whom it wakes may be of another runtime. Not once it waits.
        shared.stopped.load(SeqCst) && (!g.vtable().errand || g.state.get() == park::WAITING)
    }

    /// Draws a ticket for the next wait. By the waiter itself.
    pub(crate) fn draw(self) -> Ticket {
        let word = self.claim_word();
        let turn = (word.load(Relaxed) | OUTCOME).wrapping_add(1);
        word.store(turn, Release);
        Ticket { waiter: self, turn }
    }
}

/// The right to end one particular wait, contended for by several parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) waiter: Waiter,
    /// A multiple of four; the claim word holds it while unclaimed, and it plus an outcome afterwards.
    turn: u32,
}

/// How a wait ended: somebody claimed it, or its deadline came.
const CLAIMED: u32 = 1;
const EXPIRED: u32 = 2;
const OUTCOME: u32 = 3;

impl Ticket {
    /// True for exactly one caller per ticket, who then must wake the waiter (or is the waiter).
    #[inline]
    pub(crate) fn claim(self) -> bool {
        self.settle(CLAIMED)
    }

    /// As [`claim`](Self::claim), in the name of the deadline.
    #[inline]
    pub(super) fn expire(self) -> bool {
        self.settle(EXPIRED)
    }

    #[inline]
    fn settle(self, outcome: u32) -> bool {
        self.waiter
            .claim_word()
            .compare_exchange(self.turn, self.turn + outcome, AcqRel, Relaxed)
            .is_ok()
    }

    /// Whether the deadline was what ended the wait. By the waiter, before it draws another ticket.
    pub(crate) fn is_expired(self) -> bool {
        self.waiter.claim_word().load(Relaxed) == self.turn + EXPIRED
    }

    /// As two words, the first of which is the waiter's.
    #[inline]
    pub(super) fn into_raw(self) -> (usize, u32) {
        (self.waiter.into_raw(), self.turn)
    }

    /// # Safety
    /// The words came from [`into_raw`](Self::into_raw).
    #[inline]
    pub(super) unsafe fn from_raw(waiter: usize, turn: u32) -> Ticket {
        // SAFETY: the contract.
        let waiter = unsafe { Waiter::from_raw(waiter) };
        Ticket { waiter, turn }
    }

    /// Whether the claim is still open. A moment's view.
    pub(crate) fn is_open(self) -> bool {
        self.waiter.claim_word().load(Relaxed) == self.turn
    }
}

/// Where a plain thread sleeps. Allocated for a thread when it first waits, recycled when it ends.
#[repr(align(64))]
pub(super) struct Parker {
    word: AtomicU32,
    claim: AtomicU32,
}

static RECYCLED: Mutex<Vec<&'static Parker>> = Mutex::new(Vec::new());

/// Recycles the thread's parker when the thread ends.
struct Recycle;

impl Drop for Recycle {
    fn drop(&mut self) {
        if let Some(parker) = PARKER.take() {
            RECYCLED
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .push(parker);
        }
    }
}

thread_local! {
    // Without a destructor, so that it is there to the very end: the drop of another thread-local may wait too.
    static PARKER: Cell<Option<&'static Parker>> = const { Cell::new(None) };
    static RECYCLE: Recycle = const { Recycle };
}

impl Parker {
    fn fresh() -> &'static Parker {
        let recycled = RECYCLED.lock().unwrap_or_else(|e| e.into_inner()).pop();
        recycled.unwrap_or_else(|| {
            Box::leak(Box::new(Parker {
                word: AtomicU32::new(0),
                claim: AtomicU32::new(0),
            }))
        })
    }

    #[inline(never)]
    fn current() -> &'static Parker {
        if let Some(parker) = PARKER.get() {
            return parker;
        }
        let parker = Parker::fresh();
        PARKER.set(Some(parker));
        // Fails while the thread ends: then this one is not recycled.
        let _ = RECYCLE.try_with(|_| ());
        parker
    }

    pub(super) fn park(&self) {
        deadlock::watch_forks();
        BLOCKED.fetch_add(1, SeqCst);
        if self.word.swap(0, Acquire) != 0 {
            return;
        }
        deadlock::thread_rests();
        while self.word.swap(0, Acquire) == 0 {
            futex::wait(&self.word, 0);
        }
    }

    /// As `park`, until the deadline at most. False: it has passed, and nobody woke us.
    pub(super) fn park_until(&self, deadline_ns: u64) -> bool {
        deadlock::watch_forks();
        TIMED.fetch_add(1, SeqCst);
        BLOCKED.fetch_add(1, SeqCst);
        let woken = loop {
            if self.word.swap(0, Acquire) != 0 {
                break true;
            }
            if !futex::wait_until(&self.word, 0, deadline_ns) {
                break self.word.swap(0, Acquire) != 0;
            }
        };
        if !woken {
            BLOCKED.fetch_sub(1, SeqCst);
        }
        TIMED.fetch_sub(1, SeqCst);
        woken
    }

    pub(super) fn unpark(&self) {
        BLOCKED.fetch_sub(1, SeqCst); // it is awake from here on (`deadlock`)
        self.word.store(1, Release);
        futex::wake_one(&self.word);
    }
}
