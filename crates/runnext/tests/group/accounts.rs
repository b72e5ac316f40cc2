//! Who pays for what threads run: turns that change threads, threads without a processor, a busy machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use runnext::{Runtime, TaskGroup, chan, go};

use crate::basics::compute;
use crate::common::{built, cpu_time, runtime};

/// What a group was charged with, of what its goroutines computed.
fn part(group: &TaskGroup, computed: Duration) -> f64 {
    group.stats().cpu_time.as_secs_f64() / computed.as_secs_f64()
}

/// A goroutine that is locked to its thread takes the turn there, and what had run in it before was charged to nobody.
#[test]
fn a_turn_that_changes_threads_pays_for_all_of_them() {
    const ROUNDS: u32 = 100;
    const PIECE: Duration = Duration::from_micros(150);
    let group = TaskGroup::new("threads");
    let by_goroutine = built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let work = |locked: bool| {
            group.go(move || {
                let _locked = locked.then(runnext::goroutine::lock_os_thread);
                for _ in 0..ROUNDS {
                    compute(PIECE);
                    runnext::yield_now();
                }
            })
        };
        let all: Vec<_> = (0..5).map(|i| work(i == 0)).collect();
        let used = |one: runnext::JoinHandle<()>| {
            let goroutine = one.goroutine().clone();
            one.join().unwrap();
            goroutine.cpu_time()
        };
        all.into_iter().map(used).sum::<Duration>()
    });
    let part = part(&group, 5 * ROUNDS * PIECE);
    assert!((0.9..2.0).contains(&part), "{part}");
    // The same clock for both.
    let sum = by_goroutine.as_secs_f64() / group.stats().cpu_time.as_secs_f64();
    assert!((0.8..1.01).contains(&sum), "{sum}");
}

/// A goroutine that sleeps in the kernel, where its processor is taken from it, and computes before it calls the runtime again.
fn without_a_processor(group: &TaskGroup, rounds: u32, piece: Duration) -> (Duration, Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    runtime(1).run(|| {
        let busy = {
            let stop = Arc::clone(&stop);
            go(move || {
                while !stop.load(Relaxed) {
                    runnext::yield_now();
                }
            })
        };
        let sleeper = group.go(move || {
            for _ in 0..rounds {
                // SAFETY: no preconditions.
                unsafe { libc::usleep(3000) };
                compute(piece);
            }
        });
        sleeper.join().unwrap();
        stop.store(true, Relaxed);
        busy.join().unwrap();
    });
    (rounds * piece, began.elapsed())
}

/// What a thread ran for from when its processor was taken, up to its next call, was charged to nobody.
#[test]
fn a_thread_without_a_processor_computes_for_its_group() {
    let group = TaskGroup::new("sleeps");
    let (computed, _) = without_a_processor(&group, 60, Duration::from_millis(2));
    let part = part(&group, computed);
    assert!((0.8..1.3).contains(&part), "{part}");
}

/// The same under a quota, of which it had eight times as much.
#[test]
fn a_quota_holds_for_a_thread_without_a_processor() {
    const QUOTA: f64 = 0.03;
    let group = TaskGroup::builder("sleeps").quota(QUOTA).build();
    let (computed, took) = without_a_processor(&group, 60, Duration::from_millis(2));
    // Two ticks of its thread are forgiven, as they are to all.
    let most = took.mul_f64(2.0 * QUOTA) + Duration::from_millis(40);
    assert!(computed < most, "{computed:?} in {took:?}");
}

/// What was computed in sections too short for the processor to be taken away was nobody's.
#[test]
fn a_quota_holds_for_short_blocking_sections() {
    const QUOTA: f64 = 0.2;
    const PIECE: Duration = Duration::from_micros(60);
    const ROUNDS: u32 = 5000;
    let group = TaskGroup::builder("sections").quota(QUOTA).build();
    let began = Instant::now();
    runtime(1).run(|| {
        let sections = || (0..ROUNDS).for_each(|_| runnext::blocking(|| compute(PIECE)));
        group.go(sections).join().unwrap();
    });
    let (computed, took) = (ROUNDS * PIECE, began.elapsed());
    let most = took.mul_f64(1.5 * QUOTA) + Duration::from_millis(40);
    assert!(computed < most, "{computed:?} in {took:?}");
    assert!(part(&group, computed) < 0.3, "it is counted apart");
    assert!(group.stats().blocking_time >= computed);
}

