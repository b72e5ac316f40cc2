//! How much throughput preemption costs: the same work three ways.

use std::time::Duration;

use crate::{Args, Report, percentile};

/// One way to do the work: `hogs` tasks of `steps` steps each, with or without a task that ticks every millisecond.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Tasks that compute without a pause.
    pub hogs: usize,
    /// Steps of each.
    pub steps: u64,
    /// Whether a task sleeps 1 ms at a time beside them.
    pub ticker: bool,
}

/// Runs the work with as many hogs as workers (nothing to preempt for), with four times as many (every slice ends in a
/// preemption), and with a 1 kHz ticker beside the first; reports what the last two took longer, in percent.
pub fn lost(args: &Args, mut run: impl FnMut(Load) -> Duration) {
    let procs = args.procs();
    let steps = (args.get("ms", 1_000.0_f64) * 1e6 / args.get("step_ns", 1.9_f64)) as u64;
    let loads = [
        Load {
            hogs: procs,
            steps,
            ticker: false,
        },
        Load {
            hogs: 4 * procs,
            steps: steps / 4,
            ticker: false,
        },
        Load {
            hogs: procs,
            steps,
            ticker: true,
        },
    ];
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..args.get("rounds", 3) {
        for (load, times) in loads.iter().zip(&mut times) {
            times.push(run(*load).as_secs_f64());
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        percentile(times, 0.5).expect("at least one round")
    };
    let [plain, slices, ticks] = &mut times;
    let plain = median(plain);
    Report::new(&args.scenario)
        .put("slices_pct", (median(slices) / plain - 1.0) * 100.0)
        .put("ticks_pct", (median(ticks) / plain - 1.0) * 100.0)
        .put("plain_ms", plain * 1e3)
        .print_and_exit()
}

/// Throughput of a lock with 1 to 64 contenders (`contend(tasks, operations)` gives nanoseconds per operation): the
/// lowest in percent of the highest, and each.
pub fn sweep(args: &Args, mut contend: impl FnMut(usize, usize) -> f64) {
    let n = args.get("n", 4_000_000);
    let mut report = Report::new(&args.scenario);
    let (mut best, mut worst) = (f64::MAX, 0.0_f64);
    contend(2, n / 4); // Warms up.
    for tasks in [1, 2, 4, 8, 16, 32, 64] {
        let ns = contend(tasks, n);
        (best, worst) = (best.min(ns), worst.max(ns));
        report = report.put(&format!("ns_{tasks}"), ns);
    }
    report
        .put("lowest_pct_of_peak", best / worst * 100.0)
        .print_and_exit()
}
