//! From events to goroutines that can run.
//!
//! # Who looks for events
//! | who                                | when                                                                                |
//! |------------------------------------|-------------------------------------------------------------------------------------|
//! | the M in the seat (`seat`)         | no work anywhere: it waits in the poller, then takes an idle P for what it found    |
//! | a P's owner, without waiting       | its queues are empty and others' too, or there was nothing to steal from them; and  |
//! |                                    | after [`LOOK_EVERY`] dispatches, or if the monitor has seen that nobody did lately  |
//! | the monitor                        | no P is idle and none of their owners has looked lately: it waits in the poller     |
//!
//! One thread at a time waits and one looks. Nobody looks while an M waits: what is there has woken it. While the monitor waits owners
//! look all the same, and it leaves the poller to them as soon as it sees that.
//!
//! # Why the monitor, and why not always
//! Owners that dispatch look often enough, and what they find stays on their P. A third thread that waited in the poller beside
//! them would take every event away from them, at the price of a switch each. But a goroutine that computes for long would keep
//! everybody waiting: so the monitor looks whether they look (`Hub::looks`), and only if they do not it waits itself.
//!
//! # Context
//! In RT, with or without a P, or on a thread that has none. No user code: wakers that are not the runtime's own are woken by a
//! goroutine made for it (`wakers`).
//!
//! Tunables: LOOK_EVERY is Go's figure for its global queue; a look costs about as much as ten switches. FEW is a guess:
//! what wakes a thread costs about as much as one of them.

use std::ptr::NonNull;

use runnext_core::list::List;
use runnext_sys::poll::Events;
use runnext_sys::ready::Kick;

use super::slot::{DRAINED, Direction, ENDING, Slot, Waiters};
use super::wakers::Due;
use crate::g::G;
use crate::p::P;
use crate::sched::groups::ROOT_LANE;
use crate::sched::wait::{Ticket, Who};
use crate::sched::{Shared, shared_of};

/// After how many dispatches a busy P looks.
const LOOK_EVERY: u32 = 61;

/// So many goroutines that never ran for long do not make it worth waking another thread.
const FEW: usize = 8;

/// What events have made runnable: goroutines of one runtime, in no queue, and wakers.
pub(in crate::sched) struct Harvest {
    pub(in crate::sched) ready: List<G>,
    /// So many of `ready` are still counted as waiting (`hub`).
    counted: usize,
    /// Those of other runtimes.
    others: List<G>,
    due: Due,
}

impl Harvest {
    pub(in crate::sched) fn new() -> Harvest {
        Harvest {
            ready: List::new(),
            counted: 0,
            others: List::new(),
            due: Due::new(),
        }
    }

    pub(in crate::sched) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.due.is_empty()
    }

    /// Goes through `events`. Goroutines of other runtimes than `shared` are queued there.
    pub(in crate::sched) fn gather(&mut self, events: &Events, shared: Option<&Shared>) {
        for event in events.iter() {
            let Some(slot) = Slot::of_token(event.token) else {
                continue; // closed since
            };
            let set = if event.ending { ENDING } else { 0 };
            if event.readable {
                slot.happened(Direction::Read, DRAINED, set, |waiters| {
                    self.take(slot, waiters, shared)
                });
            }
            if event.writable {
                slot.happened(Direction::Write, DRAINED, set, |waiters| {
                    self.take(slot, waiters, shared)
                });
            }
        }
        while let Some(g) = self.others.pop_front() {
            // SAFETY: runnable, so alive, and so is its runtime.
            unsafe { shared_of(g.as_ref()).put_global(g.as_ref()) };
        }
    }

    /// Empties a list, whose lock is held.
    fn take(&mut self, slot: &'static Slot, waiters: &mut Waiters, shared: Option<&Shared>) {
        while let Some(node) = waiters.queue.pop_front() {
            // SAFETY: linked until just now, so alive; if its ticket is ours, or it has none, it waits for us.
            let entry = unsafe { node.as_ref() };
            if !entry.ticket.is_none_or(Ticket::claim) {
                continue;
            }
            let (waiter, kick) = (entry.waiter, entry.kick);
            match (waiter.who(), kick) {
                (_, Some(id)) => Kick::give(id),
                (Who::Thread(parker), None) => parker.unpark(),
                (Who::Goroutine(g), None) => {
                    // Until it is queued it does not leave the frame that `entry` is in.
                    if self.wake(g, shared) && entry.counts.take() {
                        self.counted += 1;
                    }
                }
            }
        }
        let (ours, others) = waiters.askers.ring(shared);
        if let Some(g) = ours {
            self.wake(g, shared);
        }
        if others {
            self.due.add(slot);
        }
    }

    /// True: it is in `ready`.
    fn wake(&mut self, g: NonNull<G>, shared: Option<&Shared>) -> bool {
        // SAFETY: claimed, so it waits for us to wake it.
        let header = unsafe { g.as_ref() };
        if !header.wake() {
            return false; // it has not parked yet, and will not
        }
        // SAFETY: runnable, so its runtime is alive.
        let own = unsafe { shared_of(header) };
        let ours = shared.is_some_and(|shared| std::ptr::eq(shared, own));
        let list = if ours {
            &mut self.ready
        } else {
            &mut self.others
        };
        // SAFETY: runnable, and in no queue.
        unsafe { list.push_back(g) };
        ours
    }

    /// On a plain thread: wakes the futures. There are no goroutines in it.
    pub(super) fn wake_futures(self) {
        self.due.wake();
    }
}

