//! Statistics of the scheduler: those of the SchedStats proposal for Go, and more.
//!
//! [`read`] adds up the counters of all processors, without stopping any of them. The numbers are as of slightly different
//! moments; each total only grows.
//!
//! # What is counted, and what is sampled
//! | what                              | how                                                                                |
//! |-----------------------------------|------------------------------------------------------------------------------------|
//! | totals of goroutines, executions, steals, preemptions, calls | each one counted                                       |
//! | `num_…`                           | as of the call                                                                      |
//! | `goroutine_sched_ns`              | the delay of one goroutine, as often as the profile rate says ([`set_profile_rate`], 100 a second unless set) |
//! | `sched_latency`, `run_time`       | on each processor, the first goroutine queued there after each look of the monitor  |
//! | `preempt_latency`                 | each goroutine that was asked to give way, from the question to when it did         |
//!
//! The monitor looks every 1 to 4 ms while goroutines wait for processors, more often while it waits for one of them to give way, and every
//! 10 ms while processors are in use and no goroutine waits. So how many samples a processor takes does not depend on how often it switches,
//! and switches read no clock. A *delay* is the time from when a goroutine is queued (started, woken, having yielded or been preempted) to when it
//! runs. A *run* is the time from there to when it gives its processor up: it yields, waits, ends, or is preempted. A profile rate of 0
//! switches sampling off; counting continues.
//!
//! # Example
//! ```
//! #[runnext::main]
//! fn main() {
//!     runnext::scope(|s| {
//!         for _ in 0..100 {
//!             s.go(runnext::yield_now);
//!         }
//!     });
//!     let stats = runnext::stats::read();
//!     assert!(stats.total_goroutine >= 100 && stats.total_goroutine_exec >= 200);
//!     assert!(stats.get_metric("/sched/latencies:seconds").is_some());
//! }
//! ```

mod metric;

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use runnext_sys::clock;

pub use crate::histogram::Histogram;
pub use metric::Metric;

use crate::m;
use crate::observe::{PROFILE_HZ, SAMPLES, Why};
use crate::sched::Shared;
use crate::sched::call::Call;

/// The scheduler's numbers, as of one [`read`]. The fields down to `sample_hz` are those of the proposal.
///
/// # Example
/// ```
/// use runnext::{go, stats};
///
/// #[runnext::main]
/// fn main() {
///     let before = stats::read();
///     for _ in 0..10 {
///         go(|| ()).join().unwrap();
///     }
///     let after = stats::read();
///     assert_eq!(after.total_goroutine - before.total_goroutine, 10);
///     assert!(after.total_goroutine_exec - before.total_goroutine_exec >= 10);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedStats {
    /// How often a goroutine was run: dispatches, not goroutines.
    pub total_goroutine_exec: u64,
    /// Running goroutines: processors in use, less those that search for work or whose goroutine is in a
    /// [`blocking`](crate::blocking()) section, and no more than there are goroutines.
    pub num_goroutine_exec: usize,
    /// How often a goroutine was queued to run: when started, when woken, or after it yielded or was preempted.
    pub total_goroutine_sched: u64,
    /// Goroutines in run queues: all processors', those of groups, and the global ones.
    pub num_goroutine_sched: usize,
    /// Goroutines ever made.
    pub total_goroutine: u64,
    /// Goroutines that have not ended.
    pub num_goroutine: usize,
    /// How often a thread was found asleep outside a `blocking` section, and lost its processor.
    pub total_ffi_calls: u64,
    /// Such threads that have not made a runtime call since.
    pub num_ffi_calls: usize,
    /// [`blocking`](crate::blocking()) sections entered.
    pub total_sys_calls: u64,
    /// Such sections that goroutines are in.
    pub num_sys_calls: usize,
    /// Processors.
    pub max_procs: usize,
    /// Processors that are not idle.
    pub num_procs: usize,
    /// The delays of the goroutines last sampled, from being queued to being run, in nanoseconds: a circular buffer with the
    /// newest at `(num_samples + 255) % 256`.
    pub goroutine_sched_ns: [u64; SAMPLES],
    /// Samples ever taken.
    pub num_samples: u64,
    /// How many are taken a second, at most.
    pub sample_hz: u32,

    /// How often a thread was given a processor, new or from sleep. The proposal's `totalThreadStarts`.
    pub total_thread_starts: u64,
    /// Threads that are not idle. The proposal's `numThreads`.
    pub num_threads: usize,
    /// Idle threads.
    pub num_idle_threads: usize,
    /// Threads with a processor that search for work.
    pub num_spinning: usize,
    /// Searches that found work on another processor.
    pub total_steals: u64,
    /// Goroutines that such searches moved.
    pub total_stolen: u64,
    /// Executions that were handed over through `runnext`.
    pub total_runnext_hits: u64,
    /// Goroutines that a signal stopped because their time slice was used up.
    pub preemptions_slice: u64,
    /// Goroutines that a signal stopped in favour of a more entitled one that an event had woken.
    pub preemptions_wakeup: u64,
    /// Goroutines that were asked to give way for either reason, and did so at a runtime call or checkpoint.
    pub preemptions_cooperative: u64,
    /// Processors given away by a thread that was about to sleep, or taken from a thread that slept.
    pub total_handoffs: u64,
    /// Goroutines found to compute or to block their thread for longer than `RUNNEXT_DEBUG=stalls=ms` allows, in `blocking` sections
    /// too; each stall counts once. 0 unless that is set: otherwise stalls are not looked for.
    pub total_stalls: u64,
    /// Goroutines that wait for a descriptor to become ready; and sockets that futures wait for, each counted once however many
    /// futures wait. A socket whose waiting future was dropped counts until its next event.
    pub num_netpoll_waiters: usize,
    /// Total time that goroutines have waited for a [`Mutex`](crate::sync::Mutex) or an [`RwLock`](crate::sync::RwLock); each
    /// wait is added when it is over.
    pub total_lock_wait: Duration,
    /// From being queued to being run. Sampled: see the [module](self).
    pub sched_latency: Histogram,
    /// From being run to giving the processor up. Sampled: see the [module](self).
    pub run_time: Histogram,
    /// How long goroutines took to give way after the scheduler asked them to.
    pub preempt_latency: Histogram,
}

