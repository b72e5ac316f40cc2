//! The write side of everything one can see of a scheduler: counters, samples, the trace.
//!
//! # Why this shape
//! Every transition of a goroutine calls one function of this file, which is where all observers hang. What a transition
//! writes belongs to its P: no locked instruction, no line that another thread writes. What is switched off costs a load of
//! a word of the P and a branch that is never taken. Nothing is scanned: readers add up what the Ps have counted.
//!
//! # The flags of a P's eye
//! | flag   | meaning                                     | set by                           | cleared by                        |
//! |--------|---------------------------------------------|----------------------------------|-----------------------------------|
//! | SAMPLE | time the next goroutine queued here         | monitor, once a look             | the owner, when it has marked one |
//! | RUN    | the running goroutine's run is being timed  | the owner, at a dispatch         | the owner, when it leaves         |
//! | TRACE  | write events                                | who starts a trace               | who stops it                      |
//! | COARSE | they need no clock of their own             | the owner, who has written one   | who stops it, or doubts the clock |
//! | DOUBT  | they do not, but the next one does          | who starts it, or doubts it      | who stops it, or sets COARSE      |
//!
//! # Samples
//! A goroutine that is timed carries a mark in its header, beside the M it may be wired to: a dispatcher looks at that word
//! anyway, so looking for marks costs nothing. Who queues it writes the mark and the time; who dispatches it takes both. For one that
//! is made to stop, and so is wired to its M, that M keeps the mark.
//!
//! 1 monitor: `due`, at the profile rate; SAMPLE on every P, at each of its looks
//! 2 enqueue: SAMPLE is cleared, the goroutine marked; the first to find `due` takes it, and marks it for the ring too
//! 3 dispatch: the delay goes into the P's histogram and, so marked, into the ring; RUN is set
//! 4 leave: how long it ran goes into the P's second histogram, and that of its group
//!
//! # Context
//! Hooks with a P run in RT, by its owner; those without may be called by anybody, in a signal handler too. None allocates.
//!
//! Tests: `tests/stats.rs`, `tests/trace.rs`.

pub(crate) mod event;
mod outside;
pub(crate) mod ring;
mod samples;
pub(crate) mod session;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, ptr};

use runnext_sys::clock;

use crate::g::{G, Mark, Switch, Timed};
use crate::histogram::Recorder;
use crate::lock::Lock;
use crate::m::M;
use crate::p::{P, bump};
use crate::sched::groups::Record;
use crate::sched::shield::{self, Shielded};
use event::{Event, Kind, Left};
use ring::Ring;
use samples::Samples;
use session::Session;

const SAMPLE: u32 = 1;
const RUN: u32 = 2;
pub(crate) const TRACE: u32 = 4;
const COARSE: u32 = 8;
const DOUBT: u32 = 16;

/// Samples kept (the proposal's figure).
pub(crate) const SAMPLES: usize = 256;
/// How often a second a delay goes into the ring unless somebody says otherwise. As often as the monitor looks anyway.
pub(crate) const DEFAULT_HZ: u32 = 100;
/// The flags while a coarse trace is all there is: what the inlined paths look for.
const RECORDED: u32 = TRACE | COARSE;

/// Dispatches between two that show how long the queue is.
const DISPATCHES_PER_COUNT: u32 = 64;
/// Counters that many threads write are split this often.
const SHARDS: usize = 16;

/// What the profile rate of runtimes not yet built will be.
pub(crate) static PROFILE_HZ: AtomicU32 = AtomicU32::new(DEFAULT_HZ);

/// `clock::now_ns` as of the last time somebody had a reason to read it: the monitor at each look, a thread that comes out of a
/// sleep. Never off by more than the monitor sleeps while a P is at work, which is 10 ms.
static COARSE_NS: AtomicU64 = AtomicU64::new(0);

/// A recent time, for the price of a load.
#[inline]
pub(crate) fn coarse_ns() -> u64 {
    COARSE_NS.load(Relaxed)
}

/// It is now.
pub(crate) fn set_coarse_ns(now: u64) {
    COARSE_NS.store(now, Relaxed);
}

/// One P's part. In this order: what every switch touches lies together.
#[repr(C)]
pub(crate) struct Eye {
    flags: AtomicU32,
    /// How the last one left, in a coarse trace, unless an event has told that since.
    pending: Cell<Left>,
    ring: AtomicPtr<Ring>,
    /// When the run that is timed began.
    run_since: Cell<u64>,
    pub(crate) latency: Recorder,
    pub(crate) runs: Recorder,
}

