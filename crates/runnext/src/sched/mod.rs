//! The scheduler: what all Ms and Ps of one runtime share, and the protocol between them.
//!
//! ```text
//!   go / wake ──► runnext ─kick─► local queue (256) ─half─► global queue
//!                    │                 │    ▲                   │
//!                    └──── decision (runnext-core::next) ◄──────┘
//!                                      │    └── steal half, 4 passes ── other Ps
//!                                      ▼
//!                             M resumes G on its P
//! ```
//!
//! # Files
//! `call` what every runtime call does first and last; park, wake, yield · `put` where a runnable goroutine is queued · `wait` the waiter: a thread or a goroutine ·
//! `wired` goroutines that wait together with their thread · `future`, `waker`, `drops` goroutines without a stack: polling, waking, and
//! dropping them when the runtime stops · `netpoll` waiting for descriptors · `spawn` birth and end of a goroutine · `worker` the loop of an
//! M · `idle` idle Ps and Ms, searching, waking one · `timers` waits with deadlines · `seat` the M in the poller · `monitor` the thread
//! without a P · `gauges` the kernel's view of threads · `room` which CPU an M computes on · `threads` making and ending them · `preempt`
//! stopping a goroutine in the middle of its code · `shield` std's locks, under which no goroutine is stopped · `blocking` declared sections ·
//! `groups` task groups · `hazards` what belongs to a thread · `deadlock` nothing can happen any more · `report` lines on stderr at intervals.
//!
//! # Nothing runnable is ever stranded
//! *Submitter*: 1 queue the goroutine  2 full fence  3 if some P is idle and nobody searches, start a searcher.
//! *Idler*: 1 put the P on the idle list, stop searching  2 full fence  3 look at all queues once more.
//! Whatever the order, either the submitter sees the idle P, or the idler sees the goroutine. A searcher
//! that finds work starts the next one before it runs it, so a burst spreads as a chain, not as a stampede. The counts and the fences are
//! in `runnext_core::searchers`, with the cases in between.
//!
//! # Rules of the house
//! R1  In RT, and under any `Lock`, nothing calls the allocator or user code: a goroutine that was preempted
//!     inside `malloc` needs a P before it can let go of its lock.
//! R2  After a switch everything is read again: the thread, its M, its P.
//! R3  Threads are made by one thread only (`threads`), which never holds a P and never runs user code.

pub(crate) mod blocking;
pub(crate) mod call;
mod deadlock;
pub(crate) mod drops;
pub(crate) mod future;
mod gauges;
pub(crate) mod groups;
pub(crate) mod hazards;
mod idle;
mod monitor;
pub(crate) mod netpoll;
pub(crate) mod preempt;
mod put;
pub(crate) mod report;
mod room;
mod seat;
pub(crate) mod shield;
pub(crate) mod spawn;
mod threads;
pub(crate) mod timers;
pub(crate) mod wait;
pub(crate) mod waker;
mod wired;
mod worker;

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use runnext_core::list::List;
use runnext_core::owner::{Home, State};
use runnext_core::searchers::Searchers;
use runnext_core::steal::StealOrder;
use runnext_sys::{cpu, fork};

use crate::g::G;
use crate::g::slab::Slab;
use crate::lock::Lock;
use crate::m::M;
use crate::observe::Observe;
use crate::p::P;
use crate::stack::Stacks;

use gauges::Gauges;
use groups::Groups;
use monitor::Monitor;
use threads::Threads;

/// Starts the threads that run no goroutines, the monitor and the one that makes the others, and the first that does.
pub(crate) fn start_threads(shared: &Arc<Shared>) -> io::Result<()> {
    monitor::start(shared)?;
    threads::start(shared)
}

/// The most Ps a runtime may have.
pub(crate) const MAX_PROCS: usize = 1024;

/// What a runtime was built with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) procs: usize,
    /// That number is the system's, and may change with it.
    pub(crate) follows_system: bool,
    pub(crate) max_threads: usize,
    pub(crate) stack_class: u8,
    pub(crate) time_slice: Duration,
    pub(crate) preemption: bool,
    pub(crate) chaos: bool,
    pub(crate) mprotect_guards: bool,
    pub(crate) seed: u64,
    pub(crate) cpu_limit: groups::Limit,
    /// Whether waiters lend their lane to the owners of locks.
    pub(crate) lend: bool,
}

