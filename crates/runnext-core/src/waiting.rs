//! Who waits at a channel, and how a wait ends.
//!
//! # Words
//! *node*: what a waiter leaves in a channel's queue; it lies in the waiter's frame. *server*: the party that ends the wait.
//! *slot*: where the value is (a sender's) or shall be (a receiver's). *ticket*: what a server must win before it ends a wait that
//! others may end too; a wait with only one possible server has none. *promise*: a sender's node that has no value yet.
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
//! Queues are used under the locks of their channel: nothing here allocates, or drops a value. Who waits, and what a ticket is, is the
//! caller's ([`Waiter`]). Tests: the models of [`rendezvous`](crate::rendezvous), [`ring`](crate::ring) and [`chain`](crate::chain), which are made of this.

use core::ptr::{self, NonNull};

use crate::shim::Cell;
use crate::waitlist::{self, WaitList};

/// Somebody who waits, or is about to.
///
/// # Safety
/// Of all claims of one ticket one succeeds, and none succeeds before what was done up to the drawing of the ticket can be seen by who claims it.
pub unsafe trait Waiter: Copy + Send {
    /// The right to end one particular wait, contended for by several parties.
    type Ticket: Copy + PartialEq + Send;

    /// Whether it will never go on: what it would get is lost. Of one in a queue, with its lock held.
    fn is_gone(self) -> bool;

    /// True for exactly one caller per ticket, who then must wake the waiter (or is the waiter).
    fn claim(ticket: Self::Ticket) -> bool;

    /// Whether a claim could succeed. A moment's view.
    fn is_open(ticket: Self::Ticket) -> bool;
}

/// How a wait ended; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing happened.
    Pending,
    /// The value was moved.
    Done,
    /// The channel was closed.
    Closed,
    /// Look again.
    Again,
}

/// What one attempt at an operation came to.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Step<W> {
    /// The value has moved. Wake this peer, with no lock held.
    Done(Option<W>),
    /// The channel is closed (and, for a receiver, empty). Nothing moved.
    Closed,
    /// Nothing to do now. The node is queued, if that was asked for.
    Blocked,
    /// A peer promised a value: wake it and wait, without a ticket, until the node has an outcome.
    Promised(W),
    /// Another party has ended this wait already: park, and see which.
    Lost,
    /// The ticket is used up, and nothing moved: leave all queues and begin again.
    Again,
}

/// What an attempt does if it cannot succeed at once.
#[derive(Clone, Copy, Debug)]
pub enum Mode<W: Waiter> {
    /// Nothing.
    Try,
    /// Queue the node.
    Queue,
    /// Queue the node. It is not the first of its wait: claim this ticket before anything moves.
    QueueMore(W::Ticket),
}

