//! Sleeping, timers and tickers, as far as order and "never early" go.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{Counted, built, runtime, thread_id, until, until_asleep, until_waits};
use runnext::chan;
use runnext::time::{self, Instant, Ticker, Timer};
use runnext::{go, scope};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
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

/// Lets `n` goroutines sleep, the `i`th until `when(i)` after a common moment, and returns in which place each woke up.
fn places(n: usize, when: impl Fn(usize) -> Duration) -> Vec<usize> {
    // On a slow machine some come too late to sleep: then all over again, with more time.
    for margin in (0..12).map(|n| 20 * MS * (1 << n)) {
        let places: Vec<_> = (0..n).map(|_| AtomicUsize::new(0)).collect();
        let next = AtomicUsize::new(0);
        let at = Instant::now() + margin;
        let all_asleep = scope(|s| {
            for (i, place) in places.iter().enumerate() {
                let (until, next) = (at + when(i), &next);
                s.go(move || {
                    time::sleep_until(until);
                    place.store(next.fetch_add(1, SeqCst), SeqCst);
                });
                runnext::yield_now(); // it sleeps before the next one starts
            }
            Instant::now() < at
        });
        if all_asleep {
            return places.into_iter().map(AtomicUsize::into_inner).collect();
        }
    }
    panic!("a minute was not enough to start {n} goroutines");
}

#[test]
fn equal_deadlines_in_order() {
    one_queue().run(|| assert!(places(500, |_| Duration::ZERO).is_sorted()));
}

