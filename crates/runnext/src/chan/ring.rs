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
//! places given to `Select`s that have not come back with their value; they count as used. *Room*: not all places are used. So a
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
//! Both locks are taken in the order R, S. Those who only look take none: `runnext_core::probe` has the rules for that, also for the
//! order in which the words change.
//!
//! # Invariants
//! I1  A receiver that can be served waits only while the ring is empty, a sender only while it is full. A promise that ends leaves room, and
//!     a sender let in whose value is handed over leaves it again: so they are let in until there is no room, or none of them.
//! I2  0 <= tail - head, and tail - head + promised <= capacity. The places head..tail hold values, the others none.
//! I3  `head_seen` <= head and `tail_seen` <= tail: what one side believes of the other is true, or was.
//!
//! # Tests
//! `tests/chan*.rs`: model, stress with checksums, order.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use runnext_core::probe::{self, Probe};
use runnext_core::shim::CachePadded;

use super::Flavor;
use super::wait::{Ended, Mode, Node, Outcome, Queue, Step, attempt_or_queue};
use crate::lock::{Lock, LockGuard};
use crate::sched::call::Call;
use crate::sched::wait::Waiter;

pub(super) struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    closed: AtomicBool,
    promised: AtomicUsize,
    /// Promises whose place became free without a value in it, ever.
    broken: AtomicUsize,
    senders: CachePadded<Senders>,
    receivers: CachePadded<Receivers>,
}

struct Senders {
    lock: Lock<SendSide>,
    tail: AtomicUsize,
}

/// Under S.
struct SendSide {
    /// The place of `tail`.
    at: usize,
    head_seen: usize,
    /// Those who wait for a value.
    waiting: Queue,
}

struct Receivers {
    lock: Lock<RecvSide>,
    head: AtomicUsize,
}

/// Under R.
struct RecvSide {
    /// The place of `head`.
    at: usize,
    tail_seen: usize,
    /// Those who wait for room.
    waiting: Queue,
}

// SAFETY: a slot is used by one party at a time (I2 and the locks), which moves the value it holds to another thread.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Ring<T> {}

/// The memory for all values, or a panic: a bound that came out wrong is for the caller to handle, and must not end the process.
#[track_caller]
fn places<T>(cap: usize) -> Box<[UnsafeCell<MaybeUninit<T>>]> {
    let mut places = Vec::new();
    if places.try_reserve_exact(cap).is_err() {
        panic!(
            "no memory for a channel with room for {cap} values of {} bytes, which is reserved when it is made: give it a smaller \
             capacity, or use chan::unbounded, which takes memory as values come",
            size_of::<T>()
        )
    }
    // SAFETY: so many were reserved, and a `MaybeUninit` needs no initialising.
    unsafe { places.set_len(cap) };
    places.into_boxed_slice()
}

impl<T> Ring<T> {
    #[track_caller]
    pub(super) fn new(cap: usize) -> Ring<T> {
        debug_assert!(cap > 0);
        Ring {
            slots: places(cap),
            closed: AtomicBool::new(false),
            promised: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            senders: CachePadded::new(Senders {
                lock: Lock::new(SendSide {
                    at: 0,
                    head_seen: 0,
                    waiting: Queue::new(),
                }),
                tail: AtomicUsize::new(0),
            }),
            receivers: CachePadded::new(Receivers {
                lock: Lock::new(RecvSide {
                    at: 0,
                    tail_seen: 0,
                    waiting: Queue::new(),
                }),
                head: AtomicUsize::new(0),
            }),
        }
    }