impl Eye {
    pub(crate) fn new() -> Eye {
        Eye {
            flags: AtomicU32::new(SAMPLE),
            run_since: Cell::new(0),
            ring: AtomicPtr::new(ptr::null_mut()),
            pending: Cell::new(Left::TOLD),
            latency: Recorder::new(),
            runs: Recorder::new(),
        }
    }

    /// Acquired: who sees TRACE sees the ring.
    #[inline(always)]
    fn flags(&self) -> u32 {
        self.flags.load(Acquire)
    }

    #[inline(always)]
    fn has(&self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    /// A goroutine that was woken is queued on this P, or by its owner.
    #[inline(always)]
    pub(crate) fn queued(&self, seen: &Observe, g: &G) {
        let flags = self.flags();
        if flags == RECORDED {
            self.put_coarse(Event::of(Kind::Wake, 0, ptr::from_ref(g).addr()));
        } else if flags & (SAMPLE | TRACE) != 0 {
            self.queued_slow(seen, g);
        }
    }

    #[cold]
    #[inline(never)]
    fn queued_slow(&self, seen: &Observe, g: &G) {
        if self.has(SAMPLE) {
            self.flags.fetch_and(!SAMPLE, Relaxed);
            seen.mark(g);
        }
        if self.has(TRACE) {
            self.emit(Kind::Wake, 0, g);
        }
    }

    /// A goroutine goes on on this P.
    #[inline(always)]
    pub(crate) fn dispatched(&self, p: &P, g: &G) {
        let flags = self.flags();
        if flags & COARSE != 0 {
            self.put_coarse(Event::run(self.pending.get(), ptr::from_ref(g).addr()));
        } else if flags & TRACE != 0 {
            self.dispatched_slow(p, g);
        }
    }

    #[inline(never)]
    fn dispatched_slow(&self, p: &P, g: &G) {
        if self.is_coarse() {
            return self.put(Event::run(self.pending.get(), ptr::from_ref(g).addr()));
        }
        self.put(Event::run(Left::TOLD, ptr::from_ref(g).addr()));
        if p.tick.load(Relaxed).is_multiple_of(DISPATCHES_PER_COUNT) {
            self.put(Event::value(Kind::Queue, p.runnable() as u64));
        }
    }

    /// A goroutine switched off: it asks for this, or has ended.
    #[inline(always)]
    pub(crate) fn left(&self, seen: &Observe, g: &G, what: Option<Switch>) {
        let flags = self.flags();
        if flags == RECORDED {
            self.left_coarse(g, what);
        } else if flags & (SAMPLE | RUN | TRACE) != 0 {
            self.left_slow(seen, g, what);
        }
    }

    /// Told by the next to run here, or by [`given_up`](Self::given_up).
    #[inline(always)]
    fn left_coarse(&self, g: &G, what: Option<Switch>) {
        match what {
            Some(Switch::Yield) => self.pending.set(Left::YIELDED),
            Some(Switch::Park) => self.pending.set(Left::parked(g.reason_bits())),
            None => self.put_coarse(Event::value(Kind::End, g.id())),
        }
    }

    #[inline(never)]
    fn left_slow(&self, seen: &Observe, g: &G, what: Option<Switch>) {
        let flags = self.flags();
        if flags & DOUBT != 0 {
            self.put_clock();
        }
        if flags & (COARSE | DOUBT) != 0 {
            self.left_coarse(g, what);
        } else if flags & TRACE != 0 {
            match what {
                Some(Switch::Yield) => self.emit(Kind::Yield, 0, g),
                Some(Switch::Park) => self.emit(Kind::Park, g.reason_bits().into(), g),
                None => self.put(Event::value(Kind::End, g.id())),
            }
        }
        if flags & RUN != 0 {
            self.run_ended(g);
        }
        if flags & SAMPLE != 0 && what == Some(Switch::Yield) {
            self.flags.fetch_and(!SAMPLE, Relaxed);
            seen.mark(g);
        }
    }

    /// The owner gives the P up with nobody on it: how the last one left is told now, not by who runs here next.
    #[inline]
    pub(crate) fn given_up(&self) {
        if self.is_coarse() {
            self.tell_left();
        }
    }

    #[cold]
    fn tell_left(&self) {
        if let Some((kind, arg)) = self.pending.replace(Left::TOLD).event() {
            self.put(Event::of(kind, arg, 0)); // of whoever ran
        }
    }

    /// The goroutine on this P stops for another reason than its own, or sleeps together with its thread.
    pub(crate) fn stopped(&self, kind: Kind, arg: u32, g: &G) {
        if self.has(TRACE) {
            self.emit(kind, arg, g);
        }
        if self.has(RUN) {
            self.run_ended(g);
        }
    }

    /// The same, and it is queued again together with its thread `m`, which calls this, and keeps the mark: the goroutine has no room for it.
    pub(crate) fn stopped_runnable(&self, kind: Kind, arg: u32, g: &G, m: &M) {
        self.stopped(kind, arg, g);
        if self.has(SAMPLE) {
            self.flags.fetch_and(!SAMPLE, Relaxed);
            m.timed.set(m.shared().observe.time());
        }
    }

    /// A goroutine of a group is about to end. Its run ends here: later its group may be gone.
    #[inline]
    pub(crate) fn ending(&self, g: &G) {
        if self.has(RUN) {
            self.run_ended(g);
        }
    }

    #[cold]
    fn run_ended(&self, g: &G) {
        self.flags.fetch_and(!RUN, Relaxed);
        let ran = clock::now_ns().saturating_sub(self.run_since.get());
        self.runs.record_own(ran);
        if let Some(group) = Record::of_own(g) {
            group.run_time.record(ran);
        }
    }

    /// A goroutine that sleeps with its thread `m` goes on on this P, by that thread: counted here, for no dispatcher has.
    #[cold]
    pub(crate) fn resumed(&self, p: &P, g: &G, m: &M) {
        bump(&p.stats.dispatched);
        if let Some(timed) = m.timed.take() {
            self.was_timed(&m.shared().observe, timed);
        }
        self.dispatched(p, g);
    }

    /// A goroutine about to be dispatched is marked: it was timed. How long it waited, in ns.
    #[cold]
    pub(crate) fn take_mark(&self, seen: &Observe, g: &G) -> Option<u64> {
        let timed = g.take_mark()?;
        Some(self.was_timed(seen, timed))
    }

    fn was_timed(&self, seen: &Observe, timed: Timed) -> u64 {
        let now = clock::now_ns();
        let delay = now.saturating_sub(timed.since);
        self.latency.record_own(delay);
        if timed.mark == Mark::Ring {
            seen.samples.lock().push(delay);
        }
        self.run_since.set(now);
        self.flags.fetch_or(RUN, Relaxed);
        delay
    }

    /// A goroutine was made by this P's owner, who is about to queue it.
    #[inline(always)]
    fn born(&self, seen: &Observe, g: &G) {
        let flags = self.flags();
        if flags == RECORDED {
            // Its number is told at its end, or by the header as long as it lives.
            self.put_coarse(Event::of(Kind::Born, 0, ptr::from_ref(g).addr()));
        } else if flags & (SAMPLE | TRACE) != 0 {
            self.born_slow(seen, g);
        }
    }

    #[inline(never)]
    fn born_slow(&self, seen: &Observe, g: &G) {
        if self.has(SAMPLE) {
            self.flags.fetch_and(!SAMPLE, Relaxed);
            seen.mark(g);
        }
        if self.has(TRACE) {
            self.emit(Kind::Born, 0, g);
            self.put_more(Event::value(Kind::Id, g.id()));
        }
    }

    /// Anything else that happens on this P.
    #[inline]
    pub(crate) fn note(&self, kind: Kind, arg: u32, g: *const G) {
        if self.has(TRACE) {
            self.put(Event::of(kind, arg, g.addr()));
        }
    }

    /// Two events in a row: something of a goroutine, and a number that belongs to it.
    pub(crate) fn note_with(&self, kind: Kind, g: &G, value: u64) {
        if self.has(TRACE) {
            self.emit(kind, 0, g);
            self.put_more(Event::value(Kind::Value, value));
        }
    }

    #[inline(always)]
    fn emit(&self, kind: Kind, arg: u32, g: &G) {
        self.put(Event::of(kind, arg, ptr::from_ref(g).addr()));
    }

    /// Writes an event, after its time where that is due. While TRACE is set.
    #[inline]
    fn put(&self, event: Event) {
        if !self.has(COARSE) {
            self.put_clock();
        }
        self.put_coarse(event);
    }

    /// From here on the clock is right, unless nothing but a reading for each event would be.
    #[inline(never)]
    fn put_clock(&self) {
        self.ring().push_clock();
        self.change(DOUBT, COARSE);
    }

    /// Writes an event of the same moment as the last.
    #[inline]
    fn put_more(&self, event: Event) {
        self.ring().push(event);
    }

    /// As [`put`](Self::put), while COARSE is set.
    #[inline(always)]
    fn put_coarse(&self, event: Event) {
        self.ring().push_coarse(event);
    }

    /// For who has seen TRACE.
    #[inline(always)]
    fn ring(&self) -> &Ring {
        // SAFETY: there is one since before TRACE was set, and it lives as long as its runtime (`session`, I1).
        unsafe { &*self.ring.load(Relaxed) }
    }

    fn is_coarse(&self) -> bool {
        self.has(COARSE | DOUBT)
    }

    /// Time has passed: the next event of a coarse trace needs a clock. By anybody.
    #[inline]
    pub(crate) fn doubt_clock(&self) {
        if self.has(COARSE) {
            self.change(COARSE, DOUBT);
        }
    }

    /// Puts one flag in place of another, if that is set: whoever ends the trace takes both.
    fn change(&self, from: u32, to: u32) {
        let changed = |flags| (flags & from != 0).then_some(flags & !from | to);
        // Nothing to do for who comes late.
        let _ = self.flags.fetch_update(Relaxed, Relaxed, changed);
    }

    /// The P has another owner, who calls this. What its last goroutine does, no event here will tell.
    pub(crate) fn taken(&self) {
        self.doubt_clock();
        self.pending.set(Left::TOLD);
    }

    /// Starts or stops the trace of this P.
    pub(crate) fn set_tracing(&self, ring: Option<&Ring>, coarse: bool) {
        self.flags.fetch_and(!(TRACE | COARSE | DOUBT), SeqCst);
        if let Some(ring) = ring {
            self.ring.store(ptr::from_ref(ring).cast_mut(), Relaxed);
            let flags = if coarse { TRACE | DOUBT } else { TRACE };
            self.flags.fetch_or(flags, SeqCst);
        }
    }
}

#[repr(align(64))]
#[derive(Default)]
struct Shard(AtomicU64);

/// Why a goroutine was made to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Why {
    /// Its slice was used up: by the signal of its thread's timer.
    Slice = 0,
    /// A light goroutine, or a timer, waited: by the monitor's signal.
    Wakeup = 1,
    /// Either, at a runtime call or checkpoint: without a signal.
    Asked = 2,
}

