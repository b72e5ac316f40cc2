//! A hub: a poller and what is known about it without asking the kernel.
//!
//! Each runtime has one, in its seat; futures that no runtime runs have one together (`reactor`). A descriptor keeps a count on
//! the hub it is registered with, so a hub outlives its runtime; its poller does not: the runtime closes it.
//!
//! # Who is counted in `waiting`
//! Every P reads it at each dispatch, and each wait changes it. So it has cache lines of its own, and an event does not make each goroutine that
//! it wakes leave by itself: whoever fetched the events counts out all those of its own runtime at once (`harvest`). It does so once they are
//! queued, for until then nothing else tells that somebody is about to run (`deadlock`). All others count themselves out, when they run:
//! whom a timer, a deadline or an event of another runtime has woken.
//! Who wakes the sleeper if it goes to sleep right now? Who waits counts itself in before its node is in the list, and out after it was taken
//! from there, so `waiting` is never less than those whom an event would wake, and never below zero; too much of it keeps an M in the seat for nothing.
//! The thread of who waits goes on, sees its own count, and starts a watcher or becomes one (`seat`).
//!
//! # Invariants
//! I1  The poller is taken out when no thread of the runtime is left, under the gate. Threads of the runtime use it without the
//!     gate, all others under it.
//! I2  `Quick::busy` is held around the use of the buffer beside it, and never waited for.
//! I3  A process that was forked shares the poller with the one it comes from, whose descriptors are watched there under the same numbers. So in
//!     the copy nothing is registered, taken out or notified: neither by a goroutine, nor by what closes its sockets there.
//!
//! # Context
//! The gate is a leaf lock. `new` and `close` are in user context; the rest allocates nothing.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};

use runnext_core::shim::CachePadded;
use runnext_sys::fork;
use runnext_sys::poll::{Events, Poller};

use crate::fatal::fatal;
use crate::lock::Lock;
use crate::sched::COPY;
use crate::sched::call::Call;

pub(super) fn ended() -> io::Error {
    io::Error::other("the runtime has shut down")
}

/// What the looks of the Ps' owners change.
struct Quick {
    busy: AtomicBool,
    events: UnsafeCell<Events>,
    /// Grows with each look by a P's owner: tells the monitor that somebody looks.
    looks: AtomicU32,
}

pub(crate) struct Hub {
    poller: UnsafeCell<Option<Poller>>,
    /// The monitor wants a look of whoever dispatches next.
    wanted: AtomicBool,
    /// Its runtime has stopped: nobody will look again. The locks of slots order it (`wakers::leave`).
    ended: AtomicBool,
    /// How many forks there had been when it was made.
    forks: u32,
    gate: Lock<()>,
    quick: CachePadded<Quick>,
    /// Who would be woken by a descriptor: parked goroutines, and sockets that futures wait for.
    waiting: CachePadded<AtomicUsize>,
}

// SAFETY: I1, I2; the poller itself may be shared.
unsafe impl Sync for Hub {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Hub {}

impl Hub {
    pub(in crate::sched) fn new() -> io::Result<Hub> {
        fork::watch();
        Ok(Hub {
            forks: fork::count(),
            poller: UnsafeCell::new(Some(Poller::new()?)),
            wanted: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            gate: Lock::new(()),
            quick: CachePadded::new(Quick {
                busy: AtomicBool::new(false),
                events: UnsafeCell::new(Events::new()),
                looks: AtomicU32::new(0),
            }),
            waiting: CachePadded::new(AtomicUsize::new(0)),
        })
    }

    /// This process was forked since (I3).
    pub(super) fn is_copy(&self) -> bool {
        self.forks != fork::count()
    }

    /// The poller, for threads of the runtime (I1).
    fn poller(&self) -> Option<&Poller> {
        // SAFETY: it is not taken out while one of them is left (I1).
        unsafe { (*self.poller.get()).as_ref() }
    }

    /// Ends one blocking poll. Anywhere but where the gate may be held: not in a signal handler that has interrupted the runtime.
    #[cold]
    pub(in crate::sched) fn notify(&self) {
        self.with_open(Poller::notify);
    }

