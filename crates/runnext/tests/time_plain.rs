//! `time::after_func` on plain threads.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{Counted, runtime, until};
use runnext::time::{self, Instant};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_function_runs_on_a_thread_of_its_own() {
    let (tx, rx) = mpsc::channel();
    let start = Instant::now();
    let timer = time::after_func(5 * MS, move || {
        let late = start.elapsed();
        tx.send((thread::current().id(), late)).unwrap();
    });
    let (id, late) = rx.recv().unwrap();
    assert!(late >= 5 * MS, "never early: {late:?}");
    assert_ne!(id, thread::current().id());
    assert!(!timer.stop(), "it ran");
}

#[test]
fn it_is_stopped_and_reset_like_one_of_a_runtime() {
    let runs = Arc::new(AtomicUsize::new(0));
    let timer = {
        let runs = Arc::clone(&runs);
        time::after_func(Duration::MAX, move || {
            runs.fetch_add(1, SeqCst);
        })
    };
    assert!(timer.reset(HOUR), "one that never fires was set too");
    assert!(timer.stop());
    assert!(!timer.stop());
    for n in 1..20 {
        assert!(!timer.reset(US * n));
        until(|| runs.load(SeqCst) == n as usize);
    }
    // A goroutine may, too, and it runs on a plain thread still.
    runtime(1).run(|| assert!(!timer.reset(US)));
    until(|| runs.load(SeqCst) == 20);
    assert!(timer.c().try_recv().is_err());
    assert!(!timer.reset(HOUR) && timer.reset(HOUR) && timer.stop());
    thread::sleep(MS);
    assert_eq!(runs.load(SeqCst), 20);
}

#[test]
fn it_never_runs_twice_at_once_nor_too_seldom() {
    let (inside, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let timer = {
        let (inside, runs) = (Arc::clone(&inside), Arc::clone(&runs));
        time::after_func(Duration::MAX, move || {
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            thread::sleep(50 * US);
            assert_eq!(inside.fetch_sub(1, SeqCst), 1);
            runs.fetch_add(1, SeqCst);
        })
    };
    // Each reset that finds it not set is one firing that has happened before.
    assert!(timer.stop());
    let mut fired = 0;
    for i in 0..500u32 {
        fired += usize::from(!timer.reset(US * (i % 300)));
        thread::sleep(US * (i % 131));
    }
    let expected = fired - usize::from(timer.stop());
    until(|| runs.load(SeqCst) == expected);
    thread::sleep(2 * MS);
    assert_eq!(runs.load(SeqCst), expected);
}

#[test]
fn a_panic_ends_one_run_only() {
    let runs = Arc::new(AtomicUsize::new(0));
    let timer = {
        let runs = Arc::clone(&runs);
        time::after_func(US, move || {
            let n = runs.fetch_add(1, SeqCst);
            assert!(n != 0, "the first run panics, on purpose");
        })
    };
    until(|| runs.load(SeqCst) == 1);
    assert!(!timer.reset(US));
    until(|| runs.load(SeqCst) == 2);
}

#[test]
fn a_function_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted::new(&drops);
    let timer = time::after_func(HOUR, move || {
        let _ = &counted;
    });
    assert!(timer.reset(2 * HOUR) && timer.stop());
    drop(timer);
    assert_eq!(drops.load(SeqCst), 1, "stopped");
    let counted = Counted::new(&drops);
    drop(time::after_func(US, move || {
        let _ = &counted;
    }));
    until(|| drops.load(SeqCst) == 2); // ran, although the timer was dropped
}
