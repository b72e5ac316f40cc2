use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

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

#[test]
fn a_limit_ends_the_wait_and_the_mutex_is_held() {
    on_each(|| {
        let (m, never) = (Mutex::new(0), Condvar::new());
        mixed(6, |_| {
            for _ in 0..5 {
                let mut n = m.lock();
                *n += 1;
                let result = never.wait_timeout(&mut n, Duration::from_micros(300));
                assert!(result.timed_out() && m.try_lock().is_none());
            }
        });
        assert_eq!(m.into_inner(), 30);
    });
}

/// One that gave up takes no notification with it: it goes to one that still waits.
#[test]
fn no_notification_is_lost_on_one_that_gave_up() {
    on(1, || {
        let pair = pair(Vec::new());
        let wait = |name: &'static str, limit| {
            let pair = pair.clone();
            let g = runnext::go(move || {
                let mut woken = pair.0.lock();
                if !pair.1.wait_timeout(&mut woken, limit).timed_out() {
                    woken.push(name);
                }
            });
            settle();
            g
        };
        let gives_up = wait("short", Duration::from_millis(1));
        let stays = wait("long", Duration::MAX);
        gives_up.join().unwrap();
        pair.1.notify_one();
        stays.join().unwrap();
        assert_eq!(*pair.0.lock(), ["long"]);
    });
}

/// Notifications and deadlines race. Each notification is taken by one waiter, or finds nobody; and what a waiter was told agrees with
/// what it finds.
#[test]
fn notifications_race_with_deadlines() {
    on_each(|| {
        // Tokens are notified one by one; who was notified, or finds one when it gives up, takes it.
        let (tokens, more) = (Mutex::new(0_usize), Condvar::new());
        let taken = AtomicUsize::new(0);
        const TOKENS: usize = 600;
        mixed(7, |i| {
            if i == 0 {
                for n in 0..TOKENS {
                    *tokens.lock() += 1;
                    more.notify_one();
                    if n % 7 == 0 {
                        runnext::yield_now();
                    }
                }
                return;
            }
            while taken.load(Relaxed) < TOKENS {
                let mut n = tokens.lock();
                let limit = Duration::from_micros(20 * i as u64);
                let result = more.wait_timeout_while(&mut n, limit, |n| *n == 0);
                assert_eq!(result.timed_out(), *n == 0);
                if *n > 0 {
                    *n -= 1;
                    taken.fetch_add(1, Relaxed);
                }
            }
        });
        assert_eq!((tokens.into_inner(), taken.into_inner()), (0, TOKENS));
    });
}

/// `notify_all` beside deadlines: everybody goes on, whatever ended its wait.
#[test]
fn notify_all_races_with_deadlines() {
    on_each(|| {
        let (round, changed) = (Mutex::new(0_usize), Condvar::new());
        mixed(7, |i| {
            for n in 0..200 {
                let mut r = round.lock();
                if i == 0 {
                    *r += 1;
                    drop(r);
                    changed.notify_all();
                    runnext::yield_now();
                } else {
                    let limit = Duration::from_micros((n % 5) * 30);
                    let _ = changed.wait_timeout(&mut r, limit);
                }
            }
        });
    });
}
