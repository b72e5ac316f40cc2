//! The seat: where one idle M at a time waits for the next timer, and for descriptors, in the poller.
//!
//! # Why this shape
//! Somebody has to sleep until the earliest deadline of all heaps. One idle M does, in the poller, so that sockets and
//! timers need one sleeper and not two; all other idle Ms sleep on their futex and cost nothing to wake. The seat is taken
//! only while there is something to wait for: waking an M out of the poller costs two system calls more than a futex.
//! Rejected: a timer thread (a switch of threads for each timer), a timerfd per P (a system call for each arm).
//!
//! # Words
//! *unwatched*: timers exist and nobody polls. `until` is when the M in the poller wakes by itself, 0 if nobody is there.
//! `heaps` counts the Ps whose heap is not empty.
//!
//! # Protocol
//! | party                  | steps                                                                                    |
//! |------------------------|------------------------------------------------------------------------------------------|
//! | idler (has given up P) | 1 look for the earliest deadline  2 none: sleep  3 due: take an idle P and run them      |
//! |                        | 4 take the seat (idle lock); taken: sleep  5 publish `until`  6 fence                    |
//! |                        | 7 look again, from 5 if there is an earlier one  8 poll  9 `until` = 0, from 1           |
//! | armer (owns a P)       | 1 insert, publish `next`  2 fence  3 earlier than `until`: notify the poller             |
//! | dispatcher (owns a P)  | before it runs a goroutine: unwatched and a P idle: start a searcher                     |
//! | who idles another's P  | the same, after it is on the idle list (`hand_off`)                                      |
//! | who needs an M         | takes from the idle list; if empty, the M in the seat: hand it the P, notify the poller  |
//!
//! # Who wakes the sleeper?
//! *Armed while the idler goes into the poller.* Both fence between their store and their look (armer 2, idler 6): the armer
//! sees `until`, or the idler sees `next`.
//! *Armed while nobody polls and a P is idle.* The armer owns a P. Its next dispatch sees that the timer is unwatched and starts
//! a searcher, who ends as an idler; if it has nothing to dispatch, it becomes the idler itself.
//! *Nobody polls, no P is idle.* The owners look at their heap before each dispatch. If what they dispatch is not known to be
//! short, the monitor sleeps no longer than the heap's next deadline, and then asks them to give way, or takes the P if
//! they sleep in the kernel. The next P to become idle does so by an idler or through `hand_off`.
//! *The M in the seat is taken away while timers exist.* It was given a P. As a searcher it starts the next one when it finds
//! work, and goes back to 1 when it does not; otherwise it looks for unwatched timers itself, once `until` is 0.
//! *Due, and no P is idle when the poll ends.* As above: all Ps are busy. The M sleeps on its futex.
//!
//! # Invariants
//! I1  `Idle::polling` is the M in the seat. Who takes it from there hands it a P (or null); it then waits for that, however
//!     its poll ended.
//! I2  Poller and events are used by the M in the seat only, but for `notify`: an M that was taken still holds the seat until
//!     its poll has ended. (A notification is for one poll, and two at a time might take each other's.) The poller is
//!     closed when no M is left.
//!
//! # Context
//! The M in the seat has no P and no goroutine. `notify` may be used anywhere, in a signal handler too. The gate is a leaf
//! lock.
//!
//! Tests: `tests/time.rs`, `tests/time_stress.rs`.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*, fence};

use runnext_sys::clock;
use runnext_sys::poll::{Events, Poller};

use super::Shared;
use super::call::take_p;
use super::timers::NEVER;
use super::worker::sleep;
use crate::g::G;
use crate::lock::Lock;
use crate::m::M;
use crate::p::P;

pub(super) struct Seat {
    poller: UnsafeCell<Option<Poller>>,
    events: UnsafeCell<Events>,
    /// Taken by who notifies and who closes.
    gate: Lock<()>,
    until: AtomicU64,
    heaps: AtomicUsize,
}

