//! Sleeping, timers and tickers, as far as order and "never early" go.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{built, runtime, until};
use runnext::time::{self, Instant};
use runnext::{go, scope};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// One P, so one heap and one queue, and nobody is interrupted between waking up and saying so.
fn one_queue() -> runnext::Runtime {
    built(runnext::Runtime::builder().procs(1).preemption(false))
}

#[test]
fn never_early() {
    for procs in [1, 2, 4] {
        runtime(procs).run(|| {
            scope(|s| {
                for d in [1, 10, 100, 999, 1_000, 1_500, 12_345] {
                    s.go(move || {
                        for _ in 0..10 {
                            let d = d * US;
                            let start = Instant::now();
                            time::sleep(d);
                            assert!(start.elapsed() >= d);
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn zero_and_past_return_at_once() {
    runtime(1).run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let other = {
            let ran = ran.clone();
            go(move || ran.store(true, SeqCst))
        };
        time::sleep(Duration::ZERO);
        time::sleep_until(Instant::now());
        time::sleep_until(Instant::now() - Duration::MAX);
        assert!(!ran.load(SeqCst), "they do not even yield");
        other.join().unwrap();
    });
}

#[test]
fn the_longest_sleep_does_not_end() {
    let rt = runtime(2);
    let ended = Arc::new(AtomicUsize::new(0));
    for d in [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_nanos(u64::MAX),
    ] {
        let ended = ended.clone();
        rt.go(move || {
            time::sleep(d);
            ended.fetch_add(1, SeqCst);
        });
    }
    rt.run(|| time::sleep(20 * MS));
    assert_eq!(ended.load(SeqCst), 0);
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 3);
}

#[test]
fn equal_deadlines_in_order() {
    one_queue().run(|| {
        let order = Mutex::new(Vec::new());
        let at = Instant::now() + 20 * MS;
        scope(|s| {
            for i in 0..500 {
                let order = &order;
                s.go(move || {
                    time::sleep_until(at);
                    order.lock().unwrap().push(i);
                });
                runnext::yield_now(); // it sleeps before the next one starts
            }
        });
        assert!(order.into_inner().unwrap().is_sorted());
    });
}

#[test]
fn earlier_deadlines_first() {
    one_queue().run(|| {
        let order = Mutex::new(Vec::new());
        let start = Instant::now() + 20 * MS;
        scope(|s| {
            for i in (0..50u32).rev() {
                let order = &order;
                s.go(move || {
                    time::sleep_until(start + i * MS / 4);
                    order.lock().unwrap().push(i);
                });
            }
        });
        assert!(order.into_inner().unwrap().is_sorted());
    });
}

#[test]
fn a_plain_thread_sleeps_too() {
    let start = Instant::now();
    time::sleep(3 * MS);
    time::sleep_until(start + 5 * MS);
    assert!(start.elapsed() >= 5 * MS);
}

#[test]
fn a_sleeper_locked_to_its_thread() {
    runtime(1).run(|| {
        let locked = go(|| {
            let _guard = runnext::lock_os_thread();
            let start = Instant::now();
            time::sleep(5 * MS);
            assert!(start.elapsed() >= 5 * MS);
        });
        // Nothing else runs: the P stands idle, and somebody has to keep the time.
        locked.join().unwrap();
    });
}

#[test]
fn an_earlier_timer_ends_a_longer_wait() {
    for procs in [1, 2, 4] {
        runtime(procs).run(|| {
            let long = go(|| time::sleep(Duration::from_secs(3600)));
            time::sleep(5 * MS); // somebody waits for the hour by now
            for _ in 0..20 {
                let short = go(|| time::sleep(MS));
                short.join().unwrap();
            }
            assert!(!long.is_finished());
        });
    }
}

#[test]
fn timers_are_not_starved_by_chatter() {
    // GO-SPEC 20.6: one P that is never idle.
    runtime(1).run(|| {
        let done = Arc::new(AtomicBool::new(false));
        let chatter: Vec<_> = (0..2)
            .map(|_| {
                let done = done.clone();
                go(move || {
                    while !done.load(SeqCst) {
                        runnext::yield_now();
                    }
                })
            })
            .collect();
        time::sleep(US);
        time::sleep(20 * MS);
        done.store(true, SeqCst);
        for c in chatter {
            c.join().unwrap();
        }
    });
}

#[test]
fn shutdown_reaches_the_one_who_waits_for_timers() {
    for _ in 0..20 {
        let rt = runtime(2);
        rt.go(|| time::sleep(Duration::from_secs(3600)));
        rt.run(|| time::sleep(MS));
        assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
    }
}

#[test]
fn fewer_processors_keep_their_timers() {
    runtime(4).run(|| {
        let woken = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let woken = woken.clone();
            go(move || {
                time::sleep(10 * MS);
                woken.fetch_add(1, SeqCst);
            });
            runnext::yield_now();
        }
        runnext::set_procs(1);
        until(|| woken.load(SeqCst) == 100);
        runnext::set_procs(3);
        time::sleep(MS);
    });
}
