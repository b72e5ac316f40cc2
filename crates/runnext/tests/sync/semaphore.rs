use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use runnext::sync::{Mutex, Semaphore};

use crate::{mixed, on, on_each, settle};

#[test]
fn never_more_inside_than_permits() {
    on_each(|| {
        for permits in [1, 3] {
            let (s, inside) = (Semaphore::new(permits), AtomicUsize::new(0));
            mixed(10, |i| {
                for round in 0..500 {
                    let tried = (round % 2 == 0).then(|| s.try_acquire()).flatten();
                    let permit = tried.unwrap_or_else(|| s.acquire());
                    assert!(inside.fetch_add(1, Relaxed) < permits);
                    if round % 10 == i {
                        runnext::yield_now();
                    }
                    inside.fetch_sub(1, Relaxed);
                    drop(permit);
                }
            });
            assert_eq!(s.available_permits(), permits);
        }
    });
}

/// First come, first served; and who comes later cannot overtake, not even with `try_acquire`.
#[test]
fn in_order() {
    on(1, || {
        let (s, order) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(vec![])));
        let all: Vec<_> = (0..5)
            .map(|i| {
                let (s, order) = (s.clone(), order.clone());
                let g = runnext::go(move || {
                    s.acquire().forget();
                    order.lock().push(i);
                });
                settle();
                g
            })
            .collect();
        s.add_permits(2);
        assert!(s.try_acquire().is_none(), "both are promised");
        settle();
        // Woken together, they run in any order; but these two.
        order.lock().sort_unstable();
        assert_eq!(*order.lock(), [0, 1]);
        for _ in 0..3 {
            s.add_permits(1);
            settle();
        }
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
        s.add_permits(4);
        assert_eq!(s.available_permits(), 4);
        for g in all {
            g.join().unwrap();
        }
    });
}

#[test]
fn a_permit_may_be_dropped_elsewhere_and_by_a_panic() {
    on(2, || {
        let s: &'static Semaphore = Box::leak(Box::new(Semaphore::new(2)));
        let permit = s.acquire();
        std::thread::spawn(move || drop(permit)).join().unwrap();
        let panicked = runnext::go(|| {
            let _permit = s.acquire();
            panic!("while holding a permit");
        });
        assert!(panicked.join().is_err());
        assert_eq!(s.available_permits(), 2);
    });
}

#[test]
#[should_panic(expected = "more permits than a semaphore counts")]
fn too_many_permits_panic() {
    let s = Semaphore::new(usize::MAX / 2);
    s.add_permits(1);
}

/// Who gives up leaves the queue as if it had never been there.
#[test]
fn who_gives_up_keeps_nobody_back() {
    on_each(|| {
        let s = Arc::new(Semaphore::new(0));
        assert!(s.acquire_timeout(Duration::ZERO).is_none());
        assert!(s.acquire_timeout(Duration::from_millis(1)).is_none());
        s.add_permits(1);
        assert_eq!(s.available_permits(), 1);
        s.acquire_timeout(Duration::from_millis(1))
            .unwrap()
            .forget();
        // One that waits behind it gets the next one, however long it takes.
        let theirs = Arc::clone(&s);
        let behind = runnext::go(move || theirs.acquire_timeout(Duration::MAX).unwrap().forget());
        assert!(s.acquire_timeout(Duration::from_millis(1)).is_none());
        s.add_permits(1);
        behind.join().unwrap();
        assert!(s.try_acquire().is_none());
    });
}

#[test]
fn permits_and_time_outs_at_once_lose_none() {
    on_each(|| {
        let s = Semaphore::new(2);
        let inside = AtomicUsize::new(0);
        mixed(10, |i| {
            for round in 0..200 {
                let limit = Duration::from_micros((round * 7 + i as u64) % 50);
                let Some(permit) = s.acquire_timeout(limit) else {
                    continue;
                };
                assert!(inside.fetch_add(1, Relaxed) < 2);
                runnext::yield_now();
                inside.fetch_sub(1, Relaxed);
                drop(permit);
            }
        });
        assert_eq!(s.available_permits(), 2);
        assert!(s.try_acquire().is_some());
    });
}
