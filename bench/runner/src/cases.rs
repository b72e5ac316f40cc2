//! What is measured: every case with its runs and the bars that runnext has to meet.
//!
//! A *case* is a scenario with its parameters; a *run* is a case on one runtime, possibly in a variant of its own; a *bar*
//! is a promise about one figure, as a ratio to rivals measured in the same session, or as an absolute value.

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes.
    Lower,
    /// Rates.
    Higher,
}

/// What runnext promises about a figure. Read "at most" for [`Better::Lower`] and "at least" for [`Better::Higher`].
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Times the best rival's figure.
    Best(f64),
    /// Times Go's figure.
    Go(f64),
    /// A value.
    Value(f64),
    /// Times runnext's own figure of the same name in another case.
    Own(&'static str, f64),
}

/// A figure of a case.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in the program's JSON line.
    pub key: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// The promise, if there is one.
    pub bar: Option<Bar>,
}

/// A case on one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The program.
    pub program: &'static str,
    /// The name in the table: the program's, or that of a variant.
    pub label: &'static str,
    /// Arguments of this run only.
    pub args: &'static [&'static str],
}

/// A scenario with its parameters.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name, given to `--scenario`.
    pub id: &'static str,
    /// The scenario the programs know.
    pub scenario: &'static str,
    /// The part of the project it came with.
    pub part: u32,
    /// For people.
    pub title: &'static str,
    /// Arguments for all.
    pub args: &'static [&'static str],
    /// Arguments that make it short, for `--quick`.
    pub quick: &'static [&'static str],
    /// Repetitions unless asked otherwise.
    pub reps: usize,
    /// Runs, runnext first.
    pub runs: Vec<Run>,
    /// Figures.
    pub metrics: Vec<Metric>,
}

impl Case {
    fn new(part: u32, id: &'static str, scenario: &'static str, title: &'static str) -> Case {
        let runs = vec![Run {
            program: "runnext",
            label: "runnext",
            args: &[],
        }];
        Case {
            id,
            scenario,
            part,
            title,
            args: &[],
            quick: &[],
            reps: 5,
            runs,
            metrics: Vec::new(),
        }
    }

    fn args(mut self, args: &'static [&'static str], quick: &'static [&'static str]) -> Case {
        (self.args, self.quick) = (args, quick);
        self
    }

    fn reps(mut self, reps: usize) -> Case {
        self.reps = reps;
        self
    }

    /// On these programs as they are.
    fn on(mut self, programs: &[&'static str]) -> Case {
        self.runs.extend(programs.iter().map(|&program| Run {
            program,
            label: program,
            args: &[],
        }));
        self
    }

    /// On one program with arguments of its own, under another name.
    fn with(
        mut self,
        program: &'static str,
        label: &'static str,
        args: &'static [&'static str],
    ) -> Case {
        self.runs.push(Run {
            program,
            label,
            args,
        });
        self
    }

    fn low(self, key: &'static str, unit: &'static str, bar: impl Into<Option<Bar>>) -> Case {
        self.metric(key, unit, Better::Lower, bar.into())
    }

    fn high(self, key: &'static str, unit: &'static str, bar: impl Into<Option<Bar>>) -> Case {
        self.metric(key, unit, Better::Higher, bar.into())
    }

    fn metric(
        mut self,
        key: &'static str,
        unit: &'static str,
        better: Better,
        bar: Option<Bar>,
    ) -> Case {
        self.metrics.push(Metric {
            key,
            unit,
            better,
            bar,
        });
        self
    }
}

/// All cases in the order they run.
pub fn all() -> Vec<Case> {
    [
        scheduler(),
        bystanders(),
        stalls(),
        mixed_load(),
        channels(),
        locks_and_timers(),
    ]
    .concat()
}

