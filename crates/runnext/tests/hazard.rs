//! The check for the thread-local contract: moves with something of the thread's are reported, once; nothing else is.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use common::{child, runtime};
use runnext::{chan, go, hazard, lock_os_thread, yield_now};

/// Moves the calling goroutine to another thread: it waits, on one of two Ps, until the other one, whose thread wakes it, has taken it
/// over. Tries until it has happened.
fn move_away() {
    let here = std::thread::current().id();
    while std::thread::current().id() == here {
        let (wake, woken) = chan::bounded::<()>(0);
        let stop = Arc::new(AtomicBool::new(false));
        let waker = go({
            let stop = Arc::clone(&stop);
            move || {
                wake.send(()).unwrap();
                // Keeps the thread it is on, so that the one it woke goes elsewhere if this was its own.
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        woken.recv().unwrap();
        stop.store(true, Relaxed);
        waker.join().unwrap();
    }
}

const ON: &[(&str, &str)] = &[("RUNNEXT_DEBUG", "hazards=1")];

#[test]
fn a_move_is_reported_once_with_both_places() {
    let ended = child(ON, || {
        runtime(2).run(|| {
            let held = hazard::hold("a test's thread-local");
            move_away();
            yield_now();
            drop(held);
            assert_eq!(hazard::reported(), 1);
        });
    });
    ended.passed().said(&[
        "hazard: goroutine 1 took a test's thread-local at",
        "hazard.rs",
    ]);
}

#[test]
fn what_stays_or_is_let_go_is_not_reported() {
    child(ON, || {
        runtime(2).run(|| {
            drop(hazard::hold("let go in time"));
            move_away();
            {
                let _held = hazard::hold("held without a park");
                std::hint::black_box(1);
            }
            let _tied = lock_os_thread();
            let _outer = hazard::hold("held on a locked thread");
            let _inner = hazard::hold("another");
            for _ in 0..100 {
                yield_now();
            }
        });
        // On a plain thread it is nothing.
        drop(hazard::hold("of a plain thread"));
        assert_eq!(hazard::reported(), 0);
    })
    .passed();
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    child(ON, || {
        runtime(2).run(|| {
            let first = hazard::hold("the first");
            let second = hazard::hold("the second");
            drop(first);
            move_away();
            let third = hazard::hold("the third");
            drop(second);
            drop(third);
            assert_eq!(hazard::reported(), 1);
        });
    })
    .passed();
}

#[test]
fn it_can_be_turned_off() {
    child(&[("RUNNEXT_DEBUG", "hazards=0")], || {
        runtime(2).run(|| {
            let _held = hazard::hold("nobody asks");
            move_away();
        });
        assert_eq!(hazard::reported(), 0);
    })
    .passed();
}
