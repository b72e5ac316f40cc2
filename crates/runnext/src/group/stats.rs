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
    /// CPU time of its goroutines, including the running ones, accurate to about a slice: time that the system gave to other
    /// processes is subtracted a little later. It never decreases. It excludes [`blocking`](crate::blocking) sections, whatever the group is charged
    /// for them, and child groups.
    pub cpu_time: Duration,
    /// Time spent in `blocking` sections, computing or not.
    pub blocking_time: Duration,
    /// Time during which the group had goroutines to run but was throttled by its quota or the runtime's limit, including a pause
    /// that is still in progress. It never decreases.
    pub throttled_time: Duration,
    /// Number of such pauses; one counts when it begins.
    pub throttled_count: u64,
    /// Whether such a pause is in progress.
    pub throttled: bool,
    /// Time during which goroutines of the group were ready and no processor ran any goroutine of the group or of its children, for
    /// whatever reason: other groups had their turn, or it was throttled. A wait that is still in progress is included. It never
    /// decreases. How long single goroutines waited is in [`wake_latency`](Self::wake_latency).
    pub stalled_time: Duration,
    /// Goroutines that are ready and wait for a processor, as of the last decisions.
    pub runnable: usize,
    /// Processors that run it.
    pub running: usize,
    /// CPU time it is owed, in ns, by its weight; negative: it has had more than its share. 0 while it has nothing to run.
    pub lag_ns: i64,
    /// Goroutines that belong to it.
    pub goroutines: usize,
    /// How often one of its goroutines was preempted, that is, stopped by a signal in the middle of its code.
    pub preemptions: u64,
    /// How often it lent its place in the queue to the owner of a lock that one of its goroutines waited for.
    pub lent: u64,
    /// How long goroutines that became ready waited for a processor. Goroutines that run in the same turn as the
    /// goroutine that woke them are sampled, at one of 61 dispatches; all others are included.
    pub wake_latency: Histogram,
    /// How long goroutines ran before they gave their processor up. Sampled, as [`SchedStats::run_time`](crate::stats::SchedStats::run_time)
    /// is.
    pub run_time: Histogram,
    /// How long goroutines took to give way after the scheduler asked them to.
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