// SAFETY: I2; the poller itself may be shared.
unsafe impl Sync for Seat {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Seat {}

impl Seat {
    pub(super) fn new() -> io::Result<Seat> {
        Ok(Seat {
            poller: UnsafeCell::new(Some(Poller::new()?)),
            events: UnsafeCell::new(Events::new()),
            gate: Lock::new(()),
            until: AtomicU64::new(0),
            heaps: AtomicUsize::new(0),
        })
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

    #[inline]
    pub(super) fn is_unwatched(&self) -> bool {
        self.any_timers() && self.until.load(Relaxed) == 0
    }

    /// A timer was armed that is the earliest of its heap; after a full fence.
    #[inline]
    pub(super) fn told_earlier(&self, when: u64) {
        if when < self.until.load(Relaxed) {
            self.notify();
        }
    }

    /// Ends the poll of the M in the seat.
    #[cold]
    pub(super) fn notify(&self) {
        let _open = self.gate.lock();
        // SAFETY: under the gate it is not closed (I2), and nobody else changes it.
        if let Some(poller) = unsafe { &*self.poller.get() } {
            poller.notify();
        }
    }

    /// Closes the descriptors. No M is left.
    fn close(&self) {
        let poller = {
            let _open = self.gate.lock();
            // SAFETY: no M is left to poll (I2), and the gate keeps notifiers out.
            unsafe { (*self.poller.get()).take() }
        };
        drop(poller);
    }

    /// Waits until `next`, a descriptor, or a notification. By the M in the seat.
    fn wait(&self, shared: &Shared, mut next: u64) {
        loop {
            self.until.store(next, Relaxed);
            fence(SeqCst); // pairs with the one in `timers::arm`
            let hint = shared.next_timer_hint();
            if hint >= next {
                break;
            }
            next = hint;
        }
        let timeout = next.saturating_sub(clock::now_ns());
        // SAFETY: we are in the seat (I2).
        let (poller, events) = unsafe { (&*self.poller.get(), &mut *self.events.get()) };
        if timeout > 0
            && let Some(poller) = poller
        {
            match poller.poll(events, Some(timeout)) {
                Ok(0) => {}
                Ok(_) => shared.process_events(events),
                Err(e) => crate::fatal::fatal(format_args!("the poller failed: {e}")),
            }
        }
        self.until.store(0, Relaxed);
        fence(SeqCst);
    }
}

impl Shared {
    /// What became ready in the poller. The M in the seat calls it, without a P; there are no descriptors but the poller's own.
    fn process_events(&self, _events: &Events) {}

    /// Closes the runtime's descriptors, if no thread of it is left.
    pub(crate) fn close_poller(&self) {
        if self.threads.count() == 0 {
            self.seat.close();
        }
    }

    /// An M was taken from the seat: it returns from the poller.
    pub(crate) fn end_poll(&self) {
        self.seat.notify();
    }

    /// Before `g` is run on `p`: timers must not wait for it to end.
    #[inline]
    pub(super) fn watch_timers(&self, p: &P, g: &G) {
        if self.seat.is_unwatched() {
            self.find_watcher(p, g);
        }
    }

    /// A timer was armed for `when` by somebody who goes on, perhaps for long.
    pub(super) fn watch_until(&self, when: u64) {
        if !self.seat.is_unwatched() {
            return;
        }
        if self.idle_ps.load(Relaxed) != 0 {
            self.wake_one();
        } else {
            self.monitor.watch_until(when);
        }
    }

    #[cold]
    fn find_watcher(&self, p: &P, g: &G) {
        if self.idle_ps.load(Relaxed) != 0 {
            self.wake_one();
        } else if !g.is_known_light() {
            self.monitor.watch_until(p.timers.next());
        }
    }
}

/// An M that has given up its P waits for another: in the seat if timers need somebody there and it is free, else asleep.
/// False: the runtime has stopped.
pub(super) fn rest(m: &'static M) -> bool {
    let shared = m.shared();
    loop {
        fence(SeqCst); // after idle_ps has grown: pairs with the one in `timers::arm`
        let next = shared.next_timer_ns();
        if next == NEVER {
            return sleep(m);
        }
        let now = clock::now_ns();
        if next <= now {
            let Some(p) = shared.take_idle_p(std::ptr::null()) else {
                return sleep(m);
            };
            take_p(m, p);
            shared.run_all_timers(p, now);
            return true;
        }
        {
            let mut idle = shared.idle.lock();
            if shared.stopped.load(Relaxed) {
                return false;
            }
            if !idle.sit_down(m) {
                drop(idle);
                return sleep(m);
            }
        }
        shared.seat.wait(shared, next);
        if !shared.idle.lock().stand_up(m) {
            // I1: somebody has a P for it.
            let p = m.wait_for_p();
            m.polling.set(false);
            if p.is_null() {
                return false;
            }
            take_p(m, p);
            return true;
        }
    }
}
