use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use runnext::sync::{Mutex, MutexGuard};

use crate::{mixed, on, on_each, settle, spin};

#[test]
fn hammer() {
    on_each(|| {
        let m = Mutex::new(0_usize);
        mixed(10, |i| {
            for round in 0..5_000 {
                if round % 3 == 0
                    && let Some(mut n) = m.try_lock()
                {
                    *n += 1;
                    continue;
                }
                *m.lock() += 1;
                if round % 100 == i {
                    runnext::yield_now();
                }
            }
        });
        assert_eq!(m.into_inner(), 50_000);
    });
}

/// Holders that switch off while they hold the lock make everybody queue up.
#[test]
fn holders_that_yield() {
    on_each(|| {
        let m = Mutex::new(0_usize);
        let inside = AtomicUsize::new(0);
        mixed(12, |_| {
            for _ in 0..100 {
                let mut n = m.lock();
                assert_eq!(inside.fetch_add(1, Relaxed), 0);
                runnext::yield_now();
                inside.fetch_sub(1, Relaxed);
                *n += 1;
            }
        });
        assert_eq!(m.into_inner(), 1_200);
    });
}

/// One goroutine holds the lock almost always; another still gets it, long before the first is through.
#[test]
fn a_waiter_is_not_starved() {
    const HOLDS: usize = 20_000;
    for procs in [1, 2] {
        let holds = on(procs, || {
            let m = Mutex::new(());
            let over = AtomicBool::new(false);
            runnext::scope(|s| {
                let hog = s.go(|| {
                    let mut holds = 0;
                    while !over.load(Relaxed) && holds < HOLDS {
                        let _held = m.lock();
                        spin(Duration::from_micros(100));
                        holds += 1;
                    }
                    holds
                });
                for _ in 0..10 {
                    runnext::yield_now();
                    drop(m.lock());
                }
                over.store(true, Relaxed);
                hog.join().unwrap()
            })
        });
        assert!(
            holds < HOLDS,
            "{procs} processors: {holds} holds for ten turns"
        );
    }
}

/// In starving mode an unlock hands the lock over, and the waiter runs in the unlocker's place.
#[test]
fn a_starving_waiter_runs_before_the_unlocker_goes_on() {
    const ROUNDS: usize = 30;
    for procs in [1, 2, 8] {
        let direct = on(procs, || (0..ROUNDS).filter(|_| one_handover()).count());
        assert!(
            3 * direct >= 2 * ROUNDS,
            "{procs} processors: {direct} of {ROUNDS} were direct"
        );
    }
}

fn one_handover() -> bool {
    let m = Mutex::new(());
    let (asked, ran) = (AtomicBool::new(false), AtomicBool::new(false));
    runnext::scope(|s| {
        let held = m.lock();
        let waiter = s.go(|| {
            asked.store(true, Relaxed);
            let _held = m.lock();
            ran.store(true, Relaxed);
        });
        while !asked.load(Relaxed) {
            runnext::yield_now();
        }
        spin(Duration::from_millis(2));
        // Woken, it finds the lock taken again, and that it has waited for more than a millisecond.
        drop(held);
        let held = m.lock();
        let late = ran.load(Relaxed); // it was faster: on several processors it may be
        settle();
        spin(Duration::from_micros(50));
        drop(held);
        let direct = late || ran.load(Relaxed);
        waiter.join().unwrap();
        direct
    })
}

