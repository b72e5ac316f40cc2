//! The order in which one P runs goroutines: Go's, and where the spec promises more than Go.
//!
//! One P and no preemption, so the order is a fact and not a likelihood.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use common::Log;
use runnext::time::{Instant, sleep, sleep_until};
use runnext::{chan, go, scope, yield_now};

#[runnext::test(procs = 1, preemption = false)]
fn the_newest_runs_first_then_the_oldest() {
    let log = Log::default();
    scope(|s| {
        for i in 0..5 {
            let log = &log;
            s.go(move || log.add(i));
        }
    });
    assert_eq!(log.take(), [4, 0, 1, 2, 3]);
}

#[runnext::test(procs = 1, preemption = false)]
fn who_yields_goes_to_the_end() {
    const A: usize = 0;
    const B: usize = 1;
    const MAIN: usize = 2;
    let log = Log::default();
    scope(|s| {
        s.go(|| log.add(A));
        s.go(|| log.add(B));
        yield_now();
        log.add(MAIN);
    });
    assert_eq!(log.take(), [B, A, MAIN]);
}

#[runnext::test(procs = 1, preemption = false)]
fn who_is_woken_runs_next() {
    const B: usize = 0;
    const FIRST_HALF: usize = 1;
    const JOINED: usize = 2;
    const JOINER: usize = 3;
    const SECOND_HALF: usize = 4;
    let log = Log::default();
    scope(|s| {
        let log = &log;
        let joined = s.go(|| {
            yield_now(); // the joiner comes first
            log.add(JOINED);
        });
        s.go(move || {
            joined.join().unwrap();
            log.add(JOINER);
        });
        s.go(|| {
            log.add(FIRST_HALF);
            yield_now(); // now behind `joined`, and the joiner overtakes it
            log.add(SECOND_HALF);
        });
        s.go(|| log.add(B));
    });
    assert_eq!(log.take(), [B, FIRST_HALF, JOINED, JOINER, SECOND_HALF]);
}

/// 256 fit into the local queue; the 257th sends the oldest half and itself to the global queue. Every 61st dispatch serves
/// the global queue first, so its goroutines may appear early, but in their order.
#[runnext::test(procs = 1, preemption = false)]
fn an_overflow_sends_the_oldest_half_away() {
    let log = Log::default();
    scope(|s| {
        for i in 0..300 {
            let log = &log;
            s.go(move || log.add(i));
        }
    });
    let ran = log.take();
    assert_eq!(ran.len(), 300);
    assert_eq!(ran[0], 299, "the newest is in front of all queues");
    let (global, local): (Vec<usize>, Vec<usize>) =
        ran.iter().copied().partition(|&i| i < 128 || i == 256);
    let expected: Vec<usize> = std::iter::once(299)
        .chain(128..256)
        .chain(257..299)
        .collect();
    assert_eq!(local, expected);
    assert_eq!(global, (0..128).chain([256]).collect::<Vec<_>>());
    let early = ran[..local.len()]
        .iter()
        .filter(|&&i| i < 128 || i == 256)
        .count();
    assert!(
        (1..=4).contains(&early),
        "{early} of the global queue ran among {} local ones, and every 61st should",
        local.len()
    );
}

#[runnext::test(procs = 1, preemption = false)]
fn yielders_take_turns() {
    let log = Log::default();
    scope(|s| {
        for i in 0..4 {
            let log = &log;
            s.go(move || {
                for _ in 0..10 {
                    log.add(i);
                    yield_now();
                }
            });
        }
    });
    let ran = log.take();
    for turn in ran.chunks(4) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2, 3], "{ran:?}");
    }
}

fn respawn(hops: &'static AtomicUsize, stop: &'static AtomicBool) {
    hops.fetch_add(1, Relaxed);
    if !stop.load(Relaxed) {
        go(move || respawn(hops, stop));
    }
}

/// A goroutine that spawns its successor and ends keeps `runnext` occupied for ever. The chain is cut while somebody
/// waits, by count, not only by time.
#[runnext::test(procs = 1, preemption = false)]
fn spawn_chains_do_not_starve_a_yielder() {
    static HOPS: AtomicUsize = AtomicUsize::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    for _ in 0..2 {
        go(|| respawn(&HOPS, &STOP));
    }
    for _ in 0..100 {
        let before = HOPS.load(Relaxed);
        yield_now();
        let hops = HOPS.load(Relaxed) - before;
        assert!(hops <= 3 * 64 + 8, "{hops} hops between two turns");
    }
    STOP.store(true, Relaxed);
    while runnext::num_goroutines() > 1 {
        yield_now();
    }
}

/// What came from outside waits in the global queue, and a local crowd does not shut it out.
#[test]
fn the_global_queue_is_served_beside_local_yielders() {
    // SAFETY: no thread-local is borrowed over a call that can park.
    let rt = unsafe {
        runnext::Runtime::builder()
            .procs(1)
            .preemption(false)
            .build()
    }
    .unwrap();
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let crowd: Vec<_> = (0..10)
        .map(|_| {
            rt.go(|| {
                while !STOP.load(Relaxed) {
                    TURNS.fetch_add(1, Relaxed);
                    yield_now();
                }
            })
        })
        .collect();
    while TURNS.load(Relaxed) < 1000 {
        std::thread::yield_now();
    }
    // Returns although the local queue is never empty.
    assert_eq!(rt.go(|| 7).join().unwrap(), 7);
    STOP.store(true, Relaxed);
    for one in crowd {
        one.join().unwrap();
    }
}

