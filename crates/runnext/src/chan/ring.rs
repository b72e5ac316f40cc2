//! The bounded channel: the ring of `runnext_core::ring`, where its protocol is, with the runtime's locks and waiters.

use runnext_core::probe::Probe;
use runnext_core::ring;

use super::Flavor;
use super::wait::{Mode, Node, Step};
use crate::lock::{Lock, LockGuard};
use crate::sched::call::Call;
use crate::sched::wait::Waiter;

pub(super) struct Ring<T>(ring::Ring<T, Waiter, Locks>);

enum Locks {}

// SAFETY: that is what a `Lock` promises.
unsafe impl ring::Locks for Locks {
    type Lock<V> = Lock<V>;
    type Guard<'a, V: 'a> = LockGuard<'a, V>;

    fn new<V>(value: V) -> Lock<V> {
        Lock::new(value)
    }

    #[inline]
    fn lock<V>(lock: &Lock<V>) -> LockGuard<'_, V> {
        lock.lock()
    }
}

impl<T> Ring<T> {
    /// Or a panic if there is no memory for all values: a bound that came out wrong is for the caller to handle, and must not end the
    /// process.
    #[track_caller]
    pub(super) fn new(cap: usize) -> Ring<T> {
        match ring::Ring::new(cap) {
            Some(ring) => Ring(ring),
            None => panic!(
                "no memory for a channel with room for {cap} values of {} bytes, which is reserved when it is made: give it a smaller \
                 capacity, or use chan::unbounded, which takes memory as values come",
                size_of::<T>()
            ),
        }
    }

    /// As a send, for a value that comes later: `Done` means that a place is kept for it.
    ///
    /// # Safety
    /// `node` is a promise; if it was queued, it stays in place until the waiter was woken, or has left the queue.
    pub(super) unsafe fn promise(&self, node: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        unsafe { self.0.promise(node, mode) }
    }

    /// The value of a promise. False if the channel is closed. Wakes whom it must.
    ///
    /// # Safety
    /// The caller holds a promise, which ends here. `value` is initialised, and not used again if this is true.
    pub(super) unsafe fn keep(&self, call: &Call, value: *const T) -> bool {
        // SAFETY: the contract.
        let Some(ended) = (unsafe { self.0.keep(value) }) else {
            return false;
        };
        ended.wake(|waiter| call.wake(waiter));
        true
    }

    /// A promise that will not be kept. Wakes whom it must.
    pub(super) fn give_up(&self, call: &Call) {
        self.0.give_up().wake(|waiter| call.wake(waiter));
    }
}

impl<T> Flavor<T> for Ring<T> {
    #[inline]
    unsafe fn quick_send(&self, value: *mut T) -> Step {
        // SAFETY: the contract.
        unsafe { self.0.quick_send(value) }
    }

    #[inline]
    unsafe fn quick_recv(&self, into: *mut T) -> Step {
        // SAFETY: the contract.
        unsafe { self.0.quick_recv(into) }
    }

    unsafe fn send(&self, value: *mut T, node: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        unsafe { self.0.send(value, node, mode) }
    }

    unsafe fn recv(&self, into: *mut T, node: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        unsafe { self.0.recv(into, node, mode) }
    }

    fn leave_send(&self, node: &Node) {
        self.0.leave_send(node);
    }

    fn leave_recv(&self, node: &Node) {
        self.0.leave_recv(node);
    }

    #[inline]
    fn probe_send(&self) -> Probe {
        self.0.probe_send()
    }

    #[inline]
    fn probe_recv(&self) -> Probe {
        self.0.probe_recv()
    }

    fn close(&self, call: &Call) -> bool {
        let Some(waited) = self.0.close() else {
            return false;
        };
        for ended in waited {
            ended.wake(|waiter| call.wake(waiter));
        }
        true
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.count()
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.0.cap())
    }

    fn is_full(&self) -> bool {
        self.0.is_full()
    }
}
