//! Belonging: inheritance, entering, nesting, ends, accounts.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use runnext::{Runtime, TaskGroup, chan, go, stats, time};

use crate::common::{built, cpu_time, runtime, until};

/// Computes for as much CPU time, however long that takes on a busy machine. Without a runtime call, so on one thread.
pub(crate) fn compute(d: Duration) {
    let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let end = used() + d;
    while used() < end {}
}

#[test]
fn children_inherit_and_strangers_do_not() {
    let group = TaskGroup::new("family");
    runtime(2).run(|| {
        let names = group.go(|| {
            let child = go(|| {
                go(|| TaskGroup::current().map(|g| g.name().to_owned()))
                    .join()
                    .unwrap()
            });
            child.join().unwrap()
        });
        assert_eq!(names.join().unwrap().as_deref(), Some("family"));
        assert!(go(TaskGroup::current).join().unwrap().is_none());
        assert_eq!(group.stats().goroutines, 0);
    });
}

#[test]
#[allow(clippy::mutable_key_type)] // the address is what counts, and it does not change
fn a_group_is_itself_by_any_handle_and_no_other_of_its_name() {
    let (group, namesake) = (TaskGroup::new("same"), TaskGroup::new("same"));
    let handles = HashSet::from([
        group.clone(),
        group.clone(),
        group.clone(),
        namesake.clone(),
    ]);
    assert_eq!(handles.len(), 2);
    assert!(handles.contains(&group) && handles.contains(&namesake));
}

/// As [`TaskGroup::go`], whoever starts it, and also where it awaits in between.
#[test]
fn futures_belong_to_the_group_that_spawns_them() {
    let (group, other) = (TaskGroup::new("given"), TaskGroup::new("maker's"));
    runtime(2).run(|| {
        let (tx, rx) = chan::bounded::<()>(0);
        let name = || TaskGroup::current().map(|g| g.name().to_owned());
        let given = group.clone();
        let spawned = other.go(move || {
            given.spawn(async move {
                let before = name();
                let waited = go(move || rx.recv()).await;
                let child = runnext::spawn(async move { name() }).await.unwrap();
                (before, name(), child, waited.unwrap().is_err())
            })
        });
        let spawned = spawned.join().unwrap();
        until(|| group.stats().goroutines == 2); // itself, and who receives for it
        assert_eq!(spawned.goroutine().group().unwrap(), group);
        drop(tx);
        let own = Some("given".to_owned());
        let expected = (own.clone(), own.clone(), own, true);
        assert_eq!(spawned.join().unwrap(), expected);
        until(|| group.stats().goroutines == 0);
        assert!(group.stats().cpu_time > Duration::ZERO);
        assert_eq!(other.stats().goroutines, 0);
    });
    let outside = std::panic::catch_unwind(|| group.spawn(async {})).unwrap_err();
    let said = outside.downcast_ref::<String>().unwrap();
    assert!(said.contains("TaskGroup::spawn called outside a runtime"));
}

#[test]
fn many_switches_in_groups() {
    runtime(2).run(|| {
        let groups: Vec<TaskGroup> = (0..5).map(|i| TaskGroup::new(&format!("g{i}"))).collect();
        let all: Vec<_> = (0..100)
            .map(|i| {
                groups[i % 5].go(move || {
                    for _ in 0..1000 {
                        runnext::yield_now();
                    }
                    i
                })
            })
            .collect();
        let sum: usize = all.into_iter().map(|j| j.join().unwrap()).sum();
        assert_eq!(sum, 4950);
    });
}

#[test]
fn channels_between_groups() {
    runtime(2).run(|| {
        let (a, b) = (TaskGroup::new("a"), TaskGroup::new("b"));
        let (tx, rx) = chan::bounded(0);
        let (back, answers) = chan::bounded(0);
        a.go(move || {
            for i in 0..10_000u64 {
                tx.send(i).unwrap();
                assert_eq!(answers.recv().unwrap(), i * 2);
            }
        });
        let echo = b.go(move || rx.iter().map(|i| back.send(i * 2).unwrap()).count());
        assert_eq!(echo.join().unwrap(), 10_000);
    });
}

#[test]
fn time_is_counted() {
    let group = TaskGroup::new("work");
    runtime(2).run(|| {
        let work = group.go(|| compute(Duration::from_millis(30)));
        let goroutine = work.goroutine().clone();
        work.join().unwrap();
        let stats = group.stats();
        assert!(stats.cpu_time >= Duration::from_millis(10), "{stats:?}");
        assert!(goroutine.cpu_time() >= Duration::from_millis(10));
    });
    assert!(
        group.stats().cpu_time >= Duration::from_millis(10),
        "kept after the runtime"
    );
}

