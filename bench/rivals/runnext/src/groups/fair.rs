//! Shares: experiments 3 and 4, and what Low groups keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use harness::{Args, Report, stir};
use runnext::time::sleep;
use runnext::{Priority, Runtime, TaskGroup};

use super::{CHECK, Hogs, Meter, seconds};

/// Jain's index of what each got of what it should have.
fn jain(parts: &[f64]) -> f64 {
    let (sum, squares) = parts
        .iter()
        .fold((0.0, 0.0), |(s, q), y| (s + y, q + y * y));
    sum * sum / (parts.len() as f64 * squares)
}

/// Weights 1:2:4:8 with 1000, 64, 8 and P goroutines; then one weight changes.
pub fn weights(args: &Args, rt: &Runtime) {
    let steps = if args.get("checkpoints", true) {
        CHECK
    } else {
        0
    };
    let weights = [100, 200, 400, 800];
    let sizes = [args.get("many", 1000), 64, 8, args.procs()];
    let groups: Vec<TaskGroup> = weights
        .iter()
        .map(|&w| TaskGroup::builder(&format!("weight {w}")).weight(w).build())
        .collect();
    let (used, wall, felt) = rt.run(|| {
        let mut hogs = Hogs::new();
        for (group, n) in groups.iter().zip(sizes) {
            hogs.add(group, n, steps);
        }
        sleep(Duration::from_millis(300));
        let meter = Meter::start(&groups);
        sleep(seconds(args, 5.0));
        let (used, wall) = (meter.used(), meter.wall());
        // On a plain thread: a goroutine would wait for its own turn.
        let felt = runnext::blocking(|| {
            std::thread::scope(|s| s.spawn(|| change(&groups)).join().expect("no panic"))
        });
        hogs.stop();
        (used, wall, felt)
    });
    let all: f64 = used.iter().sum();
    let due = |w: u32| f64::from(w) / 1500.0;
    let got: Vec<f64> = used
        .iter()
        .zip(weights)
        .map(|(used, w)| used / all / due(w))
        .collect();
    let worst = got.iter().map(|x| (x - 1.0).abs()).fold(0.0, f64::max);
    Report::new("group-weights")
        .put("error_percent", worst * 100.0)
        .put("jain", jain(&got))
        .put("felt_ms", felt)
        .put("busy_percent", 100.0 * all / wall / args.procs() as f64)
        .print();
}

/// The first group's weight becomes the largest: when does it use half as much as that is worth, over 10 ms?
fn change(groups: &[TaskGroup]) -> f64 {
    let step = Duration::from_millis(10);
    groups[0].set_weight(8000);
    let begin = Instant::now();
    for _ in 0..100 {
        let before: Vec<Duration> = groups.iter().map(|g| g.stats().cpu_time).collect();
        std::thread::sleep(step);
        let used: Vec<f64> = groups
            .iter()
            .zip(before)
            .map(|(g, before)| g.stats().cpu_time.saturating_sub(before).as_secs_f64())
            .collect();
        if used[0] > 0.5 * used.iter().sum::<f64>() {
            break;
        }
    }
    begin.elapsed().as_secs_f64() * 1e3
}

/// An honest hog group beside one that cheats; what the cheat gains over half of the machine.
pub fn cheats(args: &Args, rt: &Runtime) {
    let how = args.text("how", "sleep").to_owned();
    let groups = [TaskGroup::new("honest"), TaskGroup::new("cheat")];
    let stop = Arc::new(AtomicBool::new(false));
    let (used, wall) = rt.run(|| {
        let mut hogs = Hogs::new();
        let n = args.procs();
        hogs.add(&groups[0], n, CHECK);
        let cheats: Vec<_> = (0..n)
            .map(|_| {
                let (stop, how) = (stop.clone(), how.clone());
                groups[1].go(move || cheat(&how, &stop))
            })
            .collect();
        sleep(Duration::from_millis(300));
        let meter = Meter::start(&groups);
        sleep(seconds(args, 3.0));
        let used = (meter.used(), meter.wall());
        stop.store(true, Relaxed);
        for cheat in cheats {
            cheat.join().expect("no panic");
        }
        hogs.stop();
        used
    });
    let part = used[1] / (used[0] + used[1]);
    Report::new("group-cheats")
        .put("gain_percent", (part / 0.5 - 1.0) * 100.0)
        .put("part_percent", part * 100.0)
        .put(
            "busy_percent",
            100.0 * (used[0] + used[1]) / wall / args.procs() as f64,
        )
        .print();
}

fn cheat(how: &str, stop: &AtomicBool) {
    let mut x = 1;
    let total = AtomicU64::new(0);
    while !stop.load(Relaxed) {
        match how {
            // Almost a slice, then a moment of sleep.
            "sleep" => {
                let end = Instant::now() + Duration::from_micros(1_800);
                while Instant::now() < end {
                    x = stir(x, 500);
                    runnext::checkpoint();
                }
                sleep(Duration::from_micros(10));
            }
            "yield" => {
                x = stir(x, 50);
                runnext::yield_now();
            }
            "spawn" => {
                let all: Vec<_> = (0..64).map(|_| runnext::go(|| stir(1, 5_000))).collect();
                for one in all {
                    total.fetch_add(one.join().expect("no panic"), Relaxed);
                }
            }
            _ => harness::unsupported("group-cheats"),
        }
    }
    std::hint::black_box(x);
}

/// A Low group beside Normal hogs; then beside a group that leaves a part.
pub fn floor(args: &Args, rt: &Runtime) {
    let low = TaskGroup::builder("low").priority(Priority::Low).build();
    let groups = [TaskGroup::new("normal"), low];
    let quota = args.get("quota", 0.0);
    if quota > 0.0 {
        groups[0].set_quota(Some(quota));
    }
    let (used, wall) = rt.run(|| {
        let mut hogs = Hogs::new();
        for group in &groups {
            hogs.add(group, 2 * args.procs(), CHECK);
        }
        sleep(Duration::from_millis(300));
        let meter = Meter::start(&groups);
        sleep(seconds(args, 3.0));
        let result = (meter.used(), meter.wall());
        hogs.stop();
        result
    });
    let all = wall * args.procs() as f64;
    Report::new("group-floor")
        .put("low_percent", 100.0 * used[1] / all)
        .put("left_percent", 100.0 * used[1] / (all - used[0]))
        .put("busy_percent", 100.0 * (used[0] + used[1]) / all)
        .print();
}