fn scheduler() -> Vec<Case> {
    vec![
        Case::new(1, "yield-2", "yield", "yield, 2 tasks, P=1")
            .args(
                &["procs=1", "tasks=2", "yields=3000000"],
                &["yields=300000"],
            )
            .on(&["go", "tokio"])
            .with("tokio", "tokio self-wake", &["variant=selfwake"])
            .on(&["smol", "may"])
            .with("threads", "threads", &["yields=100000"])
            .low("ns_per_switch", "ns", Bar::Best(0.5)),
        Case::new(1, "yield-1000", "yield", "yield, 1000 tasks, P=1")
            .args(&["procs=1", "tasks=1000", "yields=6000"], &["yields=600"])
            .on(&["go", "tokio"])
            .with("tokio", "tokio self-wake", &["variant=selfwake"])
            .on(&["smol", "may"])
            .with("threads", "threads", &["yields=200"])
            .low("ns_per_switch", "ns", Bar::Best(0.5)),
        Case::new(1, "spawn", "spawn", "spawn + join, batches of 1000, P=2")
            .args(&["procs=2", "n=1000000"], &["n=100000"])
            .on(&["go", "tokio", "smol", "may"])
            .with("threads", "threads", &["n=20000"])
            .low("ns_per_task", "ns", Bar::Best(0.6)),
        Case::new(
            1,
            "skynet-join",
            "skynet",
            "skynet over join handles (Go: channels), P=2",
        )
        .args(
            &["procs=2", "leaves=1000000", "variant=join"],
            &["leaves=100000"],
        )
        .reps(3)
        .on(&["go", "tokio", "smol"])
        .low("ms", "ms", Bar::Best(0.7)),
        Case::new(1, "skynet-chan", "skynet", "skynet over channels, P=2")
            .args(
                &["procs=2", "leaves=1000000", "variant=chan"],
                &["leaves=100000"],
            )
            .reps(3)
            .on(&["go", "tokio", "smol"])
            .low("ms", "ms", Bar::Best(0.7)),
        Case::new(1, "memory-100k", "memory", "100k parked tasks, P=2")
            .args(&["procs=2", "n=100000"], &[])
            .reps(3)
            .on(&["go", "tokio", "smol"])
            .with("may", "may, 10k", &["n=10000"])
            .with("threads", "threads, 10k", &["n=10000"])
            .low("bytes_per_task", "B", None)
            .low("park_ms", "ms", None)
            .low("wake_ms", "ms", None),
        Case::new(1, "memory-1m", "memory", "1M parked tasks, P=2")
            .args(&["procs=2", "n=1000000"], &["n=300000"])
            .reps(3)
            .on(&["go", "tokio", "smol"])
            .low("bytes_per_task", "B", Bar::Value(4_800.0))
            .low("park_ms", "ms", Bar::Go(1.0))
            .low("wake_ms", "ms", None),
    ]
}

fn bystanders() -> Vec<Case> {
    let latency = |id, title, args| {
        Case::new(1, id, "yieldlat", title)
            .args(args, &["seconds=1"])
            .reps(3)
            .on(&["go", "tokio", "may"])
    };
    vec![
        Case::new(
            1,
            "wakeup-spawn",
            "wakeup",
            "idle P takes a new task while its spawner computes, P=2",
        )
        .args(&["procs=2", "via=spawn"], &["samples=200"])
        .on(&["go", "tokio", "may", "threads"])
        .low("us_p50", "µs", None)
        .low("us_p99", "µs", None),
        Case::new(
            1,
            "wakeup-wake",
            "wakeup",
            "idle P takes a woken task while its waker computes, P=2",
        )
        .args(&["procs=2", "via=wake"], &["samples=200"])
        .on(&["go", "tokio", "may", "threads"])
        .low("us_p50", "µs", None)
        .low("us_p99", "µs", None),
        latency(
            "yieldlat-1",
            "yield beside 1 ping-pong pair (channels), P=1",
            &["procs=1", "pairs=1"],
        )
        .low("ms_p50", "ms", Bar::Value(5.0))
        .low("ms_p99", "ms", None)
        .high("turns_per_s", "/s", None),
        latency(
            "yieldlat-3",
            "yield beside 3 ping-pong pairs (channels), P=1",
            &["procs=1", "pairs=3"],
        )
        .low("ms_p50", "ms", Bar::Value(5.0))
        .low("ms_p99", "ms", None)
        .high("turns_per_s", "/s", None),
        latency(
            "yieldlat-join",
            "yield beside 3 spawn + join loops, P=1",
            &["procs=1", "pairs=3", "via=join"],
        )
        .low("ms_p50", "ms", Bar::Value(5.0))
        .low("ms_p99", "ms", None)
        .high("turns_per_s", "/s", None),
        latency(
            "yieldlat-chains",
            "yield beside 2 self-respawning chains, P=1",
            &["procs=1", "chains=2"],
        )
        .low("ms_p50", "ms", None)
        .low("ms_p99", "ms", Bar::Value(20.0))
        .high("turns_per_s", "/s", None),
        Case::new(1, "idle", "idle", "an idle process, P=2")
            .args(&["procs=2"], &["seconds=2"])
            .reps(3)
            .on(&["go", "tokio", "may"])
            .low("switches_per_s", "/s", Bar::Value(20.0))
            .low("cpu_pct", "%", Bar::Value(0.2)),
    ]
}

