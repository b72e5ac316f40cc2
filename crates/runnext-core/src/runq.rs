//! The run queue of one P: a ring of [`CAPACITY`] handles and a slot in front of it, `next`.
//!
//! # Why this shape
//! The owner goes through here on every switch, so its path takes no lock, allocates nothing and does one
//! locked instruction. The ring does not grow: full means work is made faster than it is run, and half of it
//! belongs where idle Ps look first. `next` exists for the pair that wakes each other in turn: the one just
//! woken finds its data in cache, and runs before everything older. Rejected: a growable deque (who frees the
//! old buffer under a thief's eyes?); newest-first order (the oldest may wait for ever); `next` as one of the
//! ring's slots (thieves take the oldest, and must be able to leave this one alone).
//!
//! # Words
//! *owner*: the thread holding the P. *thief*: any other. *claim*: advance `head`; what was passed over
//! belongs to the claimer. *kick*: put a new handle in `next`, and the one that was there at the tail of the
//! ring.
//!
//! | word   | changed by                                   | ordering                                        |
//! |--------|----------------------------------------------|-------------------------------------------------|
//! | head   | owner or thief, CAS                          | Release on success; loads Acquire               |
//! | tail   | owner                                        | Release store; others load Acquire              |
//! | slots  | owner                                        | Relaxed: ordered by the two words above         |
//! | next   | owner; a thief only from a handle to null    | owner stores Release, thieves take Acquire      |
//!
//! `head` and `tail` count handles since the beginning; the slot of number `i` is `i % CAPACITY`. The top bit
//! of `tail`, the *mark*, is set while the owner holds a kicked handle that is neither in `next` nor yet in
//! the ring.
//!
//! # Protocol
//! ```text
//! push:   1 load head, tail  2 if full, claim the older half and hand it out with the new one
//!         3 write slot  4 publish tail
//! pop:    1 load head, tail  2 read slot  3 claim one, else again
//! kick:   1 next empty: store, done  2 mark tail  3 swap next
//!         4 push what came out, which publishes tail without the mark
//!           (nothing came out: remove the mark)
//! steal:  1 load head, tail  2 copy the older half to the thief's ring, unpublished
//!         3 claim; if that fails, the copies are worthless and are overwritten, never used: again
//!         4 publish the thief's tail, without the last one
//! empty:  1 load head, tail  2 load next  3 load tail; changed? again
//!         4 empty = head is tail, no mark, no next
//! ```
//!
//! # Invariants
//! I1  `0 <= tail - head <= CAPACITY`, as the owner sees it. A thief may see more: its head is old.
//! I2  Slots `head..tail` hold handles that belong to this queue.
//! I3  A handle read before its claim succeeds is not used. So slots are atomics: a thief may read one that
//!     the owner is rewriting, and that must not be a data race.
//! I4  head and tail only grow (but for the mark). They have 63 bits, so a stalled thief cannot meet its old
//!     head again.
//! I5  Only the owner puts a handle into `next`. So an owner that reads null may store without CAS, and one
//!     that lost `next` to a thief need not look again.
//! I6  A handle on its way from `next` to the ring is announced: the mark is stored before the swap that takes
//!     it out, so whoever sees the swap's result (or a thief's null after it) sees the mark, or a later tail.
//! I7  An owner rewrites a slot only after loading (Acquire) a head beyond its old number, and every claim is
//!     a Release RMW: a thief whose claim succeeds has read the slot before it was rewritten.
//!
//! # Context
//! Never parks, locks or allocates. Owner operations are not for signal handlers that may have interrupted
//! another owner operation on the same queue. Emptiness here orders nothing between queues: the idle
//! protocol brings its own SeqCst fences. A stolen handle is in no queue between claim and publication.
//!
//! Emits nothing; callers count. Tests: `runq/tests.rs`; `runq/loom.rs` (capacity 4);
//! `tests/runq_stress.rs` (real threads).
//!
//! # Tunables
//! [`CAPACITY`] 256, Go's value. A steal moves at most half of it.

use core::fmt;
use core::ptr::{self, NonNull};

use crate::list::{Linked, List};
use crate::shim::{
    AtomicPtr, AtomicU64, CachePadded,
    Ordering::{Acquire, Relaxed, Release},
    hint,
};

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

/// How many handles the ring holds.
pub const CAPACITY: usize = if cfg!(loom) { 4 } else { 256 };

