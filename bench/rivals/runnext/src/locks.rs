//! Locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Phases, Report, Rng, spin_for};
use runnext::sync::{Mutex, RwLock};
use runnext::time::sleep;
use runnext::{Runtime, go};

/// Any scenario of this file.
pub fn run(args: &Args, rt: &Runtime) {
    match args.scenario.as_str() {
        "mutex" => mutex(args, rt),
        "sweep" => harness::sweep(args, |tasks, n| rt.run(|| contend(tasks, n))),
        "fairness" => fairness(args, rt),
        "rwfair" => rw_fairness(args, rt),
        other => harness::unsupported(other),
    }
}

/// Nanoseconds per lock + add + unlock with `tasks` goroutines that do nothing else.
fn contend(tasks: usize, n: usize) -> f64 {
    let lock = Arc::new(Mutex::new(0_u64));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = lock.clone();
            go(move || {
                for _ in 0..n / tasks {
                    *lock.lock() += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().expect("no panic");
    }
    begin.elapsed().as_nanos() as f64 / n as f64
}

/// The same with std's lock and one goroutine: the floor of the uncontended case.
fn std_alone(n: usize) -> f64 {
    let lock = Arc::new(std::sync::Mutex::new(0_u64));
    let begin = Instant::now();
    let task = go(move || {
        for _ in 0..n {
            *lock.lock().expect("no panic") += 1;
        }
    });
    task.join().expect("no panic");
    begin.elapsed().as_nanos() as f64 / n as f64
}

fn mutex(args: &Args, rt: &Runtime) {
    let (tasks, n) = (args.get("tasks", 8), args.get("n", 10_000_000));
    let mut report = Report::new("mutex");
    rt.run(|| contend(tasks, n / 10));
    let ns = rt.run(|| contend(tasks, n));
    if tasks == 1 {
        report = report.put("over_std_ns", ns - rt.run(|| std_alone(n)));
    }
    report.put("ns_per_op", ns).print();
}

fn fairness(args: &Args, rt: &Runtime) {
    let hold = Duration::from_micros(args.get("hold_us", 100));
    rt.run(|| {
        let lock = Arc::new(Mutex::new(()));
        let over = Arc::new(AtomicBool::new(false));
        let (held, stop) = (lock.clone(), over.clone());
        go(move || {
            while !stop.load(Ordering::Relaxed) {
                let _held = held.lock();
                spin_for(hold);
            }
        });
        let limit = Instant::now() + Duration::from_secs(5);
        let mut waits = Vec::new();
        while waits.len() < args.get("n", 500) && Instant::now() < limit {
            sleep(Duration::from_millis(1));
            let begin = Instant::now();
            drop(lock.lock());
            waits.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        over.store(true, Ordering::Relaxed);
        Report::new("fairness")
            .percentiles("us_", &mut waits)
            .print();
    });
}

/// A writer beside a flood of readers, in units of one reader's phase as it really was.
fn rw_fairness(args: &Args, rt: &Runtime) {
    let hold = Duration::from_micros(args.get("hold_us", 2_000));
    let readers = args.get("readers", 4);
    rt.run(|| {
        let lock = Arc::new(RwLock::new(()));
        let phases = Arc::new(Phases::default());
        for seed in 0..readers {
            let (lock, phases) = (lock.clone(), phases.clone());
            go(move || {
                sleep(hold * seed / readers);
                loop {
                    let _held = lock.read();
                    let begin = Instant::now();
                    sleep(hold);
                    phases.add(begin.elapsed());
                }
            });
        }
        let mut dice = Rng::new(1);
        for _ in 0..args.get("n", 300) {
            sleep(dice.sleep() / 5);
            let begin = Instant::now();
            drop(lock.write());
            phases.waited(begin.elapsed());
        }
        phases.report().print_and_exit()
    })
}
