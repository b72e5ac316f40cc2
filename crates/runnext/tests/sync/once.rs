use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use runnext::sync::{Once, OnceLock};

use crate::{message, mixed, on, on_each, settle};

#[test]
fn happens_one_time() {
    on_each(|| {
        for _ in 0..100 {
            let (once, runs) = (Once::new(), AtomicUsize::new(0));
            mixed(8, |_| {
                once.call_once(|| {
                    runnext::yield_now();
                    runs.fetch_add(1, Relaxed);
                });
                assert_eq!(
                    runs.load(Relaxed),
                    1,
                    "it has happened when call_once returns"
                );
            });
        }
    });
}

#[test]
fn after_a_panic_the_next_one_tries() {
    on_each(|| {
        let (cell, tries) = (OnceLock::new(), AtomicUsize::new(0));
        mixed(8, |_| {
            let tried = catch_unwind(AssertUnwindSafe(|| {
                *cell.get_or_init(|| {
                    let n = tries.fetch_add(1, Relaxed);
                    runnext::yield_now();
                    assert!(n == 3, "not yet");
                    n
                })
            }));
            if let Ok(value) = tried {
                assert_eq!(value, 3);
            }
        });
        assert_eq!(cell.get(), Some(&3));
        assert_eq!(tries.into_inner(), 4);
    });
}

#[test]
fn asking_for_itself_panics_with_advice() {
    let cell = OnceLock::new();
    let ask = || *cell.get_or_init(|| *cell.get_or_init(|| 1) + 1);
    let payload = catch_unwind(AssertUnwindSafe(ask)).unwrap_err();
    assert!(message(payload).contains("asks for the same one"));
    assert_eq!(cell.set(5), Ok(()));
    let text = on(1, || {
        let once = Once::new();
        let again = AssertUnwindSafe(|| once.call_once(|| once.call_once(|| ())));
        message(catch_unwind(again).unwrap_err())
    });
    assert!(text.contains("asks for the same one"));
}

#[test]
fn wait_waits_for_the_value() {
    on(1, || {
        let cell = Arc::new(OnceLock::new());
        let waiter = {
            let cell = cell.clone();
            runnext::go(move || *cell.wait())
        };
        settle();
        assert!(!waiter.is_finished());
        let failed = catch_unwind(AssertUnwindSafe(|| {
            cell.get_or_init(|| panic!("no value this time"));
        }));
        assert!(failed.is_err());
        settle();
        assert!(!waiter.is_finished());
        cell.set(9).unwrap();
        assert_eq!(waiter.join().unwrap(), 9);
    });
}

#[test]
fn values_are_dropped_exactly_once() {
    let value = Arc::new(());
    let count = || Arc::strong_count(&value) - 1;
    let cell = OnceLock::from(value.clone());
    assert!(cell.set(value.clone()).is_err() && count() == 1);
    let copy = cell.clone();
    assert_eq!(count(), 2);
    drop(cell);
    let mut copy = copy;
    drop(copy.take());
    assert!(copy.get().is_none() && count() == 0);
    assert_eq!(format!("{copy:?}"), "OnceLock(<empty>)");
    drop(copy);
    drop(OnceLock::<Arc<()>>::default());
    assert_eq!(count(), 0);
}
