//! `scope`: borrowing goroutines, with the rules of `std::thread::scope`.

mod common;

use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use common::{Counted, message, runtime};
use runnext::goroutine::Builder;
use runnext::{TaskGroup, scope, yield_now};

#[runnext::test(procs = 2)]
fn children_borrow_and_mutate_the_callers_frame() {
    let mut numbers = vec![1, 2, 3, 4];
    let name = String::from("shared");
    let mut length = 0;
    scope(|s| {
        for n in &mut numbers {
            s.go(move || *n *= 10);
        }
        s.go(|| length = name.len());
        s.go(|| assert_eq!(name, "shared"));
    });
    assert_eq!(numbers, [10, 20, 30, 40]);
    assert_eq!(length, 6);
}

#[runnext::test(procs = 2)]
fn it_returns_the_closures_value() {
    let text = String::from("borrowed");
    let part: &str = scope(|s| s.go(|| &text[..4]).join().unwrap());
    assert_eq!(part, "borr");
    assert_eq!(scope(|_| 5), 5);
}

#[runnext::test(procs = 2)]
fn it_waits_for_children_nobody_joined() {
    let ended = AtomicUsize::new(0);
    scope(|s| {
        for i in 0..100 {
            let ended = &ended;
            s.go(move || {
                for _ in 0..i % 7 {
                    yield_now();
                }
                ended.fetch_add(1, Relaxed);
            });
        }
    });
    assert_eq!(ended.load(Relaxed), 100);
    assert_eq!(runnext::num_goroutines(), 1);
}

#[runnext::test(procs = 2)]
fn children_spawn_siblings() {
    let sum = &AtomicUsize::new(0);
    scope(|s| {
        s.go(move || {
            for i in 1..=10 {
                s.go(move || {
                    s.go(move || sum.fetch_add(i, Relaxed));
                });
            }
        });
    });
    assert_eq!(sum.load(Relaxed), 55);
}

#[runnext::test(procs = 2)]
fn scopes_nest() {
    let mut grid = vec![vec![0; 8]; 8];
    scope(|outer| {
        for (y, row) in grid.iter_mut().enumerate() {
            outer.go(move || {
                scope(|inner| {
                    for (x, cell) in row.iter_mut().enumerate() {
                        inner.go(move || *cell = x * y);
                    }
                });
                assert_eq!(row[7], 7 * y);
            });
        }
    });
    assert_eq!(grid[3][5], 15);
}

#[runnext::test(procs = 2)]
fn a_panic_nobody_joined_is_the_scopes() {
    let others = AtomicUsize::new(0);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        scope(|s| {
            s.go(|| panic!("child"));
            s.go(|| {
                yield_now();
                others.fetch_add(1, Relaxed);
            });
        });
    }));
    assert_eq!(
        message(&*caught.unwrap_err()),
        "a scoped goroutine panicked"
    );
    assert_eq!(others.load(Relaxed), 1, "the others ran to their end");
}

#[runnext::test(procs = 2)]
fn a_joined_panic_is_the_joiners() {
    let payload = scope(|s| s.go(|| panic!("taken")).join().unwrap_err());
    assert_eq!(message(&*payload), "taken");
}

#[runnext::test(procs = 2)]
fn the_closures_own_panic_waits_for_the_children_and_wins() {
    let ended = AtomicBool::new(false);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| {
        scope(|s| {
            s.go(|| {
                for _ in 0..20 {
                    yield_now();
                }
                ended.store(true, Relaxed);
                panic!("child");
            });
            panic!("closure");
        })
    }));
    assert_eq!(message(&*caught.unwrap_err()), "closure");
    assert!(ended.load(Relaxed));
}

#[runnext::test(procs = 2)]
fn results_nobody_took_are_gone_when_it_returns() {
    struct Borrows<'a> {
        frame: &'a AtomicUsize,
        _counted: Counted,
    }
    impl Drop for Borrows<'_> {
        fn drop(&mut self) {
            self.frame.fetch_add(1, Relaxed); // a dead frame if it came late
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 1..=500 {
        let local = AtomicUsize::new(0);
        scope(|s| {
            for i in 0..4 {
                let result = Borrows {
                    frame: &local,
                    _counted: Counted::new(&drops),
                };
                let handle = s.go(move || {
                    for _ in 0..i {
                        yield_now();
                    }
                    result
                });
                if i % 2 == 0 {
                    yield_now();
                    drop(handle);
                }
            }
        });
        assert_eq!(local.load(Relaxed), 4);
        assert_eq!(drops.load(SeqCst), 4 * round);
    }
}

#[runnext::test(procs = 2)]
fn handles_say_who_they_are() {
    scope(|s| {
        let line = line!() + 1;
        let handle = s.go(|| runnext::current().unwrap().id());
        assert_eq!(handle.goroutine().spawned_at().line(), line);
        let id = handle.goroutine().id();
        common::until(|| handle.is_finished());
        assert!(format!("{handle:?}").contains("finished: true"));
        assert_eq!(handle.join().unwrap(), id);
    });
}

#[test]
fn a_plain_thread_can_wait_for_one() {
    // Nothing to start there, but nothing to wait for either.
    assert_eq!(scope(|_| 3), 3);
    let caught = panic::catch_unwind(|| scope(|s| s.go(|| ()).join().unwrap()));
    let text = caught.unwrap_err();
    assert!(message(&*text).contains("outside a runtime"));
}

/// A goroutine of one runtime waits in a scope whose children it started while a plain thread holds the frame.
#[test]
fn run_lends_the_threads_frame() {
    let rt = runtime(2);
    let mut values = [0u32; 16];
    rt.run(|| {
        scope(|s| {
            for (i, v) in values.iter_mut().enumerate() {
                s.go(move || *v = i as u32);
            }
        });
    });
    assert_eq!(values.iter().sum::<u32>(), 120);
}

#[runnext::test(procs = 2)]
fn many_short_scopes() {
    let total = AtomicUsize::new(0);
    for _ in 0..5_000 {
        scope(|s| {
            s.go(|| total.fetch_add(1, Relaxed));
            s.go(|| total.fetch_add(1, Relaxed));
        });
    }
    assert_eq!(total.load(Relaxed), 10_000);
}

#[test]
fn a_builder_starts_in_a_scope() {
    let other = runtime(1);
    let theirs = TaskGroup::new("theirs");
    let inside = other.run(|| theirs.go(|| ()));
    runtime(1).run(|| {
        let mut done = 0;
        scope(|s| {
            // Refused, in either way, they are not waited for.
            let refused = Builder::new().stack_size(0).spawn_scoped(s, || ());
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
            let foreign = Builder::new().group(&theirs);
            let spawn = AssertUnwindSafe(|| foreign.spawn_scoped(s, || ()));
            assert!(panic::catch_unwind(spawn).is_err());
            let named = Builder::new().name("named");
            let named = named.spawn_scoped(s, || done += 1).unwrap();
            assert_eq!(named.goroutine().name(), Some("named"));
        });
        assert_eq!(done, 1);
    });
    drop(inside);
}
