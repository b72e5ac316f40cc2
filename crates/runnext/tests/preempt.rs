//! Goroutines that never call the runtime do not keep others from running; and the switches that turn this off.

mod common;
mod stall;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use common::{built, child, impatient, runtime, until};
use runnext::{Runtime, checkpoint, go, scope, yield_now};
use stall::{Hogs, hog, hog_for, watchdog};

#[test]
fn one_tight_loop_does_not_keep_another_from_running() {
    let _dog = watchdog("one tight loop");
    for procs in [1, 2] {
        let rt = runtime(procs);
        rt.run(|| {
            let hogs = Hogs::start(procs);
            // Each yield puts this goroutine behind them.
            for _ in 0..5 {
                yield_now();
            }
            hogs.stop();
        });
    }
}

#[test]
fn two_hundred_tight_loops_all_progress() {
    let _dog = watchdog("200 hogs");
    for procs in [1, 2] {
        let rt = impatient(procs);
        rt.run(|| {
            let hogs = Hogs::start(200);
            while hogs.started() < 200 {
                yield_now();
            }
            // All go on, not only once.
            let seen: Vec<_> = hogs.rounds.iter().map(|r| r.load(Relaxed)).collect();
            while hogs
                .rounds
                .iter()
                .zip(&seen)
                .any(|(r, s)| r.load(Relaxed) == *s)
            {
                yield_now();
            }
            hogs.stop();
        });
    }
}

/// Go's TestPreemption: each waits in a loop without calls for what only the other can do.
#[test]
fn two_that_wait_for_each_other_without_a_call() {
    let _dog = watchdog("two that spin");
    let rt = impatient(1);
    rt.run(|| {
        let turn = AtomicUsize::new(0);
        scope(|s| {
            for parity in 0..2 {
                let turn = &turn;
                s.go(move || {
                    for mine in (parity..100).step_by(2) {
                        while turn.load(Acquire) != mine {
                            std::hint::spin_loop();
                        }
                        turn.store(mine + 1, Release);
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), 100);
    });
}

#[test]
fn hogs_share_one_processor_about_equally() {
    let _dog = watchdog("equal shares");
    let rt = runtime(1);
    let hogs = rt.run(|| {
        let hogs = Hogs::start(4);
        while hogs.started() < 4 {
            yield_now();
        }
        hogs
    });
    // Many slices for each; from outside, without a P.
    let slices = || rt.stats().preemptions_slice;
    let before = slices();
    until(|| slices() >= before + 100);
    let rounds: Vec<_> = hogs.rounds.iter().map(|r| r.load(Relaxed)).collect();
    hogs.stop();
    let (least, most) = (rounds.iter().min().unwrap(), rounds.iter().max().unwrap());
    assert!(*least * 8 > *most, "shares differ too much: {rounds:?}");
}

#[test]
fn a_tight_loop_in_main_lets_the_rest_finish() {
    let _dog = watchdog("hog in main");
    let rt = runtime(1);
    let done = Arc::new(AtomicUsize::new(0));
    rt.run(|| {
        for _ in 0..1000 {
            let done = Arc::clone(&done);
            go(move || done.fetch_add(1, Relaxed));
        }
        while done.load(Relaxed) < 1000 {
            std::hint::spin_loop();
        }
    });
}

#[test]
fn a_loop_of_hand_offs_is_preempted_too() {
    let _dog = watchdog("pairs beside a bystander");
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let pair = {
            let stop = Arc::clone(&stop);
            go(move || {
                while !stop.load(Relaxed) {
                    go(|| ()).join().unwrap();
                }
            })
        };
        let hogs = Hogs::start(1);
        for _ in 0..20 {
            yield_now();
        }
        stop.store(true, Relaxed);
        hogs.stop();
        pair.join().unwrap();
    });
}

/// In a child, since the switch is the process's.
#[test]
fn asyncpreemptoff_leaves_the_cooperative_points() {
    child(&[("RUNNEXT_DEBUG", "asyncpreemptoff=1")], || {
        cooperative_only(runtime(1));
    })
    .passed();
}

#[test]
fn preemption_false_leaves_the_cooperative_points() {
    let _dog = watchdog("preemption(false)");
    cooperative_only(built(Runtime::builder().procs(1).preemption(false)));
}

fn cooperative_only(rt: Runtime) {
    rt.run(|| {
        let ran = Arc::new(AtomicU64::new(0));
        let other = {
            let ran = Arc::clone(&ran);
            go(move || ran.fetch_add(1, SeqCst))
        };
        hog_for(Duration::from_millis(300));
        assert_eq!(ran.load(SeqCst), 0, "it was preempted all the same");
        yield_now();
        assert_eq!(ran.load(SeqCst), 1, "a yield is a cooperative point");
        other.join().unwrap();
    });
}

/// Its thread lets no signal in: nothing but the checkpoint makes way.
#[test]
fn a_checkpoint_gives_way_when_asked() {
    let _dog = watchdog("checkpoint");
    runtime(1).run(|| {
        let _tied = runnext::lock_os_thread();
        // SAFETY: a set that is initialised before it is used; for this thread alone.
        let mask = |how| unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGURG);
            assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
        };
        mask(libc::SIG_BLOCK);
        for _ in 0..5 {
            let ran = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&ran);
            go(move || ran.store(true, Relaxed));
            while !seen.load(Relaxed) {
                checkpoint();
            }
        }
        mask(libc::SIG_UNBLOCK);
    });
}