/// What all Ps of a runtime share. Written on slow paths only.
pub(crate) struct Observe {
    hz: AtomicU32,
    /// The next goroutine to be timed goes into the ring.
    due: AtomicBool,
    /// When that is said again.
    next_due: AtomicU64,
    /// The word the monitor sleeps on; and that it does so for longer than until `next_due`.
    monitor: Arc<AtomicU32>,
    oversleeps: AtomicBool,
    pub(crate) samples: Lock<Samples>,
    preempted: [AtomicU64; 3],
    pub(crate) preempt_latency: Recorder,
    /// Ps that were taken from a thread that slept, or given away by one that was about to.
    pub(crate) handoffs: AtomicU64,
    /// Threads that were given a P.
    pub(crate) thread_starts: AtomicU64,
    /// Threads found asleep in code that had not said that it blocks; and those of them that are still without a P.
    pub(crate) ffi_calls: AtomicU64,
    pub(crate) ffi_now: AtomicI64,
    sys_closed: [Shard; SHARDS],
    /// The most that a reader has found queued so far.
    scheduled: AtomicU64,
    /// A trace is being written: read where no P is at hand.
    tracing: AtomicBool,
    /// Events of those who have no P.
    outside: Lock<Option<&'static Ring>>,
    session: Mutex<Session>,
    /// Held by who begins, copies or ends a trace.
    tracer: Mutex<()>,
    /// Held by who looks at Ms: who frees one waits for it.
    looking: Lock<()>,
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe").finish_non_exhaustive()
    }
}

