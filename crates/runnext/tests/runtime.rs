//! Runtimes: several of them, used from threads and from each other's goroutines, and leaving nothing behind.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{Holdings, assert_rests, child, holdings, holdings_after, message, runtime};
use runnext::{Runtime, go, scope, yield_now};

#[test]
fn run_gives_the_value_and_borrows() {
    let rt = runtime(2);
    let mut text = String::from("a");
    let length = rt.run(|| {
        text.push('b');
        text.len()
    });
    assert_eq!((length, text.as_str()), (2, "ab"));
}

#[test]
fn run_resumes_the_panic_and_the_runtime_goes_on() {
    let rt = runtime(2);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| rt.run(|| panic!("main"))));
    assert_eq!(message(&*caught.unwrap_err()), "main");
    assert_eq!(rt.run(|| 1), 1);
}

#[test]
fn others_go_on_after_run() {
    let rt = runtime(1);
    let other = rt.run(|| {
        go(|| {
            for _ in 0..100 {
                yield_now();
            }
            "later"
        })
    });
    assert_eq!(other.join().unwrap(), "later");
}

#[test]
fn many_threads_use_one_runtime() {
    let rt = runtime(2);
    let sum = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for i in 0..8 {
            let (rt, sum) = (&rt, &sum);
            s.spawn(move || {
                for j in 0..200 {
                    match j % 3 {
                        0 => rt.run(|| sum.fetch_add(i, Relaxed)),
                        1 => rt
                            .go(move || i)
                            .join()
                            .map(|i| sum.fetch_add(i, Relaxed))
                            .unwrap(),
                        _ => {
                            let inner = rt.run(|| go(move || i));
                            sum.fetch_add(inner.join().unwrap(), Relaxed)
                        }
                    };
                }
            });
        }
    });
    assert_eq!(sum.load(Relaxed), 28 * 200);
}

