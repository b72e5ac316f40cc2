//! Limits: experiment 5, and the governor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use harness::{Args, Report, now_ns, stir};
use runnext::time::sleep;
use runnext::{CpuLimit, Runtime, TaskGroup};

use super::{CHECK, Hogs, Meter, seconds};

/// Hogs under a quota: what they use, and the longest pause any of them sees.
pub fn quota(args: &Args, rt: &Runtime) {
    let cores: f64 = args.get("quota", 0.5);
    let burst = Duration::from_millis(args.get("burst", 0));
    let group = TaskGroup::builder("limited")
        .quota(cores)
        .burst(burst)
        .build();
    let steps = if args.get("checkpoints", true) {
        CHECK
    } else {
        0
    };
    let groups = [group];
    let longest = Arc::new(AtomicU64::new(0));
    let (used, wall) = rt.run(|| {
        let mut hogs = Hogs::new();
        hogs.add(&groups[0], args.get("hogs", 0), steps);
        // One that watches its own pauses.
        let (watched, stop) = (longest.clone(), hogs.stop.clone());
        hogs.all.push(groups[0].go(move || {
            let (mut x, mut last) = (1, now_ns());
            while !stop.load(Relaxed) {
                x = stir(x, 500);
                if steps != 0 {
                    runnext::checkpoint();
                }
                let now = now_ns();
                watched.fetch_max(now - last, Relaxed);
                last = now;
            }
            x
        }));
        for _ in 1..args.procs() {
            hogs.add(&groups[0], 1, steps);
        }
        sleep(Duration::from_millis(500));
        longest.store(0, Relaxed);
        let meter = Meter::start(&groups);
        sleep(seconds(args, 5.0));
        let result = (meter.used(), meter.wall());
        hogs.stop();
        result
    });
    let got = used[0] / wall;
    Report::new("group-quota")
        .put("cores", got)
        .put("error_percent", 100.0 * (got / cores - 1.0))
        .put("pause_ms", longest.load(Relaxed) as f64 / 1e6)
        .put("throttled", groups[0].stats().throttled_count as f64)
        .print();
}

/// The founding idea: governed groups beside light work under `CpuLimit::Fraction`.
pub fn governor(args: &Args) {
    let part: f64 = args.get("part", 0.8);
    // SAFETY: nothing here keeps anything of a thread-local over a call that can park.
    let rt = unsafe {
        Runtime::builder()
            .procs(args.procs())
            .cpu_limit(CpuLimit::Fraction(part))
            .build()
    }
    .expect("build the runtime");
    let groups: Vec<TaskGroup> = (0..args.get("groups", 4))
        .map(|i| {
            TaskGroup::builder(&format!("governed {i}"))
                .governed(true)
                .build()
        })
        .collect();
    let (used, wall) = rt.run(|| {
        let mut hogs = Hogs::new();
        for group in &groups {
            hogs.add(group, args.procs(), CHECK);
        }
        sleep(Duration::from_millis(500));
        let meter = Meter::start(&groups);
        sleep(seconds(args, 5.0));
        let result = (meter.used(), meter.wall());
        hogs.stop();
        result
    });
    let all: f64 = used.iter().sum();
    let due = wall * args.procs() as f64 * part;
    let most = used.iter().copied().fold(0.0, f64::max);
    let least = used.iter().copied().fold(f64::INFINITY, f64::min);
    Report::new("group-governor")
        .put("error_percent", 100.0 * (all / due - 1.0))
        .put("most_over_least", most / least)
        .print();
}
