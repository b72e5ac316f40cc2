//! The wait list of every primitive in `sync`: a queue of nodes that lie on the stacks of those who wait.
//!
//! # Why this shape
//! Waiting allocates nothing, and one that gives up leaves from the middle in constant time
//! (`runnext_core::waitlist`). The queue is kept under the primitive's own [`Lock`](crate::lock::Lock): contention on it is
//! contention on that primitive, and two primitives never disturb each other. Rejected: a table of queues by address, as
//! Go and parking_lot have, which makes a mutex one word but puts a hash and a shared bucket before each wait.
//!
//! This file is where the unsafe part of waiting is; its interface is safe. [`Node`] is used up by waiting, so a linked one cannot
//! move or go away.
//!
//! # Protocol
//! waiter: 1 make a node (may allocate on a plain thread, so before the lock)  2 lock  3 [`Node::wait`]: link, unlock, park
//! waker:  1 lock  2 [`Queue::pop`] or [`Queue::take`]  3 unlock  4 wake what came out
//! A wait with a deadline draws a ticket. The waker claims it when it takes the node out; one that is too late drops the node
//! from the list and goes on to the next. The waiter whose deadline came takes its node out itself, if it is still there.
//! One that its runtime has abandoned (`sched::wait`) is dropped from the list in the same way.
//!
//! # Invariants
//! I1  A linked node is alive: its owner stays in `wait` until it was taken out, by a waker or by itself.
//! I2  Whoever takes out another's node, and wins its ticket if it has one, wakes it, once, and does not look at it afterwards.
//! I3  Nodes are linked, unlinked and read under the lock, except those in a [`Batch`], which belong to its holder.
//!
//! # Context
//! Under a `Lock`, so it allocates nothing and calls nothing; waking comes after unlocking.

use std::ptr::{self, NonNull};

use runnext_core::waitlist::{self, WaitList};
use runnext_sys::clock;

use crate::g::{After, G, WaitReason};
use crate::lock::{Lock, LockGuard};
use crate::sched::call::{self, Call};
use crate::sched::groups::Rank;
use crate::sched::timers::park_until;
use crate::sched::wait::{Ticket, Waiter};

struct Entry {
    waiter: Waiter,
    /// If something else than a waker may end the wait.
    ticket: Option<Ticket>,
}

/// One wait.
pub(super) struct Node(waitlist::Node<Entry>);

/// Where a waiter queues up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Front,
    Back,
}

impl Node {
    /// A node for one wait of the caller. Not under a lock: the first wait of a plain thread allocates.
    pub(super) fn new(call: &Call) -> Node {
        Node(waitlist::Node::new(Entry {
            waiter: call.waiter(),
            ticket: None,
        }))
    }

    /// As [`new`](Self::new), for a wait that a deadline may end.
    pub(super) fn timed(call: &Call) -> Node {
        let waiter = call.waiter();
        Node(waitlist::Node::new(Entry {
            waiter,
            ticket: Some(waiter.draw()),
        }))
    }

