//! The seat: where one idle M at a time waits for the next timer, and for descriptors, in the poller.
//!
//! # Why this shape
//! Somebody has to sleep until the earliest deadline of all heaps. One idle M does, in the poller, so that sockets and
//! timers need one sleeper and not two; all other idle Ms sleep on their futex and cost nothing to wake. The seat is taken
//! only while there is something to wait for: waking an M out of the poller costs two system calls more than a futex.
//! Rejected: a timer thread (a switch of threads for each timer), a timerfd per P (a system call for each arm).
//!
//! # Words
//! *needed*: there are timers, or descriptors that somebody waits for. *unwatched*: needed, and nobody polls. `until` is when who is
//! in the poller wakes by itself, 0 if nobody is there. `heaps` counts the Ps whose heap is not empty. *lent*: the monitor is in
//! the seat, in place of an M.
//!
//! # Protocol
//! | party                  | steps                                                                                    |
//! |------------------------|------------------------------------------------------------------------------------------|
//! | idler (has given up P) | 1 look for the earliest deadline  2 not needed: sleep  3 due: take an idle P and run them|
//! |                        | 4 take the seat (idle lock); taken: sleep; lent: notify the monitor, sleep               |
//! |                        | 5 publish `until`  6 fence  7 look again, from 5 if there is an earlier one  8 poll      |
//! |                        | 9 `until` = 0; nothing found: from 1; else take an idle P for it; none: queue it globally|
//! | monitor                | no P is idle and their owners do not look (`monitor::keeper::events`): as 4 to 8, queues globally|
//! |                        | what it finds, and leaves; a P is idle by then: starts a searcher                        |
//! | armer (owns a P)       | 1 insert, publish `next`  2 fence  3 earlier than `until`: notify the poller             |
//! | dispatcher (owns a P)  | before it runs a goroutine: unwatched and a P idle: start a searcher, unless there are   |
//! |                        | only descriptors and the goroutine is known to be short                                  |
//! | who idles another's P  | the same, after it is on the idle list (`hand_off`)                                      |
//! | who needs an M         | takes from the idle list; if empty, the M in the seat: hand it the P, notify the poller  |
//!
//! # Who wakes the sleeper?
//! *Armed while the idler goes into the poller.* Both fence between their store and their look (armer 2, idler 6): the armer
//! sees `until`, or the idler sees `next`.
//! *Armed while nobody polls and a P is idle.* The armer owns a P. Its next dispatch sees that the timer is unwatched and starts
//! a searcher, who ends as an idler; if it has nothing to dispatch, it becomes the idler itself.
//! *Nobody polls, no P is idle.* The owners look at their heap before each dispatch. If what they dispatch is not known to be
//! short, the monitor sleeps no longer than the heap's next deadline, and then asks them to give way as soon as they have run for long enough, or takes
//! the P if they sleep in the kernel. The next P to become idle does so by an idler or through `hand_off`.
//! *The M in the seat is taken away while timers exist.* It was given a P. As a searcher it starts the next one when it finds
//! work, and goes back to 1 when it does not; otherwise it looks for unwatched timers itself, once `until` is 0.
//! *Due, and no P is idle when the poll ends.* As above: all Ps are busy. The M sleeps on its futex.
//! *A goroutine parks for a descriptor.* Its M goes on: it dispatches, or becomes an idler, and does the above. If it was not as short as
//! it is known to be, the monitor, which was woken for the case, starts a searcher or waits in the poller itself.
//! *An idler finds the seat lent.* It is notified; it sees that a P is idle, and starts a searcher, who sits down.
//!
//! # Invariants
//! I1  `Idle::polling` is the M in the seat. Who takes it from there hands it a P (or null); it then waits for that, however
//!     its poll ended.
//! I2  Events are used by who is in the seat only: an M that was taken still holds it until its poll has ended. Nobody else waits in
//!     the poller. (A notification is for one poll, and two at a time might take each other's.) The poller is closed when
//!     no M is left.
//!
//! # Context
//! The M in the seat has no P and no goroutine. `notify` may be used anywhere, also in a signal
//! handler that has interrupted user code.
//!
//! Tests: `tests/time.rs`, `tests/time_stress.rs`, `tests/net_wait.rs`.

use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*, fence};

use runnext_sys::clock;
use runnext_sys::poll::Events;

