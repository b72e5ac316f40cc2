//! The monitor: the one thread of a runtime that has no P.
//!
//! It makes the Ms (R3) and, when the runtime stops, waits for them.
//!
//! # Why Ms are made here
//! Making a thread allocates, and whoever finds out that one is needed is in RT (R1). It also keeps threads clean: one
//! made by an M that a goroutine has locked would inherit what that goroutine did to it (namespaces, masks). Here every thread
//! descends from one that never ran user code.
//!
//! # Context
//! May block and allocate. Takes the idle lock, nothing else under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use std::thread::{self, JoinHandle};
use std::{io, ptr};

use runnext_sys::{clock, futex, signal};

use super::{Shared, worker};
use crate::m::{self, M};

/// Stack of an M's own thread: scheduler frames, and the drop of a closure that got no stack of its own.
const THREAD_STACK: usize = 256 << 10;
/// How long to wait after the system refused a thread, and between looks at ending threads.
const RETRY_NS: u64 = 10_000_000;
const ENDING_NS: u64 = 50_000;

pub(crate) struct Monitor {
    /// Grows with every reason to look; the monitor sleeps on it.
    word: AtomicU32,
    wants_m: AtomicBool,
    /// Grows with every goroutine that ends while somebody waits for that.
    ends: AtomicU32,
    /// By number; null where there is none.
    ms: Box<[AtomicPtr<M>]>,
    threads: AtomicUsize,
    handle: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Monitor {
    pub(super) fn new(max_threads: usize) -> Monitor {
        Monitor {
            word: AtomicU32::new(0),
            wants_m: AtomicBool::new(false),
            ends: AtomicU32::new(0),
            ms: (0..max_threads)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            threads: AtomicUsize::new(0),
            handle: std::sync::Mutex::new(None),
        }
    }

    /// A P found no M. A signal handler may.
    pub(super) fn want_m(&self) {
        if !self.wants_m.swap(true, AcqRel) {
            self.poke();
        }
    }

    fn poke(&self) {
        self.word.fetch_add(1, Release);
        futex::wake_one(&self.word);
    }

    /// A goroutine ended while the runtime drains.
    #[cold]
    pub(super) fn note_end(&self) {
        self.ends.fetch_add(1, Release);
        futex::wake_all(&self.ends);
    }

    /// Every M there is now.
    pub(crate) fn all_ms(&self) -> impl Iterator<Item = &M> {
        // SAFETY: an M is freed by the monitor after its thread has ended, or with the runtime; observers are the
        // monitor itself and dumps, which tolerate neither, so Ms are kept until the runtime goes.
        self.ms
            .iter()
            .filter_map(|slot| unsafe { slot.load(Acquire).as_ref() })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Relaxed)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        for slot in &self.ms {
            let m = slot.load(Acquire);
            if !m.is_null() {
                // SAFETY: from `Box::into_raw`; its thread has ended, or it would keep the runtime alive.
                drop(unsafe { Box::from_raw(m) });
            }
        }
    }
}

impl Shared {
    /// Waits until no goroutine is left, or the deadline has passed. Returns how many are left.
    pub(crate) fn drain(&self, deadline_ns: u64) -> usize {
        self.draining.store(true, SeqCst);
        loop {
            let seen = self.monitor.ends.load(Acquire);
            let left = self.live();
            if left == 0 || !futex::wait_until(&self.monitor.ends, seen, deadline_ns) {
                return self.live();
            }
        }
    }

    /// No M dispatches anything from now on. Returns when all threads are gone but those that are inside an abandoned
    /// goroutine's code.
    pub(crate) fn stop(&self) {
        {
            let mut idle = self.idle.lock();
            self.stopped.store(true, SeqCst);
            while let Some(m) = idle.pop_m() {
                m.hand(ptr::null());
            }
        }
        self.monitor.poke();
        let handle = self
            .monitor
            .handle
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take();
        if let Some(handle) = handle {
            // The monitor does not panic; if it did, its threads are as gone as they will be.
            let _ = handle.join();
        }
    }
}

/// Starts the monitor of a runtime.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let of = Arc::clone(shared);
    let handle = thread::Builder::new()
        .name("runnext-monitor".into())
        .stack_size(THREAD_STACK)
        .spawn(move || {
            Keeper {
                shared: of,
                threads: Vec::new(),
                refused: false,
            }
            .run()
        })?;
    *shared
        .monitor
        .handle
        .lock()
        .unwrap_or_else(|e| e.into_inner()) = Some(handle);
    Ok(())
}

