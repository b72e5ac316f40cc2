//! The monitor's part in looking for events: whether the owners of Ps look, and waiting in the poller if they do not.
//!
//! | Ps                 | who is in the poller | what it does                                                             |
//! |--------------------|----------------------|--------------------------------------------------------------------------|
//! | all idle           | an M, if needed      | nothing                                                                  |
//! | some idle          | nobody               | starts a searcher, who ends there, if the owners look too rarely         |
//! | none idle          | nobody               | waits there itself, if the owners look too rarely                        |
//! | none idle          | an M                 | nothing: that M queues what it finds, and leaves                         |
//!
//! Who polls if it falls asleep right now? As long as some P is in use, descriptors are waited for and nobody is in the poller, it
//! sleeps for no more than [`PEACE_NS`](super::PEACE_NS) at a time, and then comes here again. A P that is the first in use, while it
//! sleeps deeply, was given to an M by the one in the poller, or by somebody who leaves that one there; or its M came from the poller
//! itself, and wakes the monitor if what it runs is not known to be short (`seat::find_watcher`).

use std::sync::atomic::Ordering::*;

use super::AWAKE;
use crate::sched::Shared;

/// Over how long the looks of owners are counted; and the same while the monitor is in the poller, where it gets in the way of those who look:
/// each event wakes it.
const WINDOW_NS: u64 = 2_000_000;
const WINDOW_INSIDE_NS: u64 = 1_000_000;
/// So many looks in [`WINDOW_NS`] are enough, or so many dispatches for each P: those who dispatch look soon (`Hub::want_look`). Guesses: requests
/// of up to a tenth of a millisecond leave enough, computing goroutines are dispatched a few times. `bench group-wake via=socket` shows one side,
/// `bench echo` and `http` the other.
const ENOUGH_LOOKS: u32 = 8;
const ENOUGH_DISPATCHES: u32 = 16;

/// What the monitor remembers of it.
pub(super) struct Watch {
    /// How many looks and dispatches there were when the running window began, and when that was.
    looks: u32,
    dispatches: u32,
    since: u64,
    /// How many looks there were when the monitor last looked.
    last: u32,
    /// The owners looked too rarely in the last window.
    stale: bool,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            looks: 0,
            dispatches: 0,
            since: 0,
            last: 0,
            stale: false,
        }
    }

    /// Looks whether they look. True: there is no need to come back to it soon.
    pub(super) fn look(&mut self, shared: &Shared, idle: usize, now: u64) -> bool {
        let hub = shared.seat.hub();
        if idle == shared.procs() || shared.seat.is_taken() {
            self.begin(shared, now);
            self.stale = false;
            return true;
        }
        if !hub.is_waited_for() {
            return true; // just now: who was woken by an event may wait for the next one soon
        }
        if hub.looks() == self.last {
            hub.want_look();
        }
        self.last = hub.looks();
        let window = if self.stale {
            WINDOW_INSIDE_NS
        } else {
            WINDOW_NS
        };
        if now >= self.since + window {
            let (looks, dispatches) = (self.looks, self.dispatches);
            self.begin(shared, now);
            let many = |n: u32, enough: u32| u64::from(n) * WINDOW_NS >= u64::from(enough) * window;
            let enough = ENOUGH_DISPATCHES * shared.procs() as u32;
            self.stale = !many(self.looks.wrapping_sub(looks), ENOUGH_LOOKS)
                && !many(self.dispatches.wrapping_sub(dispatches), enough);
        }
        if self.stale && idle > 0 {
            shared.wake_one();
        }
        false
    }

    /// Begins a window.
    fn begin(&mut self, shared: &Shared, now: u64) {
        self.looks = shared.seat.hub().looks();
        let ticks = shared.all_ps().map(|p| p.tick.load(Relaxed));
        self.dispatches = ticks.fold(0, u32::wrapping_add);
        self.since = now;
    }

    /// Waits in the poller until `wake_at`, unless the monitor was poked since it read `seen`. False: not its business now.
    pub(super) fn wait(&mut self, shared: &Shared, seen: u32, wake_at: u64) -> bool {
        if !self.stale || super::idle_ps(shared) != 0 {
            return false;
        }
        let monitor = &shared.monitor;
        monitor.polls.store(true, SeqCst);
        let polled = shared.poll_for_all(wake_at, || monitor.word.load(SeqCst) != seen);
        monitor.polls.store(false, SeqCst);
        // Still napping, where it may be poked: it sleeps on its word instead.
        let Some(found) = polled else {
            return false;
        };
        // Before what it found is queued: who is awake needs no poke.
        monitor.nap.store(AWAKE, Relaxed);
        shared.queue_polled(found);
        true
    }
}
