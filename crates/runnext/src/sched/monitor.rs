//! The monitor: the one thread of a runtime that has no P.
//!
//! It sees to it that nothing stalls a P.
//!
//! # Stalls
//! While goroutines wait and no P is idle, it looks at each P's thread; while some are idle, at those behind which wait whom no other P
//! may run (`Shared::waits_behind`):
//!
//! | what it sees                                                    | what it does                                       |
//! |------------------------------------------------------------------|----------------------------------------------------|
//! | BLK, and the same word as at the last look                       | takes the P (a declared section outlasted a look)  |
//! | USER, the same word, no CPU used since, asleep says the kernel   | takes the P: no signal, so nothing is interrupted  |
//! | USER, computing, and a light goroutine waits                     | asks the thread to give way (`preempt::request`)   |
//! | the same in a group's turn, and one without a group waits        | what the policy says (`Shared::claim_for_root`)    |
//! | USER, the same slice for longer than it may last, no CPU timer   | asks the thread to give way                        |
//! | the same without preemption                                      | leaves a note for its next checkpoint              |
//!
//! At the limit of threads all may sleep with goroutines that are locked to them, while Ps are idle. Then it looks after timers and
//! descriptors itself, as if no P were idle, and hands a P to the thread of whoever wakes up.
//!
//! A wrong guess costs time, never correctness: a robbed thread finds out at its next call, or when its CPU timer ticks.
//!
//! # Sleeping
//! | `nap`  | sleeps                                   | who pokes it                                              |
//! |--------|------------------------------------------|-----------------------------------------------------------|
//! | AWAKE  | not, or for less than a look may wait    | nobody                                                    |
//! | SHORT  | up to 4 ms: goroutines wait              | who makes a light goroutine runnable and finds no idle P  |
//! | DEEP   | none wait: 10 ms, or if no P is in use   | who makes any goroutine runnable and finds no idle P, or  |
//! |        | until poked                              | does not wake one; a thread that has burnt a slice of CPU |
//!
//! Who wakes it if work is queued just as it goes to sleep? It publishes `nap`, then a full fence, then looks at the queues once
//! more; who queues work puts a full fence before it reads `nap` (`Shared::wake_one`). Three shortcuts do without the fence
//! (`wake_another`, `Call::enqueue_woken`, `may_help`): they own a P, and then the monitor does not sleep for longer than 10 ms.
//!
//! # Context
//! Never allocates, prints, or makes a thread (I1): the `threads` module has another thread for that. Takes the idle lock,
//! and `watching` around each look.
//!
//! # Invariants
//! I1  It waits for no lock but the runtime's own. A goroutine that was preempted inside the allocator holds the allocator's lock
//!     until it has a P again; if all others wait for that lock, only this thread can see it and hand the P on.
//! I2  An M that a P names is alive while `watching` is held (`M::hand`, `Threads::reap`).
//! I3  Of its own accord it uses no more than a part of one CPU (`allowance`), however much there seems to be to look at.

mod keeper;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::thread::JoinHandle;

use runnext_sys::futex;

use super::netpoll::Hub;
use super::{Shared, threads};
use crate::lock::Lock;
use keeper::Keeper;

const AWAKE: u32 = 0;
const SHORT: u32 = 1;
const DEEP: u32 = 2;

pub(crate) struct Monitor {
    /// Grows with every reason to look; the monitor sleeps on it.
    word: Arc<AtomicU32>,
    nap: AtomicU32,
    /// When it wakes by itself.
    until: AtomicU64,
    /// Before this it does not look after timers again, whatever is due: it has just done so. And the same while all Ps run light goroutines.
    rested: AtomicU64,
    rested_beside_light: AtomicU64,
    /// The last P has become idle with nothing to wait for: it may be a deadlock.
    suspects: AtomicBool,
    /// Grows with every goroutine that ends while somebody waits for that.
    ends: AtomicU32,
    /// It sleeps in the runtime's poller, not on `word`.
    polls: AtomicBool,
    hub: Arc<Hub>,
    /// Held while it looks: who frees an M waits for the look to end.
    watching: Lock<()>,
    /// Its thread runs.
    up: AtomicBool,
    handle: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Monitor {
    pub(super) fn new(hub: Arc<Hub>) -> Monitor {
        Monitor {
            polls: AtomicBool::new(false),
            hub,
            word: Arc::new(AtomicU32::new(0)),
            nap: AtomicU32::new(AWAKE),
            until: AtomicU64::new(u64::MAX),
            rested: AtomicU64::new(0),
            rested_beside_light: AtomicU64::new(0),
            suspects: AtomicBool::new(false),
            ends: AtomicU32::new(0),
            watching: Lock::new(()),
            up: AtomicBool::new(false),
            handle: std::sync::Mutex::new(None),
        }
    }

    /// What it sleeps on.
    pub(super) fn word(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.word)
    }

