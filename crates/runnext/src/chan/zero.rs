//! The rendezvous channel: no buffer, so a value moves from frame to frame.
//!
//! One lock guards both queues. A party that finds a peer in the other queue moves the value and wakes it; otherwise it
//! queues up. The atomics mirror what is under the lock, for probes that must not take it.
//!
//! # Invariants
//! I1  At most one of the queues has somebody who can be served, but for the two sides of one `select`.
//! I2  `*_came` grow by one, under the lock, each time somebody queues up; `*_wait` say whether a queue is empty.
//!
//! # Promises
//! A sender of the dynamic `Select` queues without a value. The receiver that takes it leaves its own node with the sender and
//! waits: nobody else ends that wait. Likewise a `Select` that finds a receiver takes it out and keeps it until it has
//! the value.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use super::wait::{Mode, Node, Outcome, Queue, Step};
use super::{Flavor, Probe};
use crate::lock::Lock;
use crate::sched::call::Call;
use crate::sched::wait::Ticket;

pub(super) struct Zero {
    lock: Lock<Both>,
    closed: AtomicBool,
    senders_wait: AtomicBool,
    receivers_wait: AtomicBool,
    senders_came: AtomicUsize,
    receivers_came: AtomicUsize,
}

struct Both {
    senders: Queue,
    receivers: Queue,
}

