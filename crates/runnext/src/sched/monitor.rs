//! The monitor: the one thread of a runtime that has no P.
//!
//! It sees to it that nothing stalls a P, makes the Ms (R3), returns unused memory and threads, and, when the runtime
//! stops, waits for the threads.
//!
//! # Stalls
//! While goroutines wait and no P is idle, it looks at each P's thread:
//!
//! | what it sees                                                    | what it does                                       |
//! |------------------------------------------------------------------|----------------------------------------------------|
//! | BLK, and the same word as at the last look                       | takes the P (a declared section outlasted a look)  |
//! | USER, the same word, no CPU used since, asleep says the kernel   | takes the P: no signal, so nothing is interrupted  |
//! | USER, computing, and a light goroutine waits                     | asks the thread to give way (`preempt::request`)   |
//! | USER, the same slice for longer than it may last, no CPU timer   | asks the thread to give way                        |
//!
//! A wrong guess costs time, never correctness: a robbed thread finds out at its next call, or when its CPU timer ticks.
//!
//! # Sleeping
//! | `nap`  | sleeps                                   | who pokes it                                              |
//! |--------|------------------------------------------|-----------------------------------------------------------|
//! | AWAKE  | not, or for less than a look may wait    | nobody                                                    |
//! | SHORT  | up to [`STEADY_NS`]: goroutines wait     | who makes a light goroutine runnable and finds no idle P  |
//! | DEEP   | until poked, or housekeeping: none wait  | who makes any goroutine runnable and finds no idle P      |
//!
//! Who wakes it if work is queued just as it goes to sleep? It publishes `nap`, then a full fence, then looks at the queues once
//! more; who queues work puts a full fence before it reads `nap` (`Shared::wake_one`).
//!
//! # Why Ms are made here
//! Making a thread allocates, and whoever finds out that one is needed is in RT (R1). It also keeps threads clean: one
//! made by an M that a goroutine has locked would inherit what that goroutine did to it (namespaces, masks, limits). Here every
//! thread descends from one that never ran user code, which is what Go's template thread is for.
//!
//! # Context
//! May block and allocate. Takes the idle lock, nothing else under it.
//!
//! Tunables: [`FAST_NS`], [`STEADY_NS`]: `bench blocking` gives the longest gap, `bench preempt_cost` the price; from
//! 0.1 to 1 ms the price is within noise.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence,
};
use std::thread::{self, JoinHandle};
use std::{io, ptr};

use runnext_core::park;
use runnext_sys::clock::{self, ThreadCpu};
use runnext_sys::thread::StatReader;
use runnext_sys::{futex, signal};

use super::call::forget_ask;
use super::{Shared, deadlock, preempt, worker};
use crate::m::{self, M};
use crate::p::P;

/// Between two looks when one of them saw something suspicious.
const FAST_NS: u64 = 100_000;
/// Between two looks while goroutines wait and all is well.
const STEADY_NS: u64 = 1_000_000;
/// Between two looks at the timers of busy Ps.
const TIMERS_EVERY_NS: u64 = 50_000;
/// Between rounds of housekeeping while there is something to return.
const HOUSEKEEPING_NS: u64 = 100_000_000;
/// How long everything rests before it is looked at as a deadlock.
const DEADLOCK_AFTER_NS: u64 = 100_000_000;
/// A P is asked at most this often to give way to a light goroutine.
const ASK_EVERY_NS: u64 = 250_000;
/// Looks without anything waiting before it sleeps deeply.
const QUIET_LOOKS: u32 = 8;
/// Idle Ms kept for preemption, which cannot make threads.
const SPARES: usize = 1;
/// Stack of an M's own thread: scheduler frames, and the drop of a closure that got no stack of its own.
const THREAD_STACK: usize = 256 << 10;
/// How long to wait after the system refused a thread, and between looks at ending threads.
const RETRY_NS: u64 = 10_000_000;
const ENDING_NS: u64 = 50_000;

const AWAKE: u32 = 0;
const SHORT: u32 = 1;
const DEEP: u32 = 2;

pub(crate) struct Monitor {
    /// Grows with every reason to look; the monitor sleeps on it.
    word: AtomicU32,
    nap: AtomicU32,
    /// When it wakes by itself.
    until: AtomicU64,
    wants_m: AtomicBool,
    /// The last P has become idle with nothing to wait for: it may be a deadlock.
    suspects: AtomicBool,
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
            nap: AtomicU32::new(AWAKE),
            until: AtomicU64::new(u64::MAX),
            wants_m: AtomicBool::new(false),
            suspects: AtomicBool::new(false),
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