    #[inline]
    fn cap(&self) -> usize {
        self.slots.len()
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
    unsafe fn put(&self, side: &mut SendSide, value: *const T) {
        // SAFETY: `at` is a place that holds nothing (I2), and the receivers do not look at it before `tail` says so.
        unsafe {
            (*self.slots[side.at].get())
                .as_mut_ptr()
                .copy_from_nonoverlapping(value, 1)
        };
        side.at = self.after(side.at);
        let tail = self.senders.tail.load(Relaxed);
        self.senders.tail.store(tail.wrapping_add(1), Release);
    }

    /// Takes the value from the oldest place. Under R.
    ///
    /// # Safety
    /// There is one, and `into` is valid.
    #[inline]
    unsafe fn get(&self, side: &mut RecvSide, into: *mut T) {
        // SAFETY: `at` holds a value (I2), and the senders do not look at the place before `head` says so.
        unsafe { into.copy_from_nonoverlapping((*self.slots[side.at].get()).as_ptr(), 1) };
        side.at = self.after(side.at);
        let head = self.receivers.head.load(Relaxed);
        self.receivers.head.store(head.wrapping_add(1), Release);
    }

    /// Whether there is room. Under S.
    #[inline]
    fn has_room(&self, side: &mut SendSide) -> bool {
        let used = self.senders.tail.load(Relaxed).wrapping_sub(side.head_seen)
            + self.promised.load(Relaxed);
        if used < self.cap() {
            return true;
        }
        side.head_seen = self.receivers.head.load(Acquire);
        self.used() < self.cap()
    }

    /// Whether there is a value. Under R.
    #[inline]
    fn has_value(&self, side: &mut RecvSide) -> bool {
        let head = self.receivers.head.load(Relaxed);
        if head != side.tail_seen {
            return true;
        }
        side.tail_seen = self.senders.tail.load(Acquire);
        head != side.tail_seen
    }

    /// Gives a value to a waiting receiver, if there is one; it is to be woken. Under S; I1 says that the ring is empty then.
    ///
    /// # Safety
    /// There is room. `value` is initialised, and not used again if a receiver is returned.
    #[inline]
    unsafe fn hand_over<'a>(&self, side: &mut SendSide, value: *const T) -> Option<&'a Node> {
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
        r: &mut RecvSide,
        s: &mut SendSide,
    ) -> Option<(&'a Node, Option<&'a Node>)> {
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
    fn admit_all(&self, r: &mut RecvSide, s: &mut SendSide, ended: &mut Ended) {
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
    unsafe fn get_and_admit(&self, r: &mut RecvSide, into: *mut T) -> Option<Waiter> {
        let mut s = self.senders.lock.lock();
        // SAFETY: the contract; `get` makes room. It was not empty, so no receiver waits (I1), and the room is for one.
        unsafe {
            self.get(r, into);
            let (sender, _) = self.admit(r, &mut s)?;
            Some(sender.waiter)
        }
    }

    /// A sender queues up if the ring is still full. False: look again.
    #[cold]
    fn queue_send(&self, node: &Node) -> bool {
        let mut side = self.receivers.lock.lock();
        if self.closed.load(Relaxed) || self.used() < self.cap() {
            return false;
        }
        // SAFETY: the caller keeps the node until its wait is over.
        unsafe { side.waiting.push(node) };
        true
    }

    /// A receiver queues up if the ring is still empty. False: look again.
    #[cold]
    fn queue_recv(&self, node: &Node) -> bool {
        let mut side = self.senders.lock.lock();
        let empty = self.senders.tail.load(Relaxed) == self.receivers.head.load(Acquire);
        if self.closed.load(Relaxed) || !empty {
            return false;
        }
        // SAFETY: the caller keeps the node until its wait is over.
        unsafe { side.waiting.push(node) };
        true
    }

    fn both(&self) -> (LockGuard<'_, RecvSide>, LockGuard<'_, SendSide>) {
        let r = self.receivers.lock.lock();
        (r, self.senders.lock.lock())
    }

    /// As a send, for a value that comes later: `Done` means that a place is kept for it.
    pub(super) fn promise(&self, node: &Node, mode: Mode) -> Step {
        let is_ready = || self.probe_send().ready;
        let quick = || self.quick_promise();
        attempt_or_queue(mode, is_ready, quick, || self.queue_send(node))
    }

    fn quick_promise(&self) -> Step {
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

    /// The value of a promise. False if the channel is closed. Wakes whom it must.
    ///
    /// # Safety
    /// The caller holds a promise, which ends here. `value` is initialised, and not used again if this is true.
    pub(super) unsafe fn keep(&self, call: &Call, value: *const T) -> bool {
        let mut ended = Ended::new();
        {
            let (mut r, mut s) = self.both();
            self.end_promise();
            if self.closed.load(Relaxed) {
                return false;
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
        }
        ended.wake(call);
        true
    }

    /// A promise that will not be kept. Wakes whom it must.
    pub(super) fn give_up(&self, call: &Call) {
        let mut ended = Ended::new();
        {
            let (mut r, mut s) = self.both();
            self.end_promise();
            self.free_place();
            self.admit_all(&mut r, &mut s, &mut ended);
        }
        ended.wake(call);
    }
}

impl<T> Flavor<T> for Ring<T> {
    #[inline]
    unsafe fn quick_send(&self, value: *mut T) -> Step {
        let mut side = self.senders.lock.lock();
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

    #[inline]
    unsafe fn quick_recv(&self, into: *mut T) -> Step {
        let mut side = self.receivers.lock.lock();
        if self.has_value(&mut side) {
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

    unsafe fn send(&self, value: *mut T, node: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_send(value) };
        let is_ready = || self.probe_send().ready;
        attempt_or_queue(mode, is_ready, quick, || self.queue_send(node))
    }

    unsafe fn recv(&self, into: *mut T, node: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_recv(into) };
        let is_ready = || self.probe_recv().ready;
        attempt_or_queue(mode, is_ready, quick, || self.queue_recv(node))
    }

    fn leave_send(&self, node: &Node) {
        self.receivers.lock.lock().waiting.leave(node);
    }

    fn leave_recv(&self, node: &Node) {
        self.senders.lock.lock().waiting.leave(node);
    }

    /// Becomes ready by a value being taken, a place of a promise becoming free or the close: the first two move the stamp.
    #[inline]
    fn probe_send(&self) -> Probe {
        let room = self.room();
        Probe {
            ready: room.ready || self.closed.load(Acquire),
            ..room
        }
    }

    /// Becomes ready by a value being put or the close; the first moves the stamp.
    #[inline]
    fn probe_recv(&self) -> Probe {
        let value = probe::value(&self.receivers.head, &self.senders.tail);
        Probe {
            ready: value.ready || self.closed.load(Acquire),
            ..value
        }
    }

    fn close(&self, call: &Call) -> bool {
        let (senders, receivers) = {
            let (mut r, mut s) = self.both();
            if self.closed.load(Relaxed) {
                return false;
            }
            self.closed.store(true, Release);
            let senders = r.waiting.end_all(Outcome::Closed);
            let receivers = s.waiting.end_all(Outcome::Closed);
            (senders, receivers)
        };
        senders.wake(call);
        receivers.wake(call);
        true
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    #[inline]
    fn len(&self) -> usize {
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

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let tail = *self.senders.tail.get_mut();
        let mut at = self.receivers.lock.lock().at;
        // Counted before it is dropped: if one panics the others are leaked, and none is dropped twice.
        while *self.receivers.head.get_mut() != tail {
            let head = self.receivers.head.get_mut();
            *head = head.wrapping_add(1);
            let this = at;
            at = self.after(at);
            let slot = self.slots[this].get_mut();
            // SAFETY: nobody else is left, and head..tail hold values (I2).
            unsafe { slot.assume_init_drop() };
        }
    }
}