#[test]
fn a_goroutine_runs_another_runtime() {
    let (a, b) = (runtime(2), Arc::new(runtime(2)));
    let b2 = Arc::clone(&b);
    let total: u64 = a.run(move || {
        let handles: Vec<_> = (0..50u64)
            .map(|i| {
                let b = Arc::clone(&b2);
                go(move || {
                    let inside = b.run(|| {
                        yield_now();
                        go(move || i * 2).join().unwrap()
                    });
                    inside + b.go(move || i).join().unwrap()
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).sum()
    });
    assert_eq!(total, 3 * (49 * 50 / 2));
    assert_eq!(b.run(runnext::num_goroutines), 1);
}

#[test]
fn a_goroutine_builds_and_drops_a_runtime() {
    let outer = runtime(1);
    let value = outer.run(|| {
        let inner = runtime(1);
        let value = inner.run(|| go(|| 5).join().unwrap());
        assert_eq!(inner.shutdown(Duration::MAX).abandoned, 0);
        value
    });
    assert_eq!(value, 5);
}

#[test]
fn each_runtime_counts_its_own() {
    let (a, b) = (runtime(1), runtime(3));
    assert_eq!(
        a.run(|| (runnext::num_goroutines(), runnext::procs())),
        (1, 1)
    );
    assert_eq!(
        b.run(|| (runnext::num_goroutines(), runnext::procs())),
        (1, 3)
    );
    assert_eq!(
        b.run(|| runnext::current().unwrap().spawned_at().file()),
        file!()
    );
    assert!(format!("{b:?}").contains("procs: 3"));
}

/// For children that count mappings: one arena for the allocator, and no thread's stack kept for the next.
const PLAIN_LIBC: &[(&str, &str)] = &[
    ("MALLOC_ARENA_MAX", "1"),
    ("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0"),
];

/// What a process holds does not grow with the runtimes it had.
#[track_caller]
fn assert_leaves_nothing(what: impl Fn()) {
    for _ in 0..3 {
        what(); // the first ones start what stays: the allocator's arenas, std's own, a signal handler
    }
    let before = holdings();
    for _ in 0..20 {
        what();
    }
    let after = holdings_after(&before);
    let lost = |f: fn(&Holdings) -> usize| f(&after).saturating_sub(f(&before));
    // The allocator may map something on its own; twenty runtimes that left one mapping each show.
    assert!(
        lost(|h| h.threads) == 0 && lost(|h| h.fds) == 0 && lost(|h| h.maps) < 8,
        "before {before:?}, after {after:?}"
    );
}

fn mixed_work(rt: &Runtime) {
    rt.run(|| {
        scope(|s| {
            for i in 0..200 {
                s.go(move || {
                    for _ in 0..i % 4 {
                        yield_now();
                    }
                    go(|| ()).join().unwrap();
                });
            }
        });
    });
}

#[test]
fn one_after_another_leave_nothing_behind() {
    child(PLAIN_LIBC, || {
        assert_leaves_nothing(|| {
            let rt = runtime(4);
            mixed_work(&rt);
            assert_eq!(rt.shutdown(Duration::MAX).abandoned, 0);
        });
        assert_leaves_nothing(|| drop(runtime(2)));
        assert_leaves_nothing(|| {
            let rt = runtime(1);
            rt.run(|| ());
        });
        // Dropped at once, while the last goroutines are still on their way out.
        assert_leaves_nothing(|| {
            let rt = runtime(4);
            rt.run(|| scope(|s| drop((s.go(|| ()), s.go(|| ()), s.go(|| ())))));
        });
    })
    .passed();
}

#[test]
fn side_by_side_leave_nothing_behind() {
    child(PLAIN_LIBC, || {
        assert_leaves_nothing(|| {
            let rts: Vec<_> = (1..=4).map(runtime).collect();
            std::thread::scope(|s| {
                for rt in &rts {
                    s.spawn(|| mixed_work(rt));
                }
            });
        });
    })
    .passed();
}

#[test]
fn late_handles_let_go_of_everything() {
    child(PLAIN_LIBC, || {
        assert_leaves_nothing(|| {
            let rt = runtime(2);
            let result = rt.go(|| vec![1u8; 1000]);
            let handle = rt.run(|| runnext::current().unwrap());
            while !result.is_finished() {
                std::thread::yield_now();
            }
            drop(rt);
            assert_eq!(handle.id(), handle.clone().id());
            drop(result);
            drop(handle);
        });
    })
    .passed();
}

/// The threads of a goroutine that locked one, and the stacks of odd sizes, go too.
#[test]
fn locked_threads_and_odd_stacks_leave_nothing_behind() {
    child(PLAIN_LIBC, || {
        assert_leaves_nothing(|| {
            let rt = runtime(2);
            rt.run(|| {
                let locked = go(|| {
                    let _tied = runnext::lock_os_thread();
                    yield_now();
                    go(|| ()).join().unwrap();
                });
                let ends_locked = go(|| std::mem::forget(runnext::lock_os_thread()));
                let builder = runnext::goroutine::Builder::new().stack_size(1 << 20);
                let deep = builder.spawn(yield_now).unwrap();
                locked.join().unwrap();
                ends_locked.join().unwrap();
                deep.join().unwrap();
            });
            drop(rt);
        });
    })
    .passed();
}

#[test]
fn an_idle_runtime_uses_no_cpu() {
    child(&[], || {
        let rt = runtime(4);
        mixed_work(&rt);
        assert_rests(std::thread::sleep);
    })
    .passed();
}

#[test]
fn wakes_and_joins_cross_between_threads_and_goroutines() {
    // A goroutine waits for one that a thread will start; a thread waits for one that a goroutine started.
    let rt = runtime(2);
    for _ in 0..200 {
        let first = rt.go(|| {
            yield_now();
            1
        });
        let second = rt.go(move || first.join().unwrap() + 1);
        let third =
            std::thread::scope(|s| s.spawn(move || second.join().unwrap() + 1).join().unwrap());
        assert_eq!(third, 3);
    }
}
