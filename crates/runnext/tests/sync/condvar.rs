use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use runnext::sync::{Condvar, Mutex};

use crate::{mixed, on, on_each, settle};

type Pair<T> = Arc<(Mutex<T>, Condvar)>;

fn pair<T>(value: T) -> Pair<T> {
    Arc::new((Mutex::new(value), Condvar::new()))
}

/// One notification, one goroutine; in the order they came.
#[test]
fn notify_one_wakes_one_in_order() {
    on(1, || {
        let pair = pair(Vec::new());
        let all: Vec<_> = (0..5)
            .map(|i| {
                let pair = pair.clone();
                let g = runnext::go(move || {
                    let mut woken = pair.0.lock();
                    pair.1.wait(&mut woken);
                    woken.push(i);
                });
                settle();
                g
            })
            .collect();
        for i in 0..5 {
            assert_eq!(pair.0.lock().len(), i);
            pair.1.notify_one();
            settle();
        }
        for g in all {
            g.join().unwrap();
        }
        assert_eq!(*pair.0.lock(), [0, 1, 2, 3, 4]);
    });
}

/// Who waits after a notification was given cannot take it from those who waited before.
#[test]
fn a_late_waiter_cannot_steal() {
    on_each(|| {
        for _ in 0..200 {
            let pair = pair(0);
            let early = {
                let pair = pair.clone();
                runnext::go(move || {
                    let mut ready = pair.0.lock();
                    *ready = 1;
                    pair.1.wait(&mut ready);
                })
            };
            while *pair.0.lock() == 0 {
                runnext::yield_now();
            }
            // It has released the mutex, so it is in the queue, parked or not.
            pair.1.notify_one();
            let late = {
                let pair = pair.clone();
                runnext::go(move || pair.1.wait_while(&mut pair.0.lock(), |state| *state < 2))
            };
            early.join().unwrap();
            *pair.0.lock() = 2;
            pair.1.notify_all();
            late.join().unwrap();
        }
    });
}

/// A notification with nobody waiting is not kept.
#[test]
fn notifications_are_not_stored() {
    on(1, || {
        let pair = pair(false);
        pair.1.notify_one();
        pair.1.notify_all();
        let waiter = {
            let pair = pair.clone();
            runnext::go(move || {
                let mut woken = pair.0.lock();
                pair.1.wait(&mut woken);
                *woken = true;
            })
        };
        settle();
        assert!(!waiter.is_finished() && !*pair.0.lock());
        pair.1.notify_one();
        waiter.join().unwrap();
    });
}

#[test]
fn notify_all_wakes_each_once() {
    on_each(|| {
        let (state, changed) = (Mutex::new((0_usize, 0_usize)), Condvar::new());
        const ROUNDS: usize = 50;
        mixed(9, |i| {
            if i == 0 {
                for round in 1..=ROUNDS {
                    let mut s = state.lock();
                    while s.1 != 8 {
                        drop(s);
                        runnext::yield_now();
                        s = state.lock();
                    }
                    *s = (round, 0);
                    drop(s);
                    changed.notify_all();
                }
                return;
            }
            let mut s = state.lock();
            for round in 1..=ROUNDS {
                s.1 += 1;
                changed.wait_while(&mut s, |s| s.0 < round);
            }
        });
    });
}

/// A bounded queue between producers and consumers of both kinds.
#[test]
fn bounded_queue() {
    on_each(|| {
        let queue = Mutex::new(Vec::new());
        let (not_full, not_empty) = (Condvar::new(), Condvar::new());
        let sum = AtomicUsize::new(0);
        const EACH: usize = 1_000;
        mixed(8, |i| {
            for n in 0..EACH {
                let mut q = queue.lock();
                if i < 4 {
                    not_full.wait_while(&mut q, |q| q.len() == 3);
                    q.push(n);
                    not_empty.notify_one();
                } else {
                    not_empty.wait_while(&mut q, |q| q.is_empty());
                    sum.fetch_add(q.pop().unwrap(), Relaxed);
                    not_full.notify_one();
                }
            }
        });
        assert_eq!(sum.into_inner(), 4 * EACH * (EACH - 1) / 2);
        assert!(queue.into_inner().is_empty());
    });
}

/// The mutex is released for the wait and held after it, also when it is contended all the while.
#[test]
fn the_mutex_is_held_again() {
    on_each(|| {
        let (state, changed) = (Mutex::new(0_usize), Condvar::new());
        mixed(6, |i| {
            for _ in 0..500 {
                let mut s = state.lock();
                if i % 3 == 0 {
                    *s += 1;
                    changed.notify_all();
                } else {
                    let before = *s;
                    if before < 900 {
                        changed.wait_while(&mut s, |s| *s == before && *s < 1_000);
                    }
                }
            }
        });
        assert_eq!(state.into_inner(), 1_000);
    });
}