/// The scheduler's population at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    pub(crate) procs: usize,
    /// Ps that are not idle.
    pub(crate) busy: usize,
    pub(crate) spinning: usize,
    /// Ps whose goroutine is in a blocking section, and that nobody has taken yet.
    in_sections: usize,
    pub(crate) need_spinning: bool,
    pub(crate) threads: usize,
    pub(crate) idle_threads: usize,
    /// Goroutines that wait for descriptors.
    pub(crate) net_waiters: usize,
    /// Goroutines in the global queues.
    pub(crate) global: usize,
}

impl Census {
    /// Ps that run a goroutine.
    pub(crate) fn at_work(&self) -> usize {
        self.busy.saturating_sub(self.spinning + self.in_sections)
    }
}

/// What is wrong where [`Shared::is_copy`], and what to do.
pub(crate) const COPY: &str = "this process is a fork, and the threads of this runtime stayed behind in the one that made it: fork before the runtime is built, \
     use exec or _exit in the child, or build another Runtime there";

/// All that the Ms and Ps of one runtime share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) slab: Slab,
    pub(crate) stacks: Stacks,
    pub(crate) groups: Groups,
    /// Made runnable goroutines do not all go the usual way: groups are in use, or chaos.
    special: AtomicBool,
    monitor: Monitor,
    gauges: Gauges,
    pub(crate) threads: Threads,
    pub(crate) observe: Observe,
    pub(crate) reporter: report::Reporter,

    procs: AtomicUsize,
    /// How many CPUs there were when it was made.
    cpus: usize,
    /// It can be told how many threads want them.
    sees_others: bool,
    /// The number of Ps is the system's, not the program's.
    follows_system: AtomicBool,
    /// By id; made when first needed, freed with the runtime.
    allp: Box<[AtomicPtr<P>]>,
    /// By number of Ps; made, outside the runtime's locks, before that number is set.
    orders: Box<[OnceLock<StealOrder>]>,

    global: Lock<Global>,
    /// Lengths of the two, readable without the lock.
    global_len: AtomicUsize,
    urgent_len: AtomicUsize,
    idle: Lock<idle::Idle>,
    seat: seat::Seat,
    searchers: Searchers,
    /// Threads that sleep with a goroutine which could go on if it had a P.
    stranded: AtomicUsize,
    /// Threads that sleep with a goroutine that waits, or has given way, and is locked to them.
    tied: AtomicUsize,

    /// Strangers at work in here ([`Visit`]).
    visitors: AtomicUsize,

    /// Forks before it was made ([`Shared::is_copy`]).
    forks: u32,
    /// No M dispatches anything any more.
    pub(crate) stopped: AtomicBool,
    /// Drops futures that are rung after the end.
    helper: Mutex<drops::Helper>,
    /// Somebody waits for the goroutines to end: count the ends.
    pub(crate) draining: AtomicBool,
    pub(crate) next_id: AtomicU64,
    /// Goroutines made outside any P. Those made on one, and all ends, are counted by the Ps.
    pub(crate) born_outside: AtomicU64,
    /// Errands under way, which count as ended.
    errands: AtomicUsize,
    /// Where goroutines are started that run on and on.
    pub(crate) sites: preempt::Sites,
}

impl Shared {
    pub(crate) fn new(config: Config) -> io::Result<Shared> {
        let procs = config.procs;
        let seat = seat::Seat::new()?;
        let monitor = Monitor::new(Arc::clone(seat.hub()));
        let shared = Shared {
            slab: Slab::new(),
            stacks: Stacks::new(config.mprotect_guards),
            groups: Groups::new(procs, config.cpu_limit, config.lend),
            special: AtomicBool::new(config.chaos),
            threads: Threads::new(config.max_threads),
            observe: Observe::new(monitor.word()),
            monitor,
            gauges: Gauges::new(),
            reporter: report::Reporter::default(),
            procs: AtomicUsize::new(0),
            cpus: runnext_sys::cpu::available(),
            sees_others: runnext_sys::cpu::sees_all_runnable(),
            follows_system: AtomicBool::new(config.follows_system),
            allp: (0..MAX_PROCS)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            orders: (0..=MAX_PROCS).map(|_| OnceLock::new()).collect(),
            global: Lock::new(Global {
                queue: List::new(),
                urgent: List::new(),
                doomed: List::new(),
            }),
            global_len: AtomicUsize::new(0),
            urgent_len: AtomicUsize::new(0),
            idle: Lock::new(idle::Idle::new()),
            seat,
            searchers: Searchers::new(),
            stranded: AtomicUsize::new(0),
            tied: AtomicUsize::new(0),
            visitors: AtomicUsize::new(0),
            forks: fork::count(),
            stopped: AtomicBool::new(false),
            helper: Mutex::default(),
            draining: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            born_outside: AtomicU64::new(0),
            errands: AtomicUsize::new(0),
            sites: preempt::Sites::new(),
            config,
        };
        shared.set_procs(procs);
        Ok(shared)
    }

