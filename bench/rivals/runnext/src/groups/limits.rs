//! Limits: experiment 5, and the governor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use harness::{Args, Report, now_ns, stir, work};
use runnext::time::sleep;
use runnext::{CpuLimit, Runtime, TaskGroup};

use super::latency::{cost, foreground};
use super::{CHECK, Hogs, Meter, on_a_thread, seconds};

/// A group with the quota, in cores, and the burst, in ms, that are asked for.
struct Limited {
    group: TaskGroup,
    cores: f64,
    /// All it can have saved up, in ms: the burst, or 1 ms for each P, and what flows in during 10 ms.
    bucket: f64,
}

impl Limited {
    fn new(args: &Args) -> Limited {
        let (cores, burst) = (args.get("quota", 0.5), args.get("burst", 0));
        let group = TaskGroup::builder("limited")
            .quota(cores)
            .burst(Duration::from_millis(burst));
        Limited {
            group: group.build(),
            cores,
            bucket: burst.max(args.procs() as u64) as f64 + cores * 10.0,
        }
    }

    /// Looks every 10 ms, from a plain thread: by how many ms did it use more, in any one or more of these windows in a row, than
    /// what flowed in and what it can have saved up? Negative: it never did.
    fn excess_ms(&self, window: Duration) -> f64 {
        on_a_thread(|| {
            let begin = now_ns();
            let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
            while now_ns() - begin < window.as_nanos() as u64 {
                let used = self.group.stats().cpu_time.as_secs_f64() * 1e3;
                let ahead = used - self.cores * (now_ns() - begin) as f64 / 1e6;
                least = ahead.min(least);
                most = most.max(ahead - least);
                std::thread::sleep(Duration::from_millis(10));
            }
            most - self.bucket
        })
    }
}

/// Hogs under a quota: what they use, and the longest pause any of them sees.
pub fn quota(args: &Args, rt: &Runtime) {
    let limited = Limited::new(args);
    let cores = limited.cores;
    let steps = if args.get("checkpoints", true) {
        CHECK
    } else {
        0
    };
    let groups = [limited.group.clone()];
    let longest = Arc::new(AtomicU64::new(0));
    let (used, wall, excess) = rt.run(|| {
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
        let excess = limited.excess_ms(seconds(args, 5.0));
        let result = (meter.used(), meter.wall(), excess);
        hogs.stop();
        result
    });
    let got = used[0] / wall;
    Report::new("group-quota")
        .put("cores", got)
        .put("error_percent", 100.0 * (got / cores - 1.0).abs())
        .put("excess_ms", excess)
        .put("pause_ms", longest.load(Relaxed) as f64 / 1e6)
        .put("throttled", groups[0].stats().throttled_count as f64)
        .print();
}

/// Ten times a second one goroutine has 80 % of the quota to use at once: how long does that take?
pub fn bursty(args: &Args, rt: &Runtime) {
    let limited = Limited::new(args);
    let window = seconds(args, 5.0);
    let steps = (0.8 * limited.cores * 100e6 / args.get("step_ns", 1.9)) as u64;
    let (mut took, excess) = rt.run(|| {
        let bursts = limited.group.go(move || {
            let (mut took, begin) = (Vec::new(), now_ns());
            for i in 0..window.as_millis() as u64 / 100 {
                let due = begin + i * 100_000_000;
                sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
                for _ in 0..steps / CHECK {
                    work(CHECK);
                    runnext::checkpoint();
                }
                took.push((now_ns() - due) as f64 / 1e6);
            }
            took
        });
        let excess = limited.excess_ms(window);
        (bursts.join().expect("no panic"), excess)
    });
    Report::new("group-bursty")
        .percentiles("burst_ms_", &mut took)
        .put("excess_ms", excess)
        .put("throttled", limited.group.stats().throttled_count as f64)
        .print();
}

/// Requests at random times that need 80 % of the quota: how long does each take?
pub fn server(args: &Args, rt: &Runtime) {
    let limited = Limited::new(args);
    let window = seconds(args, 5.0);
    let groups = [limited.group.clone()];
    let (mut took, excess, used, wall) = rt.run(|| {
        let meter = Meter::start(&groups);
        let (group, load) = (groups[0].clone(), 0.8 * limited.cores);
        let requests = runnext::go(move || foreground(&group, load, cost(), window));
        let excess = limited.excess_ms(window);
        let took = requests.join().expect("no panic");
        (took, excess, meter.used(), meter.wall())
    });
    Report::new("group-server")
        .percentiles("request_ms_", &mut took)
        .put("excess_ms", excess)
        .put("of_quota_percent", 100.0 * used[0] / wall / limited.cores)
        .put("throttled", limited.group.stats().throttled_count as f64)
        .print();
}

/// The governor: governed groups beside light work under `CpuLimit::Fraction`.
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
        .put("error_percent", 100.0 * (all / due - 1.0).abs())
        .put("most_over_least", most / least)
        .print();
}
