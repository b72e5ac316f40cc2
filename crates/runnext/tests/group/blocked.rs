//! Threads that block in the turn of a group with a limit, which no other P may help with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use runnext::{CpuLimit, JoinHandle, Runtime, TaskGroup, blocking, go};

use crate::common::{assert_settles, built, child, runtime, switches, until};

fn narrow() -> TaskGroup {
    TaskGroup::builder("narrow").quota(1.0).build()
}

/// Runs `f`, which blocks, declared or not.
fn sleepily<T>(declared: bool, f: impl FnOnce() -> T) -> T {
    if declared { blocking(f) } else { f() }
}

/// In a goroutine: blocks until its child has run.
fn wait_for_child(declared: bool) {
    let (tx, rx) = mpsc::channel();
    let child = go(move || tx.send(()).unwrap());
    sleepily(declared, || rx.recv().unwrap());
    child.join().unwrap();
}

/// What was in the ring of such a turn was nobody's to take, so nobody saw that it waited, and the thread kept its P.
#[test]
fn children_run_while_their_parent_blocks() {
    let governed = TaskGroup::builder("governed").governed(true).build();
    for group in [narrow(), governed] {
        for (procs, declared) in [(1, true), (1, false), (2, true), (2, false)] {
            let limit = CpuLimit::Fraction(0.9);
            let rt = built(Runtime::builder().procs(procs).cpu_limit(limit));
            rt.run(|| group.go(move || wait_for_child(declared)).join().unwrap());
        }
    }
}

/// Computes until told to stop, and counts.
fn spin(rounds: &Arc<AtomicU64>, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (rounds, stop) = (Arc::clone(rounds), Arc::clone(stop));
    go(move || {
        while !stop.load(Relaxed) {
            rounds.fetch_add(1, Relaxed);
        }
    })
}

/// In a goroutine of a group that may use one P: blocks until a hog of it, which waits in a list, has gone on.
fn wait_for_hog(declared: bool) {
    let (rounds, stop) = (Arc::default(), Arc::default());
    let hog = spin(&rounds, &stop);
    until(|| rounds.load(Relaxed) != 0);
    let before = rounds.load(Relaxed);
    sleepily(declared, || {
        while rounds.load(Relaxed) == before {
            thread::sleep(Duration::from_millis(20));
        }
    });
    stop.store(true, Relaxed);
    hog.join().unwrap();
}

/// So did those in lists, wherever these are, until the quota had filled up.
#[test]
fn a_hog_runs_while_another_of_its_group_blocks() {
    for declared in [true, false] {
        runtime(1).run(|| {
            narrow().go(move || wait_for_hog(declared)).join().unwrap();
        });
        // Those of one of the two groups wait on the P of one that has no group.
        runtime(2).run(|| {
            let stop = Arc::default();
            let busy = spin(&Arc::default(), &stop);
            let groups = [narrow(), narrow()];
            for group in &groups {
                group.go(move || wait_for_hog(declared)).join().unwrap();
            }
            stop.store(true, Relaxed);
            busy.join().unwrap();
        });
    }
}

/// It looked every tenth of a millisecond whether the turn, whose time was up, had ended.
#[test]
fn the_monitor_rests_while_a_limited_turn_blocks() {
    child(&[], || {
        for declared in [true, false] {
            let rests = move || assert_settles(switches, 2_000, thread::sleep);
            let body = move || sleepily(declared, rests);
            runtime(1).run(|| narrow().go(body).join().unwrap());
        }
    })
    .passed();
}
