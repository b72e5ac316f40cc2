//! The slot of a descriptor: what events say about it, and who waits for them.
//!
//! # Why this shape
//! An event arrives with a token and nothing else, perhaps after its descriptor was closed and the number given to another. So
//! the token leads to memory that is recycled but never freed, and carries the generation of its use; an event that comes too
//! late is dropped, and one that slips through costs a system call that finds nothing. All handles to a socket share its slot,
//! and with it its time-outs. Rejected: a slot per handle (an option set on one clone must reach the other), a map from
//! numbers to slots (a lock, and numbers are reused).
//!
//! # The word of a direction
//! | part    | meaning                                                              | changed by                           |
//! |---------|----------------------------------------------------------------------|--------------------------------------|
//! | WAITING | somebody is in the list, or a future has asked                       | under the lock                       |
//! | DRAINED | the last call got less than it asked for: the next would find nothing| the caller, CAS; an event clears it, |
//! |         |                                                                      | and `rouse_all`; a new deadline not  |
//! | ENDING  | end of stream, error, urgent data or not TCP: less proves nothing    | an event sets it, or who took the    |
//! |         |                                                                      | descriptor over, for good            |
//! | count   | events so far; new deadlines and the like (`rouse`) count as some    | an event                             |
//!
//! # Invariants
//! I1  Who wants to wait read the word before the call that found nothing. It sets WAITING under the lock and waits only if the
//!     count is still that one. An event changes the count first and then, if WAITING was set, takes the list under the lock. Both
//!     change the same word, so one of them sees the other.
//! I2  DRAINED is set only if the word did not change since before the call, and trusted only by goroutines of the runtime whose
//!     poller watches the descriptor.
//! I3  A handle owns one of `refs`. Who drops the last closes the descriptor and frees the slot; nobody waits then, since waiting
//!     takes a handle.
//! I4  A node taken from a list is woken by who took it, once, after the lock is dropped (`sync::queue` has the same rule).
//!
//! # Context
//! The lock of a slot and that of the free list are leaves. Slots are made in user context.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use runnext_core::timers::NEVER;
use runnext_core::waitlist::WaitList;
use runnext_sys::clock;
use runnext_sys::ready::{Interest, Kick};

use super::askers::{Askers, Taken};
use super::hub::Hub;
use super::reactor::Alarm;
use super::shortage::Shortage;
use crate::lock::Lock;
use crate::sched::call::Call;
use crate::sched::wait::{Ticket, Waiter};

pub(super) const WAITING: u32 = 1;
pub(super) const DRAINED: u32 = 2;
pub(super) const ENDING: u32 = 4;
const EVENT: u32 = 8;

/// How many slots are made at once: some pages of them.
const CHUNK: usize = 64;

/// Generations that fit beside an address in a token.
const GENERATIONS: u32 = 1 << 22;

/// A direction of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Reading, and accepting.
    Read = 0,
    /// Writing, and connecting.
    Write = 1,
}

impl Direction {
    pub(super) fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::Read,
            Direction::Write => Interest::Write,
        }
    }
}

/// One direction.
pub(super) struct Side {
    pub(super) word: AtomicU32,
    /// When calls end; NEVER.
    pub(super) deadline: AtomicU64,
    /// How long one call may wait; NEVER.
    pub(super) timeout: AtomicU64,
}

impl Side {
    /// When a call has to end that has its time from now on, unless it is known.
    pub(super) fn limit(&self, known: &mut Option<u64>) -> u64 {
        *known.get_or_insert_with(|| match self.timeout.load(Relaxed) {
            NEVER => NEVER,
            ns => clock::now_ns().saturating_add(ns),
        })
    }

    /// Whether calls with that deadline fail now.
    #[inline]
    pub(super) fn is_past(deadline: u64) -> bool {
        deadline != NEVER && deadline <= clock::now_ns()
    }

    /// Whether something happened between the two looks at the word.
    pub(super) fn differs(seen: u32, now: u32) -> bool {
        (seen ^ now) >= EVENT
    }

    /// A call that began after `seen` was read got less than it asked for.
    #[inline]
    pub(super) fn note_drained(&self, seen: u32) {
        if seen & (DRAINED | ENDING) == 0 {
            // I2. If the word has changed the next call just tries.
            let _ = self
                .word
                .compare_exchange(seen, seen | DRAINED, Relaxed, Relaxed);
        }
    }
}

/// Who waits in a direction.
pub(super) struct Waiters {
    pub(super) queue: WaitList<Entry>,
    pub(super) askers: Askers,
    /// When futures are made to look again because of the deadline, once one has asked that has such.
    pub(super) alarm: Option<(u64, Alarm)>,
    /// While there is a lack of what futures that accept need.
    pub(super) shortage: Option<Box<Shortage>>,
}

/// What is left of those who asked when the last handle is gone.
pub(super) type Left = (Taken, Option<(u64, Alarm)>, Option<Box<Shortage>>);

