//! Who waits at a channel, and how a wait ends.
//!
//! # Words
//! *node*: what a waiter leaves in a channel's queue; it lies in the waiter's frame. *server*: the party that ends the wait.
//! *slot*: where the value is (a sender's) or shall be (a receiver's). *ticket*: see `sched::wait`; a wait with only one
//! possible server has none. *promise*: a sender's node of the dynamic `Select`, which has no value yet.
//!
//! | outcome | set by the server, meaning                                           |
//! |---------|----------------------------------------------------------------------|
//! | Pending | nothing happened (or another party ended the wait)                   |
//! | Done    | the value was moved out of, or into, the slot                        |
//! | Closed  | the channel was closed; the slot is as it was                        |
//! | Again   | look again: the peer broke its promise, or the timer was set anew    |
//!
//! # Protocol: why a node is never touched after its waiter returned
//! server: 1 under the queue's lock: take the node out  2 claim its ticket, if it has one; on failure, or if its waiter is gone, forget the node
//!         3 move the value, set the outcome, copy the `Waiter`  4 unlock  5 wake by the copy
//! waiter: 1 under the lock: queue the node  2 unlock, park  3 if it had a ticket and the outcome is Pending: lock, leave
//!         the queue, unlock  4 return
//! A waiter without a ticket is woken by step 5 only, and after step 3 the server does not look at the node. A waiter with a
//! ticket returns when the claimer woke it, who is done with its node then; every other server found the node under the
//! lock, failed to claim and left it before unlocking, and the waiter takes that lock before it returns. Two exceptions
//! hold a node over step 4: who ends many waits in one step (and wakes those it collected, reading each link before it wakes)
//! and a promise (whose receiver is claimed and waits for nobody else).
//!
//! # Context
//! Queues are used under the locks of `crate::lock`, in RT (R1): nothing here allocates or drops a value.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use runnext_core::waitlist::{self, WaitList};

use crate::g::WaitReason;
use crate::sched::call::Call;
use crate::sched::timers;
use crate::sched::wait::{Ticket, Waiter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    Done,
    Closed,
    Again,
}

/// What one attempt at an operation came to.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// The value has moved. Wake this peer, with no lock held.
    Done(Option<Waiter>),
    /// The channel is closed (and, for a receiver, empty). Nothing moved.
    Closed,
    /// Nothing to do now. The node is queued, if that was asked for.
    Blocked,
    /// A peer promised a value: wake it and wait, without a ticket, until the node has an outcome.
    Promised(Waiter),
    /// Another party has ended this wait already: park, and see which.
    Lost,
    /// The ticket is used up, and nothing moved: leave all queues and begin again.
    Again,
}

/// What an attempt does if it cannot succeed at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Nothing.
    Try,
    /// Queue the node.
    Queue,
    /// Queue the node. It is not the first of its wait: claim this ticket before anything moves.
    QueueMore(Ticket),
}

/// An attempt that is not the first of its wait found something to do: it must win the wait first.
#[inline]
pub(crate) fn win(own: Ticket, attempt: impl FnOnce() -> Step) -> Step {
    if !own.claim() {
        return Step::Lost;
    }
    match attempt() {
        Step::Blocked => Step::Again,
        step => step,
    }
}

/// Makes the `attempt`, unless it is not the first of its wait and there is nothing to do; where it comes to nothing, queues. What came
/// between makes `queue` fail, and is worth another attempt.
#[inline]
pub(crate) fn attempt_or_queue(
    mode: Mode,
    is_ready: impl Fn() -> bool,
    attempt: impl Fn() -> Step,
    queue: impl Fn() -> bool,
) -> Step {
    loop {
        match mode {
            Mode::QueueMore(own) if is_ready() => return win(own, attempt),
            Mode::QueueMore(_) => {}
            Mode::Try => return attempt(),
            Mode::Queue => match attempt() {
                Step::Blocked => {}
                step => return step,
            },
        }
        if queue() {
            return Step::Blocked;
        }
    }
}

/// What a node tells its server.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) waiter: Waiter,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) promise: bool,
    slot: *mut (),
    outcome: Cell<Outcome>,
    /// The receiver that waits for this promise.
    peer: Cell<*const Node>,
}

// SAFETY: an entry is handed between threads under the protocol above; what its slot points to is `Send`, or the channel
// would not be used from two threads.
unsafe impl Send for Entry {}

pub(crate) type Node = waitlist::Node<Entry>;

/// A node for a wait of `waiter`.
#[inline]
pub(crate) fn node(waiter: Waiter, ticket: Option<Ticket>, slot: *mut ()) -> Node {
    Node::new(Entry {
        waiter,
        ticket,
        promise: slot.is_null(),
        slot,
        outcome: Cell::new(Outcome::Pending),
        peer: Cell::new(ptr::null()),
    })
}

impl Entry {
    /// Where the value is, or goes.
    #[inline]
    pub(crate) fn slot<T>(&self) -> *mut T {
        self.slot.cast()
    }

