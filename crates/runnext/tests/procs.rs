//! The number of processors: at start, and changed while everything runs.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use common::{message, runtime, until};
use runnext::{go, procs, scope, set_procs, yield_now};

#[runnext::test(procs = 2)]
fn it_returns_the_old_number() {
    assert_eq!(procs(), 2);
    assert_eq!(set_procs(5), 2);
    assert_eq!(set_procs(5), 5);
    assert_eq!(set_procs(1), 5);
    assert_eq!(procs(), 1);
}

#[runnext::test(procs = 2)]
fn a_number_out_of_range_is_refused_and_changes_nothing() {
    for n in [0, 1025, usize::MAX] {
        let refused = go(move || set_procs(n)).join().unwrap_err();
        assert!(message(&*refused).contains("1 to 1024"), "{n}");
    }
    assert_eq!(procs(), 2);
    assert_eq!(go(|| 1).join().unwrap(), 1);
}

#[test]
fn sixty_four_and_a_thousand_start_and_work() {
    for n in [64, 1024] {
        let rt = runtime(n);
        let sum: usize = rt.run(|| {
            assert_eq!(procs(), n);
            let handles: Vec<_> = (0..500usize)
                .map(|i| {
                    go(move || {
                        yield_now();
                        i
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum()
        });
        assert_eq!(sum, 499 * 500 / 2);
    }
}

fn respawn(hops: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    hops.fetch_add(1, Relaxed);
    if !stop.load(Relaxed) {
        go(move || respawn(hops, stop));
    }
}

/// Up and down at random beside goroutines that respawn themselves, yield, fork and join.
#[runnext::test(procs = 4)]
fn resized_all_the_time() {
    let stop = Arc::new(AtomicBool::new(false));
    let hops = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (hops, stop) = (Arc::clone(&hops), Arc::clone(&stop));
        go(move || respawn(hops, stop));
    }
    let yielder = {
        let stop = Arc::clone(&stop);
        go(move || {
            let mut turns = 0u64;
            while !stop.load(Relaxed) {
                turns += 1;
                yield_now();
            }
            turns
        })
    };
    let resizer = go(|| {
        for i in 0..2_000usize {
            let n = 1 + (i * 7 + i / 3) % 9;
            set_procs(n);
            assert_eq!(procs(), n);
            if i % 3 == 0 {
                yield_now();
            }
        }
    });
    for _ in 0..200 {
        let total = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..20 {
                s.go(|| {
                    yield_now();
                    total.fetch_add(1, Relaxed);
                });
            }
        });
        assert_eq!(total.load(Relaxed), 20);
    }
    resizer.join().unwrap();
    stop.store(true, Relaxed);
    assert!(yielder.join().unwrap() > 0);
    until(|| runnext::num_goroutines() == 1);
    assert!(hops.load(Relaxed) > 3);
}

/// Shrinking with full local queues: what a P held when it went is run by the others.
#[runnext::test(procs = 8)]
fn a_retired_processors_work_is_not_lost() {
    for round in 0..50 {
        let ran = Arc::new(AtomicUsize::new(0));
        set_procs(8);
        let spawners: Vec<_> = (0..8)
            .map(|_| {
                let ran = Arc::clone(&ran);
                go(move || {
                    for _ in 0..100 {
                        let ran = Arc::clone(&ran);
                        go(move || {
                            yield_now();
                            ran.fetch_add(1, Relaxed);
                        });
                    }
                })
            })
            .collect();
        set_procs(1 + round % 3);
        for spawner in spawners {
            spawner.join().unwrap();
        }
        until(|| ran.load(Relaxed) == 800);
    }
    until(|| runnext::num_goroutines() == 1);
}

#[test]
fn several_threads_resize_one_runtime() {
    let rt = runtime(2);
    std::thread::scope(|s| {
        for t in 0..4usize {
            let rt = &rt;
            s.spawn(move || {
                for i in 0..200 {
                    rt.run(|| set_procs(1 + (i * (t + 3)) % 6));
                    assert_eq!(rt.go(move || i).join().unwrap(), i);
                }
            });
        }
    });
}

/// Go's rule for GOMAXPROCS: a number nobody chose follows the system; one that was chosen does not.
#[test]
fn the_number_follows_the_cpus_until_somebody_chooses_it() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return; // nothing to take away
    }
    let ended = common::child(&[], || {
        // SAFETY: no thread-local is kept over a call that can park.
        let rt = unsafe { runnext::Runtime::builder().build() }.unwrap();
        rt.run(|| {
            let before = runnext::procs();
            assert!(before >= 2);
            leave_one_cpu();
            while runnext::procs() == before {
                runnext::yield_now(); // at work, or nobody looks
            }
            assert_eq!(runnext::procs(), 1);
            assert_eq!(runnext::set_procs(3), 1);
            let until = std::time::Instant::now() + std::time::Duration::from_millis(2500);
            while std::time::Instant::now() < until {
                assert_eq!(runnext::procs(), 3);
                runnext::yield_now();
            }
            assert_eq!(runnext::set_default_procs(), 3);
            assert_eq!(runnext::procs(), 1);
        });
    });
    ended.passed();
}

/// Also if it is the number there was.
#[test]
fn the_number_there_is_can_be_chosen() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return; // nothing to take away
    }
    let ended = common::child(&[], || {
        // SAFETY: no thread-local is kept over a call that can park.
        let build = || unsafe { runnext::Runtime::builder().build() }.unwrap();
        let (chosen, follows) = (build(), build());
        let before = chosen.run(|| set_procs(procs()));
        assert!(before >= 2);
        leave_one_cpu();
        // Both at work, or nobody looks; what the one sees the other has had time to see, twice.
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let worker = chosen.go(move || {
            while !theirs.load(Relaxed) {
                assert_eq!(procs(), before);
                yield_now();
            }
        });
        follows.run(|| until(|| procs() == 1));
        let until = std::time::Instant::now() + std::time::Duration::from_millis(1500);
        while std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        worker.join().unwrap();
    });
    ended.passed();
}

fn leave_one_cpu() {
    unsafe extern "C" {
        fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
        fn sched_getaffinity(pid: i32, size: usize, mask: *mut u64) -> i32;
    }
    let mut mask = [0u64; 16];
    // The number is read by another thread of the process: all of them are told.
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let tid: i32 = entry
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        // SAFETY: a mask of the size given, of 1024 CPUs.
        let got = unsafe { sched_getaffinity(tid, size_of_val(&mask), mask.as_mut_ptr()) };
        assert!(got >= 0);
        let word = mask.iter().position(|w| *w != 0).unwrap();
        let mut one = [0u64; 16];
        one[word] = 1 << mask[word].trailing_zeros();
        // SAFETY: as above.
        let set = unsafe { sched_setaffinity(tid, size_of_val(&one), one.as_ptr()) };
        assert_eq!(set, 0);
    }
}