impl Shared {
    /// Queues what was found on `p`, which the caller owns and is about to dispatch from.
    pub(in crate::sched) fn queue_on(&self, p: &P, mut found: Harvest) {
        if let Some(g) = found.due.into_goroutine(self, Some(p)) {
            // SAFETY: just made, so in no queue. In front: it wakes others.
            unsafe { found.ready.push_front(g) };
        }
        // A few that are known to be short are run here sooner than another thread wakes up.
        let mut several = found.ready.len() > FEW || p.has_work();
        let alone = found.ready.len() == 1;
        while let Some(g) = found.ready.pop_front() {
            // SAFETY: runnable, so alive.
            let g = unsafe { g.as_ref() };
            several |= !alone && !g.is_known_light();
            p.eye.queued(&self.observe, g);
            if g.lane() == ROOT_LANE {
                self.put_tail(p, g);
            } else {
                self.put_local(p, g);
            }
        }
        self.seat.hub().end_waits(found.counted);
        if several {
            self.wake_one();
        }
    }

    /// Queues what was found by a thread without a P: the light ones go before all others.
    pub(in crate::sched) fn queue_global(&self, found: Harvest) {
        self.queue_abandoned(found);
        self.wake_one();
        // They may have run meanwhile, and the last to rest have found them counted.
        self.note_rest();
    }

    /// As [`queue_global`](Self::queue_global), when the runtime has stopped.
    pub(in crate::sched) fn queue_abandoned(&self, mut found: Harvest) {
        if let Some(g) = found.due.into_goroutine(self, None) {
            // SAFETY: just made, so in no queue.
            unsafe { found.ready.push_front(g) };
        }
        while let Some(g) = found.ready.pop_front() {
            // SAFETY: runnable, so alive, and in no queue.
            unsafe {
                self.observe.queued_outside(g.as_ref());
                self.push_global(g);
            }
        }
        self.seat.hub().end_waits(found.counted);
    }

    /// Whether another P has goroutines queued that its owner has not come to: they were woken before whoever an event wakes now.
    pub(in crate::sched) fn others_queue(&self, p: &P) -> bool {
        let others = self.all_ps().take(self.procs());
        others
            .filter(|other| !std::ptr::eq(*other, p))
            .any(|other| other.runq.has_local())
    }

    /// The owner of `p` looks for events, without waiting. True: some goroutine came of it.
    pub(in crate::sched) fn look_for_events(&self, p: &P) -> bool {
        let hub = self.seat.hub();
        if !hub.is_waited_for() || self.seat.is_taken_by_m() {
            return false;
        }
        let found = hub.look(|events| {
            let mut found = Harvest::new();
            found.gather(events, Some(self));
            found
        });
        match found {
            Some(found) if !found.is_empty() => {
                self.queue_on(p, found);
                true
            }
            _ => false,
        }
    }

    /// As [`look_for_events`](Self::look_for_events), now and then, by an owner whose queues are never empty.
    #[inline]
    pub(in crate::sched) fn look_now_and_then(&self, p: &P) {
        if p.dispatches_since(&p.watch.looked) >= LOOK_EVERY || self.seat.hub().is_look_wanted() {
            p.mark(&p.watch.looked);
            self.look_for_events(p);
        }
    }
}
