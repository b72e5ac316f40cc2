//! Code that does not cooperate: experiment 7.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use harness::{Args, Report, now_ns, work};
use runnext::{JoinHandle, Runtime, TaskGroup};

use super::latency::by_timer;
use super::seconds;

/// Loops of 500 ms without a checkpoint, one per P and again and again, in one group; one in another wants to run every millisecond.
pub fn loops(args: &Args, rt: &Runtime) {
    let (stubborn, other) = (TaskGroup::new("stubborn"), TaskGroup::new("other"));
    let window = seconds(args, 5.0);
    let steps = (500e6 / args.get("step_ns", 1.9)) as u64;
    rt.run(|| {
        for _ in 0..args.procs() {
            stubborn.go(move || {
                loop {
                    work(steps);
                }
            });
        }
        let mut late = other.go(move || by_timer(window)).join().expect("no panic");
        Report::new("group-stubborn")
            .percentiles("late_ms_", &mut late)
            .put("preempted", stubborn.stats().preemptions as f64)
            .print_and_exit()
    })
}

/// The "man or boy" test of worker pools: every millisecond comes a job that panics, sleeps or blocks, 100 for each P in all; right behind it
/// comes one that should start at once.
pub fn pool(args: &Args, rt: &Runtime) {
    // Panics are expected here: nobody wants to read of them.
    std::panic::set_hook(Box::new(|_| ()));
    let before = threads();
    let (release, never) = mpsc::channel::<()>();
    // One receiver: one job waits in it, the others for the lock around it.
    let never = Arc::new(Mutex::new(never));
    let how = args.text("how", "panic");
    let mut jobs: Vec<JoinHandle<()>> = Vec::new();
    let mut next: Vec<JoinHandle<f64>> = Vec::new();
    for _ in 0..100 * args.procs() {
        let never = never.clone();
        jobs.push(match how {
            "panic" => rt.go(|| panic!("as asked")),
            "sleep" => rt.go(|| thread::sleep(Duration::from_secs(1))),
            "block" => rt.go(move || assert!(never.lock().expect("no panic").recv().is_err())),
            _ => harness::unsupported("group-pool"),
        });
        let handed_in = now_ns();
        next.push(rt.go(move || (now_ns() - handed_in) as f64 / 1e6));
        thread::sleep(Duration::from_millis(1));
    }
    let most = threads();
    let mut started: Vec<f64> = (next.into_iter())
        .map(|job| job.join().expect("no panic"))
        .collect();
    drop(release);
    for job in jobs {
        let _ = job.join(); // some were to panic
    }
    thread::sleep(Duration::from_secs(1));
    Report::new("group-pool")
        .percentiles("start_ms_", &mut started)
        .put("threads_before", before as f64)
        .put("threads_most", most as f64)
        .put("threads_later", threads() as f64)
        .print();
}

/// Of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc").count()
}
