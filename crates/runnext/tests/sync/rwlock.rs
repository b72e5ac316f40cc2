use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use runnext::sync::{Barrier, Mutex, RwLock, RwLockWriteGuard};

use crate::{mixed, on, on_each, settle};

/// One count for both: readers add 1, writers 10,000; each checks that nobody is there who must not be.
#[test]
fn hammer() {
    on_each(|| {
        let lock = RwLock::new(0_usize);
        let inside = AtomicUsize::new(0);
        mixed(10, |i| {
            for round in 0..1_000 {
                if (round + i) % 5 == 0 {
                    let mut n = lock.write();
                    assert_eq!(inside.fetch_add(10_000, Relaxed), 0);
                    if round % 50 == 0 {
                        runnext::yield_now();
                    }
                    *n += 1;
                    inside.fetch_sub(10_000, Relaxed);
                } else {
                    let _reading = lock.read();
                    assert!(inside.fetch_add(1, Relaxed) < 10_000);
                    if round % 50 == 1 {
                        runnext::yield_now();
                    }
                    inside.fetch_sub(1, Relaxed);
                }
            }
        });
        assert_eq!(lock.into_inner(), 2_000);
    });
}

#[test]
fn try_hammer() {
    on_each(|| {
        let lock = RwLock::new(0_usize);
        let written = AtomicUsize::new(0);
        mixed(8, |i| {
            for round in 0..2_000 {
                if (round + i) % 4 == 0 {
                    if let Some(mut n) = lock.try_write() {
                        *n += 1;
                        written.fetch_add(1, Relaxed);
                    }
                } else if let Some(n) = lock.try_read() {
                    let before = *n;
                    std::hint::spin_loop();
                    assert_eq!(before, *n);
                }
            }
        });
        assert_eq!(lock.into_inner(), written.into_inner());
    });
}

/// All readers are inside at the same time: they meet there.
#[test]
fn readers_share() {
    for procs in [1, 2, 4] {
        on(procs, || {
            let (lock, meeting) = (RwLock::new(()), Barrier::new(4));
            runnext::scope(|s| {
                for _ in 0..4 {
                    s.go(|| {
                        let _reading = lock.read();
                        meeting.wait();
                    });
                }
            });
        });
    }
}

/// Readers that came while a writer was inside go in before the next writer, all of them.
#[test]
fn readers_go_in_together_before_the_next_writer() {
    on(1, || {
        let lock = Arc::new(RwLock::new(()));
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = lock.write();
        let start = |name: &'static str| {
            let (lock, order) = (lock.clone(), order.clone());
            runnext::go(move || {
                if name == "writer" {
                    let _writing = lock.write();
                    order.lock().push(name);
                } else {
                    let _reading = lock.read();
                    order.lock().push(name);
                    settle(); // the others come in meanwhile
                }
            })
        };
        let all = ["reader", "reader", "writer", "reader"].map(start);
        settle();
        assert!(order.lock().is_empty());
        drop(first);
        for g in all {
            g.join().unwrap();
        }
        assert_eq!(*order.lock(), ["reader", "reader", "reader", "writer"]);
    });
}

/// A writer beside a flood of readers waits for those that are inside, and for no later ones.
#[test]
fn a_writer_waits_for_one_phase_of_readers() {
    const READERS: usize = 4;
    on(1, || {
        let lock = RwLock::new(());
        let (entries, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        runnext::scope(|s| {
            for _ in 0..READERS {
                s.go(|| {
                    while !over.load(Relaxed) {
                        let _reading = lock.read();
                        entries.fetch_add(1, Relaxed);
                        for _ in 0..3 {
                            runnext::yield_now();
                        }
                    }
                });
            }
            let mut behind: Vec<_> = (0..51)
                .map(|_| {
                    settle();
                    let before = entries.load(Relaxed);
                    let _writing = lock.write();
                    entries.load(Relaxed) - before
                })
                .collect();
            over.store(true, Relaxed);
            behind.sort_unstable();
            // Most are exactly 0. A few times the test is preempted between its look and its request.
            assert!(behind[40] <= READERS, "{behind:?}");
        });
    });
}

#[test]
fn who_may_come_in() {
    let lock = RwLock::new(1);
    let reading = lock.read();
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(reading);
    let writing = lock.write();
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    assert_eq!(format!("{lock:?}"), "RwLock { data: <locked>, .. }");
    drop(writing);
    assert!(lock.try_write().is_some());
    assert_eq!(format!("{lock:?}"), "RwLock { data: 1, .. }");
}

/// A reader that comes while a writer waits is not let in by `try_read` either.
#[test]
fn a_pending_writer_keeps_readers_out() {
    on(1, || {
        let lock = Arc::new(RwLock::new(0));
        let reading = lock.read();
        let writer = {
            let lock = lock.clone();
            runnext::go(move || *lock.write() += 1)
        };
        settle();
        assert!(lock.try_read().is_none());
        drop(reading);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    });
}

#[test]
fn a_panic_releases_either_lock() {
    on(2, || {
        let lock = Arc::new(RwLock::new(()));
        for write in [true, false] {
            let lock = lock.clone();
            let panicked = runnext::go(move || {
                let _held = (write.then(|| lock.write()), (!write).then(|| lock.read()));
                panic!("while holding the lock");
            });
            assert!(panicked.join().is_err());
        }
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn guards_may_be_dropped_elsewhere() {
    on(2, || {
        let lock: &'static RwLock<i32> = Box::leak(Box::new(RwLock::new(0)));
        let (reading, also) = (lock.read(), lock.read());
        runnext::go(move || drop(reading)).join().unwrap();
        std::thread::spawn(move || drop(also)).join().unwrap();
        let writing = lock.write();
        runnext::go(move || drop(writing)).join().unwrap();
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn a_leaked_read_guard_keeps_writers_out() {
    let lock = RwLock::new(());
    std::mem::forget(lock.read());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
}

/// Readers that wait come in with it, and a writer does not before all have left.
#[test]
fn a_writer_becomes_a_reader() {
    on(1, || {
        let lock = Arc::new(RwLock::new(vec![0]));
        let mut writing = lock.write();
        let writer = runnext::go({
            let lock = Arc::clone(&lock);
            move || lock.write().push(2)
        });
        let reader = runnext::go({
            let lock = Arc::clone(&lock);
            move || lock.read().clone()
        });
        settle();
        writing.push(1);
        let reading = RwLockWriteGuard::downgrade(writing);
        assert_eq!(reader.join().unwrap(), [0, 1]);
        settle();
        assert!(!writer.is_finished());
        assert_eq!(*reading, [0, 1]);
        drop(reading);
        writer.join().unwrap();
        assert_eq!(*lock.try_write().unwrap(), [0, 1, 2]);
    });
}

/// Of what it wrote nothing has changed before it has left as a reader.
#[test]
fn downgrade_hammer() {
    on_each(|| {
        let lock = RwLock::new(0_usize);
        mixed(10, |i| {
            for round in 0..300 {
                if (round + i) % 3 != 0 {
                    let _reading = lock.read();
                    continue;
                }
                let mut writing = lock.write();
                *writing += 1;
                let mine = *writing;
                let reading = RwLockWriteGuard::downgrade(writing);
                if round % 30 == 0 {
                    runnext::yield_now();
                }
                assert_eq!(*reading, mine);
            }
        });
        assert_eq!(*lock.try_write().unwrap(), 1_000);
    });
}