    /// By the waiter, after it was woken or has left the queue; by the server before that.
    #[inline]
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    /// The server is done with the node.
    #[inline]
    pub(crate) fn end(&self, outcome: Outcome) -> Waiter {
        self.outcome.set(outcome);
        self.waiter
    }

    /// The receiver that took this promise.
    pub(crate) fn peer(&self) -> Option<NonNull<Node>> {
        NonNull::new(self.peer.get().cast_mut())
    }

    /// This promise is made to `receiver`, which from now on waits for its fulfilment only.
    pub(crate) fn promise_to(&self, receiver: &Node) -> Waiter {
        self.peer.set(receiver);
        self.end(Outcome::Done)
    }

    /// Makes its wait the caller's to end. Not of one that will never go on: what it would get is lost.
    #[inline]
    fn claim(&self) -> bool {
        if self.waiter.is_gone() {
            return false;
        }
        match self.ticket {
            None => true,
            Some(ticket) => ticket.claim(),
        }
    }

    /// Whether a claim could succeed.
    fn can_be_served(&self) -> bool {
        !self.waiter.is_gone() && self.ticket.is_none_or(Ticket::is_open)
    }
}

/// A queue of one direction of one channel.
#[derive(Debug)]
pub(crate) struct Queue(WaitList<Entry>);

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue(WaitList::new())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Safety
    /// The node stays in place until it was served, or has left.
    #[inline]
    pub(crate) unsafe fn push(&mut self, node: &Node) {
        // SAFETY: the caller's promise; a node is used for one wait at one channel.
        unsafe { self.0.push_back(node) }
    }

    /// Takes the first that can still be served; its wait is now the caller's to end. Those who cannot leave.
    #[inline]
    pub(crate) fn take<'a>(&mut self) -> Option<&'a Node> {
        loop {
            // SAFETY: popped under the lock, so its waiter is still there; if the claim succeeds, until we wake it.
            let node = unsafe { self.0.pop_front()?.as_ref() };
            if node.claim() {
                return Some(node);
            }
        }
    }

    /// As [`take`](Self::take), unless it is the turn of a promise.
    #[inline]
    pub(crate) fn take_kept<'a>(&mut self) -> Option<&'a Node> {
        loop {
            if self.0.front()?.promise {
                return None;
            }
            // SAFETY: as in `take`.
            let node = unsafe { self.0.pop_front()?.as_ref() };
            if node.claim() {
                return Some(node);
            }
        }
    }

    /// Whether somebody else than the holder of `own` could be served. Those who cannot leave.
    pub(crate) fn serves_other(&mut self, own: Ticket) -> bool {
        while let Some(first) = self.0.front()
            && !first.can_be_served()
        {
            self.0.pop_front();
        }
        self.0
            .iter()
            .any(|node| node.ticket != Some(own) && node.can_be_served())
    }

    /// The waiter leaves without having been served. Under the lock.
    pub(crate) fn leave(&mut self, node: &Node) {
        // SAFETY: a node is used at one channel, in the queue of its direction.
        unsafe { self.0.remove(node) };
    }

    /// Ends the waits of all; the caller wakes them with [`Ended::wake`].
    pub(crate) fn end_all(&mut self, outcome: Outcome) -> Ended {
        let mut ended = Ended::new();
        while let Some(node) = self.take() {
            node.end(outcome);
            ended.add(node);
        }
        ended
    }
}

/// Waiters whose waits are over and who have not been told.
#[must_use]
pub(crate) struct Ended(WaitList<Entry>);

impl Ended {
    pub(crate) const fn new() -> Ended {
        Ended(WaitList::new())
    }

    /// One that was taken out of its queue, and has its outcome.
    pub(crate) fn add(&mut self, node: &Node) {
        // SAFETY: in no queue any more, and claimed: it stays until it is woken.
        unsafe { self.0.push_back(node) };
    }

    /// Wakes them, the last first: each takes the place of the one before in `runnext`, so that the one who waited longest
    /// runs first.
    pub(crate) fn wake(mut self, call: &Call) {
        while let Some(node) = self.0.pop_back() {
            // SAFETY: not woken yet, so still there.
            call.wake(unsafe { node.as_ref() }.waiter);
        }
    }
}

/// Parks until the waiter is woken, or the deadline passes: then no server ends the wait any more, and the outcome
/// stays as it is. Without a ticket there is no deadline.
#[inline]
pub(crate) fn park(call: &mut Call, ticket: Option<Ticket>, deadline: u64, reason: WaitReason) {
    match ticket {
        None => call.park(reason),
        Some(ticket) => {
            timers::park_until(call, ticket, deadline, reason);
        }
    }
}

/// Waits until the deadline, or for ever.
#[cold]
pub(crate) fn for_nothing(deadline: u64, reason: WaitReason) {
    let mut call = Call::enter();
    let ticket = call.waiter().draw();
    park(&mut call, Some(ticket), deadline, reason);
}
