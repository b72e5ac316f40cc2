//! Timers under load: armed and disarmed on all Ps at once, with thieves; and with no load at all.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{assert_settles, child, holdings, holdings_after, runtime, switches, until};
use runnext::time::{self, Instant, Timer};
use runnext::{chan, go, scope, select};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Numbers that look random.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(99);
        (self.0 >> 33) % n
    }
}

#[test]
fn many_sleepers() {
    for procs in [1, 2, 8] {
        runtime(procs).run(|| {
            let woken = AtomicUsize::new(0);
            scope(|s| {
                for seed in 0..5_000 {
                    let woken = &woken;
                    s.go(move || {
                        let mut rng = Rng(seed);
                        for _ in 0..5 {
                            let d = US * rng.below(20_000) as u32;
                            let start = Instant::now();
                            time::sleep(d);
                            assert!(start.elapsed() >= d);
                            woken.fetch_add(1, Relaxed);
                        }
                    });
                }
            });
            assert_eq!(woken.into_inner(), 25_000);
        });
    }
}

/// Waits that end by a message or by their deadline, whichever comes first, on all Ps: each ends once, and a stale timer ends
/// nothing.
#[test]
fn armed_and_disarmed_everywhere() {
    for procs in [1, 2, 8] {
        runtime(procs).run(|| {
            let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
            scope(|s| {
                for seed in 0..50 {
                    let (tx, rx) = chan::bounded(0);
                    let sent = &sent;
                    s.go(move || {
                        let mut rng = Rng(seed);
                        for i in 0..200 {
                            time::sleep(US * rng.below(100) as u32);
                            let limit = US * rng.below(200) as u32;
                            if tx.send_timeout(i, limit).is_ok() {
                                sent.fetch_add(1, Relaxed);
                            }
                        }
                    });
                    let received = &received;
                    s.go(move || {
                        let mut rng = Rng(!seed);
                        loop {
                            let limit = match rng.below(3) {
                                0 => HOUR,
                                1 => US * rng.below(100) as u32,
                                _ => Duration::ZERO,
                            };
                            let start = Instant::now();
                            match rx.recv_timeout(limit) {
                                Ok(_) => received.fetch_add(1, Relaxed),
                                Err(chan::RecvTimeoutError::Timeout) => {
                                    assert!(start.elapsed() >= limit);
                                    continue;
                                }
                                Err(chan::RecvTimeoutError::Disconnected) => break,
                            };
                        }
                    });
                }
            });
            assert_eq!(sent.into_inner(), received.into_inner());
        });
    }
}

/// Go's TestLongAdjustTimers: many that sleep long, and many short waits that end otherwise, do not slow each other down.
#[test]
fn long_sleepers_and_short_waits() {
    let rt = runtime(2);
    for _ in 0..5_000 {
        rt.go(|| time::sleep(HOUR));
    }
    rt.run(|| {
        let (tx, rx) = chan::bounded(1);
        for i in 0..50_000 {
            tx.send(i).unwrap();
            select! {
                recv(rx) -> _ => {}
                recv(chan::after(HOUR)) -> _ => unreachable!(),
            }
        }
        // And with a wait that really begins.
        let (ping, pong) = (chan::bounded(0), chan::bounded(0));
        let echo = go(move || ping.1.iter().for_each(|i: u32| pong.0.send(i).unwrap()));
        for i in 0..20_000 {
            ping.0.send(i).unwrap();
            assert_eq!(pong.1.recv_timeout(HOUR), Ok(i));
        }
        drop(ping.0);
        echo.join().unwrap();
    });
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 5_000);
}

/// Go's TestAdjustTimers: timers set again and again, earlier and later, while others wait for them.
#[test]
fn set_anew_from_everywhere() {
    for procs in [1, 4] {
        runtime(procs).run(|| {
            let timers: Vec<_> = (0..20).map(|_| Timer::new(HOUR)).collect();
            let stop = AtomicBool::new(false);
            let received = AtomicUsize::new(0);
            scope(|s| {
                for timer in &timers {
                    for _ in 0..2 {
                        let (stop, received) = (&stop, &received);
                        s.go(move || {
                            while !stop.load(SeqCst) {
                                if let Ok(at) = timer.c().recv_timeout(MS) {
                                    assert!(at <= Instant::now());
                                    received.fetch_add(1, Relaxed);
                                }
                            }
                        });
                    }
                }
                let churn: Vec<_> = (0..4)
                    .map(|seed| {
                        let timers = &timers;
                        s.go(move || {
                            let mut rng = Rng(seed);
                            for _ in 0..3_000 {
                                let timer = &timers[rng.below(20) as usize];
                                match rng.below(4) {
                                    0 => timer.stop(),
                                    1 => timer.reset(HOUR),
                                    n => timer.reset(US * (n * rng.below(50)) as u32),
                                };
                                if rng.below(16) == 0 {
                                    time::sleep(US * rng.below(300) as u32);
                                }
                            }
                        })
                    })
                    .collect();
                for c in churn {
                    c.join().unwrap();
                }
                // Each of them still works.
                for timer in &timers {
                    timer.reset(Duration::ZERO);
                }
                until(|| timers.iter().all(|timer| !timer.stop()));
                stop.store(true, SeqCst);
            });
            assert!(received.into_inner() >= 20);
        });
    }
}