/// Two that hand a value to and fro until told to stop; each time one has it, that is a hop, and some `work`.
fn ping_pong<'env>(
    s: &'env runnext::Scope<'env, '_>,
    hops: &'env AtomicUsize,
    stop: &'env AtomicBool,
    work: fn(),
) {
    let (there, here) = (chan::bounded::<()>(0), chan::bounded::<()>(0));
    for (tx, rx, serves) in [(there.0, here.1, true), (here.0, there.1, false)] {
        s.go(move || {
            if serves && tx.send(()).is_err() {
                return;
            }
            while rx.recv().is_ok() && !stop.load(Relaxed) {
                hops.fetch_add(1, Relaxed);
                work();
                if tx.send(()).is_err() {
                    return;
                }
            }
        });
    }
}

/// Two that wake each other keep `runnext` occupied as well, however many such pairs there are. In Go a yielder beside them waits for a slice.
#[runnext::test(procs = 1, preemption = false)]
fn channel_pairs_do_not_starve_a_yielder() {
    for pairs in [1, 3] {
        let (hops, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        scope(|s| {
            (0..pairs).for_each(|_| ping_pong(s, &hops, &stop, || ()));
            for _ in 0..200 {
                let before = hops.load(Relaxed);
                yield_now();
                let between = hops.load(Relaxed) - before;
                assert!(
                    between <= 64 * (pairs + 1) + 8,
                    "{between} hops between two turns beside {pairs}"
                );
            }
            assert!(hops.load(Relaxed) > 0);
            stop.store(true, Relaxed);
        });
    }
}

/// Go's TestPingPongHog: a pair that computes between its hops and one that does not both get on.
#[runnext::test(procs = 1)]
fn a_pair_that_computes_and_one_that_does_not_share() {
    fn compute() {
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_micros(20) {
            std::hint::spin_loop();
        }
    }
    let (heavy, light) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let counts = scope(|s| {
        ping_pong(s, &heavy, &stop, compute);
        ping_pong(s, &light, &stop, || ());
        let counts = || (heavy.load(Relaxed), light.load(Relaxed));
        while counts().0.min(counts().1) < 2000 {
            yield_now();
        }
        let counts = counts();
        stop.store(true, Relaxed);
        counts
    });
    assert!(
        counts.0.max(counts.1) <= 20 * counts.0.min(counts.1),
        "{counts:?}"
    );
}

/// A timer that comes while others wait that were woken before: else of those who come one by one the last would always go first.
#[runnext::test(procs = 1, preemption = false)]
fn who_is_due_queues_behind_who_was_woken() {
    const X: usize = 0;
    const Y: usize = 1;
    const TIMER: usize = 2;
    let log = Log::default();
    let (log, due) = (&log, Instant::now() + Duration::from_millis(20));
    scope(|s| {
        let wakers = [X, Y].map(|i| {
            let (wake, woken) = chan::bounded(0);
            s.go(move || {
                woken.recv().unwrap();
                log.add(i);
            });
            wake
        });
        s.go(move || {
            sleep_until(due);
            log.add(TIMER);
        });
        yield_now(); // all wait now, and are known to
        for wake in wakers {
            wake.send(()).unwrap();
        }
        while Instant::now() < due {}
    });
    assert_eq!(log.take(), [Y, X, TIMER]);
}

/// One that wakes another and yields, in a loop, and the other: together they have the P for ever, and their local queue is never empty.
fn yielding_pairs<'env>(s: &'env runnext::Scope<'env, '_>, pairs: usize, stop: &'env AtomicBool) {
    let running = Arc::new(AtomicUsize::new(0));
    for _ in 0..pairs {
        let (tx, rx) = chan::bounded(1);
        s.go(move || rx.iter().for_each(|()| ()));
        let running = Arc::clone(&running);
        s.go(move || {
            running.fetch_add(1, Relaxed);
            while !stop.load(Relaxed) {
                tx.send(()).unwrap();
                yield_now();
            }
        });
    }
    common::until(|| running.load(Relaxed) == pairs);
}

/// Who comes first of the urgent queue and the local one was decided by the number of the dispatch: of two that take turns it is always odd, or
/// always even, when there is something to decide.
#[test]
fn the_urgent_queue_is_served_beside_a_pair_that_takes_turns() {
    let rt = common::built(runnext::Runtime::builder().procs(1).preemption(false));
    static STOP: AtomicBool = AtomicBool::new(false);
    let pair = rt.go(|| scope(|s| yielding_pairs(s, 1, &STOP)));
    for i in 0..10 {
        assert_eq!(rt.run(|| i), i);
    }
    STOP.store(true, Relaxed);
    pair.join().unwrap();
}

/// The same of those who are due while the local queue is nearly full.
#[runnext::test(procs = 1, preemption = false)]
fn who_is_due_is_served_beside_many_pairs_that_take_turns() {
    let stop = AtomicBool::new(false);
    scope(|s| {
        yielding_pairs(s, 200, &stop);
        for _ in 0..10 {
            sleep(Duration::from_millis(1));
        }
        stop.store(true, Relaxed);
    });
}
