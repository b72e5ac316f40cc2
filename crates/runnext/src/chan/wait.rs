//! What the kinds of channels in `runnext_core` are made with: the waiters of `sched`, how they park, and the runtime's locks.

pub(crate) use runnext_core::waiting::{Outcome, node};

use runnext_core::{flavor, waiting};

use crate::g::WaitReason;
use crate::lock::{Lock, LockGuard};
use crate::sched::call::Call;
use crate::sched::timers;
use crate::sched::wait::{Ticket, Waiter};

pub(crate) type Step = waiting::Step<Waiter>;
pub(crate) type Mode = waiting::Mode<Waiter>;
pub(crate) type Node = waiting::Node<Waiter>;
pub(crate) type Queue = waiting::Queue<Waiter>;

// SAFETY: a ticket is claimed by a compare-and-swap from the value that was drawn for it, and no later ticket has the same.
unsafe impl waiting::Waiter for Waiter {
    type Ticket = Ticket;

    #[inline]
    fn is_gone(self) -> bool {
        Waiter::is_gone(self)
    }

    #[inline]
    fn claim(ticket: Ticket) -> bool {
        ticket.claim()
    }

    #[inline]
    fn is_open(ticket: Ticket) -> bool {
        ticket.is_open()
    }
}

/// The runtime's.
pub(crate) enum Locks {}

// SAFETY: that is what a `Lock` promises.
unsafe impl flavor::Locks for Locks {
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

/// Parks until the waiter is woken, or the deadline passes: then no server ends the wait any more, and the outcome
/// stays as it is. Without a ticket there is no deadline.
#[inline(always)] // no return between the switch and the caller: see `G::suspend`
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
