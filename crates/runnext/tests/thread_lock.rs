//! `lock_os_thread`: one goroutine, one thread, and the P that goes back and forth.

mod common;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use common::{assert_settles, child, runtime, switches, switches_of, until};
use runnext::net::UnixStream;
use runnext::{Runtime, TaskGroup, chan, go, lock_os_thread, scope, time, yield_now};

fn tid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Keeps every P busy, so that yielding means leaving.
fn with_company(f: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    scope(|s| {
        for _ in 0..4 {
            s.go(|| {
                while !stop.load(Relaxed) {
                    yield_now();
                }
            });
        }
        f();
        stop.store(true, Relaxed);
    });
}

#[runnext::test(procs = 2)]
fn a_locked_goroutine_stays_and_nobody_else_comes() {
    with_company(|| {
        let _tied = lock_os_thread();
        let mine = tid();
        for _ in 0..100 {
            yield_now();
            assert_eq!(tid(), mine);
            assert_ne!(go(tid).join().unwrap(), mine, "another ran on our thread");
            assert_eq!(tid(), mine);
        }
    });
}

#[runnext::test(procs = 2)]
fn guards_nest() {
    with_company(|| {
        let outer = lock_os_thread();
        let inner = lock_os_thread();
        let mine = tid();
        drop(outer);
        for _ in 0..50 {
            yield_now();
            assert_eq!(tid(), mine);
        }
        drop(inner);
        // Free again: a thread that stayed locked would be one fewer for ever.
        for _ in 0..200 {
            drop(lock_os_thread());
            yield_now();
        }
    });
}

#[runnext::test(procs = 1)]
fn on_one_processor_it_goes_back_and_forth() {
    // Locked waits for unlocked, and unlocked for locked.
    let _tied = lock_os_thread();
    for i in 0..200 {
        let other = go(move || {
            let locked = go(move || {
                let _tied = lock_os_thread();
                yield_now();
                i
            });
            yield_now();
            locked.join().unwrap()
        });
        assert_eq!(other.join().unwrap(), i);
    }
}

/// A polling goroutine, locked and unlocked, sees what the other does: yielding yields.
#[runnext::test(procs = 1)]
fn yielding_makes_progress_locked_or_not() {
    for lock in [false, true] {
        let flag = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&flag);
        let _tied = lock.then(lock_os_thread);
        go(move || other.store(true, Relaxed));
        while !flag.load(Relaxed) {
            yield_now();
        }
    }
}

/// Go's TestYieldProgress and TestYieldLockedProgress: who polls a channel and yields lets a send through.
#[test]
fn polling_a_channel_makes_progress_locked_or_not() {
    for (procs, lock) in [(1, false), (1, true), (2, false), (2, true)] {
        runtime(procs).run(|| {
            let (tx, rx) = chan::bounded::<()>(0);
            let polls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&polls);
            let poller = go(move || {
                let _tied = lock.then(lock_os_thread);
                while rx.try_recv().is_err() {
                    counted.fetch_add(1, Relaxed);
                    yield_now();
                }
            });
            until(|| polls.load(Relaxed) > 100);
            tx.send(()).unwrap();
            poller.join().unwrap();
        });
    }
}