/// How many leave a full ring at once, and the most one steal takes.
pub const HALF: usize = CAPACITY / 2;

const CAP: u64 = CAPACITY as u64;

/// The mark in `tail`: a kick is under way.
const KICK: u64 = 1 << 63;

/// One P's queue. See the [module](self).
///
/// The queue never looks inside its handles but to link those it hands out as a [`List`], and never drops them.
pub struct RunQueue<T> {
    /// Thieves compete for this line; the next one is written by the owner alone, but for a stolen `next`.
    head: CachePadded<AtomicU64>,
    own: CachePadded<Own<T>>,
    slots: [AtomicPtr<T>; CAPACITY],
}

struct Own<T> {
    tail: AtomicU64,
    next: AtomicPtr<T>,
}

impl<T> RunQueue<T> {
    /// An empty queue.
    #[cfg(not(loom))]
    pub const fn new() -> RunQueue<T> {
        RunQueue {
            head: CachePadded::new(AtomicU64::new(0)),
            own: CachePadded::new(Own {
                tail: AtomicU64::new(0),
                next: AtomicPtr::new(ptr::null_mut()),
            }),
            slots: [const { AtomicPtr::new(ptr::null_mut()) }; CAPACITY],
        }
    }

    /// An empty queue.
    #[cfg(loom)]
    pub fn new() -> RunQueue<T> {
        RunQueue {
            head: CachePadded::new(AtomicU64::new(0)),
            own: CachePadded::new(Own {
                tail: AtomicU64::new(0),
                next: AtomicPtr::new(ptr::null_mut()),
            }),
            slots: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// How many handles are in the ring, not counting `next`. A moment's view: exact for an owner without thieves.
    pub fn len(&self) -> usize {
        let head = self.head.load(Acquire);
        let tail = self.own.tail.load(Acquire) & !KICK;
        // An old head with a new tail may be more than fits (I1).
        tail.saturating_sub(head).min(CAP) as usize
    }

    /// Whether the ring has anything. A moment's view.
    #[inline]
    pub fn has_local(&self) -> bool {
        self.own.tail.load(Acquire) & !KICK > self.head.load(Acquire)
    }

    /// Whether `next` is occupied. A moment's view.
    #[inline]
    pub fn has_next(&self) -> bool {
        !self.own.next.load(Relaxed).is_null()
    }

    /// Whether there was a moment during this call at which nothing was queued here.
    ///
    /// Never true because a handle was moving from `next` to the ring (I6).
    pub fn is_empty(&self) -> bool {
        loop {
            let head = self.head.load(Acquire);
            let tail = self.own.tail.load(Acquire);
            let next = self.own.next.load(Acquire);
            // A kick between the two loads would show `next` after the swap beside a ring from before it. With
            // the tail unmoved and unmarked, the ring was empty over the whole span and `next` within it.
            if self.own.tail.load(Acquire) == tail {
                return head == tail && next.is_null();
            }
            hint::spin_loop();
        }
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> &AtomicPtr<T> {
        &self.slots[number as usize & (CAPACITY - 1)]
    }

    /// The handle in a slot of `head..tail`.
    ///
    /// # Safety
    /// The slot has been written since the queue was made.
    #[inline(always)]
    unsafe fn read(&self, number: u64) -> NonNull<T> {
        let g = self.slot(number).load(Relaxed);
        // Not a debug assertion: models are checked in release builds.
        assert!(
            !cfg!(test) || !g.is_null(),
            "slot {number} was never written"
        );
        // SAFETY: only handles are ever written to slots.
        unsafe { NonNull::new_unchecked(g) }
    }

    /// Steals the older half (rounded up) of this ring: all but the last go to the tail of `thief`'s ring, in
    /// order, and the last is given back to be run. `None` if there is nothing to take. Does not touch `next`.
    ///
    /// Takes fewer if `thief` has less room than that; a thief with nothing to do has.
    ///
    /// # Safety
    /// The caller is the owner of `thief`, which is not this queue.
    pub unsafe fn steal_into(&self, thief: &RunQueue<T>) -> Option<NonNull<T>> {
        debug_assert!(!ptr::eq(self, thief), "a queue cannot steal from itself");
        let to = thief.own.tail.load(Relaxed);
        let room = CAP - (to - thief.head.load(Acquire)); // I7
        loop {
            let head = self.head.load(Acquire);
            let tail = self.own.tail.load(Acquire) & !KICK;
            let half = (tail - head).div_ceil(2);
            if half > HALF as u64 {
                hint::spin_loop(); // an old head beside a new tail (I1): the claim would fail
                continue;
            }
            let count = half.min(room);
            if count == 0 {
                return None;
            }
            for i in 0..count {
                let g = self.slot(head + i).load(Relaxed);
                thief.slot(to + i).store(g, Relaxed);
            }
            if self
                .head
                .compare_exchange(head, head + count, Release, Relaxed)
                .is_ok()
            {
                // Published before the last is read back: a slot beyond tail is as good, nobody else writes it.
                thief.own.tail.store(to + count - 1, Release);
                // SAFETY: written in the loop above, with a handle that the claim made ours (I2, I3).
                return Some(unsafe { thief.read(to + count - 1) });
            }
            hint::spin_loop();
        }
    }

    /// Takes the handle out of `next`, as a thief. Leaves the ring alone.
    ///
    /// When to do so is policy: too eager, and two goroutines that wake each other are torn apart.
    pub fn steal_next(&self) -> Option<NonNull<T>> {
        let g = NonNull::new(self.own.next.load(Relaxed))?;
        // Meeting the same handle again is no harm: it is in `next` then.
        // Acquire pairs with the owner's store: what it did to the goroutine is seen here.
        let taken = self
            .own
            .next
            .compare_exchange(g.as_ptr(), ptr::null_mut(), Acquire, Relaxed);
        taken.is_ok().then_some(g)
    }
}

/// What only the owner may do. For all of these:
///
/// # Safety
/// The caller is the owner: it alone calls owner operations on this queue, and ownership changes hands with a
/// happens-before edge. Handles put in are valid, and in no other queue, until they are taken out.
impl<T: Linked> RunQueue<T> {
    /// Puts `g` in front of everything; the handle it displaces, if any, goes to the tail of the ring.
    ///
    /// If the ring was full, `Err` has its older half and then the displaced handle, for the global queue.
    /// [`is_empty`](Self::is_empty) is exact throughout.
    ///
    /// # Safety
    /// The caller is the owner; `g` is valid, and in no queue.
    #[inline]
    pub unsafe fn put_next_kick(&self, g: NonNull<T>) -> Result<(), List<T>> {
        if self.own.next.load(Relaxed).is_null() {
            self.own.next.store(g.as_ptr(), Release); // I5
            return Ok(());
        }
        let tail = self.own.tail.load(Relaxed);
        // I6. Released, though the swap would do for that: who reads the mark reads slots below it.
        self.own.tail.store(tail | KICK, Release);
        match NonNull::new(self.own.next.swap(g.as_ptr(), Release)) {
            // SAFETY: the caller is the owner, and what was in `next` is no longer in this queue.
            Some(kicked) => unsafe { self.push_at(tail, kicked) },
            None => {
                self.own.tail.store(tail, Release);
                Ok(())
            }
        }
    }

    /// Takes the handle out of `next`, which stays empty until the next put.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline]
    pub unsafe fn take_next(&self) -> Option<NonNull<T>> {
        if self.own.next.load(Relaxed).is_null() {
            return None;
        }
        // Relaxed: the owner put it there itself, and the swap continues the release sequence that I6 needs.
        NonNull::new(self.own.next.swap(ptr::null_mut(), Relaxed))
    }

    /// Adds `g` at the tail.
    ///
    /// If the ring was full, `Err` has its older half and then `g`, in that order ([`HALF`] + 1 handles), for the
    /// global queue.
    ///
    /// # Safety
    /// The caller is the owner; `g` is valid, and in no queue.
    #[inline]
    pub unsafe fn push(&self, g: NonNull<T>) -> Result<(), List<T>> {
        let tail = self.own.tail.load(Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { self.push_at(tail, g) }
    }

    /// `push`, knowing the tail without its mark; publishes a tail without one.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    #[inline(always)]
    unsafe fn push_at(&self, tail: u64, g: NonNull<T>) -> Result<(), List<T>> {
        let head = self.head.load(Acquire); // I7
        if tail - head < CAP {
            self.slot(tail).store(g.as_ptr(), Relaxed);
            self.own.tail.store(tail + 1, Release);
            return Ok(());
        }
        // SAFETY: the caller's promises are the same.
        unsafe { self.spill(head, tail, g) }
    }

    /// The ring is full: claims its older half. If thieves are faster, there is room again.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    #[cold]
    #[inline(never)]
    unsafe fn spill(&self, head: u64, tail: u64, g: NonNull<T>) -> Result<(), List<T>> {
        if self
            .head
            .compare_exchange(head, head + HALF as u64, Release, Relaxed)
            .is_err()
        {
            let now = self.head.load(Acquire); // I7
            debug_assert!(now > head && tail - now < CAP);
            self.slot(tail).store(g.as_ptr(), Relaxed);
            self.own.tail.store(tail + 1, Release);
            return Ok(());
        }
        // SAFETY: claimed above, and `g` is in no queue.
        let mut spilt = unsafe { self.link(head, head + HALF as u64) };
        // SAFETY: the caller says so.
        unsafe { spilt.push_back(g) };
        self.own.tail.store(tail, Release); // removes the mark, if this is a kick
        Err(spilt)
    }

    /// Links claimed slots in order. Only the owner writes slots, so after its claim they stay as they are.
    ///
    /// # Safety
    /// The caller is the owner and has claimed `from..to`.
    unsafe fn link(&self, from: u64, to: u64) -> List<T> {
        let mut list = List::new();
        for number in from..to {
            // SAFETY: slots below tail are written (I2), and claimed handles are in no queue any more.
            unsafe { list.push_back(self.read(number)) };
        }
        list
    }

    /// Takes the oldest handle of the ring. Does not look at `next`.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline]
    pub unsafe fn pop(&self) -> Option<NonNull<T>> {
        let tail = self.own.tail.load(Relaxed);
        let mut head = self.head.load(Acquire);
        while head != tail {
            // SAFETY: `head < tail`: written (I2).
            let g = unsafe { self.read(head) };
            match self
                .head
                .compare_exchange_weak(head, head + 1, Release, Acquire)
            {
                Ok(_) => return Some(g),
                Err(now) => head = now,
            }
        }
        None
    }

    /// The handle that is `ahead` places behind the head: a guess at what `pop` will give soon, for prefetching. A thief may
    /// have it by now.
    ///
    /// # Safety
    /// The caller is the owner, or takes the answer for a guess: the handle may be long gone from here.
    #[inline]
    pub unsafe fn peek(&self, ahead: u64) -> Option<NonNull<T>> {
        let number = self.head.load(Relaxed) + ahead;
        // Acquire: others than the owner see with it what is in the slots below; and perhaps a mark.
        if number >= self.own.tail.load(Acquire) & !KICK {
            return None;
        }
        // SAFETY: below tail: written (I2).
        Some(unsafe { self.read(number) })
    }

    /// Moves handles from the front of `list` to the tail of the ring, until one of them ends. Published at once.
    ///
    /// # Safety
    /// The caller is the owner.
    pub unsafe fn push_batch(&self, list: &mut List<T>) {
        let tail = self.own.tail.load(Relaxed);
        let head = self.head.load(Acquire); // I7
        let mut end = tail;
        while end - head < CAP
            && let Some(g) = list.pop_front()
        {
            self.slot(end).store(g.as_ptr(), Relaxed);
            end += 1;
        }
        self.own.tail.store(end, Release);
    }

    /// Takes everything: `next` first, then the ring from the oldest on.
    ///
    /// # Safety
    /// The caller is the owner.
    pub unsafe fn drain(&self) -> List<T> {
        let mut list = List::new();
        // SAFETY: the caller is the owner.
        if let Some(g) = unsafe { self.take_next() } {
            // SAFETY: just taken out, so it is in no queue.
            unsafe { list.push_back(g) };
        }
        let tail = self.own.tail.load(Relaxed);
        let mut head = self.head.load(Acquire);
        while let Err(now) = self
            .head
            .compare_exchange_weak(head, tail, Release, Acquire)
        {
            head = now;
        }
        // SAFETY: claimed just now.
        list.append(unsafe { self.link(head, tail) });
        list
    }
}

impl<T> Default for RunQueue<T> {
    fn default() -> RunQueue<T> {
        RunQueue::new()
    }
}

impl<T> fmt::Debug for RunQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue")
            .field("next", &self.own.next.load(Relaxed))
            .field("len", &self.len())
            .finish()
    }
}
