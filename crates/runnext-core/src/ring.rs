//! The bounded channel: a ring with a lock for each end.
//!
//! # Why this shape
//! Senders exclude each other, and so do receivers, but a sender and a receiver meet only when the ring is full or
//! empty: between those, producers on one core and a consumer on another work at the same time and touch each other's line
//! once per lap (each side remembers how far it last saw the other). One lock for both, as Go has, bounces with every
//! message. Rejected: a ring without locks and a stamp in each slot. It saves one locked instruction per operation, but a
//! thread stopped between taking a place and filling it blocks all others, waiting needs a second structure that must
//! agree with the ring, and first-come-first-served is lost.
//!
//! # Words
//! `tail` and `head` count all values ever put in and taken out. *S* is the senders' lock, *R* the receivers'. *promised*:
//! places given to senders that have not come back with their value (`Select`); they count as used. *Room*: not all places are used. So a
//! ring may be full and empty at once, and then a sender waits, whoever waits to receive: first come, first served.
//!
//! | what                          | changed under | so that under it                                             |
//! |-------------------------------|---------------|--------------------------------------------------------------|
//! | tail, the waiting receivers   | S             | "empty" stays true: a receiver queues up under S             |
//! | head, the waiting senders     | R             | "full" stays true: a sender queues up under R                |
//! | promised, broken, closed      | R and S       | both ends see them                                           |
//!
//! # Protocol
//! send: S: 1 closed?  2 room: a receiver waits: hand over; nobody waits: put. Else R: 3 still full: queue up, otherwise from 1
//! recv: R: 1 not empty: a sender waits: with S, take the oldest and put the sender's value behind; nobody waits: take.
//!       2 closed?  Else S: 3 still empty: queue up, otherwise from 1
//! keep: R, S: the promise ends; a receiver waits: hand over, and let senders in; nobody waits: put. give up: likewise, without a value
//! Both locks are taken in the order R, S. Those who only look take none: [`probe`] has the rules for that, also for the
//! order in which the words change.
//!
//! # Invariants
//! I1  A receiver that can be served waits only while the ring is empty, a sender only while it is full. A promise that ends leaves room, and
//!     a sender let in whose value is handed over leaves it again: so they are let in until there is no room, or none of them.
//! I2  0 <= tail - head, and tail - head + promised <= capacity. The places head..tail hold values, the others none.
//! I3  `head_seen` <= head and `tail_seen` <= tail: what one side believes of the other is true, or was.
//!
//! # Context
//! Never allocates but in [`Ring::new`], and never drops a value but with itself. Who waits and how, and the locks: [`flavor`](crate::flavor).
//!
//! Tests: `ring/loom.rs`, on this code; with goroutines and threads `tests/chan*.rs` of the runtime: model, stress with checksums, order.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr;

use crate::flavor::{Flavor, Locks};
use crate::probe::{self, Probe};
use crate::shim::{
    AtomicBool, AtomicUsize, CachePadded,
    Ordering::{Acquire, Relaxed, Release},
    UnsafeCell,
};
use crate::waiting::{Ended, Mode, Node, Outcome, Queue, Step, Waiter, attempt_or_queue};

/// See the [module](self).
pub struct Ring<T, W: Waiter, L: Locks> {
    slots: Box<[Slot<T>]>,
    closed: AtomicBool,
    promised: AtomicUsize,
    /// Promises whose place became free without a value in it, ever.
    broken: AtomicUsize,
    senders: CachePadded<Senders<W, L>>,
    receivers: CachePadded<Receivers<W, L>>,
}

struct Senders<W: Waiter, L: Locks> {
    lock: L::Lock<SendSide<W>>,
    tail: AtomicUsize,
}

/// Under S.
struct SendSide<W: Waiter> {
    /// The place of `tail`.
    at: usize,
    head_seen: usize,
    /// Those who wait for a value.
    waiting: Queue<W>,
}

struct Receivers<W: Waiter, L: Locks> {
    lock: L::Lock<RecvSide<W>>,
    head: AtomicUsize,
}

/// Under R.
struct RecvSide<W: Waiter> {
    /// The place of `head`.
    at: usize,
    tail_seen: usize,
    /// Those who wait for room.
    waiting: Queue<W>,
}

// SAFETY: a slot is used by one party at a time (I2 and the locks), which moves the value it holds to another thread.
unsafe impl<T: Send, W: Waiter, L: Locks> Sync for Ring<T, W, L> {}
// SAFETY: as above.
unsafe impl<T: Send, W: Waiter, L: Locks> Send for Ring<T, W, L> {}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The memory for all values. None if there is not so much.
fn places<T>(cap: usize) -> Option<Box<[Slot<T>]>> {
    let mut places = Vec::new();
    places.try_reserve_exact(cap).ok()?;
    #[cfg(not(loom))]
    // SAFETY: so many were reserved, and a `MaybeUninit` needs no initialising.
    unsafe {
        places.set_len(cap)
    };
    #[cfg(loom)] // whose cells do
    places.resize_with(cap, || UnsafeCell::new(MaybeUninit::uninit()));
    Some(places.into_boxed_slice())
}