/// Whoever waits between two short runs was charged with nothing, and of two that take turns each had half.
#[test]
fn time_is_counted_of_whom_it_was() {
    let group = TaskGroup::new("work");
    let piece = Duration::from_micros(200);
    let (sleeper, sender, receiver) = runtime(1).run(|| {
        let sleeper = group.go(move || {
            for _ in 0..100 {
                compute(piece);
                time::sleep(Duration::from_micros(50));
            }
        });
        let of_sleeper = sleeper.goroutine().clone();
        sleeper.join().unwrap();
        let (tx, rx) = chan::bounded(0);
        let sender = group.go(move || {
            for _ in 0..100 {
                compute(piece);
                tx.send(()).unwrap();
            }
        });
        let receiver = group.go(move || rx.iter().count());
        let pair = (sender.goroutine().clone(), receiver.goroutine().clone());
        sender.join().unwrap();
        assert_eq!(receiver.join().unwrap(), 100);
        (of_sleeper.cpu_time(), pair.0.cpu_time(), pair.1.cpu_time())
    });
    let used = 100 * piece;
    for (time, who) in [(sleeper, "sleeper"), (sender, "sender")] {
        assert!(time * 2 > used, "{who}: {time:?} of {used:?}");
    }
    assert!(receiver * 4 < sender, "{receiver:?}, {sender:?}");
}

/// An ungrouped one is charged by chance, when the timer of its thread ticks, and was never if it did not run for two ticks at a time.
#[test]
fn time_of_ungrouped_ones_is_sampled() {
    let used = runtime(1).run(|| {
        let work = go(|| {
            for _ in 0..200 {
                compute(Duration::from_millis(2));
                runnext::yield_now();
            }
        });
        let goroutine = work.goroutine().clone();
        work.join().unwrap();
        goroutine.cpu_time()
    });
    let part = used.as_secs_f64() / 0.4;
    assert!((0.5..2.0).contains(&part), "{used:?}");
}

/// Threads that keep the processors busy while `f` runs.
pub(crate) fn beside_burners<T>(f: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        stop.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn what_other_processes_used_is_not_counted() {
    let group = TaskGroup::new("work");
    let needed = Duration::from_millis(150);
    let used = beside_burners(|| {
        runtime(2).run(|| {
            let work = group.go(move || compute(needed));
            let goroutine = work.goroutine().clone();
            work.join().unwrap();
            goroutine.cpu_time()
        })
    });
    let stats = group.stats();
    for used in [used, stats.cpu_time] {
        let part = used.as_secs_f64() / needed.as_secs_f64();
        assert!((0.7..1.5).contains(&part), "{used:?} {stats:?}");
    }
}

#[test]
fn a_groups_time_never_shrinks() {
    let group = TaskGroup::new("work");
    let work = group.clone();
    beside_burners(|| {
        runtime(2).run(|| {
            let hogs: Vec<_> = (0..4)
                .map(|_| work.go(|| compute(Duration::from_millis(50))))
                .collect();
            let mut last = Duration::ZERO;
            while !hogs.iter().all(|hog| hog.is_finished()) {
                let now = group.stats().cpu_time;
                assert!(now >= last, "{last:?}, then {now:?}");
                last = now;
                runnext::time::sleep(Duration::from_micros(100));
            }
        })
    });
}

#[test]
fn enter_and_leave_also_by_a_panic() {
    let (outer, inner) = (TaskGroup::new("outer"), TaskGroup::new("inner"));
    runtime(2).run(|| {
        let name = || TaskGroup::current().map(|g| g.name().to_owned());
        outer.enter(|| {
            assert_eq!(name().as_deref(), Some("outer"));
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                inner.enter(|| {
                    assert_eq!(name().as_deref(), Some("inner"));
                    assert_eq!(inner.stats().goroutines, 1);
                    assert_eq!(go(name).join().unwrap().as_deref(), Some("inner"));
                    panic!("out of it");
                })
            }));
            assert!(caught.is_err());
            assert_eq!(name().as_deref(), Some("outer"));
            outer.enter(|| assert_eq!(name().as_deref(), Some("outer")));
        });
        assert!(name().is_none());
        assert_eq!((outer.stats().goroutines, inner.stats().goroutines), (0, 0));
    });
    assert_eq!(outer.enter(|| 7), 7, "on a plain thread it is a call");
    assert!(TaskGroup::current().is_none());
}

#[test]
fn builders_futures_scopes_and_timers_inherit() {
    let group = TaskGroup::new("all");
    runtime(2).run(|| {
        let here = || TaskGroup::current().map(|g| g.name().to_owned());
        let built = runnext::goroutine::Builder::new()
            .name("one")
            .group(&group)
            .spawn(move || {
                let (tx, rx) = chan::bounded(1);
                let timer = runnext::time::after_func(Duration::from_millis(1), move || {
                    let _ = tx.send(TaskGroup::current().map(|g| g.name().to_owned()));
                });
                let by_timer = rx.recv().unwrap();
                drop(timer);
                let in_scope = runnext::scope(|s| s.go(here).join().unwrap());
                let polled = runnext::spawn(async move { here() }).join().unwrap();
                [here(), by_timer, in_scope, polled]
            })
            .unwrap();
        assert_eq!(built.goroutine().group(), Some(group.clone()));
        for name in built.join().unwrap() {
            assert_eq!(name.as_deref(), Some("all"));
        }
    });
}

