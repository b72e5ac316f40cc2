//! The monitor's part in looking for events: whether the owners of Ps look, and waiting in the poller if they do not.
//!
//! | Ps                 | who is in the poller | what it does                                                             |
//! |--------------------|----------------------|--------------------------------------------------------------------------|
//! | all idle           | an M, if needed      | nothing                                                                  |
//! | some idle          | nobody               | starts a searcher, who ends there, if no owner has looked for a while    |
//! | none idle          | nobody               | waits there itself, if no owner has looked for a while                   |
//! | none idle          | an M                 | nothing: that M queues what it finds, and leaves                         |
//!
//! Who polls if it falls asleep right now? As long as some P is in use, descriptors are waited for and nobody is in the poller, it
//! sleeps for less than [`STEADY_NS`](super::STEADY_NS) at a time, and then comes here again. A P that is the first in use, while it
//! sleeps deeply, was given to an M by the one in the poller, or by somebody who leaves that one there; or its M came from the poller
//! itself, and wakes the monitor if what it runs is not known to be short (`seat::find_watcher`).

use std::sync::atomic::Ordering::*;

use crate::sched::Shared;

/// How long owners may go without a look. A guess: a batch of requests that are served in turn takes less.
const WINDOW_NS: u64 = 2_000_000;

/// What the monitor remembers of it.
pub(super) struct Watch {
    /// How many looks there were when the running window began, and when that was.
    looks: u32,
    since: u64,
    /// No owner looked in the last window; or one did once, by the way, as it had not in the one before.
    stale: bool,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            looks: 0,
            since: 0,
            stale: false,
        }
    }

    /// Looks whether they look. True: there is no need to come back to it soon.
    pub(super) fn look(&mut self, shared: &Shared, idle: usize, now: u64) -> bool {
        let hub = shared.seat.hub();
        if idle == shared.procs() || !hub.is_waited_for() || shared.seat.is_taken() {
            (self.looks, self.since, self.stale) = (hub.looks(), now, false);
            return true;
        }
        if now >= self.since + WINDOW_NS {
            let looks = hub.looks().wrapping_sub(self.looks);
            self.stale = looks == 0 || self.stale && looks == 1;
            (self.looks, self.since) = (hub.looks(), now);
        }
        if self.stale && idle > 0 {
            shared.wake_one();
        }
        false
    }

    /// Waits in the poller until `wake_at`, unless the monitor was poked since it read `seen`. False: not its business now.
    pub(super) fn wait(&mut self, shared: &Shared, seen: u32, wake_at: u64) -> bool {
        if !self.stale || shared.idle_ps.load(Relaxed) != 0 {
            return false;
        }
        let monitor = &shared.monitor;
        monitor.polls.store(true, SeqCst);
        let polled = shared.poll_for_all(wake_at, || monitor.word.load(SeqCst) != seen);
        monitor.polls.store(false, SeqCst);
        polled
    }
}