/// An attempt that is not the first of its wait found something to do: it must win the wait first.
#[inline]
pub fn win<W: Waiter>(own: W::Ticket, attempt: impl FnOnce() -> Step<W>) -> Step<W> {
    if !W::claim(own) {
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
pub fn attempt_or_queue<W: Waiter>(
    mode: Mode<W>,
    is_ready: impl Fn() -> bool,
    attempt: impl Fn() -> Step<W>,
    queue: impl Fn() -> bool,
) -> Step<W> {
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
pub struct Entry<W: Waiter> {
    /// Whom to wake.
    pub waiter: W,
    /// What a server must win, if there may be several.
    pub ticket: Option<W::Ticket>,
    /// Whether it is a sender that has no value yet.
    pub promise: bool,
    slot: *mut (),
    outcome: Cell<Outcome>,
    /// The receiver that waits for this promise.
    peer: Cell<*const Node<W>>,
}

// SAFETY: an entry is handed between threads under the protocol above; what its slot points to is `Send`, or the channel
// would not be used from two threads.
unsafe impl<W: Waiter> Send for Entry<W> {}

/// What a waiter leaves in a queue.
pub type Node<W> = waitlist::Node<Entry<W>>;

/// A node for a wait of `waiter`. Without a slot it is a promise.
#[inline]
pub fn node<W: Waiter>(waiter: W, ticket: Option<W::Ticket>, slot: *mut ()) -> Node<W> {
    Node::new(Entry {
        waiter,
        ticket,
        promise: slot.is_null(),
        slot,
        outcome: Cell::new(Outcome::Pending),
        peer: Cell::new(ptr::null()),
    })
}

impl<W: Waiter> Entry<W> {
    /// Where the value is, or goes.
    #[inline]
    pub fn slot<T>(&self) -> *mut T {
        self.slot.cast()
    }

    /// By the waiter, after it was woken or has left the queue; by the server before that.
    #[inline]
    pub fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    /// The server is done with the node.
    #[inline]
    pub fn end(&self, outcome: Outcome) -> W {
        self.outcome.set(outcome);
        self.waiter
    }

    /// The receiver that took this promise.
    pub fn peer(&self) -> Option<NonNull<Node<W>>> {
        NonNull::new(self.peer.get().cast_mut())
    }

    /// This promise is made to `receiver`, which from now on waits for its fulfilment only.
    pub fn promise_to(&self, receiver: &Node<W>) -> W {
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
            Some(ticket) => W::claim(ticket),
        }
    }

    /// Whether a claim could succeed.
    fn can_be_served(&self) -> bool {
        !self.waiter.is_gone() && self.ticket.is_none_or(W::is_open)
    }
}

/// A queue of one direction of one channel.
#[derive(Debug)]
pub struct Queue<W: Waiter>(WaitList<Entry<W>>);

impl<W: Waiter> Queue<W> {
    /// Nobody waits.
    pub const fn new() -> Queue<W> {
        Queue(WaitList::new())
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Somebody waits, behind all others.
    ///
    /// # Safety
    /// The node is in no queue, and stays in place until it was served, or has left. Until then it is asked to leave no other queue, and who
    /// takes it lets go of it before its waiter is woken.
    #[inline]
    pub unsafe fn push(&mut self, node: &Node<W>) {
        // SAFETY: the caller's promise; a node is used for one wait at one channel.
        unsafe { self.0.push_back(node) }
    }

    /// Takes the first that can still be served; its wait is now the caller's to end. Those who cannot leave.
    #[inline]
    pub fn take<'a>(&mut self) -> Option<&'a Node<W>> {
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
    pub fn take_kept<'a>(&mut self) -> Option<&'a Node<W>> {
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
    pub fn serves_other(&mut self, own: W::Ticket) -> bool {
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
    pub fn leave(&mut self, node: &Node<W>) {
        // SAFETY: a node is used at one channel, in the queue of its direction.
        unsafe { self.0.remove(node) };
    }

    /// Ends the waits of all; the caller wakes them with [`Ended::wake`].
    pub fn end_all(&mut self, outcome: Outcome) -> Ended<W> {
        let mut ended = Ended::new();
        while let Some(node) = self.take() {
            node.end(outcome);
            ended.add(node);
        }
        ended
    }
}

impl<W: Waiter> Default for Queue<W> {
    fn default() -> Queue<W> {
        Queue::new()
    }
}

/// Waiters whose waits are over and who have not been told.
#[derive(Debug)]
#[must_use]
pub struct Ended<W: Waiter>(WaitList<Entry<W>>);

impl<W: Waiter> Ended<W> {
    pub(crate) const fn new() -> Ended<W> {
        Ended(WaitList::new())
    }

    /// One that was taken out of its queue, and has its outcome.
    pub(crate) fn add(&mut self, node: &Node<W>) {
        // SAFETY: in no queue any more, and claimed: it stays until it is woken.
        unsafe { self.0.push_back(node) };
    }

    /// With others, who are woken before these.
    pub fn after(mut self, mut others: Ended<W>) -> Ended<W> {
        self.0.append(&mut others.0);
        self
    }

    /// Wakes them, the last first: each takes the place of the one before in `runnext`, so that the one who waited longest
    /// runs first. With no lock held.
    pub fn wake(mut self, mut wake: impl FnMut(W)) {
        while let Some(node) = self.0.pop_back() {
            // SAFETY: not woken yet, so still there.
            wake(unsafe { node.as_ref() }.waiter);
        }
    }
}
