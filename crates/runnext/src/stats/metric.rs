//! Numbers by name: the proposal's, exported and unexported, and those of Go's `runtime/metrics`.

use std::time::Duration;

use super::{Histogram, SchedStats};

/// A number that was asked for by name.
///
/// # Example
/// ```
/// use runnext::stats::{self, Metric};
///
/// #[runnext::main]
/// fn main() {
///     let mut kinds = [0; 3];
///     for (_name, metric) in stats::read().metrics() {
///         match metric {
///             Metric::U64(_) => kinds[0] += 1,
///             Metric::F64(_) => kinds[1] += 1,
///             Metric::Histogram(_) => kinds[2] += 1,
///         }
///     }
///     assert!(kinds.iter().all(|&n| n > 0));
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// A count.
    U64(u64),
    /// A measure.
    F64(f64),
    /// Many durations.
    Histogram(Histogram),
}

impl Metric {
    /// The count, if it is one.
    ///
    /// # Example
    /// ```
    /// #[runnext::main(procs = 2)]
    /// fn main() {
    ///     let procs = runnext::stats::read().get_metric("/sched/gomaxprocs:threads");
    ///     assert_eq!(procs.unwrap().as_u64(), Some(2));
    ///     assert_eq!(runnext::stats::Metric::F64(2.0).as_u64(), None);
    /// }
    /// ```
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Metric::U64(n) => Some(*n),
            _ => None,
        }
    }

    /// The number; a count too.
    ///
    /// # Example
    /// ```
    /// use runnext::stats::{Histogram, Metric};
    ///
    /// // What a monitoring system wants: one number, whatever it counts.
    /// assert_eq!(Metric::U64(3).as_f64(), Some(3.0));
    /// assert_eq!(Metric::F64(0.25).as_f64(), Some(0.25));
    /// assert_eq!(Metric::Histogram(Histogram::default()).as_f64(), None);
    /// ```
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Metric::U64(n) => Some(*n as f64),
            Metric::F64(x) => Some(*x),
            Metric::Histogram(_) => None,
        }
    }

    /// The histogram, if it is one.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let stats = runnext::stats::read();
    ///     let runs = stats.get_metric("/sched/runs:seconds").unwrap();
    ///     assert_eq!(runs.as_histogram(), Some(&stats.run_time));
    ///     assert_eq!(runs.as_u64(), None);
    /// }
    /// ```
    pub fn as_histogram(&self) -> Option<&Histogram> {
        match self {
            Metric::Histogram(h) => Some(h),
            _ => None,
        }
    }
}

type Get = fn(&SchedStats) -> Metric;

/// Every name and where its number is. Those of the proposal first, as it orders them; from `totalThreadStarts` on they may
/// change their meaning with the scheduler.
const NAMES: &[(&str, Get)] = &[
    ("TotalGoroutineExec", |s| {
        Metric::U64(s.total_goroutine_exec)
    }),
    ("NumGoroutineExec", |s| count(s.num_goroutine_exec)),
    ("TotalGoroutineSched", |s| {
        Metric::U64(s.total_goroutine_sched)
    }),
    ("NumGoroutineSched", |s| count(s.num_goroutine_sched)),
    ("TotalGoroutine", |s| Metric::U64(s.total_goroutine)),
    ("NumGoroutine", |s| count(s.num_goroutine)),
    ("TotalCGoCalls", |s| Metric::U64(s.total_ffi_calls)),
    ("NumCGoCalls", |s| count(s.num_ffi_calls)),
    ("TotalFfiCalls", |s| Metric::U64(s.total_ffi_calls)),
    ("NumFfiCalls", |s| count(s.num_ffi_calls)),
    ("TotalSysCalls", |s| Metric::U64(s.total_sys_calls)),
    ("NumSysCalls", |s| count(s.num_sys_calls)),
    ("MaxProcs", |s| count(s.max_procs)),
    ("NumProcs", |s| count(s.num_procs)),
    ("GoroutineSchedNs", |s| Metric::Histogram(s.samples())),
    ("NumSamples", |s| Metric::U64(s.num_samples)),
    ("SampleHz", |s| Metric::U64(s.sample_hz.into())),
    ("totalThreadStarts", |s| Metric::U64(s.total_thread_starts)),
    ("numThreads", |s| count(s.num_threads)),
    // Go's.
    ("/sched/gomaxprocs:threads", |s| count(s.max_procs)),
    ("/sched/goroutines:goroutines", |s| count(s.num_goroutine)),
    ("/sched/goroutines-created:goroutines", |s| {
        Metric::U64(s.total_goroutine)
    }),
    ("/sched/goroutines/not-in-go:goroutines", |s| {
        count(s.outside())
    }),
    ("/sched/goroutines/runnable:goroutines", |s| {
        count(s.num_goroutine_sched)
    }),
    ("/sched/goroutines/running:goroutines", |s| {
        count(s.num_goroutine_exec)
    }),
    ("/sched/goroutines/waiting:goroutines", |s| {
        count(s.waiting())
    }),
    ("/sched/latencies:seconds", |s| {
        Metric::Histogram(s.sched_latency.clone())
    }),
    // Nothing here ever stops the world.
    ("/sched/pauses/stopping/gc:seconds", |_| {
        Metric::Histogram(Histogram::default())
    }),
    ("/sched/pauses/stopping/other:seconds", |_| {
        Metric::Histogram(Histogram::default())
    }),
    ("/sched/pauses/total/gc:seconds", |_| {
        Metric::Histogram(Histogram::default())
    }),
    ("/sched/pauses/total/other:seconds", |_| {
        Metric::Histogram(Histogram::default())
    }),
    ("/sched/threads/total:threads", |s| {
        count(s.num_threads + s.num_idle_threads)
    }),
    ("/cgo/go-to-c-calls:calls", |s| {
        Metric::U64(s.total_ffi_calls)
    }),
    ("/sync/mutex/wait/total:seconds", |s| {
        Metric::F64(s.total_lock_wait.as_secs_f64())
    }),
    // Ours, in the same manner.
    ("/sched/executions:executions", |s| {
        Metric::U64(s.total_goroutine_exec)
    }),
    ("/sched/handoffs:handoffs", |s| {
        Metric::U64(s.total_handoffs)
    }),
    ("/sched/netpoll/waiters:goroutines", |s| {
        count(s.num_netpoll_waiters)
    }),
    ("/sched/preemptions/cooperative:preemptions", |s| {
        Metric::U64(s.preemptions_cooperative)
    }),
    ("/sched/preemptions/slice:preemptions", |s| {
        Metric::U64(s.preemptions_slice)
    }),
    ("/sched/preemptions/wakeup:preemptions", |s| {
        Metric::U64(s.preemptions_wakeup)
    }),
    ("/sched/preemptions/latencies:seconds", |s| {
        Metric::Histogram(s.preempt_latency.clone())
    }),
    ("/sched/procs/busy:procs", |s| count(s.num_procs)),
    ("/sched/runnext/hits:executions", |s| {
        Metric::U64(s.total_runnext_hits)
    }),
    ("/sched/runs:seconds", |s| {
        Metric::Histogram(s.run_time.clone())
    }),
    ("/sched/stalls:stalls", |s| Metric::U64(s.total_stalls)),
    ("/sched/steals:steals", |s| Metric::U64(s.total_steals)),
    ("/sched/stolen:goroutines", |s| Metric::U64(s.total_stolen)),
    ("/sched/syscalls:calls", |s| Metric::U64(s.total_sys_calls)),
    ("/sched/threads/idle:threads", |s| count(s.num_idle_threads)),
    ("/sched/threads/spinning:threads", |s| count(s.num_spinning)),
    ("/sched/threads/starts:starts", |s| {
        Metric::U64(s.total_thread_starts)
    }),
];