/// The numbers of the current runtime.
///
/// # Panics
/// Outside a runtime. [`Runtime::stats`](crate::Runtime::stats) works anywhere.
///
/// # Example
/// ```
/// #[runnext::main(procs = 2)]
/// fn main() {
///     let stats = runnext::stats::read();
///     assert_eq!((stats.max_procs, stats.num_goroutine), (2, 1));
/// }
/// ```
#[track_caller]
pub fn read() -> SchedStats {
    match m::current() {
        Some(m) => of(m.shared_static()),
        None => panic!(
            "runnext::stats::read called outside a runtime: call it from a goroutine, or use Runtime::stats of a \
             Runtime you have built"
        ),
    }
}

/// Sets how many delays a second [`SchedStats::goroutine_sched_ns`] takes at most: the proposal's `SetSchedulerProfileRate`.
/// 0 switches sampling off, the histograms' too. Rates above 1,000 cost CPU time, since the monitor has to wake up that
/// often, and above 10,000 change nothing.
///
/// In a goroutine it is its runtime's rate, elsewhere that of runtimes built from then on.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     runnext::stats::set_profile_rate(1000);
///     assert_eq!(runnext::stats::read().sample_hz, 1000);
/// }
/// ```
pub fn set_profile_rate(hz: u32) {
    match m::current() {
        Some(m) => m.shared().observe.set_hz(hz),
        None => PROFILE_HZ.store(hz, Relaxed),
    }
}

/// The numbers of a runtime.
pub(crate) fn of(shared: &Shared) -> SchedStats {
    let observe = &shared.observe;
    let sum = |of: fn(&crate::p::Stats) -> u64| shared.all_ps().map(|p| of(&p.stats)).sum::<u64>();
    // Ends before beginnings: what has ended must have been seen to begin.
    let closed = observe.sections_closed();
    let live = shared.live();
    let exec = sum(|s| s.dispatched.load(Relaxed));
    let queued = shared.queued();
    let sections = sum(|s| s.sections.load(Relaxed));
    let created = sum(|s| s.created.load(Relaxed)) + shared.born_outside.load(Relaxed);
    let lock_wait = sum(|s| s.lock_wait.load(Relaxed));
    let census = shared.census();
    let (mut latency, mut runs) = (Histogram::default(), Histogram::default());
    for p in shared.all_ps() {
        p.eye.latency.add_to(&mut latency);
        p.eye.runs.add_to(&mut runs);
    }
    let (delays, count) = {
        let _call = Call::brief(); // a handler on this thread takes the lock too
        let samples = observe.samples.lock();
        (samples.delays, samples.count)
    };
    SchedStats {
        total_goroutine_exec: exec,
        // One that has just ended, or is about to find nothing, is in use too.
        num_goroutine_exec: census.at_work().min(live),
        // Whoever was queued has been run since, or is queued still.
        total_goroutine_sched: observe.scheduled(exec + queued as u64),
        num_goroutine_sched: queued,
        total_goroutine: created,
        num_goroutine: live,
        total_ffi_calls: observe.ffi_calls.load(Relaxed),
        num_ffi_calls: observe.ffi_now.load(Relaxed).max(0) as usize,
        total_sys_calls: sections,
        num_sys_calls: sections.saturating_sub(closed) as usize,
        max_procs: census.procs,
        num_procs: census.busy,
        goroutine_sched_ns: delays,
        num_samples: count,
        sample_hz: observe.hz(),
        total_thread_starts: observe.thread_starts.load(Relaxed),
        num_threads: census.threads.saturating_sub(census.idle_threads),
        num_idle_threads: census.idle_threads,
        num_spinning: census.spinning,
        total_steals: sum(|s| s.steals.load(Relaxed)),
        total_stolen: sum(|s| s.stolen.load(Relaxed)),
        total_runnext_hits: sum(|s| s.runnext_hits.load(Relaxed)),
        preemptions_slice: observe.preemptions(Why::Slice),
        preemptions_wakeup: observe.preemptions(Why::Wakeup),
        preemptions_cooperative: observe.preemptions(Why::Asked),
        total_handoffs: observe.handoffs.load(Relaxed),
        total_stalls: shared.reporter.stalls(),
        num_netpoll_waiters: census.net_waiters,
        total_lock_wait: Duration::from_nanos(clock::ticks_to_ns(lock_wait)),
        sched_latency: latency,
        run_time: runs,
        preempt_latency: observe.preempt_latency.read(),
    }
}