/// A goroutine or thread that waits.
pub(super) struct Entry {
    pub(super) waiter: Waiter,
    /// If a deadline may end the wait as well, or the thread itself.
    pub(super) ticket: Option<Ticket>,
    /// How a plain thread in `ready::wait` is reached.
    pub(super) kick: Option<RawFd>,
    /// The hub counts it as waiting; no longer, once whoever woke it has seen to that.
    pub(super) counts: Cell<bool>,
}

impl Entry {
    /// Wakes a thread, or a goroutine from within a call.
    pub(super) fn wake(&self, call: &Call) {
        match self.kick {
            Some(id) => Kick::give(id),
            None => call.wake(self.waiter),
        }
    }
}

#[repr(align(64))]
pub(super) struct Slot {
    refs: AtomicU32,
    generation: AtomicU32,
    fd: AtomicI32,
    /// Calls do not wait.
    pub(super) nonblocking: AtomicBool,
    /// Its reading end was shut down.
    pub(super) shut: AtomicBool,
    /// Futures wait for it, and its hub counts that; written under the lock.
    pub(super) has_futures: AtomicBool,
    /// It is in a chain of slots whose wakers are due.
    pub(super) chained: AtomicBool,
    /// A direction has a `shortage`; written under the lock.
    pub(super) short: AtomicBool,
    /// The hub it is registered with, of which it owns one count; null.
    pub(super) home: AtomicPtr<Hub>,
    next_free: Cell<*const Slot>,
    pub(super) next_due: Cell<*const Slot>,
    sides: [Side; 2],
    pub(super) lists: Lock<[Waiters; 2]>,
}

// SAFETY: `next_free` belongs to who holds the free list's lock, `next_due` to who set `chained`; the rest is atomic or under a
// lock.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

struct Free(*const Slot);

// SAFETY: slots live for ever; the lock serialises.
unsafe impl Send for Free {}

static FREE: Lock<Free> = Lock::new(Free(ptr::null()));

/// Slots that were made at once, and those made before.
struct Chunk {
    slots: &'static [Slot],
    older: *const Chunk,
}

static NEWEST: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());

impl Slot {
    fn empty() -> Slot {
        let side = || Side {
            word: AtomicU32::new(0),
            deadline: AtomicU64::new(NEVER),
            timeout: AtomicU64::new(NEVER),
        };
        let waiters = || Waiters {
            queue: WaitList::new(),
            askers: Askers::new(),
            alarm: None,
            shortage: None,
        };
        Slot {
            refs: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            nonblocking: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            has_futures: AtomicBool::new(false),
            chained: AtomicBool::new(false),
            short: AtomicBool::new(false),
            home: AtomicPtr::new(ptr::null_mut()),
            next_free: Cell::new(ptr::null()),
            next_due: Cell::new(ptr::null()),
            sides: [side(), side()],
            lists: Lock::new([waiters(), waiters()]),
        }
    }