fn stalls() -> Vec<Case> {
    let gap = |id, title, args| {
        Case::new(2, id, "gap", title)
            .args(args, &["tries=20"])
            .reps(3)
            .on(&["go", "tokio", "threads"])
            .low("gap_ms_p50", "ms", None)
            .low("gap_ms_p99", "ms", Bar::Value(3.0))
    };
    vec![
        Case::new(
            2,
            "preempt-1",
            "preempt",
            "1 ms tick beside 1 tight loop, P=1",
        )
        .args(&["procs=1", "hogs=1"], &["seconds=1"])
        .reps(3)
        .on(&["go", "tokio", "may", "threads"])
        .low("late_ms_p50", "ms", Bar::Go(0.05))
        .low("late_ms_p99", "ms", Bar::Go(0.1))
        .low("late_ms_max", "ms", None),
        Case::new(
            2,
            "preempt-200",
            "preempt",
            "1 ms tick beside 200 tight loops, P=1",
        )
        .args(&["procs=1", "hogs=200", "seconds=6"], &["seconds=3"])
        .reps(3)
        .on(&["go", "threads"])
        .low("late_ms_p50", "ms", Bar::Own("preempt-1", 2.0))
        .low("late_ms_p99", "ms", Bar::Own("preempt-1", 2.0))
        .low("late_ms_max", "ms", None),
        Case::new(
            2,
            "blocking",
            "blocking",
            "1 ms tick beside 8 × 100 ms of std sleep, P=2",
        )
        .args(&["procs=2"], &["seconds=1"])
        .reps(3)
        .on(&["go", "tokio"])
        .with("tokio", "tokio spawn_blocking", &["variant=spawn_blocking"])
        .on(&["may", "threads"])
        .low("late_ms_p50", "ms", None)
        .low("late_ms_p99", "ms", None),
        gap(
            "gap-sleep",
            "a yielder's longest gap beside a std sleep, P=1",
            &["procs=1", "kind=sleep"],
        ),
        gap(
            "gap-usleep",
            "a yielder's longest gap beside C's usleep, P=1",
            &["procs=1", "kind=usleep"],
        ),
        gap(
            "gap-pipe",
            "a yielder's longest gap beside a pipe read, P=1",
            &["procs=1", "kind=pipe"],
        ),
        gap(
            "gap-mutex",
            "a yielder's longest gap beside a std Mutex, P=1",
            &["procs=1", "kind=mutex"],
        ),
        Case::new(
            2,
            "lost",
            "lost",
            "throughput lost to 10 ms slices, and to a 1 kHz tick, P=2",
        )
        .args(&["procs=2"], &["ms=300"])
        .reps(3)
        .on(&["go", "threads"])
        .low("slices_pct", "%", Bar::Value(1.0))
        .low("ticks_pct", "%", Bar::Value(6.0)),
        Case::new(
            2,
            "syscall",
            "syscall",
            "what a marked blocking call adds to getppid, P=2",
        )
        .args(&["procs=2"], &[])
        .with("go", "go", &["n=1000000"])
        .with("tokio", "tokio block_in_place", &["n=5000"])
        .low("overhead_ns", "ns", Bar::Go(1.0)),
        Case::new(
            2,
            "checkpoint",
            "checkpoint",
            "what checkpoint() adds to a loop of 20 ns, P=1",
        )
        .args(&["procs=1"], &[])
        .low("cost_ns", "ns", Bar::Value(1.0)),
    ]
}

fn mixed_load() -> Vec<Case> {
    let tail = |id, title, args| {
        Case::new(2, id, "tail", title)
            .args(args, &["seconds=4"])
            .reps(3)
            .on(&["go", "tokio"])
            .with("tokio", "tokio spawn_blocking", &["variant=spawn_blocking"])
            .on(&["may", "threads"])
            .low("light_ms_p50", "ms", Bar::Best(1.0))
            .low("light_ms_p90", "ms", None)
            .low("light_ms_p99", "ms", Bar::Best(0.35))
            .low("light_ms_p999", "ms", None)
            .low("light_ms_max", "ms", None)
            .low("unanswered", "requests", None)
            .high("heavy_per_s", "/s", Bar::Best(0.97))
            .high("client_min", "requests", None)
            .high("client_max", "requests", None)
    };
    vec![
        tail(
            "tail-think1",
            "mixed load, heavy clients think 1 ms, P=2",
            &["procs=2", "think_us=1000", "seconds=15"],
        ),
        tail(
            "tail-think0",
            "mixed load, heavy clients never think, P=2",
            &["procs=2", "think_us=0", "seconds=15"],
        ),
    ]
}

