//! `CpuLimit::Adaptive`: who is made late makes the governed groups give way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use runnext::{CpuLimit, Runtime, TaskGroup, chan};

use crate::common::{built, until_waits};

/// Nothing is preempted, so who computes without a call keeps others waiting for as long as it likes.
fn unpreempted(procs: usize, target_p99: Duration) -> Runtime {
    let limit = CpuLimit::Adaptive { target_p99 };
    let builder = Runtime::builder().preemption(false);
    built(builder.procs(procs).cpu_limit(limit))
}

fn governed() -> TaskGroup {
    TaskGroup::builder("governed").governed(true).build()
}

fn compute(d: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < d {
        std::hint::spin_loop();
    }
}

/// What a governed group had beside a free one.
#[derive(Debug)]
struct Had {
    /// Of what both used.
    part: f64,
    /// CPU time per time.
    rate: f64,
    /// How often it was stopped.
    stops: u64,
}

/// Hogs of both groups, while goroutines of a third are woken all the time, and find all processors taken.
fn beside_late_ones(target_p99: Duration) -> Had {
    let (governed, free, light) = (governed(), TaskGroup::new("free"), TaskGroup::new("light"));
    let stop = Arc::new(AtomicBool::new(false));
    unpreempted(2, target_p99).run(|| {
        let hog = |group: &TaskGroup| {
            let stop = Arc::clone(&stop);
            group.go(move || {
                while !stop.load(Relaxed) {
                    compute(Duration::from_millis(1));
                    runnext::checkpoint();
                }
            })
        };
        let hogs: Vec<_> = [&governed, &free, &governed, &free].map(hog).into();
        let woken = |_| {
            let stop = Arc::clone(&stop);
            light.go(move || {
                while !stop.load(Relaxed) {
                    runnext::time::sleep(Duration::from_micros(500));
                }
            })
        };
        let woken: Vec<_> = (0..4).map(woken).collect();
        let used = || [&governed, &free].map(|group| group.stats().cpu_time.as_secs_f64());
        // CPU time of both together, so that a busy machine only takes longer.
        let after = |seconds: f64| {
            let begin: f64 = used().iter().sum();
            while used().iter().sum::<f64>() < begin + seconds {
                runnext::time::sleep(Duration::from_millis(10));
            }
            used()
        };
        let before = after(0.3); // the limit falls, and what was saved up is used
        let begin = Instant::now();
        let then = after(1.0);
        let took = begin.elapsed();
        stop.store(true, Relaxed);
        for one in hogs.into_iter().chain(woken) {
            one.join().unwrap();
        }
        let used = then[0] - before[0];
        Had {
            part: used / (used + then[1] - before[1]),
            rate: used / took.as_secs_f64(),
            stops: governed.stats().throttled_count,
        }
    })
}

#[test]
fn the_governed_part_shrinks_while_others_are_late() {
    let lenient = beside_late_ones(Duration::MAX);
    assert!(lenient.part > 0.3, "nobody is a second late: {lenient:?}");
    let strict = beside_late_ones(Duration::ZERO);
    // A twentieth of two processors, in time: on a busy machine, which leaves the others less, that is a larger part.
    assert!(
        strict.stops > 0 && strict.rate < 0.3,
        "{strict:?}, {lenient:?}"
    );
    assert!(strict.part > 0.0, "the floor is theirs: {strict:?}");
}

/// Has a governed goroutine wake `waiter` and then compute without a call, on the only processor. How often its group was stopped by when the waiter ran.
fn stopped_before(waiter: Option<&TaskGroup>, d: Duration) -> u64 {
    let governed = governed();
    unpreempted(1, Duration::from_millis(50)).run(|| {
        let (tx, rx) = chan::bounded(1);
        let waits = {
            let governed = governed.clone();
            move || {
                rx.recv().unwrap();
                governed.stats().throttled_count
            }
        };
        let computes = move || {
            tx.send(()).unwrap();
            compute(d);
        };
        match waiter {
            Some(group) => {
                let waiter = group.go(waits);
                until_waits(&waiter, "chan receive");
                governed.go(computes);
                waiter.join().unwrap()
            }
            None => {
                governed.go(computes);
                waits()
            }
        }
    })
}

/// The limit followed what wake-ups had waited when at last they ran: who did not get to run was not noticed.
#[test]
fn who_waits_and_never_runs_is_noticed() {
    for waiter in [Some(TaskGroup::new("light")), None] {
        // A monitor that the system keeps from running sees nothing: then once more, for longer.
        let mut waits = (0..6).map(|n| Duration::from_millis(200 << n));
        assert!(
            waits.any(|d| stopped_before(waiter.as_ref(), d) > 0),
            "{waiter:?}"
        );
    }
}

/// Lets governed goroutines compute with nobody else about, on one processor. How often their group was stopped.
fn stopped_alone() -> u64 {
    let governed = governed();
    unpreempted(1, Duration::ZERO).run(|| {
        let (tx, rx) = chan::bounded(1);
        let left = Arc::new(AtomicUsize::new(4));
        for _ in 0..4 {
            let (group, tx, left) = (governed.clone(), tx.clone(), Arc::clone(&left));
            governed.go(move || {
                for _ in 0..50 {
                    compute(Duration::from_millis(1));
                    runnext::checkpoint();
                }
                // The last one says, before anybody else has anything to do.
                if left.fetch_sub(1, Relaxed) == 1 {
                    tx.send(group.stats().throttled_count).unwrap();
                }
            });
        }
        rx.recv().unwrap()
    })
}

/// What governed goroutines had waited for each other counted as if others had waited for them.
#[test]
fn governed_groups_do_not_limit_themselves() {
    // Should the one that starts them lose its processor meanwhile, it does wait for them: then once more.
    let mut stops = (0..3).map(|_| stopped_alone());
    assert!(stops.any(|stops| stops == 0));
}