    /// Goroutines wait and no P is idle.
    #[inline]
    pub(super) fn work_waits(&self, urgent: bool) {
        let nap = self.nap.load(Relaxed);
        if nap == DEEP || (nap == SHORT && urgent) {
            self.poke();
        }
    }

    /// Everything has come to rest. Whether for ever, the monitor finds out after a while: most rests are short.
    pub(super) fn suspect_deadlock(&self) {
        if !self.suspects.swap(true, Relaxed) {
            self.poke();
        }
    }

    /// A thread has burnt a slice's worth of CPU: a monitor that sleeps for good, because no P was in use, wakes up.
    pub(super) fn note_work(&self) {
        if self.until.load(Relaxed) == u64::MAX {
            self.poke();
        }
    }

    /// All Ps are busy, perhaps for long, and a timer is due at `when`.
    pub(super) fn watch_until(&self, when: u64) {
        self.wake_by(when.max(self.rested.load(Relaxed)));
    }

    /// The same if it was a light goroutine that was dispatched, though perhaps a new one. Not sooner than the monitor would come by itself while all are: it would
    /// not stay, and whoever dispatches the next one would wake it again.
    pub(super) fn watch_until_beside_light(&self, when: u64) {
        self.wake_by(when.max(self.rested_beside_light.load(Relaxed)));
    }

    /// It looks at `when` at the latest, however long it may leave timers alone.
    pub(super) fn wake_by(&self, when: u64) {
        if when < self.until.load(Relaxed) {
            self.until.store(when, Relaxed); // once is enough
            self.poke();
        }
    }

    #[cold]
    pub(super) fn poke(&self) {
        self.nap.store(AWAKE, Relaxed);
        self.word.fetch_add(1, SeqCst);
        futex::wake_one(&*self.word);
        if self.polls.load(SeqCst) {
            self.hub.notify();
        }
    }

    /// A goroutine ended while the runtime drains.
    #[cold]
    pub(super) fn note_end(&self) {
        self.ends.fetch_add(1, Release);
        futex::wake_all(&self.ends);
    }

    /// Looks at Ms, which are not freed meanwhile.
    pub(super) fn while_looking(&self, look: impl FnOnce()) {
        let _watching = self.watching.lock();
        look();
    }

    /// Returns when no look is under way that began before.
    pub(super) fn let_look_end(&self) {
        drop(self.watching.lock());
    }

    /// Waits for the thread, which has been told to stop.
    pub(super) fn join(&self, shared: &Shared) {
        shared.unwatch_for_deadlock();
        let handle = self.handle.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(handle) = handle {
            // It does not panic; if it did, it has ended.
            let _ = handle.join();
        }
    }
}

impl Shared {
    /// Waits until no goroutine is left, or the deadline has passed. Returns how many of those alive at the call have ended, and how many
    /// have not.
    pub(crate) fn drain(&self, deadline_ns: u64) -> (usize, usize) {
        // By number, for those that end may start others; not by the next number, for Ps take them in batches.
        let mut first = Vec::new();
        self.slab.for_each(|g| first.extend(g.alive()));
        if first.is_empty() {
            return (0, 0);
        }
        first.sort_unstable();
        self.draining.store(true, SeqCst);
        loop {
            let seen = self.monitor.ends.load(Acquire);
            if self.live() == 0 {
                return (first.len(), 0);
            }
            if !futex::wait_until(&self.monitor.ends, seen, deadline_ns) {
                break;
            }
        }
        let mut left = 0;
        self.slab.for_each(|g| {
            let is_first = |id| first.binary_search(&id).is_ok();
            left += usize::from(g.alive().is_some_and(is_first));
        });
        (first.len() - left, left)
    }
}

/// Starts the monitor of a runtime.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let keeper = Keeper::new(Arc::clone(shared));
    let handle = std::thread::Builder::new()
        .name("runnext-monitor".into())
        .stack_size(threads::STACK)
        .spawn(move || keeper.run())?;
    *shared
        .monitor
        .handle
        .lock()
        .unwrap_or_else(|e| e.into_inner()) = Some(handle);
    shared.watch_for_deadlock();
    // A thread that starts allocates and frees, and must be done with that before the first goroutine runs (I1).
    while !shared.monitor.up.load(Acquire) {
        std::thread::yield_now();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a turn waited until timers were looked after again: for up to 2 ms.
    #[test]
    fn timers_wait_while_they_were_just_looked_after_and_nothing_else_does() {
        let monitor = Monitor::new(Arc::new(Hub::new().unwrap()));
        monitor.rested.store(100, Relaxed);
        monitor.watch_until(50);
        assert_eq!(monitor.until.load(Relaxed), 100);
        monitor.wake_by(70);
        assert_eq!(monitor.until.load(Relaxed), 70);
        let pokes = monitor.word.load(Relaxed);
        monitor.wake_by(80);
        assert_eq!(monitor.word.load(Relaxed), pokes, "it looks before that");
    }
}