    /// What decides how the wait of a timed node ends.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.0.ticket
    }

    /// A node for one that is abandoned, in the queue as if it had been abandoned there: who finds it passes it by. The caller stays in this frame for good.
    pub(super) fn leave_in<T>(
        g: &G,
        call: Call,
        mut locked: LockGuard<'_, T>,
        queue: impl FnOnce(&mut T) -> &mut Queue,
    ) -> ! {
        let node = Node(waitlist::Node::new(Entry {
            waiter: Waiter::goroutine(g),
            ticket: None,
        }));
        // SAFETY: the node stays where it is for good.
        unsafe { queue(&mut locked).0.push_back(&node.0) };
        drop((locked, call));
        call::stop_here_for_good()
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
        let queue = queue(&mut locked);
        // SAFETY: the node stays where it is, in this frame, until a waker has taken it out and woken us (I1, I2).
        unsafe {
            match place {
                Place::Front => queue.0.push_front(&self.0),
                Place::Back => queue.0.push_back(&self.0),
            }
        }
        drop(locked);
        call.park(reason);
    }

    /// As [`wait`](Self::wait), at the back, for a timed node: until the deadline at most. False: the deadline has come.
    pub(super) fn wait_until(
        self,
        call: &mut Call,
        queue: &Lock<Queue>,
        mut locked: LockGuard<'_, Queue>,
        reason: WaitReason,
        deadline_ns: u64,
    ) -> bool {
        // SAFETY: as in `wait`, or, if the deadline ends the wait, until it was taken out.
        unsafe { locked.0.push_back(&self.0) };
        drop(locked);
        self.sleep_until(call, queue, reason, deadline_ns)
    }

    /// Queues the caller up, does `then`, and waits until a waker has taken it out. All in one call: a wake-up that comes
    /// meanwhile is not lost.
    pub(super) fn wait_after(
        self,
        call: &mut Call,
        queue: &Lock<Queue>,
        reason: WaitReason,
        then: impl FnOnce(&Call),
    ) {
        // SAFETY: as in `wait`.
        unsafe { queue.lock().0.push_back(&self.0) };
        then(call);
        call.park(reason);
    }

    /// As [`wait_after`](Self::wait_after), for a timed node: until the deadline at most. False: the deadline has come.
    pub(super) fn wait_after_until(
        self,
        call: &mut Call,
        queue: &Lock<Queue>,
        reason: WaitReason,
        deadline_ns: u64,
        then: impl FnOnce(&Call),
    ) -> bool {
        // SAFETY: as in `wait`, or, if the deadline ends the wait, until it was taken out.
        unsafe { queue.lock().0.push_back(&self.0) };
        then(call);
        self.sleep_until(call, queue, reason, deadline_ns)
    }

    /// Waits in the queue until the deadline at most, and is in it no more afterwards; it stays in its place, in the caller's frame. False: the deadline has
    /// come.
    fn sleep_until(
        &self,
        call: &mut Call,
        queue: &Lock<Queue>,
        reason: WaitReason,
        deadline_ns: u64,
    ) -> bool {
        let ticket = self.0.ticket.expect("a timed node");
        let woken = park_until(call, ticket, deadline_ns, reason);
        if !woken {
            // A waker that came too late may have taken it out; it has not looked at it since.
            // SAFETY: it is in no other list.
            unsafe { queue.lock().0.remove(&self.0) };
        }
        woken
    }
}

/// Closes the call after `wait`, in which the caller may be given something. `lost` is what is done with that, by whoever sees it, if the caller's runtime stops
/// before the caller has gone on: then this never returns (`g::will`). One without a stack has no room for a will.
pub(super) fn with_will<L: Fn() + Sync, T>(
    mut call: Call,
    reason: WaitReason,
    lost: &L,
    wait: impl FnOnce(&mut Call) -> T,
) -> T {
    let g = call.g().filter(|g| g.has_stack());
    if let Some(g) = g {
        let will = After {
            call: Some(call_as::<L>),
            with: ptr::from_ref(lost).cast(),
        };
        g.make_will(reason, will);
    }
    let waited = wait(&mut call);
    drop(call); // it may stop here for good
    if let Some(g) = g
        && !g.revoke_will(reason)
    {
        call::stop_here_for_good();
    }
    waited
}

/// # Safety
/// `f` is an `F`, which stays there meanwhile.
unsafe fn call_as<F: Fn()>(f: *const ()) {
    // SAFETY: the contract. That of a will lies in the frame of who waits, or around it, and never leaves that once its will is carried out.
    let f = unsafe { &*f.cast::<F>() };
    f();
}

/// Waiters, oldest first.
pub(super) struct Queue(WaitList<Entry>);

