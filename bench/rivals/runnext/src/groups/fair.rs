//! Shares: experiments 3 and 4, and what Low groups keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use harness::{Args, Report, now_ns, stir, work};
use runnext::time::sleep;
use runnext::{Priority, Runtime, TaskGroup};

use super::{CHECK, Hogs, Meter, on_a_thread, seconds};

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
        let felt = on_a_thread(|| change(&groups));
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
    let turns = Arc::new(AtomicU64::new(0));
    let (used, wall, turned) = rt.run(|| {
        let mut hogs = Hogs::new();
        let n = args.procs();
        hogs.add(&groups[0], n, CHECK);
        let cheats: Vec<_> = (0..n)
            .map(|_| {
                let (stop, how, turns) = (stop.clone(), how.clone(), turns.clone());
                groups[1].go(move || cheat(&how, &stop, &turns))
            })
            .collect();
        sleep(Duration::from_millis(300));
        let (meter, before) = (Meter::start(&groups), turns.load(Relaxed));
        sleep(seconds(args, 3.0));
        let used = (meter.used(), meter.wall(), turns.load(Relaxed) - before);
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
        .put("turns_per_s", turned as f64 / wall)
        .put(
            "busy_percent",
            100.0 * (used[0] + used[1]) / wall / args.procs() as f64,
        )
        .print();
}

fn cheat(how: &str, stop: &AtomicBool, turns: &AtomicU64) {
    let mut x = 1;
    let total = AtomicU64::new(0);
    while !stop.load(Relaxed) {
        turns.fetch_add(1, Relaxed);
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
            // Wakes 10,000 times a second, if it gets its share.
            "wake" => {
                x = stir(x, 2 * CHECK);
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

/// Sleepers that want half a core each, beside hogs: do they get the lesser of what they want and their share, and how soon?
pub fn sleepers(args: &Args, rt: &Runtime) {
    let groups = [TaskGroup::new("hogs"), TaskGroup::new("sleepers")];
    let steps = (PERIOD as f64 / 2.0 / args.get("step_ns", 1.9)) as u64;
    let n: usize = args.get("sleepers", 1);
    let window = seconds(args, 3.0);
    let (turns, used, wall) = rt.run(|| {
        let mut hogs = Hogs::new();
        hogs.add(&groups[0], args.procs(), CHECK);
        sleep(Duration::from_millis(300));
        let meter = Meter::start(&groups);
        let all: Vec<_> = (0..n)
            .map(|_| groups[1].go(move || half_a_core(steps, window)))
            .collect();
        let turns: Vec<_> = all
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect();
        let result = (turns, meter.used(), meter.wall());
        hogs.stop();
        result
    });
    let mut late = turns.concat();
    let done: usize = turns.iter().map(Vec::len).sum();
    // What a turn costs is as measured, so that the speed of the machine is not taken for a debt.
    let due = n as f64 * wall * 1e9 / PERIOD as f64;
    let wanted = used[1] / done as f64 * due;
    let share = (used[0] + used[1]) / 2.0;
    Report::new("group-sleepers")
        .put(
            "error_percent",
            100.0 * (used[1] / wanted.min(share) - 1.0).abs(),
        )
        .put("cores", used[1] / wall)
        .put("wanted_cores", wanted / wall)
        .put("share_cores", share / wall)
        .percentiles("wake_ms_", &mut late)
        .print();
}

/// Of a sleeper, in ns.
const PERIOD: u64 = 2_000_000;

/// Computes every period and sleeps until the next, if it is in time; how late each turn began, in ms.
fn half_a_core(steps: u64, window: Duration) -> Vec<f64> {
    let (mut late, begin) = (Vec::new(), now_ns());
    for turn in 0..window.as_nanos() as u64 / PERIOD {
        let due = begin + turn * PERIOD;
        let now = now_ns();
        if now >= begin + window.as_nanos() as u64 {
            break;
        }
        if now < due {
            sleep(Duration::from_nanos(due - now));
        }
        late.push((now_ns() - due) as f64 / 1e6);
        work(steps);
    }
    late
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