impl Observe {
    /// `monitor` is the word that the monitor sleeps on.
    pub(crate) fn new(monitor: Arc<AtomicU32>) -> Observe {
        Observe {
            hz: AtomicU32::new(PROFILE_HZ.load(Relaxed)),
            due: AtomicBool::new(true),
            next_due: AtomicU64::new(0),
            monitor,
            oversleeps: AtomicBool::new(false),
            samples: Lock::new(Samples {
                delays: [0; SAMPLES],
                count: 0,
            }),
            preempted: Default::default(),
            preempt_latency: Recorder::new(),
            handoffs: AtomicU64::new(0),
            thread_starts: AtomicU64::new(0),
            ffi_calls: AtomicU64::new(0),
            ffi_now: AtomicI64::new(0),
            sys_closed: Default::default(),
            scheduled: AtomicU64::new(0),
            tracing: AtomicBool::new(false),
            outside: Lock::new(None),
            session: Mutex::new(Session::default()),
            tracer: Mutex::new(()),
            looking: Lock::new(()),
        }
    }

    // ---- counters ----

    /// The calling thread's goroutine was made to stop, `since` it was asked to (0: nobody knows).
    pub(crate) fn preempted(&self, why: Why, since: u64, g: &G) {
        self.preempted[why as usize].fetch_add(1, Relaxed);
        if since != 0 {
            let took = clock::now_ns().saturating_sub(since);
            self.preempt_latency.record(took);
            if let Some(group) = Record::of_own(g) {
                group.preempt_latency.record(took);
            }
        }
    }