#[runnext::test(procs = 4)]
fn many_locked_ones_side_by_side() {
    let ends = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..30)
        .map(|i| {
            let ends = Arc::clone(&ends);
            go(move || {
                let _tied = lock_os_thread();
                let mine = tid();
                for j in 0..20 {
                    match (i + j) % 3 {
                        0 => yield_now(),
                        1 => drop(go(yield_now)),
                        _ => go(|| ()).join().unwrap(),
                    }
                    assert_eq!(tid(), mine);
                }
                ends.fetch_add(1, Relaxed);
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(ends.load(Relaxed), 30);
    until(|| runnext::num_goroutines() == 1);
}

#[test]
fn a_thread_dies_with_the_goroutine_that_ended_locked() {
    child(&[], || {
        let rt = runtime(2);
        rt.run(|| {
            for _ in 0..20 {
                let handle = go(|| {
                    std::mem::forget(lock_os_thread());
                    yield_now();
                    tid()
                });
                let dead = PathBuf::from(format!("/proc/self/task/{}", handle.join().unwrap()));
                until(|| !dead.exists());
                assert_eq!(go(|| 1).join().unwrap(), 1);
            }
        });
    })
    .passed();
}

/// Go's TestMexitSTW: no P stays with a thread that is gone.
#[test]
fn threads_die_beside_resizes() {
    child(&[], || {
        runtime(4).run(|| {
            for i in 0..100 {
                let locked = go(|| std::mem::forget(lock_os_thread()));
                runnext::set_procs(1 + i * 5 % 8);
                locked.join().unwrap();
            }
            let all: Vec<_> = (0..20).map(|i| go(move || i)).collect();
            for (i, one) in all.into_iter().enumerate() {
                assert_eq!(one.join().unwrap(), i);
            }
        });
    })
    .passed();
}

/// What a locked goroutine does to its thread, no other thread inherits: here, a signal mask.
#[test]
fn new_threads_are_clean() {
    fn blocks_usr2(change: bool) -> bool {
        // SAFETY: plain out-pointers; the set is initialised before it is read.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            if change {
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
            libc::sigismember(&set, libc::SIGUSR2) == 1
        }
    }
    let rt = runtime(2);
    rt.run(|| {
        let handles: Vec<_> = (0..10)
            .map(|_| {
                go(|| {
                    std::mem::forget(lock_os_thread());
                    let before = blocks_usr2(false);
                    assert!(blocks_usr2(true));
                    // Needs another thread, made while this one is the caller.
                    let others: Vec<_> = (0..4).map(|_| go(|| blocks_usr2(false))).collect();
                    before | others.into_iter().any(|o| o.join().unwrap())
                })
            })
            .collect();
        for handle in handles {
            assert!(!handle.join().unwrap(), "a mask came along");
        }
    });
}

#[runnext::test(procs = 2)]
fn a_panic_unlocks() {
    let other = go(|| {
        let _tied = lock_os_thread();
        yield_now();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(other.join().is_err());
    // Locked threads that a panic would have left behind run out sooner or later.
    for _ in 0..200 {
        let other = go(|| {
            let _tied = lock_os_thread();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(other.join().is_err());
    }
}

/// A fresh runtime has one thread and many idle Ps: the P that a locked goroutine leaves must find a thread although others
/// are idle too, and its queue must be seen.
#[test]
fn the_processor_it_leaves_is_used() {
    for procs in [1, 2, 4, 8] {
        for _ in 0..30 {
            let rt = runtime(procs);
            let sum = rt.run(|| {
                let _tied = lock_os_thread();
                let handles: Vec<_> = (0..20).map(|i| go(move || i)).collect();
                handles.into_iter().map(|h| h.join().unwrap()).sum::<i32>()
            });
            assert_eq!(sum, 190);
        }
    }
}

/// As above while the number of Ps goes up and down: a P that is one too many must not keep its queue.
#[runnext::test(procs = 8)]
fn the_processor_it_leaves_may_be_one_too_many() {
    for i in 0..300usize {
        runnext::set_procs(1 + i * 5 % 8);
        let other = go(|| {
            let _tied = lock_os_thread();
            let handles: Vec<_> = (0..20).map(|i| go(move || i)).collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum::<i32>()
        });
        runnext::set_procs(1 + i * 3 % 8);
        assert_eq!(other.join().unwrap(), 190);
    }
}

/// At the limit every thread sleeps with a goroutine that is locked to it: nobody is left to look after timers, sockets and
/// queues but the monitor.
#[test]
fn the_limit_of_threads_stops_nobody_who_can_go_on() {
    for (procs, threads) in [(1, 1), (1, 4), (2, 10), (8, 10)] {
        // SAFETY: nothing here keeps a borrow of a thread-local over a call.
        let rt = unsafe { Runtime::builder().procs(procs).max_threads(threads).build() }
            .expect("starts");
        let group = TaskGroup::builder("locked").build();
        for _ in 0..5 {
            rt.run(|| {
                let locked = |kind: usize| {
                    let _lock = lock_os_thread();
                    match kind % 4 {
                        0 => time::sleep(Duration::from_millis(5)),
                        1 => yield_now(),
                        2 => assert!(chan::after(Duration::from_millis(5)).recv().is_ok()),
                        _ => ping(),
                    }
                };
                let spawn = |i: usize| match i % 2 {
                    0 => go(move || locked(i / 2)),
                    _ => group.go(move || locked(i / 2)),
                };
                let handles: Vec<_> = (0..6 * threads).map(spawn).collect();
                handles.into_iter().for_each(|h| h.join().expect("ends"));
            });
        }
    }
}

/// No timer and no event comes to the help of one that has just become the only one there is a thread for.
#[test]
fn at_the_limit_of_threads_one_may_yield() {
    for (procs, threads, locked) in [(1, 1, 1), (1, 2, 2), (2, 2, 4)] {
        // SAFETY: nothing here keeps a borrow of a thread-local over a call.
        let rt = unsafe { Runtime::builder().procs(procs).max_threads(threads).build() }
            .expect("starts");
        rt.run(|| {
            let yields = || {
                let _lock = lock_os_thread();
                (0..100).for_each(|_| yield_now());
            };
            let others: Vec<_> = (1..locked).map(|_| go(yields)).collect();
            yields();
            others.into_iter().for_each(|h| h.join().expect("ends"));
        });
    }
}

/// A byte from a plain thread, which takes its time.
fn ping() {
    let (mut here, there) = UnixStream::pair().expect("a pair");
    let there = there.into_std().expect("a plain one");
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        (&there).write_all(b"!").expect("room");
    });
    here.read_exact(&mut [0]).expect("a byte");
    other.join().expect("ends");
}

#[test]
fn once_there_are_threads_again_nobody_asks_for_one() {
    child(&[], || {
        // SAFETY: nothing here keeps a borrow of a thread-local over a call.
        let rt = unsafe { Runtime::builder().procs(2).max_threads(4).build() }.expect("starts");
        rt.run(|| {
            let sleep = || runnext::blocking(|| std::thread::sleep(Duration::from_millis(50)));
            let handles: Vec<_> = (0..16).map(|_| go(sleep)).collect();
            handles.into_iter().for_each(|h| h.join().expect("ends"));
        });
        assert_settles(switches, 50, std::thread::sleep);
    })
    .passed();
}

/// At the limit every look of the monitor and every preemption asked for a spare thread, and each time it was tried to make one.
#[test]
fn at_the_limit_of_threads_a_spare_one_is_asked_for_now_and_then() {
    child(&[], || {
        // SAFETY: nothing here keeps a borrow of a thread-local over a call.
        let rt = unsafe { Runtime::builder().procs(2).max_threads(2).build() }.expect("starts");
        rt.run(|| {
            with_company(|| {
                let sleeps = || switches_of(|name| name == "runnext-threads");
                let (began, before) = (Instant::now(), sleeps());
                while began.elapsed() < Duration::from_secs(1) {
                    yield_now();
                }
                let slept = (sleeps() - before) as u128;
                // It tries every 10 ms, and is woken once between.
                let most = began.elapsed().as_millis() / 10 * 3;
                assert!(slept < most, "{slept}, more than {most}");
            });
        });
    })
    .passed();
}