    /// Closes the descriptors. No thread of the runtime is left.
    pub(in crate::sched) fn close(&self) {
        // A goroutine of another runtime may be the one to call: it is not preempted while it holds the gate.
        let call = Call::brief();
        let poller = {
            let _open = self.gate.lock();
            // SAFETY: I1, and the gate keeps others out.
            unsafe { (*self.poller.get()).take() }
        };
        drop(call);
        drop(poller);
    }

    /// Nobody registers anything with it from here on (`wakers::leave`).
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    fn with_open(&self, f: impl FnOnce(&Poller)) {
        // Nor is the gate opened by a thread that was not copied.
        if self.is_copy() {
            return;
        }
        let _open = self.gate.lock();
        // SAFETY: under the gate it is not taken out (I1).
        if let Some(poller) = unsafe { &*self.poller.get() } {
            f(poller);
        }
    }

    /// Watches `fd` under `token`. By a thread of the runtime, in user context.
    ///
    /// It may be watched already: by another goroutine that was as fast, or as a descriptor closed since with a duplicate alive
    /// that kept its registration, whose number `fd` has got.
    ///
    /// # Errors
    /// The runtime has ended, or is a copy (I3); those of the poller.
    pub(super) fn watch(&self, fd: RawFd, token: u64) -> io::Result<()> {
        if self.is_copy() {
            return Err(io::Error::other(COPY));
        }
        let Some(poller) = self.poller() else {
            return Err(ended());
        };
        match poller.add(fd, token) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => poller.rename(fd, token),
            done => done,
        }
    }

    /// Stops watching `fd`. Anybody may, in a call or on a plain thread.
    pub(super) fn forget(&self, fd: RawFd) {
        // Not watched, if the program closed it behind our back: nothing to do.
        self.with_open(|poller| drop(poller.remove(fd)));
    }

    /// Fetches events, waiting for them as long as `timeout_ns` says. By a thread of the runtime.
    pub(in crate::sched) fn poll(&self, events: &mut Events, timeout_ns: Option<u64>) {
        let Some(poller) = self.poller() else { return };
        if let Err(e) = poller.poll(events, timeout_ns) {
            fatal(format_args!("the poller failed: {e}"));
        }
    }

    /// Hands what is ready now to `f`; no waiting. Nothing if another thread looks at this moment.
    pub(super) fn look<T>(&self, f: impl FnOnce(&Events) -> T) -> Option<T> {
        let quick = &*self.quick;
        if quick.busy.load(Relaxed) || quick.busy.swap(true, Acquire) {
            return None;
        }
        if self.is_look_wanted() {
            self.wanted.store(false, Relaxed); // seldom: all dispatchers read it
        }
        let looks = quick.looks.load(Relaxed);
        quick.looks.store(looks.wrapping_add(1), Relaxed);
        // SAFETY: I2.
        let events = unsafe { &mut *quick.events.get() };
        self.poll(events, Some(0));
        let found = (!events.is_empty()).then(|| f(events));
        quick.busy.store(false, Release);
        found
    }

    /// Nobody has looked for a while: who dispatches next does.
    pub(in crate::sched) fn want_look(&self) {
        self.wanted.store(true, Relaxed);
    }

    #[inline]
    pub(super) fn is_look_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// How often a P's owner has looked.
    pub(in crate::sched) fn looks(&self) -> u32 {
        self.quick.looks.load(Relaxed)
    }

    /// Whether a descriptor could wake anybody.
    #[inline]
    pub(in crate::sched) fn is_waited_for(&self) -> bool {
        self.waiting.load(Relaxed) != 0
    }

    /// How many wait for descriptors.
    pub(in crate::sched) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(super) fn begin_wait(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    pub(super) fn end_wait(&self) {
        self.end_waits(1);
    }

    /// So many wait no longer.
    pub(super) fn end_waits(&self, n: usize) {
        if n != 0 {
            self.waiting.fetch_sub(n, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks of one P took away the line that all others read at each dispatch.
    #[test]
    fn what_all_read_is_apart_from_what_looks_and_waits_change() {
        let hub = Hub::new().unwrap();
        let line = |at: *const u8| at.addr() / 128;
        let read = [
            line((&raw const hub.wanted).cast()),
            line((&raw const hub.poller).cast()),
        ];
        let quick = line((&raw const *hub.quick).cast());
        let waiting = line((&raw const *hub.waiting).cast());
        assert!(quick != waiting && !read.contains(&quick) && !read.contains(&waiting));
    }
}