    pub(crate) fn preemptions(&self, why: Why) -> u64 {
        self.preempted[why as usize].load(Relaxed)
    }

    /// A thread's P was taken away while it was outside the runtime: in undeclared code, or in a blocking section.
    pub(crate) fn robbed(&self, undeclared: bool, p: &P, g: Option<&G>) {
        if undeclared {
            self.ffi_calls.fetch_add(1, Relaxed);
            self.ffi_now.fetch_add(1, Relaxed);
        }
        self.note_robbed(p, g);
    }

    /// A thread's P was taken away because there are fewer from now on.
    pub(crate) fn collected(&self, undeclared: bool, p: &P, g: Option<&G>) {
        if undeclared {
            self.ffi_now.fetch_add(1, Relaxed);
        }
        self.note_robbed(p, g);
    }

    fn note_robbed(&self, p: &P, g: Option<&G>) {
        if let Some(g) = g {
            self.note(Kind::Robbed, p.id as u32, g);
        }
    }

    /// A thread that was robbed in undeclared code is back.
    pub(crate) fn back(&self) {
        self.ffi_now.fetch_sub(1, Relaxed);
    }

    /// A blocking section was closed by this M.
    #[inline]
    pub(crate) fn section_closed(&self, m: u32) {
        self.sys_closed[m as usize % SHARDS].0.fetch_add(1, Relaxed);
    }

    pub(crate) fn sections_closed(&self) -> u64 {
        self.sys_closed.iter().map(|s| s.0.load(Relaxed)).sum()
    }

    /// How often a goroutine was queued, if a reader has found so many. Who leaves a queue while it reads may be missing in its sum;
    /// those whom another reader has seen are not.
    pub(crate) fn scheduled(&self, found: u64) -> u64 {
        self.scheduled.fetch_max(found, Relaxed).max(found)
    }

    // ---- the trace ----

    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        self.tracing.load(Relaxed)
    }

    /// For who begins, copies or ends a trace: one at a time, which may take long. Before [`session`](Self::session), which is not held for long: who
    /// begins a span waits for it with its thread. Not shielded, since long; who waits for it wants to trace, too. In user context.
    pub(crate) fn tracer(&self) -> MutexGuard<'_, ()> {
        self.tracer.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The trace that is being written, or none. In user context, and with no call while it is held (`sched::shield`).
    pub(crate) fn session(&self) -> Shielded<'_, Session> {
        shield::lock(&self.session)
    }

    /// A P was made while a trace is being written. In user context.
    pub(crate) fn adopt(&self, p: &P) {
        if self.is_tracing() {
            let mut session = self.session();
            if session.is_on() && !p.eye.has(TRACE) {
                let coarse = session.is_coarse();
                // Without room for a ring this P is not in the trace.
                p.eye.set_tracing(session.ring(p.id).ok(), coarse);
            }
        }
    }

    /// A goroutine was made, by the owner of `p` or somebody who has none.
    #[inline(always)]
    pub(crate) fn born(&self, p: Option<&P>, g: &G) {
        match p {
            Some(p) => p.eye.born(self, g),
            None => self.born_outside(g),
        }
    }

    // ---- looking at Ms ----

    /// While `f` runs, no M is freed. It must be brief.
    pub(crate) fn while_looking<T>(&self, f: impl FnOnce() -> T) -> T {
        let _looking = self.looking.lock();
        f()
    }

    /// Returns when no look is under way that began before.
    pub(crate) fn let_look_end(&self) {
        drop(self.looking.lock());
    }
}