    /// All Ps are busy, perhaps for long, and a timer is due at `when`.
    pub(super) fn watch_until(&self, when: u64) {
        if when < self.until.load(Relaxed) {
            self.until.store(when, Relaxed); // once is enough
            self.poke();
        }
    }

    #[cold]
    pub(super) fn poke(&self) {
        self.nap.store(AWAKE, Relaxed);
        self.word.fetch_add(1, Release);
        futex::wake_one(&self.word);
    }

    /// A goroutine ended while the runtime drains.
    #[cold]
    pub(super) fn note_end(&self) {
        self.ends.fetch_add(1, Release);
        futex::wake_all(&self.ends);
    }

    /// Whether no M has a goroutine but such as wait with it. By the monitor's thread, which alone frees Ms.
    pub(super) fn all_idle(&self) -> bool {
        // SAFETY: see above.
        let mut ms = self
            .ms
            .iter()
            .filter_map(|slot| unsafe { slot.load(Acquire).as_ref() });
        ms.all(|m| m.state() == m::NOP && m.g().is_none_or(|g| g.state.get() == park::WAITING))
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
    let keeper = Keeper {
        shared: Arc::clone(shared),
        threads: Vec::new(),
        refused: false,
        looks: Vec::new(),
        quiet: 0,
        suspected_since: None,
        next_housekeeping: 0,
    };
    let handle = thread::Builder::new()
        .name("runnext-monitor".into())
        .stack_size(THREAD_STACK)
        .spawn(move || keeper.run())?;
    *shared
        .monitor
        .handle
        .lock()
        .unwrap_or_else(|e| e.into_inner()) = Some(handle);
    Ok(())
}

/// What the monitor saw of a P's thread when it last looked.
#[derive(Clone, Copy)]
struct Look {
    /// Whose word it is: threads that take turns on a P often reach the same number.
    m: u32,
    word: u64,
    slice: u32,
    /// When it first saw that slice.
    since: u64,
    at: u64,
    cpu: u64,
    asked: u64,
}

impl Look {
    const NONE: Look = Look {
        m: u32::MAX,
        word: 0,
        slice: 0,
        since: 0,
        at: 0,
        cpu: 0,
        asked: 0,
    };
}

struct Thread {
    id: u32,
    handle: JoinHandle<()>,
    cpu: Option<ThreadCpu>,
    stat: Option<StatReader>,
}

/// What the monitor thread keeps to itself.
struct Keeper {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    /// The system refused a thread, and we said so.
    refused: bool,
    /// By P.
    looks: Vec<Look>,
    /// Looks in a row with nothing waiting.
    quiet: u32,
    suspected_since: Option<u64>,
    next_housekeeping: u64,
}

impl Keeper {
    fn run(mut self) {
        // A late monitor is a late everything: ask the kernel to run it soon after it wakes.
        runnext_sys::thread::request_slice(FAST_NS);
        runnext_sys::thread::set_timer_slack(1);
        let shared = Arc::clone(&self.shared);
        let monitor = &shared.monitor;
        loop {
            let seen = monitor.word.load(Acquire);
            if shared.stopped.load(SeqCst) {
                return self.wait_for_threads();
            }
            let now = clock::now_ns();
            let retry = self.make_wanted(now);
            let (nap, tick) = self.look(now);
            let wake_at = tick.min(retry).min(self.next_timer(now));
            monitor.until.store(wake_at, Relaxed);
            monitor.nap.store(nap, Relaxed);
            fence(SeqCst); // pairs with the fences in `wake_one` and `timers::arm`
            let missed = nap == DEEP && shared.any_work() || self.next_timer(now) < wake_at;
            if !(missed && shared.idle_ps.load(Relaxed) == 0) {
                futex::wait_until(&monitor.word, seen, wake_at);
            }
            monitor.nap.store(AWAKE, Relaxed);
        }
    }

    // ---- stalls ----

    /// When to look after timers: with no P idle nobody else does. Not too often: Ps that dispatch run their own.
    fn next_timer(&self, now: u64) -> u64 {
        if self.shared.idle_ps.load(Relaxed) != 0 {
            return u64::MAX;
        }
        self.shared.next_timer_hint().max(now + TIMERS_EVERY_NS)
    }