use super::Shared;
use super::call::take_p;
use super::netpoll::{self, Harvest, Hub};
use super::timers::NEVER;
use super::worker::sleep;
use crate::g::G;
use crate::m::M;
use crate::observe::set_coarse_ns;
use crate::p::P;

pub(super) struct Seat {
    hub: Arc<Hub>,
    events: UnsafeCell<Events>,
    until: AtomicU64,
    /// It is the monitor who is in the seat.
    lent: AtomicBool,
    heaps: AtomicUsize,
}

// SAFETY: I2.
unsafe impl Sync for Seat {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Seat {}

impl Seat {
    pub(super) fn new() -> io::Result<Seat> {
        Ok(Seat {
            hub: Arc::new(Hub::new()?),
            events: UnsafeCell::new(Events::new()),
            until: AtomicU64::new(0),
            lent: AtomicBool::new(false),
            heaps: AtomicUsize::new(0),
        })
    }

    /// The runtime's poller, for its descriptors.
    #[inline]
    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub(super) fn heap_filled(&self) {
        self.heaps.fetch_add(1, Relaxed);
    }

    pub(super) fn heap_emptied(&self) {
        self.heaps.fetch_sub(1, Relaxed);
    }

    /// Whether any P has timers. All that the switch path reads when there are none.
    #[inline]
    pub(super) fn any_timers(&self) -> bool {
        self.heaps.load(Relaxed) != 0
    }

    /// Whether there is anything to wait for in it: timers, or descriptors.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.any_timers() || self.hub.is_waited_for()
    }

    /// Whether somebody waits in the poller.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.until.load(Relaxed) != 0
    }

    /// Whether an M does, and not the monitor: what it finds goes to an idle P at once.
    #[inline]
    pub(super) fn is_taken_by_m(&self) -> bool {
        self.is_taken() && !self.lent.load(Relaxed)
    }

    #[inline]
    pub(super) fn is_unwatched(&self) -> bool {
        self.is_needed() && !self.is_taken()
    }

    /// A timer was armed that is the earliest of its heap; after a full fence.
    #[inline]
    pub(super) fn told_earlier(&self, when: u64) {
        if when < self.until.load(Relaxed) {
            self.notify();
        }
    }

    /// Ends the poll of who is in the seat.
    #[cold]
    pub(super) fn notify(&self) {
        self.hub.notify();
    }

    /// Waits until `next`, a descriptor, or a notification. By the M in the seat.
    fn wait(&self, shared: &Shared, mut next: u64) -> Harvest {
        loop {
            self.until.store(next, Relaxed);
            fence(SeqCst); // pairs with the one in `timers::arm`
            let hint = shared.next_timer_hint();
            if hint >= next {
                break;
            }
            next = hint;
        }
        self.poll_until(shared, next)
    }

    /// Polls until `when`, and leaves: `until` is 0 afterwards. By who is in the seat.
    fn poll_until(&self, shared: &Shared, when: u64) -> Harvest {
        let timeout = match when {
            NEVER => None,
            _ => Some(when.saturating_sub(clock::now_ns())),
        };
        let mut found = Harvest::new();
        if timeout != Some(0) {
            // SAFETY: we are in the seat (I2).
            let events = unsafe { &mut *self.events.get() };
            self.hub.poll(events, timeout);
            found.gather(events, Some(shared));
        }
        self.until.store(0, Relaxed);
        fence(SeqCst);
        found
    }
}

impl Shared {
    /// Nobody will look for events any more: closes the runtime's descriptors, or leaves that to the last thread of it. In user context.
    pub(crate) fn close_poller(&self) {
        netpoll::leave(&self.seat.hub);
        self.threads.leave_alone();
        self.close_deserted();
    }

    /// Closes them if the last thread has left. In user context; once more does no harm.
    pub(super) fn close_deserted(&self) {
        if self.threads.is_deserted() {
            self.seat.hub.close();
        }
    }

    /// An M was taken from the seat: it returns from the poller.
    pub(crate) fn end_poll(&self) {
        self.seat.notify();
    }

    /// The owner's turn, before each dispatch, if there is anything to tend.
    #[inline]
    pub(super) fn tend(&self, p: &P) {
        if self.seat.any_timers() {
            self.run_own_timers(p);
        }
        self.look_now_and_then(p);
    }

    /// Before `g` is run on `p`: timers and descriptors must not wait for it to end.
    #[inline]
    pub(super) fn watch_timers(&self, p: &P, g: &G) {
        if self.seat.is_unwatched() {
            self.find_watcher(p, g);
        }
    }