impl<T, W: Waiter, L: Locks> Ring<T, W, L> {
    /// A ring with room for `cap` values, not 0. None if there is no memory for them.
    pub fn new(cap: usize) -> Option<Ring<T, W, L>> {
        debug_assert!(cap > 0);
        Some(Ring {
            slots: places(cap)?,
            closed: AtomicBool::new(false),
            promised: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            senders: CachePadded::new(Senders {
                lock: L::new(SendSide {
                    at: 0,
                    head_seen: 0,
                    waiting: Queue::new(),
                }),
                tail: AtomicUsize::new(0),
            }),
            receivers: CachePadded::new(Receivers {
                lock: L::new(RecvSide {
                    at: 0,
                    tail_seen: 0,
                    waiting: Queue::new(),
                }),
                head: AtomicUsize::new(0),
            }),
        })
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.cap() { 0 } else { at + 1 }
    }

    /// Values and promises, with a fresh look at both ends.
    #[inline]
    fn used(&self) -> usize {
        let head = self.receivers.head.load(Acquire);
        let tail = self.senders.tail.load(Acquire);
        tail.wrapping_sub(head) + self.promised.load(Relaxed)
    }

    /// Whether there is room, with no lock.
    #[inline]
    fn room(&self) -> Probe {
        let (tail, head) = (&self.senders.tail, &self.receivers.head);
        probe::room(tail, &self.promised, &self.broken, head, self.cap())
    }

    /// Puts a value into the next place. Under S.
    ///
    /// # Safety
    /// There is room, and `value` is initialised and not used again.
    #[inline]
    unsafe fn put(&self, side: &mut SendSide<W>, value: *const T) {
        // SAFETY: `at` is a place that holds nothing (I2), and the receivers do not look at it before `tail` says so.
        self.slots[side.at].with_mut(|slot| unsafe {
            (*slot).as_mut_ptr().copy_from_nonoverlapping(value, 1);
        });
        side.at = self.after(side.at);
        let tail = self.senders.tail.load(Relaxed);
        self.senders.tail.store(tail.wrapping_add(1), Release);
    }

    /// Takes the value from the oldest place. Under R.
    ///
    /// # Safety
    /// There is one, and `into` is valid.
    #[inline]
    unsafe fn get(&self, side: &mut RecvSide<W>, into: *mut T) {
        // SAFETY: `at` holds a value (I2), and the senders do not look at the place before `head` says so.
        self.slots[side.at].with_mut(|slot| unsafe {
            into.copy_from_nonoverlapping((*slot).as_ptr(), 1);
        });
        side.at = self.after(side.at);
        let head = self.receivers.head.load(Relaxed);
        self.receivers.head.store(head.wrapping_add(1), Release);
    }

    /// Whether there is room. Under S.
    #[inline]
    fn has_room(&self, side: &mut SendSide<W>) -> bool {
        let used = self.senders.tail.load(Relaxed).wrapping_sub(side.head_seen)
            + self.promised.load(Relaxed);
        if used < self.cap() {
            return true;
        }
        side.head_seen = self.receivers.head.load(Acquire);
        self.used() < self.cap()
    }

    /// Gives a value to a waiting receiver, if there is one; it is to be woken. Under S; I1 says that the ring is empty then.
    ///
    /// # Safety
    /// There is room. `value` is initialised, and not used again if a receiver is returned.
    #[inline]
    unsafe fn hand_over<'a>(&self, side: &mut SendSide<W>, value: *const T) -> Option<&'a Node<W>> {
        if side.waiting.is_empty() {
            return None;
        }
        let peer = side.waiting.take()?;
        // SAFETY: the peer waits with an empty slot of the same type.
        unsafe { ptr::copy_nonoverlapping(value, peer.slot::<T>(), 1) };
        peer.end(Outcome::Done);
        Some(peer)
    }