/// Waiters of a starving mutex get it in the order they came.
#[test]
fn in_order_once_they_starve() {
    on(1, || {
        let m = Arc::new(Mutex::new(Vec::new()));
        let mut held = m.lock();
        let all: Vec<_> = (0..5)
            .map(|i| {
                let m = m.clone();
                let g = runnext::go(move || m.lock().push(i));
                settle();
                g
            })
            .collect();
        for _ in 0..3 {
            // The first is woken, loses, and returns to the front: nobody overtakes it.
            spin(Duration::from_micros(1500));
            drop(held);
            held = m.lock();
            settle();
        }
        drop(held);
        for g in all {
            g.join().unwrap();
        }
        assert_eq!(*m.lock(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn try_lock_tells_held_from_free() {
    let m = Mutex::new(1);
    let held = m.try_lock().unwrap();
    assert!(m.try_lock().is_none());
    drop(held);
    assert_eq!(*m.try_lock().unwrap(), 1);
}

#[test]
fn a_panic_releases_the_lock_and_poisons_nothing() {
    on(2, || {
        let m = Arc::new(Mutex::new(0));
        let other = m.clone();
        let panicked = runnext::go(move || {
            let mut n = other.lock();
            *n += 1;
            panic!("while holding the lock");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*m.lock(), 1);
    });
}

/// A waiter that starves, and an unlock that comes from an unwinding: handing over must not switch there.
#[test]
fn a_panic_releases_a_contended_lock() {
    on(1, || {
        let m = Arc::new(Mutex::new(0));
        for _ in 0..5 {
            let (a, b) = (m.clone(), m.clone());
            let panics = runnext::go(move || {
                let _held = a.lock();
                spin(Duration::from_micros(1500));
                runnext::yield_now();
                panic!("while others wait");
            });
            let waits = runnext::go(move || *b.lock() += 1);
            assert!(panics.join().is_err());
            waits.join().unwrap();
        }
        assert_eq!(*m.lock(), 5);
    });
}

#[test]
fn a_guard_may_be_dropped_elsewhere() {
    on(2, || {
        let m: &'static Mutex<u32> = Box::leak(Box::new(Mutex::new(0)));
        let guard: MutexGuard<'static, u32> = m.lock();
        std::thread::spawn(move || drop(guard)).join().unwrap();
        let guard = m.lock();
        let waiter = runnext::go(|| *m.lock() += 1);
        runnext::yield_now();
        runnext::go(move || drop(guard)).join().unwrap();
        waiter.join().unwrap();
        // And one taken on a plain thread, dropped here.
        let guard = std::thread::spawn(|| m.lock()).join().unwrap();
        drop(guard);
        assert_eq!(*m.lock(), 1);
    });
}

/// A guard that outlives the runtime it was taken in names an owner that is no more.
#[test]
fn a_guard_may_outlive_its_runtime() {
    let m = Mutex::new(5);
    let guard = on(1, || m.lock());
    on(1, || drop(guard));
    assert_eq!(*m.lock(), 5);
}

#[test]
fn a_leaked_guard_locks_for_ever() {
    let m = Mutex::new(());
    std::mem::forget(m.lock());
    assert!(m.try_lock().is_none());
    assert_eq!(format!("{m:?}"), "Mutex { data: <locked>, .. }");
}

#[test]
fn dynamic_data_and_conversions() {
    let m: Box<Mutex<[i32]>> = Box::new(Mutex::new([1, 2, 3]));
    m.lock()[1] = 5;
    assert_eq!(format!("{m:?}"), "Mutex { data: [1, 5, 3], .. }");
    let mut m = Mutex::from(3);
    *m.get_mut() += 1;
    assert_eq!(m.into_inner() + Mutex::<i32>::default().into_inner(), 4);
    assert_eq!(
        format!("{} {:?}", Mutex::new(7).lock(), Mutex::new(8).lock()),
        "7 8"
    );
}

/// Two runtimes and plain threads share one lock.
#[test]
fn across_runtimes() {
    let m = Mutex::new(0_usize);
    std::thread::scope(|s| {
        for procs in [1, 2] {
            let m = &m;
            s.spawn(move || {
                on(procs, || {
                    mixed(4, |_| {
                        for _ in 0..2_000 {
                            *m.lock() += 1;
                        }
                    });
                });
            });
        }
    });
    assert_eq!(m.into_inner(), 16_000);
}