    /// The monitor waits in the poller in place of an M, until `when`, or until poked: no P is idle, and their owners do not look.
    /// What it found is for [`queue_polled`](Self::queue_polled). None: somebody else is there.
    pub(super) fn poll_for_all(&self, when: u64, poked: impl Fn() -> bool) -> Option<Harvest> {
        if !self.idle.lock().lend_seat() {
            return None;
        }
        self.seat.lent.store(true, Relaxed);
        self.seat.until.store(when, Relaxed);
        fence(SeqCst); // pairs with the ones in `timers::arm` and in `Monitor::poke`
        // Armed since the monitor looked. Those that are due are their owners' business, as it knows.
        let armed = self.next_timer_after(clock::now_ns());
        let when = if armed < when {
            self.seat.until.store(armed, Relaxed);
            armed
        } else {
            when
        };
        let found = if poked() {
            self.seat.until.store(0, Relaxed);
            Harvest::new()
        } else {
            self.seat.poll_until(self, when)
        };
        self.seat.lent.store(false, Relaxed);
        self.idle.lock().take_seat_back();
        Some(found)
    }

    /// Queues what the monitor found.
    pub(super) fn queue_polled(&self, found: Harvest) {
        if !found.is_empty() {
            self.queue_global(found);
        } else if self.searchers.idle() != 0 && self.seat.is_unwatched() {
            self.wake_one(); // an M found the monitor there when it wanted to sit down
        }
    }

    /// A timer was armed for `when` by somebody who goes on, perhaps for long.
    pub(super) fn watch_until(&self, when: u64) {
        if !self.seat.is_unwatched() {
            return;
        }
        if self.searchers.idle() != 0 {
            self.wake_one();
        } else {
            self.monitor.watch_until(when);
        }
    }

    #[cold]
    fn find_watcher(&self, p: &P, g: &G) {
        // Descriptors alone: if it is short, this P looks again soon, and what it finds is best run here.
        if !self.seat.any_timers() && g.is_known_light() {
            return self.monitor.note_work(); // should it not be
        }
        if self.searchers.idle() != 0 {
            self.wake_one();
        } else if g.is_known_light() {
            self.monitor.note_work(); // should it not be
        } else {
            let next = p.timers.next();
            match self.may_hog(g) {
                true => self.monitor.watch_until(next),
                false => self.monitor.watch_until_beside_light(next),
            }
            self.monitor.work_waits(false);
        }
    }
}

/// An M that has given up its P waits for another: in the seat if it is needed there and it is free, else asleep.
/// False: the runtime has stopped.
pub(super) fn rest(m: &'static M) -> bool {
    let shared = m.shared();
    loop {
        fence(SeqCst); // after its P became idle: pairs with the one in `timers::arm`
        let next = shared.next_timer_ns();
        if next == NEVER && !shared.seat.hub.is_waited_for() {
            shared.note_rest(); // not before: dead entries of the heaps have left now
            return sleep(m);
        }
        if next != NEVER {
            let now = clock::now_ns();
            if next <= now {
                let Some(p) = shared.take_idle_p(std::ptr::null()) else {
                    shared.monitor.watch_until(next); // whoever took the last one may not look
                    return sleep(m);
                };
                m.note_cpu();
                take_p(m, p);
                shared.find_room(m);
                set_coarse_ns(now);
                shared.run_all_timers(p, now);
                return true;
            }
        }
        {
            let mut idle = shared.idle.lock();
            if shared.stopped.load(Relaxed) {
                return false;
            }
            if !idle.sit_down(m) {
                let lent = idle.is_seat_lent();
                drop(idle);
                if lent {
                    shared.seat.notify(); // the monitor sees that a P is idle, and leaves
                }
                return sleep(m);
            }
        }
        let found = shared.seat.wait(shared, next);
        if !shared.idle.lock().stand_up(m) {
            // I1: somebody has a P for it.
            let p = m.wait_for_p();
            m.polling.set(false);
            let Some(p) = p else {
                shared.queue_abandoned(found);
                return false;
            };
            take_p(m, p);
            shared.find_room(m);
            shared.queue_on(m.p(), found);
            return true;
        }
        if !found.is_empty() {
            let Some(p) = shared.take_idle_p(std::ptr::null()) else {
                shared.queue_global(found);
                return sleep(m);
            };
            m.note_cpu();
            take_p(m, p);
            shared.find_room(m);
            shared.queue_on(p, found);
            return true;
        }
    }
}
