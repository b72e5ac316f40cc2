//! The rendezvous channel: no buffer, so a value moves from frame to frame.
//!
//! # Why this shape
//! One lock guards both queues. A party that finds a peer in the other queue moves the value and wakes it; otherwise it
//! queues up. Rejected: a lock for each end, as the [`ring`](crate::ring) has. Here each operation is one of both ends.
//!
//! # Words
//! *shown*: what somebody without the lock sees of a queue.
//!
//! | what                           | changed under | so that                                                           |
//! |--------------------------------|---------------|-------------------------------------------------------------------|
//! | both queues, closed            | the lock      | "nobody is there" stays true until one has queued up               |
//! | `wait`, `came` of both queues  | the lock      | those who only look see what is under it, or was                    |
//!
//! # Protocol
//! send: lock: 1 closed?  2 a receiver waits: hand over  3 queue up. recv: the same, the other way round.
//! one of several cases of a wait: 1 nobody else waits: queue up  2 claim the own ticket, then as above; but do not queue up.
//! A *promise* (a sender of the dynamic `Select`) queues up without a value. The receiver that takes it leaves its own node with the sender and
//! waits: nobody else ends that wait. Likewise a promise that finds a receiver takes it out. Then [`keep`] or [`give_up`], with no lock:
//! until then both nodes are the promise's.
//!
//! # Invariants
//! I1  At most one of the queues has somebody who can be served, but for the two sides of one `select`.
//! I2  `came` grows by one each time somebody queues up, after `wait` says so; `wait` says whether a queue is empty. So who sees the new
//!     `came` sees the new `wait`: two looks with the same `came` that saw nobody saw that nobody was there from the one to the other.
//!
//! # Context
//! Never allocates, never drops a value. Tests: below; `rendezvous/loom.rs`, on this code; `tests/chan*.rs` and `tests/select*.rs` of the runtime.

use core::fmt;
use core::ptr;

use crate::flavor::{Flavor, Locks};
use crate::probe::Probe;
use crate::shim::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::waiting::{Ended, Mode, Node, Outcome, Queue, Step, Waiter};

/// See the [module](self).
pub struct Rendezvous<W: Waiter, L: Locks> {
    lock: L::Lock<Both<W>>,
    closed: AtomicBool,
    senders: Shown,
    receivers: Shown,
}

struct Both<W: Waiter> {
    senders: Queue<W>,
    receivers: Queue<W>,
}

struct Shown {
    wait: AtomicBool,
    came: AtomicUsize,
}

/// A queue and what is shown of it. Under the lock.
struct Side<'a, W: Waiter> {
    queue: &'a mut Queue<W>,
    shown: &'a Shown,
}

impl Shown {
    fn new() -> Shown {
        Shown {
            wait: AtomicBool::new(false),
            came: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn probe(&self) -> Probe {
        let stamp = self.came.load(Acquire);
        let ready = self.wait.load(Acquire);
        Probe { stamp, ready }
    }
}

impl<'a, W: Waiter> Side<'a, W> {
    #[inline]
    fn show(&self) {
        self.shown.wait.store(!self.queue.is_empty(), Release);
    }

    /// Somebody waits.
    ///
    /// # Safety
    /// As [`Queue::push`].
    #[inline]
    unsafe fn push(&mut self, node: &Node<W>) {
        // SAFETY: the contract.
        unsafe { self.queue.push(node) };
        self.shown.wait.store(true, Release);
        let came = self.shown.came.load(Relaxed);
        self.shown.came.store(came.wrapping_add(1), Release); // I2
    }

    /// The first that can be served; its wait is the caller's to end.
    #[inline]
    fn take(&mut self) -> Option<&'a Node<W>> {
        let peer = self.queue.take();
        self.show();
        peer
    }

    /// The same where it is likely that there is nobody.
    #[inline]
    fn take_any(&mut self) -> Option<&'a Node<W>> {
        match self.queue.is_empty() {
            true => None,
            false => self.take(),
        }
    }

    /// Whether somebody else than the holder of `own` waits. Those who cannot be served leave, which may leave nobody (I2).
    fn serves_other(&mut self, own: W::Ticket) -> bool {
        let serves = self.queue.serves_other(own);
        self.show();
        serves
    }

    fn leave(&mut self, node: &Node<W>) {
        self.queue.leave(node);
        self.show();
    }

    /// Nobody is at the other side.
    ///
    /// # Safety
    /// As [`push`](Self::push), if `mode` says so.
    #[inline]
    unsafe fn found_nobody(&mut self, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        match mode {
            Mode::Try => return Step::Blocked,
            Mode::QueueMore(_) => return Step::Again,
            // SAFETY: the contract.
            Mode::Queue => unsafe { self.push(node) },
        }
        Step::Blocked
    }
}

