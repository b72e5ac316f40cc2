use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use runnext::sync::WaitGroup;

use crate::{message, mixed, on, on_each, settle};

#[test]
fn waits_for_all() {
    on_each(|| {
        let (group, done) = (WaitGroup::new(), std::sync::Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let done = done.clone();
            group.go(move || {
                runnext::yield_now();
                done.fetch_add(1, Relaxed);
            });
        }
        group.wait();
        assert_eq!(done.load(Relaxed), 100);
    });
}

/// Used again and again, with waiters of both kinds: everybody goes on in every round.
#[test]
fn reuse() {
    on_each(|| {
        for _ in 0..300 {
            let group = WaitGroup::new();
            let done = AtomicUsize::new(0);
            group.add(2);
            mixed(6, |i| {
                if i < 2 {
                    done.fetch_add(1, Relaxed);
                    group.done();
                } else {
                    group.wait();
                    assert_eq!(done.load(Relaxed), 2);
                }
            });
        }
    });
}

/// Who waits goes on when nothing is left, even if more is added before it runs; who waits for that more does not.
#[test]
fn rounds_do_not_mix() {
    on(1, || {
        let group = WaitGroup::new();
        group.add(1);
        let first = {
            let group = group.clone();
            runnext::go(move || group.wait())
        };
        settle();
        group.done();
        group.add(1);
        let second = {
            let group = group.clone();
            runnext::go(move || group.wait())
        };
        settle();
        assert!(first.is_finished() && !second.is_finished());
        group.done();
        second.join().unwrap();
        assert_eq!(format!("{group:?}"), "WaitGroup { left: 0 }");
    });
}

#[test]
fn a_panic_counts_as_done() {
    on(2, || {
        let group = WaitGroup::new();
        let panics = group.go(|| panic!("its own business"));
        let value = group.go(|| 7);
        group.wait();
        assert!(panics.join().is_err());
        assert_eq!(value.join().unwrap(), 7);
    });
}

#[test]
fn below_zero_panics_with_advice() {
    let group = WaitGroup::new();
    group.add(1);
    group.done();
    let payload = catch_unwind(AssertUnwindSafe(|| group.done())).unwrap_err();
    assert!(message(payload).contains("call add before"));
    // And the group still works.
    group.add(1);
    group.done();
    group.wait();
}

#[test]
fn too_much_panics() {
    let group = WaitGroup::new();
    group.add(usize::MAX / 2);
    assert!(catch_unwind(AssertUnwindSafe(|| group.add(1))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| group.add(usize::MAX))).is_err());
}

#[test]
fn go_outside_a_runtime_panics_with_advice_and_counts_nothing() {
    let group = WaitGroup::new();
    let payload = catch_unwind(AssertUnwindSafe(|| drop(group.go(|| ())))).unwrap_err();
    assert!(message(payload).contains("outside a runtime"));
    group.wait();
}
