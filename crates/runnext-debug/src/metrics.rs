//! `/metrics`: OpenMetrics by prometheus-client.
//!
//! Numbers are read when they are asked for, as constants: nothing is registered, and nothing is counted twice. Groups of one name
//! are one series, their numbers added up, and there are no more than a thousand (`totals`), so that a program that makes a group
//! for every customer does not drown whoever scrapes it.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use runnext::stats::{self, Histogram, SchedStats};

use crate::totals::{Sum, Totals};

pub(crate) fn text(totals: &Totals) -> String {
    let mut registry = Registry::default();
    let groups = totals.read();
    registry.register_collector(Box::new(Scheduler { groups }));
    let mut out = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

struct Scheduler {
    groups: Vec<(String, Sum)>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

type Count = (&'static str, &'static str, fn(&SchedStats) -> u64);

const COUNTERS: &[Count] = &[
    ("goroutines_created", "Goroutines ever made", |s| {
        s.total_goroutine
    }),
    ("executions", "Times a goroutine was run", |s| {
        s.total_goroutine_exec
    }),
    ("scheduled", "Times a goroutine was queued to run", |s| {
        s.total_goroutine_sched
    }),
    (
        "runnext_hits",
        "Executions handed over through runnext",
        |s| s.total_runnext_hits,
    ),
    (
        "steals",
        "Searches that found work on another processor",
        |s| s.total_steals,
    ),
    (
        "stolen_goroutines",
        "Goroutines that such searches moved",
        |s| s.total_stolen,
    ),
    (
        "handoffs",
        "Processors given away by, or taken from, threads that sleep",
        |s| s.total_handoffs,
    ),
    (
        "blocking_sections",
        "Declared blocking sections entered",
        |s| s.total_sys_calls,
    ),
    (
        "undeclared_blocks",
        "Threads found asleep in undeclared code",
        |s| s.total_ffi_calls,
    ),
    (
        "stalls",
        "Goroutines that kept a thread for longer than RUNNEXT_DEBUG=stalls=ms allows",
        |s| s.total_stalls,
    ),
    (
        "thread_starts",
        "Times a thread was given a processor",
        |s| s.total_thread_starts,
    ),
];

const GAUGES: &[Count] = &[
    ("goroutines", "Goroutines that have not ended", |s| {
        s.num_goroutine as u64
    }),
    ("goroutines_running", "Goroutines that run", |s| {
        s.num_goroutine_exec as u64
    }),
    ("goroutines_runnable", "Goroutines in run queues", |s| {
        s.num_goroutine_sched as u64
    }),
    (
        "blocking_sections_open",
        "Blocking sections that goroutines are in",
        |s| s.num_sys_calls as u64,
    ),
    (
        "undeclared_blocks_open",
        "Threads asleep in undeclared code",
        |s| s.num_ffi_calls as u64,
    ),
    (
        "netpoll_waiters",
        "Goroutines that wait for a descriptor",
        |s| s.num_netpoll_waiters as u64,
    ),
    ("procs", "Processors", |s| s.max_procs as u64),
    ("procs_busy", "Processors that are not idle", |s| {
        s.num_procs as u64
    }),
    ("threads", "Threads that are not idle", |s| {
        s.num_threads as u64
    }),
    ("threads_idle", "Idle threads", |s| {
        s.num_idle_threads as u64
    }),
    ("threads_spinning", "Threads that search for work", |s| {
        s.num_spinning as u64
    }),
];

impl Collector for Scheduler {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let stats = stats::read();
        for (name, help, of) in COUNTERS {
            let name = format!("runnext_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            ConstCounter::new(of(&stats)).encode(metric)?;
        }
        for (name, help, of) in GAUGES {
            let name = format!("runnext_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            ConstGauge::new(of(&stats) as i64).encode(metric)?;
        }
        let mut family = encoder.encode_descriptor(
            "runnext_preemptions",
            "Goroutines made to stop, by how",
            None,
            MetricType::Counter,
        )?;
        for (kind, n) in [
            ("slice", stats.preemptions_slice),
            ("wakeup", stats.preemptions_wakeup),
            ("cooperative", stats.preemptions_cooperative),
        ] {
            ConstCounter::new(n).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        let metric = encoder.encode_descriptor(
            "runnext_lock_wait",
            "What goroutines have waited for locks",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        ConstCounter::new(stats.total_lock_wait.as_secs_f64()).encode(metric)?;
        for (name, help, h) in [
            (
                "runnext_sched_latency",
                "From being queued to being run, sampled",
                &stats.sched_latency,
            ),
            (
                "runnext_run_time",
                "From being run to giving the processor up, sampled",
                &stats.run_time,
            ),
            (
                "runnext_preempt_latency",
                "From being asked to give way to having done so",
                &stats.preempt_latency,
            ),
        ] {
            let mut metric = encoder.encode_descriptor(
                name,
                help,
                Some(&Unit::Seconds),
                MetricType::Histogram,
            )?;
            let buckets = buckets(h);
            metric.encode_histogram::<NoLabelSet>(
                h.sum().as_secs_f64(),
                h.count(),
                &buckets,
                None,
            )?;
        }
        groups(&mut encoder, &self.groups)
    }
}

/// How many there are up to each power of four of 64 ns, and above the last (17 s). Not added up: the encoder does that.
fn buckets(h: &Histogram) -> Vec<(f64, u64)> {
    let bounds = (0..15).map(|n| Duration::from_nanos(64 << (2 * n)));
    let mut buckets: Vec<(f64, u64)> = bounds.map(|b| (b.as_secs_f64(), 0)).collect();
    buckets.push((f64::INFINITY, 0));
    for (largest, n) in h.buckets() {
        let at = buckets.partition_point(|&(bound, _)| bound < largest.as_secs_f64());
        buckets[at].1 += n;
    }
    buckets
}

fn groups(encoder: &mut DescriptorEncoder, sums: &[(String, Sum)]) -> fmt::Result {
    type Seconds = (&'static str, &'static str, fn(&Sum) -> Duration);
    const SECONDS: &[Seconds] = &[
        (
            "runnext_group_cpu",
            "CPU time of a group's goroutines",
            |s| s.used.cpu,
        ),
        (
            "runnext_group_throttled",
            "Time a group was kept from running by its quota",
            |s| s.used.throttled,
        ),
        (
            "runnext_group_stalled",
            "Time a group had something to run and no processor ran it",
            |s| s.used.stalled,
        ),
    ];
    for (name, help, of) in SECONDS {
        let mut family =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (group, sum) in sums {
            let labels = [("group", group.as_str())];
            let seconds = of(sum).as_secs_f64();
            ConstCounter::new(seconds).encode(family.encode_family(&labels)?)?;
        }
    }
    let mut family = encoder.encode_descriptor(
        "runnext_group_throttles",
        "Times a group was kept from running by its quota",
        None,
        MetricType::Counter,
    )?;
    for (group, sum) in sums {
        ConstCounter::new(sum.used.throttles)
            .encode(family.encode_family(&[("group", group.as_str())])?)?;
    }
    type Number = (&'static str, &'static str, fn(&Sum) -> i64);
    const NUMBERS: &[Number] = &[
        ("runnext_group_goroutines", "Goroutines of a group", |s| {
            s.now.goroutines
        }),
        (
            "runnext_group_runnable",
            "Goroutines of a group that wait for a processor",
            |s| s.now.runnable,
        ),
    ];
    for (name, help, of) in NUMBERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (group, sum) in sums {
            ConstGauge::new(of(sum)).encode(family.encode_family(&[("group", group.as_str())])?)?;
        }
    }
    type Durations = (&'static str, &'static str, fn(&Sum) -> &Histogram);
    const DURATIONS: &[Durations] = &[
        (
            "runnext_group_wake_latency",
            "How long a group's goroutines waited for a processor",
            |s| &s.now.latency,
        ),
        (
            "runnext_group_run_time",
            "How long a group's goroutines ran before they gave their processor up, sampled",
            |s| &s.now.run_time,
        ),
        (
            "runnext_group_preempt_latency",
            "How long a group's goroutines took to give way when asked to",
            |s| &s.now.preempt_latency,
        ),
    ];
    for (name, help, of) in DURATIONS {
        let mut family =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (group, sum) in sums {
            for (label, q) in [("0.5", 0.5), ("0.99", 0.99)] {
                let value = of(sum).quantile(q).as_secs_f64();
                let labels = [("group", group.as_str()), ("quantile", label)];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}