fn count(n: usize) -> Metric {
    Metric::U64(n as u64)
}

impl SchedStats {
    /// A number by name; none if there is no such name. [`metrics`](Self::metrics) lists them all.
    ///
    /// Known are the proposal's names, exported (`TotalGoroutineExec`) and unexported (`totalThreadStarts`, `numThreads`), with its
    /// names for cgo standing for foreign code that blocks; the `/sched/…` names of Go's `runtime/metrics`, and more in
    /// their manner. What starts with a small letter or a slash may change its meaning as the scheduler changes.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let stats = runnext::stats::read();
    ///     let by_name = stats.get_metric("TotalGoroutineExec").and_then(|m| m.as_u64());
    ///     assert_eq!(by_name, Some(stats.total_goroutine_exec));
    ///     assert!(stats.get_metric("numThreads").is_some());
    ///     assert!(stats.get_metric("NoSuchThing").is_none());
    /// }
    /// ```
    pub fn get_metric(&self, name: &str) -> Option<Metric> {
        let (_, get) = NAMES.iter().find(|(known, _)| *known == name)?;
        Some(get(self))
    }

    /// Every name that [`get_metric`](Self::get_metric) knows, with its number.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let stats = runnext::stats::read();
    ///     for (name, metric) in stats.metrics().filter(|(name, _)| name.starts_with("/sched/threads/")) {
    ///         println!("{name} {}", metric.as_u64().unwrap());
    ///     }
    ///     assert!(stats.metrics().all(|(name, metric)| stats.get_metric(name) == Some(metric)));
    /// }
    /// ```
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, Metric)> + '_ {
        NAMES.iter().map(|(name, get)| (*name, get(self)))
    }

    /// The delays in the circular buffer, oldest first.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let stats = runnext::stats::read();
    ///     println!("the worst of late: {:?}", stats.recent_delays().max());
    ///     assert_eq!(stats.recent_delays().count() as u64, stats.num_samples.min(256));
    /// }
    /// ```
    pub fn recent_delays(&self) -> impl Iterator<Item = Duration> + '_ {
        let len = self.goroutine_sched_ns.len() as u64;
        let first = self.num_samples.saturating_sub(len);
        (first..self.num_samples)
            .map(move |n| Duration::from_nanos(self.goroutine_sched_ns[(n % len) as usize]))
    }

    fn samples(&self) -> Histogram {
        let mut all = Histogram::default();
        for delay in self.recent_delays() {
            all.add(delay);
        }
        all
    }

    /// Goroutines that hold a thread in foreign or blocking code.
    fn outside(&self) -> usize {
        self.num_ffi_calls + self.num_sys_calls
    }

    /// Those that neither run nor could: what is left over, so that the four add up. Never exact: they are counted one after
    /// the other.
    fn waiting(&self) -> usize {
        let others = self.num_goroutine_sched + self.num_goroutine_exec + self.outside();
        self.num_goroutine.saturating_sub(others)
    }
}