#[test]
fn functions_from_everywhere() {
    for procs in [1, 4] {
        runtime(procs).run(|| {
            let runs = Arc::new(AtomicUsize::new(0));
            let timers: Vec<_> = (0..20)
                .map(|_| {
                    let runs = runs.clone();
                    time::after_func(Duration::MAX, move || {
                        runs.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            // Of each setting one is true: somebody stopped it or set it anew before its time, or it ran.
            let (set, undone) = (AtomicUsize::new(20), AtomicUsize::new(0));
            scope(|s| {
                for seed in 0..4 {
                    let (timers, set, undone) = (&timers, &set, &undone);
                    s.go(move || {
                        let mut rng = Rng(seed);
                        for _ in 0..3_000 {
                            let timer = &timers[rng.below(20) as usize];
                            let was = match rng.below(4) {
                                0 => timer.stop(),
                                n => {
                                    set.fetch_add(1, SeqCst);
                                    timer.reset(US * (n * rng.below(50)) as u32)
                                }
                            };
                            undone.fetch_add(usize::from(was), SeqCst);
                            if rng.below(16) == 0 {
                                time::sleep(US * rng.below(300) as u32);
                            }
                        }
                    });
                }
            });
            for timer in &timers {
                undone.fetch_add(usize::from(timer.stop()), SeqCst);
            }
            let expected = set.into_inner() - undone.into_inner();
            until(|| runs.load(SeqCst) == expected);
            time::sleep(MS);
            assert_eq!(runs.load(SeqCst), expected);
        });
    }
}

/// Go's TestTimerGC: timers that nobody has any more cost nothing.
#[test]
fn dropped_timers_are_gone() {
    child(&[], || {
        runtime(2).run(|| {
            let resident = || {
                let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
                let pages = statm.split(' ').nth(1).unwrap();
                pages.parse::<usize>().unwrap() * 4096
            };
            let round = || {
                for _ in 0..20_000 {
                    drop(chan::after(HOUR));
                    drop(Timer::new(HOUR));
                    assert!(time::after_func(HOUR, || ()).stop());
                }
            };
            round();
            let before = resident();
            (0..4).for_each(|_| round());
            let grown = resident().saturating_sub(before);
            assert!(grown < 2 << 20, "{grown} bytes more");
        });
    })
    .passed();
}

/// A process that waits for timers far away, or for none at all, sleeps.
#[test]
fn idle_is_idle() {
    child(&[], || {
        let rt = runtime(4);
        rt.go(|| time::sleep(HOUR));
        rt.run(|| {
            let (_tx, rx) = chan::bounded::<()>(0);
            for _ in 0..100 {
                assert!(rx.recv_timeout(US).is_err());
            }
            let _timer = time::after_func(HOUR, || ());
            time::sleep(50 * MS);
        });
        assert_settles(switches, 60, time::sleep);
    })
    .passed();
}

/// Threads and descriptors are gone after a shutdown, also those of the one who waited for timers.
#[test]
fn nothing_is_left_of_a_runtime() {
    child(&[], || {
        let round = || {
            let rt = runtime(2);
            rt.go(|| time::sleep(HOUR));
            rt.run(|| time::sleep(MS));
            rt.shutdown(Duration::ZERO);
        };
        let start = holdings();
        round(); // starts what stays
        let before = holdings_after(&start);
        for _ in 0..20 {
            round();
        }
        let after = holdings_after(&before);
        assert_eq!((after.threads, after.fds), (before.threads, before.fds));
    })
    .passed();
}

/// Go's TestTimerFairness2: talking, system calls, and timers on both sides.
#[test]
fn timers_beside_system_calls() {
    runtime(1).run(|| {
        let busy = || {
            let done = Timer::new(30 * MS);
            let mut turns = 0;
            loop {
                std::fs::metadata("/proc/self").unwrap();
                select! {
                    recv(done.c()) -> _ => break turns,
                    default => turns += 1,
                }
                runnext::yield_now();
            }
        };
        let (a, b) = (go(busy), go(busy));
        assert!(a.join().unwrap() > 0 && b.join().unwrap() > 0);
    });
}
