//! Wakers: events for futures.
//!
//! # Why this shape
//! Waking a future is user code, which RT may not call (R1). So a slot with wakers that are due goes into a chain, through links in the
//! slots, and one goroutine is made for the chain, which wakes all of it. On a thread that belongs to no runtime
//! there is nobody to make one for: the reactor (`reactor`) wakes them itself.
//! A deadline reaches them by an alarm of the reactor, one for each direction: futures may be polled anywhere, and the runtime of the one
//! that asked first may end before.
//!
//! # Invariants
//! I1  A slot is in one chain at most: who sets `chained` links it, and who walks the chain clears it before it takes the wakers. So
//!     an event after that starts another chain.
//!
//! # Context
//! `Due::add` and `Due::into_goroutine` are in RT; the rest is user context.

use std::io;
use std::mem;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll, Wake, Waker};

use runnext_core::timers::NEVER;

use super::askers::{Need, Spare, Taken};
use super::hub::Hub;
use super::reactor::{Alarm, reactor};
use super::slot::{DRAINED, Direction, Side, Slot, WAITING};
use super::{Descriptor, current_hub, rouse, timed_out};
use crate::fatal::fatal;
use crate::g::{After, G};
use crate::p::P;
use crate::sched::call::{Call, stop_if_abandoned};
use crate::sched::{Shared, spawn};

/// Slots whose wakers are due.
pub(super) struct Due(*const Slot);

// SAFETY: a chain is owned (I1), and slots may be shared.
unsafe impl Send for Due {}

impl Due {
    pub(super) fn new() -> Due {
        Due(ptr::null())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    pub(super) fn add(&mut self, slot: &'static Slot) {
        if !slot.chained.swap(true, AcqRel) {
            slot.next_due.set(self.0);
            self.0 = slot;
        }
    }

    /// A goroutine that wakes them, for the caller to queue.
    pub(super) fn into_goroutine(self, shared: &Shared, p: Option<&P>) -> Option<NonNull<G>> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: 'static and Send.
        match unsafe { spawn::detached(shared, p, Location::caller(), self) } {
            Ok(g) => Some(g),
            Err(e) => fatal(format_args!("no memory for a goroutine of the poller: {e}")),
        }
    }

    /// Wakes them all.
    pub(super) fn wake(self) {
        let (mut last, mut others) = (None, Vec::new());
        let mut at = self.0;
        // SAFETY: slots are never freed, and the chain is ours (I1).
        while let Some(slot) = unsafe { at.as_ref() } {
            at = slot.next_due.get();
            slot.chained.store(false, Release);
            others.extend(last.replace(take_due(slot)));
        }
        // Only now, for that is code of others: whatever becomes of it, no slot is left in a chain that nobody walks.
        let taken = others.into_iter().chain(last).flatten();
        taken.for_each(Taken::wake);
    }
}

fn take_due(slot: &Slot) -> [Taken; 2] {
    let _call = Call::brief();
    let mut lists = slot.lists.lock();
    lists.each_mut().map(|side| side.askers.take_due())
}

impl spawn::Body for Due {
    type Output = ();
    const ERRAND: bool = true; // the slots outlive the runtime, and so may who waits

    fn run(self) -> (spawn::Outcome<()>, After) {
        self.wake();
        (Ok(()), After::NOTHING)
    }

    fn fail(self) -> After {
        // No stack for it, or no worker any more: on the caller's, then. Wakers do not block.
        self.wake();
        After::NOTHING
    }
}

/// The runtime of `hub` has stopped, and nobody fetches its events any more. Futures of others, whose socket was last registered there by one
/// of its goroutines, ask again, and are counted elsewhere. In user context.
pub(in crate::sched) fn leave(hub: &Hub) {
    hub.end();
    Slot::for_each(|slot| {
        let left = {
            let _call = Call::brief();
            // Who registers it after this has seen that the hub has ended.
            let _lists = slot.lists.lock();
            slot.is_at(hub) && slot.has_futures.load(Relaxed)
        };
        if left {
            rouse(slot, Direction::Read, DRAINED);
            rouse(slot, Direction::Write, DRAINED);
        }
    });
}

/// The deadline of a direction comes, or the end of a pause, for futures; others who wait bring a timer of their own.
struct Late {
    token: u64,
    direction: Direction,
}

/// Makes all futures look again that have asked for `slot` in that direction.
pub(super) fn late(slot: &Slot, direction: Direction) -> Waker {
    let token = slot.token();
    Waker::from(Arc::new(Late { token, direction }))
}