/// The value of a promise, or of a sender, for the receiver `peer`. Returns whom to wake.
///
/// # Safety
/// The wait of `peer` is the caller's to end, in a slot for a `T`. `value` is initialised, and not used again.
#[inline]
pub unsafe fn keep<T, W: Waiter>(peer: &Node<W>, value: *const T) -> W {
    // SAFETY: the contract; who waits to receive has an empty slot.
    unsafe { ptr::copy_nonoverlapping(value, peer.slot::<T>(), 1) };
    peer.end(Outcome::Done)
}

/// A promise that will not be kept: the receiver `peer`, whose wait is the caller's to end, looks again. Returns whom to wake.
pub fn give_up<W: Waiter>(peer: &Node<W>) -> W {
    peer.end(Outcome::Again)
}

/// Takes the value of the sender `peer`. Returns whom to wake.
///
/// # Safety
/// The wait of `peer` is the caller's to end; it is no promise, but has a `T`. `into` is valid.
#[inline]
unsafe fn fetch<T, W: Waiter>(peer: &Node<W>, into: *mut T) -> W {
    // SAFETY: the contract; a sender does not use its value again once the outcome is `Done`.
    unsafe { ptr::copy_nonoverlapping(peer.slot::<T>(), into, 1) };
    peer.end(Outcome::Done)
}

impl<W: Waiter, L: Locks> Rendezvous<W, L> {
    /// Nobody waits.
    #[allow(clippy::new_without_default)] // as the others, which need to know more
    pub fn new() -> Rendezvous<W, L> {
        Rendezvous {
            lock: L::new(Both {
                senders: Queue::new(),
                receivers: Queue::new(),
            }),
            closed: AtomicBool::new(false),
            senders: Shown::new(),
            receivers: Shown::new(),
        }
    }

    #[inline]
    fn lock(&self) -> L::Guard<'_, Both<W>> {
        L::lock(&self.lock)
    }

    /// The senders, and the receivers.
    #[inline]
    fn sides<'a>(&'a self, both: &'a mut Both<W>) -> (Side<'a, W>, Side<'a, W>) {
        let senders = Side {
            queue: &mut both.senders,
            shown: &self.senders,
        };
        let receivers = Side {
            queue: &mut both.receivers,
            shown: &self.receivers,
        };
        (senders, receivers)
    }

    /// What comes before the look for a peer. Some: there is none to be looked for.
    ///
    /// # Safety
    /// As [`Side::push`], if `mode` says so.
    #[inline]
    unsafe fn begin(
        &self,
        own: &mut Side<'_, W>,
        other: &mut Side<'_, W>,
        node: &Node<W>,
        mode: Mode<W>,
    ) -> Option<Step<W>> {
        let closed = self.closed.load(Relaxed);
        if let Mode::QueueMore(ticket) = mode {
            if !closed && !other.serves_other(ticket) {
                // SAFETY: the contract.
                unsafe { own.push(node) };
                return Some(Step::Blocked);
            }
            if !W::claim(ticket) {
                return Some(Step::Lost);
            }
        }
        closed.then_some(Step::Closed)
    }
}

impl<T, W: Waiter, L: Locks> Flavor<T, W> for Rendezvous<W, L> {
    /// If somebody seems to wait. What comes to nothing here would lock twice.
    #[inline(always)] // for most it is the whole operation
    unsafe fn quick_send(&self, value: *mut T) -> Step<W> {
        if !self.receivers.wait.load(Relaxed) {
            return Step::Blocked;
        }
        let mut both = self.lock();
        match self.sides(&mut both).1.take() {
            // SAFETY: as in `send`.
            Some(peer) => Step::Done(Some(unsafe { keep(peer, value) })),
            None => Step::Blocked,
        }
    }

    /// If somebody seems to wait. Not for a promise, which needs a node.
    #[inline(always)] // for most it is the whole operation
    unsafe fn quick_recv(&self, into: *mut T) -> Step<W> {
        if !self.senders.wait.load(Relaxed) {
            return Step::Blocked;
        }
        let mut both = self.lock();
        let (senders, _) = self.sides(&mut both);
        let peer = senders.queue.take_kept();
        senders.show();
        match peer {
            // SAFETY: as in `recv`.
            Some(peer) => Step::Done(Some(unsafe { fetch(peer, into) })),
            None => Step::Blocked,
        }
    }

    #[inline]
    unsafe fn send(&self, value: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        let mut both = self.lock();
        let (mut senders, mut receivers) = self.sides(&mut both);
        // SAFETY: the contract.
        if let Some(step) = unsafe { self.begin(&mut senders, &mut receivers, node, mode) } {
            return step;
        }
        match receivers.take_any() {
            // SAFETY: taken, a receiver of this channel. `value` is initialised (contract) and not used again after `Done`.
            Some(peer) => Step::Done(Some(unsafe { keep(peer, value) })),
            // SAFETY: the contract.
            None => unsafe { senders.found_nobody(node, mode) },
        }
    }