    /// This process was forked since: the runtime's threads are in another one, all but the one that called `fork`, if it is one of them.
    #[inline]
    pub(crate) fn is_copy(&self) -> bool {
        self.forks != fork::count()
    }

    /// A reference that does not keep the runtime's memory.
    fn weak(&self) -> Weak<Shared> {
        // SAFETY: every `Shared` that is in use lives in an `Arc` (`runtime`); the count taken is given back at once.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::downgrade(&Arc::from_raw(self))
        }
    }

    /// The caller is perhaps no thread of this runtime, and has the last goroutine that keeps it alive in its hands: once that is queued
    /// it may run and end, and the runtime be gone before the caller is. It says so first.
    pub(crate) fn visit(&self) -> Visit<'_> {
        self.visitors.fetch_add(1, SeqCst); // before a look whether all has stopped (`Call::wake_to_give`)
        Visit(&self.visitors)
    }

    /// Waits until no stranger is in here any more. Who is, is in the middle of a runtime call, or a plain thread: it goes on by itself.
    pub(crate) fn see_visitors_off(&self) {
        while self.visitors.load(SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    /// From now on what is made runnable may belong to a group.
    fn note_special(&self) {
        self.special.store(true, SeqCst);
    }

    #[inline]
    pub(crate) fn procs(&self) -> usize {
        self.procs.load(Relaxed)
    }

    /// As [`set_procs`](Self::set_procs), on the program's word: from now on it does not follow the system's.
    pub(crate) fn fix_procs(&self, n: usize) -> usize {
        self.follows_system.store(false, SeqCst);
        self.set_procs(n)
    }

    /// The reverse: from now on, and at once, it follows the system's. In user context.
    pub(crate) fn unfix_procs(&self) -> usize {
        let old = self.procs();
        self.follows_system.store(true, SeqCst);
        self.follow_system();
        old
    }

    /// Nobody has said how many Ps there are to be: as many as the system gives CPUs now. By a thread that may block.
    fn follow_system(&self) {
        if self.follows_system.load(SeqCst) {
            let n = cpu::default_procs().min(MAX_PROCS);
            // Should somebody say a number just now, it may be overtaken once; not twice.
            if n != self.procs() && self.follows_system.load(SeqCst) {
                self.set_procs(n);
            }
        }
    }

    /// Changes the number of Ps; returns the old one. New Ps are idle until there is work for them; a P that
    /// is one too many is given up by its M at the next dispatch, or the monitor takes it. In user context: it allocates.
    pub(crate) fn set_procs(&self, n: usize) -> usize {
        assert!(
            (1..=MAX_PROCS).contains(&n),
            "a runtime has 1 to {MAX_PROCS} processors, not {n}: each is a right to run code, not a goroutine"
        );
        self.orders[n].get_or_init(|| StealOrder::new(n));
        for (id, slot) in self.allp.iter().enumerate().take(n) {
            if slot.load(Acquire).is_null() {
                let p = Box::into_raw(Box::new(P::new(id, self.config.seed ^ ((id as u64) << 32))));
                if slot
                    .compare_exchange(ptr::null_mut(), p, AcqRel, Acquire)
                    .is_err()
                {
                    // SAFETY: made just above, and nobody has seen it.
                    drop(unsafe { Box::from_raw(p) });
                }
            }
        }
        self.groups.equip(self);
        for p in self.all_ps() {
            self.observe.adopt(p);
        }
        // In RT: a handler on this thread takes the lock that `resize` holds.
        let _call = call::Call::brief();
        self.resize(n)
    }

    /// The P with this id, if there ever was one.
    #[inline]
    pub(crate) fn p(&self, id: usize) -> Option<&P> {
        // SAFETY: set once, with release, and freed with the runtime.
        unsafe { self.allp.get(id)?.load(Acquire).as_ref() }
    }

    /// Every P that was ever made.
    pub(crate) fn all_ps(&self) -> impl Iterator<Item = &P> {
        (0..MAX_PROCS).map_while(|id| self.p(id))
    }

    /// Goroutines that exist: spawned and not ended. Exact when nothing moves; otherwise never too few, for ends are read
    /// before births, and who waits for the last to end must not miss one. Errands under way do not count.
    pub(crate) fn live(&self) -> usize {
        let ended: u64 = self.all_ps().map(|p| p.stats.ended.load(Acquire)).sum();
        let born: u64 = self.all_ps().map(|p| p.stats.created.load(Relaxed)).sum();
        (born + self.born_outside.load(Relaxed) - ended) as usize
    }

    /// Goroutines in run queues.
    pub(crate) fn queued(&self) -> usize {
        self.all_ps().map(P::runnable).sum::<usize>()
            + self.global_len()
            + self.urgent_len.load(Relaxed)
    }

    /// How many of each there are, for those who look from outside.
    pub(crate) fn census(&self) -> Census {
        let procs = self.procs();
        let (idle_threads, need_spinning) = {
            let _call = call::Call::brief(); // a handler on this thread takes the lock too
            let idle = self.idle.lock();
            (idle.ms_len, idle.roster.is_wanted())
        };
        Census {
            procs,
            busy: procs.saturating_sub(self.searchers.idle()),
            spinning: self.searchers.spinning(),
            in_sections: self.in_sections(),
            need_spinning,
            threads: self.threads.count(),
            idle_threads,
            net_waiters: self.seat.hub().waiting(),
            global: self.global_len() + self.urgent_len(),
        }
    }

    /// Ps that goroutines keep while they are in blocking sections: those count as outside, not as running.
    fn in_sections(&self) -> usize {
        let call = call::Call::brief(); // a handler on this thread takes the lock too
        // Who asks from inside one has just left BLK for this call.
        let own = call.m().is_some_and(|m| {
            ptr::eq(m.shared, self) && m.home.get() == Home::Blk && m.state().has_p()
        });
        let others = self.observe.while_looking(|| {
            let is_in = |p: &&P| {
                // SAFETY: an M that a P names is alive while somebody looks (`Threads::reap`).
                let m = unsafe { p.m.load(Acquire).as_ref() };
                // One that lost this P may be in a section with another.
                m.is_some_and(|m| m.state() == State::Blk && ptr::eq(m.p_ptr(), *p))
            };
            self.all_ps().filter(is_in).count()
        });
        others + usize::from(own)
    }

    // ---- the global queue ----

    #[inline]
    pub(crate) fn global_len(&self) -> usize {
        self.global_len.load(Relaxed)
    }

    #[inline]
    pub(crate) fn urgent_len(&self) -> usize {
        self.urgent_len.load(Relaxed)
    }

    #[inline]
    pub(crate) fn has_urgent(&self) -> bool {
        self.urgent_len() != 0
    }

    /// Anything in either queue?
    #[inline]
    pub(crate) fn has_global(&self) -> bool {
        self.global_len() != 0 || self.has_urgent()
    }

    /// Queues a goroutine that no P has: with the urgent ones if it is light, else at the global tail. A signal handler
    /// may, in user state.
    ///
    /// # Safety
    /// It is runnable, and in no queue.
    pub(crate) unsafe fn push_global(&self, g: NonNull<G>) {
        // SAFETY: runnable, so alive.
        let header = unsafe { g.as_ref() };
        let lane = header.lane(); // once (`lend`, I3)
        if lane != groups::ROOT_LANE {
            return self.put_outside(header, lane);
        }
        let light = header.is_light();
        let mut global = self.global.lock();
        // SAFETY: the caller's promise.
        unsafe {
            if light {
                global.urgent.push_back(g);
                self.urgent_len.store(global.urgent.len(), Relaxed);
            } else {
                global.queue.push_back(g);
                self.global_len.store(global.queue.len(), Relaxed);
            }
        }
    }

    /// To the global head: one without a group that was stopped before its time.
    ///
    /// # Safety
    /// As [`push_global`](Self::push_global).
    pub(super) unsafe fn push_global_front(&self, g: NonNull<G>) {
        let mut global = self.global.lock();
        // SAFETY: the caller's promise.
        unsafe { global.queue.push_front(g) };
        self.global_len.store(global.queue.len(), Relaxed);
    }

    #[cold]
    pub(crate) fn append_global(&self, list: List<G>) {
        let mut global = self.global.lock();
        global.queue.append(list);
        self.global_len.store(global.queue.len(), Relaxed);
    }

    pub(crate) fn prepend_global(&self, list: List<G>) {
        let mut global = self.global.lock();
        global.queue.prepend(list);
        self.global_len.store(global.queue.len(), Relaxed);
    }

    /// Up to `n` from the global head. A hog comes alone: it stays within reach of all Ps, and in no local queue in front of
    /// light ones. So does one that is wired: it costs a switch of threads wherever it runs.
    pub(crate) fn take_global(&self, n: usize) -> List<G> {
        self.take_leading(n, 1)
    }

    /// Up to `n` light ones from the global head; none if a hog is in front of them.
    pub(super) fn take_light(&self, n: usize) -> List<G> {
        self.take_leading(n, 0)
    }

    /// Up to `n` from the global head: `at_least` as many, and those behind them that are light and not wired.
    fn take_leading(&self, n: usize, at_least: usize) -> List<G> {
        let mut global = self.global.lock();
        // SAFETY: queued, so alive.
        let header = |g: NonNull<G>| unsafe { g.as_ref() };
        let free = global
            .queue
            .iter()
            .take(n)
            .take_while(|g| header(*g).is_light() && header(*g).wired().is_null())
            .count();
        let list = global.queue.take(free.max(at_least).min(n));
        self.global_len.store(global.queue.len(), Relaxed);
        list
    }

    /// A queued goroutine that brings its own thread, and that thread, which sleeps: for a P when there is no idle M.
    ///
    /// It may be what everybody else, the maker of threads included, waits for (`threads`). That is why it may jump the queue,
    /// and why a search through the queue under its lock is not too much.
    pub(super) fn take_wired(&self) -> Option<&'static M> {
        if !self.may_have_wired() {
            return None;
        }
        let mut global = self.global.lock();
        let Global { queue, urgent, .. } = &mut *global;
        let found = remove_wired(urgent).or_else(|| remove_wired(queue));
        self.urgent_len.store(urgent.len(), Relaxed);
        self.global_len.store(queue.len(), Relaxed);
        drop(global);
        found.or_else(|| self.take_wired_grouped())
    }

    /// Those that are locked to their threads take their turn as others do; only if no thread can be had for the others they are
    /// all there is.
    fn may_have_wired(&self) -> bool {
        self.stranded.load(Relaxed) != 0
            || self.threads.is_exhausted() && self.tied.load(Relaxed) != 0
    }

    /// Whether [`take_wired`](Self::take_wired) would find one.
    pub(super) fn has_wired(&self) -> bool {
        if !self.may_have_wired() {
            return false;
        }
        let global = self.global.lock();
        let mut all = global.urgent.iter().chain(global.queue.iter());
        // SAFETY: queued, so alive.
        let found = all.any(|g| !unsafe { g.as_ref() }.wired().is_null());
        drop(global);
        found || self.has_wired_grouped()
    }

    pub(crate) fn take_urgent(&self) -> Option<NonNull<G>> {
        let mut global = self.global.lock();
        let g = global.urgent.pop_front();
        self.urgent_len.store(global.urgent.len(), Relaxed);
        g
    }
}