    /// The first waiting sender's turn: its value goes into the ring, or to a receiver; a promise becomes a place of its own.
    /// Returns whom to wake: the sender, and the receiver. Under both locks.
    ///
    /// # Safety
    /// There is room.
    unsafe fn admit<'a>(
        &self,
        r: &mut RecvSide<W>,
        s: &mut SendSide<W>,
    ) -> Option<(&'a Node<W>, Option<&'a Node<W>>)> {
        let peer = r.waiting.take()?;
        let mut receiver = None;
        if peer.promise {
            self.add_promise();
        } else {
            // SAFETY: the sender waits with a value in its slot, and lets go of it with the outcome `Done`; there is room.
            unsafe {
                receiver = self.hand_over(s, peer.slot::<T>());
                if receiver.is_none() {
                    self.put(s, peer.slot::<T>());
                }
            }
        }
        peer.end(Outcome::Done);
        Some((peer, receiver))
    }

    /// Lets in those who wait to send while there is room (I1). Under both locks.
    fn admit_all(&self, r: &mut RecvSide<W>, s: &mut SendSide<W>, ended: &mut Ended<W>) {
        while self.has_room(s)
            // SAFETY: there is room.
            && let Some((sender, receiver)) = unsafe { self.admit(r, s) }
        {
            ended.add(sender);
            if let Some(receiver) = receiver {
                ended.add(receiver);
            }
        }
    }

    /// Takes the oldest value while senders wait: the first of them moves up in the same step, so that none that comes
    /// meanwhile overtakes it.
    ///
    /// # Safety
    /// There is a value, and `into` is valid.
    #[cold]
    unsafe fn get_and_admit(&self, r: &mut RecvSide<W>, into: *mut T) -> Option<W> {
        let mut s = self.lock_s();
        // SAFETY: the contract; `get` makes room. It was not empty, so no receiver waits (I1), and the room is for one.
        unsafe {
            self.get(r, into);
            let (sender, _) = self.admit(r, &mut s)?;
            Some(sender.waiter)
        }
    }

    /// A sender queues up if the ring is still full. False: look again.
    ///
    /// # Safety
    /// As [`send`](Flavor::send), of the node.
    #[cold]
    unsafe fn queue_send(&self, node: &Node<W>) -> bool {
        let mut side = self.lock_r();
        if self.closed.load(Relaxed) || self.used() < self.cap() {
            return false;
        }
        // SAFETY: the contract.
        unsafe { side.waiting.push(node) };
        true
    }

    /// A receiver queues up if the ring is still empty. False: look again.
    ///
    /// # Safety
    /// As [`recv`](Flavor::recv), of the node.
    #[cold]
    unsafe fn queue_recv(&self, node: &Node<W>) -> bool {
        let mut side = self.lock_s();
        if self.probe_recv().ready {
            return false;
        }
        // SAFETY: the contract.
        unsafe { side.waiting.push(node) };
        true
    }

    #[inline]
    fn lock_s(&self) -> L::Guard<'_, SendSide<W>> {
        L::lock(&self.senders.lock)
    }

    #[inline]
    fn lock_r(&self) -> L::Guard<'_, RecvSide<W>> {
        L::lock(&self.receivers.lock)
    }

    #[allow(clippy::type_complexity)]
    fn both(&self) -> (L::Guard<'_, RecvSide<W>>, L::Guard<'_, SendSide<W>>) {
        let r = self.lock_r();
        (r, self.lock_s())
    }

    fn quick_promise(&self) -> Step<W> {
        let (_r, mut s) = self.both();
        if self.closed.load(Relaxed) {
            return Step::Closed;
        }
        if !self.has_room(&mut s) {
            return Step::Blocked;
        }
        self.add_promise();
        Step::Done(None)
    }

    /// Under both locks.
    fn add_promise(&self) {
        let promised = self.promised.load(Relaxed);
        self.promised.store(promised + 1, Release);
    }

    /// Under both locks. Its place is free: to be used, or [`free_place`](Self::free_place) tells those who look.
    fn end_promise(&self) {
        let promised = self.promised.load(Relaxed);
        self.promised.store(promised - 1, Release);
    }

    /// Under both locks.
    fn free_place(&self) {
        let broken = self.broken.load(Relaxed);
        self.broken.store(broken.wrapping_add(1), Release);
    }

    /// The value of a promise. None if the channel is closed.
    ///
    /// # Safety
    /// The caller holds a promise, which ends here. `value` is initialised, and not used again unless this is None.
    pub unsafe fn keep(&self, value: *const T) -> Option<Ended<W>> {
        let mut ended = Ended::new();
        let (mut r, mut s) = self.both();
        self.end_promise();
        if self.closed.load(Relaxed) {
            return None;
        }
        // SAFETY: as the caller promises. The promise kept room.
        match unsafe { self.hand_over(&mut s, value) } {
            // SAFETY: as above.
            None => unsafe { self.put(&mut s, value) },
            Some(receiver) => {
                self.free_place();
                ended.add(receiver);
                self.admit_all(&mut r, &mut s, &mut ended);
            }
        }
        Some(ended)
    }

    /// A promise that will not be kept. By who holds one, which ends here.
    pub fn give_up(&self) -> Ended<W> {
        let mut ended = Ended::new();
        let (mut r, mut s) = self.both();
        self.end_promise();
        self.free_place();
        self.admit_all(&mut r, &mut s, &mut ended);
        ended
    }

    #[inline]
    fn cap(&self) -> usize {
        self.slots.len()
    }
}