    /// `Done` means that the node has a peer, which waits for it.
    unsafe fn promise(&self, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        let mut both = self.lock();
        let (mut senders, mut receivers) = self.sides(&mut both);
        // SAFETY: the contract.
        if let Some(step) = unsafe { self.begin(&mut senders, &mut receivers, node, mode) } {
            return step;
        }
        match receivers.take_any() {
            Some(peer) => {
                node.promise_to(peer);
                Step::Done(None)
            }
            // SAFETY: the contract.
            None => unsafe { senders.found_nobody(node, mode) },
        }
    }

    #[inline]
    unsafe fn recv(&self, into: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        let mut both = self.lock();
        let (mut senders, mut receivers) = self.sides(&mut both);
        // SAFETY: the contract.
        if let Some(step) = unsafe { self.begin(&mut receivers, &mut senders, node, mode) } {
            return step;
        }
        match senders.take_any() {
            Some(peer) if peer.promise => Step::Promised(peer.promise_to(node)),
            // SAFETY: taken, a sender of this channel, and no promise; `into` is valid (contract).
            Some(peer) => Step::Done(Some(unsafe { fetch(peer, into) })),
            // SAFETY: the contract.
            None => unsafe { receivers.found_nobody(node, mode) },
        }
    }

    fn leave_send(&self, node: &Node<W>) {
        self.sides(&mut self.lock()).0.leave(node);
    }

    fn leave_recv(&self, node: &Node<W>) {
        self.sides(&mut self.lock()).1.leave(node);
    }

    /// Becomes ready by a receiver that comes, which moves the stamp, or the close.
    #[inline]
    fn probe_send(&self) -> Probe {
        self.receivers.probe().or_closed(&self.closed)
    }

    /// Becomes ready by a sender that comes, which moves the stamp, or the close.
    #[inline]
    fn probe_recv(&self) -> Probe {
        self.senders.probe().or_closed(&self.closed)
    }

    fn close(&self) -> Option<Ended<W>> {
        let mut both = self.lock();
        if self.closed.load(Relaxed) {
            return None;
        }
        self.closed.store(true, Release);
        let (senders, receivers) = self.sides(&mut both);
        let waited = receivers.queue.end_all(Outcome::Closed);
        let ended = waited.after(senders.queue.end_all(Outcome::Closed));
        senders.show();
        receivers.show();
        Some(ended)
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    #[inline]
    fn count(&self) -> usize {
        0
    }

    fn capacity(&self) -> Option<usize> {
        Some(0)
    }
}

impl<W: Waiter, L: Locks> fmt::Debug for Rendezvous<W, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendezvous")
            .field("closed", &self.closed.load(Acquire))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Mutexes;
    use crate::waiting::node;

    /// Sleeps never: its ticket is all there is of it.
    #[derive(Clone, Copy, Debug)]
    struct Awake<'a>(&'a AtomicBool);

    impl PartialEq for Awake<'_> {
        fn eq(&self, other: &Self) -> bool {
            ptr::eq(self.0, other.0)
        }
    }

    // SAFETY: a ticket is claimed by a swap.
    unsafe impl<'a> Waiter for Awake<'a> {
        type Ticket = Awake<'a>;

        fn is_gone(self) -> bool {
            false
        }

        fn claim(ticket: Awake<'a>) -> bool {
            !ticket.0.swap(true, Acquire)
        }

        fn is_open(ticket: Awake<'a>) -> bool {
            !ticket.0.load(Relaxed)
        }
    }

    /// Who queued up beside a peer whose wait had ended elsewhere took it out, and left word that somebody waits: `select` went round and round.
    #[test]
    fn who_takes_out_the_last_says_so() {
        let words = [(); 2].map(|()| AtomicBool::new(false));
        let [used_up, own] = words.each_ref().map(Awake);
        let chan = Rendezvous::<Awake<'_>, Mutexes>::new();
        let mut value = 7_u32;
        let at = &raw mut value;
        let waits = |ticket| node(ticket, Some(ticket), at.cast());
        let (peer, sender) = (waits(used_up), waits(own));
        // SAFETY: the nodes and the slot outlive the channel's use of them.
        unsafe {
            assert_eq!(chan.recv(at, &peer, Mode::Queue), Step::Blocked);
            assert!(Flavor::<u32, _>::probe_send(&chan).ready && Awake::claim(used_up));
            let queued = chan.send(at, &sender, Mode::QueueMore(own));
            assert_eq!(queued, Step::Blocked);
            assert!(!Flavor::<u32, _>::probe_send(&chan).ready);
            // And the other way round.
            Flavor::<u32, _>::leave_send(&chan, &sender);
            let (peer, receiver) = (waits(used_up), waits(own));
            assert_eq!(chan.send(at, &peer, Mode::Queue), Step::Blocked);
            let queued = chan.recv(at, &receiver, Mode::QueueMore(own));
            assert_eq!(queued, Step::Blocked);
            assert!(!Flavor::<u32, _>::probe_recv(&chan).ready);
            Flavor::<u32, _>::leave_recv(&chan, &receiver);
        }
    }
}
