//! The operations of a plain sender or receiver, on any kind of channel.
//!
//! Each first tries without a node (`quick_*`): that is the whole operation while a buffer is neither full nor empty, and is
//! inlined into the caller. What may have to wait is out of line. Values lie in the caller's frame as raw memory while
//! the channel may move them, and are dropped, if at all, after the runtime call is closed (R1).

use std::mem::MaybeUninit;

use runnext_core::flavor::Flavor;

use super::error::{TryRecvError, TrySendError};
use super::wait::{self, Mode, Outcome, Step};
use crate::g::WaitReason;
use crate::instant::Instant;
use crate::sched::call::Call;
use crate::sched::timers::NEVER;
use crate::sched::wait::Waiter;

/// Why a blocking operation did nothing.
pub(super) enum Not {
    Closed,
    InTime,
}

/// Sends, waiting until then, or until the deadline.
#[inline]
pub(super) fn send_until<T, F: Flavor<T, Waiter>>(
    chan: &F,
    value: T,
    deadline: u64,
) -> Result<(), (Not, T)> {
    let mut value = MaybeUninit::new(value);
    let call = Call::enter();
    // SAFETY: initialised, and given up if `Done`.
    let not = match unsafe { chan.quick_send(value.as_mut_ptr()) } {
        Step::Done(peer) => {
            if let Some(peer) = peer {
                call.wake(peer);
            }
            return Ok(());
        }
        Step::Closed => {
            drop(call);
            Not::Closed
        }
        // SAFETY: still ours.
        _ => match unsafe { send_slow(chan, call, value.as_mut_ptr(), deadline) } {
            Ok(()) => return Ok(()),
            Err(not) => not,
        },
    };
    // SAFETY: not sent.
    Err((not, unsafe { value.assume_init() }))
}

/// # Safety
/// As [`Flavor::quick_send`].
#[inline(always)] // no return between the switch and the caller: see `G::suspend`
unsafe fn send_slow<T, F: Flavor<T, Waiter>>(
    chan: &F,
    mut call: Call,
    value: *mut T,
    deadline: u64,
) -> Result<(), Not> {
    loop {
        let waiter = call.waiter();
        let ticket = (deadline != NEVER).then(|| waiter.draw());
        let node = wait::node(waiter, ticket, value.cast());
        // SAFETY: the contract; the node and the value stay until the wait is over.
        match unsafe { chan.send(value, &node, Mode::Queue) } {
            Step::Done(peer) => {
                if let Some(peer) = peer {
                    call.wake(peer);
                }
                return Ok(());
            }
            Step::Closed => return Err(Not::Closed),
            Step::Again => {
                drop(call);
                chan.prepare_send();
                call = Call::enter();
                continue;
            }
            Step::Blocked => wait::park(&mut call, ticket, deadline, WaitReason::ChanSend),
            Step::Promised(_) | Step::Lost => unreachable!("not for a plain sender"),
        }
        match node.outcome() {
            Outcome::Done => return Ok(()),
            Outcome::Closed => return Err(Not::Closed),
            Outcome::Again => {}
            Outcome::Pending => {
                chan.leave_send(&node);
                return Err(Not::InTime);
            }
        }
    }
}

/// Receives, waiting until then, or until the deadline.
#[inline]
pub(super) fn recv_until<T, F: Flavor<T, Waiter>>(chan: &F, deadline: u64) -> Result<T, Not> {
    let mut slot = MaybeUninit::uninit();
    let call = Call::begin();
    // SAFETY: the slot is ours, and empty.
    match unsafe { chan.quick_recv(slot.as_mut_ptr()) } {
        Step::Done(peer) => {
            if let Some(peer) = peer {
                call.wake(peer);
            }
            drop(call);
        }
        Step::Closed => return Err(Not::Closed),
        // SAFETY: as above.
        _ => unsafe { recv_slow(chan, call, slot.as_mut_ptr(), Some(deadline)) }?,
    }
    chan.tidy();
    // SAFETY: received.
    Ok(unsafe { slot.assume_init() })
}