#[test]
fn hogs_do_not_keep_a_runtime_from_stopping() {
    let _dog = watchdog("shutdown beside hogs");
    for procs in [1, 2] {
        for round in 0..10 {
            let rt = impatient(procs);
            let stop = Arc::new(AtomicBool::new(false));
            for _ in 0..6 {
                let stop = Arc::clone(&stop);
                rt.go(move || hog(&stop));
            }
            rt.run(|| {
                for _ in 0..round {
                    yield_now();
                }
            });
            let ended = rt.shutdown(Duration::ZERO);
            assert_eq!(ended.abandoned, 6, "{ended:?}");
            stop.store(true, Relaxed);
            // The abandoned run to their next call, and no further.
        }
    }
}

#[test]
fn several_runtimes_preempt_each_their_own() {
    let _dog = watchdog("several runtimes");
    let runtimes: Vec<_> = (0..3).map(|_| runtime(1)).collect();
    let hogs: Vec<_> = runtimes
        .iter()
        .map(|rt| rt.run(|| Hogs::start(1)))
        .collect();
    std::thread::scope(|s| {
        for rt in &runtimes {
            s.spawn(|| rt.run(|| (0..5).for_each(|_| yield_now())));
        }
    });
    // One runtime's goroutine starts and joins another's, beside the hogs of both.
    runtimes[0].run(|| {
        for _ in 0..3 {
            assert_eq!(runtimes[1].go(|| 6 * 7).join().unwrap(), 42);
            assert_eq!(runtimes[2].run(|| 7 * 6), 42);
        }
    });
    hogs.into_iter().for_each(Hogs::stop);
}

#[test]
fn the_number_of_processors_changes_beside_hogs() {
    let _dog = watchdog("set_procs beside hogs");
    let rt = impatient(2);
    rt.run(|| {
        let hogs = Hogs::start(6);
        let deadline = Instant::now() + Duration::from_secs(2);
        let mut n = 0;
        while Instant::now() < deadline {
            n += 1;
            runnext::set_procs(1 + n % 4);
            // New goroutines, so that there is somebody to hand a P to with its first goroutine.
            scope(|s| {
                for _ in 0..8 {
                    s.go(|| hog_for(Duration::from_micros(200)));
                }
            });
        }
        runnext::set_procs(1);
        for _ in 0..10 {
            yield_now();
        }
        hogs.stop();
        assert_eq!(runnext::num_goroutines(), 1);
    });
}

#[test]
fn fewer_processors_means_fewer_goroutines_at_once() {
    let _dog = watchdog("shrinking");
    let rt = impatient(4);
    let (alone, together, robbed) = rt.run(|| {
        let hogs = Hogs::start(4);
        while hogs.started() < 4 {
            yield_now();
        }
        runnext::set_procs(1);
        let rounds = || hogs.rounds.iter().map(|r| r.load(Relaxed));
        // In a window much shorter than a slice. This goroutine has the P, so a hog that moves has one too many, or came between by a
        // preemption.
        let any_moves = || {
            let before: Vec<_> = rounds().collect();
            std::hint::black_box(hog_for(Duration::from_micros(20)));
            !rounds().eq(before)
        };
        // Whatever was running has given its P up, and no thread runs on without one, to the end of what was its slice: on a busy machine that takes
        // long, and a few quiet windows show nothing.
        until(|| {
            let stats = runnext::stats::read();
            stats.num_ffi_calls == 0 && stats.num_procs == 1 && (0..40).all(|_| !any_moves())
        });
        let (mut alone, mut together) = (0, 0);
        for _ in 0..200 {
            match any_moves() {
                false => alone += 1,
                true => together += 1,
            }
            yield_now();
        }
        let robbed = runnext::stats::read().num_ffi_calls;
        hogs.stop();
        (alone, together, robbed)
    });
    assert!(
        alone > together,
        "alone {alone} times, beside running hogs {together}; {robbed} run on without a P"
    );
}

/// Each time its slice was over one of those that waited for any P was moved behind it, and no thread could be made that ran it there.
#[test]
fn without_a_spare_thread_nobody_is_moved_behind_who_goes_on() {
    let builder = Runtime::builder().procs(2).max_threads(2);
    let rt = built(builder.time_slice(Duration::from_millis(1)));
    let (stop, computing) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let hog = rt.go({
        let (stop, computing) = (Arc::clone(&stop), Arc::clone(&computing));
        move || {
            computing.store(true, Relaxed);
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    // The other P never runs dry, or it would fetch them back.
    let busy = [(); 2].map(|()| {
        let stop = Arc::clone(&stop);
        rt.go(move || {
            while !stop.load(Relaxed) {
                hog_for(Duration::from_micros(100));
                runnext::yield_now();
            }
        })
    });
    until(|| computing.load(Relaxed));
    let many: Vec<_> = (0..100)
        .map(|_| rt.go(|| hog_for(Duration::from_micros(300))))
        .collect();
    for one in many {
        one.join().unwrap();
    }
    stop.store(true, Relaxed);
    hog.join().unwrap();
    for one in busy {
        one.join().unwrap();
    }
}