/// Takes the first that is wired out of a list.
fn remove_wired(list: &mut List<G>) -> Option<&'static M> {
    // SAFETY: queued, so alive; and a wired goroutine's M sleeps with it.
    let wired = |g: NonNull<G>| unsafe { g.as_ref() }.wired_to();
    let (at, m) = list
        .iter()
        .enumerate()
        .find_map(|(i, g)| Some((i, wired(g)?)))?;
    let before = list.take(at);
    let _ = list.pop_front();
    list.prepend(before);
    Some(m)
}

/// What no P has: the global queue, and in front of it the light ones that an event, or a thread from outside, made runnable.
struct Global {
    queue: List<G>,
    urgent: List<G>,
    /// The runtime has stopped: what was queued anywhere, until somebody drops it (`future`).
    doomed: List<G>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for slot in &self.allp {
            let p = slot.load(Acquire);
            if !p.is_null() {
                // SAFETY: made by `Box::into_raw`; no thread of the runtime is left.
                drop(unsafe { Box::from_raw(p) });
            }
        }
    }
}

/// A stranger in the runtime, whose memory stays as long as this does.
pub(crate) struct Visit<'a>(&'a AtomicUsize);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release); // the last it touches
    }
}

/// The runtime a goroutine belongs to.
///
/// # Safety
/// The runtime is alive, or `g` is held by a handle (which keeps its memory).
#[inline]
pub(crate) unsafe fn shared_of<'a>(g: &G) -> &'a Shared {
    // SAFETY: the slab stamps its extents with the address of their `Shared`.
    unsafe { &*g.owner().cast::<Shared>() }
}