    /// A slot for `fd`, with one handle. In user context.
    pub(super) fn take(fd: RawFd) -> &'static Slot {
        let slot = Slot::pop_free().unwrap_or_else(Slot::make);
        slot.fd.store(fd, Relaxed);
        slot.refs.store(1, Relaxed);
        slot
    }

    fn pop_free() -> Option<&'static Slot> {
        let call = Call::brief();
        let slot = {
            let mut free = FREE.lock();
            // SAFETY: slots are never freed.
            unsafe { free.0.as_ref() }.inspect(|slot| free.0 = slot.next_free.get())
        };
        drop(call);
        slot
    }

    #[cold]
    fn make() -> &'static Slot {
        let chunk: Box<[Slot]> = (0..CHUNK).map(|_| Slot::empty()).collect();
        let slots: &'static [Slot] = Box::leak(chunk);
        Slot::note_chunk(slots);
        let (first, rest) = slots
            .split_first()
            .unwrap_or_else(|| unreachable!("a chunk is not empty"));
        let call = Call::brief();
        {
            let mut free = FREE.lock();
            for slot in rest {
                slot.next_free.set(free.0);
                free.0 = slot;
            }
        }
        drop(call);
        first
    }

    fn note_chunk(slots: &'static [Slot]) {
        let chunk = Box::leak(Box::new(Chunk {
            slots,
            older: NEWEST.load(Acquire),
        }));
        while let Err(newest) =
            NEWEST.compare_exchange(chunk.older.cast_mut(), chunk, AcqRel, Acquire)
        {
            chunk.older = newest;
        }
    }

    /// Shows all slots, also those that are free.
    pub(super) fn for_each(mut f: impl FnMut(&'static Slot)) {
        let mut at: *const Chunk = NEWEST.load(Acquire);
        // SAFETY: chunks are never freed, and do not change once they are listed.
        while let Some(chunk) = unsafe { at.as_ref() } {
            chunk.slots.iter().for_each(&mut f);
            at = chunk.older;
        }
    }

    #[inline]
    pub(super) fn fd(&self) -> RawFd {
        self.fd.load(Relaxed)
    }

    #[inline]
    pub(super) fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction as usize]
    }

    /// Whether it is registered with `hub`.
    pub(super) fn is_at(&self, hub: &Hub) -> bool {
        ptr::eq(self.home.load(Acquire), hub)
    }

    /// Another handle.
    pub(super) fn add_ref(&self) {
        self.refs.fetch_add(1, Relaxed);
    }

    /// A handle less. True: it was the last (I3).
    pub(super) fn drop_ref(&self) -> bool {
        self.refs.fetch_sub(1, AcqRel) == 1
    }

    pub(super) fn is_unique(&self) -> bool {
        self.refs.load(Acquire) == 1
    }

    /// What the poller gives back: address and generation. Slots are aligned to 64 and user addresses have 48 bits, so the lower 22
    /// of an address moved up by 16 are free.
    pub(super) fn token(&self) -> u64 {
        let address = (&raw const *self).addr() as u64;
        debug_assert!(address < 1 << 48);
        address << 16 | u64::from(self.generation.load(Relaxed))
    }

    /// The slot of an event, unless its descriptor was closed since.
    pub(super) fn of_token(token: u64) -> Option<&'static Slot> {
        let generation = token as u32 % GENERATIONS;
        let address = (token - u64::from(generation)) >> 16;
        // SAFETY: made by `token` from a slot, and slots are never freed.
        let slot = unsafe { &*(address as *const Slot) };
        (slot.generation.load(Relaxed) == generation).then_some(slot)
    }

    /// Something happened that makes `cleared` untrue and `set` true: if somebody waits, `f` gets the list, with the lock held.
    #[inline]
    pub(super) fn happened(
        &self,
        direction: Direction,
        cleared: u32,
        set: u32,
        f: impl FnOnce(&mut Waiters),
    ) {
        let word = &self.side(direction).word;
        let mut old = word.load(Relaxed);
        loop {
            let new = old.wrapping_add(EVENT) & !cleared | set;
            match word.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old & WAITING != 0 {
            self.with_waiters(direction, f);
        }
    }

    /// Hands the list to `f`, who empties it, with the lock held.
    fn with_waiters(&self, direction: Direction, f: impl FnOnce(&mut Waiters)) {
        let mut lists = self.lists.lock();
        self.side(direction).word.fetch_and(!WAITING, Relaxed);
        f(&mut lists[direction as usize]);
        self.count_futures(&lists);
    }

    /// Tells the hub if futures wait that did not, or the other way round. With the lock held, after one has asked or all were woken.
    pub(super) fn count_futures(&self, lists: &[Waiters; 2]) {
        let wait = lists.iter().any(|side| side.askers.wait());
        if wait == self.has_futures.load(Relaxed) {
            return;
        }
        self.has_futures.store(wait, Relaxed);
        // SAFETY: who asks has registered it, and that changes under the lock; the slot keeps a count on it.
        let home = unsafe { &*self.home.load(Relaxed) };
        if wait {
            home.begin_wait();
        } else {
            home.end_wait();
        }
    }

    /// The last handle is gone: forgets everything, and takes the slot back. Returns what is to be dropped in user context.
    pub(super) fn retire(&self) -> (Option<Arc<Hub>>, [Left; 2]) {
        let call = Call::brief();
        // Events from here on are of another time.
        let next = (self.generation.load(Relaxed) + 1) % GENERATIONS;
        self.generation.store(next, Relaxed);
        let (home, wakers) = {
            let mut lists = self.lists.lock();
            debug_assert!(lists.iter().all(|side| side.queue.is_empty())); // I3
            let wakers = lists.each_mut().map(|side| {
                (
                    side.askers.take_all(),
                    side.alarm.take(),
                    side.shortage.take(),
                )
            });
            self.count_futures(&lists);
            (self.home.swap(ptr::null_mut(), AcqRel), wakers)
        };
        // SAFETY: the count that the slot owned.
        let home = (!home.is_null()).then(|| unsafe { Arc::from_raw(home) });
        if let Some(home) = &home {
            home.forget(self.fd());
        }
        for side in &self.sides {
            side.word.store(0, Relaxed);
            side.deadline.store(NEVER, Relaxed);
            side.timeout.store(NEVER, Relaxed);
        }
        self.nonblocking.store(false, Relaxed);
        self.shut.store(false, Relaxed);
        self.short.store(false, Relaxed);
        drop(call);
        (home, wakers)
    }

    /// Back into the free list; the descriptor is closed.
    pub(super) fn free(&'static self) {
        let call = Call::brief();
        let mut free = FREE.lock();
        self.next_free.set(free.0);
        free.0 = self;
        drop(free);
        drop(call);
    }
}