impl Zero {
    pub(super) fn new() -> Zero {
        Zero {
            lock: Lock::new(Both {
                senders: Queue::new(),
                receivers: Queue::new(),
            }),
            closed: AtomicBool::new(false),
            senders_wait: AtomicBool::new(false),
            receivers_wait: AtomicBool::new(false),
            senders_came: AtomicUsize::new(0),
            receivers_came: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn mirror_senders(&self, both: &Both) {
        self.senders_wait.store(!both.senders.is_empty(), Release);
    }

    #[inline]
    fn mirror_receivers(&self, both: &Both) {
        self.receivers_wait
            .store(!both.receivers.is_empty(), Release);
    }

    /// Whether a sender other than the holder of `own` waits. Those who cannot be served leave, which may leave nobody (I2).
    fn senders_serve(&self, both: &mut Both, own: Ticket) -> bool {
        let serve = both.senders.serves_other(own);
        self.mirror_senders(both);
        serve
    }

    /// The same for receivers.
    fn receivers_serve(&self, both: &mut Both, own: Ticket) -> bool {
        let serve = both.receivers.serves_other(own);
        self.mirror_receivers(both);
        serve
    }

    #[inline]
    fn queue_send(&self, both: &mut Both, node: &Node) {
        // SAFETY: the caller keeps the node until its wait is over.
        unsafe { both.senders.push(node) };
        self.senders_wait.store(true, Release);
        let came = self.senders_came.load(Relaxed);
        self.senders_came.store(came.wrapping_add(1), Release); // I2
    }

    #[inline]
    fn queue_recv(&self, both: &mut Both, node: &Node) {
        // SAFETY: the caller keeps the node until its wait is over.
        unsafe { both.receivers.push(node) };
        self.receivers_wait.store(true, Release);
        let came = self.receivers_came.load(Relaxed);
        self.receivers_came.store(came.wrapping_add(1), Release); // I2
    }

    /// As a send, for a value that comes later: `Done` means that the node has a peer, which waits for it.
    pub(super) fn promise(&self, node: &Node, mode: Mode) -> Step {
        let mut both = self.lock.lock();
        let closed = self.closed.load(Relaxed);
        if let Mode::QueueMore(own) = mode {
            if !closed && !self.receivers_serve(&mut both, own) {
                self.queue_send(&mut both, node);
                return Step::Blocked;
            }
            if !own.claim() {
                return Step::Lost;
            }
        }
        if closed {
            return Step::Closed;
        }
        let peer = both.receivers.take();
        self.mirror_receivers(&both);
        match (peer, mode) {
            (Some(peer), _) => {
                node.promise_to(peer);
                return Step::Done(None);
            }
            (None, Mode::Try) => {}
            (None, Mode::QueueMore(_)) => return Step::Again,
            (None, Mode::Queue) => self.queue_send(&mut both, node),
        }
        Step::Blocked
    }
}

impl<T> Flavor<T> for Zero {
    /// If somebody seems to wait. What comes to nothing here would lock twice.
    #[inline]
    unsafe fn quick_send(&self, value: *mut T) -> Step {
        if !self.receivers_wait.load(Relaxed) {
            return Step::Blocked;
        }
        let mut both = self.lock.lock();
        let peer = both.receivers.take();
        self.mirror_receivers(&both);
        match peer {
            Some(peer) => {
                // SAFETY: as in `send`.
                unsafe { ptr::copy_nonoverlapping(value, peer.slot::<T>(), 1) };
                Step::Done(Some(peer.end(Outcome::Done)))
            }
            None => Step::Blocked,
        }
    }

    /// If somebody seems to wait.
    #[inline]
    unsafe fn quick_recv(&self, into: *mut T) -> Step {
        if !self.senders_wait.load(Relaxed) {
            return Step::Blocked;
        }
        let mut both = self.lock.lock();
        let peer = both.senders.take_kept();
        self.mirror_senders(&both);
        match peer {
            Some(peer) => {
                // SAFETY: as in `recv`.
                unsafe { ptr::copy_nonoverlapping(peer.slot::<T>(), into, 1) };
                Step::Done(Some(peer.end(Outcome::Done)))
            }
            None => Step::Blocked,
        }
    }

    #[inline]
    unsafe fn send(&self, value: *mut T, node: &Node, mode: Mode) -> Step {
        let mut both = self.lock.lock();
        let closed = self.closed.load(Relaxed);
        if let Mode::QueueMore(own) = mode {
            if !closed && !self.receivers_serve(&mut both, own) {
                self.queue_send(&mut both, node);
                return Step::Blocked;
            }
            if !own.claim() {
                return Step::Lost;
            }
        }
        if closed {
            return Step::Closed;
        }
        if !both.receivers.is_empty() {
            let peer = both.receivers.take();
            self.mirror_receivers(&both);
            if let Some(peer) = peer {
                // SAFETY: `value` is initialised (contract) and not used again after `Done`; the peer waits with an empty
                // slot of the same type.
                unsafe { ptr::copy_nonoverlapping(value, peer.slot::<T>(), 1) };
                return Step::Done(Some(peer.end(Outcome::Done)));
            }
        }
        match mode {
            Mode::Try => return Step::Blocked,
            Mode::QueueMore(_) => return Step::Again,
            Mode::Queue => self.queue_send(&mut both, node),
        }
        Step::Blocked
    }

    #[inline]
    unsafe fn recv(&self, into: *mut T, node: &Node, mode: Mode) -> Step {
        let mut both = self.lock.lock();
        let closed = self.closed.load(Relaxed);
        if let Mode::QueueMore(own) = mode {
            if !closed && !self.senders_serve(&mut both, own) {
                self.queue_recv(&mut both, node);
                return Step::Blocked;
            }
            if !own.claim() {
                return Step::Lost;
            }
        }
        if closed {
            return Step::Closed;
        }
        if !both.senders.is_empty() {
            let peer = both.senders.take();
            self.mirror_senders(&both);
            match peer {
                Some(peer) if peer.promise => return Step::Promised(peer.promise_to(node)),
                Some(peer) => {
                    // SAFETY: the peer waits with a value in its slot and does not use it again once the outcome is `Done`.
                    unsafe { ptr::copy_nonoverlapping(peer.slot::<T>(), into, 1) };
                    return Step::Done(Some(peer.end(Outcome::Done)));
                }
                None => {}
            }
        }
        match mode {
            Mode::Try => return Step::Blocked,
            Mode::QueueMore(_) => return Step::Again,
            Mode::Queue => self.queue_recv(&mut both, node),
        }
        Step::Blocked
    }

    fn leave_send(&self, node: &Node) {
        let mut both = self.lock.lock();
        both.senders.leave(node);
        self.mirror_senders(&both);
    }

    fn leave_recv(&self, node: &Node) {
        let mut both = self.lock.lock();
        both.receivers.leave(node);
        self.mirror_receivers(&both);
    }

    #[inline]
    fn probe_send(&self) -> Probe {
        let stamp = self.receivers_came.load(Acquire);
        Probe {
            stamp,
            ready: self.receivers_wait.load(Acquire) || self.closed.load(Acquire),
        }
    }

    #[inline]
    fn probe_recv(&self) -> Probe {
        let stamp = self.senders_came.load(Acquire);
        Probe {
            stamp,
            ready: self.senders_wait.load(Acquire) || self.closed.load(Acquire),
        }
    }

    fn close(&self, call: &Call) -> bool {
        let (senders, receivers) = {
            let mut both = self.lock.lock();
            if self.closed.load(Relaxed) {
                return false;
            }
            self.closed.store(true, Release);
            let senders = both.senders.end_all(Outcome::Closed);
            let receivers = both.receivers.end_all(Outcome::Closed);
            self.mirror_senders(&both);
            self.mirror_receivers(&both);
            (senders, receivers)
        };
        senders.wake(|waiter| call.wake(waiter));
        receivers.wake(|waiter| call.wake(waiter));
        true
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    #[inline]
    fn len(&self) -> usize {
        0
    }

    fn capacity(&self) -> Option<usize> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::node;
    use super::*;

    /// Who queued up beside a peer whose wait had ended elsewhere took it out, and left word that somebody waits: `select` went round and round.
    #[test]
    fn who_takes_out_the_last_says_so() {
        let zero = Zero::new();
        let (mut value, call) = (7_u32, Call::enter());
        let at = &raw mut value;
        let waiter = call.waiter();
        let used_up = waiter.draw();
        let peer = node(waiter, Some(used_up), at.cast());
        // SAFETY: the nodes and the slot outlive the channel's use of them.
        unsafe {
            let queued = Flavor::<u32>::recv(&zero, at, &peer, Mode::Queue);
            assert_eq!(queued, Step::Blocked);
            assert!(Flavor::<u32>::probe_send(&zero).ready && used_up.claim());
            let own = waiter.draw();
            let sender = node(waiter, Some(own), at.cast());
            let queued = Flavor::<u32>::send(&zero, at, &sender, Mode::QueueMore(own));
            assert_eq!(queued, Step::Blocked);
            assert!(!Flavor::<u32>::probe_send(&zero).ready);
            // And the other way round.
            Flavor::<u32>::leave_send(&zero, &sender);
            let sender = node(waiter, Some(used_up), at.cast());
            assert_eq!(
                Flavor::<u32>::send(&zero, at, &sender, Mode::Queue),
                Step::Blocked
            );
            let receiver = node(waiter, Some(own), at.cast());
            let queued = Flavor::<u32>::recv(&zero, at, &receiver, Mode::QueueMore(own));
            assert_eq!(queued, Step::Blocked);
            assert!(!Flavor::<u32>::probe_recv(&zero).ready);
            Flavor::<u32>::leave_recv(&zero, &receiver);
        }
    }
}