impl<T, W: Waiter, L: Locks> Flavor<T, W> for Ring<T, W, L> {
    #[inline(always)] // for most it is the whole operation
    unsafe fn quick_send(&self, value: *mut T) -> Step<W> {
        let mut side = self.lock_s();
        if self.closed.load(Relaxed) {
            return Step::Closed;
        }
        if !self.has_room(&mut side) {
            return Step::Blocked;
        }
        // SAFETY: the contract, and there is room.
        if let Some(peer) = unsafe { self.hand_over(&mut side, value) } {
            return Step::Done(Some(peer.waiter));
        }
        // SAFETY: as above.
        unsafe { self.put(&mut side, value) };
        Step::Done(None)
    }

    #[inline(always)] // for most it is the whole operation
    unsafe fn quick_recv(&self, into: *mut T) -> Step<W> {
        let mut side = self.lock_r();
        let (head, tail) = (&self.receivers.head, &self.senders.tail);
        if probe::value_since(head, tail, &mut side.tail_seen) {
            if side.waiting.is_empty() {
                // SAFETY: there is a value, and `into` is valid (contract).
                unsafe { self.get(&mut side, into) };
                return Step::Done(None);
            }
            // SAFETY: as above.
            return Step::Done(unsafe { self.get_and_admit(&mut side, into) });
        }
        if self.closed.load(Relaxed) {
            return Step::Closed;
        }
        Step::Blocked
    }

    unsafe fn send(&self, value: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_send(value) };
        let is_ready = || self.probe_send().ready;
        // SAFETY: the contract.
        attempt_or_queue(mode, is_ready, quick, || unsafe { self.queue_send(node) })
    }

    /// `Done` means that a place is kept for the value.
    unsafe fn promise(&self, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        let is_ready = || self.probe_send().ready;
        let quick = || self.quick_promise();
        // SAFETY: the contract.
        attempt_or_queue(mode, is_ready, quick, || unsafe { self.queue_send(node) })
    }

    unsafe fn recv(&self, into: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_recv(into) };
        let is_ready = || self.probe_recv().ready;
        // SAFETY: the contract.
        attempt_or_queue(mode, is_ready, quick, || unsafe { self.queue_recv(node) })
    }

    fn leave_send(&self, node: &Node<W>) {
        self.lock_r().waiting.leave(node);
    }

    fn leave_recv(&self, node: &Node<W>) {
        self.lock_s().waiting.leave(node);
    }

    /// Becomes ready by a value being taken, a place of a promise becoming free or the close: the first two move the stamp.
    #[inline]
    fn probe_send(&self) -> Probe {
        self.room().or_closed(&self.closed)
    }

    /// Becomes ready by a value being put or the close; the first moves the stamp.
    #[inline]
    fn probe_recv(&self) -> Probe {
        probe::value(&self.receivers.head, &self.senders.tail).or_closed(&self.closed)
    }

    fn close(&self) -> Option<Ended<W>> {
        let (mut r, mut s) = self.both();
        if self.closed.load(Relaxed) {
            return None;
        }
        self.closed.store(true, Release);
        let receivers = s.waiting.end_all(Outcome::Closed);
        Some(receivers.after(r.waiting.end_all(Outcome::Closed)))
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    #[inline]
    fn count(&self) -> usize {
        probe::len(&self.receivers.head, &self.senders.tail)
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.cap())
    }

    /// Promises take places too.
    fn is_full(&self) -> bool {
        !self.room().ready
    }
}

impl<T, W: Waiter, L: Locks> Drop for Ring<T, W, L> {
    fn drop(&mut self) {
        let (head, tail) = (&self.receivers.head, self.senders.tail.load(Relaxed));
        let mut at = self.lock_r().at;
        // Counted before it is dropped: if one panics the others are leaked, and none is dropped twice.
        while head.load(Relaxed) != tail {
            head.store(head.load(Relaxed).wrapping_add(1), Relaxed);
            let this = at;
            at = self.after(at);
            // SAFETY: nobody else is left, and head..tail hold values (I2).
            self.slots[this].with_mut(|slot| unsafe { (*slot).assume_init_drop() });
        }
    }
}

impl<T, W: Waiter, L: Locks> fmt::Debug for Ring<T, W, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("count", &self.count())
            .field("cap", &self.cap())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom;
