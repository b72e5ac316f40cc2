//! What a kind of channel does, and the locks it is made with.
//!
//! # Why this shape
//! A kind of channel is a protocol: where values lie, who finds whom, and what may happen between two steps. What is built on that (blocking,
//! time-outs, `select`) is the same for all kinds and knows about threads, so it is the runtime's; what is here can be walked through
//! by loom, which the models do by this trait too. Rejected: a set of functions for each kind and an adapter in the runtime, which said the same
//! thing three times.
//!
//! | kind                               | room        | values lie                             |
//! |------------------------------------|-------------|----------------------------------------|
//! | [`rendezvous`](crate::rendezvous)  | none        | in the frames of who waits             |
//! | [`ring`](crate::ring)              | for so many | in a ring of places                    |
//! | [`chain`](crate::chain)            | any         | in blocks, each linked to the next     |
//!
//! The runtime has one more, whose values are moments.
//!
//! # Context
//! Nothing allocates or frees but what makes and drops a channel, [`prepare_send`](Flavor::prepare_send) and [`tidy`](Flavor::tidy); no value
//! is dropped but with its channel. The locks are the caller's ([`Locks`]), and so are those who wait and how they sleep
//! ([`waiting`](crate::waiting)): what is returned is to be woken, with no lock held.

use core::ops::DerefMut;

use crate::probe::Probe;
use crate::timers::NEVER;
use crate::waiting::{Ended, Mode, Node, Step, Waiter};

/// The locks of a channel.
///
/// # Safety
/// Of one lock there is one guard at a time, who gets it sees what was done under the one before, and a lock may be used by all threads if what
/// it guards may be sent to them.
pub unsafe trait Locks {
    /// A lock, and what it guards.
    type Lock<V>;
    /// The right to use what it guards; given back when it is dropped.
    type Guard<'a, V: 'a>: DerefMut<Target = V>;

    /// A lock that nobody has.
    fn new<V>(value: V) -> Self::Lock<V>;

    /// Takes it.
    fn lock<V>(lock: &Self::Lock<V>) -> Self::Guard<'_, V>;
}

/// What a kind of channel of `T` does, at which `W` wait.
pub trait Flavor<T, W: Waiter> {
    /// Whether time makes it ready: then a receiver draws a ticket, and does not wait beyond [`due`](Self::due).
    const TIMED: bool = false;

    /// Sends if that needs no node. `Blocked` promises nothing: ask [`send`](Self::send).
    ///
    /// # Safety
    /// `value` is valid for reads; after `Done` the channel owns what it points to, otherwise the caller still does.
    #[inline]
    unsafe fn quick_send(&self, value: *mut T) -> Step<W> {
        let _ = value;
        Step::Blocked
    }

    /// Receives if that needs no node. `Blocked` promises nothing: ask [`recv`](Self::recv).
    ///
    /// # Safety
    /// `into` is valid for writes; after `Done` it holds a value, otherwise nothing.
    #[inline]
    unsafe fn quick_recv(&self, into: *mut T) -> Step<W> {
        let _ = into;
        Step::Blocked
    }

    /// Sends, or does what `mode` says. `Again` in other modes than `QueueMore`: [`prepare_send`](Self::prepare_send) first.
    ///
    /// # Safety
    /// As [`quick_send`](Self::quick_send). `node` has `value` as its slot; if it was queued, it and the value stay in place
    /// and untouched until the waiter was woken, or has left the queue.
    unsafe fn send(&self, value: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W>;

    /// As a send, for a value that comes later: after `Done`, or that outcome of the node, the caller holds a promise.
    ///
    /// # Safety
    /// `node` is a promise; if it was queued, it stays in place until the waiter was woken, or has left the queue.
    unsafe fn promise(&self, node: &Node<W>, mode: Mode<W>) -> Step<W>;

    /// Receives, or does what `mode` says.
    ///
    /// # Safety
    /// As [`quick_recv`](Self::quick_recv). `node` has `into` as its slot; if it was queued or is promised something, it and
    /// the slot stay in place and untouched until the waiter was woken, or has left the queue.
    unsafe fn recv(&self, into: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W>;

    /// A sender that was not served leaves.
    fn leave_send(&self, node: &Node<W>);

    /// A receiver that was not served leaves.
    fn leave_recv(&self, node: &Node<W>);

    /// Could a send succeed, or fail, at once? With no lock.
    fn probe_send(&self) -> Probe;

    /// Could a receive succeed, or fail, at once? With no lock.
    fn probe_recv(&self) -> Probe;

    /// No more values are put in. The first time this returns those who waited, to send and to receive; then None.
    fn close(&self) -> Option<Ended<W>>;

    /// Whether it was closed.
    fn is_closed(&self) -> bool;

    /// How many values there are, at one moment.
    fn count(&self) -> usize;

    /// How many values it has room for. None: any number.
    fn capacity(&self) -> Option<usize>;

    /// Whether no place is left for a value.
    fn is_full(&self) -> bool {
        self.capacity().is_some_and(|cap| self.count() >= cap)
    }

    /// When time makes it ready, as far as is known; to be asked after queueing up.
    #[inline]
    fn due(&self) -> u64 {
        NEVER
    }

    /// Makes what a send may need and cannot make itself. Allocates.
    #[inline]
    fn prepare_send(&self) {}

    /// Frees what receives have left behind.
    #[inline]
    fn tidy(&self) {}
}

#[cfg(all(test, loom))]
pub(crate) mod loom;
