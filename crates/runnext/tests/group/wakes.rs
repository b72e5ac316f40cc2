//! Who is woken for a goroutine of a group, and who is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use runnext::{Priority, Runtime, TaskGroup, chan, go, time};

use crate::basics::compute;
use crate::common::{built, child, runtime, switches_of, until};

const ROUNDS: usize = 2_000;
const OTHERS: usize = 4;

/// In each round one goroutine of the group wakes several, which answer. How often the threads that run goroutines went to sleep meanwhile, and how many
/// milliseconds that took.
fn sleeps_in_rounds(group: &TaskGroup) -> (usize, usize) {
    let group = group.clone();
    let rounds = group.clone().go(move || {
        let (answer, answers) = chan::bounded(OTHERS);
        let asked: Vec<_> = (0..OTHERS)
            .map(|_| {
                let (ask, questions) = chan::bounded::<()>(1);
                let answer = answer.clone();
                group.go(move || questions.iter().for_each(|()| answer.send(()).unwrap()));
                ask
            })
            .collect();
        // The monitor has others to look after.
        let is_worker = |name: &str| name.starts_with("runnext-") && name != "runnext-monitor";
        let (before, begin) = (switches_of(is_worker), Instant::now());
        for _ in 0..ROUNDS {
            asked.iter().for_each(|ask| ask.send(()).unwrap());
            asked.iter().for_each(|_| answers.recv().unwrap());
        }
        let took = begin.elapsed().as_millis() as usize;
        (switches_of(is_worker) - before, took)
    });
    rounds.join().unwrap()
}

/// With every wake-up in a group with a quota another processor was woken, which must not take what it found.
#[test]
fn nobody_is_woken_who_may_not_help() {
    child(&[], || {
        let (sleeps, ms) = runtime(2).run(|| {
            let group = TaskGroup::builder("one").quota(1.0).build();
            sleeps_in_rounds(&group)
        });
        // On a busy machine it takes seconds, and the turns of a group with a limit end about once in a millisecond, each with a sleep.
        assert!(
            sleeps < ROUNDS / 4 + ms,
            "{sleeps} in {ROUNDS} rounds and {ms} ms"
        );
    })
    .passed();
}

/// What a group with a limit starts went where no other processor looks, for as long as its starter's turn lasted.
#[test]
fn who_is_started_in_a_group_with_a_limit_runs_on_an_idle_processor() {
    // Turns end where goroutines give way, and the first never does.
    let rt = built(Runtime::builder().procs(2).preemption(false));
    let group = TaskGroup::builder("two").quota(2.0).build();
    let started = move || {
        let ran = Arc::new(AtomicBool::new(false));
        let mut tries = 0..200; // fewer than would fill the queue
        let ran_at = tries.find(|_| {
            let ran_there = Arc::clone(&ran);
            go(move || ran_there.store(true, Relaxed));
            compute(Duration::from_millis(1));
            ran.load(Relaxed)
        });
        ran_at.is_some()
    };
    assert!(rt.run(|| group.go(started).join().unwrap()));
}

/// Several set the number of processors at once: the lists of one that was too many for a moment were emptied into themselves, without end.
#[test]
fn processors_come_and_go_beside_groups() {
    let groups: Vec<_> = (0..16)
        .map(|i| TaskGroup::new(&format!("group {i}")))
        .collect();
    let stop = AtomicBool::new(false);
    runtime(8).run(|| {
        runnext::scope(|s| {
            for n in [1, 8, 3] {
                let stop = &stop;
                s.go(move || {
                    while !stop.load(Relaxed) {
                        runnext::blocking(|| runnext::set_procs(n));
                    }
                });
            }
            let yields = || (0..500).for_each(|_| runnext::yield_now());
            let all: Vec<_> = (0..128)
                .map(|i| groups[i % groups.len()].go(yields))
                .collect();
            all.into_iter().for_each(|one| one.join().unwrap());
            stop.store(true, Relaxed);
        });
    });
}

/// Goroutines of groups whose time had come waited until those without a group before them had found room in a queue that is not theirs.
#[test]
fn one_of_a_group_whose_time_has_come_is_not_behind_all_others() {
    const SLEEPERS: usize = 2_000;
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static RAN: AtomicUsize = AtomicUsize::new(0);
    fn sleep_until(at: time::Instant) -> usize {
        BEGUN.fetch_add(1, Relaxed);
        time::sleep_until(at);
        RAN.fetch_add(1, Relaxed)
    }
    let went_before = built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let high = TaskGroup::builder("high").priority(Priority::High).build();
        let at = time::Instant::now() + Duration::from_millis(300);
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| go(move || sleep_until(at))).collect();
        let last = high.go(move || sleep_until(at + Duration::from_millis(1)));
        until(|| BEGUN.load(Relaxed) > SLEEPERS);
        // Who computes until all of them are due.
        let hog = TaskGroup::new("hog").go(move || {
            while time::Instant::now() < at + Duration::from_millis(2) {}
            RAN.load(Relaxed) // on a busy machine the hog may have begun too late
        });
        let before = hog.join().unwrap();
        let went_before = last.join().unwrap().saturating_sub(before);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        went_before
    });
    assert!(went_before < SLEEPERS / 2, "{went_before}");
}
