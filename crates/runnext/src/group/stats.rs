//! What a group used.

use std::time::Duration;

use crate::sched::groups::Record;
use crate::stats::Histogram;

/// What a [`TaskGroup`](crate::TaskGroup) used since it was made, and how it fares now. A copy: it does not change.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let group = runnext::TaskGroup::new("sums");
///     group.go(|| std::hint::black_box((0..100_000u64).sum::<u64>())).join().unwrap();
///     let stats = group.stats();
///     assert!(stats.cpu_time > std::time::Duration::ZERO);
///     assert_eq!((stats.goroutines, stats.throttled_count), (0, 0));
/// }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GroupStats {
    /// CPU time of its goroutines, those that run included up to now, give or take a slice: what the system gave to other processes meanwhile
    /// is taken off a little later. It never shrinks. Time in [`blocking`](crate::blocking) sections is not in it, nor that of child groups.
    pub cpu_time: Duration,
    /// Time spent in `blocking` sections.
    pub blocking_time: Duration,
    /// Time for which it had something to run but was kept from it by its quota or the runtime's limit, the pause that goes on
    /// included. It never shrinks.
    pub throttled_time: Duration,
    /// How often that happened: it counts when a pause begins.
    pub throttled_count: u64,
    /// Whether that is so now.
    pub throttled: bool,
    /// Time for which some of its goroutines were ready and no processor ran any of it (nor of its children), for whatever reason: others had their turn, or it was throttled. The wait
    /// that goes on is included. It never shrinks. How long each of them waited is in [`wake_latency`](Self::wake_latency).
    pub stalled_time: Duration,
    /// Goroutines that are ready and wait for a processor, as of the last decisions.
    pub runnable: usize,
    /// Processors that run it.
    pub running: usize,
    /// CPU time it is owed, in ns, by its weight; negative: it has had more than its share. 0 while it has nothing to run.
    pub lag_ns: i64,
    /// Goroutines that belong to it.
    pub goroutines: usize,
    /// How often one of its goroutines was made to stop where it was, in the middle of its code.
    pub preemptions: u64,
    /// How often it lent its place in the queue to the owner of a lock that one of its goroutines waited for.
    pub lent: u64,
    /// How long goroutines that became ready waited for a processor. Those that ran on in the turn of the one that woke them are
    /// sampled, in one of 61 dispatches; all others are in it.
    pub wake_latency: Histogram,
    /// How long goroutines ran before they gave their processor up. Sampled, as [`SchedStats::run_time`](crate::stats::SchedStats::run_time)
    /// is.
    pub run_time: Histogram,
    /// How long goroutines that were asked to give way took to do so.
    pub preempt_latency: Histogram,
}

impl GroupStats {
    pub(super) fn read(record: &Record) -> GroupStats {
        let reading = record.read();
        let usage = reading.usage;
        GroupStats {
            cpu_time: Duration::from_nanos(usage.cpu_ns),
            blocking_time: reading.blocking,
            throttled_time: Duration::from_nanos(usage.throttled_ns),
            throttled_count: usage.throttled_count,
            throttled: usage.throttled,
            stalled_time: Duration::from_nanos(usage.stalled_ns),
            runnable: usage.queued,
            running: usage.running,
            lag_ns: usage.lag_ns,
            goroutines: reading.goroutines,
            preemptions: reading.preempted,
            lent: reading.lent,
            wake_latency: record.wake_latency().read(),
            run_time: record.run_time.read(),
            preempt_latency: record.preempt_latency.read(),
        }
    }
}