fn channels() -> Vec<Case> {
    let ping = |id, title, args| {
        Case::new(3, id, "pingpong", title)
            .args(args, &["n=100000"])
            .on(&["go", "tokio", "smol", "may"])
            .with("threads", "threads", &["n=20000"])
    };
    vec![
        ping("pingpong-1", "channel round trip, P=1", &["procs=1"]).low(
            "ns_per_round_trip",
            "ns",
            Bar::Best(0.5),
        ),
        ping("pingpong-2", "channel round trip, P=2", &["procs=2"]).low(
            "ns_per_round_trip",
            "ns",
            Bar::Best(0.8),
        ),
        Case::new(
            3,
            "fanin",
            "fanin",
            "8 producers to 1 consumer, capacity 128, P=2",
        )
        .args(&["procs=2"], &["n=400000"])
        .on(&["go", "tokio", "smol", "may", "threads"])
        .high("m_msgs_per_s", "M msgs/s", Bar::Best(1.3)),
        Case::new(
            3,
            "chanself",
            "chanself",
            "buffered send + receive in one task, P=1",
        )
        .args(&["procs=1"], &["n=1000000"])
        .on(&["go", "tokio", "smol", "may"])
        .low("ns_per_pair", "ns", Bar::Go(0.7)),
        Case::new(
            3,
            "select2",
            "select2",
            "select of 2 empty channels with default, P=1",
        )
        .args(&["procs=1"], &["n=1000000"])
        .on(&["go"])
        .low("ns_per_select", "ns", Bar::Go(0.8)),
        Case::new(3, "select4", "select4", "blocked select of 4 channels, P=1")
            .args(&["procs=1"], &["n=100000"])
            .on(&["go"])
            .low("ns_per_select", "ns", Bar::Go(0.8)),
    ]
}

fn locks_and_timers() -> Vec<Case> {
    vec![
        Case::new(3, "mutex-1", "mutex", "uncontended lock + unlock, P=1")
            .args(&["procs=1", "tasks=1"], &["n=2000000"])
            .on(&["go", "tokio", "may", "threads"])
            .low("ns_per_op", "ns", None)
            .low("over_std_ns", "ns", Bar::Value(5.0)),
        Case::new(3, "mutex-8", "mutex", "8 tasks contend for a lock, P=2")
            .args(&["procs=2", "tasks=8"], &["n=2000000"])
            .on(&["go", "tokio"])
            .with("tokio", "tokio, std lock", &["variant=std"])
            .on(&["may", "threads"])
            .low("ns_per_op", "ns", Bar::Go(1.0)),
        Case::new(
            3,
            "sweep",
            "sweep",
            "lock throughput with 1 to 64 contenders, P=2",
        )
        .args(&["procs=2"], &["n=500000"])
        .reps(3)
        .on(&["go", "tokio", "may", "threads"])
        .high("lowest_pct_of_peak", "%", Bar::Value(50.0)),
        Case::new(
            3,
            "fairness",
            "fairness",
            "wait for a lock that a hog holds for 100 µs at a time, P=2",
        )
        .args(&["procs=2"], &["n=100"])
        .reps(3)
        .on(&["go", "tokio", "may", "threads"])
        .low("us_p50", "µs", None)
        .low("us_p99", "µs", Bar::Go(1.0))
        .low("us_max", "µs", None),
        Case::new(
            3,
            "rwfair",
            "rwfair",
            "a writer beside a flood of readers, P=2",
        )
        .args(&["procs=2"], &["n=100"])
        .reps(3)
        .on(&["go", "tokio"])
        .low("phases_p99", "phases", Bar::Value(2.0))
        .low("phases_p50", "phases", None),
        Case::new(
            3,
            "timers",
            "timers",
            "100k tasks sleep 10 times 1 to 50 ms, P=2",
        )
        .args(&["procs=2", "n=100000"], &["n=20000"])
        .reps(3)
        .on(&["go", "tokio", "smol"])
        .low("total_ms", "ms", Bar::Best(1.0))
        .low("late_ms_p50", "ms", None)
        .low("late_ms_p99", "ms", Bar::Best(1.0))
        .low("late_ms_max", "ms", None),
        Case::new(
            3,
            "idlesleep",
            "idlesleep",
            "sleep(100 µs) with nothing else to do, P=2",
        )
        .args(&["procs=2"], &["n=500"])
        .reps(3)
        .on(&["go", "tokio", "smol", "may", "threads"])
        .low("us_p50", "µs", Bar::Go(0.3))
        .low("us_p99", "µs", None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_bars_refer_to_existing_cases() {
        let cases = all();
        let ids: BTreeSet<_> = cases.iter().map(|case| case.id).collect();
        assert_eq!(ids.len(), cases.len());
        for case in &cases {
            let labels: BTreeSet<_> = case.runs.iter().map(|run| run.label).collect();
            assert_eq!(labels.len(), case.runs.len(), "{}", case.id);
            for metric in &case.metrics {
                if let Some(Bar::Own(other, _)) = metric.bar {
                    assert!(ids.contains(other), "{}", case.id);
                }
            }
        }
    }
}