/// Whether or not its processor is taken meanwhile.
#[test]
fn what_is_computed_in_a_blocking_section_is_counted_apart() {
    const ROUNDS: u32 = 20;
    const PIECE: Duration = Duration::from_millis(2);
    for others in [false, true] {
        let group = TaskGroup::new("sections");
        let stop = AtomicBool::new(!others);
        runtime(1).run(|| {
            runnext::scope(|s| {
                s.go(|| {
                    while !stop.load(Relaxed) {
                        runnext::yield_now();
                    }
                });
                let sections = || (0..ROUNDS).for_each(|_| runnext::blocking(|| compute(PIECE)));
                group.enter(|| s.go(sections)).join().unwrap();
                stop.store(true, Relaxed);
            });
        });
        let part = part(&group, ROUNDS * PIECE);
        assert!(part < 0.3, "{part}, others: {others}");
        assert!(group.stats().blocking_time >= ROUNDS * PIECE);
    }
}

/// Its processor takes turns only while somebody of a group waits. Each time it began to again, what its thread had ever run for was to be paid.
#[test]
fn a_thread_does_not_pay_for_its_past() {
    let group = TaskGroup::new("now and then");
    let (before, after) = runtime(1).run(|| {
        compute(Duration::from_secs(1));
        let (ask, asked) = chan::bounded::<()>(0);
        let answering = {
            let (tell, told) = chan::bounded::<()>(0);
            let one = group.go(move || asked.iter().for_each(|()| tell.send(()).unwrap()));
            (one, told)
        };
        let before = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
        while cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) < before + Duration::from_millis(100) {
            ask.send(()).unwrap();
            answering.1.recv().unwrap();
        }
        drop(ask);
        answering.0.join().unwrap();
        (before, cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID))
    });
    let charged = group.stats().cpu_time;
    assert!(
        charged <= after - before,
        "{charged:?} in {:?}",
        after - before
    );
}

/// Whoever is ready waits for who computes, and is not in the way of who comes later.
#[test]
fn a_group_that_waits_is_stalled() {
    const PIECE: Duration = Duration::from_millis(5);
    let group = TaskGroup::new("waits");
    let stalled = || group.stats().stalled_time;
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let (begin, one) = (Instant::now(), group.go(|| compute(PIECE)));
        let ready = Instant::now();
        compute(PIECE);
        let waited = ready.elapsed();
        assert!(stalled() >= waited, "it still waits: {:?}", stalled());
        one.join().unwrap();
        let (in_all, passed) = (stalled(), begin.elapsed());
        assert!((waited..=passed - PIECE).contains(&in_all), "{in_all:?}");
        compute(PIECE);
        assert_eq!(stalled(), in_all, "it has nothing to run");
        drop(go(|| ()));
        runnext::yield_now();
        assert_eq!(stalled(), in_all, "that was not one of it");
    });
}

/// What ran in a turn was counted until it ended, and what a full ring gave away each time: a group that is alone has one turn for as long as it lasts.
#[test]
fn runnable_goroutines_are_counted_in_a_turn_that_goes_on() {
    const MANY: usize = 1000;
    let group = TaskGroup::new("alone");
    let counts = {
        let group = group.clone();
        move || {
            runnext::scope(|scope| {
                for _ in 0..MANY {
                    scope.go(|| (0..10).for_each(|_| runnext::yield_now()));
                }
                let before = group.stats().runnable;
                runnext::yield_now();
                (before, group.stats().runnable)
            })
        }
    };
    let alone = built(Runtime::builder().procs(1).preemption(false));
    let (during, after) = alone.run(|| {
        let one = group.clone();
        let body = move || (counts(), one.stats().runnable);
        group.go(body).join().unwrap()
    });
    // All of them gave way before the one that counts went on.
    assert_eq!((during, after), ((MANY, MANY), 0));
}