impl Wake for Late {
    fn wake(self: Arc<Late>) {
        if let Some(slot) = Slot::of_token(self.token) {
            rouse(slot, self.direction, 0);
        }
    }
}

impl Descriptor {
    /// Does `op` for a future: `Pending` if it would block, and then the waker is woken when it is worth trying again, and
    /// so are those of others who wait in that direction. `want` as for [`transfer`](Self::transfer). Time-outs do not apply to
    /// futures, deadlines do.
    pub(crate) fn poll_transfer(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        want: usize,
        mut op: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let side = self.0.side(direction);
        loop {
            let fixed = side.deadline.load(SeqCst);
            if Side::is_past(fixed) {
                return Poll::Ready(Err(timed_out()));
            }
            let seen = side.word.load(Acquire);
            if seen & DRAINED == 0 || !self.is_home() {
                match op() {
                    Ok(n) => {
                        if n < want {
                            side.note_drained(seen);
                        }
                        return Poll::Ready(Ok(n));
                    }
                    Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(e)),
                    Err(_) => {}
                }
            }
            match self.poll_ready(cx, direction, seen, fixed) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// As [`poll_transfer`](Self::poll_transfer), for calls that give something else than a number of bytes.
    pub(crate) fn poll_io<T>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut op: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let mut value = None;
        let done = self.poll_transfer(cx, direction, 0, || {
            value = Some(op()?);
            Ok(0)
        });
        done.map(|done| done.map(|_| value.unwrap_or_else(|| unreachable!("it was done"))))
    }

    /// Has the waker woken by the next event in that direction, unless one has come since `seen`, or the deadline is no longer
    /// `fixed`. True: try again.
    pub(super) fn poll_ready(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        seen: u32,
        fixed: u64,
    ) -> io::Result<bool> {
        let late;
        let mut hub = match current_hub() {
            Some(hub) => hub,
            None => &reactor()?,
        };
        if let Err(e) = self.register(hub) {
            stop_if_abandoned();
            if !hub.has_ended() {
                return Err(e);
            }
            // Polled for the last time by a runtime that drops it then, or inside it by somebody else.
            late = reactor()?;
            hub = &late;
            self.register(hub)?;
        }
        // Wakers are cloned, woken and dropped in user context.
        let mut spare = Spare::new();
        let happened = loop {
            let call = Call::brief();
            let stored = self.store_waker(cx.waker(), &mut spare, direction, seen, fixed, hub);
            drop(call);
            match stored {
                Ok(happened) => break happened,
                Err(need) => spare.get(need, cx.waker()),
            }
        };
        spare.wake();
        if happened || fixed == NEVER {
            return Ok(happened);
        }
        self.watch_deadline(direction, fixed)
    }

    /// Has those who have asked in that direction woken when its deadline comes. True: it has come already; try again.
    #[cold]
    fn watch_deadline(&self, direction: Direction, fixed: u64) -> io::Result<bool> {
        // After it has asked: an alarm that is there already rings later than this look, and finds it.
        if Side::is_past(fixed) {
            return Ok(true);
        }
        let watched = {
            let _call = Call::brief();
            let lists = self.0.lists.lock();
            let alarm = &lists[direction as usize].alarm;
            alarm.as_ref().is_some_and(|(when, _)| *when == fixed)
        };
        if watched {
            return Ok(false);
        }
        let mut alarm = Some((fixed, Alarm::new(fixed, &late(self.0, direction))?));
        let call = Call::brief();
        let current = {
            let mut lists = self.0.lists.lock();
            let current = self.0.side(direction).deadline.load(Relaxed) == fixed;
            if current {
                mem::swap(&mut lists[direction as usize].alarm, &mut alarm);
            }
            current
        };
        drop(call); // then what is in `alarm`: the one before it, or one that comes too late
        Ok(!current)
    }

    /// The part of `poll_ready` in RT.
    fn store_waker(
        &self,
        waker: &Waker,
        spare: &mut Spare,
        direction: Direction,
        seen: u32,
        fixed: u64,
        hub: &Hub,
    ) -> Result<bool, Need> {
        let mut lists = self.0.lists.lock();
        if !self.0.is_at(hub) {
            return Ok(true); // another runtime was faster: it may be idle by now, and not fetch the event
        }
        let side = self.0.side(direction);
        let old = side.word.fetch_or(WAITING, AcqRel);
        if Side::differs(seen, old) || side.deadline.load(Relaxed) != fixed {
            return Ok(true); // WAITING may stay set for nobody, until the next event
        }
        lists[direction as usize].askers.ask(waker, spare)?;
        self.0.count_futures(&lists);
        Ok(false)
    }
}