/// What the monitor thread keeps to itself.
struct Keeper {
    shared: Arc<Shared>,
    threads: Vec<(u32, JoinHandle<()>)>,
    /// The system refused a thread, and we said so.
    refused: bool,
}

impl Keeper {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let monitor = &shared.monitor;
        loop {
            let seen = monitor.word.load(Acquire);
            if shared.stopped.load(SeqCst) {
                return self.wait_for_threads();
            }
            let mut deadline = u64::MAX;
            if monitor.wants_m.swap(false, AcqRel)
                && let Err(e) = self.make_m()
            {
                self.complain(&e);
                monitor.wants_m.store(true, Release);
                deadline = clock::now_ns() + RETRY_NS;
            }
            futex::wait_until(&monitor.word, seen, deadline);
        }
    }

    fn make_m(&mut self) -> io::Result<()> {
        self.reap();
        let monitor = &self.shared.monitor;
        let Some(id) = (0..monitor.ms.len()).find(|&i| monitor.ms[i].load(Relaxed).is_null())
        else {
            return Err(io::Error::other(format!(
                "all {} threads a runtime may have are in use, each blocked or locked by a goroutine; raise \
                 Builder::max_threads or RUNNEXT_MAX_THREADS",
                monitor.ms.len()
            )));
        };
        let m = Box::into_raw(Box::new(M::new(id as u32, Arc::as_ptr(&self.shared))));
        monitor.ms[id].store(m, Release);
        let shared = Arc::clone(&self.shared);
        // SAFETY: freed only after this thread has ended (`reap`), or with the runtime, which the thread keeps alive.
        let body = {
            let m: &'static M = unsafe { &*m };
            move || thread_main(m, shared)
        };
        let made = thread::Builder::new()
            .name(format!("runnext-{id}"))
            .stack_size(THREAD_STACK)
            .spawn(body);
        match made {
            Ok(handle) => {
                self.threads.push((id as u32, handle));
                monitor.threads.store(self.threads.len(), Relaxed);
                self.refused = false;
                Ok(())
            }
            Err(e) => {
                monitor.ms[id].store(ptr::null_mut(), Release);
                // SAFETY: the thread was not made, so nobody else has it.
                drop(unsafe { Box::from_raw(m) });
                Err(io::Error::new(
                    e.kind(),
                    format!("{e}; see ulimit -u and the cgroup's pids.max"),
                ))
            }
        }
    }

    /// Joins threads that have ended and frees their Ms.
    fn reap(&mut self) {
        let monitor = &self.shared.monitor;
        let (ended, rest) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|(_, h)| h.is_finished());
        self.threads = rest;
        let ended: Vec<(u32, JoinHandle<()>)> = ended;
        for (id, handle) in ended {
            let _ = handle.join();
            let m = monitor.ms[id as usize].swap(ptr::null_mut(), AcqRel);
            // SAFETY: its thread has ended; only this thread frees Ms.
            drop(unsafe { Box::from_raw(m) });
        }
        monitor.threads.store(self.threads.len(), Relaxed);
    }

    fn complain(&mut self, e: &io::Error) {
        if !self.refused {
            self.refused = true;
            eprintln!(
                "runnext: cannot make another thread: {e}. Goroutines that are runnable wait until one of the {} \
                 threads is free.",
                self.threads.len()
            );
        }
    }

    /// The runtime has stopped: all threads go, but those inside an abandoned goroutine.
    fn wait_for_threads(mut self) {
        loop {
            self.reap();
            let waits = self.threads.iter().any(|(id, _)| {
                let m = self.shared.monitor.ms[*id as usize].load(Acquire);
                // SAFETY: not reaped, so alive.
                let m = unsafe { &*m };
                m.g().is_none() || m.state() == m::RT
            });
            if !waits {
                return; // the others are detached
            }
            futex::wait_until(&AtomicU32::new(0), 0, clock::now_ns() + ENDING_NS);
        }
    }
}

fn thread_main(m: &'static M, shared: Arc<Shared>) {
    m.install();
    // Without it a stack overflow kills without a word, which is not a reason to refuse to run.
    let _alt_stack = signal::AltStack::install();
    worker::run(m);
    m.uninstall();
    drop(shared);
}