#[test]
fn earlier_deadlines_first() {
    one_queue().run(|| {
        let places = places(50, |i| MS * (50 - i as u32) / 4);
        assert!(places.iter().rev().is_sorted(), "{places:?}");
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
            let long = go(|| time::sleep(HOUR));
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
    // Go's TestAfterFuncStarvation: one P that is never idle.
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
        rt.go(|| time::sleep(HOUR));
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

#[test]
fn a_function_runs_in_time_and_again_after_a_reset() {
    for procs in [1, 2] {
        runtime(procs).run(|| {
            let runs = Arc::new(AtomicUsize::new(0));
            let start = Instant::now();
            let timer = {
                let runs = runs.clone();
                time::after_func(5 * MS, move || {
                    assert!(start.elapsed() >= 5 * MS);
                    runs.fetch_add(1, SeqCst);
                })
            };
            until(|| runs.load(SeqCst) == 1);
            assert!(!timer.stop());
            for n in 2..20 {
                assert!(!timer.reset(US * n));
                until(|| runs.load(SeqCst) == n as usize);
            }
            assert!(!timer.reset(Duration::MAX));
            assert!(timer.reset(HOUR));
            assert!(timer.stop());
            assert!(!timer.stop());
            time::sleep(MS);
            assert_eq!(runs.load(SeqCst), 19);
        });
    }
}

#[test]
fn a_function_never_runs_twice_at_once_nor_too_seldom() {
    runtime(4).run(|| {
        let inside = Arc::new(AtomicUsize::new(0));
        let runs = Arc::new(AtomicUsize::new(0));
        let timer = {
            let (inside, runs) = (inside.clone(), runs.clone());
            time::after_func(Duration::MAX, move || {
                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                time::sleep(50 * US);
                assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                runs.fetch_add(1, SeqCst);
            })
        };
        // Each reset that finds it not set is one firing that has happened before.
        let mut fired = 0;
        timer.stop();
        for i in 0..2000u32 {
            if !timer.reset(US * (i % 60)) {
                fired += 1;
            }
            time::sleep(US * (i % 31));
        }
        let pending = usize::from(timer.stop());
        let expected = fired - pending;
        until(|| runs.load(SeqCst) == expected);
        time::sleep(2 * MS);
        assert_eq!(runs.load(SeqCst), expected);
    });
}

#[test]
fn a_function_that_panics_runs_again() {
    runtime(2).run(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        let timer = {
            let runs = runs.clone();
            time::after_func(US, move || {
                let n = runs.fetch_add(1, SeqCst);
                assert!(n != 0, "the first run panics, on purpose");
            })
        };
        until(|| runs.load(SeqCst) == 1);
        timer.reset(US);
        until(|| runs.load(SeqCst) == 2);
    });
}

#[test]
fn a_function_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let rt = runtime(2);
    let outside = rt.run(|| {
        let counted = Counted::new(&drops);
        let timer = time::after_func(HOUR, move || {
            let _ = &counted;
        });
        assert!(timer.stop());
        drop(timer);
        assert_eq!(drops.load(SeqCst), 1, "stopped");

        let counted = Counted::new(&drops);
        drop(time::after_func(US, move || {
            let _ = &counted;
        }));
        until(|| drops.load(SeqCst) == 2); // ran, although the timer was dropped

        let counted = Counted::new(&drops);
        drop(time::after_func(HOUR, move || {
            let _ = &counted;
        }));
        let counted = Counted::new(&drops);
        time::after_func(HOUR, move || {
            let _ = &counted;
        })
    });
    assert_eq!(drops.load(SeqCst), 2);
    drop(rt);
    assert_eq!(drops.load(SeqCst), 3, "nobody can start it any more");
    assert!(!outside.reset(Duration::ZERO), "the runtime is gone");
    drop(outside);
    assert_eq!(drops.load(SeqCst), 4);
}

/// They were kept until the last handle was gone.
#[test]
fn shutdown_drops_functions_whatever_outlives_it() {
    struct Rude(Counted);
    impl Drop for Rude {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let rt = runtime(2);
    let handle = rt.go(|| 7);
    let stuck = rt.go(|| runnext::chan::never::<()>().recv());
    let timer = rt.run(|| {
        for after in (1..100).map(|i| HOUR * i).chain([Duration::MAX]) {
            let counted = Counted::new(&drops);
            drop(time::after_func(after, move || {
                let _ = &counted;
            }));
        }
        let rude = Rude(Counted::new(&drops));
        drop(time::after_func(HOUR, move || {
            let _ = &rude.0;
        }));
        let counted = Counted::new(&drops);
        time::after_func(HOUR, move || {
            let _ = &counted;
        })
    });
    assert_eq!(drops.load(SeqCst), 0);
    drop(rt);
    assert_eq!(drops.load(SeqCst), 101);
    assert!(!timer.reset(HOUR) && !timer.reset(HOUR), "it is not set");
    drop(timer);
    assert_eq!(drops.load(SeqCst), 102);
    drop((handle, stuck));
}

#[test]
fn a_function_is_no_goroutine_until_its_time() {
    let rt = runtime(1);
    rt.run(|| {
        let _timers: Vec<_> = (0..100).map(|_| time::after_func(HOUR, || ())).collect();
        assert_eq!(runnext::num_goroutines(), 1);
    });
    assert_eq!(rt.shutdown(HOUR).abandoned, 0);
}

#[test]
fn a_function_is_set_from_outside() {
    let rt = runtime(1);
    let runs = Arc::new(AtomicUsize::new(0));
    let timer = {
        let runs = runs.clone();
        rt.run(|| {
            time::after_func(Duration::MAX, move || {
                runs.fetch_add(1, SeqCst);
            })
        })
    };
    assert!(timer.reset(US));
    until(|| runs.load(SeqCst) == 1);
    let rt2 = runtime(2);
    rt2.run(|| assert!(!timer.reset(US)));
    until(|| runs.load(SeqCst) == 2);
}

#[test]
fn a_function_beside_a_hog() {
    // The hog never gives way by itself. There is another P to run the function on; or there is none, and it is preempted.
    for procs in [2, 1] {
        runtime(procs).run(|| {
            let ran = Arc::new(AtomicBool::new(false));
            let timer = {
                let ran = ran.clone();
                time::after_func(US, move || ran.store(true, SeqCst))
            };
            while !ran.load(SeqCst) {
                std::hint::spin_loop();
            }
            assert!(!timer.stop());
        });
    }
}

#[test]
fn a_function_beside_two_that_talk() {
    // Go's TestAfterFuncStarvation: one P, a producer and a consumer that are never idle.
    runtime(1).run(|| {
        let done = Arc::new(AtomicBool::new(false));
        let (tx, rx) = chan::bounded(0);
        let producer = {
            let done = done.clone();
            go(move || {
                while !done.load(SeqCst) {
                    tx.send(()).unwrap();
                }
            })
        };
        let consumer = go(move || rx.iter().count());
        let timer = time::after_func(US, move || done.store(true, SeqCst));
        producer.join().unwrap();
        consumer.join().unwrap();
        assert!(!timer.stop());
    });
}

// ---- timers and tickers as channels ----

#[test]
fn a_timer_shows_nothing_and_keeps_nothing_stale() {
    // Go's TestChan of package time, with nobody blocked.
    for procs in [1, 4] {
        runtime(procs).run(|| {
            let timer = Timer::new(Duration::ZERO);
            assert_eq!((timer.c().len(), timer.c().capacity()), (0, Some(0)));
            assert!(timer.stop(), "nobody has received it");
            assert!(timer.c().try_recv().is_err());
            assert!(!timer.stop());
            assert!(!timer.reset(Duration::ZERO));
            assert!(timer.reset(HOUR));
            assert!(timer.c().try_recv().is_err(), "a stale value");
            assert!(timer.reset(Duration::ZERO));
            assert!(timer.c().recv().is_ok());
            assert!(timer.c().try_recv().is_err(), "once only");
            assert!(!timer.stop());

            let ticker = Ticker::new(US);
            time::sleep(MS);
            assert_eq!(ticker.c().len(), 0);
            ticker.stop();
            assert!(ticker.c().try_recv().is_err(), "a stale tick");
            ticker.reset(HOUR);
            assert!(ticker.c().try_recv().is_err(), "a stale tick");
            ticker.reset(US);
            ticker.c().recv().unwrap();
            ticker.c().recv().unwrap();
        });
    }
}

#[test]
fn a_blocked_receiver_follows_stop_and_reset() {
    for procs in [1, 2] {
        runtime(procs).run(|| {
            let timer = Arc::new(Timer::new(HOUR));
            let blocked = {
                let timer = timer.clone();
                go(move || timer.c().recv().unwrap())
            };
            until_waits(&blocked, "chan receive");
            assert!(timer.stop());
            assert!(!timer.reset(HOUR));
            until_waits(&blocked, "chan receive");
            let reset = Instant::now();
            assert!(timer.reset(2 * MS));
            let at = blocked.join().unwrap();
            assert!(at >= reset + 2 * MS);
            assert!(at <= Instant::now());
        });
    }
}

#[test]
fn modified_earlier() {
    // Go's TestTimerModifiedEarlier.
    runtime(2).run(|| {
        let timer = Timer::new(Duration::ZERO);
        timer.c().recv().unwrap();
        for _ in 0..10 {
            timer.reset(HOUR);
            assert!(timer.stop());
            timer.reset(Duration::ZERO);
            timer.c().recv().unwrap();
        }
    });
}

#[test]
fn stop_and_reset_agree_with_what_is_received() {
    // Go's TestStopResult and TestResetResult: of "it was stopped" and "it was received" exactly one is true.
    runtime(4).run(|| {
        scope(|s| {
            for i in 0..500u32 {
                s.go(move || {
                    let timer = Timer::new(US * (i % 200));
                    let receiver = timer.c().clone();
                    let receiving = go(move || receiver.recv_timeout(2000 * MS).is_ok());
                    time::sleep(US * (i % 170));
                    let stopped = if i % 2 == 0 {
                        timer.stop()
                    } else {
                        timer.reset(Duration::MAX)
                    };
                    if stopped {
                        timer.reset(Duration::ZERO); // do not wait for it
                    }
                    assert!(receiving.join().unwrap());
                    assert!(timer.c().try_recv().is_err());
                });
            }
        });
    });
}

#[test]
fn a_late_receiver_gets_the_moment_that_was_set() {
    // Go's TestAfterTimes.
    runtime(1).run(|| {
        let before = Instant::now();
        let after = chan::after(5 * MS);
        let latest = Instant::now() + 5 * MS;
        time::sleep(50 * MS);
        let at = after.recv().unwrap();
        assert!(at >= before + 5 * MS && at <= latest);
    });
}

#[test]
fn missed_ticks_are_skipped() {
    runtime(1).run(|| {
        let start = Instant::now();
        let ticker = Ticker::new(5 * MS);
        let latest = Instant::now() + 5 * MS;
        time::sleep(52 * MS);
        let first = ticker.c().recv().unwrap();
        let second = ticker.c().recv().unwrap();
        assert!(first <= latest, "the first moment, received late");
        assert!(second > start + 52 * MS, "and no other that was missed");
        // All on one grid.
        assert_eq!((second - first).as_nanos() % 5_000_000, 0);
    });
}

#[test]
fn timers_of_zero() {
    // Go's TestZeroTimer, smaller.
    runtime(2).run(|| {
        for _ in 0..20_000 {
            Timer::new(Duration::ZERO).c().recv().unwrap();
        }
        for _ in 0..2_000 {
            chan::after(Duration::from_nanos(1)).recv().unwrap();
        }
    });
}

#[test]
fn extremes() {
    runtime(2).run(|| {
        let never = Timer::new(Duration::MAX);
        assert!(never.c().recv_timeout(MS).is_err());
        assert!(never.stop(), "one that never fires is set all the same");
        assert!(!never.stop());
        assert!(chan::after(Duration::MAX).try_recv().is_err());
        let slow = Ticker::new(Duration::MAX);
        assert!(slow.c().try_recv().is_err());
        slow.reset(Duration::from_nanos(1));
        slow.c().recv().unwrap();
    });
    assert!(std::panic::catch_unwind(|| Ticker::new(Duration::ZERO)).is_err());
}

#[test]
fn timers_beside_chatter() {
    // Go's TestTimerFairness: two that talk all the time, and a timer in a select.
    for procs in [1, 2] {
        runtime(procs).run(|| {
            let (a, b) = (chan::bounded(0), chan::bounded(0));
            let echo = go(move || {
                while a.1.recv().is_ok() {
                    if b.0.send(()).is_err() {
                        return;
                    }
                }
            });
            let timer = Timer::new(20 * MS);
            let (tx, rx) = (a.0, b.1);
            tx.send(()).unwrap();
            loop {
                runnext::select! {
                    recv(rx) -> _ => tx.send(()).unwrap(),
                    recv(timer.c()) -> at => {
                        assert!(Instant::now() >= at.unwrap());
                        break;
                    }
                }
            }
            drop((tx, rx));
            echo.join().unwrap();
        });
    }
}

#[test]
fn timers_and_tickers_on_plain_threads() {
    let start = Instant::now();
    let timer = Timer::new(3 * MS);
    let ticker = Ticker::new(MS);
    ticker.c().recv().unwrap();
    ticker.c().recv().unwrap();
    timer.c().recv().unwrap();
    assert!(start.elapsed() >= 3 * MS);
    std::thread::scope(|s| {
        timer.reset(HOUR);
        let (id, ids) = std::sync::mpsc::channel();
        let timer = &timer;
        let blocked = s.spawn(move || {
            id.send(thread_id()).unwrap();
            timer.c().recv().unwrap()
        });
        until_asleep(ids.recv().unwrap(), libc::SYS_futex);
        timer.reset(MS);
        blocked.join().unwrap();
    });
}