#[test]
fn blocking_is_counted_apart() {
    let group = TaskGroup::new("waits");
    runtime(2).run(|| {
        group
            .go(|| runnext::blocking(|| std::thread::sleep(Duration::from_millis(60))))
            .join()
            .unwrap();
        let stats = group.stats();
        assert!(
            stats.blocking_time >= Duration::from_millis(60),
            "{stats:?}"
        );
        assert!(stats.cpu_time < stats.blocking_time / 2, "{stats:?}");
    });
}

#[test]
fn places_come_back() {
    runtime(2).run(|| {
        // Far more groups, one after another, than there would be room for if places were lost.
        for round in 0..300 {
            let groups: Vec<TaskGroup> = (0..20)
                .map(|i| TaskGroup::new(&format!("{round}.{i}")))
                .collect();
            let all: Vec<_> = groups.iter().map(|g| g.go(runnext::yield_now)).collect();
            drop(groups); // the goroutines keep them
            for one in all {
                one.join().unwrap();
            }
        }
        assert_eq!(runnext::num_goroutines(), 1);
    });
}

#[test]
fn many_goroutines_over_many_groups() {
    let n = if cfg!(debug_assertions) {
        20_000
    } else {
        1_000_000
    };
    runtime(2).run(|| {
        let groups: Vec<TaskGroup> = (0..1000).map(|i| TaskGroup::new(&format!("{i}"))).collect();
        let (tx, rx) = chan::unbounded();
        for i in 0..n {
            let tx = tx.clone();
            groups[i % 1000].go(move || {
                runnext::yield_now();
                tx.send(i as u64).unwrap();
            });
        }
        drop(tx);
        let n = n as u64;
        assert_eq!(rx.iter().sum::<u64>(), n * (n - 1) / 2);
        while runnext::num_goroutines() > 1 {
            runnext::yield_now(); // the last ones have sent, and are about to end
        }
        assert!(groups.iter().all(|g| g.stats().goroutines == 0));
    });
}

/// Each sample is in the histogram of the goroutine's group, and of no other.
#[test]
fn runs_and_preemptions_are_measured_by_group() {
    let [short, hogs, idle] = ["short", "hogs", "idle"].map(TaskGroup::new);
    runtime(1).run(|| {
        stats::set_profile_rate(1000);
        // Runs that the end of the goroutine ends.
        until(|| {
            short.go(|| ()).join().unwrap();
            short.stats().run_time.count() > 0
        });
        let stop = AtomicBool::new(false);
        runnext::scope(|s| {
            let spin = || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            };
            hogs.enter(|| (0..2).for_each(|_| drop(s.go(spin))));
            // Runs that others end; more than those that began with a goroutine's first.
            until(|| {
                let stats = hogs.stats();
                stats.run_time.count() > 2 && stats.preempt_latency.count() > 0
            });
            stop.store(true, Relaxed);
        });
        let all = stats::read();
        let (short, hogs, idle) = (short.stats(), hogs.stats(), idle.stats());
        assert!(short.run_time.count() + hogs.run_time.count() <= all.run_time.count());
        assert!(hogs.preempt_latency.count() <= all.preempt_latency.count());
        assert_eq!(
            (idle.run_time.count(), idle.preempt_latency.count()),
            (0, 0)
        );
    });
}

/// At the end of a chain of hand-offs its next member went into a full ring, and half of those in it were lost.
#[test]
fn a_chain_that_ends_beside_a_full_queue_loses_nobody() {
    const RING: usize = 256;
    let group = TaskGroup::new("chain");
    let rt = built(Runtime::builder().procs(1).preemption(false));
    let started = rt.run(|| {
        group
            .go(|| {
                let (ask, asked) = chan::bounded::<()>(0);
                let (tell, told) = chan::bounded::<()>(0);
                let partner = go(move || asked.iter().for_each(|()| tell.send(()).unwrap()));
                runnext::yield_now(); // it waits
                let started = Arc::new(AtomicUsize::new(0));
                let others: Vec<_> = (0..RING)
                    .map(|_| {
                        let started = Arc::clone(&started);
                        go(move || {
                            started.fetch_add(1, Relaxed);
                        })
                    })
                    .collect();
                // The first of these fills the queue; those after it are one chain, while nobody of the queue runs.
                for _ in 0..100 {
                    ask.send(()).unwrap();
                    told.recv().unwrap();
                }
                drop(ask);
                partner.join().unwrap();
                for one in others {
                    one.join().unwrap();
                }
                started.load(Relaxed)
            })
            .join()
            .unwrap()
    });
    assert_eq!(started, RING);
}
