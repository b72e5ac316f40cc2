//! The wait list of every primitive in `sync`: a queue of nodes that lie on the stacks of those who wait.
//!
//! # Why this shape
//! Waiting allocates nothing, and a waiter that gives up leaves from the middle in constant time, so the links
//! go both ways. The queue is kept under the primitive's own [`Lock`]: contention on it is contention on that primitive, and two
//! primitives never disturb each other. Rejected: a table of queues by address, as Go and parking_lot have, which
//! makes a mutex one word but puts a hash and a shared bucket before each wait.
//!
//! # Protocol
//! waiter: 1 make a node (may allocate on a plain thread, so before the lock)  2 lock  3 [`Node::wait`]: link, unlock, park
//! waker:  1 lock  2 [`Queue::pop`] or [`Queue::take_all`]  3 unlock  4 wake what came out
//!
//! # Invariants
//! I1  A linked node is alive: its owner stays in [`Node::wait`] until it was taken out, by a waker or by itself.
//! I2  Whoever takes out another's node wakes it, once, and does not look at it afterwards.
//! I3  Nodes are linked, unlinked and read under the lock, except those in a [`Batch`], which belong to its holder.
//!
//! # Context
//! Under a `Lock`, so it allocates nothing and calls nothing; waking comes after unlocking.

use std::cell::Cell;
use std::marker::PhantomPinned;
use std::ptr;

use crate::g::WaitReason;
use crate::lock::LockGuard;
use crate::sched::call::Call;
use crate::sched::wait::Waiter;

/// One wait.
pub(super) struct Node {
    waiter: Waiter,
    next: Cell<*const Node>,
    prev: Cell<*const Node>,
    _pinned: PhantomPinned,
}

/// Where a waiter queues up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Front,
    Back,
}

impl Node {
    /// A node for one wait of the caller. Not under a lock: the first wait of a plain thread allocates.
    pub(super) fn new(call: &Call) -> Node {
        Node {
            waiter: call.waiter(),
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            _pinned: PhantomPinned,
        }
    }

    /// Queues the caller up, unlocks, and waits until a waker has taken it out.
    pub(super) fn wait<T>(
        self,
        call: &mut Call,
        mut locked: LockGuard<'_, T>,
        queue: impl FnOnce(&mut T) -> &mut Queue,
        place: Place,
        reason: WaitReason,
    ) {
        // SAFETY: the node stays where it is, in this frame, until a waker has taken it out and woken us (I1, I2).
        unsafe { queue(&mut locked).link(&self, place) };
        drop(locked);
        call.park(reason);
    }

    /// As [`wait`](Self::wait) at the back, with something to do between queueing up and parking, in the same call: a
    /// wake-up that comes meanwhile is not lost.
    pub(super) fn wait_after(
        self,
        call: &mut Call,
        mut locked: LockGuard<'_, Queue>,
        reason: WaitReason,
        then: impl FnOnce(&Call),
    ) {
        // SAFETY: as in `wait`.
        unsafe { locked.link(&self, Place::Back) };
        drop(locked);
        then(call);
        call.park(reason);
    }
}

/// Those who wait, oldest first.
pub(super) struct Queue {
    head: *const Node,
    tail: *const Node,
}

// SAFETY: nodes are reached under the lock around the queue, and are alive while linked (I1).
unsafe impl Send for Queue {}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Takes out the first. The caller must wake it, after unlocking (I2).
    #[must_use = "nobody else will wake it"]
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        // SAFETY: I1.
        let node = unsafe { self.head.as_ref()? };
        self.unlink(node);
        Some(node.waiter)
    }

    /// Takes out all of them.
    pub(super) fn take_all(&mut self) -> Batch {
        self.take(usize::MAX).0
    }

    /// Takes out the first `n`, or as many as there are; and says how many.
    pub(super) fn take(&mut self, n: usize) -> (Batch, usize) {
        let mut batch = Batch(Queue::new());
        let mut taken = 0;
        while taken < n
            // SAFETY: I1.
            && let Some(node) = unsafe { self.head.as_ref() }
        {
            self.unlink(node);
            // SAFETY: taken out just now, and its owner waits until the batch wakes it (I2).
            unsafe { batch.0.link(node, Place::Back) };
            taken += 1;
        }
        (batch, taken)
    }

    /// # Safety
    /// The node is in no queue and stays in place until it is taken out.
    unsafe fn link(&mut self, node: &Node, place: Place) {
        let (prev, next) = match place {
            Place::Front => (ptr::null(), self.head),
            Place::Back => (self.tail, ptr::null()),
        };
        node.prev.set(prev);
        node.next.set(next);
        self.join(prev, node);
        self.join(node, next);
    }

    fn unlink(&mut self, node: &Node) {
        self.join(node.prev.get(), node.next.get());
    }

    /// Makes `b` follow `a`; null is the end of the queue on either side.
    fn join(&mut self, a: *const Node, b: *const Node) {
        // SAFETY: both are linked, or about to be, so alive (I1).
        match unsafe { a.as_ref() } {
            Some(a) => a.next.set(b),
            None => self.head = b,
        }
        // SAFETY: as above.
        match unsafe { b.as_ref() } {
            Some(b) => b.prev.set(a),
            None => self.tail = a,
        }
    }
}

/// Waiters taken out of a queue, to be woken.
#[must_use = "nobody else will wake them"]
pub(super) struct Batch(Queue);

impl Batch {
    /// Wakes all, oldest first. With no lock held.
    pub(super) fn wake(mut self, call: &Call) {
        while let Some(waiter) = self.0.pop() {
            call.wake(waiter);
        }
    }
}
