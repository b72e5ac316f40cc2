//! Blocking while a panic unwinds: std counts panics per thread, so the goroutine keeps its thread and gives the P away.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use common::message;
use runnext::{JoinHandle, go, scope, yield_now};

/// Blocks in its drop until another goroutine has ended.
struct JoinsOnDrop(Option<JoinHandle<()>>, Arc<AtomicUsize>);

impl Drop for JoinsOnDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        self.0.take().unwrap().join().unwrap();
        assert!(std::thread::panicking(), "still this thread's panic");
        self.1.fetch_add(1, SeqCst);
    }
}

fn blocks_while_unwinding(joined: &Arc<AtomicUsize>) {
    let handles: Vec<_> = (0..20)
        .map(|i| {
            let joined = Arc::clone(joined);
            go(move || {
                let other = go(|| {
                    for _ in 0..20 {
                        yield_now();
                    }
                });
                let _joins = JoinsOnDrop(Some(other), joined);
                panic!("{i}");
            })
        })
        .collect();
    // Others go on meanwhile.
    for _ in 0..100 {
        yield_now();
        assert!(!std::thread::panicking());
    }
    for (i, handle) in handles.into_iter().enumerate() {
        assert_eq!(message(&*handle.join().unwrap_err()), i.to_string());
    }
}

#[runnext::test(procs = 1)]
fn a_drop_may_join_on_one_processor() {
    let joined = Arc::new(AtomicUsize::new(0));
    blocks_while_unwinding(&joined);
    assert_eq!(joined.load(SeqCst), 20);
}

#[runnext::test(procs = 4)]
fn a_drop_may_join_on_four() {
    let joined = Arc::new(AtomicUsize::new(0));
    for round in 1..=5 {
        blocks_while_unwinding(&joined);
        assert_eq!(joined.load(SeqCst), 20 * round);
    }
}

#[runnext::test(procs = 1)]
fn a_drop_may_yield_spawn_and_scope() {
    struct Busy;
    impl Drop for Busy {
        fn drop(&mut self) {
            yield_now();
            let mut parts = [0; 4];
            scope(|s| {
                for (i, part) in parts.iter_mut().enumerate() {
                    s.go(move || *part = i);
                }
            });
            assert_eq!(parts, [0, 1, 2, 3]);
            // A panic inside, caught inside.
            let inner = panic::catch_unwind(|| {
                yield_now();
                panic::resume_unwind(Box::new("inner"));
            });
            assert!(inner.is_err());
        }
    }
    let outcome = go(|| {
        let _busy = Busy;
        panic!("outer");
    })
    .join();
    assert_eq!(message(&*outcome.unwrap_err()), "outer");
    assert!(!std::thread::panicking());
}

/// The count of panics is right again on every thread: a goroutine that parks after a caught panic moves freely.
#[runnext::test(procs = 4)]
fn nobody_inherits_a_panic() {
    let handles: Vec<_> = (0..200)
        .map(|i| {
            go(move || {
                for j in 0..10 {
                    if (i + j) % 3 == 0 {
                        let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                            panic::resume_unwind(Box::new(()));
                        }));
                        assert!(caught.is_err());
                    }
                    yield_now();
                    assert!(!std::thread::panicking());
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}
