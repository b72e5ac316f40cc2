//! Yield, spawn, skynet, memory, wake-up, yield latency, idleness: what needs nothing but goroutines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report, now_ns};
use runnext::time::sleep;
use runnext::{Runtime, blocking, go};

pub fn yield_now(args: &Args, rt: &Runtime) {
    let (tasks, yields) = (
        args.get("tasks", 2_usize),
        args.get("yields", 5_000_000_usize),
    );
    let round = |yields: usize| {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                go(move || {
                    for _ in 0..yields {
                        runnext::yield_now();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().expect("no panic");
        }
        begin.elapsed()
    };
    let took = rt.run(|| {
        round(yields / 10);
        round(yields)
    });
    let ns = took.as_nanos() as f64 / (tasks * yields) as f64;
    Report::new("yield").put("ns_per_switch", ns).print();
}

pub fn spawn(args: &Args, rt: &Runtime) {
    let (n, batch) = (
        args.get("n", 1_000_000_usize),
        args.get("batch", 1_000_usize),
    );
    let round = |n: usize| {
        let mut handles = Vec::with_capacity(batch);
        for _ in 0..n / batch {
            handles.extend((0..batch).map(|i| go(move || i)));
            for handle in handles.drain(..) {
                handle.join().expect("no panic");
            }
        }
    };
    let took = rt.run(|| {
        round(n / 10);
        let begin = Instant::now();
        round(n);
        begin.elapsed()
    });
    Report::new("spawn")
        .put("ns_per_task", took.as_nanos() as f64 / n as f64)
        .print();
}

fn leaf(number: u64, size: u64) -> u64 {
    if size == 1 {
        return number;
    }
    let size = size / 10;
    let children: [_; 10] =
        std::array::from_fn(|i| go(move || leaf(number + i as u64 * size, size)));
    children
        .into_iter()
        .map(|child| child.join().expect("no panic"))
        .sum()
}

pub fn skynet(args: &Args, rt: &Runtime) {
    let leaves = args.get("leaves", 1_000_000_u64);
    let round = || assert_eq!(leaf(0, leaves), leaves * (leaves - 1) / 2);
    let took = rt.run(|| {
        round();
        let begin = Instant::now();
        round();
        begin.elapsed()
    });
    Report::new("skynet")
        .put("ms", took.as_secs_f64() * 1e3)
        .print();
}

/// Goroutines that own nothing but their stack: each waits in `join` for the one before it, and the first for a
/// plain channel of std. (`via=chan` gives each a channel of its own to wait on.)
pub fn memory(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    rt.run(|| {
        let mut parking = Parking::before(n);
        let parked = Arc::new(AtomicUsize::new(0));
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let mut last = go(move || blocking(|| gate.recv().expect("the sender lives")));
        for _ in 0..n {
            let parked = parked.clone();
            last = go(move || {
                parked.fetch_add(1, Ordering::Relaxed);
                last.join().expect("no panic");
            });
        }
        while parked.load(Ordering::Relaxed) < n {
            sleep(Duration::from_micros(100));
        }
        parking.parked();
        sleep(Duration::from_millis(200));
        parking.settled();
        release.send(()).expect("the gate waits");
        last.join().expect("no panic");
        parking.woken();
    });
}

pub fn wakeup(args: &Args, rt: &Runtime) {
    rt.run(|| {
        let ran = Arc::new(AtomicU64::new(0));
        let spawn = || {
            let at = ran.clone();
            go(move || at.store(now_ns(), Ordering::Release));
        };
        harness::wakeups(args, &ran, spawn, runnext::yield_now);
    });
}

fn chain(turns: Arc<AtomicU64>) {
    turns.fetch_add(1, Ordering::Relaxed);
    go(move || chain(turns));
}

pub fn yield_latency(args: &Args, rt: &Runtime) {
    let turns = Arc::new(AtomicU64::new(0));
    rt.run(|| {
        for _ in 0..args.get("pairs", 0) {
            let turns = turns.clone();
            go(move || {
                loop {
                    go(|| ()).join().expect("no panic");
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..args.get("chains", 0) {
            let turns = turns.clone();
            go(move || chain(turns));
        }
        harness::yields(args, &turns, runnext::yield_now);
    });
}

pub fn idle(args: &Args, rt: &Runtime) {
    rt.run(|| {
        for task in (0..1_000)
            .map(|_| go(runnext::yield_now))
            .collect::<Vec<_>>()
        {
            task.join().expect("no panic");
        }
    });
    harness::idle(args);
}
