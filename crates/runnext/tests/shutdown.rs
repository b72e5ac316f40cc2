//! Shutting a runtime down: what is counted, what is waited for, what is left alone.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{Counted, child, holdings, message, runtime, shows, thread_id, until, until_asleep};
use runnext::{go, yield_now};

/// A goroutine that never ends, but is always parked or about to be.
fn forever() {
    loop {
        yield_now();
    }
}

#[test]
fn nobody_alive_is_nobody_counted() {
    let rt = runtime(2);
    rt.run(|| go(|| ()).join().unwrap());
    let counts = rt.shutdown(Duration::ZERO);
    assert_eq!((counts.finished, counts.abandoned), (0, 0));
    let counts = runtime(1).shutdown(Duration::MAX);
    assert_eq!((counts.finished, counts.abandoned), (0, 0));
}

#[test]
fn grace_lets_them_finish() {
    let rt = runtime(2);
    let go_on = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let (go_on, ended) = (Arc::clone(&go_on), Arc::clone(&ended));
        rt.go(move || {
            until(|| go_on.load(Relaxed));
            ended.fetch_add(1, Relaxed);
        });
    }
    let waits = thread_id();
    let releaser = std::thread::spawn(move || {
        until_asleep(waits, libc::SYS_futex); // in `shutdown`: none may end before
        go_on.store(true, Relaxed);
    });
    let counts = rt.shutdown(Duration::MAX);
    assert_eq!((counts.finished, counts.abandoned), (10, 0));
    assert_eq!(ended.load(Relaxed), 10);
    releaser.join().unwrap();
}

#[test]
fn those_that_do_not_end_are_abandoned_and_counted() {
    let rt = runtime(2);
    for _ in 0..5 {
        rt.go(forever);
    }
    let parked = rt.run(|| {
        let never = go(forever);
        go(move || never.join().unwrap())
    });
    let quick: Vec<_> = (0..3).map(|_| rt.go(|| ())).collect();
    for one in quick {
        one.join().unwrap();
    }
    let counts = rt.shutdown(Duration::from_millis(30));
    assert_eq!((counts.finished, counts.abandoned), (0, 7));
    assert!(!parked.is_finished());
}

#[test]
fn abandoned_goroutines_are_not_unwound() {
    let (on_stacks, in_queues) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let rt = runtime(1);
    let (on_stack, in_queue) = (Counted::new(&on_stacks), Counted::new(&in_queues));
    let started = Arc::new(AtomicBool::new(false));
    let starts = Arc::clone(&started);
    rt.go(move || {
        let _on_stack = on_stack;
        starts.store(true, Relaxed);
        forever();
    });
    while !started.load(Relaxed) {
        std::thread::yield_now();
    }
    rt.go(move || drop(in_queue));
    drop(rt);
    assert_eq!(on_stacks.load(SeqCst), 0);
    assert!(in_queues.load(SeqCst) <= 1, "only if it ran before the end");
}

/// In a child: there nobody else's threads come and go.
#[test]
fn nothing_runs_after_it_returned() {
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    child(&[], || {
        let threads = holdings().threads;
        let rt = runtime(2);
        for _ in 0..4 {
            rt.go(|| {
                loop {
                    TURNS.fetch_add(1, Relaxed);
                    yield_now();
                }
            });
        }
        until(|| TURNS.load(Relaxed) >= 100);
        assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 4);
        let after = TURNS.load(Relaxed);
        until(|| holdings().threads == threads); // nobody is left who could run one
        // One that was on its way from one call to the next may have counted once more.
        let more = TURNS.load(Relaxed) - after;
        assert!(more <= 2, "{more} turns on 2 Ps");
    })
    .passed();
}

#[test]
fn a_goroutine_may_not_shut_its_own_runtime_down() {
    let rt = Arc::new(runtime(1));
    let inner = Arc::clone(&rt);
    let refused = rt.go(move || {
        until(|| Arc::strong_count(&inner) == 1);
        let rt = Arc::into_inner(inner).unwrap();
        let caught = panic::catch_unwind(AssertUnwindSafe(|| drop(rt)));
        message(&*caught.unwrap_err()).to_owned()
    });
    drop(rt);
    assert!(refused.join().unwrap().contains("do it outside"));
}

#[test]
fn waking_an_abandoned_goroutine_is_harmless() {
    let (dying, living) = (runtime(1), runtime(1));
    let go_on = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&go_on);
    let target = living.go(move || until(|| flag.load(Relaxed)));
    let waits = dying.go(move || target.join().unwrap());
    until(|| shows(&dying.dump(), &waits, "join"));
    assert_eq!(dying.shutdown(Duration::ZERO).abandoned, 1);
    go_on.store(true, Relaxed); // the end of `target` now wakes a goroutine of a runtime that is gone
    living.run(|| until(|| runnext::num_goroutines() == 1));
    assert!(!waits.is_finished());
}

#[test]
fn goroutines_keep_coming_while_it_waits() {
    fn chain(left: usize, ended: Arc<AtomicUsize>) {
        ended.fetch_add(1, Relaxed);
        if left > 0 {
            go(move || chain(left - 1, ended));
        }
    }
    for _ in 0..50 {
        let rt = runtime(2);
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ended);
        rt.go(move || chain(500, counter));
        assert_eq!(rt.shutdown(Duration::MAX).abandoned, 0);
        assert_eq!(ended.load(Relaxed), 501, "all descendants ended too");
    }
}