    /// One look at everything. Returns how to sleep, and until when.
    fn look(&mut self, now: u64) -> (u32, u64) {
        let shared = Arc::clone(&self.shared);
        let housekeeping = self.keep_house(now);
        let idle = shared.idle_ps.load(Relaxed);
        let surplus = self.collect();
        let due = idle == 0 && shared.next_timer_hint() <= now;
        if !due && !shared.any_work() {
            self.quiet += 1;
            if !surplus && (self.quiet > QUIET_LOOKS || idle == shared.procs()) {
                return (DEEP, housekeeping.min(self.consider_deadlock(now)));
            }
            return (SHORT, now + STEADY_NS);
        }
        self.quiet = 0;
        if idle > 0 {
            // Somebody should be on its way. If not, a wake-up is missing, and this is it.
            shared.wake_one();
            return (SHORT, now + STEADY_NS);
        }
        let mut suspicious = false;
        let mut light = shared.has_urgent();
        for id in 0..shared.procs() {
            if self.looks.len() <= id {
                self.looks.resize(id + 1, Look::NONE);
            }
            let Some(p) = shared.p(id) else { break };
            suspicious |= self.look_at(p, &mut light, now);
        }
        if suspicious {
            (AWAKE, now + FAST_NS)
        } else {
            (SHORT, now + STEADY_NS)
        }
    }

    /// Checks a suspicion of deadlock once it has lasted. Returns when to come back to it.
    fn consider_deadlock(&mut self, now: u64) -> u64 {
        let monitor = &self.shared.monitor;
        if !monitor.suspects.load(Relaxed) {
            return u64::MAX;
        }
        let since = *self.suspected_since.get_or_insert(now);
        if now < since + DEADLOCK_AFTER_NS {
            return since + DEADLOCK_AFTER_NS;
        }
        self.suspected_since = None;
        // Before the check: who comes to rest after it starts a new suspicion.
        monitor.suspects.store(false, SeqCst);
        deadlock::check(&self.shared, self.threads.len() + 1);
        u64::MAX
    }

    /// Takes the Ps that are too many since `set_procs`: a thread that computes gives its own up when its timer ticks, and one
    /// that sleeps must not keep what is in the queue. True: some are still in use.
    fn collect(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut in_use = false;
        for p in shared.all_ps().skip(shared.procs()) {
            // SAFETY: Ms are freed by this thread only.
            let Some(m) = (unsafe { p.m.load(Acquire).as_ref() }) else {
                continue;
            };
            in_use = true;
            let word = m.word.load(Acquire);
            let may = match word & m::STATE {
                m::BLK => true,
                m::USER => shared.config.preemption || self.asleep(m),
                _ => false,
            };
            if may && let Some(taken) = m.rob(word) {
                worker::put_aside(&shared, taken);
            }
        }
        in_use
    }

    /// One look at one P. True: look again soon.
    fn look_at(&mut self, p: &P, light: &mut bool, now: u64) -> bool {
        // SAFETY: Ms are freed by this thread only.
        let Some(m) = (unsafe { p.m.load(Acquire).as_ref() }) else {
            return false;
        };
        let word = m.word.load(Acquire);
        let last = self.looks[p.id];
        let slice = p.slice.load(Relaxed);
        let mut look = Look {
            m: m.id,
            word,
            slice,
            at: now,
            asked: last.asked,
            since: now,
            cpu: 0,
        };
        if slice == last.slice && last.since != 0 {
            look.since = last.since;
        }
        let same = last.m == m.id && last.word == word;
        let mut again = false;
        match word & m::STATE {
            m::BLK if same => self.take(m, word),
            m::BLK => again = true,
            m::USER => {
                look.cpu = self.cpu_of(m);
                if same && self.sleeps(m, &look, &last) {
                    self.take(m, word);
                } else {
                    let used = look.cpu.saturating_sub(last.cpu);
                    again = !same || used < (now - last.at) / 2;
                    self.consider_asking(p, m, &mut look, light);
                }
            }
            _ => {}
        }
        self.looks[p.id] = look;
        again
    }

    /// Whether a thread that made no runtime call since the last look is asleep in the kernel.
    fn sleeps(&self, m: &M, look: &Look, last: &Look) -> bool {
        let used = look.cpu.saturating_sub(last.cpu);
        used <= (look.at - last.at) / 4 && self.asleep(m)
    }

    fn asleep(&self, m: &M) -> bool {
        matches!(self.kernel_state(m), Some(b'S' | b'D'))
    }

    fn kernel_state(&self, m: &M) -> Option<u8> {
        self.thread(m)?.stat.as_ref()?.state()
    }

    fn take(&self, m: &M, word: u64) {
        if let Some(p) = m.rob(word) {
            self.shared.hand_off(p);
        }
    }