/// `deadline` is None for an attempt that does not wait.
///
/// # Safety
/// As [`Flavor::quick_recv`]; `Ok` means there is a value.
#[inline(always)] // no return between the switch and the caller: see `G::suspend`
unsafe fn recv_slow<T, F: Flavor<T, Waiter>>(
    chan: &F,
    mut call: Call,
    into: *mut T,
    deadline: Option<u64>,
) -> Result<(), Not> {
    let mut mode = deadline.map_or(Mode::Try, |_| Mode::Queue);
    let deadline = deadline.unwrap_or(NEVER);
    loop {
        let waiter = call.waiter();
        let ticket = (F::TIMED || deadline != NEVER).then(|| waiter.draw());
        let node = wait::node(waiter, ticket, into.cast());
        // SAFETY: the contract; the node and the slot stay until the wait is over.
        match unsafe { chan.recv(into, &node, mode) } {
            Step::Done(peer) => {
                if let Some(peer) = peer {
                    call.wake(peer);
                }
                return Ok(());
            }
            Step::Closed => return Err(Not::Closed),
            Step::Blocked if matches!(mode, Mode::Try) => return Err(Not::InTime),
            Step::Blocked => {
                let deadline = deadline.min(chan.due());
                wait::park(&mut call, ticket, deadline, WaitReason::ChanReceive);
            }
            Step::Promised(peer) => {
                call.wake(peer);
                call.park(WaitReason::ChanReceive);
            }
            Step::Again | Step::Lost => unreachable!("not for a plain receiver"),
        }
        match node.outcome() {
            Outcome::Done => return Ok(()),
            Outcome::Closed => return Err(Not::Closed),
            Outcome::Again => {}
            Outcome::Pending => {
                chan.leave_recv(&node);
                if !F::TIMED {
                    return Err(Not::InTime);
                }
                // It was the channel's time that came, or both: what is there counts.
                if Instant::now().as_ns() >= deadline {
                    mode = Mode::Try;
                }
            }
        }
    }
}

#[inline]
pub(super) fn try_send<T, F: Flavor<T, Waiter>>(chan: &F, value: T) -> Result<(), TrySendError<T>> {
    let mut value = MaybeUninit::new(value);
    loop {
        let call = Call::brief();
        // SAFETY: initialised, and given up if `Done`.
        let mut step = unsafe { chan.quick_send(value.as_mut_ptr()) };
        if step == Step::Blocked {
            let node = wait::node(call.waiter(), None, value.as_mut_ptr().cast());
            // SAFETY: as above, and nothing is queued.
            step = unsafe { chan.send(value.as_mut_ptr(), &node, Mode::Try) };
        }
        if let Step::Done(Some(peer)) = step {
            call.wake(peer);
        }
        drop(call);
        match step {
            Step::Done(_) => return Ok(()),
            Step::Again => chan.prepare_send(),
            Step::Closed => {
                // SAFETY: not sent.
                return Err(TrySendError::Disconnected(unsafe { value.assume_init() }));
            }
            // SAFETY: not sent.
            _ => return Err(TrySendError::Full(unsafe { value.assume_init() })),
        }
    }
}

#[inline]
pub(super) fn try_recv<T, F: Flavor<T, Waiter>>(chan: &F) -> Result<T, TryRecvError> {
    let mut slot = MaybeUninit::uninit();
    let call = Call::brief();
    // SAFETY: the slot is ours, and empty.
    match unsafe { chan.quick_recv(slot.as_mut_ptr()) } {
        Step::Done(peer) => {
            if let Some(peer) = peer {
                call.wake(peer);
            }
            drop(call);
        }
        Step::Closed => return Err(TryRecvError::Disconnected),
        _ => {
            // SAFETY: as above.
            let received = unsafe { recv_slow(chan, call, slot.as_mut_ptr(), None) };
            received.map_err(|not| match not {
                Not::Closed => TryRecvError::Disconnected,
                Not::InTime => TryRecvError::Empty,
            })?;
        }
    }
    chan.tidy();
    // SAFETY: received.
    Ok(unsafe { slot.assume_init() })
}