/// How far into a queue somebody more entitled than the first is looked for, with its lock held; and if the first may not run, which may be for long.
const NEAR: usize = 8;
const FAR: usize = 64;
/// How often one is passed over for others. A guess: the most entitled wait for few sections of others, and nobody for ever.
const PATIENT: u8 = 16;

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue(WaitList::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out the first that still waits. The caller must wake it, after unlocking (I2).
    #[must_use = "nobody else will wake it"]
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.pop_node(&mut 0).map(|node| node.waiter)
    }

    /// As [`pop`](Self::pop), but one that is less entitled than another behind it is passed over: with the lock in its hands, or on its way there, it would
    /// keep that one waiting until it gets to run. It stays where it is. `passed` counts how often that has happened to the first: after [`PATIENT`]
    /// times it is its turn, also if its group may not run. Then the most entitled comes along, which is still in the queue: it can lend to the first.
    #[must_use = "nobody else will wake it"]
    pub(super) fn pop_entitled(&mut self, passed: &mut u8) -> Option<(Waiter, Option<Waiter>)> {
        let now = clock::now_ns(); // one for all
        let first = self.0.front()?.waiter.rank(now);
        let is_due = *passed >= PATIENT;
        let far = match first {
            Rank::High => 0,
            Rank::HeldBack if !is_due => FAR,
            _ => NEAR,
        };
        let others = self.0.iter().take(far);
        let able = others.filter(|node| node.ticket.is_none() && !node.waiter.is_gone());
        let best = able.map(|node| (node.waiter.rank(now), NonNull::from(node)));
        // The first of those who are equal.
        let best = best.reduce(|a, b| if b.0 < a.0 { b } else { a });
        let better = best.filter(|(rank, _)| *rank < first);
        // SAFETY: linked, so alive.
        let lender = better.map(|(_, node)| unsafe { node.as_ref() }.waiter);
        let Some((_, node)) = better.filter(|_| !is_due) else {
            *passed = 0;
            return Some((self.pop()?, lender));
        };
        *passed = passed.saturating_add(1);
        // SAFETY: linked, so alive; in this list, for it was just found here. It waits for us (I2).
        unsafe {
            self.0.remove(node.as_ref());
            Some((node.as_ref().waiter, None))
        }
    }

    /// Takes out the first that still waits; it stays put until the caller wakes it. Adds to `gone` those it passes over because they are.
    fn pop_node(&mut self, gone: &mut usize) -> Option<&'static waitlist::Node<Entry>> {
        loop {
            // SAFETY: linked until just now, so alive; and if its ticket is ours, or it has none, it waits for us (I1, I2).
            let node = unsafe { self.0.pop_front()?.as_ref() };
            if node.waiter.is_gone() {
                *gone += 1;
            } else if node.ticket.is_none_or(Ticket::claim) {
                return Some(node);
            }
        }
    }

    /// Takes out all of them.
    pub(super) fn take_all(&mut self) -> Batch {
        self.take(usize::MAX).0
    }

    /// Takes out the first `n`, or as many as there are; and says how many.
    pub(super) fn take(&mut self, n: usize) -> (Batch, Taken) {
        let mut batch = Batch(WaitList::new());
        let mut taken = Taken { live: 0, gone: 0 };
        while taken.live < n
            && let Some(node) = self.pop_node(&mut taken.gone)
        {
            // SAFETY: in no list now, and its owner waits until the batch wakes it (I2).
            unsafe { batch.0.push_back(node) };
            taken.live += 1;
        }
        (batch, taken)
    }
}

/// How many were taken out of a queue.
pub(super) struct Taken {
    /// Those in the batch.
    pub(super) live: usize,
    /// Those whose runtime has abandoned them.
    pub(super) gone: usize,
}

/// Waiters taken out of a queue, to be woken.
#[must_use = "nobody else will wake them"]
pub(super) struct Batch(WaitList<Entry>);

impl Batch {
    /// Wakes all, oldest first. With no lock held.
    pub(super) fn wake(mut self, call: &Call) {
        while let Some(node) = self.0.pop_front() {
            // SAFETY: not woken yet, so its owner still waits (I1, I2).
            let waiter = unsafe { node.as_ref() }.waiter;
            call.wake(waiter);
        }
    }

    /// The same for those that get something by it ([`with_will`]). Returns how many have not: their runtime has stopped.
    #[must_use]
    pub(super) fn wake_to_give(mut self, call: &Call) -> usize {
        let mut lost = 0;
        while let Some(node) = self.0.pop_front() {
            // SAFETY: not woken yet, so its owner still waits (I1, I2).
            let waiter = unsafe { node.as_ref() }.waiter;
            lost += usize::from(!call.wake_to_give(waiter));
        }
        lost
    }
}