    /// Asks the thread to give way if it has run long enough and somebody light waits.
    fn consider_asking(&self, p: &P, m: &M, look: &mut Look, light: &mut bool) {
        if !self.shared.config.preemption || look.at < look.asked + ASK_EVERY_NS {
            return;
        }
        let ran = look.at - look.since;
        let enough = m.g().is_none_or(|g| ran >= preempt::min_run(g));
        let due = p.timers.next() <= look.at;
        let local = due && enough || p.has_work() && ran >= preempt::MIN_RUN_NS;
        let urgent = *light && enough;
        // Only one that is on a CPU, or waits for one: a signal would end the system call of one that sleeps.
        let on_cpu = || self.kernel_state(m) == Some(b'R');
        if (local || urgent) && on_cpu() && preempt::request(m) {
            look.asked = look.at;
            *light &= !urgent; // one P for it
        }
    }

    fn thread(&self, m: &M) -> Option<&Thread> {
        self.threads.iter().find(|t| t.id == m.id)
    }

    fn cpu_of(&mut self, m: &M) -> u64 {
        let tid = m.tid.load(Acquire);
        let Some(t) = self.threads.iter_mut().find(|t| t.id == m.id) else {
            return 0;
        };
        if t.cpu.is_none() && tid != 0 {
            t.cpu = Some(ThreadCpu::of(tid));
            t.stat = StatReader::open(tid).ok();
        }
        t.cpu.and_then(ThreadCpu::read).unwrap_or(0)
    }

    // ---- threads ----

    /// Makes the threads that were asked for, and a spare. Returns when to try again if the system refused.
    fn make_wanted(&mut self, now: u64) -> u64 {
        let shared = Arc::clone(&self.shared);
        let wanted = shared.monitor.wants_m.swap(false, AcqRel);
        let busy = shared.idle_ps.load(Relaxed) < shared.procs();
        let spare = busy && shared.idle.lock().ms_len < SPARES;
        if !wanted && !spare {
            return u64::MAX;
        }
        match self.make_m() {
            Ok(()) => u64::MAX,
            // Without a spare there is only less preemption.
            Err(_) if !wanted => u64::MAX,
            Err(e) => {
                self.complain(&e);
                shared.monitor.wants_m.store(true, Release);
                now + RETRY_NS
            }
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
        let own: &'static M = unsafe { &*m };
        let made = thread::Builder::new()
            .name(format!("runnext-{id}"))
            .stack_size(THREAD_STACK)
            .spawn(move || thread_main(own, shared));
        match made {
            Ok(handle) => {
                self.threads.push(Thread {
                    id: id as u32,
                    handle,
                    cpu: None,
                    stat: None,
                });
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
        let mut i = 0;
        while i < self.threads.len() {
            if !self.threads[i].handle.is_finished() {
                i += 1;
                continue;
            }
            let ended = self.threads.swap_remove(i);
            let _ = ended.handle.join();
            let m = monitor.ms[ended.id as usize].swap(ptr::null_mut(), AcqRel);
            // SAFETY: its thread has ended; only this thread frees Ms.
            let m = unsafe { Box::from_raw(m) };
            forget_ask(&m); // or every checkpoint of the process would look for it for ever
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

    /// Returns what has not been needed for a while: threads, memory. Returns when to do so next.
    fn keep_house(&mut self, now: u64) -> u64 {
        if now < self.next_housekeeping {
            return self.next_housekeeping;
        }
        let shared = Arc::clone(&self.shared);
        let surplus = {
            let mut idle = shared.idle.lock();
            let surplus = idle.ms_len.saturating_sub(shared.procs() + SPARES);
            // Half of them each time: a burst that comes back finds some.
            for _ in 0..surplus.div_ceil(2) {
                if let Some(m) = idle.pop_m() {
                    m.hand(ptr::null());
                }
            }
            surplus
        };
        self.reap();
        let more = shared.stacks.trim();
        self.next_housekeeping = now + HOUSEKEEPING_NS;
        if surplus > 0 || more {
            self.next_housekeeping
        } else {
            u64::MAX
        }
    }

    /// The runtime has stopped: all threads go, but those inside an abandoned goroutine.
    fn wait_for_threads(mut self) {
        loop {
            self.reap();
            let mut waits = false;
            for t in &self.threads {
                // SAFETY: not reaped, so alive.
                let m = unsafe { &*self.shared.monitor.ms[t.id as usize].load(Acquire) };
                // In this order: who is seen to have no P has said before whether it sleeps in the handler.
                let word = m.word.load(Acquire);
                waits |= m.g().is_none() || word & m::STATE == m::RT;
                if m.in_handler.load(Relaxed) {
                    m.hand(ptr::null()); // it may hold a lock of the allocator: let it go on
                }
            }
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
    let timer = preempt::slice_timer(m);
    worker::run(m);
    drop(timer);
    m.uninstall();
    drop(shared);
}
